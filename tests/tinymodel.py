"""A tiny checkpoint with random weights: it reads nothing well, but answers like a real one."""

from pathlib import Path

import torch

from gryphone.checkpoint import save_checkpoint
from gryphone.config import PRESETS
from gryphone.kinds import build_model
from gryphone.latex.normalize import normalize
from gryphone.tokens import build_tokenizer

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
