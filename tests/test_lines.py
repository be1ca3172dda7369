"""Lines of a page by geometry alone, on made-up ink: each rule on its own."""

import itertools
import math

import numpy as np
import pytest
from inkmaker import Place, fraction, place, row

from gryphone.ink import Stroke
from gryphone.reading.lines import (
    Boxes,
    bars,
    bracket_of,
    brackets,
    cells_of,
    crossed_out,
    cut_odds,
    margin_line,
    rows_between,
    strips_of,
)


def at(text: str, left: float, top: float, size: float = 10.0) -> list[Stroke]:
    """A row of symbols somewhere."""
    items: list[Place] = [(c, left + 1.2 * size * i, top, size) for i, c in enumerate(text)]
    return list(place(items, text).strokes)


def level(left: float, right: float, y: float) -> Stroke:
    return np.array([[left, y], [right, y]])


def turned(strokes: list[Stroke], degrees: float) -> list[Stroke]:
    angle = math.radians(degrees)
    cos, sin = math.cos(angle), math.sin(angle)
    return [s @ np.array([[cos, sin], [-sin, cos]]) for s in strokes]


def sizes(strokes: list[Stroke], timed: bool = False) -> list[int]:
    return [len(strip) for strip in strips_of(strokes, timed)]


def odds(strokes: list[Stroke], timed: bool = False) -> list[float]:
    boxes, strips = Boxes(strokes), strips_of(strokes, timed)
    pairs = itertools.pairwise(strips)
    return [cut_odds(boxes, a, b, timed) for a, b in pairs]


def test_a_row_is_one_strip_and_two_rows_are_two() -> None:
    one = at("x+1=2", 0, 0)
    assert sizes(one) == [len(one)]
    two = [*one, *at("n-1", 3, 25)]
    assert [strip.tolist() for strip in strips_of(two)] == [[*range(8)], [*range(8, len(two))]]
    assert odds(two) == [math.inf]


def test_lines_are_found_on_a_page_askew() -> None:
    lines = [at("x+1=2x+1=2", 0, 0), at("n-1+n-1+n-1", 3, 20), at("x+1=2", 0, 40)]
    page = turned([s for line in lines for s in line], 4)
    assert sizes(page) == [len(line) for line in lines]


def test_a_fraction_is_no_pile_of_lines() -> None:
    ink = fraction()
    assert sizes(list(ink.strokes)) == [len(ink.strokes)]
    # A numerator and a denominator far from their bar, wide as lines are.
    above, below = at("x+1", 2, 0), at("n-1", 2, 24)
    assert sizes([*above, level(0, 40, 17), *below]) == [9]
    assert sizes([*above, *below]) == [5, 3]  # it is the bar that holds them


def test_a_minus_between_two_lines_is_no_fraction_bar() -> None:
    page = [*at("x+1=2", 0, 0), *at("n-1-n", 0, 19), *at("2=1+x", 0, 38)]
    assert sizes(page) == [8, 5, 8]


def test_an_equals_sign_has_no_fraction_bar() -> None:
    assert bars(Boxes(at("=", 0, 0) + at("x", 12, 0))).tolist() == [False] * 4
    assert bars(Boxes([level(0, 20, 0), *at("x", 4, 4)])).tolist() == [True, False, False]


def test_dots_and_strokes_that_are_no_line_go_to_the_nearest() -> None:
    first, second = at("x+1=2", 0, 0), at("n-1+n", 0, 30)
    dot = [np.array([[30.0, 16.0]])]
    assert sizes([*first, *second, *dot]) == [9, 6]


def test_what_lies_between_two_lines_goes_to_the_one_that_was_written_with_it() -> None:
    first, second = at("x+1=2", 0, 0), at("n-1+n", 0, 22)
    dot = [np.array([[30.0, 15.0]])]
    assert sizes([*first, *second, *dot], timed=False) == [9, 6]
    assert sizes([*first, *second, *dot], timed=True) == [8, 7]


def test_who_goes_back_with_the_pen_writes_the_same_formula() -> None:
    upper, lower = at("x+1=2", 0, 0), at("n-1+n", 0, 19)
    assert odds([*upper, *lower], timed=True)[0] > 0
    later = [*upper[:2], *lower, *upper[2:]]
    assert odds(later, timed=True) == [-math.inf]
    assert math.isfinite(odds(later, timed=False)[0])


def test_what_is_written_smaller_is_rather_a_limit_than_a_line() -> None:
    alike = odds([*at("x+1=2", 0, 0), *at("n=1", 0, 19)])[0]
    small = odds([*at("x+1=2", 0, 0), *at("n=1", 0, 17, 5.0)])[0]
    assert alike > 0 > small


def test_what_a_fraction_bar_lacks_is_rather_its_half_than_a_line() -> None:
    above, below = at("x+1", 12, 0), at("n-1", 12, 24)
    strips = np.arange(6), np.arange(6, 9)
    bar, minus = ([*above, line, *below] for line in (level(10, 50, 17), level(10, 20, 17)))
    assert cut_odds(Boxes(bar), *strips) + 2 < cut_odds(Boxes(minus), *strips)
    # A long bar with only `=1` beside it lacks what stands above it.
    rest = [level(10, 50, 17), *at("=1", 55, 12)]
    long, short = ([*above, *rest], [*above, level(10, 22, 17), *rest[1:]])
    strips = np.arange(5), np.arange(5, 9)
    assert cut_odds(Boxes(long), *strips) + 2 < cut_odds(Boxes(short), *strips)


def test_a_line_that_climbs_is_rather_one_than_two() -> None:
    stairs = [*at("x+1", 0, 0), *at("n-1", 38, 13)]
    assert odds(stairs) == [-4.0]
    assert odds([*at("x+1", 0, 0), *at("n-1", 20, 13)])[0] > -4
    # Nor is it two for a dot over its end that was taken for the beginning's.
    dot = np.array([[40.0, 10.0], [41.0, 10.5]])
    boxes = Boxes([*stairs, dot])
    beginning = np.array([*range(len(at("x+1", 0, 0))), len(stairs)])
    end = np.setdiff1d(np.arange(len(stairs)), beginning)
    assert cut_odds(boxes, beginning, end) == -4.0


def test_doubt_grows_as_the_paper_between_two_lines_shrinks() -> None:
    gaps = (12.0, 14.0, 16.0, 18.0)
    found = [odds([*at("x+1=2", 0, 0), *at("n-1+n", 0, 4 + gap)])[0] for gap in gaps]
    assert found == sorted(found)
    assert found[0] < 0 < found[-1] and all(map(math.isfinite, found))


def test_parts_of_one_height_are_one_strip_however_far_apart() -> None:
    assert sizes([*at("x+1", 0, 0), *at("=2", 80, 1)]) == [8]


def test_a_note_in_the_margin_does_not_join_two_lines() -> None:
    lines = [*at("x+1=2", 0, 0), *at("n-1+n", 0, 25)]
    assert sizes([*lines, *at("n", 100, 12, 12.0)]) == [8, 1, 6]


def test_scribbles_and_lines_through_writing_cross_it_out() -> None:
    text = at("x+1=2", 0, 0)
    assert crossed_out(text) == []
    strike = level(-3, 60, 5.5) + np.array([[0, -1], [0, 1.0]])
    assert crossed_out([*text, strike]) == [(*range(9),)]  # the level strokes of + and =, too
    traced = np.concatenate([strike, [[10.0, 6.0], [14.0, 12.0]]])  # goes back, and on elsewhere
    assert crossed_out([*text, traced]) == [(*range(9),)]
    zigzag = np.array([[x, 12 * (i % 2) - 1] for i, x in enumerate(np.linspace(-1, 10, 14))])
    assert crossed_out([*text, zigzag]) == [(0, 1, 8)]
    assert crossed_out(list(fraction().strokes)) == []


def test_a_line_in_the_margin_is_no_ink_of_the_rows_beside_it() -> None:
    rows = [*at("x+1=2", 0, 0), *at("n-1+n", 0, 25)]
    for x in (-8.0, 75.0):  # on either side
        upright = np.array([[x, -4.0], [x + 1, 15], [x, 39]])
        assert sizes([*rows, upright]) != [8, 6] and margin_line([*rows, upright]) == 14
    left = np.array([[-8.0, -4.0], [-8.0, 39]])
    numbered = [*at("1", -20, 0), *at("2", -20, 25), *rows, left]  # behind the numbers of exercises
    assert margin_line(numbered) == len(numbered) - 1
    columns = [*rows, *at("n-1", 100, 0), *at("x+1", 100, 25), left + np.array([93, 0])]
    assert margin_line(columns) == len(columns) - 1  # between two columns
    assert margin_line(rows) is margin_line([left]) is None
    assert margin_line([*at("x+1=2", 0, 0), left]) is None  # of one row it may be a symbol
    assert margin_line([*rows, left, left + np.array([80, 0])]) is None  # a determinant
    assert margin_line([*rows, left + np.array([30, 0])]) is None  # through the rows
    assert margin_line([*rows, brace(-8, -3, 42)]) is None


def arc(left: float, top: float, height: float, depth: float) -> Stroke:
    t = np.linspace(-1, 1, 21)
    return np.stack([left + depth * t**2, top + height * (t + 1) / 2], 1)


def corner(left: float, top: float, height: float, depth: float) -> Stroke:
    ends = [[left + depth, top], [left, top], [left, top + height], [left + depth, top + height]]
    return np.array(ends)


def brace(left: float, top: float, height: float) -> Stroke:
    points = [(4, 0), (2, 0.05), (2, 0.42), (0, 0.5), (2, 0.58), (2, 0.95), (4, 1)]
    return np.array([[left + x, top + height * y] for x, y in points])


def test_brackets_of_one_row_do_not_hide_those_of_several() -> None:
    """f(g(x)) = {x+1, n-1."""
    before = [arc(9.0 * k, 12, 22, 3) for k in range(4)]
    rows = [*at("x+1", 60, 0), *at("n-1", 60, 35)]
    strokes = [*before, brace(45, -3, 52), *rows]
    assert brackets(strokes, np.arange(len(strokes))) == (4, None)


def test_a_bracket_holds_all_rows_that_it_reaches_round() -> None:
    rows = [*at("x+1=2x+1=2", 30, 0), *at("x+1=2", 30, 29, 13.0), *at("n-1", 30, 60)]
    outside = at("n-1", 30, 95)
    assert sizes([brace(0, -3, 76) * [2, 1], *rows, *outside]) == [len(rows) + 1, len(outside)]


@pytest.mark.parametrize(
    ("stroke", "kind"),
    [
        (arc(0, 0, 40, 6), "("),
        (arc(0, 0, 100, 5), "("),
        (corner(0, 0, 40, 6), "["),
        (brace(0, 0, 40), "{"),
        (np.array([[0.0, 0], [0.5, 40]]), "|"),
    ],
)
def test_brackets_are_told_by_their_shape(stroke: Stroke, kind: str) -> None:
    assert bracket_of(stroke) == kind
    assert bracket_of(stroke * [-1, 1]) == kind  # the closing one


def test_a_brace_opens_rows_and_brackets_enclose_them() -> None:
    inner = [*at("x+1", 10, 0), *at("n-1", 10, 26)]
    cases = [brace(0, -2, 40), *inner]
    strip = np.arange(len(cases))
    assert sizes(cases) == [len(cases)]  # held together by the brace
    assert brackets(cases, strip) == (0, None)
    rows = rows_between(cases, strip, 0, None)
    assert [row.tolist() for row in rows] == [[1, 2, 3, 4, 5], [6, 7, 8]]
    matrix = [arc(0, -2, 40, 5), *at("1", 10, 0), *at("2", 30, 0), *at("0", 10, 24)]
    matrix += [*at("1", 30, 24), arc(50, -2, 40, -5)]
    strip = np.arange(len(matrix))
    assert brackets(matrix, strip) == (0, 5)
    rows = rows_between(matrix, strip, 0, 5)
    assert [[c.tolist() for c in r] for r in cells_of(matrix, rows, 0.5)] == [
        [[1], [2]],
        [[3], [4]],
    ]
    root = [arc(0, -2, 40, 5), level(8, 60, -2), *at("x+1", 10, 14)]
    assert brackets(root, np.arange(len(root))) is None
    assert brackets(list(row("(n-1)").strokes), np.arange(5)) is None
