"""Debian's Chromium, and the real server with the shipped weights for it to look at."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = shutil.which("chromium")
NEEDED = bool(os.environ.get("CI") or os.environ.get("GRYPHONE_NEED_BROWSER"))
FLAGS = [  # root has no sandbox; the rest keeps Chromium off the network
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
STARTING = 90  # seconds a server may take on a busy machine


@contextmanager
def served(*options: str) -> Iterator[str]:
    """`gryphone serve` on a free port; its address."""
    command = [sys.executable, "-m", "gryphone", "serve", "--port", "0", "--no-open", *options]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w") as file:
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
        try:
            yield _address(process, log)
        finally:
            process.terminate()
            process.wait(20)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where the server says it listens, once it is ready."""
    end = time.monotonic() + STARTING
    while time.monotonic() < end and process.poll() is None:
        found = re.search(r"http://[\w.:]+/", log.read_text())
        if found:
            with urllib.request.urlopen(found[0] + "readyz", timeout=STARTING) as answer:
                if answer.status == 200:
                    return found[0]
        time.sleep(0.1)
    raise RuntimeError(f"the server did not start: {log.read_text()}")
