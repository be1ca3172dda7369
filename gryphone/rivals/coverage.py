"""CoMER: attention on the image is refined by what was looked at before.

Before a place looks at the patches, the attention that earlier places paid to each of them is
summed up, head by head: that of this layer (self-coverage) and the refined one of the layer before
(cross-coverage). A convolution of kernel 5 over the patch grid, a projection to the heads and a
norm make of both sums what is taken off the scores, which are normalised anew. The first layer has
nothing to refine by; all others share the weights.

The encoder keeps inked patches alone. Blank ones are never looked at, so that their sums are zero:
a convolution over the neighbours that exist is the one over the grid, at the patches that count.
All maps of a batch are large: images of about one size are taken together, as many as `PAIRS`
allow, and a backward pass computes their maps anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from gryphone.config import ModelConfig
from gryphone.errors import ConfigError
from gryphone.kinds import network_with
from gryphone.model import CrossAttention, Decoder, DecoderBlock, GryphOne, Memory, Packing
from gryphone.rivals.causal import CausalDecoder, Writer
from gryphone.rivals.trunk import Rival, TwoWayDecoder

KERNEL, HIDDEN = 5, 32  # as published
PAIRS = 2**20  # pairs of token and patch, padded, whose maps are made at once
NARROW = 1e-5  # least variance
FAR = 1 << 20  # more than any grid has columns


def coverage_network(
    config: ModelConfig,
    vocabularies: tuple[int, ...],
    names: Sequence[str],
    decoder: type[Decoder] | None = None,
) -> GryphOne:
    """Encoder and decoder with coverage, or a rival's that has it, in the settings' sizes."""
    if config.dense:
        raise ConfigError(f"kind {config.kind!r} has no grid with dense: true; set dense: false")
    return network_with(decoder or CoverageDecoder, config, vocabularies, Rival)


def neighbours(position: Tensor, owner: Tensor) -> Tensor:
    """The patches (P, 25) around each, by rows of the kernel; P where there is none.

    position (P, 2) row and column, owner (P,) the image of each, ascending.
    """
    reach = torch.arange(KERNEL, device=position.device) - KERNEL // 2
    steps = torch.cartesian_prod(reach, reach)  # (25, 2)
    near = position.long()[:, None] + steps + KERNEL  # no row or column is below 0
    cells = ((owner.long()[:, None] * FAR) + near[..., 0]) * FAR + near[..., 1]  # (P, 25)
    own, order = cells[:, len(steps) // 2].sort()
    at = torch.searchsorted(own, cells).clamp_max(len(own) - 1)
    return torch.where(own[at] == cells, order[at], len(own))


class Surroundings(torch.autograd.Function):
    """What is around each patch: (M, T, C) and neighbours (M, K) -> (M, T, K * C).

    Who is whose neighbour is mutual: the gradient is gathered, too, by the opposite neighbours.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, table: Tensor) -> Tensor:
        ctx.save_for_backward(table)
        every = torch.arange(x.shape[1], device=x.device)
        blank = x.new_zeros(1, *x.shape[1:])
        return torch.cat([x, blank])[table[:, None], every[None, :, None]].flatten(2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (table,) = ctx.saved_tensors
        kernel = torch.arange(table.shape[1], device=table.device)
        every = torch.arange(gradient.shape[1], device=table.device)
        apart = _cut(gradient, 2, table.shape[1])
        apart = torch.cat([apart, apart.new_zeros(1, *apart.shape[1:])])
        return apart[table.flip(1)[:, None], every[None, :, None], kernel].sum(2), None


class Refinement(nn.Module):
    """The attention refinement module: sums of attention -> what is taken off the scores."""

    mean: Tensor
    variance: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.conv = nn.Linear(KERNEL**2 * 2 * heads, HIDDEN)
        self.proj = nn.Linear(HIDDEN, heads, bias=False)
        self.scale, self.shift = nn.Parameter(torch.ones(heads)), nn.Parameter(torch.zeros(heads))
        self.register_buffer("mean", torch.zeros(heads))
        self.register_buffer("variance", torch.ones(heads))

    def running(self) -> Tensor:
        """The running mean and variance of each head (2, H), as they are now."""
        return torch.stack([self.mean, self.variance]).float()

    def forward(
        self, sums: Tensor, table: Tensor, running: Tensor, real: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Sums (M, T, 2H) at patches with neighbours (M, 25) -> (M, T, H), totals (3, H).

        Running moments (2, H) normalise, in training too: what is taken together is of one size,
        and has others than a whole batch. Gradients are those of a batch norm over the `real`
        (M, T) places (batch renormalisation), whose number, sum and squares are the totals.
        """
        around = cast(Tensor, Surroundings.apply(sums, table))  # type: ignore[no-untyped-call]
        x = self.proj(F.relu(self.conv(around))).float()
        mean, spread = running[0], (running[1] + NARROW).sqrt()
        totals = x.new_zeros(3, x.shape[2])
        if self.training and real is not None:
            part = x * real[..., None]
            squares = part.square().sum((0, 1))
            totals = torch.stack([real.sum().expand_as(squares), part.sum((0, 1)), squares])
            own = totals[1] / totals[0]
            own_spread = ((totals[2] / totals[0] - own.square()).clamp_min(0) + NARROW).sqrt()
            x = (x - own) / own_spread * own_spread.detach() + own.detach()
        return (x - mean) / spread * self.scale + self.shift, totals.detach()

    @torch.no_grad()
    def follow(self, totals: Tensor, share: float = 0.1) -> None:
        """Let the running moments go that share of the way to those of totals (3, H)."""
        mean, square = totals[1:] / totals[0]
        self.mean.lerp_(mean.to(self.mean.dtype), share)
        self.variance.lerp_((square - mean.square()).clamp_min(0).to(self.mean.dtype), share)


@dataclass(frozen=True)
class Grids:
    """Patches of n images, padded to P of each."""

    columns: Tensor  # (n, P) of the packed patches
    there: Tensor  # (n, P) which of them are patches
    table: Tensor  # (n * P, 25) neighbours among all padded patches; n * P where there is none


def grids_of(memory: Memory, images: Tensor, most: int) -> Grids:
    """Some images (n,), with room for so many patches."""
    assert memory.position is not None
    columns, there = _padded(memory.rows.offsets.long(), images, most)
    position = torch.where(there[..., None], memory.position[columns], FAR // 2)
    owner = torch.arange(len(images), device=images.device).repeat_interleave(most)
    table = neighbours(position.flatten(0, 1), owner)
    return Grids(columns, there, torch.where(there.flatten()[:, None], table, len(table)))


@dataclass(frozen=True)
class Group:
    """Images of about one size, padded: n of them, with C canvases of T places each."""

    rows: Tensor  # (n, C, T) of the packed tokens
    real: Tensor  # (n, C, T) which of them are tokens
    grids: Grids


def _padded(offsets: Tensor, which: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """Rows (..., longest) of the sequences `which` (...), and which of them are theirs."""
    rows = offsets[which][..., None] + torch.arange(longest, device=offsets.device)
    real = rows < offsets[which + 1][..., None]
    return torch.where(real, rows, 0), real


def plan(memory: Memory, own: Packing) -> tuple[list[Group], Tensor]:
    """The images in groups, and where each token (N,) lies among all groups' padded ones."""
    device, begin = own.offsets.device, own.offsets.long()
    canvases, patches = own.offsets.diff().cpu().numpy(), memory.rows.offsets.diff().cpu().numpy()
    per = len(canvases) // len(patches)
    tokens = canvases.reshape(-1, per).max(1)
    order, groups, first = np.lexsort((patches, tokens // 8)), [], 0
    base, room = np.zeros(len(canvases), dtype=np.int64), 0  # where each canvas begins
    while first < len(order):
        sides = [np.maximum.accumulate(side[order[first:]]) for side in (tokens, patches)]
        pairs = np.arange(1, len(order) - first + 1) * per * sides[0] * sides[1]
        fit = int((pairs <= PAIRS).sum())
        images = order[first : first + max(1, fit)]
        longest = int(tokens[images].max())
        starts = room + np.arange(len(images) * per) * longest
        base.reshape(-1, per)[images] = starts.reshape(-1, per)
        some = torch.from_numpy(images).to(device)
        which = some[:, None] * per + torch.arange(per, device=device)
        grids = grids_of(memory, some, int(patches[images].max()))
        groups.append(Group(*_padded(begin, which, longest), grids))
        room, first = room + len(starts) * longest, first + len(images)
    place = torch.arange(int(canvases.sum()), dtype=torch.int32, device=device)
    canvas = own.owner(place)
    return groups, torch.from_numpy(base).to(device)[canvas] + place - begin[canvas]


def scores_of(q: Tensor, k: Tensor, there: Tensor) -> Tensor:
    """Scores (n, H, R, P) of queries (n, R, H, D) and keys (n, P, H, D) in float32."""
    scores = (q.transpose(1, 2) @ k.permute(0, 2, 3, 1)).float() / math.sqrt(q.shape[-1])
    return scores.masked_fill(~there[:, None, None], -torch.inf)


def _cut(x: Tensor, axis: int, parts: int) -> Tensor:
    """An axis as two, the first of which has so many parts."""
    shape = list(x.shape)
    return x.reshape(*shape[:axis], parts, shape[axis] // parts, *shape[axis + 1 :])


def before_each(maps: Tensor, canvases: int) -> Tensor:
    """Attention (n, H, C * T, P) -> the sum over the places before each, (n * P, C * T, H)."""
    apart = _cut(maps.float(), 2, canvases)
    sums = (apart.cumsum(3) - apart).flatten(2, 3)
    return sums.permute(0, 3, 2, 1).flatten(0, 1)


def by_head(x: Tensor, images: int) -> Tensor:
    """(n * P, R, H) -> (n, H, R, P)."""
    return _cut(x, 0, images).permute(0, 3, 2, 1)


class CoverageDecoder(TwoWayDecoder):
    """BTTR's decoder with attention refinement."""

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**sizes)
        self.refinement = Refinement(sizes["heads"])

    def counted(self, tokens: Tensor) -> Tensor | None:
        """Which places (N,), by the tokens (N, S) before them, cover what they see; None: all."""
        return None

    def hidden(
        self,
        tokens: Tensor,
        index: Tensor,
        memory: Memory,
        own: Packing,
        queries: list[Tensor] | None = None,
    ) -> Tensor:
        x = self.embedded(tokens, index).to(memory.keys_values[0][0].dtype)
        groups, slot = plan(memory, own)
        counted = self.counted(tokens)
        maps: list[Tensor | None] = [None] * len(groups)
        running, totals = self.refinement.running(), x.new_zeros(3, 1, dtype=torch.float32)
        for module, (k, v) in zip(self.blocks, memory.keys_values, strict=True):
            block = cast(DecoderBlock, module)
            x = x + block.drop1(block.attn(block.norm1(x), own))
            q = block.cross.q(block.norm2(x)).unflatten(1, (block.cross.heads, -1))
            if queries is not None:
                queries.append(q)
            seen = []
            for number, group in enumerate(groups):
                found = self._look(block.cross, q, k, v, group, maps[number], running, counted)
                seen.append(found[0])
                maps[number], totals = found[1], totals + found[2]
            looked = block.cross.proj(torch.cat(seen).index_select(0, slot))
            x = x + block.drop2(looked)
            x = x + block.drop3(block.mlp(block.norm3(x)))
        if self.training and len(self.blocks) > 1:
            self.refinement.follow(totals)
        states: Tensor = self.norm(x)
        return states

    def _look(self, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
        """`look`, whose maps are made anew in a backward pass instead of being kept."""
        if torch.is_grad_enabled():
            found: tuple[Tensor, Tensor, Tensor] = checkpoint(
                self.look, *given, use_reentrant=False
            )
            return found
        return self.look(*given)

    def look(
        self,
        cross: CrossAttention,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        group: Group,
        before: Tensor | None,
        running: Tensor,
        counted: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What the padded tokens of a group see, (n * C * T, width); their maps; the totals.

        q (N, H, D), k and v (P, H, D) packed; `before` are the maps of the layer before.
        """
        rows, grids, (count, canvases, _) = group.rows, group.grids, group.rows.shape
        scores = scores_of(_taken(q, rows.flatten(1)), _taken(k, grids.columns), grids.there)
        totals = scores.new_zeros(3, scores.shape[1])
        if before is not None:
            pair = torch.cat([before, scores.softmax(-1).to(before.dtype)], 1)
            if counted is not None:
                pair = pair * counted[rows.flatten(1)][:, None, :, None]
            sums = before_each(pair, canvases).to(q.dtype)
            real = group.real.flatten(1)[:, None] & grids.there[:, :, None]  # (n, P, C * T)
            off, totals = self.refinement(sums, grids.table, running, real.flatten(0, 1))
            scores = scores - by_head(off, count)
        maps = scores.softmax(-1).to(v.dtype)
        dropout = cross.dropout if self.training else 0.0
        found = F.dropout(maps, dropout) @ _taken(v, grids.columns).transpose(
            1, 2
        )  # (n, H, C * T, D)
        return found.transpose(1, 2).flatten(2).flatten(0, 1), maps, totals

    def writer(self, memory: Memory, rows: int, length: int) -> Writer:
        return CoverageWriter(self, memory, rows, length)


def _taken(x: Tensor, rows: Tensor) -> Tensor:
    """Rows (n, R) of a packed tensor (N, H, D), (n, R, H, D)."""
    return x.index_select(0, rows.flatten()).view(*rows.shape, *x.shape[1:])


class CoverageWriter(Writer):
    """Keeps how much of each patch every row has looked at, instead of all its maps."""

    def __init__(self, decoder: CausalDecoder, memory: Memory, rows: int, length: int) -> None:
        super().__init__(decoder, memory, rows, length)
        images = torch.arange(len(memory.rows.offsets) - 1, device=memory.features.device)
        most = int(memory.rows.offsets.diff().max())
        self.grids = grids_of(memory, images, most)
        self.keys_values = [
            (_taken(k, self.grids.columns), _taken(v, self.grids.columns))
            for k, v in memory.keys_values
        ]
        size, heads = len(self.grids.table), memory.keys_values[0][0].shape[1]
        self.sums = [
            torch.zeros(size, rows, 2 * heads, device=images.device) for _ in decoder.blocks[1:]
        ]
        self.before: Tensor | None = None  # the maps of the layer before

    def step(self, tokens: Tensor) -> list[Tensor]:
        self.counted = cast(CoverageDecoder, self.decoder).counted(tokens)
        return super().step(tokens)

    def look_at(self, layer: int, x: Tensor) -> Tensor:
        cross = cast(DecoderBlock, self.decoder.blocks[layer]).cross
        (k, v), grids, images = self.keys_values[layer], self.grids, len(self.grids.there)
        q = cross.q(x).view(images, -1, *k.shape[2:])  # (n, R, H, D)
        scores = scores_of(q, k, grids.there)
        if layer:
            assert self.before is not None
            refinement, sums = cast(CoverageDecoder, self.decoder).refinement, self.sums[layer - 1]
            pair = torch.cat([self.before, scores.softmax(-1).to(v.dtype)], 1)
            off, _ = refinement(sums.to(q.dtype), grids.table, refinement.running())
            scores = scores - by_head(off, images)
            if self.counted is not None:
                pair = pair * self.counted.view(images, 1, -1, 1)
            sums += pair.permute(0, 3, 2, 1).flatten(0, 1)
        self.before = maps = scores.softmax(-1).to(v.dtype)
        found = (maps @ v.transpose(1, 2)).transpose(1, 2)  # (n, R, H, D)
        looked: Tensor = cross.proj(found.flatten(2).flatten(0, 1))
        return looked

    def follow(self, rows: Tensor) -> None:
        super().follow(rows)
        images = len(self.grids.there)
        local = rows.view(images, -1) % self.rows.longest  # of each image's own rows
        for number, sums in enumerate(self.sums):
            apart = _cut(sums, 0, images)
            order = local[:, None, :, None].expand_as(apart)
            self.sums[number] = apart.gather(2, order).flatten(0, 1)
