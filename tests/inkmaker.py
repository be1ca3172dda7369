"""Made-up ink for the tests: a few symbols in simple strokes, set in rows, scripts, fractions.

There are two styles: round letters for formulas that a test lays out, square ones (as on a digital
clock) for as many random formulas as a test wants.
"""

import io
import math
import tarfile
from pathlib import Path

import numpy as np

from gryphone.data.packed import Packed
from gryphone.data.store import load_packed
from gryphone.ink import Glyph, Ink
from gryphone.reading.inkml import to_inkml

Place = tuple[str, float, float, float]  # label, left, top, size
Shapes = dict[str, list[np.ndarray]]  # strokes of a symbol, y down


def _arc(cx: float, cy: float, r: float, start: float, end: float, n: int = 16) -> np.ndarray:
    t = np.linspace(math.radians(start), math.radians(end), n)
    return np.stack([cx + r * np.cos(t), cy + r * np.sin(t)], axis=1)


def _line(*points: tuple[float, float]) -> np.ndarray:
    return np.array(points, dtype=float)


ROUND: Shapes = {  # in the unit box
    "0": [_arc(0.5, 0.5, 0.5, 0, 360, 24)],
    "1": [_line((0.3, 0.2), (0.5, 0), (0.5, 1))],
    "2": [np.concatenate([_arc(0.5, 0.3, 0.3, 180, 400), _line((0.1, 1), (0.9, 1))])],
    "x": [_line((0, 0), (0.8, 1)), _line((0.8, 0), (0, 1))],
    "+": [_line((0, 0.5), (0.8, 0.5)), _line((0.4, 0.1), (0.4, 0.9))],
    "-": [_line((0, 0.5), (0.8, 0.5))],
    "=": [_line((0, 0.4), (0.8, 0.4)), _line((0, 0.7), (0.8, 0.7))],
    "(": [_arc(0.8, 0.5, 0.6, 120, 240)],
    ")": [_arc(0.0, 0.5, 0.6, -60, 60)],
    ".": [_line((0.1, 0.95))],
    "n": [np.concatenate([_line((0, 1), (0, 0.4)), _arc(0.3, 0.6, 0.3, 180, 360)])],
}


A, B, C, D, E, F = (0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)
SQUARE: Shapes = {  # one wide, two high
    "0": [_line(A, B, F, E, A)],
    "1": [_line(B, F)],
    "2": [_line(A, B, D, C, E, F)],
    "3": [_line(A, B, D, C), _line(D, F, E)],
    "4": [_line(A, C, D), _line(B, F)],
    "5": [_line(B, A, C, D, F, E)],
    "7": [_line(A, B, F)],
    "x": [_line(A, F), _line(B, E)],
    "+": [_line((0, 1), (1, 1)), _line((0.5, 0.5), (0.5, 1.5))],
    "=": [_line((0, 0.8), (1, 0.8)), _line((0, 1.2), (1, 1.2))],
}
ATOMS = [s for s in SQUARE if s not in "+="]


class _Pen:
    """Collects placed shapes and the symbols they stand for."""

    def __init__(self, rng: np.random.Generator, shapes: Shapes, noise: float, width: float = 1):
        self.rng, self.shapes, self.noise, self.width = rng, shapes, noise, width
        self.strokes: list[np.ndarray] = []
        self.glyphs: list[Glyph] = []

    def put(self, name: str, left: float, top: float, size: float) -> None:
        first = len(self.strokes)
        for shape in self.shapes[name]:
            shaken = shape + self.rng.normal(0, self.noise, shape.shape)
            self.strokes.append(shaken * size * [self.width, 1] + [left, top])
        self.glyphs.append(Glyph(name, tuple(range(first, len(self.strokes)))))

    def bar(self, left: float, top: float, width: float) -> None:
        self.strokes.append(np.array([[left, top], [left + width, top]]))
        self.glyphs.append(Glyph("-", (len(self.strokes) - 1,)))

    def ink(self, label: str, id: str, writer: str | None = None) -> Ink:
        return Ink(tuple(self.strokes), label, tuple(self.glyphs), id, writer=writer)


def place(items: list[Place], label: str, *, id: str = "made", seed: int = 0) -> Ink:
    """Ink with one glyph per item; a little noise makes every seed another writer."""
    pen = _Pen(np.random.default_rng(seed), ROUND, 0.01)
    for name, left, top, size in items:
        pen.put(name, left, top, size if name != "-" else 1.4 * size)
    return pen.ink(label, id, f"writer{seed}")


def row(text: str, *, id: str = "row", seed: int = 0) -> Ink:
    """Symbols side by side; `text` is the label, one character each."""
    return place([(c, 12.0 * i, 0.0, 10.0) for i, c in enumerate(text)], text, id=id, seed=seed)


def fraction(*, id: str = "fraction", seed: int = 0) -> Ink:
    r"""`\frac{1}{2} - 1`: two bars and two ones."""
    items = [("2", 2.0, 14.0, 8.0), ("-", 0.0, 5.0, 10.0), ("1", 2.0, 0.0, 8.0)]
    items += [("1", 36.0, 5.0, 10.0), ("-", 20.0, 5.0, 10.0)]
    return place(items, r"\frac{1}{2}-1", id=id, seed=seed)


def power(*, id: str = "power", seed: int = 0) -> Ink:
    """`x^{2}+2`."""
    items = [("x", 0.0, 5.0, 10.0), ("2", 10.0, 0.0, 5.0), ("+", 18.0, 5.0, 10.0)]
    return place([*items, ("2", 30.0, 5.0, 10.0)], "$x^2+2$", id=id, seed=seed)


def some(count: int = 12) -> list[Ink]:
    """A small data set of different inks."""
    makers = [
        lambda i: row("x+1=2", id=f"s{i}", seed=i),
        lambda i: fraction(id=f"s{i}", seed=i),
        lambda i: power(id=f"s{i}", seed=i),
        lambda i: row("(n-1)", id=f"s{i}", seed=i),
    ]
    return [makers[i % len(makers)](i) for i in range(count)]


def made_up_ink(seed: int) -> Ink:
    """A random formula of two terms: plain, with a script, or a fraction; in square letters."""
    rng = np.random.default_rng(seed)
    pen, x, label = _Pen(rng, SQUARE, 0.04, 0.6), 0.0, ""
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
    return pen.ink(label, f"made-up-{seed}")


def write_folder(folder: Path, inks: list[Ink]) -> Path:
    """Write inks as a CROHME-like folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for ink in inks:
        (folder / f"{ink.id}.inkml").write_text(to_inkml(ink), encoding="utf-8")
    return folder


def write_inks(folder: Path, count: int, first: int = 0) -> Path:
    """Write random formulas, the same every time, as such a folder."""
    return write_folder(folder, [made_up_ink(seed) for seed in range(first, first + count)])


def made_up_store(tmp_path: Path, count: int) -> Packed:
    """Such a folder, packed."""
    return load_packed(write_inks(tmp_path / "inks", count), "crohme")


def write_tar(path: Path, files: dict[str, bytes], mode: str = "w:xz") -> Path:
    """Write files into an archive, whatever their names."""
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def to_strokes(ink: Ink) -> list[list[list[float]]]:
    """The strokes as JSON-ready lists: `[[[x, y], ...], ...]`."""
    return [stroke.tolist() for stroke in ink.strokes]
