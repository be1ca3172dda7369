import json
from dataclasses import replace
from pathlib import Path

import pytest

import gryphone.training.train
from gryphone.config import PRESETS, Remasking
from gryphone.errors import ConfigError, DataError
from gryphone.studies.ablation import (
    check_arm,
    last_scores,
    main,
    read_arms,
    settings_of,
    table,
    train_arm,
)
from gryphone.training.settings import TrainConfig, config_of, load_config

ROOT = Path(__file__).parents[1]


def test_arms_differ_in_what_they_name() -> None:
    arms = {
        c.name: c
        for c in read_arms(
            ROOT / "configs" / "history" / "05-11-synthesiser.yaml", {"minutes": 0.5}
        )
    }
    assert {c.minutes for c in arms.values()} == {0.5}
    assert len(arms["ink alone"].sources) == 3
    assert arms["all, without distortion"].augment is None
    assert arms["all"].augment is not None
    swapped = arms["other glyphs in the same formulas"].sources[-1]
    assert swapped.style["exchange_samples"] == 0 and swapped.weight == 70


def test_every_rival_is_an_arm_and_a_file_of_its_own() -> None:
    """Both say the same; all see as many samples as ours."""
    folder = ROOT / "configs" / "baselines"
    arms = {c.name: c for c in read_arms(folder / "all.yaml", {})}
    files = {p.stem: load_config(p) for p in folder.glob("*.yaml") if p.stem != "all"}
    assert set(arms) - set(files) == {"ours", "ar-raw"}
    for name, own in files.items():
        assert replace(arms[name], name=name) == own
    ours = next(c for c in read_arms(ROOT / "configs" / "sat-rmml.yaml", {}) if c.name == "sat")
    assert replace(arms["ours"], name="sat") == ours
    for c in arms.values():
        assert (c.batch * c.shards, c.steps, c.sources) == (ours.batch, ours.steps, ours.sources)


def test_a_file_without_arms_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("sources: []")
    with pytest.raises(ConfigError, match="with `arms`"):
        list(read_arms(path, {}))


def arm(out: Path, **changes: object) -> TrainConfig:
    raw = {"name": "all", "sources": [{"path": "x"}], "out": str(out), **changes}
    return config_of(raw, "test")


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where an arm was trained, by nobody."""

    def train(config: TrainConfig, init: Path | None) -> None:
        folder = Path(config.out) / config.name
        (folder / "state-000000003").mkdir()
        (folder / "eval.csv").write_text("step,em\n3,50\n")

    monkeypatch.setattr(gryphone.training.train, "train", train)
    assert train_arm(arm(tmp_path / "out"), init=None) == {"step": 3, "em": 50}
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("changes", "init", "message"),
    [
        ({"lr": 0.5}, None, r"out/all: was trained with lr 0\.001, now it is 0\.5; .* --out"),
        ({"sources": [{"path": "y"}]}, None, r"sources\.0\.path 'x', now it is 'y'"),
        ({"steps": 9}, None, "steps 1000000, now it is 9"),
        ({}, Path("/weights"), "init None, now it is '/weights'"),
    ],
)
def test_an_arm_belongs_to_its_settings(
    trained: Path, changes: dict[str, object], init: Path | None, message: str
) -> None:
    check_arm(arm(trained), None)
    with pytest.raises(ConfigError, match=message):
        check_arm(arm(trained, **changes), init)
    check_arm(arm(trained, name="another", **changes), init)


def test_an_arm_of_unknown_settings_is_not_gone_on_with(trained: Path) -> None:
    moved = trained.rename(trained.with_name("moved"))
    check_arm(arm(moved), None)  # the place does not matter
    (moved / "all" / "settings.json").unlink()
    with pytest.raises(ConfigError, match=r"moved/all: holds a run, and no settings\.json"):
        check_arm(arm(moved), None)


def test_what_was_not_trained_may_change(tmp_path: Path) -> None:
    config = arm(tmp_path)
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "settings.json").write_text(json.dumps(settings_of(config, None)))
    check_arm(arm(tmp_path, lr=0.5), None)


def test_the_last_evaluation_counts(tmp_path: Path) -> None:
    (tmp_path / "eval.csv").write_text("step,em,old\n10,1.5,3\n20,2.5,\n")
    assert last_scores(tmp_path) == {"step": 20, "em": 2.5}
    assert table({"a": {"em": 2.5}}).splitlines()[2] == "| a | 2.5 |"
    with pytest.raises(DataError, match="was not evaluated"):
        last_scores(tmp_path / "none")


def test_the_paper_s_four_arms_differ_in_what_they_study_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = ROOT / "configs" / "sat-rmml.yaml"
    arms = {config.name: config for config in read_arms(path, {})}
    assert {n: (c.scheme, c.rmml) for n, c in arms.items()} == {
        "raw": ("raw", False),
        "raw-rmml": ("raw", True),
        "sat": ("sat", False),
        "sat-rmml": ("sat", True),
    }
    alike = {repr(replace(c, name="x", scheme="sat", rmml=True)) for c in arms.values()}
    assert len(alike) == 1
    monkeypatch.setattr("sys.argv", ["ablation", str(path), "--only", "sta"])
    with pytest.raises(ConfigError, match="--only sta: the arms are raw, raw-rmml, sat, sat-rmml"):
        main()


def test_the_paper_s_network_is_trained_on_what_is_here() -> None:
    arms = {c.name: c for c in read_arms(ROOT / "configs" / "paper-here.yaml", {"minutes": 14})}
    paper, together = arms["paper"], arms["together"]
    assert paper.model == PRESETS["paper"] and paper.drop_from and paper.shared_time
    assert together.model == replace(PRESETS["paper"], remasking=Remasking())
    assert paper.batch * paper.shards == 128 and paper.minutes == 14
