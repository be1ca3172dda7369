"""Anything a user may hand over, read as ink: files, bytes, images, arrays, strokes, stdin."""

from __future__ import annotations

import glob
import logging
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gryphone.data.samples import IMAGES, INKS, LABELS
from gryphone.errors import InkError
from gryphone.ink import Ink, Stroke
from gryphone.reading.inkml import read_inkml
from gryphone.reading.strokes import read_strokes

STDIN = "-"
LARGEST_FILE = 64 << 20
READABLE = (*INKS, *IMAGES)
UNREAD = (".heic", ".heif", ".svg", ".pdf")  # may well hold a formula
NAMED = 10  # of those that are not read

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Input:
    ink: Ink
    retraced: tuple[Stroke, ...] = ()


def read_input(source: Any, name: str | None = None) -> Input:
    if isinstance(source, Input):
        return source
    ink = read_source(source, name)
    return Input(replace(ink, retraced=()), ink.retraced)


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
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        gone = "is a link to a file that is gone" if path.is_symlink() else "no such file"
        raise InkError(f"{name}: {gone}") from None
    except IsADirectoryError:
        raise InkError(
            f"{name}: is a folder; give its files, or use `gryphone recognize {name}`"
        ) from None
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
    from gryphone.photo.image import read_image

    return read_image(source, name=name, twice=True)


def same(path: Path | str) -> str:
    """What all spellings of a path have in common."""
    return os.path.abspath(path)  # noqa: PTH100  resolve() would take links for what they point to


def expand(sources: Iterable[str]) -> list[Path]:
    """Files named by paths, folders and glob patterns, in order, each once.

    Files of a folder that are not read are counted in a warning, hidden ones left out.
    """
    files: dict[str, Path] = {}
    for source in sources:
        path = Path(source)
        if path.is_dir():
            found = _inside(path)
        elif glob.has_magic(source) and not path.exists():
            found = _matching(source)
        else:
            found = [path]
        for file in found:
            files.setdefault(same(file), file)
    return list(files.values())


def _matching(pattern: str) -> list[Path]:
    """The files that a pattern matches."""
    found = glob.glob(pattern, recursive=True)  # noqa: PTH207  Path.glob takes no absolute pattern
    if not found:
        raise InkError(f"{pattern}: no file matches the pattern")
    return [path for path in map(Path, sorted(found)) if _may_be_file(path)]


def _inside(folder: Path) -> list[Path]:
    """What can be read in a folder, and its subfolders that cannot: reading these says why."""
    closed: list[Path] = []
    files = sorted(_walk(folder, closed))
    inside = sorted([*closed, *(p for p in files if p.suffix.lower() in READABLE)])
    _warn_of_others(folder, files)
    if not inside:
        raise InkError(f"{folder}: the folder holds no ink or image ({', '.join(READABLE)})")
    return inside


def _walk(folder: Path, closed: list[Path]) -> Iterator[Path]:
    """The files of a folder, through links too, but no hidden ones; `closed` gets what is shut."""

    def shut(error: OSError) -> None:
        closed.append(Path(error.filename))

    seen: set[tuple[int, int]] = set()  # a link may lead back to a folder above it
    for place, folders, names in os.walk(folder, onerror=shut, followlinks=True):
        status = Path(place).stat()
        identity = status.st_dev, status.st_ino
        if identity in seen:
            folders.clear()
            continue
        seen.add(identity)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths = (Path(place, name) for name in names if not name.startswith("."))
        yield from filter(_may_be_file, paths)


def _may_be_file(path: Path) -> bool:
    """No folder, device or pipe; a link to nothing is for the reader to complain about."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return True


def _warn_of_others(folder: Path, files: Sequence[Path]) -> None:
    """Name what may well hold a formula and is not read; count the rest."""
    unread = [str(p.relative_to(folder)) for p in files if p.suffix.lower() in UNREAD]
    if unread:
        names = ", ".join(unread[:NAMED]) + (", ..." if len(unread) > NAMED else "")
        log.warning("%s: %d files not read: %s; save as PNG or JPEG", folder, len(unread), names)
    known = (*READABLE, *UNREAD)
    others = [p for p in files if p.suffix.lower() not in known and p.name != LABELS]
    if others:
        kinds = sorted({p.suffix.lower() or "no ending" for p in others})
        names = ", ".join(kinds[:NAMED]) + (", ..." if len(kinds) > NAMED else "")
        log.warning("%s: other files not read: %d (%s)", folder, len(others), names)
