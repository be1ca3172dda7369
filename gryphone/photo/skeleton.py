"""A thin line's pixels as a graph, and its runs of pixels as the few points that shape them.

Edges are runs of pixels, nodes are ends and branch points. A pixel is known by its place in the
flattened page, whose sides must be bare, and its surroundings by a byte: a bit for each neighbour.
"""

from dataclasses import dataclass
from functools import cache
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gryphone.ink import Floats, Ints, bends
from gryphone.photo.binarize import Mask, pieces
from gryphone.photo.decode import Grey

Line = NDArray[np.float64]  # (n, 2): x, y
Codes = NDArray[np.uint8]

PIECE = 32768  # pixels that are blurred at once
SOME = 256  # places that are measured at once
TOLERANCE = 0.35  # pixels that a smoothed line may lie from the points left out
NONE = -(1 << 30)  # no way on; integers may have 32 bits
_RING = ((0, -1), (1, -1), (1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1))  # from the top on
_BITS = (np.arange(256) >> np.arange(8)[:, None] & 1).astype(bool)  # (8, 256), as _RING


@dataclass
class Edge:
    """A line between two nodes of the skeleton."""

    ends: list[int]  # node at each side
    line: Line
    length: float


def length_of(line: Line) -> float:
    """Length along a polyline."""
    return float(np.hypot(*(line[1:] - line[:-1]).T).sum())


def _steps(width: int) -> list[int]:
    """From a pixel to those around it, in a flattened page of that width."""
    return [dy * width + dx for dx, dy in _RING]


def _around(flat: Codes, at: Ints, steps: list[int]) -> Codes:
    """The surroundings of some pixels of a page of zeros and ones."""
    code = np.zeros(len(at), dtype=np.uint8)
    for bit, step in enumerate(steps):
        code |= flat.take(at + step) << np.uint8(bit)
    return code


def edges_of(thin: Mask) -> tuple[list[Edge], list[list[int]]]:
    """Cut the skeleton at its ends and branch points: edges, and the pixels of each node."""
    flat, width = thin.view(np.uint8).ravel(), thin.shape[1]
    at, steps = np.flatnonzero(flat), _steps(width)
    ways = np.zeros(flat.size, dtype=np.uint8)
    ways[at] = _JOINED[_around(flat, at, steps)]
    near = _Near(bytearray(ways), steps)
    node_of, groups = _nodes(at[_COUNT[ways[at]] != 2].tolist(), near)
    # A walk goes on by the way that it did not come by: the sum of both less that one.
    both = np.where(_COUNT == 2, np.array(steps) @ _BITS, NONE).tolist()
    code, paths = near.code, list[list[int]]()
    used: set[tuple[int, int]] = set()

    def walk(start: int, step: int) -> None:
        path = [start, step]
        while (on := both[code[step]]) != NONE:
            start, step = step, 2 * step + on - start
            path.append(step)
        used.add((step, start))
        paths.append(path)

    for pixel, node in node_of.items():
        for step in near[pixel]:
            if (pixel, step) not in used and node_of.get(step) != node:
                walk(pixel, step)
    if sum(map(len, paths)) - 2 * len(paths) + len(node_of) < len(at):
        ways[list(chain(node_of, *paths))] = 0
        left = dict.fromkeys(at[ways[at] > 0].tolist())
        while left:  # rings without any node
            pixel, step = (first := next(iter(left))), near[first][0]
            code[pixel] = 0
            node_of[pixel] = len(groups)
            groups.append([pixel])
            walk(pixel, step)
            for each in paths[-1][1:]:
                del left[each]
    return _edges(paths, node_of, width), groups


def _edges(paths: list[list[int]], node_of: dict[int, int], width: int) -> list[Edge]:
    """Runs of pixels as lines."""
    rows, columns = np.divmod(np.fromiter(chain(*paths), dtype=np.int64), width)
    points = np.stack([columns, rows], 1).astype(np.float64)
    far = np.hypot(*(points[1:] - points[:-1]).T)
    ends = accumulate(map(len, paths), initial=0)
    return [
        Edge(
            [node_of[path[0]], node_of[path[-1]]],
            points[low:high],
            float(far[low : high - 1].sum()),
        )
        for path, (low, high) in zip(paths, pairwise(ends), strict=True)
    ]


class _Near(dict[int, list[int]]):
    """Each pixel's neighbours: straight ones first, a diagonal one where no straight one leads."""

    def __init__(self, code: bytearray, steps: list[int]) -> None:
        self.code, self.steps = code, steps

    def __missing__(self, pixel: int) -> list[int]:
        found = self[pixel] = [pixel + self.steps[k] for k in _ORDERED[self.code[pixel]]]
        return found


def thinned(mask: Mask) -> Mask:
    """Thin lines in the middle of the ink; the sides of the page must be bare.

    By Zhang and Suen's rules as Lü and Wang mended them: a pixel with two neighbours stays, or
    slanted lines of an even width would be eaten up from their ends. They become stairs.
    """
    flat, steps = mask.view(np.uint8).ravel(), _steps(mask.shape[1])
    left = np.flatnonzero(flat)
    code = np.zeros(flat.size, dtype=np.uint8)
    code[left] = _around(flat, left, steps)
    idle = turn = 0
    bare = False  # whether a pixel went with all that was around it
    while idle < 2:
        goes = _GOES[turn].take(code.take(left))
        gone = left[goes]
        idle, turn = 0 if len(gone) else idle + 1, 1 - turn
        if len(gone):
            left = left[~goes]
            for bit, step in enumerate(steps):
                beside = gone - step
                code[beside] = code.take(beside) & np.uint8(~(1 << bit) & 255)
            bare = bare or not code.take(gone).all()
    thin = np.zeros(flat.size, dtype=bool)
    thin[left] = True
    if bare:
        # Squares of two by two pixels are lost: dots, once they are thinned so far.
        at, owner, count = pieces(mask, diagonal=True)
        lost = np.setdiff1d(np.arange(1, count + 1), owner[thin[at]])
        for piece in lost.tolist():
            rows, columns = np.divmod(at[owner == piece], mask.shape[1])
            thin[int(rows.mean()) * mask.shape[1] + int(columns.mean())] = True
    return thin.reshape(mask.shape)


def _what_goes() -> tuple[Mask, Mask]:
    """In each of the two turns: which of the 256 kinds of surroundings let a pixel go."""
    above, right, below, left = _BITS[::2]
    runs = (~_BITS & np.roll(_BITS, -1, axis=0)).sum(0)
    rim = (runs == 1) & (_COUNT >= 3) & (_COUNT <= 6)
    return (
        rim & ~(above & right & below) & ~(right & below & left),
        rim & ~(above & right & left) & ~(above & below & left),
    )


def _joined() -> Codes:
    """Of each kind of surroundings the ways on: diagonal ones where no straight one leads."""
    straight = _BITS & (np.arange(8) % 2 == 0)[:, None]
    beside = np.roll(straight, 1, axis=0) | np.roll(straight, -1, axis=0)
    ways: Codes = np.packbits(straight | (_BITS & ~beside), axis=0, bitorder="little")[0]
    return ways


_COUNT = _BITS.sum(0)
_GOES = _what_goes()
_JOINED = _joined()
_ORDERED = [[k for k in (4, 2, 0, 6, 3, 1, 7, 5) if code >> k & 1] for code in range(256)]


def places_of(nodes: list[list[int]], mask: Mask) -> tuple[list[Line], list[float]]:
    """The middle of each node, and half the width of the ink there: how far its pixels lie from
    the paper, at most."""
    if not nodes:
        return [], []
    width, at = mask.shape[1], np.array(list(chain(*nodes)))
    starts = np.cumsum([0, *map(len, nodes[:-1])])
    sums = np.add.reduceat(np.stack([at % width, at // width], 1), starts)
    places = list(sums / np.diff(np.append(starts, len(at)))[:, None])
    depth, todo = np.zeros(len(at)), np.arange(len(at))
    for reach in (4, 16):  # no way to the paper leads over the sides, which are bare
        down, right, far = _disc(reach)
        paper = ~mask.ravel().take(at[todo, None] + (down * width + right), mode="clip")
        depth[todo] = np.sqrt(far[paper.argmax(1)])
        todo = todo[~paper.any(1)]
    if len(todo):
        depth[todo] = nearest(~mask, *np.divmod(at[todo], width))[2]
    return places, np.maximum.reduceat(depth, starts).tolist()


@cache
def _disc(reach: int) -> Ints:
    """Rows, columns and squares (3, n) of the ways to all pixels within reach, nearest first."""
    down, right = np.indices((2 * reach + 1, 2 * reach + 1)).reshape(2, -1) - reach
    far = down * down + right * right
    order = np.argsort(far, kind="stable")[: np.count_nonzero(far <= reach * reach)]
    return np.stack([down, right, far])[:, order]


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


def _nodes(found: list[int], near: _Near) -> tuple[dict[int, int], list[list[int]]]:
    """Of ends, lone pixels and branch pixels: node of each, and its pixels; branches that touch
    are one."""
    groups: list[list[int]] = []
    node_of: dict[int, int] = {}
    for pixel in found:
        if pixel in node_of:
            continue
        node_of[pixel] = len(groups)
        group = [pixel]
        if len(near[pixel]) > 2:
            for member in group:
                for q in near[member]:
                    if len(near[q]) > 2 and q not in node_of:
                        node_of[q] = len(groups)
                        group.append(q)
        groups.append(group)
    return node_of, groups


def smooth(lines: list[Line], width: float) -> list[Line]:
    """Take the staircase out of all lines of a page at once; keep the points that shape them."""
    if not lines:
        return []
    soft = softened(lines, max(1.0, 0.4 * width))
    first = np.cumsum([0, *map(len, lines)])
    kept = np.zeros(len(soft), dtype=bool)
    kept[first[:-1]] = kept[first[1:] - 1] = True
    kept = bends(soft, kept, TOLERANCE, _distance)
    return np.split(soft[kept], np.cumsum(kept)[first[1:-1] - 1])


def softened(lines: list[Line], deviation: float) -> Line:
    """The points of all lines without their staircase, the ends of open lines where they were."""
    points, sizes = np.concatenate(lines), np.array([len(line) for line in lines])
    weights = gaussian(deviation)
    reach = len(weights) - 1
    first, last = np.cumsum(sizes) - sizes, np.cumsum(sizes) - 1
    closed = (points[first] == points[last]).all(1) & (sizes > 2)
    # Each line goes on at both sides: on its way round, or where it ends.
    wide = np.repeat(np.arange(len(lines)), sizes + 2 * reach)
    place = np.arange(len(wide)) - (first + reach * (2 * np.arange(len(lines)) + 1))[wide]
    size = sizes[wide] - 1
    place = np.where(closed[wide], place % np.maximum(size, 1), place.clip(0, size))
    inner = np.arange(len(points)) + 2 * reach * np.repeat(np.arange(len(lines)), sizes)
    soft: Line = _weighed(points[first[wide] + place], weights)[inner]
    ends = np.concatenate([first[~closed], last[~closed]])
    soft[ends] = points[ends]
    return soft


def gaussian(deviation: float) -> Floats:
    """Half of a Gaussian's weights, from its middle to four deviations; as SciPy has them."""
    reach = int(4 * deviation + 0.5)
    weights = np.exp(-0.5 / (deviation * deviation) * np.arange(-reach, reach + 1) ** 2)
    half: Floats = (weights / weights.sum())[reach:]
    return half


def _weighed(line: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
    """A line's points weighed with their neighbours, to the bit as SciPy does it (see below)."""
    reach = len(weights) - 1
    length = len(line) - 2 * reach
    soft: NDArray[Any] = line[reach : reach + length] * weights[0]
    both = np.empty_like(soft)
    for k in range(reach, 0, -1):
        np.add(line[reach - k :][:length], line[reach + k :][:length], out=both)
        both *= weights[k]
        soft += both
    return soft


def blurred(grey: Grey, deviation: float) -> Grey:
    """A picture (H, W) under a Gaussian, mirrored at its sides, in single precision."""
    weights = gaussian(deviation).astype(np.float32)
    reach, (height, width) = len(weights) - 1, grey.shape
    rows = max(1, PIECE // width)  # at once: they stay in the processor's cache
    out = np.empty(grey.shape, dtype=np.float32)
    wide = np.pad(grey, ((reach, reach), (0, 0)), mode="symmetric")
    for top in range(0, height, rows):
        out[top : top + rows] = _weighed(wide[top : min(top + rows, height) + 2 * reach], weights)
    wide = np.pad(out, ((0, 0), (reach, reach)), mode="symmetric")
    for top in range(0, height, rows):
        out[top : top + rows] = _weighed(wide[top : top + rows].T, weights).T
    return out


def _distance(points: Floats, a: Ints, b: Ints, p: Ints, segment: Ints) -> Floats:
    """As gryphone.ink.distance, to the bit as skimage's approximate_polygon has it.

    Rings and straight lines hold many points that are equally far: rounding decides among them,
    and with it the strokes that networks were trained on.
    """
    (x0, y0), (x1, y1), (x, y) = points[a].T, points[b].T, points[p].T
    dx, dy = x1 - x0, y1 - y0
    angle = -np.arctan2(dx, dy)
    cos, sin = np.cos(angle), np.sin(angle)
    lines = np.array([x0, y0, x1, y1, dx, dy, cos, sin, y0 * sin + x0 * cos])
    x0, y0, x1, y1, dx, dy, cos, sin, offset = lines.take(segment, axis=1)
    far: Floats = np.abs(x * cos + y * sin - offset)
    x0, y0, x1, y1 = x - x0, y - y0, x - x1, y - y1  # from both ends
    beyond = np.flatnonzero((x0 * dx + y0 * dy <= 0) | (x1 * dx + y1 * dy >= 0))
    if len(beyond):
        x0, y0, x1, y1 = (each[beyond] for each in (x0, y0, x1, y1))
        far[beyond] = np.sqrt(np.minimum(y0 * y0 + x0 * x0, y1 * y1 + x1 * x1))
    return far
