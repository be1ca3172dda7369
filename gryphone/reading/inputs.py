"""Anything a user may hand over, read as ink: files, bytes, images, arrays, strokes, stdin."""

from __future__ import annotations

import glob
import logging
import math
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gryphone.errors import InkError
from gryphone.ink import Ink, Stroke, frozen_strokes, stroke_boxes
from gryphone.photo.decode import NotAPicture
from gryphone.photo.image import trace_twice
from gryphone.reading import formats
from gryphone.reading.formats import Format
from gryphone.reading.strokes import read_strokes

STDIN = "-"
LARGEST_FILE = 64 << 20
NAMED = 10  # of the files that are not read
LONGEST_NAME = 200  # in an error: what is taken for a path may be a whole file's text

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Input:
    """One input as it was read: its ink and, of a picture, another tracing of it."""

    ink: Ink
    retraced: tuple[Stroke, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "retraced", frozen_strokes(self.retraced, self.ink.id))

    def __reduce__(self) -> tuple[type[Input], tuple[Any, ...]]:
        return Input, (self.ink, self.retraced)  # whose copies are read-only too

    def part(self, strokes: NDArray[np.int64]) -> Input:
        """Some of the strokes as an input, with what the other tracing has of them."""
        kept = tuple(self.ink.strokes[i] for i in strokes)
        own = np.flatnonzero(np.isin(self._owners, strokes))
        ink = replace(self.ink, strokes=kept, glyphs=(), notes=())
        return Input(ink, tuple(self.retraced[i] for i in own))

    @cached_property
    def _owners(self) -> NDArray[np.int64]:
        """The stroke of the ink that each stroke of the other tracing lies nearest to."""
        low, high = stroke_boxes([self.ink.strokes])[0]
        owners = []
        for stroke in self.retraced:
            some = stroke[:: max(1, len(stroke) // 8)]
            outside = np.maximum(np.maximum(low - some[:, None], some[:, None] - high), 0)
            least = np.hypot(*np.moveaxis(outside, 2, 0)).mean(0)
            # No stroke is nearer than its box.
            owner, nearest = 0, math.inf
            for k in np.argsort(least, kind="stable"):
                if least[k] >= nearest:
                    break
                gap = _distance(some, self.ink.strokes[k])
                owner, nearest = (int(k), gap) if gap < nearest else (owner, nearest)
            owners.append(owner)
        return np.array(owners, dtype=np.int64)


def _distance(points: Stroke, stroke: Stroke) -> float:
    """The mean distance of points from a stroke's nearest."""
    gap = points[:, None] - stroke[None]
    return float(np.sqrt((gap**2).sum(2).min(1)).mean())


def read_input(source: Any, name: str | None = None) -> Input:
    """What a path, `-`, bytes, open file, PIL image, numpy image, Ink, or list of strokes holds."""
    if isinstance(source, Input):
        return source
    if isinstance(source, Ink):
        return Input(source)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return read_content(bytes(source), name or "input")
    if hasattr(source, "read"):  # an open file
        try:
            data = source.read(LARGEST_FILE + 1)
        except (OSError, ValueError) as error:  # closed, or not open for reading
            raise InkError(f"an open file cannot be read: {error}") from error
        if not isinstance(data, bytes):
            raise InkError(
                "an open file gives text; open it in binary mode, as in open(path, 'rb')"
            )
        label = getattr(source, "name", None)
        return read_content(data, name or (label if isinstance(label, str) else "file"))
    if isinstance(source, (str, Path)):
        if str(source) == STDIN:
            return read_content(sys.stdin.buffer.read(LARGEST_FILE + 1), name or "stdin")
        return _read_file(Path(source), name)
    if isinstance(source, np.ndarray) and source.dtype != object:
        return _read_as(formats.ANY_PICTURE, source, name or "array")
    if isinstance(source, Sequence) and all(isinstance(s, np.ndarray) for s in source):
        strokes = tuple(s[:, :2] if s.ndim == 2 else s for s in source if s.size)
        return Input(Ink(strokes, id=name or "strokes"))
    if isinstance(source, (Sequence, dict)):
        return Input(read_strokes(source, name=name or "strokes"))
    if type(source).__module__.partition(".")[0] == "PIL":
        return _read_as(formats.ANY_PICTURE, source, name or "image")
    raise InkError(
        f"cannot read a {type(source).__name__}; give a path, bytes, an open file, an image, "
        "an Ink, or a list of strokes"
    )


def read_content(data: bytes, name: str) -> Input:
    """What a file's content holds, whose format is told from its first bytes."""
    if len(data) > LARGEST_FILE:
        raise InkError(f"{name}: larger than {LARGEST_FILE >> 20} MiB; shrink it")
    if not data.strip():
        raise InkError(f"{name}: is empty; there is nothing to read")
    return _read_as(format_of(data), data, name)


def format_of(data: bytes) -> Format:
    """The format whose files start so; of what starts like none, Pillow may know more."""
    found = (row for row in formats.FORMATS if row.start and row.start.match(data))
    return next(found, formats.ANY_PICTURE)


def _read_file(path: Path, name: str | None) -> Input:
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
        shown = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."
        raise InkError(f"{shown}: cannot be read: {reason}") from error
    suffix = path.suffix.lower()
    named = next((row for row in formats.FORMATS if row.read and suffix in row.suffixes), None)
    if named is not None and data.strip() and len(data) <= LARGEST_FILE:
        return _read_as(named, data, name)
    return read_content(data, name)


def _read_as(row: Format, source: Any, name: str) -> Input:
    if row.read is not None and not row.picture:
        return Input(row.read(source, name=name))
    read = row.read or trace_twice  # plugins of Pillow may read what we do not
    with naming_unread(source, name):
        return Input(*read(source, name=name))


@contextmanager
def naming_unread(source: Any, name: str) -> Iterator[None]:
    """Say what content is that Pillow does not know, where the table does."""
    try:
        yield
    except NotAPicture as error:
        unread = format_of(source).unread
        if not unread:
            raise
        raise InkError(f"{name}: {unread}") from error


def normal_path(path: Path | str) -> str:
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
            files.setdefault(normal_path(file), file)
    return list(files.values())


def _matching(pattern: str) -> list[Path]:
    """The files that a pattern matches."""
    names = glob.glob(pattern, recursive=True)  # noqa: PTH207  Path.glob takes no absolute pattern
    found = [path for path in map(Path, sorted(names)) if _may_be_file(path)]
    left_out = len(names) - len(found)
    others = f"{left_out} folders that match are not read; name them without a pattern"
    if not found:
        raise InkError(f"{pattern}: {others if left_out else 'no file matches the pattern'}")
    if left_out and "**" not in pattern:  # which goes into folders by itself
        log.warning("%s: %s", pattern, others)
    return found


def _inside(folder: Path) -> list[Path]:
    """What can be read in a folder, and its subfolders that cannot: reading these says why."""
    closed: list[Path] = []
    files = sorted(_walk(folder, closed))
    readable = formats.readers()
    inside = sorted([*closed, *(p for p in files if p.suffix.lower() in readable)])
    _warn_of_others(folder, files)
    if not inside:
        raise InkError(f"{folder}: the folder holds no ink or image ({', '.join(readable)})")
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
    known = formats.unread_suffixes()
    unread = [str(p.relative_to(folder)) for p in files if p.suffix.lower() in known]
    if unread:
        names = ", ".join(unread[:NAMED]) + (", ..." if len(unread) > NAMED else "")
        log.warning("%s: %d files not read: %s; save as PNG or JPEG", folder, len(unread), names)
    known += tuple(formats.readers())
    others = [p for p in files if p.suffix.lower() not in known and p.name != formats.LABELS]
    if others:
        kinds = sorted({p.suffix.lower() or "no ending" for p in others})
        names = ", ".join(kinds[:NAMED]) + (", ..." if len(kinds) > NAMED else "")
        log.warning("%s: other files not read: %d (%s)", folder, len(others), names)
