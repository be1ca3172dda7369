"""From the bytes of a request to ink: runs in the readers' processes, and writes no file."""

from __future__ import annotations

import io
import re
import warnings
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from gryphone.config import Canvas
from gryphone.errors import InkError
from gryphone.ink import Ink
from gryphone.photo.decode import open_picture
from gryphone.photo.image import read_image, trace_twice
from gryphone.reading import formats
from gryphone.reading.formats import Format
from gryphone.reading.inkml import read_inkml
from gryphone.reading.inputs import Input, format_of
from gryphone.reading.strokes import read_strokes
from gryphone.recognition.drawing import patches_of
from gryphone.recognition.page import check_lines, to_read
from gryphone.recognition.paper import Paper
from gryphone.recognition.session import Live
from gryphone.server.problems import Problem, one_line
from gryphone.server.schemas import InkRequest, LiveRequest, Options, parsed
from gryphone.server.settings import Settings

if TYPE_CHECKING:
    from PIL.Image import Image

Kind = Literal["formula", "page", "live"]
JSON, FORM = "application/json", "multipart/form-data"
MOST_PARTS = 8
# Patches that a stroke of a page counts as at least: its symbol costs steps of the decoder.
DENSE = 4
SPARE = 10_000  # commas and tags that options and annotations may have beside the points
# A marker: none is escaped in the data of a scan, nor are those that restart it.
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd8\xff]")
DECLARED = re.compile(r"""\A(\s{0,99}<\?xml[^>]{0,99}?)\sencoding=["'][^"']*["']""")


@dataclass(frozen=True)
class Submission:
    """What was sent: its ink, the size of the image it came from, and how to read it."""

    input: Input
    options: Options
    size: tuple[int, int] | None = None
    sent: bool = False  # the client knows the strokes: they are its own
    patches: int = 0  # of the canvas that the ink touches: the model's work
    live: Live | None = None  # ink that is being written


@dataclass
class Part:
    """One field of a form."""

    headers: dict[bytes, bytes] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)


def media_type(header: str) -> str:
    """The bare media type of a Content-Type header, if a request may have it."""
    kind = header.partition(";")[0].strip().lower()
    if kind not in (JSON, FORM):
        shown = one_line(kind, 60) or "no content type"
        raise Problem(415, "bad_type", f"{shown} is not accepted; send {JSON} or {FORM}")
    return kind


def read_request(
    body: bytes,
    content_type: str,
    settings: Settings,
    canvas: Canvas | None = None,
    kind: Kind = "formula",
) -> Submission:
    """The ink and the options of a request; with a canvas, what drawing it there costs."""
    submission = (_read_live if kind == "live" else _read_request)(body, content_type, settings)
    deadline = submission.options.deadline_ms
    if deadline is not None and deadline > 1000 * settings.seconds:
        raise Problem(
            422,
            "bad_options",
            f"options.deadline_ms: at most {1000 * settings.seconds:g}, as long as a request may "
            "take here",
        )
    _check_path(submission.input.ink, settings)
    if canvas is None:
        return submission
    if kind == "page":
        return replace(submission, patches=_page_patches(submission, settings, canvas))
    patches = patches_of(submission.input.ink.strokes, canvas)
    if patches > settings.patches:
        raise InkError(
            f"{submission.input.ink.id}: the strokes cover {patches} patches of the canvas, the "
            f"limit is {settings.patches}; send one formula at a time"
        )
    return replace(submission, patches=patches)


def _page_patches(submission: Submission, settings: Settings, canvas: Canvas) -> int:
    """What all lines of a page cost that will be read, those of doubt in every way.

    A formula has ten patches a stroke, never less than four; of dots a patch holds one, and each is
    a symbol.
    """
    strokes, most = len(submission.input.ink.strokes), settings.page // DENSE
    if strokes > most:  # before their lines are looked for
        raise InkError(
            f"{submission.input.ink.id}: {strokes} strokes, the limit of a page is {most}; send a "
            "part of the page"
        )
    paper = Paper(submission.input)
    runs = check_lines(paper.runs(), submission.input.ink.id)
    wanted, _ = to_read(paper, runs)
    lines = (paper.given.part(some).ink.strokes for some in wanted)
    patches = sum(max(patches_of(line, canvas), DENSE * len(line)) + 20 for line in lines)
    if patches > settings.page:
        raise InkError(
            f"{submission.input.ink.id}: the lines of the page cover {patches} patches of the "
            f"canvas, the limit is {settings.page}; send a part of the page"
        )
    return patches * (2 if submission.options.lock else 1)  # read without locks first


def _read_live(body: bytes, content_type: str, settings: Settings) -> Submission:
    if media_type(content_type) != JSON:
        raise Problem(415, "bad_type", f"ink that is being written comes as {JSON}")
    _check_json(body, "ink", settings)
    request = parsed(LiveRequest, body)
    ink = read_strokes({"strokes": request.strokes}, name="ink", limits=settings.ink)
    return Submission(Input(ink), request.options, sent=True, live=request.live(ink.strokes))


def _read_request(body: bytes, content_type: str, settings: Settings) -> Submission:
    if media_type(content_type) == JSON:
        _check_json(body, "ink", settings)
        request = parsed(InkRequest, body)
        if request.inkml:
            # Text has no encoding any more, whatever it says of itself.
            data = DECLARED.sub(r"\1", request.inkml, count=1).encode(errors="replace")
            _check_xml(data, "ink", settings)
            ink = read_inkml(data, name="ink", limits=settings.ink)
            return Submission(Input(ink), request.options)
        ink = read_strokes({"strokes": request.strokes}, name="ink", limits=settings.ink)
        return Submission(Input(ink), request.options, sent=True)
    parts = read_form(body, content_type)
    if "file" not in parts:
        raise Problem(422, "bad_form", "file: is missing; upload an image or ink under that name")
    unknown = sorted(set(parts) - {"file", "options"})
    if unknown:
        raise Problem(422, "bad_form", one_line(f"{unknown[0]}: is no field of this form", 100))
    options = Options()
    if "options" in parts:
        options = parsed(Options, bytes(parts["options"].data), "options")
    found, size = read_upload(bytes(parts["file"].data), _file_name(parts["file"]), settings)
    return Submission(found, options, size)


def read_upload(data: bytes, name: str, settings: Settings) -> tuple[Input, tuple[int, int] | None]:
    """What a file holds, whose format is told from its first bytes, and the image's size."""
    if not data.strip():
        raise InkError(f"{name}: is empty; there is nothing to read")
    row = format_of(data)
    if row.read is None or row.picture:
        return read_photo(data, name, settings)
    if row.read is read_strokes:
        _check_json(data, name, settings)
    elif row.read is read_inkml:
        _check_xml(data, name, settings)
    ink = row.read(data, name=name, limits=settings.ink)
    # An id inside the file may be anything; a name that is safe to send back is not.
    return Input(replace(ink, id=one_line(ink.id, 80), label=None)), None


def read_photo(data: bytes, name: str, settings: Settings) -> tuple[Input, tuple[int, int]]:
    """Ink of an image, traced."""
    scans = jpeg_scans(data)
    if scans > settings.scans:
        raise InkError(
            f"{name}: a JPEG of {scans} scans, the limit is {settings.scans}; save it again"
        )
    picture = open_picture(_open_image(data, name, settings.megapixels), name)
    return Input(*trace_twice(picture.image, name=name)), picture.size


def describe_format(row: Format) -> dict[str, Any]:
    """A row of the table, and what to say of such a file where it is not read."""
    about = row.about()
    unread = None if about["read"] else row.unread if row.read is None else _no_image()
    return about | {"unread": unread}


def _decoded() -> list[str]:
    """The pictures that are opened; Pillow knows others, some of which run other programs."""
    return [row.pillow for row in formats.FORMATS if row.pillow]


def _no_image() -> str:
    return f"not an image that can be read; use {', '.join(_decoded())}"


def warm_up() -> None:
    """Trace a cross once: what that imports, no user should wait for."""
    page = np.full((40, 40), 255, dtype=np.uint8)
    page[18:22, 5:35] = page[5:35, 18:22] = 0
    read_image(page, name="cross")


def _check_json(data: bytes, name: str, settings: Settings) -> None:
    """Refuse by the commas alone: parsed, a body takes many times the memory of its bytes."""
    most = 3 * settings.points + settings.strokes + SPARE
    if data.count(b",") > most:
        raise InkError(f"{name}: far more than the limit of {settings.points} points")


def _check_xml(data: bytes, name: str, settings: Settings) -> None:
    """The same of InkML, by its tags, attributes, points and their values."""
    for marks, what, most in (
        (b"<", "tags", 10 * settings.strokes + SPARE),
        (b"=", "attributes", 10 * settings.strokes + SPARE),
        (b",", "points", settings.points + SPARE),
        (b" \t\r\n", "values", 10 * settings.points + SPARE),
    ):
        if sum(data.count(mark) for mark in marks) > most:
            raise InkError(f"{name}: more than {most} {what}; send the ink of one formula")


def jpeg_scans(data: bytes) -> int:
    """Scans of a JPEG, 0 of anything else: each costs a pass over all pixels, in a few bytes."""
    count, at = 0, 2
    while data.startswith(b"\xff\xd8") and (found := _MARKER.search(data, at)):
        kind, at = found[0][-1], found.end()
        if kind == 0xD9:  # what is behind the image may be anything, such as a film
            break
        count += kind == 0xDA
        at += int.from_bytes(data[at : at + 2], "big") if kind != 0x01 else 0
    return count


def _open_image(data: bytes, name: str, megapixels: int) -> Image:
    """An image of an allowed format and size, told by its header: no pixel is decoded yet."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # see below
            image = Image.open(io.BytesIO(data), formats=_decoded())
        width, height = image.size
    except Image.DecompressionBombError:
        raise InkError(f"{name}: more than {megapixels} megapixels; shrink the image") from None
    except Exception as error:  # Pillow's parsers raise what they like on damaged headers
        raise InkError(f"{name}: {_no_image()}") from error
    if width * height > megapixels * 1_000_000:
        raise InkError(
            f"{name}: {width} x {height} is {width * height / 1e6:.0f} megapixels, the limit is "
            f"{megapixels}; shrink the image"
        )
    return image


def _check_path(ink: Ink, settings: Settings) -> None:
    """Refuse ink whose drawing would cost far more than writing costs: a scribble without end."""
    left, top, right, bottom = ink.bounds
    longest = max(right - left, bottom - top)
    length = sum(float(np.hypot(*np.diff(s, axis=0).T).sum()) for s in ink.strokes)
    if length > settings.path * longest:
        raise InkError(
            f"{ink.id}: the strokes are {length / longest:.0f} times as long as the ink is wide, "
            f"the limit is {settings.path}; this is no writing"
        )


def read_form(body: bytes, content_type: str) -> dict[str, Part]:
    """The fields of a multipart body by name. Nothing leaves memory, unlike Starlette's forms."""
    _, parameters = parse_options_header(content_type.encode("latin-1", "replace"))
    boundary = parameters.get(b"boundary", b"")
    if not boundary or len(boundary) > 200:
        raise Problem(400, "bad_form", "the Content-Type has no usable boundary")
    form = _Form()
    try:
        parser = MultipartParser(boundary, form.callbacks())  # type: ignore[arg-type]
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise Problem(400, "bad_form", one_line(f"broken form: {error}")) from None
    if not form.ended:
        raise Problem(400, "bad_form", "broken form: it ends before its closing boundary")
    return form.parts


class _Form:
    """Collects what the parser finds."""

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}
        self.part = Part()
        self.name, self.value = b"", b""
        self.count = 0
        self.ended = False

    def callbacks(self) -> dict[str, object]:
        names = "part_begin part_data header_field header_value header_end headers_finished end"
        return {f"on_{name}": getattr(self, name) for name in names.split()}

    def part_begin(self) -> None:
        self.part = Part()
        self.count += 1
        if self.count > MOST_PARTS:
            raise Problem(413, "too_large", f"more than {MOST_PARTS} fields in one form")

    def header_field(self, data: bytes, start: int, end: int) -> None:
        self.name += data[start:end]

    def header_value(self, data: bytes, start: int, end: int) -> None:
        self.value += data[start:end]

    def header_end(self) -> None:
        self.part.headers[self.name.lower()] = self.value
        self.name, self.value = b"", b""

    def headers_finished(self) -> None:
        name = _disposition(self.part).get(b"name", b"").decode("utf-8", "replace")
        if not name:
            raise Problem(400, "bad_form", "a field of the form has no name")
        if name in self.parts:
            raise Problem(422, "bad_form", one_line(f"{name}: is in the form twice", 100))
        self.parts[name] = self.part

    def part_data(self, data: bytes, start: int, end: int) -> None:
        self.part.data += data[start:end]

    def end(self) -> None:
        self.ended = True


def _disposition(part: Part) -> dict[bytes, bytes]:
    return parse_options_header(part.headers.get(b"content-disposition", b""))[1]


def _file_name(part: Part) -> str:
    """What to call an upload in answers and errors: the client's name for it, made harmless."""
    given = _disposition(part).get(b"filename", b"").decode("utf-8", "replace")
    name = PurePath(given.replace("\\", "/")).name
    return one_line(name, 80).strip() or "upload"
