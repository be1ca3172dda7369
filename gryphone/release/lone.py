"""Trains the reader of lone symbols (`gryphone.recognition.lone`).

    python -m gryphone.release.lone packed/train.parquet packed/offhme.parquet \\
        ../shared/data/letters ../shared/data/symbols/detexify-math.jsonl.xz \\
        --minutes 16 --out runs/lone.safetensors \\
        --validation packed/lone-2023.parquet packed/letters-lone.parquet

Packed stores have symbols within formulas, which have a size; a folder of letters and a file of
drawings have them alone. Every symbol is turned, slanted, stretched and bent anew each time. A
class has a share of the square root of its symbols: rare ones are seen, frequent ones stay so.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional as F

from gryphone.checkpoint import WEIGHTS, read_checkpoint
from gryphone.data.packed import read_packed
from gryphone.errors import DataError, writing
from gryphone.ink import Stroke, typical_stroke
from gryphone.recognition.lone import (
    CHANNELS,
    HIDDEN,
    POINTS,
    SIDE,
    LoneReader,
    described,
    evenly_drawn,
    graph_of,
    pictures,
    size_of,
    stored,
)
from gryphone.release.common import run
from gryphone.synth.glyph_sources import from_detexify, from_letters

Found = tuple[str, Sequence[Stroke], float]  # a symbol, its strokes and its size
NO_SIZE = 0.5  # share of the symbols in formulas that are shown without their size


@dataclass(frozen=True)
class Glyphs:
    """Symbols to learn from."""

    names: tuple[str, ...]
    points: np.ndarray  # (n, POINTS, 2) float16
    pen: np.ndarray  # (n, POINTS) bool
    labels: np.ndarray  # (n,) into names
    sizes: np.ndarray  # (n,) logarithms, NaN where unknown

    @classmethod
    def of(cls, found: Iterable[Found], known: Collection[str]) -> Glyphs:
        """Those whose symbol is among the known ones."""
        points, pens, labels, sizes = [], [], [], []
        for label, strokes, size in found:
            if label in known:
                drawn, pen = evenly_drawn(strokes)
                points.append(drawn.astype(np.float16))
                pens.append(pen)
                labels.append(label)
                sizes.append(size)
        if not labels:
            raise DataError("no symbol of the vocabulary is in these files")
        names, index = np.unique(labels, return_inverse=True)
        drawn, pen = np.stack(points), np.stack(pens)
        return cls(tuple(names.tolist()), drawn, pen, index, np.array(sizes))

    def draws(self, count: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
        """Batches of so many, each class by the square root of its number."""
        often = np.bincount(self.labels) ** -0.5
        odds = np.cumsum(often[self.labels])
        while True:
            at = np.searchsorted(odds, generator.random(count) * odds[-1])
            yield at.clip(0, len(odds) - 1)

    def seen(self, chosen: np.ndarray, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Pictures (B, 3, SIDE, SIDE) and sizes (B, 2), as nobody has seen them before."""
        points = distorted(self.points[chosen].astype(np.float32), generator)
        sizes = self.sizes[chosen] + 0.1 * generator.standard_normal(len(chosen))
        sizes[generator.random(len(chosen)) < NO_SIZE] = np.nan
        drawn = pictures(points, self.pen[chosen])
        return torch.from_numpy(drawn), torch.from_numpy(described(sizes))


def in_letters(folder: Path) -> Iterator[Found]:
    """Isolated letters of the people who are not held out."""
    for glyph in from_letters(folder, Counter()):
        yield glyph.label, glyph.strokes, math.nan


def in_drawings(path: Path) -> Iterator[Found]:
    """Detexify's drawings of symbols."""
    for glyph in from_detexify(path):
        yield glyph.label, glyph.strokes, math.nan


def in_store(path: Path) -> Iterator[Found]:
    """The segmented symbols of a packed store; one without others has no size."""
    packed = read_packed(path)
    for number in range(len(packed)):
        ink = packed.ink(number)
        usual = typical_stroke(ink.strokes) if len(ink.glyphs) > 1 else math.nan
        for glyph in ink.glyphs:
            strokes = [ink.strokes[i] for i in glyph.strokes]
            if strokes:
                yield glyph.label, strokes, size_of(strokes, usual)


def distorted(points: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Symbols (B, POINTS, 2) turned, slanted, stretched, bent, and with an unsteady hand."""
    count = len(points)
    turn, slant, stretch = generator.standard_normal((3, count)) * [[0.1], [0.15], [0.12]]
    wide = np.exp(stretch)
    cos, sin, none = np.cos(turn), np.sin(turn), np.zeros(count)
    turned = np.stack([np.stack([cos, -sin], 1), np.stack([sin, cos], 1)], 1)
    shaped = np.stack([np.stack([wide, slant], 1), np.stack([none, 1 / wide], 1)], 1)
    points = points @ (turned @ shaped).swapaxes(1, 2)
    for _ in range(2):
        waves = generator.standard_normal((count, 2, 2)) * 1.6
        phase = generator.random((count, 1, 2)) * 2 * np.pi
        height = generator.standard_normal((count, 1, 2)) * 0.05
        points = points + height * np.sin(points @ waves + phase)
    # Unsteady by the way, not by the point: noise of each point would drown its direction.
    knots = generator.standard_normal((count, 14, 2)) * 0.025
    at = np.linspace(0, 13, POINTS)
    low = np.minimum(at.astype(int), 12)
    part = (at - low)[:, None]
    points = points + knots[:, low] * (1 - part) + knots[:, low + 1] * part
    return np.asarray(points, dtype=np.float32)


class Convolution(nn.Module):
    """A convolution and its norm, which the written weights have as one."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.weighed = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.weighed(x))
        return out

    def folded(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of both together."""
        [mean, spread, *_] = self.norm.buffers()
        scale = self.norm.weight / (spread + self.norm.eps).sqrt()
        return self.weighed.weight * scale[:, None, None, None], self.norm.bias - mean * scale


class LoneNetwork(nn.Module):
    """What `recognition.lone.graph_of` computes."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        pairs = list(pairwise(CHANNELS))
        self.first = Convolution(3, CHANNELS[0])
        self.down = nn.ModuleList(Convolution(few, many, 2) for few, many in pairs)
        self.one = nn.ModuleList(Convolution(many, many) for _, many in pairs)
        self.two = nn.ModuleList(Convolution(many, many) for _, many in pairs)
        self.seen = nn.Linear(CHANNELS[-1] * (SIDE // 8) ** 2, HIDDEN)
        self.size = nn.Linear(2, HIDDEN)
        self.named = nn.Linear(HIDDEN, classes)
        self.drop = nn.Dropout(0.3)

    def forward(self, drawn: Tensor, size: Tensor) -> Tensor:
        """Logits (B, classes) of pictures (B, 3, SIDE, SIDE) and sizes (B, 2)."""
        x = F.relu(self.first(drawn))
        for down, one, two in zip(self.down, self.one, self.two, strict=True):
            x = F.relu(down(x))
            x = F.relu(x + two(F.relu(one(x))))
        x = F.relu(self.seen(self.drop(x.flatten(1))) + self.size(size))
        out: Tensor = self.named(self.drop(x))
        return out

    def arrays(self) -> dict[str, np.ndarray]:
        """Weights and biases by layer, as `graph_of` knows them."""
        out: dict[str, Tensor] = {}
        for name, module in self.named_modules():
            if isinstance(module, Convolution):
                out[f"{name}.weight"], out[f"{name}.bias"] = module.folded()
            elif isinstance(module, nn.Linear):
                out[f"{name}.weight"], out[f"{name}.bias"] = module.weight, module.bias
        return {name: tensor.detach().numpy() for name, tensor in out.items()}


def train(
    glyphs: Glyphs,
    minutes: float,
    batch: int = 256,
    lr: float = 2e-3,
    seed: int = 0,
    steps: int | None = None,
) -> LoneNetwork:
    """Learn for some minutes, or steps; the weights are averaged over the last of them."""
    torch.manual_seed(seed)
    generator = np.random.default_rng(seed)
    network, mean = LoneNetwork(len(glyphs.names)), LoneNetwork(len(glyphs.names))
    mean.load_state_dict(network.state_dict())
    optimizer = torch.optim.AdamW(network.parameters(), lr, weight_decay=0.02)
    began = told = time.perf_counter()
    for step, chosen in enumerate(glyphs.draws(batch, generator), 1):
        now = time.perf_counter()
        done = (now - began) / (60 * minutes) if steps is None else (step - 1) / steps
        if done >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1, step / 200) * (0.01 + 0.5 * (1 + math.cos(math.pi * done)))
        said = network(*glyphs.seen(chosen, generator))
        loss = F.cross_entropy(said, torch.from_numpy(glyphs.labels[chosen]), label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        keep = min(0.998, step / (step + 20))
        for kept, new in zip(
            mean.state_dict().values(), network.state_dict().values(), strict=True
        ):
            kept.copy_(torch.lerp(kept.float(), new.float(), 1 - keep))
        if now - told > 60:
            told = now
            speed = step * batch / (now - began)
            print(
                f"{done:4.0%} {step * batch:,} symbols, {speed:.0f}/s, loss {loss:.3f}", flush=True
            )
    return mean.eval()


def write(path: Path, network: LoneNetwork, names: Sequence[str]) -> None:
    """The reader's file."""
    tensors = {k: torch.from_numpy(v).contiguous() for k, v in stored(network.arrays()).items()}
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(save(tensors, {"symbols": json.dumps(list(names))}))


def accuracy(reader: LoneReader, path: Path) -> Mapping[str, float]:
    """How many lone symbols of a packed store are read right, and have the truth among six."""
    packed = read_packed(path)
    inks = [packed.ink(number).strokes for number in range(len(packed))]
    order = np.argsort(-reader.log_probs(inks), axis=1)[:, :6]
    best = [[reader.symbols[i] for i in row] for row in order]
    right = [label == row[0] for label, row in zip(packed.labels, best, strict=True)]
    among = [label in row for label, row in zip(packed.labels, best, strict=True)]
    return {"right": 100 * float(np.mean(right)), "among six": 100 * float(np.mean(among))}


def main() -> None:
    """Command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("sources", type=Path, nargs="+", help="packed stores, letters, drawings")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    parser.add_argument("--weights", type=Path, default=WEIGHTS, help="whose symbols are read")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--validation", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    symbols = read_checkpoint(options.weights).tokenizer.vocabularies[0].tokens
    kinds = {".parquet": in_store, "": in_letters, ".xz": in_drawings}
    if odd := [path for path in options.sources if path.suffix not in kinds]:
        raise DataError(
            f"{odd[0]} is no packed store (.parquet), folder of letters or file of drawings (.xz)"
        )
    found = (glyph for path in options.sources for glyph in kinds[path.suffix](path))
    glyphs = Glyphs.of(found, frozenset(symbols))
    print(f"{len(glyphs.labels):,} symbols of {len(glyphs.names)} classes", flush=True)
    network = train(glyphs, options.minutes, seed=options.seed)
    write(options.out, network, glyphs.names)
    reader = LoneReader(
        graph_of(stored(network.arrays()), len(glyphs.names)).to_bytes({}), glyphs.names
    )
    for path in options.validation:
        shares = ", ".join(f"{k} {v:.1f} %" for k, v in accuracy(reader, path).items())
        print(f"{path.stem}: {shares}", flush=True)


if __name__ == "__main__":
    run(main)
