"""The synthesiser as a source of training samples: fresh formulas in fresh ink, on the device."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch

from gryphone.data.raw_labels import RawTable
from gryphone.data.store import TrainingBatch
from gryphone.errors import ConfigError
from gryphone.synth.compose import Composer
from gryphone.synth.glyphs import load_bank
from gryphone.synth.layouts import load_layouts
from gryphone.synth.style import REAL, Style
from gryphone.tokens import Tokenizer

STYLES = {"tex": Style(), "real": REAL}


@dataclass(frozen=True)
class SynthSource:
    """Draws layouts uniformly and has them written."""

    composer: Composer
    raw: RawTable | None = None  # spells labels out as raw LaTeX
    left_out: int = 0  # layouts that are too long

    @classmethod
    def load(
        cls,
        layouts: Path,
        glyphs: Path,
        tokenizer: Tokenizer,
        device: torch.device,
        changes: Mapping[str, float] | None = None,
        symbols: Collection[str] | None = None,
        longest: int | None = None,
        raw: RawTable | None = None,
    ) -> SynthSource:
        """A source of the layouts in one file, or of those that have no other than `symbols` and
        fit a canvas of `longest` tokens.

        Where the layouts came from decides the style.
        """
        packed = load_layouts(layouts)
        if symbols is not None:
            packed = packed.written_with(symbols)
        count = len(packed)
        if longest is not None:
            packed = packed.shorter_than(longest, raw is not None)
        try:
            style = replace(STYLES[packed.origin], **(changes or {}))
        except TypeError:
            known = {f.name for f in fields(Style)}
            wrong = sorted(set(changes or {}) - known)[0]
            raise ConfigError(f"style {wrong!r} is unknown; see gryphone/synth/style.py") from None
        composer = Composer(load_bank(glyphs), packed, tokenizer, style=style, device=device)
        return cls(composer, raw, count - len(packed))

    def sample(self, count: int, generator: torch.Generator) -> TrainingBatch:
        """`count` fresh samples."""
        made = self.composer.compose_some(count, generator)
        place = torch.arange(made.tokens.shape[1], device=made.tokens.device)
        batch = TrainingBatch(
            ink=made.ink,
            tokens=made.tokens[place[None] < made.lengths[:, None]],
            lengths=made.lengths,
            glyph_tokens=made.tokens[made.slot_sample, made.slot_position],
        )
        return batch if self.raw is None else self.raw.expand(batch)
