"""Scratching out and writing over, on made-up ink: what is a gesture, and what is writing."""

import numpy as np
import pytest
from inkmaker import fraction, place, row

from gryphone.ink import Ink, Stroke
from gryphone.reading.gestures import erased_by, evenly, hull_of, inside, overwritten, scratched


def zigzag(left: float, top: float, right: float, bottom: float, passes: int) -> Stroke:
    """To and fro from left to right, a little lower each time."""
    x = [left, right] * passes
    return np.stack([x[: passes + 1], np.linspace(top, bottom, passes + 1)], 1).astype(float)


def up_and_down(*box: float, passes: int) -> Stroke:
    """The same from top to bottom."""
    left, top, right, bottom = box
    return zigzag(top, left, bottom, right, passes)[:, ::-1]


def numbered(ink: Ink) -> dict[int, Stroke]:
    return dict(enumerate(ink.strokes))


def glyph(ink: Ink, number: int) -> tuple[int, ...]:
    return ink.glyphs[number].strokes


@pytest.mark.parametrize("passes", [5, 8])
def test_a_scratch_erases_what_lies_beneath_it_and_nothing_else(passes: int) -> None:
    ink = row("x+1=2")
    assert scratched(zigzag(11, 0, 21, 10, passes), numbered(ink)) == glyph(ink, 1)
    assert scratched(up_and_down(11, 0, 21, 10, passes=passes), numbered(ink)) == glyph(ink, 1)
    two = (*glyph(ink, 1), *glyph(ink, 2))
    assert scratched(zigzag(10, -1, 32, 11, passes), numbered(ink)) == two


def test_a_scratch_of_a_numerator_leaves_the_bar() -> None:
    ink = fraction()
    assert scratched(zigzag(0, -1, 9, 9, 6), numbered(ink)) == glyph(ink, 2)


def test_writing_on_paper_is_no_scratch() -> None:
    ink = row("x+1=2")
    w = np.array([[70, 0], [72, 10], [74, 2], [76, 10], [78, 0]], dtype=float)
    hatching = zigzag(70, 0, 90, 20, 12)
    assert scratched(w, numbered(ink)) == scratched(hatching, numbered(ink)) == ()
    assert scratched(hatching, {}) == ()


@pytest.mark.parametrize(
    "points",
    [
        [(-2, 12), (4, 12), (4, -2), (30, -2)],  # a root over it
        [(0, 0), (6, 2), (0, 5), (7, 8), (0, 10)],  # the bows of a B
        [(-3, 5), (40, 5)],  # a line through it
        [(-2, -2), (24, -2), (24, 12), (-2, 12), (-2, -2)],  # a box around it
    ],
)
def test_few_strokes_to_and_fro_are_writing(points: list[tuple[float, float]]) -> None:
    assert scratched(np.array(points, dtype=float), numbered(row("1+"))) == ()


def test_a_cross_hatch_is_four_lines() -> None:
    lines = [[(3, 0), (1, 10)], [(7, 0), (5, 10)], [(0, 3), (9, 3)], [(0, 7), (9, 7)]]
    strokes = [np.array(line, dtype=float) for line in lines]
    for count, stroke in enumerate(strokes):
        there = dict(enumerate(strokes[:count]))
        assert erased_by(stroke, there, [tuple(there)]) is None


def test_a_tiny_scribble_is_a_dot() -> None:
    assert scratched(zigzag(2, 9, 4, 11, 8), numbered(place([(".", 2.0, 0.5, 10.0)], "."))) == (0,)
    there = numbered(row("x+1=2")) | {9: np.array([[3.0, 10.0]])}
    assert scratched(zigzag(2, 9, 4, 11, 8), there) == ()


def test_a_symbol_that_was_left_behind_is_written_over() -> None:
    ink = row("0+1")
    there, symbols = numbered(ink), [g.strokes for g in ink.glyphs]
    two = place([("2", 0.0, 0.0, 10.0)], "2").strokes[0]
    assert erased_by(two, there, symbols) == ("overwritten", glyph(ink, 0))
    assert overwritten(two, {0: there[0]}, symbols[:1]) == ()  # still being written
    assert overwritten(two + 6, there, symbols) == ()  # beside it
    assert overwritten(0.4 * two + 3, there, symbols) == ()  # in it, as in a theta
    assert overwritten(two, there, [(0, 7)]) == ()  # of a symbol that is not there as it was


def test_every_symbol_can_be_written_stroke_by_stroke() -> None:
    ink = row("0123456789"[:3] + "x+-=().n")
    for at, stroke in enumerate(ink.strokes):
        whole = [g.strokes for g in ink.glyphs if max(g.strokes) < at]
        assert erased_by(stroke, numbered(Ink(ink.strokes[:at])) if at else {}, whole) is None


def test_hulls() -> None:
    square = hull_of(np.array([[0, 0], [2, 0], [1, 1], [2, 2], [0, 2]], dtype=float))
    assert sorted(square.tolist()) == [[0, 0], [0, 2], [2, 0], [2, 2]]
    assert inside(evenly(np.array([[-1.0, 1.0], [1.0, 1.0]]), 5), square) == pytest.approx(0.6)
