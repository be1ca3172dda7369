"""A sheet on a darker desk: its edges are no ink, and what lies beside it is no paper.

Where no whole sheet is seen, whatever dark comes in from a side of the picture is no paper either:
a strip of the table, a fingertip, the corner of a book.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from gryphone.photo.binarize import Mask, block_levels, darkness, ink_levels, ink_mask, pieces
from gryphone.photo.decode import Bytes, Grey, Picture, PixelBox
from gryphone.photo.skeleton import nearest

SIDE = 640  # pixels of the longer side: enough to see the sheet
BLOCKS = 80  # along the longer side
BRIGHTER = 1.2  # times the desk's brightness
# Share of the variance of the brightness that is between sheet and desk; an even fall of light
# from one side to the other, split in the middle, has 0.75.
SHARP = 0.85
LEAST, MOST = 0.05, 0.96  # of the picture that a sheet fills
SOLID = 0.9  # of its convex hull that a sheet fills, and of the dark that lies outside the hull
CROSS = ((0, 0), (-1, 0), (0, -1), (0, 1), (1, 0))
SQUARE = tuple((dy, dx) for dy in range(-2, 3) for dx in range(-2, 3))
AROUND = tuple((dy, dx) for dy in range(-1, 2) for dx in range(-1, 2))
DARKER = 0.8  # times the paper: what comes into view from a side
LINED, LINES = 0.75, 0.02  # times its own level, share of its blocks: a shadow on writing has more
PAPERS = 0.3  # of the picture that must be paper even so
BARE = 0.001  # of what lies beside the sheet that may look like ink, where that may be a shadow


@dataclass(frozen=True)
class Sheet:
    """Where the paper is in a picture, and how light it is; beside the sheet, as at its edge."""

    blocks: Mask  # (rows, columns) of square blocks
    paper: Bytes  # (rows, columns)
    block: float  # pixels of the picture on a side

    def alone(self, grey: Bytes, box: PixelBox) -> tuple[Bytes, Mask]:
        """A part of the picture with paper in place of all but the sheet, and where that is."""
        left, top, right, bottom = box
        ends = zip(grey.shape, ((top, bottom), (left, right)), self.blocks.shape, strict=True)
        rows, columns = (
            (np.linspace(*end, size, endpoint=False) / self.block).astype(int).clip(0, most - 1)
            for size, end, most in ends
        )
        inside: Mask = self.blocks[rows[:, None], columns]
        return np.where(inside, grey, self.paper[rows[:, None], columns]), inside


def find_sheet(picture: Picture) -> Sheet | None:
    """The paper, where something darker lies around it or comes in from a side."""
    longest = max(picture.size)
    scale = min(1.0, SIDE / longest)
    grey = picture.grey((0, 0, *picture.size), scale)
    block = max(2, round(longest * scale / BLOCKS))
    levels = block_levels(grey, 50, block)  # (rows, columns)
    if levels.std() < 1:
        return None
    inner = _on_desk(grey, levels, block)
    if inner is None:
        inner = _beside_things(grey, levels, block)
    if inner is None or not inner.any():
        return None
    rows, columns, _ = nearest(inner, *(each.ravel() for each in np.indices(inner.shape)))
    paper = levels[rows, columns].reshape(inner.shape)
    return Sheet(inner, paper.astype(np.uint8), block / scale)


def _beside_things(grey: Bytes, levels: Grey, block: int) -> Mask | None:
    """The blocks that are paper, where dark things without writing come in from a side."""
    dark = levels < DARKER * _even_light(levels)
    at, owner, count = pieces(dark)
    if not count:
        return None
    labels = np.zeros(dark.shape, dtype=np.int64)
    np.put(labels, at, owner)
    sides = np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]])
    # Writing that runs off the page is thinner than two blocks.
    thick = _shrunk(np.pad(dark, 2, mode="edge"), AROUND)[2:-2, 2:-2]
    things = np.isin(labels, np.intersect1d(sides[sides > 0], labels[thick]))
    if not things.any():
        return None
    paper = _shrunk(np.pad(~things, 2, constant_values=True), SQUARE)[2:-2, 2:-2]
    inside = _shrunk(np.pad(things, 1, mode="edge"), CROSS)[1:-1, 1:-1]
    if not inside.any() or paper.mean() < PAPERS:
        return None
    # A shadow on written paper has lines in it that are much darker than itself.
    faint = block_levels(grey, 5, block) / np.maximum(levels, 1)
    return paper if (faint[inside] < LINED).mean() < LINES else None


def _even_light(levels: Grey) -> Grey:
    """The paper's own level everywhere: a smooth surface through most of the blocks."""
    rows, columns = (np.linspace(-1, 1, side) for side in levels.shape)
    y, x = (v.ravel() for v in np.meshgrid(rows, columns, indexing="ij"))
    terms = np.stack([np.ones_like(x), x, y, x * y, x * x, y * y], 1)
    values = levels.ravel().astype(np.float64)
    fit = np.full_like(values, np.quantile(values, 0.7))
    for near in (0.3, 0.2, 0.15, 0.12):
        some = np.abs(values - fit) < near * fit
        if some.sum() < 0.3 * len(values):
            break
        fit = terms @ np.linalg.lstsq(terms[some], values[some], rcond=None)[0]
    out: Grey = fit.reshape(levels.shape).astype(np.float32)
    return out


def _on_desk(grey: Bytes, levels: Grey, block: int) -> Mask | None:
    """The blocks of a sheet with an edge and something darker around it."""
    light = levels > _threshold(levels)
    bright, dark = levels[light].mean(), levels[~light].mean()
    between = light.mean() * (1 - light.mean()) * (bright - dark) ** 2
    if bright < BRIGHTER * dark or between < SHARP * levels.var():
        return None
    at, owner, _ = pieces(light)
    largest = np.zeros_like(light)
    np.put(largest, at[owner == np.bincount(owner).argmax()], True)
    hull = _hull(largest)
    desk = ~light & ~hull
    if (
        not LEAST < hull.mean() < MOST
        or largest.sum() < SOLID * hull.sum()
        or desk.sum() < SOLID * (~light).sum()  # what is dark inside is ink
        or not _shrunk(desk, CROSS).any()  # a line around the paper is drawn
    ):
        return None
    # A desk lies around the sheet. Where it does not, it may be a shadow on more paper.
    corners = desk[[0, 0, -1, -1], [0, -1, 0, -1]]
    if corners.sum() < 3 and not _is_bare(
        grey, _shrunk(~np.pad(hull, 2), SQUARE)[2:-2, 2:-2], block
    ):
        return None
    # The edge goes too: its blocks are half desk, and the sheet may curl. Sides of the picture that
    # are all sheet are no edge.
    wide = np.pad(hull, 2, mode="edge")
    for beyond, side in (
        (wide[:2], hull[0]),
        (wide[-2:], hull[-1]),
        (wide[:, :2], hull[:, 0]),
        (wide[:, -2:], hull[:, -1]),
    ):
        beyond &= side.all()
    return _shrunk(wide, SQUARE)[2:-2, 2:-2]


def _threshold(levels: Grey) -> float:
    """Otsu's: what splits the levels so that both sides differ most, by 256 bins of them."""
    counts, edges = np.histogram(levels, 256)
    middles = (edges[1:] + edges[:-1]) / 2
    below, above = np.cumsum(counts), np.cumsum(counts[::-1])[::-1]
    sums = counts * middles
    low = np.cumsum(sums) / below
    high = np.cumsum(sums[::-1])[::-1] / above
    return float(middles[np.argmax(below[:-1] * above[1:] * (low[:-1] - high[1:]) ** 2)])


def _shrunk(mask: Mask, shape: tuple[tuple[int, int], ...]) -> Mask:
    """What lies in a mask with all that a shape, (dy, dx) around a place, covers."""
    height, width = mask.shape
    wide, out = np.pad(mask, 2), np.ones_like(mask)
    for dy, dx in shape:
        out &= wide[2 + dy : 2 + dy + height, 2 + dx : 2 + dx + width]
    return out


def _hull(mask: Mask) -> Mask:
    """The convex hull of a mask's pixels, each of them reaching to the middles of its sides."""
    rows, columns = np.nonzero(mask)
    twice = [(2 * rows + dy, 2 * columns + dx) for dy, dx in CROSS[1:]]  # whole numbers
    corners = sorted({*zip(*np.concatenate(twice, axis=1).tolist(), strict=True)})
    inside = np.ones(mask.shape, dtype=bool)
    y, x = 2 * np.arange(mask.shape[0])[:, None], 2 * np.arange(mask.shape[1])
    for side in (corners, corners[::-1]):
        edge: list[tuple[int, int]] = []
        for point in side:
            while len(edge) > 1 and _turn(edge[-2], edge[-1], *point) <= 0:
                edge.pop()
            edge.append(point)
        for one, two in itertools.pairwise(edge):
            inside &= _turn(one, two, y, x) >= 0
    return inside


def _turn(a: tuple[int, int], b: tuple[int, int], y: Any, x: Any) -> Any:
    """More than 0 where a place lies on one side of a line, 0 on it."""
    return (b[0] - a[0]) * (x - a[1]) - (b[1] - a[1]) * (y - a[0])


def _is_bare(grey: Bytes, beside: Mask, block: int) -> bool:
    """Whether nothing that looks like ink lies in some blocks of a picture."""
    dark = darkness(grey)
    found = ink_levels(dark)
    if found is None:
        return True
    height, width = grey.shape
    pixels = np.kron(beside, np.ones((block, block), dtype=bool))[:height, :width]
    return bool(ink_mask(dark, found)[pixels].sum() <= BARE * pixels.sum())
