"""The page where things come late, twice, from another tab, not at all, or are too long."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chromium import NEEDED

if not NEEDED:  # in CI its absence is an error
    pytest.importorskip("playwright.sync_api", reason="no playwright; pip install -e '.[dev]'")

from PIL import Image
from playwright.sync_api import expect
from writing import ASKED, Desk, example

from gryphone.reading.inkml import read_inkml

if TYPE_CHECKING:
    from playwright.sync_api import Browser

EMPTY = {"name": "a.inkml", "mimeType": "text/xml", "buffer": b"<ink></ink>"}


@pytest.fixture
def desk(browser: Browser, server: str) -> Iterator[Desk]:
    desk = Desk.open(browser, server, reduced_motion="no-preference")
    yield desk
    desk.context.close()


def test_a_file_that_cannot_be_read_changes_nothing(desk: Desk) -> None:
    strokes = desk.placed(example("02-sum"))
    desk.write(strokes[:-1])
    before = desk.settle()
    desk.page.set_input_files("#file", EMPTY)
    expect(desk.find("#notice-text")).to_contain_text("there is nothing to read")
    # The formula is still the ink's: it can be clicked ...
    assert desk.settle() == before
    desk.find("#formula .katex-html .mord").first.click()
    expect(desk.find('.chip[aria-pressed="true"]')).to_have_count(1)
    # ... and going on with it is still the same writing.
    desk.write(strokes[-1:])
    desk.shows("a+b=c")
    assert desk.past() == ["a+b=c"]


def test_a_file_that_cannot_be_read_does_not_keep_the_ink_unread(desk: Desk) -> None:
    desk.write(desk.placed(example("02-sum")))
    desk.page.set_input_files("#file", EMPTY)  # before the ink was read
    expect(desk.find("#notice-text")).to_contain_text("there is nothing to read")
    desk.shows("a+b=c")


def test_a_refused_file_leaves_the_status_to_the_formula(desk: Desk) -> None:
    desk.open_example("02-sum")
    status = desk.find("#status").inner_text()
    assert "sure" in status
    desk.page.set_input_files("#file", EMPTY)
    expect(desk.find("#notice-text")).to_contain_text("there is nothing to read")
    expect(desk.find("#status")).to_have_text(status)


def test_a_refused_photo_is_not_asked_about_again(desk: Desk) -> None:
    white = io.BytesIO()
    Image.new("L", (400, 200), 255).save(white, "PNG")
    photo = {"name": "white.png", "mimeType": "image/png", "buffer": white.getvalue()}
    desk.page.set_input_files("#file", photo)
    state, notice = desk.find("body"), desk.find("#notice-text")
    expect(state).to_have_attribute("data-state", "error")
    first = notice.inner_text()
    asked: list[str] = []
    desk.page.on("request", lambda request: asked.append(request.url))
    desk.page.set_input_files("#file", EMPTY)
    expect(notice).to_contain_text("there is nothing to read")
    expect(state).to_have_attribute("data-state", "error")
    desk.press(".")  # asks for another reading
    expect(state).to_have_attribute("data-state", "error")
    assert [url.rpartition("/")[2] for url in asked] == ["page"]  # about the second file
    assert notice.inner_text() != first
    # Once that message is put away, the photo's is said again.
    desk.find("#notice-close").click()
    desk.press(".")
    expect(notice).to_have_text(first)


def test_an_answer_to_other_ink_is_not_taken_for_this(desk: Desk, tmp_path: Path) -> None:
    strokes = desk.placed(example("02-sum"))
    desk.write(strokes[:-1])
    before = desk.settle()
    desk.page.route(ASKED, lambda route: route.abort())
    desk.write(strokes[-1:])
    expect(desk.find("#notice-text")).to_contain_text("cannot be reached")
    assert desk.latex == before  # the last answer stays in sight
    # It is no label of the new ink, nor does it become one in the history.
    with desk.page.expect_download() as saved:
        desk.press("s")
    saved.value.save_as(tmp_path / "formula.inkml")
    ink = read_inkml((tmp_path / "formula.inkml").read_bytes(), name="saved")
    assert (len(ink.strokes), ink.label) == (len(strokes), None)
    desk.press("r")
    expect(desk.find("body")).to_have_attribute("data-state", "error")
    # Its positions are not those of the new ink.
    desk.find(".chip").first.click()
    desk.press("l")
    expect(desk.find("#toast")).to_contain_text("not read yet")
    expect(desk.find(".chip.locked")).to_have_count(0)
    desk.page.unroute_all()
    desk.shows("a+b=c")


def test_a_long_formula_is_scrolled_by_keys(browser: Browser, server: str) -> None:
    desk = Desk.open(browser, server, viewport={"width": 140, "height": 800})
    desk.open_example("13-quadratic")
    desk.page.focus("#formula")
    desk.press("ArrowRight")
    expect(desk.find("#formula")).not_to_have_js_property("scrollLeft", 0)
    expect(desk.find('.chip[aria-pressed="true"]')).to_have_count(0)
    desk.context.close()


def test_a_selected_symbol_is_scrolled_into_sight(browser: Browser, server: str) -> None:
    desk = Desk.open(browser, server, viewport={"width": 140, "height": 800})
    desk.open_example("12-square")
    desk.page.focus("#copy-latex")
    for key in ("ArrowLeft", "ArrowRight"):  # the last symbol, then the first
        desk.press("Escape", key)
        box, formula = (desk.find(s).first.bounding_box() for s in (".box.selected", "#formula"))
        assert box is not None and formula is not None
        assert formula["x"] <= box["x"] <= formula["x"] + formula["width"] - box["width"]
        assert formula["y"] <= box["y"] <= formula["y"] + formula["height"] - box["height"]
    assert desk.page.evaluate("() => scrollY") == 0
    desk.context.close()


def test_tabs_share_one_history(browser: Browser, server: str) -> None:
    one = Desk.open(browser, server)
    other = Desk(one.context.new_page())
    other.page.goto(server)
    one.open_example("02-sum")
    other.open_example("01-power")
    assert len(one.past()) == 2
    other.find("#history-open").click()
    other.find("#history-clear").click()
    one.page.bring_to_front()
    one.open_example("03-half")
    assert one.past() == [r"\frac{1}{2}"]  # what was cleared does not come back
    one.context.close()


def test_without_storage(browser: Browser, server: str) -> None:
    """As where a browser blocks cookies: nothing is kept, and everything else works."""
    desk = Desk.open(browser, "about:blank")
    desk.page.add_init_script(
        """for (const name of ["localStorage", "sessionStorage"]) {
          const get = () => { throw new DOMException("no", "SecurityError"); };
          Object.defineProperty(window, name, { get });
        }"""
    )
    desk.page.goto(server)
    desk.write(desk.placed(example("02-sum")))
    desk.shows("a+b=c")
    desk.context.close()
    assert desk.problems == []
