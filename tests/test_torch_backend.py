"""PyTorch behind the backend seam: packed layers, and strokes found again in the patches."""

from pathlib import Path

import numpy as np
import pytest
import torch
from inkmaker import power, row, some
from tinymodel import tiny_checkpoint
from torch import nn

import gryphone
from gryphone.config import PRESETS
from gryphone.kinds import build_model
from gryphone.recognition.torch_backend import (
    PackedLinear,
    TorchBackend,
    pack_linear_layers,
    strokes_on_patches,
)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 7, 48, 300])
def test_a_packed_layer_is_the_layer(rows: int, bias: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 40, bias=bias), nn.GELU(), nn.Linear(40, 5))
    x = torch.randn(rows, 24)
    with torch.inference_mode():
        before = model(x)
        pack_linear_layers(model)
        assert torch.allclose(model(x), before, atol=1e-6)
    assert type(model[0]) is type(model[2]) is PackedLinear


def test_where_the_operators_fail_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: PackedLinear, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(PackedLinear, "forward", refuse)
    model = nn.Sequential(nn.Linear(3, 4))
    pack_linear_layers(model)
    assert type(model[0]) is nn.Linear


def test_a_loaded_recogniser_is_packed(tmp_path: Path) -> None:
    model = gryphone.load(tiny_checkpoint(tmp_path)).backend.model
    assert not [m for m in model.modules() if type(m) is nn.Linear]


def test_stroke_pixels_are_counted_on_the_patches_of_their_sample() -> None:
    inks = [power(), row("x+1")]
    config = PRESETS["tiny"]
    backend = TorchBackend(build_model(config, (9, 4)).eval(), config)
    drawn = backend.encode([ink.strokes for ink in inks])
    for sample, ink in enumerate(inks):
        counts = strokes_on_patches(drawn, config.canvas.patch, sample)
        assert counts.shape == (len(ink.strokes), int(drawn.patches.offsets.diff()[sample]))
        assert counts.sum() == (drawn.pixels.sample == sample).sum()
        assert (counts.sum(0) > 0).all()
        assert (counts.sum(1) > 0).all()


def test_a_part_of_the_memory_gives_the_same_answer() -> None:
    config = PRESETS["tiny"]
    backend = TorchBackend(build_model(config, (9, 4)).eval(), config)
    memory = backend.encode([ink.strokes for ink in some(4)])
    tokens = np.random.default_rng(0).integers(0, 4, (4, 5, 2))
    lengths = np.full(4, 5)
    whole = backend.predict(memory, tokens, lengths, np.arange(4))
    one = backend.predict(backend.select(memory, [1]), tokens[1:2], lengths[1:2], np.zeros(1, int))
    for part, all_of_it in zip(one, whole, strict=True):
        assert np.allclose(part[0], all_of_it[1], atol=2e-5)
    canvases = list(tokens)
    seen = backend.evidence(memory, canvases)
    alone = backend.evidence(backend.select(memory, [2]), canvases[2:3])
    assert seen is not None and alone is not None
    assert np.allclose(alone[0].scores, seen[2].scores, atol=1e-4)
    assert np.array_equal(alone[0].strokes, seen[2].strokes)


def test_a_gpu_s_data_types_are_no_obstacle() -> None:
    """On a GPU the memory is in bfloat16: tokens are predicted, and found, all the same."""
    config = PRESETS["tiny"]
    model = build_model(config, (9, 4)).eval()
    exact, rough = TorchBackend(model, config), TorchBackend(model, config, half=True)
    canvas = np.full((4, 2), 2)
    seen = [backend.encode([power().strokes]) for backend in (exact, rough)]
    assert seen[1].memory.keys_values[0][0].dtype == torch.bfloat16
    for backend, memory in zip((exact, rough), seen, strict=True):
        log_probs = backend.predict(memory, canvas[None], np.array([4]), np.zeros(1, int))
        assert [x.dtype for x in log_probs] == [np.float32] * 2
    (one,), (other,) = exact.evidence(seen[0], [canvas]), rough.evidence(seen[1], [canvas])
    assert other.scores.dtype == np.float32
    assert np.allclose(one.scores, other.scores, atol=0.5)
