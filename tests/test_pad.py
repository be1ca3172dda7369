"""The canvas for notebooks, without a notebook: what it sends, and what comes of what it hears."""

import json
import re
from typing import Any

import pytest
from comm.base_comm import BaseComm
from inkmaker import power, to_strokes
from serving import tiny

import gryphone
from gryphone.errors import ConfigError
from gryphone.page.widget import script


class Browser(BaseComm):
    """The other end of a widget."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        super().__init__()

    def publish_msg(self, msg_type: str, data: Any = None, *_: Any, **__: Any) -> None:
        if data and data.get("method") == "custom":
            self.heard.append(data["content"])

    def ask(self, strokes: Any) -> None:
        content = {"id": 7, "strokes": strokes}
        data = {"method": "custom", "content": content}
        self.handle_msg({"content": {"data": data}, "buffers": []})


@pytest.fixture
def browser() -> Browser:
    return Browser()


@pytest.fixture
def pad(browser: Browser) -> gryphone.Pad:
    pad = gryphone.Pad(tiny(), steps=3)
    pad.comm = browser
    return pad


def test_what_is_written_is_read_step_by_step(pad: gryphone.Pad, browser: Browser) -> None:
    seen: list[tuple[str, str]] = []
    pad.observe(lambda change: seen.append((change.name, pad.latex)), ["ink", "latex"])
    strokes = to_strokes(power())
    browser.ask(strokes)
    steps = len(browser.heard) - 1  # three, and three more of a second look
    assert [told["event"] for told in browser.heard] == ["step"] * steps + ["result"]
    assert {told["id"] for told in browser.heard} == {7}
    assert [told["data"]["number"] for told in browser.heard[:3]] == [1, 2, 3]
    expected = tiny().recognize(strokes, steps=3)
    assert pad.latex == browser.heard[-1]["data"]["latex"] == expected.latex
    assert pad.result.tokens == expected.tokens
    assert [stroke.tolist() for stroke in pad.ink.strokes] == strokes
    assert pad.get_state("ink")["ink"] == strokes  # what another view begins with
    # Who observes the ink finds its LaTeX there.
    assert {name for name, _ in seen} == {"ink", "latex"}
    assert {latex for _, latex in seen} == {expected.latex}
    browser.ask([])
    assert (pad.latex, pad.ink, pad.result) == ("", None, None)


def test_ink_that_cannot_be_read_is_said_to_the_browser(
    pad: gryphone.Pad, browser: Browser
) -> None:
    browser.ask([[[0, 0], ["x", 1]]])
    assert [told["event"] for told in browser.heard] == ["error"]
    assert "stroke 0" in browser.heard[0]["data"]
    assert pad.ink is None and pad.latex == ""


def test_options_are_checked_where_they_are_given() -> None:
    with pytest.raises(ConfigError, match="did you mean steps"):
        gryphone.Pad(tiny(), stps=3)
    with pytest.raises(ConfigError, match="100 pixels or more"):
        gryphone.Pad(tiny(), height=9)


def test_the_modules_stand_in_the_order_in_which_they_are_imported() -> None:
    found = re.search(r"^const sources = (.*);$", script(), re.MULTILINE)
    assert found
    sources = json.loads(found[1])
    known: set[str] = set()
    for name, text in sources.items():
        assert {*re.findall(r'from "\./(.*)"', text)} <= known, name
        known.add(name)
    assert known >= {"pad.js", "drawing.js", "formula.js", "widget.js"}
    assert "KaTeX_Math" in sources["look.js"] and "#i-pen" not in sources["look.js"]
    assert 'id=\\"i-pen\\"' in sources["look.js"] and "@property --ink" in sources["look.js"]
