"""The page while one writes: readings go on under the pen, known symbols stay, gestures erase."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from chromium import NEEDED

if not NEEDED:  # in CI its absence is an error
    pytest.importorskip("playwright.sync_api", reason="no playwright; pip install -e '.[dev]'")

from playwright.sync_api import expect
from writing import ASKED, Desk, Stroke, example

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

LIVE = "**/v1/live"


@pytest.fixture
def desk(browser: Browser, server: str) -> Iterator[Desk]:
    with Desk.flawless(browser, server, reduced_motion="no-preference") as desk:
        yield desk


def zigzag(strokes: list[Stroke], turns: int = 9) -> Stroke:
    """A scratch-out over strokes."""
    xs, ys = zip(*(point for stroke in strokes for point in stroke), strict=True)
    left, width = min(xs) - 5, max(xs) - min(xs) + 10
    corners = [
        (left + width * i / turns, (min(ys) - 4, max(ys) + 4)[i % 2]) for i in range(turns + 1)
    ]
    out: Stroke = []
    for (ax, ay), (bx, by) in pairwise(corners):
        out += [(ax + (bx - ax) * k / 6, ay + (by - ay) * k / 6) for k in range(7)]
    return out


def test_a_reading_goes_on_under_the_pen_and_leaves_known_symbols_alone(desk: Desk) -> None:
    strokes = desk.placed(example("02-sum"))
    held: list[Route] = []
    desk.page.route(LIVE, lambda route: route.continue_() if held else held.append(route))
    desk.write(strokes[:-1])
    while not held:
        desk.page.wait_for_timeout(20)
    # The pen goes down while the first reading is under way: it is finished, and shown.
    mouse = desk.page.mouse
    mouse.move(*strokes[-1][0])
    mouse.down()
    mouse.move(*strokes[-1][1])
    held[0].continue_()
    desk.wait_for("document.getElementById('latex').textContent !== ''")
    desk.wait_for("document.getElementById('latex').textContent === 'a+b='")  # the next one, too
    desk.page.evaluate(
        """() => {
          window.seen = new Set();
          window.texts = [];
          const note = () => {
            for (const box of document.querySelectorAll(".box.masked")) {
              window.seen.add(Number(box.dataset.position));
            }
          };
          const latex = document.getElementById("latex");
          const keep = () => window.texts.push(latex.textContent);
          new MutationObserver(note).observe(document.querySelector(".boxes"), { childList: true });
          new MutationObserver(keep).observe(latex, { childList: true });
        }"""
    )
    for point in strokes[-1][2:]:
        mouse.move(*point)
    mouse.up()
    desk.shows("a+b=c")
    # Only the new symbol was a box, and nothing that stood went away.
    assert desk.page.evaluate("() => [...window.seen]") == [4]
    assert all(text.startswith("a+b=") for text in desk.page.evaluate("() => window.texts"))


def test_a_formula_that_is_out_of_date_is_dim(desk: Desk) -> None:
    strokes = desk.placed(example("02-sum"))
    desk.write(strokes[:-1])
    desk.settle()
    expect(desk.find("#formula.stale")).to_have_count(0)
    desk.page.route(ASKED, lambda route: None)
    desk.write(strokes[-1:])
    expect(desk.find("#formula.stale")).to_have_count(1)
    assert desk.latex == "a+b="  # the newest guess stays
    expect(desk.find("#copy-latex")).to_be_disabled()


def test_scratching_out_erases_and_undo_brings_back(desk: Desk) -> None:
    strokes = desk.placed(example("02-sum"))
    desk.write(strokes)
    desk.shows("a+b=c")
    desk.write([zigzag(strokes[-1:])])
    expect(desk.find("#toast")).to_have_text("Scratched out; undo brings it back")
    desk.shows("a+b=")
    assert len(desk.ink()) == len(strokes) - 1
    desk.press("Control+z")
    desk.shows("a+b=c")
    assert len(desk.ink()) == len(strokes)
    desk.press("Control+Shift+z")
    desk.shows("a+b=")
