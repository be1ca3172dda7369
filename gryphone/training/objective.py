"""One micro-batch of training: ink -> patches, labels -> masked canvases, predictions -> loss."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gryphone.data.store import UNKNOWN, TrainingBatch, token_canvases
from gryphone.decoding import CANVASES
from gryphone.diffusion import corrupt, cross_entropy, forward_mask, rmml, sample_time
from gryphone.errors import ConfigError
from gryphone.model import Packing
from gryphone.raster import Patches, draw, thicken, to_patches
from gryphone.rivals.spots import spots_of
from gryphone.rivals.trunk import sheet_of
from gryphone.tokens import MASK_ID
from gryphone.training.augment import augment
from gryphone.training.quick import aside, handed_on
from gryphone.training.settings import TrainConfig


def seeded(seed: int, step: int, shard: int, device: torch.device) -> torch.Generator:
    """The generator of one micro-batch; it also seeds dropout."""
    digest = hashlib.sha256(f"{seed}:{step}:{shard}".encode()).digest()
    number = int.from_bytes(digest[:7], "big")
    torch.manual_seed(number)
    return torch.Generator(device).manual_seed(number)


def token_canvas_lengths(lengths: Tensor, longest: int, generator: torch.Generator) -> Tensor:
    """A canvas for each label (B,): the smallest that holds it and a PAD, sometimes a larger one.

    Canvases are few and shared by many lengths, so their size gives no label away.
    """
    sizes = torch.tensor([c for c in CANVASES if c < longest] + [longest], device=lengths.device)
    choice = torch.searchsorted(sizes, lengths + 1)
    u = torch.rand(len(lengths), generator=generator, device=generator.device)
    choice = choice + (u < 0.25).long() + (u < 0.06).long()
    return sizes[choice.clamp_max(len(sizes) - 1)]


@dataclass(frozen=True)
class Task:
    """What the network is asked in one micro-batch, and what it should answer."""

    patches: Patches
    masked: Tensor  # (N, S) tokens, some of them hidden
    index: Tensor  # (N,) place in the canvas
    own: Packing
    truth: Tensor  # (N, S)
    copies: tuple[Tensor, ...]  # RMML: the places of either copy, (N / 2,) each
    glyphs: Tensor  # (P, S) the token whose ink is in a patch, or UNKNOWN


def drawn(config: TrainConfig, batch: TrainingBatch, generator: torch.Generator) -> Patches:
    """Distort the inks, draw them and cut them into patches."""
    canvas, strength = config.model.canvas, config.augment
    ink, area, room = batch.ink, None, 1.0
    if strength is not None:
        ink = augment(ink, strength, generator)
        if canvas.kind != "square":
            area, room = strength.area_factor(ink.size, generator), strength.max_area_factor
    pixels = draw(ink, canvas, area)
    if strength is not None and strength.thick:
        u = torch.rand(ink.size, generator=generator, device=generator.device)
        pixels = thicken(pixels, u < strength.thick)
    patches = to_patches(pixels, canvas, area_factor=room, dense=config.model.keep_all)
    # Read back here, not in the network: see `aside`.
    return replace(patches, longest=Packing.of(patches.offsets.diff()).longest)


def make_task(
    config: TrainConfig, batch: TrainingBatch, sizes: tuple[int, ...], generator: torch.Generator
) -> Task:
    """Draw the inks, lay the labels on canvases and mask them."""
    patches = drawn(config, batch, generator)
    if config.model.dense:
        lengths = torch.full_like(batch.lengths, config.model.length)
    else:
        lengths = token_canvas_lengths(batch.lengths, config.model.length, generator)
    views = 2 if config.rmml else 1
    truth, index, owner, lengths = token_canvases(batch, lengths, views)
    # A t for each copy, or one for each sample.
    draws, per = (len(batch.lengths), views) if config.shared_time else (len(lengths), 1)
    moment = sample_time(draws, generator, config.time_power)[owner // per]
    place = None
    if config.suffix:
        u = torch.rand(len(lengths), generator=generator, device=generator.device)
        from_end = 1 - (index + 1) / lengths[owner]
        place = torch.where((u < config.suffix)[owner], from_end, torch.nan)
    masked = forward_mask(truth, moment, MASK_ID, generator, config.model.remasking.apart, place)
    if config.corrupt:
        masked = corrupt(masked, config.corrupt, sizes, MASK_ID, generator)
    if config.model.dense:
        own = Packing.equal(len(lengths), config.model.length, lengths.device)
    else:
        own = Packing.of(lengths)
    copies = [(owner % 2 == v).nonzero().squeeze(1) for v in (0, 1)] if config.rmml else []
    glyphs = glyphs_in(patches, batch, len(sizes))
    return Task(patches, masked, index, own, truth, tuple(copies), glyphs)


def forced_task(
    config: TrainConfig, batch: TrainingBatch, sizes: tuple[int, ...], generator: torch.Generator
) -> Task:
    """Draw the inks; a causal decoder is shown the labels and one PAD, and hides what is ahead."""
    patches = drawn(config, batch, generator)
    truth, index, _, lengths = token_canvases(batch, batch.lengths + 1, 1)
    shown = truth
    if config.corrupt:
        shown = corrupt(truth, config.corrupt, sizes, MASK_ID, generator)
    glyphs = glyphs_in(patches, batch, len(sizes))
    return Task(patches, shown, index, Packing.of(lengths), truth, (), glyphs)


def glyphs_in(patches: Patches, batch: TrainingBatch, streams: int) -> Tensor:
    """The token (P, S) whose ink is in a patch, or UNKNOWN."""
    known, tokens = (patches.glyph >= 0)[:, None], batch.glyph_tokens
    if len(tokens):
        return torch.where(known, tokens[patches.glyph.clamp_min(0)], UNKNOWN)
    return patches.glyph.new_full((len(patches.glyph), streams), UNKNOWN)


def training_loss(
    model: nn.Module,
    config: TrainConfig,
    batch: TrainingBatch,
    sizes: tuple[int, ...],
    generator: torch.Generator,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Draw, mask, predict, compare: the loss of one micro-batch and its parts."""
    with aside(generator.device):
        made = make_task(config, batch, sizes, generator)
    task, logits, patch_logits = predicted(model, made)
    if config.rmml:
        first, second = task.copies
        pair = [x[first] for x in logits], [x[second] for x in logits]
        loss = rmml(*pair, task.truth[first], config.detached).mean()
    else:
        loss = cross_entropy(logits, task.truth).mean()
    return with_patches(loss, patch_logits, task.glyphs, config.aux_weight)


def forced_loss(
    model: nn.Module,
    config: TrainConfig,
    batch: TrainingBatch,
    sizes: tuple[int, ...],
    generator: torch.Generator,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The same by teacher forcing: every token, and the PAD behind the last, from those before."""
    with aside(generator.device):
        made = forced_task(config, batch, sizes, generator)
    task, logits, patch_logits = predicted(model, made)
    loss = cross_entropy(logits, task.truth).mean()
    return with_patches(loss, patch_logits, task.glyphs, config.aux_weight)


def two_way_loss(
    model: nn.Module,
    config: TrainConfig,
    batch: TrainingBatch,
    sizes: tuple[int, ...],
    generator: torch.Generator,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Teacher forcing of every label in both directions, and what else the decoder is asked."""
    with aside(generator.device):
        patches = drawn(config, batch, generator)
        tokens, index, canvas, lengths = token_canvases(batch, batch.lengths + 1, 2)
        backward = torch.arange(len(lengths), device=lengths.device) % 2 == 1
        sheet = sheet_of(tokens, index, canvas, lengths, backward)
        if config.corrupt:
            shown = corrupt(sheet.before, config.corrupt, sizes, MASK_ID, generator)
            starts = (index == 0)[:, None]
            sheet = replace(sheet, before=torch.where(starts, sheet.before, shown))
        glyphs = glyphs_in(patches, batch, len(sizes))
    patches, sheet, glyphs = handed_on((patches, sheet, glyphs))
    logits, patch_logits, more = model(patches, sheet)
    loss = cross_entropy(logits, sheet.truth).mean()
    return with_more(*with_patches(loss, patch_logits, glyphs, config.aux_weight), more)


def found_loss(
    model: nn.Module,
    config: TrainConfig,
    batch: TrainingBatch,
    sizes: tuple[int, ...],
    generator: torch.Generator,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Symbols in their patches, what they are, and which stands next to which."""
    if config.corrupt:
        raise ConfigError("kind 'namer' is shown no tokens to corrupt; set corrupt: 0")
    with aside(generator.device):
        patches = drawn(config, batch, generator)
        bar = torch.rand(len(batch.lengths), generator=generator, device=generator.device)
        spots = spots_of(batch.tokens, batch.lengths, batch.glyph_places, patches, bar)
        glyphs = glyphs_in(patches, batch, len(sizes))
    patches, spots, glyphs = handed_on((patches, spots, glyphs))
    logits, patch_logits, graph, more = model(patches, spots)
    loss = patch_loss(logits, graph.truth)
    symbols = graph.truth[:, -1] != UNKNOWN  # they are told where they are, besides
    glyphs[graph.patch[symbols]] = graph.truth[symbols]
    return with_more(*with_patches(loss, patch_logits, glyphs, config.aux_weight), more)


def with_more(
    total: Tensor, parts: dict[str, Tensor], more: dict[str, Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """A loss and its parts with what else the network asks of itself."""
    for name, value in more.items():
        total, parts[name] = total + value, value.detach()
    return total, parts


def predicted(model: nn.Module, made: Task) -> tuple[Task, list[Tensor], list[Tensor]]:
    """A task that was made aside, and what the network says of its tokens and patches."""
    task = handed_on(made)
    return task, *model(task.patches, task.masked, task.index, task.own)


def with_patches(
    loss: Tensor, patch_logits: list[Tensor], glyphs: Tensor, weight: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of the tokens and that of the patches, where they are asked, and the parts."""
    parts = {"tokens": loss.detach()}
    if patch_logits:
        seen = patch_loss(patch_logits, glyphs)
        parts["patches"] = seen.detach()
        loss = loss + weight * seen
    return loss, parts


def patch_loss(logits: list[Tensor], target: Tensor) -> Tensor:
    """Which token's ink is in a patch: mean cross-entropy where that is known."""
    total = logits[0].new_zeros(())
    for s, stream in enumerate(logits):
        known = (target[:, s] != UNKNOWN).sum().clamp_min(1)
        losses = F.cross_entropy(
            stream.float(), target[:, s], ignore_index=UNKNOWN, reduction="sum"
        )
        total = total + losses / known
    return total
