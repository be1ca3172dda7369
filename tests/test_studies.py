"""The paper's studies: stores of predictions, their rates, and every table from a tiny network."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from inkmaker import fraction, power, row, some, write_folder, write_tar
from tinymodel import tiny_checkpoint
from typer.testing import CliRunner

from gryphone.cli.study import register
from gryphone.data.datasets import read_dataset
from gryphone.data.packing import write_packed
from gryphone.errors import ConfigError, DataError
from gryphone.reading.inputs import read_input
from gryphone.recognition.recognizer import Recognizer, load
from gryphone.scoring.evaluate import evaluate
from gryphone.studies import live
from gryphone.studies.additions import answers
from gryphone.studies.live import Arm, Names
from gryphone.studies.measures import Measured, Results, Truths, difference, figures
from gryphone.studies.paper import STUDIES, binned, visible
from gryphone.studies.predictions import (
    REMASKINGS,
    Row,
    Store,
    broken,
    dump,
    main,
    named_weights,
    plan_of,
    read_store,
    write_store,
)
from gryphone.studies.rivals import rivals
from gryphone.studies.speed import main as measure_speed
from gryphone.studies.speed import measure


@pytest.fixture(scope="module")
def recognizer(tmp_path_factory: pytest.TempPathFactory) -> Recognizer:
    return load(tiny_checkpoint(tmp_path_factory.mktemp("weights")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sets as a data folder has them: two to validate with, one to test with."""
    data = tmp_path_factory.mktemp("data")
    for name, inks in (
        ("valid-2013", [*some(4), fraction(id="f")]),
        ("valid-2023", [power(id="p"), fraction(id="g", seed=2)]),
        ("test-2014", [row("x+1", id="r")]),
    ):
        inked = write_folder(data / "inks" / name, inks)
        write_packed(read_dataset(inked), data / f"{name}.parquet", convention="crohme")
    graph = b"O, a, x, 1.0, 0\nO, b, +, 1.0, 1\nR, a, b, Right, 1.0\n"
    write_tar(data / "test-2014-symlg.tar.xz", {"r.lg": graph})
    return data


STORED = Store(
    "raw+rmml",
    "set",
    (("diffusion", 1, 0), ("diffusion", 2, 0), ("diffusion", 2, 1), ("diffusion", 2, 2)),
    (
        Row("a", (("x", "^", "{", "2", "}"), ("x",), ("{", "x")), (0, 0, 1, 0), (2, 1)),
        Row("b", (("y",), ()), (0, 1, 0, 0), (1, 0)),
    ),
)


def test_a_store_comes_back_and_knows_its_independent_runs(tmp_path: Path) -> None:
    path = tmp_path / "predictions-a.jsonl.xz"
    write_store(path, STORED)
    assert read_store(path) == STORED
    assert STORED.runs("diffusion", 2) == [2, 3]  # in the first run all samples share their draws
    assert STORED.runs("diffusion", 1) == [0]
    assert STORED.runs("diffusion", 3) == []
    path.write_bytes(b"no store")
    with pytest.raises(DataError, match="is no store of predictions"):
        read_store(path)


def test_rates_are_the_mean_of_runs_by_hand() -> None:
    measured = Measured(STORED, {"a": ["x", "^", "{", "2", "}"], "b": ["y"]})
    worth = np.stack([measured.column(k) for k in (2, 3)])
    found = figures(worth, measured.lengths)
    # Run 1 reads `x`: four tokens of six are lost. Run 2 reads all.
    assert (found["em"].mean, found["em"].runs, found["em"].count) == (75.0, 2, 2)
    assert found["em"].sd == pytest.approx(50 / 2**0.5)
    assert found["cer"].mean == pytest.approx((100 * 4 / 6 + 0) / 2)
    assert found["ser"].mean == 0.0
    assert found["em"].low <= 75.0 <= found["em"].high
    step = measured.step(0)  # `{ x` and nothing: an open brace, nothing right
    assert step[:, 0].tolist() == [0, 0] and step[:, 3].tolist() == [1, 0]
    assert step[:, 1].tolist() == [0, 1]  # `y` is one edit away from nothing
    d, low, high = difference((worth[:1], measured.lengths), (worth[1:], measured.lengths))
    assert d == 50.0 and low <= d <= high
    with pytest.raises(DataError, match="has no sample 'b'"):
        Measured(STORED, {"a": ["x"]})


def test_a_truth_that_cannot_be_read_has_no_right_answer() -> None:
    measured = Measured(STORED, {"a": [], "b": ["y"]})
    assert measured.column(2)[0, :3].tolist() == [0, 0, 1]


def test_plans_run_what_has_no_chance_once() -> None:
    plan = plan_of(2, steps=(1, 10))
    assert plan == (
        ("diffusion", 1, 0),
        ("diffusion", 10, 1),
        ("diffusion", 10, 2),
        ("mask-predict", 10, 0),
    )
    assert plan_of(1, "recover-masked", begins=(1, 5)) == (
        ("recover-masked", 1, 1),
        ("recover-masked", 5, 1),
    )
    with pytest.raises(ConfigError, match="'guess' is unknown"):
        plan_of(1, "guess")


def test_stored_runs_are_those_that_evaluate_scores(
    recognizer: Recognizer, folder: Path, tmp_path: Path
) -> None:
    columns = plan_of(2, "diffusion", "mask-predict", "authors", steps=(1, 2, 10))
    path = dump(recognizer, "tiny", folder / "valid-2013.parquet", tmp_path, columns, batch=2)
    store = read_store(path)
    data = folder / "valid-2013.parquet"
    for method, steps in (("diffusion", 2), ("mask-predict", 10), ("authors", 2)):
        k = store.runs(method, steps)[0]
        decoder = "mask-predict" if method == "mask-predict" else "diffusion"
        how = {"method": decoder, "remasking": REMASKINGS.get(method), "plain": True}
        # Of the runs only the first is kept in full: its draws are those of key 0.
        first = evaluate(recognizer, data, steps=steps, **how)
        if method == "mask-predict":
            answers = [" ".join(r.pool[r.answers[k]]) for r in store.rows]
            assert answers == [s.prediction for s in first.predictions]
        scored = evaluate(recognizer, data, steps=steps, runs=3, **how).given
        truths = {s.id: s.truth.split() for s in first.predictions}
        for number, column in enumerate(store.runs(method, steps), 1):
            right = 100 * Measured(store, truths).column(column)[:, 2].sum()
            total = sum(map(len, truths.values()))
            if method != "mask-predict":
                assert scored[number].cer == pytest.approx(right / total)


def test_a_stopped_dump_goes_on(recognizer: Recognizer, folder: Path, tmp_path: Path) -> None:
    data, columns = folder / "valid-2013.parquet", plan_of(1, steps=(1, 2, 50))
    whole = read_store(dump(recognizer, "tiny", data, tmp_path / "a", columns, batch=2))

    def stop(done: int) -> None:
        if done >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dump(recognizer, "tiny", data, tmp_path / "b", columns, batch=2, progress=stop)
    part = next((tmp_path / "b").glob("*.part"))
    part.write_text(part.read_text() + '["half a li')
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / part.name).write_text('{"arm": "ti')  # stopped before anything was found
    assert read_store(dump(recognizer, "tiny", data, tmp_path / "c", columns)) == whole
    counts: list[int] = []
    path = dump(recognizer, "tiny", data, tmp_path / "b", columns, batch=2, progress=counts.append)
    assert read_store(path) == whole and counts == [4, 5] and not part.exists()
    with pytest.raises(ConfigError, match="was begun with"):
        dump(recognizer, "tiny", data, tmp_path / "b", plan_of(2, steps=(1, 2)))
    # The last of the recorded steps is what that run answers.
    column = whole.runs("diffusion", 50)[0]
    assert all(len(r.trajectory) == 50 for r in whole.rows)
    assert [r.trajectory[-1] for r in whole.rows] == [r.answers[column] for r in whole.rows]


def test_operators_are_masked_or_deleted_and_braces_stay(recognizer: Recognizer) -> None:
    truth = r"x ^ { \frac { 1 } { 2 } }"
    tokenizer = recognizer.tokenizer
    vocabulary = tokenizer.vocabularies[1]
    recognizer = replace(
        recognizer,
        checkpoint=replace(
            recognizer.checkpoint,
            tokenizer=type(tokenizer)(
                (tokenizer.vocabularies[0], vocabulary.grow({"^{": 1, "{}}": 1}))
            ),
        ),
    )
    masked = broken(recognizer, truth, "recover-masked")
    assert masked is not None
    assert masked[1].tolist() == [1, 1] and (masked[[0, 2, 3]] > 1).all()
    deleted = broken(recognizer, truth, "recover-deleted")
    assert deleted is not None
    assert " ".join(recognizer.tokenizer.decode(deleted)) == "x ^ { { 1 } { 2 } }"
    bare = broken(recognizer, r"\frac { 1 } { 2 }", "recover-deleted")
    assert bare is not None and recognizer.tokenizer.decode(bare) == ["{", "1", "}", "{", "2", "}"]
    assert broken(recognizer, "x", "recover-masked") is None
    assert broken(recognizer, truth, "diffusion") is None


def test_only_the_removed_place_is_solved_at_the_end(
    recognizer: Recognizer, folder: Path, tmp_path: Path
) -> None:
    """From t=1 on, one prediction: with visible tokens kept, all but the operator is the truth."""
    own = replace(recognizer.checkpoint.config, remasking=REMASKINGS["keep"])
    kept = replace(recognizer, checkpoint=replace(recognizer.checkpoint, config=own))
    columns = plan_of(1, "recover-masked", begins=(1,))
    store = read_store(dump(kept, "tiny", folder / "valid-2013.parquet", tmp_path, columns))
    (fraction_row,) = [r for r in store.rows if r.id == "f"]
    found = fraction_row.pool[fraction_row.answers[0]]
    labels = {s.id: s.label.split() for s in read_dataset(folder / "valid-2013.parquet")}
    left = [token for token in labels["f"] if token != r"\frac"]
    assert [token for token in found if token in left] == left
    empty = {r.id for r in store.rows if r.pool == ((),)}
    assert empty == {name for name, tokens in labels.items() if r"\frac" not in tokens} != set()


def test_every_study_is_made_of_stored_predictions(
    recognizer: Recognizer, folder: Path, tmp_path: Path
) -> None:
    weights = recognizer.origin[0]  # type: ignore[index]
    app = typer.Typer()
    register(app)
    app.command("other")(lambda: None)  # two commands, so that they have names
    common = ["--data", str(folder), "--out", str(tmp_path)]
    arms = [x for arm in ("raw", "sat") for x in ("--weights", f"{arm}={weights}")]
    few = ["--runs", "2", "--limit", "3"]
    first = CliRunner().invoke(app, ["study", "recovery", *common, *arms, *few])
    assert first.exit_code == 0, first.output
    for name in ("test-2014", "valid-2013", "valid-2023"):
        columns = plan_of(2, "diffusion", "mask-predict", *REMASKINGS)
        data = folder / f"{name}.parquet"
        for arm in ("raw", "sat"):
            dump(recognizer, arm, data, tmp_path / "predictions", columns)
    (tmp_path / "predictions" / "speed-cpu.json").write_text('[{"T": 1, "one at a time": 3}]')
    done = CliRunner().invoke(app, ["study", "all", *common])
    assert done.exit_code == 0, done.output
    for name in STUDIES:
        text = (tmp_path / f"{name}.md").read_text()
        assert text.startswith("# ") and text.count("\n| ") > 2, name
        assert name == "cases" or "\n| raw" in text or "raw EM" in text, name
        json.loads((tmp_path / f"{name}.json").read_text())
    assert "| 5.42 | 4.97 | 4.84 | 4.75 |" in (tmp_path / "ablation.md").read_text()
    assert "| test-2014 | .lg files | 65.2 |" in (tmp_path / "crohme.md").read_text()
    assert (tmp_path / "steps.png").stat().st_size > 1000
    wrong = CliRunner().invoke(app, ["study", "nothing", *common])
    assert isinstance(wrong.exception, DataError) and "'nothing' is unknown" in str(wrong.exception)
    results = Results.of(tmp_path / "predictions", Truths(folder))
    assert results.arms == ["raw", "sat"]
    assert list(results.groups) == ["valid-2013 + valid-2023", "test-2014"]


def test_visible_symbols_and_bins_by_hand() -> None:
    assert visible([r"\frac", r"{", r"x", r"}", r"{", r"}"]) == (r"\frac", "x")
    found = binned([["x"], ["x", "^", "{", "2", "}"]])
    assert found["length"]["1 to 4"].tolist() == [True, False]
    assert found["depth"]["1"].tolist() == [False, True]
    assert found["rarest symbol"]["in 1 to 2"].tolist() == [True, True]


def test_speed_has_a_row_for_each_way(recognizer: Recognizer) -> None:
    from gryphone.reading.inputs import Input

    rows = measure(recognizer, [Input(ink) for ink in some(3)], steps=(1,))
    assert [(r["decoding"], r["T"]) for r in rows] == [
        ("plain", 1),
        ("product", 1),
        ("product", "auto"),
    ]
    assert all(r["one at a time"] > 0 and r["in it"] > 0 for r in rows)


def test_rivals_are_compared_with_ours_ink_by_ink(
    recognizer: Recognizer, folder: Path, tmp_path: Path
) -> None:
    """Ours has the first three of four right, the rival's beam the last two."""
    truths = Truths(folder).of("valid-2013")
    names = list(truths)[:4]

    def store(arm: str, column: tuple[str, int, int], right: set[int]) -> None:
        rows = tuple(
            Row(name, (tuple(truths[name]) if k in right else ("x",),), (0,))
            for k, name in enumerate(names)
        )
        path = tmp_path / f"predictions-{arm}-valid-2013.jsonl.xz"
        write_store(path, Store(arm, "valid-2013", (column,), rows))

    store("ours", ("diffusion", 10, 1), {0, 1, 2})
    store("bttr", ("beam", 10, 0), {2, 3})
    weights = recognizer.origin[0]  # type: ignore[index]
    data = str(folder / "valid-2013.parquet")
    measured = [data, "--out", str(tmp_path), "--limit", "3", "--rivals", f"ours={weights}"]
    measure_speed(measured)
    report = rivals(Results.of(tmp_path, Truths(folder)), tmp_path)
    (_, header, rows), (_, _, published), (_, columns, speeds) = report.tables
    assert [row[:2] for row in rows] == [["ours", "T = 10"], ["bttr", "beam 10"]]
    assert rows[0][2] != "–" and rows[0][-3:] == ["–"] * 3
    assert [row[3].mean for row in rows] == [75.0, 50.0]  # EM
    assert rows[1][-3:] == [2, 1, "1"] and header[-3:] == ["only ours right", "only it", "p"]
    assert published[1][0] == "bttr" and published[1][4] == 57.7
    assert {"p50 ms", "images/s", "ms at 10", "ms at 30", "ms at 60"} < set(columns)
    assert len(speeds) == 3 and len(report.panels) == 1  # T = 1, 10, 50


def test_what_is_added_to_the_bare_decoder(recognizer: Recognizer) -> None:
    inks = [read_input(ink) for ink in some(4)]
    ways = answers(recognizer, inks, steps=3)

    def read(*, plain: bool) -> list[str]:
        found = recognizer.recognize_many(inks, steps=3, plain=plain)
        return [" ".join(result.tokens) for result in found]

    assert ways["nothing"] == read(plain=True)
    assert ways["both"] == read(plain=False)
    assert ways["search"] != ways["nothing"]  # random weights leave braces open
    assert ways["second look"] != ways["nothing"]


def test_a_study_that_reads_anew(recognizer: Recognizer, folder: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    register(app)
    app.command("other")(lambda: None)
    assert recognizer.origin is not None
    given = ["--weights", f"tiny={recognizer.origin[0]}", "--data", str(folder)]
    given += ["--out", str(tmp_path), "--limit", "3"]
    both = ["--set", "valid-2013", "--set", "valid-2023"]
    done = CliRunner().invoke(app, ["study", "additions", *given, *both])
    assert done.exit_code == 0 and "| both |" in done.output
    figures = json.loads((tmp_path / "additions.json").read_text())
    assert figures["both"]["scores"]["count"] == 3 and figures["search"]["scores"]["ser"] == 0


def test_a_settled_symbol_that_changes_is_a_flicker_or_a_correction() -> None:
    strokes = [np.array([[30.0 * n, 0.0], [30.0 * n, 9.0]]) for n in range(5)]
    one, two, far = frozenset({0}), frozenset({1}), frozenset({2})
    trail: list[Names] = [
        {one: "l"},
        {one: "l", two: "1"},
        {one: "1", two: "1"},  # nothing is near it: it had settled
        {one: "1", two: "1", far: "1"},
        {one: "1", two: "l", far: "1"},
    ]
    arm = Arm()
    arm.watch(trail, {one: "1", two: "1", far: "1"}, strokes)
    assert (arm.settled, arm.corrected, arm.flickers, arm.shaken) == (4, 1, 1, 1)
    close = Arm()
    close.watch(trail, {}, [strokes[0]] * 5)  # all ink is near
    assert close == Arm()


def test_live_ink_is_replayed(recognizer: Recognizer, folder: Path, tmp_path: Path) -> None:
    assert recognizer.origin is not None
    data = next(path for path in folder.iterdir() if "valid-2023" in path.name)
    weights = str(recognizer.origin[0])
    live.main(
        [str(data), "--limit", "2", "--weights", weights, "--out", str(tmp_path / "live.json")]
    )
    figures = json.loads((tmp_path / "live.json").read_text())
    assert figures["inks"] == figures["same"] == 2
    assert len(figures["live"]["seconds"]) == len(figures["fresh"]["seconds"]) == figures["strokes"]


def test_names_of_weights() -> None:
    assert named_weights(["a=runs/x", "runs/y"]) == {"a": Path("runs/x"), "y": Path("runs/y")}


def test_predictions_are_made_without_what_a_training_machine_lacks(
    recognizer: Recognizer, folder: Path, tmp_path: Path
) -> None:
    weights = recognizer.origin[0]  # type: ignore[index]
    missing = ("rapidfuzz", "defusedxml", "latex2mathml", "pydantic", "fastapi", "uvicorn")
    out = tmp_path / "out"
    arguments = [f"tiny={weights}", "--data", str(folder / "valid-2023.parquet"), "--out", str(out)]
    arguments += ["--runs", "2", "--steps", "1", "2", "10"]
    code = (
        f"import sys\nsys.modules.update(dict.fromkeys({missing!r}))\n"
        f"from gryphone.studies.predictions import main\nmain({arguments!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "samples", str(next(out.iterdir()))]
    main(arguments)  # again: nothing to do
    assert len(read_store(next(out.iterdir())).columns) == 6
