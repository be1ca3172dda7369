"""A tiny checkpoint with random weights, which reads nothing well, but answers like a real one; and
the settings of a tiny training."""

from dataclasses import replace
from pathlib import Path

import torch
from inkmaker import write_inks

from gryphone.checkpoint import save_checkpoint
from gryphone.config import PRESETS
from gryphone.kinds import build_model
from gryphone.latex.normalize import normalize
from gryphone.tokens import build_tokenizer
from gryphone.training.settings import SourceConfig, TrainConfig

LABELS = [
    r"x^{2}+1=0",
    r"\frac{1}{2}-x",
    r"\sqrt{3}",
    r"x_{1}+4^{5}",
    r"\frac{x}{7}=(x+2)",
    r"\sqrt{\frac{1}{x^{2}}}",
    r"n-.",
]


def tiny_checkpoint(path: Path, seed: int = 0) -> Path:
    """Write one, and return where it is."""
    torch.manual_seed(seed)
    tokenizer = build_tokenizer("sat", [normalize(label) for label in LABELS])
    config = PRESETS["tiny"]
    model = build_model(config, tuple(len(v) for v in tokenizer.vocabularies))
    facts = {"convention": "crohme", "licence": "none"}
    save_checkpoint(path, model.state_dict(), config, tokenizer, facts)
    return path


def tiny_run(tmp_path: Path, **settings: object) -> TrainConfig:
    """A training on 64 made-up inks, with some settings of its own."""
    folder = tmp_path / "inks"
    if not folder.exists():
        write_inks(folder, 64)
    base = TrainConfig(
        name="run",
        sources=(SourceConfig(str(folder)),),
        model=PRESETS["tiny"],
        out=str(tmp_path / "runs"),
        batch=64,
        warmup_steps=20,
        weight_decay=0.0,
        ema=0.9,
        augment=None,
        precision="no",
        log_every=10,
        eval_steps=(1, 5),
        save_minutes=1e9,
        eval_minutes=1e9,
    )
    return replace(base, **settings)  # type: ignore[arg-type]
