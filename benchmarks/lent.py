"""A long command on a machine that is lent call by call: it goes on between the calls.

    python3 benchmarks/lent.py --take partA                       # the first calls bring the data;
    python3 benchmarks/lent.py --take partB --minutes 9 --out $OUT --results 'runs/mixture/*.csv' \
        --weights runs/mixture/checkpoint -- -m gryphone train configs/mixture.yaml --minutes 24

The last of them begins; the same without --take watches, and brings home what there is.

The command is Python's. It runs in a copy of the working tree, which the transfer of the next call
does not touch, and finds what was taken as `packed`. A call watches it for so many minutes; then
`--out` gets results.tar.xz, and as many folders of weights as may go home with one call: those
first that were not brought yet, or have changed since. A machine that was given back meanwhile
knows nothing of all this, and the call fails at once instead of beginning anew.
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
from contextlib import suppress
from pathlib import Path
from typing import Any

FILES, ROOM = 7, 62 * 2**20  # of weights in one call, of 8 files and 64 MiB
LEFT_OUT = (".git", ".venv", "packed", "runs", "wheels", "__pycache__", "*.xz")


class Lent:
    """What lies on the machine between calls."""

    def __init__(self, home: Path) -> None:
        self.home, self.tree, self.data = home, home / "tree", home / "packed"
        self.log, self.state = home / "log", home / "state.json"

    def take(self, folder: Path) -> None:
        """Put aside what one call carried."""
        shutil.copytree(folder, self.data, dirs_exist_ok=True)
        print(f"{self.data}: {', '.join(sorted(p.name for p in self.data.iterdir()))}")

    def begin(self, command: list[str], taken: list[Path], again: bool) -> None:
        """Start the command, unless it was before."""
        if again and self.state.exists() and self.runs():
            sys.exit(f"{self.home} is still at work; --again is for what has ended")
        if self.state.exists() and not again:
            known = json.loads(self.state.read_text())["command"]
            if known != command:
                sys.exit(f"{self.home} works on {known}; give another --home")
            return
        if not self.data.exists():
            sys.exit(f"{self.home} has no data: this machine is a fresh one, begin with --take")
        left_out = shutil.ignore_patterns(*LEFT_OUT, *(folder.name for folder in taken))
        shutil.copytree(Path.cwd(), self.tree, ignore=left_out, dirs_exist_ok=True)
        if not (self.tree / "packed").exists():
            (self.tree / "packed").symlink_to(self.data)
        inherited = os.environ.get("PYTHONPATH", "")
        started = subprocess.Popen(
            [sys.executable, *command],
            cwd=self.tree,
            env=os.environ | {"PYTHONPATH": f"{self.tree}:{inherited}", "PYTHONUNBUFFERED": "1"},
            stdout=self.log.open("w"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.write(command=command, pid=started.pid, shown=0, brought={})

    def write(self, **changed: object) -> None:
        state = json.loads(self.state.read_text()) if self.state.exists() else {}
        self.state.write_text(json.dumps(state | changed))

    def runs(self) -> bool:
        """Whether the command is still at work; one that was not waited for still has a number."""
        path = Path(f"/proc/{json.loads(self.state.read_text())['pid']}/stat")
        try:
            return path.read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    def watch(self, minutes: float) -> None:
        """Show what it says, until it has ended or the time is over."""
        end = time.monotonic() + 60 * minutes
        with self.log.open() as log:
            log.seek(json.loads(self.state.read_text())["shown"])
            while True:
                goes_on = self.runs()  # asked first: what was said last is shown
                print(log.read(), end="", flush=True)
                if not goes_on or time.monotonic() > end:
                    break
                time.sleep(1)
            self.write(shown=log.tell())
        print("it goes on: give the same command again" if goes_on else "it has ended", flush=True)

    def bring(self, out: Path, results: list[str], weights: list[str]) -> None:
        """Put into a folder what goes home with this call."""
        out.mkdir(parents=True, exist_ok=True)
        folders = sorted(p for text in weights for p in self.tree.glob(text) if p.is_dir())
        found = [p for text in results for p in self.tree.glob(text)]
        found += [folder / "config.json" for folder in folders]
        files = sorted({f for p in found for f in ([p] if p.is_file() else p.rglob("*"))})
        with tarfile.open(out / "results.tar.xz", "w:xz") as tar:
            tar.add(self.log, "log.txt")
            for file in files:
                with suppress(FileNotFoundError):  # what is being written has another name soon
                    tar.add(file, file.relative_to(self.tree), recursive=False)
        brought = json.loads(self.state.read_text())["brought"]
        count, room = 0, (out / "results.tar.xz").stat().st_size
        waiting = []
        for folder in folders:
            name, known = str(folder.relative_to(self.tree)), shards_of(folder)
            if known and brought.get(name) == known:
                continue
            size = sum(size for _, _, size in known)
            if not known or count + len(known) > FILES or room + size > ROOM:
                waiting.append(name)
                continue
            copy = out / name.replace("/", "-")
            copy.mkdir()
            with suppress(FileNotFoundError):
                for shard, _, _ in known:
                    shutil.copy(folder / shard, copy)
            if shards_of(folder) != known:  # written anew meanwhile: those would be of two states
                shutil.rmtree(copy)
                waiting.append(name)
                continue
            count, room = count + len(known), room + size
            brought[name] = known
        self.write(brought=brought)
        print(f"brought so far: {', '.join(brought)}; waiting: {', '.join(waiting)}", flush=True)


def shards_of(folder: Path) -> list[list[Any]]:
    """Name, time and size of each shard of a folder of weights; none while it is written anew."""
    try:
        stats = [(p.name, p.stat()) for p in sorted(folder.glob("*.safetensors"))]
    except FileNotFoundError:
        return []
    return [[name, stat.st_mtime, stat.st_size] for name, stat in stats]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--take", type=Path, action="append", default=[], help="a carried folder")
    parser.add_argument("--home", type=Path, default=Path("/root/lent"), help="outside of the tree")
    parser.add_argument("--again", action="store_true", help="begin anew what has ended")
    parser.add_argument("--minutes", type=float, default=9.0, help="that this call may watch")
    parser.add_argument("--out", type=Path, help="where things are put for the way home")
    parser.add_argument("--results", nargs="*", default=[], help="files and folders, in the tree")
    parser.add_argument("--weights", nargs="*", default=[], help="folders of shards, in the tree")
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    options, command = parser.parse_args(given[:cut]), given[cut + 1 :]
    lent = Lent(options.home)
    for folder in options.take:
        lent.take(folder)
    if not command:
        return
    lent.begin(command, options.take, options.again)
    lent.watch(options.minutes)
    if options.out is not None:
        lent.bring(options.out, options.results, options.weights)


if __name__ == "__main__":
    main()
