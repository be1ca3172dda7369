"""Lone letters and pairs of letters: validation sets of case by people that training has not seen,
and with `--training` sets to train on, by the others.

    python -m gryphone.studies.letters lone FOLDER OUT.parquet     # letters and digits, one by one
    python -m gryphone.studies.letters pairs FOLDER OUT.parquet    # two letters of one writer
    gryphone evaluate OUT.parquet --out ANSWERS.tsv
    python -m gryphone.studies.letters score ANSWERS.tsv

FOLDER has the letters (`../shared/data/letters`); held out are the people that the glyph bank
leaves out. Each has an equal share. Two letters stand on one line at their writer's own sizes.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from gryphone.data.packing import write_packed
from gryphone.data.samples import Sample
from gryphone.errors import DataError
from gryphone.ink import Glyph, Ink
from gryphone.release.common import run
from gryphone.scoring.metrics import Sample as Answer
from gryphone.scoring.metrics import read_samples
from gryphone.synth.glyph_sources import from_letters
from gryphone.synth.glyphs import Array, GlyphSample
from gryphone.synth.symbols import DIGITS, FUNCTIONS, LOWER, UPPER

GAP = (0.12, 0.45)  # between two letters, in capitals' heights


def letters_of(
    folder: Path, names: Sequence[str], *, held_out: bool
) -> dict[str, list[GlyphSample]]:
    """The characters among `names` of each writer who is held out, or of each other one."""
    people: dict[str, list[GlyphSample]] = {}
    for glyph in from_letters(folder, Counter(), held_out=held_out):
        if glyph.label in names and glyph.writer is not None:
            people.setdefault(glyph.writer, []).append(glyph)
    return people


def lone(folder: Path, count: int, seed: int, *, held_out: bool = True) -> Iterator[Sample]:
    """`count` single letters and digits."""
    draw = np.random.default_rng(seed)
    people = letters_of(folder, (*DIGITS, *LOWER, *UPPER), held_out=held_out)
    for number, glyphs in _turns(people, count, draw):
        glyph = glyphs[int(draw.integers(len(glyphs)))]
        yield _sample(f"lone-{seed}-{number}", [glyph], draw)


def pairs(folder: Path, count: int, seed: int, *, held_out: bool = True) -> Iterator[Sample]:
    """`count` pairs of letters that differ in more than case, and are no function's name."""
    draw = np.random.default_rng(seed)
    words = {name[1:].lower() for name in FUNCTIONS}
    people = letters_of(folder, (*LOWER, *UPPER), held_out=held_out)
    people = {w: glyphs for w, glyphs in people.items() if len({g.label for g in glyphs}) > 9}
    for number, glyphs in _turns(people, count, draw):
        while True:
            two = [glyphs[int(i)] for i in draw.integers(len(glyphs), size=2)]
            word = (two[0].label + two[1].label).lower()
            if word[0] != word[1] and word not in words:
                break
        yield _sample(f"pair-{seed}-{number}", two, draw)


def _turns(
    people: dict[str, list[GlyphSample]], count: int, draw: np.random.Generator
) -> Iterator[tuple[int, list[GlyphSample]]]:
    """Everybody's glyphs in turn, in a new order each time."""
    if not people:
        raise DataError("nobody is held out among the writers of these letters")
    every = sorted(people)
    order: list[str] = []
    for number in range(count):
        order = order or [every[int(i)] for i in draw.permutation(len(every))]
        yield number, people[order.pop()]


def _sample(name: str, glyphs: Sequence[GlyphSample], draw: np.random.Generator) -> Sample:
    """Glyphs side by side, on the line of their writer."""
    strokes: list[Array] = []
    found: list[Glyph] = []
    left = 0.0
    for glyph in glyphs:
        points = np.concatenate(glyph.strokes)
        low, high = points.min(axis=0), points.max(axis=0)
        top, bottom = glyph.stand
        unit = (high[1] - low[1]) / max(bottom - top, 1e-6)  # a capital's height
        move = np.array([left - low[0], top * unit - low[1]])
        first = len(strokes)
        strokes += [stroke + move for stroke in glyph.strokes]
        found.append(Glyph(glyph.label, tuple(range(first, len(strokes)))))
        left += high[0] - low[0] + unit * draw.uniform(*GAP)
    label = " ".join(glyph.label for glyph in glyphs)
    ink = Ink(tuple(strokes), label, tuple(found), id=name, writer=glyphs[0].writer)
    return Sample(name, "letters", label, ink=ink)


def score(answers: Sequence[Answer]) -> dict[str, float]:
    """Shares in percent: right, right but for case, the right letters whatever their case and
    place (`x_{y}` for `x y`), and of those the right case.
    """
    if not answers:
        raise DataError("there are no answers to score")
    pairs = [(_bare(a.truth), _bare(a.prediction)) for a in answers]
    letters = [(truth, re.sub(r"[_^{}]", "", read)) for truth, read in pairs]
    alike = [(truth, read) for truth, read in letters if truth.lower() == read.lower()]

    def share(some: Sequence[bool], of: int) -> float:
        return 100 * sum(some) / max(of, 1)

    return {
        "right": share([truth == read for truth, read in pairs], len(pairs)),
        "right but for case": share([a.lower() == b.lower() for a, b in pairs], len(pairs)),
        "the right letters": 100 * len(alike) / len(pairs),
        "the right case, of those": share([truth == read for truth, read in alike], len(alike)),
    }


def _bare(text: str | None) -> str:
    return "".join((text or "").split())


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    makers = {"lone": lone, "pairs": pairs}
    for name in makers:
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path)
        command.add_argument("out", type=Path, help="the packed store to write (.parquet)")
        command.add_argument("--count", type=int, default=600)
        command.add_argument("--seed", type=int, default=0)
        command.add_argument("--training", action="store_true", help="by all the other people")
    commands.add_parser("score").add_argument("answers", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "score":
        for name, share in score(read_samples(options.answers)).items():
            print(f"{share:5.1f} % {name}")
        return
    make, held_out = makers[options.command], not options.training
    samples = make(options.folder, options.count, options.seed, held_out=held_out)
    report = write_packed(samples, options.out)
    print(f"{options.out}: {report.packed} inks")


if __name__ == "__main__":
    run(main)
