"""The core beside PyTorch, in one run: size, start, memory, time of an answer, EM.

python benchmarks/light.py SET [INKS]     where SET is labelled ink, a folder, archive or store
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import gryphone
from gryphone.cli import calm_threads
from gryphone.data.datasets import read_dataset
from gryphone.errors import GryphoneError
from gryphone.latex.normalize import normalize

BACKENDS = ("onnx", "torch")
EXAMPLE = Path(__file__).parents[1] / "examples" / "ink" / "01-power.inkml"
START = """
import json, resource, sys, time
began = time.perf_counter()
import gryphone
gryphone.load(backend=sys.argv[1]).recognize(sys.argv[2])
spent = time.perf_counter() - began
print(json.dumps([spent, time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


def needed(name: str, extra: str, found: dict[str, float]) -> dict[str, float]:
    """Megabytes of a package and of all that it needs here, by name."""
    about = importlib.metadata.distribution(name)
    files = [Path(str(file.locate())) for file in about.files or ()]
    if name == "gryphone":  # which may be a path, and then has no list
        here = Path(gryphone.__file__).parent.rglob("*")
        files = [file for file in here if file.suffix != ".pyc"]
    found[name] = sum(file.stat().st_size for file in files if file.is_file()) / 1e6
    for line in about.requires or ():
        package, condition = re.match(r"[\w.-]+", line), line.partition(";")[2]
        optional = "extra ==" in condition and f'"{extra}"' not in condition.replace("'", '"')
        if package and not optional and package[0] not in found:
            try:
                needed(package[0], "", found)
            except importlib.metadata.PackageNotFoundError:
                continue  # for another platform
    return found


def main(path: Path, most: int) -> None:
    calm_threads()  # as the commands do, before PyTorch
    print(f"Python {sys.version.split()[0]}, load average {os.getloadavg()[0]:.1f}")
    for extra in ("", "torch"):
        sizes = sorted(needed("gryphone", extra, {}).items(), key=lambda each: -each[1])
        total = sum(size for _, size in sizes)
        rest = sum(size for _, size in sizes if size < 2)
        print(f"{extra or 'core'}: {total:.0f} MB; ", end="")
        print(", ".join(f"{n} {mb:.0f}" for n, mb in sizes if mb >= 2), f"others {rest:.0f}")
    for name in BACKENDS:
        command = [sys.executable, "-c", START, name, str(EXAMPLE)]
        runs = [json.loads(subprocess.check_output(command)) for _ in range(3)]
        clock, processor, memory = map(min, zip(*runs, strict=True))
        print(f"{name}: first answer {clock:.2f} s (processor {processor:.2f}), ", end="")
        print(f"memory {memory / 1024:.0f} MB; best of three processes")
    readers = {name: gryphone.load(backend=name, warm=True) for name in BACKENDS}
    right: dict[str, list[bool]] = {name: [] for name in BACKENDS}
    times: dict[str, list[float]] = {name: [] for name in BACKENDS}
    answers: dict[str, list[str]] = {name: [] for name in BACKENDS}
    for _, sample in zip(range(most), read_dataset(path), strict=False):
        truth = normalize(sample.label)
        for name, reader in readers.items():
            began = time.perf_counter()
            try:
                found = reader.recognize(sample.ink)
                latex, tokens = found.latex, list(found.tokens)
            except GryphoneError as error:
                latex, tokens = f"error: {error}", []
            times[name].append(1000 * (time.perf_counter() - began))
            answers[name].append(latex)
            right[name].append(tokens == truth)
    for name in BACKENDS:
        tenth = sorted(times[name])[int(0.9 * len(times[name]))]
        print(f"{name}: EM {100 * statistics.mean(right[name]):.2f}, ", end="")
        print(f"{statistics.median(times[name]):.0f} ms, 90th percentile {tenth:.0f}")
    pairs = list(zip(*right.values(), strict=True))
    differ = sum(a != b for a, b in zip(*answers.values(), strict=True))
    print(f"{len(pairs)} inks: {differ} answers differ; right only by {BACKENDS[0]} ", end="")
    print(f"{pairs.count((True, False))}, by {BACKENDS[1]} {pairs.count((False, True))}")
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10**9)
