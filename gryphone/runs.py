"""The files of a training run: state to resume from, the checkpoint to use, logs to read."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gryphone.checkpoint import write_directory
from gryphone.config import TrainConfig
from gryphone.errors import DataError, writing


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
        return {} if state is None else json.loads((state / "state.json").read_text())

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
        """Append a row to a CSV file."""
        path = self.folder / file
        fresh = not path.exists()
        with writing(path), path.open("a", newline="") as handle:
            writer = csv.DictWriter(handle, list(row))
            if fresh:
                writer.writeheader()
            writer.writerow(row)


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
