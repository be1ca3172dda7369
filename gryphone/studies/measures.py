"""Stored predictions against the data's truths: rates of independent runs, with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gryphone.data.datasets import read_dataset
from gryphone.data.samples import Sample
from gryphone.errors import DataError, LatexError
from gryphone.latex.normalize import normalize
from gryphone.latex.validity import is_balanced
from gryphone.scoring.metrics import edit_distance
from gryphone.studies.predictions import Row, Store, read_store

RATES = ("em", "le1", "cer", "ser")
TITLES = {"em": "EM", "le1": "≤1", "cer": "CER", "ser": "SER"}
DRAWS = 1000
ENDINGS = (".parquet", ".tar.xz", ".tar", "")  # of a data set, in this order


@dataclass(frozen=True)
class Figure:
    """A rate in percent: its mean over runs, their deviation, and where 95 % of samples drawn
    anew put the mean."""

    mean: float
    sd: float
    low: float
    high: float
    runs: int
    count: int

    def __str__(self) -> str:
        spread = f" ± {self.sd:.2f}" if self.runs > 1 else ""
        return f"{self.mean:.2f}{spread} [{self.low:.1f}, {self.high:.1f}]"


Figures = dict[str, Figure]


class Truths:
    """The truths of the sets in a folder, by id, as tokens of one convention."""

    def __init__(self, folder: Path, convention: str = "crohme") -> None:
        self.folder, self.convention = folder, convention
        self._known: dict[str, dict[str, list[str]]] = {}

    def path(self, name: str) -> Path:
        """Where a set lies."""
        for ending in ENDINGS:
            if (self.folder / f"{name}{ending}").exists():
                return self.folder / f"{name}{ending}"
        raise DataError(f"{self.folder}: has no set {name}; give its folder with --data")

    def of(self, name: str) -> dict[str, list[str]]:
        """Id to tokens; a truth that cannot be read is an empty one, and nothing is right there."""
        if name not in self._known:
            samples = (s for s in read_dataset(self.path(name)) if isinstance(s, Sample))
            self._known[name] = {s.id: self._tokens(s.label or "") for s in samples}
        return self._known[name]

    def _tokens(self, label: str) -> list[str]:
        try:
            return normalize(label, self.convention)
        except LatexError:
            return []


class Measured:
    """A store with its truths: what each answer of each sample is worth."""

    def __init__(self, store: Store, truths: dict[str, list[str]]) -> None:
        self.store = store
        self.arm, self.set = store.arm.replace("+", "-"), store.set
        lost = [row.id for row in store.rows if row.id not in truths]
        if lost:
            raise DataError(f"{store.set}: has no sample {lost[0]!r}, whose prediction is stored")
        self.truths = [truths[row.id] for row in store.rows]
        self.lengths = np.array([max(1, len(truth)) for truth in self.truths], dtype=np.float64)

    @cached_property
    def worth(self) -> list[np.ndarray]:
        """(answers, 4) of each sample: exact, at most one edit, edits, unmatched braces."""
        return [self._worth(row, t) for row, t in zip(self.store.rows, self.truths, strict=True)]

    def _worth(self, row: Row, truth: list[str]) -> np.ndarray:
        rows = []
        for answer in row.pool:
            edits = edit_distance(truth, answer) if truth else max(1, len(answer))
            rows.append([edits == 0, edits <= 1 and truth != [], edits, not is_balanced(answer)])
        return np.array(rows, dtype=np.float64)

    def column(self, k: int) -> np.ndarray:
        """(n, 4) of one column."""
        pairs = zip(self.worth, self.store.rows, strict=True)
        return np.stack([worth[row.answers[k]] for worth, row in pairs])

    def step(self, k: int) -> np.ndarray:
        """(n, 4) of the answers after step k of the recorded run."""
        pairs = zip(self.worth, self.store.rows, strict=True)
        return np.stack([worth[row.trajectory[k]] for worth, row in pairs])


@dataclass(frozen=True)
class Results:
    """All stores of a folder, measured."""

    measured: tuple[Measured, ...]

    @classmethod
    def of(cls, folder: Path, truths: Truths) -> Results:
        """Read the stores of a folder and of those in it."""
        paths = sorted(folder.rglob("predictions-*.jsonl.xz"))
        stores = [read_store(path) for path in paths]
        return cls(tuple(Measured(store, truths.of(store.set)) for store in stores))

    @property
    def arms(self) -> list[str]:
        """The networks: the paper's four in its order, then others."""
        order = ["raw", "raw-rmml", "sat", "sat-rmml"]
        found = dict.fromkeys(m.arm for m in self.measured)
        return [*(a for a in order if a in found), *(a for a in found if a not in order)]

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Sets that count together: those to validate with, and each other one."""
        sets = sorted({m.set for m in self.measured})
        valid = tuple(name for name in sets if name.startswith("valid"))
        together = {" + ".join(valid): valid} if valid else {}
        return together | {name: (name,) for name in sets if name not in valid}

    def find(
        self, arm: str, name: str, method: str, steps: int
    ) -> tuple[Measured, list[int]] | None:
        """The store that has a column, and its columns of independent runs."""
        for m in self.measured:
            if (m.arm, m.set) == (arm, name) and (found := m.store.runs(method, steps)):
                return m, found
        return None

    def table(
        self, arm: str, sets: Iterable[str], method: str, steps: int
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """What every run's answers are worth (runs, n, 4), and the truths' lengths (n,)."""
        parts = [self.find(arm, name, method, steps) for name in sets]
        if not parts or any(part is None for part in parts):
            return None
        known = [part for part in parts if part is not None]
        runs = min(len(columns) for _, columns in known)
        worth = [np.stack([m.column(k) for k in columns[:runs]]) for m, columns in known]
        return np.concatenate(worth, 1), np.concatenate([m.lengths for m, _ in known])

    def figures(self, arm: str, sets: Iterable[str], method: str, steps: int) -> Figures | None:
        """The rates of a column."""
        found = self.table(arm, sets, method, steps)
        return None if found is None else figures(*found)


def rates(worth: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """(..., n, 4) -> (..., 4) rates in percent, in the order of RATES."""
    sums = worth.sum(-2)
    over = np.array([worth.shape[-2]] * 2 + [lengths.sum(), worth.shape[-2]])
    found: np.ndarray = 100 * sums / over
    return found


def figures(worth: np.ndarray, lengths: np.ndarray, seed: int = 0) -> Figures:
    """Figures of runs (runs, n, 4): bootstrap over samples, of the mean over runs."""
    runs, n = worth.shape[:2]
    each, mean = rates(worth, lengths), worth.mean(0)
    spread = each.std(0, ddof=1) if runs > 1 else np.zeros(4)
    low, high = np.percentile(resampled(mean, lengths, seed), [2.5, 97.5], axis=0)
    return {
        name: Figure(
            float(each[:, k].mean()), float(spread[k]), float(low[k]), float(high[k]), runs, n
        )
        for k, name in enumerate(RATES)
    }


def resampled(mean: np.ndarray, lengths: np.ndarray, seed: int = 0) -> np.ndarray:
    """(DRAWS, 4): the rates of as many samples drawn with replacement."""
    generator, n = np.random.default_rng(seed), len(mean)
    draws = []
    for _ in range(DRAWS):
        times = np.bincount(generator.integers(n, size=n), minlength=n)
        sums, total = times @ mean, times @ lengths
        draws.append(100 * sums / np.array([n, n, total, n]))
    return np.array(draws)


def difference(
    a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray], rate: str = "em"
) -> tuple[float, float, float]:
    """B minus A in one rate, of the runs' means on the same samples, and its 95 % interval."""
    k, change = RATES.index(rate), b[0].mean(0) - a[0].mean(0)
    low, high = np.percentile(resampled(change, a[1])[:, k], [2.5, 97.5])
    return float(rates(change, a[1])[k]), float(low), float(high)


def plain(value: Any) -> Any:
    """Figures as JSON has them."""
    if isinstance(value, Figure):
        return {name: round(x, 3) for name, x in asdict(value).items()}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return round(value, 3) if isinstance(value, float) else value


def missing(truths: Truths, measured: Sequence[Measured]) -> list[str]:
    """What the stores leave out of the sets they are of, in words."""
    lines = []
    for name in sorted({m.set for m in measured}):
        most = max(len(m.store.rows) for m in measured if m.set == name)
        every = len(truths.of(name))
        if most < every:
            lines.append(f"{every - most} of {every} samples of {name} have no prediction")
    return lines
