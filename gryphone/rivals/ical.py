"""ICAL: a second look at the states that asks for the implicit characters, and a fusion of both.

`{`, `}`, `^` and `_` leave no ink. A causal layer behind the decoder predicts these alone, every
other token is one class to it; a gate mixes its states with the decoder's, and what is written
comes from the mixture. The decoder's own states are asked for the tokens, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gryphone.config import ModelConfig
from gryphone.model import EncoderBlock, GryphOne, Memory, Packing
from gryphone.rivals.causal import Writer, attend_causal
from gryphone.rivals.coverage import CoverageDecoder, CoverageWriter, coverage_network
from gryphone.rivals.structure import CLOSE, DOWN, END, OPEN, UP, roles_of
from gryphone.rivals.trunk import Sheet

CLASSES = (END, OPEN, CLOSE, UP, DOWN)  # 1 to 5; 0 is every other token


def implicit_network(
    config: ModelConfig, vocabularies: tuple[int, ...], names: Sequence[str]
) -> GryphOne:
    """Encoder and a decoder with the implicit characters' aid."""
    network = coverage_network(config, vocabularies, names, AidedDecoder)
    assert isinstance(network.decoder, AidedDecoder)
    network.decoder.implicit = implicit_of(roles_of("ical", vocabularies, names))
    return network


def implicit_of(roles: Tensor) -> Tensor:
    """The class (V,) of each token among the implicit characters, by its role."""
    classes = torch.zeros_like(roles)
    for number, role in enumerate(CLASSES, 1):
        classes[roles == role] = number
    return classes


def implicit_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of classes (N,); the more of them are 0, the more the others weigh."""
    share = (target == 0).float().mean()
    weights = logits.new_ones(logits.shape[1], dtype=torch.float32)
    weights[1:] = (1 + torch.log1p(1 / (1 - share + 1e-6))).clamp_max(10)
    return F.cross_entropy(logits.float(), target, weights)


class AidedDecoder(CoverageDecoder):
    """Its states are (N, 2 * width): those of the tokens, and those of the implicit characters."""

    implicit: Tensor

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**sizes)
        width = sizes["width"]
        self.block = EncoderBlock(width, sizes["heads"], sizes["dropout"])
        self.block.attn.attend = attend_causal
        self.after = nn.LayerNorm(width)
        self.gate = nn.Linear(2 * width, width)
        self.explicit_head = nn.Linear(width, sizes["vocabularies"][0])
        self.implicit_head = nn.Linear(width, len(CLASSES) + 1)
        self.register_buffer("implicit", torch.zeros(0, dtype=torch.long), persistent=False)

    @property
    def more_blocks(self) -> Sequence[nn.Module]:
        return [self.block]

    def hidden(
        self,
        tokens: Tensor,
        index: Tensor,
        memory: Memory,
        own: Packing,
        queries: list[Tensor] | None = None,
    ) -> Tensor:
        x = super().hidden(tokens, index, memory, own, queries)
        return torch.cat([x, self.after(self.block(x, own))], 1)

    def logits(self, x: Tensor) -> list[Tensor]:
        explicit, implicit = x.chunk(2, 1)
        gate = torch.sigmoid(self.gate(x))
        fused = gate * implicit + (1 - gate) * explicit
        return [head(F.relu(fused)) for head in self.heads]

    def losses(self, states: Tensor, sheet: Sheet, memory: Memory) -> dict[str, Tensor]:
        explicit, implicit = states.chunk(2, 1)
        truth = sheet.truth[:, 0]
        return {
            "explicit": F.cross_entropy(self.explicit_head(explicit).float(), truth),
            "implicit": implicit_loss(self.implicit_head(F.relu(implicit)), self.implicit[truth]),
        }

    def writer(self, memory: Memory, rows: int, length: int) -> Writer:
        return AidedWriter(self, memory, rows, length)


class AidedWriter(CoverageWriter):
    """Keeps the past of the layer behind the decoder, too."""

    def __init__(self, decoder: AidedDecoder, memory: Memory, rows: int, length: int) -> None:
        super().__init__(decoder, memory, rows, length)
        self.aid = decoder
        self.kept.append(torch.empty_like(self.kept[0]))

    def finish(self, x: Tensor) -> Tensor:
        block = self.aid.block
        y = x + self.look_back(block.attn, block.norm1(x), self.kept[-1])
        y = y + block.mlp(block.norm2(y))
        return torch.cat([x, self.aid.after(y)], 1)
