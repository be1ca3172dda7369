"""From distributions to an answer: well-formed, voted for, weighed, and placed on the input."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gryphone.decoding import LOWEST, Constraint, Decoded, Watch, run_key
from gryphone.ink import Ink, stroke_boxes
from gryphone.photo.marks import BOXED
from gryphone.reading.inputs import Input
from gryphone.recognition.confidence import (
    calibrated,
    n_best_of,
    others_of,
    symbol_features,
    whole_features,
    witnesses,
)
from gryphone.recognition.constraints import constraint_of, half_of
from gryphone.recognition.drawing import Boxes, box_of, is_too_much, lies_apart
from gryphone.recognition.encoding import EncodedBatch, Network, strokes_of
from gryphone.recognition.otherwise import (
    BLANK,
    Reading,
    notes_of,
    open_ended,
    readings,
    surer,
    without_blank,
)
from gryphone.recognition.question import OTHER, Ask, Step
from gryphone.recognition.result import Result, Symbol
from gryphone.recognition.rows import MOST, MUCH, NONE, ROW, UNSURE, in_parts
from gryphone.tokens import MASK_ID, PAD_ID, spans, spell

UNREAD = "strokes that are in no symbol of the answer: {} of {} (crossed out, a note, or missed)"
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
    parts: bool = True  # read a long row in parts as well,
    alone: bool = True  # and hear the reader of lone symbols

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

    Without a deadline, there are second opinions on lone symbols, doubtful rows that are long are
    read in parts, and doubtful pictures `otherwise` too.

    The draws are those of a single question, so a batch gives the answers that single calls give.
    """
    stopped: set[int] = set()
    watched = [_noting(question, place, stopped) for place, question in enumerate(questions)]
    decodes = refine_all(watched, deadline)
    found = answers_of(questions, decodes, deadline, stopped, otherwise=otherwise)
    seconds = (time.perf_counter() - began) / len(questions)
    return [replace(result, seconds=seconds) for result in found]


def answers_of(
    questions: Sequence[Question],
    decodes: Sequence[Sequence[Decoded]],
    deadline: float | None = None,
    stopped: Collection[int] = (),
    *,
    otherwise: bool = True,
) -> list[Result]:
    """What decodes of each question make; no second thoughts where their watch `stopped` them."""
    if deadline is None:
        decodes = second_opinions(questions, decodes)
    votes = [Vote.of(*each) for each in zip(questions, decodes, strict=True)]
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
    return [_boxed(r) if q.ask.boxed else r for q, r in zip(questions, found, strict=True)]


def second_opinions(
    questions: Sequence[Question], decodes: Sequence[Sequence[Decoded]]
) -> list[Sequence[Decoded]]:
    """The decodes of each question, after the reader of lone symbols was heard about them."""
    found = []
    for question, some in zip(questions, decodes, strict=True):
        unfinished, constraint = question.ask.unfinished, question.constraint
        fixed = question.ask.plain or (constraint is not None and not unfinished)
        if question.alone and not fixed and (unfinished or any(len(d.ids) == 1 for d in some)):
            from gryphone.recognition.opinion import heard  # few answers are of one symbol

            some = heard(question.batch, question.index, some, constraint, unfinished)
        found.append(some)
    return found


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
    """The answer; a doubtful one exchanged for a surer one of another reading."""
    batch, ask = question.batch, question.ask
    given = batch.inputs[question.index]
    if ask.constrained or ask.plain:
        return first
    nothing = batch.nothing[question.index]
    others = without_blank(given, nothing) if (nothing >= BLANK).any() else []
    if given.retraced:
        others += readings(given, first)
    best = _surest(question, first, others) if others else first
    return open_ended(best) if given.retraced else best


def _surest(question: Question, first: Result, others: Sequence[Reading]) -> Result:
    """The answer, or that of another reading, all of which are read together."""
    batch, ask = question.batch, question.ask
    inputs = [o.input for o in others] + [o.apart for o in others if o.apart is not None]
    again = EncodedBatch.of(batch.network, inputs)
    later = replace(ask, on_step=_later(ask.on_step), as_written=False)
    asked = [
        # What is surer, and by how much, was found out with what the network alone says.
        Question(again, place, later, parts=place < len(others), alone=False)
        for place in range(len(inputs))
    ]
    answers = answer_together(asked, time.perf_counter(), otherwise=False)
    pairs = list(zip(others, answers, strict=False))
    return surer(first, pairs, answers[len(others) :], batch.inputs[question.index].ink)


def _in_parts(question: Question, first: Result) -> Result:
    """The answer, or a surer one about a long row that is put together from its parts."""
    batch, ask, ink = question.batch, question.ask, question.ink
    if not ROW < len(ink.strokes) <= MOST or first.confidence >= UNSURE:
        return first
    if ask.constrained or ask.plain:
        return first
    network = batch.network
    if not (network.is_symbolwise and question.parts and question.again):
        return first

    def read(inputs: Sequence[Input], ask: Ask) -> list[Result]:
        parts = EncodedBatch.of(network, inputs)
        asked = [Question(parts, p, ask, parts=False, alone=False) for p in range(len(inputs))]
        return answer_together(asked, time.perf_counter(), otherwise=False)

    whole = in_parts(batch.inputs[question.index], first, ask, network.tokenizer, read)
    if whole is first or not network.grammar.accepts(whole.ids):
        return first
    if MUCH in first.warnings and lies_apart(*stroke_boxes([ink.strokes])[0]):
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
    features = whole_features(lacking, np.array(shares))
    pairs = zip(seen, votes, strict=True)
    alone = np.array([len(own) == 1 and vote.question.alone for own, vote in pairs])
    whole = np.where(
        alone, calibrated(features, facts, "lone"), calibrated(features, facts, "whole")
    )
    each = calibrated(symbol_features(np.concatenate(seen)), facts, "symbol")
    ends = np.cumsum([len(own) for own in seen])
    parts = [part.tolist() for part in np.split(each, ends[:-1])]
    sure = zip(whole.tolist(), parts, alone.tolist(), strict=True)
    # A symbol alone is the answer.
    return [(answer, [answer] if lone else own) for answer, own, lone in sure]


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
    alternatives = others_of(network, best, ask.alternatives)
    corners = (boxes[0].tolist(), boxes[1].tolist())
    where = [box_of(*corners, some) for some in strokes]
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
    if is_too_much(network.checkpoint.config, boxes, drawn, len(best.ids)):
        warnings.append(MUCH)
    left = len(ink.strokes) - len({i for own in strokes for i in own})
    if 0 < left < len(ink.strokes):
        warnings.append(UNREAD.format(left, len(ink.strokes)))
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
        n_best=n_best_of(network, groups, best, ask.n_best, latex),
        steps=max(d.steps for group in groups for d in group),
        seconds=0.0,
        seed=ask.seed,
        name=ink.id,
        warnings=tuple(warnings),
        ids=best.ids,
        ink=tuple(ink.strokes),
    )


def _strokes(votes: Sequence[Vote]) -> list[list[tuple[int, ...]]]:
    """The strokes of each token of each answer, where its question asks for them."""
    found: list[list[tuple[int, ...]]] = [[()] * len(vote.best.ids) for vote in votes]
    asked = [i for i, v in enumerate(votes) if v.question.ask.boxes and len(v.best.ids)]
    places, answers = [votes[i].question.index for i in asked], [votes[i].best.ids for i in asked]
    for i, own in zip(asked, strokes_of(votes[0].question.batch, places, answers), strict=True):
        found[i] = own
    return found
