"""What is seen: every window shows paper and formula, and ink stays in its place."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from chromium import NEEDED
from PIL import Image

if not NEEDED:  # in CI its absence is an error
    pytest.importorskip("playwright.sync_api", reason="no playwright; pip install -e '.[dev]'")

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect
from writing import EXAMPLES, Desk, example

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Box = tuple[float, float, float, float]  # left, top, right, bottom, in the window
TOUCH = {"is_mobile": True, "has_touch": True}


@pytest.fixture
def window(browser: Browser, server: str) -> Iterator[Callable[..., Desk]]:
    """Opens a window of a size; the page must not complain in any."""
    desks: list[Desk] = []

    def open_window(width: int, height: int, **more: Any) -> Desk:
        viewport = {"width": width, "height": height}
        desks.append(Desk.open(browser, server, viewport=viewport, **more))
        return desks[-1]

    yield open_window
    for desk in desks:
        desk.context.close()
        assert desk.problems == []


def place(desk: Desk, selector: str) -> Box:
    """Where an element is; zero at the corner of the window."""
    box = desk.find(selector).first.bounding_box()
    assert box is not None, selector
    return box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"]


def inside(inner: Box, outer: Box) -> bool:
    """Whether all of it is seen; half a pixel is the browser's rounding."""
    near, far = zip(inner[:2], outer[:2], strict=True), zip(inner[2:], outer[2:], strict=True)
    return all(a >= b - 0.5 for a, b in near) and all(a <= b + 0.5 for a, b in far)


def drawn(desk: Desk) -> Box:
    """Where the canvas shows ink, as its bitmap lies in the window."""
    found = desk.page.evaluate(
        """async () => {
          for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame);
          const pad = document.getElementById("pad");
          const { data } = pad.getContext("2d").getImageData(0, 0, pad.width, pad.height);
          const [xs, ys] = [[], []];
          for (let i = 3; i < data.length; i += 4) {
            if (data[i] < 128) continue;
            xs.push(((i - 3) / 4) % pad.width);
            ys.push(Math.floor((i - 3) / 4 / pad.width));
          }
          const { left, top, width, height } = pad.getBoundingClientRect();
          const [x, y] = [width / pad.width, height / pad.height];
          const ends = (list, start, unit) =>
            [Math.min, Math.max].map((pick) => start + unit * list.reduce((a, b) => pick(a, b)));
          const [[x0, x1], [y0, y1]] = [ends(xs, left, x), ends(ys, top, y)];
          return [x0, y0, x1, y1];
        }"""
    )
    left, top, right, bottom = found
    return left, top, right, bottom


def test_ink_keeps_its_place_on_a_screen_of_more_pixels(window: Callable[..., Desk]) -> None:
    desk = window(1280, 800)
    desk.write([[(300, 450), (500, 550)]])
    before = drawn(desk)
    metrics = {"width": 1280, "height": 800, "deviceScaleFactor": 2, "mobile": False}
    desk.devices.send("Emulation.setDeviceMetricsOverride", metrics)
    assert drawn(desk) == pytest.approx(before, abs=1)
    desk.write([[(320, 460), (480, 540)]])
    assert drawn(desk) == pytest.approx(before, abs=1)
    assert desk.page.evaluate("() => pad.width / pad.clientWidth") == 2


@pytest.mark.parametrize(
    ("width", "height", "more"),
    [
        (844, 390, TOUCH),
        (932, 430, TOUCH | {"color_scheme": "dark"}),
        (640, 400, {}),  # a laptop's window at 200 %
        (640, 360, TOUCH),
    ],
)
def test_low_window_shows_paper_and_formula(
    window: Callable[..., Desk], width: int, height: int, more: dict[str, Any]
) -> None:
    desk = window(width, height, **more)
    desk.open_example("13-quadratic")
    seen = (0, 0, width, height)
    paper, formula = place(desk, "#pad"), place(desk, "#formula")
    for selector in ("#pad", ".tools", "#formula", "#latex", "#copy-latex", ".chip"):
        assert inside(place(desk, selector), seen), selector
    assert inside(place(desk, ".tools"), paper)
    assert paper[3] - paper[1] > 0.8 * height
    assert paper[2] - paper[0] > 0.5 * width
    assert formula[0] >= paper[2] or formula[2] <= paper[0]
    ink = drawn(desk)
    desk.find(".chip").nth(3).click()
    for selector in ("#formula", ".chip >> nth=3", ".chosen .lock", ".others li >> nth=4"):
        assert inside(place(desk, selector), seen), selector
    assert drawn(desk) == pytest.approx(ink, abs=8)  # the halo's; the paper does not move
    assert desk.page.evaluate("() => document.documentElement.scrollWidth") <= width
    desk.page.wait_for_function("() => document.getAnimations().length === 0")
    found = Axe().run(desk.page).response["violations"]
    assert [v["id"] for v in found if v["impact"] in ("serious", "critical")] == []
    # What is further down is reached by scrolling, while the paper stays.
    desk.find("#save-inkml").scroll_into_view_if_needed()
    assert inside(place(desk, "#pad"), seen)


def test_ink_stays_in_sight_when_the_phone_is_turned(window: Callable[..., Desk]) -> None:
    desk = window(390, 844, **TOUCH)
    left, top = place(desk, "#pad")[:2]
    foot = place(desk, ".tools")[1]
    assert foot > 700
    high = [(left + 40, top + 60), (left + 60, top + 80)]
    desk.write([high, [(200, foot - 60), (300, foot - 20)]])
    before = drawn(desk)
    desk.page.set_viewport_size({"width": 844, "height": 390})
    paper, tools = place(desk, "#pad"), place(desk, ".tools")
    turned = drawn(desk)
    assert inside(turned, (*paper[:3], tools[1]))
    assert turned[3] - turned[1] > 200  # no smaller than it must be
    desk.page.set_viewport_size({"width": 390, "height": 844})
    assert drawn(desk) == pytest.approx(before, abs=1)
    # A later visit sees it too.
    desk.page.set_viewport_size({"width": 844, "height": 390})
    desk.page.reload()
    assert inside(drawn(desk), place(desk, "#pad"))


def test_ink_does_not_move_while_all_of_it_is_seen(window: Callable[..., Desk]) -> None:
    desk = window(1280, 800)
    desk.write([[(100, 420), (500, 600)]])
    before = drawn(desk)
    for width, height in ((1260, 780), (1400, 900), (1000, 770)):
        desk.page.set_viewport_size({"width": width, "height": height})
        assert drawn(desk) == pytest.approx(before, abs=1)


def test_transparent_picture_lies_on_white(window: Callable[..., Desk]) -> None:
    shade = Image.open(EXAMPLES / "clean" / "03-half.png").convert("L")
    picture = Image.new("RGBA", shade.size)
    picture.putalpha(shade.point(lambda value: 255 - value))
    file = io.BytesIO()
    picture.save(file, "png")
    desk = window(1280, 800, color_scheme="dark")
    desk.page.set_input_files(
        "#file", {"name": "half.png", "mimeType": "image/png", "buffer": file.getvalue()}
    )
    desk.settle()
    colours = desk.page.evaluate(
        """() => {
          const { data } = pad.getContext("2d").getImageData(0, 0, pad.width, pad.height);
          const seen = { white: 0, black: 0 };
          for (let i = 0; i < data.length; i += 4) {
            if (data[i + 3] < 255) continue;
            if (data[i] > 250) seen.white++;
            if (data[i] < 50) seen.black++;
          }
          return seen;
        }"""
    )
    assert colours["white"] > 5 * colours["black"] > 0


def test_print_is_dark_on_white_and_nothing_but_the_formula(window: Callable[..., Desk]) -> None:
    desk = window(1280, 800, color_scheme="dark")
    desk.write([[(300, 450), (500, 550)]])
    desk.settle()
    middle = """() => {
      const { width, height } = pad;
      const { data } = pad.getContext("2d").getImageData(0, 0, width, height);
      return data.reduce((sum, value, i) => sum + (i % 4 === 3 && value > 250 ? data[i - 1] : 0), 0)
        / data.reduce((sum, value, i) => sum + (i % 4 === 3 && value > 250), 0);
    }"""
    assert desk.page.evaluate(middle) > 200
    desk.page.evaluate(f"() => addEventListener('beforeprint', () => (window.blue = ({middle})()))")
    desk.page.pdf()
    assert desk.page.evaluate("() => window.blue") < 80
    assert desk.page.evaluate(middle) > 200
    shape = "() => pad.clientWidth / pad.clientHeight"
    before = desk.page.evaluate(shape)
    desk.page.emulate_media(media="print", color_scheme="dark")
    for selector in (".top", ".tools", ".rail", "#chips", "#copy-latex", "#status"):
        expect(desk.find(selector)).to_be_hidden()
    for selector in ("#formula .katex", "#latex", "#pad"):
        expect(desk.find(selector).first).to_be_visible()
    assert desk.page.evaluate(shape) == pytest.approx(before, 0.01)
    colour = "() => getComputedStyle(document.getElementById('latex')).color"
    assert desk.page.evaluate(colour) == "rgb(28, 29, 35)"


def test_print_shows_all_ink(window: Callable[..., Desk]) -> None:
    desk = window(1280, 800)
    desk.write([[(300, 450), (500, 550)]])
    desk.settle()
    desk.press("Shift+ArrowDown", *["Shift+ArrowRight"] * 4)  # a part of it is out of sight
    before, seen = desk.view(), drawn(desk)
    printed = desk.page.evaluate(
        """() => new Promise((resolve) => {
          addEventListener("beforeprint", () => {
            const { data } = pad.getContext("2d").getImageData(0, 0, pad.width, pad.height);
            const xs = [];
            data.forEach((v, i) => i % 4 === 3 && v > 128 && xs.push(((i - 3) / 4) % pad.width));
            resolve(xs.reduce((a, b) => Math.max(a, b)) - xs.reduce((a, b) => Math.min(a, b)));
          });
          dispatchEvent(new Event("beforeprint"));
          dispatchEvent(new Event("afterprint"));
        })"""
    )
    assert seen[2] - seen[0] < 190
    assert printed == pytest.approx(200, abs=6)
    assert desk.view() == before
    assert drawn(desk) == seen


def longest_note(desk: Desk) -> str:
    """Open a+b=c with more to say of it than a narrow window has room for in a line."""
    asked = {"strokes": example("02-sum"), "options": {"ink": True}}
    data = desk.page.request.post(f"{desk.page.url}v1/page", data=asked).json()
    words = "this is a long warning about what was read, and there is more to say of it"
    data["formulas"][0]["warnings"] = [words, words.replace("this", "that")]
    desk.page.route("**/v1/page", lambda route: route.fulfill(json=data))
    desk.open_example("02-sum")
    return "; ".join(data["formulas"][0]["warnings"])


@pytest.mark.parametrize(("width", "height"), [(390, 844), (760, 900), (844, 390)])
def test_a_long_note_unfolds(window: Callable[..., Desk], width: int, height: int) -> None:
    desk = window(width, height, **TOUCH)
    text = longest_note(desk)
    note = desk.find("#note")
    expect(note).to_have_text(text)
    expect(note).to_have_attribute("title", text)
    cut = "() => note.scrollWidth > note.clientWidth || note.scrollHeight > note.clientHeight"
    assert desk.page.evaluate(cut)
    layout = [place(desk, selector) for selector in ("#formula", ".source", "#pad")]
    note.tap()
    assert not desk.page.evaluate(cut)
    assert inside(place(desk, "#note"), place(desk, ".view"))
    assert [place(desk, selector) for selector in ("#formula", ".source", "#pad")] == layout
    desk.find(".brand").tap()
    assert desk.page.evaluate(cut)


def test_toolbar_fits_the_narrowest_phone(window: Callable[..., Desk]) -> None:
    desk = window(320, 640, **TOUCH)
    assert inside(place(desk, ".tools"), place(desk, ".paper"))
    for i in range(7):
        button = place(desk, f".tools button:visible >> nth={i}")
        assert inside(button, place(desk, ".tools"))
        assert button[2] - button[0] >= 30


def test_the_tool_in_use_shows_in_forced_colours(window: Callable[..., Desk]) -> None:
    desk = window(1280, 800, forced_colors="active")

    def colour(tool: str) -> Any:
        shot = Image.open(io.BytesIO(desk.find(f"[data-tool={tool}]").screenshot()))
        return max(shot.convert("RGB").getcolors(9999) or [])[1]

    assert colour("pen") != colour("hand") == colour("eraser")
    desk.press("e")
    desk.page.wait_for_function("() => document.getAnimations().length === 0")
    assert colour("eraser") != colour("hand") == colour("pen")


def doubted(desk: Desk, *confidence: float) -> None:
    """Open a+b=c, read with these confidences of its symbols and 82 % in all."""

    asked = {"strokes": example("02-sum"), "options": {"ink": True}}
    data = desk.page.request.post(f"{desk.page.url}v1/page", data=asked).json()
    (formula,) = data["formulas"]
    formula["confidence"] = 0.82
    for symbol, sure in zip(formula["symbols"], confidence, strict=True):
        symbol["confidence"] = sure
    desk.page.route("**/v1/page", lambda route: route.fulfill(json=data))
    desk.open_example("02-sum")


def test_sure_in_all_is_explained_where_nothing_is_tinted(window: Callable[..., Desk]) -> None:
    desk = window(1280, 800)
    doubted(desk, 0.95, 0.99, 0.93, 0.99, 0.96)
    expect(desk.find(".box.doubt")).to_have_count(0)
    expect(desk.find("#inspector")).to_contain_text(
        "82 % is the chance that the whole formula is right."
    )
    expect(desk.find("#inspector")).to_contain_text("The least sure is b, 93 %.")


def test_doubt_shows_in_forced_colours(window: Callable[..., Desk]) -> None:
    desk = window(1280, 800, forced_colors="active")
    doubted(desk, 0.95, 0.99, 0.4, 0.99, 0.96)
    expect(desk.find(".chip.doubt")).to_have_css("border-bottom-style", "dashed")
    left, _, right, bottom = place(desk, ".box.doubt")
    clip = {"x": left, "y": bottom - 2, "width": right - left, "height": 1}
    row = Image.open(io.BytesIO(desk.page.screenshot(clip=clip))).convert("L")
    assert min(row.getdata()) < 128 < max(row.getdata())  # dots


def test_a_small_phone(window: Callable[..., Desk]) -> None:
    desk = window(360, 640, **TOUCH)
    desk.find("#example").tap()
    desk.settle()
    small = """() => [...document.querySelectorAll("button, select, input")]
      .filter((e) => e.id !== "file" && e.checkVisibility({ visibilityProperty: true }))
      .map((e) => [e.id || e.title || e.textContent, e.getBoundingClientRect()])
      .filter(([, { width, height }]) => width < 44 || height < 44)
      .map(([name]) => name)"""
    assert desk.page.evaluate(small) == []
    # The last symbol's ink, which lay lowest, stands above the sheet.
    desk.find(".chip").last.tap()
    sheet, pad = place(desk, "#inspector"), place(desk, "#pad")
    assert sheet[1] - pad[1] > 120
    scale, _, y = desk.view()
    stroke = desk.ink()[-1]
    assert pad[1] + y + scale * max(point[1] for point in stroke) < sheet[1]
    assert pad[1] + y + scale * min(point[1] for point in stroke) > pad[1]
    assert desk.page.evaluate(small) == []
