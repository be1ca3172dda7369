"""Packing, loading and drawing rates on the CPU: `make bench`.

Uses the shared CROHME data where it lies beside the checkout, else made-up ink.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from madeup import write_inks  # noqa: E402

from gryphone.config import Canvas  # noqa: E402
from gryphone.data.datasets import read_dataset  # noqa: E402
from gryphone.data.packed import read_packed, write_packed  # noqa: E402
from gryphone.data.store import InkStore  # noqa: E402
from gryphone.raster import draw, draw_reference, to_patches  # noqa: E402
from gryphone.tokens import build_tokenizer  # noqa: E402
from gryphone.training.augment import Augment, augment  # noqa: E402


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
        path = shared if shared.exists() else write_inks(Path(folder) / "inks", 500)
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
    strokes = [packed.strokes(i) for i in range(8)]
    plain = timed(lambda: [draw_reference(s, canvas) for s in strokes]) / 8
    rows = {
        f"pack ({path.name}, to Parquet)": packing,
        "load packed ink": loading,
        "draw and cut into patches, batches of 256": 256 / drawing,
        "distort strokes, batches of 256": 256 / distorting,
        "draw by the plain reference": 1 / plain,
    }
    table = Table("what", "inks per second", "against the plain reference")
    for name, rate in rows.items():
        table.add_row(name, f"{rate:,.0f}", f"{rate * plain:,.1f}x")
    Console().print(table)
    print(json.dumps({k: round(v, 1) for k, v in rows.items()}))


if __name__ == "__main__":
    main()
