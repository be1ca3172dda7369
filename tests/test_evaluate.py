"""Evaluation drops nothing: denominators, unreadable samples, graphs, runs."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from inkmaker import fraction, power, row, some, write_folder, write_tar
from typer.testing import CliRunner

from gryphone.cli.evaluation import register
from gryphone.config import PRESETS, Remasking
from gryphone.decoding import Decoded, Seen
from gryphone.errors import ConfigError, DataError
from gryphone.reading.inkml import to_inkml
from gryphone.recognition.question import Ask
from gryphone.recognition.recognizer import Recognizer
from gryphone.release.calibration import _truth
from gryphone.scoring.evaluate import (
    Item,
    decode_all,
    drawn_length,
    evaluate,
    items,
    told_apart,
    true_graph,
)
from gryphone.scoring.metrics import RATES


def test_report_has_the_keys_of_score_and_the_graph(recognizer: Recognizer, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set", some(5))
    report = evaluate(recognizer, folder, steps=2).to_dict()
    assert set(RATES) <= set(report)
    assert set(RATES) <= set(report["normalized"])
    assert {"exact", "le1", "le2", "count"} <= set(report["graph"])
    assert report["count"] == report["graph"]["count"] == 5
    assert report["normalized"]["ser"] == 0
    assert report["steps"] == 2
    json.dumps(report)


def test_an_unreadable_sample_is_wrong_and_listed(recognizer: Recognizer, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set", some(3))
    (folder / "broken.inkml").write_text("<ink><trace>")
    broken_truth = row("x+1", id="odd")
    text = to_inkml(broken_truth).replace("x+1", r"\frac{x")
    (folder / "odd.inkml").write_text(text)
    result = evaluate(recognizer, folder, steps=1)
    assert result.given[0].count == 5
    assert [p.id for p in result.unreadable] == ["broken.inkml"]
    assert "odd" in result.graphs[0].unreadable
    assert {"broken.inkml", "odd"} <= {p.id for p in result.normalized[0].problems}


def test_right_answers_are_counted(
    recognizer: Recognizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path / "set", [power(id="a"), fraction(id="b")])
    right = Decoded(
        recognizer.tokenizer.encode(["x", "^", "{", "2", "}", "+", "2"]),
        np.zeros((4, 2)),
        1,
        Seen(),
    )
    monkeypatch.setattr(
        "gryphone.scoring.evaluate.refine_all", lambda questions: [[right] for _ in questions]
    )
    report = evaluate(recognizer, folder, plain=True).to_dict()
    assert report["normalized"]["em"] == report["graph"]["exact"] == 50.0
    assert report["em"] == 50.0
    assert report["raw"]["em"] == 0.0  # the truth is written $x^2+2$


def test_several_parts_of_a_set_are_named_and_count_once(
    recognizer: Recognizer, tmp_path: Path
) -> None:
    one, two = (write_folder(tmp_path / name, [power(id=name)]) for name in ("one", "two"))
    report = evaluate(recognizer, one, two, steps=1).to_dict()
    assert report["dataset"] == f"{one}, {two}" and report["count"] == 2
    with pytest.raises(ConfigError, match="one is given twice"):
        evaluate(recognizer, one, two, one, steps=1)


def test_archives_limit_and_runs(recognizer: Recognizer, tmp_path: Path) -> None:
    files = {f"set/{ink.id}.inkml": to_inkml(ink).encode() for ink in some(6)}
    archive = write_tar(tmp_path / "set.tar.xz", files)
    result = evaluate(recognizer, archive, steps=2, limit=4, runs=3)
    assert len(result.given) == 3
    report = result.to_dict()
    assert report["count"] == 4
    assert report["runs"]["count"] == 3
    assert set(report["runs"]["graph"]["exact"]) == {"mean", "sd"}
    assert report["runs"]["em"]["mean"] == pytest.approx(sum(s.em for s in result.normalized) / 3)


LG = b"O, a, x, 1.0, 0\nO, b, 2, 1.0, 1\nR, a, b, Sup, 1.0\n"


def test_label_graphs_take_the_place_of_truths() -> None:
    files = {"p": LG, "s": b"torn"}
    truths = [
        Item(i, truth, None) for i, truth in zip("pqrs", ("x_2", "x_2", "{", "x"), strict=True)
    ]
    found = [true_graph(item, files) for item in truths]
    assert [source for source, _ in found] == ["lg", "latex", "unreadable", "unreadable"]
    assert [g and g.places[1].relation for _, g in found] == ["Sup", "Sub", None, None]


def test_the_report_says_where_its_graphs_come_from(recognizer: Recognizer, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set", some(3))
    archive = write_tar(tmp_path / "lg.tar", {"lg/s1.lg": LG, "lg/s2.lg": b"torn"}, "w")
    graph = evaluate(recognizer, folder, steps=1, lg=archive).to_dict()["graph"]
    assert graph["truths"] == "lg.tar"
    assert graph["truths_from"] == {"lg": 1, "latex": 1, "unreadable": 1}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.txt", r"no \.lg files"),
        ("other.lg", r"none of its 1 label graphs \(other\.lg, \.\.\.\)"),
    ],
)
def test_a_wrong_archive_of_label_graphs_is_refused(
    recognizer: Recognizer, tmp_path: Path, name: str, message: str
) -> None:
    folder = write_folder(tmp_path / "set", some(2))
    archive = write_tar(tmp_path / "lg.tar", {name: LG}, "w")
    with pytest.raises(DataError, match=message):
        evaluate(recognizer, folder, steps=1, lg=archive)


def test_the_command_says_what_it_cannot_use_once(
    recognizer: Recognizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path / "set", some(2))
    (folder / "torn.inkml").write_text("<ink>")
    archive = write_tar(tmp_path / "lg.tar", {"s1.lg": LG}, "w")
    monkeypatch.setattr("gryphone.cli.evaluation.load_weights", lambda *_: recognizer)
    app = typer.Typer()
    register(app)
    words = ["evaluate", str(folder), "--steps", "1", "--lg", str(archive)]
    notes = CliRunner().invoke(app, words, catch_exceptions=False).stderr.splitlines()
    first = "1 of 3 truths from lg.tar; 1 compared with the truth's LaTeX, 1 unreadable"
    assert f"{first} and counted as wrong" in notes
    about = [line for line in notes if "torn" in line]
    assert len(about) == 1 and about[0].startswith("torn.inkml: broken XML")


def test_images_with_labels_need_no_ink(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"this is no picture")
    (folder / "labels.tsv").write_text("a\tx\nmissing\ty\n")
    found = list(items(folder))
    assert [item.input for item in found] == [None, None]
    assert found[0].truth == "x"
    assert all(item.problem for item in found)


def test_files_of_one_name_are_told_apart(recognizer: Recognizer, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_folder(tmp_path / "set" / folder, [row("x", id="x")])
    write_folder(tmp_path / "set" / "b", [row("1", id="y")])
    result = evaluate(recognizer, tmp_path / "set", steps=1)
    assert [s.id for s in result.predictions] == ["a/x", "b/x", "y"]


def test_ids_differ_whatever_the_files_are_called() -> None:
    names = ["a/x.png", "a/x.json", "b/x.png", "y.png", "", ""]
    stems = ["x", "x", "x", "y", "z", "z"]
    found = [Item(i, "", None, name=n) for i, n in zip(stems, names, strict=True)]
    assert [i.id for i in told_apart(found)] == ["a/x.png", "a/x.json", "b/x", "y", "z", "z#2"]


def test_calibration_spells_truths_as_the_weights_do(recognizer: Recognizer) -> None:
    own = replace(recognizer.checkpoint, facts={"convention": "none"})
    assert len(_truth(recognizer, "x^2")) == 2
    assert _truth(replace(recognizer, checkpoint=own), "x^2") == [(-1,)]  # no `^` without braces


def test_bad_questions(recognizer: Recognizer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="limit is 0"):
        evaluate(recognizer, tmp_path, limit=0)
    with pytest.raises(DataError, match="no such file"):
        evaluate(recognizer, tmp_path / "nothing")


def test_drawn_length_does_not_depend_on_the_unit() -> None:
    ink = power()
    bigger = type(ink)(tuple(s * 7 for s in ink.strokes))
    assert drawn_length(bigger) == pytest.approx(drawn_length(ink))
    assert drawn_length(row("x+1=2")) > drawn_length(row("x"))


def test_plain_scores_the_last_step_alone(recognizer: Recognizer, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set", some(8))
    plain = evaluate(recognizer, folder, steps=3, plain=True)
    assert plain.to_dict()["plain"] and plain.passes == 3  # no second look
    assert plain.normalized[0].problems  # untrained weights: no valid LaTeX, as it was answered
    assert not evaluate(recognizer, folder, steps=3).normalized[0].problems
    masked = evaluate(recognizer, folder, steps=3, plain=True, method="mask-predict")
    assert masked.to_dict()["method"] == "mask-predict"
    assert masked.predictions != plain.predictions
    theirs = evaluate(recognizer, folder, steps=3, plain=True, remasking=Remasking(from_all=True))
    assert theirs.predictions != plain.predictions
    with pytest.raises(ConfigError, match="plain decoding takes a number of steps"):
        evaluate(recognizer, folder, steps="auto", plain=True)
    with pytest.raises(ConfigError, match="'beam' is unknown"):
        evaluate(recognizer, folder, steps=2, method="beam")


def test_the_first_run_is_what_recognize_answers_and_others_are_independent(
    recognizer: Recognizer, tmp_path: Path
) -> None:
    ink = some(1)[0]
    folder = write_folder(tmp_path / "set", [replace(ink, id=name) for name in "abcdef"])
    first = items(folder)
    _, found = zip(*decode_all(recognizer, [*first], Ask(steps=2, samples=2)), strict=True)
    keys = {d[0].ids.tobytes() for d in found}
    single = recognizer.encode(ink).decode(steps=2)
    assert keys == {np.asarray(single.ids, dtype=np.int64).tobytes()}  # one ink, one answer
    assert len({d[1].ids.tobytes() for d in found}) > 1  # and then draws of each sample's own


def test_decoding_is_as_the_network_was_trained(recognizer: Recognizer) -> None:
    keys, ask = np.zeros(1, dtype=np.int64), Ask(steps=2, plain=True)
    config = replace(PRESETS["ink"], length=60)
    for own, start in ((PRESETS["paper"], 150), (config, 48), (PRESETS["tiny"], 40)):
        checkpoint = replace(recognizer.checkpoint, config=own)
        options = replace(recognizer, checkpoint=checkpoint).request(ask, keys).options
        assert (options.start, options.remasking) == (start, own.remasking)
    assert PRESETS["paper"].remasking == Remasking(True, True, True)
