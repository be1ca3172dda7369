"""The paper's tables and figures, each from stored predictions: `gryphone study NAME`.

The paper's own figures stand beside ours; they are MathWriting's, where nothing else is said.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gryphone.errors import DataError, LatexError, TokenError
from gryphone.release.card import LENGTHS
from gryphone.scoring.evaluate import Item, label_graphs, true_graph
from gryphone.scoring.graph import Graph, graph_errors, graph_of_latex
from gryphone.studies.measures import (
    RATES,
    TITLES,
    Measured,
    Results,
    Truths,
    difference,
    figures,
    missing,
    rates,
)
from gryphone.studies.predictions import (
    BEGINS,
    NOISES,
    OPERATORS,
    RECORDED,
    RECOVERIES,
    STEPS,
)
from gryphone.studies.report import Cells, Panel, Report, write
from gryphone.studies.rivals import rivals
from gryphone.tokens import EMPTY, sat_split

TABLE_1 = {  # CER, EM and ≤1 of the validation and of the test split, frames a second
    "BTTR": (6.45, 60.4, 72.0, 6.85, 53.4, 65.5, 8.56),
    "CoMER": (5.96, 61.2, 72.4, 6.50, 54.5, 65.6, 8.55),
    "ICAL": (5.43, 63.4, 74.5, 6.03, 57.7, 68.2, 7.95),
    "TAMER": (5.79, 61.9, 73.0, 6.35, 55.6, 66.7, 6.70),
    "PosFormer": (5.69, 62.5, 73.6, 6.30, 56.2, 67.1, 5.04),
    "GryphOne mask-predict": (5.34, 68.2, 83.0, 6.29, 55.8, 75.9, 73.5),
    "GryphOne T=10": (4.70, 70.6, 84.8, 5.55, 59.3, 78.0, 73.7),
    "GryphOne T=50": (4.63, 71.0, 85.0, 5.51, 59.9, 78.1, 21.2),
}
TABLE_2 = {"2014": (65.2, 75.9), "2016": (61.4, 74.3), "2019": (61.8, 75.7), "2023": (61.2, 74.8)}
TABLE_3 = {  # CER and SER at T = 2, 5, 10, 50
    "raw": ((5.42, 4.97, 4.84, 4.75), (3.71, 1.84, 1.24, 0.81)),
    "raw-rmml": ((5.20, 4.86, 4.75, 4.67), (2.88, 1.42, 0.96, 0.59)),
    "sat": ((5.10, 4.84, 4.76, 4.68), (2.21, 1.53, 1.31, 0.98)),
    "sat-rmml": ((5.01, 4.78, 4.70, 4.63), (1.89, 1.33, 1.08, 0.84)),
}
TABLE_4 = {  # frames a second, CER, EM and SER of the validation split
    1: (164, 5.23, 68.7, 2.42),
    2: (146, 5.01, 69.5, 1.89),
    5: (106, 4.78, 70.2, 1.33),
    10: (73.7, 4.70, 70.6, 1.08),
    20: (45.2, 4.66, 70.7, 0.94),
    50: (21.2, 4.63, 71.0, 0.84),
}
MATHWRITING = (
    "The paper's figures are for MathWriting, with DINO; ours are for what is named below."
)
ABLATED = (2, 5, 10, 50)
PAIRS = (("raw", "sat"), ("raw-rmml", "sat-rmml"), ("raw", "raw-rmml"), ("sat", "sat-rmml"))


@dataclass(frozen=True)
class Material:
    """What studies are made of."""

    results: Results
    truths: Truths
    folder: Path  # of the stores, and of measured speeds

    def speeds(self) -> list[dict[str, Any]]:
        """What `gryphone.studies.speed` has measured."""
        return [
            {"device": path.stem.removeprefix("speed-"), **row}
            for path in sorted(self.folder.rglob("speed-*.json"))
            for row in json.loads(path.read_text())
        ]


def main(m: Material) -> Report:
    """Table 1: mask-predict, T=10 and T=50."""
    groups = m.results.groups
    header = ["method", *(f"{n} {TITLES[r]}" for n in groups for r in ("cer", "em", "le1"))]
    rows: list[Cells] = []
    data: dict[str, Any] = {}
    for arm in m.results.arms:
        for method, steps in (("mask-predict", 10), ("diffusion", 10), ("diffusion", 50)):
            name = f"{arm}, {'mask-predict ' * (method != 'diffusion')}T={steps}"
            found = {n: m.results.figures(arm, sets, method, steps) for n, sets in groups.items()}
            if any(found.values()):
                cells = [f[r] if f else "–" for f in found.values() for r in ("cer", "em", "le1")]
                rows.append([name, *cells])
                data[name] = found
    theirs = ["paper", "valid CER", "EM", "≤1", "test CER", "EM", "≤1", "FPS (V100)"]
    return Report(
        "Table 1: recognition",
        [MATHWRITING],
        [("Ours", header, rows), ("The paper's", theirs, [[n, *x] for n, x in TABLE_1.items()])],
        {"ours": data, "paper": TABLE_1},
    )


def crohme(m: Material) -> Report:
    """Table 2: by graph at T=50, against label graph files and against the truths' LaTeX."""
    rows: list[Cells] = []
    data: dict[str, Any] = {}
    for measured in sorted(m.results.measured, key=lambda x: m.results.arms.index(x.arm)):
        columns = measured.store.runs("diffusion", 50)
        if not columns:
            continue
        lg = m.truths.folder / f"{measured.set}-symlg.tar.xz"
        for source, archive in ((".lg files", lg), ("LaTeX truths", None)):
            if archive is not None and not archive.exists():
                continue
            errors = graph_distances(measured, archive, m.truths.path(measured.set))
            picked = [
                np.array(
                    [e[row.answers[k]] for e, row in zip(errors, measured.store.rows, strict=True)]
                )
                for k in columns
            ]
            worth = np.stack([np.stack([p == 0, p <= 1, p, p > 99], 1) for p in picked]).astype(
                float
            )
            found = figures(worth, measured.lengths)
            year = measured.set[-4:]
            theirs = (
                TABLE_2.get(year, ("–", "–")) if measured.set.startswith("test") else ("–", "–")
            )
            rows.append(
                [
                    measured.arm,
                    measured.set,
                    source,
                    theirs[0],
                    found["em"],
                    theirs[1],
                    found["le1"],
                ]
            )
            data[f"{measured.arm} {measured.set} {source}"] = {k: found[k] for k in ("em", "le1")}
    header = ["arm", "set", "truths", "paper exact", "ours exact", "paper ≤1", "ours ≤1"]
    notes = [
        "By graph, T=50. The paper's network was trained on MathWriting and never saw CROHME; ours "
        "was trained on CROHME's training ink.",
    ]
    return Report("Table 2: CROHME", notes, [("", header, rows)], data)


def graph_distances(measured: Measured, lg: Path | None, data: Path) -> list[list[int]]:
    """Errors of every distinct answer of every sample; 100 where one side has no graph."""
    files = {} if lg is None else label_graphs(lg, data)
    out = []
    for row, tokens in zip(measured.store.rows, measured.truths, strict=True):
        _, truth = true_graph(Item(row.id, " ".join(tokens), None), files)
        out.append([_distance(truth, answer) for answer in row.pool])
    return out


def _distance(truth: Graph | None, answer: Sequence[str]) -> int:
    try:
        found = graph_of_latex(" ".join(answer))
    except LatexError:
        return 100
    if truth is None or not found.places:
        return 100
    return graph_errors(truth.folded(), found.folded())


def ablation(m: Material) -> Report:
    """Table 3: SAT × RMML."""
    sections: list[tuple[str, Cells, list[Cells]]] = []
    data: dict[str, Any] = {}
    panels = []
    for name, sets in m.results.groups.items():
        rows: list[Cells] = []
        for arm in m.results.arms:
            found = {t: m.results.figures(arm, sets, "diffusion", t) for t in STEPS}
            known = {t: f for t, f in found.items() if f is not None}
            data[f"{arm} {name}"] = known
            for k, rate in enumerate(("cer", "ser", "em")):
                paper = TABLE_3[arm][k] if arm in TABLE_3 and k < 2 else ("–",) * 4
                ours = [known[t][rate] if t in known else "–" for t in ABLATED]
                rows.append([arm, TITLES[rate], *paper, *ours])
        header = ["arm", "rate", *(f"paper T={t}" for t in ABLATED), *(f"T={t}" for t in ABLATED)]
        sections.append((name, header, rows))
        panels += [_by_steps(f"{TITLES[r]}, {name}", m, sets, r) for r in ("em", "cer", "ser")]
        pairs: list[Cells] = []
        for one, other in PAIRS:
            for t in (1, *ABLATED):
                a, b = (m.results.table(arm, sets, "diffusion", t) for arm in (one, other))
                if a is not None and b is not None:
                    changes = [difference(a, b, r) for r in ("em", "cer", "ser")]
                    cells = [f"{d:+.2f} [{lo:+.2f}, {hi:+.2f}]" for d, lo, hi in changes]
                    pairs.append([f"{one} → {other}", t, *cells])
        sections.append((f"Differences on {name}", ["arms", "T", "EM", "CER", "SER"], pairs))
    return Report("Table 3: SAT and RMML", [MATHWRITING], sections, data, panels[:3])


def _by_steps(title: str, m: Material, sets: Sequence[str], rate: str) -> Panel:
    lines = {}
    for arm in m.results.arms:
        found = {t: m.results.figures(arm, sets, "diffusion", t) for t in STEPS}
        known = {t: f[rate].mean for t, f in found.items() if f is not None}
        lines[arm] = ([*known], [*known.values()])
    return Panel(title, "T", lines)


def tradeoff(m: Material) -> Report:
    """Table 4: accuracy and speed by T."""
    name, sets = next(iter(m.results.groups.items()))
    rows: list[Cells] = []
    data: dict[str, Any] = {}
    for arm in m.results.arms:
        for t in STEPS:
            found = m.results.figures(arm, sets, "diffusion", t)
            if found is not None:
                fps, cer, em, ser = TABLE_4[t]
                rows.append([arm, t, cer, found["cer"], em, found["em"], ser, found["ser"], fps])
                data[f"{arm} T={t}"] = found
    header = ["arm", "T", "paper CER", "CER", "paper EM", "EM", "paper SER", "SER", "paper FPS"]
    speeds = m.speeds()
    columns = list(speeds[0]) if speeds else []
    tables = [(name, header, rows)]
    if speeds:
        tables.append(
            ("Inks a second", columns, [[r.get(c, "–") for c in columns] for r in speeds])
        )
    notes = [MATHWRITING]
    if not speeds:
        notes.append("Speed: not yet measured (python -m gryphone.studies.speed).")
    panels = [_by_steps(f"{TITLES[r]}, {name}", m, sets, r) for r in ("em", "cer", "ser")]
    return Report(
        "Table 4: steps against speed", notes, tables, {"rates": data, "speed": speeds}, panels
    )


def steps(m: Material) -> Report:
    """Figure 3: after every reverse step at T=50."""
    name, sets = next(iter(m.results.groups.items()))
    curves: dict[str, list[list[float]]] = {}
    for arm in m.results.arms:
        parts = [
            x for x in m.results.measured
            if x.arm == arm and x.set in sets and all(r.trajectory for r in x.store.rows)
        ]  # fmt: skip
        if {x.set for x in parts} == set(sets):
            lengths = np.concatenate([x.lengths for x in parts])
            curves[arm] = [
                rates(np.concatenate([x.step(k) for x in parts]), lengths).tolist()
                for k in range(RECORDED)
            ]
    shown = (1, 2, 3, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50)
    every = [(arm, rate) for arm in curves for rate in ("em", "cer", "ser")]
    rows = [
        [k, *(f"{curves[arm][k - 1][RATES.index(rate)]:.2f}" for arm, rate in every)] for k in shown
    ]
    header = ["step", *(f"{arm} {TITLES[rate]}" for arm, rate in every)]
    panels = [
        Panel(
            f"{TITLES[rate]} after each step, T=50",
            "step",
            {
                arm: (range(1, RECORDED + 1), [row[RATES.index(rate)] for row in curve])
                for arm, curve in curves.items()
            },
        )
        for rate in ("em", "cer", "ser")
    ]
    notes = ["One run of each network."]
    return Report("Figure 3: step by step", notes, [(name, header, rows)], curves, panels)


def visible(tokens: Sequence[str]) -> tuple[str, ...]:
    """The symbols that leave ink."""
    try:
        return tuple(symbol for symbol, _ in sat_split(tokens) if symbol != EMPTY)
    except TokenError:
        return tuple(token for token in tokens if token not in ("{", "}", "^", "_"))


def diversity(m: Material) -> Report:
    """Figure 5: distinct sequences of visible symbols over the runs."""
    rows: list[Cells] = []
    data: dict[str, Any] = {}
    panels = []
    name, sets = next(iter(m.results.groups.items()))
    for t in (2, 10, 50):
        lines = {}
        for arm in m.results.arms:
            parts = [m.results.find(arm, s, "diffusion", t) for s in sets]
            known = [part for part in parts if part is not None]
            if len(known) < len(sets):
                continue
            counts = np.array([n for x, columns in known for n in _distinct(x, columns)])
            runs = min(len(columns) for _, columns in known)
            draws = np.random.default_rng(0).integers(len(counts), size=(1000, len(counts)))
            low, high = np.percentile(counts[draws].mean(1), [2.5, 97.5])
            one = 100 * float((counts == 1).mean())
            mean = f"{counts.mean():.3f} [{low:.2f}, {high:.2f}]"
            rows.append([arm, t, runs, mean, f"{one:.1f}"])
            histogram = np.bincount(counts, minlength=runs + 1)[1:].tolist()
            data[f"{arm} T={t}"] = {"mean": float(counts.mean()), "histogram": histogram}
            lines[arm] = (range(1, len(histogram) + 1), histogram)
        panels.append(Panel(f"Distinct answers of an ink, T={t}", "answers", lines))
    header = ["arm", "T", "runs", "distinct answers, mean", "one answer only, %"]
    return Report("Figure 5: diversity", [], [(name, header, rows)], data, panels)


def _distinct(measured: Measured, columns: Sequence[int]) -> list[int]:
    return [
        len({visible(row.pool[row.answers[k]]) for k in columns}) for row in measured.store.rows
    ]


def recovery(m: Material) -> Report:
    """Figure 4: begun at t with a truth that has lost its operators."""
    rows: list[Cells] = []
    data: dict[str, Any] = {}
    lines: dict[str, dict[str, Any]] = {rate: {} for rate in ("cer", "em", "ser")}
    name, sets = next(iter(m.results.groups.items()))
    for arm in m.results.arms:
        for method in RECOVERIES:
            found = {}
            for t in BEGINS:
                parts = m.results.table(arm, sets, method, t)
                if parts is None:
                    continue
                known = [m.results.find(arm, s, method, t) for s in sets]
                truths = [truth for x in known if x is not None for truth in x[0].truths]
                has = np.array([not set(OPERATORS).isdisjoint(truth) for truth in truths])
                found[t] = figures(parts[0][:, has], parts[1][has])
            for t, f in found.items():
                removed = method.removeprefix("recover-")
                rows.append([arm, removed, t, f["em"].count, f["cer"], f["em"], f["ser"]])
            data[f"{arm} {method}"] = found
            for rate, own in lines.items():
                if found:
                    own[f"{arm}, {method.removeprefix('recover-')}"] = (
                        [*found], [f[rate].mean for f in found.values()],
                    )  # fmt: skip
    notes = [
        "Fractions, roots, integrals and sums lose their sign, arguments and braces stay. masked: "
        "the place is masked, symbol and modifier; deleted: it is gone.",
    ]
    header = ["arm", "removed place", "begun at t", "formulas", "CER", "EM", "SER"]
    panels = [Panel(f"{TITLES[rate]} of recovered formulas", "t", x) for rate, x in lines.items()]
    return Report("Figure 4: recovery", notes, [(name, header, rows)], data, panels)


def cases(m: Material) -> Report:
    """Figure 6: the inputs with the most readings, and how many runs have each."""
    rows: list[Cells] = []
    data: dict[str, Any] = {}
    for arm in m.results.arms[-1:]:
        found = []
        for measured in m.results.measured:
            columns = measured.store.runs("diffusion", 50)
            if measured.arm != arm or len(columns) < 2:
                continue
            for row in measured.store.rows:
                votes: dict[tuple[str, ...], int] = {}
                for k in columns:
                    votes[row.pool[row.answers[k]]] = votes.get(row.pool[row.answers[k]], 0) + 1
                found.append((-len(votes), len(row.pool[0]), row.id, measured.set, votes))
        found.sort(key=lambda case: case[:3])
        for _, _, name, where, votes in found[:10]:
            total = sum(votes.values())
            best = sorted(votes.items(), key=lambda item: -item[1])
            readings = "; ".join(f"`{' '.join(x)}` {n}/{total}" for x, n in best[:4])
            rows.append([name, where, len(votes), readings])
            data[name] = {" ".join(tokens): count / total for tokens, count in best}
    header = ["id", "set", "readings", "the most frequent, and their runs"]
    return Report("Figure 6: ambiguous inputs", [], [("", header, rows)], data)


def remasking(m: Material) -> Report:
    """Beyond the paper: other ways to mask again, on the same networks."""
    words = {
        "diffusion": "as trained",
        "mask-predict": "mask-predict",
        **{name: f"mask-predict with noise {noise}" for name, noise in NOISES.items()},
        "replace": "all replaced, t/T",
        "keep": "visible kept",
        "schedule": "visible kept, linspace(1, 0, T)",
        "authors": "the same, streams masked apart",
        "from-left": "a growing beginning visible",
    }
    rows: list[Cells] = []
    data: dict[str, Any] = {}
    name, sets = next(iter(m.results.groups.items()))
    for arm in m.results.arms:
        for t in STEPS:
            base = m.results.table(arm, sets, "diffusion", t)
            for method, title in words.items():
                found = m.results.table(arm, sets, method, t)
                if found is None or base is None or t == 1:
                    continue
                f = figures(*found)
                change = "–"
                if method != "diffusion":
                    d, low, high = difference(base, found)
                    change = f"{d:+.2f} [{low:+.2f}, {high:+.2f}]"
                rows.append([arm, t, title, f["em"], f["cer"], f["ser"], change])
                data[f"{arm} T={t} {method}"] = f
    header = ["arm", "T", "remasking", "EM", "CER", "SER", "EM difference"]
    return Report("Other ways to remask", [], [(name, header, rows)], data)


def breakdown(m: Material) -> Report:
    """Beyond the paper: error by length, depth and the rarest symbol."""
    name, sets = next(iter(m.results.groups.items()))
    rows: list[Cells] = []
    data: dict[str, Any] = {}
    for arm in m.results.arms:
        found = m.results.table(arm, sets, "diffusion", 10)
        parts = [m.results.find(arm, s, "diffusion", 10) for s in sets]
        if found is None:
            continue
        truths = [truth for part in parts if part is not None for truth in part[0].truths]
        for what, bins in binned(truths).items():
            for title, chosen in bins.items():
                if chosen.any():
                    f = figures(found[0][:, chosen], found[1][chosen])
                    rows.append([arm, what, title, int(chosen.sum()), f["em"], f["cer"]])
                    data[f"{arm} {what} {title}"] = f
    header = ["arm", "by", "", "samples", "EM", "CER"]
    return Report("Errors by length, depth and symbol, T=10", [], [(name, header, rows)], data)


def binned(truths: Sequence[Sequence[str]]) -> dict[str, dict[str, np.ndarray]]:
    """Which truths have which length, depth of braces and rarest symbol (by its samples here)."""
    lengths = np.array([len(truth) for truth in truths])
    depths = np.array([_depth(truth) for truth in truths])
    counts: dict[str, int] = {}
    for truth in truths:
        for token in set(truth):
            counts[token] = counts.get(token, 0) + 1
    rarest = np.array([min((counts[t] for t in truth), default=0) for truth in truths])
    return {
        "length": {
            f"{low} to {high}": (lengths >= low) & (lengths <= high) for low, high in LENGTHS
        },
        "depth": {str(d): depths == d for d in range(4)} | {"4 and more": depths >= 4},
        "rarest symbol": {
            f"in {low} to {high}": (rarest >= low) & (rarest <= high)
            for low, high in ((1, 2), (3, 9), (10, 29), (30, 99), (100, 10**6))
        },
    }  # fmt: skip


def _depth(tokens: Sequence[str]) -> int:
    depth = deepest = 0
    for token in tokens:
        depth += (token == "{") - (token == "}")
        deepest = max(deepest, depth)
    return deepest


STUDIES: dict[str, Callable[[Material], Report]] = {
    "main": main,
    "crohme": crohme,
    "ablation": ablation,
    "tradeoff": tradeoff,
    "steps": steps,
    "recovery": recovery,
    "diversity": diversity,
    "cases": cases,
    "remasking": remasking,
    "breakdown": breakdown,
    "rivals": lambda m: rivals(m.results, m.folder),
}


def make(name: str, material: Material, out: Path) -> Path | None:
    """Write one study's JSON, Markdown and plot; None where the stores have nothing for it."""
    report = STUDIES[name](material)
    if not any(rows for _, _, rows in report.tables):
        return None
    left_out = missing(material.truths, material.results.measured)
    return write(replace(report, notes=[*report.notes, *left_out]), name, out)


def study_names(name: str) -> list[str]:
    """One study, or all of them."""
    if name != "all" and name not in STUDIES:
        raise DataError(f"study {name!r} is unknown; use one of {', '.join(STUDIES)}, or all")
    return [*STUDIES] if name == "all" else [name]
