"""The generated parts of MODEL_CARD.md: what the weights are, and what predictions of them say.

    gryphone evaluate SET --steps 10 --out FOLDER/SET.T10.tsv    (SET.T10.3.tsv: independent run 3)
    python -m gryphone.release.card FOLDER --write MODEL_CARD.md

Everything between `<!-- generated NAME -->` and `<!-- end NAME -->` is written anew.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gryphone.checkpoint import WEIGHTS, read_checkpoint
from gryphone.errors import DataError, LatexError
from gryphone.latex.normalize import normalize
from gryphone.release.common import run
from gryphone.scoring.graph import Graph, GraphScores, graph_of_latex, score_graphs
from gryphone.scoring.metrics import Sample, Scores, read_samples, score
from gryphone.synth.symbols import BIG_OPERATORS, DELIMITERS, DOTS, GREEK, LOWER, UPPER

TITLES = {
    "test-2014": "CROHME 2014 test",
    "valid-2013": "CROHME 2013 (validation)",
    "valid-2023": "CROHME 2023 validation",
    "valid-2023-scans": "the same, scanned",
}
LENGTHS = ((1, 4), (5, 9), (10, 19), (20, 29), (30, 49), (50, 10_000))
CLASSES = (
    ("digits", frozenset("0123456789")),
    ("small letters", frozenset(LOWER)),
    ("capitals", frozenset(UPPER)),
    ("Greek", frozenset(GREEK)),
    ("brackets", DELIMITERS),
    ("sums and integrals", BIG_OPERATORS),
    ("dots, commas, primes", frozenset((*DOTS, ".", ",", "\\cdot", "\\prime", "!"))),
    ("fractions and roots", frozenset(("\\frac", "\\sqrt"))),
    ("scripts", frozenset("_^")),
)
CONFUSIONS = 24
NAME = re.compile(r"(?P<set>.+)\.T(?P<steps>\d+)(?:\.(?P<run>\d+))?$")


@dataclass(frozen=True)
class Answers:
    """The predictions of one run over one set."""

    name: str
    steps: int
    run: int
    samples: Sequence[Sample]

    def scores(self) -> Scores:
        """After normalising both sides."""
        return score(self.samples, "crohme")

    def graph(self) -> GraphScores:
        """By symbols and relations; a truth without a graph is an error."""

        def rows() -> Iterator[tuple[str, Graph, str | None]]:
            for sample in self.samples:
                try:
                    yield sample.id, graph_of_latex(sample.truth), sample.prediction
                except LatexError:
                    yield sample.id, Graph(()), None

        return score_graphs(rows())


def read_answers(folder: Path) -> list[Answers]:
    """All prediction files of a folder."""
    found = []
    for path in sorted(folder.glob("*.tsv")):
        match = NAME.match(path.stem)
        if match is None:
            raise DataError(f"{path}: the name must be SET.T10.tsv or, for run 3, SET.T10.3.tsv")
        numbers = int(match["steps"]), int(match["run"] or 0)
        found.append(Answers(match["set"], *numbers, read_samples(path)))
    if not found:
        raise DataError(f"{folder}: holds no .tsv of predictions; see `gryphone evaluate --out`")
    return found


def table(header: str, rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    columns = header.split("|")
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.strip() for cell in line) + " |" for line in lines)


def rate(scores: Scores, name: str = "em") -> str:
    """A rate with its interval."""
    low, high = scores.intervals[name]
    return f"{getattr(scores, name):.1f} ({low:.1f}–{high:.1f})"


def results(answers: Sequence[Answers], steps: int = 10) -> str:
    """Every set at the usual number of steps."""
    rows = []
    for name in TITLES:
        for a in answers:
            if (a.name, a.steps, a.run) == (name, steps, 0):
                s, g, raw = a.scores(), a.graph(), score(a.samples)
                figures = (raw.em, s.le1, s.cer, s.ser, g.exact, g.le1)
                numbers = [f"{x:.1f}" for x in figures]
                rows.append([TITLES[name], str(s.count), rate(s), *numbers])
    return table("set | samples | EM | raw EM | ≤1 token | CER | SER | graph | graph ≤1", rows)


def by_steps(answers: Sequence[Answers]) -> str:
    """Every number of steps, for each set that has more than one."""
    out = []
    for name, title in TITLES.items():
        own = sorted((a for a in answers if a.name == name and not a.run), key=lambda a: a.steps)
        if len(own) > 1:
            rows = []
            for a in own:
                s = a.scores()
                graph = f"{a.graph().exact:.1f}"
                rows.append([str(a.steps), rate(s), f"{s.le1:.1f}", f"{s.cer:.2f}", graph])
            out.append(f"{title}:\n\n" + table("T | EM | ≤1 | CER | graph", rows))
    return "\n\n".join(out)


def by_run(answers: Sequence[Answers]) -> str:
    """Mean and deviation where a set was read several times with fresh draws."""
    groups: dict[tuple[str, int], list[Answers]] = defaultdict(list)
    for a in answers:
        groups[a.name, a.steps].append(a)
    rows = []
    for (name, steps), own in groups.items():
        if len(own) > 1:
            scores, graphs = [a.scores() for a in own], [a.graph() for a in own]
            values = [
                [s.em for s in scores],
                [s.le1 for s in scores],
                [g.exact for g in graphs],
                [g.le1 for g in graphs],
            ]
            numbers = [f"{np.mean(v):.2f} ± {np.std(v, ddof=1):.2f}" for v in values]
            rows.append([TITLES.get(name, name), str(steps), str(len(own)), *numbers])
    return table("set | T | runs | EM | ≤1 | graph | graph ≤1", rows) if rows else ""


def _tokens(sample: Sample) -> tuple[list[str], list[str]]:
    """Truth and prediction, normalised where that can be done."""

    def spelt(source: str) -> list[str]:
        try:
            return normalize(source, "crohme")
        except LatexError:
            return source.split()

    return spelt(sample.truth), spelt(sample.prediction or "")


def by_length(samples: Sequence[Sample]) -> str:
    """EM by the length of the truth."""
    pairs = [_tokens(sample) for sample in samples]
    rows = []
    for low, high in LENGTHS:
        right = [t == p for t, p in pairs if low <= len(t) <= high]
        if right:
            name = f"{low}–{high}" if high < LENGTHS[-1][1] else f"{low} and more"
            rows.append([name, str(len(right)), f"{100 * np.mean(right):.1f}"])
    return table("tokens | samples | EM", rows)


def class_of(token: str) -> str:
    """The class of symbols a token belongs to."""
    return next((name for name, members in CLASSES if token in members), "other signs")


def by_class(samples: Sequence[Sample]) -> tuple[str, str]:
    """How many tokens of each class were found, and what was taken for what."""
    from rapidfuzz.distance import Levenshtein

    seen: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    confused: Counter[tuple[str, str]] = Counter()
    for truth, prediction in map(_tokens, samples):
        seen.update(class_of(t) for t in truth if t not in "{}")
        for edit in Levenshtein.editops(truth, prediction).as_list():
            kind, i, j = str(edit[0]), int(edit[1]), int(edit[2])
            if kind != "insert" and truth[i] not in "{}":
                missed[class_of(truth[i])] += 1
            if kind == "replace" and truth[i] not in "{}" and prediction[j] not in "{}":
                confused[truth[i], prediction[j]] += 1
    rows = [
        [name, str(n), f"{100 * (1 - missed[name] / n):.1f}"]
        for name, n in sorted(seen.items(), key=lambda item: -item[1])
    ]
    common = [(n, t, p) for (t, p), n in confused.most_common(CONFUSIONS)]
    cells = [f"`{t}` → `{p}` {n}".replace("|", "\\|") for n, t, p in common]
    lines = [cells[i : i + 4] for i in range(0, len(cells), 4)]
    lines = [line + [""] * (4 - len(line)) for line in lines]
    return (
        table("class | tokens | found, %", rows),
        table("truth → answer | | | ", lines) if lines else "",
    )


def architecture(weights: Path) -> str:
    """What a checkpoint is, from itself."""
    checkpoint = read_checkpoint(weights)
    c = checkpoint.config
    parameters = checkpoint.parameters / 1e6
    size = sum(p.stat().st_size for p in weights.iterdir()) / 2**20
    symbols, modifiers = (len(v.names) for v in checkpoint.tokenizer.vocabularies)
    training: dict[str, Any] = checkpoint.facts.get("training", {})
    return (
        f"`{checkpoint.facts.get('name')}`: {parameters:.1f} million parameters in eight bits "
        f"({size:.1f} MiB). A Transformer of {c.encoder_depth} blocks over inked "
        f"{c.canvas.patch}×{c.canvas.patch} patches ({c.canvas.window}×{c.canvas.window} windows, "
        f"2-D rotary positions, width {c.width}), a bidirectional decoder of {c.decoder_depth} "
        f"blocks over at most {c.length} tokens, symbol-aware tokens ({symbols} symbols, "
        f"{modifiers} modifiers). Ink is scaled so that its typical stroke is "
        f"{c.canvas.stroke:.0f} pixels long. The last run: {training.get('minutes', 0):.1f} "
        f"minutes, {training.get('samples', 0):,} samples."
    )


def parts(answers: Sequence[Answers], repeated: Sequence[Answers], weights: Path) -> dict[str, str]:
    """Every generated part by its name; `repeated` has several numbers of steps, or runs."""
    usual = [s for a in answers if (a.steps, a.run) == (10, 0) for s in a.samples if _is_valid(a)]
    classes, confusions = by_class(usual)
    return {
        "architecture": architecture(weights),
        "results": results(answers),
        "steps": by_steps(repeated),
        "runs": by_run(repeated),
        "lengths": by_length(usual),
        "classes": classes,
        "confusions": confusions,
    }


def _is_valid(answers: Answers) -> bool:
    return answers.name in ("valid-2013", "valid-2023")


def write(text: str, made: dict[str, str]) -> str:
    """A card with its generated parts exchanged; an unknown part is an error."""

    def exchange(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in made:
            raise DataError(f"the card asks for {name!r}; known parts: {', '.join(made)}")
        return f"<!-- generated {name} -->\n{made[name]}\n<!-- end {name} -->"

    pattern = r"<!-- generated (?P<name>\w+) -->.*?<!-- end (?P=name) -->"
    return re.sub(pattern, exchange, text, flags=re.DOTALL)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("predictions", type=Path, help="folder of SET.T10.tsv files")
    parser.add_argument("--repeated", type=Path, help="folder with other steps and runs")
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--write", type=Path, help="the card to bring up to date")
    options = parser.parse_args()
    answers = read_answers(options.predictions)
    repeated = read_answers(options.repeated) if options.repeated else answers
    made = parts(answers, repeated, options.weights)
    if options.write is None:
        print("\n\n".join(f"## {name}\n\n{text}" for name, text in made.items()))
    else:
        options.write.write_text(write(options.write.read_text(), made))


if __name__ == "__main__":
    run(main)
