"""A thin line's pixels as a graph, and its runs of pixels as the few points that shape them.

Edges are runs of pixels, nodes are ends and branch points.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gryphone.ink import Floats, Ints, bends
from gryphone.photo.binarize import Mask, pieces
from gryphone.photo.decode import Grey

Line = NDArray[np.float64]  # (n, 2): x, y

PIECE = 32768  # pixels that are blurred at once
SOME = 256  # places that are measured at once
TOLERANCE = 0.35  # pixels that a smoothed line may lie from the points left out
_AROUND = ((0, 1), (1, 0), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, -1), (-1, 1))


@dataclass
class Edge:
    """A line between two nodes of the skeleton."""

    ends: list[int]  # node at each side
    line: Line
    length: float


def length_of(line: Line) -> float:
    """Length along a polyline."""
    return float(np.hypot(*np.diff(line, axis=0).T).sum())


def edges_of(thin: Mask) -> tuple[list[Edge], list[Line]]:
    """Cut the skeleton at its ends and branch points: edges, and the pixels of each node."""
    rows, columns = np.nonzero(thin)
    points = np.stack([columns, rows], 1).astype(np.float64)
    near = _neighbours(thin, rows, columns)
    node_of, groups = _nodes(near)
    edges: list[Edge] = []
    used: set[tuple[int, int]] = set()
    seen = set(node_of)

    def walk(start: int, step: int) -> list[int]:
        path = [start, step]
        while step not in node_of:
            one, other = near[step]
            start, step = step, other if one == start else one
            path.append(step)
        seen.update(path)
        return path

    for pixel, node in node_of.items():
        for step in near[pixel]:
            if (pixel, step) in used or node_of.get(step) == node:
                continue
            path = walk(pixel, step)
            used.add((path[-1], path[-2]))
            edges.append(_edge(points[path], [node, node_of[path[-1]]]))
    for pixel in range(len(points)):  # rings without any node
        if pixel not in seen:
            node_of[pixel] = len(groups)
            groups.append([pixel])
            edges.append(_edge(points[walk(pixel, near[pixel][0])], [node_of[pixel]] * 2))
    return edges, [points[group] for group in groups]


def thinned(mask: Mask) -> Mask:
    """Thin lines in the middle of the ink; the sides of the page must be bare.

    By Zhang and Suen's rules as Lü and Wang mended them: a pixel with two neighbours stays, or
    slanted lines of an even width would be eaten up from their ends. They become stairs.
    """
    thin, width = mask.astype(np.uint8).ravel(), mask.shape[1]
    steps = [dy * width + dx for dx, dy in _RING]
    left = np.flatnonzero(thin)
    gone = True
    while gone:
        gone = False
        for table in _GOES:
            code = np.zeros(len(left), dtype=np.uint8)
            for bit, step in enumerate(steps):
                code |= thin[left + step] << np.uint8(bit)
            goes = table[code]
            thin[left[goes]] = 0
            left = left[~goes]
            gone |= bool(goes.any())
    # Squares of two by two pixels are lost: dots, once they are thinned so far.
    at, owner, count = pieces(mask, diagonal=True)
    lost = np.setdiff1d(np.arange(1, count + 1), owner[thin[at] > 0])
    for piece in lost.tolist():
        rows, columns = np.divmod(at[owner == piece], width)
        thin[int(rows.mean()) * width + int(columns.mean())] = 1
    return thin.reshape(mask.shape).astype(bool)


def _what_goes() -> tuple[Mask, Mask]:
    """In each of the two turns: which of the 256 kinds of surroundings let a pixel go."""
    ring = (np.arange(256) >> np.arange(8)[:, None] & 1).astype(bool)  # (8, 256), as _RING
    above, right, below, left = ring[::2]
    runs, count = (~ring & np.roll(ring, -1, axis=0)).sum(0), ring.sum(0)
    rim = (runs == 1) & (count >= 3) & (count <= 6)
    return (
        rim & ~(above & right & below) & ~(right & below & left),
        rim & ~(above & right & left) & ~(above & below & left),
    )


_RING = ((0, -1), (1, -1), (1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1))  # from the top on
_GOES = _what_goes()


def radii_of(nodes: list[Line], mask: Mask) -> list[float]:
    """Half the width of the ink at each node: how far its pixels lie from the paper, at most."""
    if not nodes:
        return []
    columns, rows = np.concatenate(nodes).astype(np.int64).T
    _, _, depth = nearest(~mask, rows, columns)
    starts = np.cumsum([0, *(len(pixels) for pixels in nodes[:-1])])
    radii: list[float] = np.maximum.reduceat(depth, starts).tolist()
    return radii


def nearest(mask: Mask, rows: Ints, columns: Ints) -> tuple[Ints, Ints, Floats]:
    """Row, column and distance of the pixel of a mask, which is not empty, nearest to each place.

    The nearest of every column is known from two sweeps; the best of them is it.
    """
    height, width = mask.shape
    here, far = np.arange(height, dtype=np.int32)[:, None], np.int32(3 * max(mask.shape))
    above = np.maximum.accumulate(np.where(mask, here, -far))
    below = np.minimum.accumulate(np.where(mask, here, 2 * far)[::-1])[::-1]
    across = np.arange(width)
    found = []
    for low in range(0, len(rows), SOME):
        row, column = rows[low : low + SOME], columns[low : low + SOME]
        up, down = above[row], below[row]  # (some, width)
        near = np.where(row[:, None] - up <= down - row[:, None], up, down)
        squares = (near - row[:, None]) ** 2 + (across - column[:, None]) ** 2
        best = squares.argmin(1)
        each = np.arange(len(row))
        found.append((near[each, best], best, squares[each, best]))
    row, column, square = (np.concatenate(part) for part in zip(*found, strict=True))
    return row, column, np.sqrt(square)


def _edge(line: Line, ends: list[int]) -> Edge:
    return Edge(ends, line, length_of(line))


def _neighbours(thin: Mask, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> list[list[int]]:
    """Each pixel's neighbours; a diagonal one only where no straight one leads there."""
    index = np.full(thin.shape, -1, dtype=np.int32)
    index[rows, columns] = np.arange(len(rows))
    table = np.stack([index[rows + dy, columns + dx] for dx, dy in _AROUND], 1)
    there = table >= 0
    for diagonal, (dx, dy) in enumerate(_AROUND[4:], 4):
        sides = [_AROUND.index((dx, 0)), _AROUND.index((0, dy))]
        table[there[:, sides].any(axis=1), diagonal] = -1
    there = table >= 0
    found, cuts = table[there].tolist(), np.cumsum(there.sum(axis=1)).tolist()
    return [found[low:high] for low, high in itertools.pairwise([0, *cuts])]


def _nodes(near: list[list[int]]) -> tuple[dict[int, int], list[list[int]]]:
    """Ends, lone pixels, and groups of touching branch pixels: node of each pixel, its pixels."""
    groups: list[list[int]] = []
    node_of: dict[int, int] = {}
    for pixel, around in enumerate(near):
        if len(around) == 2 or pixel in node_of:
            continue
        node_of[pixel] = len(groups)
        group = [pixel]
        if len(around) > 2:
            for member in group:
                for q in near[member]:
                    if len(near[q]) > 2 and q not in node_of:
                        node_of[q] = len(groups)
                        group.append(q)
        groups.append(group)
    return node_of, groups


def smooth(lines: list[Line], width: float) -> list[Line]:
    """Take the staircase out of all lines of a page at once; keep the points that shape them."""
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
    if len(line) < 3:
        return line
    weights = gaussian(deviation)
    reach = len(weights) - 1
    if np.array_equal(line[0], line[-1]):
        soft = _weighed(np.pad(line[:-1], ((reach, reach), (0, 0)), mode="wrap"), weights)
        return np.concatenate([soft, soft[:1]])
    soft = _weighed(np.pad(line, ((reach, reach), (0, 0)), mode="edge"), weights)
    soft[0], soft[-1] = line[0], line[-1]
    return soft


def gaussian(deviation: float) -> Floats:
    """Half of a Gaussian's weights, from its middle to four deviations; as SciPy has them."""
    reach = int(4 * deviation + 0.5)
    weights = np.exp(-0.5 / (deviation * deviation) * np.arange(-reach, reach + 1) ** 2)
    half: Floats = (weights / weights.sum())[reach:]
    return half


def _weighed(line: Line, weights: Floats) -> Line:
    """A line's points weighed with their neighbours, to the bit as SciPy does it (see below)."""
    reach = len(weights) - 1
    length = len(line) - 2 * reach
    soft: Line = line[reach : reach + length] * weights[0]
    both = np.empty_like(soft)
    for k in range(reach, 0, -1):
        np.add(line[reach - k :][:length], line[reach + k :][:length], out=both)
        both *= weights[k]
        soft += both
    return soft


def blurred(grey: Grey, deviation: float) -> Grey:
    """A picture (H, W) under a Gaussian, mirrored at its sides, to the bit as SciPy does it."""
    weights = gaussian(deviation)
    reach, (height, width) = len(weights) - 1, grey.shape
    rows = max(1, PIECE // width)  # at once: they stay in the processor's cache
    out = np.empty(grey.shape, dtype=np.float32)
    wide = np.pad(grey, ((reach, reach), (0, 0)), mode="symmetric").astype(np.float64)
    for top in range(0, height, rows):
        out[top : top + rows] = _weighed(wide[top : min(top + rows, height) + 2 * reach], weights)
    wide = np.pad(out, ((0, 0), (reach, reach)), mode="symmetric").astype(np.float64)
    for top in range(0, height, rows):
        out[top : top + rows] = _weighed(wide[top : top + rows].T, weights).T
    return out


def _distance(points: Floats, a: Ints, b: Ints, p: Ints) -> Floats:
    """As gryphone.ink.distance, to the bit as skimage's approximate_polygon has it.

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
