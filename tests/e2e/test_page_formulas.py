"""The formula on the page in other notations, and what it comes to where that is switched on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chromium import NEEDED, served

if not NEEDED:  # in CI its absence is an error
    pytest.importorskip("playwright.sync_api", reason="no playwright; pip install -e '.[dev]'")

from playwright.sync_api import expect
from writing import Desk, example

from gryphone.writers import TARGETS, write

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def address(browser: Browser) -> Iterator[str]:
    """A server that computes."""
    with served("--compute", "1") as address:
        yield address


@pytest.fixture
def desk(browser: Browser, address: str) -> Iterator[Desk]:
    """Its page."""
    with Desk.flawless(browser, address, permissions=["clipboard-read", "clipboard-write"]) as desk:
        yield desk


def clipboard(desk: Desk) -> str:
    return str(desk.page.evaluate("() => navigator.clipboard.readText()"))


def test_the_answer_is_copied_in_every_notation_and_computed_if_asked(desk: Desk) -> None:
    latex = desk.open_example("08-integral")
    options = desk.find("#format option")
    assert [option.text_content() for option in options.all()] == [
        t.title for t in TARGETS.values()
    ]
    for name, target in TARGETS.items():
        desk.find("#format").select_option(name)
        desk.find("#copy-as").click()
        expect(desk.find("#toast")).to_have_text(f"{target.title} copied")
        assert clipboard(desk) == write(latex, name)
    desk.find("#copy-mathml").click()
    expect(desk.find("#toast")).to_have_text("MathML copied")
    assert clipboard(desk).startswith('<math xmlns="http://www.w3.org/1998/Math/MathML"')

    assert desk.find("#computed").inner_text() == ""  # as written, unless it is asked for
    desk.find("#compute").check()
    expect(desk.find("#computed dd").nth(1)).to_have_text("0.333333333333333")
    desk.find("#compute").uncheck()
    expect(desk.find("#computed dd")).to_have_count(0)


def test_several_lines_are_copied_in_their_form(desk: Desk, tmp_path: Path) -> None:
    """And line by line where a notation has no word for it."""
    parts = [example("02-sum"), [[(x, y + 400) for x, y in s] for s in example("06-line")]]
    file = tmp_path / "two.json"
    file.write_text(json.dumps([*parts[0], *parts[1]]))
    desk.page.set_input_files("#file", file)
    expect(desk.find("#form")).to_be_visible()
    desk.settle()

    def copied(form: str, name: str) -> str:
        desk.find("#form").select_option(form)
        desk.find("#format").select_option(name)
        desk.page.evaluate("() => (toast.textContent = '')")
        desk.find("#copy-as").click()
        expect(desk.find("#toast")).to_have_text(f"{TARGETS[name].title} copied")
        return clipboard(desk)

    for form in ("aligned", "cases"):
        assert copied(form, "typst") == write(desk.latex, "typst")
        assert desk.latex.startswith(rf"\begin{{{form}}}")
    each = ["a+b=c", "y=kx+b"]
    assert copied("separate", "typst") == "\n".join(write(line, "typst") for line in each)
    assert copied("aligned", "sympy") == "\n".join(write(line, "sympy") for line in each)
    desk.problems.clear()  # the console tells of the refusal


def test_a_copy_that_works_takes_the_error_away(desk: Desk) -> None:
    desk.open_example("02-sum")
    desk.page.route("**/v1/convert", lambda route: route.abort())
    desk.find("#copy-as").click()
    expect(desk.find("#notice-text")).to_contain_text("cannot be reached")
    desk.page.unroute_all()
    desk.find("#copy-as").click()
    expect(desk.find("#toast")).to_contain_text("copied")
    expect(desk.find("#notice")).to_be_hidden()
    desk.problems.clear()  # the request that failed


def test_the_lines_of_a_working_are_compared(desk: Desk) -> None:
    expect(desk.find("#computing")).to_be_visible()
    desk.find("#compute").check()
    desk.page.evaluate(
        """async () => {
            const { Computing } = await import("/static/js/computing.js");
            new Computing().show(["2x+4=6", "x=1", "x=2", "\\\\ldots"]);
        }"""
    )
    expect(desk.find("#computed dd")).to_have_text(["equal", "not equal", "cannot tell"])
