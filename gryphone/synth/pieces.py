"""Layouts of what is no whole formula, or more than one: lone symbols, beginnings, long rows."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from random import Random

from gryphone.data.pieces import LONGEST, RELATIONS, lone_label
from gryphone.errors import DataError
from gryphone.latex.tree import OPERATORS as NAMED
from gryphone.latex.unfinished import unfinished, writing_order
from gryphone.latex.validity import is_valid
from gryphone.synth.build import packed_tokenizer
from gryphone.synth.formulas import is_protected
from gryphone.synth.glyphs import GlyphBank
from gryphone.synth.layouts import STEP, Layout, Layouts, Slot, load_layouts, pack_layouts
from gryphone.synth.symbols import (
    ARROWS,
    BIG_OPERATORS,
    DELIMITERS,
    DIGITS,
    DOTS,
    FONTS,
    GREEK,
    LOWER,
    OPERATORS,
    UPPER,
    Fit,
    words,
)
from gryphone.synth.texlayout import typeset
from gryphone.synth.write import Pen
from gryphone.tokens import EMPTY, Tokenizer, sat_join, sat_split

# How often each symbol of a class is written alone: first what is misread alone most.
WEIGHTS: tuple[tuple[Collection[str], int], ...] = (
    (DELIMITERS, 14),
    ((".", ",", "!", ":", "\\prime", *DOTS), 10),
    ((*OPERATORS, "=", "<", ">", "/", "\\leq", "\\geq", "\\neq"), 10),
    ((*BIG_OPERATORS, "\\sqrt"), 12),
    (NAMED, 6),
    (DIGITS, 10),
    (LOWER, 7),
    (UPPER, 5),
    (GREEK, 5),
    (ARROWS, 4),
)
COMMON, RARE = 150, 0.25  # glyphs of a class that people use, and the weight of the others
# Alone, nothing tells these from a dot on the line, three of them, a letter or a root; accents need
# a letter, and the last one is never an answer.
MUTE = frozenset(words(r"\cdot \cdots \bullet \mid \Sigma \Pi \surd \ddot \not \fint"))
JOINTS = {True: (",", "\\Rightarrow", ",", "\\rightarrow"), False: ("=", "=", "=", "+", "-", "<")}
LEAST, MOST = 24, 100  # symbols of a row


def write_pieces(packed: Path, count: int, rows: int, seed: int) -> dict[str, int]:
    """Write layouts-lone.npz, layouts-beginnings.npz and layouts-rows.npz beside the others."""
    pen, tokenizer = Pen.load(packed), packed_tokenizer(packed)
    draw = Random(seed)
    tex = load_layouts(packed / "layouts-tex.npz")
    made = {"lone": pack_layouts(lone_layouts(pen.bank, tokenizer), pen.boxes)}
    both = (tex, load_layouts(packed / "layouts-crohme.npz"))
    for name, layouts, number in zip(
        ("beginnings", "beginnings-crohme"), both, (count, count // 3), strict=True
    ):
        found = beginning_layouts(layouts, number, draw, tokenizer)
        made[name] = pack_layouts(
            found, pen.boxes, origin=layouts.origin, protected=layouts.protected
        )
    formulas = row_formulas(tex, rows, draw, tokenizer)
    made["rows"] = pack_layouts(
        typeset(formulas, pen.boxes, Counter(), seed=seed), pen.boxes, protected=tex.protected
    )
    for name, layouts in made.items():
        layouts.save(packed / f"layouts-{name}.npz")
    return {name: len(layouts) for name, layouts in made.items()}


def lone_layouts(bank: GlyphBank, tokenizer: Tokenizer) -> Iterator[Layout]:
    """A slot for each symbol of bank and vocabulary, as often as its class weighs."""
    symbols = tokenizer.vocabularies[0]
    counts = bank.counts()
    for name in bank.classes:
        label = lone_label(name)
        # A calligraphic F alone is an F.
        if label is None or name in MUTE or name.startswith(tuple(FONTS)):
            continue
        pairs = sat_split(label.split())
        if any(symbol not in symbols for symbol, _ in pairs):
            continue
        weight = next((w for names, w in WEIGHTS if name in names), 2)
        often = max(1, round(4 * weight * (1 if counts[name] >= COMMON else RARE)))
        slot = Slot(name, 0, Fit.NATURAL, 0, 0.0, 0.0, 1.0, 0.0)
        yield from [Layout(tuple(pairs), (slot,))] * often


def layout_of(layouts: Layouts, index: int) -> Layout:
    """One of the packed layouts again."""
    rows = slice(layouts.slot_offsets[index], layouts.slot_offsets[index + 1])
    columns = (layouts.glyph[rows], layouts.position[rows], layouts.fit[rows], layouts.rise[rows])
    places = (layouts.geometry[rows] / STEP).tolist()
    slots = [
        Slot(layouts.classes[glyph], position, Fit(fit), rise, *geometry)
        for glyph, position, fit, rise, geometry in zip(
            *(column.tolist() for column in columns), places, strict=True
        )
    ]
    return Layout(tuple(layouts.pairs(index)), tuple(slots))


def beginning_layouts(
    layouts: Layouts, count: int, draw: Random, tokenizer: Tokenizer
) -> Iterator[Layout]:
    """`count` layouts that end early, in an order in which somebody may have written them."""
    protected, made = frozenset(layouts.protected), 0
    for _ in range(20 * count):
        layout = begun(layout_of(layouts, draw.randrange(len(layouts))), draw)
        if layout is None or not _known(layout.pairs, tokenizer):
            continue
        if not is_protected(sat_join(layout.pairs), protected):
            yield layout
            made += 1
        if made == count:
            return
    raise DataError(f"only {made} of {count} beginnings came out; ask for fewer")


def begun(layout: Layout, draw: Random) -> Layout | None:
    """The layout as far as it is written at some moment; None where that has no label."""
    tokens = sat_join(layout.pairs)
    order = writing_order(tokens, draw)
    if len(order) < 2:
        return None
    written = order[: draw.randrange(1, len(order))]
    parts = unfinished(tokens, written)
    if parts is None:
        return None
    pairs = sat_split([part.text for part in parts])
    kept = [part.place for part in parts if part.place is not None]
    places = dict(zip(kept, (i for i, (s, _) in enumerate(pairs) if s != EMPTY), strict=True))
    slots = [s._replace(position=places[s.position]) for s in layout.slots if s.position in places]
    return Layout(tuple(pairs), tuple(slots)) if slots else None


def row_formulas(
    layouts: Layouts, count: int, draw: Random, tokenizer: Tokenizer
) -> Iterator[list[tuple[str, str]]]:
    """`count` labels of two to five formulas side by side, joined by equals signs and the like."""
    made = 0
    for _ in range(20 * count):
        wanted = draw.randint(LEAST, MOST)
        row: list[tuple[str, str]] = []
        while len(row) < wanted:
            pairs = layouts.pairs(draw.randrange(len(layouts)))
            if row:
                related = any(symbol in RELATIONS for symbol, _ in pairs)
                row.append((draw.choice(JOINTS[related]), ""))
            row += pairs
        if len(row) <= LONGEST and is_valid(sat_join(row)) and _known(row, tokenizer):
            yield row
            made += 1
        if made == count:
            return
    raise DataError(f"only {made} of {count} rows came out; ask for fewer")


def _known(pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer) -> bool:
    """Whether the vocabulary has all of it, and braces come out as they went in."""
    names = tokenizer.vocabularies
    known = all(s in names[0] and m in names[1] for s, m in pairs)
    return known and sat_split(sat_join(pairs)) == list(pairs)
