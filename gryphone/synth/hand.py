"""The hand: chooses a glyph for every slot, spaces the line anew, and places the strokes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gryphone.ragged import ranges, select
from gryphone.synth.glyphs import SCALE, GlyphBank, near_writers
from gryphone.synth.style import Styles
from gryphone.synth.symbols import Fit

CELLS = 256  # resolution of the horizontal re-spacing
OWN_SPREAD = 0.3  # of the spread of sizes, where a writer's own sizes are uneven already


class GlyphTensors:
    """A glyph bank on a device, with the tables that find a glyph for a writer or a shape."""

    def __init__(self, bank: GlyphBank, device: torch.device, near: bool = False) -> None:
        """`near` looks for people of similar hands."""
        extents = bank.extents()  # (G, 2)
        self.device = device
        self.points = to_tensor(bank.points, device, torch.float32) / SCALE
        self.pen = to_tensor(bank.pen, device, torch.bool)
        self.offsets = to_tensor(bank.offsets, device)
        self.extents = to_tensor(extents, device, torch.float32)
        self.starts = to_tensor(
            np.searchsorted(bank.labels, np.arange(len(bank.classes) + 1)), device
        )
        self.writers = int(bank.writers.max()) + 1
        # Ascending, as the bank is sorted; 0 is the unknown writer, writers + 1 is nobody.
        keys = bank.labels.astype(np.int64) * (self.writers + 2) + bank.writers + 1
        self.keys = to_tensor(keys, device)
        aspect = _log_aspect(torch.from_numpy(extents)).numpy()
        order = np.lexsort((aspect, bank.labels))
        self.by_aspect = to_tensor(order, device)
        # Classes are 100 apart, far more than any aspect: one search serves them all.
        self.aspects = to_tensor(aspect[order] + 100.0 * bank.labels[order], device, torch.float64)
        self.hooks = to_tensor(root_hooks(bank), device, torch.float32)
        self.writer_of = to_tensor(bank.writers, device)
        self.stands = to_tensor(bank.stands, device, torch.float32)  # (G, 2) in capitals
        self.sized = bool(bank.stands.any())
        self.near = to_tensor(near_writers(bank), device, torch.int16) if near else None

    def of_writer(self, classes: Tensor, writer: Tensor, draw: Tensor) -> Tensor:
        """A glyph (S,) of each class by that writer, or by anybody where there is none."""
        key = classes * (self.writers + 2) + writer + 1
        first = torch.searchsorted(self.keys, key)
        last = torch.searchsorted(self.keys, key, right=True)
        nobody = last <= first
        first = torch.where(nobody, self.starts[classes], first)
        last = torch.where(nobody, self.starts[classes + 1], last)
        return _pick(first, last, draw)

    def of_aspect(self, classes: Tensor, log_aspect: Tensor) -> Tensor:
        """The glyph (S,) of each class whose log aspect comes next to the one wanted."""
        wanted = log_aspect.clamp(-20, 20).double() + 100.0 * classes
        found = torch.searchsorted(self.aspects, wanted)
        found = torch.maximum(found, self.starts[classes])
        return self.by_aspect[torch.minimum(found, self.starts[classes + 1] - 1)]


def to_tensor(array: np.ndarray, device: torch.device, dtype: torch.dtype = torch.int64) -> Tensor:
    """An array on a device."""
    return torch.as_tensor(np.ascontiguousarray(array)).to(device, dtype)


def _pick(first: Tensor, last: Tensor, draw: Tensor) -> Tensor:
    return torch.minimum(first + (draw * (last - first)).long(), last - 1)


def _log_aspect(extents: Tensor) -> Tensor:
    """Log of width over height; the floor keeps exact lines apart by their longer side only."""
    floored = extents.clamp_min(0.02 * 2)
    return (floored[:, 0] / floored[:, 1]).log()


def root_hooks(bank: GlyphBank) -> np.ndarray:
    """(G,) where a root's bar begins, as a share of its width; 0 for every other glyph."""
    hooks = np.zeros(len(bank), dtype=np.float32)
    if "\\sqrt" not in bank.classes:
        return hooks
    for g in np.flatnonzero(bank.labels == bank.classes.index("\\sqrt")).tolist():
        points = bank.points[bank.offsets[g] : bank.offsets[g + 1]].astype(np.float32)
        low, high = points.min(axis=0), points.max(axis=0)
        size = np.maximum(high - low, 1.0)
        # The entry stroke may start high as well: the bar begins to the right of the valley.
        valley = points[points[:, 1].argmax(), 0]
        top = points[(points[:, 1] <= low[1] + 0.3 * size[1]) & (points[:, 0] >= valley)]
        first = float(top[:, 0].min()) if len(top) else float(valley)
        hooks[g] = np.clip((first - low[0]) / size[0], 0.05, 0.8)
    return hooks


@dataclass(frozen=True)
class Slots:
    """What to write where (S slots of `size` samples)."""

    owner: Tensor  # (S,) int64
    classes: Tensor  # (S,) int64, to be written
    printed: Tensor  # (S,) int64, that the layout was made for
    fit: Tensor  # (S,) int64
    rise: Tensor  # (S,) float32
    geometry: Tensor  # (S, 4) float32 in em, see gryphone.synth.layouts
    part: Tensor  # (size,) int64, of the layouts: whose style and boxes a sample has
    size: int


@dataclass(frozen=True)
class Shapes:
    """What layouts of several origins (parts) take for granted of symbols."""

    boxes: Tensor  # (parts, C, 4) left, top, right, bottom of each class at size 1
    capital: Tensor  # (parts,) the height of capitals in em


@dataclass(frozen=True)
class _Boxes:
    """Boxes to fill, and the width the layout reserved for them; all (S,)."""

    left: Tensor
    right: Tensor
    top: Tensor
    width: Tensor
    height: Tensor
    hook: Tensor
    em: Tensor
    own: Tensor  # the glyph has the size that its writer gave it


class Hand:
    """Writes one batch; its draws are made once, so that every step sees the same sample."""

    def __init__(
        self,
        glyphs: GlyphTensors,
        shapes: Shapes,
        slots: Slots,
        styles: Styles,
        generator: torch.Generator,
    ) -> None:
        self.glyphs, self.shapes, self.slots, self.generator = glyphs, shapes, slots, generator
        self.part = slots.part[slots.owner]  # (S,)
        # What holds for a whole sample (B,), and what is each slot's own (S,).
        self.whole, self.style = styles.of(slots.part), styles.of(self.part)
        self.natural = slots.fit == Fit.NATURAL
        self.mess = self.per_sample(self.whole.mess).exp()

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.glyphs.device)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator, device=self.glyphs.device)

    def per_sample(self, spread: Tensor) -> Tensor:
        """A normal draw for each sample, spread over its slots (S,)."""
        return (self.normal(self.slots.size) * spread)[self.slots.owner]

    def write(self) -> tuple[Tensor, Tensor, Tensor]:
        """Points (N, 2) in em, pen (N,) and the slot of each point (N,)."""
        boxes = self._boxes()
        chosen, writer = self._choose(boxes)
        boxes = self._as_its_writer_did(boxes, chosen, writer)
        scale, width = self._scale(boxes, chosen)
        centre, width = self._space(boxes, width)
        bar = self.slots.fit == Fit.BAR
        root = self.slots.fit == Fit.ROOT
        extent = self.glyphs.extents[chosen].clamp_min(1e-3)
        frame = self.slots.fit == Fit.FRAME
        wide = bar | root | frame
        across = torch.where(wide, width / extent[:, 0], scale[:, 0])
        # A bar's own waviness grows with it, up to a point.
        flat = torch.minimum(across, 0.16 / extent[:, 1])
        down = torch.where(bar, flat, scale[:, 1])
        return self._place(boxes, chosen, centre, torch.stack([across, down], 1), width)

    def _boxes(self) -> _Boxes:
        s, style = self.slots, self.style
        x, y, a, b = s.geometry.unbind(1)
        left, top, right, bottom = self.shapes.boxes[self.part, s.classes].unbind(1)
        grow = torch.where(s.rise > 0, style.script_size, style.sub_size)
        grow = grow * self.per_sample(self.whole.script_size_spread).exp()
        further = torch.where(s.rise > 0, style.script_rise, style.script_drop)
        shift = (further + self.per_sample(self.whole.script_rise_spread)) * s.rise
        size = torch.where(s.rise != 0, a * grow, a)
        # All of a script moves together, its brackets and bars too: TeX sets it at seven tenths.
        y = y - shift * 0.7
        base = y + self.normal(len(x)) * style.baseline_spread * size * self.mess
        printed = self.shapes.boxes[self.part, s.printed]
        reserved = torch.where(self.natural, (printed[:, 2] - printed[:, 0]) * a, a)
        height = torch.where(self.natural, (bottom - top) * size, b)
        em = torch.where(self.natural, size, 1.0)
        # A root's hook ends where its content begins: at the next slot, unless that is an index.
        after = torch.arange(1, len(x) + 1, device=x.device).clamp_max(len(x) - 1)
        following = x[after] - x
        reach = b.clamp_max(1.0)
        sunk = s.geometry[after, 1] - s.geometry[:, 1]
        # An index is small and high; a narrow one stands as far right as some contents do.
        index = self.natural[after] & (a[after] < 0.75) & (sunk < 0.6 * b)
        index |= following < 0.25 * reach
        hook = torch.where(index, 0.7 * reach, following)
        hook = torch.minimum(hook, 0.85 * reach)
        return _Boxes(
            left=x,
            right=x + reserved,
            top=torch.where(self.natural, base + top * size, y),
            width=torch.where(self.natural, (right - left) * size, a),
            height=height,
            hook=torch.minimum(hook, 0.6 * a),
            em=em,
            own=torch.zeros_like(self.natural),
        )

    def _as_its_writer_did(self, boxes: _Boxes, chosen: Tensor, writer: Tensor) -> _Boxes:
        """Letters and digits at their size in their writer's hand, on the line: small against
        capital letters are told apart by it.
        """
        if not self.glyphs.sized:
            return boxes
        stands = self.glyphs.stands[chosen] * self.shapes.capital[self.part, None]
        top, bottom = stands.unbind(1)
        own = self.natural & (bottom > top) & (self.glyphs.writer_of[chosen] == writer)
        line = boxes.top - self.shapes.boxes[self.part, self.slots.classes, 1] * boxes.em
        height = (bottom - top) * boxes.em
        extent = self.glyphs.extents[chosen].clamp_min(1e-3)
        return replace(
            boxes,
            top=torch.where(own, line + top * boxes.em, boxes.top),
            height=torch.where(own, height, boxes.height),
            width=torch.where(own, height * extent[:, 0] / extent[:, 1], boxes.width),
            own=own,
        )

    def _choose(self, boxes: _Boxes) -> tuple[Tensor, Tensor]:
        """A glyph for each slot (S,), by the sample's writer, or by shape where it must stretch;
        and the writer (S,) that was looked for.
        """
        s, style = self.slots, self.style
        count = len(s.classes)
        writer = (self.uniform(s.size) * self.glyphs.writers).long()[s.owner]
        mixed = (self.uniform(s.size) >= self.whole.one_writer)[s.owner]
        alone = mixed | (self.uniform(count) >= style.same_writer)
        if self.glyphs.near is not None:
            which = (self.uniform(s.size) * len(self.glyphs.near)).long()[s.owner]
            like = self.glyphs.near[which, writer, s.classes].long()
            writer = torch.where(self.uniform(count) < style.near_writer, like, writer)
        # No glyph has this writer, so the search falls back on everybody.
        writer = torch.where(alone, self.glyphs.writers, writer)
        by_writer = self.glyphs.of_writer(s.classes, writer, self.uniform(count))
        wanted = _log_aspect(torch.stack([boxes.width, boxes.height], 1) * 2)
        wanted = wanted + self.normal(count) * style.aspect_search
        by_shape = self.glyphs.of_aspect(s.classes, wanted)
        shaped = (s.fit == Fit.BAR) | (s.fit == Fit.ROOT) | (s.fit == Fit.DELIMITER)
        shaped |= s.fit == Fit.FRAME
        return torch.where(shaped, by_shape, by_writer), writer

    def _scale(self, boxes: _Boxes, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Scale in x and y (S, 2) and the width that the glyph will have (S,)."""
        s, style = self.slots, self.style
        extent = self.glyphs.extents[chosen].clamp_min(1e-3)
        spread = torch.where(self.natural, style.size_spread, style.box_spread)
        spread = torch.where(boxes.own, OWN_SPREAD * style.size_spread, spread)
        jitter = self.normal(len(chosen)) * spread * self.mess
        habit = self.normal(s.size, self.shapes.boxes.shape[1])[s.owner, s.classes]
        habit = habit * style.class_spread
        jitter = (jitter + torch.where(self.natural & ~boxes.own, habit, 0.0)).exp()
        factor = torch.where(boxes.height > 1.0, style.big_operator, style.accent)
        jitter = torch.where(s.fit == Fit.BOX, jitter * factor, jitter)
        # The diagonal is the one size that suits an m, a 1, a minus sign and a dot alike.
        uniform = torch.hypot(boxes.width, boxes.height) / extent.norm(dim=1) * jitter
        tall = (s.fit == Fit.DELIMITER) | (s.fit == Fit.ROOT) | (s.fit == Fit.FRAME)
        # A root must not let go of its content: it shrinks half as readily as it grows.
        jitter = torch.where(s.fit == Fit.ROOT, jitter.clamp_min(0.97) ** 0.5, jitter)
        down = torch.where(tall, boxes.height * jitter / extent[:, 1], uniform)
        stretch = self.per_sample(self.whole.width_spread).exp()
        across = torch.where(self.natural, uniform * stretch, uniform)
        bracket = torch.minimum(down, 0.42 * boxes.height.clamp_min(0.5).sqrt() / extent[:, 0])
        across = torch.where(s.fit == Fit.DELIMITER, bracket, across)
        return torch.stack([across, down], 1), across * extent[:, 0]

    def _space(self, boxes: _Boxes, width: Tensor) -> tuple[Tensor, Tensor]:
        """Centre x (S,) after re-spacing, and the width that stretching symbols get (S,).

        The line is cut into cells; each is stretched as the widest glyph over it demands, or as
        the sample's gaps are where no glyph is. Bars and roots follow the cells they span.
        """
        s, style, whole = self.slots, self.style, self.whole
        count = s.size
        full = (count,)
        device = width.device
        low = torch.full(full, torch.inf, device=device)
        low = low.scatter_reduce(0, s.owner, boxes.left, "amin")
        high = torch.full(full, -torch.inf, device=device)
        high = high.scatter_reduce(0, s.owner, boxes.right, "amax")
        cell = ((high - low) / CELLS).clamp_min(1e-4)  # (B,)
        gap = whole.gap * (self.normal(count) * whole.gap_spread).exp()  # (B,)
        padding = whole.padding + whole.padding_spread * -self.uniform(count).clamp_min(1e-6).log()
        root = s.fit == Fit.ROOT
        solid_right = torch.where(root, boxes.left + boxes.hook, boxes.right)
        first = ((boxes.left - low[s.owner]) / cell[s.owner]).floor().clamp(0, CELLS - 1).long()
        last = ((solid_right - low[s.owner]) / cell[s.owner]).ceil().clamp(1, CELLS).long()
        # Bars and frames claim no room: what they span does.
        number = (last - first).clamp_min(1) * ((s.fit != Fit.BAR) & (s.fit != Fit.FRAME))
        room = number * cell[s.owner]
        beside = torch.where(s.rise != 0, style.script_padding, 1.0)
        need = torch.where(root, boxes.hook, width) + (padding[s.owner] * boxes.em * beside)
        need = need + (room - (solid_right - boxes.left)).clamp_min(0) * gap[s.owner]
        slot, place = ranges(number)
        at = s.owner[slot] * CELLS + (first[slot] + place).clamp_max(CELLS - 1)
        ratio = (need / room.clamp_min(1e-6))[slot]
        cells = torch.zeros(count * CELLS, device=device).scatter_reduce(0, at, ratio, "amax")
        noise = (self.normal(count, CELLS // 8) * whole.gap_noise[:, None]).exp()
        empty = gap[:, None] * noise.repeat_interleave(8, 1)  # (B, CELLS)
        cells = cells.view(count, CELLS)
        cells = torch.where(cells > 0, cells, empty) * cell[:, None]
        edges = torch.cat([torch.zeros(count, 1, device=device), cells.cumsum(1)], 1)

        def moved(x: Tensor) -> Tensor:
            t = (x - low[s.owner]) / cell[s.owner]
            i = t.long().clamp(0, CELLS - 1)
            return edges[s.owner, i] + (t - i) * cells[s.owner, i]

        begin, end = moved(boxes.left), moved(boxes.right)
        over = self.normal(len(begin), 2) * style.overhang_spread[:, None]
        over = (style.overhang[:, None] + over).clamp_min(-0.15)
        spans = (s.fit == Fit.BAR) | (s.fit == Fit.FRAME)
        begin = begin - torch.where(spans, over[:, 0], 0.0)
        end = end + torch.where(spans | root, over[:, 1], 0.0)
        return (begin + end) / 2, (end - begin).clamp_min(0.05)

    def _place(
        self, boxes: _Boxes, chosen: Tensor, centre: Tensor, scale: Tensor, width: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        s, style = self.slots, self.style
        rows, slot, _ = select(self.glyphs.offsets, chosen)
        local = self.glyphs.points[rows] * scale[slot]  # (N, 2)
        # A root's hook keeps its size; its bar takes what remains.
        share = local[:, 0] / width[slot] + 0.5
        hook = self.glyphs.hooks[chosen].clamp_min(1e-3)[slot]
        kept = (boxes.hook / width).clamp_max(0.7)[slot]
        bent = torch.where(
            share < hook, share / hook * kept, kept + (share - hook) / (1 - hook) * (1 - kept)
        )
        root = (s.fit == Fit.ROOT)[slot]
        local_x = torch.where(root, (bent - 0.5) * width[slot], local[:, 0])
        stiff = (s.fit == Fit.BAR) | (s.fit == Fit.ROOT)
        angle = self.normal(len(chosen)) * style.rotation * self.mess
        angle = torch.where(stiff, angle * 0.2, angle)[slot]
        shear = torch.where(stiff, 0.0, self.per_sample(self.whole.slant))[slot]
        x = local_x - shear * local[:, 1]
        x, y = (
            x * angle.cos() - local[:, 1] * angle.sin(),
            x * angle.sin() + local[:, 1] * angle.cos(),
        )
        middle = boxes.top + boxes.height / 2
        x, y = x + centre[slot], y + middle[slot]
        slope = self.per_sample(self.whole.slope_spread)[slot]
        phase, period = self.uniform(2, s.size)[:, s.owner[slot]]
        wave = style.wave[slot] * torch.sin(6.283 * (x / (5 + 15 * period) + phase))
        y = y + slope * x + wave
        return torch.stack([x, y], 1), self.glyphs.pen[rows], slot
