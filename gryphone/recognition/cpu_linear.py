"""Linear layers whose weights are laid out once for this CPU: the same numbers in less time.

PyTorch lays a layer's weights out anew at every call, which costs more than the arithmetic where
few rows go through (one formula: 16 to 150). oneDNN can keep them ready; TorchInductor calls the
same operators. On two cores a layer takes 50 to 75 % of its time.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn

# oneDNN keeps what it made for a shape, up to 1024 times half a megabyte, and nearly every ink has
# a shape of its own: one answer needs about a hundred of them. Read at its first use.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")


class PackedLinear(nn.Module):
    """A linear layer for inference on the CPU."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), None)
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return out


def prepack(model: nn.Module) -> None:
    """Replace a network's linear layers, where PyTorch and this CPU can do it."""
    if not _works():
        return
    for module in list(model.modules()):
        for name, layer in list(module.named_children()):
            if type(layer) is nn.Linear:
                setattr(module, name, PackedLinear(layer))


@torch.inference_mode()
def _works() -> bool:
    """The operators are PyTorch's own business: they may be missing or refuse this CPU."""
    layer, x = nn.Linear(8, 8), torch.ones(3, 8)
    try:
        return torch.allclose(PackedLinear(layer)(x), layer(x), atol=1e-5)
    except (AttributeError, RuntimeError):
        return False
