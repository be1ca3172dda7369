"""Is 80 % sure right 80 % of the time? Fit the confidence map, and show how well it holds.

`python -m gryphone.release.calibration SET... --weights DIR` reads labelled sets, fits the two
logistic maps of recognition/confidence.py, and reports the expected calibration error of
predictions made by maps fitted on other samples (five folds). `--write` stores the maps in the
checkpoint.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gryphone.checkpoint import checkpoint_directory, read_description
from gryphone.errors import ConfigError, DataError, TokenError, need
from gryphone.latex.normalize import normalize
from gryphone.recognition import confidence
from gryphone.recognition.question import AUTO, Ask, steps_of
from gryphone.recognition.recognizer import Recognizer, load
from gryphone.release.common import run
from gryphone.scoring.evaluate import Item, decode_all, items

BINS, FOLDS = 10, 5


@dataclass(frozen=True)
class Outcomes:
    """Features and outcomes: one row per answer, one row per symbol with its answer's number."""

    whole: np.ndarray  # (n, 3)
    right: np.ndarray  # (n,)
    number: np.ndarray  # (n,) of its sample
    symbols: np.ndarray  # (m, 3)
    symbol_right: np.ndarray  # (m,)
    owner: np.ndarray  # (m,)


def gather(
    recognizer: Recognizer, samples: Sequence[Item], steps: int | str, decodes: int, lone: bool
) -> Outcomes:
    """Read every sample with one and with several decodes; both kinds must be calibrated.

    Answers of one symbol are gathered where `lone` ones are wanted, and no others then.
    """
    ask = Ask(steps=steps, samples=decodes)
    whole, right, numbers, symbols, symbol_right, owner = [], [], [], [], [], []
    for number, (place, own) in enumerate(decode_all(recognizer, samples, ask)):
        truth = _truth(recognizer, samples[place].truth)
        for some in {1: own[:1], decodes: own}.values():
            group = [d for d in some if np.array_equal(d.ids, _winner(some))]
            if (len(group[0].ids) == 1) is not lone:
                continue
            seen = confidence.witnesses(group[0].ids, group, some)
            rows = [tuple(row) for row in group[0].ids.tolist()]
            whole.append((seen[:, 0].sum(), len(group) / len(some)))
            right.append(rows == truth)
            numbers.append(number)
            symbols.append(confidence.symbol_features(seen))
            symbol_right.append(confidence.found_in(rows, truth))
            owner.append(np.full(len(rows), number))
    if not whole:
        raise DataError(
            f"no answer has {'one symbol' if lone else 'several symbols'} in these sets"
        )
    return Outcomes(
        confidence.whole_features(*np.array(whole).T),
        np.array(right, dtype=float),
        np.array(numbers),
        np.concatenate(symbols),
        np.concatenate(symbol_right),
        np.concatenate(owner),
    )


def _winner(decodes: Sequence[Any]) -> np.ndarray:
    """The answer most decodes gave; of equals, the first."""
    votes: dict[bytes, int] = {}
    for d in decodes:
        votes[d.ids.tobytes()] = votes.get(d.ids.tobytes(), 0) + 1
    best: np.ndarray = max(decodes, key=lambda d: votes[d.ids.tobytes()]).ids
    return best


def _truth(recognizer: Recognizer, latex: str) -> list[tuple[int, ...]]:
    try:
        tokens = normalize(latex, recognizer.checkpoint.convention)
        return [tuple(r) for r in recognizer.tokenizer.encode(tokens).tolist()]
    except (TokenError, ValueError):
        return [(-1,)]  # a truth that cannot be written is never met


def fit(features: np.ndarray, outcome: np.ndarray, ridge: float = 1e-2) -> np.ndarray:
    """The coefficients (4,) of `confidence.logistic` that make the outcome most likely."""
    from scipy.optimize import minimize

    def loss(x: np.ndarray) -> float:
        coefficients = np.append(x[:3], 1 / (1 + np.exp(-x[3])))
        p = np.clip(confidence.logistic(features, coefficients), 1e-9, 1 - 1e-9)
        likelihood = outcome * np.log(p) + (1 - outcome) * np.log(1 - p)
        return float(ridge * (x[:3] ** 2).sum() - likelihood.sum())

    start = np.append(_without_ceiling(features, outcome, ridge), 4.0)
    found = minimize(loss, start, method="Nelder-Mead", options={"maxiter": 2000}).x
    return np.append(found[:3], 1 / (1 + np.exp(-found[3])))


def _without_ceiling(features: np.ndarray, outcome: np.ndarray, ridge: float) -> np.ndarray:
    """Logistic regression by Newton's method: where to begin."""
    weights = np.zeros(features.shape[1])
    for _ in range(60):
        p = 1 / (1 + np.exp(-(features @ weights)))
        gradient = features.T @ (p - outcome) + ridge * weights
        curvature = (features * (p * (1 - p))[:, None]).T @ features
        weights -= np.linalg.solve(curvature + ridge * np.eye(len(weights)), gradient)
    return weights


def held_out(features: np.ndarray, outcome: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """Probabilities from maps that were fitted without the sample."""
    fold = np.random.default_rng(0).integers(FOLDS, size=int(owner.max()) + 1)[owner]
    out = np.zeros(len(outcome))
    for k in range(FOLDS):
        coefficients = fit(features[fold != k], outcome[fold != k])
        out[fold == k] = confidence.logistic(features[fold == k], coefficients)
    return out


def reliability(p: np.ndarray, outcome: np.ndarray) -> dict[str, Any]:
    """Mean confidence and accuracy per bin of equal width, and their mean distance in points."""
    at = np.minimum((p * BINS).astype(int), BINS - 1)
    rows = [
        {"count": int(k.sum()), "confidence": float(p[k].mean()), "right": float(outcome[k].mean())}
        for b in range(BINS)
        if (k := at == b).any()
    ]
    error = sum(r["count"] * abs(r["confidence"] - r["right"]) for r in rows) / len(p)
    order = np.argsort(np.argsort(p))
    wins = order[outcome == 1].mean() - (outcome.sum() - 1) / 2 if outcome.sum() > 0 else 0.0
    return {
        "count": len(p),
        "right": float(outcome.mean()),
        "ece": 100 * error,
        "auc": float(wins / max((outcome == 0).sum(), 1)),
        "bins": rows,
    }


def plot(reports: dict[str, dict[str, Any]], path: Path) -> None:
    """Reliability of whole answers and of symbols."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(reports), figsize=(5 * len(reports), 4.6), squeeze=False)
    for axis, (kind, report) in zip(axes[0], reports.items(), strict=True):
        x = [b["confidence"] for b in report["bins"]]
        y = [b["right"] for b in report["bins"]]
        size = [20 + 400 * b["count"] / report["count"] for b in report["bins"]]
        axis.plot([0, 1], [0, 1], color="0.7", lw=1)
        axis.plot(x, y, color="C0", lw=1)
        axis.scatter(x, y, s=size, color="C0", alpha=0.7)
        axis.set(xlabel="confidence", ylabel="right", xlim=(0, 1), ylim=(0, 1))
        axis.set_title(f"{kind}: ECE {report['ece']:.1f} points, {report['count']:,} answers")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: Sequence[str] | None = None) -> None:
    """Gather, fit, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--weights", type=Path, default=None)
    parser.add_argument("--steps", type=steps_of, default=AUTO, help="a number, or auto")
    parser.add_argument("--decodes", type=int, default=4)
    parser.add_argument("--limit", type=int, default=None, help="samples of each set")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--plot", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=None, help="the report as JSON")
    parser.add_argument("--lone", action="store_true", help="the map of answers of one symbol")
    parser.add_argument("--write", action="store_true", help="store the maps in the checkpoint")
    options = parser.parse_args(arguments)
    if options.write and options.weights is None:
        raise ConfigError("--write stores the maps in a checkpoint; name it with --weights")
    if options.plot is not None:
        need("matplotlib", "analysis")
    recognizer = load(options.weights, options.device)
    samples = [s for path in options.sets for s in _some(path, options.limit)]
    if all(sample.input is None for sample in samples):
        first = "".join(f"; the first is {s.id}: {s.problem}" for s in samples[:1])
        raise DataError(f"none of {len(samples)} samples can be read{first}")
    began = time.perf_counter()
    seen = gather(recognizer, samples, options.steps, options.decodes, options.lone)
    # Each sample was read twice, with one decode and with several: the same fold for both.
    kinds = {"lone" if options.lone else "whole": (seen.whole, seen.right, seen.number)}
    if not options.lone:
        kinds["symbol"] = (seen.symbols, seen.symbol_right, seen.owner)
    reports = {
        kind: reliability(held_out(features, right, owner), right)
        for kind, (features, right, owner) in kinds.items()
    }
    maps = {kind: fit(*some[:2]).round(4).tolist() for kind, some in kinds.items()}
    report = {"sets": [str(p) for p in options.sets], "samples": len(samples), "maps": maps}
    report |= {"steps": options.steps, "decodes": options.decodes, "reliability": reports}
    report["seconds"] = round(time.perf_counter() - began, 1)
    if options.plot is not None:
        plot(reports, options.plot)
    if options.out is not None:
        options.out.write_text(json.dumps(report, indent=1))
    if options.write:
        _store(options.weights, maps)
    sys.stdout.write(json.dumps(report) + "\n")


def _some(path: Path, limit: int | None) -> list[Item]:
    found = list(items(path))
    if limit is None or limit >= len(found):
        return found
    chosen = np.random.default_rng(1).permutation(len(found))[:limit]
    return [found[i] for i in sorted(chosen)]


def _store(path: Path, maps: dict[str, list[float]]) -> None:
    path = checkpoint_directory(path)
    description = read_description(path)
    description.setdefault("facts", {}).setdefault("calibration", {}).update(maps)
    (path / "config.json").write_text(json.dumps(description, indent=1))


if __name__ == "__main__":
    run(main)
