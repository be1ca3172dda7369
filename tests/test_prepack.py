"""Weights laid out for the CPU give the same numbers."""

from pathlib import Path

import pytest
import torch
from tinymodel import tiny_checkpoint
from torch import nn

import gryphone
from gryphone.recognition.cpu_linear import PackedLinear, prepack


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 7, 48, 300])
def test_a_packed_layer_is_the_layer(rows: int, bias: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 40, bias=bias), nn.GELU(), nn.Linear(40, 5))
    x = torch.randn(rows, 24)
    with torch.inference_mode():
        before = model(x)
        prepack(model)
        assert torch.allclose(model(x), before, atol=1e-6)
    assert type(model[0]) is type(model[2]) is PackedLinear


def test_where_the_operators_fail_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: PackedLinear, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(PackedLinear, "forward", refuse)
    model = nn.Sequential(nn.Linear(3, 4))
    prepack(model)
    assert type(model[0]) is nn.Linear


def test_a_loaded_recogniser_is_packed(tmp_path: Path) -> None:
    model = gryphone.load(tiny_checkpoint(tmp_path)).checkpoint.model
    assert not [m for m in model.modules() if type(m) is nn.Linear]
