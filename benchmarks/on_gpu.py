"""Every command that takes `--device`, the server, and compiled training: `make gpu-check`.

Each runs once on a GPU as a user would start it, all of them beside each other; a command that
fails, or answers what it should not, is named, and the exit code is 1.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
GRYPHONE = (sys.executable, "-m", "gryphone")
CUDA = ("--device", "cuda")
INK, PHOTO = "examples/ink/08-integral.inkml", "examples/photo/08-integral.jpg"
PYTHON = """
import gryphone, pathlib
inks = sorted(map(str, pathlib.Path("examples/ink").glob("*.inkml")))
r = gryphone.load(device="cuda", warm=True)
one = [r.recognize(i) for i in inks]
many = r.recognize_many(inks)
assert [x.latex for x in one] == [x.latex for x in many]
seen = []
e = r.encode(inks[7])
e.decode(steps=5, on_step=seen.append)
assert len(seen) >= 5, len(seen)
print(e.decode(steps=5, lock={0: r"\\sum"}).latex, e.decode(hint="... d x").latex)
print(len(e.decode(n_best=5).n_best), e.decode(deadline_ms=200).steps, e.decode(views=3).latex)
print(e.decode(method="mask-predict", steps=5).latex, e.decode(allowed="digits").latex)
helped = gryphone.load(device="cuda", workers=2)
assert [x.latex for x in helped.recognize_many(inks)] == [x.latex for x in many]
print(many[7].latex)
"""


def command(*words: str) -> str:
    """What a command prints."""
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=240)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip()[-800:]}")
    return done.stdout.strip()


def served() -> str:
    """One question to a server, and one whose steps are watched."""
    call = [*GRYPHONE, "serve", "--port", "0", "--no-open", *CUDA]
    server = subprocess.Popen(call, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        url = next(m.group() for line in server.stderr if (m := re.search(r"http://\S+", line)))
        body = json.dumps({"strokes": [[[0, 5], [10, 5]], [[5, 0], [5, 10]]]}).encode()
        found = []
        for path in ("v1/recognize", "v1/recognize/stream"):
            kind = {"content-type": "application/json"}
            request = urllib.request.Request(url + path, body, kind)
            with urllib.request.urlopen(request, timeout=60) as answer:
                found.append(answer.read().decode()[-200:])
        return " ".join(found)
    finally:
        server.terminate()
        server.wait(60)


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    lines = str(folder / "all.jsonl")
    picture = str(folder / "demo.png")
    out = str(folder / "calibration.json")
    calibrate = (sys.executable, "-m", "gryphone.release.calibration", "examples/clean")
    compiled = (sys.executable, "benchmarks/compiled.py")
    works: dict[str, Callable[[], str]] = {
        "recognize, ink": lambda: command(*GRYPHONE, "recognize", INK, *CUDA),
        "recognize, photo": lambda: command(*GRYPHONE, "recognize", PHOTO, "--n-best", "3", *CUDA),
        "recognize, folder": lambda: command(
            *GRYPHONE, "recognize", "examples", "--out", lines, "--workers", "2", *CUDA
        ),
        "evaluate": lambda: command(*GRYPHONE, "evaluate", "examples/clean", "--json", *CUDA),
        "demo": lambda: command(*GRYPHONE, "demo", "examples", "--out", picture, *CUDA)[-120:],
        "info": lambda: command(*GRYPHONE, "info")[-300:],
        "calibration": lambda: command(*calibrate, "--out", out, *CUDA)[-200:],
        "serve": served,
        "Python": lambda: command(sys.executable, "-c", PYTHON),
        "compiled, ar": lambda: command(*compiled, "ar"),
        "compiled, bttr": lambda: command(*compiled, "bttr"),
        "compiled, others": lambda: command(*compiled, "diffusion", "ical", "namer"),
    }
    failed = 0

    def run(name: str) -> None:
        nonlocal failed
        began = time.perf_counter()
        try:
            said, mark = works[name](), "ok    "
        except Exception as error:  # whatever went wrong with one, the others are told too
            said, mark, failed = f"{type(error).__name__}: {error}", "FAILED", failed + 1
        print(f"{mark} {time.perf_counter() - began:5.1f} s  {name}: {said[:900]}", flush=True)

    with ThreadPoolExecutor(len(works)) as threads:
        list(threads.map(run, works))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
