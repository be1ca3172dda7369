"""Batched drawing equals the plain reference pixel for pixel; patches equal cut-outs of it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from inkmaker import some

from gryphone.config import Canvas
from gryphone.errors import ConfigError, InkError
from gryphone.raster import (
    LONGEST_STROKES,
    QUANTILE,
    InkBatch,
    Pixels,
    draw,
    thicken,
    to_patches,
    turned,
    typical_strokes,
)
from gryphone.recognition.backend import View
from gryphone.recognition.drawing import drawing_of
from gryphone.training.augment import Augment, augment

CANVASES = [
    Canvas("square", 224, 8, 8),
    Canvas("square", 224, 8, 16),
    Canvas("area", 224),
    Canvas("stroke", 384),
    Canvas("stroke", 96),  # small enough that the limit on the area decides
    Canvas("stroke", 384, dot=12),
]


def to_image(pixels: Pixels, height: int, width: int) -> torch.Tensor:
    """Dense bitmaps (B, height, width) uint8; what does not fit is cut off."""
    image = torch.zeros(pixels.size, height, width, dtype=torch.uint8, device=pixels.row.device)
    inside = (pixels.row < height) & (pixels.column < width)
    image[pixels.sample[inside], pixels.row[inside], pixels.column[inside]] = 1
    return image


def draw_reference(strokes: Sequence[np.ndarray], canvas: Canvas) -> np.ndarray:
    """One ink drawn by plain loops, (H, W) uint8: what `draw` must equal pixel for pixel."""
    points = [np.asarray(s, dtype=np.float32) for s in strokes if len(s)]
    everything = np.concatenate(points)
    low, extent = everything.min(0), everything.max(0) - everything.min(0)
    side = np.float32(canvas.side)
    longest = np.maximum(extent.max(), np.float32(1e-12))
    if canvas.kind == "square":
        scale = (side - 1) / longest
        shift = (side - extent * scale) / 2
        pixels = np.array([side, side])
    else:
        effective = np.maximum(extent, longest / np.float32(canvas.max_aspect))
        scale = side / np.sqrt(effective.prod())
        if canvas.kind == "stroke":
            sizes = sorted((s.max(0) - s.min(0)).max() for s in points)
            typical = sizes[len(sizes) * QUANTILE[0] // QUANTILE[1]]
            typical = np.maximum(typical, longest / np.float32(LONGEST_STROKES))
            scale = np.minimum(scale, np.float32(canvas.stroke) / typical)
        shift = np.full(2, 0.5, np.float32)
        pixels = extent * scale + 1
    width, height = (np.maximum(np.ceil(pixels / canvas.patch), 1) * canvas.patch).astype(int)
    image = np.zeros((height, width), np.uint8)
    for stroke in points:
        placed = (stroke - low) * scale + shift
        top, bottom = placed.min(0), placed.max(0)
        if (bottom - top).max() < canvas.dot:
            placed = ((top + bottom) / 2)[None]
            column, row = np.floor(placed[0]).astype(int)
            image[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2] = 1
        for a, b in zip(np.concatenate([placed[:1], placed[:-1]]), placed, strict=True):
            delta = b - a
            n = max(1, int(np.ceil(np.abs(delta).max())))
            for k in range(n + 1):
                x, y = np.floor(a + delta * (np.float32(k) / np.float32(n))).astype(int)
                image[min(max(y, 0), height - 1), min(max(x, 0), width - 1)] = 1
    return image


def random_inks(count: int) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(5)
    inks = [
        [
            rng.normal(size=(rng.integers(1, 20), 2)).cumsum(0) * rng.uniform(0.1, 10)
            for _ in range(rng.integers(1, 8))
        ]
        for _ in range(count)
    ]
    inks.append([np.array([[3.0, 4.0]])])  # a single point
    inks.append([np.array([[0.0, 4.0], [10, 4]])])  # no height
    inks.append([np.array([[0.0, 0.0]]), np.array([[500.0, 0.0]])])  # dots far apart
    inks.append([np.array([[0.0, 0.0], [3000, 1]]), np.array([[5.0, 0.0], [5, 2]])])  # very long
    return inks


@pytest.mark.parametrize("canvas", CANVASES, ids=lambda c: f"{c.kind}-{c.side}-{c.window}-{c.dot}")
def test_batched_drawing_equals_the_reference(canvas: Canvas) -> None:
    inks = random_inks(25)
    pixels = draw(InkBatch.from_strokes(inks), canvas)
    patches = to_patches(pixels, canvas)
    halo = (canvas.window - canvas.patch) // 2
    for i, ink in enumerate(inks):
        expected = draw_reference(ink, canvas)
        assert tuple(pixels.shape[i].tolist()) == expected.shape
        mine = pixels.sample == i
        image = np.zeros_like(expected)
        image[pixels.row[mine], pixels.column[mine]] = 1
        assert np.array_equal(image, expected), f"ink {i}"

        begin, end = patches.offsets[i : i + 2].tolist()
        padded = np.pad(expected, halo)
        for p in range(begin, end):
            row, column = (patches.position[p] * canvas.patch).tolist()
            window = padded[row : row + canvas.window, column : column + canvas.window]
            assert np.array_equal(patches.pixels[p].numpy(), window.ravel())
        rows, columns = expected.shape[0] // 8, expected.shape[1] // 8
        inked = expected.reshape(rows, 8, columns, 8).any((1, 3)).sum()
        assert end - begin == inked


def test_square_image_is_centred_and_fills_the_side() -> None:
    ink = [np.array([[0.0, 0.0], [10.0, 0.0]])]
    canvas = Canvas("square", 224, 8, 8)
    image = to_image(draw(InkBatch.from_strokes([ink]), canvas), 224, 224)[0]
    assert image.sum() == 224
    assert image[112].sum() == 224


def test_area_canvas_keeps_its_area() -> None:
    for width in (1.0, 3.0, 8.0):
        box = [np.array([[0.0, 0.0], [width, 0], [width, 1], [0, 1], [0, 0]])]
        canvas = Canvas("area", 224)
        pixels = draw(InkBatch.from_strokes([box]), canvas)
        used = (int(pixels.row.max()) + 1) * (int(pixels.column.max()) + 1)
        assert abs(used - 224**2) < 0.02 * 224**2


def test_typical_stroke_is_the_60_percent_quantile_and_ignores_the_number_of_symbols() -> None:
    strokes = [
        np.array([[i * 3.0, 0.0], [i * 3.0, size]]) for i, size in enumerate([1, 2, 3, 4, 5])
    ]
    twice = [*strokes, *(s + np.array([20, 0]) for s in strokes)]
    batch = InkBatch.from_strokes([strokes, twice])
    assert typical_strokes(batch).tolist() == [4.0, 4.0]


def test_answer_does_not_depend_on_scale_or_place() -> None:
    inks = random_inks(6)
    canvas = Canvas()
    first = draw(InkBatch.from_strokes(inks), canvas)
    second = draw(InkBatch.from_strokes([[s * 8 + 64 for s in ink] for ink in inks]), canvas)
    same = (first.row == second.row) & (first.column == second.column)
    assert same.float().mean() > 0.99  # rounding may move a pixel that lies on an edge


def test_dense_patches_are_all_there() -> None:
    canvas = Canvas("square", 224, 8, 8)
    patches = to_patches(
        draw(InkBatch.from_strokes(random_inks(2)), canvas),
        canvas,
        dense=True,
    )
    assert patches.offsets.diff().tolist() == [784] * 6
    assert patches.position[:30].tolist() == [[i // 28, i % 28] for i in range(30)]


def test_patches_know_the_symbol_whose_ink_they_hold() -> None:
    batch = InkBatch.from_strokes(
        [[np.array([[0.0, 0.0], [0, 10]]), np.array([[50.0, 0.0], [50, 10]])]]
    )
    batch = replace(batch, glyph=torch.tensor([3, 3, 8, 8]))
    canvas = Canvas()
    patches = to_patches(draw(batch, canvas), canvas)
    left = patches.position[:, 1] == 0
    assert patches.glyph[left].unique().tolist() == [3]
    assert patches.glyph[~left].unique().tolist() == [8]


def test_a_point_and_a_scribble_are_the_same_dot() -> None:
    bar = np.array([[0.0, 0.0], [40.0, 0.0]])
    scribble = np.array([[19.0, 9.0], [21.0, 9.5], [20.0, 11.0]])
    inks = [[bar, np.array([[20.0, 10.0]])], [bar, scribble]]
    canvas = Canvas(dot=4)
    pixels = draw(InkBatch.from_strokes(inks), canvas)
    images = to_image(pixels, *pixels.shape[0].tolist())
    assert torch.equal(images[0], images[1])
    assert images[0, 4:].sum() == 9


def test_some_inks_of_a_batch() -> None:
    inks = random_inks(4)
    batch = InkBatch.from_strokes(inks)
    some = batch.select(torch.tensor([3, 0]))
    alike = InkBatch.from_strokes([inks[3], inks[0]])
    for name in ("points", "pen", "sample", "glyph"):
        assert torch.equal(getattr(some, name), getattr(alike, name))
    assert some.size == 2


def test_thick_strokes_only_where_chosen() -> None:
    ink = [np.array([[0.0, 0.0], [0.0, 20.0]]), np.array([[30.0, 5.0], [50.0, 5.0]])]
    canvas = Canvas()
    pixels = draw(InkBatch.from_strokes([ink, ink]), canvas)
    thick = thicken(pixels, torch.tensor([False, True]))
    images = to_image(thick, *pixels.shape[0].tolist())
    assert images[1].sum() > 1.8 * images[0].sum()
    assert torch.equal(images[0], to_image(pixels, *pixels.shape[0].tolist())[0])


def test_augmentation_is_seeded_and_moves_ink_a_little() -> None:
    batch = InkBatch.from_strokes(random_inks(8))
    strength = Augment(jitter=0.001, glyph_warp=0.1)
    one, two, other = (
        augment(batch, strength, torch.Generator().manual_seed(s)).points for s in (1, 1, 2)
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert one.isfinite().all()
    still = Augment(
        rotate=0, shear=0, stretch=0, warp=0, glyph_shift=0, glyph_scale=0, glyph_rotate=0
    )
    same = augment(batch, still, torch.Generator().manual_seed(1))
    canvas = Canvas("area", 224)
    before, after = draw(batch, canvas), draw(same, canvas)
    assert torch.equal(before.shape, after.shape)
    factors = strength.area_factor(1000, torch.Generator().manual_seed(0))
    assert factors.max() <= strength.max_area_factor
    assert abs(float(factors.log().mean())) < 0.03


def test_errors_name_the_value() -> None:
    with pytest.raises(ConfigError, match="'round'"):
        Canvas("round")
    with pytest.raises(InkError, match="ink 1"):
        InkBatch.from_strokes([[np.zeros((1, 2))], []])


@pytest.mark.parametrize("view", [View(), View(0.87, 0.03)])
@pytest.mark.parametrize("canvas", [*CANVASES, Canvas("stroke", 456, stroke=44.0, dot=4.0)])
def test_one_ink_is_drawn_as_the_batch_is(canvas: Canvas, view: View) -> None:
    """One ink is drawn without PyTorch: the same pixels, the same patches."""
    rng = np.random.default_rng(0)
    inks = [ink.strokes for ink in some(8)]
    inks += [(rng.normal(size=(40, 2)).cumsum(0) * 30,), (np.zeros((1, 2)), np.ones((1, 2)))]
    dense = canvas.kind == "square"
    for strokes in inks:
        batch = InkBatch.from_strokes([strokes])
        numbered = (~batch.pen).cumsum(0) - 1
        batch = replace(batch, points=turned(batch.points, view.angle), glyph=numbered)
        area = torch.tensor([view.scale**2])
        pixels = draw(batch, canvas, area)
        patches = to_patches(pixels, canvas, area_factor=view.scale**2, dense=dense)
        one = drawing_of(strokes, canvas, view, dense)
        assert one.grid == tuple(patches.shape[0].tolist())
        assert np.array_equal(one.pixels, patches.pixels.numpy())
        assert np.array_equal(one.position, patches.position.numpy())
        assert np.array_equal(one.home, patches.home.numpy())
        assert np.array_equal(one.stroke, pixels.glyph.numpy())


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("canvas", CANVASES)
def test_every_pixel_knows_its_patch(canvas: Canvas, dense: bool) -> None:
    pixels = draw(InkBatch.from_strokes([ink.strokes for ink in some(5)]), canvas)
    patches = to_patches(pixels, canvas, dense=dense)
    place = patches.position[patches.home]
    assert torch.equal(place[:, 0], pixels.row // canvas.patch)
    assert torch.equal(place[:, 1], pixels.column // canvas.patch)
    owner = torch.bucketize(patches.home, patches.offsets[1:].long(), right=True)
    assert torch.equal(owner, pixels.sample)
    if not dense:  # nothing is kept without ink
        assert patches.home.unique().tolist() == list(range(len(patches.pixels)))
    halo = (canvas.window - canvas.patch) // 2
    inside = (
        (halo + pixels.row % canvas.patch) * canvas.window + halo + pixels.column % canvas.patch
    )
    assert patches.pixels[patches.home, inside].all()
