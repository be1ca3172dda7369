"""Several formulas on one page, and paper for more than the window shows."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from chromium import NEEDED

if not NEEDED:  # in CI its absence is an error
    pytest.importorskip("playwright.sync_api", reason="no playwright; pip install -e '.[dev]'")

from PIL import Image
from playwright.sync_api import expect
from writing import EXAMPLES, Desk, Stroke, example

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CASES = r"\begin{cases}a+b=c\\y=kx+b\end{cases}"
TWO = r"\begin{aligned} a+b &=c \\ y &=kx+b \end{aligned}"


@pytest.fixture
def desk(browser: Browser, server: str) -> Iterator[Desk]:
    with Desk.flawless(browser, server) as desk:
        yield desk


def below(*names: str, room: float = 60) -> list[Stroke]:
    """Bundled drawings below each other."""
    out: list[Stroke] = []
    bottom = 0.0
    for name in names:
        strokes = example(name)
        left, top = (min(point[axis] for s in strokes for point in s) for axis in (0, 1))
        moved = [[(x - left, y - top + bottom) for x, y in s] for s in strokes]
        out += moved
        bottom = max(y for s in moved for _, y in s) + room
    return out


def test_two_lines_of_ink(desk: Desk) -> None:
    answers: list[dict[str, Any]] = []
    asked: list[str] = []
    desk.page.on("request", lambda r: asked.append(r.url.rpartition("/v1/")[2]))
    desk.page.on("response", lambda r: answers.append(r.json()) if "/v1/page" in r.url else None)
    strokes = below("02-sum", "06-line")
    desk.write(desk.placed(strokes))
    desk.shows(TWO)
    assert answers[-1]["aligned"] == TWO  # the page's own words for it
    expect(desk.find("#status")).to_have_text(re.compile("2 formulas · .* sure"))
    expect(desk.find(".chips .number")).to_have_text(["1", "2"])
    desk.find("#form").select_option("cases")
    assert desk.latex == r"\begin{cases} a+b=c \\ y=kx+b \end{cases}"
    desk.find("#form").select_option("separate")
    assert desk.latex.split() == ["a+b=c", "y=kx+b"]
    desk.find("#form").select_option("aligned")
    # A lock in the second line asks about that line only, and undo takes it back.
    asked.clear()
    desk.find(".chip").nth(8).click()
    desk.find("#other").fill("K")
    desk.press("Enter")
    locked = TWO.replace("kx", "kK")
    desk.shows(locked)
    assert asked == ["recognize/stream"]
    desk.press("Escape", "Control+z")
    desk.shows(TWO)
    assert len(desk.ink()) == len(strokes)
    desk.press("Control+Shift+z")
    desk.shows(locked)
    # Lines and locks outlive a reload, and nobody looks for the lines again.
    asked.clear()
    desk.page.reload()
    desk.shows(locked)
    assert "page" not in asked
    assert desk.past() == [locked]


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (760, 900), (360, 640)])
def test_a_note_leaves_the_formulas_alone(desk: Desk, width: int, height: int) -> None:
    desk.page.set_viewport_size({"width": width, "height": height})
    whole = desk.find(".result").bounding_box()
    columns = [below("06-line", "14-euler"), below("05-root", "04-indices")]
    ends = [max(p[0] for s in column for p in s) for column in columns]
    right = [[(x + ends[0] + 160, y) for x, y in s] for s in columns[1]]
    bottom = max(p[1] for s in columns[0] + right for p in s)
    line = [(ends[0] + 80 + k / 100, k * bottom / 2) for k in range(3)]
    desk.write(desk.placed([*columns[0], *right, line]))
    note = desk.find("#note")
    expect(note).to_have_text("margin line was left out")
    desk.settle()
    # What does not fit is scrolled, and ends above the note; the paper has not moved.
    boxes = [desk.find(name).bounding_box() for name in ("#note", ".stage", "#formula")]
    note_box, *clipped = [box for box in boxes if box is not None]
    assert min(box["y"] + box["height"] for box in clipped) <= note_box["y"] + 1
    assert desk.find(".result").bounding_box() == whole


def test_two_lines_of_a_picture(desk: Desk) -> None:
    parts = [Image.open(EXAMPLES / "clean" / f"{name}.png") for name in ("02-sum", "06-line")]
    page = Image.new("L", (max(p.width for p in parts), sum(p.height for p in parts) + 40), 255)
    page.paste(parts[0].convert("L"), (0, 0))
    page.paste(parts[1].convert("L"), (0, parts[0].height + 40))
    data = io.BytesIO()
    page.save(data, "PNG")
    picture = {"name": "page.png", "mimeType": "image/png", "buffer": data.getvalue()}
    desk.page.set_input_files("#file", picture)
    desk.shows(TWO)
    # A symbol of the second line is erased in the ink that was traced; the first stays.
    desk.find(".chip").last.click()
    desk.press("Delete")
    desk.shows(TWO.replace("kx+b", "kx+"))
    desk.press("Control+z")
    desk.shows(TWO)


def test_rows_behind_a_brace_have_their_marks(desk: Desk) -> None:
    """Tokens of a frame become LaTeX in which every symbol, and nothing else, has its place."""
    found = desk.page.evaluate(
        r"""async () => {
          const { markedLatex } = await import("./static/js/latex.js");
          const tokens = ["f", "=", "\\begin{cases}", "x", "^", "{", "2", "}", "&",
            "\\sqrt", "{", "y", "}", "\\\\", "0", "\\end{cases}"];
          const latex = markedLatex([], { tokens, offset: 10, relation: true });
          const element = document.createElement("div");
          const rows = `\\begin{aligned}${latex}\\end{aligned}`;
          katex.render(rows, element, { throwOnError: true, strict: false, trust: true });
          return [latex, [...element.querySelectorAll("[data-p]")].map((e) => Number(e.dataset.p))];
        }"""
    )
    latex, places = found
    assert latex.count(r"\begin{cases}") == 1
    assert latex.startswith(r"\htmlData{p=10}{f}&")
    assert sorted(places) == [10, 11, 12, 13, 14, 15, 16]


def brace(strokes: list[Stroke]) -> Stroke:
    """A curly one before some rows, as high as they are."""
    left = min(x for s in strokes for x, _ in s) - 70
    top, bottom = (f(y for s in strokes for _, y in s) for f in (min, max))
    middle, depth = (top + bottom) / 2, 24
    outline = [(depth, top), (depth / 2, top + 20), (depth / 2, middle - 25), (0, middle)]
    outline += [(depth / 2, middle + 25), (depth / 2, bottom - 20), (depth, bottom)]
    return [(left + x, y) for x, y in outline]


def test_a_symbol_behind_a_brace_can_be_locked(desk: Desk) -> None:
    rows = below("02-sum", "06-line")
    desk.write(desk.placed([brace(rows), *rows]))
    desk.shows(CASES)
    desk.find(".chip").nth(2).click()
    desk.find("#other").fill(r"\beta")
    desk.press("Enter")
    desk.shows(CASES.replace("+b=", r"+\beta="))
    expect(desk.find(".chip.locked")).to_have_attribute("data-position", "2")
    desk.press("Escape", "Control+z")
    desk.shows(CASES)
    expect(desk.find(".chip.locked")).to_have_count(0)


def test_paper_grows_and_scrolls(desk: Desk) -> None:
    box = desk.find("#pad").bounding_box()
    assert box is not None
    across, room = desk.find(".bar.across"), desk.find("#room-right")
    expect(across).to_be_hidden()
    right, middle = box["x"] + box["width"], box["y"] + 150
    desk.write([[(right - 60, middle), (right - 30, middle)]])
    room.click()
    expect(room).to_be_hidden()
    desk.write([[(right - 60, middle), (right - 30, middle)]])
    width = max(x for stroke in desk.ink() for x, *_ in stroke)
    assert width > 1.5 * box["width"]
    # What is out of sight has a bar, which brings it back.
    before = desk.view()[1]
    desk.press(*6 * ["Shift+ArrowRight"])
    assert desk.view()[1] == before - 480
    before -= 480
    expect(across).to_be_visible()
    thumb = across.locator("span").bounding_box()
    assert thumb is not None
    x, y = thumb["x"] + thumb["width"] / 2, thumb["y"] + thumb["height"] / 2
    desk.page.mouse.move(x, y)
    desk.page.mouse.down()
    desk.page.mouse.move(x - 100, y)
    desk.page.mouse.up()
    assert desk.view()[1] > before + 100
    assert len(desk.ink()) == 2
