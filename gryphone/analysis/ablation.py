"""What each ingredient brings: equal runs that differ in one setting, and their table.

    python -m gryphone.analysis.ablation configs/ablation/synthesiser.yaml --minutes 2 --init RUN

The file is a training configuration with `arms`: a name, and the settings that arm changes.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gryphone.analysis.card import table as markdown
from gryphone.config import TrainConfig, config_of
from gryphone.errors import ConfigError, DataError


def read_arms(path: Path, changes: Mapping[str, Any]) -> Iterator[TrainConfig]:
    """A configuration for each arm."""
    import yaml

    try:
        raw = yaml.safe_load(path.read_text())
        arms = raw.pop("arms")
        raw.pop("shared", None)  # a place for YAML anchors
    except (OSError, yaml.YAMLError, KeyError, AttributeError, TypeError) as error:
        raise ConfigError(f"{path}: give a training configuration with `arms`: {error}") from error
    for name, own in arms.items():
        yield config_of({**raw, **changes, **(own or {}), "name": name}, str(path))


def last_scores(run: Path) -> dict[str, float]:
    """The final line of a run's eval.csv."""
    try:
        with (run / "eval.csv").open() as file:
            *_, last = csv.DictReader(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{run}: was not evaluated: {error}") from error
    return {name: float(value) for name, value in last.items()}


def table(scores: Mapping[str, Mapping[str, float]]) -> str:
    """A Markdown table: a line for each arm."""
    columns = list(next(iter(scores.values())))
    rows = [[name, *(f"{own[c]:g}" for c in columns)] for name, own in scores.items()]
    return markdown(" | ".join(["arm", *columns]), rows)


def main() -> None:
    """Command line."""
    from gryphone.train import train

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("--minutes", type=float, help="of each arm")
    parser.add_argument("--steps", type=int, help="of each arm, at most")
    parser.add_argument("--warm-up", type=int, help="steps that compile the network, uncounted")
    parser.add_argument("--init", type=Path, help="a checkpoint to start from")
    parser.add_argument("--out", default="runs/ablation")
    parser.add_argument("--set", action="append", default=[], help="another setting: lr=5e-4")
    options = parser.parse_args()
    import yaml

    changes = {k: yaml.safe_load(v) for k, _, v in (item.partition("=") for item in options.set)}
    named = {"minutes": options.minutes, "steps": options.steps, "out": options.out}
    changes |= {k: v for k, v in named.items() if v is not None}
    arms = list(read_arms(options.config, changes))
    if options.warm_up:  # or the first arm alone would pay for the compiling
        brief = {"name": "warm-up", "steps": options.warm_up, "validation": {}, "unseen": {}}
        train(replace(arms[-1], **brief), init=options.init)
    scores = {}
    for config in arms:
        train(config, init=options.init)
        scores[config.name] = last_scores(Path(config.out) / config.name)
        print(table(scores), flush=True)


if __name__ == "__main__":
    main()
