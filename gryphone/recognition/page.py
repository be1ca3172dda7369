r"""A page of formulas: found, read together, and put together as `aligned`, cases or a matrix.

`reading.lines` says what lies on the page. Where it is in doubt whether two strips are two lines or
one formula, both are read, and the surer reading is the answer. A doubtful line that has a word or
the number of an exercise beside it is read again without.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gryphone.errors import ConfigError, InkError
from gryphone.reading.inputs import Input
from gryphone.reading.lines import Strip
from gryphone.recognition.answer import answer_together, prepare
from gryphone.recognition.encoding import EncodedBatch, Network
from gryphone.recognition.otherwise import (
    AFTER,
    DOUBT,
    LEGIBLE,
    LIKE_NUMBER,
    MORE,
    NUMBER,
    SURE,
    WORDS,
    is_joined,
    is_word,
    plain_text,
)
from gryphone.recognition.page_result import Aside, Formula, PageResult
from gryphone.recognition.paper import Frame, Paper, key_of
from gryphone.recognition.question import MOST_STEPS, Ask
from gryphone.recognition.result import Result
from gryphone.recognition.rows import MUCH, ROW

MOST_LINES = 60  # of one page
MOST_JOINED = 4  # strips of a doubtful formula
MOST_IN_PARTS = 480  # strokes of a page's rows that are read in parts, which takes seconds a row
LEAST = 0.02  # confidence that counts as none
# What speaks for a way to cut a run of strips: a share of the odds by its paper; of a picture, as
# no time tells lines apart there, any cut; a share of the odds that strips read as one are one.
# Each symbol but one that is lost in such a reading speaks against it.
PAPER, TRACED, ONE, LOST, MOST_LOST = 0.3, 1.0, 0.25, 1.0, 4
# By how much the mean log confidence of columns must be higher than that of rows across the page
# (of 2,528 pages in one column and single formulas none has more than 0.03); where a line was drawn
# between them, may be lower.
SIDE_BY_SIDE, DIVIDED = 0.08, 0.15
TEXT, NUMBERED, CROSSED, APART = "text", "number", "crossed out", "apart"
MARGIN = "margin line"
NOT_OF_PAGES = ("hint", "remask", "given", "deadline_ms", "boxed", "unfinished")


def check_ask(ask: Ask) -> None:
    """Refuse what is about one formula."""
    for name in NOT_OF_PAGES:
        if getattr(ask, name) not in (None, (), {}, False):
            raise ConfigError(f"{name} is about one formula; leave it out for a page")


def read_page(network: Network, given: Input, ask: Ask) -> PageResult:
    """Find and read the formulas of an ink or a picture; `lock` is by strokes, not by positions."""
    check_ask(ask)
    count = len(given.ink.strokes)
    if unknown := [number for number in ask.lock if not 0 <= number < count]:
        raise ConfigError(f"lock names stroke {unknown[0]}; the page has {count}, from 0 on")
    began = time.perf_counter()
    page = Paper(given)
    best = read_lines(network, page, ask)
    least = evidence(best[0]) + (-DIVIDED if page.is_divided else SIDE_BY_SIDE)
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
    lone = read_in_parts([strip for run in runs for strip in run])
    read = dict(zip(map(key_of, every), read_all(network, page, every, ask, lone), strict=True))
    for key, frame in frames.items():
        put, sure = frame.result([read[key_of(part)] for part in frame.parts]), read[key].confidence
        # Many cells are many doubts; a reading that is doubtful as a whole needs less to give way.
        even = put.confidence ** (len(frame.parts) ** -0.5 if sure < LEGIBLE else 1.0)
        if even > sure:
            read[key] = put
    chosen = [group for run in runs for group in best_cuts(page, run, read)]
    return sorted_out(network, page, chosen, read, ask)


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
    frames = {key_of(some): frame for some in wanted if (frame := page.frame(some))}
    return [*wanted, *(part for frame in frames.values() for part in frame.parts)], frames


def read_in_parts(strips: Sequence[Strip]) -> set[tuple[int, ...]]:
    """Those of the strips that are read in parts where they are doubtful rows, the first ones."""
    sizes = [len(strip) if len(strip) > ROW else 0 for strip in strips]
    room = np.cumsum(sizes) <= MOST_IN_PARTS
    return {key_of(strip) for strip, fits in zip(strips, room.tolist(), strict=True) if fits}


def check_lines(runs: list[list[Strip]], name: str) -> list[list[Strip]]:
    """The same strips, where they are no more than a page has."""
    count = sum(map(len, runs))
    if count > MOST_LINES:
        raise InkError(f"{name}: {count} lines; the limit is {MOST_LINES}; give a part of the page")
    return runs


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
            whole = read[key_of(strip)]
            sure = min(max(whole.confidence, LEAST), 1 - LEAST)
            # As many strips count more, but not as if each of them were in doubt by itself.
            score += math.log(sure) * math.sqrt(j - i)
            if j > i + 1:
                # Two lines are hardly one sure formula, unless one of them is passed over.
                apart = sum(len(read[key_of(run[k])].symbols) for k in range(i, j))
                lost = min(max(0, apart - len(whole.symbols) - 1), MOST_LOST)
                score += ONE * max(0.0, math.log(sure / (1 - sure))) - LOST * lost
            inner = sum(page.doubt(run[k - 1], run[k]) for k in range(i + 1, j))
            score += PAPER * ((page.doubt(run[i - 1], run[i]) if i else 0.0) - inner)
            score += TRACED * (i > 0 and not page.timed)
            ways.append((score, [*before, strip]))
        best.append(max(ways, key=lambda way: way[0]))
    return best[-1][1]


def sorted_out(
    network: Network, page: Paper, lines: Sequence[Strip], read: dict[Any, Result], ask: Ask
) -> tuple[list[Formula], list[Aside]]:
    """The formulas among lines, and the words and numbers beside them."""
    split = {
        key_of(strip): list(page.beside(strip))
        for strip in lines
        for whole in [read[key_of(strip)]]
        if whole.confidence < DOUBT or MUCH in whole.warnings or NUMBER.match(plain_text(whole))
    }
    parts = [p for some in split.values() for each in some for p in (each.part, each.rest)]
    again = read_all(network, page, parts, ask, read_in_parts(parts))
    more = dict(zip(map(key_of, parts), again, strict=True))
    formulas: list[Formula] = []
    asides: list[Aside] = []
    for strip in lines:
        left = [(strip, read[key_of(strip)])]
        for each in split.get(key_of(strip), []):
            part, rest = more[key_of(each.part)], more[key_of(each.rest)]
            kind = kind_of(part, rest, left[0][1], each.side)
            if kind in (TEXT, NUMBERED):
                asides.append(page.aside(kind, each.part, plain_text(part)))
                left = [(each.rest, rest)]
            elif kind:
                left = [(each.part, part), (each.rest, rest)]
            if kind:
                break
        for some, result in left:
            if is_text(result):
                asides.append(page.aside(TEXT, some, plain_text(result)))
            else:
                formulas.append(page.formula(some, result))
    return formulas, asides


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


def read_all(
    network: Network,
    page: Paper,
    strips: Sequence[Strip],
    ask: Ask,
    rows: Collection[tuple[int, ...]],
) -> list[Result]:
    """All parts of a page read together, their strokes numbered as the page's.

    `rows`: what may be one long row, and is read in parts in doubt. Where a stroke is locked, the
    symbol that it belongs to at first keeps what it is locked to.
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
    rows: Collection[tuple[int, ...]],
) -> list[Result]:
    """Parts of a page read together, as many as fit into one batch at a time."""
    work = max((ask.work for ask in asks), default=1)
    size = max(1, network.backend.batch * MOST_STEPS // max(MOST_STEPS, work))
    found: list[Result] = []
    for begin in range(0, len(strips), size):
        some = strips[begin : begin + size]
        batch = EncodedBatch.of(network, [page.given.part(strip) for strip in some])
        count = len(page.given.ink.strokes)
        asked = [  # how a page is cut goes by what the network alone says
            replace(
                prepare(batch, index, ask),
                parts=key_of(strip) in rows,
                alone=len(strips) == 1 and len(strip) == count,
            )
            for index, (strip, ask) in enumerate(zip(some, asks[begin:], strict=False))
        ]
        for strip, result in zip(
            some, answer_together(asked, time.perf_counter(), otherwise=False), strict=True
        ):
            found.append(replace(result, symbols=result.on(strip.tolist())))
    return found
