"""Inks a second by T, one at a time and in the best batch, plain and as the product answers.

    python -m gryphone.studies.speed SET --out DIR [--weights DIR] [--device cuda] [--limit 256]

Writes DIR/speed-DEVICE.json, which `gryphone study tradeoff` reads. The first pass is not counted.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from gryphone.errors import DataError, writing
from gryphone.reading.inputs import Input
from gryphone.recognition.answer import Question, answer_together, refine_all
from gryphone.recognition.encoding import EncodedBatch
from gryphone.recognition.question import AUTO, Ask
from gryphone.recognition.recognizer import Recognizer, load
from gryphone.release.common import run
from gryphone.scoring.evaluate import chunks, items
from gryphone.studies.predictions import STEPS

BATCHES = (8, 32, 128)


@dataclass(frozen=True)
class Way:
    """How inks are answered."""

    steps: int | str
    plain: bool

    def ask(self) -> Ask:
        return Ask(steps=self.steps, plain=self.plain)


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


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--limit", type=int, default=256)
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS)
    options = parser.parse_args(arguments)
    found = (item.input for item in items(options.data) if item.input is not None)
    inputs = list(islice(found, options.limit))
    if not inputs:
        raise DataError(f"{options.data}: holds no ink that can be read")
    recognizer = load(options.weights, options.device)
    path = options.out / f"speed-{options.device.partition(':')[0]}.json"
    with writing(path):
        options.out.mkdir(parents=True, exist_ok=True)
        rows = measure(recognizer, inputs, options.steps)
        path.write_text(json.dumps(rows, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    run(main)
