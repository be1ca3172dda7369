"""Other ways to read a doubtful picture: turned, or without what does not seem to belong to it.

A camera is held sideways, a word or a number stands beside the formula, a symbol is crossed out. None
of that can be told from the ink alone: a crossed-out zero is an empty set, and a gap may be one of
the formula's own. So where the first reading is doubtful the others are tried too, and the surest
answer wins, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gryphone.ink import Floats, Ink, Stroke, quantile_of, stroke_boxes
from gryphone.reading.inputs import Input
from gryphone.recognition.result import Box, Result

DOUBT = 0.5  # confidence below which a picture is read otherwise
SURE = 0.6  # what another reading must reach, and
MORE = 0.25  # by how much it must be surer
GAP = 0.9  # usual strokes between a formula and what stands beside it
SMALL = 0.45  # of the whole width that this may have
CROSSINGS = 2  # of the lines of a crossed-out symbol, or more
MOST_CROSSED = 2
NEAR = 0.08  # usual strokes between lines that touch


@dataclass(frozen=True)
class Reading:
    """Some strokes of an ink, turned by so many quarters, and what to say when that is right."""

    input: Input
    strokes: tuple[int, ...]
    note: str


def readings(given: Input) -> list[Reading]:
    """Other ways to read a picture."""
    everything = tuple(range(len(given.ink.strokes)))
    found = [
        Reading(_turned(given, quarters), everything, f"the picture was turned by {degrees}°")
        for quarters, degrees in ((1, 90), (2, 180), (3, 270))
    ]
    for out in _beside(given.ink):
        note = "what stands apart from the formula, a word or a number, was left out"
        found += _without(given, out, note)
    for out in _crossed(given.ink):
        found += _without(given, out, "what seems to be crossed out was left out")
    return found


def surer(first: Result, others: Iterable[tuple[Reading, Result]], ink: Ink) -> Result:
    """The first answer, or a much surer one, in terms of the whole ink."""
    best = max(others, key=lambda pair: pair[1].confidence, default=None)
    if best is None:
        return first
    reading, result = best
    if result.confidence < max(SURE, first.confidence + MORE):
        return first
    symbols = tuple(
        replace(s, strokes=own, box=_box(ink, own) if s.box is not None else None)
        for s in result.symbols
        for own in [tuple(reading.strokes[i] for i in s.strokes)]
    )
    warnings = (*ink.notes, reading.note, *result.warnings)
    return replace(result, symbols=symbols, warnings=warnings, name=first.name)


def _box(ink: Ink, strokes: Sequence[int]) -> Box | None:
    if not strokes:
        return None
    points = np.concatenate([ink.strokes[i] for i in strokes])
    (left, top), (right, bottom) = points.min(0).tolist(), points.max(0).tolist()
    return left, top, right, bottom


def _turned(given: Input, quarters: int) -> Input:
    """The same turned clockwise about the origin."""
    cos, sin = ((1, 0), (0, 1), (-1, 0), (0, -1))[quarters]
    turn = np.array([[cos, sin], [-sin, cos]], dtype=np.float64)  # y goes down
    ink = replace(given.ink, strokes=tuple(s @ turn for s in given.ink.strokes), glyphs=(), notes=())
    return Input(ink, tuple(s @ turn for s in given.retraced))


def _without(given: Input, out: np.ndarray, note: str) -> Iterator[Reading]:
    """The same without some of its strokes (n,), and without what another tracing has there."""
    stay = np.flatnonzero(~out)
    if not len(stay) or not out.any():
        return
    low, high = stroke_boxes([given.ink.strokes])[0]
    kept = tuple(given.ink.strokes[i] for i in stay)
    low, high = low[out].min(0), high[out].max(0)

    def is_out(stroke: Stroke) -> bool:
        return bool(((stroke >= low - 1) & (stroke <= high + 1)).all(1).mean() > 0.7)

    retraced = tuple(s for s in given.retraced if not is_out(s))
    ink = replace(given.ink, strokes=kept, glyphs=(), notes=())
    yield Reading(Input(ink, retraced), tuple(stay.tolist()), note)


def _beside(ink: Ink) -> Iterator[np.ndarray]:
    """Strokes to the left of the widest gap, and those to the right of it."""
    low, high = stroke_boxes([ink.strokes])[0]
    usual = max(float(quantile_of((high - low).max(1))), 1e-9)
    first, last = float(low[:, 0].min()), float(high[:, 0].max())
    order = np.argsort(low[:, 0])
    reached = np.maximum.accumulate(high[order, 0])
    gaps = low[order][1:, 0] - reached[:-1]
    for place in np.argsort(-gaps)[:2]:
        if gaps[place] < GAP * usual:
            break
        edge = reached[place]
        if edge - first < SMALL * (last - first):
            yield low[:, 0] <= edge
        elif last - edge < SMALL * (last - first):
            yield low[:, 0] > edge


def _crossed(ink: Ink) -> Iterator[np.ndarray]:
    """The pieces of ink whose lines cross most often."""
    low, high = stroke_boxes([ink.strokes])[0]
    usual = max(float(quantile_of((high - low).max(1))), 1e-9)
    piece = pieces_of(ink.strokes, NEAR * usual)
    counts = []
    for number in np.unique(piece):
        own = [ink.strokes[i] for i in np.flatnonzero(piece == number)]
        counts.append((crossings(own, 0.1 * usual), number))
    for count, number in sorted(counts, key=lambda pair: -pair[0])[:MOST_CROSSED]:
        if count >= CROSSINGS:
            yield piece == number


def pieces_of(strokes: Sequence[Stroke], near: float) -> np.ndarray:
    """A number (n,) for each stroke, the same for those that touch."""
    dots = [_dense(stroke, near) for stroke in strokes]
    piece = np.arange(len(strokes))
    low, high = stroke_boxes([list(strokes)])[0]
    for i in range(len(strokes)):
        close = ((low[i + 1 :] <= high[i] + near) & (high[i + 1 :] >= low[i] - near)).all(1)
        for j in np.flatnonzero(close) + i + 1:
            gap = dots[i][:, None] - dots[j][None]
            if piece[i] != piece[j] and (gap**2).sum(2).min() < near * near:
                piece[piece == piece[j]] = piece[i]
    return piece


def _dense(stroke: Stroke, step: float) -> Floats:
    """Points at most `step` apart."""
    if len(stroke) < 2:
        return stroke
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(stroke, axis=0).T))])
    at = np.linspace(0, along[-1], int(along[-1] / max(step, 1e-9)) + 2)
    return np.stack([np.interp(at, along, stroke[:, k]) for k in (0, 1)], 1)


def crossings(strokes: Sequence[Stroke], near: float) -> int:
    """Places, more than `near` apart, where lines cross each other or themselves."""
    begin = np.concatenate([s[:-1] for s in strokes])
    step = np.concatenate([np.diff(s, axis=0) for s in strokes])
    if len(begin) < 2:
        return 0
    i, j = np.triu_indices(len(begin), 2)
    # begin[i] + t step[i] = begin[j] + u step[j]
    cross = step[i, 0] * step[j, 1] - step[i, 1] * step[j, 0]
    offset = begin[j] - begin[i]
    safe = np.where(np.abs(cross) < 1e-9, np.inf, cross)
    t = (offset[:, 0] * step[j, 1] - offset[:, 1] * step[j, 0]) / safe
    u = (offset[:, 0] * step[i, 1] - offset[:, 1] * step[i, 0]) / safe
    meet = (t > 0) & (t < 1) & (u > 0) & (u < 1) & np.isfinite(safe)
    places = begin[i[meet]] + t[meet, None] * step[i[meet]]
    found: list[Floats] = []
    for place in places:
        if all(np.hypot(*(place - other)) > near for other in found):
            found.append(place)
    return len(found)
