"""From distributions to an answer: well-formed, voted for, weighed, and placed on the input."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from gryphone.config import ModelConfig
from gryphone.decoding import LOWEST, Constraint, Decoded, Watch, run_key
from gryphone.ink import Floats, Ink, in_order, stroke_boxes, usual_size
from gryphone.latex.validity import is_valid
from gryphone.photo.marks import BOXED
from gryphone.reading.inputs import Input
from gryphone.recognition.confidence import (
    calibrated,
    symbol_features,
    whole_features,
    witnesses,
)
from gryphone.recognition.constraints import constraint_of, half_of
from gryphone.recognition.drawing import size_on
from gryphone.recognition.encoding import EncodedBatch, Network
from gryphone.recognition.otherwise import notes_of, open_ended, readings, surer
from gryphone.recognition.question import OTHER, Ask, Step
from gryphone.recognition.result import Alternative, Box, Result, Symbol
from gryphone.recognition.rows import LONG, MOST, MUCH, NONE, ROW, UNSURE, in_parts
from gryphone.tokens import EMPTY, MASK_ID, PAD_ID, spans, spell

INKLESS = (EMPTY, "&", r"\\")
NO_INK = (r"\begin", r"\end")
# Beyond these, and LONG, there is hardly a training ink: of CROHME's 10,367, 15 have as many
# symbols, 8 are drawn at less of their size, 17 have a wider gap, in usual strokes, across or down.
SMALL, GAPS = 0.6, (5.0, 2.0)
# Lines of writing: usual strokes of paper between them, then for two and for three lines the fewest
# strokes and the least width of each. 16 of 2,592 of CROHME's inks have two.
LINE_GAP, LINES = 0.8, ((2, 3, 2.5), (3, 2, 1.5))
FEW = 20  # strokes: drawn small, they are dots and not a long row
Boxes = tuple[Floats, Floats]  # of some strokes: lowest and highest coordinates (strokes, 2)
RESERVE = 0.015  # seconds before a deadline kept for making the answer well-formed


@dataclass(frozen=True)
class Question:
    """One question about one input of a batch, with what it fixes."""

    batch: EncodedBatch
    index: int
    ask: Ask
    constraint: Constraint | None = None
    name: str | None = None  # of a sample, whose decodes after the first have draws of their own
    again: bool = True  # look a second time in doubt,
    parts: bool = True  # and read a long row in parts as well

    @property
    def keys(self) -> list[int]:
        """What names the draws of each decode."""
        every = range(self.ask.decodes)
        return [*every] if self.name is None else [run_key(run, self.name) for run in every]

    @property
    def ink(self) -> Ink:
        """What the question is about."""
        return self.batch.inputs[self.index].ink


def prepare(batch: EncodedBatch, index: int, ask: Ask, deadline: float | None = None) -> Question:
    """Check a question against the vocabulary and work out what it fixes."""
    if ask.remask and ask.given is None:
        quiet = replace(ask, on_step=None, boxes=False, deadline_ms=None, as_written=False)
        plain = replace(quiet, remask=(), lock={}, n_best=1, samples=1)
        first = replace(prepare(batch, index, plain), parts=False)  # one look: it is asked again
        given = answer_together([first], time.perf_counter(), half_of(deadline))[0]
        ask = replace(ask, given=given)
    fixed = constraint_of(batch, index, ask, deadline) if ask.constrained else None
    return Question(batch, index, ask, fixed)


def answer(batch: EncodedBatch, index: int, ask: Ask, began: float) -> Result:
    """Answer one question about one input; its deadline counts from when it `began`."""
    deadline = None if ask.deadline_ms is None else began + ask.deadline_ms / 1000 - RESERVE
    return answer_together([prepare(batch, index, ask, deadline)], began, deadline)[0]


def answer_together(
    questions: Sequence[Question],
    began: float,
    deadline: float | None = None,
    *,
    otherwise: bool = True,
) -> list[Result]:
    """Answer questions about inputs of one batch that agree in steps, seed, method and looks.

    Without a deadline, doubtful rows that are long are read in parts, and doubtful pictures
    `otherwise` too.

    The draws are those of a single question, so a batch gives the answers that single calls give.
    """
    stopped: set[int] = set()
    watched = [_noting(question, place, stopped) for place, question in enumerate(questions)]
    votes = [
        Vote.of(question, decodes)
        for question, decodes in zip(questions, refine_all(watched, deadline), strict=True)
    ]
    strokes = _strokes(votes)
    boxes = stroke_boxes([question.ink.strokes for question in questions])
    drawn = stroke_boxes([question.batch.strokes[question.index] for question in questions])
    found = [
        _result(*each) for each in zip(votes, weigh(votes), strokes, boxes, drawn, strict=True)
    ]
    if deadline is None:
        for i, question in enumerate(questions):
            if i not in stopped:
                found[i] = _in_parts(question, found[i])
                if otherwise:
                    found[i] = _in_doubt(question, found[i])
    found = _as_written(questions, found, deadline)
    found = [_boxed(r) if q.ask.boxed else r for q, r in zip(questions, found, strict=True)]
    seconds = (time.perf_counter() - began) / len(questions)
    return [replace(result, seconds=seconds) for result in found]


def _as_written(
    questions: Sequence[Question], results: Sequence[Result], deadline: float | None
) -> list[Result]:
    """The answers; with what their ink says letter by letter where that was asked, and in time."""
    found = list(results)
    for i, question in enumerate(questions):
        if question.ask.as_written and (deadline is None or time.perf_counter() < deadline):
            from gryphone.recognition.written import written

            network = question.batch.network
            symbols, ids = written(network, question.ink, found[i])
            latex = spell(network.tokenizer.decode(ids))[0]
            found[i] = replace(found[i], symbols=symbols, as_written=latex)
    return found


def _boxed(result: Result) -> Result:
    """The answer in the box that was drawn round its ink, where there was one."""
    said = tuple(note for note in result.warnings if note != BOXED)
    return result if said == result.warnings else replace(result, warnings=said).boxed()


def _noting(question: Question, place: int, stopped: set[int]) -> Question:
    """The same question; noted where its watch stops it, since nothing more is wanted then."""
    watch = question.ask.on_step
    if watch is None:
        return question

    def see(step: Step) -> bool:
        done = bool(watch(step))
        if done:
            stopped.add(place)
        return done

    return replace(question, ask=replace(question.ask, on_step=see))


def _in_doubt(question: Question, first: Result) -> Result:
    """The answer; one about a doubtful picture exchanged for a surer one of another reading."""
    batch, ask = question.batch, question.ask
    given = batch.inputs[question.index]
    if not given.retraced or ask.constrained:
        return first
    others = readings(given, first)
    if not others:
        return open_ended(first)
    inputs = [o.input for o in others] + [o.apart for o in others if o.apart is not None]
    again = EncodedBatch.of(batch.network, inputs)
    later = replace(ask, on_step=_later(ask.on_step), as_written=False)
    asked = [
        Question(again, place, later, parts=place < len(others)) for place in range(len(inputs))
    ]
    answers = answer_together(asked, time.perf_counter(), otherwise=False)
    pairs = list(zip(others, answers, strict=False))
    return open_ended(surer(first, pairs, answers[len(others) :], given.ink))


def _in_parts(question: Question, first: Result) -> Result:
    """The answer, or a surer one about a long row that is put together from its parts."""
    batch, ask, ink = question.batch, question.ask, question.ink
    if not ROW < len(ink.strokes) <= MOST or first.confidence >= UNSURE:
        return first
    if ask.constrained or ask.plain:
        return first
    network = batch.network
    rows = network.checkpoint.config.kind == "diffusion" and network.tokenizer.scheme == "sat"
    if not (rows and question.parts and question.again):
        return first

    def read(inputs: Sequence[Input], ask: Ask) -> list[Result]:
        parts = EncodedBatch.of(network, inputs)
        asked = [Question(parts, place, ask, parts=False) for place in range(len(inputs))]
        return answer_together(asked, time.perf_counter(), otherwise=False)

    whole = in_parts(batch.inputs[question.index], first, ask, network.tokenizer, read)
    if whole is first or not network.grammar.accepts(whole.ids):
        return first
    if MUCH in first.warnings and _lies_apart(*stroke_boxes([ink.strokes])[0]):
        whole = replace(whole, warnings=(*whole.warnings, MUCH))
    return whole


def _later(watch: Callable[[Step], bool | None] | None) -> Callable[[Step], bool | None] | None:
    """The same watch on readings that come after the looks at the whole."""
    if watch is None:
        return None
    return lambda step: watch(replace(step, look=step.look + OTHER - 1))


def refine_all(questions: Sequence[Question], deadline: float | None = None) -> list[list[Decoded]]:
    """The decodes of each question, refined together, then made well-formed unless plain."""
    batch, ask = questions[0].batch, questions[0].ask
    owners = np.concatenate([np.full(q.ask.decodes, q.index) for q in questions])
    keys = np.concatenate([q.keys for q in questions])
    request = batch.network.request(ask, keys, _constraints(questions), deadline, _watch(questions))
    if ask.plain:
        plain = iter(batch.refine(owners, request, ask.views))
        return [[next(plain) for _ in range(q.ask.decodes)] for q in questions]
    if questions[0].again:
        found = iter(batch.decode(owners, request, views=ask.views, auto=ask.auto))
    else:
        found = iter(batch.refine(owners, request, ask.views))
    return [[project(batch.network, next(found)) for _ in range(q.ask.decodes)] for q in questions]


def _constraints(questions: Sequence[Question]) -> list[Constraint] | None:
    """One constraint for each canvas, or None where nothing is fixed at all."""
    if all(q.constraint is None for q in questions):
        return None
    free = constraint_of(questions[0].batch, 0, Ask())
    return [c for q in questions for c in [q.constraint or free] * q.ask.decodes]


def _watch(questions: Sequence[Question]) -> Watch | None:
    """Hand every canvas's steps to the question it belongs to."""
    if all(q.ask.on_step is None for q in questions):
        return None
    tokenizer = questions[0].batch.network.tokenizer
    owners = [(q.ask, number) for q in questions for number in range(q.ask.decodes)]

    def watch(step: int, canvas: int, ids: np.ndarray, masked: np.ndarray) -> bool | None:
        ask, sample = owners[canvas]
        if ask.on_step is None:
            return None
        known = np.where(ids == MASK_ID, PAD_ID, ids)
        rows = tuple(tokenizer.rows(known))
        tokens = tuple(tokenizer.join(rows))
        hidden = tuple(np.flatnonzero(masked[: len(rows)]).tolist())
        latex = spell(tokens)[0]
        look, number = divmod(step - 1, ask.total_steps)
        total = 1 if ask.auto and look == 0 else ask.total_steps
        return ask.on_step(Step(number + 1, total, latex, tokens, rows, hidden, sample, look + 1))

    return watch


def project(network: Network, decoded: Decoded) -> Decoded:
    """The model's answer where it is well-formed, else the most probable well-formed one."""
    if network.grammar.accepts(decoded.ids):
        return decoded
    distributions = decoded.looks.distributions()
    ids = np.asarray(network.grammar.best(distributions), dtype=np.int64)
    places = np.arange(len(ids))
    log_probs = np.stack([d[places, ids[:, s]] for s, d in enumerate(distributions)], 1)
    return replace(decoded, ids=ids, log_probs=np.maximum(log_probs, LOWEST))


@dataclass(frozen=True)
class Vote:
    """What the decodes of one question say: alike answers together, the winners first."""

    question: Question
    groups: Sequence[Sequence[Decoded]]
    best: Decoded

    @classmethod
    def of(cls, question: Question, decodes: Sequence[Decoded]) -> Vote:
        """Count the answers."""
        votes: dict[bytes, list[Decoded]] = {}
        for d in decodes:
            votes.setdefault(d.ids.tobytes(), []).append(d)
        groups = sorted(votes.values(), key=lambda g: (-len(g), -max(d.log_probs.sum() for d in g)))
        return cls(question, groups, max(groups[0], key=lambda d: float(d.log_probs.sum())))


def weigh(votes: Sequence[Vote]) -> list[tuple[float, list[float]]]:
    """How sure the answers are: as a whole, and each of their symbols."""
    facts = votes[0].question.batch.network.checkpoint.facts
    shares, seen = [], []
    for vote in votes:
        decodes = [d for group in vote.groups for d in group]
        shares.append(len(vote.groups[0]) / len(decodes))
        seen.append(witnesses(vote.best.ids, vote.groups[0], decodes))
        constraint = vote.question.constraint
        if constraint is not None:  # what the user gave is not doubted
            seen[-1][constraint.shown[: len(seen[-1])]] = 0
    lacking = np.array([own[:, 0].sum() for own in seen])
    whole = calibrated(whole_features(lacking, np.array(shares)), facts, "whole")
    each = calibrated(symbol_features(np.concatenate(seen)), facts, "symbol")
    ends = np.cumsum([len(own) for own in seen])
    parts = (part.tolist() for part in np.split(each, ends[:-1]))
    return list(zip(whole.tolist(), parts, strict=True))


def _result(
    vote: Vote,
    sure: tuple[float, list[float]],
    strokes: Sequence[tuple[int, ...]],
    boxes: Boxes,
    drawn: Boxes,
) -> Result:
    """Put an answer together; `boxes` are its ink's strokes, `drawn` those that were looked at."""
    question, groups, best = vote.question, vote.groups, vote.best
    ask, constraint, ink = question.ask, question.constraint, question.ink
    network, (whole, each) = question.batch.network, sure
    alternatives = _others(network, best, ask.alternatives)
    corners = (boxes[0].tolist(), boxes[1].tolist())
    where = [_box(*corners, some) for some in strokes]
    rows = network.tokenizer.rows(best.ids)
    tokens = network.tokenizer.join(rows)
    latex, starts = spell(tokens)
    marked = spans(tokens, starts, network.tokenizer.places(rows))
    symbols = tuple(
        Symbol(i, row[0], "".join(row[1:]), *rest)
        for i, (row, *rest) in enumerate(
            zip(rows, each, alternatives, where, strokes, marked, strict=True)
        )
    )
    warnings = [*notes_of(ink, whole)] if ink.notes else []
    if _is_too_much(network.checkpoint.config, boxes, drawn, len(best.ids)):
        warnings.append(MUCH)
    broken = [] if constraint is None else constraint.broken(best.ids, PAD_ID)
    if broken:  # what is well-formed comes first
        places = ", ".join(map(str, broken))
        warnings.append(f"no well-formed formula has what was asked for at position {places}")
    if whole < 0.1:
        warnings.append(NONE)
    return Result(
        latex=latex,
        tokens=tuple(tokens),
        confidence=whole,
        symbols=symbols,
        n_best=_n_best(network, groups, best, ask.n_best, latex),
        steps=max(d.steps for group in groups for d in group),
        seconds=0.0,
        seed=ask.seed,
        name=ink.id,
        warnings=tuple(warnings),
        ids=best.ids,
        ink=tuple(ink.strokes),
    )


def _is_too_much(config: ModelConfig, boxes: Boxes, drawn: Boxes, symbols: int) -> bool:
    """Whether more was written, or read, than one formula as the model knows them."""
    if size_on(config.canvas, drawn) < SMALL:
        apart = len(drawn[0]) > FEW
    else:
        apart = _lies_apart(*boxes)
    return apart or symbols >= min(LONG, config.length - 1)


def _lies_apart(low: Floats, high: Floats) -> bool:
    """Whether there is more room between parts, or lines, than one formula has."""
    apart = any(gap > most for gap, most in zip(_gaps(low, high), GAPS, strict=True))
    return apart or _has_lines(low, high)


def _gaps(low: Floats, high: Floats) -> list[float]:
    """The widest empty band across and down, in strokes of the usual size."""
    usual = usual_size(low, high)
    rooms = (in_order(start, end)[2] for start, end in zip(low.T, high.T, strict=True))
    return [float(room.max(initial=0.0)) / usual for room in rooms]


def _has_lines(low: Floats, high: Floats) -> bool:
    """Whether the strokes lie in lines, with paper between them."""
    usual = usual_size(low, high)
    order, _, room = in_order(low[:, 1], high[:, 1])
    cuts = np.flatnonzero(room > LINE_GAP * usual) + 1
    lines = [
        (len(some), float(high[some, 0].max() - low[some, 0].min()) / usual)
        for some in np.split(order, cuts)
    ]
    return any(
        sum(count >= few and width > wide for count, width in lines) >= least
        for least, few, wide in LINES
    )


def _others(network: Network, best: Decoded, count: int) -> list[tuple[tuple[str, float], ...]]:
    """The most probable other symbols of each position."""
    names = network.tokenizer.vocabularies[0].tokens
    ids, log_probs = best.looks.symbols(len(best.ids), count + 3)
    rows = zip(best.ids[:, 0].tolist(), ids.tolist(), np.exp(log_probs).tolist(), strict=True)
    return [
        tuple(
            (names[k], p)
            for k, p in zip(some, odds, strict=True)
            if k not in (PAD_ID, MASK_ID, own) and p > 0
        )[:count]
        for own, some, odds in rows
    ]


def _n_best(
    network: Network, groups: Sequence[Sequence[Decoded]], best: Decoded, count: int, latex: str
) -> tuple[Alternative, ...]:
    """Distinct answers of the decodes by their votes, then the best single exchanges of a symbol.

    An exchange weighs as much as the answer it changes times the odds of the two symbols.
    """
    if len(groups) == count == 1:
        return (Alternative(latex, 1.0),)
    total = sum(len(g) for g in groups)
    weights: dict[tuple[str, ...], float] = {}
    for group in groups:
        weights[tuple(network.tokenizer.decode(group[0].ids))] = len(group) / total
    if count > 1:
        lead = len(groups[0]) / total
        for odds, ids in _exchanges(best, 4 * count):
            if len(weights) >= 2 * count:
                break
            tokens = tuple(network.tokenizer.decode(ids))
            if tokens not in weights and is_valid(tokens):
                weights[tokens] = lead * odds
    kept = sorted(weights.items(), key=lambda item: -item[1])[:count]
    mass = sum(weight for _, weight in kept)
    return tuple(Alternative(spell(tokens)[0], w / mass) for tokens, w in kept)


def _exchanges(best: Decoded, count: int) -> list[tuple[float, np.ndarray]]:
    """The answer with one symbol exchanged, the likeliest exchanges first."""
    found = []
    chosen = best.ids[:, 0]
    every = best.looks.distributions()[0]
    order = np.argsort(-every, axis=1, kind="stable")[:, :4]
    for place, (own, others) in enumerate(zip(chosen.tolist(), order.tolist(), strict=False)):
        if not np.isfinite(every[place, own]):
            continue
        for other in others:
            odds = every[place, other] - every[place, own]
            if other not in (PAD_ID, MASK_ID, own) and np.isfinite(odds):
                found.append((float(np.exp(min(odds, 0.0))), place, other))
    found.sort(reverse=True)
    out = []
    for odds, place, other in found[:count]:
        ids = best.ids.copy()
        ids[place, 0] = other
        out.append((odds, ids))
    return out


def _strokes(votes: Sequence[Vote]) -> list[list[tuple[int, ...]]]:
    """The strokes that became each token of each answer: one more look of the decoder at all."""
    batch = votes[0].question.batch
    backend, length = batch.network.backend, batch.network.checkpoint.config.length
    found: list[list[tuple[int, ...]]] = [[()] * len(vote.best.ids) for vote in votes]
    asked = [i for i, v in enumerate(votes) if v.question.ask.boxes and len(v.best.ids)]
    if not asked:
        return found
    canvases = []
    for i in asked:
        ids = votes[i].best.ids
        room = min(length - len(ids), 1)
        canvases.append(np.concatenate([ids, np.full((room, ids.shape[1]), PAD_ID)]))
    memory = backend.select(batch.memory, [votes[i].question.index for i in asked])
    placed = backend.evidence(memory, canvases)
    if placed is None:
        return found
    inky = _inky(batch.network.tokenizer.vocabularies[0].tokens)
    for i, evidence in zip(asked, placed, strict=True):
        ids = votes[i].best.ids
        places: list[list[int]] = [[] for _ in ids]
        for stroke, token in enumerate(assign(evidence[:, : len(ids)], inky[ids[:, 0]])):
            if token >= 0:
                places[token].append(stroke)
        found[i] = [tuple(some) for some in places]
    return found


@cache
def _inky(names: tuple[str, ...]) -> np.ndarray:
    """Which symbols have ink at all."""
    return np.array([n not in INKLESS and not n.startswith(NO_INK) for n in names])


def assign(votes: np.ndarray, writes: np.ndarray) -> list[int]:
    """The token of each stroke, -1 for none: the one that its pixels speak for.

    votes (strokes, n) say how much a stroke speaks for each token, writes (n,) which tokens have
    ink at all. A token that is left without a stroke takes the one that speaks for it most, if
    its owner has another.
    """
    if not writes.any():
        return [-1] * len(votes)
    votes = np.where(writes, votes, -np.inf)
    owner: list[int] = votes.argmax(1).tolist()
    for token in np.flatnonzero(writes).tolist():
        if token in owner:
            continue
        gain = votes[:, token] - votes.max(1)
        for stroke in np.argsort(-gain, kind="stable").tolist():
            if owner.count(owner[stroke]) > 1:
                owner[stroke] = token
                break
    return owner


def _box(low: list[list[float]], high: list[list[float]], some: Sequence[int]) -> Box | None:
    """Around some of the strokes, in the coordinates of the input."""
    if not some:
        return None
    left, top = map(min, zip(*(low[i] for i in some), strict=True))
    right, bottom = map(max, zip(*(high[i] for i in some), strict=True))
    return left, top, right, bottom
