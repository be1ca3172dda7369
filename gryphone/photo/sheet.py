"""A sheet on a darker desk: its edges are no ink, and what lies beside it is no paper."""

from dataclasses import dataclass

import numpy as np

from gryphone.photo.decode import Box, Bytes, Picture
from gryphone.photo.paper import Mask, block_levels

SIDE = 640  # pixels of the longer side: enough to see the sheet
BLOCKS = 80  # along the longer side
BRIGHTER = 1.3  # times the desk's brightness: paper is white, and light falls off less than this
# Share of the variance of the brightness that is between sheet and desk; an even fall of light
# from one side to the other, split in the middle, has 0.75.
SHARP = 0.85
LEAST, MOST = 0.08, 0.96  # of the picture that a sheet fills
SOLID = 0.9  # of its convex hull that a sheet fills, and of the dark that lies outside the hull


@dataclass(frozen=True)
class Sheet:
    """Where the paper is in a picture."""

    blocks: Mask  # (rows, columns) of square blocks
    block: float  # pixels of the picture on a side
    light: np.uint8  # how light the paper is

    def alone(self, grey: Bytes, box: Box) -> Bytes:
        """The part `grey` of a picture, with paper in place of all that is not the sheet."""
        return np.where(self.inside(grey, box), grey, self.light)

    def inside(self, grey: Bytes, box: Box) -> Mask:
        """Which pixels of that part are the sheet's."""
        left, top, right, bottom = box
        ends = zip(grey.shape, ((top, bottom), (left, right)), self.blocks.shape, strict=True)
        rows, columns = (
            (np.linspace(*end, size, endpoint=False) / self.block).astype(int).clip(0, most - 1)
            for size, end, most in ends
        )
        inside: Mask = self.blocks[rows[:, None], columns]
        return inside


def find_sheet(picture: Picture) -> Sheet | None:
    """The sheet, where there is one with an edge and something darker around it."""
    from scipy.ndimage import binary_erosion, label
    from skimage.filters import threshold_otsu
    from skimage.morphology import convex_hull_image

    longest = max(picture.size)
    scale = min(1.0, SIDE / longest)
    grey = picture.grey((0, 0, *picture.size), scale)
    block = max(2, round(longest * scale / BLOCKS))
    levels = block_levels(grey, 50, block)  # (rows, columns)
    if levels.std() < 1:
        return None
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
    # The edge goes too: its blocks are half desk, and the sheet may curl.
    inner = binary_erosion(hull, np.ones((5, 5), dtype=bool), border_value=True)
    return Sheet(inner, block / scale, np.uint8(np.median(levels[largest])))
