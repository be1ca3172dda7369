"""Anybody's formulas in somebody's hand: LaTeX in, labelled inks out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import numpy as np
import torch

from gryphone.data.pieces import with_struck
from gryphone.data.samples import Sample
from gryphone.errors import DataError, GryphoneError
from gryphone.ink import Glyph, Ink
from gryphone.latex.normalize import normalize
from gryphone.synth.compose import Composed, Composer
from gryphone.synth.formulas import CONVENTION, as_written, is_protected
from gryphone.synth.glyphs import GlyphBank, load_bank
from gryphone.synth.ink_source import SynthSource, read_part
from gryphone.synth.layouts import EmBox, load_layouts, pack_layouts
from gryphone.synth.style import Style
from gryphone.synth.symbols import drawn_classes
from gryphone.synth.texlayout import typeset
from gryphone.tokens import Tokenizer, build_tokenizer, sat_join, sat_split

BATCH = 256
# Nearer to natural formulas than what training composes: a photograph is seen many times.
PHOTO_STYLES: Mapping[str, Mapping[str, float]] = {
    "tex": {"exchange_samples": 0.5, "uniform_share": 0.15},
    "real": {"exchange_samples": 0.7, "uniform_share": 0.2},
}
PHOTO_BATCH = 64


@dataclass(frozen=True)
class Pen:
    """What writing needs: glyphs, the boxes of their classes, and what must not be written."""

    bank: GlyphBank
    boxes: Mapping[str, EmBox]
    protected: frozenset[str]
    style: Style = field(default_factory=Style)

    @classmethod
    def load(cls, folder: Path) -> Pen:
        """The pen in a folder that `gryphone synth build` has filled."""
        for name in ("glyphs.npz", "layouts-real.npz"):
            if not (folder / name).exists():
                raise DataError(
                    f"{folder / name} is missing; make it with `gryphone synth build DATA PACKED` "
                    "(docs/synthesiser.md)"
                )
        layouts = load_layouts(folder / "layouts-real.npz")
        left_top_right_bottom = layouts.class_boxes.tolist()
        boxes = {n: tuple(b) for n, b in zip(layouts.classes, left_top_right_bottom, strict=True)}
        return cls(load_bank(folder / "glyphs.npz"), boxes, frozenset(layouts.protected))


@dataclass(frozen=True)
class Order:
    """The formulas that can be written, as tokens, and the others with the reason."""

    accepted: tuple[tuple[int, tuple[str, ...]], ...]  # number of the formula, tokens
    refused: tuple[tuple[int, str], ...]  # number of the formula, reason


def read_order(formulas: Sequence[str], protected: Collection[str] = ()) -> Order:
    """Normalise formulas; refuse what is no LaTeX, and what belongs to a test set."""
    accepted: list[tuple[int, tuple[str, ...]]] = []
    refused: list[tuple[int, str]] = []
    for number, formula in enumerate(formulas):
        try:
            tokens = as_written(normalize(formula, CONVENTION))
        except GryphoneError as error:
            refused.append((number, str(error)))
            continue
        if not tokens:
            refused.append((number, "the formula is empty"))
        elif is_protected(tokens, protected):
            refused.append((number, "protected: a validation or test set has this formula"))
        else:
            accepted.append((number, tuple(tokens)))
    return Order(tuple(accepted), tuple(refused))


def write(
    formulas: Sequence[str], pen: Pen, refused: list[tuple[int, str]], *, count: int, seed: int
) -> Iterator[tuple[int, Ink]]:
    """`count` inks of each formula with the formula's number; `refused` collects the others."""
    order = read_order(formulas, pen.protected)
    refused += order.refused
    numbers: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for number, tokens in order.accepted:
        numbers.setdefault(tuple(sat_split(tokens)), []).append(number)
    layouts = list(typeset(numbers, pen.boxes, Counter(), seed=seed))
    done = {layout.pairs for layout in layouts}
    for pairs, lost in numbers.items():
        if pairs not in done:
            why = "TeX refused it, or it has a symbol without glyphs: " + _unknown(pairs, pen)
            refused += [(number, why) for number in lost]
    if not layouts:
        return
    packed = pack_layouts(layouts, pen.boxes, protected=pen.protected)
    tokenizer = build_tokenizer("sat", [sat_join(layout.pairs) for layout in layouts])
    style = replace(pen.style, exchange_samples=0.0, twin_samples=0.0)
    composer = Composer(pen.bank, packed, tokenizer, style=style)
    generator = torch.Generator().manual_seed(seed)
    jobs = [
        (number, at)
        for at, layout in enumerate(layouts)
        for number in numbers[layout.pairs]
        for _ in range(count)
    ]
    for begin in range(0, len(jobs), BATCH):
        part = jobs[begin : begin + BATCH]
        made = composer.compose(torch.tensor([at for _, at in part]), generator)
        inks = to_inks(made, pen.bank.classes, tokenizer)
        yield from zip((number for number, _ in part), inks, strict=True)


def write_for_photos(
    packed: Path, glyphs: Path, tokenizer: Tokenizer, count: int, seed: int, struck: float = 0.0
) -> Iterator[Sample]:
    """`count` inks to photograph, half in TeX's layouts and half in real ones; a share of them has
    something struck out."""
    device = torch.device("cpu")
    composers = [
        SynthSource.of(
            [read_part(packed / f"layouts-{kind}.npz", style)], glyphs, tokenizer, device
        ).composer
        for kind, style in PHOTO_STYLES.items()
    ]
    generator = torch.Generator().manual_seed(seed)
    draw, numbers = Random(seed), np.random.default_rng(seed)
    for begin in range(0, count, PHOTO_BATCH):
        composer = composers[begin // PHOTO_BATCH % len(composers)]
        made = composer.compose_some([min(PHOTO_BATCH, count - begin)], generator)
        for number, ink in enumerate(to_inks(made, composer.classes, tokenizer), begin):
            if draw.random() < struck:
                ink = with_struck(ink, draw, numbers)
            name = f"synth-{seed}-{number}"
            yield Sample(name, "synth-photo", ink.label, ink=replace(ink, id=name))


def _unknown(pairs: Sequence[tuple[str, str]], pen: Pen) -> str:
    missing = [name for name in drawn_classes(pairs) if name is not None and name not in pen.boxes]
    return ", ".join(sorted(set(missing))) or "none, so TeX it was"


def to_inks(made: Composed, classes: Sequence[str], tokenizer: Tokenizer) -> Iterator[Ink]:
    """Composed samples as inks of about 1000 units, with their symbols."""
    for sample in range(made.ink.size):
        mine = made.ink.sample == sample
        points, pen = made.ink.points[mine].double().numpy() * 1000, made.ink.pen[mine].numpy()
        slots = made.ink.glyph[mine].numpy()
        begins = [i for i, joined in enumerate(pen.tolist()) if not joined]
        ends = [*begins[1:], len(points)]
        strokes = tuple(points[a:b] for a, b in zip(begins, ends, strict=True))
        owners: dict[int, list[int]] = {}
        for number, begin in enumerate(begins):
            owners.setdefault(int(slots[begin]), []).append(number)
        glyphs = tuple(
            Glyph(classes[int(made.slot_class[slot])], tuple(numbers))
            for slot, numbers in owners.items()
        )
        label = " ".join(tokenizer.decode(made.tokens[sample].numpy()))
        yield Ink(strokes, label, glyphs)
