"""The reverse process against a brute-force reference, on a deterministic test double."""

from dataclasses import replace

import numpy as np
import pytest

from gryphone.config import Remasking
from gryphone.decoding import DecodeOptions, Request, decode, draws, run_key, unsure
from gryphone.errors import ConfigError

PAD, MASK, V = 0, 1, 12
SIZES = (V, 5)


def double(tokens: np.ndarray, lengths: np.ndarray, samples: np.ndarray) -> list[np.ndarray]:
    """Log-probs that depend on the sample, the canvas and every visible token, as a model's do."""
    out = []
    for s, size in enumerate(SIZES):
        values = np.zeros((*tokens.shape[:2], size), dtype=np.float32)
        for b in range(len(tokens)):
            for i in range(lengths[b]):
                seen = int(tokens[b, : lengths[b]].sum()) * 31 + int(tokens[b, i, 0]) * 7
                rng = np.random.default_rng([int(samples[b]), i, s, seen])
                values[b, i] = rng.normal(size=size) * 2
                values[b, i, PAD] += 6 if i >= 5 + samples[b] else -6
        out.append(values - np.log(np.exp(values).sum(-1, keepdims=True)))
    return out


def request(keys: np.ndarray, options: DecodeOptions, deadline: float | None = None) -> Request:
    return Request(keys, options, streams=2, mask_id=MASK, pad_id=PAD, deadline=deadline)


def run(samples: int, **settings: object) -> list:
    options = DecodeOptions(**{"length": 16, "start": 16, **settings})
    keys = np.arange(samples) + 100
    return decode(double, request(keys, options))


def best(sample: int, canvas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Most probable tokens and their log-probs for one full canvas; MASK is no answer."""
    streams = double(canvas[None], np.array([len(canvas)]), np.array([sample]))
    for x in streams:
        x[..., MASK] = -np.inf
    ids = np.stack([x[0].argmax(-1) for x in streams], 1)
    return ids, np.stack([x[0].max(-1) for x in streams], 1)


def cut(ids: np.ndarray) -> list:
    ends = np.flatnonzero(ids[:, 0] == PAD)
    return ids[: ends[0] if len(ends) else len(ids)].tolist()


@pytest.mark.parametrize("steps", [1, 2, 5, 10])
def test_diffusion_is_algorithm_2(steps: int) -> None:
    for b, answer in enumerate(run(3, steps=steps, seed=4)):
        uniform = draws(4, 100 + b, steps, 16)
        canvas = np.full((16, 2), MASK)
        for t in range(steps, 0, -1):
            ids, _ = best(b, canvas)
            canvas = ids.copy()
            for i in range(16):
                if t > 1 and uniform[t - 1, i] < (t - 1) / steps:
                    canvas[i] = MASK
        assert answer.ids.tolist() == cut(ids)
        assert answer.steps == steps


@pytest.mark.parametrize("steps", [1, 2, 5, 10])
def test_diffusion_as_its_authors_code_it(steps: int) -> None:
    """Visible tokens stay, each stream has its own draws, and the shares are linspace(1, 0, T)."""
    theirs = Remasking(keep_visible=True, apart=True, from_all=True)
    for b, answer in enumerate(run(3, steps=steps, seed=4, remasking=theirs)):
        uniform = draws(4, 100 + b, 2, steps, 16)
        canvas = np.full((16, 2), MASK)
        for k, share in enumerate(np.linspace(1, 0, steps)):
            ids = np.where(canvas == MASK, best(b, canvas)[0], canvas)
            t = steps - 1 - k  # steps that are left
            canvas = np.where(share > uniform[:, t].T, MASK, ids) if t else ids
        assert answer.ids.tolist() == cut(canvas)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_from_the_left_the_end_is_masked_again(steps: int) -> None:
    for b, answer in enumerate(run(3, steps=steps, remasking=Remasking(from_left=True))):
        canvas = np.full((16, 2), MASK)
        for t in range(steps, 0, -1):
            ids, _ = best(b, canvas)
            canvas = ids.copy()
            canvas[round((len(cut(ids)) + 1) * (1 - (t - 1) / steps)) :] = MASK
        assert answer.ids.tolist() == cut(ids)


@pytest.mark.parametrize("name", ["keep_visible", "apart", "from_all", "from_left"])
def test_each_way_to_remask_is_another(name: str) -> None:
    usual = run(6, steps=4)
    other = run(6, steps=4, remasking=Remasking(**{name: True}))
    assert [a.ids.tolist() for a in usual] != [a.ids.tolist() for a in other]
    assert all(a.steps == 4 for a in other)


def test_the_first_stream_has_the_draws_that_all_streams_share() -> None:
    assert np.array_equal(draws(1, 2, 2, 5, 7)[0], draws(1, 2, 5, 7))


def known_canvases(**settings: object) -> list:
    """Three answers that are known but for their second place, refined on."""
    first = np.array([[5, 2], [MASK, MASK], [7, 3]])
    options = DecodeOptions(**{"length": 16, "start": 16, "steps": 6, **settings})
    return decode(double, replace(request(np.arange(3) + 100, options), first=[first] * 3))


def test_a_recovery_begins_with_what_is_known() -> None:
    kept = known_canvases(begin=1, remasking=Remasking(keep_visible=True))
    for b, answer in enumerate(kept):
        canvas = np.full((16, 2), PAD)
        canvas[:3] = [[5, 2], [MASK, MASK], [7, 3]]
        wanted = np.where(canvas == MASK, best(b, canvas)[0], canvas)
        assert answer.ids.tolist() == cut(wanted) and answer.steps == 1
    anew = known_canvases(begin=1)
    assert [a.ids.tolist() for a in anew] != [a.ids.tolist() for a in kept]
    for begin in (2, 6):
        assert [a.steps for a in known_canvases(begin=begin)] == [begin] * 3
    with pytest.raises(ConfigError, match="begin is 7; it must be between 1 and steps=6"):
        known_canvases(begin=7)


def test_runs_after_the_first_are_each_sample_s_own() -> None:
    assert run_key(0, "a") == run_key(0, "b") == 0
    keys = {run_key(run, name) for run in range(1, 10) for name in ("a", "b", "1:a")}
    assert len(keys) == 27 and all(0 < key < 2**63 for key in keys)
    assert run_key(1, "a") == 5373448803846538489  # what stored predictions were made with


@pytest.mark.parametrize("steps", [1, 2, 5, 10])
def test_mask_predict_keeps_the_confident(steps: int) -> None:
    for b, answer in enumerate(run(3, steps=steps, method="mask-predict")):
        ids, scores = best(b, np.full((16, 2), MASK))
        for t in range(steps - 1, 0, -1):
            worst = np.argsort(scores.sum(1), kind="stable")[: int(16 * t / steps)]
            canvas = ids.copy()
            canvas[worst] = MASK
            new, new_scores = best(b, canvas)
            ids[worst], scores[worst] = new[worst], new_scores[worst]
        assert answer.ids.tolist() == cut(ids)


def test_noise_leads_from_the_least_confident_to_chance() -> None:
    steps, places = 5, {}
    for noise in (0.0, 1e-6, 1.0, 1e6):
        answers = run(3, steps=steps, method="mask-predict", noise=noise)
        places[noise] = [answer.ids.tolist() for answer in answers]
    assert places[0.0] == places[1e-6] and len({str(x) for x in places.values()}) == 3
    for b, answer in enumerate(places[1e6]):  # what is confident has no say any more
        ids, _ = best(b, np.full((16, 2), MASK))
        for t in range(steps - 1, 0, -1):
            worst = np.argsort(draws(0, b + 100, steps, 16)[t], kind="stable")
            worst = worst[: int(16 * t / steps)]
            canvas = ids.copy()
            canvas[worst] = MASK
            ids[worst] = best(b, canvas)[0][worst]
        assert answer == cut(ids)


def test_batch_size_and_order_change_nothing() -> None:
    together = run(4, steps=6, start=8)
    for b in (3, 0, 2):

        def alone(tokens: np.ndarray, lengths: np.ndarray, samples: np.ndarray) -> list[np.ndarray]:
            return double(tokens, lengths, samples + b)  # noqa: B023

        single = decode(
            alone, request(np.array([100 + b]), DecodeOptions(steps=6, length=16, start=8))
        )[0]
        assert np.array_equal(single.ids, together[b].ids)
        assert np.array_equal(single.log_probs, together[b].log_probs)


def test_seeds_decide_and_keys_differ() -> None:
    assert np.array_equal(draws(1, 2, 3, 4), draws(1, 2, 3, 4))
    assert not np.array_equal(draws(1, 2, 3, 4), draws(2, 2, 3, 4))
    assert not np.array_equal(draws(1, 2, 3, 4), draws(1, 3, 3, 4))


def constant(length: int, calls: list[tuple[int, int]] | None = None):
    """A model that knows its answer: tokens 2, 3, 4, ... then PAD."""

    def predict(tokens: np.ndarray, lengths: np.ndarray, samples: np.ndarray) -> list[np.ndarray]:
        if calls is not None:
            calls.append((len(samples), int(lengths.max())))
        streams = []
        for size in (200, 3):
            values = np.full((*tokens.shape[:2], size), -9.0, dtype=np.float32)
            for i in range(tokens.shape[1]):
                values[:, i, (i + 2 if size > 3 else 2) if i < length else PAD] = 0
            streams.append(values)
        return streams

    return predict


@pytest.mark.parametrize(
    ("length", "canvas"),
    [(3, 16), (14, 24), (47, 48), (48, 64), (100, 128), (149, 150), (150, 150)],
)
def test_canvas_widens_until_pad_closes_and_is_cropped_afterwards(length: int, canvas: int) -> None:
    calls: list[tuple[int, int]] = []
    answer = decode(
        constant(length, calls),
        request(np.zeros(1, dtype=int), DecodeOptions(steps=3, length=150, start=48)),
    )[0]
    assert answer.ids[:, 0].tolist() == list(range(2, length + 2))
    assert calls[0][1] == 48
    assert calls[-1][1] == canvas


def test_a_sure_first_answer_is_the_last_and_the_others_go_on() -> None:
    calls: list[np.ndarray] = []

    def predict(tokens: np.ndarray, lengths: np.ndarray, samples: np.ndarray) -> list[np.ndarray]:
        calls.append(samples.copy())
        return [x - 0.2 * samples[:, None, None] for x in constant(5)(tokens, lengths, samples)]

    # Sample b lacks 0.2 b of each of its five tokens' two streams.
    options = DecodeOptions(steps=4, length=16, start=16, sure=2.5)
    answers = decode(predict, request(np.zeros(4, dtype=int), options))
    assert [a.steps for a in answers] == [1, 1, 4, 4]
    assert [c.tolist() for c in calls] == [[0, 1, 2, 3], *[[2, 3]] * 3]
    assert all(a.ids[:, 0].tolist() == [2, 3, 4, 5, 6] for a in answers)
    never = decode(predict, request(np.zeros(1, dtype=int), replace(options, sure=0.0)))
    assert never[0].steps == 4


def test_what_lies_behind_the_answer_needs_not_be_sure() -> None:
    log_probs = np.full((2, 4, 2), -9.0)
    log_probs[:, :2] = -0.1
    assert unsure(np.array([0, 1]), log_probs, [2, 3], 0.5).tolist() == [1]


def test_log_probs_are_those_of_the_answer() -> None:
    answer = run(1, steps=4)[0]
    assert answer.log_probs.shape == answer.ids.shape
    assert (answer.log_probs <= 0).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"steps": 0}, "steps is 0"), ({"method": "beam"}, "'beam'"), ({"start": 0}, "start is 0")],
)
def test_bad_options_are_named(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DecodeOptions(**settings)


def test_every_seed_has_its_own_draws() -> None:
    seeds = [0, 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, -1, -2]
    assert len({draws(seed, 0, 1, 4).tobytes() for seed in seeds}) == len(seeds)
    assert draws(7, 3, 1, 2).tolist() == [[0.4821286018761155, 0.7241355726248441]]


def test_a_far_deadline_is_no_deadline() -> None:
    options = DecodeOptions(length=16, start=16, steps=4)
    keys = np.arange(2)
    plain, far = (
        decode(double, request(keys, options, deadline)) for deadline in (None, float("inf"))
    )
    assert [d.ids.tolist() for d in far] == [d.ids.tolist() for d in plain]
    assert [d.steps for d in far] == [4, 4]
