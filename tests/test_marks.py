"""Photographs as people take them: boxes, stains, fingers, turns, words, lines."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from inkmaker import fraction, power, row
from paper import Page, draw_page
from PIL import Image

import gryphone
from gryphone.data.samples import Sample
from gryphone.ink import Ink
from gryphone.latex.validity import is_valid
from gryphone.photo import marks
from gryphone.photo.image import BLURRED, FILLED, read_image
from gryphone.reading.inputs import Input, read_input
from gryphone.recognition.answer import _has_lines
from gryphone.recognition.otherwise import (
    APART,
    OUT,
    is_word,
    notes_of,
    pieces_of,
    readings,
    surer,
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


@pytest.mark.parametrize("condition", ["fingertip", "table-edge"])
def test_what_comes_in_from_a_side_is_no_ink(condition: str) -> None:
    near = draw_page(INK.strokes, Page(length=450, margin=150))
    for seed in range(4):
        found = read_image(CONDITIONS[condition](near, np.random.default_rng(seed)))
        assert same(found, read_image(near)), seed


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
    assert _has_lines(*lines(INK, 1.0))
    assert not _has_lines(*lines(INK, 0.4))
    assert not _has_lines(*lines(row("x"), 1.0))  # two symbols may be a column
    low, high = (np.array([f(s, 0) for s in fraction().strokes]) for f in (np.min, np.max))
    assert not _has_lines(low, high)


# --- other readings ---------------------------------------------------------------------------


def result(latex: str, confidence: float, strokes: tuple[int, ...] = ()) -> Result:
    tokens = tuple(latex)
    symbols = (Symbol(0, latex[:1], "", 1.0, (), (0, 0, 1, 1), strokes),)
    return Result(latex, tokens, confidence, symbols, (), 1, 0.1, 0, "photo")


def picture(*parts: tuple[str, float]) -> Input:
    """Rows of symbols that start at some place, as a picture."""
    strokes = tuple(s for text, x in parts for s in written(text, x))
    return Input(Ink(strokes), strokes)


def test_only_doubtful_pictures_are_read_otherwise() -> None:
    given = picture(("x+1=2", 0))
    assert readings(given, result("x", 0.9)) == []
    tall = Input(replace(given.ink, strokes=tuple(s[:, ::-1] for s in given.ink.strokes)))
    assert [r.note[-4:] for r in readings(tall, result("x", 0.4))][:3] == [" 90°", "180°", "270°"]


def test_a_turned_picture_is_read_upright() -> None:
    upright = picture(("x+1=2", 0))
    # Turned by three quarters clockwise, (x, y) is at (y, -x): one more brings it back.
    strokes = tuple(np.stack([s[:, 1], -s[:, 0]], 1) for s in upright.ink.strokes)
    first = result("y", 0.1)
    tried = readings(Input(Ink(strokes), strokes), first)
    for back, stroke in zip(tried[0].input.ink.strokes, upright.ink.strokes, strict=True):
        np.testing.assert_allclose(back, stroke, atol=1e-12)
    answers = [result("x+1=2", 0.9, (1,))] + [result("n", 0.2)] * 2
    best = surer(first, list(zip(tried, answers, strict=False)), [], Ink(strokes))
    assert best.latex == "x+1=2" and best.name == "photo"
    assert best.warnings == ("the picture was turned by 90°",)
    low, high = strokes[1].min(0), strokes[1].max(0)
    assert best.symbols[0].box == (*low, *high)  # where it is in the picture


def test_a_number_beside_the_formula_is_left_out() -> None:
    given = picture(("1)", 0), ("x+1=2", 4.5))
    first = result("1)x+1=2", 0.9)
    (reading,) = readings(given, first)
    assert reading.note == APART and reading.strokes == tuple(range(2, len(given.ink.strokes)))
    pairs = [(reading, result("x+1=2", 0.85, (0,)))]
    best = surer(first, pairs, [result("1)", 0.9)], given.ink)
    assert best.latex == "x+1=2" and best.warnings == (APART.format("1)"),)
    assert best.symbols[0].strokes == (2,)


def test_a_part_of_the_formula_is_not_left_out() -> None:
    given = picture(("x=", 0), ("1+1+2", 4.5))
    first = result("x=1+1+2", 0.5)
    tried = [r for r in readings(given, first) if r.note == APART]
    pairs = [(tried[0], result("1+1+2", 0.95))]
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
    (reading,) = readings(given, first)
    assert reading.note == OUT and reading.strokes == (0, 1, 4)
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
    assert readings(struck(sign=sign), result("x02", 0.8)) == []


def test_a_bar_inside_a_zero_strikes_nothing_out() -> None:
    assert readings(struck(line((2.15, 0.5), (2.85, 0.5))), result("x02", 0.4)) != []
    assert not [
        r
        for r in readings(struck(line((2.15, 0.5), (2.85, 0.5))), result("", 0.4))
        if r.note == OUT
    ]


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
    (reading,) = readings(given, first)
    hint = surer(first, [(reading, result("x+1=2", 0.9))], [result("50", 0.9)], given.ink)
    assert hint.latex == first.latex and "may be no formula" in hint.warnings[0]
    assert not any(map(is_word, ("x", "12", "abc", "abcd", r"\sin")))


@pytest.mark.parametrize("number", ["3)", "a1", "b|", "12.", "3j"])
def test_the_bracket_of_a_number_may_be_read_as_another_line(number: str) -> None:
    given, first = picture(("11", 0), ("x+1=2", 4.5)), result(f"{number}x+1=2", 0.75)
    (reading,) = readings(given, first)
    best = surer(first, [(reading, result("x+1=2", 0.8))], [result(number, 0.9)], given.ink)
    assert best.latex == "x+1=2" and best.warnings == (APART.format(number),)


def test_upside_down_needs_no_more_than_any_turn() -> None:
    given, first = picture(("x+1=2", 0)), result("2=1+x", 0.6)
    (reading,) = readings(given, first)
    assert surer(first, [(reading, result("x", 0.8))], [], given.ink) == first
    best = surer(first, [(reading, result("x", 0.86))], [], given.ink)
    assert best.latex == "x" and best.warnings == ("the picture was turned by 180°",)


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
