"""How uneven the synthetic hand is."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

import torch
from torch import Tensor

from gryphone.config import AMOUNT, POSITIVE, SHARE, check_ranges

SHARES = (
    *("exchange_samples", "consistent_samples", "uniform_share", "letter_samples"),
    *("twin_samples", "one_writer", "same_writer", "near_writer"),
)
FACTORS = ("script_size", "sub_size", "big_operator", "accent", "gap")
SPREADS = (
    *("mess", "size_spread", "class_spread", "width_spread", "script_size_spread", "box_spread"),
    *("script_rise_spread", "padding_spread", "gap_spread", "gap_noise", "baseline_spread"),
    *("slope_spread", "wave", "rotation", "slant", "overhang_spread", "aspect_search"),
)
RANGES = {
    **dict.fromkeys(SHARES, SHARE),
    **dict.fromkeys(FACTORS, POSITIVE),
    **dict.fromkeys(SPREADS, AMOUNT),
}


@dataclass(frozen=True)
class Style:
    """Spreads are standard deviations; lengths are in em; `per sample` values hold for a whole ink.

    Defaults were fitted to CROHME's training ink: the same labels written both ways, measured alike
    (docs/synthesiser.md has the table).
    """

    # What is written
    exchange_samples: float = 0.8  # share of samples in which symbols are exchanged
    consistent_samples: float = 0.6  # of those: equal symbols stay equal
    uniform_share: float = 0.25  # new symbols: drawn evenly from their kind, else by frequency
    letter_samples: float = 0.12  # share in which small, capital and Greek letters mix
    twin_samples: float = 0.25  # share in which x becomes X, a low dot a high one, or back
    # By whom
    one_writer: float = 0.65  # share of samples in one writer's hand; the others mix the bank
    same_writer: float = 0.95  # of those: share of slots that look for the writer's glyph first
    near_writer: float = 0.0  # of what the writer lacks: share by people of a similar hand
    # Sizes
    mess: float = 0.30  # of the log of a factor on the spreads from symbol to symbol, per sample
    size_spread: float = 0.115  # of the log size of each glyph
    class_spread: float = 0.125  # of all glyphs of a class alike, per sample: a writer's large x
    width_spread: float = 0.10  # of the log width, per sample
    script_size: float = 0.87  # superscripts against TeX's, per sample
    sub_size: float = 0.77  # subscripts
    script_size_spread: float = 0.22
    script_rise: float = 0.18  # superscripts, further up than TeX's, per sample
    script_drop: float = 0.02  # subscripts, further down
    script_rise_spread: float = 0.15
    big_operator: float = 0.78  # sums and integrals against TeX's
    accent: float = 1.2  # accents against TeX's
    box_spread: float = 0.22  # of the log size of operators, accents and brackets
    # Places
    padding: float = 0.04  # least room on both sides of a symbol together, per sample
    padding_spread: float = 0.15  # exponential part of it
    script_padding: float = 0.2  # of that, beside scripts
    gap: float = 0.36  # TeX's gaps are scaled by this
    gap_spread: float = 0.38  # of its logarithm, per sample
    gap_noise: float = 0.5  # of its logarithm, from gap to gap
    baseline_spread: float = 0.066  # from symbol to symbol
    slope_spread: float = 0.025  # of the line, per sample
    wave: float = 0.05  # height of the line's waves
    # Shapes
    rotation: float = 0.05  # radians
    slant: float = 0.08  # shear, per sample
    overhang: float = 0.06  # of bars and roots at their ends
    overhang_spread: float = 0.16
    aspect_search: float = 0.35  # of the log aspect when looking for a bar, root or bracket

    def __post_init__(self) -> None:
        check_ranges(self, RANGES)


class Values:
    """What a style says, one number for each row."""

    def __init__(self, values: Tensor) -> None:
        """`values` (rows, settings), as they stand in `Style`."""
        self._values = dict(zip((f.name for f in fields(Style)), values.unbind(1), strict=True))

    def __getattr__(self, name: str) -> Tensor:
        return self._values[name]


class Styles:
    """Several styles as one table, so that their samples can be written together."""

    def __init__(self, styles: Sequence[Style], device: torch.device) -> None:
        self.table = torch.tensor([astuple(style) for style in styles], device=device)

    def of(self, which: Tensor) -> Values:
        """The values of each row's own style; `which` (rows,) it has."""
        return Values(self.table[which])


# Real layouts are uneven already.
REAL = Style(
    uniform_share=0.35,  # there are few of them: the same formula must not come twice
    letter_samples=0.25,
    mess=0.2,
    size_spread=0.03,
    class_spread=0.0,
    width_spread=0.05,
    script_size=1.0,
    sub_size=1.0,
    script_size_spread=0.06,
    script_rise=0.0,
    script_drop=0.0,
    script_rise_spread=0.03,
    big_operator=1.0,
    accent=1.0,
    box_spread=0.05,
    padding=0.0,
    padding_spread=0.02,
    gap=1.0,
    gap_spread=0.15,
    gap_noise=0.1,
    baseline_spread=0.02,
    slope_spread=0.02,
    wave=0.02,
    overhang=0.0,
    overhang_spread=0.05,
)
