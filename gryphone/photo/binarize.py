"""Which pixels of a grey picture are ink: even light, thresholds, pieces of ink, dust."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gryphone.photo.decode import Bytes, Grey

Mask = NDArray[np.bool_]

FAINTEST = 0.07  # ink must be this much darker than the paper around it (1 is black on white)

MOST_PARTS = 3000  # separate pieces of ink; more are a texture
DOT = 0.5  # pen widths squared of full ink: the least that a pen leaves on its own
CRUMB = 0.15  # pen widths squared: the least beside a line, where a faint pen skips
DIM = 90.0  # grey level: darker paper than this is not brightened further


@dataclass(frozen=True)
class Levels:
    """Darkness that separates ink from paper: sure ink, and ink where it touches sure ink."""

    ink: float  # how dark clear ink is
    floor: float  # what may still be the paper's own noise

    @property
    def high(self) -> float:
        """Certainly ink."""
        return max(self.floor, 0.45 * self.ink)

    @property
    def low(self) -> float:
        """Ink where it touches certain ink."""
        return max(self.floor, 0.25 * self.ink)


def darkness(grey: Bytes) -> Grey:
    """How much darker than the paper around it each pixel is, 0 to 1; light ink is turned dark."""
    if _light_on_dark(grey):
        grey = 255 - grey
    paper = _background(grey, 85)
    # Light multiplies, so darkness is relative to the paper; but noise in deep shadow is no ink.
    dark = paper - grey
    for top in range(0, len(dark), 64):  # what is small need not be fetched from the system
        dark[top : top + 64] /= np.maximum(paper[top : top + 64], DIM)
    # The percentile lies above the paper's own level where the paper is noisy.
    dark -= float(np.median(dark[::2, ::2]))
    return np.clip(dark, 0, 1, out=dark)


def _light_on_dark(grey: Bytes) -> bool:
    """Ink is the tail of the deviations from the local level, on whichever side it lies."""
    grey = grey[:: 2 if len(grey) > 200 else 1, :: 2 if grey.shape[1] > 200 else 1]
    deviation = grey - _background(grey, 50)
    return float((deviation * deviation * deviation).mean(dtype=np.float64)) > 0


def _background(grey: Bytes, percentile: float) -> Grey:
    """The level of the paper: a percentile in each of about 40 blocks along the longer side."""
    from PIL import Image

    height, width = grey.shape
    block = max(12, max(height, width) // 40)
    levels = block_levels(grey, percentile, block)
    size = (levels.shape[1] * block, levels.shape[0] * block)
    # The median of each block and its eight neighbours.
    around = np.lib.stride_tricks.sliding_window_view(np.pad(levels, 1, mode="edge"), (3, 3))
    middle = np.ascontiguousarray(np.sort(around.reshape(*levels.shape, 9), axis=2)[:, :, 4])
    smooth = Image.fromarray(middle).resize(size, Image.Resampling.BILINEAR)
    return np.asarray(smooth)[:height, :width]


def block_levels(grey: Bytes, percentile: float, block: int) -> Grey:
    """A percentile of each square of `block` pixels (rows, columns); the last ones are mirrored."""
    height, width = grey.shape
    rows, columns = -(-height // block), -(-width // block)
    edges = ((0, rows * block - height), (0, columns * block - width))
    padded = np.pad(grey, edges, mode="reflect" if min(height, width) > block else "edge")
    blocks = padded.reshape(rows, block, columns, block).swapaxes(1, 2)
    step = max(1, block // 16)  # a sample of each block is as good, and much faster to sort
    sample = blocks[:, :, ::step, ::step].reshape(rows, columns, -1)
    rank = int(sample.shape[2] * percentile / 100)
    # A stable sort of bytes is a radix sort: a third of the time of a partition of floats.
    return np.sort(sample, axis=2, kind="stable")[:, :, rank].astype(np.float32)


def ink_levels(dark: Grey) -> Levels | None:
    """Thresholds from what is clearly darker than the paper's own noise; None when nothing is."""
    sample = dark[::2, ::2].ravel()
    bright = sample[sample < 0.5]
    noise = float(np.sqrt((bright**2).mean())) if bright.size else 0.0
    quiet = sample[sample < max(3 * noise, 0.02)]
    floor = max(FAINTEST, 5 * float(quiet.std()) if quiet.size else 0.0)
    ink = dark[dark > floor]
    if ink.size < 4:
        return None
    level = float(np.percentile(ink, 85))
    return Levels(level, floor)


def ink_mask(dark: Grey, levels: Levels) -> Mask:
    """Pixels of ink: dark ones, and fainter ones that are joined to them."""
    mask: Mask = dark > _below(levels.low)
    at, owner, count = pieces(mask)
    sure = np.zeros(count + 1, dtype=bool)
    sure[owner[dark.ravel()[at] > levels.high]] = True
    np.put(mask, at, sure[owner])
    return mask


def _below(limit: float) -> np.float32:
    """What a float32 exceeds exactly where it exceeds `limit`; compared in half the time."""
    near = np.float32(limit)
    return near if float(near) <= limit else np.nextafter(near, np.float32(0))


def grown(mask: Mask) -> Mask:
    """The mask and its four neighbours at every pixel."""
    more = mask.copy()
    more[1:] |= mask[:-1]
    more[:-1] |= mask[1:]
    more[:, 1:] |= mask[:, :-1]
    more[:, :-1] |= mask[:, 1:]
    return more


def pen_width(mask: Mask) -> float:
    """Mean width of the lines in pixels: area over half the outline (Crofton's formula)."""
    steps = sum(map(np.count_nonzero, (mask[1:] != mask[:-1], mask[:, 1:] != mask[:, :-1])))
    return 2 * float(np.count_nonzero(mask)) / max(steps * np.pi / 4, 1.0)


@dataclass(frozen=True)
class Parts:
    """Connected pieces of ink, piece 0 being the paper."""

    at: NDArray[np.int64]  # (pixels of ink,) where they are in the flattened page
    owner: NDArray[np.int64]  # (pixels of ink,) the piece they belong to
    shape: tuple[int, int]  # of the page
    area: NDArray[np.int64]  # (n + 1,)
    boxes: NDArray[np.int64]  # (n + 1, 4) left, top, right, bottom, the last two exclusive
    depth: NDArray[np.float32]  # (n + 1,) darkest pixel

    @property
    def longer(self) -> NDArray[np.int64]:
        """The longer side of each piece's box."""
        side: NDArray[np.int64] = (self.boxes[:, 2:] - self.boxes[:, :2]).max(axis=1)
        return side

    def mask(self, chosen: NDArray[np.bool_]) -> Mask:
        """The page (H, W) with the ink of some pieces (n + 1,) alone."""
        page = np.zeros(self.shape, dtype=bool)
        np.put(page, self.at, chosen[self.owner])
        return page


def parts_of(mask: Mask, dark: Grey) -> Parts:
    """Label the 8-connected pieces and measure them."""
    at, owner, count = pieces(mask, diagonal=True)
    rows, columns = np.divmod(at, mask.shape[1])
    boxes = np.zeros((count + 1, 4), dtype=np.int64)
    boxes[1:, :2] = max(mask.shape)
    np.minimum.at(boxes[:, 0], owner, columns)
    np.minimum.at(boxes[:, 1], owner, rows)
    np.maximum.at(boxes[:, 2], owner, columns + 1)
    np.maximum.at(boxes[:, 3], owner, rows + 1)
    depth = np.zeros(count + 1, dtype=np.float32)
    np.maximum.at(depth, owner, dark.ravel()[at])
    area = np.bincount(owner, minlength=count + 1)
    return Parts(at, owner, mask.shape, area, boxes, depth)


def pieces(mask: Mask, diagonal: bool = False) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Where the ink is in the flattened page, the piece it belongs to there, how many there are.

    Pieces are numbered from 1 by their first pixels. Runs along rows are joined, not pixels.
    """
    width, at = mask.shape[1], np.flatnonzero(mask)
    if not len(at):
        return at, at, 0
    # A run ends where the next pixel is not ink, and at the end of its row.
    new = np.empty(len(at), dtype=bool)
    new[0], new[1:] = True, (at[1:] != at[:-1] + 1) | (at[1:] % width == 0)
    first = np.flatnonzero(new)
    length = np.diff(np.append(first, len(at)))
    # Rows stand so far apart that what lies over a run's ends never reaches another row.
    start = at[first] + at[first] // width
    end = start + length
    reach = width + 1
    low = np.searchsorted(end, start + reach - diagonal, side="right")
    high = np.searchsorted(start, end + reach + diagonal, side="left")
    count = np.maximum(high - low, 0)  # runs below that touch each run
    above = np.repeat(np.arange(len(first)), count)
    below = np.arange(len(above)) + np.repeat(low - (np.cumsum(count) - count), count)
    root = roots(len(first), above, below)
    number = np.cumsum(root == np.arange(len(first)))
    return at, np.repeat(number[root], length), int(number[-1])


def roots(count: int, one: NDArray[np.int64], two: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first of all that each of `count` things is joined to, by pairs of them."""
    root = np.arange(count)
    while len(one):
        a, b = root[one], root[two]
        apart = a != b
        one, two, a, b = one[apart], two[apart], a[apart], b[apart]
        np.minimum.at(root, np.maximum(a, b), np.minimum(a, b))
        while not np.array_equal(root, onward := root[root]):
            root = onward
    return root


def symbol_size(longer: NDArray[np.int64], width: float) -> float:
    """The usual longer side of a piece that is more than a dot."""
    sides = longer[longer > 3 * width]
    if not len(sides):
        return float(max(longer.max(), 1))
    return float(np.quantile(sides, 0.6))


def without_dust(parts: Parts, width: float, levels: Levels) -> Mask:
    """Which pieces (n + 1,) are writing: a pen's lines, crumbs of faint ones, and its dots."""
    # A dot holds a pen's width of ink, squared; measured on scans whose true ink is known.
    ink = parts.area * np.minimum(parts.depth / levels.ink, 1)
    keep: Mask = (parts.area >= 2) & (ink >= DOT * width * width)
    keep &= (parts.longer >= 0.7 * width) & (parts.depth >= 1.1 * levels.high)
    keep[0] = False
    large = keep & (parts.longer > 3 * width)
    if not large.any() or keep.sum() > MOST_PARTS:
        return keep
    crumb = ~keep & (parts.area >= max(2.0, CRUMB * width * width))
    crumb[0] = False
    if crumb.sum() > MOST_PARTS:  # the paper's grain
        crumb[:] = False
    size = symbol_size(parts.longer, width)
    height, across = parts.shape
    for part in np.flatnonzero(keep | crumb):
        left, top, right, bottom = parts.boxes[part].tolist()
        others = large.copy()
        others[part] = False
        if not others.any():
            continue
        # A lone dot is dust, a lone line along the edge is the sheet's own, the rest may be far.
        narrow = min(right - left, bottom - top) < 3 * width
        edge = narrow and (min(left, top) <= 2 or right >= across - 2 or bottom >= height - 2)
        reach = width + size * (1.5 if edge or not large[part] else 5.0)
        gap = int(_gap(parts.boxes[part], parts.boxes[others]).min())
        keep[part] = gap < (reach if keep[part] else 0.6 * width)
    return keep


def _gap(box: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """Distance (larger of the two axes) from one box to each of the others, 0 where they touch."""
    low = np.maximum(others[:, :2] - box[2:], box[:2] - others[:, 2:])
    gap: NDArray[np.int64] = np.maximum(low, 0).max(axis=1)
    return gap
