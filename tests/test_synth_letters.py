"""Letters of known writers: their hands and sizes in the glyph bank and in validation sets."""

import json
import lzma
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from gryphone.cli import make_app
from gryphone.data.packed import read_packed
from gryphone.errors import DataError
from gryphone.scoring.metrics import Sample
from gryphone.studies import hands, letters
from gryphone.synth.compose import Composer
from gryphone.synth.glyph_sources import MOST_LETTERS, from_letters, is_held_out, with_letters
from gryphone.synth.glyphs import GlyphSample, load_bank, near_writers, pack_glyphs
from gryphone.synth.layouts import Layout, Slot, pack_layouts
from gryphone.synth.style import REAL
from gryphone.synth.symbols import Fit
from gryphone.tokens import build_tokenizer, sat_split

RING = [[int(100 + 100 * np.cos(a)), int(100 + 100 * np.sin(a))] for a in np.linspace(0, 6.4, 30)]
NAMES = [f"tos-{n}" for n in range(40)]
OUT = next(n for n in NAMES if is_held_out(f"unipen {n}"))
IN = next(n for n in NAMES if not is_held_out(f"unipen {n}"))


def row(char: str, writer: str, height: int = 500, **more: object) -> dict[str, object]:
    strokes = [[[0, 0], [200, height]], [[200, 0], [0, height]]]
    return {"char": char, "writer": writer, "strokes": strokes, **more}


def folder(path: Path, rows: list[dict[str, object]], name: str = "unipen") -> Path:
    text = "".join(json.dumps(one) + "\n" for one in rows)
    (path / f"{name}.jsonl.xz").write_bytes(lzma.compress(text.encode()))
    return path


def found(path: Path, dropped: Counter[str] | None = None) -> list[GlyphSample]:
    return list(from_letters(path, Counter() if dropped is None else dropped))


def test_sizes_and_lines_are_those_of_the_writer(tmp_path: Path) -> None:
    rows = [row("x", IN, 250), row("p", IN, 400), row("X", IN, y=-520), row("+", IN)]
    stands = {glyph.label: glyph.stand for glyph in found(folder(tmp_path, rows))}
    assert stands["x"] == (-0.5, 0.0) and stands["+"] == (0.0, 0.0)
    assert stands["p"] == pytest.approx((-0.36, 0.44))  # 55 % of it are below the line
    assert stands["X"] == pytest.approx((-1.04, -0.04))  # where it was


def test_a_tenth_of_the_writers_is_for_validation_alone(tmp_path: Path) -> None:
    share = np.mean([is_held_out(f"unipen tos-{n}") for n in range(2000)])
    assert 0.08 < share < 0.12
    path = folder(tmp_path, [row("x", OUT), row("x", IN)])
    assert [g.writer for g in found(path)] == [f"unipen {IN}"]
    held = list(from_letters(path, Counter(), held_out=True))
    assert [g.writer for g in held] == [f"unipen {OUT}"]


def test_nobody_dominates_and_faults_are_left_out(tmp_path: Path) -> None:
    slashed = {"char": "0", "writer": IN, "strokes": [RING, [[0, 200], [200, 0]]]}
    plain = {"char": "0", "writer": IN, "strokes": [RING]}
    rows = [row("e", IN)] * (3 * MOST_LETTERS) + [slashed, plain, row("@", IN), row("'", IN)]
    folder(tmp_path, [row("\\epsilon", "unknown"), row("\\in", "unknown")], "mathbrush")
    dropped: Counter[str] = Counter()
    labels = Counter(g.label for g in found(folder(tmp_path, rows), dropped))
    assert labels == {"e": MOST_LETTERS, "0": 1, "\\prime": 1, "\\in": 1}
    assert dropped["a zero with a slash"] == 1 and dropped["no mathematics"] == 1
    assert dropped["one of many by its writer"] == 2 * MOST_LETTERS
    nobody = next(g for g in found(tmp_path) if g.label == "\\in")
    assert nobody.writer is None and nobody.stand == (0.0, 0.0)


def test_what_is_no_letter_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no letters"):
        found(tmp_path)
    with pytest.raises(DataError, match=r"unipen.jsonl.xz, line 2: not a character"):
        found(folder(tmp_path, [row("x", IN), {"char": "x"}]))


def test_letters_join_a_bank_on_the_command_line(tmp_path: Path) -> None:
    line = (np.array([[0.0, 0.0], [1.0, 2.0]]),)
    pack_glyphs([GlyphSample("x", line, "ann")]).save(tmp_path / "glyphs.npz")
    folder(tmp_path, [row("x", IN, 250), row("@", IN), row("x", OUT)])
    out = tmp_path / "more.npz"
    call = ["synth", "letters", str(tmp_path / "glyphs.npz"), str(tmp_path), "--out", str(out)]
    assert CliRunner().invoke(make_app(), call).exit_code == 0
    bank = load_bank(out)
    assert bank.writers.tolist() == [0, 1]
    assert bank.stands.tolist() == [[0.0, 0.0], [-0.5, 0.0]]


def test_new_hands_are_those_of_held_out_writers_alone(tmp_path: Path) -> None:
    line = (np.array([[0.0, 0.0], [1.0, 2.0]]),)
    bank = pack_glyphs([GlyphSample("x", line, "ann"), GlyphSample("y", line, "bob")])
    folder(tmp_path, [row("x", IN), row("x", OUT)])
    new = hands.new_hands(bank, None, tmp_path)
    assert new.writers.tolist() == [-1, 0, -1]  # ann's x, the held-out one, bob's y
    assert new.stands[1].tolist() == [-1.0, 0.0]


def test_letters_are_written_at_their_own_size_on_the_line(tmp_path: Path) -> None:
    """Every class has one printed box; only the writer's sizes tell x from X."""
    rows = [row("x", IN, 250), row("X", IN, 500), row("p", IN, 400)]
    line = (np.array([[0.0, 0.0], [1.0, 1.0]]),)
    ours = pack_glyphs([GlyphSample(c, line) for c in ("X", "p", "x")])
    bank = with_letters(ours, folder(tmp_path, rows), Counter())
    slots = [Slot(c, i, Fit.NATURAL, 0, i, 0.0, 1.0, 0.0) for i, c in enumerate("Xxp")]
    layout = Layout(tuple(sat_split(["X", "x", "p"])), tuple(slots))
    boxes = dict.fromkeys(bank.classes, (0.0, -0.7, 0.5, 0.0))
    quiet = dict.fromkeys(
        ("exchange_samples", "twin_samples", "size_spread", "baseline_spread"), 0.0
    )
    quiet |= dict.fromkeys(("slope_spread", "wave", "rotation", "mess", "size_spread"), 0.0)
    style = replace(REAL, one_writer=1.0, same_writer=1.0, **quiet)
    composer = Composer(
        bank, pack_layouts([layout], boxes), build_tokenizer("sat", [["X", "x", "p"]]), style=style
    )
    made = composer.compose(torch.tensor([0]), torch.Generator().manual_seed(0))
    y = [made.ink.points[made.ink.glyph == slot, 1] for slot in range(3)]
    high = float(y[0].max() - y[0].min())
    assert float(y[1].max() - y[1].min()) / high == pytest.approx(0.5, abs=0.02)
    assert float(y[1].max()) == pytest.approx(float(y[0].max()), abs=0.02)  # one line
    assert float(y[2].max() - y[0].max()) / high == pytest.approx(0.44, abs=0.03)  # below it


def test_what_a_writer_lacks_comes_from_a_similar_hand() -> None:
    def glyph(label: str, writer: str, slant: float) -> GlyphSample:
        stroke = np.array([[slant, 0.0], [0.0, 2.0], [0.5, 2.0 + slant / 9]])
        return GlyphSample(label, (stroke,), writer)

    people = {"ann": 1.5, "bob": -1.5, "cyd": 1.4}
    glyphs = [glyph(c, w, s) for w, s in people.items() for c in "abcdefgh" for _ in range(5)]
    glyphs += [glyph("z", "bob", -1.5), glyph("z", "cyd", 1.4), glyph("y", "ann", 1.5)]
    bank = pack_glyphs(glyphs)
    near = near_writers(bank, 2)
    ann, z = 0, bank.classes.index("z")
    assert near[:, ann, z].tolist() == [2, 1]  # cyd leans as ann does
    assert (near[:, ann, bank.classes.index("y")] == ann).all()
    assert near[1, 1, bank.classes.index("y")] == 3  # nobody but ann has it


def test_validation_sets_are_of_held_out_writers(tmp_path: Path) -> None:
    rows = [row(c, OUT, 250 if c.islower() else 500) for c in "abcdefXYZUVW"] + [row("q", IN)]
    folder(tmp_path, rows)
    letters.main(["pairs", str(tmp_path), str(tmp_path / "pairs.parquet"), "--count", "20"])
    pairs = read_packed(tmp_path / "pairs.parquet")
    assert len(pairs) == 20 and all(len(label.split()) == 2 for label in pairs.labels)
    assert not any("q" in label for label in pairs.labels)
    at = next(i for i, p in enumerate(pairs.labels) if p[0].islower() and p[2].isupper())
    points = slice(pairs.offsets[at], pairs.offsets[at + 1])
    y, owner = pairs.points[points, 1], pairs.glyph[points]
    heights = [np.ptp(y[owner == g]) for g in np.unique(owner)]
    assert heights[0] / heights[1] == pytest.approx(0.5, abs=0.03)
    lone = ["lone", str(tmp_path), str(tmp_path / "lone.parquet"), "--count", "5"]
    letters.main(lone)
    assert all(label in "abcdefXYZUVW" for label in read_packed(tmp_path / "lone.parquet").labels)
    letters.main([*lone, "--training"])
    assert set(read_packed(tmp_path / "lone.parquet").labels) == {"q"}


def test_scores_with_and_without_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = (("x Y", "xY"), ("a b", "aB"), ("c d", "e d"), ("u v", "u_{V}"))
    answers = [Sample(str(i), truth, read) for i, (truth, read) in enumerate(pairs)]
    expected = {"right": 25.0, "right but for case": 50.0, "the right letters": 75.0}
    assert letters.score(answers) == {**expected, "the right case, of those": 100 / 3}
    (tmp_path / "a.tsv").write_text("".join(f"{i}\t{a}\t{b}\n" for i, (a, b) in enumerate(pairs)))
    letters.main(["score", str(tmp_path / "a.tsv")])
    assert " 75.0 % the right letters" in capsys.readouterr().out
