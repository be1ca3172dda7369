"""How sure to be: probabilities of hidden tokens and agreement of decodes, calibrated.

A token that the model can see is copied with certainty, so only looks at a token while it was
masked count: every refinement step hides a random part of the canvas, and one decode holds several
such looks. `doubt` is the mean log-prob of the answer in the looks of the second half of the steps,
`dissent` the share of independent decodes that answer otherwise. A logistic map of the two, fitted
on the validation sets by gryphone/release/calibration.py, gives a probability of being right. It
ends at a ceiling: a few inks were labelled otherwise than they look, however sure the model is. The
coefficients are in the checkpoint's facts (`calibration`); DEFAULT serves without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from gryphone.decoding import Decoded

# Coefficients of (1, doubt, dissent) and the ceiling, fitted on valid-2013 and valid-2023.
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
    coefficients = facts.get("calibration", {}).get(kind, DEFAULT[kind])
    return logistic(features, np.append(coefficients, 1.0)[:4])  # the first ones had no ceiling


def logistic(features: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """A logistic map of features (n, 3) by (a, b, c, ceiling)."""
    out: np.ndarray = coefficients[3] / (1 + np.exp(-(features @ coefficients[:3])))
    return out
