"""Builds what training needs from the shared data: glyph bank, layouts, tokenizer. Needs TeX."""

import contextlib
import json
import lzma
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from gryphone.data.datasets import read_dataset
from gryphone.data.images import read_boxes
from gryphone.data.packed import Packed, read_packed
from gryphone.errors import DataError, GryphoneError
from gryphone.latex.normalize import normalize
from gryphone.synth.formula_grammar import FormulaGrammar, Widening
from gryphone.synth.formulas import (
    CONVENTION,
    choose_lengths,
    clean_formulas,
    is_protected,
    protected_labels,
    read_formulas,
)
from gryphone.synth.glyph_sources import build_bank, from_detexify, from_inks
from gryphone.synth.glyphs import GlyphBank, load_bank
from gryphone.synth.layouts import EmBox, Layouts, pack_layouts
from gryphone.synth.leakage import check_bank, only_training, protected_names
from gryphone.synth.offline import from_images
from gryphone.synth.real import hand_boxes, real_layouts
from gryphone.synth.symbols import DRAWN_AS, FONTS, GLYPHLESS, glyph_class
from gryphone.synth.texlayout import class_boxes, typeset
from gryphone.synth.write import Pen
from gryphone.tokens import Tokenizer, build_tokenizer, sat_split, tokenizer_from_dict

TRAINING = ("train.parquet", "artificial-cut.parquet", "artificial-latex.parquet")
LAID_OUT = ("train.parquet", "offhme.parquet")  # whose layouts are taken over
VALIDATION = ("valid-2013", "valid-2023", "test-2014")
AMBIGUOUS = frozenset(["\\|"])  # written as two bars, see gryphone.synth.formulas.as_written
MIN_COUNT = 30  # of a token in formulas that gets into the vocabulary
FAMILIAR_SHARE = 0.7  # of the formulas that are typeset
T = TypeVar("T")
Progress = Callable[[str], None]


def counted(items: Iterable[T], every: int, what: str, progress: Progress) -> Iterator[T]:
    """The same items; how many have gone by is said now and then."""
    for number, item in enumerate(items, 1):
        if number % every == 0:
            progress(f"  {number} {what}")
        yield item


@dataclass
class BuildReport:
    """What went in and what did not."""

    dropped: Counter[str] = field(default_factory=Counter)
    kept: dict[str, int] = field(default_factory=dict)


def protected_sets(data: Path) -> list[Path]:
    """The validation and test sets in the shared data folder."""
    return [data / "crohme" / f"{name}.tar.xz" for name in VALIDATION]


def protected_of(data: Path) -> frozenset[str]:
    """The labels of the validation and test sets in the shared data folder."""
    tables = sorted((data / "metrics").glob("*.tsv*"))
    return protected_labels(protected_sets(data), tables)


def make_bank(data: Path, dropped: Counter[str], progress: Progress) -> GlyphBank:
    """The glyph bank of CROHME's training ink, OffHME's images and Detexify's drawings.

    An ink with the name, or a stroke with the shape, of validation or test ink is an error.
    """
    protected = protected_sets(data)
    progress("cutting symbols out of CROHME's training ink ...")
    inks = only_training(read_dataset(data / "crohme" / "train.tar.xz"), protected_names(protected))
    written = list(from_inks(inks))
    progress(f"{len(written)} symbols; tracing those in OffHME's images ...")
    offline = data / "offline"
    images = read_dataset(offline / "offhme-1.tar", offline / "offhme-2.tar")
    images = counted(images, 1000, "images", progress)
    traced = list(from_images(images, read_boxes(offline / "offhme-boxes.jsonl.xz"), dropped))
    progress(f"{len(traced)} symbols; adding Detexify's, and packing ...")
    drawn = list(from_detexify(data / "symbols" / "detexify-math.jsonl.xz"))
    bank = build_bank(written, drawn, traced, generator=np.random.default_rng(0))
    progress(f"{len(bank)} glyphs; comparing them with validation and test ink ...")
    check_bank(bank, protected)
    return bank


def symbols_with_glyphs(bank: GlyphBank, least: int = 10) -> set[str]:
    """The label symbols that the bank can draw, each in `least` instances or more."""
    counts = bank.counts()
    tokens = {*bank.classes, *DRAWN_AS}
    return {t for t in tokens if counts.get(glyph_class(t), 0) >= least} | GLYPHLESS | FONTS


def choose_formulas(
    formulas: Sequence[list[str]], familiar: Collection[str], count: int
) -> list[list[str]]:
    """`count` formulas in random order, FAMILIAR_SHARE of them all in `familiar` symbols."""
    inside = [t for t in formulas if all(s in familiar for s, _ in sat_split(t))]
    outside = [t for t in formulas if any(s not in familiar for s, _ in sat_split(t))]
    first = int(count * FAMILIAR_SHARE)
    chosen = [inside[i] for i in choose_lengths(inside, first)]
    chosen += [outside[i] for i in choose_lengths(outside, count - len(chosen))]
    order = np.random.default_rng(0).permutation(len(chosen))
    return [chosen[i] for i in order.tolist()]


def grammar_formulas(
    labels: Sequence[Sequence[str]],
    symbols: Collection[str],
    protected: Collection[str],
    count: int,
    widening: Widening | None = None,
) -> list[list[str]]:
    """`count` distinct formulas of a grammar fitted to labels and widened."""
    grammar = FormulaGrammar.fit(labels, symbols, widening or Widening())
    known = {tuple(tokens) for tokens in labels}
    made: dict[tuple[str, ...], None] = {}
    # Short ones come again and again: the bound keeps a small grammar from running for ever.
    for tokens in islice(grammar.formulas(seed=0), 3 * count):
        if len(made) == count:
            break
        if tuple(tokens) not in known and not is_protected(tokens, protected):
            made.setdefault(tuple(tokens))
    return [list(tokens) for tokens in made]


def make_tokenizer(
    labels: Sequence[Sequence[str]],
    extra: Sequence[Sequence[str]],
    formulas: Sequence[Sequence[str]],
    base: Tokenizer | None = None,
) -> Tokenizer:
    """SAT vocabularies: all of the labels', and what is frequent in extra labels and formulas.

    `base` keeps its ids: weights were trained with them.
    """
    start = base.grow(labels) if base is not None else build_tokenizer("sat", labels)
    return start.grow(extra, 2).grow(formulas, MIN_COUNT)


def make_layouts(
    formulas: Sequence[Sequence[str]],
    boxes: Mapping[str, EmBox],
    protected: Collection[str],
    report: BuildReport,
    kind: str = "TeX layouts",
) -> Layouts:
    """Typeset formulas with TeX and pack what came through."""
    layouts = typeset((sat_split(t) for t in formulas), boxes, report.dropped)
    packed = pack_layouts(layouts, boxes, protected=protected)
    report.kept[kind] = len(packed)
    return packed


def make_real_layouts(
    packed: Packed, bank: GlyphBank, protected: Collection[str], report: BuildReport
) -> tuple[Layouts, dict[str, EmBox]]:
    """Layouts of real ink, and the boxes of all classes at the size people write them."""
    printed = class_boxes(bank.classes, Counter())
    boxes = hand_boxes(real_layouts(packed, printed, protected, Counter()), printed)
    found = real_layouts(packed, boxes, protected, report.dropped)
    layouts = pack_layouts(found, boxes, origin="real", protected=protected)
    report.kept["real layouts"] = len(layouts)
    return layouts, boxes


def all_formulas(
    data: Path,
    symbols: Collection[str],
    protected: Collection[str],
    dropped: Counter[str],
    progress: Progress,
) -> list[list[str]]:
    """Every usable formula of the shared data folder."""
    folder = data / "formulas"
    lines = chain(
        read_formulas(folder / "formulas.tsv.xz"), read_formulas(folder / "arxiv-math.txt.xz")
    )
    told = counted(lines, 100_000, "formulas", progress)
    return list(clean_formulas(told, symbols, protected, dropped))


def mathwriting_labels(data: Path) -> list[list[str]]:
    """The truths of MathWriting's score table: their tokens are wanted in the vocabulary."""
    labels = []
    text = lzma.decompress((data / "metrics" / "mathwriting-test.tsv.xz").read_bytes()).decode()
    for line in text.splitlines():
        with contextlib.suppress(GryphoneError):
            labels.append(normalize(line.split("\t")[1], CONVENTION))
    return labels


def build(data: Path, packed: Path, *, count: int, grammar: int, progress: Progress) -> BuildReport:
    """Write glyphs.npz, layouts-{real,crohme,tex,grammar}.npz and tokenizer.json.

    `data` is the shared data folder; `packed` holds the packed training sets and gets the files,
    all at the end. A tokenizer that is there already is grown, its ids stay.
    """
    report = BuildReport()
    with tempfile.TemporaryDirectory(dir=packed) as folder:
        place = Path(folder)
        make_bank(data, report.dropped, progress).save(place / "glyphs.npz")
        bank = load_bank(place / "glyphs.npz")
        report.kept["glyphs"], report.kept["glyph classes"] = len(bank), len(bank.classes)
        progress(f"{len(bank)} glyphs in {len(bank.classes)} classes; laying out real ink ...")
        protected = protected_of(data)
        sets = [read_packed(path) for path in map(packed.joinpath, TRAINING)]
        written = read_packed([packed / name for name in LAID_OUT])
        real, boxes = make_real_layouts(written, bank, protected, report)
        real.save(place / "layouts-real.npz")
        pens, _ = make_real_layouts(sets[0], bank, protected, BuildReport())  # counted above
        pens.save(place / "layouts-crohme.npz")
        report.kept["real layouts of CROHME alone"] = len(pens)
        progress(f"{len(real)} real layouts; cleaning papers' formulas, all of them ...")
        labels = [label.split() for one in sets for label in one.labels]
        symbols = symbols_with_glyphs(bank)
        formulas = all_formulas(data, symbols, protected, report.dropped, progress)
        progress(f"{len(formulas)} formulas can be written; choosing {count} of them ...")
        base = load_tokenizer(packed / "tokenizer.json")
        extra = mathwriting_labels(data)
        tokenizer = make_tokenizer(labels, extra, formulas, base=base)
        chosen = _formulas(formulas, sets[0], tokenizer, count, report)
        common = symbols & set(tokenizer.vocabularies[0].tokens) - AMBIGUOUS
        crohme = [label.split() for label in sets[0].labels]
        made = grammar_formulas(crohme, common, protected, grammar)
        tokenizer = tokenizer.grow(made, MIN_COUNT)
        save_tokenizer(tokenizer, place / "tokenizer.json")
        made = [t for t in made if _known(t, tokenizer)]
        progress(f"{len(chosen)} formulas chosen, {len(made)} made by the grammar; typesetting ...")
        make_layouts(chosen, boxes, protected, report).save(place / "layouts-tex.npz")
        layouts = make_layouts(made, boxes, protected, report, "layouts of the grammar")
        layouts.save(place / "layouts-grammar.npz")
        for path in sorted(place.iterdir()):
            path.replace(packed / path.name)
    return report


def build_grammar(packed: Path, out: Path, *, count: int, plain: float) -> BuildReport:
    """Layouts of the grammar alone, for a folder that `build` has filled; `plain` is Widening's."""
    report = BuildReport()
    pen = Pen.load(packed)
    tokenizer = packed_tokenizer(packed)
    labels = [label.split() for label in read_packed(packed / TRAINING[0]).labels]
    symbols = symbols_with_glyphs(pen.bank) & set(tokenizer.vocabularies[0].tokens) - AMBIGUOUS
    wide = Widening(plain=plain)
    made = grammar_formulas(labels, symbols, pen.protected, count, wide)
    made = [t for t in made if _known(t, tokenizer)]
    kind = "layouts of the grammar"
    make_layouts(made, pen.boxes, pen.protected, report, kind).save(out)
    return report


def _formulas(
    formulas: Sequence[list[str]],
    written: Packed,
    tokenizer: Tokenizer,
    count: int,
    report: BuildReport,
) -> list[list[str]]:
    """The mined formulas to typeset."""
    usable = [t for t in formulas if _known(t, tokenizer)]
    report.dropped["a symbol or modifier too rare"] += len(formulas) - len(usable)
    familiar = {symbol for label in written.labels for symbol, _ in sat_split(label.split())}
    chosen = choose_formulas(usable, familiar, count)
    report.dropped["not chosen"] += len(usable) - len(chosen)
    return chosen


def _known(tokens: Sequence[str], tokenizer: Tokenizer) -> bool:
    symbols, modifiers = tokenizer.vocabularies
    return all(s in symbols and m in modifiers for s, m in sat_split(tokens))


def load_tokenizer(path: Path) -> Tokenizer | None:
    """The vocabularies in a JSON file, or None where there is none."""
    return tokenizer_from_dict(json.loads(path.read_text("utf-8"))) if path.exists() else None


def packed_tokenizer(packed: Path) -> Tokenizer:
    """The vocabularies in a folder that `build` has filled."""
    tokenizer = load_tokenizer(packed / "tokenizer.json")
    if tokenizer is None:
        raise DataError(f"{packed}: holds no tokenizer.json; run `gryphone synth build` first")
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, path: Path) -> None:
    """Write the vocabularies as JSON."""
    path.write_text(json.dumps(tokenizer.to_dict(), ensure_ascii=False, indent=1), "utf-8")
