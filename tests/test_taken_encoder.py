"""Fresh decoders of any kind on an encoder that was trained elsewhere."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tinymodel import tiny_run

from gryphone.checkpoint import read_tensors
from gryphone.config import PRESETS
from gryphone.errors import CheckpointError, ConfigError
from gryphone.studies.ablation import read_arms
from gryphone.training.settings import TrainConfig
from gryphone.training.train import train

CONFIG = Path(__file__).parents[1] / "configs" / "one-encoder.yaml"


def config(tmp_path: Path, **settings: object) -> TrainConfig:
    return tiny_run(tmp_path, **{"name": "first", "batch": 8, "steps": 3, **settings})


def run(settings: TrainConfig) -> Path:
    return train(settings, report=lambda line: None)


def test_decoders_of_any_kind_begin_with_an_encoder(tmp_path: Path) -> None:
    first = read_tensors(run(config(tmp_path)))
    # So slow that nothing moves: what is saved is what it began with.
    taken = {"encoder": str(tmp_path / "runs" / "first"), "steps": 1, "lr": 1e-12, "seed": 1}
    for name, kind, scheme, rmml in (
        ("ours", "diffusion", "sat", True),
        ("ar", "ar", "sat", False),
        ("bttr", "bttr", "raw", False),
    ):
        model = replace(PRESETS["tiny"], kind=kind)
        arm = config(tmp_path, name=name, model=model, scheme=scheme, rmml=rmml, **taken)
        begun = read_tensors(run(arm))
        for key in (key for key in first if key.startswith("encoder.")):
            assert torch.allclose(begun[key], first[key], atol=1e-6)
        heads = "decoder.heads.0.weight"
        assert begun[heads].shape != first[heads].shape or (begun[heads] != first[heads]).any()


def test_an_encoder_of_another_size_is_named(tmp_path: Path) -> None:
    first = run(config(tmp_path))
    deep = replace(PRESETS["tiny"], encoder_depth=PRESETS["tiny"].encoder_depth + 1)
    with pytest.raises(CheckpointError, match="does not fit this run's; set model"):
        run(config(tmp_path, name="deep", model=deep, encoder=str(first)))
    with pytest.raises(CheckpointError, match="nowhere"):
        run(config(tmp_path, name="none", encoder=str(tmp_path / "nowhere")))


def test_a_run_begins_with_one_thing(tmp_path: Path) -> None:
    first = run(config(tmp_path))
    both = config(tmp_path, name="both", encoder=str(first))
    with pytest.raises(ConfigError, match=r"--init .*first.* and encoder .*first.*; keep one"):
        train(both, init=first, report=lambda line: None)


def test_arms_on_one_encoder_differ_in_their_decoders_alone() -> None:
    arms = {c.name: c for c in read_arms(CONFIG, {}) if c.model.encoder == "vit"}
    ours = arms["ours"]
    assert {"ours-raw", "ours-rmml", "ours-raw-rmml", "ar", "comer", "namer"} <= arms.keys()
    for c in arms.values():
        same = (c.encoder, c.batch, c.steps, c.lr, c.sources, c.augment, c.model.canvas)
        assert same == (
            ours.encoder, 512, 800, ours.lr, ours.sources, ours.augment, ours.model.canvas
        )  # fmt: skip
        assert c.model.decoder_depth == 3
