"""A contact sheet: many inks or images with their labels on one picture, to look at the data."""

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gryphone.data.samples import Sample
from gryphone.errors import DataError
from gryphone.ink import Ink

if TYPE_CHECKING:
    from PIL.Image import Image

CELL = (300, 170)  # pixels per sample, caption included
CAPTION = 46
MARGIN = 10
# Strokes cycle through dark colours, so that one sees where the pen was lifted.
COLOURS = ("#1b1b1b", "#b3261e", "#0b57d0", "#146c2e", "#7a4f01", "#6f3bab")


def contact_sheet(samples: Sequence[Sample], columns: int = 5) -> "Image":
    """Draw every sample in its own cell, left to right and top to bottom."""
    from PIL import Image, ImageDraw, ImageFont

    if not samples:
        raise DataError("there is nothing to draw; give at least one sample")
    columns = min(columns, len(samples))
    width, height = CELL
    sheet = Image.new("RGB", (columns * width, math.ceil(len(samples) / columns) * height), "white")
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=12)
    for index, sample in enumerate(samples):
        x, y = index % columns * width, index // columns * height
        draw.rectangle((x, y, x + width - 1, y + height - 1), outline="#d0d0d0")
        cell = _drawn(sample, (width - 2 * MARGIN, height - CAPTION - 2 * MARGIN))
        sheet.paste(cell, (x + MARGIN, y + MARGIN))
        caption = _wrapped(f"{sample.id}: {sample.label or '(no label)'}", 44, 3)
        draw.multiline_text((x + 6, y + height - CAPTION), caption, "#303030", font, spacing=1)
    return sheet


def _drawn(sample: Sample, size: tuple[int, int]) -> "Image":
    """One sample fitted into `size`."""
    from PIL import Image, UnidentifiedImageError

    picture = Image.new("RGB", size, "white")
    if sample.ink is not None:
        _draw_ink(picture, sample.ink)
    elif sample.image is not None:
        try:
            with Image.open(io.BytesIO(sample.image)) as photo:
                fitted = photo.convert("RGB")
        except (UnidentifiedImageError, OSError) as error:
            raise DataError(f"{sample.id}: not a readable image: {error}") from error
        fitted.thumbnail(size)
        picture.paste(fitted, ((size[0] - fitted.width) // 2, (size[1] - fitted.height) // 2))
    return picture


def _draw_ink(picture: "Image", ink: Ink) -> None:
    from PIL import ImageDraw

    draw = ImageDraw.Draw(picture)
    left, top, right, bottom = ink.bounds
    width, height = picture.width - 3, picture.height - 3
    scale = min(width / max(right - left, 1e-9), height / max(bottom - top, 1e-9))
    # A dot has no size: without a bound its rounding errors would fill the cell.
    scale = min(scale, 1e6)
    dx = (picture.width - (right - left) * scale) / 2
    dy = (picture.height - (bottom - top) * scale) / 2
    for number, stroke in enumerate(ink.strokes):
        colour = COLOURS[number % len(COLOURS)]
        points = [((x - left) * scale + dx, (y - top) * scale + dy) for x, y in stroke.tolist()]
        if len(points) == 1 or len(set(points)) == 1:
            (x, y) = points[0]
            draw.ellipse((x - 1.5, y - 1.5, x + 1.5, y + 1.5), fill=colour)
        else:
            draw.line(points, fill=colour, width=2, joint="curve")


def _wrapped(text: str, width: int, lines: int) -> str:
    """Cut text into lines of equal width; what does not fit ends in an ellipsis."""
    text = " ".join(text.split())
    if len(text) > width * lines:
        text = text[: width * lines - 1] + "…"
    return "\n".join(text[i : i + width] for i in range(0, len(text), width))
