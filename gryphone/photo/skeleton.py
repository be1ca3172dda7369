"""A thin line's pixels as a graph, and its runs of pixels as the few points that shape them.

Edges are runs of pixels, nodes are ends and branch points.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gryphone.ink import Floats, Ints, bends
from gryphone.photo.binarize import Mask, grown

Line = NDArray[np.float64]  # (n, 2): x, y

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


def radii_of(nodes: list[Line], mask: Mask) -> list[float]:
    """Half the width of the ink at each node: how far its pixels lie from the paper, at most."""
    from scipy.spatial import cKDTree

    if not nodes:
        return []
    # The paper nearest to a pixel of ink touches ink.
    edge = np.argwhere(grown(mask) & ~mask)[:, ::-1]
    # Few pixels are asked for: a tree that is quick to build.
    tree = cKDTree(edge, balanced_tree=False, compact_nodes=False)
    depth = tree.query(np.concatenate(nodes))[0]
    starts = np.cumsum([0, *(len(pixels) for pixels in nodes[:-1])])
    radii: list[float] = np.maximum.reduceat(depth, starts).tolist()
    return radii


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
