"""PosFormer: a second decoder over the position forest teaches the encoder where tokens stand.

A token's code in the forest is the way to it from the outermost group in: above (a superscript, a
numerator, a root's index) or below (a subscript, a denominator, a radicand), and at last the row
itself. The second decoder reads the codes of what was written, and predicts how deep the next
token lies and on which side. Reading needs the first decoder alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gryphone.config import ModelConfig
from gryphone.model import DecoderBlock, GryphOne, Memory
from gryphone.rivals.causal import attend_causal
from gryphone.rivals.coverage import CoverageDecoder, coverage_network
from gryphone.rivals.structure import (
    DOWN,
    END,
    OPEN,
    PAIR,
    RIGHT,
    ROOT,
    UP,
    Groups,
    at,
    groups_of,
    roles_of,
    rows_in,
    shifted,
)
from gryphone.rivals.trunk import Sheet

NOTHING, FIRST, LAST, ROW, ABOVE, BELOW = range(6)
DEPTH = 5  # codes of a token; deeper ones are cut
WEIGHT = 0.25  # of either loss of positions


def forest_network(
    config: ModelConfig, vocabularies: tuple[int, ...], names: Sequence[str]
) -> GryphOne:
    """Encoder, decoder, and a decoder of positions."""
    network = coverage_network(config, vocabularies, names, ForestDecoder)
    assert isinstance(network.decoder, ForestDecoder)
    network.decoder.roles = roles_of("posformer", vocabularies, names)
    return network


def codes_of(groups: Groups) -> Tensor:
    """The way to each token, (C, L, DEPTH): sides from the outermost group in, ROW, then NOTHING.

    Marks stand where the group does that they belong to. Groups that are no side of anything (the
    argument of an accent) are part of the row around them.
    """
    before, second = groups.before, groups.second
    braces = groups.opens & (groups.role == OPEN)
    above = (groups.opens & ~braces) | (braces & ((before == UP) | (before == PAIR)))
    below = braces & ((before == DOWN) | (before == ROOT) | second)
    below |= braces & (before == RIGHT) & shifted(groups.closes)
    side = torch.where(above, ABOVE, torch.where(below, BELOW, NOTHING))
    opens = above | below
    closes = groups.closes & (at(side, groups.opener, NOTHING) != NOTHING)
    level = opens.long().cumsum(1) - opens.long() - closes.long().cumsum(1)
    place, ways = torch.arange(level.shape[1], device=level.device), []
    for depth in range(DEPTH):
        last = torch.where(opens & (level == depth), place, -1).cummax(1).values
        way = at(side, last, ROW)
        way = torch.where(level == depth, ROW, way)
        ways.append(torch.where(level < depth, NOTHING, way))
    return torch.stack(ways, 2).masked_fill((groups.role == END)[..., None], NOTHING)


def targets_of(codes: Tensor) -> tuple[Tensor, Tensor]:
    """How deep tokens with codes (N, DEPTH) lie, from 0 to DEPTH - 1, and on which side (N,)."""
    level = ((codes == ABOVE) | (codes == BELOW)).sum(1).clamp_max(DEPTH - 1)
    side = codes.gather(1, (level - 1).clamp_min(0)[:, None])[:, 0]
    return level, side


class ForestDecoder(CoverageDecoder):
    """The second decoder has blocks as the first one has, and as many."""

    roles: Tensor

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**sizes)
        width = sizes["width"]
        self.read_code = nn.Sequential(nn.Linear(DEPTH, width), nn.GELU(), nn.LayerNorm(width))
        self.code_position = nn.Embedding(sizes["length"], width)
        nn.init.normal_(self.code_position.weight, std=0.02)
        style = {name: sizes[name] for name in ("norm_every", "feedforward", "activation")}
        shared = (width, sizes["heads"], sizes["attention_dropout"], sizes["dropout"])
        self.forest = nn.ModuleList(DecoderBlock(*shared, **style) for _ in self.blocks)
        for block in self.forest:
            block.attn.attend = attend_causal  # type: ignore[union-attr]
        self.after = nn.LayerNorm(width)
        self.level_head, self.side_head = (
            nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, size))
            for size in (DEPTH, BELOW + 1)
        )
        self.register_buffer("roles", torch.zeros(0, dtype=torch.long), persistent=False)

    def counted(self, tokens: Tensor) -> Tensor:
        """Implicit attention correction: behind an opening mark nobody knows where to look yet."""
        role = self.roles[tokens[:, 0]]
        return (role != OPEN) & (role != UP) & (role != DOWN)

    @property
    def more_blocks(self) -> Sequence[nn.Module]:
        return list(self.forest)

    def losses(self, states: Tensor, sheet: Sheet, memory: Memory) -> dict[str, Tensor]:
        with torch.no_grad():
            rows = rows_in(sheet)
            codes = rows.written(codes_of(groups_of(self.roles[rows.ids])))  # (N, DEPTH)
            level, side = targets_of(codes)
            start = F.pad(torch.where(sheet.backward, LAST, FIRST)[:, None], (0, DEPTH - 1))
            first = (sheet.index == 0)[:, None]
            before = torch.where(first, start[sheet.canvas], codes.roll(1, 0))
        x = self.read_code(before.to(self.after.weight.dtype)) + self.code_position(sheet.index)
        x = x.to(memory.keys_values[0][0].dtype)
        own, images = sheet.own, len(memory.rows.offsets) - 1
        ways = len(sheet.backward) // images
        together = type(own)(own.offsets[::ways].contiguous(), own.longest * ways, own.uniform)
        for block in self.forest:
            seen = block.cross.remember(memory.features)  # type: ignore[union-attr,operator]
            x = block(x, seen, own, together, memory.rows)
        x = self.after(x)
        return {
            "level": WEIGHT * F.cross_entropy(self.level_head(x).float(), level),
            "side": WEIGHT * F.cross_entropy(self.side_head(x).float(), side),
        }
