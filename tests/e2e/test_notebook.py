"""The canvas for notebooks in a browser, with a stand-in for the notebook between it and Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from chromium import NEEDED

if not NEEDED:  # in CI its absence is an error
    pytest.importorskip("playwright.sync_api", reason="no playwright; pip install -e '.[dev]'")

from comm.base_comm import BaseComm
from playwright.sync_api import expect
from writing import Desk, example

import gryphone

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

RENDER = """async ([script, state]) => {
    const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
    const heard = [];
    window.hear = (content) => heard.forEach((tell) => tell(content));
    const model = {
        get: (name) => state[name],
        on: (_, tell) => heard.push(tell),
        off: (_, tell) => heard.splice(heard.indexOf(tell), 1),
        set: (name, value) => (state[name] = value),
        save_changes: () => (window.saved = state.seen),
        send: (content) => window.toKernel(content),
    };
    const element = document.body.appendChild(document.createElement("div"));
    window.leave = (await import(url)).default.render({ model, el: element });
}"""


class Notebook(BaseComm):
    """Carries what a widget and a page say to each other."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.asked: list[Any] = []
        page.expose_function("toKernel", lambda content: self.asked.append(content))
        super().__init__()

    def publish_msg(self, msg_type: str, data: Any = None, *_: Any, **__: Any) -> None:
        if data and data.get("method") == "custom":
            self.page.evaluate("(content) => void window.hear(content)", data["content"])

    def answer(self) -> None:
        """Hand over what the page asks next."""
        while not self.asked:
            self.page.wait_for_timeout(20)
        data = {"method": "custom", "content": self.asked.pop(0)}
        self.handle_msg({"content": {"data": data}, "buffers": []})


def test_it_is_written_on_read_and_cleared(browser: Browser) -> None:
    desk = Desk.open(browser, "about:blank", reduced_motion="no-preference")
    desk.page.set_content("<!doctype html><title>A notebook</title>")
    pad = gryphone.Pad()
    pad.comm = Notebook(desk.page)
    desk.page.evaluate(RENDER, [pad._esm, pad.get_state()])
    canvas, latex = desk.find("canvas.pad"), desk.find("code.latex")
    canvas.wait_for()
    desk.write(desk.placed(example("01-power"), on="canvas.pad"))
    pad.comm.answer()
    expect(latex).to_have_text("x^{2}")
    expect(desk.find(".status")).to_contain_text("% sure")
    assert 0 < desk.page.evaluate("() => window.saved") < 1
    expect(desk.find(".katex-html")).to_contain_text("x2")
    assert pad.latex == "x^{2}" and len(pad.ink.strokes) == len(example("01-power"))
    desk.find("[aria-label=Clear]").click()
    pad.comm.answer()
    expect(latex).to_have_text("")
    assert pad.latex == "" and pad.ink is None
    desk.page.evaluate("() => window.leave()")
    expect(canvas).to_have_count(0)
    desk.context.close()
    assert desk.problems == []
