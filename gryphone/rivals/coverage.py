"""CoMER: attention on the image is refined by what was looked at before.

Before a place looks at the patches, the attention that earlier places paid to each of them is
summed up, head by head: that of this layer (self-coverage) and the refined one of the layer before
(cross-coverage). A convolution of kernel 5 over the patch grid, a projection to the heads and a
norm make of both sums what is taken off the scores, which are normalised anew. The first layer has
nothing to refine by; all others share the weights.

The encoder keeps inked patches alone. Blank ones are never looked at, so that their sums are zero:
a convolution over the neighbours that exist is the one over the grid, at the patches that count.
All maps of a batch are large, and moving them is what takes the time. They lie as (H, n, P, R): by
head, image, patch, and the places of all its canvases side by side. So a neighbour is a run of
memory that is copied as a whole, sums over places are a product with a triangle of ones, and the
convolution is one product of all neighbours' channels; no map is ever turned. Images of about one
size are taken together, as many as `PAIRS` allow.
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

from gryphone.config import ModelConfig
from gryphone.errors import ConfigError
from gryphone.kinds import network_with
from gryphone.model import CrossAttention, Decoder, DecoderBlock, GryphOne, Memory, Packing
from gryphone.rivals.causal import CausalDecoder, Writer
from gryphone.rivals.trunk import Rival, TwoWayDecoder

KERNEL, HIDDEN = 5, 32  # as published
PAIRS = 2**20  # pairs of token and patch, padded, whose maps are made at once
ROOM = 1.25  # what they may take, padded, of what they need
RUN = 8  # places of a canvas are a multiple of it: runs of memory that are copied quickly
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


def surroundings(x: Tensor, table: Tensor) -> Tensor:
    """What is around each patch: (C, M, R) and neighbours (25, M) -> (C * 25, M * R)."""
    shift = torch.arange(len(x), device=x.device) * x.shape[1]
    rows = (shift[:, None] + table.flatten()).flatten()
    # Numbers are copied eight bytes at a time where that fits: the kernels ask for each by itself.
    wide = torch.int64 if x.shape[2] * x.element_size() % 8 == 0 else x.dtype
    around = x.flatten(0, 1).view(wide).index_select(0, rows).view(x.dtype)
    return around.view(len(x) * len(table), -1)


class Convolution(torch.autograd.Function):
    """Patches (C, M, R), their neighbours (25, M) and weights (O, C * 25) -> (O, M, R).

    Who is whose neighbour is mutual: the gradient is a convolution, too, by the opposite
    neighbours. A patch that stands for no neighbour is zero here, and so must its gradient be.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, table: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, table, weight)
        return (weight @ surroundings(x, table)).view(len(weight), *x.shape[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor]:  # type: ignore[override]
        x, table, weight = ctx.saved_tensors
        around, sizes = surroundings(gradient, table), (len(weight), len(x), len(table))
        opposite = weight.view(sizes).flip(2).transpose(0, 1).flatten(1)
        of_weight = (around @ x.flatten(1).T).view(sizes[0], sizes[2], -1).flip(1)
        return (opposite @ around).view_as(x), None, of_weight.transpose(1, 2).flatten(1)


class Refinement(nn.Module):
    """The attention refinement module: sums of attention -> what is taken off the scores."""

    mean: Tensor
    variance: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.conv = nn.Linear(2 * heads * KERNEL**2, HIDDEN)
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
        """Sums (2H, M, R) at patches with neighbours (25, M) -> (H, M, R), totals (3, H).

        Running moments (2, H) normalise, in training too: what is taken together is of one size,
        and has others than a whole batch. Gradients are those of a batch norm over the `real`
        (M, R) places (batch renormalisation), whose number, sum and squares are the totals.
        """
        kernel, bias = (p.to(sums.dtype) for p in (self.conv.weight, self.conv.bias))
        hidden = cast(Tensor, Convolution.apply(sums, table, kernel))  # type: ignore[no-untyped-call]
        hidden = F.relu(hidden + bias[:, None, None], inplace=True).flatten(1)
        x = (self.proj.weight.to(sums.dtype) @ hidden).view(-1, *sums.shape[1:]).float()
        scale = self.scale / (running[1] + NARROW).sqrt()
        shift = self.shift - running[0] * scale
        totals = x.new_zeros(3, len(x))
        if self.training and real is not None:
            part = x * real
            squares = part.square().sum((1, 2))
            totals = torch.stack([real.sum().expand_as(squares), part.sum((1, 2)), squares])
            own = totals[1] / totals[0]
            spread = ((totals[2] / totals[0] - own.square()).clamp_min(0) + NARROW).sqrt()
            # One way for gradients, and nothing for values: x is normalised, and put back.
            back = spread.detach() / spread
            scale, shift = scale * back, shift + scale * (own.detach() - own * back)
        return torch.addcmul(shift[:, None, None], x, scale[:, None, None]), totals.detach()

    @torch.no_grad()
    def follow(self, totals: Tensor, share: float = 0.1) -> None:
        """Let the running moments go that share of the way to those of totals (3, H)."""
        mean, square = totals[1:] / totals[0]
        self.mean.lerp_(mean.to(self.mean.dtype), share)
        self.variance.lerp_((square - mean.square()).clamp_min(0).to(self.mean.dtype), share)


@dataclass(frozen=True)
class Grids:
    """Patches of n images, padded to P of each; the last of each is none."""

    columns: Tensor  # (n, P) of the packed patches
    there: Tensor  # (n, P) which of them are patches
    table: Tensor  # (25, n * P) neighbours among all padded patches; one that is none for none

    def of(self, x: Tensor) -> Tensor:
        """What packed patches have, (N, H, D), as (H, n, P, D)."""
        return _taken(x, self.columns).permute(2, 0, 1, 3)

    @property
    def blank(self) -> Tensor:
        """-inf where no patch is, else 0 (n, P)."""
        return torch.zeros_like(self.there, dtype=torch.float32).masked_fill(
            ~self.there, -torch.inf
        )


def grids_of(memory: Memory, images: Tensor, most: int) -> Grids:
    """Some images (n,), with room for so many patches."""
    assert memory.position is not None
    columns, there = _padded(memory.rows.offsets.long(), images, most + 1)
    position = torch.where(there[..., None], memory.position[columns], FAR // 2)
    owner = torch.arange(len(images), device=images.device).repeat_interleave(most + 1)
    table = neighbours(position.flatten(0, 1), owner)
    known = there.flatten()[:, None] & (table < len(table))
    return Grids(columns, there, torch.where(known, table, most).T.contiguous())


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
    tokens = -(-canvases.reshape(-1, per).max(1) // RUN) * RUN
    order, groups, first = np.lexsort((patches, tokens)), [], 0
    base, room = np.zeros(len(canvases), dtype=np.int64), 0  # where each canvas begins
    while first < len(order):
        sides = [np.maximum.accumulate(side[order[first:]]) for side in (tokens, patches)]
        pairs = np.arange(1, len(order) - first + 1) * per * sides[0] * sides[1]
        needed = np.cumsum(per * tokens[order[first:]] * patches[order[first:]])
        fit = int(np.logical_and.accumulate((pairs <= PAIRS) & (pairs <= ROOM * needed)).sum())
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


def scores_of(q: Tensor, k: Tensor, blank: Tensor) -> Tensor:
    """Scores (H, n, P, R) of queries (H, n, D, R) and keys (H, n, P, D), `blank` (n, P) added."""
    heads, count, width, places = q.shape
    off = blank.to(q.dtype).expand(heads, -1, -1).flatten(0, 1)[..., None]
    found = torch.baddbmm(off, k.flatten(0, 1), q.flatten(0, 1), alpha=1 / math.sqrt(width))
    return found.view(heads, count, -1, places)


def before_each(maps: Tensor, canvases: int) -> Tensor:
    """Attention (H, n, P, C * T) -> the sum over the places before each, (H, n * P, C * T)."""
    length = maps.shape[3] // canvases
    apart = maps.reshape(len(maps), -1, canvases, length)
    earlier = maps.new_ones(length, length).triu(1)
    return (apart @ earlier).flatten(2)


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
        blanks = [group.grids.blank for group in groups]
        for module, (k, v) in zip(self.blocks, memory.keys_values, strict=True):
            block = cast(DecoderBlock, module)
            x = x + block.drop1(block.attn(block.norm1(x), own))
            q = block.cross.q(block.norm2(x)).unflatten(1, (block.cross.heads, -1))
            if queries is not None:
                queries.append(q)
            seen = []
            for number, group in enumerate(groups):
                given = (group, blanks[number], maps[number], running, counted)
                found = self.look(block.cross, q, k, v, *given)
                seen.append(found[0])
                maps[number], totals = found[1], totals + found[2]
            looked = block.cross.proj(torch.cat(seen).index_select(0, slot))
            x = x + block.drop2(looked)
            x = x + block.drop3(block.mlp(block.norm3(x)))
        if self.training and len(self.blocks) > 1:
            self.refinement.follow(totals)
        states: Tensor = self.norm(x)
        return states

    def look(
        self,
        cross: CrossAttention,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        group: Group,
        blank: Tensor,
        before: Tensor | None,
        running: Tensor,
        counted: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What the padded tokens of a group see, (n * C * T, width); their maps; the totals.

        q (N, H, D), k and v (P, H, D) packed; `before` are the maps of the layer before.
        """
        rows, grids, canvases = group.rows.flatten(1), group.grids, group.rows.shape[1]
        queries = _taken(q, rows).permute(2, 0, 3, 1)
        scores = scores_of(queries, grids.of(k), blank)
        totals = running.new_zeros(3, len(scores))
        if before is not None:
            pair = torch.cat([before, scores.softmax(2)])
            if counted is not None:
                pair = pair * counted[rows][:, None]
            real = group.real.flatten(1)[:, None] & grids.there[:, :, None]  # (n, P, C * T)
            sums, table = before_each(pair, canvases), grids.table
            off, totals = self.refinement(sums, table, running, real.flatten(0, 1))
            scores = scores - off.view_as(scores)
        maps = scores.softmax(2).to(v.dtype)
        seen = F.dropout(maps, cross.dropout if self.training else 0.0).transpose(2, 3) @ grids.of(
            v
        )
        return seen.permute(1, 2, 0, 3).flatten(2).flatten(0, 1), maps, totals

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
        self.blank = self.grids.blank
        self.keys_values = [(self.grids.of(k), self.grids.of(v)) for k, v in memory.keys_values]
        size, heads = self.grids.table.shape[1], memory.keys_values[0][0].shape[1]
        self.sums = [
            torch.zeros(2 * heads, size, rows, device=images.device) for _ in decoder.blocks[1:]
        ]
        self.before: Tensor | None = None  # the maps of the layer before

    def step(self, tokens: Tensor) -> list[Tensor]:
        self.counted = cast(CoverageDecoder, self.decoder).counted(tokens)
        return super().step(tokens)

    def look_at(self, layer: int, x: Tensor) -> Tensor:
        cross = cast(DecoderBlock, self.decoder.blocks[layer]).cross
        (k, v), grids, images = self.keys_values[layer], self.grids, len(self.grids.there)
        q = cross.q(x).view(images, -1, cross.heads, k.shape[3]).permute(2, 0, 3, 1)
        scores = scores_of(q, k, self.blank)  # (H, n, P, R)
        if layer:
            assert self.before is not None
            refinement, sums = cast(CoverageDecoder, self.decoder).refinement, self.sums[layer - 1]
            pair = torch.cat([self.before, scores.softmax(2)])
            off, _ = refinement(sums.to(q.dtype), grids.table, refinement.running())
            scores = scores - off.view_as(scores)
            if self.counted is not None:
                pair = pair * self.counted.view(images, 1, -1)
            sums += pair.flatten(1, 2)
        self.before = maps = scores.softmax(2).to(v.dtype)
        found = (maps.transpose(2, 3) @ v).permute(1, 2, 0, 3)  # (n, R, H, D)
        looked: Tensor = cross.proj(found.flatten(2).flatten(0, 1))
        return looked

    def follow(self, rows: Tensor) -> None:
        super().follow(rows)
        images = len(self.grids.there)
        local = rows.view(images, 1, -1) % self.rows.longest  # of each image's own rows
        for number, sums in enumerate(self.sums):
            apart = sums.view(len(sums), images, -1, self.rows.longest)  # (2H, n, P, R)
            self.sums[number] = apart.gather(3, local.expand_as(apart)).flatten(1, 2)
