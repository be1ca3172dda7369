"""The networks: a vision Transformer over patches and a bidirectional decoder over tokens.

Nothing is padded. Sequences of a batch lie one behind the other in one long tensor, and a
`Packing` says where each begins. No loss, no tokenizer, no configuration object is known here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from gryphone.ragged import select
from gryphone.raster import Patches

SHARED = 2  # the ids that every stream has: PAD and MASK


@dataclass(frozen=True)
class Packing:
    """Where the sequences of a packed tensor begin: sequence b is rows offsets[b]:offsets[b+1]."""

    offsets: Tensor  # (B + 1,) int32
    longest: int  # at least the longest sequence's length
    uniform: bool = False  # every sequence has exactly `longest` rows

    @classmethod
    def of(cls, lengths: Tensor, longest: int | None = None) -> Packing:
        """Packing for the given lengths (B,); without `longest` it is read back from the device."""
        offsets = F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
        if longest is None:
            longest = _rounded(int(lengths.max())) if len(lengths) else 0
        return cls(offsets, longest)

    @classmethod
    def equal(cls, count: int, length: int, device: torch.device) -> Packing:
        """`count` sequences of one length."""
        offsets = torch.arange(count + 1, dtype=torch.int32, device=device) * length
        return cls(offsets, length, uniform=True)

    def owner(self, rows: Tensor) -> Tensor:
        """The sequence of each of some rows, (N,) int32."""
        # Not in offsets[1:]: Inductor of PyTorch 2.11 searches a slice from its tensor's start.
        return torch.searchsorted(self.offsets, rows, right=True) - 1

    def pad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(T, ...) to (B, longest, ...) and the mask (B, longest) of real rows."""
        begin, end = self.offsets[:-1, None].long(), self.offsets[1:, None].long()
        rows = begin + torch.arange(self.longest, device=x.device)
        real = rows < end
        return x[rows.clamp_max(len(x) - 1)], real


def attend(
    q: Tensor, k: Tensor, v: Tensor, rows: Packing, columns: Packing, dropout: float
) -> Tensor:
    """Attention within each packed sequence; q (Tq, H, D), k and v (Tk, H, D) -> (Tq, H, D)."""
    if q.is_cuda and q.dtype in (torch.bfloat16, torch.float16) and not dropout:
        where = (rows.offsets, columns.offsets, rows.longest, columns.longest)
        if not torch.is_grad_enabled():  # the bare operator starts sooner
            found: Tensor = torch.ops.aten._flash_attention_forward(
                q, k, v, *where, 0.0, False, return_debug_mask=False
            )[0]
            return found
        from torch.nn.attention.varlen import varlen_attn

        out = varlen_attn(q, k, v, *where)
        return out if isinstance(out, Tensor) else out[0]
    if rows.uniform and columns.uniform:
        return _alike(q, k, v, len(rows.offsets) - 1, dropout)
    counts, others = rows.offsets.diff().tolist(), columns.offsets.diff().tolist()
    split = torch.split
    parts = [*zip(split(q, counts), split(k, others), split(v, others), strict=True)]
    if torch.is_grad_enabled():
        return _in_groups(parts, dropout)
    # One by one: a batch changes no bit, and nothing is padded.
    return torch.cat([_alike(*qkv, 1, dropout) for qkv in parts])


def _alike(q: Tensor, k: Tensor, v: Tensor, count: int, dropout: float) -> Tensor:
    """Attention within `count` sequences that are all of one length."""
    shaped = (x.reshape(count, len(x) // count, *x.shape[1:]) for x in (q, k, v))
    q, k, v = (x.transpose(1, 2) for x in shaped)
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
    return out.transpose(1, 2).flatten(0, 1)


def _in_groups(parts: Sequence[tuple[Tensor, Tensor, Tensor]], dropout: float) -> Tensor:
    """Attention within many sequences, those of nearly one length together.

    Written out: PyTorch's own is two or three times as slow backwards on a CPU, in bf16.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    for n, (q, k, _) in enumerate(parts):
        groups.setdefault((_rounded(len(q)), _rounded(len(k))), []).append(n)
    found: dict[int, Tensor] = {}
    for (rows, columns), members in groups.items():
        q, k, v = (  # (g, H, rows or columns, D)
            _stacked([parts[n][s] for n in members], length).transpose(1, 2)
            for s, length in enumerate((rows, columns, columns))
        )
        ends = torch.tensor([len(parts[n][1]) for n in members], device=q.device)
        beyond = torch.arange(columns, device=q.device) >= ends[:, None, None, None]
        scores = (q * q.shape[-1] ** -0.5) @ k.mT
        weights = scores.masked_fill(beyond, -math.inf).softmax(-1)
        out = (F.dropout(weights, dropout).to(v.dtype) @ v).transpose(1, 2).unbind()
        found |= {n: x[: len(parts[n][0])] for n, x in zip(members, out, strict=True)}
    return torch.cat([found[n] for n in range(len(parts))])


def _rounded(length: int) -> int:
    """Up, so that a compiled graph, or a matrix product, meets few distinct values."""
    return 32 * math.ceil(length / 32)


def _stacked(parts: Sequence[Tensor], length: int) -> Tensor:
    """Sequences (n, H, D), each with zeros behind it, as one (g, length, H, D)."""
    return torch.stack([F.pad(x, (0, 0, 0, 0, 0, length - len(x))) for x in parts])


def rotary(position: Tensor, dim: int, base: float = 100.0) -> tuple[Tensor, Tensor]:
    """Cosine and sine (P, 1, dim) of 2-D rotary positions: half of them turn with each axis."""
    rates = base ** -(torch.arange(0, dim // 2, 2, device=position.device) / (dim // 2))
    angle = (position[:, :, None].float() * rates).flatten(1)  # (P, dim / 2)
    angle = torch.cat([angle, angle], 1)[:, None]
    return angle.cos(), angle.sin()


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Apply rotary positions to queries or keys (P, H, D)."""
    a, b = x.chunk(2, -1)
    return (x * turn[0] + torch.cat([-b, a], -1) * turn[1]).to(x.dtype)


class NormedLinear(nn.Sequential):
    """A linear layer behind a norm of its own."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(nn.LayerNorm(inputs), nn.Linear(inputs, outputs))


Linear = type[nn.Linear] | type[NormedLinear]


class SelfAttention(nn.Module):
    """Multi-head attention of packed sequences on themselves."""

    def __init__(
        self, width: int, heads: int, dropout: float = 0.0, linear: Linear = nn.Linear
    ) -> None:
        super().__init__()
        self.heads, self.dropout, self.attend = heads, dropout, attend
        # One norm for queries, keys and values: its scale could go into each one's weights.
        self.qkv = linear(width, 3 * width)
        self.proj = linear(width, width)

    def forward(
        self, x: Tensor, rows: Packing, turn: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        q, k, v = self.qkv(x).unflatten(1, (3, self.heads, -1)).unbind(1)
        if turn is not None:
            q, k = rotate(q, turn), rotate(k, turn)
        dropout = self.dropout if self.training else 0.0
        out: Tensor = self.proj(self.attend(q, k, v, rows, rows, dropout).flatten(1))
        return out


class CrossAttention(nn.Module):
    """Multi-head attention of tokens on remembered patches."""

    def __init__(self, width: int, heads: int, dropout: float, linear: Linear = nn.Linear) -> None:
        super().__init__()
        self.heads, self.dropout, self.attend = heads, dropout, attend
        self.q = linear(width, width)
        self.kv = linear(width, 2 * width)
        self.proj = linear(width, width)

    def remember(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (P, H, D) of the encoder's output, computed once per image."""
        k, v = self.kv(features).unflatten(1, (2, self.heads, -1)).unbind(1)
        return k, v

    def forward(
        self,
        x: Tensor,
        memory: tuple[Tensor, Tensor],
        rows: Packing,
        columns: Packing,
        queries: list[Tensor] | None = None,
    ) -> Tensor:
        """`queries` gets those of this layer (T, H, D), for `Decoder.attention`."""
        q = self.q(x).unflatten(1, (self.heads, -1))
        if queries is not None:
            queries.append(q)
        dropout = self.dropout if self.training else 0.0
        out: Tensor = self.proj(self.attend(q, *memory, rows, columns, dropout).flatten(1))
        return out


class Mlp(nn.Module):
    """Two layers with GELU or ReLU."""

    def __init__(
        self, width: int, hidden: int, activation: str = "gelu", linear: Linear = nn.Linear
    ) -> None:
        super().__init__()
        self.activate = F.relu if activation == "relu" else F.gelu
        self.fc1 = linear(width, hidden)
        self.fc2 = linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc2(self.activate(self.fc1(x)))
        return out


class EncoderBlock(nn.Module):
    """Pre-norm Transformer block; its names are those of the public DINO checkpoints."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = SelfAttention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = Mlp(width, 4 * width)
        self.drop1, self.drop2 = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(
        self, x: Tensor, rows: Packing, turn: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        x = x + self.drop1(self.attn(self.norm1(x), rows, turn))
        out: Tensor = x + self.drop2(self.mlp(self.norm2(x)))
        return out


class DecoderBlock(nn.Module):
    """Pre-norm block: tokens attend to each other in both directions, then to the patches."""

    def __init__(
        self,
        width: int,
        heads: int,
        attention_dropout: float,
        dropout: float,
        *,
        norm_every: bool,
        feedforward: int,
        activation: str,
    ) -> None:
        super().__init__()
        linear: Linear = NormedLinear if norm_every else nn.Linear
        norm = nn.Identity if norm_every else nn.LayerNorm  # nn.Identity takes any arguments
        self.norm1 = norm(width)
        self.attn = SelfAttention(width, heads, attention_dropout, linear)
        self.norm2 = norm(width)
        self.cross = CrossAttention(width, heads, attention_dropout, linear)
        self.norm3 = norm(width)
        self.mlp = Mlp(width, feedforward * width, activation, linear)
        self.drop1, self.drop2, self.drop3 = (nn.Dropout(dropout) for _ in range(3))

    def forward(
        self,
        x: Tensor,
        memory: tuple[Tensor, Tensor],
        own: Packing,
        rows: Packing,
        columns: Packing,
        queries: list[Tensor] | None = None,
    ) -> Tensor:
        x = x + self.drop1(self.attn(self.norm1(x), own))
        x = x + self.drop2(self.cross(self.norm2(x), memory, rows, columns, queries))
        out: Tensor = x + self.drop3(self.mlp(self.norm3(x)))
        return out


class InkEncoder(nn.Module):
    """ViT on inked patches only: any canvas shape, 2-D rotary and absolute positions."""

    def __init__(
        self,
        *,
        window: int,
        width: int,
        depth: int,
        heads: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.head_dim = width // heads
        # A patch sees its surroundings, so a small network stands for the convolutional stem.
        self.stem = nn.Sequential(
            nn.Linear(window**2, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.place = nn.Linear(64, width)
        self.blocks = nn.ModuleList(EncoderBlock(width, heads, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, patches: Patches) -> tuple[Tensor, Packing]:
        """Features (P, width) of the patches, and how they are packed."""
        lengths = patches.offsets.diff()
        rows = Packing.of(lengths, patches.longest)
        shape = torch.repeat_interleave(patches.shape, lengths, 0, output_size=len(patches.pixels))
        dtype = self.norm.weight.dtype
        # 0/1 pixels are centred, so that blank surroundings do not drown the few inked pixels.
        x = self.stem((patches.pixels.to(dtype) - 0.1) * 2)
        x = x + self.place(_waves(patches.position, shape).to(dtype))
        turn = rotary(patches.position, self.head_dim)
        for block in self.blocks:
            x = block(x, rows, turn)
        return self.norm(x), rows


def _waves(position: Tensor, shape: Tensor) -> Tensor:
    """Fourier features (P, 64) of absolute positions and of those relative to the grid."""
    rates = 2.0 ** torch.arange(8, device=position.device)
    absolute = position[:, :, None] / 256 * rates
    relative = ((position + 0.5) / shape)[:, :, None] / 4 * rates
    angle = (2 * math.pi * torch.cat([absolute, relative], 1)).flatten(1)
    return torch.cat([angle.sin(), angle.cos()], 1)


class DenseEncoder(nn.Module):
    """The paper's encoder: DINO ViT on every patch of a square image, with a class token."""

    MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what DINO was trained with

    def __init__(
        self,
        *,
        grid: int,
        patch: int,
        width: int,
        depth: int,
        heads: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.patch_embed = nn.Linear(3 * patch**2, width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.randn(1, grid**2 + 1, width) * 0.02)
        self.blocks = nn.ModuleList(EncoderBlock(width, heads, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, patches: Patches) -> tuple[Tensor, Packing]:
        """Features of the class token and all patches; `patches` must be dense."""
        size, length = len(patches.shape), self.pos_embed.shape[1]
        paper = 1 - patches.pixels.to(self.pos_embed.dtype)  # black ink on white
        channels = [(paper - m) / s for m, s in zip(self.MEAN, self.STD, strict=True)]
        x = self.patch_embed(torch.cat(channels, 1)).unflatten(0, (size, length - 1))
        x = torch.cat([self.cls_token.expand(size, -1, -1), x], 1) + self.pos_embed
        rows = Packing.equal(size, length, x.device)
        x = x.flatten(0, 1)
        for block in self.blocks:
            x = block(x, rows)
        return self.norm(x), rows

    def load_dino(self, state: dict[str, Tensor]) -> None:
        """Take over a public DINO ViT state dict (patch embedding, positions, blocks, norm)."""
        state = {k: v for k, v in state.items() if not k.startswith("head.")}
        weight = state.pop("patch_embed.proj.weight")
        state["patch_embed.weight"] = weight.flatten(1)
        state["patch_embed.bias"] = state.pop("patch_embed.proj.bias")
        self.load_state_dict(state)


class Sinusoids(nn.Module):
    """Fixed positions (P,) -> (P, width): waves from one place to thousands of places long."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        rates = 10000.0 ** -(torch.arange(0, width, 2) / width)
        angle = torch.arange(length)[:, None] * rates
        table = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :width]
        self.register_buffer("table", table, persistent=False)

    def forward(self, index: Tensor) -> Tensor:
        table: Tensor = self.table  # type: ignore[assignment]
        return table[index]


class Decoder(nn.Module):
    """Bidirectional Transformer over a canvas of tokens; one head for each token stream.

    With `one_table` the streams' embeddings are one: PAD and MASK, the ids that all streams have,
    mean the same in each. A head lists its own stream's tokens: others are never right there.
    """

    def __init__(
        self,
        *,
        vocabularies: tuple[int, ...],
        length: int,
        width: int,
        depth: int,
        heads: int,
        attention_dropout: float,
        dropout: float,
        norm_every: bool = False,
        feedforward: int = 4,
        activation: str = "gelu",
        sinusoids: bool = False,
        one_table: bool = False,
    ) -> None:
        super().__init__()
        self.one_table = one_table
        self.embed = nn.ModuleList(nn.Embedding(size, width) for size in vocabularies)
        self.position = (Sinusoids if sinusoids else nn.Embedding)(length, width)
        style = {"norm_every": norm_every, "feedforward": feedforward, "activation": activation}
        self.blocks = nn.ModuleList(
            DecoderBlock(width, heads, attention_dropout, dropout, **style)  # type: ignore[arg-type]
            for _ in range(depth)
        )
        linear: Linear = NormedLinear if norm_every else nn.Linear
        self.norm = nn.Identity() if norm_every else nn.LayerNorm(width)
        self.heads = nn.ModuleList(linear(width, size) for size in vocabularies)
        if isinstance(self.position, nn.Embedding):  # beside waves of size 1, tokens keep theirs
            for table in (*self.embed, self.position):
                nn.init.normal_(table.weight, std=0.02)

    def remember(self, features: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Every block's keys and values of the encoder's output."""
        return [block.cross.remember(features) for block in self.blocks]  # type: ignore[union-attr,operator]

    def forward(
        self,
        tokens: Tensor,
        index: Tensor,
        memory: Memory,
        own: Packing,
        queries: list[Tensor] | None = None,
    ) -> list[Tensor]:
        return self.logits(self.hidden(tokens, index, memory, own, queries))

    def logits(self, x: Tensor) -> list[Tensor]:
        """What the last states (N, width) say of their places, [(N, V) per stream]."""
        return [head(x) for head in self.heads]

    def hidden(
        self,
        tokens: Tensor,
        index: Tensor,
        memory: Memory,
        own: Packing,
        queries: list[Tensor] | None = None,
    ) -> Tensor:
        """The last states (N, width) of packed canvases."""
        x = self.embedded(tokens, index).to(memory.keys_values[0][0].dtype)
        return self.through_blocks(x, memory, own, queries)

    def through_blocks(
        self, x: Tensor, memory: Memory, own: Packing, queries: list[Tensor] | None
    ) -> Tensor:
        """States (N, width) of packed canvases, after all blocks."""
        per_image = (len(own.offsets) - 1) // (len(memory.rows.offsets) - 1)
        # All canvases of one image form one sequence of queries: its patches are read once.
        rows = Packing(own.offsets[::per_image].contiguous(), own.longest * per_image, own.uniform)
        for block, remembered in zip(self.blocks, memory.keys_values, strict=True):
            x = block(x, remembered, own, rows, memory.rows, queries)
        states: Tensor = self.norm(x)
        return states

    def embedded(self, tokens: Tensor, index: Tensor) -> Tensor:
        """Tokens (N, S) at their places (N,) of the canvas, (N, width)."""
        x: Tensor = self.position(index)
        for stream, table in enumerate(self.embed):
            ids = tokens[:, stream]
            row = table(ids)
            if stream and self.one_table:
                first = self.embed[0](ids.clamp_max(SHARED - 1))
                row = torch.where((ids < SHARED)[:, None], first, row)
            x = x + row
        return x

    def attention(self, tokens: Tensor, index: Tensor, memory: Memory, own: Packing) -> Tensor:
        """Where each token looks, (B, n, P) for each image's one canvas: mean of heads and layers.

        Rows and columns beyond an image's own tokens and patches are zeros or nonsense.
        """
        queries: list[Tensor] = []
        self(tokens, index, memory, own, queries)
        total: Tensor | None = None
        for q, (k, _) in zip(queries, memory.keys_values, strict=True):
            # In float32 on every device: these are compared, not multiplied further.
            rows, _ = own.pad(q.float())
            columns, real = memory.rows.pad(k.float())
            scores = torch.einsum("bnhd,bphd->bhnp", rows, columns) / q.shape[-1] ** 0.5
            looks = scores.masked_fill(~real[:, None, None], -math.inf).softmax(-1).mean(1)
            total = looks if total is None else total + looks
        assert total is not None
        return total / len(queries)


@dataclass(frozen=True)
class Memory:
    """What the encoder saw, ready for any number of decoding steps."""

    features: Tensor  # (P, width)
    rows: Packing
    keys_values: list[tuple[Tensor, Tensor]]  # per decoder block, (P, H, D) each
    position: Tensor | None = None  # (P, 2) row and column in the grid, for who asks


def rows_of(memory: Memory, samples: Tensor) -> Memory:
    """The memory of some samples of a batch."""
    rows, _, lengths = select(memory.rows.offsets.long(), samples)
    if len(samples) == 1:
        packing = Packing.equal(1, len(rows), rows.device)
    else:
        packing = Packing(
            F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32),
            memory.rows.longest,
            memory.rows.uniform,
        )
    pairs = [(k[rows], v[rows]) for k, v in memory.keys_values]
    position = None if memory.position is None else memory.position[rows]
    return Memory(memory.features[rows], packing, pairs, position)


class GryphOne(nn.Module):
    """Encoder and decoder. Encode once, refine many times."""

    def __init__(
        self, encoder: nn.Module, decoder: Decoder, width: int, aux: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        # Auxiliary heads on patches alone: which token's ink is here.
        self.patch_heads = nn.ModuleList(nn.Linear(width, size) for size in aux)

    def encode(self, patches: Patches) -> Memory:
        """Look at a batch of images."""
        features, rows = self.encoder(patches)
        keys_values = self.decoder.remember(features)
        return Memory(features, rows, keys_values)

    def decode(self, tokens: Tensor, index: Tensor, memory: Memory, own: Packing) -> list[Tensor]:
        """Logits [(N, V) per stream] for packed canvases.

        tokens (N, S), index (N,) position in the canvas; `own` packs the canvases. Several
        canvases per image (all of image 0's, then all of image 1's, ...) share its memory.
        """
        logits: list[Tensor] = self.decoder(tokens, index, memory, own)
        return logits

    def forward(
        self, patches: Patches, tokens: Tensor, index: Tensor, own: Packing
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Token logits and patch logits: one training pass."""
        memory = self.encode(patches)
        return self.decode(tokens, index, memory, own), [
            h(memory.features) for h in self.patch_heads
        ]

    def attention(self, tokens: Tensor, index: Tensor, memory: Memory, own: Packing) -> Tensor:
        """Where each token of finished canvases was seen, as `Decoder.attention` has it."""
        return self.decoder.attention(tokens, index, memory, own)

    def compile_blocks(self) -> None:
        """Compile each block on its own: one short compilation serves all layers of a kind."""
        for block in (*self.encoder.blocks, *self.decoder.blocks):  # type: ignore[misc]
            block.compile(dynamic=True)


class Undrawn(TorchFunctionMode):
    """Networks that are built meanwhile draw no first weights: theirs are read afterwards."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "__module__", "") == nn.init.__name__:
            return kwargs["tensor"]
        return func(*args, **(kwargs or {}))
