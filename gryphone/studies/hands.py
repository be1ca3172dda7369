"""Formulas in hands that training has not seen: validation sets for the synthesiser's writers.

`python -m gryphone.studies.hands PACKED OUT.parquet [--fonts FOLDER | --letters FOLDER]` writes
formulas of papers in the symbols of the training ink, by the bank's own people, by the fonts of a
folder, or by those writers of single letters that the bank leaves out. The same seed gives the same
formulas, so that two such sets differ in their hands alone.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from gryphone.data.packing import write_packed
from gryphone.data.samples import Sample
from gryphone.errors import DataError
from gryphone.release.common import run
from gryphone.synth.build import packed_tokenizer
from gryphone.synth.compose import Composer
from gryphone.synth.fonts import with_fonts
from gryphone.synth.glyph_sources import with_letters
from gryphone.synth.glyphs import ANY_WRITER, GlyphBank, load_bank
from gryphone.synth.layouts import Layouts, load_layouts
from gryphone.synth.style import Style
from gryphone.synth.write import to_inks
from gryphone.tokens import Tokenizer
from gryphone.training.mixture import tokens_of

CONVENTION = "crohme"
LENGTHS = range(5, 26)  # symbols of a formula: enough to err, few enough to get all right
FEWEST = 150  # glyphs by a person who counts as known
# One hand throughout, and letters that nobody can guess from the formula.
STYLE = Style(
    one_writer=1.0,
    same_writer=1.0,
    exchange_samples=0.4,
    consistent_samples=0.95,
    uniform_share=0.0,
    letter_samples=0.0,
    twin_samples=0.0,
)
BATCH = 50


def familiar_layouts(packed: Path) -> Layouts:
    """Papers' formulas of middling length that keep to the symbols of the training ink."""
    known = tokens_of(packed / "train.parquet", CONVENTION)
    layouts = load_layouts(packed / "layouts-tex.npz").written_with(known)
    return layouts.select(np.isin(np.diff(layouts.label_offsets), LENGTHS))


def known_hands(bank: GlyphBank, fewest: int) -> GlyphBank:
    """The bank with the names of its busiest people only; the others' glyphs are nobody's."""
    named, places, counts = np.unique(bank.writers, return_inverse=True, return_counts=True)
    busy = (counts >= fewest) & (named != ANY_WRITER)
    if not busy.any():
        raise DataError(f"nobody in the bank has written {fewest} glyphs")
    return _renamed(bank, np.where(busy, np.cumsum(busy) - 1, ANY_WRITER)[places])


def new_hands(bank: GlyphBank, fonts: Path | None, letters: Path | None) -> GlyphBank:
    """The bank with no names but those of a folder's fonts, or of the letters' held-out writers:
    nobody in training had their hands.
    """
    nameless = _renamed(bank, np.full(len(bank), ANY_WRITER))
    if fonts is not None:
        return with_fonts(nameless, fonts, Counter())
    if letters is None:
        raise DataError("new hands are those of fonts or of letters; name a folder of either")
    return with_letters(nameless, letters, Counter(), held_out=True)


def _renamed(bank: GlyphBank, writers: np.ndarray) -> GlyphBank:
    renamed = replace(bank, writers=writers.astype(np.int16))
    return renamed.select(np.lexsort((renamed.writers, renamed.labels)))


def write_samples(
    bank: GlyphBank, layouts: Layouts, tokenizer: Tokenizer, count: int, seed: int
) -> Iterator[Sample]:
    """`count` formulas, each in one of the bank's hands."""
    composer = Composer(bank, layouts, tokenizer, style=STYLE)
    generator = torch.Generator().manual_seed(seed)
    for begin in range(0, count, BATCH):
        made = composer.compose_some([min(BATCH, count - begin)], generator)
        for place, ink in enumerate(to_inks(made, bank.classes, tokenizer), begin):
            yield Sample(f"hand-{seed}-{place}", "hands", ink.label, ink=ink)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packed", type=Path, help="folder that `gryphone synth build` has filled")
    parser.add_argument("out", type=Path, help="the packed store to write (.parquet)")
    parser.add_argument("--fonts", type=Path, help="folder of fonts that training does not use")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--letters", type=Path, help="folder of letters, a tenth of it held out")
    options = parser.parse_args(arguments)
    tokenizer = packed_tokenizer(options.packed)
    bank = load_bank(options.packed / "glyphs.npz")
    if options.fonts is None and options.letters is None:
        bank = known_hands(bank, FEWEST)
    else:
        bank = new_hands(bank, options.fonts, options.letters)
    layouts = familiar_layouts(options.packed)
    samples = write_samples(bank, layouts, tokenizer, options.count, options.seed)
    report = write_packed(samples, options.out, convention=CONVENTION)
    print(f"{options.out}: {report.packed} inks in {int(bank.writers.max()) + 1} hands")


if __name__ == "__main__":
    run(main)
