"""When is an answer done? EM, calibration and passes of `steps="auto"` against its thresholds.

Reads the validation sets once, with every answer that a rule could stop at: one step of the first
look, one step of both looks, and all steps of both; then tells what each rule would have given,
paired against ten fixed steps. `docs/auto-steps.md` is its table for the shipped weights.

    python benchmarks/auto_steps.py collect NAME SET.tar.xz answers.jsonl
    python benchmarks/auto_steps.py table answers-*.jsonl
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import gryphone
from gryphone.cli import calm_threads
from gryphone.decoding import Decoded
from gryphone.recognition.answer import Question, Vote, project, weigh
from gryphone.recognition.encoding import BOTH_SURE, SURE, EncodedBatch
from gryphone.recognition.question import AUTO_STEPS, Ask
from gryphone.scoring.evaluate import items, told_apart
from gryphone.scoring.metrics import Sample, compare, mcnemar

STEPS = (5, 8, 10)
OWNER = np.zeros(1, dtype=np.int64)
Answer = dict[str, Any]


def answers_of(batch: EncodedBatch) -> dict[str, Answer]:
    """Every answer about one ink that a rule may stop at."""
    network, found = batch.network, {}

    def note(name: str, decoded: Decoded) -> None:
        lack = batch.doubt_about(decoded)
        vote = Vote.of(Question(batch, 0, Ask(), None), [project(network, decoded)])
        found[name] = {
            "tokens": " ".join(network.tokenizer.decode(vote.best.ids)),
            "lack": round(lack, 4),
            "confidence": weigh([vote])[0][0],
            "passes": decoded.passes,
        }

    note("fixed", batch.decode(OWNER, network.request(Ask(steps=10), OWNER))[0])
    once = network.request(Ask(steps=1), OWNER)
    note("first", batch.refine(OWNER, once)[0])
    batch.trace([0])
    both = bool(batch.tracings[0])
    note("both", batch.refine(OWNER, once, both_tracings=both)[0])
    for steps in STEPS:
        request = network.request(Ask(steps=steps), OWNER)
        note(f"all {steps}", batch.refine(OWNER, request, both_tracings=both)[0])
    return found


def collect(name: str, data: Path, out: Path) -> None:
    """Write one line for each sample of a data set; what is there already is kept."""
    recognizer = gryphone.load()
    done = len(out.read_text().splitlines()) if out.exists() else 0
    with out.open("a") as file:
        for item in told_apart(list(items(data)))[done:]:
            if item.input is None:
                raise SystemExit(f"{item.id}: {item.problem}")
            answers = answers_of(EncodedBatch.of(recognizer, [item.input]))
            line = {"set": name, "id": item.id, "truth": item.truth, "answers": answers}
            file.write(json.dumps(line) + "\n")
            file.flush()


def ruled(answers: dict[str, Answer], sure: float, both_sure: float, steps: int) -> Answer:
    """What a rule answers, and the passes it takes."""
    first, both, every = answers["first"], answers["both"], answers[f"all {steps}"]
    if first["lack"] <= sure:
        return first
    chosen = both if both["lack"] <= both_sure else every
    return chosen | {"passes": first["passes"] + chosen["passes"]}


def error_of(right: np.ndarray, confidence: np.ndarray, bins: int = 10) -> float:
    """Expected calibration error over equally filled bins, in percent."""
    order = np.argsort(confidence, kind="stable")
    parts = [(confidence[p].mean() - right[p].mean(), len(p)) for p in np.array_split(order, bins)]
    return 100 * sum(abs(gap) * n for gap, n in parts) / len(order)


def table(paths: Sequence[Path]) -> None:
    """EM, passes and calibration of rules, against ten fixed steps."""
    rows = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    sets = list(dict.fromkeys(row["set"] for row in rows))
    fixed = [row["answers"]["fixed"] for row in rows]
    heads = (
        "rule",
        *(f"EM {name}" for name in sets),
        "EM",
        "won, lost, p",
        "passes",
        "ECE",
        "Brier",
    )
    out = Table(*heads)
    rules: list[tuple[str, list[Answer]]] = [("10 steps", fixed)]
    for sure in (0.05, 0.1, 0.2, 0.3, 0.5, 1.0):
        rules.append(
            (f"{sure} / {BOTH_SURE} / {AUTO_STEPS}", _all(rows, sure, BOTH_SURE, AUTO_STEPS))
        )
    for both in (0.3, 0.5, 1.0):
        rules.append((f"{SURE} / {both} / {AUTO_STEPS}", _all(rows, SURE, both, AUTO_STEPS)))
    for steps in STEPS:
        if steps != AUTO_STEPS:
            rules.append((f"{SURE} / {BOTH_SURE} / {steps}", _all(rows, SURE, BOTH_SURE, steps)))
    for name in ("first", "both", *(f"all {steps}" for steps in STEPS)):
        rules.append((name, [row["answers"][name] for row in rows]))
    base = _right(rows, fixed)
    for rule, answers in rules:
        right = _right(rows, answers)
        confidence = np.array([a["confidence"] for a in answers])
        own = [f"{100 * right[[r['set'] == n for r in rows]].mean():.2f}" for n in sets]
        won, lost = int((right & ~base).sum()), int((base & ~right).sum())
        out.add_row(
            rule, *own, f"{100 * right.mean():.2f}", f"+{won} -{lost}, {mcnemar(won, lost):.2f}",
            f"{np.mean([a['passes'] for a in answers]):.2f}",
            f"{error_of(right, confidence):.2f}", f"{((confidence - right) ** 2).mean():.4f}",
        )  # fmt: skip
    console = Console(width=140)
    console.print(f"{len(rows)} samples")
    console.print(out)


def _all(rows: Sequence[Any], *rule: Any) -> list[Answer]:
    return [ruled(row["answers"], *rule) for row in rows]


def _right(rows: Sequence[Any], answers: Sequence[Answer]) -> np.ndarray:
    """Which answers are the truth, both normalised."""
    pairs = zip(rows, answers, strict=True)
    samples = [Sample(row["id"], row["truth"], answer["tokens"]) for row, answer in pairs]
    found = [compare(sample, "crohme")[0] for sample in samples]
    return np.array([each.distance == 0 and not each.wrong for each in found])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("collect")
    one.add_argument("name")
    one.add_argument("data", type=Path)
    one.add_argument("out", type=Path)
    two = commands.add_parser("table")
    two.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    calm_threads()  # as the commands do, before PyTorch
    if options.command == "collect":
        collect(options.name, options.data, options.out)
    else:
        table(options.files)


if __name__ == "__main__":
    main()
