"""Ours and its rivals, from stored predictions and measured speeds: `gryphone study rivals`.

Rows are the arms that `configs/baselines/all.yaml` trains, in each way that they were asked. An arm
is compared with `OURS` ink by ink (exact McNemar test of EM, of the first run where there are
several). The paper's figures beside them are of its own retraining, on MathWriting and CROHME 2014.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gryphone.scoring.metrics import mcnemar
from gryphone.studies.measures import RATES, TITLES, Results
from gryphone.studies.predictions import WRITINGS
from gryphone.studies.report import Cells, Panel, Report

OURS = ("ours", "diffusion", 10)
DIFFUSION = (("diffusion", 1), ("diffusion", 10), ("diffusion", 50), ("mask-predict", 10))
WAYS = (*DIFFUSION, *WRITINGS.items())
# The paper's Table 1 (MathWriting, validation: EM, ≤1, CER) and Table 2 (CROHME 2014: EM, ≤1).
PUBLISHED: dict[str, tuple[float | str, ...]] = {
    "bttr": (60.4, 72.0, 6.45, 57.7, 67.7),
    "comer": (61.2, 72.4, 5.96, 60.2, 69.1),
    "ical": (63.4, 74.5, 5.43, 62.4, 71.2),
    "tamer": (61.9, 73.0, 5.79, 59.6, 69.6),
    "posformer": (62.5, 73.6, 5.69, 59.6, 69.6),
    "namer": ("–", "–", "–", 60.5, 75.0),  # quoted there, not retrained
    "ours": (71.0, 85.0, 4.63, 65.2, 75.9),  # RMML, T = 50
}
LENGTHS = (10, 30, 60)  # symbols that latencies are measured at
SPEEDS = "rivals-speed-*.json"


def way_of(method: str, number: int) -> str:
    """A way of asking, in words."""
    names = {"diffusion": f"T = {number}", "greedy": "greedy"}
    return names.get(method, f"{method} {number}")


def rivals(results: Results, folder: Path) -> Report:
    """The table; speeds and sizes are in the folder of the stores, where they were measured."""
    speeds = [row for path in sorted(folder.rglob(SPEEDS)) for row in json.loads(path.read_text())]
    sizes = {row["arm"]: row["parameters"] for row in speeds}
    tables: list[tuple[str, Cells, Sequence[Cells]]] = []
    data: dict[str, Any] = {}
    for name, sets in results.groups.items():
        rows, found = rated(results, sets, sizes)
        header = ["arm", "way", "parameters, M", *(TITLES[r] for r in RATES), "only ours right"]
        tables.append((name, [*header, "only it", "p"], rows))
        data[name] = found
    known = [arm for arm in arms_of(results) if arm.partition("-")[0] in PUBLISHED]
    published = [[arm, *PUBLISHED[arm.partition("-")[0]]] for arm in known]
    theirs = ["arm", "MathWriting EM", "≤1", "CER", "CROHME 2014 EM", "≤1"]
    tables.append(("The paper's, retrained under its pipeline", theirs, published))
    columns = [
        key for key in dict.fromkeys(key for row in speeds for key in row) if key != "parameters"
    ]
    cells = [[row.get(key, "–") for key in columns] for row in speeds]
    tables.append(("Speed", columns, cells))
    notes = [] if speeds else ["Speed: not yet measured (python -m gryphone.studies.speed)."]
    return Report(
        "Rivals under one pipeline",
        notes,
        [table for table in tables if table[2]],
        {"rates": data, "speed": speeds, "paper": PUBLISHED},
        latencies(speeds),
    )


def arms_of(results: Results) -> list[str]:
    """Ours, then the others."""
    return sorted(results.arms, key=lambda arm: arm != OURS[0])


def rated(
    results: Results, sets: Sequence[str], sizes: Mapping[str, int]
) -> tuple[list[Cells], dict[str, Any]]:
    """The rows of some sets, and their figures."""
    rows: list[Cells] = []
    data: dict[str, Any] = {}
    ours = results.table(OURS[0], sets, *OURS[1:])
    for arm in arms_of(results):
        for method, number in WAYS:
            found = results.table(arm, sets, method, number)
            figures = results.figures(arm, sets, method, number)
            if found is None or figures is None:
                continue
            same = arm.removesuffix("-rmml")  # which is a way of training alone
            size = f"{sizes[same] / 1e6:.1f}" if same in sizes else "–"
            pair: list[Any] = ["–"] * 3
            if ours is not None and (arm, method, number) != OURS:
                pair = list(paired(ours[0][0, :, 0], found[0][0, :, 0]))
            rows.append([arm, way_of(method, number), size, *(figures[r] for r in RATES), *pair])
            data[f"{arm}, {way_of(method, number)}"] = {**figures, "against ours": pair}
    return rows, data


def paired(ours: np.ndarray, other: np.ndarray) -> tuple[int, int, str]:
    """Inks (n,) that ours alone got right, those that the other alone did, and McNemar's p."""
    first, second = int((ours > other).sum()), int((other > ours).sum())
    return first, second, f"{mcnemar(first, second):.2g}"


def latencies(speeds: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """Milliseconds of one ink by its number of symbols, on each device."""
    panels = []
    for device in dict.fromkeys(row["device"] for row in speeds):
        lines = {
            f"{row['arm']}, {row['way']}": (
                [row[f"symbols at {n}"] for n in LENGTHS],
                [row[f"ms at {n}"] for n in LENGTHS],
            )
            for row in speeds
            if row["device"] == device
        }
        panels.append(Panel(f"ms an ink, one at a time, {device}", "symbols", lines, steep=True))
    return panels
