"""Glyphs out of handwriting fonts: each font is one more writer of letters, digits, words."""

import string
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gryphone.errors import DataError
from gryphone.synth.glyphs import (
    Array,
    GlyphBank,
    GlyphSample,
    clean_glyphs,
    join_banks,
    pack_glyphs,
)
from gryphone.synth.offline import trace_glyph
from gryphone.synth.symbols import FUNCTIONS

SUFFIXES = frozenset([".ttf", ".otf", ".woff"])
SIZE = 110  # pixels of an em: strokes are then about as wide as those of a scan
# The glyph class of each text that is taken from a font. Many hands join the letters of a word.
TEXTS = {c: c for c in string.ascii_letters + string.digits + "()[]+-=<>/|!,"}
TEXTS |= {"{": "\\{", "}": "\\}"} | {name[1:]: name for name in FUNCTIONS}
# Letters whose two cases differ in shape; where they look alike the font has capitals only.
_TELLING = "abdegqrtfhn"
_ALIKE = 0.4  # mean correlation of both cases' pictures, above which they count as alike

Mask = NDArray[np.bool_]


def with_fonts(bank: GlyphBank, folder: Path, dropped: Counter[str]) -> GlyphBank:
    """A bank and the hands of all fonts in a folder, cleaned as other traced glyphs are."""
    found = list(from_fonts(folder, dropped))
    if not found:
        raise DataError(f"{folder}: no font that can be used (.ttf, .otf or .woff)")
    kept = clean_glyphs(found, spread=3.0)
    dropped["outlier of its class"] += len(found) - len(kept)
    return join_banks(bank, pack_glyphs(kept))


def from_fonts(folder: Path, dropped: Counter[str]) -> Iterator[GlyphSample]:
    """The traced glyphs of all fonts in a folder; `dropped` counts what cannot be used."""
    for path in sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES):
        pictures = _pictures(path)
        if not pictures:
            dropped["font unreadable or without letters"] += 1
            continue
        if _capitals_only(pictures):
            dropped["font with capitals only"] += 1
            continue
        for text, picture in pictures.items():
            strokes = trace_glyph(picture, 12)
            if strokes:
                yield GlyphSample(TEXTS[text], strokes, f"font {path.stem}")
            else:
                dropped["character without ink"] += 1


def _pictures(path: Path) -> dict[str, Mask]:
    """The ink of every text that a font has the characters of, cut to its box."""
    from PIL import Image, ImageDraw, ImageFont

    try:
        font = ImageFont.truetype(str(path), SIZE)
    except OSError:
        return {}
    missing = bytes(font.getmask("\uffff"))
    drawn = {c for c in set("".join(TEXTS)) if bytes(font.getmask(c)) != missing}
    pictures = {}
    for text in TEXTS:
        if not drawn.issuperset(text):
            continue
        left, top, right, bottom = map(int, font.getbbox(text))
        image = Image.new("L", (right - left + 4, bottom - top + 4))
        ImageDraw.Draw(image).text((2 - left, 2 - top), text, font=font, fill=255)
        ink = np.asarray(image) > 127
        if ink.any():
            rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
            pictures[text] = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return pictures


def _capitals_only(pictures: dict[str, Mask]) -> bool:
    from PIL import Image

    def thumbnail(character: str) -> Array:
        picture = Image.fromarray(pictures[character]).convert("L").resize((24, 24))
        return np.asarray(picture, np.float64).ravel()

    both = [c for c in _TELLING if c in pictures and c.upper() in pictures]
    alike = [np.corrcoef(thumbnail(c), thumbnail(c.upper()))[0, 1] for c in both]
    return bool(alike) and float(np.mean(alike)) > _ALIKE
