"""Ink on paper: pens of some width and pressure, paper with texture, lines and uneven light."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gryphone.errors import ConfigError

if TYPE_CHECKING:
    from PIL.Image import Image

Floats = NDArray[np.float64]
_FINER = 3  # strokes are drawn that much larger, and shrunk: smooth edges


@dataclass(frozen=True)
class Paper:
    """How a page looks; lengths are in pixels, the rest are shares of full contrast."""

    symbol: float = 56.0  # size of a usual stroke
    margin: float = 0.6  # around the ink, in symbols
    thickness: float = 3.0  # of the pen
    pressure: float = 0.0  # variation of thickness and darkness along a stroke
    ink: float = 1.0  # darkness of the ink
    blur: float = 0.0  # deviation of the lens's Gaussian
    texture: float = 0.0  # grain of the paper
    lines: str = "none"  # none, ruled or squared
    light: float = 0.0  # shadow from one side to the other
    noise: float = 0.0  # of the sensor, standard deviation
    tilt: float = 0.0  # of the camera: corners move by this share of the height

    def __post_init__(self) -> None:
        if self.lines not in ("none", "ruled", "squared"):
            raise ConfigError(f"lines {self.lines!r} is unknown; use none, ruled or squared")
        if self.symbol < 4 or self.thickness <= 0:
            raise ConfigError(
                f"symbol is {self.symbol}, thickness {self.thickness}: use 4 or more, and above 0"
            )


def random_paper(generator: np.random.Generator) -> Paper:
    """A page as somebody might photograph it."""
    uniform = generator.uniform
    return Paper(
        symbol=uniform(36, 80),
        margin=uniform(0.4, 1.5),
        thickness=uniform(1.8, 5.5),
        pressure=uniform(0.0, 0.35),
        ink=uniform(0.55, 0.95),
        blur=uniform(0.0, 1.4),
        texture=uniform(0.0, 0.05),
        lines=str(generator.choice(["none", "none", "ruled", "squared"])),
        light=uniform(0.0, 0.45),
        noise=uniform(0.0, 0.03),
        tilt=uniform(0.0, 0.04),
    )


def render(
    strokes: Sequence[NDArray[np.floating]], paper: Paper, generator: np.random.Generator
) -> Image:
    """A grey picture of ink on that paper."""
    from PIL import Image

    placed, size = place(strokes, paper)
    cover = _draw(placed, size, paper, generator)  # (H, W), 0 paper to 1 ink
    page = _page(size, paper, generator)
    picture = page * (1 - cover * paper.ink)
    if paper.tilt:
        picture = _tilted(picture, paper.tilt, generator)
    if paper.blur:
        from skimage.filters import gaussian

        picture = gaussian(picture, paper.blur)
    if paper.light:
        picture = picture * _light(size, paper.light, generator)
    picture = picture + generator.normal(0, max(paper.noise, 1e-9), picture.shape)
    return Image.fromarray((np.clip(picture, 0, 1) * 255).round().astype(np.uint8))


def place(
    strokes: Sequence[NDArray[np.floating]], paper: Paper
) -> tuple[list[Floats], tuple[int, int]]:
    """Strokes in pixels, and height and width of the page."""
    points = np.concatenate(strokes).astype(np.float64)
    low, high = points.min(axis=0), points.max(axis=0)
    sizes = sorted(float((s.max(axis=0) - s.min(axis=0)).max()) for s in strokes)
    usual = sizes[len(sizes) * 3 // 5] or float((high - low).max()) or 1.0
    # No page is wider than 40 symbols: a formula of dots alone would be.
    scale = paper.symbol / max(usual, float((high - low).max()) / 40)
    margin = paper.margin * paper.symbol + paper.thickness
    width, height = ((high - low) * scale + 2 * margin).astype(int) + 1
    return [(s - low) * scale + margin for s in strokes], (int(height), int(width))


def _draw(
    strokes: Sequence[Floats], size: tuple[int, int], paper: Paper, generator: np.random.Generator
) -> Floats:
    """How much of each pixel is covered; thickness wanders along the strokes."""
    from PIL import Image, ImageDraw

    canvas = Image.new("L", (size[1] * _FINER, size[0] * _FINER), 0)
    draw = ImageDraw.Draw(canvas)
    for stroke in strokes:
        line = _dense(stroke, step=max(paper.thickness / 2, 1.0)) * _FINER
        wander = np.cumsum(generator.normal(0, 0.25, len(line)))
        push = np.exp(paper.pressure * np.tanh(wander - wander.mean()))
        radius = paper.thickness / 2 * push * _FINER
        for at, (x, y) in enumerate(line.tolist()):
            r = float(radius[at])
            draw.ellipse((x - r, y - r, x + r, y + r), fill=255)
            if at:
                draw.line((*line[at - 1].tolist(), x, y), fill=255, width=max(1, round(2 * r)))
    shrunk = canvas.resize((size[1], size[0]), Image.Resampling.BOX)
    return np.asarray(shrunk, dtype=np.float64) / 255


def _dense(stroke: Floats, step: float) -> Floats:
    """Points at most `step` apart."""
    if len(stroke) < 2:
        return stroke
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(stroke, axis=0).T))])
    count = max(2, int(along[-1] / step) + 1)
    at = np.unique(np.concatenate([along, np.linspace(0, along[-1], count)]))
    return np.stack([np.interp(at, along, stroke[:, i]) for i in (0, 1)], axis=1)


def _page(size: tuple[int, int], paper: Paper, generator: np.random.Generator) -> Floats:
    page = np.ones(size)
    if paper.texture:
        from skimage.filters import gaussian

        page -= paper.texture
        for grain in (0.7, 3.0, 12.0):
            cloud = gaussian(generator.normal(size=size), grain)
            page += paper.texture / 2 * cloud / max(float(cloud.std()), 1e-9)
    if paper.lines != "none":
        gap = int(paper.symbol * (1.6 if paper.lines == "ruled" else 0.75))
        shade = generator.uniform(0.1, 0.3)
        first = int(generator.integers(gap))
        page[first::gap] -= shade
        if paper.lines == "squared":
            page[:, first::gap] -= shade
    return np.clip(page, 0, 1)


def _light(size: tuple[int, int], strength: float, generator: np.random.Generator) -> Floats:
    """A slope of light across the page, with a soft shadow in it."""
    rows, columns = np.mgrid[0 : 1 : size[0] * 1j, 0 : 1 : size[1] * 1j]
    angle = generator.uniform(0, 2 * np.pi)
    slope = (columns - 0.5) * np.cos(angle) + (rows - 0.5) * np.sin(angle)
    edge = 1 / (1 + np.exp(-(slope - generator.uniform(-0.4, 0.4)) * generator.uniform(3, 12)))
    light: Floats = 1 - strength * (0.5 * (slope + 0.5) + 0.5 * edge)
    return light


def _tilted(picture: Floats, tilt: float, generator: np.random.Generator) -> Floats:
    """The page seen from a little aside; what comes into view is paper."""
    from skimage.transform import warp

    height, width = picture.shape
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=np.float64)
    moved = corners + generator.normal(0, tilt * height / 2, (4, 2))
    rows = []
    for (x, y), (u, v) in zip(moved.tolist(), corners.tolist(), strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    matrix = np.append(np.linalg.solve(np.array(rows), corners.ravel()), 1.0).reshape(3, 3)
    seen: Floats = warp(picture, matrix, cval=float(np.median(picture)), order=1)
    return seen
