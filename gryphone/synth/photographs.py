"""Synthetic ink on synthetic paper, traced like any photograph: training samples for scans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

from gryphone.data.images import photographed
from gryphone.data.samples import Sample, Samples
from gryphone.ink import Ink
from gryphone.synth.ink_source import SynthSource
from gryphone.tokens import Tokenizer

# Nearer to natural formulas than what training composes: a photograph is seen many times.
STYLES: Mapping[str, Mapping[str, float]] = {
    "tex": {"exchange_samples": 0.5, "uniform_share": 0.15},
    "real": {"exchange_samples": 0.7, "uniform_share": 0.2},
}
UNITS = 1000  # of the longer side of an ink
BATCH = 64


def photographs(
    packed: Path,
    glyphs: Path,
    tokenizer: Tokenizer,
    count: int,
    *,
    seed: int = 0,
    workers: int = 1,
) -> Samples:
    """`count` photographed inks, half in TeX's layouts and half in real ones."""
    return photographed(written(packed, glyphs, tokenizer, count, seed), seed, workers)


def written(
    packed: Path, glyphs: Path, tokenizer: Tokenizer, count: int, seed: int
) -> Iterator[Sample]:
    """The inks before they are photographed."""
    device = torch.device("cpu")
    sources = [
        SynthSource.load(packed / f"layouts-{kind}.npz", glyphs, tokenizer, device, style)
        for kind, style in STYLES.items()
    ]
    generator = torch.Generator().manual_seed(seed)
    for begin in range(0, count, BATCH):
        size = min(BATCH, count - begin)
        batch = sources[begin // BATCH % len(sources)].sample(size, generator)
        labels = np.split(batch.tokens.numpy(), batch.lengths.cumsum(0)[:-1].numpy())
        points = batch.ink.points.numpy().astype(np.float64) * UNITS
        owner, starts = batch.ink.sample.numpy(), np.flatnonzero(~batch.ink.pen.numpy())
        strokes = np.split(points, starts[1:])
        for i in range(size):
            label = " ".join(tokenizer.decode(labels[i]))
            own = tuple(strokes[k] for k in np.flatnonzero(owner[starts] == i))
            name = f"synth-{seed}-{begin + i}"
            yield Sample(name, "synth-photo", label, ink=Ink(own, label=label, id=name))
