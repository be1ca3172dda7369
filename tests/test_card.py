from pathlib import Path

import pytest

from gryphone.analysis.card import by_class, by_length, read_answers, results, table, write
from gryphone.errors import DataError
from gryphone.metrics import Sample

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
