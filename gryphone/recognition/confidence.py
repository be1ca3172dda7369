"""How sure to be, calibrated, and what else an answer may be.

A token that the model can see is copied with certainty, so only looks at a token while it was
masked count: every refinement step hides a random part of the canvas, and one decode holds several
such looks. `doubt` is the mean log-prob of the answer in the looks of the second half of the steps,
`dissent` the share of independent decodes that answer otherwise. A logistic map of the two, fitted
on the validation sets by gryphone/release/calibration.py, gives a probability of being right. It
ends at a ceiling: a few inks were labelled otherwise than they look, however sure the model is. The
coefficients are in the checkpoint's facts (`calibration`); DEFAULT serves without them.

The choices are other symbols at each position, and other answers as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from gryphone.decoding import Decoded
from gryphone.latex.validity import is_valid
from gryphone.recognition.encoding import Network
from gryphone.recognition.result import Alternative
from gryphone.tokens import MASK_ID, PAD_ID, spell

# Coefficients of (1, doubt, dissent) and the ceiling, fitted on valid-2013 and valid-2023. Answers
# of one symbol have a map of their own, or else that of whole answers.
DEFAULT: dict[str, list[float]] = {
    "whole": [6.1626, -0.7153, -0.7831, 1.0],
    "symbol": [6.4028, -0.6999, -0.6066, 1.0],
}
SURE = 1e-4  # what a certain token may lack to one


def witnesses(
    answer: np.ndarray, agreeing: Sequence[Decoded], everyone: Sequence[Decoded]
) -> np.ndarray:
    """Per token of the answer (n, 2): its mean log-prob while hidden, and the dissent.

    `agreeing` are the decodes that gave this answer, `everyone` all of them.
    """
    seen = np.zeros((len(answer), 2))
    seen[:, 0] = np.mean([d.looks.log_probs(answer) for d in agreeing], 0)
    if len(agreeing) < len(everyone):
        rows = [tuple(row) for row in answer.tolist()]
        found = sum(found_in(rows, [tuple(row) for row in d.ids.tolist()]) for d in everyone)
        seen[:, 1] = 1 - found / len(everyone)
    return seen


def found_in(rows: list[tuple[int, ...]], other: list[tuple[int, ...]]) -> np.ndarray:
    """Which rows stand in another answer too, in the same order."""
    if rows == other:
        return np.ones(len(rows))
    found = np.zeros(len(rows))
    for a, _, n in SequenceMatcher(None, rows, other, autojunk=False).get_matching_blocks():
        found[a : a + n] = 1
    return found


def _doubt(log_prob: np.ndarray) -> np.ndarray:
    """Zero for certainty; grows with the logarithm of what is missing."""
    out: np.ndarray = np.log(np.maximum(-log_prob, 0) / SURE + 1)
    return out


def symbol_features(seen: np.ndarray) -> np.ndarray:
    """(n, 3): one, doubt and dissent of each token."""
    return np.stack([np.ones(len(seen)), _doubt(seen[:, 0]), seen[:, 1]], 1)


def whole_features(log_prob: np.ndarray, share: np.ndarray) -> np.ndarray:
    """(n, 3): the same of whole answers, each of which a `share` of the decodes gave."""
    return np.stack([np.ones(len(share)), _doubt(log_prob), 1 - share], 1)


def calibrated(features: np.ndarray, facts: Mapping[str, Any], kind: str) -> np.ndarray:
    """Probability of being right, by the map of the checkpoint."""
    maps = DEFAULT | facts.get("calibration", {})
    coefficients = maps.get(kind, maps["whole"])
    return logistic(features, np.append(coefficients, 1.0)[:4])  # the first ones had no ceiling


def logistic(features: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """A logistic map of features (n, 3) by (a, b, c, ceiling)."""
    out: np.ndarray = coefficients[3] / (1 + np.exp(-(features @ coefficients[:3])))
    return out


def others_of(network: Network, best: Decoded, count: int) -> list[tuple[tuple[str, float], ...]]:
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


def n_best_of(
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
    each = max(4, -(-count // max(1, len(chosen))))  # of few symbols more, for `count` in all
    order = np.argsort(-every, axis=1, kind="stable")[:, :each]
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
