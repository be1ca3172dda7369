"""How pages of several formulas are read, against reading each of their lines alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gryphone.data.samples import Sample
from gryphone.ink import Ink, Stroke, typical_stroke

LINES = (2, 8)  # of a page
GAPS = (0.4, 2.0)  # of paper between lines, in usual strokes
SIZES = (0.85, 1.18)  # of a line's writing
INDENT = 3.0  # usual strokes
SLOPE, OWN_SLOPE = 3.0, 1.0  # degrees: of the page, and of each line besides


@dataclass(frozen=True)
class Page:
    """Several inks on one page: where each of them has its strokes, and what it says."""

    ink: Ink
    lines: tuple[tuple[int, ...], ...]
    truths: tuple[str, ...]
    names: tuple[str, ...]


def made_up(samples: Sequence[Sample], generator: np.random.Generator) -> Page:
    """Inks written below each other, with uneven gaps, sizes, indents and slopes."""
    uniform = generator.uniform
    strokes: list[Stroke] = []
    lines = []
    low = 0.0
    for sample in samples:
        own = sample.ink.strokes if sample.ink is not None else ()
        size = uniform(*SIZES) / (typical_stroke(own) or 1.0)
        placed = _turned([s * size for s in own], uniform(-OWN_SLOPE, OWN_SLOPE))
        points = np.concatenate(placed)
        corner = np.array([uniform(0, INDENT), low]) - points.min(0)
        lines.append(tuple(range(len(strokes), len(strokes) + len(placed))))
        strokes += [s + corner for s in placed]
        low += float(np.ptp(points[:, 1])) + uniform(*GAPS)
    ink = Ink(tuple(_turned(strokes, uniform(-SLOPE, SLOPE))), id=samples[0].id)
    return Page(ink, tuple(lines), tuple(s.label or "" for s in samples), tuple(s.id for s in samples))


def _turned(strokes: Sequence[Stroke], degrees: float) -> list[Stroke]:
    angle = np.radians(degrees)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return [s @ turn for s in strokes]


def pages_of(samples: Sequence[Sample], seed: int) -> Iterator[Page]:
    """All inks once, on pages of 2 to 8 lines; the same pages for the same seed."""
    generator = np.random.default_rng(seed)
    left = [samples[i] for i in generator.permutation(len(samples))]
    while len(left) >= LINES[0]:
        count = int(generator.integers(LINES[0], LINES[1] + 1))
        yield made_up(left[:count], generator)
        left = left[count:]
