"""What the synthesiser offers to anybody: grammar, traced glyphs, inks and pictures of formulas."""

import io
import json
import re
import shutil
import signal
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from PIL import Image, ImageDraw
from typer.testing import CliRunner

from gryphone.cli import synth
from gryphone.data.packed import Packed
from gryphone.data.packing import write_packed
from gryphone.data.samples import Sample
from gryphone.errors import ConfigError, DataError
from gryphone.ink import Ink
from gryphone.latex.normalize import normalize
from gryphone.latex.validity import check
from gryphone.raster import InkBatch
from gryphone.reading.inkml import read_inkml
from gryphone.studies.realism import features_of, patch_features, train_classifier, write_again
from gryphone.synth.build import counted, save_tokenizer
from gryphone.synth.compose import Composer
from gryphone.synth.formula_grammar import FormulaGrammar, Widening, tree_tokens
from gryphone.synth.formulas import as_written
from gryphone.synth.glyphs import GlyphSample, pack_glyphs
from gryphone.synth.layouts import Layout, Slot, load_layouts, pack_layouts
from gryphone.synth.offline import LabelledBox, from_images
from gryphone.synth.paper import Paper, random_paper, random_scan, render_page
from gryphone.synth.style import Style
from gryphone.synth.symbols import DIGITS, GREEK, LOWER, TWINS, Fit, words
from gryphone.synth.texlayout import matched_brackets
from gryphone.synth.write import Pen, write
from gryphone.tokens import build_tokenizer, sat_join, sat_split

needs_tex = pytest.mark.skipif(shutil.which("latex") is None, reason="TeX is not installed")
BOX = (0.0, -0.5, 0.5, 0.0)
CLASSES = words(r"x y 1 2 + = ( ) | \binom - \sqrt")
ZIGZAG = np.array([[0, 0], [1, 1], [2, 0], [3, 1.0]])


def pen(*protected: str) -> Pen:
    bank = pack_glyphs([GlyphSample(name, (ZIGZAG,), "ann") for name in CLASSES])
    return Pen(bank, dict.fromkeys(bank.classes, BOX), frozenset(protected))


# FormulaGrammar

LABELS = [words(t) for t in (r"\frac { x } { 2 } + y = 1", r"x ^ { 2 } - y", r"\sqrt { x + 1 }")]
SYMBOLS = set(words(r"\frac \sqrt x y z 1 2 + - = < \leq \hat \begin{matrix} & \\ \end{matrix}"))


def test_grammar_collects_rows_by_role() -> None:
    grammar = FormulaGrammar.fit(LABELS, SYMBOLS | {"(", ")", "|"}, Widening())
    rows = {
        role: [" ".join(tree_tokens(row)) for row in rows] for role, rows in grammar.pools.items()
    }
    assert rows["\\frac0"] == ["x"] and rows["\\frac1"] == ["2"] and rows["sup"] == ["2"]
    assert rows["\\sqrt0"] == ["x + 1"]
    assert rows["term"][:3] == [r"\frac { x } { 2 }", "y", "1"]


def test_grammar_writes_what_no_context_foretells() -> None:
    letters = {*DIGITS, *LOWER, *GREEK}
    symbols = SYMBOLS | letters | {"\\cos", "\\sin", "\\div", "[", "]"}
    made = []
    for share in (0.0, 1.0):
        grammar = FormulaGrammar.fit(LABELS, symbols, Widening(plain=share, join=0.0, spiced=0.0))
        made.append([" ".join(tokens) for tokens in islice(grammar.formulas(seed=0), 2000)])
    assert not any(text.startswith(("\\cos", "\\sin")) or "\\div" in text for text in made[0])
    for tokens in made[1]:
        check(tokens.split())
    behind = {text.split()[1] for text in made[1] if text.startswith("\\cos")}
    assert {"0", "9", "\\theta"} < behind and len(behind & set(LOWER)) > 20
    forms = (r"\w \^ { \w \w }", r"\\sqrt { \w }", r"\\sqrt \[ \w \] { \w }", r"\w \\div \w")
    for form in forms:
        assert sum(bool(re.fullmatch(form, text)) for text in made[1]) > 20, form


def test_grammar_makes_new_valid_formulas_of_known_symbols() -> None:
    symbols = SYMBOLS | {"(", ")", "[", "]", "|"}
    grammar = FormulaGrammar.fit(LABELS, symbols, Widening(matrix=0.1, longest=20))
    made = list(islice(grammar.formulas(seed=1), 300))
    assert made == list(islice(grammar.formulas(seed=1), 300))
    for tokens in made:
        check(tokens)
        pairs = sat_split(tokens)
        assert 2 <= len(pairs) <= 20 and all(s in symbols for s, _ in pairs)
    seen = Counter(token for tokens in made for token in tokens)
    assert len({tuple(t) for t in made}) > 100
    assert min(seen[s] for s in ("z", "\\leq", "\\hat", "\\begin{matrix}", "[")) >= 3


def test_norms_and_fenced_matrices_are_written_with_plain_signs() -> None:
    assert as_written(words(r"\| x \|")) == ["|", "|", "x", "|", "|"]
    fenced = normalize(r"\begin{vmatrix} x \end{vmatrix}")
    assert fenced == [*words(r"| \begin{matrix} x \end{matrix} |")]
    double = sat_split(words("| | x | |"))
    assert matched_brackets(double) == {1: 3, 0: 4}
    around = sat_split(words(r"( \begin{matrix} ( x \\ y \end{matrix} )"))
    assert matched_brackets(around) == {0: 7}


# Twins and letters


def test_twins_differ_in_size_or_height_alone_and_are_relabelled() -> None:
    bank = pack_glyphs([GlyphSample(s, (ZIGZAG,)) for s in ("x", "X", "1", ".", "\\cdot")])
    tokenizer = build_tokenizer("sat", [["x", "X", "1", ".", "\\cdot"]])
    slots = tuple(
        Slot(s, at, Fit.NATURAL, 0, float(at), 0.0, 1.0, 0.0) for at, s in enumerate("x.1")
    )
    layout = Layout((("x", ""), (".", ""), ("1", "")), slots)
    layouts = pack_layouts([layout], dict.fromkeys(bank.classes, BOX))
    style = Style(exchange_samples=0.0, twin_samples=1.0)
    made = Composer(bank, layouts, tokenizer, style=style).compose(
        torch.zeros(200, dtype=torch.int64), torch.Generator().manual_seed(0)
    )
    labels = Counter(" ".join(tokenizer.decode(row.numpy())) for row in made.tokens)
    assert set(labels) == {f"{x} {dot} 1" for x in "xX" for dot in (".", "\\cdot")}
    assert min(labels.values()) > 25
    names = [bank.classes[c] for c in made.slot_class.tolist()]
    assert " ".join(names[:3]) in labels
    assert all(one != other for one, other in TWINS)


# Traced glyphs


def page_with(*boxes: tuple[int, int, int, int]) -> bytes:
    picture = Image.new("L", (200, 80), 255)
    draw = ImageDraw.Draw(picture)
    for x0, y0, x1, y1 in boxes:
        draw.line((x0, y0, x1, y1), fill=0, width=4)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def test_boxes_give_traced_glyphs_and_touching_ones_are_dropped() -> None:
    image = page_with((20, 20, 20, 60), (60, 40, 100, 40), (100, 40, 160, 40))
    boxes = {
        "7": [
            LabelledBox("|", 16, 18, 24, 62),
            LabelledBox("-", 58, 36, 102, 44),  # runs on into the next box
            LabelledBox("x", 170, 10, 190, 30),
        ]
    }
    dropped: Counter[str] = Counter()
    found = list(from_images([Sample("7", "made-up", None, image=image)], boxes, dropped))
    assert [g.label for g in found] == ["|"]
    (stroke,) = found[0].strokes
    assert np.ptp(stroke[:, 1]) == pytest.approx(40, abs=5) and np.ptp(stroke[:, 0]) < 2
    assert dropped == {"written together with a neighbour": 1, "no ink in the box": 1}


# Paper


def test_clean_paper_is_black_on_white() -> None:
    draw = np.random.default_rng(0)
    picture = np.asarray(render_page([ZIGZAG * 10], Paper(), draw))
    assert picture.max() == 255 and picture.min() == 0
    assert 0.02 < (picture < 128).mean() < 0.3


def test_thicker_pens_leave_more_ink_and_light_is_uneven() -> None:
    thin, thick = (
        (
            np.asarray(render_page([ZIGZAG], Paper(thickness=t), np.random.default_rng(0))) < 128
        ).sum()
        for t in (2.0, 5.0)
    )
    assert thick > 1.8 * thin
    shaded = np.asarray(render_page([ZIGZAG], Paper(light=0.5), np.random.default_rng(0)))
    corners = shaded[[2, 2, -3, -3], [2, -3, 2, -3]]
    assert int(corners.max()) - int(corners.min()) > 30


def test_random_pages_repeat_with_their_seed_and_bad_paper_is_refused() -> None:
    one, two = (
        np.asarray(
            render_page([ZIGZAG], random_paper(np.random.default_rng(s)), np.random.default_rng(s))
        )
        for s in (4, 4)
    )
    assert np.array_equal(one, two) and one.std() > 5
    dot = np.asarray(render_page([np.zeros((1, 2))], Paper(), np.random.default_rng(0)))
    assert (dot < 128).any()
    with pytest.raises(ConfigError, match="dotted"):
        Paper(lines="dotted")
    with pytest.raises(ConfigError, match="jpeg is 101"):
        Paper(jpeg=101)


def drawn(strokes: list[np.ndarray], seed: int = 0, **paper: float) -> np.ndarray:
    """Darkness of a page, 0 to 255."""
    picture = render_page(strokes, Paper(**paper), np.random.default_rng(seed))  # type: ignore[arg-type]
    return 255 - np.asarray(picture).astype(int)


def test_pencils_fade_along_their_strokes_most_of_all_at_the_end() -> None:
    line = [np.array([[0.0, 0.0], [1.0, 0.0]])]
    plain = drawn(line, symbol=100).max(axis=0)
    faded = np.mean([drawn(line, seed, symbol=100, fade=0.8).max(axis=0) for seed in range(20)], 0)
    inked = np.flatnonzero(plain > 128)
    assert plain[inked[2:-2]].min() == 255
    middle = faded[inked[40:60]].mean()
    assert 150 < middle < 240
    assert faded[inked[-6:-2]].mean() < 0.7 * middle
    assert faded[inked[-6:-2]].mean() < faded[inked[2:6]].mean() < middle


def test_a_faint_stroke_does_not_wipe_out_what_it_crosses() -> None:
    long, short = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[0.4, 0.6], [0.6, 0.4]])
    for seed in range(5):
        alone, crossed = (drawn(ink, seed, fade=0.9) for ink in ([long], [long, short]))
        assert (crossed >= alone).all() and (crossed > alone).any()


def test_specks_lie_apart_and_white_paper_swallows_faint_ink() -> None:
    clean, dusty = (
        sum(int((drawn([ZIGZAG], s, specks=d) > 60).sum()) for s in range(5)) for d in (0, 9)
    )
    assert 1.02 * clean < dusty < 2 * clean
    assert drawn([ZIGZAG], ink=0.05).max() == 13
    assert drawn([ZIGZAG], ink=0.05, white=1.06).max() == 0
    assert drawn([ZIGZAG], ink=0.5, white=1.06).max() > 110


def test_compression_and_tooth_leave_their_grain() -> None:
    plain, rough = (drawn([ZIGZAG], thickness=8.0, tooth=t) for t in (0.0, 0.3))
    inside = plain == 255
    assert rough[~(plain > 0)].max() == 0 and rough[inside].std() > 20
    squeezed = drawn([ZIGZAG], thickness=8.0, jpeg=40)
    assert squeezed.shape == plain.shape and 0 < np.abs(squeezed - plain).mean() < 8


def test_scans_are_of_dark_pens_and_of_pencils() -> None:
    papers = [random_scan(np.random.default_rng(seed)) for seed in range(300)]
    assert papers[5] == random_scan(np.random.default_rng(5))
    pencils = [paper for paper in papers if paper.fade > 0.25]
    pens = [paper for paper in papers if paper.fade <= 0.25]
    assert 0.4 < len(pencils) / len(papers) < 0.6
    for size in ("ink", "thickness"):
        thin, thick = (np.mean([getattr(p, size) for p in group]) for group in (pencils, pens))
        assert thin < 0.95 * thick
    assert all(p.thickness < 0.2 * p.symbol and not p.tilt and p.jpeg for p in papers)


# Writing


@needs_tex
def test_formulas_become_labelled_inks() -> None:
    refused: list[tuple[int, str]] = []
    formulas = ["x^2+y=1", r"\binom{x}{2}", "x+y=1 1", r"\foo", "{"]
    inks = list(write(formulas, pen("x + y = 1 1"), refused, count=2, seed=1))
    assert [number for number, _ in inks] == [0, 0, 1, 1]
    ink = inks[0][1]
    assert ink.label == "x ^ { 2 } + y = 1"
    assert [g.label for g in ink.glyphs] == ["x", "2", "+", "y", "=", "1"]
    assert sorted(number for number, _ in refused) == [2, 3, 4]
    assert "protected" in dict(refused)[2] and "\\foo" in dict(refused)[3]


def app() -> typer.Typer:
    program = typer.Typer()
    program.callback()(lambda: None)
    synth.register(program)
    return program


@needs_tex
def test_more_layouts_of_the_grammar_for_a_packed_folder(tmp_path: Path) -> None:
    bank = pack_glyphs([GlyphSample(name, (ZIGZAG,), "ann") for name in CLASSES * 10])
    bank.save(tmp_path / "glyphs.npz")
    layout = Layout((("x", ""),), (Slot("x", 0, Fit.NATURAL, 0, 0.0, 0.0, 1.0, 0.0),))
    boxes = dict.fromkeys(bank.classes, BOX)
    pack_layouts([layout], boxes, origin="real").save(tmp_path / "layouts-real.npz")
    label = words(r"x ^ { 2 } + y = \sqrt { 1 } - \sqrt [ x ] { y }")
    save_tokenizer(
        build_tokenizer("sat", [label, words("x ^ { y 1 }")]), tmp_path / "tokenizer.json"
    )
    sample = Sample("1", "train", " ".join(label), ink=Ink((ZIGZAG,)))
    write_packed([sample], tmp_path / "train.parquet")
    out = tmp_path / "plain.npz"
    call = ["synth", "grammar", str(tmp_path), "--out", str(out), "--count", "30", "--json"]
    result = CliRunner().invoke(app(), call)
    assert result.exit_code == 0, result.output
    made = load_layouts(out)
    assert json.loads(result.stdout)["kept"] == {"layouts of the grammar": len(made)}
    labels = {" ".join(sat_join(made.pairs(i))) for i in range(len(made))}
    assert any("^" in text for text in labels) and any("\\sqrt" in text for text in labels)
    assert made.classes == bank.classes and made.origin == "tex"


@needs_tex
@pytest.mark.parametrize(("kind", "suffix"), [("inkml", "inkml"), ("png", "png"), ("photo", "jpg")])
def test_command_writes_files_and_labels(tmp_path: Path, kind: str, suffix: str) -> None:
    made = pen()
    made.bank.save(tmp_path / "packed" / "glyphs.npz")
    layout = Layout((("x", ""),), (Slot("x", 0, Fit.NATURAL, 0, 0.0, 0.0, 1.0, 0.0),))
    pack_layouts([layout], made.boxes, origin="real").save(tmp_path / "packed/layouts-real.npz")
    (tmp_path / "f.txt").write_text("x+y\n\n\\foo\n")
    arguments = ["synth", str(tmp_path / "f.txt"), "--out", str(tmp_path / "out"), "--json"]
    arguments += ["--packed", str(tmp_path / "packed"), "--count", "2", "--format", kind]
    result = CliRunner().invoke(app(), arguments)
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["inks"] == 2 and [r["line"] for r in facts["refused"]] == [2]
    rows = [line.split("\t") for line in (tmp_path / "out/labels.tsv").read_text().splitlines()]
    assert [label for _, label in rows] == ["x + y"] * 2
    files = [tmp_path / "out" / f"{name}.{suffix}" for name, _ in rows]
    if kind == "inkml":
        assert read_inkml(files[0]).label == "x + y"
    else:
        with Image.open(files[0]) as picture:
            assert picture.width > 60


def test_command_errors_name_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("x\n")
    start = ["synth", str(tmp_path / "f.txt"), "--out", str(tmp_path / "o")]
    result = CliRunner().invoke(app(), [*start, "--packed", str(tmp_path)])
    assert isinstance(result.exception, DataError) and "synth build" in str(result.exception)
    result = CliRunner().invoke(app(), [*start, "--format", "gif"])
    assert isinstance(result.exception, ConfigError)
    (tmp_path / "f.txt").write_text("\n")
    assert isinstance(CliRunner().invoke(app(), start).exception, DataError)


def test_a_stopped_build_has_said_what_it_did_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*paths: Path) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("gryphone.synth.build.read_dataset", stop)
    result = CliRunner().invoke(app(), ["synth", "build", str(tmp_path), str(tmp_path)])
    assert result.exit_code == 130
    assert result.stderr.splitlines() == [
        "reading ...",
        "cutting symbols out of CROHME's training ink ...",
        f"gryphone: stopped; {tmp_path} is as it was",
    ]
    assert not list(tmp_path.iterdir())


def test_long_work_is_counted() -> None:
    said: list[str] = []
    assert list(counted(iter(range(5)), 2, "images", said.append)) == [0, 1, 2, 3, 4]
    assert said == ["  2 images", "  4 images"]


# Realism


def corner_eyes(batch: InkBatch) -> torch.Tensor:
    """Points of each ink, and a constant."""
    counts = torch.bincount(batch.sample, minlength=batch.size).float()
    return torch.stack([counts, torch.ones(batch.size)], 1)


def test_judge_tells_what_its_eyes_can_see() -> None:
    lines = InkBatch.from_strokes([[ZIGZAG]] * 70)
    longer = InkBatch.from_strokes([[np.concatenate([ZIGZAG, ZIGZAG])]] * 70)
    real, synthetic = features_of(corner_eyes, lines), features_of(corner_eyes, longer)
    assert real.shape == (70, 2) and real[:, 0].unique().tolist() == [4]
    judge = train_classifier(real, synthetic)
    assert (judge(real) > 0).all() and (judge(synthetic) <= 0).all()
    blind = train_classifier(real, real)
    assert blind(real).abs().max() < 1e-3


def test_patch_eyes_see_shapes_at_any_size() -> None:
    cross = [np.array([[0, 0], [1, 1.0]]), np.array([[0, 1], [1, 0.0]])]
    bar = [np.array([[0, 0], [0, 1.0]])]
    batch = InkBatch.from_strokes([cross, [s * 7 for s in cross], bar])
    seen = patch_features(batch, words=16)(batch)
    assert seen.shape == (3, 16)
    assert seen.square().sum(1).tolist() == pytest.approx([1, 1, 1])
    assert torch.allclose(seen[0], seen[1]) and not torch.allclose(seen[0], seen[2])


def test_the_same_labels_are_written_again_in_real_boxes() -> None:
    points = np.concatenate([ZIGZAG, ZIGZAG + 4]).astype(np.float32)
    packed = Packed(
        ids=["a"],
        sources=["s"],
        labels=["x y"],
        writers=[""],
        points=points / points.max(),
        pen=np.array([False, True, True, True] * 2),
        glyph=np.repeat([0, 1], 4).astype(np.int32),
        offsets=np.array([0, 8]),
        glyph_offsets=np.array([0, 2]),
        glyph_labels=["x", "y"],
        glyph_positions=np.array([0, 1], dtype=np.int16),
        agreement=np.zeros(1, dtype=np.int8),
    )
    made = pen()
    twins = write_again(
        packed, made.bank, made.boxes, Style(), "real", torch.Generator().manual_seed(0)
    )
    assert twins.rows == (0,)
    assert twins.real.size == twins.synthetic.size == 1
    assert len(twins.synthetic.points) == len(twins.real.points) == 8
