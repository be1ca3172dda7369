"""Can synthetic ink be told from real ink? The accuracy of a classifier measures the synthesiser.

The classifier is linear; it sees patches of the raster through a codebook, or all of it through the
encoder of a trained recogniser. (A small network trained from nothing on a few thousand rasters
found no difference, on its own training ink either.)

Both sides show the same formulas: every real ink's label is written once more by the synthesiser,
in TeX's layout or in the real ink's own boxes. What the network finds is the hand, not the
formula. Labels of validation inks are written for this alone; they are never stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gryphone.config import Canvas
from gryphone.data.packed import Packed
from gryphone.errors import DataError
from gryphone.raster import InkBatch, draw, to_patches
from gryphone.synth.compose import Composer
from gryphone.synth.glyphs import GlyphBank
from gryphone.synth.layouts import EmBox, Layout, Layouts, pack_layouts
from gryphone.synth.real import numbered_layouts
from gryphone.synth.style import Style
from gryphone.synth.texlayout import typeset
from gryphone.tokens import build_tokenizer, sat_join, sat_split

ExtractFeatures = Callable[[InkBatch], Tensor]  # inks to features (B, D)
Classifier = Callable[[Tensor], Tensor]  # features (n, D) to scores (n,), positive looks real


@dataclass(frozen=True)
class Realism:
    """How well real and synthetic ink are told apart; 50 % is not at all."""

    accuracy: float  # on validation ink, mean of the two below
    real_accuracy: float  # real inks called real
    synthetic_accuracy: float
    train_accuracy: float
    train_inks: int
    valid_inks: int


@dataclass(frozen=True)
class InkPairs:
    """Real inks and the same labels written by the synthesiser, sample for sample."""

    real: InkBatch
    synthetic: InkBatch
    rows: tuple[int, ...]  # of the packed set


def matched_layouts(
    packed: Packed, boxes: Mapping[str, EmBox], origin: str
) -> tuple[list[int], Layouts]:
    """Layouts of the inks' own labels, by TeX or from the ink: rows of `packed`, and layouts."""
    if origin == "real":
        found = list(numbered_layouts(packed, boxes, (), Counter()))
    else:
        pairs = [tuple(sat_split(label.split())) for label in packed.labels]
        known: dict[tuple[tuple[str, str], ...], Layout] = {}
        for layout in typeset(sorted(set(pairs)), boxes, Counter()):
            known[layout.pairs] = layout
        found = [(row, known[label]) for row, label in enumerate(pairs) if label in known]
    if not found:
        raise DataError("none of the inks could be written again; do the boxes fit the glyph bank?")
    rows, layouts = zip(*found, strict=True)
    return list(rows), pack_layouts(layouts, boxes, origin=origin)


def write_again(
    packed: Packed,
    bank: GlyphBank,
    boxes: Mapping[str, EmBox],
    style: Style,
    origin: str,
    generator: torch.Generator,
) -> InkPairs:
    """Pairs of real and synthetic inks of one label."""
    rows, layouts = matched_layouts(packed, boxes, origin)
    labels = [sat_join(layouts.pairs(i)) for i in range(len(layouts))]
    plain = replace(style, exchange_samples=0.0, twin_samples=0.0)
    composer = Composer(bank, layouts, build_tokenizer("sat", labels), style=plain)
    made = composer.compose(torch.arange(len(rows)), generator)
    real = InkBatch.from_strokes([packed.strokes(row) for row in rows])
    return InkPairs(real, made.ink, tuple(rows))


def patch_features(batch: InkBatch, *, words: int = 512, seed: int = 0) -> ExtractFeatures:
    """Counts of what the recogniser's patches look like: a codebook of `words` windows.

    Fast, and sees how strokes bend, cross and end at the size of symbols, not where they stand.
    """
    canvas = Canvas(kind="stroke", window=16)

    def windows(inks: InkBatch) -> tuple[Tensor, Tensor]:
        seen = to_patches(draw(inks, canvas), canvas)
        soft = F.avg_pool2d(seen.pixels.float().view(-1, 1, 16, 16), 3, 2, 1).flatten(1)  # (P, 64)
        return F.normalize(soft, dim=1), seen.offsets.diff().long()

    generator = torch.Generator().manual_seed(seed)
    known, _ = windows(batch)
    known = known[torch.randperm(len(known), generator=generator)[:20000]]
    book = known[:words].clone()
    for _ in range(8):
        nearest = (known @ book.T).argmax(1)
        book = F.normalize(torch.zeros_like(book).index_add(0, nearest, known) + 1e-3 * book, dim=1)

    def features(inks: InkBatch) -> Tensor:
        patches, counts = windows(inks)
        word = (patches @ book.T).argmax(1)
        owner = torch.repeat_interleave(torch.arange(len(counts)), counts)
        tally = torch.zeros(len(counts) * len(book)).index_add(
            0, owner * len(book) + word, torch.ones(len(word))
        )
        return (tally.view(len(counts), -1) / counts[:, None]).sqrt()

    return features


def encoder_features(checkpoint: Path) -> ExtractFeatures:
    """Mean and spread of the features that a trained recogniser's encoder finds in an ink."""
    from gryphone.checkpoint import load_model, read_checkpoint
    from gryphone.recognition.torch_backend import TorchBackend

    backend = TorchBackend(load_model(checkpoint), read_checkpoint(checkpoint).config)

    @torch.inference_mode()
    def features(batch: InkBatch) -> Tensor:
        memory = backend.encode_batch(batch).memory
        counts = memory.rows.offsets.diff().long()
        owner = torch.repeat_interleave(torch.arange(len(counts)), counts)
        found = memory.features.float()
        empty = torch.zeros(len(counts), found.shape[1])
        mean = empty.index_add(0, owner, found) / counts[:, None]
        square = empty.index_add(0, owner, found**2) / counts[:, None]
        return torch.cat([mean, (square - mean**2).clamp_min(0).sqrt()], 1)

    return features


def features_of(extract: ExtractFeatures, batch: InkBatch, at_once: int = 64) -> Tensor:
    """Features (B, D) of every ink."""
    parts = []
    for begin in range(0, batch.size, at_once):
        some = torch.arange(begin, min(begin + at_once, batch.size))
        parts.append(extract(batch.select(some)))
    return torch.cat(parts).clone()


def train_classifier(real: Tensor, synthetic: Tensor, *, decay: float = 1e-2) -> Classifier:
    """A logistic regression that gives real features (n, D) a positive score."""
    seen = torch.cat([real, synthetic])
    truth = torch.cat([torch.ones(len(real)), torch.zeros(len(synthetic))])
    centre, scale = seen.mean(0), seen.std(0).clamp_min(1e-6)
    weight = torch.zeros(seen.shape[1], requires_grad=True)
    bias = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")
    inputs = (seen - centre) / scale

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(inputs @ weight + bias, truth)
        loss = loss + decay * weight.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return lambda features: ((features - centre) / scale) @ weight.detach() + bias.detach()


def measure(
    train: Packed,
    valid: Packed,
    bank: GlyphBank,
    boxes: Mapping[str, EmBox],
    style: Style,
    extract: ExtractFeatures | None = None,
    *,
    origin: str,
    limit: int = 1000,
    seed: int = 0,
) -> Realism:
    """Train a classifier on `limit` training inks and their twins, and score it on validation inks.

    Without another way to `extract` features, patches are counted.
    """
    draw = np.random.default_rng(seed)
    train = train.select(draw.permutation(len(train))[:limit])
    valid = valid.select(draw.permutation(len(valid))[:limit])
    generator = torch.Generator().manual_seed(seed)
    taught = write_again(train, bank, boxes, style, origin, generator)
    asked = write_again(valid, bank, boxes, style, origin, generator)
    extract = extract or patch_features(taught.real, seed=seed)
    real, synthetic = features_of(extract, taught.real), features_of(extract, taught.synthetic)
    classifier = train_classifier(real, synthetic)
    right = _share(classifier(features_of(extract, asked.real)) > 0)
    wrong = _share(classifier(features_of(extract, asked.synthetic)) <= 0)
    return Realism(
        accuracy=(right + wrong) / 2,
        real_accuracy=right,
        synthetic_accuracy=wrong,
        train_accuracy=(_share(classifier(real) > 0) + _share(classifier(synthetic) <= 0)) / 2,
        train_inks=len(taught.rows),
        valid_inks=len(asked.rows),
    )


def _share(answers: Tensor) -> float:
    return float(answers.float().mean())
