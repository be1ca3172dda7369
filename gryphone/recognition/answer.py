"""From distributions to an answer: well-formed, voted for, weighed, and placed on the input."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from gryphone.decoding import Constraint, Decoded, Watch
from gryphone.latex.validity import is_valid
from gryphone.recognition import constraints as hints
from gryphone.recognition import stroke_assignment as locate
from gryphone.recognition.confidence import (
    LOWEST,
    calibrated,
    hidden_distributions,
    symbol_features,
    whole_features,
    witnesses,
)
from gryphone.recognition.question import Ask, Step
from gryphone.recognition.result import Alternative, Box, Result, Symbol, spans, spell, write_latex
from gryphone.tokens import EMPTY, MASK_ID, PAD_ID

if TYPE_CHECKING:
    from gryphone.ink import Ink
    from gryphone.recognition.recognizer import Encoded, Looked, Recognizer

INKLESS = (EMPTY, "&", r"\\")
# Beyond these there is hardly a training ink: of CROHME's 10,367, 15 have as many symbols, 8 are
# drawn at less of their size, 17 have a wider gap, in usual strokes, across or down.
LONG, SMALL, GAPS = 44, 0.6, (5.0, 2.0)
FEW = 20  # strokes: drawn small, they are dots and not a long row
RESERVE = 0.015  # seconds before a deadline kept for making the answer well-formed


@dataclass(frozen=True)
class Question:
    """One question about one input, with what it fixes."""

    encoded: Encoded
    ask: Ask
    constraint: Constraint | None


def prepare(encoded: Encoded, ask: Ask, deadline: float | None = None) -> Question:
    """Check a question against the vocabulary and work out what it fixes."""
    return Question(encoded, ask, _constraint(encoded, ask, deadline))


def answer(encoded: Encoded, ask: Ask, began: float) -> Result:
    """Answer one question about one input."""
    deadline = None if ask.deadline_ms is None else began + ask.deadline_ms / 1000 - RESERVE
    return answer_together([prepare(encoded, ask, deadline)], began, deadline)[0]


def answer_batch(looked: Looked, ask: Ask) -> list[Result]:
    """Answer the same question about every input of a batch."""
    return answer_together([prepare(encoded, ask) for encoded in looked.each()], looked.began)


def answer_together(
    questions: Sequence[Question], began: float, deadline: float | None = None
) -> list[Result]:
    """Answer questions about inks of one batch that agree in steps, seed, method and views.

    The draws are those of a single question, so a batch gives the answers that single calls give.
    """
    looked = questions[0].encoded.looked
    owners = np.concatenate([np.full(q.ask.decodes, q.encoded.index) for q in questions])
    keys = np.concatenate([np.arange(q.ask.decodes) for q in questions])
    decodes = looked.decode(
        owners,
        keys,
        looked.recognizer.decode_options(questions[0].ask),
        _constraints(questions),
        deadline,
        _watch(questions),
        questions[0].ask.views,
    )
    votes, first = [], 0
    for q in questions:
        votes.append(Vote.of(q, decodes[first : first + q.ask.decodes]))
        first += q.ask.decodes
    strokes = _strokes(votes)
    seconds = (time.perf_counter() - began) / len(questions)
    return [_result(vote, own, seconds) for vote, own in zip(votes, strokes, strict=True)]


def _constraints(questions: Sequence[Question]) -> list[Constraint] | None:
    """One constraint for each canvas, or None where nothing is fixed at all."""
    if all(q.constraint is None for q in questions):
        return None
    recognizer = questions[0].encoded.looked.recognizer
    length = recognizer.checkpoint.config.length
    options = hints.blank(recognizer.tokenizer, length)
    free = hints.constraint(options, np.zeros(length, dtype=bool))
    return [c for q in questions for c in [q.constraint or free] * q.ask.decodes]


def _constraint(encoded: Encoded, ask: Ask, deadline: float | None) -> Constraint | None:
    """What the question fixes; the lengths of a hint's runs are chosen by trying them."""
    if not ask.constrained:
        return None
    looked, recognizer = encoded.looked, encoded.looked.recognizer
    length = recognizer.checkpoint.config.length
    convention = str(recognizer.checkpoint.facts.get("convention", "crohme"))

    def build(hint: hints.Hint | None = None, runs: Sequence[int] = ()) -> Constraint:
        options = hints.blank(recognizer.tokenizer, length)
        shown = np.zeros(length, dtype=bool)
        if hint is not None:
            hint.apply(options, shown, runs)
        if ask.remask or ask.given is not None:
            free = {*ask.remask, *ask.lock}
            hints.keep_rows(options, shown, _given(encoded, ask, deadline).ids, free)
        hints.apply_lock(options, shown, recognizer.tokenizer, ask.lock)
        if ask.allowed is not None:
            hints.apply_allowed(options, recognizer.tokenizer, ask.allowed)
        return hints.constraint(options, shown)

    if ask.hint is None:
        return build()
    hint = hints.Hint(ask.hint, recognizer.tokenizer, convention)
    first = looked.decode(
        np.array([encoded.index]),
        np.zeros(1, dtype=np.int64),
        replace(recognizer.decode_options(ask), steps=1),
        again=False,
    )[0]
    tried = [build(hint, runs) for runs in hint.lengths(first, length)]
    if len(tried) == 1:
        return tried[0]
    few = replace(recognizer.decode_options(ask), steps=min(4, ask.total_steps))
    owners = np.full(len(tried), encoded.index)
    keys, half = np.zeros(len(tried), dtype=np.int64), _half(deadline)
    found = looked.decode(owners, keys, few, tried, half, again=False)
    scores = [_plausibility(d, first) for d in found]
    return tried[int(np.argmax(scores))]


def _half(deadline: float | None) -> float | None:
    """When half of the time that is left will be over: the other half is for the answer."""
    now = time.perf_counter()
    return None if deadline is None else now + (deadline - now) / 2


def _given(encoded: Encoded, ask: Ask, deadline: float | None) -> Result:
    """The earlier answer that a question builds on."""
    if ask.given is not None:
        return ask.given
    plain = replace(
        ask, remask=(), lock={}, on_step=None, n_best=1, samples=1, boxes=False, deadline_ms=None
    )
    return answer_together([prepare(encoded, plain)], time.perf_counter(), _half(deadline))[0]


def _plausibility(found: Decoded, first: Decoded) -> float:
    """How well an answer fits the ink: its own log-probs, and those before anything was known."""
    total = float(found.log_probs.sum())
    for s, distribution in enumerate(first.distributions):
        n = min(len(found.ids) + 1, len(distribution))
        ids = np.append(found.ids[:, s], PAD_ID)[:n]
        total += float(np.maximum(distribution[np.arange(n), ids], -12).sum())
    return total


def _watch(questions: Sequence[Question]) -> Watch | None:
    """Hand every canvas's steps to the question it belongs to."""
    if all(q.ask.on_step is None for q in questions):
        return None
    tokenizer = questions[0].encoded.looked.recognizer.tokenizer
    owners = [(q.ask, number) for q in questions for number in range(q.ask.decodes)]

    def watch(step: int, canvas: int, ids: np.ndarray, masked: np.ndarray) -> bool | None:
        ask, sample = owners[canvas]
        if ask.on_step is None:
            return None
        known = np.where(ids == MASK_ID, PAD_ID, ids)
        rows = tuple(tokenizer.rows(known))
        tokens = tuple(tokenizer.join(rows))
        hidden = tuple(np.flatnonzero(masked[: len(rows)]).tolist())
        latex = write_latex(tokens)
        look, number = divmod(step - 1, ask.total_steps)
        return ask.on_step(
            Step(number + 1, ask.total_steps, latex, tokens, rows, hidden, sample, look + 1)
        )

    return watch


def project(recognizer: Recognizer, decoded: Decoded) -> Decoded:
    """The model's answer where it is well-formed, else the most probable well-formed one."""
    if recognizer.grammar.accepts(decoded.ids):
        return decoded
    distributions = hidden_distributions(decoded)
    ids = np.asarray(recognizer.grammar.best(distributions), dtype=np.int64)
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
    def of(cls, question: Question, raw: Sequence[Decoded]) -> Vote:
        """Make every answer well-formed, and count."""
        votes: dict[bytes, list[Decoded]] = {}
        for d in (project(question.encoded.looked.recognizer, d) for d in raw):
            votes.setdefault(d.ids.tobytes(), []).append(d)
        groups = sorted(votes.values(), key=lambda g: (-len(g), -max(d.log_probs.sum() for d in g)))
        return cls(question, groups, max(groups[0], key=lambda d: float(d.log_probs.sum())))


def _result(vote: Vote, strokes: Sequence[tuple[int, ...]], seconds: float) -> Result:
    """Weigh and place the answer; what the user gave is not doubted."""
    question, groups, best = vote.question, vote.groups, vote.best
    encoded, ask, constraint = question.encoded, question.ask, question.constraint
    recognizer = encoded.looked.recognizer
    decodes = [d for group in groups for d in group]
    facts = recognizer.checkpoint.facts
    share = len(groups[0]) / len(decodes)
    seen = witnesses(best.ids, groups[0], decodes)
    if constraint is not None:
        seen[constraint.shown[: len(seen)]] = 0
    best = replace(best, distributions=tuple(hidden_distributions(best)))
    whole = float(calibrated(whole_features(seen, share), facts, "whole"))
    each = calibrated(symbol_features(seen), facts, "symbol")
    rows = recognizer.tokenizer.rows(best.ids)
    tokens = recognizer.tokenizer.join(rows)
    latex, starts = spell(tokens)
    where = spans(tokens, starts, recognizer.tokenizer.places(rows))
    symbols = tuple(
        Symbol(
            i,
            row[0],
            "".join(row[1:]),
            float(each[i]),
            _others(recognizer, best, i, ask.alternatives),
            _box(encoded, strokes[i]),
            strokes[i],
            where[i],
        )
        for i, row in enumerate(rows)
    )
    warnings = [*encoded.ink.notes]
    if _is_too_much(encoded, len(best.ids)):
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
        n_best=_n_best(recognizer, groups, best, ask.n_best),
        steps=max(d.steps for d in decodes),
        seconds=seconds,
        seed=ask.seed,
        name=encoded.ink.id,
        warnings=tuple(warnings),
        ids=best.ids,
    )


def _is_too_much(encoded: Encoded, symbols: int) -> bool:
    """Whether more was written, or read, than one formula as the model knows them."""
    size = encoded.looked.drawn_size[encoded.index]
    if size < SMALL:
        apart = len(encoded.ink.strokes) > FEW
    else:
        apart = any(gap > most for gap, most in zip(_gaps(encoded.ink), GAPS, strict=True))
    return apart or symbols >= min(LONG, encoded.looked.recognizer.checkpoint.config.length - 1)


def _gaps(ink: Ink) -> list[float]:
    """The widest empty band across and down, in strokes of the usual size."""
    low = np.array([stroke.min(0) for stroke in ink.strokes])
    high = np.array([stroke.max(0) for stroke in ink.strokes])
    usual = max(float(np.quantile((high - low).max(1), 0.6)), 1e-9)
    gaps = []
    for start, end in zip(low.T, high.T, strict=True):
        order = np.argsort(start)
        reached = np.maximum.accumulate(end[order])
        gaps.append(float((start[order][1:] - reached[:-1]).max(initial=0.0)) / usual)
    return gaps


def _others(
    recognizer: Recognizer, best: Decoded, place: int, count: int
) -> tuple[tuple[str, float], ...]:
    """The most probable other symbols of one position."""
    log_probs = best.distributions[0][place]
    order = np.argsort(-log_probs, kind="stable")[: count + 3]
    names = recognizer.tokenizer.vocabularies[0]
    return tuple(
        (names.token(int(k)), float(np.exp(log_probs[k])))
        for k in order
        if k not in (PAD_ID, MASK_ID, best.ids[place, 0]) and np.isfinite(log_probs[k])
    )[:count]


def _n_best(
    recognizer: Recognizer, groups: Sequence[Sequence[Decoded]], best: Decoded, count: int
) -> tuple[Alternative, ...]:
    """Distinct answers of the decodes by their votes, then the best single exchanges of a symbol.

    An exchange weighs as much as the answer it changes times the odds of the two symbols.
    """
    total = sum(len(g) for g in groups)
    weights: dict[tuple[str, ...], float] = {}
    for group in groups:
        weights[tuple(recognizer.tokenizer.decode(group[0].ids))] = len(group) / total
    if count > 1:
        lead = len(groups[0]) / total
        for odds, ids in _exchanges(best, 4 * count):
            if len(weights) >= 2 * count:
                break
            tokens = tuple(recognizer.tokenizer.decode(ids))
            if tokens not in weights and is_valid(tokens):
                weights[tokens] = lead * odds
    kept = sorted(weights.items(), key=lambda item: -item[1])[:count]
    mass = sum(weight for _, weight in kept)
    return tuple(Alternative(write_latex(tokens), w / mass) for tokens, w in kept)


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
    looked = votes[0].question.encoded.looked
    config, tokenizer = looked.recognizer.checkpoint.config, looked.recognizer.tokenizer
    found: list[list[tuple[int, ...]]] = [[()] * len(vote.best.ids) for vote in votes]
    asked = [i for i, v in enumerate(votes) if v.question.ask.boxes and len(v.best.ids)]
    if config.dense or not asked:
        return found
    device = looked.memory.features.device
    canvases = []
    for i in asked:
        ids = votes[i].best.ids
        room = min(config.length - len(ids), 1)
        padded = np.concatenate([ids, np.full((room, ids.shape[1]), PAD_ID)])
        canvases.append(torch.from_numpy(padded).to(device))
    owners = [votes[i].question.encoded.index for i in asked]
    memory = looked.of(owners)
    scores = locate.evidence(looked.recognizer.checkpoint.model, memory, canvases)
    for i, owner, score in zip(asked, owners, scores, strict=True):
        ids = votes[i].best.ids
        names = [row[0] for row in tokenizer.rows(ids)]
        inkless = [n in INKLESS or n.startswith((r"\begin", r"\end")) for n in names]
        first = sum(len(other.strokes) for other in looked.inks[:owner])
        numbers = range(first, first + len(looked.inks[owner].strokes))
        drawn = locate.strokes_on_patches(
            looked.pixels, looked.patches, config.canvas, owner, numbers
        )
        mine = np.array(locate.assign(score[: len(ids)].cpu(), drawn, ~torch.tensor(inkless)))
        found[i] = [tuple(np.flatnonzero(mine == token).tolist()) for token in range(len(ids))]
    return found


def _box(encoded: Encoded, strokes: Sequence[int]) -> Box | None:
    """Around these strokes, in the coordinates of the input."""
    if not strokes:
        return None
    points = np.concatenate([encoded.ink.strokes[s] for s in strokes])
    (left, top), (right, bottom) = points.min(0), points.max(0)
    return float(left), float(top), float(right), float(bottom)
