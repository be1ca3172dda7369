"""A thin line's pixels as a graph: edges are runs of pixels, nodes are ends and branch points."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gryphone.photo.paper import Mask

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


def edges_of(thin: Mask, radius: NDArray[np.float64]) -> tuple[list[Edge], list[Line], list[float]]:
    """Cut the skeleton at its ends and branch points: edges, node places and node radii."""
    rows, columns = np.nonzero(thin)
    points = np.stack([columns, rows], 1).astype(np.float64)
    near = _neighbours(thin, rows, columns)
    thick = radius[rows, columns]
    node_of, groups = _nodes(near)
    places = [points[group].mean(0) for group in groups]
    radii = [float(thick[group].max()) for group in groups]
    edges: list[Edge] = []
    used: set[tuple[int, int]] = set()
    seen = set(node_of)

    def walk(start: int, step: int) -> list[int]:
        path = [start, step]
        while path[-1] not in node_of:
            seen.add(path[-1])
            onward = [q for q in near[path[-1]] if q != path[-2]]
            path.append(onward[0])
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
            node_of[pixel] = len(places)
            places.append(points[pixel])
            radii.append(float(thick[pixel]))
            path = walk(pixel, near[pixel][0])
            seen.add(pixel)
            edges.append(_edge(points[path], [node_of[pixel]] * 2))
    return edges, places, radii


def _edge(line: Line, ends: list[int]) -> Edge:
    return Edge(ends, line, length_of(line))


def _neighbours(thin: Mask, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> list[list[int]]:
    """Each pixel's neighbours; a diagonal one only where no straight one leads there."""
    index = np.full(thin.shape, -1, dtype=np.int64)
    index[rows, columns] = np.arange(len(rows))
    table = np.stack([index[rows + dy, columns + dx] for dx, dy in _AROUND], 1)
    there = table >= 0
    for diagonal, (dx, dy) in enumerate(_AROUND[4:], 4):
        sides = [_AROUND.index((dx, 0)), _AROUND.index((0, dy))]
        table[there[:, sides].any(axis=1), diagonal] = -1
    return [[q for q in row if q >= 0] for row in table.tolist()]


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
