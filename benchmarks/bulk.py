"""Files a second, inks and photographs of one megapixel: one process, the local engine, Ray.

    python benchmarks/bulk.py --cores 2                                # here, with Ray
    python benchmarks/bulk.py --cores 16 --device cuda --no-ray        # a machine without Ray

The files are copies of the bundled examples. Rates leave out the start (from the first results to
the last ones), and CPU is that of all processes, start and all, for each file.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import psutil
from bench_recognize import EXAMPLES, photograph

import gryphone
from gryphone.cli import calm_threads
from gryphone.recognition.batch import (
    line_of,
    read_file,
    recognize_read,
    run_batch,
    settings_of,
)
from gryphone.recognition.question import Ask

PART = 64  # inputs given to `recognize_many` for each process


def make_files(folder: Path, inks: int, photos: int) -> dict[str, list[Path]]:
    """Copies of the bundled inks, and photographs of them."""
    made: dict[str, list[Path]] = {"inks": [], "photos": []}
    sources = sorted(EXAMPLES.glob("*.inkml"))
    (folder / "inks").mkdir()
    for number in range(inks):
        made["inks"].append(folder / "inks" / f"{number}.inkml")
        shutil.copy(sources[number % len(sources)], made["inks"][-1])
    pictures = [photograph(1, ink) for ink in sources[:photos]]
    (folder / "photos").mkdir()
    for number in range(photos):
        made["photos"].append(folder / "photos" / f"{number}.jpg")
        made["photos"][-1].write_bytes(pictures[number % len(pictures)])
    return made


def cpu_seconds() -> float:
    """Of this process and of all that it started, also those that have ended."""
    total = sum(psutil.Process().cpu_times()[:4])
    for child in psutil.Process().children(recursive=True):
        try:
            total += sum(child.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


class Watch:
    """When results came, and what CPU it took."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []
        self.began, self.cpu = time.perf_counter(), cpu_seconds()

    def __call__(self, done: int, total: int = 0) -> None:
        if done:
            self.seen.append((time.perf_counter(), done))

    def row(self, name: str) -> str:
        (first, some), (last, all_) = self.seen[0], self.seen[-1]
        rate = (all_ - some) / (last - first) if all_ > some else float("nan")
        seconds, cpu = last - self.began, cpu_seconds() - self.cpu
        return (
            f"| {name} | {all_} | {seconds:.1f} | {rate:.1f} | {all_ / seconds:.1f} | "
            f"{1000 * cpu / all_:.1f} |"
        )


@contextmanager
def measured(name: str) -> Iterator[Watch]:
    watch = Watch()
    yield watch
    print(watch.row(name), flush=True)


def parts(files: list[Path], device: str) -> str:
    """Where the time of one process goes, in milliseconds of CPU for each file."""
    recognizer = gryphone.load(device=device, threads=1)
    settings = settings_of(Ask(), "")
    recognizer.recognize_many(files[:2])
    clock = [time.process_time()]
    reads = [(file, read_file(file)) for file in files]
    clock.append(time.process_time())
    answers = list(recognize_read(recognizer, reads, Ask()))
    clock.append(time.process_time())
    for file, answer in answers:
        line_of(str(file), answer, settings, None)
    clock.append(time.process_time())
    spent = [1000 * (b - a) / len(files) for a, b in pairwise(clock)]
    return "reading {:.1f}, answering {:.1f}, a line of results {:.1f} ms of CPU".format(*spent)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--inks", type=int, default=512)
    parser.add_argument("--photos", type=int, default=64)
    parser.add_argument("--shard", type=int, default=16)
    parser.add_argument("--no-ray", action="store_true")
    parser.add_argument("--only", default="", help="one, local, many or ray, in a row")
    options = parser.parse_args()
    calm_threads()
    folder = Path(tempfile.mkdtemp())
    device, cores = options.device, options.cores

    def one(files: list[Path], kind: str) -> None:
        recognizer = gryphone.load(device=device, threads=1)
        files = files[: max(64, len(files) // cores)]
        with measured(f"{kind}, one process, one thread") as watch:
            run_batch(recognizer, files, folder / f"one-{kind}.jsonl", Ask(), progress=watch)

    def local(files: list[Path], kind: str) -> None:
        recognizer = gryphone.load(device=device)
        files = files[: max(64, len(files) // 2)]
        with measured(f"{kind}, recognize --workers {cores}") as watch:
            out = folder / f"local-{kind}.jsonl"
            run_batch(recognizer, files, out, Ask(), cores, progress=watch)

    def many(files: list[Path], kind: str) -> None:
        recognizer = gryphone.load(device=device, workers=cores)
        part = PART * cores
        with measured(f"{kind}, load(workers={cores}).recognize_many") as watch:
            for place in range(0, len(files), part):
                recognizer.recognize_many([str(f) for f in files[place : place + part]])
                watch(min(len(files), place + part))

    def on_ray(files: list[Path], kind: str) -> None:
        from gryphone.recognition.bulk import run_bulk

        with measured(f"{kind}, Ray, {cores} cores") as watch:
            run_bulk(
                [str(files[0].parent)],
                folder / f"ray-{kind}",
                Ask(),
                device=device,
                actors=cores,
                shard=options.shard,
                progress=watch,
            )

    engines: dict[str, Callable[[list[Path], str], None]]
    engines = {"one": one, "local": local, "many": many, "ray": on_ray}
    if options.no_ray:
        del engines["ray"]
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("| what | files | s | files/s | with start | CPU ms a file |")
    print("| --- | --- | --- | --- | --- | --- |")
    try:
        if "ray" in engines and (not options.only or "ray" in options.only):
            import ray

            from gryphone.recognition.bulk import start_ray

            if "RAY_ADDRESS" not in os.environ:
                ray.init(num_cpus=cores, log_to_driver=False, logging_level="warning")
            start_ray()
            ray.data.DataContext.get_current().enable_progress_bars = False
        for kind, files in make_files(folder, options.inks, options.photos).items():
            if files and not options.only:
                print(f"| {kind}: {parts(files[:48], device)} |", flush=True)
            for name, engine in engines.items():
                if files and (not options.only or name in options.only):
                    engine(files, kind)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
