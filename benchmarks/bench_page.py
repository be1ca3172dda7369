"""The page without a server in Chromium: bytes, first answer, further answers, and Python's own.

python benchmarks/bench_page.py DIR     where DIR was written by `gryphone page DIR`
"""

from __future__ import annotations

import gzip
import os
import statistics
import sys
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

LATER = ("pillow", "LICENCES", ".d.ts")  # loaded behind everything else, or never
PATIENCE = 180_000  # milliseconds
ASK = """async (strokes) => {
    const { recognize } = await import("/engine/engine.js");
    const began = performance.now();
    const { latex } = await recognize(strokes);
    return [latex, performance.now() - began];
}"""


class Quiet(SimpleHTTPRequestHandler):
    """Any web host."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def serve(folder: Path, pipe: Connection) -> None:
    """Plain files, in a process of their own."""
    host = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    pipe.send(host.server_port)
    host.serve_forever()


def sizes(folder: Path) -> None:
    """What a first visit loads."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    files = [path for path in files if not any(name in path.name for name in LATER)]
    raw = sum(path.stat().st_size for path in files)
    packed = sum(len(gzip.compress(path.read_bytes(), 6)) for path in files)
    print(f"to load: {raw / 1e6:.1f} MB in {len(files)} files, gzipped {packed / 1e6:.1f} MB")


def processor_seconds(process: int) -> float:
    """Of a process and those that it started: what a busy machine does not change much."""
    total = 0.0
    for task in Path(f"/proc/{process}/task").iterdir():
        children = (task / "children").read_text().split()
        total += sum(processor_seconds(int(child)) for child in children)
        user, system = (task / "stat").read_text().rpartition(")")[2].split()[11:13]
        total += (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return total


def visit(page: Any, address: str, inks: list[Any]) -> list[tuple[str, float]]:
    """Open the page and ask about inks; the first is asked at once, as its draft would be."""
    began, spent = time.perf_counter(), processor_seconds(os.getpid())
    page.goto(address)
    page.locator("#engine:not(:empty)").wait_for(timeout=PATIENCE)
    first = page.evaluate(ASK, inks[0])
    clock, spent = time.perf_counter() - began, processor_seconds(os.getpid()) - spent
    load = os.getloadavg()[0]
    print(
        f"  first answer after {clock:.2f} s: {first[0]} (processor {spent:.1f} s, load {load:.1f})"
    )
    print(f"  {page.text_content('#engine')}")
    found = [page.evaluate(ASK, ink) for ink in inks]
    times = sorted(ms for _, ms in found)
    print(f"  then {statistics.median(times):.0f} ms, at most {times[-1]:.0f} ms")
    return found


def main(folder: Path) -> None:
    """Print it all."""
    from chromium import FLAGS, PROGRAM
    from playwright.sync_api import sync_playwright

    import gryphone
    from gryphone.reading.inputs import read_input

    sizes(folder)
    print(f"load average of {os.cpu_count()} cores: {os.getloadavg()[0]:.1f}")
    names = sorted((ROOT / "examples" / "ink").glob("*.inkml"))
    inks = [[s.tolist() for s in read_input(name).ink.strokes] for name in names]
    ours, theirs = get_context("spawn").Pipe()
    host = get_context("spawn").Process(target=serve, args=(folder, theirs), daemon=True)
    host.start()
    address = f"http://127.0.0.1:{ours.recv()}/"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=PROGRAM, args=FLAGS)
        page = chromium.new_context(bypass_csp=True).new_page()
        page.set_default_timeout(PATIENCE)
        print("first visit")
        found = visit(page, address, inks)
        print("second visit")
        visit(page, address, inks)
        chromium.close()
    host.terminate()
    recognizer = gryphone.load(warm=True)
    times, same = [], 0
    for ink, (latex, _) in zip(inks, found, strict=True):
        began = time.perf_counter()
        same += recognizer.recognize(ink).latex == latex
        times.append(1000 * (time.perf_counter() - began))
    print(f"Python: {statistics.median(times):.0f} ms, at most {max(times):.0f} ms")
    print(f"equal answers: {same} of {len(inks)}; load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
