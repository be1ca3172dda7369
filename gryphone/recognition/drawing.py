"""One ink on a canvas, in numpy: the same pixels and patches that `raster` draws in batches.

And whether it is more than one formula, as the network knows formulas.

A batch on a GPU is drawn there by `raster`; one ink is drawn sooner here than its kernels start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gryphone.config import Canvas, ModelConfig
from gryphone.ink import LONGEST_STROKES, Floats, Stroke, in_order, quantile_of, usual_size
from gryphone.recognition.backend import View
from gryphone.recognition.result import Box
from gryphone.recognition.rows import LONG

_RING = np.array([(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1) if x or y])
# Beyond these, and LONG, there is hardly a training ink: of CROHME's 10,367, 15 have as many
# symbols, 8 are drawn at less of their size, 17 have a wider gap, in usual strokes, across or down.
SMALL, GAPS = 0.6, (5.0, 2.0)
# Lines of writing: how many at least, usual strokes of paper between them, the fewest strokes and
# the least width of each. 16 of 2,592 of CROHME's inks have two; the last two rows, about narrow
# lines far apart, add one of 21,072 inks.
LINES = ((2, 0.8, 3, 2.5), (3, 0.8, 2, 1.5), (2, 1.4, 3, 0.0), (3, 1.2, 2, 0.0))
FEW = 20  # strokes: drawn small, they are dots and not a long row
Boxes = tuple[Floats, Floats]  # of some strokes: lowest and highest coordinates (strokes, 2)


class Drawing(NamedTuple):
    """The patches of one ink, and where its strokes are in them."""

    pixels: np.ndarray  # (P, window²) uint8, the patch with its surroundings
    position: np.ndarray  # (P, 2) intp, row and column in the patch grid
    grid: tuple[int, int]  # its rows and columns
    home: np.ndarray  # (M,) the patch that each inked pixel lies in
    stroke: np.ndarray  # (M,) the stroke that inked it


def drawing_of(
    strokes: Sequence[Stroke],
    canvas: Canvas,
    view: View = View(),  # noqa: B008
    dense: bool = False,
) -> Drawing:
    """Draw an ink and keep its inked patches (all of them with `dense`)."""
    row, column, stroke, (height, width) = pixels_of(strokes, canvas, view)
    patch, window, halo = canvas.patch, canvas.window, (canvas.window - canvas.patch) // 2
    rows, columns = height // patch, width // patch
    down, right, wide = row // patch, column // patch, columns + 2
    cell = (down + 1) * wide + right + 1
    inked = np.full((rows + 2, wide), fill_value=False)  # with bare patches all around
    inked[1:-1, 1:-1] = dense
    inked.ravel()[cell] = True
    kept = np.flatnonzero(inked)
    rank = np.full(inked.size, len(kept))
    rank[kept] = np.arange(len(kept))
    windows = np.zeros((len(kept) + 1) * window**2, dtype=np.uint8)
    place = (row - down * patch + halo) * window + column - right * patch + halo  # in its window
    reach: list[tuple[Any, Any]] = [(0, 0)]
    if halo:  # the windows of the three nearest patches hold a pixel too
        step_down = np.where(row - down * patch < patch // 2, -1, 1)
        step_right = np.where(column - right * patch < patch // 2, -1, 1)
        below, beside = step_down * wide, step_down * (patch * window)
        after, along = step_right, step_right * patch
        reach += [(below, beside), (after, along), (below + after, beside + along)]
    for by_cell, by_place in reach:
        windows[rank[cell + by_cell] * window**2 + place - by_place] = 1
    return Drawing(
        windows.reshape(-1, window**2)[:-1],
        np.stack([kept // wide - 1, kept % wide - 1], 1),
        (rows, columns),
        rank[cell],
        stroke,
    )


def patches_of(strokes: Sequence[Stroke], canvas: Canvas) -> int:
    """How many patches of the canvas an ink touches."""
    row, column, _, (_, width) = pixels_of(strokes, canvas)
    return len(np.unique(row // canvas.patch * (width // canvas.patch) + column // canvas.patch))


def pixels_of(
    strokes: Sequence[Stroke],
    canvas: Canvas,
    view: View = View(),  # noqa: B008
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]]:
    """Row, column and stroke (M,) of the inked pixels, and the canvas's height and width."""
    points = np.concatenate(strokes).astype(np.float32)
    if view.angle:
        cos, sin = np.cos(view.angle), np.sin(view.angle)
        points = points @ np.array([[cos, sin], [-sin, cos]], dtype=np.float32)
    lengths = np.array([len(stroke) for stroke in strokes])
    firsts = np.cumsum(lengths) - lengths
    low, high = np.minimum.reduceat(points, firsts), np.maximum.reduceat(points, firsts)
    corner, extent = low.min(0), high.max(0) - low.min(0)
    scale = _scale(canvas, extent, (high - low).max(1), view.scale)
    if canvas.kind == "square":
        side = np.float32(canvas.side * view.scale)
        shift, size = (side - extent * scale) / 2, np.full(2, side)
    else:
        shift, size = np.full(2, np.float32(0.5)), extent * scale + 1
    width, height = (np.ceil(size / canvas.patch).clip(1) * canvas.patch).astype(int).tolist()
    ends = (points - corner) * scale + shift
    tiny = np.zeros(len(firsts), dtype=bool)
    if canvas.dot:
        low, high = np.minimum.reduceat(ends, firsts), np.maximum.reduceat(ends, firsts)
        tiny = (high - low).max(1) < canvas.dot
        of = np.repeat(np.arange(len(firsts)), lengths)
        ends = np.where(tiny[of, None], ((low + high) / 2)[of], ends)
    # The segment that ends in a point starts in the one before, or in itself: a stroke's first.
    starts = np.concatenate([ends[:1], ends[:-1]])
    starts[firsts] = ends[firsts]
    delta = ends - starts
    steps = np.maximum(np.ceil(np.abs(delta).max(1)), 1)
    counts = steps.astype(np.intp) + 1  # 32 bits in WebAssembly
    begin = np.cumsum(counts) - counts
    owner = np.repeat(np.arange(len(steps)), counts)
    along = (np.arange(len(owner)) - begin[owner]).astype(np.float32) / steps[owner]
    xy = np.floor(starts[owner] + delta[owner] * along[:, None]).astype(np.intp)
    stroke = np.repeat(np.arange(len(firsts)), lengths)[owner]
    if tiny.any():  # a dot's first pixel brings its eight neighbours
        middle = xy[begin[firsts[tiny]]]
        xy = np.concatenate([xy, (middle[:, None] + _RING).reshape(-1, 2)])
        stroke = np.concatenate([stroke, np.repeat(np.flatnonzero(tiny), len(_RING))])
    column = np.minimum(np.maximum(xy[:, 0], 0), width - 1)
    row = np.minimum(np.maximum(xy[:, 1], 0), height - 1)
    return row, column, stroke, (height, width)


def _scale(canvas: Canvas, extent: np.ndarray, sizes: np.ndarray, factor: float) -> Any:
    """Pixels per unit, as `raster.fit` has it: in float32, for an ink whose strokes have sizes."""
    number = np.float32
    longest = np.maximum(extent.max(), number(1e-12))
    if canvas.kind == "square":
        return (number(canvas.side) * number(factor) - number(1)) / longest
    effective = np.maximum(extent, longest / number(canvas.max_aspect))
    # PyTorch divides a number by a tensor in these two steps.
    scale = number(1) / np.sqrt(effective.prod()) * number(canvas.side)
    if canvas.kind == "stroke":
        typical = np.maximum(quantile_of(sizes), longest / number(LONGEST_STROKES))
        return np.minimum(scale, number(canvas.stroke) * number(factor) / typical)
    return scale * number(factor)


def size_on(canvas: Canvas, boxes: tuple[np.ndarray, np.ndarray]) -> float:
    """How large a typical stroke is drawn, as a share of its usual size; boxes (strokes, 2) each.

    Less than one where so much was written that the canvas holds it only when it is shrunk, and
    for dots.
    """
    low, high = (side.astype(np.float32) for side in boxes)
    sizes = (high - low).max(1)
    scale = _scale(canvas, high.max(0) - low.min(0), sizes, 1.0)
    return float(quantile_of(sizes)) * float(scale) / canvas.stroke


def box_of(low: list[list[float]], high: list[list[float]], some: Sequence[int]) -> Box | None:
    """Around some of the strokes, in the coordinates of the input."""
    if not some:
        return None
    left, top = map(min, zip(*(low[i] for i in some), strict=True))
    right, bottom = map(max, zip(*(high[i] for i in some), strict=True))
    return left, top, right, bottom


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
