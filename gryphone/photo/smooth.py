"""Lines of pixels to the few points that shape them; all lines of a page at once, for speed."""

import numpy as np

from gryphone.ink import Floats, Ints, bends
from gryphone.photo.skeleton import Line

TOLERANCE = 0.35  # pixels that a line may lie from the points left out


def smooth(lines: list[Line], width: float) -> list[Line]:
    """Take the pixel staircase out of lines and keep only the points that shape them."""
    soft = [_soft(line, max(1.0, 0.4 * width)) for line in lines]
    if not soft:
        return []
    ends = np.cumsum([len(line) for line in soft])
    kept = np.zeros(ends[-1], dtype=bool)
    kept[ends - 1] = kept[[0, *ends[:-1]]] = True
    kept = bends(np.concatenate(soft), kept, TOLERANCE, _distance)
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


def _distance(points: Floats, a: Ints, b: Ints, p: Ints) -> Floats:
    """As gryphone.reading.precision.distance, to the bit as skimage's approximate_polygon has it.

    Rings and straight lines hold many points that are equally far: rounding decides among them,
    and with it the strokes that networks were trained on.
    """
    (x0, y0), (x1, y1), (x, y) = points[a].T, points[b].T, points[p].T
    dx, dy = x1 - x0, y1 - y0
    angle = -np.arctan2(dx, dy)
    cos, sin = np.cos(angle), np.sin(angle)
    offset = y0 * sin + x0 * cos
    x0, y0, x1, y1 = x - x0, y - y0, x - x1, y - y1  # from both ends
    beside = (x0 * dx + y0 * dy > 0) & (-x1 * dx - y1 * dy > 0)
    ends = np.sqrt(np.minimum(y0 * y0 + x0 * x0, y1 * y1 + x1 * x1))
    far: Floats = np.where(beside, np.abs(x * cos + y * sin - offset), ends)
    return far
