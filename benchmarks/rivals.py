"""All rivals in one go, on a machine that is lent for half an hour (`lent.py` runs it there).

    python benchmarks/rivals.py ours ar ar-raw bttr namer --steps 2000

compares compiled blocks with plain ones (`compiled.py`), trains the arms of `configs/baselines`
side by side, predicts with each as soon as it is trained, then measures speeds, one after the
other. Predictions, speeds and logs lie in `results` of its folder, weights in eight bits in
`light`. What fails is said and left out, and so is from the comparison what the clock cut short
(its predictions are in `short`); the rest goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gryphone.training.settings import TrainConfig

ROOT = Path(__file__).parents[1]
SETS = ("valid-2013", "valid-2023", "test-2014")
RESERVE = 6.0  # minutes of the lease for predictions and speeds
LEAST = 4.0  # minutes that are worth beginning with


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arms", nargs="+", help="of the configuration, the first ones first")
    parser.add_argument("--folder", type=Path, default=Path("runs/rivals"))
    parser.add_argument("--config", default="configs/baselines/all.yaml")
    parser.add_argument("--compared", action="store_true", help="compiled blocks have been before")
    parser.add_argument("--steps", type=int, required=True, help="of each arm: equal samples")
    parser.add_argument("--lease", type=float, default=27.0, help="minutes for all of it")
    parser.add_argument("--together", type=int, default=4, help="arms that share the GPU")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--data", type=Path, default=Path("packed"), help="the sets' folder")
    parser.add_argument("--limit", type=int, help="inks of each set")
    parser.add_argument("--inks", type=int, default=128, help="that speeds are measured with")
    parser.add_argument("--also", nargs="*", default=[], help="NAME=RUN, trained before: speeds")
    parser.add_argument("--set", action="append", default=[], help="another setting of all arms")
    return parser.parse_args()


class Conductor:
    """Does everything, and writes down what it did."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.o, self.began = options, time.time()
        self.done: list[str] = []
        self.settings = [f"--set={text}" for text in options.set]
        self.home = options.folder / "results"
        self.home.mkdir(parents=True, exist_ok=True)
        self.configs = configs_of(options)

    def say(self, line: str) -> None:
        print(f"{(time.time() - self.began) / 60:5.1f} min  {line}", flush=True)

    def run(self, what: str, *words: object) -> bool:
        """One command, its output in a log of its own; says whether it went well."""
        began, path = time.time(), self.home / f"{what.replace(' ', '-')}.log"
        with path.open("w") as log:
            command = [sys.executable, *map(str, words)]
            code = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log).returncode
        last = (path.read_text().strip().splitlines() or [""])[-1]
        mark = "ok" if code == 0 else f"FAILED ({code}), left out"
        self.say(f"{what}: {mark} after {time.time() - began:.0f} s; {last[-200:]}")
        return code == 0

    def left(self) -> float:
        """Minutes of the lease that training may still use."""
        return self.o.lease - RESERVE - (time.time() - self.began) / 60

    def arm(self, name: str) -> None:
        """Train, store predictions, and write the weights as they go home."""
        from gryphone.studies.predictions import RECOVERIES

        o, run = self.o, self.o.folder / name
        if self.left() < LEAST:
            return self.say(f"{name}: {self.left():.1f} minutes are left, not begun")
        if not self.run(
            f"train {name}", "-m", "gryphone.studies.ablation", o.config, "--out", o.folder,
            "--only", name, "--steps", o.steps, "--minutes", f"{self.left():.1f}", *self.settings,
        ):  # fmt: skip
            return None
        for file in ("log.csv", "eval.csv", "settings.json"):
            shutil.copy(run / file, self.home / f"{name}-{file}")
        sets = [path for x in SETS if (path := o.data / f"{x}.parquet").exists()]
        limit = [] if o.limit is None else ["--limit", o.limit]
        facts = json.loads((run / "checkpoint" / "config.json").read_text())["facts"]
        steps = facts["training"]["steps"]
        whole = steps == o.steps
        if not whole:
            self.say(f"{name}: {steps} steps of {o.steps}, no equal of the others")
        predict = (
            "-m", "gryphone.studies.predictions", f"{name}={run}", "--runs", 3,
            "--device", o.device, "--batch", 256, "--data", *sets, *limit,
            "--out", self.home if whole else self.home / "short",
        )  # fmt: skip
        if self.run(f"predict {name}", *predict) and whole:
            self.done.append(name)
        if self.configs[name].model.kind == "diffusion":
            self.run(f"recover {name}", *predict, "--methods", *RECOVERIES)
        light = o.folder / "light" / name
        if self.run(f"pack {name}", "-m", "gryphone.release.release", run, "--out", light):
            shutil.copy(light / "config.json", self.home / f"{name}-config.json")
        return None

    def conduct(self) -> None:
        o = self.o
        first = next((p for x in SETS if (p := o.data / f"{x}.parquet").exists()), None)
        inks = [] if first is None else ["--inks", first]  # others need what a lent machine lacks
        kinds = list(dict.fromkeys(self.configs[name].model.kind for name in o.arms))
        if not o.compared and not self.run("compiled", "benchmarks/compiled.py", *kinds, *inks):
            self.say("compiled blocks are not the plain ones: see compiled.log; plain ones train")
            self.settings.append("--set=compile=false")
        with ThreadPoolExecutor(o.together) as threads:
            list(threads.map(self.arm, o.arms))
        # What was trained in another way alone is as fast.
        alike = {repr((self.configs[x].model, self.configs[x].scheme)): x for x in o.arms[::-1]}
        arms = [f"{x}={o.folder / x}" for x in o.arms if x in self.done and x in alike.values()]
        arms += o.also
        if arms and first is not None:
            self.run(
                "speed", "-m", "gryphone.studies.speed", first, "--device", o.device,
                "--out", self.home, "--limit", o.inks, "--rivals", *arms,
            )  # fmt: skip
        self.say(f"done: {', '.join(self.done)}")


def configs_of(options: argparse.Namespace) -> dict[str, TrainConfig]:
    """The settings of all arms; those that are asked for are among them."""
    from gryphone.studies.ablation import read_arms

    known = {c.name: c for c in read_arms(ROOT / options.config, {})}
    if unknown := [name for name in options.arms if name not in known]:
        sys.exit(f"{options.config} has no arm {unknown[0]!r}; it has {', '.join(known)}")
    return known


def main() -> None:
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    os.environ.setdefault("OMP_NUM_THREADS", "2")  # of as many processes as there are arms
    Conductor(options_of()).conduct()


if __name__ == "__main__":
    main()
