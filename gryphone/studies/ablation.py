"""What each ingredient brings: equal runs that differ in one setting, and their table.

    python -m gryphone.studies.ablation configs/history/05-11-synthesiser.yaml --init RUN

The file is a training configuration with `arms`: a name, and the settings that arm changes. Given
again, the command goes on where it was stopped; with other settings it wants another --out.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gryphone.errors import ConfigError, DataError, need, writing
from gryphone.release.card import table as markdown
from gryphone.release.common import first_difference, run
from gryphone.training.run_files import Run
from gryphone.training.settings import TrainConfig, changes_of, config_of, read_settings

SETTINGS = "settings.json"  # in the folder of an arm


def read_arms(path: Path, changes: Mapping[str, Any]) -> Iterator[TrainConfig]:
    """A configuration for each arm."""
    try:
        raw = read_settings(path)
        arms = raw.pop("arms")
        raw.pop("shared", None)  # a place for YAML anchors
    except (ConfigError, KeyError) as error:
        raise ConfigError(f"{path}: give a training configuration with `arms`: {error}") from error
    for name, own in arms.items():
        yield config_of({**raw, **changes, **(own or {}), "name": name}, str(path))


def settings_of(config: TrainConfig, init: Path | None) -> dict[str, Any]:
    """All that decides an arm's result, as JSON gives it back."""
    settings: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    del settings["out"]  # a folder may be moved
    return settings | {"init": None if init is None else str(init.resolve())}


def check_arm(config: TrainConfig, init: Path | None) -> None:
    """Refuse to go on with an arm that was trained with other settings."""
    arm = Run(config)
    if arm.newest_state() is None:
        return
    try:
        before = json.loads((arm.folder / SETTINGS).read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{arm.folder}: holds a run, and no {SETTINGS} with its settings; choose another --out"
        ) from error
    found = first_difference(before, settings_of(config, init))
    if found is not None:
        name, old, new = found
        raise ConfigError(
            f"{arm.folder}: was trained with {name} {old!r}, now it is {new!r}; "
            "choose another --out"
        )


def train_arm(config: TrainConfig, init: Path | None) -> dict[str, float]:
    """Train one arm, or what is left of it; returns its scores."""
    from gryphone.training.train import train

    arm = Run(config)
    arm.make_folder()
    with writing(arm.folder / SETTINGS):
        (arm.folder / SETTINGS).write_text(json.dumps(settings_of(config, init), indent=1))
    train(config, init=init)
    return last_scores(arm.folder)


def last_scores(run: Path) -> dict[str, float]:
    """The final line of a run's eval.csv."""
    try:
        with (run / "eval.csv").open() as file:
            *_, last = csv.DictReader(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{run}: was not evaluated: {error}") from error
    return {name: float(value) for name, value in last.items() if value}


def table(scores: Mapping[str, Mapping[str, float]]) -> str:
    """A Markdown table: a line for each arm."""
    columns = list(next(iter(scores.values())))
    rows = [[name, *(f"{own[c]:g}" for c in columns)] for name, own in scores.items()]
    return markdown(" | ".join(["arm", *columns]), rows)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("--minutes", type=float, help="of each arm")
    parser.add_argument("--steps", type=int, help="of each arm, at most")
    parser.add_argument("--warm-up", type=int, help="steps that compile the network, uncounted")
    parser.add_argument("--init", type=Path, help="a checkpoint to start from")
    parser.add_argument("--out", default="runs/ablation")
    parser.add_argument("--only", help="one arm, to train several side by side")
    parser.add_argument("--set", action="append", default=[], help="another setting: lr=5e-4")
    options = parser.parse_args()
    need("accelerate", "train")
    from gryphone.training.train import train

    named = {"minutes": options.minutes, "steps": options.steps, "out": options.out}
    changes = changes_of(options.set) | {k: v for k, v in named.items() if v is not None}
    arms = list(read_arms(options.config, changes))
    if options.only is not None:
        names = [config.name for config in arms]
        if options.only not in names:
            raise ConfigError(f"--only {options.only}: the arms are {', '.join(names)}")
        arms = [config for config in arms if config.name == options.only]
    for config in arms:
        check_arm(config, options.init)
    if options.warm_up:  # or the first arm alone would pay for the compiling
        brief = {"name": "warm-up", "steps": options.warm_up, "validation": {}, "unseen": {}}
        train(replace(arms[-1], **brief), init=options.init)
    scores = {}
    for config in arms:
        scores[config.name] = train_arm(config, options.init)
        print(table(scores), flush=True)


if __name__ == "__main__":
    run(main)
