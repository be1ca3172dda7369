"""TAMER: each token's parent in the tree of the formula is predicted, and weighs in the beam.

A row of symbols is a chain: a symbol's parent is the one before it, that of a group's first symbol
the one that the group belongs to (the base of a script, the fraction, the root). Marks that leave
no ink have no parent; the end's is the last token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gryphone.config import ModelConfig
from gryphone.model import EncoderBlock, GryphOne, Memory
from gryphone.rivals.coverage import CoverageDecoder, coverage_network
from gryphone.rivals.structure import (
    DOWN,
    END,
    UP,
    Groups,
    at,
    groups_of,
    last_before,
    roles_of,
    rows_in,
    well_formed,
)
from gryphone.rivals.trunk import Sheet

NONE = -1  # no parent is asked for
ILLEGAL = -1e3  # for what is no formula: below all that are


def tree_network(
    config: ModelConfig, vocabularies: tuple[int, ...], names: Sequence[str]
) -> GryphOne:
    """Encoder and a decoder that knows trees."""
    network = coverage_network(config, vocabularies, names, TreeDecoder)
    assert isinstance(network.decoder, TreeDecoder)
    network.decoder.roles = roles_of("tamer", vocabularies, names)
    return network


def parents_of(groups: Groups) -> Tensor:
    """The place (C, L) of each symbol's parent, or NONE."""
    role = groups.role
    marks = groups.opens | groups.closes | (role == UP) | (role == DOWN) | (role == END)
    last = last_before(~marks, groups.owner, groups.owner)
    parent = torch.where(last >= 0, last, at(last, groups.owner, NONE))
    return parent.masked_fill(marks, NONE)


class TreeDecoder(CoverageDecoder):
    """Parents are found by attention of all states of a canvas on each other."""

    roles: Tensor

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**sizes)
        width = sizes["width"]
        self.block = EncoderBlock(width, sizes["heads"], sizes["dropout"])
        self.way = nn.Embedding(2, width)
        self.after = nn.LayerNorm(width)
        self.child, self.parent = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.normal_(self.way.weight, std=0.02)
        self.register_buffer("roles", torch.zeros(0, dtype=torch.long), persistent=False)

    @property
    def more_blocks(self) -> Sequence[nn.Module]:
        return [self.block]

    def log_odds(self, states: Tensor, sheet: Sheet) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probs (C, L) of parents, in the order of writing and 0 where none is asked for; where
        they are (C, L); and which canvases (C,) are formulas."""
        with torch.no_grad():
            rows = rows_in(sheet)
            groups, count = groups_of(self.roles[rows.ids]), rows.lengths[:, None]
            place = torch.arange(rows.ids.shape[1], device=count.device)
            parent = parents_of(groups).gather(1, rows.turn)
            turned = sheet.backward[:, None] & (parent >= 0)
            parent = torch.where(turned, count - 1 - parent, parent)
            parent = torch.where(place == count, count - 1, parent)  # of the end
            real, asked = place <= count, parent >= 0
        x = states + self.way(sheet.backward.long())[sheet.canvas].to(states.dtype)
        x = self.after(self.block(x, sheet.own))
        both = torch.cat([self.child(x), self.parent(x)], 1)
        padded = both.new_zeros(real.numel(), both.shape[1]).index_copy(0, rows.slot, both)
        child, other = padded.view(*real.shape, -1).chunk(2, 2)  # (C, L, width)
        alike = (child @ other.transpose(1, 2)).float() / child.shape[2] ** 0.5  # (C, L, L)
        alike = alike.masked_fill(~real[:, None], -torch.inf)
        odds = alike.log_softmax(2).gather(2, parent.clamp_min(0)[..., None])[..., 0]
        return odds.masked_fill(~asked, 0), asked, well_formed(groups)

    def losses(self, states: Tensor, sheet: Sheet, memory: Memory) -> dict[str, Tensor]:
        odds, asked, _ = self.log_odds(states, sheet)
        return {"parents": -odds.sum() / asked.sum().clamp_min(1)}

    def score(self, states: Tensor, sheet: Sheet) -> Tensor | None:
        odds, asked, formula = self.log_odds(states, sheet)
        mean = odds.sum(1) / asked.sum(1).clamp_min(1)
        # Both directions are added up, where the published score is their mean.
        return torch.where(formula, mean / 2, ILLEGAL)
