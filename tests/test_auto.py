"""Steps as they are needed: one where it is sure, both looks and more steps where there is doubt.

A network with random weights is never sure, so the bounds are moved instead.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from inkmaker import fraction, power, row, some

from gryphone.ink import Ink
from gryphone.reading.inputs import Input
from gryphone.recognition.answer import prepare, refine_all
from gryphone.recognition.encoding import EncodedBatch
from gryphone.recognition.question import AUTO_STEPS, Ask, Step
from gryphone.recognition.recognizer import Encoded, Recognizer
from gryphone.recognition.result import Result

Bounds = Callable[..., None]
ALL_OF_BOTH = [(1, 1), *((2, number) for number in range(1, AUTO_STEPS + 1))]


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> Bounds:
    """Move them: what an answer may lack."""

    def move(**values: float) -> None:
        for name, value in values.items():
            monkeypatch.setattr(f"gryphone.recognition.encoding.{name}", value)

    return move


@pytest.fixture
def looks(recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many inks each look was at."""
    seen: list[int] = []
    encode = recognizer.backend.encode

    def noted(inks: Any, *view: Any) -> Any:
        seen.append(len(inks))
        return encode(inks, *view)

    monkeypatch.setattr(recognizer.backend, "encode", noted)
    return seen


def watched(recognizer: Recognizer, source: Any, **options: Any) -> tuple[Result, list[Step]]:
    steps: list[Step] = []
    return recognizer.recognize(source, on_step=steps.append, **options), steps


def numbers(steps: list[Step]) -> list[tuple[int, int]]:
    return [(step.look, step.number) for step in steps]


def same(one: Result, other: Result) -> None:
    assert np.array_equal(one.ids, other.ids)
    assert one.steps == other.steps
    assert one.confidence == pytest.approx(other.confidence, abs=1e-4)
    assert [s.strokes for s in one.symbols] == [s.strokes for s in other.symbols]


def test_where_the_first_step_is_sure_it_is_the_answer(
    recognizer: Recognizer, bounds: Bounds, looks: list[int]
) -> None:
    bounds(SURE=1e9, DOUBT_ABOUT_INK=1e9)
    result, steps = watched(recognizer, power())
    assert (result.steps, numbers(steps), looks) == (1, [(1, 1)], [1])
    assert steps[0].total == 1
    same(result, recognizer.recognize(power(), steps=1))


def test_in_doubt_both_looks_are_refined(
    recognizer: Recognizer, bounds: Bounds, looks: list[int]
) -> None:
    result, steps = watched(recognizer, power(), steps="auto")
    assert (result.steps, numbers(steps), looks) == (AUTO_STEPS, ALL_OF_BOTH, [1, 1])
    same(result, recognizer.recognize(power()))  # which is the default
    # The same steps of the same looks as where they are asked for.
    bounds(DOUBT_ABOUT_INK=-1.0)
    same(result, recognizer.recognize(power(), steps=AUTO_STEPS))


def test_who_stops_a_sample_has_stopped_it(recognizer: Recognizer) -> None:
    seen: list[Step] = []

    def stop_first(step: Step) -> bool:
        seen.append(step)
        return step.sample == 0

    recognizer.recognize(power(), n_best=2, samples=2, on_step=stop_first)
    assert [(s.look, s.number) for s in seen if s.sample == 0] == [(1, 1)]
    assert {s.look for s in seen if s.sample == 1} == {1, 2}


def test_a_second_look_that_would_be_late_is_not_taken(
    recognizer: Recognizer, looks: list[int]
) -> None:
    batch = EncodedBatch.of(recognizer, [Input(power())])
    assert batch.seconds > 0
    late = Encoded(replace(batch, seconds=60.0))
    assert late.decode(steps="auto", deadline_ms=20_000).steps == 1
    assert looks == [1]
    Encoded(batch).decode(steps="auto", deadline_ms=20_000)
    assert looks == [1, 1]


def test_where_both_looks_are_sure_one_step_of_them_is_enough(
    recognizer: Recognizer, bounds: Bounds, looks: list[int]
) -> None:
    bounds(BOTH_SURE=1e9)
    result, steps = watched(recognizer, power())
    assert (result.steps, numbers(steps), looks) == (1, [(1, 1), (2, 1)], [1, 1])
    bounds(DOUBT_ABOUT_INK=-1.0)
    same(result, recognizer.recognize(power(), steps=1))


def test_without_another_tracing_the_first_look_is_refined(
    recognizer: Recognizer, bounds: Bounds, looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gryphone.recognition.encoding.redrawn", lambda inks: [() for _ in inks])
    result, steps = watched(recognizer, power())
    assert (result.steps, numbers(steps), looks) == (AUTO_STEPS, ALL_OF_BOTH, [1])
    bounds(DOUBT_ABOUT_INK=1e9)
    same(result, recognizer.recognize(power(), steps=AUTO_STEPS))


def test_a_picture_s_own_other_tracing_is_looked_at(recognizer: Recognizer) -> None:
    both = Input(row("x+1"), row("x=2").strokes)
    found = [recognizer.recognize(source) for source in (both, row("x+1"))]
    confidences = [[s.confidence for s in result.symbols] for result in found]
    assert confidences[0] != confidences[1]


@pytest.mark.parametrize("last", [(1, 1), (2, 1), (2, 3)])
def test_who_stops_it_is_not_called_again(recognizer: Recognizer, last: tuple[int, int]) -> None:
    seen: list[Step] = []

    def stop(step: Step) -> bool:
        seen.append(step)
        return (step.look, step.number) == last

    result = recognizer.recognize(power(), on_step=stop)
    assert numbers(seen) == ALL_OF_BOTH[: ALL_OF_BOTH.index(last) + 1]
    assert result.steps == last[1]


def doubts(recognizer: Recognizer, inks: list[Ink]) -> np.ndarray:
    """What the answers of one step lack."""
    batch = EncodedBatch.of(recognizer, [Input(ink) for ink in inks])
    every = np.arange(len(inks))
    request = recognizer.request(Ask(steps=1), np.zeros(len(inks), dtype=np.int64))
    return np.array([batch.doubt_about(d) for d in batch.refine(every, request)])


@pytest.mark.parametrize("options", [{}, {"samples": 3}, {"views": 2}, {"lock": {0: "x"}}])
def test_alone_and_in_a_batch_the_answer_is_the_same(
    recognizer: Recognizer, bounds: Bounds, options: dict[str, Any]
) -> None:
    inks = some(6)
    bounds(SURE=float(np.median(doubts(recognizer, inks))))
    together = recognizer.recognize_many(inks, **options)
    for ink, result in zip(inks, together, strict=True):
        same(result, recognizer.recognize(ink, **options))
    if not options:
        assert [r.steps for r in together].count(1) == 3  # the others were in doubt


def test_in_a_batch_only_what_is_in_doubt_is_looked_at_again(
    recognizer: Recognizer, bounds: Bounds, looks: list[int]
) -> None:
    inks = some(6)
    bounds(SURE=float(np.median(doubts(recognizer, inks))))
    looks.clear()
    recognizer.recognize_many(inks)
    assert looks == [6, 3]


def test_a_lock_holds_in_both_looks(recognizer: Recognizer) -> None:
    result, steps = watched(recognizer, power(), steps="auto", lock={0: "x", 2: ("2", "")})
    assert numbers(steps) == ALL_OF_BOTH
    assert all(step.rows[0][0] == "x" and step.rows[2] == ("2", "") for step in steps)
    assert result.symbols[0].symbol == "x" and result.symbols[2].symbol == "2"


@pytest.mark.parametrize("sure", [1e9, 0.3])
def test_a_hint_holds_in_both_looks(recognizer: Recognizer, bounds: Bounds, sure: float) -> None:
    bounds(SURE=sure)
    for hint, start, end in (
        (r"\frac{?}{x}", r"\frac{", "}{x}"),
        (r"\sqrt{...}=1", r"\sqrt{", "=1"),
    ):
        result, steps = watched(recognizer, power(), steps="auto", hint=hint)
        assert result.latex.startswith(start) and result.latex.endswith(end)
        assert numbers(steps) == (ALL_OF_BOTH if sure < 1 else [(1, 1)])


def test_an_earlier_answer_and_allowed_symbols_hold(recognizer: Recognizer) -> None:
    encoded = recognizer.encode(power())
    given = encoded.decode(hint="x+1=?", steps="auto")
    forced = encoded.decode(given=given, remask=[2], allowed=["7"], steps="auto")
    kept = [0, 1, 3, 4]
    assert forced.symbols[2].symbol == "7"
    assert np.array_equal(forced.ids[kept], given.ids[kept])


def test_several_answers_are_refined_together(recognizer: Recognizer, bounds: Bounds) -> None:
    result, steps = watched(recognizer, fraction(), steps="auto", n_best=3)
    assert result.steps == AUTO_STEPS
    for sample in range(5):
        assert numbers([s for s in steps if s.sample == sample]) == ALL_OF_BOTH
    assert 1 <= len(result.n_best) <= 3 and result.n_best[0].latex == result.latex
    bounds(SURE=1e9)
    result, steps = watched(recognizer, fraction(), steps="auto", n_best=3)
    assert (result.steps, len(steps), len(result.n_best)) == (1, 5, 3)  # exchanges fill them up
    assert [s.sample for s in steps] == [0, 1, 2, 3, 4]


def test_a_deadline_bounds_it(recognizer: Recognizer) -> None:
    late, steps = watched(recognizer, power(), steps="auto", deadline_ms=1)  # already over
    assert late.steps == 1 and numbers(steps) == [(1, 1)]
    far, steps = watched(recognizer, power(), steps="auto", deadline_ms=60_000)
    assert numbers(steps) == ALL_OF_BOTH
    same(far, recognizer.recognize(power(), steps="auto"))
    many = recognizer.recognize_many([power(), fraction()], steps="auto", deadline_ms=60_000)
    assert [r.steps for r in many] == [AUTO_STEPS] * 2
    same(many[0], far)


def test_a_second_question_needs_no_other_tracing(recognizer: Recognizer, looks: list[int]) -> None:
    encoded = recognizer.encode(power())
    first = encoded.decode()
    assert looks == [1, 1]
    same(encoded.decode(), first)
    assert looks == [1, 1]


@pytest.mark.parametrize(
    ("ask", "moved", "passes"),
    [
        (Ask(), {}, 1 + 2 * AUTO_STEPS),
        (Ask(), {"SURE": 1e9}, 1),
        (Ask(), {"BOTH_SURE": 1e9}, 1 + 2),
        (Ask(views=2), {}, 2 + 3 * AUTO_STEPS),
        (Ask(steps=3), {}, 3 + 2 * 3),
        (Ask(steps=3), {"DOUBT_ABOUT_INK": 1e9}, 3),
    ],
)
def test_the_passes_of_all_looks_are_counted(
    recognizer: Recognizer, bounds: Bounds, ask: Ask, moved: dict[str, float], passes: int
) -> None:
    bounds(**moved)
    batch = EncodedBatch.of(recognizer, [Input(power()), Input(fraction())])
    questions = [prepare(batch, index, ask) for index in range(2)]
    assert [d.passes for [d] in refine_all(questions)] == [passes, passes]
