from pathlib import Path

import pytest

from gryphone.analysis.ablation import last_scores, read_arms, table
from gryphone.errors import ConfigError, DataError

ROOT = Path(__file__).parents[1]


def test_arms_differ_in_what_they_name() -> None:
    arms = {
        c.name: c
        for c in read_arms(ROOT / "configs" / "ablation" / "synthesiser.yaml", {"minutes": 0.5})
    }
    assert {c.minutes for c in arms.values()} == {0.5}
    assert len(arms["ink alone"].sources) == 3
    assert arms["all, without distortion"].augment is None
    assert arms["all"].augment is not None
    swapped = arms["other glyphs in the same formulas"].sources[-1]
    assert swapped.style["exchange_samples"] == 0 and swapped.weight == 70


def test_a_file_without_arms_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("sources: []")
    with pytest.raises(ConfigError, match="with `arms`"):
        list(read_arms(path, {}))


def test_the_last_evaluation_counts(tmp_path: Path) -> None:
    (tmp_path / "eval.csv").write_text("step,em\n10,1.5\n20,2.5\n")
    assert last_scores(tmp_path) == {"step": 20, "em": 2.5}
    assert table({"a": {"em": 2.5}}).splitlines()[2] == "| a | 2.5 |"
    with pytest.raises(DataError, match="was not evaluated"):
        last_scores(tmp_path / "none")
