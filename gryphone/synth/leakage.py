"""Keeps validation and test ink out of the glyph bank: by the inks' names, and by their strokes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gryphone.data.datasets import read_dataset
from gryphone.data.samples import Sample, Unreadable
from gryphone.errors import DataError
from gryphone.reading.gestures import evenly
from gryphone.synth.glyphs import GlyphBank

Floats = NDArray[np.float64]

_POINTS = 24  # of a stroke's signature
_WINDING = 2.2  # path length over diagonal: simpler strokes are alike whoever writes them
# Root mean square distance, as a share of the stroke's size. Measured on CROHME: a training stroke
# is found in the bank within 0.006, no validation or test stroke comes nearer than 0.019.
SAME_STROKE = 0.010


def protected_names(datasets: Iterable[Path]) -> frozenset[str]:
    """The names of the inks in data sets that must not be learned from."""
    return frozenset(
        Path(sample.id).stem
        for path in datasets
        for sample in read_dataset(path)
        if isinstance(sample, Sample)
    )


def only_training(
    samples: Iterable[Sample | Unreadable], names: Collection[str]
) -> Iterator[Sample | Unreadable]:
    """The samples, or a DataError at the first that bears a protected name."""
    for sample in samples:
        if isinstance(sample, Sample) and Path(sample.id).stem in names:
            raise DataError(
                f"{sample.source}: {sample.id} belongs to a validation or test set; "
                "build the bank from training ink alone"
            )
        yield sample


def stroke_shapes(strokes: Iterable[NDArray[np.floating]]) -> tuple[Floats, list[int]]:
    """Shapes (n, 2 * 24) of the strokes that are winding enough to be somebody's, and which."""
    shapes: list[Floats] = []
    kept: list[int] = []
    for number, stroke in enumerate(strokes):
        points = np.asarray(stroke, dtype=np.float64)
        steps = np.hypot(*np.diff(points, axis=0).T)
        extent = points.max(axis=0) - points.min(axis=0)
        size = float(extent.max())
        if len(points) < 8 or size <= 0 or steps.sum() < _WINDING * float(np.hypot(*extent)):
            continue
        centre = (points.max(axis=0) + points.min(axis=0)) / 2
        shapes.append(((evenly(points, _POINTS) - centre) / size).ravel())
        kept.append(number)
    return np.array(shapes).reshape(-1, 2 * _POINTS), kept


def bank_strokes(bank: GlyphBank) -> list[NDArray[np.floating]]:
    """All strokes of a bank."""
    begins = np.flatnonzero(~bank.pen)
    points: Floats = bank.points.astype(np.float64)
    return [*np.split(points, begins[1:])]


def nearest_distances(shapes: Floats, others: Floats) -> Floats:
    """For each shape the distance to the closest of the others, infinite where there are none."""
    from scipy.spatial import cKDTree

    if not len(others) or not len(shapes):
        return np.full(len(shapes), np.inf)
    distance, _ = cKDTree(others).query(shapes)
    per_point: Floats = np.asarray(distance, dtype=np.float64) / np.sqrt(_POINTS)
    return per_point


def copied_strokes(
    bank: GlyphBank, strokes: Sequence[NDArray[np.floating]], same: float = SAME_STROKE
) -> list[int]:
    """Which of the given strokes are in the bank, up to the bank's rounding."""
    held, _ = stroke_shapes(bank_strokes(bank))
    asked, numbers = stroke_shapes(strokes)
    close = nearest_distances(asked, held) < same
    return [number for number, found in zip(numbers, close.tolist(), strict=True) if found]


def check_bank(bank: GlyphBank, datasets: Iterable[Path]) -> None:
    """Raise a DataError when a bank holds a stroke of these data sets."""
    for path in datasets:
        strokes = [
            stroke
            for sample in read_dataset(path)
            if isinstance(sample, Sample) and sample.ink is not None
            for stroke in sample.ink.strokes
        ]
        copied = copied_strokes(bank, strokes)
        if copied:
            raise DataError(
                f"{path}: {len(copied)} of its strokes are in the glyph bank; "
                "build the bank from training ink alone"
            )
