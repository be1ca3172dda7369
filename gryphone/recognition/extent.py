"""Whether an ink is more than one formula, as the network knows formulas."""

from __future__ import annotations

import numpy as np

from gryphone.config import ModelConfig
from gryphone.ink import Floats, in_order, usual_size
from gryphone.recognition.drawing import size_on
from gryphone.recognition.rows import LONG

# Beyond these, and LONG, there is hardly a training ink: of CROHME's 10,367, 15 have as many
# symbols, 8 are drawn at less of their size, 17 have a wider gap, in usual strokes, across or down.
SMALL, GAPS = 0.6, (5.0, 2.0)
# Lines of writing: how many at least, usual strokes of paper between them, the fewest strokes and
# the least width of each. 16 of 2,592 of CROHME's inks have two; the last two rows, about narrow
# lines far apart, add one of 21,072 inks.
LINES = ((2, 0.8, 3, 2.5), (3, 0.8, 2, 1.5), (2, 1.4, 3, 0.0), (3, 1.2, 2, 0.0))
FEW = 20  # strokes: drawn small, they are dots and not a long row
Boxes = tuple[Floats, Floats]  # of some strokes: lowest and highest coordinates (strokes, 2)


def is_too_much(config: ModelConfig, boxes: Boxes, drawn: Boxes, symbols: int) -> bool:
    """Whether more was written, or read, than one formula as the model knows them."""
    if size_on(config.canvas, drawn) < SMALL:
        apart = len(drawn[0]) > FEW
    else:
        apart = lies_apart(*boxes)
    return apart or symbols >= min(LONG, config.length - 1)


def lies_apart(low: Floats, high: Floats) -> bool:
    """Whether there is more room between parts, or lines, than one formula has."""
    apart = any(gap > most for gap, most in zip(_gaps(low, high), GAPS, strict=True))
    return apart or has_lines(low, high)


def _gaps(low: Floats, high: Floats) -> list[float]:
    """The widest empty band across and down, in strokes of the usual size."""
    usual = usual_size(low, high)
    rooms = (in_order(start, end)[2] for start, end in zip(low.T, high.T, strict=True))
    return [float(room.max(initial=0.0)) / usual for room in rooms]


def has_lines(low: Floats, high: Floats) -> bool:
    """Whether the strokes lie in lines, with paper between them."""
    usual = usual_size(low, high)
    order, _, room = in_order(low[:, 1], high[:, 1])

    def lines(gap: float, few: int, wide: float) -> int:
        strips = np.split(order, np.flatnonzero(room > gap * usual) + 1)
        return sum(
            len(some) >= few
            and float(np.ptp(np.stack([low[some, 0], high[some, 0]]))) > wide * usual
            for some in strips
        )

    return any(lines(gap, few, wide) >= least for least, gap, few, wide in LINES)
