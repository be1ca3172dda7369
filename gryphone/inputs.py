"""Anything a user may hand over, read as ink: files, bytes, images, arrays, strokes, stdin."""

from __future__ import annotations

import glob
import logging
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gryphone.data.samples import IMAGES, INKS
from gryphone.errors import InkError
from gryphone.ink import Ink, read_inkml, read_strokes

STDIN = "-"
LARGEST_FILE = 64 << 20
READABLE = (*INKS, *IMAGES)
UNREAD = (".heic", ".heif", ".avif", ".svg", ".pdf")  # may well hold a formula
NAMED = 10  # of those that are not read

log = logging.getLogger(__name__)


def read_source(source: Any, name: str | None = None) -> Ink:
    """Ink from a path, `-`, bytes, PIL image, numpy image, Ink, or list of strokes."""
    if isinstance(source, Ink):
        return source
    if isinstance(source, (bytes, bytearray, memoryview)):
        return read_content(bytes(source), name or "input")
    if isinstance(source, (str, Path)):
        if str(source) == STDIN:
            return read_content(sys.stdin.buffer.read(LARGEST_FILE + 1), name or "stdin")
        return _read_file(Path(source), name)
    if isinstance(source, np.ndarray) and source.dtype != object:
        return _read_image(source, name or "array")
    if isinstance(source, Sequence):
        arrays = all(isinstance(s, np.ndarray) for s in source)
        if arrays:
            return Ink(tuple(s[:, :2] if s.ndim == 2 else s for s in source), id=name or "strokes")
        return read_strokes(source, name=name or "strokes")
    if isinstance(source, dict):
        return read_strokes(source, name=name or "strokes")
    if type(source).__module__.partition(".")[0] == "PIL":
        return _read_image(source, name or "image")
    raise InkError(
        f"cannot read a {type(source).__name__}; give a path, bytes, a PIL image, a numpy image, "
        "an Ink, or a list of strokes"
    )


def read_content(data: bytes, name: str) -> Ink:
    """Ink from a file's content, whose kind is told from its first bytes."""
    if len(data) > LARGEST_FILE:
        raise InkError(f"{name}: larger than {LARGEST_FILE >> 20} MiB; shrink it")
    if not data.strip():
        raise InkError(f"{name}: is empty; there is nothing to read")
    start = data[:64].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start == b"<":
        return read_inkml(data, name=name)
    if start in (b"[", b"{"):
        return read_strokes(data, name=name)
    return _read_image(data, name)


def _read_file(path: Path, name: str | None) -> Ink:
    name = name or str(path)
    if path.is_dir():
        raise InkError(f"{name}: is a folder; give its files, or use `gryphone recognize {name}`")
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise InkError(f"{name}: no such file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InkError(f"{name}: cannot be read: {reason}") from error
    suffix = path.suffix.lower()
    if data.strip() and len(data) <= LARGEST_FILE:
        if suffix == ".inkml":
            return read_inkml(data, name=name)
        if suffix == ".json":
            return read_strokes(data, name=name)
        if suffix in IMAGES:
            return _read_image(data, name)
    return read_content(data, name)


def _read_image(source: Any, name: str) -> Ink:
    from gryphone.photo import read_image

    return read_image(source, name=name, twice=True)


def expand(sources: Iterable[str]) -> list[Path]:
    """Files named by paths, folders and glob patterns, in order, each once.

    Images and documents of a folder that cannot be read are named in a warning.
    """
    files: dict[Path, None] = {}
    for source in sources:
        path = Path(source)
        if path.is_dir():
            files |= dict.fromkeys(_inside(path))
        elif glob.has_magic(source) and not path.exists():
            found = glob.glob(source, recursive=True)  # noqa: PTH207  Path.glob takes no absolute pattern
            matches = [Path(m) for m in sorted(found)]
            if not matches:
                raise InkError(f"{source}: no file matches the pattern")
            files |= dict.fromkeys(m for m in matches if m.is_file())
        else:
            files[path] = None
    return list(files)


def _inside(folder: Path) -> list[Path]:
    """What can be read in a folder."""
    files = [p for p in sorted(folder.rglob("*")) if p.is_file()]
    inside = [p for p in files if p.suffix.lower() in READABLE]
    if not inside:
        raise InkError(f"{folder}: the folder holds no ink or image ({', '.join(READABLE)})")
    unread = [str(p.relative_to(folder)) for p in files if p.suffix.lower() in UNREAD]
    if unread:
        names = ", ".join(unread[:NAMED]) + (", ..." if len(unread) > NAMED else "")
        log.warning("%s: %d files not read: %s; save as PNG or JPEG", folder, len(unread), names)
    return inside
