"""A row too long for one look: read in overlapping parts, which a second pass joins.

Hardly a training ink has more than 44 symbols, and a canvas draws a long row small: symbols are
lost. So such a row is cut at paper that no stroke crosses, into parts of a usual length that share
a third of their strokes. What a part says of a symbol at its edge lacks its neighbours; its other
side is in the next part, too. Two parts are joined between two symbols of the top-level row where
both divide the ink in the same way, and where what is kept of them is surest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gryphone.ink import Stroke, in_order, stroke_boxes, usual_size
from gryphone.reading.inputs import Input
from gryphone.recognition.question import OTHER, Ask, Step
from gryphone.recognition.result import Alternative, Result, Symbol
from gryphone.tokens import EMPTY, Tokenizer, openers_of, spans, spell

LONG = 44  # symbols: hardly a training ink has as many,
LOSING = 40  # and some are lost before
UNSURE = 0.6  # confidence in a whole below which its parts are read, too
SURER = math.log(2)  # by how much less doubt there must be about the symbols of the joined row
# Strokes of a part, and how many of them the next one has, too; others where no two can be joined.
SIZES = ((30, 12), (38, 20))
REACH = 4  # strokes by which a part may be longer or shorter, to end at more room
ROW = SIZES[0][0] + REACH  # strokes that are one part
MOST = 240  # strokes of a row, which then take some seconds; more is a page, or no writing
WIDE = 0.6  # usual strokes of room: more is not better
FARTHER = 0.03  # room that a cut is worth less for each stroke that it is off
LEAST = 1e-3  # confidence that counts as none
# Doubt that a join has with no, one, ... symbols between it and the nearer end of a part, and for
# each of the four symbols about it that the parts do not agree on.
EDGE, DISSENT = (1.0, 0.4, 0.15, 0.05, 0.0), 0.5

MUCH = "this may be more than one formula; give them one at a time"
NONE = "this may be no formula, or one that the model cannot read"
IN_PARTS = "this long row was read in parts; some of its symbols may be wrong"
DOUBTFUL = 0.5  # confidence below which that is said

Part = NDArray[np.int64]  # strokes, by their indices


def in_parts(
    given: Input,
    first: Result,
    ask: Ask,
    tokenizer: Tokenizer,
    read: Callable[[Sequence[Input], Ask], Sequence[Result]],
) -> Result:
    """The first answer about a row, or the surer one that its parts make, read by `read`."""
    stopped: list[bool] = []
    few = replace(ask, n_best=1, samples=1, boxes=True, as_written=False, boxed=False)
    few = replace(few, on_step=_meanwhile(ask.on_step, first, stopped))
    for size, shared in SIZES:
        parts = parts_of(given.ink.strokes, size, shared)
        if len(parts) < 2:
            continue
        answers = read([given.part(part) for part in parts], few)
        if stopped:
            break
        symbols = joined([r.on(p.tolist()) for r, p in zip(answers, parts, strict=True)])
        if symbols:
            return as_result(symbols, first, tokenizer, ask)
    return first


def _meanwhile(
    watch: Callable[[Step], bool | None] | None, shown: Result, stopped: list[bool]
) -> Callable[[Step], bool] | None:
    """A watch on the parts of a row, which sees the whole; noted where it stops them."""
    if watch is None:
        return None
    rows = tuple((s.symbol, s.modifier) for s in shown.symbols)

    def see(step: Step) -> bool:
        whole = replace(step, latex=shown.latex, tokens=shown.tokens, rows=rows, masked=())
        done = bool(watch(replace(whole, look=step.look + OTHER - 1)))
        stopped.extend([True] * done)
        return done

    return see


def parts_of(strokes: Sequence[Stroke], size: int, shared: int) -> list[Part]:
    """Overlapping parts of a row, from left to right; one where it cannot be cut."""
    total = len(strokes)
    low, high = stroke_boxes([strokes])[0]
    order, _, room = in_order(low[:, 0], high[:, 0])
    free = np.flatnonzero(room > 0) + 1  # strokes before each cut that crosses none
    if total <= size + REACH or not len(free):
        return [np.arange(total)]
    space = np.minimum(room[free - 1] / usual_size(low, high), WIDE)
    count = math.ceil((total - shared) / (size - shared))
    step = (total - size) / (count - 1)

    def cut(at: float) -> int:
        off = np.abs(free - at)
        worth = np.where(off <= max(REACH, off.min()), space - FARTHER * off, -math.inf)
        return int(free[np.argmax(worth)])

    ends = [(cut(step * k) if k else 0, cut(step * k + size)) for k in range(count - 1)]
    found: list[tuple[int, int]] = []
    for begin, end in [*ends, (cut(step * (count - 1)), total)]:
        if begin < end and (not found or (begin > found[-1][0] and end > found[-1][1])):
            found.append((begin, end))
    found[-1] = (found[-1][0], total)
    return [np.sort(order[begin:end]) for begin, end in found]


@dataclass(frozen=True)
class Reading:
    """What one part says: its symbols, whose strokes are numbered as the whole ink's."""

    symbols: Sequence[Symbol]

    @property
    def inks(self) -> list[frozenset[int]]:
        """The strokes of each symbol."""
        return [frozenset(symbol.strokes) for symbol in self.symbols]

    def doubts(self) -> np.ndarray:
        """(n + 1,): the doubt about all symbols before a place."""
        each = [-math.log(max(symbol.confidence, LEAST)) for symbol in self.symbols]
        return np.concatenate([[0.0], np.cumsum(each)])

    def cuts(self) -> Iterator[int]:
        """Places before which the top-level row may end: outside of all braces, no script next."""
        depth = 0
        yield 0
        for place, symbol in enumerate(self.symbols):
            opening = openers_of(symbol.modifier)
            if place and not depth and not opening and symbol.symbol != EMPTY:
                yield place
            depth += sum(mark in "{[" for mark in symbol.modifier[:opening])
            depth -= len(symbol.modifier) - opening
        yield len(self.symbols)

    def divided(self, shared: frozenset[int]) -> dict[frozenset[int], list[int]]:
        """The cuts by the strokes before them of those that two parts share."""
        found: dict[frozenset[int], list[int]] = {}
        before = [frozenset[int]()]
        for own in self.inks:
            before.append(before[-1] | (own & shared))
        for place in self.cuts():
            found.setdefault(before[place], []).append(place)
        return found


def joined(readings: Sequence[Sequence[Symbol]]) -> list[Symbol] | None:
    """The symbols of a whole row from what its parts say; None where two cannot be joined."""
    row = list(readings[0])
    for symbols in readings[1:]:
        place = best_join(Reading(row), Reading(symbols))
        if place is None:
            return None
        row = [*row[: place[0]], *symbols[place[1] :]]
    return row


def best_join(left: Reading, right: Reading) -> tuple[int, int] | None:
    """How many symbols of the left part to keep, and how many of the right one to leave out."""
    one, two = left.inks, right.inks
    every, others = frozenset[int]().union(*one), frozenset[int]().union(*two)
    shared = every & others
    if not shared:
        return None
    doubt, rest = left.doubts(), right.doubts()
    ways, best, least = left.divided(shared), None, math.inf
    for before, places in right.divided(shared).items():
        for j in places:
            for i in ways.get(before, []):
                if not frozenset[int]().union(*two[:j]) <= every or not (
                    frozenset[int]().union(*one[i:]) <= others
                ):
                    continue  # ink that neither would have
                alike = sum(_alike(left, right, i + k, j + k) for k in (-2, -1, 0, 1))
                near = min(len(one) - i, j, len(EDGE) - 1)
                cost = doubt[i] + rest[-1] - rest[j] + DISSENT * (4 - alike) + EDGE[near]
                if cost < least:
                    best, least = (i, j), cost
    return best


def as_result(symbols: Sequence[Symbol], first: Result, tokenizer: Tokenizer, ask: Ask) -> Result:
    """The joined row in the place of the first answer about the whole, if it is surer.

    It is where it has more symbols, of which the first one lost some, and where it has as many but
    they are twice as likely to be all right.
    """
    doubt, other = (Reading(some).doubts()[-1] for some in (symbols, first.symbols))
    longer = len(symbols) > len(first.symbols)
    longer = longer and (doubt <= other or len(first.symbols) >= LOSING)
    if not longer and doubt > other - SURER:
        return first
    if not ask.boxes:
        symbols = [replace(s, box=None, strokes=()) for s in symbols]
    row = spelt(symbols, first, tokenizer)
    others = [a for a in first.n_best if a.latex != row.latex][: ask.n_best - 1]
    worse = math.exp(min(0.0, doubt - other))  # than the row, by what was compared
    weights = [1.0, *(a.weight * worse for a in others)]
    ranked = zip([row.latex, *(a.latex for a in others)], weights, strict=True)
    said = [note for note in first.warnings if note not in (MUCH, NONE)]
    return replace(
        row,
        n_best=tuple(Alternative(text, weight / sum(weights)) for text, weight in ranked),
        warnings=(*said, *([IN_PARTS] if row.confidence < DOUBTFUL else ())),
    )


def spelt(symbols: Sequence[Symbol], like: Result, tokenizer: Tokenizer) -> Result:
    """An answer of these symbols, as sure as all of them are; the rest is as in another one."""
    rows = [(s.symbol, s.modifier) for s in symbols]
    names, tokens = tokenizer.vocabularies, tokenizer.join(rows)
    latex, starts = spell(tokens)
    marked = spans(tokens, starts, tokenizer.places(rows))
    placed = enumerate(zip(symbols, marked, strict=True))
    return replace(
        like,
        latex=latex,
        tokens=tuple(tokens),
        confidence=math.prod(s.confidence for s in symbols),
        symbols=tuple(replace(s, position=i, span=span) for i, (s, span) in placed),
        n_best=(Alternative(latex, 1.0),),
        ids=np.array([[v.id(each) for v, each in zip(names, row, strict=True)] for row in rows]),
        in_parts=True,
    )


def _alike(left: Reading, right: Reading, i: int, j: int) -> bool:
    """Whether two parts have the same symbol of the same ink at these places."""
    if not (0 <= i < len(left.symbols) and 0 <= j < len(right.symbols)):
        return False
    a, b = left.symbols[i], right.symbols[j]
    same = (a.symbol, a.modifier) == (b.symbol, b.modifier)
    return same and frozenset(a.strokes) == frozenset(b.strokes)
