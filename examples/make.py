r"""Draw the examples: our own pen strokes set as formulas, as ink, clean image and photo.

`python examples/make.py` writes examples/ink/*.inkml, examples/clean/*.png and
examples/photo/*.jpg, each with its truth, and puts copies of some into the package, for
`gryphone demo` without a checkout. Nothing here comes from a data set.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

sys.path.insert(0, str(Path(__file__).parent))
from font import strokes_of

from gryphone.cli.demo import BUNDLED, EXAMPLE_KINDS
from gryphone.ink import Ink
from gryphone.latex.tree import Command, Group, Row, Scripts, Symbol, parse
from gryphone.reading.inkml import to_inkml

HERE = Path(__file__).parent
FORMULAS = {
    "01-power": r"x^{2}",
    "02-sum": r"a+b=c",
    "03-half": r"\frac{1}{2}",
    "04-indices": r"x_{1}+x_{2}",
    "05-root": r"\sqrt{a^{2}+b^{2}}",
    "06-line": r"y=kx+b",
    "07-sine": r"\sin\theta+\cos\theta",
    "08-integral": r"\int_{0}^{1}x^{2}dx",
    "09-series": r"\sum_{k=1}^{n}k^{2}",
    "10-limit": r"\lim_{n\rightarrow\infty}\frac{1}{n}=0",
    "11-fraction": r"\frac{a+b}{c-d}",
    "12-square": r"(x+y)^{2}=x^{2}+2xy+y^{2}",
    "13-quadratic": r"x=\frac{-b+\sqrt{b^{2}-4ac}}{2a}",
    "14-euler": r"e^{i\pi}+1=0",
    "15-greek": r"\alpha^{2}-\beta^{3}=6",
    "16-nested": r"\frac{\sum_{i=1}^{n}x_{i}y_{i}}{1+\frac{a}{\sum_{i=1}^{n}x_{i}^{2}}}",
}
PACKAGED = ("08-integral", "11-fraction", "14-euler")
WORDS = {r"\sin": "sin", r"\cos": "cos", r"\lim": "lim"}
STACKED = (r"\sum", r"\lim")
GAP = 0.14

Strokes = list[np.ndarray]


class Box:
    """Strokes with the baseline at y = 0 and the left edge at x = 0."""

    def __init__(self, strokes: Strokes, width: float) -> None:
        self.strokes, self.width = strokes, width
        points = np.concatenate(strokes)
        self.top, self.bottom = float(points[:, 1].min()), float(points[:, 1].max())

    def at(self, x: float, y: float, scale: float = 1) -> Strokes:
        return [s * scale + [x, y] for s in self.strokes]


class Hand:
    """A writer: sets a formula with small irregularities of its own."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def wobble(self, scale: float) -> float:
        return float(self.rng.normal(scale=scale))

    def glyph(self, name: str) -> Box:
        turn, size = self.wobble(0.03), 1 + self.wobble(0.04)
        turned = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
        strokes = []
        for stroke in strokes_of(name):
            bend = self.rng.normal(scale=0.012, size=4)
            t = np.linspace(0, np.pi * 2, len(stroke))
            wave = np.stack([bend[0] * np.sin(t) + bend[1] * np.cos(t / 2)] * 2, 1)
            wave[:, 1] = bend[2] * np.sin(t) + bend[3] * np.cos(t / 2)
            strokes.append(
                ((stroke - [0.3, 1]) + wave) @ turned.T * size + [0.3, self.wobble(0.02)]
            )
        left = min(s[:, 0].min() for s in strokes)
        strokes = [s - [left, 0] for s in strokes]
        return Box(strokes, max(s[:, 0].max() for s in strokes))

    def row(self, items: list[Box]) -> Box:
        x, strokes = 0.0, []
        for item in items:
            strokes += item.at(x, 0)
            x += item.width + GAP + abs(self.wobble(0.03))
        return Box(strokes, x - GAP)

    def set(self, node: object) -> Box:
        if isinstance(node, Row):
            return self.row([self.set(item) for item in node.items])
        if isinstance(node, Group):
            return self.set(node.body)
        if isinstance(node, Symbol):
            if node.text in WORDS:
                return self.row([self.glyph(letter) for letter in WORDS[node.text]])
            return self.glyph(node.text)
        if isinstance(node, Scripts):
            return self.scripts(node)
        if isinstance(node, Command) and node.name == r"\frac":
            return self.fraction(*(self.set(arg) for arg in node.args))
        if isinstance(node, Command) and node.name == r"\sqrt":
            return self.root(self.set(node.args[0]))
        raise ValueError(f"the hand cannot write {node}")

    def scripts(self, node: Scripts) -> Box:
        base = self.set(node.base)
        sub = self.set(node.sub) if node.sub is not None else None
        sup = self.set(node.sup) if node.sup is not None else None
        if isinstance(node.base, Symbol) and node.base.text in STACKED:
            return self.stacked(base, sub, sup)
        strokes, right = list(base.strokes), base.width
        small = 0.58
        reach = 0.15 if isinstance(node.base, Symbol) and node.base.text == r"\int" else 0.08
        if sup is not None:
            strokes += sup.at(base.width + reach, base.top - small * sup.bottom + 0.22, small)
            right = max(right, base.width + reach + small * sup.width)
        if sub is not None:
            low = max(base.bottom, 0) + 0.32 if base.bottom < 0.2 else base.bottom + 0.05
            strokes += sub.at(base.width + reach / 2, low, small)
            right = max(right, base.width + reach + small * sub.width)
        return Box(strokes, right)

    def stacked(self, base: Box, sub: Box | None, sup: Box | None) -> Box:
        small = 0.5
        width = max(base.width, *(small * b.width for b in (sub, sup) if b is not None))
        strokes = base.at((width - base.width) / 2, 0)
        if sub is not None:
            y = base.bottom + 0.2 - small * sub.top
            strokes += sub.at((width - small * sub.width) / 2, y, small)
        if sup is not None:
            y = base.top - 0.2 - small * sup.bottom
            strokes += sup.at((width - small * sup.width) / 2, y, small)
        return Box(strokes, width)

    def fraction(self, over: Box, under: Box) -> Box:
        width, axis = max(over.width, under.width) + 0.3, -0.35
        strokes = over.at((width - over.width) / 2, axis - 0.18 - over.bottom)
        t = np.linspace(0, 1, 30)
        bar = np.stack([width * t, axis + 0.02 * np.sin(3 * t) + self.wobble(0.01)], 1)
        strokes.append(bar)
        strokes += under.at((width - under.width) / 2, axis + 0.2 - under.top)
        return Box(strokes, width)

    def root(self, body: Box) -> Box:
        top, bottom, lead = body.top - 0.2, max(body.bottom, 0.0) + 0.05, 0.5
        corners = [(0, bottom - 0.35), (0.12, bottom - 0.42), (0.26, bottom), (0.42, top)]
        corners.append((lead + body.width + 0.15, top + self.wobble(0.02)))
        pieces = [
            np.linspace(a, b, max(3, int(12 * np.hypot(b[0] - a[0], b[1] - a[1]))))
            for a, b in pairwise(corners)
        ]
        strokes = [np.concatenate([p + self.rng.normal(scale=0.004, size=2) for p in pieces])]
        return Box(strokes + body.at(lead, 0), lead + body.width + 0.15)

    def write(self, latex: str) -> Strokes:
        """The formula, slanted a little, in units of a tall letter times 60."""
        box = self.set(parse(latex))
        slant, climb = 0.08 + self.wobble(0.04), self.wobble(0.01)
        lean = np.array([[1, -slant], [climb, 1]])
        return [(s @ lean.T) * 60 for s in box.strokes]


def clean(strokes: Strokes, pen: float = 3) -> Image.Image:
    """Black ink on white, antialiased."""
    points = np.concatenate(strokes)
    low, extent = points.min(0), np.ptp(points, axis=0)
    margin, zoom = 30, 3
    size = tuple(int(v) for v in (extent + 2 * margin) * zoom)
    image = Image.new("L", size, 255)
    pencil = ImageDraw.Draw(image)
    for stroke in strokes:
        line = [tuple(p) for p in (stroke - low + margin) * zoom]
        pencil.line(line, fill=0, width=int(pen * zoom), joint="curve")
        for x, y in (line[0], line[-1]):
            r = pen * zoom / 2
            pencil.ellipse((x - r, y - r, x + r, y + r), fill=0)
    return image.resize((size[0] // zoom, size[1] // zoom), Image.Resampling.LANCZOS)


def photo(strokes: Strokes, seed: int) -> Image.Image:
    """The same on cream paper under a lamp, a little turned, blurred and noisy."""
    rng = np.random.default_rng(seed)
    page = clean([s * 1.6 for s in strokes], pen=float(rng.uniform(3, 5)))
    page = page.rotate(
        float(rng.uniform(-3, 3)), Image.Resampling.BICUBIC, expand=True, fillcolor=255
    )
    page = page.filter(ImageFilter.GaussianBlur(1.1))
    ink = 1 - np.asarray(page, dtype=float) / 255
    height, width = ink.shape
    y, x = np.mgrid[0:height, 0:width]
    angle = rng.uniform(0, 6.28)
    light = 1 - 0.35 * (
        (x / width - 0.5) * np.cos(angle) + (y / height - 0.5) * np.sin(angle) + 0.5
    )
    paper = np.array([238, 228, 205]) * light[..., None]
    pen = np.array([40, 45, 110]) * light[..., None]
    picture = paper * (1 - ink[..., None]) + pen * ink[..., None]
    picture += rng.normal(scale=5, size=picture.shape)
    return Image.fromarray(picture.clip(0, 255).astype(np.uint8))


def main() -> None:
    """Write all examples, and copy some into the package."""
    for kind in EXAMPLE_KINDS:
        (HERE / kind).mkdir(exist_ok=True)
    for seed, (name, latex) in enumerate(FORMULAS.items()):
        strokes = Hand(seed).write(latex)
        ink = Ink(tuple(s.round(2) for s in strokes), label=latex, id=name)
        (HERE / "ink" / f"{name}.inkml").write_text(to_inkml(ink), encoding="utf-8")
        clean(strokes).quantize(16).save(HERE / "clean" / f"{name}.png", optimize=True)
        photo(strokes, seed).save(HERE / "photo" / f"{name}.jpg", quality=70)
    for folder in (HERE / "clean", HERE / "photo"):
        write_labels(folder, FORMULAS)
    for kind, ending in EXAMPLE_KINDS.items():
        (BUNDLED / kind).mkdir(parents=True, exist_ok=True)
        for name in PACKAGED:
            shutil.copyfile(HERE / kind / f"{name}{ending}", BUNDLED / kind / f"{name}{ending}")
    write_labels(BUNDLED / "clean", PACKAGED)


def write_labels(folder: Path, names: Iterable[str]) -> None:
    """The truths of some formulas, as `gryphone evaluate` reads them."""
    text = "".join(f"{name}\t{FORMULAS[name]}\n" for name in names)
    (folder / "labels.tsv").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
