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
from gryphone.recognition.drawing import box_of
from gryphone.recognition.result import Result

HALF = 0.9  # confidence below which a picture is read upside down,
DOUBT = 0.7  # without some of its ink, and
TURNED = 0.5  # turned by a quarter, if it is not
TALL = 1.8  # times as high as wide: few formulas are, and HALF and CLEARER are enough
IN_DOUBT = 0.95  # below which it is said what makes it hard to read
MORE = 0.25  # by how much surer another reading must be
# The same in log odds, enough for half a turn of an answer that is fairly sure; and for a hint.
ODDS, EVEN = 1.2, 0.0
SLACK = 0.15  # by how much less will do for a hint that something stands apart
SURE = 0.6  # what one without some ink must reach as well
GAP = 1.2  # usual strokes between a formula and what stands beside it,
NUMBERED = 0.8  # where the answer starts like the number of an exercise
POINT, FOOT = 0.15, 0.25  # usual strokes: the most of a point; of the number's height, where it is
SMALL, WIDE = 0.45, 0.75  # of the whole width that this may have; that a known word may have
# Lines through a symbol. Signs of a formula are like that, too (x, +, t, \neq, \theta), so the more
# that speaks for crossing out, the less surer the reading without it must be: of usual strokes that
# the line sticks out by at both ends, length of the other lines, by how much surer.
STRUCK = ((0.3, 2.0, -0.1), (0.2, 1.6, 0.05), (0.1, 0.9, 0.3))
WOBBLE, BREAK = 0.08, 0.12  # usual strokes: how far a hand's straight line strays, and is broken
STRAY = 0.06  # of its length that a long one strays
BOTH_SIDES = 0.19  # of the other lines that lie on either side, unless it slants across them, and
SLANT, ACROSS = 0.3, 0.28  # the least of sine and cosine, and how far it then sticks out
ROUND = 0.1  # their breadth over length: those of + and x are straight, too
SIGN = 0.85  # confidence in it alone from which a symbol with a line through it is a sign
NO_SIGN, CLEARER = 0.5, 0.08  # below which it is none, and by how much surer the rest must be then
NEARLY = 0.1  # by how much less will do for a hint at the first or last symbol
FAIRLY = 0.85  # confidence below which simple symbols inside a formula are looked at, too
STEP, MOST_DOTS = 0.05, 2000  # usual strokes between dots along a line; of one line
LEGIBLE = 0.4  # what the reading without it must reach
MOST_STRUCK, MOST_PIECES = 3, 300  # pieces of ink that are tried, of as many as a formula has
BLANK = 0.3  # mean probability from which the network sees a piece of ink as no symbol's
# Confidence below which a part that stands apart is a word; with so many strokes, DOUBT.
UNREAD, WORD = 0.4, 4
NEAR = 0.08  # usual strokes between lines that touch
NUMBER = re.compile(r"\(?[0-9a-zA-Z]{1,3}[).]")
STARTS = re.compile(r"\(?[0-9a-zA-Z]{1,3}(?:\)|\.(?![0-9]))")  # 1.5 is no exercise
LIKE_NUMBER = re.compile(r"\(?[0-9a-zA-Z]{1,3}[).,|/\]>1ljI]")  # as the bracket may be read
AFTER = re.compile(r"\([0-9]{1,3}\)")  # behind an equation; `(x)` is an argument
WORDS = words(
    """or and if where so thus for let with when then hence since else otherwise answer proof
    solution find solve given show that have note"""
)
LIKE = str.maketrans("051", "osl")  # what letters of words are read as
# Of two parts that such a sign joins, neither is a word or a number of an exercise.
JOINTS = {*"_^=<>+,", r"\leq", r"\geq", r"\neq", r"\in", r"\times", r"\rightarrow"}
ENDS = {*JOINTS, "-", r"\pm", r"\div", "/"}  # of one that ends with such a sign the rest is missing

TURN = "the picture was turned by {}°"
APART = "what stands apart from the formula, a word or a number, was left out: {}"
OUT = "crossed-out writing was left out"
OPEN = "the formula ends with {}: what follows may be missing, or it is crossed out"
HINTS = {
    TURN.format(180): "the picture may be upside down; turned by 180° this is {}",
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
    more: float = MORE  # by how much surer it must be, and
    hint: float = math.inf  # for a hint, where it is not the answer
    pointed: bool = False  # what is left out ends with a point on its line, like `12.`
    blank: bool = False  # the network sees no symbol in what is left out


def readings(given: Input, first: Result) -> list[Reading]:
    """Other ways to read a picture, as far as the first answer about it calls for them."""
    found: list[Reading] = []
    everything, sure = tuple(range(len(given.ink.strokes))), first.confidence
    if sure < HALF:
        more, hint = (_odds_on(sure, odds) - sure for odds in (ODDS, EVEN))
        note, turned = TURN.format(180), _turned(given, 2)
        found.append(Reading(turned, everything, note, more=min(more, MORE), hint=hint))
    width, height = np.ptp(np.concatenate(given.ink.strokes), axis=0)
    tall = height > TALL * width
    if sure < (HALF if tall else TURNED) and height > 0.6 * width:
        for quarters in (1, 3):
            note, turned = TURN.format(90 * quarters), _turned(given, quarters)
            found.append(Reading(turned, everything, note, more=CLEARER if tall else MORE))
    text = plain_text(first)
    like = text.lower().translate(LIKE)
    doubtful = sure < DOUBT or LIKE_NUMBER.match(text) or like.startswith(tuple(WORDS))
    for out, left, more in _beside(given.ink, bool(STARTS.match(text))):
        pointed = left and _ends_with_point(given.ink, out)
        if doubtful or pointed:
            some = _without(given, out, APART, left, more)
            found += [replace(reading, pointed=pointed) for reading in some]
    for out, last, more in _struck(given.ink):
        if last or more < MORE or sure < FAIRLY:
            found += _without(given, out, OUT, last, more, min(more - 0.1, 0.0))
    return found


def without_blank(given: Input, nothing: Floats) -> list[Reading]:
    """An input without the pieces of ink in which the network sees no symbol, all of them and each.

    `nothing` (strokes,) says how likely a stroke is no symbol's.
    """
    if len(given.ink.strokes) > MOST_PIECES:
        return []
    usual = usual_size(*stroke_boxes([given.ink.strokes])[0])
    piece = pieces_of(given.ink.strokes, NEAR * usual)
    length = np.array([np.hypot(*np.diff(s, axis=0).T).sum() + 1e-9 for s in given.ink.strokes])
    seen = np.bincount(piece, length * nothing) / np.maximum(np.bincount(piece, length), 1e-9)
    some = np.argsort(-seen, kind="stable")[:MOST_STRUCK]
    some = some[seen[some] >= BLANK]
    outs = [np.isin(piece, some)] * (len(some) > 1) + [piece == number for number in some]
    found = (_without(given, out, OUT, strong=True, more=0.0) for out in outs)
    return [replace(reading, blank=True) for each in found for reading in each]


def _odds_on(confidence: float, more: float) -> float:
    """The confidence whose log odds are so much higher."""
    odds = confidence / max(1 - confidence, 1e-9) * math.exp(more)
    return odds / (1 + odds)


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
        least, enough = _wanted(first, reading, result, word)
        if result.confidence >= least:
            fit.append((reading, result, "" if word is None else plain_text(word)))
        elif result.confidence >= enough:
            hints.append((reading, result))
    if not fit and hints:
        reading, result = max(hints, key=lambda pair: pair[1].confidence)
        return replace(first, warnings=(*first.warnings, HINTS[reading.note].format(result.latex)))
    if not fit:
        return first
    reading, result, said = max(fit, key=lambda each: each[1].confidence)
    low, high = (side.tolist() for side in stroke_boxes([ink.strokes])[0])
    symbols = tuple(
        replace(s, strokes=own, box=box_of(low, high, own) if s.box is not None else None)
        for s in result.symbols
        for own in [tuple(reading.strokes[i] for i in s.strokes)]
    )
    warnings = (*notes_of(ink, result.confidence), reading.note.format(said), *result.warnings)
    return replace(result, symbols=symbols, warnings=warnings, name=first.name)


def _wanted(
    first: Result, reading: Reading, result: Result, word: Result | None
) -> tuple[float, float]:
    """How sure a reading must be to be the answer, and to be a hint; `word` is what it left out."""
    sure = first.confidence
    least = sure + reading.more
    if word is None or reading.apart is None:
        return least, max(sure + reading.hint, LEGIBLE)
    if reading.blank:
        return min(LEGIBLE, sure), math.inf
    if reading.note == OUT:
        # The network itself has passed over it; or it is a sign behind which nothing follows.
        if result.latex == first.latex or (ends_open(first) and not is_joined(result)):
            return LEGIBLE, LEGIBLE
        if is_joined(result):
            return math.inf, math.inf
        # People strike out what they have just written, and no formula misses its last symbol.
        if word.confidence < (SIGN if reading.strong else NO_SIGN):
            least = min(least, sure + CLEARER)
        least = max(least, min(LEGIBLE, sure + CLEARER))
        enough = sure + reading.hint - NEARLY * reading.strong
        if word.confidence < SIGN:
            return least, enough
        return math.inf, min(sure, least) if reading.strong else least
    said, strong = plain_text(word), reading.strong
    number = NUMBER if strong else AFTER  # on the left, or on the right
    if is_word(said):  # 50 may be so, or 50
        strong = not (said.isdigit() and plain_text(first).startswith(said))
        least = min(LEGIBLE, sure)
    elif is_joined(word) or is_joined(result):
        return math.inf, math.inf
    elif (
        number.fullmatch(said)
        or STARTS.match(plain_text(first))
        or (reading.pointed and NUMBER.fullmatch(said.rstrip(".") + "."))
    ):
        # A bracket that only closes tells more than a point, or a line like one.
        strong, least = True, min(LEGIBLE if said.endswith(")") else SURE, sure)
    elif strong and LIKE_NUMBER.fullmatch(said):
        least = max(LEGIBLE, sure)
    else:
        word_like = len(reading.apart.ink.strokes) >= WORD
        strong = strong and word.confidence < (DOUBT if word_like else UNREAD)
        strong = strong and sure < TURNED and result.confidence >= SURE
        strong = strong and not {"_", "^"}.intersection(word.tokens)  # words stand on one line
    return least if strong else math.inf, max(least - SLACK, LEGIBLE)


def notes_of(ink: Ink, confidence: float) -> tuple[str, ...]:
    """What is to be said about an input whose answer is so sure."""
    return tuple(n for n in ink.notes if confidence < IN_DOUBT or n not in HARD)


def is_joined(result: Result) -> bool:
    """Whether an answer starts or ends with a sign that has something on both sides."""
    return not (JOINTS.isdisjoint(result.tokens[:1]) and ENDS.isdisjoint(result.tokens[-1:]))


def ends_open(result: Result) -> bool:
    """Whether an answer ends with a sign that has something on both sides; a comma may end it."""
    return bool(result.tokens) and result.tokens[-1] in ENDS - {","}


def open_ended(result: Result) -> Result:
    """The same answer; it is said where it ends with such a sign."""
    if not ends_open(result):
        return result
    return replace(result, warnings=(*result.warnings, OPEN.format(result.tokens[-1])))


def plain_text(result: Result) -> str:
    """The answer without its structure."""
    return re.sub(r"[{}_^\s]|\\prime|\\[a-z]*dots", "", result.latex)


def is_word(text: str) -> bool:
    """Whether letters in a row are a word that stands beside formulas, or nearly one."""
    text = text.lower().translate(LIKE)
    return text in WORDS or (len(text) > 3 and bool(get_close_matches(text, WORDS, 1, 0.75)))


def _turned(given: Input, quarters: int) -> Input:
    """The same turned clockwise about the origin."""
    cos, sin = ((1, 0), (0, 1), (-1, 0), (0, -1))[quarters]
    turn = np.array([[cos, sin], [-sin, cos]], dtype=np.float64)  # y goes down
    ink = replace(
        given.ink, strokes=tuple(s @ turn for s in given.ink.strokes), glyphs=(), notes=()
    )
    return Input(ink, tuple(s @ turn for s in given.retraced))


def _without(
    given: Input, out: np.ndarray, note: str, strong: bool, more: float, hint: float = math.inf
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
    yield Reading(Input(ink, retraced), tuple(stay.tolist()), note, strong, apart, more, hint)


def _beside(ink: Ink, numbered: bool) -> Iterator[tuple[np.ndarray, bool, float]]:
    """Strokes to the left (True) of the first wide gap, and those to the right of the last; by how
    much surer the rest must be, unless they are known to be no formula."""
    low, high = stroke_boxes([ink.strokes])[0]
    usual = usual_size(low, high)
    first, last = float(low[:, 0].min()), float(high[:, 0].max())
    _, reached, room = in_order(low[:, 0], high[:, 0])
    wide = np.flatnonzero(room > GAP * usual)
    if not len(wide):
        if numbered and room.max(initial=0.0) > NUMBERED * usual:
            end = reached[room.argmax()]
            if end - first < SMALL * (last - first):
                yield low[:, 0] <= end, True, MORE
        return
    for out, left, width in (
        (low[:, 0] <= reached[wide[0]], True, reached[wide[0]] - first),
        (low[:, 0] > reached[wide[-1]], False, last - reached[wide[-1]]),
    ):
        if width < WIDE * (last - first):
            # Numbers and words stand on the left, most of them.
            more = MORE if left else MORE + SLACK
            yield out, left, more if width < SMALL * (last - first) else math.inf


def _ends_with_point(ink: Ink, out: np.ndarray) -> bool:
    """Whether the last of some strokes is a point at the foot of the others."""
    low, high = stroke_boxes([ink.strokes])[0]
    usual, group = usual_size(low, high), np.flatnonzero(out)
    point = group[high[group, 0].argmax()]
    rest = group[group != point]
    if not len(rest) or float((high[point] - low[point]).max()) > POINT * usual:
        return False
    top, bottom = float(low[rest, 1].min()), float(high[rest, 1].max())
    return float(low[point, 1]) > bottom - FOOT * (bottom - top)


def _struck(ink: Ink) -> list[tuple[np.ndarray, bool, float]]:
    """Pieces of ink with a line through them, whether one stands first or last, and by how much
    surer the rest must be; a few."""
    low, high = stroke_boxes([ink.strokes])[0]
    usual = usual_size(low, high)
    piece = pieces_of(ink.strokes, NEAR * usual)
    numbers, found = np.unique(piece), []
    for number in numbers if len(numbers) <= MOST_PIECES else ():
        own = piece == number
        first, last = low[own].min(0), high[own].max(0)
        size = float((last - first).max()) / usual
        dots = [_dense(ink.strokes[i], STEP * usual) for i in np.flatnonzero(own)]
        out, length = _line_through(np.concatenate(dots) / usual, size)
        more = next((m for least, long, m in STRUCK if out >= least and length >= long), None)
        if more is not None:  # with the dot of an i
            own |= (low >= first - NEAR * usual).all(1) & (high <= last + NEAR * usual).all(1)
            rest = ~own
            behind = first[0] > high[rest, 0].max(initial=-np.inf)
            before = last[0] < low[rest, 0].min(initial=np.inf)
            found.append((out * length, own, bool(behind or before), more))
    found.sort(key=lambda each: -each[0])
    return [each[1:] for each in found[:MOST_STRUCK]]


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
        rest = np.abs(off) > max(WOBBLE, STRAY * length)
        others = dots[rest]
        if len(others) < 0.4 / STEP or np.diff(np.sort(at[~rest])).max() > BREAK:
            continue
        side = float((off[rest] > 0).mean())
        long, broad = np.linalg.svd(others - others.mean(0), compute_uv=False)
        out = float(min(at[rest].min(), length - at[rest].max()))
        slants = out >= ACROSS and float(np.abs(way).min()) >= SLANT * length
        if (slants or min(side, 1 - side) >= BOTH_SIDES) and broad > ROUND * long:
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
    # Among hundreds of specks the usual stroke is a point, and a step towards it nothing.
    at = np.linspace(0, along[-1], min(int(along[-1] / max(step, 1e-9)), MOST_DOTS) + 2)
    return np.stack([np.interp(at, along, stroke[:, k]) for k in (0, 1)], 1)
