"""Confidence: what counts as a look, and that the map is monotone and stored with the weights."""

import numpy as np
import pytest

from gryphone.decoding import Decoded, Prediction
from gryphone.recognition.confidence import (
    DEFAULT,
    calibrated,
    hidden_distributions,
    hidden_log_probs,
    logistic,
    symbol_features,
    whole_features,
    witnesses,
)
from gryphone.release.calibration import fit, held_out, reliability

ANSWER = np.array([[2], [3]])


def prediction(masked: list[bool], first: float, second: float) -> Prediction:
    """Log-probs of the answer's two tokens in one step, of a vocabulary of four."""
    table = np.full((2, 4), -9.0)
    table[0, 2], table[1, 3] = first, second
    return np.array(masked), (table,)


def decoded(*predictions: Prediction, ids: np.ndarray = ANSWER) -> Decoded:
    return Decoded(ids, np.zeros(ids.shape), len(predictions), (), predictions[-1][1], predictions)


def test_only_hidden_tokens_count_and_late_looks_first() -> None:
    d = decoded(prediction([True, True], -4, -5), prediction([True, False], -1, 0))
    assert hidden_log_probs(ANSWER, d).tolist() == [-1, -5]


def test_a_token_never_hidden_is_sure() -> None:
    d = decoded(prediction([False, True], -4, -2), prediction([False, True], 0, -3))
    assert hidden_log_probs(ANSWER, d).tolist() == [0, -3]


def test_dissent_is_the_share_of_other_answers() -> None:
    same = decoded(prediction([True, True], -1, -1))
    other = decoded(prediction([True, True], -1, -1), ids=np.array([[2], [1]]))
    seen = witnesses(ANSWER, [same], [same, other])
    assert seen[:, 1].tolist() == [0, 0.5]


def test_hidden_distributions_replace_what_was_only_copied() -> None:
    seen = prediction([False, False], 0, 0)
    hidden = prediction([True, False], -1, -2)
    mean = hidden_distributions(decoded(prediction([True, True], -9, -9), hidden, seen, seen))[0]
    # Place 0 was hidden in no late look (the last two): it stays; forbidden entries stay too.
    assert mean[0, 2] == 0
    late = hidden_distributions(decoded(seen, hidden))[0]
    assert late[0, 2] == pytest.approx(-1)
    assert late[1, 3] == -2
    hidden[1][0][0, 1] = -np.inf
    assert hidden_distributions(decoded(seen, hidden))[0][0, 1] == -np.inf


def test_more_doubt_and_more_dissent_mean_less_confidence() -> None:
    sure, unsure = np.array([[-0.001, 0.0]]), np.array([[-1.0, 0.0]])
    for kind, value in (("whole", whole_features), ("symbol", lambda s, _: symbol_features(s)[0])):
        high, low = (calibrated(value(s, 1.0), {}, kind) for s in (sure, unsure))
        assert high > low
    split = calibrated(whole_features(sure, 0.5), {}, "whole")
    assert split < calibrated(whole_features(sure, 1.0), {}, "whole")


def test_the_map_comes_from_the_checkpoint() -> None:
    facts = {"calibration": {"whole": [0.0, 0.0, 0.0, 0.9]}}
    assert calibrated(np.array([1.0, 5.0, 0.2]), facts, "whole") == 0.45
    assert calibrated(np.array([1.0, 0.0, 0.0]), facts, "symbol") > 0.9
    assert set(DEFAULT) == {"whole", "symbol"}


def test_fit_finds_the_map_that_made_the_outcomes() -> None:
    rng = np.random.default_rng(0)
    features = np.stack([np.ones(20_000), rng.uniform(0, 8, 20_000), np.zeros(20_000)], 1)
    truth = np.array([4.0, -0.8, 0.0, 0.95])
    outcome = (rng.random(20_000) < logistic(features, truth)).astype(float)
    assert fit(features, outcome) == pytest.approx(truth, abs=0.15)
    report = reliability(held_out(features, outcome, np.arange(20_000)), outcome)
    assert report["ece"] < 2
    assert report["auc"] > 0.8
    assert sum(b["count"] for b in report["bins"]) == 20_000
