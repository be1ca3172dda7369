"""A sheet on a darker desk: its edges are no ink, and what lies beside it is no paper.

Where no whole sheet is seen, whatever dark comes in from a side of the picture is no paper either:
a strip of the table, a fingertip, the corner of a book.
"""

from dataclasses import dataclass

import numpy as np

from gryphone.photo.binarize import Mask, block_levels, darkness, ink_levels, ink_mask
from gryphone.photo.decode import Bytes, Grey, Picture, PixelBox

SIDE = 640  # pixels of the longer side: enough to see the sheet
BLOCKS = 80  # along the longer side
BRIGHTER = 1.2  # times the desk's brightness
# Share of the variance of the brightness that is between sheet and desk; an even fall of light
# from one side to the other, split in the middle, has 0.75.
SHARP = 0.85
LEAST, MOST = 0.05, 0.96  # of the picture that a sheet fills
SOLID = 0.9  # of its convex hull that a sheet fills, and of the dark that lies outside the hull
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
    from scipy.ndimage import distance_transform_edt

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
    nearest = distance_transform_edt(~inner, return_distances=False, return_indices=True)
    return Sheet(inner, levels[tuple(nearest)].astype(np.uint8), block / scale)


def _beside_things(grey: Bytes, levels: Grey, block: int) -> Mask | None:
    """The blocks that are paper, where dark things without writing come in from a side."""
    from scipy.ndimage import binary_dilation, binary_erosion, label

    dark = levels < DARKER * _even_light(levels)
    labels, count = label(dark)
    if not count:
        return None
    sides = np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]])
    # Writing that runs off the page is thinner than two blocks.
    thick = binary_erosion(np.pad(dark, 2, mode="edge"), np.ones((3, 3), dtype=bool))[2:-2, 2:-2]
    things = np.isin(labels, np.intersect1d(sides[sides > 0], labels[thick]))
    if not things.any():
        return None
    paper: Mask = ~binary_dilation(things, np.ones((3, 3), dtype=bool), iterations=2)
    inside = binary_erosion(np.pad(things, 1, mode="edge"), iterations=1)[1:-1, 1:-1]
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
    from scipy.ndimage import binary_dilation, binary_erosion, label
    from skimage.filters import threshold_otsu
    from skimage.morphology import convex_hull_image

    light = levels > threshold_otsu(levels)
    bright, dark = levels[light].mean(), levels[~light].mean()
    between = light.mean() * (1 - light.mean()) * (bright - dark) ** 2
    if bright < BRIGHTER * dark or between < SHARP * levels.var():
        return None
    labels, _ = label(light)
    largest = labels == np.bincount(labels[light]).argmax()
    hull = convex_hull_image(largest)
    desk = ~light & ~hull
    if (
        not LEAST < hull.mean() < MOST
        or largest.sum() < SOLID * hull.sum()
        or desk.sum() < SOLID * (~light).sum()  # what is dark inside is ink
        or not binary_erosion(desk).any()  # a line around the paper is drawn
    ):
        return None
    square = np.ones((5, 5), dtype=bool)
    # A desk lies around the sheet. Where it does not, it may be a shadow on more paper.
    corners = desk[[0, 0, -1, -1], [0, -1, 0, -1]]
    if corners.sum() < 3 and not _is_bare(grey, ~binary_dilation(hull, square), block):
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
    inner: Mask = binary_erosion(wide, square)[2:-2, 2:-2]
    return inner


def _is_bare(grey: Bytes, beside: Mask, block: int) -> bool:
    """Whether nothing that looks like ink lies in some blocks of a picture."""
    dark = darkness(grey)
    found = ink_levels(dark)
    if found is None:
        return True
    height, width = grey.shape
    pixels = np.kron(beside, np.ones((block, block), dtype=bool))[:height, :width]
    return bool(ink_mask(dark, found)[pixels].sum() <= BARE * pixels.sum())
