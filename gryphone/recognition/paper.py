"""A page before it is read: its strips, columns and brackets, and what stands beside a line."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np

from gryphone.ink import in_order
from gryphone.reading.inputs import Input
from gryphone.reading.lines import (
    COLUMN,
    CONDITION,
    ONE_SIDE,
    Boxes,
    Strip,
    bracket_of,
    brackets,
    cells_of,
    crossed_out,
    cut_odds,
    margin_line,
    rows_between,
    strips_of,
)
from gryphone.recognition.otherwise import SMALL
from gryphone.recognition.page_result import Aside, Formula
from gryphone.recognition.result import Alternative, Box, Result, Symbol
from gryphone.tokens import spell

MOST_FRAMED = 300  # strokes of a matrix or of cases
MOST_ODDS = 20.0  # of those by the paper
BESIDE = 1.2  # usual strokes between a formula and what stands beside it, and
FAR_APART = 3.0  # between two formulas on one line
# Columns: usual strokes of paper between them.
GUTTER, MOST_COLUMNS = 2.0, 4
MATRICES = {"(": "pmatrix", "[": "bmatrix", "{": "Bmatrix", "|": "vmatrix"}


class Paper:
    """A page under the eyes of a reader: its strokes, less what is crossed out and its margin."""

    def __init__(self, given: Input) -> None:
        self.given, self.ink = given, given.ink
        self.timed = not given.retraced  # a tracing knows no order
        self.crossed = crossed_out(self.ink.strokes)
        line = margin_line(self.ink.strokes)
        self.margin = [] if line is None else [line]
        out = {*itertools.chain(*self.crossed), *self.margin}
        self.kept = np.array([i for i in range(len(self.ink.strokes)) if i not in out], dtype=int)
        if not len(self.kept):  # then it is all that there is
            self.crossed, self.margin, self.kept = [], [], np.arange(len(self.ink.strokes))
        self.boxes = Boxes(self.ink.strokes)

    def runs(self) -> list[list[Strip]]:
        """The strips from top to bottom; those of one run may belong together."""
        found = strips_of([self.ink.strokes[i] for i in self.kept], self.timed)
        runs: list[list[Strip]] = []
        for strip in (self.kept[some] for some in found):
            odds = self.odds(runs[-1][-1], strip) if runs else math.inf
            if odds == -math.inf:
                runs[-1][-1] = np.sort(np.concatenate([runs[-1][-1], strip]))
            elif odds == math.inf:
                runs.append([strip])
            else:
                runs[-1].append(strip)
        return runs

    def odds(self, upper: Strip, lower: Strip) -> float:
        """Log-odds that there are two lines; infinite where there is no doubt."""
        return cut_odds(self.boxes, upper, lower, self.timed)

    def columns(self) -> list[list[Paper]]:
        """The page cut where paper runs down to the bottom: from the top, or from a heading."""
        ways = self._side_by_side()
        strips = [] if ways else [strip for run in self.runs() for strip in run]
        if len(strips) > 1:
            below = self.part(np.sort(np.concatenate(strips[1:])))
            ways = [[self.part(strips[0]), *way] for way in below._side_by_side()]
        return ways

    def _side_by_side(self) -> list[list[Paper]]:
        """The page cut where paper runs from top to bottom, everywhere, or where it is widest."""
        order, _, room = in_order(self.boxes.left[self.kept], self.boxes.right[self.kept])
        cuts = np.flatnonzero(room > GUTTER) + 1
        if not len(cuts):  # one stroke has no room beside it
            return []
        ways = []
        for some in [cuts, np.array([int(np.argmax(room)) + 1])][: len(cuts)]:
            parts = [np.sort(part) for part in np.split(self.kept[order], some)]
            rows = [len(strips_of([self.ink.strokes[i] for i in part])) for part in parts]
            if len(parts) <= MOST_COLUMNS and max(rows) > 1:
                ways.append([self.part(part) for part in parts])
        return ways

    @property
    def is_divided(self) -> bool:
        """Whether its line is no margin, but has a column on either side."""
        right = self.boxes.left[self.kept] > self.boxes.right[self.margin].max(initial=-math.inf)
        return bool(self.margin) and 1 - ONE_SIDE <= float(right.mean()) <= ONE_SIDE

    def part(self, strip: Strip) -> Paper:
        """The same page with some of its strokes."""
        part = copy(self)
        part.kept = strip
        return part

    def doubt(self, upper: Strip, lower: Strip) -> float:
        """The same, but finite: strips of one run that grew together may be sure of it."""
        return min(max(self.odds(upper, lower), -MOST_ODDS), MOST_ODDS)

    def box(self, strip: Strip) -> Box:
        """Around some of the strokes, in the coordinates of the input."""
        left, top, right, bottom = (v * self.boxes.usual for v in self.boxes.around(strip))
        return left, top, right, bottom

    def aside(self, kind: str, strip: Strip, guess: str = "") -> Aside:
        """Some of the strokes that are no formula."""
        return Aside(kind, self.box(strip), key_of(strip), guess)

    def formula(self, strip: Strip, result: Result) -> Formula:
        """Some of the strokes that are one."""
        return Formula(replace(result, name=self.ink.id), self.box(strip), key_of(strip))

    def frame(self, strip: Strip) -> Frame | None:
        """Rows behind a tall bracket."""
        found = None if len(strip) > MOST_FRAMED else brackets(self.ink.strokes, strip)
        if found is None:
            return None
        first, last = found
        rows = rows_between(self.ink.strokes, strip, first, last)
        room = COLUMN if last is not None else CONDITION
        cells = cells_of(self.ink.strokes, rows, room)
        inside = {*itertools.chain(*(row.tolist() for row in rows)), first, last}
        rest = np.array([i for i in strip if i not in inside], dtype=int)
        before = rest[self.boxes.left[rest] < self.boxes.left[first]]
        after = rest[self.boxes.left[rest] >= self.boxes.left[first]]
        kind = "cases"
        if last is not None:  # of two brackets one may be straight by haste
            one, other = (bracket_of(self.ink.strokes[i]) for i in (first, last))
            kind = MATRICES[other if one == "|" else one]
        return Frame(kind, before, cells, after)

    def beside(self, strip: Strip) -> Iterator[Beside]:
        """What stands apart on the left or right of a line, and its halves left and right of the
        widest gap."""
        left, right = self.boxes.left[strip], self.boxes.right[strip]
        order, reached, room = in_order(left, right)
        wide = np.flatnonzero(room > BESIDE)
        if not len(wide):
            return
        width = reached[-1] - left.min()
        first, last, widest = int(wide[0]), int(wide[-1]), int(np.argmax(room))
        for place, kind in ((first, "left"), (last, "right"), (widest, "both")):
            parts = order[: place + 1], order[place + 1 :]
            sizes = reached[place] - left.min(), reached[-1] - reached[place]
            one, other = (np.sort(strip[part]) for part in parts)
            if kind == "both":
                if room[widest] > FAR_APART:
                    yield Beside(one, other, kind)
            elif sizes[kind == "right"] < SMALL * width:
                yield Beside(*((one, other) if kind == "left" else (other, one)), kind)


@dataclass(frozen=True)
class Beside:
    """A part of a line that stands apart from the rest: on its left, its right, or far away."""

    part: Strip
    rest: Strip
    side: str


@dataclass(frozen=True)
class Frame:
    """Rows and columns behind a bracket, with what stands before and behind them."""

    kind: str
    before: Strip
    cells: list[list[Strip]]
    after: Strip
    parts: list[Strip] = field(init=False)

    def __post_init__(self) -> None:
        every = [self.before, *itertools.chain(*self.cells), self.after]
        object.__setattr__(self, "parts", [strip for strip in every if len(strip)])

    def result(self, read: Sequence[Result]) -> Result:
        """The readings of all parts put together."""
        left = iter(read)
        pieces: list[Result | str] = [next(left)] if len(self.before) else []
        pieces.append(rf"\begin{{{self.kind}}}")
        for number, row in enumerate(self.cells):
            pieces += [r"\\"] if number else []
            for place, cell in enumerate(row):
                pieces += ["&"] if place else []
                pieces += [next(left)] if len(cell) else []
        pieces.append(rf"\end{{{self.kind}}}")
        pieces += [next(left)] if len(self.after) else []
        return put_together(pieces)


def put_together(pieces: Sequence[Result | str]) -> Result:
    """Readings, and tokens between them, as one result; as sure as all of them are."""
    tokens: list[str] = []
    for piece in pieces:
        tokens += [piece] if isinstance(piece, str) else piece.tokens
    latex, starts = spell(tokens)
    symbols: list[Symbol] = []
    place = 0
    for piece in pieces:
        if isinstance(piece, Result):
            shift = starts[place] if piece.tokens else 0
            for symbol in piece.symbols:
                start, end = (shift + at for at in symbol.span)
                symbols.append(replace(symbol, position=len(symbols), span=(start, end)))
        place += 1 if isinstance(piece, str) else len(piece.tokens)
    parts = [piece for piece in pieces if isinstance(piece, Result)]
    sure = math.prod(part.confidence for part in parts)
    return replace(
        parts[0],
        latex=latex,
        tokens=tuple(tokens),
        confidence=sure,
        symbols=tuple(symbols),
        n_best=(Alternative(latex, 1.0),),
        warnings=tuple(dict.fromkeys(note for part in parts for note in part.warnings)),
        ids=np.zeros((0, 2), np.int64),
    )


def key_of(strip: Strip) -> tuple[int, ...]:
    """The strokes of a strip, as a key."""
    return tuple(strip.tolist())
