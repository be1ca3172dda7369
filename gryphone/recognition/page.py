r"""A page of formulas: found, read together, and put together as `aligned`, cases or a matrix.

`reading.lines` says what lies on the page. Where it is in doubt whether two strips are two lines or
one formula, both are read, and the surer reading is the answer. A doubtful line that has a word or
the number of an exercise beside it is read again without.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from gryphone.errors import ConfigError, InkError
from gryphone.ink import in_order
from gryphone.latex.tree import words
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
from gryphone.recognition.answer import answer_together, prepare
from gryphone.recognition.encoding import EncodedBatch, Network
from gryphone.recognition.otherwise import (
    AFTER,
    DOUBT,
    LEGIBLE,
    LIKE_NUMBER,
    MORE,
    NUMBER,
    SMALL,
    SURE,
    WORDS,
    is_joined,
    is_word,
    plain_text,
)
from gryphone.recognition.question import MOST_STEPS, Ask
from gryphone.recognition.result import Alternative, Box, Result, Symbol
from gryphone.recognition.rows import MUCH
from gryphone.tokens import spell

MOST_LINES = 60  # of one page
MOST_FRAMED = 300  # strokes of a matrix or of cases
MOST_JOINED = 4  # strips of a doubtful formula
LEAST = 0.02  # confidence that counts as none
# What speaks for a way to cut a run of strips: a share of the odds by its paper; of a picture, as
# no time tells lines apart there, any cut; a share of the odds that strips read as one are one.
# Each symbol but one that is lost in such a reading speaks against it.
PAPER, TRACED, ONE, LOST, MOST_LOST = 0.3, 1.0, 0.25, 1.0, 4
MOST_ODDS = 20.0  # of those by the paper
BESIDE = 1.2  # usual strokes between a formula and what stands beside it, and
FAR_APART = 3.0  # between two formulas on one line
# Columns: usual strokes of paper between them, and by how much the mean log confidence must be
# higher than that of rows across the page; where a line was drawn between them, may be lower.
GUTTER, MOST_COLUMNS, SIDE_BY_SIDE = 2.0, 4, 0.15
RELATIONS = words(
    r"""= < > \leq \geq \le \ge \neq \ne \approx \equiv \sim \simeq \cong \propto \in \subset
    \subseteq \Rightarrow \Leftrightarrow \iff \implies"""
)
MATRICES = {"(": "pmatrix", "[": "bmatrix", "{": "Bmatrix", "|": "vmatrix"}
TEXT, NUMBERED, CROSSED, APART = "text", "number", "crossed out", "apart"
MARGIN = "margin line"
NOT_OF_PAGES = ("hint", "remask", "given", "deadline_ms", "boxed")


@dataclass(frozen=True)
class Formula:
    """One formula of a page: its result, whose strokes are the page's, and where it is."""

    result: Result
    box: Box
    strokes: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            **self.result.to_full_dict(),
            "box": [round(x, 2) for x in self.box],
            "strokes": list(self.strokes),
        }


@dataclass(frozen=True)
class Aside:
    """Ink that is no formula: a word, a number, what is crossed out, a margin's line."""

    kind: str
    box: Box
    strokes: tuple[int, ...]
    guess: str = ""  # what it may say

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "kind": self.kind,
            "box": [round(x, 2) for x in self.box],
            "strokes": list(self.strokes),
            "guess": self.guess,
        }


@dataclass(frozen=True)
class PageResult:
    """The formulas of a page in reading order, and what else is on it."""

    formulas: tuple[Formula, ...]
    asides: tuple[Aside, ...] = ()
    seconds: float = 0.0
    name: str = "ink"
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"PageResult({len(self.formulas)} formulas, {self.latex!r})"

    @property
    def separate(self) -> tuple[str, ...]:
        """The LaTeX of each formula."""
        return tuple(formula.result.latex for formula in self.formulas)

    @property
    def latex(self) -> str:
        """The whole page: the one formula that is on it, or all of them aligned."""
        return self.aligned if len(self.formulas) > 1 else "".join(self.separate)

    @cached_property
    def aligned(self) -> str:
        r"""All formulas below each other, aligned at the first relation of each."""
        rows = r" \\ ".join(at_relation(f.result.tokens) for f in self.formulas)
        return rf"\begin{{aligned}} {rows} \end{{aligned}}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know: warnings, of lines too, and what is no formula."""
        said = [*self.warnings]
        for number, formula in enumerate(self.formulas, 1):
            said += [f"line {number}: {note}" for note in formula.result.warnings]
        said += [f"{a.kind} was left out: {a.guess}".rstrip(": ") for a in self.asides]
        return tuple(said)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "file": self.name,
            "latex": self.latex,
            "aligned": self.aligned,
            "formulas": [formula.to_dict() for formula in self.formulas],
            "asides": [aside.to_dict() for aside in self.asides],
            "seconds": round(self.seconds, 4),
            "warnings": list(self.warnings),
        }


def at_relation(tokens: Sequence[str]) -> str:
    """A row of `aligned`: the first relation outside of all braces has the mark before it."""
    depth = 0
    for place, token in enumerate(tokens):
        depth += (token == "{" or token.startswith(r"\begin")) - (
            token == "}" or token.startswith(r"\end")
        )
        if depth == 0 and token in RELATIONS:
            left, right = spell(tokens[:place])[0], spell(tokens[place:])[0]
            return f"{left} &{right}".strip()
    return f"&{spell(tokens)[0]}"


def check_ask(ask: Ask) -> None:
    """Refuse what is about one formula."""
    for name in NOT_OF_PAGES:
        if getattr(ask, name) not in (None, (), {}, False):
            raise ConfigError(f"{name} is about one formula; leave it out for a page")


def read_page(network: Network, given: Input, ask: Ask) -> PageResult:
    """Find and read the formulas of an ink or a picture; `lock` is by strokes, not by positions."""
    check_ask(ask)
    began = time.perf_counter()
    page = Paper(given)
    best = read_lines(network, page, ask)
    least = evidence(best[0]) + (-SIDE_BY_SIDE if page.is_divided else SIDE_BY_SIDE)
    for columns in page.columns() if least < 0 else []:  # no logarithm is more than that
        found = [read_lines(network, column, ask) for column in columns]
        formulas = [formula for some, _ in found for formula in some]
        several = max(len(some) for some, _ in found) > 1
        cut = any(is_joined(formula.result) for formula in formulas)
        if several and not cut and evidence(formulas) > least:
            least = evidence(formulas)
            best = formulas, [aside for _, some in found for aside in some]
    formulas, asides = best
    asides += [page.aside(CROSSED, np.array(some)) for some in page.crossed]
    asides += [page.aside(MARGIN, np.array([line])) for line in page.margin]
    seconds = time.perf_counter() - began
    return PageResult(tuple(formulas), tuple(asides), seconds, given.ink.id, given.ink.notes)


def read_lines(network: Network, page: Paper, ask: Ask) -> tuple[list[Formula], list[Aside]]:
    """The formulas of a page in one column, and the words and numbers beside them."""
    runs = check_lines(page.runs(), page.ink.id)
    every, frames = to_read(page, runs)
    lone = {_key(strip) for run in runs for strip in run}
    read = dict(zip(map(_key, every), read_all(network, page, every, ask, lone), strict=True))
    for key, frame in frames.items():
        put, sure = frame.result([read[_key(part)] for part in frame.parts]), read[key].confidence
        # Many cells are many doubts; a reading that is doubtful as a whole needs less to give way.
        even = put.confidence ** (len(frame.parts) ** -0.5 if sure < LEGIBLE else 1.0)
        if even > sure:
            read[key] = put
    chosen = [group for run in runs for group in best_cuts(page, run, read)]
    return page.sorted_out(network, chosen, read, ask)


def evidence(formulas: Sequence[Formula]) -> float:
    """What the readings of the same ink have for them: the mean log confidence of its strokes."""
    sure = [math.log(max(f.result.confidence, LEAST)) for f in formulas]
    weights = [len(f.strokes) for f in formulas]
    return float(np.average(sure, weights=weights)) if formulas else -math.inf


def to_read(
    page: Paper, runs: Sequence[Sequence[Strip]]
) -> tuple[list[Strip], dict[tuple[int, ...], Frame]]:
    """All that may be a formula, parts of frames too; and the frames among it."""
    wanted = [segment for run in runs for segment in segments(run)]
    frames = {_key(some): frame for some in wanted if (frame := page.frame(some))}
    return [*wanted, *(part for frame in frames.values() for part in frame.parts)], frames


def check_lines(runs: list[list[Strip]], name: str) -> list[list[Strip]]:
    """The same strips, where they are no more than a page has."""
    count = sum(map(len, runs))
    if count > MOST_LINES:
        raise InkError(f"{name}: {count} lines; the limit is {MOST_LINES}; give a part of the page")
    return runs


def _key(strip: Strip) -> tuple[int, ...]:
    return tuple(strip.tolist())


def segments(run: Sequence[Strip]) -> list[Strip]:
    """What neighbouring strips of doubt may be together."""
    count = len(run)
    pairs = ((i, j) for i in range(count) for j in range(i + 1, min(count, i + MOST_JOINED) + 1))
    return [np.sort(np.concatenate(run[i:j])) for i, j in pairs]


def best_cuts(page: Paper, run: Sequence[Strip], read: dict[Any, Result]) -> list[Strip]:
    """The way to cut a run of strips whose readings are surest, the paper between them counted."""
    best: list[tuple[float, list[Strip]]] = [(0.0, [])]
    for j in range(1, len(run) + 1):
        ways = []
        for i in range(max(0, j - MOST_JOINED), j):
            strip = np.sort(np.concatenate(run[i:j]))
            score, before = best[i]
            whole = read[_key(strip)]
            sure = min(max(whole.confidence, LEAST), 1 - LEAST)
            # As many strips count more, but not as if each of them were in doubt by itself.
            score += math.log(sure) * math.sqrt(j - i)
            if j > i + 1:
                # Two lines are hardly one sure formula, unless one of them is passed over.
                apart = sum(len(read[_key(run[k])].symbols) for k in range(i, j))
                lost = min(max(0, apart - len(whole.symbols) - 1), MOST_LOST)
                score += ONE * max(0.0, math.log(sure / (1 - sure))) - LOST * lost
            inner = sum(page.doubt(run[k - 1], run[k]) for k in range(i + 1, j))
            score += PAPER * ((page.doubt(run[i - 1], run[i]) if i else 0.0) - inner)
            score += TRACED * (i > 0 and not page.timed)
            ways.append((score, [*before, strip]))
        best.append(max(ways, key=lambda way: way[0]))
    return best[-1][1]


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
        return Aside(kind, self.box(strip), _key(strip), guess)

    def formula(self, strip: Strip, result: Result) -> Formula:
        """Some of the strokes that are one."""
        return Formula(replace(result, name=self.ink.id), self.box(strip), _key(strip))

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

    def sorted_out(
        self, network: Network, lines: Sequence[Strip], read: dict[Any, Result], ask: Ask
    ) -> tuple[list[Formula], list[Aside]]:
        """Formulas, and the words and numbers beside them."""
        split = {
            _key(strip): list(self.beside(strip))
            for strip in lines
            for whole in [read[_key(strip)]]
            if whole.confidence < DOUBT or MUCH in whole.warnings or NUMBER.match(plain_text(whole))
        }
        parts = [p for some in split.values() for each in some for p in (each.part, each.rest)]
        more = dict(zip(map(_key, parts), read_all(network, self, parts, ask), strict=True))
        formulas: list[Formula] = []
        asides: list[Aside] = []
        for strip in lines:
            left = [(strip, read[_key(strip)])]
            for each in split.get(_key(strip), []):
                part, rest = more[_key(each.part)], more[_key(each.rest)]
                kind = kind_of(part, rest, left[0][1], each.side)
                if kind in (TEXT, NUMBERED):
                    asides.append(self.aside(kind, each.part, plain_text(part)))
                    left = [(each.rest, rest)]
                elif kind:
                    left = [(each.part, part), (each.rest, rest)]
                if kind:
                    break
            for some, result in left:
                if is_text(result):
                    asides.append(self.aside(TEXT, some, plain_text(result)))
                else:
                    formulas.append(self.formula(some, result))
        return formulas, asides


@dataclass(frozen=True)
class Beside:
    """A part of a line that stands apart from the rest: on its left, its right, or far away."""

    part: Strip
    rest: Strip
    side: str


def kind_of(part: Result, rest: Result, whole: Result, side: str) -> str:
    """What a part beside the rest of a line is; nothing where both are one formula."""
    if is_joined(part) or (side != "right" and is_joined(rest)):
        return ""
    if side == "both":
        lost = len(part.symbols) + len(rest.symbols) - len(whole.symbols) > 1  # passed over
        sure = part.confidence * rest.confidence
        return APART if sure > (LEGIBLE if lost else whole.confidence) else ""
    number, text = NUMBER if side == "left" else AFTER, plain_text(part)
    if number.fullmatch(text) and rest.confidence >= whole.confidence:
        return NUMBERED
    like = LIKE_NUMBER.fullmatch(text) or NUMBER.match(plain_text(whole))  # its bracket as a 1, say
    if side == "left" and like and rest.confidence >= max(SURE, whole.confidence + MORE):
        return NUMBERED
    return TEXT if is_text(part) and rest.confidence > whole.confidence else ""


def is_text(result: Result) -> bool:
    """Whether a reading is a word: one known beside formulas, or doubtful letters in a row."""
    text = result.latex.lower()  # scripts are no part of words
    letters = text.isalpha() and text.isascii() and len(text) >= 4
    return text in WORDS or (result.confidence < DOUBT and (letters or is_word(text)))


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


def read_all(
    network: Network,
    page: Paper,
    strips: Sequence[Strip],
    ask: Ask,
    rows: Collection[tuple[int, ...]] | None = None,
) -> list[Result]:
    """All parts of a page read together, their strokes numbered as the page's.

    `rows`: what may be one long row, and is read in parts in doubt; without it, all may. Where a
    stroke is locked, the symbol that it belongs to at first keeps what it is locked to.
    """
    found = _read(network, page, strips, [replace(ask, lock={})] * len(strips), rows)
    locks = [_locks(result, ask) for result in found]
    held = [place for place, lock in enumerate(locks) if lock]
    again = [strips[place] for place in held]
    asks = [replace(ask, lock=locks[place]) for place in held]
    for place, result in zip(held, _read(network, page, again, asks, rows), strict=True):
        found[place] = result
    return found


def _locks(result: Result, ask: Ask) -> dict[int, str | Sequence[str]]:
    """The locks on strokes of an answer's symbols, by position."""
    pairs = ((s.position, stroke) for s in result.symbols for stroke in s.strokes)
    return {position: ask.lock[stroke] for position, stroke in pairs if stroke in ask.lock}


def _read(
    network: Network,
    page: Paper,
    strips: Sequence[Strip],
    asks: Sequence[Ask],
    rows: Collection[tuple[int, ...]] | None,
) -> list[Result]:
    """Parts of a page read together, as many as fit into one batch at a time."""
    work = max((ask.work for ask in asks), default=1)
    size = max(1, network.backend.batch * MOST_STEPS // max(MOST_STEPS, work))
    found: list[Result] = []
    for begin in range(0, len(strips), size):
        some = strips[begin : begin + size]
        batch = EncodedBatch.of(network, [page.given.part(strip) for strip in some])
        asked = [
            replace(prepare(batch, index, ask), parts=rows is None or _key(strip) in rows)
            for index, (strip, ask) in enumerate(zip(some, asks[begin:], strict=False))
        ]
        for strip, result in zip(
            some, answer_together(asked, time.perf_counter(), otherwise=False), strict=True
        ):
            found.append(replace(result, symbols=result.on(strip.tolist())))
    return found
