"""How photographs are read under the conditions that people meet: boxes, fingers, desks, turns.

    python -m gryphone.studies.conditions ../shared/data/crohme/valid-2023.tar.xz --limit 100

Each ink is drawn on a page and photographed under each condition (gryphone/synth/conditions.py).
The table says how many are read right, how many answers come with a warning, how many of the others
have a confidence below a half, and how many are wrong without a word: those are what hurts.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import gryphone
from gryphone.data.datasets import read_dataset
from gryphone.data.samples import Sample
from gryphone.errors import ConfigError, GryphoneError
from gryphone.recognition.recognizer import Recognizer
from gryphone.release.common import run
from gryphone.studies.invariance import is_right
from gryphone.synth.conditions import CONDITIONS, MARGIN
from gryphone.synth.paper import Paper, render_page

if TYPE_CHECKING:
    from PIL.Image import Image

INK = "ink"  # the strokes themselves
# An ordinary photograph: pen on paper under a lamp.
PAPER = Paper(margin=MARGIN, ink=0.8, blur=0.7, texture=0.01, light=0.2, noise=0.01, pressure=0.2)


@dataclass(frozen=True)
class Row:
    """What became of the inks under one condition."""

    condition: str
    count: int
    right: int
    warned: int
    unsure: int  # not warned about, confidence below a half
    silent: int  # wrong, and nothing says so
    answers: tuple[
        tuple[str, str, float, tuple[str, ...]], ...
    ] = ()  # id, answer, confidence, said


def pages(samples: Sequence[Sample], condition: str) -> Iterator[Image]:
    """Each ink under a condition; the same pages on every run, and for every choice of rows."""
    for number, sample in enumerate(samples):
        generator = np.random.default_rng((number, zlib.crc32(condition.encode())))
        strokes = sample.ink.strokes if sample.ink is not None else ()
        page = render_page(strokes, PAPER, np.random.default_rng(number))
        yield CONDITIONS[condition](page, generator)


def read_row(recognizer: Recognizer, samples: Sequence[Sample], condition: str) -> Row:
    """Read all inks under one condition."""
    sources = [s.ink for s in samples] if condition == INK else list(pages(samples, condition))
    found = recognizer.recognize_many(sources, boxes=False, errors="return")
    right = warned = unsure = silent = 0
    answers: list[tuple[str, str, float, tuple[str, ...]]] = []
    for sample, result in zip(samples, found, strict=True):
        if isinstance(result, GryphoneError):  # an error is a word
            warned += 1
            answers.append((sample.id, "", 0.0, (str(result),)))
            continue
        good = is_right(result.latex, sample.label or "")
        right += good
        warned += bool(result.warnings)
        unsure += not result.warnings and result.confidence < 0.5
        silent += not (good or result.warnings or result.confidence < 0.5)
        answers.append((sample.id, result.latex, round(result.confidence, 4), result.warnings))
    return Row(condition, len(samples), right, warned, unsure, silent, tuple(answers))


def inks(path: Path, count: int) -> list[Sample]:
    """Labelled inks, spread over the data set."""
    every = [s for s in read_dataset(path) if isinstance(s, Sample) and s.ink and s.label]
    if not every:
        raise ConfigError(f"{path}: holds no labelled ink")
    places = np.linspace(0, len(every) - 1, min(count, len(every))).round().astype(int)
    return [every[i] for i in places]


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="labelled ink, as in `gryphone evaluate`")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--limit", type=int, default=100, help="inks of each row")
    parser.add_argument("--rows", nargs="+", metavar="CONDITION", help=", ".join(CONDITIONS))
    parser.add_argument("--out", type=Path, help="write the rows and all answers as JSON")
    options = parser.parse_args(arguments)
    rows = options.rows or [INK, *CONDITIONS]
    unknown = sorted(set(rows) - {INK, *CONDITIONS})
    if unknown or options.limit < 1:
        raise ConfigError(
            f"rows {', '.join(unknown)} are unknown; choose among {INK}, {', '.join(CONDITIONS)}"
            if unknown
            else f"limit is {options.limit}; it must be 1 or more"
        )
    samples, recognizer = inks(options.data, options.limit), gryphone.load(options.weights)
    print(f"| {'condition':13} | of | right | warned | unsure | silent |")
    print("| --- | --- | --- | --- | --- | --- |")
    done = []
    for condition in rows:
        row = read_row(recognizer, samples, condition)
        done.append(asdict(row))
        print(
            f"| {row.condition:13} | {row.count} | {row.right} | {row.warned} | {row.unsure} "
            f"| {row.silent} |",
            flush=True,
        )
        if options.out is not None:
            text = json.dumps(done, ensure_ascii=False, indent=1)
            options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    run(main)
