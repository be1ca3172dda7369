"""What a data set looks like in numbers: sizes, lengths, tokens, shapes, inked patches."""

import io
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gryphone.data.packed import Packed, read_packed
from gryphone.data.packing import NothingPacked, first_of, write_packed
from gryphone.data.samples import Sample, Samples
from gryphone.errors import DataError, GryphoneError, need
from gryphone.latex.normalize import normalize
from gryphone.tokens import sat_split

Values = NDArray[np.float64]
MEASURES = ("symbols", "tokens", "strokes", "points", "aspect", "patches")


@dataclass(frozen=True)
class Stats:
    """Counts of a data set and one value per sample of each measure; NaN where there is none."""

    sources: list[str]  # one per sample
    labels: list[str]  # normalised
    measures: dict[str, Values]  # (n,) each, keys MEASURES
    symbols: Counter[str]
    modifiers: Counter[str]
    left_out: list[tuple[str, str]] = field(default_factory=list)

    @property
    def distinct_labels(self) -> int:
        """How many different labels there are."""
        return len(set(self.labels))

    def __add__(self, other: "Stats") -> "Stats":
        """Both together, what was left out too."""
        return Stats(
            self.sources + other.sources,
            self.labels + other.labels,
            {m: np.concatenate([self.measures[m], other.measures[m]]) for m in MEASURES},
            self.symbols + other.symbols,
            self.modifiers + other.modifiers,
            self.left_out + other.left_out,
        )

    def rows(self) -> Iterator[tuple[str, int, dict[str, dict[str, float]]]]:
        """Name, count and summary of each source, and of all together when there are several."""
        names = list(dict.fromkeys(self.sources))
        owner = np.array(self.sources)
        for name in names:
            yield name, int((owner == name).sum()), self._summaries(owner == name)
        if len(names) > 1:
            yield "all", len(owner), self._summaries(np.ones(len(owner), dtype=bool))

    def _summaries(self, chosen: NDArray[np.bool_]) -> dict[str, dict[str, float]]:
        return {name: summary(values[chosen]) for name, values in self.measures.items()}

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        return {
            "count": len(self.sources),
            "distinct_labels": self.distinct_labels,
            "sources": {name: {"count": n, **s} for name, n, s in self.rows()},
            "symbols": dict(self.symbols.most_common()),
            "modifiers": dict(self.modifiers.most_common()),
            "left_out": [{"name": name, "reason": reason} for name, reason in self.left_out],
        }


def summary(values: Values) -> dict[str, float]:
    """Mean, median, 1st and 99th percentile and maximum of the numbers that are there."""
    there = values[np.isfinite(values)]
    if not len(there):
        return {}
    low, middle, high = np.percentile(there, [1, 50, 99])
    figures = {"mean": there.mean(), "p1": low, "median": middle, "p99": high, "max": there.max()}
    return {name: round(float(value), 3) for name, value in figures.items()}


def packed_stats(
    packed: Packed,
    left_out: list[tuple[str, str]] | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Stats:
    """Measure a packed store."""
    sizes, symbols, modifiers = _label_sizes(packed.labels)
    begins = packed.offsets[:-1]
    extent = np.maximum.reduceat(packed.points, begins)  # (n, 2): boxes start at 0
    strokes = np.add.reduceat((~packed.pen).astype(np.int64), begins)
    measures = sizes | {
        "strokes": strokes.astype(np.float64),
        "points": np.diff(packed.offsets).astype(np.float64),
        "aspect": _aspect(extent[:, 0], extent[:, 1]),
        "patches": inked_patches(packed, progress=progress).astype(np.float64),
    }
    return Stats(packed.sources, packed.labels, measures, symbols, modifiers, left_out or [])


def dataset_stats(
    samples: Samples, convention: str, progress: Callable[[int], None] = lambda done: None
) -> Stats:
    """Measure any data set: inks as they would be packed, images by label and shape."""
    images: list[Sample] = []

    def inks() -> Samples:
        for sample in samples:
            if isinstance(sample, Sample) and sample.image is not None:
                images.append(sample)
                progress(len(images))
            else:
                yield sample

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "packed.parquet"
        try:
            report = write_packed(inks(), path, convention=convention, progress=progress)
        except NothingPacked as error:
            stats = _image_stats(images, convention, error.report.left_out())
        else:
            stats = packed_stats(read_packed(path), report.left_out(), progress)
            stats += _image_stats(images, convention, [])
    if not stats.sources:
        raise DataError(f"nothing to measure among {first_of(stats.left_out)}")
    return stats


def _image_stats(images: list[Sample], convention: str, left_out: list[tuple[str, str]]) -> Stats:
    from PIL import Image

    kept, labels, shapes = [], [], []
    for sample in images:
        try:
            label = " ".join(normalize(sample.label or "", convention))
            with Image.open(io.BytesIO(sample.image or b"")) as picture:
                shapes.append(picture.size)
        except (GryphoneError, OSError) as error:
            left_out.append((sample.id, str(error)))
            continue
        kept.append(sample)
        labels.append(label)
    sizes, symbols, modifiers = _label_sizes(labels)
    extent = np.array(shapes, dtype=np.float64).reshape(-1, 2)  # (n, 2), also where n is 0
    nothing = np.full(len(kept), np.nan)
    aspect = _aspect(extent[:, 0], extent[:, 1])
    measures = dict.fromkeys(MEASURES, nothing) | sizes | {"aspect": aspect}
    sources = [sample.source for sample in kept]
    return Stats(sources, labels, measures, symbols, modifiers, left_out)


def _label_sizes(labels: list[str]) -> tuple[dict[str, Values], Counter[str], Counter[str]]:
    """Symbols and tokens of each label, and how often each symbol and modifier occurs."""
    words = [label.split() for label in labels]
    pairs = [sat_split(tokens) for tokens in words]
    measures = {"symbols": np.array([*map(len, pairs)], dtype=np.float64)}
    measures["tokens"] = np.array([*map(len, words)], dtype=np.float64)
    symbols, modifiers = (Counter(pair[i] for row in pairs for pair in row) for i in (0, 1))
    return measures, symbols, modifiers


def _aspect(width: NDArray[Any], height: NDArray[Any]) -> Values:
    """Width over height, bounded where one of them is next to nothing."""
    longest = np.maximum(np.maximum(width, height), 1e-9)
    result: Values = np.maximum(width, longest / 100) / np.maximum(height, longest / 100)
    return result.astype(np.float64)


def inked_patches(
    packed: Packed, block: int = 256, progress: Callable[[int], None] = lambda done: None
) -> NDArray[np.int64]:
    """How many 8x8 patches of the constant-area canvas hold ink, per sample (n,)."""
    need("torch", "synth")
    from gryphone.config import Canvas
    from gryphone.raster import InkBatch, draw, to_patches

    canvas = Canvas(kind="area", side=224, patch=8, window=8)
    counts = np.zeros(len(packed), dtype=np.int64)
    for first in range(0, len(packed), block):
        last = min(first + block, len(packed))
        inks = InkBatch.from_strokes([packed.strokes(i) for i in range(first, last)])
        counts[first:last] = to_patches(draw(inks, canvas), canvas).offsets.diff().numpy()
        progress(last)
    return counts


def plot(stats: Stats, path: Path) -> None:
    """Draw the distributions and the token frequencies to an image file."""
    need("matplotlib", "analysis")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 7), layout="constrained")
    axes = figure.subplots(2, 3).flat
    titles = {
        "symbols": "symbols per label",
        "tokens": "LaTeX tokens per label",
        "strokes": "strokes",
        "aspect": "width / height",
        "patches": "inked 8×8 patches",
    }
    names = list(dict.fromkeys(stats.sources))
    owner = np.array(stats.sources)
    for axis, (key, title) in zip(axes, titles.items(), strict=False):
        values = stats.measures[key]
        there = values[np.isfinite(values)]
        axis.set_title(title)
        if not len(there):
            continue
        wide = key == "aspect"
        # Whole numbers get bins of whole width, or the bars would beat against them.
        top = float(np.percentile(there, 99.5))
        step = max(1, round(top / 40))
        bins = np.arange(0, top + step, step) - 0.5
        if wide:
            bins = np.geomspace(there.min(), there.max() + 1e-6, 50)
        for name in names:
            chosen = values[owner == name]
            axis.hist(chosen[np.isfinite(chosen)], bins=bins, histtype="step", label=name)
        if wide:
            axis.set_xscale("log")
    figure.axes[0].legend(fontsize=8)
    frequencies = [count for _, count in stats.symbols.most_common()]
    figure.axes[5].loglog(range(1, len(frequencies) + 1), frequencies, ".-")
    figure.axes[5].set_title(f"frequency of the {len(frequencies)} symbols by rank")
    try:
        figure.savefig(path, dpi=110)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot write the plot: {error}") from error
