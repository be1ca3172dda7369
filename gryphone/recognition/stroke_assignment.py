"""Where each symbol sits: which strokes of the input became which token.

Two witnesses are asked. The patch heads say, for every inked patch, which token's ink it holds;
the decoder's cross-attention says where each token looked, which tells equal symbols apart. Every
stroke goes to the token that its pixels speak for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor

from gryphone.config import Canvas
from gryphone.model import DecoderBlock, GryphOne, Memory, Packing
from gryphone.raster import Patches, Pixels

ATTENTION = 1.0  # weight of the cross-attention against the patch heads
FLOOR = 1e-4


@torch.inference_mode()
def attention(model: GryphOne, memory: Memory, canvases: Sequence[Tensor]) -> list[Tensor]:
    """Where each token looks, (L, n, P) for each finished canvas (n, S): the heads' mean per layer.

    The canvases are those of the images of `memory`, in order.
    """
    decoder = model.decoder
    lengths = [len(ids) for ids in canvases]
    device = canvases[0].device
    x = decoder.position(torch.cat([torch.arange(n, device=device) for n in lengths]))
    for stream, table in enumerate(decoder.embed):
        x = x + table(torch.cat([ids[:, stream] for ids in canvases]))
    own = Packing.of(torch.tensor(lengths, device=device), max(lengths))
    if len(lengths) == 1:
        own = Packing.equal(1, lengths[0], device)
    patches = memory.rows.offsets.diff().tolist()
    seen: list[list[Tensor]] = [[] for _ in lengths]
    blocks = cast(Iterable[DecoderBlock], decoder.blocks)
    for block, (k, v) in zip(blocks, memory.keys_values, strict=True):
        x = x + block.attn(block.norm1(x), own)
        query = block.norm2(x)
        q = block.cross.q(query).unflatten(1, (block.cross.heads, -1))
        for layers, own_q, own_k in zip(
            seen, q.split_with_sizes(lengths), k.split_with_sizes(patches), strict=True
        ):
            scores = torch.einsum("nhd,phd->hnp", own_q, own_k) / q.shape[-1] ** 0.5
            layers.append(scores.softmax(-1).mean(0))
        x = x + block.cross(query, (k, v), own, memory.rows)
        x = x + block.mlp(block.norm3(x))
    return [torch.stack(layers) for layers in seen]


def strokes_on_patches(
    pixels: Pixels, patches: Patches, canvas: Canvas, sample: int, strokes: range
) -> Tensor:
    """How many pixels of each stroke lie in each patch of one sample, (strokes, P).

    `pixels.glyph` must hold stroke numbers; `strokes` are those of the sample.
    """
    begin, end = (int(o) for o in patches.offsets[sample : sample + 2])
    position = patches.position[begin:end].cpu()
    rows, columns = (int(n) for n in patches.shape[sample])
    place = torch.zeros(rows * columns, dtype=torch.int64)
    place[position[:, 0] * columns + position[:, 1]] = torch.arange(end - begin)
    own = (pixels.sample == sample).cpu()
    row, column = pixels.row.cpu()[own], pixels.column.cpu()[own]
    home = place[(row // canvas.patch) * columns + column // canvas.patch]
    counts = torch.zeros(len(strokes), end - begin)
    stroke = pixels.glyph.cpu()[own] - strokes.start
    return counts.index_put_((stroke, home), torch.ones(len(home)), accumulate=True)


@torch.inference_mode()
def evidence(
    model: GryphOne, memory: Memory, canvases: Sequence[Tensor], weight: float = ATTENTION
) -> list[Tensor]:
    """Log-score (n, P) of each patch holding ink of each token, for every canvas (n, S)."""
    patches = memory.rows.offsets.diff().tolist()
    heads = [
        head(memory.features).log_softmax(-1).split_with_sizes(patches)
        for head in model.patch_heads
    ]
    out = []
    for image, looked in enumerate(attention(model, memory, canvases)):
        look = looked.mean(0)
        look = look / look.amax(1, keepdim=True).clamp_min(1e-12)
        score = weight * look.clamp_min(FLOOR).log()
        for stream, log_probs in enumerate(heads):  # (P, V)
            score = score + log_probs[image][:, canvases[image][:, stream]].T.clamp_min(-12)
        out.append(score)
    return out


def assign(score: Tensor, ink: Tensor, writes: Tensor) -> list[int]:
    """The token of each stroke, -1 for none; `ink` (strokes, P) weighs the patches.

    `writes` (n,) says which tokens have ink at all. A token that is left without a stroke takes
    the one that speaks for it most, if its owner has another.
    """
    share = ink / ink.sum(1, keepdim=True).clamp_min(1)
    votes = share @ score.T  # (strokes, n)
    votes[:, ~writes] = -torch.inf
    if not bool(writes.any()):
        return [-1] * len(ink)
    owner: list[int] = votes.argmax(1).tolist()
    for token in writes.nonzero().squeeze(1).tolist():
        if token in owner:
            continue
        gain = votes[:, token] - votes.amax(1)
        for stroke in gain.argsort(descending=True).tolist():
            if owner.count(owner[stroke]) > 1:
                owner[stroke] = token
                break
    return owner
