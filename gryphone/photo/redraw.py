"""Pen strokes drawn on paper and traced: a second look at ink, as a picture has two tracings."""

import numpy as np

from gryphone.config import Canvas
from gryphone.errors import InkError
from gryphone.ink import Stroke
from gryphone.photo.binarize import grown
from gryphone.raster import InkBatch, draw, to_image

SHEET = Canvas("stroke", 1024, stroke=48.0)
PEN = 3.0  # pixels: a pen's line of one pixel and its two neighbours


def redrawn(strokes: tuple[Stroke, ...]) -> tuple[Stroke, ...]:
    """What a tracing finds of the strokes (in pixels of a sheet); nothing where it gives up."""
    from gryphone.photo.trace import trace

    pixels = draw(InkBatch.from_strokes([strokes]), SHEET)
    height, width = pixels.shape[0].tolist()
    sheet = np.pad(to_image(pixels, height, width)[0].numpy() > 0, 2)
    try:
        return tuple(trace(grown(sheet), PEN))
    except InkError:
        return ()
