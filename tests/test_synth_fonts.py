"""Handwriting fonts as further hands of the glyph bank."""

from collections import Counter
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pytest
from fontTools.ttLib import TTFont
from PIL import ImageFont
from typer.testing import CliRunner

from gryphone.cli import make_app
from gryphone.data.packed import read_packed
from gryphone.data.packing import write_packed
from gryphone.data.samples import Sample
from gryphone.errors import DataError
from gryphone.ink import Ink
from gryphone.studies import hands
from gryphone.synth import fonts
from gryphone.synth.build import save_tokenizer
from gryphone.synth.fonts import from_fonts, with_fonts
from gryphone.synth.glyphs import GlyphBank, GlyphSample, join_banks, load_bank, pack_glyphs
from gryphone.synth.layouts import Layout, Slot, pack_layouts
from gryphone.synth.symbols import Fit
from gryphone.tokens import build_tokenizer, sat_split


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One font (the one inside Pillow), a file that only looks like one, and another file."""
    folder = tmp_path / "fonts"
    folder.mkdir()
    (folder / "plain.ttf").write_bytes(ImageFont.load_default(20).font_bytes)
    (folder / "broken.otf").write_bytes(b"no font")
    (folder / "licence.txt").write_text("free")
    return folder


def line(label: str, writer: str | None, end: tuple[float, float] = (1.0, 2.0)) -> GlyphSample:
    return GlyphSample(label, (np.array([[0.0, 0.0], end]),), writer)


def written(bank: GlyphBank) -> list[tuple[str, int]]:
    return [
        (bank.classes[c], w)
        for c, w in zip(bank.labels.tolist(), bank.writers.tolist(), strict=True)
    ]


def test_every_text_in_a_font_is_one_glyph_by_one_writer(folder: Path) -> None:
    dropped = Counter[str]()
    found = list(from_fonts(folder, dropped))
    assert {g.label for g in found} == set(fonts.TEXTS.values())
    assert {g.writer for g in found} == {"font plain"}
    assert dropped == {"font unreadable or without letters": 1}


def test_outlines_become_lines(folder: Path) -> None:
    glyphs = {g.label: g.strokes for g in from_fonts(folder, Counter())}
    assert [len(glyphs[c]) for c in "1CSz="] == [1, 1, 1, 1, 2]
    bar = np.concatenate(glyphs["|"])
    assert np.ptp(bar[:, 0]) < 0.1 * np.ptp(bar[:, 1])  # one line, not the rim of a rectangle


def test_fonts_with_capitals_only_are_left_out(folder: Path) -> None:
    with TTFont(folder / "plain.ttf") as font:
        for table in font["cmap"].tables:
            table.cmap |= {ord(c): table.cmap[ord(c.upper())] for c in ascii_lowercase}
        font.save(folder / "plain.ttf")
    dropped = Counter[str]()
    assert list(from_fonts(folder, dropped)) == []
    assert dropped == {
        "font with capitals only": 1,
        "font unreadable or without letters": 1,  # as before
    }


def test_joined_banks_keep_their_hands_apart() -> None:
    ours = pack_glyphs([line("b", "ann"), line("b", None), line("x", "ann"), line("x", "bob")])
    theirs = pack_glyphs([line("x", "zoe", (2.0, 1.0)), line("b", "zoe"), line("other", "zoe")])
    both = join_banks(ours, theirs)
    assert both.classes == ours.classes
    assert written(both) == [("b", -1), ("b", 0), ("b", 2), ("x", 0), ("x", 1), ("x", 2)]
    last = both.points[both.offsets[5] : both.offsets[6]].tolist()
    assert last == [[-127, -64], [127, 64]]  # zoe's x, wide and not tall


def test_fonts_join_a_bank(folder: Path, tmp_path: Path) -> None:
    bank = pack_glyphs([line(c, w) for c in ("x", "\\{", "\\alpha") for w in ("ann", "bob")])
    bank.save(tmp_path / "glyphs.npz")
    out = tmp_path / "more.npz"
    arguments = ["synth", "fonts", str(tmp_path / "glyphs.npz"), str(folder), "--out", str(out)]
    result = CliRunner().invoke(make_app(), arguments)
    assert result.exit_code == 0, result.output
    assert "2 glyphs by 1 fonts beside 6" in result.stdout
    assert "1 font unreadable" in result.stderr
    more = load_bank(out)
    assert more.counts() == {"x": 3, "\\{": 3, "\\alpha": 2}


def test_a_folder_without_fonts_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no font"):
        with_fonts(pack_glyphs([line("x", "ann")]), tmp_path, Counter())


def test_known_hands_are_those_who_wrote_enough() -> None:
    bank = pack_glyphs(
        [line("x", "ann"), line("x", "bob", (2.0, 1.0)), line("y", "bob"), line("y", None)]
    )
    known = hands.known_hands(bank, fewest=2)
    assert written(known) == [("x", -1), ("x", 0), ("y", -1), ("y", 0)]
    wide = known.points[known.offsets[1] : known.offsets[2]].tolist()
    assert wide == [[-127, -64], [127, 64]]  # bob's x is still bob's
    with pytest.raises(DataError, match="nobody"):
        hands.known_hands(bank, fewest=3)


def test_two_sets_of_hands_have_the_same_formulas(folder: Path, tmp_path: Path) -> None:
    letters = [line(c, w) for c in "xyz" for w in ("ann", "bob")]
    bank = pack_glyphs(letters)
    bank.save(tmp_path / "glyphs.npz")
    label = "x y z x y z"
    boxes = dict.fromkeys(bank.classes, (0.0, -0.5, 0.5, 0.0))
    slots = [Slot(c, at, Fit.NATURAL, 0, float(at), 0.0, 1.0, 0.0) for at, c in enumerate("xyzxyz")]
    layout = Layout(tuple(sat_split(label.split())), tuple(slots))
    pack_layouts([layout], boxes).save(tmp_path / "layouts-tex.npz")
    save_tokenizer(build_tokenizer("sat", [label.split()]), tmp_path / "tokenizer.json")
    ink = Ink((np.array([[0.0, 0.0], [1.0, 1.0]]),))
    write_packed(iter([Sample("1", "train", label, ink=ink)]), tmp_path / "train.parquet")
    made = []
    for name, more in (("known", []), ("new", ["--fonts", str(folder)])):
        out = tmp_path / f"{name}.parquet"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(hands, "FEWEST", 1)
            hands.main([str(tmp_path), str(out), "--count", "12", *more])
        made.append(read_packed(out))
    assert made[0].labels == made[1].labels and len(set(made[0].labels)) > 1
    assert len(made[0].points) != len(made[1].points)  # lines, and Pillow's letters
