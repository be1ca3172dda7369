"""Packing, loading and drawing rates on the CPU: `make bench`.

Uses the shared CROHME data where it lies beside the checkout, else the examples over and over.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from gryphone.config import Canvas
from gryphone.data.datasets import read_dataset
from gryphone.data.packed import read_packed
from gryphone.data.packing import write_packed
from gryphone.data.store import InkStore
from gryphone.raster import draw, to_patches
from gryphone.tokens import build_tokenizer
from gryphone.training.augment import Augment, augment

ROOT = Path(__file__).parents[1]


def examples(folder: Path, count: int) -> Path:
    """So many copies of the bundled inks."""
    folder.mkdir()
    bundled = sorted((ROOT / "examples" / "ink").glob("*.inkml"))
    for number, path in enumerate(islice(cycle(bundled), count)):
        shutil.copy(path, folder / f"{number}.inkml")
    return folder


def timed(work, at_least: float = 1.0) -> float:  # type: ignore[no-untyped-def]
    """Seconds of one call, the mean over at least a second of calls."""
    begin, calls = time.perf_counter(), 0
    while calls == 0 or time.perf_counter() - begin < at_least:
        work()
        calls += 1
    return (time.perf_counter() - begin) / calls


def main() -> None:
    shared = ROOT.parent / "shared" / "data" / "crohme" / "train.tar.xz"
    with tempfile.TemporaryDirectory() as folder:
        path = shared if shared.exists() else examples(Path(folder) / "inks", 500)
        packed_path = Path(folder) / "packed.parquet"
        begin = time.perf_counter()
        report = write_packed(islice(read_dataset(path), 3000), packed_path)
        packing = report.packed / (time.perf_counter() - begin)
        loading = report.packed / timed(lambda: read_packed(packed_path))
        packed = read_packed(packed_path)
    tokenizer = build_tokenizer("sat", [x.split(" ") for x in packed.labels])
    store = InkStore.of(packed, tokenizer, 150, torch.device("cpu"))
    canvas, strength = Canvas(), Augment()
    generator = torch.Generator().manual_seed(0)
    batch = store.batch(torch.randint(len(store), (256,), generator=generator)).ink
    drawing = timed(lambda: to_patches(draw(batch, canvas), canvas))
    distorting = timed(lambda: augment(batch, strength, generator))
    rows = {
        f"pack ({path.name}, to Parquet)": packing,
        "load packed ink": loading,
        "draw and cut into patches, batches of 256": 256 / drawing,
        "distort strokes, batches of 256": 256 / distorting,
    }
    table = Table("what", "inks per second")
    for name, rate in rows.items():
        table.add_row(name, f"{rate:,.0f}")
    Console().print(table)
    print(json.dumps({k: round(v, 1) for k, v in rows.items()}))


if __name__ == "__main__":
    main()
