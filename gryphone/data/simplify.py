"""Fewer points for the same drawing: Ramer-Douglas-Peucker on many inks at once, then a fine grid.

Ink is first scaled to the constant-area canvas, so that the tolerance means pixels of what the
model sees. Every function works on flat arrays: points (N, 2), and the index of each stroke's
first point.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Precision:
    """How ink is stored: the canvas that defines a pixel, and the errors allowed in pixels."""

    side: float = 384.0  # width times height is side²: the largest canvas that models draw on
    max_aspect: float = 16.0  # flatter ink counts as this flat, as in gryphone.raster.Canvas
    tolerance: float = 0.25  # a dropped point lies at most this far from the line kept
    grid: int = 8  # steps per pixel


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


def distance(points: Floats, a: Ints, b: Ints, p: Ints) -> Floats:
    """Distance of points p from the line segments a-b."""
    start, chord, offset = points[a], points[b] - points[a], points[p] - points[a]
    length2 = np.maximum((chord * chord).sum(axis=1), 1e-24)
    along = np.clip((offset * chord).sum(axis=1) / length2, 0.0, 1.0)
    rest = points[p] - start - along[:, None] * chord
    result: Floats = np.sqrt((rest * rest).sum(axis=1))
    return result


Distance = Callable[[Floats, Ints, Ints, Ints], Floats]


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
    open_points = np.flatnonzero(~keep)  # candidates in segments that are not yet settled
    while len(open_points):
        kept = np.flatnonzero(keep)
        after = np.searchsorted(kept, open_points)
        off = distance_of(points, kept[after - 1], kept[after], open_points)
        first = np.flatnonzero(np.diff(after, prepend=-1))  # first candidate of each segment
        sizes = np.diff(np.append(first, len(after)))
        farthest = np.maximum.reduceat(off, first)
        far = np.repeat(farthest > tolerance, sizes)
        at = np.flatnonzero(far & (off == np.repeat(farthest, sizes)))
        at = at[np.diff(after[at], prepend=-1) > 0]  # one point per segment when several tie
        keep[open_points[at]] = True
        far[at] = False
        open_points = open_points[far]
    return keep


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
