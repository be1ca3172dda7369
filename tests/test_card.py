import runpy
import sys
from pathlib import Path

import pytest

from gryphone.errors import DataError
from gryphone.release.card import by_class, by_length, read_answers, results, table, write
from gryphone.release.common import first_difference
from gryphone.scoring.metrics import Sample

SAMPLES = [
    Sample("a", "x ^ { 2 }", "x ^ { 2 }"),
    Sample("b", "X + 1", "x + 1"),
    Sample("c", r"\frac { a } { b }", None),
    Sample("d", "} broken", "1"),
]


def test_every_sample_counts() -> None:
    assert by_length(SAMPLES).splitlines()[2:] == ["| 1–4 | 2 | 0.0 |", "| 5–9 | 2 | 50.0 |"]


def test_classes_and_confusions() -> None:
    classes, confusions = by_class(SAMPLES[:2])
    assert "| capitals | 1 | 0.0 |" in classes
    assert "| digits | 2 | 100.0 |" in classes
    assert "`X` → `x` 1" in confusions


def test_predictions_are_found_by_their_names(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no"):
        read_answers(tmp_path)
    (tmp_path / "valid-2013.T10.tsv").write_text("a\tx\tx\nb\ty\tx\n")
    (tmp_path / "valid-2013.T10.3.tsv").write_text("a\tx\tx\n")
    answers = read_answers(tmp_path)
    assert {(a.name, a.steps, a.run) for a in answers} == {
        ("valid-2013", 10, 0),
        ("valid-2013", 10, 3),
    }
    assert "| CROHME 2013 (validation) | 2 | 50.0 (0.0–100.0) | 50.0 |" in results(answers)
    (tmp_path / "wrong.tsv").write_text("a\tx\tx\n")
    with pytest.raises(DataError, match="the name must be"):
        read_answers(tmp_path)


def test_only_the_generated_parts_are_written() -> None:
    card = "before\n<!-- generated runs -->\nold\n<!-- end runs -->\nafter"
    assert write(card, {"runs": "new"}) == card.replace("old", "new")
    with pytest.raises(DataError, match="runs"):
        write(card, {"results": ""})
    assert table("a | b", [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("card .", "holds no .tsv of predictions"),
        ("card a --weights nowhere", "nowhere is no checkpoint directory"),
        ("card a --write none/card.md", "none/card.md: No such file"),
        ("calibration .", "inkml"),
        (
            "calibration . --write",
            "--write stores the maps in a checkpoint; name it with --weights",
        ),
        ("calibration . --weights nowhere", "nowhere is no checkpoint directory"),
        ("release nowhere --out out", "nowhere is no checkpoint directory"),
        ("release nowhere --out out --metrics a/a.T10.tsv", "a.T10.tsv: cannot be read"),
        ("ablation none.yaml", "none.yaml: give a training configuration with `arms`"),
        ("ablation arms.yaml --set lr", "--set lr: write it as name=value"),
        ("ablation arms.yaml --set lr=[", "--set lr=[: '[' is no YAML value"),
        ("ablation arms.yaml --set colour=3", "unknown setting 'colour'"),
        ("hands . out.parquet", "holds no tokenizer.json"),
        ("invariance .", "inkml"),
        ("invariance . --limit 0", "limit is 0"),
    ],
)
def test_what_a_user_does_wrong_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    message: str,
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "a.T10.tsv").write_text("1\tx\tx\n")
    (tmp_path / "arms.yaml").write_text("sources: [{path: x}]\narms: {a: {}}")
    name, *arguments = command.split()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
    with pytest.raises(SystemExit) as stopped:
        room = "release" if name in ("card", "calibration", "release") else "studies"
        runpy.run_module(f"gryphone.{room}.{name}", run_name="__main__")
    (line,) = capsys.readouterr().err.splitlines()
    assert stopped.value.code == 2
    assert line.startswith(f"{name}: ") and message in line


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ({"a": 1, "b": {"c": [1, 2]}}, {"a": 1, "b": {"c": (1, 2)}}, None),
        ({"b": {"c": [1, 2]}}, {"b": {"c": [1, 3]}}, ("b.c.1", 2, 3)),
        ({"a": [1]}, {"a": [1, "z"]}, ("a.1", None, "z")),
        ({"a": 1}, {}, ("a", 1, None)),
    ],
)
def test_the_first_difference_of_settings(one: object, other: object, found: object) -> None:
    assert first_difference(one, other) == found
