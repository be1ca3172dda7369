"""All rivals on a machine that is lent for half an hour, in calls of ten minutes at most.

    python benchmarks/rivals.py ours ar ar-raw bttr namer --steps 2000 --out $OUT

compares compiled blocks with plain ones (`compiled.py`), trains the arms of `configs/baselines`
side by side, predicts with each as soon as it is trained, then measures speeds, one after the
other. A process of its own does that, which outlives the call. The call watches it for `--minutes`,
puts into `--out` what there is (predictions, speeds and logs as results.tar.xz; weights in eight
bits, of as many arms as one call may bring), and ends. Given again, it goes on. What fails is said
and left out, and so is from the comparison what the clock cut short (its predictions are in
`short`); the rest goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gryphone.training.settings import TrainConfig

ROOT = Path(__file__).parents[1]
RECOVERIES = ("recover-masked", "recover-deleted")
SETS = ("valid-2013", "valid-2023", "test-2014")
FILES, ROOM = 7, 62 * 2**20  # of weights that one call brings, of 8 files and 64 MiB
RESERVE = 6.0  # minutes of the lease for predictions and speeds
LEAST = 4.0  # minutes that are worth beginning with


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arms", nargs="+", help="of the configuration, the first ones first")
    parser.add_argument("--out", type=Path, help="where results are put for the way home")
    parser.add_argument("--folder", type=Path, default=Path("runs/rivals"))
    parser.add_argument("--config", default="configs/baselines/all.yaml")
    parser.add_argument("--compared", action="store_true", help="compiled blocks have been before")
    parser.add_argument("--steps", type=int, required=True, help="of each arm: equal samples")
    parser.add_argument("--lease", type=float, default=27.0, help="minutes, of all calls")
    parser.add_argument("--minutes", type=float, default=9.0, help="that this call may take")
    parser.add_argument("--together", type=int, default=4, help="arms that share the GPU")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--data", type=Path, default=Path("packed"), help="the sets' folder")
    parser.add_argument("--limit", type=int, help="inks of each set")
    parser.add_argument("--inks", type=int, default=128, help="that speeds are measured with")
    parser.add_argument("--set", action="append", default=[], help="another setting of all arms")
    parser.add_argument("--conduct", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


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
        with (self.o.folder / "log.txt").open("a") as file:
            file.write(f"{(time.time() - self.began) / 60:5.1f} min  {line}\n")

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

    def train(self, name: str) -> bool:
        """Train an arm, and keep what says how."""
        o, run = self.o, self.o.folder / name
        if self.left() < LEAST:
            self.say(f"{name}: {self.left():.1f} minutes are left, not begun")
            return False
        well = self.run(
            f"train {name}", "-m", "gryphone.studies.ablation", o.config, "--out", o.folder,
            "--only", name, "--steps", o.steps, "--minutes", f"{self.left():.1f}", *self.settings,
        )  # fmt: skip
        for file in ("log.csv", "eval.csv", "settings.json"):
            with suppress(FileNotFoundError):
                shutil.copy(run / file, self.home / f"{name}-{file}")
        return well

    def arm(self, name: str) -> None:
        """Train, store predictions, and write the weights as they go home."""
        o, run = self.o, self.o.folder / name
        if not self.train(name):
            return
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
            (light / "whole").touch()

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
        if arms and first is not None:
            self.run(
                "speed", "-m", "gryphone.studies.speed", first, "--device", o.device,
                "--out", self.home, "--limit", o.inks, "--rivals", *arms,
            )  # fmt: skip
        self.say(f"done: {', '.join(self.done)}")
        (o.folder / "done").touch()


def configs_of(options: argparse.Namespace) -> dict[str, TrainConfig]:
    """The settings of all arms; those that are asked for are among them."""
    from gryphone.studies.ablation import read_arms

    known = {c.name: c for c in read_arms(ROOT / options.config, {})}
    if unknown := [name for name in options.arms if name not in known]:
        sys.exit(f"{options.config} has no arm {unknown[0]!r}; it has {', '.join(known)}")
    return known


def conductor(folder: Path) -> int:
    """The process that conducts; started where there is none yet. 0: it is no more."""
    path, asked = folder / "pid", options_of()
    words = json.dumps([asked.arms, asked.steps, asked.set, asked.config])
    if not path.exists():
        configs_of(asked)  # or it is said here, at once
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "words").write_text(words)
        command = [sys.executable, __file__, *sys.argv[1:], "--conduct"]
        with (folder / "conductor.log").open("w") as log:
            started = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        path.write_text(str(started.pid))
        return started.pid
    if (folder / "words").read_text() != words:
        sys.exit(f"{folder} is another command's; give another --folder")
    pid = int(path.read_text())
    try:  # one that ended and was not waited for still has a number
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return 0
    return 0 if state == "Z" else pid


def bring(folder: Path, out: Path) -> None:
    """Put into `out` what goes home with this call."""
    out.mkdir(parents=True, exist_ok=True)
    with tarfile.open(out / "results.tar.xz", "w:xz") as tar:
        for file in sorted((folder / "results").rglob("*")):
            with suppress(FileNotFoundError):  # what is being written has another name soon
                if file.is_file() and file.suffix not in (".part", ".tmp"):
                    tar.add(file, file.relative_to(folder))
        for name in ("log.txt", "conductor.log"):
            if (folder / name).exists():
                tar.add(folder / name, name)
    path = folder / "brought.json"
    brought = json.loads(path.read_text()) if path.exists() else []
    ready = sorted(p.parent for p in folder.glob("light/*/whole") if p.parent.name not in brought)
    files, room = 0, (out / "results.tar.xz").stat().st_size
    for light in ready:
        shards = sorted(light.glob("*.safetensors"))  # their config.json is among the results
        files, room = files + len(shards), room + sum(p.stat().st_size for p in shards)
        if files > FILES or room > ROOM:
            break
        (out / light.name).mkdir()
        for shard in shards:
            shutil.copy(shard, out / light.name)
        brought.append(light.name)
    path.write_text(json.dumps(brought))
    waiting = [light.name for light in ready if light.name not in brought]
    print(f"brought weights: {', '.join(brought)}; waiting: {', '.join(waiting)}", flush=True)


def main() -> None:
    o = options_of()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    os.environ.setdefault("OMP_NUM_THREADS", "2")  # of as many processes as there are arms
    if o.conduct:
        Conductor(o).conduct()
        return
    began, shown, log = time.time(), 0, o.folder / "log.txt"
    conductor(o.folder)
    while True:
        text = log.read_text() if log.exists() else ""
        print(text[shown:], end="", flush=True)
        shown = len(text)
        if (o.folder / "done").exists() or time.time() - began > 60 * o.minutes:
            break
        if not conductor(o.folder):
            print((o.folder / "conductor.log").read_text()[-2000:])
            break
        time.sleep(5)
    if o.out is not None:
        bring(o.folder, o.out)
    if not (o.folder / "done").exists():
        if conductor(o.folder):
            print("still running: give the same command again")
        else:
            (o.folder / "pid").unlink()
            sys.exit("it ended early; given again, it begins with what was not trained yet")


if __name__ == "__main__":
    main()
