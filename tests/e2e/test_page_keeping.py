"""What the page must not lose: corrections, what is typed, the keyboard's place, the history."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from chromium import NEEDED

if not NEEDED:  # in CI its absence is an error
    pytest.importorskip("playwright.sync_api", reason="no playwright; pip install -e '.[dev]'")

from PIL import Image
from playwright.sync_api import expect
from writing import ASKED, EXAMPLES, Desk, example

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BETA = r"a+\beta=c"


@pytest.fixture
def desk(browser: Browser, server: str) -> Iterator[Desk]:
    """A desktop window; the page must not complain."""
    with Desk.flawless(browser, server, permissions=["clipboard-read", "clipboard-write"]) as desk:
        yield desk


def correct(desk: Desk) -> None:
    """Write a+b=c and say that b is β."""
    assert desk.write_example("02-sum") == "a+b=c"
    desk.find(".chip").nth(2).click()
    desk.find("#other").fill(r"\beta")
    desk.press("Enter")
    desk.shows(BETA)


def test_a_correction_belongs_to_its_ink(desk: Desk) -> None:
    correct(desk)
    ink = len(desk.ink())
    desk.page.reload()
    desk.shows(BETA)
    expect(desk.find(".chip.locked")).to_have_count(1)
    # Writing on leaves it alone; erasing its ink does not.
    desk.find(".chip").last.click()
    desk.press("Delete")
    desk.shows(r"a+\beta=")
    expect(desk.find(".chip.locked")).to_have_count(1)
    desk.find(".chip.locked").click()
    desk.press("Delete")
    expect(desk.find(".chip.locked")).to_have_count(0)
    desk.settle()
    desk.press("Control+z", "Control+z")
    desk.shows(BETA)
    assert len(desk.ink()) == ink
    desk.press("x")
    expect(desk.find("body")).to_have_attribute("data-state", "idle")
    desk.find("#history-open").click()
    desk.find("#history-list .again").first.click()
    desk.shows(BETA)
    assert desk.past() == [BETA]


def test_a_second_tab_does_not_write_into_the_first_ones_entry(desk: Desk) -> None:
    desk.open_example("02-sum")
    with desk.context.expect_page() as opened:
        desk.page.evaluate("() => void window.open(location.href)")
    second = Desk(opened.value)
    second.settle()
    second.press("ArrowRight", "Delete")
    second.shows("+b=c")
    assert sorted(desk.past()) == ["+b=c", "a+b=c"]


def test_what_is_not_read_is_not_copied(desk: Desk) -> None:
    desk.open_example("02-sum")
    desk.page.evaluate("() => navigator.clipboard.writeText('before')")
    desk.page.route(ASKED, lambda route: None)  # the server takes its time
    desk.press("Control+z", "Control+Shift+z")
    box = desk.find("#pad").bounding_box()
    assert box is not None
    desk.write([[(box["x"] + 30, box["y"] + 30), (box["x"] + 60, box["y"] + 60)]])
    expect(desk.find("#copy-latex")).to_be_disabled()
    desk.press("c")
    expect(desk.find("#toast")).to_have_text("The new ink is not read yet")
    assert desk.page.evaluate("() => navigator.clipboard.readText()") == "before"


def test_the_keyboard_keeps_its_place(desk: Desk) -> None:
    desk.open_example("02-sum")
    desk.find(".chip").nth(2).focus()
    desk.press("Enter")
    desk.find(".others button").first.focus()
    desk.press("Enter")
    expect(desk.find(".chip.locked")).to_have_count(1)
    desk.settle()
    expect(desk.find(".chosen .lock")).to_be_focused()
    desk.press("Enter")
    desk.shows("a+b=c")
    expect(desk.find(".chosen .lock")).to_be_focused()
    desk.find("#inspector").get_by_role("button", name="Close").focus()
    desk.press("Enter")
    expect(desk.find(".chip").nth(2)).to_be_focused()
    desk.find("#clear").focus()
    desk.press("Enter")
    expect(desk.find("#undo")).to_be_focused()


def test_what_is_typed_outlives_an_answer(desk: Desk) -> None:
    desk.open_example("02-sum")
    desk.find(".chip").nth(2).click()
    desk.find("#other").press_sequentially(r"\bet")
    desk.page.evaluate("() => document.getElementById('steps').dispatchEvent(new Event('input'))")
    expect(desk.find("body")).to_have_attribute("data-state", "waiting")
    desk.settle()
    expect(desk.find("#other")).to_be_focused()
    desk.page.keyboard.type("a")
    expect(desk.find("#other")).to_have_value(r"\beta")
    desk.press("Enter")
    desk.shows(BETA)
    desk.find("#other").focus()
    desk.press("Escape")
    expect(desk.find("#inspector .chosen")).to_have_count(0)


def test_removed_entries_come_back(desk: Desk) -> None:
    for name in ("01-power", "02-sum", "03-half"):
        desk.open_example(name)
    before = desk.past()
    assert len(before) == 3
    desk.find("#history-open").click()
    desk.find("#history-list [aria-label^=Remove]").nth(1).dblclick()
    assert desk.past() == [before[0], before[2]]
    desk.find("#history-list").get_by_text("Undo").click()
    assert desk.past() == before
    desk.find("#history-clear").click()
    assert desk.past() == []
    desk.find("#history-list").get_by_text("Undo").click()
    assert desk.past() == before


def test_shortcuts_work_beside_the_slider(desk: Desk) -> None:
    desk.open_example("02-sum")
    desk.find("#steps").focus()
    desk.press("Control+z")
    expect(desk.find("body")).to_have_attribute("data-state", "idle")
    # The key of a Latin z on a Russian keyboard.
    desk.page.evaluate(
        """() => document.body.dispatchEvent(new KeyboardEvent("keydown", {
          key: "Я", code: "KeyZ", ctrlKey: true, shiftKey: true, bubbles: true }))"""
    )
    desk.shows("a+b=c")


def test_a_list_has_its_keys_to_itself(desk: Desk) -> None:
    desk.open_example("02-sum")
    desk.find("#format").focus()
    desk.press("x", "t", "e", "ArrowRight")
    assert len(desk.ink()) == len(example("02-sum"))
    expect(desk.find("html")).not_to_have_attribute("data-theme", re.compile("light|dark"))
    expect(desk.find("#pad")).not_to_have_attribute("data-mode", "eraser")
    expect(desk.find('.chip[aria-pressed="true"]')).to_have_count(0)
    desk.press("Control+z")
    expect(desk.find("body")).to_have_attribute("data-state", "idle")


def test_a_photo_leaves_its_ink_to_a_reload(desk: Desk) -> None:
    desk.page.set_input_files("#file", EXAMPLES / "photo" / "02-sum.jpg")
    latex = desk.settle()
    desk.page.reload()
    desk.settle()
    assert len(desk.ink()) > 3
    assert desk.latex == latex


def test_a_large_transparent_picture_lies_on_white(desk: Desk) -> None:
    grey = Image.open(EXAMPLES / "clean" / "02-sum.png").convert("L")
    grey = grey.resize((3200, round(3200 * grey.height / grey.width)))
    picture = Image.new("RGBA", grey.size, (0, 0, 0, 0))
    picture.putalpha(grey.point(lambda value: 255 - value))
    data = io.BytesIO()
    picture.save(data, "PNG")
    desk.page.set_input_files(
        "#file", {"name": "a.png", "mimeType": "image/png", "buffer": data.getvalue()}
    )
    desk.shows("a+b=c")


def test_a_gif_is_read_and_a_drawing_is_refused(desk: Desk) -> None:
    data = io.BytesIO()
    Image.open(EXAMPLES / "clean" / "02-sum.png").save(data, "GIF")
    desk.page.set_input_files(
        "#file", {"name": "a.gif", "mimeType": "image/gif", "buffer": data.getvalue()}
    )
    desk.shows("a+b=c")
    expect(desk.find("#file")).to_have_attribute("accept", re.compile(r"image/\*,\.inkml,.*\.json"))
    # A refusal stays when an answer comes meanwhile.
    desk.press(".")
    svg = {"name": "a.svg", "mimeType": "image/svg+xml", "buffer": b"<svg/>"}
    desk.page.set_input_files("#file", svg)
    desk.settle()
    expect(desk.find("#notice-text")).to_contain_text("a.svg is neither a picture")
    expect(desk.find("#notice")).to_be_visible()


def test_a_server_that_hangs_is_named(desk: Desk) -> None:
    desk.page.clock.install()
    desk.page.route(ASKED, lambda route: None)
    desk.page.set_input_files("#file", EXAMPLES / "ink" / "02-sum.inkml")
    desk.page.clock.run_for(13_000)
    expect(desk.find("#notice-text")).to_have_text(
        "The server has not answered yet. Your ink is kept."
    )
    desk.page.unroute(ASKED)
    desk.find("#notice-retry").dispatch_event("click")  # the page may have tried again by itself
    desk.page.clock.run_for(1_000)
    desk.page.clock.resume()
    desk.shows("a+b=c")
    expect(desk.find("#notice")).to_be_hidden()


def test_undo_and_redo_know_locks(desk: Desk) -> None:
    correct(desk)
    ink = len(desk.ink())
    desk.press("Escape", "Control+z")
    desk.shows("a+b=c")
    expect(desk.find(".chip.locked")).to_have_count(0)
    assert len(desk.ink()) == ink
    desk.press("Control+Shift+z")
    desk.shows(BETA)
    expect(desk.find(".chip.locked")).to_have_count(1)


def test_the_history_beside_the_paper(desk: Desk) -> None:
    desk.open_example("02-sum")
    desk.open_example("01-power")
    rows = desk.find("#recent li")
    expect(rows).to_have_count(2)
    assert rows.nth(1).locator(".thumbnail path").get_attribute("d").count("M") == len(
        example("02-sum")
    )
    rows.nth(1).get_by_role("button", name="Copy").click()
    expect(desk.find("#toast")).to_have_text("LaTeX copied")
    assert desk.page.evaluate("() => navigator.clipboard.readText()") == "a+b=c"
    # The keys of any other page copy what is read; what is selected is copied as ever.
    desk.press("Control+c")
    desk.wait_for("navigator.clipboard.readText().then((text) => text === 'x^{2}')")
    desk.page.evaluate("() => getSelection().selectAllChildren(document.querySelector('.tagline'))")
    desk.press("Control+c")
    desk.wait_for("navigator.clipboard.readText().then((text) => text.startsWith('Write a'))")
    rows.nth(1).locator(".again").click()
    desk.shows("a+b=c")


@pytest.mark.parametrize("broken", ["{", '{"a":1}', '[{"id":"1"},null]'])
def test_what_is_damaged_is_put_aside(desk: Desk, broken: str) -> None:
    desk.open_example("02-sum")
    desk.page.evaluate(
        """(broken) => {
          const kept = JSON.parse(localStorage.getItem("gryphone.history"));
          const list = broken.startsWith("[") ? [...JSON.parse(broken), ...kept] : null;
          localStorage.setItem("gryphone.history", list ? JSON.stringify(list) : broken);
          const draft = '{"strokes": [{"points": [[1, null]]}]}';
          sessionStorage.setItem("gryphone.draft", draft);
        }""",
        broken,
    )
    desk.page.reload()
    expect(desk.find("#notice-text")).to_contain_text(
        "put aside (gryphone.history.damaged, gryphone.draft.damaged)"
    )
    aside = desk.page.evaluate("() => localStorage.getItem('gryphone.history.damaged')")
    assert broken.strip("[]") in aside
    sound = ["a+b=c"] if broken.startswith("[") else []
    assert desk.past() == sound
    desk.open_example("01-power")
    assert desk.past() == ["x^{2}", *sound]


def test_the_example(desk: Desk) -> None:
    desk.find("#example").click()
    desk.shows(r"x=\frac{-b+\sqrt{b^{2}-4ac}}{2a}")
    expect(desk.find("#example")).to_be_hidden()
