"""Ink on paper: pens and pencils that press and skip, paper with texture, lines, light and dust."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gryphone.errors import ConfigError

if TYPE_CHECKING:
    from PIL.Image import Image

Floats = NDArray[np.float64]
Mark = tuple[float, float, list[float], list[float]]  # darkness, radius, end and begin
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
    fade: float = 0.0  # how much of a stroke's darkness may go at its ends and on its way
    tooth: float = 0.0  # of rough paper under a pencil: grain inside the lines
    specks: float = 0.0  # dust and blots to expect, and now and then a mark at the edge
    white: float = 1.0  # what a scanner makes of paper; above 1, the faintest ink is lost
    jpeg: int = 0  # quality of the compression, 0 for none

    def __post_init__(self) -> None:
        if self.lines not in ("none", "ruled", "squared"):
            raise ConfigError(f"lines {self.lines!r} is unknown; use none, ruled or squared")
        if not 0 <= self.jpeg <= 100:
            raise ConfigError(f"jpeg is {self.jpeg}; use a quality up to 100, or 0 for none")
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


def random_scan(generator: np.random.Generator) -> Paper:
    """A page as an office scanner gives it: a dark pen, or a pencil that fades and skips.

    The numbers follow scans of known ink, CROHME's validation set of 2023.
    """
    uniform, normal = generator.uniform, generator.normal
    pencil = generator.random() < 0.5
    fade = uniform(0.3, 0.95) if pencil else uniform(0.05, 0.2)
    grey = generator.random() < 0.1  # most scanners turn paper into plain white
    larger = float(np.exp(np.clip(normal(0, 0.33), -0.8, 0.8)))  # than usual writing
    pen = 2.8 * larger**0.3 if pencil else 3.3 * larger**0.6  # those who write large press more
    return Paper(
        symbol=42 * larger,
        margin=uniform(0.4, 1.5),
        thickness=pen * float(np.exp(np.clip(normal(0, 0.18), -0.4, 0.4))),
        pressure=uniform(0.0, 0.3),
        ink=uniform(0.72, 0.84) - 0.2 * fade if pencil else uniform(0.69, 0.8),
        blur=uniform(0.4, 0.7) if pencil else uniform(0.5, 0.85),
        texture=uniform(0.005, 0.015) if grey else 0.0,
        noise=uniform(0.005, 0.015) if grey else uniform(0.0, 0.01),
        fade=fade,
        tooth=uniform(0.05, 0.2) if pencil else uniform(0.0, 0.1),
        specks=generator.exponential(0.6),
        white=uniform(0.96, 1.0) if grey else uniform(1.02, 1.08),
        jpeg=int(generator.integers(70, 93)),
    )


def render_page(
    strokes: Sequence[NDArray[np.floating]], paper: Paper, generator: np.random.Generator
) -> Image:
    """A grey picture of ink on that paper."""
    from PIL import Image

    placed, size = place_strokes(strokes, paper)
    cover = _draw(placed, size, paper, generator)  # (H, W), 0 paper to 1 ink
    if paper.tooth:
        cover = cover * _tooth(size, paper.tooth, generator)
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
    picture = np.clip(picture * paper.white, 0, 1)
    image = Image.fromarray((picture * 255).round().astype(np.uint8))
    return compressed(image, paper.jpeg) if paper.jpeg else image


def place_strokes(
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
    """How dark each pixel is; thickness and darkness wander along the strokes."""
    from PIL import Image, ImageDraw

    marks: list[Mark] = []
    for stroke in strokes:
        line = _dense(stroke, step=max(paper.thickness / 2, 1.0))
        wander = np.cumsum(generator.normal(0, 0.25, len(line)))
        push = np.exp(paper.pressure * np.tanh(wander - wander.mean()))
        shade = _fading(line, paper, generator) if paper.fade else np.ones(len(line))
        radius = paper.thickness / 2 * push
        ends = line.tolist()
        begins = [ends[0], *ends[:-1]]
        marks += zip(shade.tolist(), radius.tolist(), ends, begins, strict=True)
    if paper.specks:
        marks += _specks(strokes, size, paper, generator)
    if paper.fade or paper.specks:
        marks.sort(key=lambda mark: mark[0])  # the darker of two crossing lines stays
    canvas = Image.new("L", (size[1] * _FINER, size[0] * _FINER), 0)
    draw = ImageDraw.Draw(canvas)
    for dark, wide, end, begin in marks:
        fill, r = round(255 * dark), wide * _FINER
        x, y, x0, y0 = (v * _FINER for v in (*end, *begin))
        draw.ellipse((x - r, y - r, x + r, y + r), fill=fill)
        if begin != end:
            draw.line((x0, y0, x, y), fill=fill, width=max(1, round(2 * r)))
    shrunk = canvas.resize((size[1], size[0]), Image.Resampling.BOX)
    return np.asarray(shrunk, dtype=np.float64) / 255


def _fading(line: Floats, paper: Paper, generator: np.random.Generator) -> Floats:
    """Darkness (n,) along a stroke: a pencil is light at its ends and skips on its way."""
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])
    whole = float(along[-1])
    start, end = generator.uniform(0, (0.9, 2.2))
    reach = min(whole, paper.symbol) * generator.uniform(0.03, 0.2, 2) + 1e-9
    loss = start * np.exp(-along / reach[0]) + end * np.exp((along - whole) / reach[1])
    loss += 0.2 * along / max(whole, 1.0) - 0.1  # a hand presses less and less
    loss += 0.15 + generator.exponential(0.1)
    for step, skips in ((paper.thickness, 0.35), (paper.symbol / 2, 0.12)):
        knots = generator.normal(0, skips, int(whole / step) + 2)
        loss += np.interp(along / step, np.arange(len(knots)), knots)
    dark: Floats = np.clip(1 - paper.fade * loss, 0, 1)
    return dark


def _specks(
    strokes: Sequence[Floats], size: tuple[int, int], paper: Paper, generator: np.random.Generator
) -> Iterator[Mark]:
    """Dust anywhere, blots beside the ink, and now and then a line that runs off the page."""
    corner = np.array(size[::-1], dtype=np.float64)
    points = np.concatenate(strokes)
    for _ in range(generator.poisson(paper.specks)):
        at = generator.uniform(0, corner)
        if generator.random() < 0.5:
            at = points[generator.integers(len(points))] + generator.normal(0, paper.symbol / 3, 2)
        to = at + generator.normal(0, paper.thickness / 4, 2)
        radius = paper.thickness * generator.uniform(0.15, 0.6)
        yield generator.uniform(0.3, 1), radius, at.tolist(), to.tolist()
    for _ in range(generator.poisson(paper.specks / 20)):
        at = generator.uniform(0, corner)
        side = int(generator.integers(2))
        at[side] = corner[side] * generator.integers(2)
        to = at + generator.normal(0, paper.symbol / 3, 2)
        yield generator.uniform(0.5, 1), paper.thickness / 2, at.tolist(), to.tolist()


def _tooth(size: tuple[int, int], strength: float, generator: np.random.Generator) -> Floats:
    """What rough paper lets a pencil leave on it, (H, W), up to 1."""
    from scipy.ndimage import gaussian_filter

    grain = gaussian_filter(generator.normal(size=size), 0.6)
    left: Floats = np.clip(1 - strength * (1 + grain / grain.std()), 0, 1)
    return left


def compressed(image: Image, quality: int) -> Image:
    """The picture after JPEG."""
    from PIL import Image

    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return Image.open(buffer)


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
