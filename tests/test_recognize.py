"""The recogniser as a user meets it, on a tiny model with random weights."""

import io
import json
import multiprocessing
import pickle
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inkmaker import fraction, power, row, some, to_strokes

from gryphone.data.packed import read_packed
from gryphone.data.packing import write_packed
from gryphone.data.samples import Sample
from gryphone.decoding import Request
from gryphone.errors import CheckpointError, ConfigError, GryphoneError, InkError, TokenError
from gryphone.ink import Ink
from gryphone.latex.validity import is_valid
from gryphone.reading.inkml import to_inkml
from gryphone.reading.inputs import Input
from gryphone.recognition.encoding import OTHER_TRACING, EncodedBatch, mean_of, redrawn
from gryphone.recognition.question import Ask, Step
from gryphone.recognition.recognizer import Recognizer, load, shared_out
from gryphone.recognition.result import Result
from gryphone.tokens import EMPTY, SatTokenizer, spans, spell


@pytest.fixture(scope="module")
def encoded(recognizer: Recognizer):
    return recognizer.encode(power())


def test_every_kind_of_ink_gives_the_same_answer(recognizer: Recognizer, tmp_path: Path) -> None:
    ink = power(id="p")
    inkml, strokes = tmp_path / "p.inkml", tmp_path / "p.json"
    inkml.write_text(to_inkml(ink))
    strokes.write_text(json.dumps({"strokes": to_strokes(ink)}))
    sources = [
        ink,
        inkml,
        str(inkml),
        strokes,
        inkml.read_bytes(),
        strokes.read_bytes(),
        to_strokes(ink),
        list(ink.strokes),
        {"strokes": to_strokes(ink)},
        io.BytesIO(inkml.read_bytes()),
    ]
    answers = {recognizer.recognize(source).latex for source in sources}
    assert len(answers) == 1
    with inkml.open("rb") as file:
        assert recognizer.recognize(file).latex in answers
    with inkml.open("rb", buffering=0) as file, tempfile.TemporaryFile() as unnamed:
        unnamed.write(file.read())
        for source in (file, unnamed):
            source.seek(0)
        many = recognizer.recognize_many([file, unnamed, io.BytesIO(inkml.read_bytes())])
    assert {result.latex for result in many} == answers


def test_bad_open_files_are_named(recognizer: Recognizer, tmp_path: Path) -> None:
    path = tmp_path / "p.inkml"
    path.write_text(to_inkml(power()))
    with path.open() as file, pytest.raises(InkError, match=r"gives text; .* open\(path, 'rb'\)"):
        recognizer.recognize(file)
    with pytest.raises(InkError, match="gives text"):
        recognizer.recognize(io.StringIO(path.read_text()))
    path.write_text("")
    with path.open("rb") as file, pytest.raises(InkError, match=rf"{path}: is empty"):
        recognizer.recognize(file)
    with pytest.raises(InkError, match="file: is empty"):
        recognizer.recognize(io.BytesIO())
    with pytest.raises(InkError, match="note: is empty"):
        recognizer.recognize(io.BytesIO(), name="note")
    with pytest.raises(InkError, match="cannot be read"):
        recognizer.recognize(file)  # is closed by now


def test_an_open_file_is_not_read_without_end(
    recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Endless(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            assert size is not None and size > 0
            return b"x" * size

    monkeypatch.setattr("gryphone.reading.inputs.LARGEST_FILE", 1 << 20)
    with pytest.raises(InkError, match="larger than 1 MiB"):
        recognizer.recognize(Endless())


def test_ink_is_read_as_it_is_packed(recognizer: Recognizer, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    inks = [
        replace(ink, strokes=tuple(s + rng.normal(0, 0.05, s.shape) for s in ink.strokes))
        for ink in (power(id="a"), fraction(id="b"))
    ]
    path = tmp_path / "p.parquet"
    write_packed((Sample(ink.id, "made", "x", ink) for ink in inks), path)
    packed = read_packed(path)
    for number, ink in enumerate(inks):
        (read,) = EncodedBatch.of(recognizer, [Input(ink)]).strokes
        stored = packed.strokes(number)
        longest = np.concatenate(read).max()
        assert np.allclose(np.concatenate(read) / longest, np.concatenate(stored))
        assert [len(stroke) for stroke in read] == [len(stroke) for stroke in stored]


def test_stdin(recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch) -> None:
    data = to_inkml(power()).encode()
    monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": io.BytesIO(data)}))
    assert recognizer.recognize("-").latex == recognizer.recognize(power()).latex


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("no/such/file.png", "no such file"),
        (b"", "is empty"),
        (b"<ink><trace>", "."),
        ([], "no strokes"),
        (3.5, "cannot read a float"),
        (".", "is a folder"),
    ],
)
def test_bad_sources_are_named(recognizer: Recognizer, source: object, message: str) -> None:
    with pytest.raises(InkError, match=message):
        recognizer.recognize(source)


def test_result_is_frozen_complete_and_valid(recognizer: Recognizer) -> None:
    result = recognizer.recognize(fraction(), n_best=3, steps=10)
    assert is_valid(result.latex)
    assert 0 <= result.confidence <= 1
    assert result.steps == 10
    assert result.seed == 0
    assert result.seconds > 0
    assert len(result.symbols) == len(result.ids)
    assert len(result.n_best) <= 3
    assert result.n_best[0].latex == result.latex
    assert sum(a.weight for a in result.n_best) <= 1 + 1e-9
    weights = [a.weight for a in result.n_best]
    assert weights == sorted(weights, reverse=True)
    assert all(is_valid(a.latex) for a in result.n_best)
    assert result.mathml.startswith("<math")
    with pytest.raises(FrozenInstanceError):
        result.latex = "x"  # type: ignore[misc]


def test_symbols_have_confidence_alternatives_and_boxes(recognizer: Recognizer) -> None:
    ink = row("x+1=2")
    result = recognizer.recognize(ink, alternatives=2)
    left, top, right, bottom = ink.bounds
    for symbol in result.symbols:
        assert 0 <= symbol.confidence <= 1
        assert len(symbol.alternatives) <= 2
        assert symbol.symbol not in [name for name, _ in symbol.alternatives]
        if symbol.box is not None:
            assert left <= symbol.box[0] <= symbol.box[2] <= right
            assert top <= symbol.box[1] <= symbol.box[3] <= bottom


def test_json_and_text(recognizer: Recognizer) -> None:
    result = recognizer.recognize(power(), n_best=2)
    data = json.loads(json.dumps(result.to_dict()))
    assert data["latex"] == result.latex
    assert "".join(data["tokens"]) == result.latex.replace(" ", "")
    assert {"confidence", "symbols", "n_best", "steps", "seconds", "seed", "warnings"} <= set(data)
    assert result.to_text().startswith(result.latex)


def test_one_seed_one_answer(encoded) -> None:
    answers = [encoded.decode(seed=7) for _ in range(2)]
    assert answers[0].latex == answers[1].latex
    assert answers[0].confidence == answers[1].confidence


def test_an_unsure_answer_looks_at_both_tracings(
    recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, other = row("x+1"), row("x=2"), power()
    both = Input(one, two.strokes)
    batch = EncodedBatch.of(recognizer, [Input(other), both, Input(two)])
    second, alone = (
        recognizer.backend.predict(memory, np.ones((1, 5, 2), int), np.array([5]), np.zeros(1, int))
        for memory in (
            batch.memory_of(OTHER_TRACING, [1]),
            EncodedBatch.of(recognizer, [Input(two)]).memory,
        )
    )
    assert np.allclose(second[0], alone[0], atol=1e-4)

    def answer(source: Ink | Input, beside: Sequence[Any] = (), **options: object) -> list[float]:
        results = recognizer.recognize_many([*beside, source], steps=3, **options)
        return [s.confidence for s in results[-1].symbols]

    # A network with random weights is never sure.
    assert answer(both) != answer(one)
    assert answer(both, [other, both]) == pytest.approx(answer(both), abs=1e-4)
    assert answer(both, views=2) != answer(one, views=2)
    assert recognizer.encode(both).decode(deadline_ms=1).steps == 1
    stopped = recognizer.recognize(both, steps=10, on_step=lambda step: True)
    assert stopped.steps == 1 and stopped.latex == recognizer.recognize(one, steps=1).latex
    named = {s for symbol in recognizer.recognize(both).symbols for s in symbol.strokes}
    assert named <= set(range(len(one.strokes)))
    drawn_again = answer(one)  # pen ink is traced from its drawing
    assert answer(Input(one, redrawn([one.strokes])[0])) == drawn_again
    monkeypatch.setattr("gryphone.recognition.encoding.DOUBT_ABOUT_PICTURE", 1e9)
    assert answer(both) != answer(one) == drawn_again
    monkeypatch.setattr("gryphone.recognition.encoding.DOUBT_ABOUT_INK", 1e9)
    assert answer(both) == answer(one) != drawn_again


def test_a_batch_answers_like_single_calls(recognizer: Recognizer) -> None:
    inks = [power(), fraction(), row("x+1=2"), row("1")]
    batch = recognizer.recognize_many(inks, samples=2)
    single = [recognizer.recognize(ink, samples=2) for ink in inks]
    assert [r.latex for r in batch] == [r.latex for r in single]
    assert [r.confidence for r in batch] == pytest.approx([r.confidence for r in single], abs=1e-4)
    assert [[s.box for s in r.symbols] for r in batch] == [
        [s.box for s in r.symbols] for r in single
    ]
    assert recognizer.recognize_many([]) == []
    first, _ = recognizer.recognize_many((ink for ink in inks), samples=2)[:2]  # of any kind
    assert first.latex == batch[0].latex
    for one in ("a.png", Path("a.png"), b"[[[0, 0]]]"):
        with pytest.raises(ConfigError, match=r"sources is one input, .*; give a list"):
            recognizer.recognize_many(one)  # type: ignore[arg-type]


def test_many_inputs_may_be_of_any_kind(recognizer: Recognizer, tmp_path: Path) -> None:
    path = tmp_path / "p.inkml"
    path.write_text(to_inkml(power()))
    first, second = recognizer.recognize_many([str(path), to_strokes(fraction())], steps=2)
    assert first.latex == recognizer.recognize(power(), steps=2).latex
    assert second.latex == recognizer.recognize(fraction(), steps=2).latex


def test_one_of_many_that_cannot_be_read(recognizer: Recognizer, tmp_path: Path) -> None:
    sources = [power(), tmp_path / "none.png", fraction(), b"", 3.5]
    found = recognizer.recognize_many(sources, errors="return", steps=2)
    assert [type(each) for each in found] == [Result, InkError, Result, InkError, InkError]
    messages = [str(each) for each in found]
    assert "none.png: no such file" in messages[1]
    assert "is empty" in messages[3] and "cannot read a float" in messages[4]
    alone = [recognizer.recognize(ink, steps=2).latex for ink in (power(), fraction())]
    assert [each.latex for each in found if isinstance(each, Result)] == alone
    with_time = recognizer.recognize_many(sources, errors="return", deadline_ms=60_000, steps=2)
    assert [type(each) for each in with_time] == [type(each) for each in found]
    nothing = recognizer.recognize_many([b"", []], errors="return")
    assert [type(each) for each in nothing] == [InkError, InkError]
    with pytest.raises(InkError, match="no such file"):
        recognizer.recognize_many(sources)
    with pytest.raises(ConfigError, match="errors is 'skip'; it must be 'raise' or 'return'"):
        recognizer.recognize_many(sources, errors="skip")  # type: ignore[call-overload]


@pytest.mark.parametrize("at_once", [1, 3])
def test_more_than_a_batch_is_recognised_in_parts(
    recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    inks = some(8)
    expected = [recognizer.recognize(ink, steps=2) for ink in inks]
    looked: list[int] = []
    encode = recognizer.backend.encode

    def noted(some_inks: Any, *view: Any) -> Any:
        looked.append(len(some_inks))
        return encode(some_inks, *view)

    monkeypatch.setattr(recognizer.backend, "encode", noted)
    monkeypatch.setattr(recognizer.backend, "batch", 3)
    monkeypatch.setattr(recognizer.backend, "at_once", at_once)
    monkeypatch.setattr("gryphone.recognition.encoding.DOUBT_ABOUT_INK", 1e9)
    plain = recognizer.recognize_many(inks, steps=2)
    assert sorted(looked) == [2, 3, 3]
    monkeypatch.undo()
    monkeypatch.setattr(recognizer.backend, "batch", 3)
    monkeypatch.setattr(recognizer.backend, "at_once", at_once)
    found = recognizer.recognize_many([*inks[:4], b"", *inks[4:]], steps=2, errors="return")
    assert isinstance(found.pop(4), InkError)
    assert [r.name for r in found] == [r.name for r in plain] == [ink.id for ink in inks]
    assert [r.latex for r in found] == [r.latex for r in expected]
    assert [r.confidence for r in found] == pytest.approx(
        [r.confidence for r in expected], abs=1e-4
    )


def test_a_copy_for_another_process_loads_the_weights_again(
    recognizer: Recognizer, tiny_weights: Path
) -> None:
    assert recognizer.origin is not None
    data = pickle.dumps(recognizer)
    assert len(data) < 2000
    copy = pickle.loads(data)
    assert copy.backend is not recognizer.backend and copy.origin == recognizer.origin
    answers = [replace(r.recognize(power()), seconds=0.0) for r in (copy, recognizer)]
    assert answers[0] == answers[1]
    again = pickle.loads(pickle.dumps(recognizer.encode(power())))  # what was looked at, too
    assert replace(again.decode(), seconds=0.0) == answers[0]
    made = Recognizer(recognizer.checkpoint, recognizer.backend)
    with pytest.raises(TypeError, match="not loaded from a folder cannot be copied"):
        pickle.dumps(made)


@pytest.mark.parametrize(
    ("count", "workers", "most", "few", "size"),
    [
        (2048, 12, 256, 16, 171),  # a part for every worker
        (8192, 12, 256, 16, 228),  # three rounds of them
        (512, 12, 256, 16, 64),  # smaller ones do not pay
        (8, 2, 8, 1, 4),
        (3, 2, 8, 1, 4),
        (100, 2, 1, 1, 1),  # each has a deadline of its own
        (0, 2, 8, 1, 4),
    ],
)
def test_every_worker_has_an_equal_part(
    count: int, workers: int, most: int, few: int, size: int
) -> None:
    assert shared_out(count, workers, most, few) == size


def test_workers_share_many_inks(recognizer: Recognizer, tiny_weights: Path) -> None:
    inks: list[Any] = [*some(5), *some(5), "nothing"]
    helped = load(tiny_weights, workers=2)
    assert helped.workers is not None
    try:
        found = helped.recognize_many(inks, errors="return")
        alone = recognizer.recognize_many(inks, errors="return")
        assert str(found[-1]) == str(alone[-1])
        for one, other in zip(found[:-1], alone, strict=False):
            assert isinstance(one, Result) and isinstance(other, Result)
            assert one.latex == other.latex
            assert one.confidence == pytest.approx(other.confidence, abs=1e-6)
        with pytest.raises(GryphoneError, match="nothing"):
            helped.recognize_many(inks)
        opened = [io.BytesIO(to_inkml(power()).encode()) for _ in range(9)]
        assert len({r.latex for r in helped.recognize_many(opened)}) == 1
        seen: list[Step] = []  # which no other process can call
        helped.recognize_many(inks[:-1], steps=2, on_step=lambda step: seen.append(step))
        assert len(seen) >= 20
        for process in multiprocessing.active_children():
            process.kill()
        with pytest.raises(GryphoneError, match="one of 2 workers died"):
            helped.recognize_many(inks, errors="return")
    finally:
        helped.workers.pool.shutdown()


def test_a_ready_question_and_options_are_not_mixed(recognizer: Recognizer) -> None:
    with pytest.raises(ConfigError, match="give `ask` or options, not both: steps"):
        recognizer.recognize(power(), ask=Ask(steps=3), steps=7)


def test_results_can_be_compared(recognizer: Recognizer) -> None:
    result = recognizer.recognize(power(), steps=2)
    copy = pickle.loads(pickle.dumps(result))
    assert copy == result and len({copy, result}) == 1
    assert replace(result, latex="other") != result


def test_a_first_try_takes_half_the_time_and_no_second_look(
    recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, float | None]] = []

    def note(name: str) -> None:
        plain = getattr(EncodedBatch, name)

        def noted(
            self: EncodedBatch, owners: Any, request: Request, *rest: Any, **more: Any
        ) -> Any:
            calls.append((name, request.deadline))
            return plain(self, owners, request, *rest, **more)

        monkeypatch.setattr(EncodedBatch, name, noted)

    note("decode")  # which looks again in doubt
    note("refine")  # which does not
    began = time.perf_counter()
    recognizer.recognize(row("x+1=2"), hint="...=...", deadline_ms=60_000)
    assert [name for name, _ in calls][:3] == ["refine", "refine", "decode"]
    assert [name for name, _ in calls].count("decode") == 1
    assert calls[1][1] == pytest.approx(began + 30, abs=10)
    assert calls[2][1] == pytest.approx(began + 60, abs=1)
    calls.clear()
    with suppress(ConfigError):  # random weights fill the canvas, and leave no room to keep it
        recognizer.recognize(power(), remask=[0], deadline_ms=60_000)
    assert calls[0][1] == pytest.approx(began + 30, abs=10)


def test_each_of_many_has_its_own_deadline(recognizer: Recognizer) -> None:
    inks = [power(), fraction()]
    for result in recognizer.recognize_many(inks, deadline_ms=1.0):  # already over: one step
        assert result.steps == 1


def test_views_are_averaged(recognizer: Recognizer) -> None:
    inks = [power(), fraction(), row("x+1=2")]
    single = [recognizer.recognize(ink, views=3) for ink in inks]
    assert [r.latex for r in recognizer.recognize_many(inks, views=3)] == [r.latex for r in single]
    encoded = recognizer.encode(inks[0])
    assert encoded.decode(views=3).latex == single[0].latex
    assert encoded.decode(views=3).confidence != encoded.decode(views=1).confidence
    halves = [np.log([[0.5, 0.5]]), np.log([[0.9, 0.1]])]
    mean = mean_of([[half] for half in halves])[0]
    assert np.exp(mean) == pytest.approx(np.array([[0.75, 0.25]]))
    with pytest.raises(ConfigError, match="views is 6; it must be between 1 and 5"):
        encoded.decode(views=6)


def test_lock_keeps_symbols(encoded) -> None:
    result = encoded.decode(lock={0: "x", 2: ("2", "")})
    assert result.symbols[0].symbol == "x"
    assert (result.symbols[2].symbol, result.symbols[2].modifier) == ("2", "")
    assert is_valid(result.latex)


def test_what_cannot_be_met_is_said(encoded) -> None:
    note = "no well-formed formula has what was asked for at position 0"
    assert note not in encoded.decode(lock={0: "x"}).warnings
    result = encoded.decode(lock={0: ("x", "^{}}}")})  # closes what was never opened
    assert is_valid(result.latex)
    assert note in result.warnings


def test_too_much_ink_is_said(recognizer: Recognizer) -> None:
    note = "this may be more than one formula; give them one at a time"
    one, other = row("x+1"), row("x+1").strokes
    right = replace(one, strokes=one.strokes + tuple(s + np.array([120.0, 0]) for s in other))
    below = replace(one, strokes=one.strokes + tuple(s + np.array([0, 40.0]) for s in other))
    for ink in (row("x+1" * 40), right, below):
        assert note in recognizer.recognize(ink, hint="x").warnings
    for ink in (one, row("..."), power(), fraction()):
        assert note not in recognizer.recognize(ink, hint="x").warnings
    full = recognizer.recognize(one, hint="+".join("x" * 20))  # as long as its canvas
    assert note in full.warnings


def test_hint_holds(encoded) -> None:
    assert encoded.decode(hint=r"\frac{?}{x}").latex.startswith(r"\frac{")
    assert encoded.decode(hint=r"\frac{?}{x}").latex.endswith("}{x}")
    with_run = encoded.decode(hint=r"\sqrt{...}=1").latex
    assert with_run.startswith(r"\sqrt{")
    assert with_run.endswith("}=1")
    assert encoded.decode(hint="x^2").latex == "x^{2}"
    # A dot beside a run is a dot.
    assert encoded.decode(hint="1 . ...").latex.startswith("1.")


def test_remask_changes_only_what_it_names(encoded) -> None:
    given = encoded.decode(hint="x+1=?")
    again = encoded.decode(given=given, remask=[2], seed=3)
    assert len(again.ids) == len(given.ids)
    kept = [0, 1, 3, 4]
    assert np.array_equal(again.ids[kept], given.ids[kept])
    forced = encoded.decode(given=given, remask=[2], allowed=["7"])
    assert forced.symbols[2].symbol == "7"
    assert np.array_equal(forced.ids[kept], given.ids[kept])


def test_allowed_restricts_every_symbol(encoded) -> None:
    for allowed in ("x12", ["x", "1", "2"]):
        result = encoded.decode(allowed=allowed)
        assert {s.symbol for s in result.symbols} <= {"x", "1", "2"}


def test_steps_deadline_and_watching(encoded) -> None:
    seen = []
    result = encoded.decode(steps=3, on_step=seen.append)
    # A network with random weights is never sure: it looks a second time, and that is seen too.
    assert [(s.look, s.number) for s in seen] == [(look, i) for look in (1, 2) for i in (1, 2, 3)]
    assert result.steps == 3
    assert seen[0].masked == tuple(range(len(seen[0].rows)))
    assert encoded.decode(deadline_ms=1).steps == 1
    assert encoded.decode(steps=9, on_step=lambda step: step.number == 4).steps == 4
    seen.clear()
    encoded.decode(steps=9, on_step=lambda s: seen.append(s) or (s.look, s.number) == (2, 4))
    assert len(seen) == 9 + 4
    assert encoded.decode(deadline_ms=5000, steps=4).steps == 4


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"lock": {0: r"\foo"}}, TokenError, r"lock\[0\]: '\\\\foo' is not among"),
        ({"lock": {0: r"\sqr"}}, TokenError, r"did you mean \\sqrt"),
        ({"lock": {99: "x"}}, ConfigError, "positions go from 0"),
        ({"hint": r"\frac{"}, ConfigError, "hint"),
        ({"hint": ""}, ConfigError, "hint is empty"),
        ({"hint": r"\foo ?"}, TokenError, "not among"),
        ({"allowed": ""}, ConfigError, "allowed is empty"),
        ({"allowed": [r"\foo"]}, TokenError, "allowed"),
        ({"remask": [70]}, ConfigError, "outside the answer"),
        ({"steps": 0}, ConfigError, "steps is 0"),
        ({"steps": 2.5}, ConfigError, "steps is 2.5; it must be a whole number"),
        ({"steps": "5"}, ConfigError, "steps is '5'; it must be a whole number or 'auto'"),
        ({"steps": "AUTO"}, ConfigError, "steps is 'AUTO'; it must be a whole number or 'auto'"),
        ({"steps": ""}, ConfigError, "steps is ''; it must be a whole number or 'auto'"),
        ({"samples": True}, ConfigError, "samples is True; it must be a whole number"),
        ({"seed": 1.5}, ConfigError, "seed is 1.5; it must be a whole number"),
        ({"lock": [(0, "x")]}, ConfigError, r"lock is \[.*\]; it must be a mapping"),
        ({"lock": {0: 5}}, ConfigError, r"lock\[0\] is 5; it must be a symbol"),
        ({"hint": 5}, ConfigError, "hint is 5; it must be text"),
        ({"remask": 3}, ConfigError, "remask is 3; it must be a list of positions"),
        ({"given": "x"}, ConfigError, "given is 'x'; it must be an earlier result"),
        ({"n_best": 0}, ConfigError, "n_best is 0"),
        ({"deadline_ms": 0}, ConfigError, "deadline_ms is 0"),
        ({"deadline_ms": float("nan")}, ConfigError, "deadline_ms is nan"),
        ({"deadline_ms": float("inf")}, ConfigError, "deadline_ms is inf; .* and finite"),
        ({"seed": -1}, ConfigError, "seed is -1; it must be between 0 and"),
        ({"seed": 2**63}, ConfigError, "seed is 9223372036854775808; it must be between"),
        ({"hint": "?", "remask": [0]}, ConfigError, "cannot be combined"),
    ],
)
def test_bad_questions_are_named(encoded, options, kind, message) -> None:
    with pytest.raises(kind, match=message):
        encoded.decode(**options)


def test_load_says_what_is_missing(
    tiny_weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gryphone.recognition.recognizer.WEIGHTS", tmp_path / "none")
    with pytest.raises(CheckpointError, match="no default weights"):
        load()
    with pytest.raises(CheckpointError, match="no checkpoint directory"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match="device 'nonsense'"):
        load(tiny_weights, device="nonsense")


def test_spelling_keeps_commands_apart() -> None:
    assert spell(["\\alpha", "x", "^", "{", "2", "}"])[0] == r"\alpha x^{2}"
    assert spell(["\\frac", "{", "a", "}", "{", "\\pi", "}"])[0] == r"\frac{a}{\pi}"
    assert spell(["\\pi", "2", "\\{", "a"])[0] == r"\pi2\{a"
    matrix = ["\\begin{matrix}", "a", "\\\\", "b", "\\end{matrix}"]
    assert spell(matrix)[0] == r"\begin{matrix}a\\b\end{matrix}"


def test_ask_defaults() -> None:
    asks = [Ask(), Ask(steps="auto"), Ask(deadline_ms=5), Ask(steps=3)]
    assert [(ask.auto, ask.total_steps) for ask in asks] == [
        (True, 8),
        (True, 8),
        (False, 50),
        (False, 3),
    ]
    both = Ask(steps="auto", deadline_ms=5)
    assert (both.auto, both.total_steps) == (True, 8)
    assert (Ask().decodes, Ask(n_best=3).decodes, Ask(n_best=9).decodes) == (1, 5, 9)


def test_spans_name_each_symbol_in_the_latex(recognizer: Recognizer) -> None:
    for ink in (power(), fraction(), row("x+1=2")):
        result = recognizer.recognize(ink)
        for symbol in result.symbols:
            start, end = symbol.span
            written = "" if symbol.symbol == EMPTY else symbol.symbol
            assert result.latex[start:end] == written


def test_spans_of_scripts_spaces_brackets_and_empty_groups() -> None:
    pairs = [("\\alpha", ""), ("x", ""), ("]", "_{}"), (EMPTY, "^{}"), ("2", "{}")]
    tokens = SatTokenizer.join(pairs)
    latex, starts = spell(tokens)
    assert latex == r"\alpha x_{]}^{}{2}"
    found = spans(tokens, starts, SatTokenizer.places(pairs))
    assert [latex[a:b] for a, b in found] == ["\\alpha", "x", "]", "", "2"]
    assert found[3] == (14, 14)
    # An empty symbol at the very end stands behind everything.
    assert spans(["x", "^"], [0, 1], SatTokenizer.places([("x", ""), (EMPTY, "^")])) == [
        (0, 1),
        (2, 2),
    ]


def test_strokes_of_symbols_are_shared_out_and_fill_the_boxes(recognizer: Recognizer) -> None:
    ink = row("x+1=2")
    result = recognizer.recognize(ink)
    owned = sorted(n for symbol in result.symbols for n in symbol.strokes)
    assert owned == list(range(len(ink.strokes)))
    for symbol in result.symbols:
        assert (symbol.box is None) == (not symbol.strokes)
        if symbol.box is not None:
            points = np.concatenate([ink.strokes[n] for n in symbol.strokes])
            assert symbol.box == (*points.min(0), *points.max(0))
    plain = recognizer.recognize(ink, boxes=False)
    assert all(s.strokes == () and s.box is None for s in plain.symbols)


def test_a_given_answer_must_fit_the_canvas(encoded) -> None:
    given = replace(encoded.decode(), ids=np.full((40, 2), 3))
    with pytest.raises(ConfigError, match="40 symbols, the canvas holds 39"):
        encoded.decode(given=given)
