"""Ink: what the pen wrote, in the order it was written, and the precision at which it is kept.

`Ink` is immutable and always drawable: at least one stroke, no empty stroke, only finite numbers.
x grows to the right and y downwards, in whatever unit the device used.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gryphone.config import Precision
from gryphone.errors import InkError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Stroke = Floats  # (n, 2): x, y

QUANTILE = (3, 5)  # of stroke sizes, the one that stands for the size of a symbol
LONGEST_STROKES = 100.0  # an expression is at most that many typical strokes long (dots alone)
# Beyond this a coordinate is a damaged file, and differences would lose the shape in float32.
LARGEST_COORDINATE = 1e9


BROKEN_GROUP = "trace group"  # begins the note on a symbol whose strokes are not all there


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

    def __post_init__(self) -> None:
        if not self.strokes:
            raise InkError(f"{self.id}: no strokes; there is nothing to read")
        strokes = frozen_strokes(self.strokes, self.id)
        for glyph in self.glyphs:
            wrong = [s for s in glyph.strokes if not 0 <= s < len(strokes)]
            if wrong:
                raise InkError(
                    f"{self.id}: symbol {glyph.label!r} names stroke {wrong[0]}, "
                    f"but there are {len(strokes)} strokes"
                )
        object.__setattr__(self, "strokes", strokes)
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
        return (self.strokes, *rest, self.notes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ink):
            return NotImplemented
        same = self._values()[1:] == other._values()[1:]
        same = same and len(self.strokes) == len(other.strokes)
        return same and all(map(np.array_equal, self.strokes, other.strokes))

    def __hash__(self) -> int:
        return hash((self.id, self.label, len(self.strokes), self.bounds))

    def __reduce__(self) -> tuple[type["Ink"], tuple[Any, ...]]:
        # Rebuilding through __init__ keeps a copy from another process read-only as well.
        return Ink, self._values()


def frozen_strokes(strokes: Iterable[Any], name: str) -> tuple[Stroke, ...]:
    """Read-only copies of strokes, or an InkError that says where one is damaged."""
    return tuple(_frozen(stroke, name, index) for index, stroke in enumerate(strokes))


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


def check_points(count: int, name: str, limits: Limits) -> None:
    """Raise InkError when there are more points than the limit."""
    if count > limits.points:
        raise InkError(f"{name}: {count} points; the limit is {limits.points}")


def stroke_boxes(inks: Sequence[Sequence[Stroke]]) -> list[tuple[Floats, Floats]]:
    """The lowest and highest coordinates of each ink's strokes, (strokes, 2) both."""
    lengths = np.array([len(stroke) for ink in inks for stroke in ink])
    points = np.concatenate([stroke for ink in inks for stroke in ink])
    firsts = np.cumsum(lengths) - lengths
    low, high = np.minimum.reduceat(points, firsts), np.maximum.reduceat(points, firsts)
    bounds = pairwise(accumulate(map(len, inks), initial=0))
    return [(low[start:end], high[start:end]) for start, end in bounds]


def typical_stroke(strokes: Sequence[Stroke]) -> float:
    """The size that stands for a symbol's: a quantile of the strokes' longer sides."""
    [(low, high)] = stroke_boxes([strokes])
    return float(quantile_of((high - low).max(1)))


def usual_size(low: Floats, high: Floats) -> float:
    """The same of strokes' lowest and highest coordinates; never 0, so that it can be a unit."""
    return max(float(quantile_of((high - low).max(1))), 1e-9)


def in_order(start: Floats, end: Floats) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Along one axis: the order of some strokes, how far they reach so far, and the room (n - 1,)
    between that and the next one's start."""
    order = np.argsort(start)
    reached = np.maximum.accumulate(end[order])
    return order, reached, start[order][1:] - reached[:-1]


def quantile_of(sizes: NDArray[Any]) -> Any:
    """Of some strokes' sizes, the one that stands for the size of a symbol."""
    return np.sort(sizes)[len(sizes) * QUANTILE[0] // QUANTILE[1]]


DEFAULT_PRECISION = Precision()


def condensed(
    inks: Sequence[Sequence[Floats]], precision: Precision = DEFAULT_PRECISION
) -> list[list[Floats]]:
    """The strokes of inks as the packed store would give them back."""
    strokes = [stroke for ink in inks for stroke in ink]
    lengths = np.array([len(stroke) for stroke in strokes])
    sizes = [sum(map(len, ink)) for ink in inks]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    grid, stroke = condense(np.concatenate(strokes), lengths, offsets, precision)
    parts = iter(np.split(grid / precision.grid, np.flatnonzero(np.diff(stroke)) + 1))
    return [list(islice(parts, len(ink))) for ink in inks]


def condense(
    points: Floats, lengths: Ints, offsets: Ints, precision: Precision
) -> tuple[NDArray[np.int32], Ints]:
    """The points (M, 2) that stay, on the grid of each ink's canvas, and the stroke (M,) of each.

    `lengths` counts the points of each stroke, `offsets` (n + 1,) bounds the inks.
    """
    points = to_canvas(points, offsets, precision)
    keep = simplify(points, np.cumsum(lengths) - lengths, offsets[:-1], precision.tolerance)
    grid = np.rint(points[keep] * precision.grid).astype(np.int32)
    stroke = np.repeat(np.arange(len(lengths)), lengths)[keep]
    # Rounding makes neighbours meet; a stroke's first point always stays.
    fresh = np.ones(len(grid), dtype=bool)
    fresh[1:] = (np.diff(grid, axis=0) != 0).any(axis=1) | (np.diff(stroke) != 0)
    return grid[fresh], stroke[fresh]


def to_canvas(points: Floats, offsets: Ints, precision: Precision) -> Floats:
    """Move each ink to the origin and scale it to constant area; `offsets` (n + 1,) bounds inks."""
    starts, counts = offsets[:-1], np.diff(offsets)
    low = np.minimum.reduceat(points, starts)
    extent = np.maximum.reduceat(points, starts) - low  # (n, 2)
    longest = np.maximum(extent.max(axis=1), 1e-12)
    effective = np.maximum(extent, (longest / precision.max_aspect)[:, None])
    scale = precision.side / np.sqrt(effective.prod(axis=1))
    placed: Floats = (points - np.repeat(low, counts, 0)) * np.repeat(scale, counts)[:, None]
    return placed


def distance(points: Floats, a: Ints, b: Ints, p: Ints, segment: Ints) -> Floats:
    """Distance of points p from line segments a-b; `segment` says which of them for each."""
    start, way = points[a].T, (points[b] - points[a]).T
    size = np.maximum(way[0] * way[0] + way[1] * way[1], 1e-24)
    way, off = way.take(segment, 1), points[p].T - start.take(segment, 1)  # (2, n)
    part = off * way
    along = (part[0] + part[1]) / size[segment]
    off -= way * np.minimum(np.maximum(along, 0.0), 1.0)
    off *= off
    result: Floats = np.sqrt(off[0] + off[1])
    return result


Distance = Callable[[Floats, Ints, Ints, Ints, Ints], Floats]


def simplify(points: Floats, strokes: Ints, inks: Ints, tolerance: float) -> NDArray[np.bool_]:
    """Which points to keep (N,): stroke ends, each ink's extremes, and all that bends further.

    `strokes` and `inks` hold the index of each stroke's and each ink's first point.
    """
    count = len(points)
    keep = np.zeros(count, dtype=bool)
    keep[strokes] = True
    keep[np.append(strokes[1:], count) - 1] = True
    keep |= _extremes(points, inks)
    return bends(points, keep, tolerance)


def bends(
    points: Floats, ends: NDArray[np.bool_], tolerance: float, distance_of: Distance = distance
) -> NDArray[np.bool_]:
    """Which points to keep (N,): `ends`, among them those of all lines, and what bends further.

    All segments are split at once, level by level: as many rounds as the deepest curve needs.
    """
    keep = ends.copy()
    some = np.flatnonzero(~keep)  # candidates in segments that are not yet settled
    while len(some):
        kept = np.flatnonzero(keep)
        after = kept.searchsorted(some)
        first = np.flatnonzero(new := _changes(after))  # of each segment
        segment, end = new.cumsum() - 1, after[first]
        off = distance_of(points, kept[end - 1], kept[end], some, segment)
        farthest = np.maximum.reduceat(off, first)
        far = (farthest > tolerance)[segment]
        at = np.flatnonzero(far & (off == farthest[segment]))
        at = at[_changes(segment[at])]  # one point per segment when several tie
        keep[some[at]] = True
        far[at] = False
        some = some[far]
    return keep


def _changes(values: Ints) -> NDArray[np.bool_]:
    """Where a value is not the one before it; the first is none."""
    new = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new


def _extremes(points: Floats, inks: Ints) -> NDArray[np.bool_]:
    """The points on each ink's bounding box: dropping one would change the ink's scale."""
    sizes = np.diff(np.append(inks, len(points)))
    low = np.repeat(np.minimum.reduceat(points, inks), sizes, 0)
    high = np.repeat(np.maximum.reduceat(points, inks), sizes, 0)
    touching = (points == low) | (points == high)
    # A straight edge along the box touches it many times; its two ends are enough.
    inner = np.zeros(len(points), dtype=bool)
    inner[1:-1] = (touching[1:-1] & touching[:-2] & touching[2:]).any(axis=1)
    result: NDArray[np.bool_] = touching.any(axis=1) & ~inner
    return result
