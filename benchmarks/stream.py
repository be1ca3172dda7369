"""Training from a packed store that is streamed, against the same store in memory.

Makes a store of 2 million inks (the bundled ones, each distorted in its own way; 65,536 of them
differ, the rest has other names), and asks both paths for batches, each in a process of its own:
time to the first batch, memory, samples a second. An hour on busy cores, and 17 GB of memory for
the path that holds everything.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gryphone.data.packing import GROUP, SUMMARY, write_packed
from gryphone.data.samples import Sample
from gryphone.ink import Ink
from gryphone.reading.inkml import read_inkml

INKS = sorted((Path(__file__).parent.parent / "examples/ink").glob("*.inkml"))


def distorted(count: int) -> Iterator[Sample]:
    """The bundled inks in turn, each with strokes moved and sheared a little."""
    inks = [read_inkml(path) for path in INKS]
    draw = np.random.default_rng(0)
    for n in range(count):
        ink = inks[n % len(inks)]
        turn = np.eye(2) + draw.normal(0, 0.1, (2, 2))
        strokes = tuple(s @ turn + draw.normal(0, 0.5, (1, 2)) for s in ink.strokes)
        yield Sample(f"{n}", "made", ink.label, ink=Ink(strokes, ink.label, ink.glyphs))


def make(path: Path, count: int) -> None:
    """The store: some inks are packed, and their row groups written again under other names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    some = path.with_name("some.parquet")
    if not some.exists():
        write_packed(distorted(8 * GROUP), some)
    file = pq.ParquetFile(some)
    groups = [file.read_row_group(g) for g in range(file.num_row_groups)]
    with pq.ParquetWriter(path, groups[0].schema, compression="zstd") as writer:
        for n in range(0, count, GROUP):
            group = groups[n // GROUP % len(groups)]
            names = pa.array([str(i) for i in range(n, n + len(group))])
            writer.write_table(group.set_column(0, "id", names))
        writer.add_key_value_metadata({SUMMARY: file.metadata.metadata[SUMMARY]})


def memory() -> float:
    """The most MiB that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(path: Path, hold: int, batches: int) -> dict[str, float]:
    """One path, in this process."""
    import torch

    from gryphone.training.mixture import load_sources
    from gryphone.training.objective import seeded
    from gryphone.training.settings import SourceConfig, TrainConfig

    device, before, began = torch.device("cpu"), memory(), time.perf_counter()
    config = TrainConfig("bench", (SourceConfig(str(path), stream=hold),))
    mixture = load_sources(config, device, lambda line: None)[0]
    mixture.sample(seeded(0, 0, 0, device))
    first = time.perf_counter() - began
    began, busy = time.perf_counter(), time.process_time()
    for step in range(1, batches + 1):
        mixture.sample(seeded(0, step, 0, device), step=step)
    samples = batches * config.batch
    return {
        "first": first,
        "memory": memory() - before,
        "rate": samples / (time.perf_counter() - began),
        "cpu": samples / (time.process_time() - busy),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="for the store")
    parser.add_argument("--inks", type=int, default=2_000_000)
    parser.add_argument("--batches", type=int, default=500, help="of 512 samples")
    parser.add_argument("--only", type=int, help="inks to hold: measure this alone, print JSON")
    options = parser.parse_args()
    path = options.folder / f"{options.inks}.parquet"
    if options.only is not None:
        print(json.dumps(measure(path, options.only, options.batches)))
        return
    if not path.exists():
        options.folder.mkdir(parents=True, exist_ok=True)
        make(path, options.inks)
    print(f"{options.inks} inks, {path.stat().st_size / 1e6:.0f} MB\n")
    print("| held | first batch s | memory MiB | samples/s | samples per CPU second |")
    print("| --- | --- | --- | --- | --- |")
    for hold in (16_384, 65_536, 262_144, 0):
        call = [sys.executable, __file__, str(options.folder), "--inks", str(options.inks)]
        call += ["--batches", str(options.batches), "--only", str(hold)]
        done = subprocess.run(call, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout)
        cells = [f"{hold or 'all'}", f"{found['first']:.1f}"]
        cells += [f"{found[name]:.0f}" for name in ("memory", "rate", "cpu")]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
