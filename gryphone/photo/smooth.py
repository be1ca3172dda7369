"""Lines of pixels to the few points that shape them; all lines of a page at once, for speed."""

import numpy as np
from numpy.typing import NDArray

from gryphone.photo.skeleton import Line

Index = NDArray[np.intp]

TOLERANCE = 0.35  # pixels that a line may lie from the points left out


def smooth(lines: list[Line], width: float) -> list[Line]:
    """Take the pixel staircase out of lines and keep only the points that shape them."""
    soft = [_soft(line, max(1.0, 0.4 * width)) for line in lines]
    if not soft:
        return []
    ends = np.cumsum([len(line) for line in soft])
    points = np.concatenate(soft)
    kept = _shaping(points, np.concatenate([[0], ends[:-1]]), ends - 1)
    return [line[k] for line, k in zip(soft, np.split(kept, ends[:-1]), strict=True)]


def _soft(line: Line, deviation: float) -> Line:
    """The line without its staircase, its ends where they were."""
    from scipy.ndimage import gaussian_filter1d

    if len(line) < 3:
        return line
    soft: Line
    if np.array_equal(line[0], line[-1]):
        soft = gaussian_filter1d(line[:-1], deviation, axis=0, mode="wrap")
        return np.concatenate([soft, soft[:1]])
    soft = gaussian_filter1d(line, deviation, axis=0, mode="nearest")
    soft[0], soft[-1] = line[0], line[-1]
    return soft


def _shaping(points: Line, first: Index, last: Index) -> NDArray[np.bool_]:
    """Which points the lines between `first` and `last` need (Douglas and Peucker's method).

    Gives what skimage's approximate_polygon does, which takes one segment of a line at a time.
    """
    kept = np.zeros(len(points), dtype=bool)
    kept[first] = kept[last] = True
    while True:
        between = last - first - 1
        some = between > 0
        first, last, between = first[some], last[some], between[some]
        if not len(first):
            return kept
        starts = np.cumsum(between) - between
        inner = np.arange(between.sum()) + np.repeat(first + 1 - starts, between)
        far = _distances(points, first, last, between, inner)
        most = np.maximum.reduceat(far, starts)
        farthest = np.where(far == np.repeat(most, between), inner, len(points))
        bend = most > TOLERANCE
        split = np.minimum.reduceat(farthest, starts)[bend]
        kept[split] = True
        first, last = np.concatenate([first[bend], split]), np.concatenate([split, last[bend]])


def _distances(
    points: Line, first: Index, last: Index, between: Index, inner: Index
) -> NDArray[np.float64]:
    """How far the `inner` points, `between` of each segment, lie from their segments."""
    (x0, y0), (x1, y1), (x, y) = points[first].T, points[last].T, points[inner].T
    dx, dy = x1 - x0, y1 - y0
    angle = -np.arctan2(dx, dy)
    cos, sin = np.cos(angle), np.sin(angle)
    offset = y0 * sin + x0 * cos
    x0, y0, x1, y1, dx, dy, cos, sin, offset = np.repeat(
        [x0, y0, x1, y1, dx, dy, cos, sin, offset], between, axis=1
    )
    x0, y0, x1, y1 = x - x0, y - y0, x - x1, y - y1  # from both ends
    beside = (x0 * dx + y0 * dy > 0) & (-x1 * dx - y1 * dy > 0)
    ends = np.sqrt(np.minimum(y0 * y0 + x0 * x0, y1 * y1 + x1 * x1))
    far: NDArray[np.float64] = np.where(beside, np.abs(x * cos + y * sin - offset), ends)
    return far
