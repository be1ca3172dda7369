"""The autoregressive decoder: the blocks of diffusion's, but a place sees those before it alone.

It is fed whole canvases like its rival, and shifts them itself: what it says of a place follows
from the tokens before that place, with MASK in front of the first. So whoever lays a label or an
answer on a canvas (the loss, where each token looked) need not know which kind of decoder reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from gryphone.config import ModelConfig
from gryphone.kinds import network_with
from gryphone.model import Decoder, DecoderBlock, GryphOne, Memory, Packing, SelfAttention
from gryphone.tokens import MASK_ID


def causal_network(
    config: ModelConfig, vocabularies: tuple[int, ...], names: Sequence[str]
) -> GryphOne:
    """Encoder and causal decoder in the sizes that the settings give."""
    return network_with(CausalDecoder, config, vocabularies)


def attend_causal(
    q: Tensor, k: Tensor, v: Tensor, rows: Packing, columns: Packing, dropout: float
) -> Tensor:
    """Attention of every place of packed sequences on itself and those before; (T, H, D) each."""
    # Where each place lies among padded sequences: by arithmetic, which waits for no device.
    place = torch.arange(len(q), dtype=torch.int32, device=q.device)
    owner = rows.owner(place)
    slot = owner * rows.longest + place - rows.offsets[owner]
    # Padding lies behind all real places, which do not look there: no mask is needed.
    every = torch.stack((q, k, v), 1)  # (T, 3, H, D)
    shape = (len(rows.offsets) - 1, rows.longest)
    padded = every.new_zeros(shape[0] * shape[1], *every.shape[1:]).index_copy(0, slot, every)
    q, k, v = padded.view(*shape, *every.shape[1:]).permute(2, 0, 3, 1, 4).unbind()
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
    return out.transpose(1, 2).flatten(0, 1).index_select(0, slot)


class CausalDecoder(Decoder):
    """Transformer that writes from left to right; the weights have the names of `Decoder`'s."""

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**sizes)
        for block in self.blocks:
            cast(DecoderBlock, block).attn.attend = attend_causal

    def forward(
        self,
        tokens: Tensor,
        index: Tensor,
        memory: Memory,
        own: Packing,
        queries: list[Tensor] | None = None,
    ) -> list[Tensor]:
        before = torch.where((index == 0)[:, None], MASK_ID, tokens.roll(1, 0))
        return super().forward(before, index, memory, own, queries)

    def writer(self, memory: Memory, rows: int, length: int) -> Writer:
        """This decoder at work on the images of a memory, so many rows of tokens for each."""
        return Writer(self, memory, rows, length)


class Writer:
    """A causal decoder at work on the images of one memory: a step costs one token of each row.

    Every image has so many `rows`, one behind the other; all are equally long at any time.
    """

    def __init__(self, decoder: CausalDecoder, memory: Memory, rows: int, length: int) -> None:
        self.decoder, self.memory, self.place = decoder, memory, 0
        first, images = memory.keys_values[0][0], len(memory.rows.offsets) - 1
        # All rows of an image form one sequence of queries: its patches are read once.
        self.rows = Packing.equal(images, rows, first.device)
        shape = (2, images * rows, length, *first.shape[1:])
        self.kept = [first.new_empty(shape) for _ in decoder.blocks]  # keys and values of the past

    def step(self, tokens: Tensor) -> list[Tensor]:
        """Log-probs [(R, V) per stream] of each row's next token, after one more of them (R, S)."""
        decoder = self.decoder
        index = torch.full((len(tokens),), self.place, device=tokens.device)
        x = decoder.embedded(tokens, index).to(self.kept[0].dtype)
        for layer, module in enumerate(decoder.blocks):
            block = cast(DecoderBlock, module)
            x = x + self.look_back(block.attn, block.norm1(x), self.kept[layer])
            x = x + self.look_at(layer, block.norm2(x))
            x = x + block.mlp(block.norm3(x))
        x = self.finish(decoder.norm(x))
        self.place += 1
        return [F.log_softmax(logits.float(), -1) for logits in decoder.logits(x)]

    def look_at(self, layer: int, x: Tensor) -> Tensor:
        """What one new place of each row, (R, width), sees of its image."""
        block, memory = cast(DecoderBlock, self.decoder.blocks[layer]), self.memory
        seen: Tensor = block.cross(x, memory.keys_values[layer], self.rows, memory.rows)
        return seen

    def finish(self, x: Tensor) -> Tensor:
        """The last states (R, width), after what a rival does behind its blocks."""
        return x

    def look_back(self, attention: SelfAttention, x: Tensor, kept: Tensor) -> Tensor:
        """Attention of one new place of each row, (R, width), on itself and what was kept."""
        q, *pair = attention.qkv(x).unflatten(1, (3, attention.heads, -1)).unbind(1)
        kept[:, :, self.place] = torch.stack(pair)
        k, v = kept[:, :, : self.place + 1].transpose(2, 3)
        out = F.scaled_dot_product_attention(q[:, :, None], k, v)  # (R, H, 1, D)
        mixed: Tensor = attention.proj(out.flatten(1))
        return mixed

    def follow(self, rows: Tensor) -> None:
        """Let each row go on from the past of another (R,)."""
        for kept in self.kept:
            kept[:, :, : self.place] = kept[:, rows, : self.place]
