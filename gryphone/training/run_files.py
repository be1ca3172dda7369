"""The files of a training run: state to resume from, the checkpoint to use, logs to read."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gryphone.checkpoint import write_directory
from gryphone.errors import DataError, writing
from gryphone.training.settings import TrainConfig


class Run:
    """The files of one run: state to resume from, the checkpoint to use, logs to read."""

    def __init__(self, config: TrainConfig) -> None:
        self.folder = Path(config.out) / config.name
        self.checkpoint = self.folder / "checkpoint"

    def make_folder(self) -> None:
        """Find out before the work, not after it, whether there is a place for its results."""
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)

    def another(self, made_with: str, further: str = "") -> DataError:
        """The error of a run that was changed in what it cannot go on with."""
        return DataError(
            f"the run in {self.folder} was made with {made_with}; "
            f"give this one another name or --out{further}"
        )

    def newest_state(self) -> Path | None:
        """The last whole state; a killed run leaves none half-written under this name."""
        states = sorted(self.folder.glob("state-*"))
        return states[-1] if states else None

    def read_facts(self) -> dict[str, Any]:
        """What was saved beside the last state's tensors; empty for a new run."""
        state = self.newest_state()
        if state is None:
            return {}
        try:
            facts = json.loads((state / "state.json").read_text())
            return {name: facts[name] for name in ("step", "elapsed", "tokenizer")}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{state / 'state.json'} is damaged ({error}); remove {state} and start again, "
                f"from the weights that were saved last with --init {self.checkpoint}"
            ) from error

    def save_state(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Write the state of a step (`facts` names it), then drop the older ones."""
        texts = {"state.json": json.dumps(facts)}
        older = list(self.folder.glob("state-*"))
        path = self.folder / f"state-{facts['step']:09d}"
        write_directory(path, texts, {k: v.detach().cpu().contiguous() for k, v in tensors.items()})
        for other in older:
            if other != path:
                shutil.rmtree(other, ignore_errors=True)

    def log(self, file: str, row: Mapping[str, Any]) -> None:
        """Append a row to a CSV file, which gets the columns that it does not have yet."""
        path = self.folder / file
        with writing(path):
            header = next(read_rows(path), [])
            columns = list(dict.fromkeys([*header, *row]))
            if header and columns != header:
                _, *rows = read_rows(path)
                missing = [""] * (len(columns) - len(header))
                rewrite(path, [columns, *(old + missing for old in rows)])
            with path.open("a", newline="") as handle:
                writer = csv.DictWriter(handle, columns)
                if not header:
                    writer.writeheader()
                writer.writerow(row)

    def rewind(self, step: int) -> None:
        """Take the rows of later steps out of the logs: they will be taken again."""
        for path in (self.folder / "log.csv", self.folder / "eval.csv"):
            rows = list(read_rows(path))
            kept = [row for row in rows[1:] if row[0].isdigit() and int(row[0]) <= step]
            if len(kept) < len(rows[1:]):
                with writing(path):
                    rewrite(path, [rows[0], *kept])


def read_rows(path: Path) -> Iterator[list[str]]:
    """The rows of a CSV file, its header first; none where there is no file."""
    if path.is_file():
        with path.open(newline="") as handle:
            yield from filter(None, csv.reader(handle))


def rewrite(path: Path, rows: Iterable[list[str]]) -> None:
    """Write a CSV file anew, in one move."""
    fresh = path.with_name(f".{path.name}.tmp")
    with fresh.open("w", newline="") as handle:
        csv.writer(handle).writerows(rows)
    fresh.replace(path)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as named tensors (no pickle)."""
    return {
        f"optimizer.{i}.{name}": value
        for i, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put named tensors back into the optimizer."""
    states: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            _, number, name = key.split(".", 2)
            states.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": states})


def prefixed(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors under a prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
