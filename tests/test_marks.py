"""Photographs as people take them: boxes, stains, fingers, turns, words, lines."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from inkmaker import fraction, power, row
from paper import Page, draw_page
from PIL import Image, ImageFilter

import gryphone
from gryphone.data.samples import Sample
from gryphone.ink import Ink
from gryphone.latex.validity import is_valid
from gryphone.photo import marks
from gryphone.photo.image import BLURRED, FILLED, read_image
from gryphone.photo.lines import slimmed, smear_of, without_motion
from gryphone.reading.inputs import Input, read_input
from gryphone.recognition.drawing import has_lines
from gryphone.recognition.otherwise import (
    APART,
    OUT,
    TURN,
    Reading,
    is_word,
    notes_of,
    open_ended,
    pieces_of,
    readings,
    surer,
    without_blank,
)
from gryphone.recognition.question import OTHER, Step
from gryphone.recognition.recognizer import Recognizer
from gryphone.recognition.result import Result, Symbol
from gryphone.studies.conditions import INK as PEN
from gryphone.studies.conditions import main, read_row
from gryphone.synth.conditions import CONDITIONS, IN_PLACE
from gryphone.synth.photographs import photograph_inks

EXAMPLES = Path(__file__).parents[1] / "examples"
WIDE = Page(length=450, margin=260)
INK = row("x+1=2")
PICTURE = draw_page(INK.strokes, WIDE)


def written(text: str, left: float = 0.0, top: float = 0.0) -> list[np.ndarray]:
    """Symbols of size 1, every 1.2."""
    return [s / 10 + np.array([left, top]) for s in row(text).strokes]


def line(*points: tuple[float, float]) -> np.ndarray:
    return np.array(points, dtype=float)


def same(one: Ink, other: Ink, within: float = 4.0) -> bool:
    """Whether two tracings have as many strokes and the same box, in pixels."""
    a, b = np.concatenate(one.strokes), np.concatenate(other.strokes)
    boxes = np.abs(np.concatenate([a.min(0) - b.min(0), a.max(0) - b.max(0)]))
    return len(one.strokes) == len(other.strokes) and bool(boxes.max() < within)


# --- marks on the page ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "note"),
    [
        ("dotted", None),
        ("boxed", marks.BOXED),
        ("underlined", marks.UNDERLINED),
        ("scribbled-out", marks.SCRIBBLED),
        ("coffee-ring", marks.STAIN),
        ("fingertip", None),
        ("holes", None),
        ("table-edge", None),
    ],
)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_belongs_to_the_page_is_no_ink(condition: str, note: str | None, seed: int) -> None:
    page = CONDITIONS[condition](PICTURE, np.random.default_rng(seed))
    found = read_image(page)
    assert same(found, read_image(PICTURE))
    assert set(found.notes) <= {note}  # a faint stain is no ink to begin with
    assert found.notes or note in (None, marks.STAIN)


@pytest.mark.parametrize("seed", [17, 25])
def test_a_ring_that_shows_in_arcs_alone_is_no_ink(seed: int) -> None:
    found = read_image(CONDITIONS["coffee-ring"](PICTURE, np.random.default_rng(seed)))
    assert same(found, read_image(PICTURE)) and found.notes == (marks.STAIN,)


@pytest.mark.parametrize("condition", ["fingertip", "table-edge"])
def test_what_comes_in_from_a_side_is_no_ink(condition: str) -> None:
    near = draw_page(INK.strokes, Page(length=450, margin=150))
    for seed in range(4):
        found = read_image(CONDITIONS[condition](near, np.random.default_rng(seed)))
        assert same(found, read_image(near)), seed


def test_a_sheet_in_perspective_keeps_its_ink_and_loses_its_edges() -> None:
    plain = read_image(PICTURE)
    for seed in range(4):
        page = CONDITIONS["perspective"](PICTURE, np.random.default_rng(seed))
        found = read_image(page)
        assert len(found.strokes) == len(plain.strokes) and page.size[0] > PICTURE.size[0]
        sizes = [np.ptp(np.concatenate(ink.strokes), axis=0) for ink in (found, plain)]
        assert np.allclose(*sizes, rtol=0.2)  # an edge of the sheet would be half as long again


def matrix(left: np.ndarray, right: np.ndarray) -> list[np.ndarray]:
    """Two rows of two numbers between brackets."""
    inside = [s for y in (0, 1.6) for x in (0, 1.5) for s in written("1", x, y)]
    return [*inside, left, right]


ROW = written("x+1=2")  # from 0 to 5.7
SURVIVORS: dict[str, list[np.ndarray]] = {
    "fraction": list(fraction().strokes),
    "power": list(power().strokes),
    "root": [line((-1, 0.5), (-0.6, 1.2), (0, -0.5), (6, -0.5)), *ROW],
    "overline": [line((-0.2, -0.5), (5.8, -0.45)), *ROW],
    "norm": [line((-0.5, -0.3), (-0.5, 1.3)), *ROW, line((6.2, -0.3), (6.2, 1.3))],
    "determinant": matrix(line((-0.7, -0.4), (-0.7, 3)), line((2.6, -0.4), (2.6, 3))),
    "brackets": matrix(
        line((-0.4, -0.4), (-0.7, -0.4), (-0.7, 3), (-0.4, 3)),
        line((2.3, -0.4), (2.6, -0.4), (2.6, 3), (2.3, 3)),
    ),
    "not equal": [*written("x=1"), line((1.3, 1.2), (1.9, -0.1))],
    "square": [line((0, 0), (1, 0), (1, 1), (0, 1), (0, 0)), *written("x+1=2", 1.6)],
    "underlined in the middle": [*ROW, line((1, 1.4), (2.4, 1.4))],
    "over one": [*ROW, line((-0.2, 1.5), (5.8, 1.5)), *written("1", 2.5, 1.9)],
    "eights": [*written("0000"), *written("0000", 0, 1.02)],
}


@pytest.mark.parametrize("name", SURVIVORS)
def test_what_formulas_have_themselves_stays(name: str) -> None:
    strokes = SURVIVORS[name]
    found = read_image(draw_page(strokes, WIDE))
    wanted, seen = np.concatenate(strokes), np.concatenate(found.strokes)
    scale = WIDE.length / np.ptp(wanted, axis=0).max()
    assert found.notes == ()
    assert np.abs(np.ptp(seen, axis=0) - scale * np.ptp(wanted, axis=0)).max() < 8


def test_only_what_is_faint_is_a_stain() -> None:
    angle = np.linspace(0, 2 * np.pi, 60)
    ring = np.stack([2.8 + 3.5 * np.cos(angle), 0.5 + 3.5 * np.sin(angle)], 1)
    found = read_image(draw_page([*ROW, ring], WIDE))
    assert found.notes == () and np.ptp(np.concatenate(found.strokes), axis=0).min() > 440


def test_blur_and_broad_pens_are_said_where_the_answer_is_in_doubt() -> None:
    for condition, note in (("motion-blur", BLURRED), ("marker", FILLED), ("plain", None)):
        ink = read_image(CONDITIONS[condition](PICTURE, np.random.default_rng(1)))
        assert set(ink.notes) == ({note} - {None}), condition
        assert notes_of(ink, 0.9) == ink.notes and notes_of(ink, 0.99) == ()
    assert notes_of(Ink(INK.strokes, notes=(marks.BOXED,)), 0.99) == (marks.BOXED,)


def rows_of(dark: np.ndarray) -> int:
    """How many lines a column through the middle crosses."""
    middle = dark[:, dark.shape[1] // 2]
    return int((np.diff((middle > 0.5 * middle.max()).astype(int)) == 1).sum())


def test_a_smear_is_found_and_undone() -> None:
    still = np.zeros((120, 160), dtype=np.float32)
    for top in (20, 29, 60, 90):  # lines of three pixels, two of them near each other
        still[top : top + 3, 30:130] = 0.8
    still[20:93, 30:33] = 0.8
    smeared = np.mean([np.roll(still, shift, 0) for shift in range(-5, 6)], 0).astype(np.float32)
    turn, length = smear_of(smeared, 60)
    assert turn == pytest.approx(np.pi / 2, abs=0.2) and length == pytest.approx(11, abs=1.5)
    back, edge = without_motion(smeared, 60)
    assert rows_of(smeared) == 3 and rows_of(back[edge:-edge, edge:-edge]) == 4


def test_lines_near_each_other_stay_two_under_a_moved_camera_and_a_broad_pen() -> None:
    near = [line((2.8, 0.45), (3.6, 0.45)), line((2.8, 0.62), (3.6, 0.62))]
    page = draw_page([*written("xn"), *near, *written("2+1", 4.2)], WIDE).convert("L")
    grey = np.asarray(page, dtype=float)
    moved = np.mean([np.roll(grey, shift, 0) for shift in range(-5, 6)], 0)
    for seen in (Image.fromarray(moved.astype(np.uint8)), page.filter(ImageFilter.MinFilter(5))):
        assert same(read_image(seen), read_image(page), 8.0)


def test_a_broad_pen_does_not_fill_eyes() -> None:
    page = np.zeros((60, 60), dtype=np.float32)
    page[10:50, 10:50] = 1
    page[29:31, 29:31] = 0.6  # an eye that is all but filled
    slim, width = slimmed(page, 12.0)
    assert slim[28:32, 28:32].max() == np.float32(0.6) and slim[12:48, 12].max() == 1
    assert slim[:, 11].max() == 0 and width == pytest.approx(8.2)


def test_a_box_is_written_when_asked(recognizer: Recognizer) -> None:
    page = CONDITIONS["boxed"](PICTURE, np.random.default_rng(1))
    plain, boxed = (
        recognizer.recognize(page, steps=1),
        recognizer.recognize(page, steps=1, boxed=True),
    )
    assert boxed.latex == rf"\boxed{{{plain.latex}}}" and is_valid(boxed.tokens)
    assert marks.BOXED in plain.warnings and marks.BOXED not in boxed.warnings
    for before, symbol in zip(plain.symbols, boxed.symbols, strict=True):
        here = slice(*symbol.span)
        assert boxed.latex[here] == plain.latex[slice(*before.span)]
    assert [a.latex for a in boxed.n_best] == [rf"\boxed{{{a.latex}}}" for a in plain.n_best]
    assert r"\boxed" not in recognizer.recognize(PICTURE, steps=1, boxed=True).latex


def test_a_box_round_a_part_is_none_round_the_formula(recognizer: Recognizer) -> None:
    frame = line((4.5, -0.4), (6.1, -0.4), (6.1, 1.4), (4.5, 1.4), (4.5, -0.4))
    page = draw_page([*ROW, frame], WIDE)
    assert read_image(page).notes == (marks.PART_BOXED,)
    assert r"\boxed" not in recognizer.recognize(page, steps=1, boxed=True).latex


# --- lines of writing -------------------------------------------------------------------------


def lines(ink: Ink, gap: float) -> tuple[np.ndarray, np.ndarray]:
    """The boxes of an ink and of the same below it."""
    strokes = [*ink.strokes, *(s + np.array([0, 10 + 10 * gap]) for s in ink.strokes)]
    return np.array([s.min(0) for s in strokes]), np.array([s.max(0) for s in strokes])


def test_two_lines_are_more_than_one_formula() -> None:
    assert has_lines(*lines(INK, 1.0))
    assert not has_lines(*lines(INK, 0.4))
    assert not has_lines(*lines(row("x"), 1.0))  # two symbols may be a column
    low, high = (np.array([f(s, 0) for s in fraction().strokes]) for f in (np.min, np.max))
    assert not has_lines(low, high)


@pytest.mark.parametrize(("count", "gap"), [(3, 1.3), (3, 1.6), (2, 1.6)])
def test_narrow_lines_far_apart_are_more_than_one_formula(count: int, gap: float) -> None:
    half = [*written("1"), line((-0.2, 1.3), (1.2, 1.3)), *written("2", 0, 1.6)]
    strokes = [s + np.array([0, (2.6 + gap) * k]) for k in range(count) for s in half]
    low, high = np.array([s.min(0) for s in strokes]), np.array([s.max(0) for s in strokes])
    assert has_lines(low, high)
    assert not has_lines(low[: len(half)], high[: len(half)])  # a fraction has no paper inside


# --- other readings ---------------------------------------------------------------------------


def result(latex: str, confidence: float, strokes: tuple[int, ...] = ()) -> Result:
    tokens = tuple(latex)
    symbols = (Symbol(0, latex[:1], "", 1.0, (), (0, 0, 1, 1), strokes),)
    return Result(latex, tokens, confidence, symbols, (), 1, 0.1, 0, "photo")


def picture(*parts: tuple[str, float]) -> Input:
    """Rows of symbols that start at some place, as a picture."""
    strokes = tuple(s for text, x in parts for s in written(text, x))
    return Input(Ink(strokes), strokes)


def tried(given: Input, first: Result, note: str) -> list[Reading]:
    return [reading for reading in readings(given, first) if reading.note == note]


def test_only_doubtful_pictures_are_read_otherwise() -> None:
    given = picture(("x+1=2", 0))
    assert readings(given, result("x", 0.9)) == []
    tall = Input(replace(given.ink, strokes=tuple(s[:, ::-1] for s in given.ink.strokes)))
    for sure, turns in (
        (0.4, ["180°", " 90°", "270°"]),
        (0.8, ["180°", " 90°", "270°"]),
        (0.95, []),
    ):
        assert [r.note[-4:] for r in readings(tall, result("x", sure))][:3] == turns
    # Hardly higher than wide: as many formulas are.
    square = picture(("x+", 0))
    square = Input(replace(square.ink, strokes=(*square.ink.strokes, *written("1", 0.5, 1.5))))
    assert [r.note[-4:] for r in readings(square, result("x", 0.8))] == ["180°"]


def test_a_picture_that_is_higher_than_wide_need_not_be_much_surer() -> None:
    tall = tuple(np.stack([s[:, 1], -s[:, 0]], 1) for s in picture(("x+1=2", 0)).ink.strokes)
    first = result("m", 0.5)
    (turned,) = tried(Input(Ink(tall), tall), first, TURN.format(90))
    assert surer(first, [(turned, result("x", 0.6))], [], Ink(tall)).latex == "x"
    assert surer(first, [(turned, result("x", 0.55))], [], Ink(tall)).latex == "m"


def test_a_turned_picture_is_read_upright() -> None:
    upright = picture(("x+1=2", 0))
    # Turned by three quarters clockwise, (x, y) is at (y, -x): one more brings it back.
    strokes = tuple(np.stack([s[:, 1], -s[:, 0]], 1) for s in upright.ink.strokes)
    first = result("y", 0.1)
    (turned,) = tried(Input(Ink(strokes), strokes), first, TURN.format(90))
    for back, stroke in zip(turned.input.ink.strokes, upright.ink.strokes, strict=True):
        np.testing.assert_allclose(back, stroke, atol=1e-12)
    best = surer(first, [(turned, result("x+1=2", 0.9, (1,)))], [], Ink(strokes))
    assert best.latex == "x+1=2" and best.name == "photo"
    assert best.warnings == ("the picture was turned by 90°",)
    low, high = strokes[1].min(0), strokes[1].max(0)
    assert best.symbols[0].box == (*low, *high)  # where it is in the picture


def test_a_number_beside_the_formula_is_left_out() -> None:
    given = picture(("1)", 0), ("x+1=2", 4.5))
    first = result("1)x+1=2", 0.9)
    (reading,) = tried(given, first, APART)
    assert reading.strokes == tuple(range(2, len(given.ink.strokes)))
    pairs = [(reading, result("x+1=2", 0.85, (0,)))]
    best = surer(first, pairs, [result("1)", 0.9)], given.ink)
    assert best.latex == "x+1=2" and best.warnings == (APART.format("1)"),)
    assert best.symbols[0].strokes == (2,)


def test_decimals_and_symbols_with_scripts_are_no_number_or_word_beside_it() -> None:
    given = picture(("1111", 0), ("x+1=2", 6.5))
    (reading,) = (r for r in tried(given, result("1", 0.5), APART) if r.strong)
    for text, sure, said, word, answer in (
        ("1.78x+1=2", 0.84, "1.78", 0.86, "1.78x+1=2"),
        ("thas", 0.19, "thas", 0.24, "x+1=2"),
        ("r_{0}^{2}", 0.19, "r_{0}^{2}", 0.24, "r_{0}^{2}"),
    ):
        first = result(text, sure)
        pairs = [(reading, result("x+1=2", 0.75))]
        assert surer(first, pairs, [result(said, word)], given.ink).latex == answer


def test_a_part_of_the_formula_is_not_left_out() -> None:
    given = picture(("x=", 0), ("1+1+2", 4.5))
    first = result("x=1+1+2", 0.5)
    pairs = [(tried(given, first, APART)[0], result("1+1+2", 0.95))]
    assert surer(first, pairs, [result("x=", 0.3)], given.ink) == first
    # Not joined by a sign, but a formula by itself: that is said, and no more.
    hinted = surer(first, pairs, [result("x", 0.9)], given.ink)
    assert hinted.latex == first.latex and "1+1+2" in hinted.warnings[0]


def struck(*lines: np.ndarray, sign: list[np.ndarray] | None = None) -> Input:
    """`x`, a zero (or another sign) with lines through it, and `2`, as a picture."""
    turn = np.linspace(0, 2 * np.pi, 30)
    zero = [np.stack([2.5 + 0.4 * np.sin(turn), 0.5 - 0.6 * np.cos(turn)], 1)]
    strokes = (*written("x"), *(zero if sign is None else sign), *lines, *written("2", 4))
    return Input(Ink(strokes), strokes)


SLASH = line((1.9, 1.3), (3.1, -0.3))


def test_a_struck_out_symbol_is_left_out_and_said() -> None:
    given, first = struck(SLASH), result("x02", 0.8)
    (reading,) = tried(given, first, OUT)
    assert reading.strokes == (0, 1, 4)
    (apart,) = [reading.apart.ink.strokes if reading.apart else ()]
    assert len(apart) == 2
    # No surer without it, but the line sticks out far, and what is there alone is no clear sign.
    best = surer(first, [(reading, result("x2", 0.75, (2,)))], [result("0", 0.5)], given.ink)
    assert best.latex == "x2" and best.warnings == (OUT,) and best.symbols[0].strokes == (4,)
    # A sign that has such a line itself is as clear alone: that is a hint and no more.
    hint = surer(first, [(reading, result("x2", 0.9))], [result(r"\phi", 0.95)], given.ink)
    assert hint.latex == "x02"
    assert hint.warnings == ("something may be crossed out; without it this is x2",)
    # The rest cannot be read without it.
    assert surer(first, [(reading, result("x2", 0.3))], [result("0", 0.5)], given.ink) == first
    # The network has passed over it by itself, sure or not.
    passed = result("x2", 0.97)
    best = surer(passed, [(reading, result("x2", 0.9))], [result(r"\phi", 0.95)], given.ink)
    assert best.latex == "x2" and best.warnings == (OUT,)
    # A sign that nothing follows is rather a stroke that is struck out.
    plus = result("x2+", 0.95)
    best = surer(plus, [(reading, result("x2", 0.9))], [result("+", 0.95)], given.ink)
    assert best.latex == "x2" and best.warnings == (OUT,)


def test_specks_without_number_take_no_memory() -> None:
    """The usual stroke of a thousand specks is a point; a line among them is not cut into such."""
    specks = [np.array([[x, y], [x, y + 1e-9]], dtype=float) for x in range(30) for y in range(30)]
    strokes = (*specks, line((0, 0), (30, 30)))
    assert len(pieces_of(strokes, 1e-9)) == 901


def test_an_answer_that_ends_with_a_sign_says_so() -> None:
    """A stroke with a line through it is a plus."""
    for latex, said in (("x+", ("+",)), ("x=", ("=",)), ("x+1", ()), ("x,", ())):
        found = open_ended(result(latex, 0.9))
        assert found.latex == latex
        assert [w.split(":")[0] for w in found.warnings] == [
            f"the formula ends with {t}" for t in said
        ]


def test_ink_in_which_the_network_sees_no_symbol_is_left_out() -> None:
    for given in (struck(SLASH), replace(struck(SLASH), retraced=())):  # a picture, and pen ink
        assert without_blank(given, np.array([0.1, 0.0, 0.25, 0.2, 0.2])) == []
        # Zero and line touch: they are one piece, most of which is none.
        (reading,) = without_blank(given, np.array([0.1, 0.0, 0.95, 0.2, 0.2]))
        assert reading.strokes == (0, 1, 4)
        first, rest = result("x02", 0.9), result("x2", 0.5, (2,))
        best = surer(first, [(reading, rest)], [result(r"\phi", 0.95)], given.ink)
        assert best.latex == "x2" and best.warnings == (OUT,) and best.symbols[0].strokes == (4,)
        # Illegible without it: then it was a symbol.
        poor = result("x2", 0.3)
        assert surer(first, [(reading, poor)], [result("0", 0.5)], given.ink) == first
    # Of two such pieces either may be one, or both.
    both = without_blank(given, np.array([0.1, 0.0, 0.9, 0.9, 0.6]))
    assert [reading.strokes for reading in both] == [(0, 1), (0, 1, 4), (0, 1, 2, 3)]
    many = Ink(tuple(line((x, 0), (x, 1)) for x in range(400)))
    assert without_blank(Input(many), np.ones(400)) == []


def test_the_last_symbol_is_struck_out_sooner_than_one_inside() -> None:
    turn = np.linspace(0, 2 * np.pi, 30)
    zero = np.stack([2.5 + 0.4 * np.sin(turn), 0.5 - 0.6 * np.cos(turn)], 1)
    end = (*written("x"), zero, line((2.06, 1.08), (2.94, -0.08)))
    inside = (*end, *written("2", 4))
    for strokes, answer in ((end, "x"), (inside, "x0")):
        given, first = Input(Ink(strokes), strokes), result("x0", 0.8)
        (reading,) = tried(given, first, OUT)
        found = surer(first, [(reading, result("x", 0.9, (0,)))], [result("0", 0.7)], given.ink)
        assert found.latex == answer and found.warnings
    # As clear as any sign, and sure with it: that is no answer, but worth a word.
    given, first = Input(Ink(end), end), result("x0", 0.95)
    pairs = [(tried(given, first, OUT)[0], result("x", 0.96))]
    hint = surer(first, pairs, [result(r"\phi", 0.95)], given.ink)
    assert hint.latex == "x0" and "may be crossed out" in hint.warnings[0]


@pytest.mark.parametrize(
    "sign",
    [
        written("+", 2),
        written("x", 2),
        written("=", 2),
        [*written("=", 2), line((2.3, 1.2), (2.7, -0.2))],  # not equal
        [line((2, 0), (3, 0), (2.2, 1)), line((2.2, 0.5), (2.8, 0.5))],  # a seven
        [line((2, 0.5), (3, 0.5))],
    ],
)
def test_signs_with_lines_through_them_are_not_looked_at_twice(sign: list[np.ndarray]) -> None:
    assert tried(struck(sign=sign), result("x02", 0.86), OUT) == []


def test_a_bar_inside_a_zero_strikes_nothing_out() -> None:
    assert readings(struck(line((2.15, 0.5), (2.85, 0.5))), result("x02", 0.4)) != []
    assert not tried(struck(line((2.15, 0.5), (2.85, 0.5))), result("", 0.4), OUT)


BEND = np.linspace(0, 1, 20)[:, None]
BENT = line((1.7, 1.5)) + BEND * line((1.6, -2.0)) + 0.1 * np.sin(np.pi * BEND)


def test_a_long_line_by_hand_may_stray_and_take_the_dot_of_an_i_along() -> None:
    given, first = struck(BENT), result("x02", 0.8)
    assert [r.strokes for r in tried(given, first, OUT)] == [(0, 1, 4)]
    dotted = struck(BENT, line((2.2, -0.25), (2.22, -0.25)))
    assert [r.strokes for r in tried(dotted, first, OUT)] == [(0, 1, 5)]


def test_a_slanted_line_may_pass_beside_the_middle() -> None:
    given, first = struck(line((1.6, 1.0), (2.8, -0.6))), result("x02", 0.8)
    assert len(tried(given, first, OUT)) == 1
    level = struck(line((1.6, -0.05), (3.4, -0.05)))  # a bar over it is none
    assert tried(level, first, OUT) == []


def test_what_is_no_sign_at_all_is_struck_out_by_a_short_line() -> None:
    first, short = result("x02", 0.8), line((2.06, 1.08), (2.94, -0.08))
    given = struck(short)
    (reading,) = tried(given, first, OUT)
    assert reading.more > 0.2
    pairs = [(reading, result("x2", 0.9, (2,)))]
    assert surer(first, pairs, [result("0", 0.3)], given.ink).warnings == (OUT,)
    # It may be a sign: that is said, and no more; what is sure by far is not looked at.
    hint = surer(first, pairs, [result("0", 0.7)], given.ink)
    assert hint.latex == "x02" and "may be crossed out" in hint.warnings[0]
    assert surer(first, [(reading, result("x2", 0.7))], [result("0", 0.7)], given.ink) == first
    assert tried(given, result("x02", 0.9), OUT) == []
    # Nor is the end of a formula left out, where a sign wants it; a minus may begin what is left.
    for rest, answer in (("x=", "x02"), ("x-", "x02"), ("x/", "x02"), ("-x", "-x")):
        pairs = [(reading, result(rest, 0.9))]
        assert surer(first, pairs, [result("0", 0.3)], given.ink).latex == answer


def test_touching_strokes_are_one_piece() -> None:
    cross, far = [line((0, 0), (1, 1)), line((0, 1), (1, 0))], line((3, 0), (3, 1))
    assert pieces_of([*cross, far, line((3.04, 0), (4, 0))], 0.08).tolist() == [0, 0, 2, 2]


@pytest.mark.parametrize("word", ["thus", "tnus", "Pr00f", "so", "s0"])
def test_a_word_beside_the_formula_is_left_out_and_said(word: str) -> None:
    given = picture(("11111", 0), ("x+1=2", 7.5))
    first = result(f"{word}x+1=2", 0.75)
    assert is_word(word)
    pairs = [
        (r, result("x+1=2", 0.7)) for r in readings(given, result("tx+1=2", 0.6)) if r.note == APART
    ]
    best = surer(first, pairs[:1], [result(word, 0.9)], given.ink)
    assert best.latex == "x+1=2" and best.warnings == (APART.format(word),)


def test_what_may_be_a_number_is_no_word() -> None:
    given, first = picture(("11", 0), ("x+1=2", 4.5)), result("50x+1=2", 0.75)
    (reading,) = tried(given, first, APART)
    hint = surer(first, [(reading, result("x+1=2", 0.9))], [result("50", 0.9)], given.ink)
    assert hint.latex == first.latex and "may be no formula" in hint.warnings[0]
    assert not any(map(is_word, ("x", "12", "abc", "abcd", r"\sin")))


@pytest.mark.parametrize("number", ["3)", "a1", "b|", "12.", "3j"])
def test_the_bracket_of_a_number_may_be_read_as_another_line(number: str) -> None:
    given, first = picture(("11", 0), ("x+1=2", 4.5)), result(f"{number}x+1=2", 0.75)
    (reading,) = tried(given, first, APART)
    best = surer(first, [(reading, result("x+1=2", 0.8))], [result(number, 0.9)], given.ink)
    assert best.latex == "x+1=2" and best.warnings == (APART.format(number),)


@pytest.mark.parametrize(
    ("point", "said"), [((2.2, 1.0), "12"), ((2.2, 1.0), "12."), ((2.2, 0), "")]
)
def test_a_number_ends_with_a_point_that_the_answer_may_lack(
    point: tuple[float, float], said: str
) -> None:
    given = picture(("12", 0), ("x+1=2", 4.5))
    given = Input(Ink((*given.ink.strokes, line(point))), given.retraced)
    first = result("12x+1=2", 0.94)  # so sure that nothing else is tried
    pairs = [(reading, result("x+1=2", 0.93)) for reading in tried(given, first, APART)]
    if not said:  # a dot that is not at its foot
        assert pairs == []
        return
    best = surer(first, pairs, [result(said, 0.9)], given.ink)
    assert best.latex == "x+1=2" and best.warnings == (APART.format(said),)


def test_a_number_stands_less_far_apart_than_a_word() -> None:
    given = picture(("1)", 0), ("x+1=2", 2.9))
    assert tried(given, result("11x+1=2", 0.6), APART) == []
    assert tried(given, result("1.5x+1=2", 0.6), APART) == []
    first = result("1)x+1=2", 0.6)
    pairs = [(reading, result("x+1=2", 0.8)) for reading in tried(given, first, APART)]
    assert surer(first, pairs, [result("1)", 0.9)], given.ink).warnings == (APART.format("1)"),)
    less = [(reading, result("x+1=2", 0.45)) for reading, _ in pairs]  # than the first, but legible
    assert surer(first, less, [result("1)", 0.9)], given.ink).latex == "x+1=2"
    assert surer(first, less, [result("1.", 0.9)], given.ink).latex == first.latex
    assert tried(picture(("1)x+1", 0), ("2", 6.3)), first, APART) == []  # more than a number


def test_upside_down_is_a_matter_of_odds() -> None:
    given, first = picture(("x+1=2", 0)), result("2=1+x", 0.8)
    (reading,) = tried(given, first, TURN.format(180))
    best = surer(first, [(reading, result("x", 0.935))], [], given.ink)
    assert best.latex == "x" and best.warnings == ("the picture was turned by 180°",)
    hint = surer(first, [(reading, result("x", 0.85))], [], given.ink)
    assert hint.latex == "2=1+x" and hint.warnings[0].startswith("the picture may be upside down")
    assert surer(first, [(reading, result("x", 0.79))], [], given.ink) == first


def test_further_readings_are_watched_and_can_be_stopped(recognizer: Recognizer) -> None:
    looks: list[int] = []
    found = recognizer.recognize(PICTURE, on_step=lambda step: looks.append(step.look))
    assert found.confidence < 0.7  # made-up weights are never sure
    assert max(looks) >= OTHER > 2
    steps: list[int] = []

    def stop(step: Step) -> bool:
        steps.append(step.look)
        return step.look >= OTHER

    recognizer.recognize(PICTURE, on_step=stop)
    assert 0 < sum(look >= OTHER for look in steps) < sum(look >= OTHER for look in looks)


def test_a_photo_held_sideways() -> None:
    recognizer = gryphone.load()
    image = Image.open(EXAMPLES / "photo" / "13-quadratic.jpg")
    upright = recognizer.recognize(image)
    turned = recognizer.recognize(image.rotate(90, expand=True))
    assert turned.latex == upright.latex
    assert turned.warnings == ("the picture was turned by 90°",)
    left, top, right, bottom = turned.symbols[0].box or (0, 0, 0, 0)
    assert top > image.width / 2 and 0 < left < right < image.height and bottom < image.width


def test_a_deadline_or_a_question_that_fixes_something_is_answered_as_it_is() -> None:
    recognizer = gryphone.load()
    image = Image.open(EXAMPLES / "photo" / "13-quadratic.jpg").rotate(90, expand=True)
    encoded = recognizer.encode(image)
    for found in (encoded.decode(deadline_ms=60_000), encoded.decode(lock={0: "x"})):
        assert not any("turned" in warning for warning in found.warnings)


# --- simulation and study ---------------------------------------------------------------------


def test_conditions_leave_the_ink_in_its_place() -> None:
    grey = np.asarray(PICTURE.convert("L"))
    for name in IN_PLACE:
        page = CONDITIONS[name](PICTURE, np.random.default_rng(0))
        assert page.size == PICTURE.size, name
        assert not np.array_equal(np.asarray(page.convert("L")), grey), name


def test_photographs_under_conditions_are_those_without_unless_asked() -> None:
    samples = [Sample(f"s{i}", "made", "x + 1 = 2", ink=INK) for i in range(4)]
    usual, none = list(photograph_inks(samples, 3)), list(photograph_inks(samples, 3, 1, 0.0))
    assert usual == none
    met = [s for s in photograph_inks(samples, 3, 1, 1.0) if isinstance(s, Sample)]
    plain = {s.id: s.ink for s in usual if isinstance(s, Sample)}
    assert met and all(s.ink != plain.get(s.id) for s in met)


def test_the_study_counts(recognizer: Recognizer, capsys: pytest.CaptureFixture[str]) -> None:
    samples = [Sample("a", "made", "x + 1 = 2", ink=INK), Sample("b", "made", "n", ink=row("n"))]
    seen = read_row(recognizer, samples, PEN)
    assert seen.count == 2 and len(seen.answers) == 2
    assert seen.answers[0][1] == recognizer.recognize(INK, boxes=False).latex
    boxed = read_row(recognizer, samples, "boxed")
    assert boxed.warned == 2 and all(marks.BOXED in said for *_, said in boxed.answers)
    assert boxed.right + boxed.silent <= boxed.count
    with pytest.raises(gryphone.GryphoneError, match="rows bent are unknown"):
        main(["x", "--rows", "bent"])


def test_an_input_is_read_with_its_notes(recognizer: Recognizer) -> None:
    page = CONDITIONS["boxed"](PICTURE, np.random.default_rng(1))
    assert read_input(page).ink.notes == (marks.BOXED,)
    assert marks.BOXED in recognizer.recognize(page).warnings
