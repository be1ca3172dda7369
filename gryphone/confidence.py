"""How sure to be: agreement of stochastic decodes and token probabilities, calibrated.

Three witnesses, each a number per token: the probability the last step gives it, the share of
refinement steps that predicted it (each step sees another random part of the canvas, so a single
decode is already many looks), and the share of independent decodes that agree. A logistic map,
fitted on the validation sets by gryphone/analysis/calibration.py, turns them into a probability.
Its coefficients are in the checkpoint's facts (`calibration`); DEFAULT serves without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from gryphone.decoding import Decoded

# Coefficients of (1, doubt, wavering, dissent); see `features`.
DEFAULT: dict[str, list[float]] = {
    "whole": [2.0, -1.0, -1.0, -2.0],
    "symbol": [4.0, -1.0, -1.0, -2.0],
}


def witnesses(answer: np.ndarray, decodes: Sequence[Decoded]) -> np.ndarray:
    """Per token of the answer (n, S): log-prob, share of steps, share of decodes, (n, 3)."""
    out = np.zeros((len(answer), 3))
    rows = [tuple(row) for row in answer.tolist()]
    for decode in decodes:
        own = [tuple(row) for row in decode.ids.tolist()]
        here = _places(rows, own)
        met = here >= 0
        out[met, 2] += 1
        log_probs = decode.log_probs.sum(1)
        out[met, 0] += log_probs[here[met]]
        out[~met, 0] += np.log(1e-3)
        for ids in decode.trajectory:
            n = min(len(ids), len(answer))
            out[:n, 1] += (ids[:n] == answer[:n]).all(1) / len(decode.trajectory)
    return out / max(len(decodes), 1)


def _places(rows: list[tuple[int, ...]], other: list[tuple[int, ...]]) -> np.ndarray:
    """Where each row stands in another answer, -1 where it does not."""
    if rows == other:
        return np.arange(len(rows))
    places = np.full(len(rows), -1)
    for a, b, n in SequenceMatcher(None, rows, other, autojunk=False).get_matching_blocks():
        places[a : a + n] = np.arange(b, b + n)
    return places


def symbol_features(seen: np.ndarray) -> np.ndarray:
    """(n, 4): one, doubt (a compressed log-prob), wavering between steps, dissent of decodes."""
    doubt = np.log(-seen[:, 0] + 1e-4) + 9.2  # 0 for certainty
    return np.stack([np.ones(len(seen)), doubt.clip(0), 1 - seen[:, 1], 1 - seen[:, 2]], 1)


def whole_features(seen: np.ndarray, share: float) -> np.ndarray:
    """(4,): the same of a whole answer, whose `share` of the decodes is known."""
    doubt = np.log(-seen[:, 0].sum() + 1e-4) + 9.2 if len(seen) else 9.2
    wavering = (1 - seen[:, 1]).sum() if len(seen) else 1.0
    return np.array([1.0, max(doubt, 0.0), np.log1p(wavering), 1 - share])


def calibrated(features: np.ndarray, facts: Mapping[str, Any], kind: str) -> np.ndarray:
    """Probability of being right, by the logistic map of the checkpoint."""
    weights = np.asarray(facts.get("calibration", {}).get(kind, DEFAULT[kind]))
    out: np.ndarray = 1 / (1 + np.exp(-(features @ weights)))
    return out
