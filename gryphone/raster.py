"""Ink to pixels to patches: the one preprocessing path of training, evaluation and recognition.

Strokes are drawn one pixel wide by a digital differential analyser, either on the paper's square
canvas or on a canvas of constant area, of which only the inked patches are kept. Everything is
batched: no Python loop over samples, the same code on the CPU and on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gryphone.config import Canvas
from gryphone.errors import InkError
from gryphone.ink import LONGEST_STROKES, QUANTILE
from gryphone.ragged import select


@dataclass(frozen=True)
class InkBatch:
    """Many inks as flat tensors; points of one sample are contiguous, samples in order."""

    points: Tensor  # (N, 2) float32, x right, y down
    pen: Tensor  # (N,) bool, True when ink joins the point to the one before it
    sample: Tensor  # (N,) int64, ascending, every value of 0..size-1 present
    glyph: Tensor  # (N,) int64, index of the symbol the point belongs to, -1 when unknown
    size: int

    def to(self, device: torch.device | str) -> InkBatch:
        """The same inks on another device."""
        return InkBatch(
            self.points.to(device),
            self.pen.to(device),
            self.sample.to(device),
            self.glyph.to(device),
            self.size,
        )

    def select(self, samples: Tensor) -> InkBatch:
        """Some of the inks (n,), in the order given."""
        counts = torch.bincount(self.sample, minlength=self.size)
        rows, sample, _ = select(F.pad(counts.cumsum(0), (1, 0)), samples)
        return InkBatch(self.points[rows], self.pen[rows], sample, self.glyph[rows], len(samples))

    @classmethod
    def from_strokes(cls, inks: Sequence[Sequence[np.ndarray]]) -> InkBatch:
        """Batch inks given as lists of (n, 2) strokes."""
        for i, strokes in enumerate(inks):
            if not any(len(s) for s in strokes):
                raise InkError(f"ink {i} of the batch has no points; give at least one stroke")
        strokes = [s for ink in inks for s in ink if len(s)]
        owners = [i for i, ink in enumerate(inks) for s in ink if len(s)]
        lengths = np.array([len(s) for s in strokes])
        pen = np.ones(lengths.sum(), dtype=bool)
        pen[np.cumsum(lengths) - lengths] = False
        return cls(
            points=torch.from_numpy(np.concatenate(strokes).astype(np.float32)),
            pen=torch.from_numpy(pen),
            sample=torch.from_numpy(np.repeat(owners, lengths)),
            glyph=torch.full((len(pen),), -1, dtype=torch.int64),
            size=len(inks),
        )


@dataclass(frozen=True)
class Pixels:
    """The inked pixels of a batch, one row each; a pixel may occur more than once."""

    sample: Tensor  # (M,) int64
    row: Tensor  # (M,) int64
    column: Tensor  # (M,) int64
    glyph: Tensor  # (M,) int64
    shape: Tensor  # (B, 2) int64, height and width of each canvas in pixels, multiples of the patch
    size: int


@dataclass(frozen=True)
class Patches:
    """Inked patches of a batch, packed: sample b owns rows offsets[b]:offsets[b+1]."""

    pixels: Tensor  # (P, window²) uint8, the patch with its surroundings
    position: Tensor  # (P, 2) int64, row and column in the patch grid
    shape: Tensor  # (B, 2) int64, rows and columns of each grid
    offsets: Tensor  # (B + 1,) int32
    glyph: Tensor  # (P,) int64, one symbol that has ink in the patch, -1 when unknown
    home: Tensor  # (M,) int64, the patch that each pixel lies in
    longest: int | None = None  # the most patches of a sample, where that is known


def turned(points: Tensor, angle: float) -> Tensor:
    """Points (N, 2) turned by an angle in radians."""
    cos, sin = math.cos(angle), math.sin(angle)
    return points @ points.new_tensor([[cos, sin], [-sin, cos]]) if angle else points


def bounds(batch: InkBatch) -> tuple[Tensor, Tensor]:
    """Lowest and highest coordinates of each sample, (B, 2) both."""
    index = batch.sample[:, None].expand(-1, 2)
    low = batch.points.new_full((batch.size, 2), math.inf)
    high = batch.points.new_full((batch.size, 2), -math.inf)
    low.scatter_reduce_(0, index, batch.points, "amin")
    high.scatter_reduce_(0, index, batch.points, "amax")
    return low, high


def typical_strokes(batch: InkBatch) -> Tensor:
    """The 60 % quantile of each sample's stroke sizes (longer side of the box), (B,).

    Measured on CROHME, symbols scaled by it vary half as much in size (the logarithm's deviation
    is 0.22) as symbols on a canvas of constant area (0.53 to 0.67).
    """
    starts = ~batch.pen
    owner = batch.sample[starts]  # (strokes,)
    low, high = bounds(replace(batch, sample=starts.cumsum(0) - 1, size=len(owner)))
    size = (high - low).amax(1)
    # One sort for all samples: the sample number, then the size scaled to less than one.
    order = (owner + size.double() / (2 * size.amax().clamp_min(1e-12))).argsort()
    count = torch.bincount(owner, minlength=batch.size)
    place = (count * QUANTILE[0]) // QUANTILE[1]
    return size[order[count.cumsum(0) - count + place]]


def fit(
    batch: InkBatch, canvas: Canvas, area_factor: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Points in pixels (N, 2), and each canvas's height and width (B, 2) int64.

    `area_factor` (B,) enlarges or shrinks single canvases (scale augmentation).
    """
    low, high = bounds(batch)
    extent = high - low  # (B, 2) width, height
    factor = (extent.new_ones(batch.size) if area_factor is None else area_factor).sqrt()
    longest = extent.amax(1).clamp_min(1e-12)
    if canvas.kind == "square":
        side = canvas.side * factor  # (B,)
        scale = (side - 1) / longest
        shift = (side[:, None] - extent * scale[:, None]) / 2
        pixels = side[:, None].expand(-1, 2)
    else:
        effective = extent.maximum((longest / canvas.max_aspect)[:, None])
        scale = canvas.side / effective.prod(1).sqrt()
        if canvas.kind == "stroke":
            typical = typical_strokes(batch).maximum(longest / LONGEST_STROKES)
            scale = scale.minimum(canvas.stroke * factor / typical)
        else:
            scale = scale * factor
        shift = torch.full_like(extent, 0.5)
        pixels = extent * scale[:, None] + 1
    points = (batch.points - low[batch.sample]) * scale[batch.sample, None] + shift[batch.sample]
    grid = (pixels / canvas.patch).ceil().clamp_min(1).long() * canvas.patch
    return points, grid.flip(1)


def draw(batch: InkBatch, canvas: Canvas, area_factor: Tensor | None = None) -> Pixels:
    """Draw every stroke one pixel wide, and dots three."""
    points, shape = fit(batch, canvas, area_factor)
    if canvas.dot:
        stroke = (~batch.pen).cumsum(0) - 1  # (N,)
        count = int((~batch.pen).sum())
        low, high = bounds(replace(batch, points=points, sample=stroke, size=count))
        tiny = ((high - low).amax(1) < canvas.dot)[stroke]  # (N,)
        points = torch.where(tiny[:, None], ((low + high) / 2)[stroke], points)
    # The segment that ends in point i starts in point i-1, or in i itself where a stroke begins.
    begin = points.roll(1, 0)
    begin = torch.where(batch.pen[:, None], begin, points)
    delta = points - begin
    steps = delta.abs().amax(1).ceil().clamp_min(1).long()  # (N,)
    owner = torch.repeat_interleave(torch.arange(len(steps), device=steps.device), steps + 1)
    first = (steps + 1).cumsum(0) - (steps + 1)
    k = torch.arange(len(owner), device=owner.device) - first[owner]
    fraction = k.to(points.dtype) / steps[owner].to(points.dtype)
    xy = (begin[owner] + delta[owner] * fraction[:, None]).floor().long()
    sample = batch.sample[owner]
    if canvas.dot:  # a dot's first pixel brings its eight neighbours
        middle = (tiny & ~batch.pen)[owner] & (k == 0)
        middle = middle.nonzero().squeeze(1).repeat_interleave(8)
        ring = xy.new_tensor([(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1) if x or y])
        xy = torch.cat([xy, xy[middle] + ring.repeat(len(middle) // 8, 1)])
        sample, owner = torch.cat([sample, sample[middle]]), torch.cat([owner, owner[middle]])
    limit = shape[sample] - 1
    return Pixels(
        sample=sample,
        row=xy[:, 1].clamp_min(0).minimum(limit[:, 0]),
        column=xy[:, 0].clamp_min(0).minimum(limit[:, 1]),
        glyph=batch.glyph[owner],
        shape=shape,
        size=batch.size,
    )


def most_patches(canvas: Canvas, area_factor: float = 1.0) -> int:
    """The most patches a canvas can have when its area is scaled by `area_factor`."""
    side = canvas.side * math.sqrt(area_factor if canvas.kind != "stroke" else 1) / canvas.patch
    if canvas.kind == "square":
        return math.ceil(side) ** 2
    longest = side * math.sqrt(canvas.max_aspect)
    return math.ceil(side * side + 2 * longest + 4)


def to_patches(
    pixels: Pixels, canvas: Canvas, *, area_factor: float = 1.0, dense: bool = False
) -> Patches:
    """Keep the inked patches (all of them with `dense`), each with its surroundings.

    `area_factor` is the largest one that the inks were drawn with.
    """
    size, patch, device = pixels.size, canvas.patch, pixels.row.device
    slots = most_patches(canvas, area_factor)  # the room per sample
    grid = pixels.shape // patch  # (B, 2)
    columns = grid[pixels.sample, 1]
    row, column = pixels.row // patch, pixels.column // patch
    home = pixels.sample * slots + row * columns + column
    inked = torch.zeros(size * slots, dtype=torch.bool, device=device)
    inked[home] = True
    if dense:
        inked = (torch.arange(slots, device=device)[None] < grid.prod(1)[:, None]).flatten()
    kept = inked.nonzero().squeeze(1)  # (P,) ascending, so samples stay in order
    rank = torch.where(inked, inked.cumsum(0) - 1, len(kept))

    windows = torch.zeros((len(kept) + 1) * canvas.window**2, dtype=torch.uint8, device=device)
    for down, right in _neighbours(pixels, canvas):
        near_row, near_column = row + down, column + right
        valid = (near_row >= 0) & (near_row < grid[pixels.sample, 0])
        valid &= (near_column >= 0) & (near_column < columns)
        owner = rank[torch.where(valid, home + down * columns + right, home)]
        owner = torch.where(valid, owner, len(kept))
        halo = (canvas.window - patch) // 2
        y = pixels.row - near_row * patch + halo
        x = pixels.column - near_column * patch + halo
        windows[(owner * canvas.window + y) * canvas.window + x] = 1

    sample, cell = kept // slots, kept % slots
    counts = torch.bincount(sample, minlength=size)
    offsets = torch.zeros(size + 1, dtype=torch.int32, device=device)
    offsets[1:] = counts.cumsum(0)
    glyph = torch.full((len(kept) + 1,), -1, dtype=torch.int64, device=device)
    home = rank[home]
    glyph.scatter_reduce_(0, home, pixels.glyph, "amax")
    return Patches(
        pixels=windows.view(-1, canvas.window**2)[:-1],
        position=torch.stack([cell // grid[sample, 1], cell % grid[sample, 1]], 1),
        shape=grid,
        offsets=offsets,
        glyph=glyph[:-1],
        home=home,
    )


def _neighbours(pixels: Pixels, canvas: Canvas) -> list[tuple[Tensor | int, Tensor | int]]:
    """The patches whose window holds a pixel: its own and, with a halo, the three nearest ones."""
    if canvas.window == canvas.patch:
        return [(0, 0)]
    down = torch.where(pixels.row % canvas.patch < canvas.patch // 2, -1, 1)
    right = torch.where(pixels.column % canvas.patch < canvas.patch // 2, -1, 1)
    return [(0, 0), (down, 0), (0, right), (down, right)]


def thicken(pixels: Pixels, chosen: Tensor) -> Pixels:
    """Draw the chosen samples (B,) bool two pixels wide, as a thick pen would."""
    rows = chosen[pixels.sample].nonzero().squeeze(1)
    sample, limit = pixels.sample[rows], pixels.shape[pixels.sample[rows]] - 1
    row, column = pixels.row[rows], pixels.column[rows]
    below, right = (row + 1).minimum(limit[:, 0]), (column + 1).minimum(limit[:, 1])
    return replace(
        pixels,
        sample=torch.cat([pixels.sample, sample, sample]),
        row=torch.cat([pixels.row, below, row]),
        column=torch.cat([pixels.column, column, right]),
        glyph=torch.cat([pixels.glyph, pixels.glyph[rows], pixels.glyph[rows]]),
    )
