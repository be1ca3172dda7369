"""Other ways to read a doubtful picture: turned, or without what does not seem to belong to it.

A camera is held sideways, a word or a number stands beside the formula, a symbol is crossed out.
None of that can be told from the ink alone: a crossed-out zero is an empty set, and a gap may be
one of the formula's own. So where the first reading is doubtful the others are tried too. A surer
one of them is the answer where the ink speaks for it, and a hint where it does not; either is said.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

import numpy as np

from gryphone.ink import Floats, Ink, Stroke, in_order, stroke_boxes, usual_size
from gryphone.latex.tree import words
from gryphone.photo.binarize import roots
from gryphone.photo.image import HARD
from gryphone.reading.inputs import Input
from gryphone.recognition.result import Box, Result

DOUBT = 0.7  # confidence below which a picture is read without some of its ink, upside down, and
TURNED = 0.5  # turned by a quarter
IN_DOUBT = 0.95  # below which it is said what makes it hard to read
MORE = 0.25  # by how much surer another reading must be
SLACK = 0.15  # by how much less will do for a hint that something stands apart
SURE = 0.6  # what one without some ink must reach as well
GAP = 1.2  # usual strokes between a formula and what stands beside it
SMALL, WIDE = 0.45, 0.75  # of the whole width that this may have; that a known word may have
# Lines through a symbol. Signs of a formula are like that, too (x, +, t, \neq, \theta), so the more
# that speaks for crossing out, the less surer the reading without it must be: of usual strokes that
# the line sticks out by at both ends, length of the other lines, by how much surer.
STRUCK = ((0.3, 2.0, -0.1), (0.2, 1.6, 0.05), (0.1, 0.9, 0.3))
WOBBLE, BREAK = 0.08, 0.12  # usual strokes: how far a hand's straight line strays, and is broken
BOTH_SIDES = 0.19  # of the other lines that lie on either side, and
ROUND = 0.1  # their breadth over length: those of + and x are straight, too
SIGN = 0.85  # confidence in it alone from which a symbol with a line through it is a sign
STEP = 0.05  # usual strokes between dots along a line
LEGIBLE = 0.4  # what the reading without it must reach
MOST_STRUCK, MOST_PIECES = 3, 300  # pieces of ink that are tried, of as many as a formula has
# Confidence below which a part that stands apart is a word; with so many strokes, DOUBT.
UNREAD, WORD = 0.4, 4
NEAR = 0.08  # usual strokes between lines that touch
NUMBER = re.compile(r"\(?[0-9a-zA-Z]{1,3}[).]")
LIKE_NUMBER = re.compile(r"\(?[0-9a-zA-Z]{1,3}[).,|/\]>1lj]")  # as the bracket may be read
AFTER = re.compile(r"\([0-9]{1,3}\)")  # behind an equation; `(x)` is an argument
WORDS = words(
    """or and if where so thus for let with when then hence since else otherwise answer proof
    solution find solve given show that have note"""
)
LIKE = str.maketrans("051", "osl")  # what letters of words are read as
# Of two parts that such a sign joins, neither is a word or a number of an exercise.
JOINTS = {"=", "<", ">", "+", r"\leq", r"\geq", r"\neq", r"\in", r"\times", r"\rightarrow", ","}

TURN = "the picture was turned by {}°"
APART = "what stands apart from the formula, a word or a number, was left out: {}"
OUT = "crossed-out writing was left out"
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
    apart: Input | None = None  # the rest, where what that says by itself matters
    more: float = MORE  # by how much surer it must be


def readings(given: Input, first: Result) -> list[Reading]:
    """Other ways to read a picture, as far as the first answer about it calls for them."""
    found: list[Reading] = []
    if first.confidence < DOUBT:
        everything = tuple(range(len(given.ink.strokes)))
        points = np.concatenate(given.ink.strokes)
        width, height = np.ptp(points, axis=0)
        sideways = first.confidence < TURNED and height > 0.6 * width
        for quarters in (1, 2, 3) if sideways else (2,):
            note = TURN.format(90 * quarters)
            found.append(Reading(_turned(given, quarters), everything, note))
    text = plain_text(first)
    like = text.lower().translate(LIKE)
    if first.confidence < DOUBT or LIKE_NUMBER.match(text) or like.startswith(tuple(WORDS)):
        for out, left, more in _beside(given.ink):
            found += _without(given, out, APART, left, more)
    for out, more in _struck(given.ink):
        if more < MORE or first.confidence < DOUBT:
            found += _without(given, out, OUT, more=more)
    return found


def surer(
    first: Result, others: Sequence[tuple[Reading, Result]], apart: Sequence[Result], ink: Ink
) -> Result:
    """The first answer, or a much surer one, in terms of the whole ink.

    `apart` are what the parts that readings leave out say by themselves.
    """
    alone = iter(apart)
    fit: list[tuple[Reading, Result, str]] = []
    hints: list[tuple[Reading, Result]] = []
    for reading, result in others:
        word = None if reading.apart is None else next(alone)
        said = "" if word is None else plain_text(word)
        strong, least = reading.strong, first.confidence + reading.more
        if word is not None and reading.note == OUT:
            least = max(least, LEGIBLE)
            strong = word.confidence < SIGN
        elif word is not None and reading.apart is not None:
            number = NUMBER if reading.strong else AFTER  # on the left, or on the right
            if is_word(said):  # 50 may be so, or 50
                strong = not (said.isdigit() and plain_text(first).startswith(said))
                least = min(LEGIBLE, first.confidence)
            elif is_joined(word) or is_joined(result):
                continue
            elif number.fullmatch(said) or NUMBER.match(plain_text(first)):
                strong, least = True, min(SURE, first.confidence)
            elif reading.strong and LIKE_NUMBER.fullmatch(said):
                least = max(LEGIBLE, first.confidence)
            else:
                word_like = len(reading.apart.ink.strokes) >= WORD
                strong = strong and word.confidence < (DOUBT if word_like else UNREAD)
                strong = strong and first.confidence < TURNED and result.confidence >= SURE
        if strong and result.confidence >= least:
            fit.append((reading, result, said))
        elif result.confidence >= max(least - SLACK * (reading.note == APART), LEGIBLE):
            hints.append((reading, result))
    if not fit and hints:
        reading, result = max(hints, key=lambda pair: pair[1].confidence)
        return replace(first, warnings=(*first.warnings, HINTS[reading.note].format(result.latex)))
    if not fit:
        return first
    reading, result, said = max(fit, key=lambda each: each[1].confidence)
    symbols = tuple(
        replace(s, strokes=own, box=_box(ink, own) if s.box is not None else None)
        for s in result.symbols
        for own in [tuple(reading.strokes[i] for i in s.strokes)]
    )
    warnings = (*notes_of(ink, result.confidence), reading.note.format(said), *result.warnings)
    return replace(result, symbols=symbols, warnings=warnings, name=first.name)


def notes_of(ink: Ink, confidence: float) -> tuple[str, ...]:
    """What is to be said about an input whose answer is so sure."""
    return tuple(n for n in ink.notes if confidence < IN_DOUBT or n not in HARD)


def is_joined(result: Result) -> bool:
    """Whether an answer starts or ends with a sign that has something on both sides."""
    return not {*result.tokens[:1], *result.tokens[-1:]}.isdisjoint(JOINTS)


def plain_text(result: Result) -> str:
    """The answer without its structure."""
    return re.sub(r"[{}_^\s]|\\prime|\\[a-z]*dots", "", result.latex)


def is_word(text: str) -> bool:
    """Whether letters in a row are a word that stands beside formulas, or nearly one."""
    text = text.lower().translate(LIKE)
    return text in WORDS or (len(text) > 3 and bool(get_close_matches(text, WORDS, 1, 0.75)))


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


def _without(
    given: Input, out: np.ndarray, note: str, strong: bool = True, more: float = MORE
) -> Iterator[Reading]:
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
    apart = Input(replace(ink, strokes=rest))
    yield Reading(Input(ink, retraced), tuple(stay.tolist()), note, strong, apart, more)


def _beside(ink: Ink) -> Iterator[tuple[np.ndarray, bool, float]]:
    """Strokes to the left (True) of the first wide gap, and those to the right of the last; by how
    much surer the rest must be, unless they are known to be no formula."""
    low, high = stroke_boxes([ink.strokes])[0]
    usual = usual_size(low, high)
    first, last = float(low[:, 0].min()), float(high[:, 0].max())
    _, reached, room = in_order(low[:, 0], high[:, 0])
    wide = np.flatnonzero(room > GAP * usual)
    if not len(wide):
        return
    for out, left, width in (
        (low[:, 0] <= reached[wide[0]], True, reached[wide[0]] - first),
        (low[:, 0] > reached[wide[-1]], False, last - reached[wide[-1]]),
    ):
        if width < WIDE * (last - first):
            # Numbers and words stand on the left, most of them.
            more = MORE if left else MORE + SLACK
            yield out, left, more if width < SMALL * (last - first) else math.inf


def _struck(ink: Ink) -> list[tuple[np.ndarray, float]]:
    """Pieces of ink with a line through them, and by how much surer the rest must be; a few."""
    low, high = stroke_boxes([ink.strokes])[0]
    usual = usual_size(low, high)
    piece = pieces_of(ink.strokes, NEAR * usual)
    numbers, found = np.unique(piece), []
    for number in numbers if len(numbers) <= MOST_PIECES else ():
        own = piece == number
        size = float((high[own].max(0) - low[own].min(0)).max()) / usual
        dots = [_dense(ink.strokes[i], STEP * usual) for i in np.flatnonzero(own)]
        out, length = _line_through(np.concatenate(dots) / usual, size)
        more = next((m for least, long, m in STRUCK if out >= least and length >= long), None)
        if more is not None:
            found.append((out * length, own, more))
    found.sort(key=lambda each: -each[0])
    return [(own, more) for _, own, more in found[:MOST_STRUCK]]


def _line_through(dots: Floats, size: float) -> tuple[float, float]:
    """Of dots (n, 2) along some lines: by how much a straight one sticks out of all others at both
    its ends, and how long these are; the best of some directions, zeros where there is none."""
    turns = np.arange(24) * np.pi / 24
    along = dots @ np.stack([np.cos(turns), np.sin(turns)])  # (n, 24)
    best = (0.0, 0.0)
    for i, j in {*zip(along.argmin(0).tolist(), along.argmax(0).tolist(), strict=True)}:
        way = dots[j] - dots[i]
        length = float(np.hypot(*way))
        if length < max(0.5, 0.6 * size):
            continue
        x, y = (dots - dots[i]).T
        at, off = (x * way[0] + y * way[1]) / length, (y * way[0] - x * way[1]) / length
        rest = np.abs(off) > WOBBLE
        others = dots[rest]
        if len(others) < 0.4 / STEP or np.diff(np.sort(at[~rest])).max() > BREAK:
            continue
        side = float((off[rest] > 0).mean())
        long, broad = np.linalg.svd(others - others.mean(0), compute_uv=False)
        if min(side, 1 - side) >= BOTH_SIDES and broad > ROUND * long:
            out = float(min(at[rest].min(), length - at[rest].max()))
            best = max(best, (out, STEP * len(others)))
    return best


def pieces_of(strokes: Sequence[Stroke], near: float) -> np.ndarray:
    """A number (n,) for each stroke, the same for those that touch: come to within about `near`.

    A grid tells, so that the work for many long lines does not grow with its square.
    """
    dots = [_dense(stroke, near) for stroke in strokes]
    owner = np.repeat(np.arange(len(dots)), [len(some) for some in dots])
    cells = np.floor(np.concatenate(dots) / (0.75 * max(near, 1e-9))).astype(np.int64)
    cells -= cells.min(0) - 1
    wide = int(cells[:, 1].max()) + 2
    cell = cells[:, 0] * wide + cells[:, 1]
    order = np.argsort(cell, kind="stable")
    cell, owner = cell[order], owner[order]
    same = cell[1:] == cell[:-1]
    one, two = [owner[1:][same]], [owner[:-1][same]]
    for step in (1, wide - 1, wide, wide + 1):
        at = np.searchsorted(cell, cell + step).clip(max=len(cell) - 1)
        there = cell[at] == cell + step
        one.append(owner[there])
        two.append(owner[at[there]])
    return roots(len(dots), np.concatenate(one), np.concatenate(two))


def _dense(stroke: Stroke, step: float) -> Floats:
    """Points at most `step` apart."""
    if len(stroke) < 2:
        return stroke
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(stroke, axis=0).T))])
    at = np.linspace(0, along[-1], int(along[-1] / max(step, 1e-9)) + 2)
    return np.stack([np.interp(at, along, stroke[:, k]) for k in (0, 1)], 1)
