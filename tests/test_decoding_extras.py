"""What decoding can do beyond the plain loop: constraints, deadlines, watching, keeping."""

import time

import numpy as np
import pytest

from gryphone.decoding import Constraint, Decoded, DecodeOptions, Request, Seen, decode
from gryphone.errors import ConfigError

PAD, MASK, A, B, C = range(5)
WANTED = [A, B, C, B]  # what the made-up model sees, then PAD
SIZE, LENGTH = 5, 24


def table(wanted: list[int], length: int) -> np.ndarray:
    out = np.full((length, SIZE), -6.0, dtype=np.float32)
    for place in range(length):
        out[place, wanted[place] if place < len(wanted) else PAD] = -0.1
    return out


def predict(tokens: np.ndarray, lengths: np.ndarray, samples: np.ndarray) -> list[np.ndarray]:
    """Two streams that always see the same; the second one likes A where the first has C."""
    one = np.stack([table(WANTED, tokens.shape[1])] * len(samples))
    two = np.stack([table([A, A, A, A], tokens.shape[1])] * len(samples))
    return [one, two]


def follow(tokens: np.ndarray, lengths: np.ndarray, samples: np.ndarray) -> list[np.ndarray]:
    """A model that reads its neighbour: behind a visible C it wants C, not B."""
    out = predict(tokens, lengths, samples)
    for row in range(len(samples)):
        for place in range(1, 4):
            if tokens[row, place - 1, 0] == C:
                out[0][row, place] = table([C], 1)[0]
    return out


def run(model=predict, keys=(0,), constraints=None, deadline=None, watch=None, **options):
    settings = DecodeOptions(**{"length": LENGTH, "start": 16, "steps": 5} | options)
    request = Request(np.array(keys), settings, 2, MASK, PAD, constraints, deadline, watch)
    return decode(model, request)


def free(length: int = LENGTH) -> tuple[list[np.ndarray], np.ndarray]:
    options = [np.ones((length, SIZE), dtype=bool) for _ in range(2)]
    return options, np.zeros(length, dtype=bool)


def symbols(found: Decoded) -> list[int]:
    return found.ids[:, 0].tolist()


def test_without_constraints_nothing_changes() -> None:
    assert symbols(run()[0]) == WANTED


def test_a_locked_symbol_stays_and_its_neighbours_follow() -> None:
    options, shown = free()
    options[0][1] = False
    options[0][1, C] = True
    shown[1] = True
    found = run(follow, constraints=[Constraint(tuple(options), shown)])[0]
    # Place 3 follows place 2, which follows the locked one.
    assert symbols(found) == [A, C, C, C]


def test_a_lock_beyond_the_end_lengthens_the_answer() -> None:
    options, shown = free()
    options[0][18] = False
    options[0][18, C] = True
    options[0][:18, PAD] = False
    shown[18] = True
    found = run(constraints=[Constraint(tuple(options), shown)])[0]
    assert len(found.ids) == 19
    assert found.ids[18, 0] == C


def test_fully_known_places_are_fed_from_the_first_step() -> None:
    fed = []

    def spy(tokens, lengths, samples):
        fed.append(tokens.copy())
        return predict(tokens, lengths, samples)

    options, shown = free(1)
    for stream in options:
        stream[0] = False
        stream[0, B] = True
    shown[0] = True
    run(spy, constraints=[Constraint(tuple(options), shown)])
    assert all(step[0, 0].tolist() == [B, B] for step in fed)
    assert (fed[0][0, 1:] == MASK).all()


def test_forbidden_symbols_never_appear() -> None:
    options, shown = free()
    options[0][:, B] = False
    assert B not in symbols(run(constraints=[Constraint(tuple(options), shown)])[0])


def test_each_sample_has_its_own_constraint() -> None:
    first, second = free(), free()
    second[0][0][0] = False
    second[0][0][0, C] = True
    made = [Constraint(tuple(o), s) for o, s in (first, second)]
    found = run(keys=(0, 0), constraints=made)
    assert [symbols(f)[0] for f in found] == [A, C]


def test_nothing_allowed_is_named() -> None:
    options, shown = free()
    options[0][3] = False
    with pytest.raises(ConfigError, match="position 3"):
        Constraint(tuple(options), shown)


def test_too_much_asked_for_is_named() -> None:
    options, shown = free(LENGTH)
    options[0][:, PAD] = False
    with pytest.raises(ConfigError, match="the canvas holds 23"):
        run(constraints=[Constraint(tuple(options), shown)])


def test_deadline_takes_the_steps_that_fit() -> None:
    def slow(tokens, lengths, samples):
        time.sleep(0.02)
        return predict(tokens, lengths, samples)

    began = time.perf_counter()
    found = run(slow, steps=50, deadline=began + 0.15)[0]
    assert 2 <= found.steps <= 8
    assert time.perf_counter() - began < 0.25
    assert symbols(found) == WANTED
    assert run(slow, steps=50, deadline=began)[0].steps == 1


def test_an_unneeded_deadline_changes_nothing() -> None:
    far = time.perf_counter() + 100
    with_it, without = run(deadline=far)[0], run()[0]
    assert with_it.steps == without.steps == 5
    assert np.array_equal(with_it.ids, without.ids)


def test_watch_sees_every_step_of_every_sample() -> None:
    seen = []
    run(keys=(0, 1), watch=lambda step, sample, ids, masked: seen.append((step, sample, masked)))
    assert [(step, sample) for step, sample, _ in seen] == [
        (step, sample) for step in range(1, 6) for sample in range(2)
    ]
    assert seen[0][2].all()
    assert not seen[-1][2].all()


def test_every_look_is_kept() -> None:
    nothing, every = run()[0].looks, run(keep=True)[0].looks
    assert isinstance(nothing, Seen) and nothing.steps == []
    assert isinstance(every, Seen) and len(every.steps) == 5
    masked, log_probs = every.steps[0]
    assert masked.all()
    assert len(log_probs[0]) == len(masked)
    distributions = every.distributions()
    assert [d.shape[1] for d in distributions] == [SIZE, SIZE]
    assert (distributions[0][:, MASK] == -np.inf).all()
