"""What a pen does to ink that is there already: it scratches out, or writes over.

Judged stroke by stroke, when the stroke is written. A scratch-out goes to and fro over writing,
densely, and erases what lies beneath it. A symbol that the writer had left behind is replaced by a
stroke as large as itself in its place. `docs/recognition.md` has how often either is a mistake.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from gryphone.ink import Floats, Stroke, typical_stroke

TURNS, SWING = 4, 0.5  # to and fro: times, each over so much of the whole way
DENSE = 2.0  # length in longer sides
BENEATH = 0.65  # of a stroke's length, in the hull of what scratches it out
SCRATCH = 0.4  # of a usual stroke: how large it is at least
OVER = 0.5  # of both boxes: what they share, where one is written over the other
POINTS = 64  # of a stroke, evenly spaced


def erased_by(
    stroke: Stroke, earlier: Mapping[int, Stroke], symbols: Sequence[Collection[int]]
) -> tuple[str, tuple[int, ...]] | None:
    """What a stroke that was just written does to earlier ones, if anything: how, and to which.

    `symbols` are the strokes of each symbol that was read, as far as they are settled.
    """
    if under := scratched(stroke, earlier):
        return "scratched", under
    if under := overwritten(stroke, earlier, symbols):
        return "overwritten", under
    return None


def scratched(stroke: Stroke, earlier: Mapping[int, Stroke]) -> tuple[int, ...]:
    """The strokes that one scratches out; none where it is a stroke like others."""
    points = evenly(stroke)
    extent = np.ptp(points, axis=0)
    if not earlier or not is_dense(points):
        return ()
    if extent.max() < SCRATCH * typical_stroke(list(earlier.values())):
        return ()
    if max(turns_along(points, angle) for angle in np.arange(0, np.pi, np.pi / 12)) < TURNS:
        return ()
    hull = hull_of(points)
    return tuple(n for n, other in earlier.items() if inside(evenly(other), hull) >= BENEATH)


def overwritten(
    stroke: Stroke, earlier: Mapping[int, Stroke], symbols: Sequence[Collection[int]]
) -> tuple[int, ...]:
    """The strokes of the symbol that one is written over, if the writer had left that behind."""
    last = max(earlier, default=-1)
    for own in symbols:
        if own and last not in own and all(n in earlier for n in own):
            there = np.concatenate([earlier[n] for n in own])
            if overlap(stroke, there) >= OVER:
                return tuple(own)
    return ()


def evenly(stroke: Stroke, count: int = POINTS) -> Floats:
    """Points (count, 2) at equal distances along a stroke."""
    far = np.append(0.0, np.cumsum(np.hypot(*np.diff(stroke, axis=0).T)))
    at = np.linspace(0, far[-1], count)
    return np.stack([np.interp(at, far, stroke[:, k]) for k in (0, 1)], 1)


def is_dense(points: Floats) -> bool:
    """Whether a stroke has more line than a letter in its room."""
    length = np.hypot(*np.diff(points, axis=0).T).sum()
    return bool(length > DENSE * np.ptp(points, axis=0).max())


def turns_along(points: Floats, angle: float) -> int:
    """How often a stroke turns back along a direction, after a good part of its whole way."""
    at = points @ np.array([np.cos(angle), np.sin(angle)])
    least = SWING * np.ptp(at)
    turns, low, high, way = 0, at[0], at[0], 0
    for x in at.tolist():
        low, high = min(low, x), max(high, x)
        if way >= 0 and high - x >= least:  # it went up, and has come down
            turns, low, high, way = turns + (way > 0), x, x, -1
        elif way <= 0 and x - low >= least:
            turns, low, high, way = turns + (way < 0), x, x, 1
    return turns


def hull_of(points: Floats) -> Floats:
    """The corners of the convex hull, in order (Andrew's monotone chain)."""
    ordered = sorted(map(tuple, points.tolist()))
    halves = []
    for some in (ordered, ordered[::-1]):
        half: list[tuple[float, ...]] = []
        for p in some:
            while len(half) > 1 and _side(half[-2], half[-1], p) <= 0:
                half.pop()
            half.append(p)
        halves.append(half[:-1])
    return np.array(halves[0] + halves[1])


def _side(a: Sequence[float], b: Sequence[float], p: Sequence[float]) -> float:
    return (b[0] - a[0]) * (p[1] - a[1]) - (b[1] - a[1]) * (p[0] - a[0])


def inside(points: Floats, hull: Floats) -> float:
    """The share of points that lie in a convex hull (n, 2)."""
    edge = np.roll(hull, -1, 0) - hull
    to = points[:, None] - hull  # (points, n, 2)
    return float((edge[:, 0] * to[..., 1] - edge[:, 1] * to[..., 0] >= 0).all(1).mean())


def overlap(one: Floats, other: Floats) -> float:
    """What two boxes share, of what they cover together."""
    low, high = np.maximum(one.min(0), other.min(0)), np.minimum(one.max(0), other.max(0))
    shared = float(np.maximum(high - low, 0).prod())
    both = float(np.ptp(one, axis=0).prod() + np.ptp(other, axis=0).prod()) - shared
    return shared / both if both > 0 else 0.0
