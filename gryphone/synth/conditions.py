"""What happens to a page before and while it is photographed: marks, neighbours, things in view.

Each condition is a function of a grey page and a random generator. They find the ink on the page by
themselves, and want a wide margin around it (MARGIN). Those of IN_PLACE leave the ink where it is,
so that the boxes of symbols still hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gryphone.photo.binarize import darkness, ink_levels, ink_mask, parts_of, pen_width, symbol_size

if TYPE_CHECKING:
    from PIL.Image import Image

Floats = NDArray[np.float64]
Condition = Callable[["Image", np.random.Generator], "Image"]

MARGIN = 5.0  # symbols around the ink: room for what stands beside it
WORDS = ("thus", "Answer", "where", "so", "Proof", "hence")
NUMBERS = ("3)", "a)", "12.", "(ii)", "7.", "b)")
_FINER = 3


@dataclass(frozen=True)
class _Ink:
    """Where the writing is on a page, and how it looks; lengths in pixels."""

    left: float
    top: float
    right: float
    bottom: float
    symbol: float
    pen: float
    level: float  # of the ink's darkness, 0 to 1

    @property
    def middle(self) -> Floats:
        """The centre of its box."""
        return np.array([self.left + self.right, self.top + self.bottom]) / 2


def _ink(page: Image) -> _Ink:
    grey = np.asarray(page.convert("L"))
    dark = darkness(grey)
    levels = ink_levels(dark)
    height, width = grey.shape
    if levels is None:  # nothing to see: as if the page were full
        return _Ink(0, 0, width, height, max(4.0, height / 4), 2.0, 0.8)
    mask = ink_mask(dark, levels)
    pen = pen_width(mask)
    parts = parts_of(mask, dark)
    keep = parts.area > 0.5 * pen * pen
    keep[0] = False
    keep = keep if keep.any() else parts.area > 0
    (left, top), (right, bottom) = parts.boxes[keep, :2].min(0), parts.boxes[keep, 2:].max(0)
    size = symbol_size(parts.longer[keep], pen)
    return _Ink(left, top, right, bottom, size, max(pen, 1.5), levels.ink)


def _blend(page: Image, cover: NDArray[np.floating], light: float) -> Image:
    """The page under something that lets `light` of it through where it covers (H, W) it."""
    from PIL import Image

    grey = np.asarray(page.convert("L"), dtype=np.float64)
    grey *= 1 - cover * (1 - light)
    return Image.fromarray(grey.clip(0, 255).round().astype(np.uint8))


def _put(page: Image, cover: NDArray[np.floating], level: float) -> Image:
    """The page with something opaque on it, as light as `level`."""
    from PIL import Image

    grey = np.asarray(page.convert("L"), dtype=np.float64)
    grey += cover * (255 * level - grey)
    return Image.fromarray(grey.clip(0, 255).round().astype(np.uint8))


def _draw(page: Image, lines: Sequence[Floats], ink: _Ink) -> Image:
    """The page with more lines (n, 2) by the same pen."""
    from PIL import Image, ImageDraw

    canvas = Image.new("L", (page.width * _FINER, page.height * _FINER), 0)
    draw, r = ImageDraw.Draw(canvas), ink.pen * _FINER / 2
    for line in lines:
        points = [tuple(p) for p in ((line + 0.5) * _FINER).tolist()]
        draw.line(points, fill=255, width=max(1, round(2 * r)))
        for x, y in points:
            draw.ellipse((x - r, y - r, x + r, y + r), fill=255)
    cover = np.asarray(canvas.reduce(_FINER), dtype=np.float64) / 255
    return _blend(page, cover, 1 - ink.level)


def _wobbly(corners: Floats, size: float, generator: np.random.Generator) -> Floats:
    """A line by hand from corner to corner, that strays by a little of `size`."""
    parts = []
    for begin, end in itertools.pairwise(corners):
        count = max(3, int(np.hypot(*(end - begin)) / (size / 4)))
        share = np.linspace(0, 1, count)[:, None]
        bend = np.interp(share[:, 0] * 5, np.arange(6), generator.normal(0, 0.035, 6)) * size
        along = (end - begin) / max(np.hypot(*(end - begin)), 1e-9)
        bend -= np.linspace(bend[0], bend[-1], count)
        parts.append(
            begin + share * (end - begin) + bend[:, None] * np.array([-along[1], along[0]])
        )
    return np.concatenate(parts)


def boxed(page: Image, generator: np.random.Generator) -> Image:
    """A box by hand round all that is written."""
    ink = _ink(page)
    left, top, right, bottom = generator.uniform(0.25, 0.6, 4) * ink.symbol
    x0, x1, y0, y1 = ink.left - left, ink.right + right, ink.top - top, ink.bottom + bottom
    corners = np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1], [x0, y0]])
    corners = corners + generator.normal(0, 0.06 * ink.symbol, corners.shape)
    if generator.random() < 0.5:  # in one go, else two or four strokes
        return _draw(page, [_wobbly(corners, ink.symbol, generator)], ink)
    return _draw(page, [_wobbly(corners[i : i + 2], ink.symbol, generator) for i in range(4)], ink)


def underlined(page: Image, generator: np.random.Generator) -> Image:
    """One or two lines under all that is written."""
    ink = _ink(page)
    lines = []
    below = ink.bottom + generator.uniform(0.2, 0.5) * ink.symbol
    for _ in range(1 + int(generator.random() < 0.3)):
        ends = generator.uniform(-0.3, 0.3, 2) * ink.symbol
        rise = generator.normal(0, 0.08 * ink.symbol, 2)
        corners = np.array([[ink.left + ends[0], below], [ink.right + ends[1], below]])
        corners[:, 1] += rise
        lines.append(_wobbly(corners, ink.symbol, generator))
        below += 0.25 * ink.symbol
    return _draw(page, lines, ink)


def _with_symbol(page: Image, generator: np.random.Generator) -> tuple[Image, Floats, _Ink]:
    """One of the page's own symbols once more, beside the ink; its box (2, 2) and the ink."""
    from PIL import Image

    ink = _ink(page)
    grey = np.asarray(page.convert("L"))
    dark = darkness(grey)
    levels = ink_levels(dark)
    if levels is None:
        return page, np.array([[0.0, 0.0], [4.0, 4.0]]), ink
    parts = parts_of(ink_mask(dark, levels), dark)
    sizes = parts.boxes[:, 2:] - parts.boxes[:, :2]
    usual = (sizes.min(1) > 0.25 * ink.symbol) & (sizes.max(1) < 1.6 * ink.symbol)
    usual &= sizes.max(1) > 0.6 * ink.symbol
    usual[0] = False
    some = np.flatnonzero(usual if usual.any() else parts.area == parts.area[1:].max())
    left, top, right, bottom = parts.boxes[int(generator.choice(some))].tolist()
    edge = max(1, round(ink.pen))
    box = (max(left - edge, 0), max(top - edge, 0), right + edge, bottom + edge)
    gap = generator.uniform(0.35, 0.6) * ink.symbol
    x = ink.right + gap if generator.random() < 0.7 else ink.left - gap - (right - left)
    x, y = (
        round(min(max(x, 0), page.width - (right - left))),
        round(ink.middle[1] - (bottom - top) / 2),
    )
    y = min(max(y, 0), page.height - (bottom - top))
    piece = Image.fromarray((255 * (1 - dark[box[1] : box[3], box[0] : box[2]])).astype(np.uint8))
    cover = Image.new("L", page.size, 255)
    cover.paste(piece, (x - edge, y - edge))
    marked = _blend(page, 1 - np.asarray(cover, dtype=np.float64) / 255, 0.0)
    return marked, np.array([[x, y], [x + right - left, y + bottom - top]], dtype=np.float64), ink


def struck_out(page: Image, generator: np.random.Generator) -> Image:
    """A symbol too much, with one or two lines through it."""
    marked, (low, high), ink = _with_symbol(page, generator)
    out = generator.uniform(0.1, 0.3, 4) * ink.symbol
    x0, x1, y0, y1 = low[0] - out[0], high[0] + out[1], low[1] - out[2], high[1] + out[3]
    middle = (y0 + y1) / 2
    ways = [
        [[[x0, y1], [x1, y0]]],
        [[[x0, middle], [x1, middle]]],
        [[[x0, y1], [x1, y0]], [[x0, y0], [x1, y1]]],
    ]
    way = ways[int(generator.integers(3))]
    lines = [_wobbly(np.array(line), ink.symbol, generator) for line in way]
    return _draw(marked, lines, ink)


def scribbled_out(page: Image, generator: np.random.Generator) -> Image:
    """A symbol too much under a zigzag."""
    marked, (low, high), ink = _with_symbol(page, generator)
    low, high = low - 0.12 * ink.symbol, high + 0.12 * ink.symbol
    count = int(generator.integers(7, 12))
    x = np.linspace(low[0], high[0], count)
    y = np.where(np.arange(count) % 2 == 0, low[1], high[1])
    corners = np.stack([x, y], 1) + generator.normal(0, 0.05 * ink.symbol, (count, 2))
    return _draw(marked, [_wobbly(corners, ink.symbol, generator)], ink)


def fingertip(page: Image, generator: np.random.Generator) -> Image:
    """Skin comes into view from a side."""
    ink = _ink(page)
    width, height = page.size
    radius = generator.uniform(0.9, 1.5) * ink.symbol
    sideways = generator.random() < 0.5
    at = generator.uniform(0.1, 0.9) * (height if sideways else width)
    reach = generator.uniform(1.0, 2.2) * ink.symbol
    far = (width if sideways else height) if generator.random() < 0.5 else 0
    rows, columns = np.mgrid[:height, :width]
    across, along = (
        (rows - at, np.abs(columns - far)) if sideways else (columns - at, np.abs(rows - far))
    )
    beyond = np.maximum(along - (reach - radius), 0)
    distance = radius - np.hypot(across, beyond)
    cover = 1 / (1 + np.exp(-np.clip(distance / (0.04 * ink.symbol), -30, 30)))
    shade = generator.uniform(0.45, 0.68)
    return _put(page, cover, shade)


def holes(page: Image, generator: np.random.Generator) -> Image:
    """The punched edge of a spiral pad: round or square holes, dark behind them."""
    ink = _ink(page)
    width, height = page.size
    radius = generator.uniform(0.18, 0.32) * ink.symbol
    gap = generator.uniform(3.2, 5.0) * radius
    at = generator.uniform(1.3, 2.2) * radius
    top = generator.random() < 0.5
    rows, columns = np.mgrid[:height, :width]
    along, away = (columns, rows) if top else (rows, columns)
    nearest = (along - generator.uniform(0, gap)) % gap - gap / 2
    if generator.random() < 0.5:
        distance = radius - np.hypot(nearest, away - at)
    else:
        distance = radius - np.maximum(np.abs(nearest), np.abs(away - at))
    return _put(page, np.clip(distance + 0.5, 0, 1), generator.uniform(0.1, 0.35))


def coffee_ring(page: Image, generator: np.random.Generator) -> Image:
    """A cup stood here: a ring, darker at its rim, that may cross the writing."""
    ink = _ink(page)
    radius = generator.uniform(1.8, 3.0) * ink.symbol
    middle = generator.uniform((ink.left, ink.top), (ink.right, ink.bottom))
    middle = middle + generator.normal(0, 0.7 * ink.symbol, 2)
    rows, columns = np.mgrid[: page.height, : page.width]
    y, x = rows - middle[1], columns - middle[0]
    angle = np.arctan2(y, x)
    strength = 0.75 + 0.25 * np.sin(angle * 2 + generator.uniform(0, 6))
    away = np.hypot(x, y) - radius * (1 + 0.01 * np.sin(3 * angle))
    thick = generator.uniform(0.06, 0.14) * ink.symbol
    rim = np.exp(-0.5 * (away / (thick / 2)) ** 2) * strength
    return _blend(page, rim + 0.15 * (away < 0), 1 - generator.uniform(0.18, 0.38))


def _warped(page: Image, corners: Floats, desk: NDArray[np.floating]) -> Image:
    """The page with its corners (4, 2) elsewhere, on a desk as large as the picture."""
    from PIL import Image

    width, height = page.size
    square = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=np.float64)
    rows = []
    for (x, y), (u, v) in zip(corners.tolist(), square.tolist(), strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    data = np.linalg.solve(np.array(rows), square.ravel()).tolist()
    size = desk.shape[::-1]
    both = Image.merge("LA", (page.convert("L"), Image.new("L", page.size, 255)))
    moved = both.transform(size, Image.Transform.PERSPECTIVE, data, Image.Resampling.BICUBIC)
    seen = Image.fromarray(desk.clip(0, 255).astype(np.uint8))
    seen.paste(moved.getchannel("L"), (0, 0), moved.getchannel("A"))
    return seen


def _desk(size: tuple[int, int], level: float, generator: np.random.Generator) -> Floats:
    """Grained wood or plain, (H, W) grey levels."""
    height = size[0]
    grain = np.interp(np.linspace(0, 24, height), np.arange(25), generator.normal(0, 5, 25))
    desk: Floats = level + grain[:, None] + generator.normal(0, 3, size)
    return desk


def in_perspective(page: Image, generator: np.random.Generator) -> Image:
    """The whole sheet, seen askew on a darker desk."""
    width, height = page.size
    size = int(height * 1.3), int(width * 1.25)
    corner = np.array([0.125 * width, 0.15 * height])
    corners = corner + np.array([[0, 0], [width, 0], [width, height], [0, height]])
    far = generator.uniform(0.02, 0.09) * width  # the far side looks shorter
    corners[0, 0] += far
    corners[1, 0] -= far
    corners = corners + generator.normal(0, 0.02 * min(page.size), (4, 2))
    level = generator.uniform(50, 150)
    return _warped(page, corners, _desk(size, level, generator))


def table_edge(page: Image, generator: np.random.Generator) -> Image:
    """One side of the picture shows the table, behind a slanted edge of the sheet."""
    width, height = page.size
    side = int(generator.integers(4))
    reach = generator.uniform(0.05, 0.16, 2)
    rows, columns = np.mgrid[:height, :width]
    across, along = (
        ((columns / width), (rows / height)) if side % 2 else (rows / height, columns / width)
    )
    across = across if side < 2 else 1 - across
    cover = np.clip((reach[0] + (reach[1] - reach[0]) * along - across) * min(page.size), 0, 1)
    level = generator.uniform(50, 150)
    grey = np.asarray(page.convert("L"), dtype=np.float64)
    from PIL import Image

    mixed = grey + cover * (_desk((height, width), level, generator) - grey)
    return Image.fromarray(mixed.clip(0, 255).round().astype(np.uint8))


def turned(page: Image, generator: np.random.Generator, quarters: Sequence[int] = (1, 3)) -> Image:
    """The camera was held sideways."""
    return page.rotate(90 * int(generator.choice(list(quarters))), expand=True)


def motion_blur(page: Image, generator: np.random.Generator) -> Image:
    """The hand moved by a fifth of a symbol while the shutter was open."""
    from PIL import Image

    ink = _ink(page)
    reach = generator.uniform(0.1, 0.22) * ink.symbol
    angle = generator.uniform(0, np.pi)
    edge, steps = int(reach) + 1, max(3, round(reach))
    grey = np.pad(np.asarray(page.convert("L"), dtype=np.float64), edge, mode="edge")
    total = np.zeros_like(grey)
    for share in np.linspace(-0.5, 0.5, steps):
        dx, dy = (round(share * reach * f) for f in (np.cos(angle), np.sin(angle)))
        total += np.roll(grey, (dy, dx), (0, 1))
    seen = (total / steps)[edge:-edge, edge:-edge]
    return Image.fromarray(seen.round().astype(np.uint8))


def marker(page: Image, generator: np.random.Generator) -> Image:
    """A felt pen: lines of an eighth of a symbol."""
    from PIL import ImageFilter

    ink = _ink(page)
    more = generator.uniform(0.11, 0.14) * ink.symbol - ink.pen
    size = 2 * max(1, round(more / 2)) + 1
    return page.convert("L").filter(ImageFilter.MinFilter(size))


def beside(page: Image, generator: np.random.Generator, texts: Sequence[str] = WORDS) -> Image:
    """A word, or the number of an exercise, to the left of the formula."""
    from PIL import Image, ImageDraw, ImageFont

    ink = _ink(page)
    text = str(generator.choice(list(texts)))
    font = ImageFont.load_default(1.15 * ink.symbol)
    left, top, right, bottom = font.getbbox(text)
    width, height = int(right - left) + 4, int(bottom - top) + 4
    label = Image.new("L", (width, height))
    ImageDraw.Draw(label).text((2 - left, 2 - top), text, fill=255, font=font)
    lean = generator.uniform(0.0, 0.25)
    label = label.transform(
        (int(width + lean * height), height),
        Image.Transform.AFFINE,
        (1, lean, -lean * height, 0, 1, 0),
        Image.Resampling.BICUBIC,
    )
    gap = generator.uniform(1.0, 1.6) * ink.symbol
    wide = min(1.0, (ink.left - gap) / label.width)  # what is too long is written smaller
    if wide <= 0.1:
        return page
    label = label.resize((max(1, int(label.width * wide)), max(1, int(height * wide))))
    cover = Image.new("L", page.size)
    y = int(ink.middle[1] - label.height / 2)
    cover.paste(label, (int(ink.left - gap) - label.width, max(0, y)))
    return _blend(page, np.asarray(cover, dtype=np.float64) / 255, 1 - ink.level)


def in_lines(page: Image, generator: np.random.Generator, gap: float = 1.0) -> Image:
    """Three lines of writing, `gap` symbols of paper between them."""
    from PIL import Image

    ink = _ink(page)
    grey = np.asarray(page.convert("L"))
    edge = round(gap * ink.symbol / 2)
    top, bottom = max(0, int(ink.top) - edge), min(page.height, int(ink.bottom) + edge)
    shift = round(generator.uniform(0, 0.5) * ink.symbol)
    row = grey[top:bottom]
    moved = np.pad(row, ((0, 0), (shift, 0)), mode="edge")[:, : page.width]
    lines = [row, moved, row]
    return Image.fromarray(np.concatenate([grey[:top], *lines, grey[bottom:]]))


def dust(page: Image, generator: np.random.Generator) -> Image:
    """Specks and short hairs all over the page: a scanner's glass that nobody wiped."""
    ink = _ink(page)
    lines = []
    for _ in range(int(generator.integers(3, 16))):
        at = generator.uniform(0, page.size)
        reach = generator.exponential(0.05) * ink.symbol
        if generator.random() < 0.15:
            reach = generator.uniform(0.2, 0.7) * ink.symbol
        turn = generator.uniform(0, np.pi)
        step = reach * np.array([np.cos(turn), np.sin(turn)])
        bend = at + step / 2 + generator.normal(0, 0.1 * reach + 1e-9, 2)
        lines.append(np.array([at, bend, at + step]))
    thin = replace(ink, pen=ink.pen * generator.uniform(0.4, 1.2))
    return _draw(page, lines, replace(thin, level=ink.level * generator.uniform(0.5, 1.0)))


def shadow(page: Image, generator: np.random.Generator) -> Image:
    """A hand or a telephone between lamp and paper: a shadow with an edge."""
    middle = generator.uniform(0.2, 0.8, 2) * page.size
    turn = generator.uniform(0, 2 * np.pi)
    rows, columns = np.mgrid[: page.height, : page.width]
    away = (columns - middle[0]) * np.cos(turn) + (rows - middle[1]) * np.sin(turn)
    soft = generator.uniform(0.01, 0.15) * min(page.size)
    cover = 1 / (1 + np.exp(-np.clip(away / soft, -30, 30)))
    return _blend(page, cover, generator.uniform(0.4, 0.75))


def crease(page: Image, generator: np.random.Generator) -> Image:
    """A fold across the sheet: a thin line, light on one side and dark on the other."""
    ink = _ink(page)
    turn = generator.choice([0, np.pi / 2]) + generator.normal(0, 0.05)
    middle = generator.uniform(0.1, 0.9, 2) * page.size
    rows, columns = np.mgrid[: page.height, : page.width]
    away = (columns - middle[0]) * np.cos(turn) + (rows - middle[1]) * np.sin(turn)
    wide = generator.uniform(0.4, 1.2) * ink.pen
    line = np.exp(-0.5 * (away / wide) ** 2) + 0.15 * (away > 0)
    return _blend(page, line, 1 - generator.uniform(0.15, 0.5))


def margin_line(page: Image, generator: np.random.Generator) -> Image:
    """The printed margin of a pad, or a line drawn along a ruler, beside or under the writing."""
    ink = _ink(page)
    beyond = generator.uniform(0.4, 1.5) * ink.symbol
    width, height = page.size
    if generator.random() < 0.6:
        x = ink.left - beyond if generator.random() < 0.7 else ink.right + beyond
        line = np.array([[x, -9.0], [x + generator.normal(0, 0.02 * width), height + 9.0]])
    else:
        y = ink.top - beyond if generator.random() < 0.5 else ink.bottom + beyond
        line = np.array([[-9.0, y], [width + 9.0, y + generator.normal(0, 0.02 * height)]])
    return _draw(page, [line], replace(ink, level=ink.level * generator.uniform(0.4, 1.0)))


def showing_through(page: Image, generator: np.random.Generator) -> Image:
    """The back of the sheet is written on as well, and can be guessed from here."""
    from PIL import ImageOps

    back = ImageOps.mirror(page.convert("L"))
    dark = np.roll(darkness(np.asarray(back)), generator.integers(-40, 40, 2), (0, 1))
    return _blend(page, dark, 1 - generator.uniform(0.08, 0.3))


def faint(page: Image, generator: np.random.Generator) -> Image:
    """A hard pencil: little of the contrast is left, and the sensor's noise is not."""
    from PIL import Image

    grey = np.asarray(page.convert("L"), dtype=np.float64)
    paper = np.median(grey)
    grey = paper + (grey - paper) * generator.uniform(0.18, 0.45)
    grey += generator.normal(0, generator.uniform(0, 5), grey.shape)
    return Image.fromarray(grey.clip(0, 255).round().astype(np.uint8))


def printed(page: Image, generator: np.random.Generator, kind: str = "squared") -> Image:
    """Ruled, squared or dotted paper under the writing, a little askew."""
    ink = _ink(page)
    distance = generator.uniform(0.45, 1.1) * ink.symbol
    turn = np.radians(generator.normal(0, 0.7))
    rows, columns = np.mgrid[: page.height, : page.width]
    down = rows * np.cos(turn) - columns * np.sin(turn) + generator.uniform(0, distance)
    across = columns * np.cos(turn) + rows * np.sin(turn) + generator.uniform(0, distance)
    down, across = (np.abs(v % distance - distance / 2) for v in (down, across))
    if kind == "dotted":
        away, wide = np.hypot(down, across), generator.uniform(0.6, 1.2) * ink.pen
    else:
        away = down if kind == "ruled" else np.minimum(down, across)
        wide = generator.uniform(0.3, 0.7) * ink.pen
    cover = np.clip(wide / 2 + 0.5 - away, 0, 1)
    return _blend(page, cover, 1 - ink.level * generator.uniform(0.25, 0.55))


def plain(page: Image, generator: np.random.Generator) -> Image:
    """The page as it is."""
    return page


CONDITIONS: dict[str, Condition] = {
    "plain": plain,
    "boxed": boxed,
    "underlined": underlined,
    "struck-out": struck_out,
    "scribbled-out": scribbled_out,
    "fingertip": fingertip,
    "holes": holes,
    "coffee-ring": coffee_ring,
    "perspective": in_perspective,
    "table-edge": table_edge,
    "turned": turned,
    "upside-down": partial(turned, quarters=(2,)),
    "motion-blur": motion_blur,
    "marker": marker,
    "ruled": partial(printed, kind="ruled"),
    "squared": printed,
    "dotted": partial(printed, kind="dotted"),
    "word": beside,
    "number": partial(beside, texts=NUMBERS),
    "lines-1.0": in_lines,
    "lines-1.6": partial(in_lines, gap=1.6),
}
MOVING = {"plain", "perspective", "turned", "upside-down", "lines-1.0", "lines-1.6"}
IN_PLACE = tuple(name for name in CONDITIONS if name not in MOVING)


# What is on the page or the glass besides the ink; training alone, with those of IN_PLACE.
DIRT: dict[str, Condition] = {
    "dust": dust,
    "shadow": shadow,
    "crease": crease,
    "margin-line": margin_line,
    "showing-through": showing_through,
    "faint": faint,
}


def under_some_condition(page: Image, generator: np.random.Generator) -> Image:
    """The page under one of the conditions that leave the ink in its place, or dirty, or both."""
    if generator.random() < 0.6:
        for name in generator.choice(list(DIRT), int(generator.integers(1, 3)), replace=False):
            page = DIRT[str(name)](page, generator)
        if generator.random() < 0.7:
            return page
    return CONDITIONS[str(generator.choice(IN_PLACE))](page, generator)
