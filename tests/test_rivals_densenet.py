"""The published encoder: its sizes, and that padding and grouping change little or nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inkmaker import some

from gryphone.config import PRESETS, Canvas, ModelConfig
from gryphone.errors import ConfigError
from gryphone.kinds import build_model
from gryphone.raster import InkBatch, draw, to_patches
from gryphone.rivals import densenet
from gryphone.rivals.densenet import DenseNetEncoder, grouped, waves

CANVAS = Canvas("stroke", 160, 16, 16, stroke=32)
CONFIG = replace(PRESETS["tiny"], kind="comer", encoder="densenet", canvas=CANVAS, width=32)


def patches_of(count: int) -> Any:
    batch = InkBatch.from_strokes([ink.strokes for ink in some(count)])
    return to_patches(draw(batch, CANVAS), CANVAS, dense=True)


def test_its_parameters_are_those_published() -> None:
    """DenseNet-B of growth 24 and 16 layers: 48 -> 432 -> 216 -> 600 -> 300 -> 684 channels."""
    encoder = DenseNetEncoder(256)
    assert encoder.proj.in_channels == 684
    count = sum(p.numel() for p in encoder.parameters())
    layers = [c for start in (48, 216, 300) for c in range(start, start + 16 * 24, 24)]
    convolutions = sum(c * 96 + 96 * 24 * 9 for c in layers) + 49 * 48
    convolutions += 432 * 216 + 600 * 300 + 684 * 256
    norms = 2 * (48 + 48 * (96 + 24) + 216 + 300 + 684) + 2 * 256 + 256
    assert count == convolutions + norms


@torch.inference_mode()
def test_groups_change_nothing_in_pictures_of_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    encoder, patches = DenseNetEncoder(32).eval(), patches_of(5)
    together, rows = encoder(patches)
    assert together.shape == (len(patches.pixels), 32)
    monkeypatch.setattr(densenet, "PIXELS", 1)
    alone, _ = encoder(patches)
    for begin, end in zip(rows.offsets[:-1], rows.offsets[1:], strict=True):
        # A padded picture differs at its rim alone, where it sees padding instead of nothing.
        near = torch.cosine_similarity(together[begin:end], alone[begin:end], -1)
        assert float(near.mean()) > 0.9


def test_groups_hold_what_fits() -> None:
    shapes = np.array([[2, 3], [9, 9], [2, 2], [1, 7]])
    assert [group.tolist() for group in grouped(shapes)] == [[3, 2, 0, 1]]
    many = np.tile([[64, 64]], (5, 1))  # 2^20 pixels each
    assert [len(group) for group in grouped(many)] == [4, 1]


def test_places_are_relative() -> None:
    position, shape = torch.tensor([[0, 0], [1, 3]]), torch.tensor([[2, 4], [2, 4]])
    found = waves(position, shape, 8)
    whole = torch.tensor([0.0, 1.0])  # the last row and column are once round
    torch.testing.assert_close(found[1, [0, 1]], whole, atol=1e-5, rtol=0)
    torch.testing.assert_close(found[0, [0, 1]], torch.tensor([0.0, -1.0]), atol=1e-5, rtol=0)
    torch.testing.assert_close(found[0, [4, 5]], torch.tensor([1.0, 0.0]), atol=1e-5, rtol=0)


def test_a_canvas_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"set canvas\.patch: 16, canvas\.window: 16"):
        replace(PRESETS["tiny"], encoder="densenet")
    with pytest.raises(ConfigError, match="encoder 'cnn' is unknown"):
        ModelConfig(encoder="cnn")


def test_it_is_saved_and_trained_as_any_other(tmp_path: Path) -> None:
    from gryphone.checkpoint import load_model, save_checkpoint
    from gryphone.tokens import build_tokenizer

    tokenizer = build_tokenizer("raw", [["x", "+", "1"]])
    model = build_model(CONFIG, (5,))
    patches = patches_of(2)
    memory = model.encode(patches)
    sum(k.sum() + v.sum() for k, v in memory.keys_values).backward()  # type: ignore[union-attr]
    first = model.encoder.stem[0].weight  # type: ignore[index,union-attr]
    assert first.grad is not None and bool(first.grad.any())
    save_checkpoint(tmp_path / "c", model.state_dict(), CONFIG, tokenizer, {})
    again = load_model(tmp_path / "c")
    with torch.inference_mode():
        one, other = model.eval().encode(patches), again.encode(patches)
    torch.testing.assert_close(one.features, other.features, atol=1e-4, rtol=1e-4)
