"""Less than a formula, and more than one: lone symbols, beginnings, rows, and what is no ink."""

import io
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from inkmaker import fraction, power, row
from paper import Page, draw_page
from PIL import Image
from test_synth import BOX, bank_of, row_layout, tokenizer_of

from gryphone.data.packing import write_packed
from gryphone.data.pieces import (
    beginnings,
    lone_label,
    lone_symbols,
    read_pieces,
    rows,
    struck_out,
    with_struck,
)
from gryphone.data.samples import Sample, Unreadable
from gryphone.data.store import UNKNOWN, InkStore, load_packed
from gryphone.errors import DataError
from gryphone.ink import Ink
from gryphone.latex.normalize import normalize
from gryphone.latex.unfinished import unfinished, writing_order
from gryphone.photo.image import read_image
from gryphone.raster import InkBatch
from gryphone.studies.pieces import alike, kind_of, table
from gryphone.synth.conditions import DIRT, under_some_condition
from gryphone.synth.layouts import pack_layouts
from gryphone.synth.pieces import (
    beginning_layouts,
    begun,
    layout_of,
    lone_layouts,
    row_formulas,
)
from gryphone.synth.retakes import retake_images
from gryphone.tokens import EMPTY, PAD, sat_join, sat_split
from gryphone.training.augment import Augment, augment

STILL = "rotate shear stretch warp glyph_shift glyph_scale glyph_rotate"
CALM = dict.fromkeys(STILL.split(), 0.0)


def samples(*inks: Ink) -> list[Sample]:
    return [Sample(ink.id, "made", ink.label, ink=ink) for ink in inks]


@pytest.mark.parametrize(
    ("whole", "written", "label"),
    [
        ("( a + b )", (0, 1), "( a"),
        (r"\frac { a } { b }", (0, 1), r"\frac { a } { }"),
        (r"\frac { a } { b }", (0, 2), r"\frac { } { b }"),
        (r"\frac { a } { b }", (0,), "-"),
        (r"\frac { a } { b }", (1,), "a"),
        (r"\frac { a } { b }", (1, 2), None),
        (r"\frac { a } { b }", (), None),
        (r"x ^ { \frac { 1 } { 2 } }", (0, 1, 2), r"x ^ { \frac { 1 } { } }"),
        (r"\sqrt [ 3 ] { x }", (0,), r"\sqrt { }"),
        (r"\sqrt [ 3 ] { x }", (0, 1), r"\sqrt [ 3 ] { }"),
        (r"\sqrt [ 3 ] { x }", (2,), "x"),
        (r"\sqrt [ 3 ] { x }", (1, 2), None),
        (r"\sum _ { i } ^ { n } x", (0, 2), r"\sum ^ { n }"),
        (r"\sum _ { i } ^ { n } x", (1, 3), "i x"),
        (r"\sum _ { i } ^ { n } x", (1, 2), None),
        (r"\hat { x }", (0,), None),
        (r"\hat { x }", (1,), "x"),
        (r"\mathcal { F } ( x )", (1, 2), r"\mathcal { F } ("),
        (r"\begin{matrix} a & b \end{matrix}", (1,), None),
    ],
)
def test_a_label_without_what_is_not_written_yet(
    whole: str, written: tuple[int, ...], label: str | None
) -> None:
    parts = unfinished(whole.split(), written)
    assert (parts and " ".join(part.text for part in parts)) == label
    signs = [p.place for p in parts or () if p.place is not None]
    assert set(written) <= set(signs) or label is None  # a font's command has no ink


def test_an_order_of_writing_has_every_symbol_once() -> None:
    label = r"\frac{a+b}{c}=\sqrt[3]{x^{2}_{1}}\hat{y}\begin{matrix}a&b\\c&d\end{matrix}"
    tokens = normalize(label, "crohme")
    symbols = [at for at, (s, _) in enumerate(sat_split(tokens)) if s != EMPTY]
    orders = {tuple(writing_order(tokens, Random(seed))) for seed in range(40)}
    assert len(orders) > 2 and all(sorted(order) == symbols for order in orders)
    bar_after_numerator = sum(order.index(0) > order.index(1) for order in orders)
    assert 0 < bar_after_numerator < len(orders)


def test_lone_symbols_have_the_label_of_one() -> None:
    found = [*lone_symbols(samples(fraction(), power(), power(id="again", seed=1)), 2, 0)]
    assert all(isinstance(s, Sample) for s in found)
    counts = Counter(s.label for s in found)
    assert counts == {"1": 2, "2": 2, "-": 2, "x": 2, "+": 2}
    plus = next(s.ink for s in found if s.label == "+")
    assert len(plus.strokes) == 2 and plus.glyphs[0].strokes == (0, 1)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("(", "("),
        ("]", "]"),
        (r"\{", r"\{"),
        (r"\sqrt", r"\sqrt { }"),
        (r"\int", r"\int"),
        (r"\sin", r"\sin"),
        (r"\prime", r"\prime"),
        (r"\cdot", "."),
        (r"\mathcal{A}", r"\mathcal { A }"),
        (r"\frac", None),
        ("x y z", None),
    ],
)
def test_what_can_stand_alone(name: str, label: str | None) -> None:
    assert lone_label(name) == label


def test_beginnings_end_with_a_symbol_in_the_order_of_the_pen() -> None:
    found = [*beginnings(samples(fraction(), row("(n-1)", id="r")), 9, 0)]
    assert [(s.label, len(s.ink.strokes)) for s in found] == [
        ("2", 1),
        (r"\frac { } { 2 }", 2),
        (r"\frac { 1 } { 2 }", 3),
        (r"\frac { 1 } { 2 } 1", 4),
        *(("(", 1), ("( n", 2), ("( n -", 3), ("( n - 1", 4)),
    ]
    assert [s.id[-2:] for s in found] == ["q1", "q2", "q3", "q4"] * 2
    assert all(len(s.ink.glyphs) == len(s.ink.strokes) for s in found)
    few = [*beginnings(samples(fraction()), 2, 1)]
    assert len(few) == 2 and {s.label for s in few} <= {s.label for s in found}


def test_what_is_not_wholly_segmented_has_no_beginnings() -> None:
    ink = power()
    (lost,) = beginnings(samples(replace(ink, glyphs=ink.glyphs[:-1])), 3, 0)
    assert isinstance(lost, Unreadable) and "not every symbol" in lost.error


def test_rows_are_of_one_writer_on_one_line() -> None:
    inks = [row(text, id=text, seed=seed) for seed in (1, 2) for text in ("x+1=2", "n-1", "(1+2)")]
    made = [*rows(samples(*inks), 6, 11, 0)]
    assert [s.id for s in made] == [f"row-{i}" for i in range(6)]
    for sample in made:
        assert len(sample.label.split()) >= 11 and sample.ink.writer in ("writer1", "writer2")
        left = [
            min(sample.ink.strokes[s][:, 0].min() for s in g.strokes) for g in sample.ink.glyphs
        ]
        assert left == sorted(left)
        (_, top, _, bottom) = sample.ink.bounds
        assert bottom - top < 2.5  # symbols of about one
        spelt = [g.label for g in sample.ink.glyphs]
        assert spelt == sample.label.split()
    with pytest.raises(DataError, match="no writer has enough"):
        [*rows(samples(*inks), 1, 500, 0)]


def test_struck_out_symbols_are_ink_that_no_label_has() -> None:
    inks = [row(text, id=text, seed=seed) for seed in (1, 2) for text in ("x+1=2", "n-1")]
    made = [*struck_out(samples(*inks), 30, 0)]
    assert [s.id for s in made] == [f"struck-{i}" for i in range(30)]
    places = set()
    for sample in made:
        ink, label = sample.ink, sample.label.split()
        *glyphs, nothing = ink.glyphs
        wrong = [ink.strokes[s] for s in nothing.strokes]
        assert [g.label for g in glyphs] == label and nothing.label == PAD and len(wrong) >= 2
        assert sum(len(g.strokes) for g in ink.glyphs) == len(ink.strokes)
        reach = [np.concatenate([ink.strokes[s] for s in g.strokes]) for g in glyphs]
        left, right = (np.array([f(p[:, 0]) for p in reach]) for f in (np.min, np.max))
        assert (np.diff(left) > 0).all()  # what was behind it has made room
        middle = np.concatenate(wrong)[:, 0].mean()
        assert not ((left < middle) & (middle < right)).any()
        places.add((middle > left).sum() * 2 // len(left))
    assert places == {0, 1, 2}  # before, in and behind the formula
    alone = replace(row("x+1"), writer=None)
    with pytest.raises(DataError, match="no ink says who wrote it"):
        [*struck_out(samples(alone), 1, 0)]


def test_patches_of_what_is_struck_out_are_told_to_be_nothing(tmp_path: Path) -> None:
    inks = [with_struck(row(t, id=t), Random(0), np.random.default_rng(0)) for t in ("x+1", "n-1")]
    write_packed(samples(*inks), tmp_path / "struck.parquet")
    tokenizer = tokenizer_of("x + 1", "n - 1")
    packed = load_packed(tmp_path / "struck.parquet", "crohme")
    store = InkStore.of(packed, tokenizer, 40, torch.device("cpu"))
    symbols = tokenizer.vocabularies[0]
    named = [symbols.tokens[i] for i in store.glyph_tokens[:, 0].tolist()]
    assert named == ["x", "+", "1", PAD, "n", "-", "1", PAD]
    assert store.glyph_places.tolist() == [0, 1, 2, UNKNOWN] * 2


def test_an_ink_of_nobody_has_its_own_symbols_struck_out() -> None:
    ink = replace(row("x+1"), writer=None)
    made = with_struck(ink, Random(0), np.random.default_rng(0))
    assert (made.label, made.glyphs[:-1], made.writer) == (ink.label, ink.glyphs, None)
    assert len(made.strokes) > len(ink.strokes)
    for old, new in zip(ink.strokes, made.strokes, strict=False):  # at another size and place
        np.testing.assert_allclose(np.ptp(new, axis=0) * 10, np.ptp(old, axis=0), atol=0.5)


def test_pieces_by_name(tmp_path: Path) -> None:
    assert [s.label for s in read_pieces("beginnings:9", samples(row("x+1")), 0)] == ["x", "x +"]
    for text in ("lone", "lone:x", "rows:3", "halves:3"):
        with pytest.raises(DataError, match=f"--pieces {text} is unknown"):
            read_pieces(text, [], 0)


def test_layouts_of_lone_symbols_weigh_by_class() -> None:
    bank = bank_of("(", "x", "\\sqrt", "\\cdot", "\\boxtimes", "q")
    tokenizer = tokenizer_of("(", "x", "\\sqrt { }", "\\boxtimes")
    made = Counter(sat_join(x.pairs)[0] for x in lone_layouts(bank, tokenizer))
    assert set(made) == {"(", "x", "\\sqrt", "\\boxtimes"}  # q is unknown, a high dot is a dot
    assert made["("] > made["x"] > made["\\boxtimes"] / 2


def test_a_layout_that_ends_early_keeps_its_places() -> None:
    whole = row_layout(r"a + \frac { b } { c }")
    seen = set()
    for seed in range(400):
        part = begun(whole, Random(seed))
        if part is None:
            continue
        seen.add(" ".join(sat_join(part.pairs)))
        for slot in part.slots:
            symbol = part.pairs[slot.position][0]
            assert slot.x == {"a": 0, "+": 1, "\\frac": 2, "-": 2, "b": 3, "c": 4}[symbol]
        assert len(part.slots) == sum(symbol != EMPTY for symbol, _ in part.pairs)
    assert {"a", "a +", "a + b", r"a + \frac { b } { }", "a + -"} <= seen


def test_beginnings_and_rows_out_of_packed_layouts() -> None:
    labels = ("a = b", "b + a", "a b a b")
    bank = bank_of(*"ab=+-,<", "\\Rightarrow", "\\rightarrow")
    packed = pack_layouts(map(row_layout, labels), dict.fromkeys(bank.classes, BOX))
    assert [layout_of(packed, i) for i in range(3)] == [row_layout(x) for x in labels]
    tokenizer = tokenizer_of(" ".join(bank.classes))
    few = [*beginning_layouts(packed, 12, Random(0), tokenizer)]
    assert len(few) == 12 and all(0 < len(x.slots) < 4 for x in few)
    lines = [*row_formulas(packed, 5, Random(0), tokenizer)]
    assert len(lines) == 5 and all(24 <= len(line) <= 110 for line in lines)
    assert any(("=", "") in line for line in lines)


def test_stray_marks_belong_to_nobody_and_move_nothing() -> None:
    inks = InkBatch.from_strokes([row(t).strokes for t in ("x+1", "n", "(1)", "2")])
    inks = replace(inks, glyph=torch.arange(len(inks.points)) // 3)
    draw = torch.Generator().manual_seed(1)
    with_strays = augment(inks, Augment(**CALM, stray=2.0), draw)
    alone = augment(inks, Augment(**CALM), torch.Generator().manual_seed(1))
    own = with_strays.glyph >= 0
    for name in ("points", "pen", "sample", "glyph"):
        assert torch.equal(getattr(with_strays, name)[own], getattr(alone, name)), name
    assert (~own).sum() == 2 * 8 and with_strays.size == 4
    assert (with_strays.sample.diff() >= 0).all()
    assert with_strays.pen[~own].tolist() == [False, True] * 8


def test_a_coarser_pen_drops_what_bends_little() -> None:
    curve = np.stack([np.linspace(0, 10, 41), 0.05 * np.sin(np.arange(41.0))], 1)
    ink = InkBatch.from_strokes([[curve, np.array([[0.0, 5], [10, 5], [10, 9]])]])
    plain, rough = (
        augment(ink, Augment(**CALM, tolerance=t), torch.Generator().manual_seed(0)).points
        for t in (0.0, 0.02)
    )
    moved = (plain - rough).norm(dim=1)
    assert 5 < (moved > 0).sum() < 21 and moved.max() < 0.02
    assert (moved[[0, 40, 41, 42, 43]] == 0).all()  # ends and corners stay


PICTURE = draw_page(row("x+1=2").strokes, Page(margin=200)).convert("L")


def test_dirt_leaves_the_ink_in_its_place() -> None:
    for name, dirty in DIRT.items():
        page = dirty(PICTURE, np.random.default_rng(0))
        assert page.size == PICTURE.size, name
        assert not np.array_equal(np.asarray(page), np.asarray(PICTURE)), name
    one, other = (under_some_condition(PICTURE, np.random.default_rng(s)) for s in (0, 1))
    assert not np.array_equal(np.asarray(one), np.asarray(other))


def test_dirty_retakes_map_back_to_their_page() -> None:
    file = io.BytesIO()
    PICTURE.save(file, "PNG")
    sample = Sample("a", "made", "x + 1 = 2", image=file.getvalue())
    left, top, right, bottom = read_image(Image.open(io.BytesIO(file.getvalue()))).bounds
    clean, dirty = (
        [next(retake_images([sample], {}, seed, conditions=c)) for seed in range(4)]
        for c in (0.0, 1.0)
    )
    assert clean != dirty
    for made in dirty:
        assert isinstance(made, Sample) and made.ink is not None
        # Beside the writing there may be a word.
        middles = np.array([(x.min(0) + x.max(0)) / 2 for x in made.ink.strokes])
        inside = (middles > [left, top]).all(1) & (middles < [right, bottom]).all(1)
        assert inside.sum() >= 8 and len(middles) <= 10


def test_figures_by_kind() -> None:
    lines = ["lone-0-a\tx\tX", "lone-1-b\t(\t1", "lone-2-c\t\\sqrt { }\t\\sqrt { }"]
    assert table(lines) == [
        ("brackets", 1, 0, 0),
        ("integrals, sums, roots", 1, 1, 1),
        ("small letters", 1, 0, 1),
        ("all", 3, 1, 2),
    ]
    assert alike("0", "o") and not alike("0", "6")
    assert kind_of("a-3-q2", "x + 1") == "quarter 2"
    assert kind_of("row-1", "x " * 55) == "50 tokens and more"
