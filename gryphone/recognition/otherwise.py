"""Other ways to read a doubtful picture: turned, or without what does not seem to belong to it.

A camera is held sideways, a word or a number stands beside the formula, a symbol is crossed out.
None of that can be told from the ink alone: a crossed-out zero is an empty set, and a gap may be
one of the formula's own. So where the first reading is doubtful the others are tried too. A surer
one of them is the answer where the ink speaks for it, and a hint where it does not; either is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gryphone.ink import Floats, Ink, Stroke, in_order, stroke_boxes, usual_size
from gryphone.reading.inputs import Input
from gryphone.recognition.result import Box, Result

DOUBT = 0.7  # confidence below which a picture is read without some of its ink, and
TURNED = 0.5  # turned
MORE, MUCH_MORE = 0.25, 0.5  # by how much another reading must be surer; upside down
SURE, VERY_SURE = 0.6, 0.85  # what one without some ink must reach as well; upside down
GAP = 1.2  # usual strokes between a formula and what stands beside it
SMALL = 0.45  # of the whole width that this may have
# Times its longer side, the length of a symbol's lines: those with more may be crossed out. A theta
# is like a crossed-out zero, so that is never more than a hint.
MUCH_LINE = 2.2
MOST_CROSSED = 3
# Confidence below which a part that stands apart is a word; with so many strokes, DOUBT.
UNREAD, WORD = 0.4, 4
NEAR = 0.08  # usual strokes between lines that touch
NUMBER = re.compile(r"\(?[0-9a-zA-Z]{1,3}[).]")
AFTER = re.compile(r"\([0-9]{1,3}\)")  # behind an equation; `(x)` is an argument
# Of two parts that such a sign joins, neither is a word or a number of an exercise.
JOINTS = {"=", "<", ">", "+", r"\leq", r"\geq", r"\neq", r"\in", r"\times", r"\rightarrow", ","}

TURN = "the picture was turned by {}°"
APART = "what stands apart from the formula, a word or a number, was left out"
OUT = "crossed out"
HINTS = {
    APART: "a part that stands apart may be no formula; without it this is {}",
    OUT: "something may be crossed out; without it this is {}",
}


@dataclass(frozen=True)
class Reading:
    """Some strokes of a picture, perhaps turned, and what to say when that is the formula."""

    input: Input
    strokes: tuple[int, ...]
    note: str
    strong: bool = True  # whether the ink itself speaks for it
    apart: Input | None = None  # the rest, where that must not be a formula itself


def readings(given: Input, first: Result) -> list[Reading]:
    """Other ways to read a picture, as far as the first answer about it calls for them."""
    found: list[Reading] = []
    if first.confidence < TURNED:
        everything = tuple(range(len(given.ink.strokes)))
        points = np.concatenate(given.ink.strokes)
        width, height = np.ptp(points, axis=0)
        for quarters in (1, 2, 3) if height > 0.6 * width else (2,):
            note = TURN.format(90 * quarters)
            found.append(Reading(_turned(given, quarters), everything, note))
    if first.confidence < DOUBT or NUMBER.match(plain_text(first)):
        for out, left in _beside(given.ink):
            found += _without(given, out, APART, left)
    if first.confidence < DOUBT:
        for out in _crossed(given.ink):
            found += _without(given, out, OUT, strong=False)
    return found


def surer(
    first: Result, others: Sequence[tuple[Reading, Result]], apart: Sequence[Result], ink: Ink
) -> Result:
    """The first answer, or a much surer one, in terms of the whole ink.

    `apart` are what the parts that readings leave out say by themselves.
    """
    words = iter(apart)
    fit: list[tuple[Reading, Result]] = []
    hints: list[tuple[Reading, Result]] = []
    for reading, result in others:
        word = None if reading.apart is None else next(words)
        strong, least = reading.strong, first.confidence + MORE
        if reading.note == TURN.format(180):
            least = max(first.confidence + MUCH_MORE, VERY_SURE)
        elif reading.note in HINTS:
            least = max(least, SURE)
            strong = strong and first.confidence < TURNED and not is_joined(result)
        if word is not None and reading.apart is not None:
            if is_joined(word) or is_joined(result):
                continue
            number = NUMBER if reading.strong else AFTER  # on the left, or on the right
            if number.fullmatch(plain_text(word)) or NUMBER.match(plain_text(first)):
                strong, least = True, min(SURE, first.confidence)
            else:
                word_like = len(reading.apart.ink.strokes) >= WORD
                strong = strong and word.confidence < (DOUBT if word_like else UNREAD)
        if result.confidence >= least:
            (fit if strong else hints).append((reading, result))
    if not fit:
        said = {HINTS[reading.note].format(result.latex) for reading, result in hints[:1]}
        return replace(first, warnings=(*first.warnings, *said))
    reading, result = max(fit, key=lambda pair: pair[1].confidence)
    symbols = tuple(
        replace(s, strokes=own, box=_box(ink, own) if s.box is not None else None)
        for s in result.symbols
        for own in [tuple(reading.strokes[i] for i in s.strokes)]
    )
    warnings = (*ink.notes, reading.note, *result.warnings)
    return replace(result, symbols=symbols, warnings=warnings, name=first.name)


def is_joined(result: Result) -> bool:
    """Whether an answer starts or ends with a sign that has something on both sides."""
    return not {*result.tokens[:1], *result.tokens[-1:]}.isdisjoint(JOINTS)


def plain_text(result: Result) -> str:
    """The answer without its structure."""
    return re.sub(r"[{}_^\s]|\\prime|\\[a-z]*dots", "", result.latex)


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
    ink = replace(
        given.ink, strokes=tuple(s @ turn for s in given.ink.strokes), glyphs=(), notes=()
    )
    return Input(ink, tuple(s @ turn for s in given.retraced))


def _without(given: Input, out: np.ndarray, note: str, strong: bool) -> Iterator[Reading]:
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
    rest = tuple(given.ink.strokes[i] for i in np.flatnonzero(out))
    apart = Input(replace(ink, strokes=rest)) if note == APART else None
    yield Reading(Input(ink, retraced), tuple(stay.tolist()), note, strong, apart)


def _beside(ink: Ink) -> Iterator[tuple[np.ndarray, bool]]:
    """Strokes to the left (True) of the first wide gap, and those to the right of the last."""
    low, high = stroke_boxes([ink.strokes])[0]
    usual = usual_size(low, high)
    first, last = float(low[:, 0].min()), float(high[:, 0].max())
    _, reached, room = in_order(low[:, 0], high[:, 0])
    wide = np.flatnonzero(room > GAP * usual)
    if len(wide) and reached[wide[0]] - first < SMALL * (last - first):
        yield low[:, 0] <= reached[wide[0]], True
    if len(wide) and last - reached[wide[-1]] < SMALL * (last - first):
        yield low[:, 0] > reached[wide[-1]], False


def _crossed(ink: Ink) -> Iterator[np.ndarray]:
    """The pieces of ink with most line in their room."""
    low, high = stroke_boxes([ink.strokes])[0]
    usual = usual_size(low, high)
    piece = pieces_of(ink.strokes, NEAR * usual)
    length = np.array([np.hypot(*np.diff(s, axis=0).T).sum() for s in ink.strokes])
    dense = []
    for number in np.unique(piece):
        own = piece == number
        size = high[own].max(0) - low[own].min(0)
        if size.max() > 0.5 * usual and size.min() > 0.25 * usual:
            dense.append((float(length[own].sum() / size.max()), int(number)))
    for most, number in sorted(dense, reverse=True)[:MOST_CROSSED]:
        if most > MUCH_LINE:
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
