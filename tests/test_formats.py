"""The table of formats: who reads what, what is said of the rest, and one row is enough."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from serving import in_process, tiny

import gryphone
from gryphone.data.datasets import read_dataset
from gryphone.data.images import trace_images
from gryphone.data.samples import Sample, Unreadable
from gryphone.errors import InkError
from gryphone.ink import DEFAULT_LIMITS, Ink, Limits, read_bytes
from gryphone.reading import formats
from gryphone.reading.formats import ANY_PICTURE, FORMATS, Format, readers, unread_suffixes
from gryphone.reading.inputs import expand, format_of, read_input
from gryphone.server.settings import Settings
from gryphone.server.submission import describe_format, read_upload

EXAMPLES = Path(__file__).parents[1] / "examples"
ROWS = {row.name: row for row in FORMATS}
HEIC = b"\0\0\0\x18ftypheic" + b"x" * 90
UNREAD = {
    "PDF": (b"%PDF-1.7\n" + b"x" * 90, "PDF is not read; save its page as PNG"),
    "HEIC": (HEIC, "HEIC is not read; save it as JPEG or PNG"),
    "AVIF": (HEIC.replace(b"heic", b"avif"), "AVIF that is damaged, or that this Pillow cannot"),
}


def test_no_two_formats_share_an_ending_or_a_type() -> None:
    for facts in ([r.suffixes for r in FORMATS], [r.types for r in FORMATS]):
        every = [fact for row in facts for fact in row]
        assert len(every) == len(set(every)) and all(f == f.lower() for f in every)
    assert all(row.unread for row in FORMATS if row.read is None)
    assert unread_suffixes() == (".heic", ".heif", ".svg", ".pdf")
    assert list(readers(picture=False)) == [".inkml", ".json"]
    assert [*readers(picture=False), *readers(picture=True)] == list(readers())


def test_servers_decode_few_pictures() -> None:
    assert [row.pillow for row in FORMATS if row.pillow] == [
        *("PNG", "JPEG", "WEBP", "TIFF", "BMP")
    ]
    assert all(row.picture and row.read for row in FORMATS if row.pillow)


@pytest.mark.parametrize(
    ("data", "row"),
    [
        (b"<ink/>", ROWS["InkML"]),
        (b"\xef\xbb\xbf\r\n <ink/>", ROWS["InkML"]),
        (b" " * 63 + b"[", ROWS["JSON"]),
        (b"\t{", ROWS["JSON"]),
        (b" " * 64 + b"[", ANY_PICTURE),
        (b"\x89PNG\r\n\x1a\n", ANY_PICTURE),
        *((data, ROWS[name]) for name, (data, _) in UNREAD.items()),
    ],
)
def test_first_bytes_tell(data: bytes, row: Format) -> None:
    assert format_of(data) is row


@pytest.mark.parametrize("name", UNREAD)
def test_what_is_not_read_is_named(name: str, tmp_path: Path) -> None:
    data, words = UNREAD[name]
    (tmp_path / "a.png").write_bytes(data)  # a wrong ending hides nothing
    (tmp_path / "labels.tsv").write_text("a\tx\n")
    for source in (data, tmp_path / "a.png"):
        with pytest.raises(InkError, match=f"^note: {words}") as caught:
            read_input(source, "note")
        assert "\n" not in str(caught.value)
    [sample] = trace_images(read_dataset(tmp_path), {})
    assert isinstance(sample, Unreadable) and sample.error.startswith(f"a: {words}")


def test_clients_are_told_what_is_read() -> None:
    told = {row.name: describe_format(row) for row in FORMATS}
    assert told["PNG"]["read"] and told["InkML"]["read"] and told["PNG"]["unread"] is None
    assert told["PDF"]["unread"] == "PDF is not read; save its page as PNG"
    assert told["SVG"]["unread"] == "SVG is not read, export it as PNG"
    for name in ("GIF", "AVIF"):  # read from a disk, but not by a server
        assert not told[name]["read"]
        assert told[name]["unread"].endswith("read; use PNG, JPEG, WEBP, TIFF, BMP")


# --- one row ------------------------------------------------------------------------------------


def read_dots(source: bytes, *, name: str, limits: Limits = DEFAULT_LIMITS) -> Ink:
    """`dots:label`, then a stroke in each line: x y x y ..."""
    data, name = read_bytes(source, name, limits)
    first, *lines = data.decode().splitlines()
    strokes = tuple(np.array(line.split(), dtype=float).reshape(-1, 2) for line in lines)
    return Ink(strokes, label=first.partition(":")[2], id=Path(name).stem)


DOTS = b"dots:x\n0 0 9 9\n0 9 5 5 9 0\n"


def test_a_new_format_is_a_reader_and_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    row = Format("Dots", (".dots",), ("text/dots",), read_dots, start=re.compile(rb"dots:"))
    monkeypatch.setattr(formats, "FORMATS", (*FORMATS, row))
    expected = read_dots(DOTS, name="a")
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "a.dots").write_bytes(DOTS)
    (tmp_path / "a").write_bytes(DOTS)  # told by its first bytes
    for source in (folder / "a.dots", tmp_path / "a"):
        assert read_input(source).ink == expected
    assert read_input(DOTS, "a").ink == expected
    assert expand([str(folder)]) == [folder / "a.dots"] and not caplog.records
    [sample] = read_dataset(folder)
    assert isinstance(sample, Sample) and (sample.label, sample.ink) == ("x", expected)
    (folder / "labels.tsv").write_text("a\ty\n")
    [sample] = read_dataset(folder)
    assert isinstance(sample, Sample) and (sample.label, sample.ink) == ("y", expected)
    uploaded = read_upload(DOTS, "a.dots", Settings())[0].ink
    assert [s.tolist() for s in uploaded.strokes] == [s.tolist() for s in expected.strokes]
    with in_process(tiny()) as client:
        about = client.get("/v1/model").json()["formats"][-1]
        assert (about["name"], about["suffixes"], about["read"]) == ("Dots", [".dots"], True)


# --- the way through the package ----------------------------------------------------------------


def files_entered(work: Callable[[], object]) -> set[str]:
    """The package's files of which some function is called."""
    root, found = Path(gryphone.__file__).parent, set()

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(root) and frame.f_code.co_name != "<module>":
            found.add(str(path.relative_to(root).with_suffix("")))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def test_reading_passes_few_files() -> None:
    ink, picture = EXAMPLES / "ink" / "03-half.inkml", EXAMPLES / "photo" / "11-fraction.jpg"
    pages = ("image", "decode", "binarize", "marks", "rules", "sheet", "skeleton", "trace")
    assert files_entered(lambda: read_input(ink)) == {"reading/inputs", "reading/inkml", "ink"}
    assert files_entered(lambda: read_input(picture)) == {
        *("reading/inputs", "ink"),
        *(f"photo/{name}" for name in pages),
    }
