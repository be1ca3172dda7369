"""Ink: what the pen wrote, in the order it was written. Reads strokes JSON and builds on InkML.

`Ink` is immutable and always drawable: at least one stroke, no empty stroke, only finite numbers.
x grows to the right and y downwards, in whatever unit the device used.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gryphone.errors import InkError

Stroke = NDArray[np.float64]  # (n, 2): x, y

# Beyond this a coordinate is a damaged file, and differences would lose the shape in float32.
LARGEST_COORDINATE = 1e9


@dataclass(frozen=True)
class Limits:
    """What a reader accepts from an untrusted source before it gives up."""

    bytes: int = 16 << 20
    strokes: int = 5_000
    points: int = 500_000


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Glyph:
    """One written symbol: its label, the strokes that draw it, and the id of its MathML node."""

    label: str
    strokes: tuple[int, ...]
    href: str | None = None


@dataclass(frozen=True, eq=False)
class Ink:
    """Strokes and what is known about them; equal when everything in it is equal."""

    strokes: tuple[Stroke, ...]
    label: str | None = None
    glyphs: tuple[Glyph, ...] = ()
    id: str = "ink"
    writer: str | None = None
    mathml: str | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what a reader of the result should know
    retraced: tuple[Stroke, ...] = ()  # another tracing of the same picture

    def __post_init__(self) -> None:
        if not self.strokes:
            raise InkError(f"{self.id}: no strokes; there is nothing to read")
        strokes = tuple(_frozen(s, self.id, i) for i, s in enumerate(self.strokes))
        for glyph in self.glyphs:
            wrong = [s for s in glyph.strokes if not 0 <= s < len(strokes)]
            if wrong:
                raise InkError(
                    f"{self.id}: symbol {glyph.label!r} names stroke {wrong[0]}, "
                    f"but there are {len(strokes)} strokes"
                )
        retraced = tuple(_frozen(s, self.id, i) for i, s in enumerate(self.retraced))
        object.__setattr__(self, "strokes", strokes)
        object.__setattr__(self, "retraced", retraced)
        object.__setattr__(self, "glyphs", tuple(self.glyphs))
        object.__setattr__(self, "annotations", MappingProxyType(dict(self.annotations)))
        object.__setattr__(self, "notes", tuple(self.notes))

    @property
    def point_count(self) -> int:
        """Number of points in all strokes."""
        return sum(len(stroke) for stroke in self.strokes)

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """(left, top, right, bottom) of the points; width or height may be zero."""
        points = np.concatenate(self.strokes)
        left, top = points.min(axis=0)
        right, bottom = points.max(axis=0)
        return float(left), float(top), float(right), float(bottom)

    def _values(self) -> tuple[Any, ...]:
        rest = (self.label, self.glyphs, self.id, self.writer, self.mathml, dict(self.annotations))
        return (self.strokes, *rest, self.notes, self.retraced)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ink):
            return NotImplemented
        return self._values()[1:-1] == other._values()[1:-1] and all(
            len(mine) == len(others) and all(map(np.array_equal, mine, others))
            for mine, others in (
                (self.strokes, other.strokes),
                (self.retraced, other.retraced),
            )
        )

    def __hash__(self) -> int:
        return hash((self.id, self.label, len(self.strokes), self.bounds))

    def __reduce__(self) -> tuple[type["Ink"], tuple[Any, ...]]:
        # Rebuilding through __init__ keeps a copy from another process read-only as well.
        return Ink, self._values()


def _frozen(points: Any, name: str, index: int) -> Stroke:
    """A read-only (n, 2) copy of one stroke, or an InkError that says where it is damaged."""
    try:
        stroke = np.array(points, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InkError(f"{name}: stroke {index} is not a list of [x, y] numbers") from error
    if stroke.ndim != 2 or stroke.shape[1] != 2 or len(stroke) == 0:
        raise InkError(
            f"{name}: stroke {index} has shape {stroke.shape}; expected (points, 2), points >= 1"
        )
    # The comparison is false for NaN too.
    fine = np.abs(stroke) <= LARGEST_COORDINATE
    if not fine.all():
        point = int(np.argmin(fine.all(axis=1)))
        x, y = stroke[point]
        raise InkError(
            f"{name}: stroke {index}, point {point} is ({x}, {y}); "
            f"coordinates must be finite and below {LARGEST_COORDINATE:g}"
        )
    stroke.flags.writeable = False
    return stroke


def read_bytes(source: Path | bytes, name: str | None, limits: Limits) -> tuple[bytes, str]:
    """The content of a file or buffer and the name to blame in errors, within the byte limit."""
    if isinstance(source, bytes):
        data, name = source, name or "ink"
    else:
        name = name or str(source)
        try:
            with source.open("rb") as file:
                data = file.read(limits.bytes + 1)
        except OSError as error:
            raise InkError(f"{name}: cannot be read: {error.strerror or error}") from error
    if len(data) > limits.bytes:
        raise InkError(f"{name}: larger than {limits.bytes} bytes; raise Limits.bytes to read it")
    return data, name


def read_strokes(
    source: Path | bytes | str | Sequence[Any] | Mapping[str, Any],
    *,
    name: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Ink:
    """Read strokes JSON: a path, JSON text, or the parsed value.

    A stroke is `[[x, y], ...]` (a third value, time, is dropped) or `{"x": [...], "y": [...]}`;
    strokes come as a list, or under the key "strokes" beside optional "label" and "id".
    """
    value: Any = source
    if isinstance(source, (Path, bytes, str)):
        raw = source.encode() if isinstance(source, str) else source
        data, name = read_bytes(raw, name, limits)
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise InkError(f"{name}: not JSON: {error}") from error
    name = name or "ink"
    label, identity = None, Path(name).stem or name
    if isinstance(value, Mapping):
        label = value.get("label")
        identity = str(value.get("id", identity))
        value = value.get("strokes", [value] if "x" in value else None)
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise InkError(f'{name}: expected a list of strokes or an object with "strokes"')
    if label is not None and not isinstance(label, str):
        raise InkError(f"{name}: label is {label!r}; expected a string")
    if len(value) > limits.strokes:
        raise InkError(f"{name}: {len(value)} strokes; the limit is {limits.strokes}")
    strokes = [_json_stroke(stroke, name, i) for i, stroke in enumerate(value)]
    check_points(sum(map(len, strokes)), name, limits)
    if not any(map(len, strokes)):
        raise InkError(f"{name}: no strokes; there is nothing to read")
    # A tap that a canvas reports as an empty list drew nothing: leave it out.
    return Ink(tuple(s for s in strokes if len(s)), label=label, id=identity)


def check_points(count: int, name: str, limits: Limits) -> None:
    """Raise InkError when there are more points than the limit."""
    if count > limits.points:
        raise InkError(f"{name}: {count} points; the limit is {limits.points}")


def _json_stroke(stroke: Any, name: str, index: int) -> Stroke:
    """One stroke of either JSON form as an (n, 2) array; n may be zero."""
    where = f"{name}: stroke {index}"
    if isinstance(stroke, Mapping):
        x, y = stroke.get("x"), stroke.get("y")
        if not isinstance(x, Sequence) or not isinstance(y, Sequence) or len(x) != len(y):
            raise InkError(f'{where} needs "x" and "y" lists of equal length')
        stroke = list(zip(x, y, strict=True))
    if not isinstance(stroke, Sequence) or isinstance(stroke, (str, bytes)):
        raise InkError(f"{where} is {type(stroke).__name__}; expected a list of points")
    points = [_json_point(point, where, i) for i, point in enumerate(stroke)]
    return np.array(points, dtype=np.float64).reshape(-1, 2)


def _json_point(point: Any, where: str, index: int) -> tuple[float, float]:
    if isinstance(point, Mapping):
        point = (point.get("x"), point.get("y"))
    numbers = isinstance(point, Sequence) and not isinstance(point, (str, bytes))
    if not numbers or len(point) < 2 or not all(_is_number(v) for v in point[:2]):
        raise InkError(
            f"{where}, point {index} is {point!r}; expected two numbers, "
            f"finite and below {LARGEST_COORDINATE:g}"
        )
    return float(point[0]), float(point[1])


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= LARGEST_COORDINATE and not math.isnan(value)


def to_strokes(ink: Ink) -> list[list[list[float]]]:
    """The strokes as JSON-ready lists: `[[[x, y], ...], ...]`."""
    return [stroke.tolist() for stroke in ink.strokes]


def read_inkml(
    source: Path | bytes, *, name: str | None = None, limits: Limits = DEFAULT_LIMITS
) -> Ink:
    """Read InkML of CROHME, MathWriting or any W3C writer; see gryphone/inkml.py."""
    from gryphone.inkml import parse  # defusedxml is not needed where only packed ink is read

    data, name = read_bytes(source, name, limits)
    return parse(data, name, limits)


def to_inkml(ink: Ink) -> str:
    """Write InkML that `read_inkml` reads back to an equal Ink (its id is the name of the file)."""
    from gryphone.inkml import serialize

    return serialize(ink)


def read_ink(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> Ink:
    """Read a file by its ending: `.inkml` or strokes `.json`."""
    readers = {".inkml": read_inkml, ".json": read_strokes}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InkError(f"{path}: unknown kind of ink; expected {' or '.join(readers)}")
    return reader(path, limits=limits)  # type: ignore[operator]
