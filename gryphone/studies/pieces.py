"""What `gryphone evaluate --out` wrote for lone symbols, beginnings and rows, by kind.

    gryphone evaluate packed/lone-2023.parquet --out lone.tsv
    python -m gryphone.studies.pieces lone.tsv

Lone symbols are counted by class, and once more with look-alikes as one; beginnings by the quarter
of the formula that they reach, which their names end with; everything else by length.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from gryphone.latex.tree import OPERATORS
from gryphone.release.common import run
from gryphone.studies.invariance import is_right
from gryphone.synth.symbols import BIG_OPERATORS, DELIMITERS, DIGITS, GREEK, LOWER, UPPER

CLASSES = {
    "integrals, sums, roots": frozenset((*BIG_OPERATORS, "\\sqrt")),
    "function names": OPERATORS - BIG_OPERATORS,
    "digits": frozenset(DIGITS),
    "small letters": frozenset(LOWER),
    "capitals": frozenset(UPPER),
    "Greek": frozenset(GREEK),
    "brackets": frozenset(DELIMITERS),
    "dots and primes": frozenset((".", ",", "\\prime", "\\ldots", "!")),
}
# Alone, size and place are gone: nobody could tell these apart.
ALIKE = (
    *({letter, letter.upper()} for letter in "ckmopsuvwxyz"),
    {"x", "X", "\\times"},
    {"0", "o", "O"},
    {"1", "l", "|", "\\prime", "/", ",", "i"},
    {"9", "q", "g"},
    {"-", ".", "\\ldots"},
    {"\\alpha", "a"},
    {"\\in", "\\epsilon"},
    {"S", "s", "5"},
    {"z", "Z", "2"},
    {"C", "c", "("},
)
LENGTHS = (10, 30, 50, 60, 75)


def class_of(truth: str) -> str:
    """The class of a lone symbol."""
    symbol = truth.split()[0]
    return next((name for name, members in CLASSES.items() if symbol in members), "operators")


def alike(truth: str, answer: str) -> bool:
    """Whether a lone symbol is right, or taken for one that looks the same."""
    pair = {truth.replace(" ", ""), answer.replace(" ", "")}
    return is_right(answer, truth) or any(pair <= group for group in ALIKE)


def kind_of(name: str, truth: str) -> str:
    """What a sample counts as, by its name and truth."""
    quarter = re.search(r"-q([1-4])$", name)
    if name.startswith("lone-"):
        return class_of(truth)
    if quarter:
        return f"quarter {quarter[1]}"
    length = len(truth.split())
    least = [n for n in LENGTHS if n <= length]
    return f"{least[-1]} tokens and more" if least else f"less than {LENGTHS[0]} tokens"


def table(lines: Iterable[str]) -> list[tuple[str, int, int, int]]:
    """Kind, count, right, and right with look-alikes; all together in the last row."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for line in lines:
        name, truth, answer = (*line.rstrip("\n").split("\t"), "")[:3]
        good = is_right(answer, truth)
        close = alike(truth, answer) if name.startswith("lone-") else good
        for kind in (kind_of(name, truth), "all"):
            for column, value in enumerate((1, good, close)):
                counts[kind][column] += value
    rows = [(kind, *numbers) for kind, numbers in sorted(counts.items())]
    return sorted(rows, key=lambda row: row[0] == "all")  # type: ignore[arg-type, return-value]


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("answers", type=Path, nargs="+", help="files of `gryphone evaluate --out`")
    for path in parser.parse_args(arguments).answers:
        print(f"| {path.stem} | of | right | with look-alikes |\n| --- | --- | --- | --- |")
        for kind, count, right, close in table(path.read_text("utf-8").splitlines()):
            print(f"| {kind} | {count} | {100 * right / count:.1f} | {100 * close / count:.1f} |")


if __name__ == "__main__":
    run(main)
