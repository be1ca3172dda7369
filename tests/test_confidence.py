"""Confidence: what counts as a look, and that the map is monotone and stored with the weights."""

import numpy as np
import pytest
from inkmaker import power

from gryphone.decoding import LOWEST, Constraint, Decoded, Seen
from gryphone.reading.inputs import Input
from gryphone.recognition.answer import Question, Vote, weigh
from gryphone.recognition.confidence import (
    DEFAULT,
    _exchanges,
    calibrated,
    logistic,
    symbol_features,
    whole_features,
    witnesses,
)
from gryphone.recognition.encoding import EncodedBatch
from gryphone.recognition.question import Ask
from gryphone.recognition.recognizer import Recognizer
from gryphone.release.calibration import fit, held_out, reliability

ANSWER = np.array([[2], [3]])
Look = tuple[np.ndarray, list[np.ndarray]]


def look(masked: list[bool], first: float, second: float) -> Look:
    """Log-probs of the answer's two tokens in one step, of a vocabulary of four."""
    table = np.full((2, 4), -9.0)
    table[0, 2], table[1, 3] = first, second
    return np.array(masked), [table]


def seen(*looks: Look) -> Seen:
    out = Seen()
    for each in looks:
        out.add(*each)
    return out


def decoded(*looks: Look, ids: np.ndarray = ANSWER) -> Decoded:
    return Decoded(ids, np.zeros(ids.shape), len(looks), seen(*looks))


def test_only_hidden_tokens_count_and_late_looks_first() -> None:
    looks = seen(look([True, True], -4, -5), look([True, False], -1, 0))
    assert looks.log_probs(ANSWER).tolist() == [-1, -5]


def test_a_token_never_hidden_is_sure() -> None:
    looks = seen(look([False, True], -4, -2), look([False, True], 0, -3))
    assert looks.log_probs(ANSWER).tolist() == [0, -3]


def test_no_look_says_more_than_no() -> None:
    looks = seen(look([True, True], -np.inf, -40))
    assert looks.log_probs(ANSWER).tolist() == [LOWEST, LOWEST]


def test_dissent_is_the_share_of_other_answers() -> None:
    same = decoded(look([True, True], -1, -1))
    other = decoded(look([True, True], -1, -1), ids=np.array([[2], [1]]))
    assert witnesses(ANSWER, [same], [same, other])[:, 1].tolist() == [0, 0.5]


def test_hidden_looks_replace_what_was_only_copied() -> None:
    copied = look([False, False], 0, 0)
    hidden = look([True, False], -1, -2)
    mean = seen(look([True, True], -9, -9), hidden, copied, copied).distributions()[0]
    # Place 0 was hidden in no late look (the last two): it stays; forbidden entries stay too.
    assert mean[0, 2] == 0
    late = seen(copied, hidden).distributions()[0]
    assert late[0, 2] == pytest.approx(-1)
    assert late[1, 3] == -2
    hidden[1][0][0, 1] = -np.inf
    assert seen(copied, hidden).distributions()[0][0, 1] == -np.inf


def test_symbols_are_the_head_of_the_distributions() -> None:
    looks = seen(look([True, True], -3, -3), look([True, True], -1, -2))
    (every,) = looks.distributions()
    ids, log_probs = looks.symbols(2, 2)
    assert ids[:, 0].tolist() == [2, 3] and log_probs.shape == (2, 2)
    assert np.array_equal(log_probs, -np.sort(-every, axis=1)[:, :2])
    assert looks.symbols(1, 9)[0].shape == (1, 4)  # no more than there are


def test_more_doubt_and_more_dissent_mean_less_confidence() -> None:
    lacking, share = np.array([-0.001, -1.0, -0.001]), np.array([1.0, 1.0, 0.5])
    sure, unsure, split = calibrated(whole_features(lacking, share), {}, "whole")
    assert sure > unsure and sure > split
    of_symbols = symbol_features(np.stack([lacking, 1 - share], 1))
    sure, unsure, split = calibrated(of_symbols, {}, "symbol")
    assert sure > unsure and sure > split


def test_answers_weigh_together_what_they_weigh_alone(recognizer: Recognizer) -> None:
    batch = EncodedBatch.of(recognizer, [Input(power())])
    given = Constraint((np.ones((2, 4), dtype=bool),), np.array([True, False]))

    def vote(*decodes: Decoded, constraint: Constraint | None = None) -> Vote:
        return Vote.of(Question(batch, 0, Ask(), constraint), decodes)

    sure = decoded(look([True, True], -0.001, -0.002))
    unsure = decoded(look([True, True], -1, -2))
    other = decoded(look([True, True], -1, -1), ids=np.array([[2], [1]]))
    nothing = decoded(look([True, True], -1, -1), ids=ANSWER[:0])
    votes = [
        vote(sure),
        vote(unsure),
        vote(sure, other, sure),
        vote(nothing),
        vote(unsure, constraint=given),
    ]
    found = weigh(votes)
    for (whole, each), alone in zip(found, votes, strict=True):
        [(expected, symbols)] = weigh([alone])
        assert whole == pytest.approx(expected) and each == pytest.approx(symbols)
    # (whole answer: what it lacks, share), (symbol: what it lacks, dissent)
    expected_features = [
        ((-0.003, 1.0), [(-0.001, 0.0), (-0.002, 0.0)]),
        ((-3.0, 1.0), [(-1.0, 0.0), (-2.0, 0.0)]),
        ((-0.003, 2 / 3), [(-0.001, 0.0), (-0.002, 1 / 3)]),
        ((0.0, 1.0), []),
        ((-2.0, 1.0), [(0.0, 0.0), (-2.0, 0.0)]),  # what the user gave is not doubted
    ]
    for (whole, each), ((lacking, share), symbols) in zip(found, expected_features, strict=True):
        features = whole_features(np.array([lacking]), np.array([share]))
        assert [whole] == pytest.approx(calibrated(features, {}, "whole").tolist())
        of_symbols = symbol_features(np.array(symbols).reshape(-1, 2))
        assert each == pytest.approx(calibrated(of_symbols, {}, "symbol").tolist())


def test_the_map_comes_from_the_checkpoint() -> None:
    facts = {"calibration": {"whole": [0.0, 0.0, 0.0, 0.9]}}
    assert calibrated(np.array([1.0, 5.0, 0.2]), facts, "whole") == 0.45
    assert calibrated(np.array([1.0, 0.0, 0.0]), facts, "symbol") > 0.9
    assert set(DEFAULT) == {"whole", "symbol"}
    # Answers of one symbol have that of whole answers where they have none of their own.
    lone = np.array([1.0, 5.0, 0.2])
    assert calibrated(lone, facts, "lone") == 0.45
    facts["calibration"]["lone"] = [0.0, 0.0, 0.0, 0.5]
    assert calibrated(lone, facts, "lone") == 0.25


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


def test_a_lone_symbol_has_as_many_exchanges_as_a_formula() -> None:
    """Six answers may be asked for, where one place has to offer all of them."""
    said = np.log(np.random.default_rng(0).dirichlet(np.ones(30), 5))
    for places in (1, 5):
        ids = said[:places].argmax(1)[:, None]
        found = _exchanges(decoded((np.ones(places, dtype=bool), [said[:places]]), ids=ids), 10)
        assert len(found) >= 7 and len({ids.tobytes() for _, ids in found}) == len(found)
        assert [odds for odds, _ in found] == sorted((odds for odds, _ in found), reverse=True)
