"""The page as a person uses it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chromium import NEEDED

if not NEEDED:  # in CI its absence is an error
    pytest.importorskip("playwright.sync_api", reason="no playwright; pip install -e '.[dev]'")

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Route, expect
from writing import ASKED, EXAMPLES, PATIENCE, STREAM, Desk, example

from gryphone.latex.lexer import tokenize
from gryphone.reading.inkml import read_inkml
from gryphone.tokens import SatTokenizer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}


@pytest.fixture
def desk(browser: Browser, server: str) -> Iterator[Desk]:
    """A desktop window; the page must not complain, nor break its own content policy."""
    with Desk.flawless(browser, server) as desk:
        yield desk


@pytest.fixture
def phone(browser: Browser, server: str) -> Iterator[Desk]:
    """A phone."""
    with Desk.flawless(browser, server, **PHONE) as desk:
        yield desk


def serious(desk: Desk) -> list[str]:
    """What axe finds and must not find; half-way between two themes nothing has enough contrast."""
    desk.page.wait_for_function("() => document.getAnimations().length === 0")
    found = Axe().run(desk.page).response["violations"]
    return [
        f"{v['id']}: {v['nodes'][0]['html'][:200]}"
        for v in found
        if v["impact"] in ("serious", "critical")
    ]


def test_writing_becomes_latex_step_by_step(desk: Desk) -> None:
    desk.page.emulate_media(reduced_motion="no-preference")
    expect(desk.find(".placeholder")).to_be_visible()
    desk.page.evaluate(
        """() => {
          window.seen = [];
          const status = document.getElementById("status");
          new MutationObserver(() => {
            window.seen.push([status.textContent, document.querySelectorAll(".box.masked").length]);
          }).observe(status, { childList: true });
        }"""
    )
    desk.find("#steps").fill("10")
    assert desk.write_example("09-series") == r"\sum_{k=1}^{n}k^{2}"
    desk.page.evaluate("() => { window.seen = []; }")
    desk.press("r")
    desk.wait_for("window.seen.length > 10")
    desk.settle()
    seen = desk.page.evaluate("() => window.seen")
    steps = [text for text, _ in seen if text.startswith("Step")]
    assert steps == [f"Step {i} of 10" for i in range(1, 11)]
    # The first step sees nothing: every one of the seven symbols is a box.
    assert dict(map(tuple, seen))["Step 1 of 10"] == 7
    assert "% sure" in seen[-1][0]
    assert seen[-1][1] == 0
    expect(desk.find("#formula .katex-html .mop")).to_have_count(2)
    expect(desk.find(".chip")).to_have_count(7)
    expect(desk.find("#live")).to_contain_text(r"Read as \sum_{k=1}^{n}k^{2}")


def test_a_symbol_shows_its_ink_and_locks_an_alternative(desk: Desk) -> None:
    before = desk.write_example("02-sum")
    assert before == "a+b=c"
    dark = desk.page.screenshot(clip=desk.find("#pad").bounding_box())
    glyph = desk.find("#formula .katex-html").get_by_text("b", exact=True)
    glyph.click()
    expect(desk.find('.chip[aria-pressed="true"]')).to_have_attribute("data-position", "2")
    expect(desk.find(".box.selected")).to_have_count(1)
    assert desk.page.screenshot(clip=desk.find("#pad").bounding_box()) != dark
    others = desk.find(".others button")
    assert others.count() >= 3
    choice = others.first.get_attribute("data-symbol")
    assert choice is not None
    others.first.click()
    expect(desk.find(".box.locked .icon")).to_have_count(1)
    expect(desk.find("#latex")).not_to_have_text(before)
    assert choice in desk.settle()
    assert desk.find(".chip.locked").get_attribute("aria-label").endswith("locked")
    # What it was is offered back; unlocking brings it back.
    expect(desk.find('.others button[data-symbol="b"]')).to_have_count(1)
    desk.find(".lock.on").click()
    desk.shows(before)
    # Any known symbol can be typed; locks go when the ink changes.
    desk.find("#other").fill(r"\beta")
    desk.press("Enter")
    desk.shows(r"a+\beta=c")
    desk.press("Escape", "Control+z")
    expect(desk.find(".chip.locked")).to_have_count(0)
    desk.settle()


def test_a_lock_that_no_formula_can_keep_is_taken_off(desk: Desk) -> None:
    desk.open_example("02-sum")
    desk.press("ArrowRight", "l")
    expect(desk.find(".chip.locked")).to_have_attribute("data-position", "0")
    desk.settle()
    desk.find("#other").fill("&")  # no formula begins with it
    desk.press("Enter")
    expect(desk.find("#notice-text")).to_contain_text("The lock was taken off.")
    assert desk.settle() == "a+b=c"
    expect(desk.find(".chip.locked")).to_have_count(1)  # the one before holds


def test_locks_and_symbols_by_keyboard(desk: Desk) -> None:
    desk.open_example("02-sum")
    desk.press("ArrowRight", "ArrowRight")
    expect(desk.find('.chip[aria-pressed="true"]')).to_have_attribute("data-position", "1")
    desk.press("l")
    expect(desk.find(".chip.locked")).to_have_attribute("data-position", "1")
    desk.settle()
    desk.press("l")
    expect(desk.find(".chip.locked")).to_have_count(0)
    desk.settle()
    # The row of chips is one stop of the tab order, with arrows inside.
    desk.find(".chip").first.focus()
    desk.press("End", "Enter")
    expect(desk.find('.chip[aria-pressed="true"]')).to_have_attribute("data-position", "4")
    desk.press("1")
    desk.settle()
    expect(desk.find(".chip.locked")).to_have_count(1)
    desk.press("Escape")
    expect(desk.find("#inspector .chosen")).to_have_count(0)
    expect(desk.find(".chip").nth(4)).to_be_focused()
    desk.find("#unlock-all").click()
    desk.shows("a+b=c")
    # Delete erases a symbol's own ink.
    desk.press("ArrowLeft", "Delete")
    expect(desk.find(".chip")).to_have_count(4)
    assert desk.settle() != "a+b=c"


def test_undo_redo_erase_clear(desk: Desk) -> None:
    strokes = desk.placed(example("01-power"))
    desk.write(strokes)
    desk.settle()
    assert len(desk.ink()) == 3
    desk.press("Control+z")
    assert len(desk.ink()) == 2
    desk.press("Control+Shift+z")
    assert len(desk.ink()) == 3
    desk.press("e")
    expect(desk.find('[data-tool="eraser"]')).to_have_attribute("aria-pressed", "true")
    desk.write([strokes[2][8:12]])
    assert len(desk.ink()) == 2
    assert desk.settle() in ("x", r"\chi", "X")
    desk.press("x")
    assert desk.ink() == []
    expect(desk.find(".placeholder")).to_be_visible()
    expect(desk.find("#copy-latex")).to_be_disabled()
    desk.press("Control+z", "Control+z")
    assert len(desk.ink()) == 3
    # A reload keeps the ink, too.
    desk.settle()
    desk.page.reload()
    assert "2" in desk.settle()


def test_zoom_and_pan_keep_the_ink_where_it_was_written(desk: Desk) -> None:
    desk.page.mouse.move(400, 600)
    desk.page.keyboard.down("Control")
    desk.page.mouse.wheel(0, -250)
    desk.page.keyboard.up("Control")
    expect(desk.find("#fit")).not_to_have_text("100 %")
    assert desk.write_example("06-line") == "y=kx+b"
    desk.page.keyboard.down("Space")
    desk.write([[(300, 450), (360, 480)]])
    desk.page.keyboard.up("Space")
    assert desk.latex == "y=kx+b"
    count = len(desk.ink())
    desk.press("0", "+", "-")
    assert len(desk.ink()) == count


def test_photo(desk: Desk) -> None:
    desk.page.set_input_files("#file", EXAMPLES / "photo" / "11-fraction.jpg")
    desk.shows(r"\frac{a+b}{c-d}")
    before = desk.page.screenshot(clip=desk.find("#pad").bounding_box())
    desk.press("ArrowRight")  # the fraction bar's traced ink lights up
    assert desk.page.screenshot(clip=desk.find("#pad").bounding_box()) != before
    # Erasing in a photo turns it into ink; undo brings the photo back.
    desk.press("Delete")
    desk.settle()
    assert len(desk.ink()) > 0
    desk.press("Control+z")
    desk.shows(r"\frac{a+b}{c-d}")


def test_dropped_photo_and_pasted_inkml(desk: Desk) -> None:
    picture = (EXAMPLES / "clean" / "03-half.png").read_bytes()
    desk.page.evaluate(
        """(bytes) => {
          const data = new DataTransfer();
          data.items.add(new File([new Uint8Array(bytes)], "half.png", { type: "image/png" }));
          dispatchEvent(new DragEvent("dragenter", { dataTransfer: data }));
          window.zoneShown = !document.getElementById("drop").hidden;
          dispatchEvent(new DragEvent("drop", { dataTransfer: data, cancelable: true }));
        }""",
        list(picture),
    )
    assert desk.page.evaluate("() => window.zoneShown")
    desk.shows(r"\frac{1}{2}")
    desk.page.evaluate(
        """(text) => {
          const data = new DataTransfer();
          data.setData("text/plain", text);
          document.body.dispatchEvent(
            new ClipboardEvent("paste", { clipboardData: data, bubbles: true }));
        }""",
        (EXAMPLES / "ink" / "15-greek.inkml").read_text(),
    )
    desk.shows(r"\alpha^{2}-\beta^{3}=6")


def test_inkml_in_and_out(desk: Desk, tmp_path: Path) -> None:
    source = EXAMPLES / "ink" / "15-greek.inkml"
    desk.page.set_input_files("#file", source)
    desk.shows(r"\alpha^{2}-\beta^{3}=6")
    with desk.page.expect_download() as saved:
        desk.press("s")
    saved.value.save_as(tmp_path / "formula.inkml")
    ink = read_inkml((tmp_path / "formula.inkml").read_bytes(), name="saved")
    assert len(ink.strokes) == len(read_inkml(source.read_bytes(), name="source").strokes)
    assert ink.label is not None
    assert ink.label.strip("$") == r"\alpha^{2}-\beta^{3}=6"
    with desk.page.expect_download() as saved:
        desk.find("#save-png").click()
    saved.value.save_as(tmp_path / "formula.png")
    # The picture is good enough to be read again.
    desk.press("x")
    desk.page.set_input_files("#file", tmp_path / "formula.png")
    desk.shows(r"\alpha^{2}-\beta^{3}=6")


def test_copy_latex_and_mathml(desk: Desk) -> None:
    desk.context.grant_permissions(["clipboard-read", "clipboard-write"])
    desk.open_example("02-sum")
    desk.find("#copy-latex").click()
    expect(desk.find("#toast")).to_have_text("LaTeX copied")
    assert desk.page.evaluate("() => navigator.clipboard.readText()") == "a+b=c"
    desk.press("m")
    expect(desk.find("#toast")).to_have_text("MathML copied")
    copied = desk.page.evaluate("() => navigator.clipboard.readText()")
    assert copied.startswith("<math")
    assert "<mi>b</mi>" in copied


def test_history_keeps_and_brings_back(desk: Desk) -> None:
    desk.write_example("02-sum")
    desk.open_example("03-half")
    desk.shows(r"\frac{1}{2}")
    desk.page.reload()
    desk.settle()
    desk.press("y")
    expect(desk.find("#history-list .again")).to_have_count(2)
    assert serious(desk) == []
    desk.find("#history-list .again").nth(1).click()
    desk.shows("a+b=c")
    assert len(desk.ink()) == len(example("02-sum"))
    desk.find("#history-open").click()
    desk.find("#history-clear").click()
    expect(desk.find("#history-list .again")).to_have_count(0)
    stored = desk.page.evaluate("() => localStorage.getItem('gryphone.history')")
    assert stored == "[]"


def test_as_many_steps_as_are_needed(desk: Desk) -> None:
    asked: list[dict[str, Any]] = []
    desk.page.on("request", lambda r: asked.append(r.post_data_json) if "stream" in r.url else None)
    expect(desk.find("#steps-value")).to_have_text("as needed")
    assert desk.write_example("02-sum") == "a+b=c"
    assert asked[-1]["options"]["steps"] == "auto"
    desk.find("#replay").click()
    expect(desk.find("#status")).to_have_text("Step 1 of 1")
    expect(desk.find(".box.masked")).to_have_count(5)
    desk.settle()
    desk.press(".")
    expect(desk.find("#steps-value")).to_have_text("1")
    desk.wait_for("document.body.dataset.state === 'waiting'")
    desk.settle()
    assert asked[-1]["options"]["steps"] == 1
    desk.press(",", ",")
    expect(desk.find("#steps")).to_have_attribute("aria-valuetext", "as needed")
    # One step is not enough here.
    desk.open_example("10-limit")
    desk.find("#replay").click()
    desk.wait_for("document.getElementById('status').textContent === 'Second look, step 2 of 8'")


def test_more_steps_and_replay(desk: Desk) -> None:
    desk.open_example("02-sum")
    asked: list[dict[str, Any]] = []
    desk.page.on("request", lambda r: asked.append(r.post_data_json) if "stream" in r.url else None)
    with desk.page.expect_response(STREAM):
        desk.find("#steps").fill("3")
    expect(desk.find("#steps-value")).to_have_text("3")
    desk.settle()
    assert [body["options"]["steps"] for body in asked] == [3]
    desk.find("#replay").click()
    expect(desk.find("#status")).to_have_text("Step 1 of 3")
    expect(desk.find(".box.masked")).not_to_have_count(0)
    desk.settle()
    assert len(asked) == 1


def test_light_dark_and_help(desk: Desk) -> None:
    desk.open_example("01-power")
    desk.find(".chip").first.click()

    def background() -> str:
        return str(desk.page.evaluate("() => getComputedStyle(document.body).backgroundColor"))

    light = background()
    assert serious(desk) == []
    desk.press("t")
    assert background() != light
    assert serious(desk) == []
    desk.page.reload()
    assert background() != light
    desk.settle()
    desk.press("t")
    assert background() == light
    desk.page.emulate_media(color_scheme="dark")
    assert background() == light  # the user's choice outlives the system's
    desk.press("?")
    expect(desk.find("#help")).to_be_visible()
    assert serious(desk) == []
    # Single keys can be switched off, for those who speak to their machine.
    desk.find("#letters").uncheck()
    desk.press("Escape", "t")
    assert background() == light


def test_system_theme_and_quiet_motion(browser: Browser, server: str) -> None:
    desk = Desk.open(browser, server, color_scheme="dark", reduced_motion="reduce")
    colour = desk.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert colour == "rgb(19, 20, 24)"
    assert serious(desk) == []
    desk.page.evaluate(
        """() => new MutationObserver(() => {
          window.masked ||= document.querySelector(".box.masked") !== null;
        }).observe(document.body, { childList: true, subtree: true })"""
    )
    desk.write_example("02-sum")
    assert not desk.page.evaluate("() => window.masked")
    desk.context.close()


def test_errors_are_one_line_and_lose_no_ink(browser: Browser, server: str) -> None:
    desk = Desk.open(browser, server)
    notice = desk.find("#notice-text")
    desk.write_example("02-sum")
    # A file the server cannot read: its own words, and everything stays.
    desk.page.set_input_files(
        "#file", {"name": "a.inkml", "mimeType": "text/xml", "buffer": b"<ink></ink>"}
    )
    expect(notice).to_contain_text("there is nothing to read")
    desk.find("#notice-close").click()
    expect(desk.find("#notice")).to_be_hidden()
    assert desk.latex == "a+b=c"
    desk.page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"a"})
    expect(notice).to_have_text("a.txt is neither a picture (PNG, JPEG, …) nor InkML.")
    # The server is away: the page says so, keeps the ink and tries again by itself.
    desk.page.route(ASKED, lambda route: route.abort())
    desk.find(".chip").last.click()
    desk.press("Delete")
    expect(notice).to_contain_text("cannot be reached")
    assert len(desk.ink()) == len(example("02-sum")) - 1
    busy = {"error": {"code": "busy", "message": "too many requests are waiting"}}
    desk.page.route(
        ASKED, lambda route: route.fulfill(status=503, headers={"Retry-After": "1"}, json=busy)
    )
    expect(notice).to_contain_text("too many requests are waiting Trying again in 1 s.")
    desk.page.unroute_all()
    desk.shows("a+b=")
    expect(desk.find("#notice")).to_be_hidden()
    # What was read once needs no server.
    desk.page.route(ASKED, lambda route: route.abort())
    desk.press("Control+z")
    desk.shows("a+b=c")
    desk.context.close()


def test_api_key(browser: Browser, server: str) -> None:
    desk = Desk.open(browser, server)

    def guard(route: Route) -> None:
        if route.request.headers.get("authorization") == "Bearer open sesame":
            route.continue_()
        else:
            error = {"error": {"code": "bad_key", "message": "send the API key"}}
            route.fulfill(status=401, json=error)

    desk.page.route(ASKED, guard)
    desk.write(desk.placed(example("02-sum")))
    expect(desk.find("#key")).to_be_visible()
    assert serious(desk) == []
    expect(desk.find("#key-wrong")).to_be_hidden()
    desk.find("#key-value").fill("open rice")
    desk.press("Enter")
    expect(desk.find("#key-wrong")).to_have_text("The server did not take this key.")
    expect(desk.find("#notice-text")).to_have_text("The server did not take this API key.")
    desk.find("#key-value").fill("open sesame")
    desk.press("Enter")
    desk.shows("a+b=c")
    stored = desk.page.evaluate("() => JSON.stringify(localStorage)")
    assert "sesame" not in stored
    desk.context.close()


def test_phone(phone: Desk) -> None:
    assert serious(phone) == []
    width = phone.page.evaluate("() => document.documentElement.scrollWidth")
    assert width <= PHONE["viewport"]["width"]
    for stroke in phone.placed(example("02-sum")):
        phone.touch("touchStart", stroke[0])
        for point in stroke[1:]:
            phone.touch("touchMove", point)
        phone.touch("touchEnd")
    assert phone.settle() == "a+b=c"
    strokes = len(phone.ink())
    # Two fingers zoom and leave no ink.
    x, y = phone.placed(example("02-sum"))[0][0]
    phone.touch("touchStart", (x, y))
    phone.touch("touchStart", (x, y), (x + 60, y + 60))
    phone.touch("touchMove", (x - 30, y - 30), (x + 90, y + 90))
    phone.touch("touchEnd")
    expect(phone.find("#fit")).not_to_have_text("100 %")
    assert len(phone.ink()) == strokes
    phone.find("#fit").tap()
    # The sheet with the alternatives leaves the formula and the ink in sight.
    phone.find(".chip").first.tap()
    sheet, formula = phone.find("#inspector").bounding_box(), phone.find("#formula").bounding_box()
    assert sheet is not None
    assert formula is not None
    assert sheet["y"] + sheet["height"] == pytest.approx(PHONE["viewport"]["height"], abs=1)
    assert formula["y"] + formula["height"] < sheet["y"]
    assert serious(phone) == []


def test_pen_presses_and_its_palm_rests(phone: Desk) -> None:
    stroke = phone.placed(example("02-sum"))[0]
    phone.pen(stroke)
    (ink,) = phone.ink()
    pressures = [point[3] for point in ink if len(point) > 3]
    assert pressures[0] < 0.3
    assert pressures[-1] > 0.6
    # With a pen in use, a finger moves the paper and the palm draws nothing.
    phone.touch("touchStart", (200, 600))
    phone.touch("touchMove", (260, 640))
    phone.touch("touchEnd")
    assert len(phone.ink()) == 1
    phone.settle()


def test_marks_do_not_move_a_glyph(desk: Desk) -> None:
    """Marking every symbol leaves KaTeX's layout as it is, and each symbol finds its glyphs."""
    formulas = [line.split("\t")[1] for line in _labels()] + [
        r"\sqrt[3]{x}+\overline{AB}\cdot\vec{v}-\hat{f}_{1}^{2}",
        r"\begin{matrix}a&b\\c&d\end{matrix}=\binom{n}{k}",
        r"-x+(-y)-\sin^{2}x\leq\mathbb{R}^{n}",
        r"\prod_{i\in I}\bigcup_{j}V_{j}f_{1}\int_{0}^{1}\oint_{C}g",
    ]
    for formula in formulas:
        rows = SatTokenizer.split(tokenize(formula))
        plain, marked, bare = desk.page.evaluate(
            """async ([latex, rows]) => {
              const { markedLatex } = await import("./static/js/latex.js");
              const { typeset } = await import("./static/js/formula.js");
              await document.fonts.ready;
              const measure = (text) => {
                const element = document.createElement("span");
                document.body.append(element);
                typeset(element, text, { display: true });
                const box = element.querySelector(".katex-html");
                const widths = [...box.children].map((base) => base.getBoundingClientRect().width);
                const sum = widths.reduce((total, width) => total + width, 0);
                const places = new Set();
                for (const { dataset } of element.querySelectorAll("[data-p]")) {
                  places.add(dataset.p).add(dataset.letter ?? dataset.p);
                }
                const height = element.getBoundingClientRect().height;
                element.remove();
                return [sum, height, places.size];
              };
              const [plain, marked] = [measure(latex), measure(markedLatex(rows))];
              return [plain.slice(0, 2), marked.slice(0, 2), rows.length - marked[2]];
            }""",
            [formula, rows],
        )
        assert marked == pytest.approx(plain, abs=0.6), formula
        # Only column separators, row ends and the closing of a matrix have no glyph.
        assert bare == sum(row[0] in ("&", r"\\", r"\end{matrix}") for row in rows), formula


def _labels() -> list[str]:
    return (EXAMPLES / "clean" / "labels.tsv").read_text().splitlines()


def test_a_malformed_step_is_still_shown(desk: Desk) -> None:
    """Rows of an early step may be anything; what is set from them is always a formula."""
    errors = desk.page.evaluate(
        """async () => {
          const { markedLatex } = await import("./static/js/latex.js");
          const { symbols } = await (await fetch("v1/model")).json();
          const marks = ["", "^{}", "_{}", "{}", "{", "}", "^{", "_{", "{}}", "}}", "[]", "[", "]"];
          let state = 7;
          const below = (n) => (state = (state * 48271) % 2147483647) % n;
          const options = { strict: false, throwOnError: true, trust: true };
          const errors = [];
          for (let i = 0; i < 1200; i++) {
            const pick = () => [symbols[below(symbols.length)], marks[below(marks.length)]];
            const latex = markedLatex(Array.from({ length: 1 + below(14) }, pick));
            try {
              katex.renderToString(latex, options);
            } catch (error) {
              errors.push(`${latex}: ${error.message}`);
            }
          }
          return errors;
        }"""
    )
    assert errors == []


def test_nothing_leaves_the_machine(desk: Desk, server: str) -> None:
    hosts: set[str] = set()
    desk.page.on("request", lambda request: hosts.add("/".join(request.url.split("/")[:3]) + "/"))
    desk.page.reload()
    desk.write_example("02-sum")
    desk.page.wait_for_load_state("networkidle", timeout=PATIENCE)
    assert hosts == {server}
