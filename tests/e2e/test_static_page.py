"""The page without a server: a folder of files, and then not even that."""

from __future__ import annotations

import functools
import json
import re
import shutil
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chromium import NEEDED

if not NEEDED:  # in CI its absence is an error
    pytest.importorskip("playwright.sync_api", reason="no playwright; pip install -e '.[dev]'")

from playwright.sync_api import expect
from writing import EXAMPLES, Desk, example

import gryphone
from gryphone.checkpoint import WEIGHTS
from gryphone.page.folder import freeze, sizes_of, write_page
from gryphone.page.parts import ONNXRUNTIME
from gryphone.writers import TARGETS, write

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LOADING = 120_000  # milliseconds that a busy machine may take


class Quiet(SimpleHTTPRequestHandler):
    """Any web host."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `gryphone page` writes."""
    try:
        urllib.request.urlopen(
            urllib.request.Request(ONNXRUNTIME.address, method="HEAD"), timeout=20
        )
    except OSError as error:
        pytest.skip(f"npm's registry cannot be reached: {error}")
    out = tmp_path_factory.mktemp("page") / "site"

    def keep_numpy(engine: Path) -> None:
        (wheel,) = engine.glob("pyodide/numpy-*.whl")
        shutil.copy(wheel, out.parent)
        freeze(engine)

    write_page(out, WEIGHTS, freeze=keep_numpy)
    return out


@pytest.fixture(scope="module")
def plain(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as if it had been written without Node.js: no snapshot, but numpy's wheel."""
    site = tmp_path_factory.mktemp("plain") / "site"
    shutil.copytree(folder, site)
    engine = site / "engine"
    (engine / "pyodide" / "snapshot.bin.gz").unlink(missing_ok=True)
    for wheel in folder.parent.glob("numpy-*.whl"):
        shutil.copy(wheel, engine / "pyodide")
    (engine / "files.json").write_text(json.dumps(sizes_of(engine)))
    return site


@pytest.fixture
def host(folder: Path) -> Iterator[ThreadingHTTPServer]:
    """A server of the folder."""
    with hosted(folder) as host:
        yield host


@contextmanager
def hosted(folder: Path) -> Iterator[ThreadingHTTPServer]:
    """A server of plain files."""
    handler = functools.partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as host:
        threading.Thread(target=host.serve_forever, daemon=True).start()
        yield host
        host.shutdown()


def test_it_reads_corrects_and_stays_when_server_and_network_are_gone(
    browser: Browser, host: ThreadingHTTPServer
) -> None:
    home = f"http://127.0.0.1:{host.server_port}/"
    desk = Desk.open(browser, home, permissions=["clipboard-read", "clipboard-write"])
    sent: list[str] = []
    desk.context.on("request", lambda request: sent.append(request.url))
    engine = desk.find("#engine")
    expect(engine).to_contain_text("Read in this browser", timeout=LOADING)
    expect(engine).to_have_attribute("data-offline", "ready", timeout=LOADING)
    host.shutdown()
    host.server_close()
    desk.context.set_offline(True)
    desk.page.reload()
    expect(engine).to_contain_text("threads", timeout=LOADING)  # isolated by the service worker

    before = desk.write_example("02-sum")
    assert before == "a+b=c"
    desk.find("#formula .katex-html").get_by_text("b", exact=True).click()
    others = desk.find(".others button")
    assert others.count() >= 3
    choice = others.first.get_attribute("data-symbol")
    others.first.click()
    expect(desk.find("#latex")).not_to_have_text(before)
    assert choice in desk.settle()
    expect(desk.find("#copy-mathml")).to_be_enabled()
    desk.find("#file").set_input_files(EXAMPLES / "ink" / "01-power.inkml")
    desk.shows("x^{2}")
    for name in (name for name, target in TARGETS.items() if target.quick):
        desk.find("#format").select_option(name)
        desk.find("#copy-as").click()
        expect(desk.find("#toast")).to_have_text(f"{TARGETS[name].title} copied")
        copied = desk.page.evaluate("() => navigator.clipboard.readText()")
        assert copied == write("x^{2}", name)
    expect(desk.find("#computing")).to_be_hidden()
    assert [url for url in sent if not url.startswith((home, "blob:" + home))] == []
    assert desk.problems == []
    desk.context.close()


@pytest.mark.parametrize("busy", [False, True])
def test_a_new_version_is_offered_and_used(
    browser: Browser, folder: Path, tmp_path: Path, busy: bool
) -> None:
    site = tmp_path / "site"
    shutil.copytree(folder, site)

    def fetch_again(engine: Path) -> None:
        for place in ("pyodide", "onnxruntime"):
            shutil.copytree(folder / "engine" / place, engine / place)
        (engine / "new.txt").write_text("new")

    with hosted(site) as host:
        desk = Desk.open(browser, f"http://127.0.0.1:{host.server_port}/")
        engine, update = desk.find("#engine"), desk.find("#update")
        expect(engine).to_have_attribute("data-offline", "ready", timeout=LOADING)
        expect(update).to_be_hidden()
        (before,) = desk.page.evaluate("() => caches.keys()")
        write_page(site, WEIGHTS, fetch_again, lambda engine: None)
        desk.page.reload()
        expect(update).to_be_visible(timeout=LOADING)
        if busy:  # browsers do not replace a worker that has something to answer
            desk.page.evaluate("() => void setInterval(() => fetch('index.html'), 1)")
        desk.find("#update-use").click()
        expect(update).to_be_hidden()
        desk.wait_for(
            f"caches.keys().then((names) => names.length === 1 && names[0] !== '{before}')"
        )
        expect(engine).to_have_attribute("data-offline", "ready", timeout=LOADING)
        expect(update).to_be_hidden()
    desk.context.set_offline(True)
    desk.page.reload()
    assert desk.write_example("01-power") == "x^{2}"
    desk.context.close()


@pytest.mark.parametrize("kind", ["folder", "plain"])
def test_the_engine_answers_as_python_does(
    browser: Browser, kind: str, request: pytest.FixtureRequest
) -> None:
    with hosted(request.getfixturevalue(kind)) as host:
        compare(browser, f"http://127.0.0.1:{host.server_port}/engine/engine.d.ts")


def compare(browser: Browser, address: str) -> None:
    """Ask the engine and Python alike."""
    # Without the page's policy, under which no test may evaluate anything.
    context = browser.new_context(bypass_csp=True)
    page = context.new_page()
    page.goto(address)
    page.set_default_timeout(LOADING)
    recognizer = gryphone.load()
    asked = [
        ("02-sum", {"lock": {"0": "b"}}),
        ("04-indices", {"steps": 3, "n_best": 2}),
        ("03-half", {"hint": r"\frac{?}{...}"}),
        ("03-half", {"given": "before", "remask": [1]}),
        ("01-power", {"steps": "many"}),
    ]
    found, mine = {}, None
    for name, options in asked:
        given = options.pop("given", None)
        strokes = [list(map(list, stroke)) for stroke in example(name, every=1)]
        found = page.evaluate(
            """async ([strokes, options]) => {
                const { recognize } = await import("/engine/engine.js");
                const steps = [];
                const onStep = ({ number }) => steps.push(number);
                try {
                    return { ...(await recognize(strokes, { ...options, onStep })), seen: steps };
                } catch (error) {
                    return { error: error.message };
                }
            }""",
            [strokes, options | ({"given": found} if given else {})],
        )
        ours = {k: v for k, v in options.items() if k != "lock"}
        ours["lock"] = {int(k): v for k, v in options.get("lock", {}).items()}
        ours |= {"given": mine} if given else {}
        try:
            mine = recognizer.recognize(strokes, **ours)
            wanted = mine.to_full_dict()
        except gryphone.GryphoneError as error:
            assert found == {"error": str(error)}
            continue
        assert found["seen"][0] == 1
        for key in ("latex", "mathml", "tokens", "steps", "seed"):
            assert found[key] == wanted[key], key
        for one, other in zip(found["symbols"], wanted["symbols"], strict=True):
            assert one["strokes"] == other["strokes"]
            assert one["confidence"] == pytest.approx(other["confidence"], abs=0.02)
    context.close()


def test_the_example_of_the_docs_works_as_written(
    browser: Browser, folder: Path, tmp_path: Path
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "page.md").read_text()
    example = re.search("```html\n(.+?)```", text, re.DOTALL)
    assert example
    (tmp_path / "index.html").write_text(example[1])
    shutil.copytree(folder / "engine", tmp_path / "engine")
    with hosted(tmp_path) as host:
        page = browser.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        latex = gryphone.load().recognize([[[10, 30], [50, 30]], [[30, 10], [30, 50]]]).latex
        with page.expect_console_message(lambda m: m.text.startswith(latex), timeout=LOADING):
            page.goto(f"http://127.0.0.1:{host.server_port}/")
        page.close()
    assert "100 %" in said and f"1 {latex}" in said
