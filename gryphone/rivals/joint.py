"""The joint beam of decoders that write in both directions.

A beam from left to right and one from right to left are written to their ends; every hypothesis of
both is then rated in both directions, by the mean log-prob of its tokens and its end, and the sum
decides. A beam of one is plain greedy writing from left to right.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gryphone.decoding import Decoded, Request
from gryphone.model import GryphOne, Memory
from gryphone.ragged import ranges
from gryphone.rivals.search import (
    Writers,
    decode_cached,
    explore,
    once,
    read_out,
    shown,
    written,
)
from gryphone.rivals.trunk import Rival, Sheet, TwoWayDecoder, sheet_of
from gryphone.tokens import MASK_ID, PAD_ID


def decode_jointly(
    model: GryphOne, memories: Sequence[Memory], images: np.ndarray, request: Request
) -> list[Decoded]:
    """The best of both beams; `images` name each canvas's ink of the memories."""
    assert isinstance(model, Rival)
    o, decoder = request.options, model.decoder
    if o.beam == 1:
        return decode_cached(model, memories, images, request)
    memories, owners = once(memories, images)
    inks, device = len(memories[0].rows.offsets) - 1, memories[0].features.device
    # An ink's rows: its beam from left to right, then the other.
    speaker = Writers([decoder.writer(memory, 2 * o.beam, o.length) for memory in memories])
    starts = torch.tensor([MASK_ID, PAD_ID], device=device).repeat(inks)
    found = explore(speaker, request, starts, to_the_end=True)
    ids, _ = written(found, torch.arange(2 * inks * o.beam, device=device))
    ids = ids[:, : o.length - 1]  # an end has to fit behind it
    lengths = (ids[..., 0] != PAD_ID).long().cumprod(1).sum(1)
    backward = torch.arange(len(ids), device=device) // o.beam % 2 == 1
    ids = forwards(ids, lengths, backward)
    looks = [rated(decoder, memory, ids, lengths) for memory in memories]
    best = torch.stack(looks).mean(0).view(inks, -1).argmax(1)  # (B,)
    best = best + torch.arange(inks, device=device) * 2 * o.beam
    answers = _read_again(decoder, memories, ids[best], lengths[best], request)
    return shown([answers[owner] for owner in owners], request)


def forwards(ids: Tensor, lengths: Tensor, backward: Tensor) -> Tensor:
    """Rows (R, T, S) of some lengths, those that were written backwards turned round."""
    place = torch.arange(ids.shape[1], device=ids.device)
    turned = backward[:, None] & (place < lengths[:, None])
    source = torch.where(turned, lengths[:, None] - 1 - place, place)
    return ids.gather(1, source[..., None].expand_as(ids))


def laid_out(ids: Tensor, lengths: Tensor, ways: Sequence[bool]) -> Sheet:
    """Rows (R, T, S) as canvases, each in all of the ways (backward or not) in turn."""
    repeated = (lengths + 1).repeat_interleave(len(ways))
    canvas, index = ranges(repeated)
    row = canvas // len(ways)
    tokens = ids[row, index.clamp_max(ids.shape[1] - 1)]
    tokens = torch.where((index < lengths[row])[:, None], tokens, PAD_ID)
    backward = torch.tensor(ways, device=ids.device).repeat(len(ids))
    return sheet_of(tokens, index, canvas, repeated, backward)


def rated(decoder: TwoWayDecoder, memory: Memory, ids: Tensor, lengths: Tensor) -> Tensor:
    """How well rows (R, T, S) are spoken for in both directions (R,)."""
    sheet = laid_out(ids, lengths, (False, True))
    states = decoder.hidden(sheet.before, sheet.index, memory, sheet.own)
    ended = sheet.truth[:, 0] == PAD_ID
    total = states.new_zeros(len(states), dtype=torch.float32)
    for stream, logits in enumerate(decoder.logits(states)):
        losses = F.cross_entropy(logits.float(), sheet.truth[:, stream], reduction="none")
        # The end is the first stream's affair alone.
        total = total - (losses if stream == 0 else losses.masked_fill(ended, 0))
    count = len(sheet.backward)
    score = total.new_zeros(count).index_add(0, sheet.canvas, total)
    score = score / torch.bincount(sheet.canvas, minlength=count)
    more = decoder.score(states, sheet)
    return (score if more is None else score + more).view(-1, 2).sum(1)


def _read_again(
    decoder: TwoWayDecoder,
    memories: Sequence[Memory],
    ids: Tensor,
    lengths: Tensor,
    request: Request,
) -> list[Decoded]:
    """Answers (B, T, S), and what is said of each place from left to right."""
    sheet = laid_out(ids, lengths, (False,))
    every = []
    for memory in memories:
        states = decoder.hidden(sheet.before, sheet.index, memory, sheet.own)
        every.append([logits.float().log_softmax(-1) for logits in decoder.logits(states)])
    looks = []
    for streams in zip(*every, strict=True):
        mean = torch.stack(streams).mean(0).log_softmax(-1)
        mean[:, request.mask_id] = -torch.inf
        looks.append(sheet.own.pad(mean)[0].cpu().numpy())
    truth = torch.where(
        (torch.arange(sheet.own.longest, device=ids.device) <= lengths[:, None])[..., None],
        sheet.own.pad(sheet.truth)[0],
        PAD_ID,
    )
    return read_out(truth.cpu().numpy(), looks, request)
