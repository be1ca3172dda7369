"""Inks a second by T, one at a time and in the best batch, plain and as the product answers.

    python -m gryphone.studies.speed SET --out DIR [--weights DIR] [--device cuda] [--limit 256]

Writes DIR/speed-DEVICE.json, which `gryphone study tradeoff` reads. The first pass is not counted.

    python -m gryphone.studies.speed SET --out DIR --rivals ours=RUN comer=RUN [--device cuda]

writes DIR/rivals-speed-DEVICE.json, which `gryphone study rivals` reads: plain answers of several
networks of any kind, the time of single inks by their number of symbols too.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from gryphone.errors import DataError, LatexError, TokenError, writing
from gryphone.latex.normalize import normalize
from gryphone.reading.inputs import Input
from gryphone.recognition.answer import Question, answer_together, refine_all
from gryphone.recognition.encoding import EncodedBatch
from gryphone.recognition.question import AUTO, Ask
from gryphone.recognition.recognizer import Recognizer, load
from gryphone.release.common import run
from gryphone.scoring.evaluate import chunks, items
from gryphone.studies.predictions import STEPS, WRITINGS, named_weights
from gryphone.studies.rivals import LENGTHS, way_of
from gryphone.tokens import sat_split

BATCHES = (8, 32, 128)
NEAREST = 8  # inks whose latencies stand for a number of symbols


@dataclass(frozen=True)
class Way:
    """How inks are answered."""

    steps: int | str
    plain: bool
    beam: int = 1

    def ask(self) -> Ask:
        return Ask(steps=self.steps, plain=self.plain, beam=self.beam)


def rate(recognizer: Recognizer, inputs: Sequence[Input], way: Way, batch: int) -> float:
    """Inks a second in batches of one size."""
    began = time.perf_counter()
    for part in chunks(inputs, batch):
        encoded = EncodedBatch.of(recognizer, part)
        questions = [Question(encoded, k, way.ask()) for k in range(len(part))]
        if way.plain:
            refine_all(questions)
        else:
            answer_together(questions, began)
    return len(inputs) / (time.perf_counter() - began)


def measure(
    recognizer: Recognizer, inputs: Sequence[Input], steps: Sequence[int] = STEPS
) -> list[dict[str, Any]]:
    """A row for each T and auto, plain and product."""
    rows = []
    product: list[int | str] = [*steps, AUTO]
    ways = [Way(t, True) for t in steps] + [Way(t, False) for t in product]
    for way in ways:
        rate(recognizer, inputs[:8], way, 8)  # what is made once is made
        few = inputs[: max(8, len(inputs) // 4)]
        found = {size: rate(recognizer, inputs, way, size) for size in BATCHES}
        best = max(found, key=lambda size: found[size])
        rows.append(
            {
                "decoding": "plain" if way.plain else "product",
                "T": way.steps,
                "one at a time": round(rate(recognizer, few, way, 1), 2),
                "best batch": best,
                "in it": round(found[best], 2),
                "inks": len(inputs),
            }
        )
    return rows


def latency(recognizer: Recognizer, inputs: Sequence[Input], way: Way) -> float:
    """Milliseconds of one ink alone, the median."""
    return median(1000 / rate(recognizer, [one], way, 1) for one in inputs)


def compare(
    recognizer: Recognizer, arm: str, inks: Sequence[tuple[Input, int]], limit: int, device: str
) -> list[dict[str, Any]]:
    """A row for each way of asking one network; inks come with their number of symbols.

    Rates are of the first `limit` inks, latencies by length of those that are nearest to it.
    """
    diffuses = recognizer.checkpoint.config.kind == "diffusion"
    ways = [("diffusion", t) for t in (1, 10, 50)] if diffuses else list(WRITINGS.items())
    inputs, rows = [one for one, _ in inks[:limit]], []
    for method, number in ways:
        way = Way(number, True) if diffuses else Way(1, True, number)
        rate(recognizer, inputs[:8], way, 8)  # what is made once is made
        latency(recognizer, inputs[:8], way)
        found = {size: rate(recognizer, inputs, way, size) for size in (*BATCHES, 256)}
        best = max(found, key=lambda size: found[size])
        row: dict[str, Any] = {
            "arm": arm,
            "way": way_of(method, number),
            "device": device,
            "parameters": recognizer.checkpoint.parameters,
            "p50 ms": round(latency(recognizer, inputs[:: max(1, len(inputs) // 64)], way), 2),
            "best batch": best,
            "images/s": round(found[best], 2),
            "inks": len(inputs),
        }
        for length in LENGTHS:
            near = sorted(inks, key=lambda pair: abs(pair[1] - length))[:NEAREST]
            row[f"ms at {length}"] = round(latency(recognizer, [one for one, _ in near], way), 2)
            row[f"symbols at {length}"] = round(sum(n for _, n in near) / len(near), 1)
        rows.append(row)
    return rows


def symbols_of(truth: str) -> int:
    """How many symbols a truth has; 0 where it cannot be read."""
    try:
        return len(sat_split(normalize(truth)))
    except (LatexError, TokenError):
        return 0


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--rivals", nargs="+", help="NAME=DIR of checkpoints to compare")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", choices=("onnx", "torch"), help="of a CPU")
    parser.add_argument("--limit", type=int, default=256)
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS)
    options = parser.parse_args(arguments)
    readable = ((i.input, i.truth) for i in items(options.data) if i.input is not None)
    inks = list(readable if options.rivals else islice(readable, options.limit))
    if not inks:
        raise DataError(f"{options.data}: holds no ink that can be read")
    device = options.device.partition(":")[0]
    path = options.out / f"{'rivals-' if options.rivals else ''}speed-{device}.json"
    rows: list[dict[str, Any]] = []
    with writing(path):
        options.out.mkdir(parents=True, exist_ok=True)
        if options.rivals:
            counted = [(one, symbols_of(truth)) for one, truth in inks]
            for arm, folder in named_weights(options.rivals).items():
                network = load(folder, options.device, backend=options.backend)
                rows += compare(network, arm, counted, options.limit, device)
                path.write_text(json.dumps(rows, indent=1) + "\n")  # a lent machine may end
        else:
            recognizer = load(options.weights, options.device, backend=options.backend)
            rows = measure(recognizer, [one for one, _ in inks], options.steps)
        path.write_text(json.dumps(rows, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    run(main)
