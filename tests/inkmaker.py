"""Made-up ink for the tests: a few symbols in simple strokes, set in rows, scripts, fractions."""

import io
import math
import tarfile
from pathlib import Path

import numpy as np

from gryphone.ink import Glyph, Ink
from gryphone.reading.inkml import to_inkml

Place = tuple[str, float, float, float]  # label, left, top, size


def _arc(cx: float, cy: float, r: float, start: float, end: float, n: int = 16) -> np.ndarray:
    t = np.linspace(math.radians(start), math.radians(end), n)
    return np.stack([cx + r * np.cos(t), cy + r * np.sin(t)], axis=1)


def _line(*points: tuple[float, float]) -> np.ndarray:
    return np.array(points, dtype=float)


# Strokes in the unit box, y down.
SHAPES: dict[str, list[np.ndarray]] = {
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


def place(items: list[Place], label: str, *, id: str = "made", seed: int = 0) -> Ink:
    """Ink with one glyph per item; a little noise makes every seed another writer."""
    rng = np.random.default_rng(seed)
    strokes: list[np.ndarray] = []
    glyphs: list[Glyph] = []
    for name, left, top, size in items:
        first = len(strokes)
        for shape in SHAPES[name]:
            noise = rng.normal(0, 0.01, shape.shape)
            strokes.append((shape + noise) * (size if name != "-" else 1.4 * size) + (left, top))
        glyphs.append(Glyph(name, tuple(range(first, len(strokes)))))
    return Ink(tuple(strokes), label, tuple(glyphs), id, writer=f"writer{seed}")


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


def write_folder(folder: Path, inks: list[Ink]) -> Path:
    """Write inks as a CROHME-like folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for ink in inks:
        (folder / f"{ink.id}.inkml").write_text(to_inkml(ink), encoding="utf-8")
    return folder


def write_tar(path: Path, files: dict[str, bytes], mode: str = "w:xz") -> Path:
    """Write files into an archive, whatever their names."""
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path
