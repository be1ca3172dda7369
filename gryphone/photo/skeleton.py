"""A thin line's pixels as a graph: edges are runs of pixels, nodes are ends and branch points."""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gryphone.photo.binarize import Mask, grown

Line = NDArray[np.float64]  # (n, 2): x, y

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
