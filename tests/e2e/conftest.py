"""The real page of the real server with the shipped weights, in Debian's Chromium."""

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NEEDED = bool(os.environ.get("CI") or os.environ.get("GRYPHONE_NEED_BROWSER"))
FLAGS = (  # root has no sandbox; the rest keeps Chromium off the network
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
STARTING = 90  # seconds a server may take on a busy machine


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """One Chromium for all tests; without one they are skipped, but never in CI."""
    if CHROMIUM is None:
        reason = "no Chromium on this machine; `make browser` installs Debian's"
        pytest.fail(reason) if NEEDED else pytest.skip(reason)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        reason = "no playwright in this environment; pip install -e '.[dev]'"
        pytest.fail(reason) if NEEDED else pytest.skip(reason)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def server(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`gryphone serve` on a free port."""
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "gryphone", "serve", "--port", "0", "--no-open"],
            stderr=file,
            stdout=file,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
    try:
        yield _address(process, log)
    finally:
        process.terminate()
        process.wait(20)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """The address the server says it listens on, once it is ready."""
    end = time.monotonic() + STARTING
    while time.monotonic() < end and process.poll() is None:
        found = re.search(r"http://[\w.:]+/", log.read_text())
        if found:
            with urllib.request.urlopen(found[0] + "readyz", timeout=STARTING) as answer:
                assert answer.status == 200
            return found[0]
        time.sleep(0.1)
    pytest.fail(f"the server did not start: {log.read_text()}")
