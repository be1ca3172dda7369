"""The synthesiser as a source of training samples: fresh formulas in fresh ink, on the device."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import NamedTuple

import torch

from gryphone.data.raw_labels import RawTable
from gryphone.data.store import TrainingBatch
from gryphone.errors import ConfigError
from gryphone.synth.compose import Composer
from gryphone.synth.glyphs import load_bank
from gryphone.synth.layouts import Layouts, load_layouts
from gryphone.synth.style import REAL, Style
from gryphone.tokens import Tokenizer

STYLES = {"tex": Style(), "real": REAL}


class Part(NamedTuple):
    """Layouts, how they are written, and how many were left out since they are too long."""

    layouts: Layouts
    style: Style
    left_out: int = 0


def read_part(
    path: Path,
    changes: Mapping[str, float] | None = None,
    symbols: Collection[str] | None = None,
    longest: int | None = None,
    *,
    raw: bool = False,
) -> Part:
    """The layouts in one file, or those that have no other than `symbols` and fit a canvas of
    `longest` tokens. Where they came from decides the style, but for `changes`.
    """
    packed = load_layouts(path)
    if symbols is not None:
        packed = packed.written_with(symbols)
    count = len(packed)
    if longest is not None:
        packed = packed.shorter_than(longest, raw)
    try:
        style = replace(STYLES[packed.origin], **(changes or {}))
    except TypeError:
        known = {f.name for f in fields(Style)}
        wrong = sorted(set(changes or {}) - known)[0]
        raise ConfigError(f"style {wrong!r} is unknown; see gryphone/synth/style.py") from None
    return Part(packed, style, count - len(packed))


@dataclass(frozen=True)
class SynthSource:
    """Draws layouts uniformly and has them written, all parts in one go."""

    composer: Composer
    raw: RawTable | None = None  # spells labels out as raw LaTeX

    @classmethod
    def of(
        cls,
        parts: Sequence[Part],
        glyphs: Path,
        tokenizer: Tokenizer,
        device: torch.device,
        raw: RawTable | None = None,
    ) -> SynthSource:
        """A source of several parts that share a glyph bank."""
        first, *others = parts
        more = [(part.layouts, part.style) for part in others]
        bank = load_bank(glyphs)
        composer = Composer(
            bank, first.layouts, tokenizer, style=first.style, device=device, more=more
        )
        return cls(composer, raw)

    def sample(self, counts: Sequence[int], generator: torch.Generator) -> TrainingBatch:
        """So many fresh samples of each part."""
        made = self.composer.compose_some(counts, generator)
        place = torch.arange(made.tokens.shape[1], device=made.tokens.device)
        batch = TrainingBatch(
            ink=made.ink,
            tokens=made.tokens[place[None] < made.lengths[:, None]],
            lengths=made.lengths,
            glyph_tokens=made.tokens[made.slot_sample, made.slot_position],
            glyph_places=made.slot_position,
        )
        return batch if self.raw is None else self.raw.expand(batch)
