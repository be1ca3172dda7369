"""Random distortions of strokes for training, batched on the device."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from gryphone.config import SHARE, Range, check_ranges
from gryphone.raster import InkBatch, bounds, typical_strokes

STRENGTH = Range(0, 3)  # far beyond any hand; degrees instead of radians are out


@dataclass(frozen=True)
class Augment:
    """Strengths of the random distortions of strokes; zero switches one off."""

    rotate: float = 0.06  # radians, standard deviation, whole expression
    shear: float = 0.15  # slant
    stretch: float = 0.15  # log ratio of width to height
    warp: float = 0.02  # smooth bending, relative to the expression's longer side
    glyph_shift: float = 0.04  # per symbol (or stroke), relative to its own size
    glyph_scale: float = 0.08
    glyph_rotate: float = 0.06
    glyph_warp: float = 0.0  # smooth bending, relative to its own size
    jitter: float = 0.0  # per point, relative to the expression's longer side
    area: float = 0.35  # log of the canvas area, uniform in ±area
    thick: float = 0.0  # probability that an expression is drawn two pixels wide
    tolerance: float = 0.0  # most of its size that a symbol's point may be dropped for, per sample
    stray: float = 0.0  # specks and short lines per expression that nobody wrote

    def __post_init__(self) -> None:
        check_ranges(
            self, {f.name: STRENGTH for f in fields(self)} | {"thick": SHARE, "tolerance": SHARE}
        )

    @property
    def max_area_factor(self) -> float:
        """The largest factor `area_factor` can return."""
        return math.exp(self.area)

    def area_factor(self, size: int, generator: torch.Generator) -> Tensor:
        """Random canvas areas (B,)."""
        u = torch.rand(size, generator=generator, device=generator.device)
        return torch.exp((2 * u - 1) * self.area)


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Standard normal numbers on the generator's device."""
    return torch.randn(shape, generator=generator, device=generator.device)


def augment(batch: InkBatch, strength: Augment, generator: torch.Generator) -> InkBatch:
    """Distort symbols, then whole expressions; every draw comes from `generator`."""
    points = _wobble_glyphs(batch, strength, generator)
    low, high = bounds(replace(batch, points=points))
    size = (high - low).amax(1).clamp_min(1e-12)  # (B,)
    s = batch.sample
    points = (points - ((low + high) / 2)[s]) / size[s, None]  # now within ±0.5

    if strength.warp:
        points = _bend(points, s, batch.size, strength.warp, generator)
    angle = normal(generator, batch.size) * strength.rotate
    stretch = torch.exp(normal(generator, batch.size) * strength.stretch / 2)
    shear = normal(generator, batch.size) * strength.shear
    cos, sin = angle.cos(), angle.sin()
    affine = torch.stack(  # rotation @ shear @ stretch
        [
            stretch * cos,
            (shear * cos - sin) / stretch,
            stretch * sin,
            (shear * sin + cos) / stretch,
        ],
        1,
    ).view(-1, 2, 2)
    # No product of matrices: the GPU may round one to half of the digits, and takes its time.
    points = (affine[s] * points[:, None]).sum(2)
    if strength.jitter:
        points = points + normal(generator, len(points), 2) * strength.jitter
    batch = replace(batch, points=points)
    if strength.tolerance:
        batch = _coarser(batch, strength.tolerance, generator)
    return _with_strays(batch, strength.stray, generator) if strength.stray else batch


def _bend(
    points: Tensor, owner: Tensor, count: int, strength: float, generator: torch.Generator
) -> Tensor:
    """Two plane waves bend each of `count` shapes smoothly; points (N, 2) lie within ±0.5."""
    for _ in range(2):
        wave = normal(generator, count, 2) * 5
        phase = normal(generator, count) * 3
        direction = normal(generator, count, 2) * strength / 2
        angle = (points * wave[owner]).sum(1) + phase[owner]
        points = points + direction[owner] * angle.sin()[:, None]
    return points


def _wobble_glyphs(batch: InkBatch, strength: Augment, generator: torch.Generator) -> Tensor:
    """Shift, scale, turn and bend each symbol (a stroke where symbols are unknown)."""
    stroke = (~batch.pen).cumsum(0) - 1  # (N,)
    first = batch.glyph.amax() + 1 if len(batch.glyph) else 0
    owner = torch.where(batch.glyph >= 0, batch.glyph, first + stroke)
    owner = torch.unique(owner, return_inverse=True)[1]
    count = int(owner.max()) + 1
    low, high = bounds(replace(batch, sample=owner, size=count))
    centre, size = (low + high) / 2, (high - low).amax(1)
    angle = normal(generator, count) * strength.glyph_rotate
    scale = torch.exp(normal(generator, count, 2) * strength.glyph_scale)
    shift = normal(generator, count, 2) * strength.glyph_shift * size[:, None]
    relative = batch.points - centre[owner]
    if strength.glyph_warp:
        unit = size.clamp_min(1e-12)[owner, None]
        relative = _bend(relative / unit, owner, count, strength.glyph_warp, generator) * unit
    relative = relative * scale[owner]
    cos, sin = angle.cos()[owner], angle.sin()[owner]
    turned: Tensor = torch.stack(
        [relative[:, 0] * cos - relative[:, 1] * sin, relative[:, 0] * sin + relative[:, 1] * cos],
        1,
    )
    return turned + (centre + shift)[owner]


def _coarser(batch: InkBatch, most: float, generator: torch.Generator) -> InkBatch:
    """Drop points as a coarser pen would: every other one moves onto the line past it, if near.

    How near is drawn for each sample, up to `most` of its typical stroke; nothing changes its size.
    """
    points, pen = batch.points, batch.pen
    limit = torch.rand(batch.size, generator=generator, device=generator.device) * most
    limit = (limit * typical_strokes(batch))[batch.sample]
    before, after = points.roll(1, 0), points.roll(-1, 0)
    chord = after - before
    along = ((points - before) * chord).sum(1) / (chord * chord).sum(1).clamp_min(1e-24)
    line = before + along.clamp(0, 1)[:, None] * chord
    near = (line - points).square().sum(1).sqrt() < limit
    number = torch.arange(len(points), device=points.device)
    inner = pen & pen.roll(-1, 0) & (number + 1 < len(points)) & (number % 2 == 1)
    return replace(batch, points=torch.where((near & inner)[:, None], line, points))


def _with_strays(batch: InkBatch, each: float, generator: torch.Generator) -> InkBatch:
    """Specks anywhere on an expression, and short lines around it, that belong to no symbol.

    There are `each` per expression in the mean, of two points each, behind the sample's own: the
    sizes are known without a look at the device.
    """
    count = round(each * batch.size)
    if not count:
        return batch

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device=generator.device)

    owner = (uniform(count) * batch.size).long().sort()[0]
    low, high = bounds(batch)
    unit = typical_strokes(batch)[owner, None]  # (count, 1)
    low, high = low[owner], high[owner]
    speck = uniform(count, 1) < 0.6
    at = low + uniform(count, 2) * (high - low)
    # A line may stand for a sign: it keeps away from the writing, above, below or at the ends.
    away = unit * (0.4 + uniform(count, 1))
    side = (uniform(count) * 4).long()
    outside = torch.stack([low - away, high + away], 1)[torch.arange(count), side % 2]
    across = torch.stack([side < 2, side >= 2], 1)
    at = torch.where(~speck & across, outside, at)
    angle = uniform(count, 1) * math.tau
    reach = unit * torch.where(speck, 0.06, 0.15 + 0.6 * uniform(count, 1))
    step = torch.cat([angle.cos(), angle.sin()], 1) * reach * uniform(count, 1)
    added = torch.stack([at, at + step], 1).flatten(0, 1)  # (2 count, 2)
    # Each sample's own points move up by what the samples before it got.
    place = torch.arange(len(batch.points), device=added.device)
    more = 2 * torch.searchsorted(owner, batch.sample)
    ends = torch.bincount(batch.sample, minlength=batch.size).cumsum(0)[owner]
    order = torch.arange(count, device=added.device)
    new = (ends + 2 * order)[:, None] + torch.arange(2, device=added.device)  # (count, 2)
    rows = torch.cat([place + more, new.flatten()])
    total = len(rows)

    def placed(old: Tensor, extra: Tensor) -> Tensor:
        both = torch.cat([old, extra])
        return torch.empty(
            (total, *both.shape[1:]), dtype=both.dtype, device=both.device
        ).index_copy_(0, rows, both)

    return InkBatch(
        placed(batch.points, added),
        placed(batch.pen, torch.arange(2 * count, device=added.device) % 2 == 1),
        placed(batch.sample, owner.repeat_interleave(2)),
        placed(batch.glyph, torch.full_like(owner, -1).repeat_interleave(2)),
        batch.size,
    )
