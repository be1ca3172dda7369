"""Thin lines to strokes: the graph of a skeleton, walked as a pen would have gone."""

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gryphone.errors import InkError
from gryphone.photo.binarize import Mask
from gryphone.photo.skeleton import Edge, Line, edges_of, length_of, places_of, smooth, thinned

End = tuple[int, int]  # edge, side: 0 where its line begins, 1 where it ends

STRAIGHT = math.radians(55)  # a pen passes a crossing when it turns less than this
CROSSING = math.radians(35)  # what a pen may turn at most to be called straight across
GAP = 2.2  # pen widths between line ends, over which a pen may have skipped
CRUMB = 1.6  # the same where one of the lines is too short to have a direction
LEAN = math.radians(70)  # a branch at a sharper angle was drawn by going back along its line
SHORT = 4.0  # pen widths: so short an end beyond a branch was gone back along at any angle
SPUR = 0.6  # pen widths a branch must stick out by to be writing
LONGEST = 200_000  # pixels of line, about a thousand symbols
MOST_NODES = 6000  # ends and crossings
SOON = 16  # points of a line, most of which leave the blot of a crossing within them


def trace(mask: Mask, width: float) -> list[Line]:
    """Strokes (x, y in pixels of the mask) along the middle of the ink, `width` its pen's."""
    return strokes_of([followed(np.pad(mask, 1), width)], width)[0]


@dataclass(eq=False)
class _Path:
    """A stroke under construction."""

    line: Line
    through: set[int]  # branch nodes that it passes
    joins: list[int]  # branch nodes where it starts or ends on a line that the pen went back along
    ends: tuple[int, int]


@dataclass(frozen=True)
class Followed:
    """The lines of one page, pixel by pixel."""

    paths: list[_Path]
    places: list[Line]  # of the nodes
    dots: list[Line]


def followed(mask: Mask, width: float) -> Followed:
    """Thin the ink of a page, whose sides are bare, and follow its lines as a pen went."""
    thin = thinned(mask)
    length = np.count_nonzero(thin)
    if length > LONGEST:
        raise InkError(f"{length} pixels of line; this is a texture or a whole page, not a formula")
    edges, nodes = edges_of(thin)
    if len(nodes) > MOST_NODES:
        raise InkError(f"{len(nodes)} line ends and crossings; this is a texture, not writing")
    graph = _Graph(edges, *places_of(nodes, mask), width)
    graph.prune()
    graph.contract()
    graph.bridge()
    return Followed(graph.strokes(), graph.places, graph.dots)


def strokes_of(pages: Sequence[Followed], width: float) -> list[list[Line]]:
    """The strokes of pages, of which all lines are smoothed at once: that costs little more."""
    lines = iter(smooth([path.line - 1 for page in pages for path in page.paths], width))
    found = []
    for page in pages:
        for path in page.paths:
            path.line = next(lines)
        strokes = [path.line for path in retrace(page.paths, page.places, width)]
        found.append(strokes + [dot[None] - 1 for dot in page.dots])
    return found


class _Graph:
    """Edges and nodes under repair; `strokes` reads the result."""

    def __init__(
        self, edges: list[Edge], places: list[Line], radii: list[float], width: float
    ) -> None:
        self.edges: dict[int, Edge] = dict(enumerate(edges))
        self.places, self.radii, self.width = places, radii, width
        self.known: dict[tuple[int, End], tuple[int, float]] = {}
        self.dots = [places[n] for n in sorted(set(range(len(places))) - self.ends().keys())]

    def ends(self) -> dict[int, list[End]]:
        """The edge ends that meet at each node."""
        meeting: dict[int, list[End]] = defaultdict(list)
        for number, edge in self.edges.items():
            meeting[edge.ends[0]].append((number, 0))
            meeting[edge.ends[1]].append((number, 1))
        return meeting

    def prune(self) -> None:
        """Remove branches that hardly leave their line: thinning's reply to rough edges."""
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
            self.known.clear()
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
        meeting = self.ends()
        tips = [node for node, ends in meeting.items() if len(ends) == 1]
        if not tips:
            return
        ends = np.array([self.places[node] for node in tips])
        # A crumb beside the end of a line is a piece of that line.
        near = CRUMB * self.width
        self.dots = [d for d in self.dots if np.hypot(*(ends - d).T).min() > near]
        for gap, i, j in sorted(_close(ends, GAP * self.width)):
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

    def strokes(self) -> list[_Path]:
        """Chains of edges, joined where the pen passed through."""
        meeting = self.ends()
        partner: dict[End, End] = {}
        for node, ends in meeting.items():
            for one, two in self._pairs(node, ends):
                partner[one], partner[two] = two, one
        done: set[int] = set()
        # Chains with a free end first; what is left then are rings.
        free = [(n, s) for n in self.edges for s in (0, 1) if (n, s) not in partner]
        starts = [*free, *((n, 0) for n in self.edges)]
        return [self._chain(s, partner, meeting, done) for s in starts if s[0] not in done]

    def _chain(
        self, start: End, partner: dict[End, End], meeting: dict[int, list[End]], done: set[int]
    ) -> _Path:
        parts: list[Line] = []
        nodes: list[int] = [self.edges[start[0]].ends[start[1]]]
        at: End | None = start
        while at is not None and at[0] not in done:
            number, side = at
            done.add(number)
            parts.append(self._line(number, side, partner, meeting))
            nodes.append(self.edges[number].ends[1 - side])
            last, at = (number, 1 - side), partner.get((number, 1 - side))
        if at is not None and at == start:  # a ring that closes through a crossing
            parts.append(parts[0][:1])
        joins = [
            node
            for end in (start, last)
            if end not in partner
            and self._leans((node := nodes[0 if end is start else -1]), end, meeting[node])
        ]
        return _Path(np.concatenate(parts), set(nodes[1:-1]), joins, (nodes[0], nodes[-1]))

    def _leans(self, node: int, end: End, ends: list[End]) -> bool:
        """Whether a line leaves another so sharply that the pen must have gone back along it."""
        turns = [
            math.pi - _turn(self._heading(node, end), self._heading(node, e))
            for e in ends
            if e != end
        ]
        return bool(turns) and min(turns) < LEAN

    def _line(
        self, number: int, side: int, partner: dict[End, End], meeting: dict[int, list[End]]
    ) -> Line:
        """An edge's points from `side` on; near a crossing the skeleton bends, so those go."""
        edge = self.edges[number]
        line = edge.line if side == 0 else edge.line[::-1]
        for end in (side, 1 - side):
            node = edge.ends[end]
            if len(meeting[node]) > 2:
                first, _ = self._leaving(node, (number, end))
                rest = line[min(first, len(line) - 1) :]
                joined = (number, end) in partner
                line = rest if joined else np.concatenate([self.places[node][None], rest])
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
        return self._leaving(node, end)[1]

    def _leaving(self, node: int, end: End) -> tuple[int, float]:
        """The first point of an edge outside a node's blot, or one too many, and the heading."""
        if (node, end) not in self.known:
            number, side = end
            line, place = self.edges[number].line, self.places[node]
            if side:
                line = line[::-1]
            first = _outside(line, place, self.radii[node])
            begin = first % len(line)  # where all is blot, that is one
            last = min(len(line) - 1, begin + max(3, round(2 * self.width)))
            dx, dy = line[last] - (line[begin] if last > begin else place)
            self.known[node, end] = first, math.atan2(dy, dx)
        return self.known[node, end]


def _outside(line: Line, place: Line, radius: float) -> int:
    """The first point of a line that lies farther from a place than so much, or one too many."""
    middle = place.tolist()
    for some in (line[:SOON], line):
        for number, spot in enumerate(some.tolist()):
            if math.dist(spot, middle) > radius:
                return number
    return len(line)


def _turn(one: float, other: float) -> float:
    """How far a pen turns that comes in along one heading's line and leaves along the other."""
    return abs(math.remainder(one - other - math.pi, math.tau))


def _close(points: Line, reach: float) -> list[tuple[float, int, int]]:
    """Pairs i < j of points at most so far apart, and their distance before them."""
    order = np.argsort(points[:, 0], kind="stable")
    across = points[order, 0]
    count = np.searchsorted(across, across + reach, side="right") - np.arange(len(order)) - 1
    one = np.repeat(np.arange(len(order)), count)
    two = one + 1 + np.arange(len(one)) - np.repeat(np.cumsum(count) - count, count)
    pairs = np.sort(np.stack([order[one], order[two]], 1), axis=1).tolist()
    gaps = ((math.dist(points[i], points[j]), i, j) for i, j in pairs)
    return [each for each in gaps if each[0] <= reach]


def retrace(paths: list[_Path], places: list[Line], width: float) -> list[_Path]:
    """Let the pen go back along its line to where a branch leaves it, as in n, d and a."""
    passed = set[int]().union(*(path.through for path in paths))
    for branch in list(paths):
        loop = branch.ends[0] == branch.ends[1]
        for node in [n for n in (*branch.joins, *branch.ends) if n in passed]:
            trunk = next((p for p in paths if node in p.through and p is not branch), None)
            if trunk is None:
                continue
            line, place = branch.line, places[node] - 1
            if math.dist(line[0], place) > math.dist(line[-1], place):
                line = line[::-1]
            base = trunk.line
            at = int(np.argmin(np.hypot(*(base - place).T)))
            if length_of(base[: at + 1]) < length_of(base[at:]):
                base, at = base[::-1], len(base) - 1 - at
            short = length_of(base[at:]) < SHORT * width
            if not (short or node in branch.joins or loop or set(branch.ends) <= trunk.through):
                continue
            trunk.line = np.concatenate([base, base[at:-1][::-1], line])
            trunk.through |= branch.through
            paths.remove(branch)
            break
    return paths
