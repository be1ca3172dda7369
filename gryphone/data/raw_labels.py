"""Symbol-aware rows spelt out as raw LaTeX tokens on the device, without a loop over samples.

The synthesiser writes symbols with their modifiers; a raw decoder learns from the same inks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gryphone.data.store import UNKNOWN, TrainingBatch
from gryphone.ragged import ranges
from gryphone.tokens import (
    EMPTY,
    MASK,
    MASK_ID,
    PAD,
    PAD_ID,
    RawTokenizer,
    Tokenizer,
    Vocabulary,
    openers_of,
)


def raw_tokenizer(sat: Tokenizer) -> RawTokenizer:
    """All tokens that symbols and modifiers can spell: the symbols, then the modifiers' marks."""
    symbols, modifiers = sat.vocabularies
    tokens = [token for token in symbols.tokens if token != EMPTY]
    marks = dict.fromkeys(mark for modifier in modifiers.names for mark in modifier)
    return RawTokenizer((Vocabulary((*tokens, *(m for m in marks if m not in tokens))),))


@dataclass(frozen=True)
class RawTable:
    """How a row (symbol, modifier) is spelt: openers, the symbol unless empty, closers."""

    symbols: Tensor  # (symbols,) raw id of each symbol, PAD_ID where it has none (EMPTY)
    marks: Tensor  # (modifiers, longest) raw ids of each modifier's marks
    openers: Tensor  # (modifiers,) how many of them stand before the symbol
    counts: Tensor  # (modifiers,) how many there are

    @classmethod
    def of(cls, sat: Tokenizer, raw: Tokenizer, device: torch.device) -> RawTable:
        """The table from one tokenizer's ids to the other's."""
        symbols, modifiers = sat.vocabularies
        target = raw.vocabularies[0]
        names = ["" if name in (PAD, MASK) else name for name in modifiers.tokens]
        marks = torch.zeros(len(names), max(1, *map(len, names)), dtype=torch.int64)
        for row, name in enumerate(names):
            marks[row, : len(name)] = torch.tensor([target.id(mark) for mark in name])
        ids = [PAD_ID if s == EMPTY else target.id(s) for s in symbols.tokens]
        return cls(
            torch.tensor(ids, device=device),
            marks.to(device),
            torch.tensor([openers_of(name) for name in names], device=device),
            torch.tensor([len(name) for name in names], device=device),
        )

    def spell(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (T, 2) of labels of the given lengths (B,) as raw ids (T', 1), and their lengths."""
        symbol, modifier = self.symbols[tokens[:, 0]], tokens[:, 1]
        own = (symbol != PAD_ID).long()
        counts = self.counts[modifier] + own  # (T,)
        row, place = ranges(counts)
        opening, owned = self.openers[modifier][row], own[row]
        is_symbol = (place == opening) & (owned == 1)
        mark = torch.where(is_symbol, 0, place - torch.where(place > opening, owned, 0))
        ids = torch.where(is_symbol, symbol[row], self.marks[modifier[row], mark])
        owner, _ = ranges(lengths)
        return ids[:, None], torch.zeros_like(lengths).index_add_(0, owner, counts)

    def expand(self, batch: TrainingBatch) -> TrainingBatch:
        """The same inks with raw labels; a glyph is its symbol alone."""
        tokens, lengths = self.spell(batch.tokens, batch.lengths)
        symbol = batch.glyph_tokens[:, 0]
        ids = self.symbols[symbol.clamp_min(0)]
        known = (symbol != UNKNOWN) & (symbol != MASK_ID) & (ids != PAD_ID)
        glyphs = torch.where(known, ids, UNKNOWN)[:, None]
        places = torch.full_like(batch.glyph_places, UNKNOWN)
        return replace(
            batch, tokens=tokens, lengths=lengths, glyph_tokens=glyphs, glyph_places=places
        )
