"""The one table of file formats: a new one is a reader and a row."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from gryphone.photo.image import trace_twice
from gryphone.reading.inkml import NO_SVG, read_inkml
from gryphone.reading.strokes import read_strokes

LABELS = "labels.tsv"  # lies among the files of a data set and is none of them


@dataclass(frozen=True)
class Format:
    """One kind of file: how it is known, and its reader or what to say where there is none.

    The reader of ink is called as `read(content, name=..., limits=...)` and gives `Ink`; that of a
    picture, `read(content, name=...)`, gives ink and the strokes of another tracing.
    """

    name: str
    suffixes: tuple[str, ...]  # in lower case
    types: tuple[str, ...] = ()  # media types, by which browsers know files
    read: Callable[..., Any] | None = None
    picture: bool = False
    pillow: str = ""  # Pillow's name of a picture that it decodes in memory and alone: a server may
    start: re.Pattern[bytes] | None = None  # its first bytes; Pillow knows those of pictures
    unread: str = ""  # what to say of content that starts so and cannot be read

    def about(self) -> dict[str, Any]:
        """The row as clients see it: of the pictures, a server and a browser read a few."""
        about = {key: getattr(self, key) for key in ("name", "suffixes", "types", "picture")}
        return about | {"read": self.read is not None and bool(self.pillow or not self.picture)}


_picture = partial(Format, read=trace_twice, picture=True)
_text = rb"[\xef\xbb\xbf \t\r\n]{0,63}"  # a byte order mark and white space come before it
# The same in UTF-16, with its mark or without: then XML begins at once.
_wide = rb"\xff\xfe(?:[ \t\r\n]\0){0,63}<\0|(?:\xfe\xff(?:\0[ \t\r\n]){0,63})?\0<"

ANY_PICTURE = _picture("picture", ())  # what starts like nothing in the table; Pillow may know it

# People are told of suffixes and names in this order.
FORMATS: tuple[Format, ...] = (
    Format(
        "InkML",
        (".inkml",),
        ("application/inkml+xml", "application/xml", "text/xml"),
        read_inkml,
        start=re.compile(_text + rb"<|" + _wide),
    ),
    Format(
        "JSON", (".json",), ("application/json",), read_strokes, start=re.compile(_text + rb"[\[{]")
    ),
    _picture("PNG", (".png",), ("image/png",), pillow="PNG"),
    _picture("JPEG", (".jpg", ".jpeg", ".jfif"), ("image/jpeg",), pillow="JPEG"),
    _picture("WebP", (".webp",), ("image/webp",), pillow="WEBP"),
    _picture("TIFF", (".tif", ".tiff"), ("image/tiff",), pillow="TIFF"),
    _picture("BMP", (".bmp",), ("image/bmp",), pillow="BMP"),
    _picture("GIF", (".gif",), ("image/gif",)),
    _picture(
        "AVIF",
        (".avif",),
        ("image/avif",),
        start=re.compile(rb"(?s)....ftypavi"),
        unread="AVIF that is damaged, or that this Pillow cannot read; save it as PNG",
    ),
    _picture("JPEG 2000", (".jp2",), ("image/jp2",)),
    _picture("PPM", (".pbm", ".pgm", ".ppm"), ("image/x-portable-anymap",)),
    Format(
        "HEIC",
        (".heic", ".heif"),
        ("image/heic", "image/heif"),
        picture=True,
        start=re.compile(rb"(?s)....ftyp(hei|hev|mif1|msf1)"),
        unread="HEIC is not read; save it as JPEG or PNG",
    ),
    Format("SVG", (".svg",), ("image/svg+xml",), unread=NO_SVG),  # said by the reader of XML
    Format(
        "PDF",
        (".pdf",),
        ("application/pdf",),
        start=re.compile(rb"%PDF-"),
        unread="PDF is not read; save its page as PNG",
    ),
)


def readers(*, picture: bool | None = None) -> dict[str, Callable[..., Any]]:
    """The reader of each ending: of pictures, of ink (False), or of both (None)."""
    rows = [row for row in FORMATS if picture in (None, row.picture)]
    return {suffix: row.read for row in rows if row.read for suffix in row.suffixes}


def unread_suffixes() -> tuple[str, ...]:
    """Endings of files that may well hold a formula, and are not read."""
    return tuple(suffix for row in FORMATS if not row.read for suffix in row.suffixes)
