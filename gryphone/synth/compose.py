"""Composes handwriting on any device: layouts in, labelled ink out, no loop over samples.

For each sample: other symbols of the same kind take over some slots, one writer's glyphs are
drawn from the bank, the line is spaced anew around their true widths, and everything is placed
with the unevenness of a hand.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gryphone.errors import DataError, TokenError
from gryphone.ragged import draw_rows, ranges, select
from gryphone.raster import InkBatch, bounds
from gryphone.synth.glyphs import GlyphBank
from gryphone.synth.hand import GlyphTensors, Hand, Shapes, Slots, to_tensor
from gryphone.synth.layouts import PROTECTED_LENGTH, STEP, Layouts
from gryphone.synth.style import Style, Styles
from gryphone.synth.symbols import KINDS, LETTER_KINDS, TWINS, UPPER, Fit
from gryphone.tokens import Tokenizer


@dataclass(frozen=True)
class Composed:
    """A batch of synthetic inks with their labels (B samples, S slots, N points)."""

    ink: InkBatch  # each ink's box starts at 0, its longer side is 1; its glyphs are the slots
    tokens: Tensor  # (B, L, 2) int64, symbol and modifier ids, PAD behind the end
    lengths: Tensor  # (B,) int64
    slot_sample: Tensor  # (S,) int64
    slot_class: Tensor  # (S,) int64, index into the bank's classes
    slot_position: Tensor  # (S,) int64, index into the sample's label


class Composer:
    """Holds a bank and layouts as tensors on one device; `compose` writes samples.

    Layouts of several origins (parts) are written in one go, each in its own style: a GPU's host
    needs longer to start the hundreds of small kernels than the kernels need.
    """

    def __init__(
        self,
        bank: GlyphBank,
        layouts: Layouts,
        tokenizer: Tokenizer,
        *,
        style: Style | None = None,
        device: torch.device | str = "cpu",
        more: Sequence[tuple[Layouts, Style]] = (),
    ) -> None:
        """`more`: further layouts, and the style of each."""
        parts = [layouts, *(other for other, _ in more)]
        if any(part.classes != bank.classes for part in parts):
            raise DataError("the layouts were built for another glyph bank; build them anew")
        self.styles = (style or Style(), *(its for _, its in more))
        self.device = torch.device(device)
        self.classes = bank.classes
        self.style = Styles(self.styles, self.device)
        self.glyphs = GlyphTensors(bank, self.device, any(s.near_writer > 0 for s in self.styles))
        self.shapes = Shapes(
            self._tensor(np.stack([part.class_boxes for part in parts]), torch.float32),
            self._tensor(np.array([capital_height(part) for part in parts]), torch.float32),
        )
        self.sizes = [len(part) for part in parts]
        self.ends = self._tensor(np.cumsum(self.sizes))  # of each part's layouts among all
        self._load_layouts(parts, tokenizer)
        self._load_kinds(bank, parts, tokenizer)
        self._load_protected(tokenizer, sorted({label for x in parts for label in x.protected}))

    def __len__(self) -> int:
        return len(self.slot_offsets) - 1

    def _tensor(self, array: np.ndarray, dtype: torch.dtype = torch.int64) -> Tensor:
        return to_tensor(array, self.device, dtype)

    def _load_layouts(self, parts: Sequence[Layouts], tokenizer: Tokenizer) -> None:
        symbols, modifiers = tokenizer.vocabularies
        labels = []
        for part in parts:
            symbol_ids = np.array([symbols.id(s) for s in part.symbols])
            modifier_ids = np.array([modifiers.id(m) for m in part.modifiers])
            labels.append(
                np.stack([symbol_ids[part.label[:, 0]], modifier_ids[part.label[:, 1]]], 1)
            )

        def all_of(name: str, dtype: torch.dtype) -> Tensor:
            return self._tensor(np.concatenate([getattr(part, name) for part in parts]), dtype)

        def offsets(name: str) -> Tensor:
            lengths = [np.diff(getattr(part, name)) for part in parts]
            return self._tensor(np.concatenate([[0], np.cumsum(np.concatenate(lengths))]))

        self.label = self._tensor(np.concatenate(labels), torch.int16)
        self.slot_offsets, self.label_offsets = offsets("slot_offsets"), offsets("label_offsets")
        self.slot_class = all_of("glyph", torch.int16)
        self.slot_position = all_of("position", torch.int16)
        self.slot_fit = all_of("fit", torch.uint8)
        self.slot_rise = all_of("rise", torch.int8)
        self.geometry = all_of("geometry", torch.int16)

    def _load_kinds(self, bank: GlyphBank, parts: Sequence[Layouts], tokenizer: Tokenizer) -> None:
        """Tables of which class may stand in for which, and how often."""
        known = {name: i for i, name in enumerate(bank.classes)}
        symbols = tokenizer.vocabularies[0]
        kind_of = np.full(len(bank.classes), -1)
        rank_of = np.zeros(len(bank.classes), dtype=np.int64)
        members: list[int] = []
        kinds: dict[int, list[int]] = {}
        for number, names in enumerate(KINDS):
            ids = [known[n] for n in names if n in known and n in symbols]
            if ids:
                kinds[number] = ids
                kind_of[ids] = number
                rank_of[ids] = np.arange(len(members), len(members) + len(ids))
                members += ids
        # One search for all parts: those of part p lie between p and p + 1 times all kinds.
        steps = [
            len(KINDS) * p + number + share
            for p, (part, style) in enumerate(zip(parts, self.styles, strict=True))
            for number, share in _shares(part, kinds, style.uniform_share)
        ]
        self.kind_of = self._tensor(kind_of)
        self.rank_of = self._tensor(rank_of)
        self.members = self._tensor(np.array(members, dtype=np.int64))
        self.steps = self._tensor(np.concatenate(steps or [np.zeros(0)]), torch.float64)
        ids = [symbols.id(n) if n in symbols else -1 for n in bank.classes]
        self.class_symbol = self._tensor(np.array(ids))
        self.letter_kinds = self._tensor(np.array([k for k in LETTER_KINDS if k in kind_of]))
        twins = np.arange(len(bank.classes))
        for one, other in TWINS:
            if one in known and other in known and one in symbols and other in symbols:
                twins[known[one]], twins[known[other]] = known[other], known[one]
        self.twin_of = self._tensor(twins)

    def _load_protected(self, tokenizer: Tokenizer, protected: Sequence[str]) -> None:
        """Hashes of the labels that must not be written, as far as the vocabulary can."""
        draw = torch.Generator().manual_seed(20240229)
        self.hash_tables = [
            torch.randint(-(2**62), 2**62, (len(v),), generator=draw).to(self.device)
            for v in tokenizer.vocabularies
        ]
        labels = []
        for label in protected:
            with contextlib.suppress(TokenError):
                labels.append(torch.from_numpy(tokenizer.encode(label.split()).astype(np.int64)))
        labels = [ids for ids in labels if len(ids) >= PROTECTED_LENGTH]
        if labels:
            padded = torch.nn.utils.rnn.pad_sequence(labels, batch_first=True)
            self.protected = self._hash(padded.to(self.device))
        else:
            self.protected = torch.zeros(0, dtype=torch.int64, device=self.device)

    def _hash(self, tokens: Tensor) -> Tensor:
        """A 64-bit hash of each label; tokens (B, L, 2), padding does not count."""
        symbols, modifiers = self.hash_tables
        mixed = symbols[tokens[..., 0]] ^ (modifiers[tokens[..., 1]] << 1)  # (B, L)
        mixed = torch.where(tokens[..., 0] != 0, mixed, 0)
        place = torch.arange(tokens.shape[1], device=tokens.device) * 2 + 1
        weights = (place * 0x5851F42D4C957F2D) ^ (place * 0x14057B7EF767814F >> 7) | 1
        return (mixed * weights).sum(1)

    def compose(self, index: Tensor, generator: torch.Generator) -> Composed:
        """Write the layouts `index` (B,) once each; all randomness comes from `generator`."""
        rows, owner, _ = select(self.slot_offsets, index)
        part = torch.searchsorted(self.ends, index, right=True)
        tokens, lengths = self._labels(index)
        classes, tokens = self._exchange(rows, owner, part, tokens, generator)
        slots = Slots(
            owner=owner,
            classes=classes,
            printed=self.slot_class[rows].long(),
            fit=self.slot_fit[rows].long(),
            rise=self.slot_rise[rows].float(),
            geometry=self.geometry[rows].float() / STEP,
            part=part,
            size=len(index),
        )
        hand = Hand(self.glyphs, self.shapes, slots, self.style, generator)
        points, pen, slot = hand.write()
        sample = owner[slot]
        ink = InkBatch(points, pen, sample, slot, len(index))
        low, high = bounds(ink)
        longest = (high - low).amax(1).clamp_min(1e-6)
        return Composed(
            ink=replace(ink, points=(points - low[sample]) / longest[sample, None]),
            tokens=tokens,
            lengths=lengths,
            slot_sample=owner,
            slot_class=classes,
            slot_position=self.slot_position[rows].long(),
        )

    def compose_some(self, counts: Sequence[int], generator: torch.Generator) -> Composed:
        """Write so many layouts of each part, drawn evenly."""
        return self.compose(draw_rows(self.sizes, counts, generator), generator)

    def _labels(self, index: Tensor) -> tuple[Tensor, Tensor]:
        rows, owner, lengths = select(self.label_offsets, index)
        _, place = ranges(lengths)
        width = int(lengths.max()) if len(lengths) else 0
        tokens = torch.zeros(len(index), width, 2, dtype=torch.int64, device=self.device)
        tokens[owner, place] = self.label[rows].long()
        return tokens, lengths

    def _exchange(
        self, rows: Tensor, owner: Tensor, part: Tensor, tokens: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Other symbols of the same kind in some slots; returns classes (S,) and the new labels."""
        old = self.slot_class[rows].long()
        position = self.slot_position[rows].long()
        batch = len(tokens)
        kind = self.kind_of[old]
        # A slot can change when its label token is the symbol itself: a fraction bar is no minus.
        own = self.class_symbol[old] == tokens[owner, position, 0]
        free = (kind >= 0) & own & (self.slot_fit[rows] == Fit.NATURAL)
        style = self.style.of(part)

        def uniform(*shape: int) -> Tensor:
            return torch.rand(shape, generator=generator, device=self.device)

        chance = torch.where(uniform(batch) < style.exchange_samples, uniform(batch), 0.0)
        # Consistent samples draw once per symbol, so that x stays the same letter throughout.
        table = uniform(batch, max(len(self.members), 1), 4)
        same = table[owner, self.rank_of[old]]  # (S, 4)
        own_draw = uniform(len(rows), 4)
        consistent = (uniform(batch) < style.consistent_samples)[owner, None]
        draw = torch.where(consistent, same, own_draw)
        change = free & (draw[:, 0] < chance[owner])
        kind = self._mix_letters(kind, draw[:, 2], uniform(batch) < style.letter_samples, owner)
        wanted = len(KINDS) * part[owner] + kind.clamp_min(0) + draw[:, 1].double()
        spot = torch.searchsorted(self.steps, wanted) - len(self.members) * part[owner]
        new = self.members[spot.clamp(0, len(self.members) - 1)] if len(self.members) else old
        classes = torch.where(change, new, old)
        twins = (uniform(batch) < style.twin_samples)[owner] & (draw[:, 3] < 0.5)
        twins &= own & (self.slot_fit[rows] == Fit.NATURAL)
        classes = torch.where(twins, self.twin_of[classes], classes)
        change = classes != old
        changed = tokens.clone()
        changed[owner, position, 0] = torch.where(
            change, self.class_symbol[classes], tokens[owner, position, 0]
        )
        refused = torch.isin(self._hash(changed), self.protected)  # (B,)
        classes = torch.where(refused[owner], old, classes)
        return classes, torch.where(refused[:, None, None], tokens, changed)

    def _mix_letters(self, kind: Tensor, draw: Tensor, mixed: Tensor, owner: Tensor) -> Tensor:
        """Kinds (S,), where letters of the `mixed` samples (B,) are of any letter kind."""
        if not len(self.letter_kinds):
            return kind
        letter = torch.isin(kind, self.letter_kinds) & mixed[owner]
        other = self.letter_kinds[(draw * len(self.letter_kinds)).long()]
        return torch.where(letter, other, kind)


def capital_height(layouts: Layouts) -> float:
    """The usual height of capitals in em."""
    boxes = dict(zip(layouts.classes, layouts.class_boxes.tolist(), strict=True))
    heights = [boxes[name][3] - boxes[name][1] for name in UPPER if name in boxes]
    return float(np.median(heights)) if heights else 1.0


def _shares(
    layouts: Layouts, kinds: Mapping[int, list[int]], uniform_share: float
) -> Iterator[tuple[int, np.ndarray]]:
    """For each kind, how often its members stand in for another, added up to 1."""
    natural = np.bincount(layouts.glyph, minlength=len(layouts.classes)).astype(np.float64)
    for number, ids in kinds.items():
        share = natural[ids] / max(natural[ids].sum(), 1.0)
        mix = uniform_share if share.any() else 1.0
        weights = (1 - mix) * share + mix / len(ids)
        yield number, np.cumsum(weights) / weights.sum()
