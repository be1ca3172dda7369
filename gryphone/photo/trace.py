"""Thin lines to strokes: a skeleton's pixels as a graph, walked as a pen would have gone."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gryphone.photo.paper import Mask

Line = NDArray[np.float64]  # (n, 2): x, y
End = tuple[int, int]  # edge, side: 0 where its line begins, 1 where it ends

STRAIGHT = math.radians(55)  # a pen passes a crossing when it turns less than this
CROSSING = math.radians(35)  # what a pen may turn at most to be called straight across
GAP = 2.2  # pen widths between line ends, over which a pen may have skipped
CRUMB = 1.6  # the same where one of the lines is too short to have a direction
SPUR = 0.6  # pen widths a branch must stick out by to be writing
_AROUND = ((0, 1), (1, 0), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, -1), (-1, 1))


@dataclass
class _Edge:
    """A line between two nodes of the skeleton."""

    ends: list[int]  # node at each side
    line: Line
    length: float


def trace(mask: Mask, width: float) -> list[Line]:
    """Strokes (x, y in pixels of the mask) along the middle of the ink, `width` its pen's."""
    from scipy.ndimage import distance_transform_edt
    from skimage.morphology import skeletonize

    mask = np.pad(mask, 1)
    radius = distance_transform_edt(mask)
    thin = skeletonize(mask)
    graph = _Graph(*_edges(thin, radius), width)
    graph.prune()
    graph.contract()
    graph.bridge()
    return [smooth(line - 1, width) for line in graph.strokes()]


def _edges(
    thin: Mask, radius: NDArray[np.float64]
) -> tuple[list[_Edge], list[Line], list[float]]:
    """Cut the skeleton at its ends and branch points: edges, node places and node radii."""
    rows, columns = np.nonzero(thin)
    points = np.stack([columns, rows], 1).astype(np.float64)
    near = _neighbours(thin, rows, columns)
    thick = radius[rows, columns]
    node_of, groups = _nodes(near)
    places = [points[group].mean(0) for group in groups]
    radii = [float(thick[group].max()) for group in groups]
    edges: list[_Edge] = []
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


def _edge(line: Line, ends: list[int]) -> _Edge:
    return _Edge(ends, line, float(np.hypot(*np.diff(line, axis=0).T).sum()))


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


class _Graph:
    """Edges and nodes under repair; `strokes` reads the result."""

    def __init__(
        self, edges: list[_Edge], places: list[Line], radii: list[float], width: float
    ) -> None:
        self.edges: dict[int, _Edge] = dict(enumerate(edges))
        self.places, self.radii, self.width = places, radii, width
        self.dots = [places[n] for n in sorted(set(range(len(places))) - self.ends().keys())]

    def ends(self) -> dict[int, list[End]]:
        """The edge ends that meet at each node."""
        meeting: dict[int, list[End]] = defaultdict(list)
        for number, edge in self.edges.items():
            meeting[edge.ends[0]].append((number, 0))
            meeting[edge.ends[1]].append((number, 1))
        return meeting

    def prune(self) -> None:
        """Remove branches that hardly leave the line they grow on: thinning's reply to rough edges."""
        for _ in range(2):
            meeting = self.ends()
            for number, edge in list(self.edges.items()):
                counts = [len(meeting[node]) for node in edge.ends]
                if min(counts) > 1 or max(counts) < 3:
                    continue
                root, tip = edge.ends if counts[0] > 1 else edge.ends[::-1]
                # Never bare a node: where all branches are short, the longest are the writing.
                if len(meeting[root]) < 3:
                    continue
                if edge.length + self.radii[tip] - self.radii[root] < SPUR * self.width:
                    meeting[root] = [end for end in meeting[root] if end[0] != number]
                    del self.edges[number]

    def contract(self) -> None:
        """Make one crossing of two branch points: where lines cross, thinning makes two of it."""
        meeting = self.ends()
        for number, edge in sorted(self.edges.items(), key=lambda item: item[1].length):
            a, b = edge.ends
            if a == b or len(meeting[a]) < 3 or len(meeting[b]) < 3:
                continue
            near = edge.length <= max(self.radii[a] + self.radii[b], self.width)
            if not near and not self._crosses(number, meeting):
                continue
            del self.edges[number]
            self.places[a] = (self.places[a] + self.places[b]) / 2
            self.radii[a] = max(self.radii[a], self.radii[b], edge.length / 2)
            for other, side in meeting.pop(b):
                if other != number:
                    self.edges[other].ends[side] = a
                    meeting[a].append((other, side))
            meeting[a] = [end for end in meeting[a] if end[0] != number]

    def _crosses(self, number: int, meeting: dict[int, list[End]]) -> bool:
        """Whether the lines at both ends of a short edge continue each other pairwise."""
        edge = self.edges[number]
        sides = [[end for end in meeting[node] if end[0] != number] for node in edge.ends]
        if edge.length > 3.5 * self.width or any(len(side) != 2 for side in sides):
            return False
        one, two = (
            [self._heading(node, end) for end in side]
            for node, side in zip(edge.ends, sides, strict=True)
        )
        ways = [((0, 0), (1, 1)), ((0, 1), (1, 0))]
        worst = [max(_turn(one[i], two[j]) for i, j in way) for way in ways]
        return min(worst) < CROSSING

    def bridge(self) -> None:
        """Join ends of lines that face each other closely: there the pen skipped."""
        from scipy.spatial import cKDTree

        meeting = self.ends()
        tips = [node for node, ends in meeting.items() if len(ends) == 1]
        if not tips:
            return
        tree = cKDTree([self.places[node] for node in tips])
        # A crumb beside the end of a line is a piece of that line.
        self.dots = [d for d in self.dots if tree.query(d)[0] > CRUMB * self.width]
        pairs = tree.query_pairs(GAP * self.width, output_type="ndarray").tolist()
        close = [(math.dist(self.places[tips[i]], self.places[tips[j]]), i, j) for i, j in pairs]
        for gap, i, j in sorted(close):
            a, b = tips[i], tips[j]
            if len(meeting[a]) == len(meeting[b]) == 1 and self._faces(
                meeting[a][0], meeting[b][0], gap
            ):
                number, side = meeting[b].pop()
                self.edges[number].ends[side] = a
                meeting[a].append((number, side))

    def _faces(self, one: End, two: End, gap: float) -> bool:
        """Whether the line from one free end to another continues both."""
        if one[0] == two[0]:
            return False
        if min(self.edges[one[0]].length, self.edges[two[0]].length) < self.width:
            return gap < CRUMB * self.width
        a, b = self.edges[one[0]].ends[one[1]], self.edges[two[0]].ends[two[1]]
        dx, dy = self.places[b] - self.places[a]
        across = math.atan2(dy, dx)
        turns = _turn(self._heading(a, one), across), _turn(self._heading(b, two), across + math.pi)
        return max(turns) < STRAIGHT

    def strokes(self) -> Iterator[Line]:
        """Chains of edges, joined where the pen passed through; lone pixels are dots."""
        meeting = self.ends()
        partner: dict[End, End] = {}
        for node, ends in meeting.items():
            for one, two in self._pairs(node, ends):
                partner[one], partner[two] = two, one
        done: set[int] = set()
        # Chains with a free end first; what is left then are rings.
        free = [(n, s) for n in self.edges for s in (0, 1) if (n, s) not in partner]
        for start in itertools.chain(free, [(n, 0) for n in self.edges]):
            if start[0] not in done:
                yield self._chain(start, partner, meeting, done)
        for place in self.dots:
            yield place[None]

    def _chain(
        self, start: End, partner: dict[End, End], meeting: dict[int, list[End]], done: set[int]
    ) -> Line:
        parts: list[Line] = []
        at: End | None = start
        while at is not None and at[0] not in done:
            number, side = at
            done.add(number)
            parts.append(self._line(number, side, partner, meeting))
            at = partner.get((number, 1 - side))
        if at is not None and at == start:  # a ring that closes through a crossing
            parts.append(parts[0][:1])
        return np.concatenate(parts)

    def _line(
        self, number: int, side: int, partner: dict[End, End], meeting: dict[int, list[End]]
    ) -> Line:
        """An edge's points from `side` on; near a crossing the skeleton bends, so those go."""
        edge = self.edges[number]
        line = edge.line if side == 0 else edge.line[::-1]
        for end in (side, 1 - side):
            node = edge.ends[end]
            if len(meeting[node]) > 2:
                place = self.places[node]
                away = np.hypot(*(line - place).T) > self.radii[node]
                rest = line[int(np.argmax(away)) :] if away.any() else line[-1:]
                joined = (number, end) in partner
                line = rest if joined else np.concatenate([place[None], rest])
            line = line[::-1]
        return line

    def _pairs(self, node: int, ends: list[End]) -> list[tuple[End, End]]:
        """Which ends at a node continue each other: the straightest, two by two."""
        if len(ends) == 2:
            return [(ends[0], ends[1])]
        if len(ends) < 2:
            return []
        heading = [self._heading(node, end) for end in ends]
        turns = {
            (i, j): _turn(heading[i], heading[j])
            for i, j in itertools.combinations(range(len(ends)), 2)
        }
        if len(ends) == 4:
            ways = [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))]
            best = min(ways, key=lambda way: turns[way[0]] + turns[way[1]])
            if max(turns[pair] for pair in best) < STRAIGHT:
                return [(ends[i], ends[j]) for i, j in best]
        chosen, taken = [], set[int]()
        for (i, j), turn in sorted(turns.items(), key=lambda item: item[1]):
            if turn < STRAIGHT and not {i, j} & taken:
                taken |= {i, j}
                chosen.append((ends[i], ends[j]))
        return chosen

    def _heading(self, node: int, end: End) -> float:
        """The direction in which an edge leaves a node, measured outside the crossing's blot."""
        number, side = end
        line = self.edges[number].line if side == 0 else self.edges[number].line[::-1]
        away = np.hypot(*(line - self.places[node]).T)
        first = int(np.argmax(away > self.radii[node])) if away.max() > self.radii[node] else 0
        last = min(len(line) - 1, first + max(3, round(2 * self.width)))
        dx, dy = line[last] - (line[first] if last > first else self.places[node])
        return math.atan2(dy, dx)


def _turn(one: float, other: float) -> float:
    """How far a pen turns that comes in along one heading's line and leaves along the other."""
    return abs(math.remainder(one - other - math.pi, math.tau))


def smooth(line: Line, width: float) -> Line:
    """Take the pixel staircase out of a line and keep only the points that shape it."""
    from scipy.ndimage import gaussian_filter1d
    from skimage.measure import approximate_polygon

    if len(line) < 3:
        return line
    soft = gaussian_filter1d(line, max(1.0, 0.4 * width), axis=0, mode="nearest")
    if np.array_equal(line[0], line[-1]):
        soft = gaussian_filter1d(line[:-1], max(1.0, 0.4 * width), axis=0, mode="wrap")
        soft = np.concatenate([soft, soft[:1]])
    else:
        soft[0], soft[-1] = line[0], line[-1]
    kept: Line = approximate_polygon(soft, 0.35)
    return kept
