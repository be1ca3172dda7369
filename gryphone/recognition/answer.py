"""From distributions to an answer: well-formed, voted for, weighed, and placed on the input."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gryphone.config import Canvas
from gryphone.decoding import Constraint, Decoded, Watch
from gryphone.ink import Ink, Stroke, typical_stroke
from gryphone.latex.validity import is_valid
from gryphone.recognition.confidence import (
    LOWEST,
    calibrated,
    hidden_distributions,
    symbol_features,
    whole_features,
    witnesses,
)
from gryphone.recognition.constraints import constraint_of, half_of
from gryphone.recognition.encoding import EncodedBatch, Network, scale_on
from gryphone.recognition.question import Ask, Step
from gryphone.recognition.result import Alternative, Box, Result, Symbol
from gryphone.tokens import EMPTY, MASK_ID, PAD_ID

INKLESS = (EMPTY, "&", r"\\")
NO_INK = (r"\begin", r"\end")
# Beyond these there is hardly a training ink: of CROHME's 10,367, 15 have as many symbols, 8 are
# drawn at less of their size, 17 have a wider gap, in usual strokes, across or down.
LONG, SMALL, GAPS = 44, 0.6, (5.0, 2.0)
FEW = 20  # strokes: drawn small, they are dots and not a long row
RESERVE = 0.015  # seconds before a deadline kept for making the answer well-formed


@dataclass(frozen=True)
class Question:
    """One question about one input of a batch, with what it fixes."""

    batch: EncodedBatch
    index: int
    ask: Ask
    constraint: Constraint | None = None

    @property
    def ink(self) -> Ink:
        """What the question is about."""
        return self.batch.inputs[self.index].ink


def prepare(batch: EncodedBatch, index: int, ask: Ask, deadline: float | None = None) -> Question:
    """Check a question against the vocabulary and work out what it fixes."""
    if ask.remask and ask.given is None:
        quiet = replace(ask, on_step=None, boxes=False, deadline_ms=None)
        plain = replace(quiet, remask=(), lock={}, n_best=1, samples=1)
        first = prepare(batch, index, plain)
        given = answer_together([first], time.perf_counter(), half_of(deadline))[0]
        ask = replace(ask, given=given)
    fixed = constraint_of(batch, index, ask, deadline) if ask.constrained else None
    return Question(batch, index, ask, fixed)


def answer(batch: EncodedBatch, index: int, ask: Ask, began: float) -> Result:
    """Answer one question about one input; its deadline counts from when it `began`."""
    deadline = None if ask.deadline_ms is None else began + ask.deadline_ms / 1000 - RESERVE
    return answer_together([prepare(batch, index, ask, deadline)], began, deadline)[0]


def answer_together(
    questions: Sequence[Question], began: float, deadline: float | None = None
) -> list[Result]:
    """Answer questions about inputs of one batch that agree in steps, seed, method and views.

    The draws are those of a single question, so a batch gives the answers that single calls give.
    """
    votes = [
        Vote.of(question, decodes)
        for question, decodes in zip(questions, refine_all(questions, deadline), strict=True)
    ]
    strokes = _strokes(votes)
    seconds = (time.perf_counter() - began) / len(questions)
    return [_result(vote, own, seconds) for vote, own in zip(votes, strokes, strict=True)]


def refine_all(questions: Sequence[Question], deadline: float | None = None) -> list[list[Decoded]]:
    """The decodes of each question, all of them refined together, then made well-formed."""
    batch, ask = questions[0].batch, questions[0].ask
    owners = np.concatenate([np.full(q.ask.decodes, q.index) for q in questions])
    keys = np.concatenate([np.arange(q.ask.decodes) for q in questions])
    request = batch.network.request(ask, keys, _constraints(questions), deadline, _watch(questions))
    found = iter(batch.decode(owners, request, views=ask.views))
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
        return ask.on_step(
            Step(number + 1, ask.total_steps, latex, tokens, rows, hidden, sample, look + 1)
        )

    return watch


def project(network: Network, decoded: Decoded) -> Decoded:
    """The model's answer where it is well-formed, else the most probable well-formed one."""
    if network.grammar.accepts(decoded.ids):
        return decoded
    distributions = hidden_distributions(decoded)
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


def _result(vote: Vote, strokes: Sequence[tuple[int, ...]], seconds: float) -> Result:
    """Weigh and place the answer; what the user gave is not doubted."""
    question, groups, best = vote.question, vote.groups, vote.best
    ask, constraint, ink = question.ask, question.constraint, question.ink
    network = question.batch.network
    decodes = [d for group in groups for d in group]
    facts = network.checkpoint.facts
    share = len(groups[0]) / len(decodes)
    seen = witnesses(best.ids, groups[0], decodes)
    if constraint is not None:
        seen[constraint.shown[: len(seen)]] = 0
    best = replace(best, distributions=tuple(hidden_distributions(best)))
    whole = float(calibrated(whole_features(seen, share), facts, "whole"))
    each = calibrated(symbol_features(seen), facts, "symbol")
    rows = network.tokenizer.rows(best.ids)
    tokens = network.tokenizer.join(rows)
    latex, starts = spell(tokens)
    where = spans(tokens, starts, network.tokenizer.places(rows))
    symbols = tuple(
        Symbol(
            i,
            row[0],
            "".join(row[1:]),
            float(each[i]),
            _others(network, best, i, ask.alternatives),
            _box(ink.strokes, strokes[i]),
            strokes[i],
            where[i],
        )
        for i, row in enumerate(rows)
    )
    warnings = [*ink.notes]
    if _is_too_much(question, len(best.ids)):
        warnings.append("this may be more than one formula; give them one at a time")
    broken = [] if constraint is None else constraint.broken(best.ids, PAD_ID)
    if broken:  # what is well-formed comes first
        places = ", ".join(map(str, broken))
        warnings.append(f"no well-formed formula has what was asked for at position {places}")
    if whole < 0.1:
        warnings.append("this may be no formula, or one that the model cannot read")
    return Result(
        latex=latex,
        tokens=tuple(tokens),
        confidence=whole,
        symbols=symbols,
        n_best=_n_best(network, groups, best, ask.n_best),
        steps=max(d.steps for d in decodes),
        seconds=seconds,
        seed=ask.seed,
        name=ink.id,
        warnings=tuple(warnings),
        ids=best.ids,
    )


def _is_too_much(question: Question, symbols: int) -> bool:
    """Whether more was written, or read, than one formula as the model knows them."""
    config = question.batch.network.checkpoint.config
    strokes = question.batch.strokes[question.index]
    if _drawn_size(strokes, config.canvas) < SMALL:
        apart = len(strokes) > FEW
    else:
        gaps = _gaps(question.ink.strokes)
        apart = any(gap > most for gap, most in zip(gaps, GAPS, strict=True))
    return apart or symbols >= min(LONG, config.length - 1)


def _drawn_size(strokes: Sequence[Stroke], canvas: Canvas) -> float:
    """How large a typical stroke is drawn, as a share of its usual size.

    Less than one where so much was written that the canvas holds it only when it is shrunk, and
    for dots.
    """
    return typical_stroke(strokes) * float(scale_on(canvas, strokes)) / canvas.stroke


def _gaps(strokes: Sequence[Stroke]) -> list[float]:
    """The widest empty band across and down, in strokes of the usual size."""
    low = np.array([stroke.min(0) for stroke in strokes])
    high = np.array([stroke.max(0) for stroke in strokes])
    usual = max(typical_stroke(strokes), 1e-9)
    gaps = []
    for start, end in zip(low.T, high.T, strict=True):
        order = np.argsort(start)
        reached = np.maximum.accumulate(end[order])
        gaps.append(float((start[order][1:] - reached[:-1]).max(initial=0.0)) / usual)
    return gaps


def _others(
    network: Network, best: Decoded, place: int, count: int
) -> tuple[tuple[str, float], ...]:
    """The most probable other symbols of one position."""
    log_probs = best.distributions[0][place]
    order = np.argsort(-log_probs, kind="stable")[: count + 3]
    names = network.tokenizer.vocabularies[0]
    return tuple(
        (names.token(int(k)), float(np.exp(log_probs[k])))
        for k in order
        if k not in (PAD_ID, MASK_ID, best.ids[place, 0]) and np.isfinite(log_probs[k])
    )[:count]


def _n_best(
    network: Network, groups: Sequence[Sequence[Decoded]], best: Decoded, count: int
) -> tuple[Alternative, ...]:
    """Distinct answers of the decodes by their votes, then the best single exchanges of a symbol.

    An exchange weighs as much as the answer it changes times the odds of the two symbols.
    """
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
    log_probs = best.distributions[0]
    for place in range(len(best.ids)):
        chosen = best.ids[place, 0]
        if not np.isfinite(log_probs[place, chosen]):
            continue
        for other in np.argsort(-log_probs[place], kind="stable")[:4]:
            odds = log_probs[place, other] - log_probs[place, chosen]
            if other not in (PAD_ID, MASK_ID, chosen) and np.isfinite(odds):
                found.append((float(np.exp(min(odds, 0.0))), place, int(other)))
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
    for i, evidence in zip(asked, placed, strict=True):
        ids = votes[i].best.ids
        names = [row[0] for row in batch.network.tokenizer.rows(ids)]
        writes = np.array([n not in INKLESS and not n.startswith(NO_INK) for n in names])
        mine = np.array(assign(evidence.scores[: len(ids)], evidence.strokes, writes))
        found[i] = [tuple(np.flatnonzero(mine == token).tolist()) for token in range(len(ids))]
    return found


def assign(scores: np.ndarray, ink: np.ndarray, writes: np.ndarray) -> list[int]:
    """The token of each stroke, -1 for none: the one that its pixels speak for.

    scores (n, P) weigh each token's patches, ink (strokes, P) counts the pixels in them, writes
    (n,) says which tokens have ink at all. A token that is left without a stroke takes the one
    that speaks for it most, if its owner has another.
    """
    if not writes.any():
        return [-1] * len(ink)
    share = ink / np.maximum(ink.sum(1, keepdims=True), 1)
    votes = share @ scores.T  # (strokes, n)
    votes[:, ~writes] = -np.inf
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


def _box(strokes: Sequence[Stroke], some: Sequence[int]) -> Box | None:
    """Around some of the strokes, in the coordinates of the input."""
    if not some:
        return None
    points = np.concatenate([strokes[s] for s in some])
    (left, top), (right, bottom) = points.min(0), points.max(0)
    return float(left), float(top), float(right), float(bottom)


def spell(tokens: Sequence[str]) -> tuple[str, list[int]]:
    """Tokens as LaTeX, and the offset in it at which each token starts."""
    out, starts = "", []
    for token in tokens:
        command = out.rpartition("\\")[2]
        # A lone backslash pair ends a matrix row; letters behind it are text, not its name.
        named = "\\" in out and command.isalpha() and not out.endswith("\\\\")
        out += " " if named and token[:1].isalpha() else ""
        starts.append(len(out))
        out += token
    return out, starts


def spans(
    tokens: Sequence[str], starts: Sequence[int], places: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """[start, end) in `spell(tokens)` of what stands at each place, [first, end) tokens."""
    ends = [start + len(token) for start, token in zip(starts, tokens, strict=True)]
    last = ends[-1] if ends else 0
    out = []
    for first, end in places:
        start = starts[first] if first < len(starts) else last
        out.append((start, ends[end - 1] if end > first else start))
    return out
