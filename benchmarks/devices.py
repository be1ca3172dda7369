"""Do a CPU and a GPU answer alike? Every ink of some data sets, read in every way there is.

    python benchmarks/devices.py valid-2013.tar.xz valid-2023.tar.xz

Float32 may differ in ties only; bf16 and eight bits round, so what differs there is counted, and EM
is paired. `single` reads a GPU's inks one by one, by its graphs, where the others read batches.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from gryphone.recognition.recognizer import Recognizer
from gryphone.scoring.evaluate import items
from gryphone.scoring.metrics import Sample, compare, mcnemar

PROCESSES = {"cpu float32": 8, "cpu": 4, "cuda float32": 2, "cuda": 2, "cuda single": 1}
BASE, STEPS, PART = "cpu float32", (10, "auto"), 16


@cache
def reader(way: str) -> Recognizer:
    """A process's own recogniser."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch

    import gryphone
    from gryphone.checkpoint import WEIGHTS, load_model, read_checkpoint
    from gryphone.recognition.torch_backend import TorchBackend

    device = way.split()[0]
    if "float32" not in way:
        return gryphone.load(device=device)
    checkpoint = read_checkpoint(WEIGHTS)
    model = load_model(WEIGHTS, torch.device(device), checkpoint)
    return Recognizer(checkpoint, TorchBackend(model, checkpoint.config, half=False))


def read(way: str, steps: Any, inputs: list[Any]) -> list[tuple[str, float]]:
    """LaTeX tokens and confidences of some inks."""
    recognizer = reader(way)
    if way.endswith("single"):
        found = [recognizer.recognize(each, steps=steps) for each in inputs]
    else:
        found = recognizer.recognize_many(inputs, steps=steps)
    return [(" ".join(result.tokens), result.confidence) for result in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--ways", nargs="+", default=list(PROCESSES), choices=list(PROCESSES))
    parser.add_argument("--limit", type=int)
    parser.add_argument("--json", type=Path, help="write the answers here")
    options = parser.parse_args()
    every = [item for item in chain(*map(items, options.data)) if item.input is not None]
    every = every[: options.limit]
    inputs = [item.input for item in every]
    parts = [inputs[i : i + PART] for i in range(0, len(inputs), PART)]
    context = multiprocessing.get_context("spawn")
    pools = {way: ProcessPoolExecutor(PROCESSES[way], context) for way in options.ways}
    runs = {
        (way, steps): [pools[way].submit(read, way, steps, part) for part in parts]
        for steps in STEPS
        for way in options.ways
    }
    answers = {run: [a for part in found for a in part.result()] for run, found in runs.items()}
    table = Table("steps", "way", "EM", f"differ from {BASE}", "won, lost, p", "confidence by")
    for steps in STEPS:
        base = answers[options.ways[0], steps]
        right = {
            way: np.array(
                [
                    compare(Sample(i.id, i.truth, tokens), "crohme")[0].distance == 0
                    for i, (tokens, _) in zip(every, answers[way, steps], strict=True)
                ]
            )
            for way in options.ways
        }
        for way in options.ways:
            own, first = right[way], right[options.ways[0]]
            won, lost = int((own & ~first).sum()), int((first & ~own).sum())
            pairs = list(zip(answers[way, steps], base, strict=True))
            differ = sum(a[0] != b[0] for a, b in pairs)
            shift = np.median([abs(a[1] - b[1]) for a, b in pairs])
            table.add_row(
                str(steps), way, f"{100 * own.mean():.2f}", f"{differ} of {len(every)}",
                f"+{won} -{lost}, {mcnemar(won, lost):.2f}", f"{shift:.4f}",
            )  # fmt: skip
    Console(width=110).print(table)
    if options.json:
        options.json.write_text(json.dumps({f"{w} {s}": a for (w, s), a in answers.items()}))
    for pool in pools.values():
        pool.shutdown()


if __name__ == "__main__":
    main()
