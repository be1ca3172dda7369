"""Photo or scan to ink: what the pen would have recorded, so that one raster path serves both.

decode.py opens the file, sheet.py finds the sheet on its desk, binarize.py tells ink from paper,
trace.py thins it and follows the lines.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gryphone.errors import InkError
from gryphone.ink import Ink, Stroke
from gryphone.photo.binarize import (
    MOST_PARTS,
    Levels,
    Mask,
    Parts,
    darkness,
    grown,
    ink_levels,
    ink_mask,
    parts_of,
    pen_width,
    symbol_size,
    without_dust,
)
from gryphone.photo.decode import Grey, Picture, PixelBox, open_picture
from gryphone.photo.lines import slimmed, without_motion
from gryphone.photo.marks import STAIN, without_marks, without_stain
from gryphone.photo.rules import without_dots, without_rules
from gryphone.photo.sheet import Sheet, find_sheet

if TYPE_CHECKING:
    from PIL.Image import Image

Source: TypeAlias = "Path | bytes | Image | NDArray[Any]"

PAGE = 1_500_000  # pixels: enough to find the writing on any page
PEN = 4.0  # pixels: pen width to work at, unless
SYMBOL = 64.0  # symbols then come out smaller than this
COARSE = 28.0  # pixels: smaller symbols are worth going back to the original
# Smoothing (its deviation in pen widths) and sharpening before the ink is thinned. Smooth lines
# have no false branches, crisp ones keep their faint ends and open eyes: each loses what the other
# finds, so whoever reads the ink had better see both.
SMOOTH = 0.25, 0.7
CRISP = 0.1, 1.2
LARGEST_ZOOM = 4.0
# Of the pixels of ink, those nearly as dark as the pen: few where lines are blurred that are wide
# enough to have a middle, and nearly all of a broad pen's. Scans have 0.35 to 0.6.
DARK, FEW, WIDE = 0.8, 0.4, 4.0
MANY, BROAD = 0.64, 0.095  # and width over size of a symbol
SOLID = 0.5  # of its darkness that ink of a broad pen has at least
BLURRED = "the picture is blurred, and lines may have run together; hold the camera still"
FILLED = "the pen is broad for writing of this size, and may have filled the eyes of letters"
HARD = (BLURRED, FILLED)  # worth a word where the answer is in doubt


@dataclass(frozen=True)
class Writing:
    """Cleaned ink of a page: its darkness inside a box, and how large the writing is there."""

    dark: Grey  # (H, W), 0 outside the kept ink
    levels: Levels
    corner: tuple[float, float]  # left and top of `dark` in the picture
    scale: float  # pixels of `dark` per pixel of the picture
    width: float  # of the pen, in pixels of `dark`
    symbol: float  # usual size of a symbol, likewise
    notes: tuple[str, ...] = ()  # what was left out


def read_image(source: Source, *, name: str | None = None) -> Ink:
    """Strokes of a photographed, scanned or drawn formula, in pixels of the image, y down.

    Takes PNG, JPEG, WebP, TIFF, BMP, GIF and other files that Pillow knows as a path or bytes, PIL
    images, and arrays of shape (height, width[, channels]). Raises InkError for whatever holds no
    readable ink.
    """
    return _first_tracing(source, name)[0]


def trace_twice(source: Source, *, name: str | None = None) -> tuple[Ink, tuple[Stroke, ...]]:
    """The same ink and the strokes of another tracing, less smoothed, of one decoded image.

    There may be none: what is fine when smoothed may be too rough without.
    """
    ink, writing = _first_tracing(source, name)
    try:
        return ink, _strokes(writing, CRISP)
    except InkError:
        return ink, ()


def _first_tracing(source: Source, name: str | None) -> tuple[Ink, Writing]:
    """The ink, and the writing at the size at which it was traced."""
    name = name or (str(source) if isinstance(source, (str, Path)) else "image")
    picture = open_picture(source, name)
    writing = _slim(_at_working_size(_still(find_writing(picture))))
    try:
        strokes = _strokes(writing, SMOOTH)
    except InkError as error:
        raise InkError(f"{name}: {error}") from error
    if not strokes:
        raise InkError(f"{name}: no ink found; is the page empty or too faint?")
    notes = (*picture.notes, *writing.notes)
    return Ink(strokes, id=Path(name).stem or name, notes=notes), writing


def _strokes(writing: Writing, care: tuple[float, float]) -> tuple[Stroke, ...]:
    """The lines of the ink in pixels of the image, from left to right."""
    from gryphone.photo.skeleton import blurred
    from gryphone.photo.trace import trace

    soft, crisp = care
    # The ink's edges and the pen's short skips are smoothed.
    dark = blurred(writing.dark, soft * writing.width)
    # Lines come out against their surroundings, so that the eye of an e stays open.
    dark += crisp * (dark - blurred(dark, writing.width))
    lines = trace(ink_mask(dark, writing.levels), writing.width)
    # Pixel centres lie at half coordinates in every resolution.
    strokes = [(line + 0.5) / writing.scale + np.array(writing.corner) for line in lines]
    return tuple(sorted(strokes, key=lambda stroke: (stroke[:, 0].min(), stroke[:, 1].min())))


def _at_working_size(writing: Writing) -> Writing:
    """The same with pens and symbols as large as tracing wants them."""
    from PIL import Image

    zoom = max(PEN / max(writing.width, 0.5), SYMBOL / writing.symbol)
    zoom = min(zoom, LARGEST_ZOOM)
    dark = writing.dark
    if abs(zoom - 1) >= 0.02:
        rows, columns = (max(3, round(side * zoom)) for side in dark.shape)
        resized = Image.fromarray(dark).resize((columns, rows), Image.Resampling.BICUBIC)
        dark = np.asarray(resized, dtype=np.float32)
    width, symbol = writing.width * zoom, writing.symbol * zoom
    return replace(writing, dark=dark, scale=zoom * writing.scale, width=width, symbol=symbol)


def _still(writing: Writing) -> Writing:
    """The same without the camera's motion, where it is blurred."""
    if BLURRED not in writing.notes:
        return writing
    dark, edge = without_motion(writing.dark, writing.symbol)
    levels = ink_levels(dark) or writing.levels
    left, top = (place - edge / writing.scale for place in writing.corner)
    width = pen_width(ink_mask(dark, levels))
    return replace(writing, dark=dark, levels=levels, corner=(left, top), width=width)


def _slim(writing: Writing) -> Writing:
    """The same by a finer pen, where it is broad."""
    if FILLED not in writing.notes:
        return writing
    dark, width = slimmed(writing.dark, writing.width)
    levels = writing.levels
    levels = replace(levels, floor=max(levels.floor, SOLID * levels.ink))
    return replace(writing, dark=dark, levels=levels, width=width)


def find_writing(picture: Picture) -> Writing:
    """What is written on the sheet, or in the whole picture where none has writing on it."""
    sheet = find_sheet(picture)
    if sheet is not None:
        with suppress(InkError):  # a light wall beside the board, say
            return _zoom_in(picture, sheet)
    return _zoom_in(picture, None)


def _zoom_in(picture: Picture, sheet: Sheet | None) -> Writing:
    """Measure the whole page, then a part of it closer where the writing turns out to be small."""
    width, height = picture.size
    scale = min(1.0, (PAGE / (width * height)) ** 0.5)
    writing = _measure_writing(picture, (0, 0, width, height), scale, sheet)
    if scale < 1 and writing.symbol < COARSE:
        rows, columns = writing.dark.shape
        left, top = writing.corner
        box = (int(left), int(top), *(int(v) for v in (left + columns / scale, top + rows / scale)))
        closer = min(1.0, 2 * COARSE / writing.symbol * scale)
        closer = min(closer, (2 * PAGE / ((box[2] - box[0]) * (box[3] - box[1]))) ** 0.5)
        if closer > 1.2 * scale:
            box = (box[0], box[1], min(box[2], width), min(box[3], height))
            writing = _measure_writing(picture, box, closer, sheet)
    return writing


def _measure_writing(picture: Picture, box: PixelBox, scale: float, sheet: Sheet | None) -> Writing:
    """Tell ink from paper inside a box of the picture, at one resolution."""
    grey = picture.grey(box, scale)
    if sheet is None:
        dark = darkness(grey)
    else:
        grey, inside = sheet.alone(grey, box)
        dark = darkness(grey) * inside  # the step to the paper that was put in is no ink
    levels = ink_levels(dark)
    if levels is None:
        raise InkError(f"{picture.name}: the page is blank; no ink stands out from the paper")
    mask = ink_mask(dark, levels)
    notes: tuple[str, ...] = ()
    for clean in (without_rules, without_dots, without_stain):
        cleaned = clean(dark, mask, levels)
        if cleaned is not dark:
            dark, levels = cleaned, ink_levels(cleaned) or levels
            notes = (STAIN,) if clean is without_stain else ()
            mask = ink_mask(dark, levels)
    width = pen_width(mask)
    parts = parts_of(mask, dark)
    keep = without_dust(parts, width, levels)
    if keep.sum() > MOST_PARTS:
        raise InkError(
            f"{picture.name}: {keep.sum()} pieces of ink; this is a texture, not writing"
        )
    if not keep.any():
        raise InkError(
            f"{picture.name}: no ink found, only specks; is the page empty or too faint?"
        )
    keep, marks = without_marks(parts, keep, width)
    # What is left is the kept pieces, pixel for pixel: nothing to threshold or label again.
    dark, mask, (left, top) = _kept(dark, parts, keep, width)
    width = pen_width(mask)
    corner = (box[0] + left / scale, box[1] + top / scale)
    size = symbol_size(parts.longer[keep], width)
    pen = _pen(float((dark[mask] > DARK * levels.ink).mean()), width, size)
    return Writing(dark, levels, corner, scale, width, size, notes + marks + pen)


def _pen(full: float, width: float, symbol: float) -> tuple[str, ...]:
    """What makes lines of such darkness and width hard to read."""
    if full < FEW and width > WIDE:
        return (BLURRED,)
    return (FILLED,) if full > MANY and width > BROAD * symbol else ()


def _kept(
    dark: Grey, parts: Parts, keep: NDArray[np.bool_], width: float
) -> tuple[Grey, Mask, tuple[int, int]]:
    """Darkness around the kept pieces only and their pixels, cropped; left and top of the crop."""
    margin = round(width) + 2
    left, top = (int(v) for v in np.maximum(parts.boxes[keep, :2].min(0) - margin, 0))
    right, bottom = (int(v) for v in parts.boxes[keep, 2:].max(0) + margin)
    here = slice(top, bottom), slice(left, right)
    kept, dropped = parts.mask(keep)[here], parts.mask(~keep)[here]
    part = dark[here].copy()
    if dropped.any():
        # With the soft edge of what goes, but never the edge of what stays.
        part[grown(grown(dropped)) & ~kept] = 0
    return part, kept, (left, top)
