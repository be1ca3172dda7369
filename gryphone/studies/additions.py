"""What the search for valid LaTeX and the second look bring to the bare decoder, each and both.

    python -m gryphone.studies.additions packed/valid-2013.parquet packed/valid-2023.parquet

Every ink is decoded four ways from the same draws, so that the differences are paired.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

import gryphone
from gryphone.errors import ConfigError, writing
from gryphone.reading.inputs import Input
from gryphone.recognition.answer import project
from gryphone.recognition.encoding import EncodedBatch
from gryphone.recognition.question import Ask
from gryphone.recognition.recognizer import Recognizer
from gryphone.release.card import table
from gryphone.release.common import run
from gryphone.scoring.evaluate import chunks, items
from gryphone.scoring.metrics import Sample, score, score_pair

WAYS = ("nothing", "search", "second look", "both")


def answers(recognizer: Recognizer, inputs: Sequence[Input], steps: int) -> dict[str, list[str]]:
    """The LaTeX of some inks in each of the WAYS."""
    batch = EncodedBatch.of(recognizer, inputs)
    keys = np.zeros(len(inputs), dtype=np.int64)  # as `recognize` has them
    request = recognizer.request(Ask(steps=steps), keys)
    owners = np.arange(len(inputs))
    once, twice = batch.refine(owners, request), batch.decode(owners, request)
    found = {
        "nothing": once,
        "search": [project(recognizer, each) for each in once],
        "second look": twice,
        "both": [project(recognizer, each) for each in twice],
    }
    tokenizer = recognizer.tokenizer
    return {way: [" ".join(tokenizer.decode(each.ids)) for each in found[way]] for way in WAYS}


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--limit", type=int, help="only the first inks of all")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--convention", default="crohme")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args(arguments)
    recognizer = gryphone.load(options.weights, device=options.device)
    found: defaultdict[str, list[Sample]] = defaultdict(list)
    everything = list(items(*options.data))[: options.limit]
    for some in chunks(everything, recognizer.backend.batch):
        inputs = [item.input for item in some if item.input is not None]
        if len(inputs) < len(some):
            unread = next(item for item in some if item.input is None)
            raise ConfigError(f"{unread.id}: has no ink ({unread.problem}); leave it out")
        for way, texts in answers(recognizer, inputs, options.steps).items():
            for item, text in zip(some, texts, strict=True):
                found[way].append(Sample(item.id, item.truth, text))
    rows, report = [], {}
    for way in WAYS:
        scores = score(found[way], convention=options.convention)
        paired = score_pair(found["nothing"], found[way], convention=options.convention)
        rows.append(
            [
                way,
                f"{scores.em:.2f}",
                f"{scores.cer:.2f}",
                f"{scores.ser:.2f}",
                f"+{paired.only_b} −{paired.only_a}",
                f"{paired.p:.2g}",
            ]
        )
        report[way] = {"scores": asdict(scores), "paired": asdict(paired)}
    print(table("added | EM | CER | SER | inks won, lost | p", rows))
    if options.out:
        with writing(options.out):
            options.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    run(main)
