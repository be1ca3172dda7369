"""Simulated photos and scans of ink, drawn by our own code: paper, pen, light, lines, camera."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from PIL import Image, ImageDraw

OVERSAMPLE = 3  # lines are drawn this much larger, then averaged: soft edges like a real scan's


@dataclass(frozen=True)
class Page:
    """How the page looks. Sizes are in pixels of the picture."""

    length: int = 700  # longer side of the writing
    pen: float = 4.0
    margin: int = 50
    ink: tuple[int, int, int] = (30, 30, 60)
    paper: tuple[int, int, int] = (255, 255, 255)
    shadow: float = 0.0  # how much darker the far corner is, 0 to 1
    noise: float = 0.0  # grey levels, standard deviation
    specks: int = 0
    rules: int = 0  # distance of ruled lines; 0 for none
    grid: bool = False  # ruled both ways
    dots: int = 0  # so large, where lines both ways would cross, instead of these
    rule_ink: tuple[int, int, int] = (120, 150, 210)
    rotate: float = 0.0  # degrees
    seed: int = 0


PLAIN = Page()


def draw_page(strokes: Sequence[np.ndarray], page: Page = PLAIN) -> Image.Image:
    """An RGB picture of the strokes on paper."""
    points = np.concatenate(list(strokes))
    low, extent = points.min(0), np.ptp(points, axis=0)
    scale = page.length / max(float(extent.max()), 1e-9)
    width, height = (int(v) + 2 * page.margin for v in extent * scale)
    cover = _cover(strokes, low, scale, page, (width, height))
    lines = _rules(page, (width, height))
    picture = np.empty((height, width, 3), dtype=np.float32)
    picture[:] = page.paper
    for amount, colour in ((lines, page.rule_ink), (cover, page.ink)):
        picture += amount[:, :, None] * (np.array(colour, dtype=np.float32) - picture)
    rng = np.random.default_rng(page.seed)
    for _ in range(page.specks):
        y, x = int(rng.integers(1, height - 1)), int(rng.integers(1, width - 1))
        picture[y, x] *= 0.3
    across = (np.arange(width) / width)[None] + (np.arange(height) / height)[:, None]
    picture *= 1 - page.shadow * across[:, :, None] / 2
    picture += rng.normal(0, page.noise, picture.shape) if page.noise else 0
    image = Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8))
    if page.rotate:
        image = image.rotate(
            page.rotate, Image.Resampling.BICUBIC, expand=True, fillcolor=page.paper
        )
    return image


def _cover(
    strokes: Sequence[np.ndarray],
    low: np.ndarray,
    scale: float,
    page: Page,
    size: tuple[int, int],
) -> np.ndarray:
    """How much of each pixel the pen covers, (H, W), 0 to 1."""
    big = Image.new("L", (size[0] * OVERSAMPLE, size[1] * OVERSAMPLE))
    draw = ImageDraw.Draw(big)
    pen = page.pen * OVERSAMPLE
    for stroke in strokes:
        placed = ((stroke - low) * scale + page.margin) * OVERSAMPLE
        if len(placed) > 1:
            draw.line([tuple(p) for p in placed.tolist()], fill=255, width=round(pen))
        for x, y in placed.tolist():  # round joints and ends
            draw.ellipse((x - pen / 2, y - pen / 2, x + pen / 2, y + pen / 2), fill=255)
    return np.asarray(big.reduce(OVERSAMPLE), dtype=np.float32) / 255


def _rules(page: Page, size: tuple[int, int]) -> np.ndarray:
    """Ruled or squared paper, (H, W), 0 to 1."""
    lines = np.zeros((size[1], size[0]), dtype=np.float32)
    for down, right in product(range(page.dots), repeat=2):
        lines[page.rules // 2 + down :: page.rules, page.rules // 2 + right :: page.rules] = 1
    if page.rules and not page.dots:
        for offset in (0, 1):
            lines[page.rules // 2 + offset :: page.rules] = 1
            if page.grid:
                lines[:, page.rules // 2 + offset :: page.rules] = 1
    return lines
