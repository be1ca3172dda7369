"""The synthesiser: glyph bank, TeX layouts, formulas and composed samples, on made-up glyphs."""

import json
import lzma
import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gryphone.data.packed import Packed
from gryphone.errors import ConfigError, DataError
from gryphone.synth.compose import Composer
from gryphone.synth.dvi import FontMetrics, read_dvi
from gryphone.synth.formulas import (
    choose_lengths,
    clean_formulas,
    formula_parts,
    is_protected,
    protected_labels,
)
from gryphone.synth.glyph_sources import build_bank, from_detexify
from gryphone.synth.glyphs import GlyphBank, GlyphSample, clean_glyphs, load_bank, pack_glyphs
from gryphone.synth.hand import root_hooks
from gryphone.synth.ink_source import SynthSource, read_part
from gryphone.synth.layouts import Layout, Layouts, Slot, load_layouts, pack_layouts
from gryphone.synth.photographs import photograph_inks
from gryphone.synth.real import hand_boxes, real_layouts
from gryphone.synth.style import REAL, Style
from gryphone.synth.symbols import Fit, drawn_classes, fit_of, glyph_class, words
from gryphone.synth.texlayout import (
    class_boxes,
    limit_starts,
    matched_brackets,
    script_depths,
    to_tex,
    typeset,
)
from gryphone.synth.write import write_for_photos
from gryphone.tokens import Tokenizer, build_tokenizer, sat_split
from gryphone.training.mixture import load_sources
from gryphone.training.settings import SourceConfig, TrainConfig

needs_tex = pytest.mark.skipif(shutil.which("latex") is None, reason="TeX is not installed")

CALM = Style(
    exchange_samples=0.0,
    twin_samples=0.0,
    one_writer=1.0,
    mess=0.0,
    size_spread=0.0,
    class_spread=0.0,
    width_spread=0.0,
    script_size=1.0,
    sub_size=1.0,
    script_size_spread=0.0,
    script_rise=0.0,
    script_drop=0.0,
    script_rise_spread=0.0,
    box_spread=0.0,
    padding=0.0,
    padding_spread=0.0,
    gap=1.0,
    gap_spread=0.0,
    gap_noise=0.0,
    baseline_spread=0.0,
    slope_spread=0.0,
    wave=0.0,
    rotation=0.0,
    slant=0.0,
    overhang=0.0,
    overhang_spread=0.0,
    aspect_search=0.0,
)
BOX = (0.0, -0.5, 0.5, 0.0)  # left, top, right, bottom of every class in these tests


def square(size: float = 1.0, width: float | None = None) -> np.ndarray:
    w = size if width is None else width
    return np.array([[0, 0], [w, 0], [w, size], [0, size], [0, 0.0]])


def glyph(label: str, writer: str | None = None, width: float = 1.0) -> GlyphSample:
    return GlyphSample(label, (square(1.0, width),), writer)


def bank_of(*labels: str) -> GlyphBank:
    return pack_glyphs([glyph(label, writer) for label in labels for writer in ("ann", "bob")])


def row_layout(tokens: str) -> Layout:
    """Symbols side by side, one em apart."""
    pairs = tuple(sat_split(tokens.split()))
    slots = [
        Slot(glyph_class(s), at, Fit.NATURAL, 0, float(at), 0.0, 1.0, 0.0)
        for at, (s, _) in enumerate(pairs)
    ]
    return Layout(pairs, tuple(slots))


def packed_rows(bank: GlyphBank, *labels: str) -> Layouts:
    return pack_layouts(map(row_layout, labels), dict.fromkeys(bank.classes, BOX))


def tokenizer_of(*labels: str) -> Tokenizer:
    return build_tokenizer("sat", [label.split() for label in labels])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Glyphs


def test_packing_keeps_corners_and_drops_points_on_a_line() -> None:
    line = np.array([[0, 0], [1, 0.001], [2, 0], [2, 1], [2, 2.0]])
    bank = pack_glyphs([GlyphSample("x", (line, line[::-1])), GlyphSample("y", (line,))])
    assert bank.points[:3].tolist() == [[-127, -127], [127, -127], [127, 127]]
    assert bank.offsets.tolist() == [0, 6, 9]
    assert np.flatnonzero(~bank.pen).tolist() == [0, 3, 6]


def test_clean_drops_what_is_far_too_wide_or_has_a_stray_stroke() -> None:
    good = [glyph("x", width=1 + 0.01 * i) for i in range(30)]
    wide = glyph("x", width=12.0)
    stray = GlyphSample("x", (square(), square() + 0.1, square() + 0.2))
    assert clean_glyphs([*good, wide, stray]) == good


def test_bank_round_trip(tmp_path: Path) -> None:
    bank = pack_glyphs([glyph("b", "w", 0.5), glyph("a"), glyph("a", "w", 2.0)])
    bank.save(tmp_path / "bank.npz")
    again = load_bank(tmp_path / "bank.npz")
    assert again.classes == ("a", "b")
    assert again.writers.tolist() == [-1, 0, 0]
    assert np.array_equal(again.points, bank.points)
    assert np.array_equal(again.pen, bank.pen)
    assert again.extents().round(1).tolist() == [[2, 2], [2, 1], [1, 2]]


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", format=np.array("other"))
    with pytest.raises(DataError, match="other"):
        load_bank(tmp_path / "x.npz")
    with pytest.raises(DataError, match=r"x\.npz"):
        load_layouts(tmp_path / "x.npz")


def test_detexify_fills_what_inks_lack_and_look_alikes_the_rest(tmp_path: Path) -> None:
    rows = [{"symbol": s, "strokes": square().tolist()} for s in ("\\ast", "x", "\\dots")]
    text = "".join(json.dumps({**row, "strokes": [row["strokes"]]}) + "\n" for row in rows)
    (tmp_path / "d.jsonl.xz").write_bytes(lzma.compress(text.encode()))
    drawn = list(from_detexify(tmp_path / "d.jsonl.xz"))
    assert [g.label for g in drawn] == ["*", "x"]
    written = [glyph(s, "ann") for s in "xko.,"] * 2
    bank = build_bank(written, drawn, enough=2, generator=np.random.default_rng(0))
    counts = bank.counts()
    assert counts["x"] == 2 and counts["*"] == 1
    assert counts["K"] == counts["O"] == 2
    assert counts[":"] == counts[";"] == 400
    assert "D" not in counts
    assert counts["."] == counts["\\cdot"] == 2  # one shape, told apart by height alone


def test_root_hook_is_where_the_bar_begins() -> None:
    root = np.array([[0, 5], [2, 10], [4, 0], [20, 0.0]])
    bank = pack_glyphs([GlyphSample("\\sqrt", (root,)), glyph("x")])
    assert root_hooks(bank)[bank.labels == bank.classes.index("\\sqrt")] == pytest.approx(
        0.2, abs=0.01
    )
    assert root_hooks(bank).min() == 0


# Symbols and TeX source


def test_a_narrow_index_stands_over_the_hook() -> None:
    root = np.array([[0, 0.6], [0.2, 1], [0.35, 0], [1, 0]])
    line = np.array([[0.0, 0.0], [0.1, 1.0]])
    bank = pack_glyphs([GlyphSample("\\sqrt", (root,)), GlyphSample("i", (line,)), glyph("x")])
    tokens = words(r"\sqrt [ i ] { x }")
    slots = (
        Slot("\\sqrt", 0, Fit.ROOT, 0, 0.0, -0.8, 1.4, 1.0),
        Slot("i", 1, Fit.NATURAL, 0, 0.3, -0.4, 0.5, 0.0),
        Slot("x", 2, Fit.NATURAL, 0, 0.85, 0.0, 1.0, 0.0),
    )
    boxes = {"\\sqrt": (0.0, -0.8, 1.0, 0.2), "i": (0.0, -0.7, 0.2, 0.0)}
    boxes |= {"x": (0.0, -0.4, 0.5, 0.0)}
    layout = Layout(tuple(sat_split(tokens)), slots)
    layouts = pack_layouts([layout], {name: boxes[name] for name in bank.classes})
    style = replace(REAL, exchange_samples=0.0)
    composer = Composer(bank, layouts, build_tokenizer("sat", [tokens]), style=style)
    made = composer.compose(torch.zeros(20, dtype=torch.int64), torch.Generator().manual_seed(0))
    right = 0
    for sample in range(20):
        mine = made.ink.sample == sample
        slot, points = made.ink.glyph[mine] - 3 * sample, made.ink.points[mine]
        bar = float(points[slot == 0][2, 0])  # where the root's bar begins
        right += float(points[slot == 1][:, 0].mean()) < bar
    assert right >= 18


def test_classes_of_a_label() -> None:
    pairs = sat_split(words(r"\frac { \mathcal { A } } { 2 } & x"))
    assert drawn_classes(pairs) == ["-", None, "\\mathcal{A}", "2", None, "x"]
    assert fit_of("\\frac") is Fit.BAR and fit_of("-") is Fit.NATURAL


def test_script_depths_and_brackets() -> None:
    pairs = sat_split(words("( x ^ { 2 _ { i } } ) + [ a )"))
    assert [d for d, _ in script_depths(pairs)] == [0, 0, 1, 2, 0, 0, 0, 0, 0]
    assert [r for _, r in script_depths(pairs)] == [0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert matched_brackets(pairs) == {0: 4}


def test_limits_are_scripts_of_big_operators() -> None:
    pairs = sat_split(words(r"\sum _ { i = 1 } ^ { n ^ { 2 } } x ^ { 2 }"))
    assert sorted(limit_starts(pairs)) == [1, 4]


def test_every_symbol_is_marked() -> None:
    source = to_tex(sat_split(words(r"\frac { ( a ) } { \sqrt [ 3 ] { b } }")), random.Random(0))
    assert [f"\\m{i} " in source for i in range(7)] == [True] * 7
    assert "\\left(" in source and "\\right)" in source


@needs_tex
def test_typeset_ties_ink_to_tokens() -> None:
    label = words(r"\frac { x ^ { 2 } } { \sqrt { y } } = \sin z")
    pairs = sat_split(label)
    names = ("-", "x", "2", "\\sqrt", "y", "=", "\\sin", "z")
    boxes = class_boxes(names, Counter())
    dropped: Counter[str] = Counter()
    (layout,) = typeset([pairs], boxes, dropped)
    assert not dropped
    slots = {s.position: s for s in layout.slots}
    assert [slots[i].glyph for i in range(8)] == list(names)
    bar, x, two, root, y = (slots[i] for i in range(5))
    assert bar.fit is Fit.BAR and root.fit is Fit.ROOT
    assert two.a == pytest.approx(0.7) and two.y < x.y < bar.y < y.y
    assert root.x < y.x < root.x + root.a and root.y < y.y < root.y + root.b
    assert bar.x < x.x and bar.x + bar.a > root.x + root.a - 0.01
    assert boxes["-"][3] - boxes["-"][1] < 0.1  # ink, not TeX's loose box


@needs_tex
def test_what_tex_refuses_is_counted() -> None:
    dropped: Counter[str] = Counter()
    bad = [("a", ""), ("b", "^{}"), ("c", "^{}")]
    good = [("a", "")]
    assert len(list(typeset([bad, good], {"a": BOX, "b": BOX, "c": BOX}, dropped))) == 1
    assert dropped == {"TeX refused it": 1}


def test_broken_dvi_is_refused() -> None:
    with pytest.raises(DataError, match="opcode 0"):
        list(read_dvi(b"\x00", FontMetrics()))


# Formulas


def test_cuts_are_sides_and_contents() -> None:
    tokens = words(r"x ^ { 2 } = \frac { a + b } { c } , ( u = v )")
    assert [" ".join(part) for part in formula_parts(tokens)] == [
        "x ^ { 2 }",
        "a + b",
        "c",
        r"\frac { a + b } { c }",
        "( u = v )",
    ]


def test_clean_formulas_counts_every_drop() -> None:
    dropped: Counter[str] = Counter()
    lines = ["x+y", "x + y", r"\foo", "a", r"\mathbf{x}=1", "(x", "x^", "a+b=c"]
    kept = clean_formulas(lines, set("xyab=1+c()"), {"a + b = c"}, dropped)
    assert [" ".join(t) for t in kept] == ["x + y", "x = 1"]
    assert dropped["seen before"] == 1
    assert dropped["brackets cut in two"] == 1
    assert dropped["protected: in a validation or test set"] == 1
    assert sum(dropped.values()) == len(lines) - 2


def test_protected_labels_come_from_sets_and_tables(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    ink = '<ink><annotation type="truth">$a+b^2$</annotation><trace id="0">0 0, 1 1</trace></ink>'
    (tmp_path / "set" / "one.inkml").write_text(ink)
    (tmp_path / "t.tsv").write_text("id\tx _ 1 = 2\tprediction\n")
    labels = protected_labels([tmp_path / "set"], [tmp_path / "t.tsv"])
    assert is_protected(words("a + b ^ { 2 }"), labels)
    assert is_protected(words("x _ { 1 } = 2"), labels)
    assert not is_protected(words("a + b"), labels)
    assert not is_protected(words("a = b"), {"a = b"})  # three symbols are everybody's


def test_lengths_spread_around_the_median() -> None:
    formulas = [["x"] * (1 + i % 40) for i in range(8000)]
    chosen = [len(formulas[i]) for i in choose_lengths(formulas, 800)]
    assert len(chosen) == 800
    assert 8 <= np.median(chosen) <= 12


# Layouts


def test_layouts_round_trip(tmp_path: Path) -> None:
    bank = bank_of("x", "y", "2")
    one = packed_rows(bank, "x ^ { 2 }", "y")
    one.save(tmp_path / "l.npz")
    again = load_layouts(tmp_path / "l.npz")
    assert again.pairs(0) == [("x", ""), ("2", "^{}")]
    assert np.array_equal(again.geometry, one.geometry)
    assert again.pairs(1) == [("y", "")]


def labels_of(layouts: Layouts) -> list[str]:
    return [" ".join(symbol for symbol, _ in layouts.pairs(i)) for i in range(len(layouts))]


def test_formulas_keep_to_given_symbols() -> None:
    bank = bank_of("1", "a", "b", "x", "y")
    layouts = packed_rows(bank, "x y", "a", "x 1 y", "b x")
    kept = layouts.written_with({"x", "y", "1"})
    assert labels_of(kept) == ["x y", "x 1 y"]
    assert [kept.classes[g] for g in kept.glyph] == ["x", "y", "x", "1", "y"]
    assert np.array_equal(kept.geometry[:2], layouts.geometry[:2])
    with pytest.raises(DataError, match="none of the 4 layouts"):
        layouts.written_with({"1"})


def made_up_ink() -> Packed:
    """`x ^ { 2 }`: a unit square and a half-size one to its upper right."""
    points = np.concatenate([square(), square(0.5) + np.array([1.0, -0.5])]).astype(np.float32)
    return Packed(
        ids=["i"],
        sources=["s"],
        labels=["x ^ { 2 }"],
        writers=[""],
        points=points,
        pen=np.array([False] + [True] * 4 + [False] + [True] * 4),
        glyph=np.repeat([0, 1], 5).astype(np.int32),
        offsets=np.array([0, 10]),
        glyph_offsets=np.array([0, 2]),
        glyph_labels=["x", "2"],
        glyph_positions=np.array([0, 1], dtype=np.int16),
        agreement=np.zeros(1, dtype=np.int8),
    )


def test_real_layout_keeps_sizes_and_baselines() -> None:
    boxes = {"x": (0.0, -0.5, 0.5, 0.0), "2": (0.0, -0.5, 0.5, 0.0)}
    dropped: Counter[str] = Counter()
    (layout,) = real_layouts(made_up_ink(), boxes, (), dropped)
    x, two = layout.slots
    assert x.a == pytest.approx(1.0) and two.a == pytest.approx(0.5)
    assert x.y == pytest.approx(0.75) and two.y == pytest.approx(0.25)
    assert two.rise == 1 and not dropped
    unaligned = replace(made_up_ink(), glyph_positions=np.array([0, -1], dtype=np.int16))
    assert not list(real_layouts(unaligned, boxes, (), dropped))
    assert dropped == {"a symbol not found in the ink": 1}


def test_hand_boxes_follow_what_people_write() -> None:
    boxes = {"x": BOX, "2": BOX}
    wide = [Layout((("x", ""),), (Slot("x", 0, Fit.NATURAL, 0, 0, 0, 2.0, 0),))] * 30
    assert hand_boxes(wide, boxes) == {"x": (-0.25, -0.75, 0.75, 0.25), "2": BOX}


# Composition


def test_calm_composition_follows_the_layout() -> None:
    bank = bank_of("x", "y")
    label = "x y x"
    composer = Composer(bank, packed_rows(bank, label), tokenizer_of(label), style=CALM)
    out = composer.compose(torch.tensor([0, 0]), generator())
    assert out.ink.size == 2 and out.tokens.shape == (2, 3, 2)
    assert out.slot_position.tolist() == [0, 1, 2] * 2
    first = out.ink.points[out.ink.sample == 0]
    # Three squares of half an em, one em apart: 2.5 em wide, longer side scaled to 1.
    assert first.amin(0).tolist() == [0, 0]
    assert first.amax(0).tolist() == pytest.approx([1, 0.2], abs=0.02)
    middle = first[(out.ink.glyph[out.ink.sample == 0] == 1)]
    assert middle[:, 0].min().item() == pytest.approx(0.4, abs=0.02)
    assert (~out.ink.pen).sum().item() == 6


def test_same_seed_same_ink_other_seed_other_ink() -> None:
    bank = bank_of("x", "y", "1", "2")
    label = "x + 1".replace("+ ", "")
    composer = Composer(bank, packed_rows(bank, label), tokenizer_of("x y 1 2"))
    index = torch.zeros(4, dtype=torch.int64)
    one, two, three = (composer.compose(index, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(one.ink.points, two.ink.points) and torch.equal(one.tokens, two.tokens)
    assert not torch.equal(one.ink.points[:8], three.ink.points[:8])


def test_exchanged_symbols_are_relabelled() -> None:
    bank = bank_of("x", "y", "z", "1", "2", "+")
    label = "x ^ { 2 } + 1"
    tokenizer = tokenizer_of(label, "y z")
    composer = Composer(bank, packed_rows(bank, label), tokenizer, style=Style(exchange_samples=1))
    out = composer.compose(torch.zeros(200, dtype=torch.int64), generator())
    names = [bank.classes[c] for c in out.slot_class.tolist()]
    labels = [tokenizer.decode(row.numpy()) for row in out.tokens]
    for sample, tokens in enumerate(labels):
        written = names[4 * sample : 4 * sample + 4]
        assert [s for s, _ in sat_split(tokens)] == written
        assert written[0] in "xyz" and written[1] in "12" and written[2] == "+"
    assert len({tuple(tokens) for tokens in labels}) >= 6


def test_protected_formulas_are_never_written() -> None:
    bank = bank_of("x", "y", "1", "2")
    tokenizer = tokenizer_of("x y 1 2")
    free = packed_rows(bank, "x x 1 1")
    style = Style(exchange_samples=1, uniform_share=1)
    index = torch.zeros(2000, dtype=torch.int64)

    def written(layouts: Layouts) -> Counter[str]:
        composer = Composer(bank, layouts, tokenizer, style=style)
        out = composer.compose(index, generator())
        return Counter(" ".join(tokenizer.decode(row.numpy())) for row in out.tokens)

    assert written(free)["y y 2 1"] > 5
    guarded = written(replace(free, protected=("y y 2 1", "no such symbols here")))
    assert guarded["y y 2 1"] == 0
    assert guarded["y y 1 2"] > 5


def test_a_fraction_bar_is_not_exchanged_and_spans_its_content() -> None:
    line = GlyphSample("-", (np.array([[0, 0], [9, 0.1]]),))
    bank = pack_glyphs([glyph("x"), glyph("y"), line, glyph("+")])
    tokenizer = tokenizer_of(r"\frac { x } { y } + -")
    pairs = tuple(sat_split(words(r"\frac { x } { y }")))
    slots = (
        Slot("-", 0, Fit.BAR, 0, 0.0, -0.3, 1.0, 0.04),
        Slot("x", 1, Fit.NATURAL, 0, 0.25, -0.6, 1.0, 0.0),
        Slot("y", 2, Fit.NATURAL, 0, 0.25, 0.6, 1.0, 0.0),
    )
    layouts = pack_layouts([Layout(pairs, slots)], dict.fromkeys(bank.classes, BOX))
    style = replace(CALM, exchange_samples=1.0)
    out = Composer(bank, layouts, tokenizer, style=style).compose(
        torch.zeros(8).long(), generator()
    )
    assert (out.tokens[:, 0, 0] == tokenizer.vocabularies[0].id("\\frac")).all()
    bar = out.ink.points[out.ink.glyph == 0]
    rest = out.ink.points[(out.ink.glyph == 1) | (out.ink.glyph == 2)]
    assert bar[:, 0].min() < rest[:, 0].min() and bar[:, 0].max() > rest[:, 0].max()


def test_one_writer_where_the_bank_has_one() -> None:
    glyphs = [glyph(s, w, width) for s in "xyz" for w, width in (("ann", 0.5), ("bob", 1.0))]
    bank = pack_glyphs(glyphs)
    composer = Composer(
        bank,
        packed_rows(bank, "x y z"),
        tokenizer_of("x y z"),
        style=replace(CALM, same_writer=1.0),
    )
    out = composer.compose(torch.zeros(40, dtype=torch.int64), generator())
    widths = []
    for slot in range(len(out.slot_class)):
        box = out.ink.points[out.ink.glyph == slot]
        size = box.amax(0) - box.amin(0)
        widths.append(bool(size[0] > 0.75 * size[1]))
    hands = {tuple(widths[i : i + 3]) for i in range(0, len(widths), 3)}
    assert hands == {(True,) * 3, (False,) * 3}


def test_wide_glyphs_push_their_neighbours_apart() -> None:
    bank = pack_glyphs([glyph("x", width=1.0), glyph("m", width=4.0)])
    composer = Composer(bank, packed_rows(bank, "m m m"), tokenizer_of("m x"), style=CALM)
    out = composer.compose(torch.tensor([0]), generator())
    boxes = [out.ink.points[out.ink.glyph == slot] for slot in range(3)]
    assert boxes[0][:, 0].max() <= boxes[1][:, 0].min() + 1e-3
    assert boxes[1][:, 0].max() <= boxes[2][:, 0].min() + 1e-3


def test_source_makes_training_batches(tmp_path: Path) -> None:
    bank = bank_of("x", "y", "2")
    labels = "x ^ { 2 }", "y"
    boxes = dict.fromkeys(bank.classes, BOX)
    layouts = pack_layouts(map(row_layout, labels), boxes, origin="real", protected=["x y x y"])
    bank.save(tmp_path / "g.npz")
    layouts.save(tmp_path / "l.npz")
    tokenizer = tokenizer_of(*labels)
    device = torch.device("cpu")
    part = read_part(tmp_path / "l.npz")
    source = SynthSource.of([part], tmp_path / "g.npz", tokenizer, device)
    assert source.composer.styles == (REAL,) and len(source.composer.protected) == 1
    batch = source.sample([16], generator())
    assert batch.ink.size == len(batch.lengths) == 16
    assert len(batch.tokens) == int(batch.lengths.sum()) == len(batch.glyph_tokens)
    assert torch.equal(batch.tokens, batch.glyph_tokens)  # every token here has one glyph
    assert batch.glyph_places.tolist() == [k for n in batch.lengths.tolist() for k in range(n)]
    assert batch.ink.sample.unique().tolist() == list(range(16))
    assert read_part(tmp_path / "l.npz", {"slant": 0.0}).style == replace(REAL, slant=0.0)
    with pytest.raises(ConfigError, match="'slope' is unknown"):
        read_part(tmp_path / "l.npz", {"slope": 0.0})
    with pytest.raises(ConfigError, match=r"^exchange_samples is 40; it must be from 0 to 1$"):
        read_part(tmp_path / "l.npz", {"exchange_samples": 40})


def test_sources_of_one_bank_are_written_together(tmp_path: Path) -> None:
    bank = bank_of("x", "y", "2")
    boxes = dict.fromkeys(bank.classes, BOX)
    for name, labels in (("a", ["x ^ { 2 }", "y"]), ("b", ["x"])):
        layouts = pack_layouts(map(row_layout, labels), boxes, origin="real")
        layouts.save(tmp_path / f"{name}.npz")
    bank.save(tmp_path / "g.npz")
    (tmp_path / "inks").mkdir()
    (tmp_path / "inks" / "1.json").write_text("[[[0, 0], [1, 1]]]")
    (tmp_path / "inks" / "labels.tsv").write_text("1\ty\n")
    tokens = tokenizer_of("x ^ { 2 }", "y").to_dict()
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokens))
    still = {"exchange_samples": 0.0, "twin_samples": 0.0}
    of_bank = {"kind": "synth", "glyphs": str(tmp_path / "g.npz"), "style": still}
    known = str(tmp_path / "inks")  # whose only symbol is y
    config = TrainConfig(
        "t",
        (
            SourceConfig(str(tmp_path / "a.npz"), weight=1, symbols_of=known, **of_bank),
            SourceConfig(str(tmp_path / "inks"), weight=1),
            SourceConfig(str(tmp_path / "b.npz"), weight=2, **of_bank),
        ),
        tokenizer=str(tmp_path / "tokenizer.json"),
        batch=16,
        augment=None,
    )
    mixture, tokenizer, _ = load_sources(config, torch.device("cpu"), lambda line: None)
    assert mixture.stands_for == ((1,), (0, 2)) and mixture.counts == (4, 4, 8)
    batch = mixture.sample(generator())
    names = [tokenizer.vocabularies[0].token(i) for i in batch.tokens[:, 0].tolist()]
    assert names == ["y"] * 8 + ["x"] * 8


def test_each_part_is_written_in_its_own_style() -> None:
    bank, tokenizer = bank_of("x", "y"), tokenizer_of("x y")
    wide = dict.fromkeys(bank.classes, (0.0, -1.0, 2.0, 0.0))
    parts = [
        (packed_rows(bank, "x", "x y"), CALM),
        (pack_layouts([row_layout("x y")], wide), replace(CALM, gap=3.0, slant=0.0)),
        (packed_rows(bank, "x y x"), replace(CALM, padding=0.5)),
    ]
    first, style = parts[0]
    together = Composer(bank, first, tokenizer, style=style, more=parts[1:])
    assert len(together) == 4
    made = together.compose(torch.tensor([3, 1, 2]), generator())
    for sample, (number, index) in enumerate([(2, 0), (0, 1), (1, 0)]):
        layouts, style = parts[number]
        alone = Composer(bank, layouts, tokenizer, style=style).compose(
            torch.tensor([index]), generator()
        )
        points = made.ink.points[made.ink.sample == sample]
        assert torch.allclose(points, alone.ink.points, atol=1e-5)
        assert torch.equal(made.tokens[sample, : alone.lengths[0]], alone.tokens[0])
    drawn = together.compose_some([3, 0, 2], generator())
    assert drawn.lengths.tolist()[3:] == [3, 3] and max(drawn.lengths[:3]) <= 2


def test_photographs_carry_their_labels(tmp_path: Path) -> None:
    labels = "x + 2", "y = 2"
    bank = bank_of("x", "y", "2", "+", "=")
    boxes = dict.fromkeys(bank.classes, BOX)
    glyphs = tmp_path / "glyphs.npz"
    bank.save(glyphs)
    for kind in ("tex", "real"):
        layouts = pack_layouts(map(row_layout, labels), boxes, origin=kind)
        layouts.save(tmp_path / f"layouts-{kind}.npz")
    tokenizer = tokenizer_of(*labels)
    inks = list(write_for_photos(tmp_path, glyphs, tokenizer, 70, seed=1))
    assert len({s.id for s in inks}) == 70
    assert all(s.ink is not None and len(s.label.split()) == 3 for s in inks)
    one = next(photograph_inks(inks, seed=1))
    assert one.label == inks[0].label and one.ink != inks[0].ink
    some = list(write_for_photos(tmp_path, glyphs, tokenizer, 70, seed=1, struck=0.4))
    more = [len(b.ink.strokes) - len(a.ink.strokes) for a, b in zip(inks, some, strict=True)]
    assert [s.label for s in some] == [s.label for s in inks]
    assert 15 < sum(number > 1 for number in more) < 45  # a symbol and a line at least
    assert all(number in (0, *range(2, 20)) for number in more)


def test_layouts_of_another_bank_are_refused() -> None:
    with pytest.raises(DataError, match="another glyph bank"):
        Composer(bank_of("x"), packed_rows(bank_of("y"), "y"), tokenizer_of("y"))


def test_real_style_is_calmer() -> None:
    assert REAL.baseline_spread < Style().baseline_spread
    assert REAL.script_size == 1.0
