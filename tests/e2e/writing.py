"""A hand for the tests: opens the page, writes the examples with the mouse, waits for answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from playwright.sync_api import (
    Browser,
    BrowserContext,
    CDPSession,
    Locator,
    Page,
    TimeoutError,
    expect,
)

from gryphone.reading.inkml import read_inkml

EXAMPLES = Path(__file__).parents[2] / "examples"
ASKED = re.compile(r"/v1/(live|page|recognize/stream)$")  # whatever the page has read
STREAM = "**/v1/recognize/stream"
PATIENCE = 30_000  # milliseconds; the machine may be busy
expect.set_options(timeout=PATIENCE)

Stroke = list[tuple[float, float]]


def example(name: str, every: int = 6) -> list[Stroke]:
    """The strokes of a bundled drawing, every sixth point of them: each takes the mouse a frame."""
    ink = read_inkml((EXAMPLES / "ink" / f"{name}.inkml").read_bytes(), name=name)
    return [[*map(tuple, s[:-1:every].tolist()), tuple(s[-1].tolist())] for s in ink.strokes]


@dataclass
class Desk:
    """The page in one browser window."""

    page: Page
    problems: list[str] = field(default_factory=list)  # what the console complained about

    @classmethod
    def open(cls, browser: Browser, url: str, **window: Any) -> Desk:
        """A fresh window: nothing stored, nothing written.

        Motion is reduced: no test waits for steps to be shown, but those that look at them.
        """
        window.setdefault("viewport", {"width": 1280, "height": 800})
        window.setdefault("reduced_motion", "reduce")
        context = browser.new_context(**window)
        context.set_default_timeout(PATIENCE)
        desk = cls(context.new_page())
        desk.page.on("pageerror", lambda error: desk.problems.append(str(error)))
        desk.page.on(
            "console",
            lambda line: desk.problems.append(line.text) if line.type == "error" else None,
        )
        desk.page.goto(url)
        return desk

    @classmethod
    @contextmanager
    def flawless(cls, browser: Browser, url: str, **window: Any) -> Iterator[Desk]:
        """The same, closed in the end; the page must not have complained."""
        desk = cls.open(browser, url, **window)
        yield desk
        desk.context.close()
        assert desk.problems == []

    @property
    def context(self) -> BrowserContext:
        return self.page.context

    @property
    def latex(self) -> str:
        return self.page.inner_text("#latex")

    def find(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def settle(self) -> str:
        """Wait until what is written is read; the LaTeX."""
        self.wait_for("document.body?.dataset.state === 'done'")  # no body while it loads
        return self.latex

    def wait_for(self, condition: str) -> None:
        """Look often: `expect` looks again after 0.1, 0.35, 0.85, 1.35 s only."""
        self.page.wait_for_function(f"() => {condition}", polling=20)

    def shows(self, latex: str) -> None:
        """Wait until exactly this is the answer."""
        same = "(text) => document.getElementById('latex')?.textContent.trim() === text"
        with suppress(TimeoutError):
            self.page.wait_for_function(same, arg=latex)
        expect(self.find("#latex")).to_have_text(latex, timeout=1)  # says what is there instead
        self.settle()

    def placed(self, strokes: list[Stroke], size: float = 1.0, on: str = "#pad") -> list[Stroke]:
        """Strokes in the middle of the canvas, in window coordinates."""
        box = self.find(on).bounding_box()
        assert box is not None
        xs, ys = zip(*(point for stroke in strokes for point in stroke), strict=True)
        width, height = max(xs) - min(xs), max(ys) - min(ys)
        scale = min(size, (box["width"] - 40) / width, (box["height"] - 110) / height)
        left = box["x"] + (box["width"] - width * scale) / 2 - min(xs) * scale
        top = box["y"] + (box["height"] - 60 - height * scale) / 2 - min(ys) * scale
        return [[(left + x * scale, top + y * scale) for x, y in s] for s in strokes]

    def write(self, strokes: list[Stroke]) -> None:
        """Draw with the mouse."""
        mouse = self.page.mouse
        for stroke in strokes:
            mouse.move(*stroke[0])
            mouse.down()
            for point in stroke[1:]:
                mouse.move(*point)
            mouse.up()

    def write_example(self, name: str) -> str:
        """Write a bundled drawing and read what the page makes of it."""
        self.write(self.placed(example(name)))
        return self.settle()

    def open_example(self, name: str) -> str:
        """The same by opening its file, which is faster."""
        self.page.set_input_files("#file", EXAMPLES / "ink" / f"{name}.inkml")
        self.wait_for("document.getElementById('latex')?.textContent")
        return self.settle()

    def ink(self) -> list[Stroke]:
        """The strokes on the canvas, as the page keeps them for a reload."""
        found = self.page.evaluate("() => sessionStorage.getItem('gryphone.draft')")
        if found is None:
            return []
        script = "(text) => JSON.parse(text).strokes.map((stroke) => stroke.points)"
        return list(self.page.evaluate(script, found))

    def view(self) -> tuple[float, float, float]:
        """Scale and origin of the paper."""
        script = "(name) => parseFloat(document.getElementById('pad').style.getPropertyValue(name))"
        grid, x, y = (self.page.evaluate(script, f"--grid{axis}") for axis in ("", "-x", "-y"))
        return grid / 28, x, y

    def past(self) -> list[str]:
        """The LaTeX of the history, the newest first."""
        found = self.page.evaluate("() => localStorage.getItem('gryphone.history')")
        return [entry["latex"] for entry in json.loads(found or "[]")]

    @cached_property
    def devices(self) -> CDPSession:
        """Fingers and pens, which Playwright has no words for."""
        return self.context.new_cdp_session(self.page)

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        """One event of real fingers: touchStart, touchMove or touchEnd."""
        touches = [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)]
        self.devices.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})

    def pen(self, stroke: Stroke) -> None:
        """A stroke with a pressed pen."""
        last = len(stroke) - 1
        for i, (x, y) in enumerate(stroke):
            kind = "mousePressed" if i == 0 else "mouseReleased" if i == last else "mouseMoved"
            event = {"type": kind, "x": x, "y": y, "button": "left", "buttons": int(i < last)}
            more = {"pointerType": "pen", "force": 0.2 + 0.6 * i / last, "clickCount": 1}
            self.devices.send("Input.dispatchMouseEvent", event | more)
