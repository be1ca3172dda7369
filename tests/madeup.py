"""Made-up handwriting for tests: seven-segment digits and simple signs, laid out as formulas."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gryphone.data.packed import Packed
from gryphone.data.store import load_packed
from gryphone.ink import Glyph, Ink
from gryphone.reading.inkml import to_inkml

A, B, C, D, E, F = (0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)
SHAPES: dict[str, list[list[tuple[float, float]]]] = {
    "0": [[A, B, F, E, A]],
    "1": [[B, F]],
    "2": [[A, B, D, C, E, F]],
    "3": [[A, B, D, C], [D, F, E]],
    "4": [[A, C, D], [B, F]],
    "5": [[B, A, C, D, F, E]],
    "7": [[A, B, F]],
    "x": [[A, F], [B, E]],
    "+": [[(0, 1), (1, 1)], [(0.5, 0.5), (0.5, 1.5)]],
    "=": [[(0, 0.8), (1, 0.8)], [(0, 1.2), (1, 1.2)]],
}
ATOMS = [s for s in SHAPES if s not in "+="]


class _Pen:
    """Collects placed shapes and the symbols they stand for."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.strokes: list[np.ndarray] = []
        self.glyphs: list[Glyph] = []

    def put(self, name: str, x: float, y: float, size: float) -> None:
        first = len(self.strokes)
        for stroke in SHAPES[name]:
            points = np.array(stroke, dtype=float) + self.rng.normal(
                scale=0.04, size=(len(stroke), 2)
            )
            self.strokes.append(points * size * [0.6, 1] + [x, y])
        self.glyphs.append(Glyph(name, tuple(range(first, len(self.strokes)))))

    def bar(self, x: float, y: float, width: float) -> None:
        self.strokes.append(np.array([[x, y], [x + width, y]]))
        self.glyphs.append(Glyph("-", (len(self.strokes) - 1,)))


def made_up_ink(seed: int) -> Ink:
    """One formula of two terms: plain, with a script, or a fraction."""
    rng = np.random.default_rng(seed)
    pen, x, label = _Pen(rng), 0.0, ""
    for term in range(2):
        if term:
            sign = str(rng.choice(["+", "="]))
            pen.put(sign, x, 0, 1)
            label, x = label + sign, x + 1
        a, b = (str(s) for s in rng.choice(ATOMS, 2))
        kind = rng.integers(3)
        if kind == 0:
            pen.put(a, x, 0, 1)
            label, x = label + a, x + 1
        elif kind == 1:
            pen.put(a, x, 0, 1)
            pen.put(b, x + 0.75, -0.6, 0.5)
            label, x = f"{label}{a}^{{{b}}}", x + 1.4
        else:
            pen.put(a, x + 0.2, -1.4, 1)
            pen.bar(x, 0.9, 1)
            pen.put(b, x + 0.2, 1.2, 1)
            label, x = rf"{label}\frac{{{a}}}{{{b}}}", x + 1.3
    return Ink(tuple(pen.strokes), label, tuple(pen.glyphs), f"made-up-{seed}")


def write_inks(folder: Path, count: int, first: int = 0) -> Path:
    """A folder of InkML files with truths, as a user would have it."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(first, first + count):
        ink = made_up_ink(seed)
        (folder / f"{ink.id}.inkml").write_text(to_inkml(ink))
    return folder


def made_up_store(tmp_path: Path, count: int) -> Packed:
    """Such a folder, packed."""
    return load_packed(write_inks(tmp_path / "inks", count), "crohme")
