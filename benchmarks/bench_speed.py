"""How long answers take, and how near that is to what the network alone needs.

`make bench` on this CPU, `make bench-gpu` on a GPU. Everything is measured in one run: the answers
with all that belongs to them (boxes, confidence, alternatives), and the bare network on the same
inks, encoder and steps, nothing read and nothing put together.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import gryphone
from gryphone.cli import calm_threads
from gryphone.reading.inputs import Input, read_input
from gryphone.recognition.encoding import EncodedBatch
from gryphone.recognition.question import Ask
from gryphone.recognition.recognizer import Recognizer

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples" / "ink").glob("*.inkml"))
STEPS = (1, 2, 5, 10, 20, 50, "auto")
LENGTHS = (10, 20, 40, 60, 80, 100)


def inks_of(data: Path | None, count: int) -> list[Input]:
    """Inks of a data set spread over it, else the bundled ones over and over."""
    if data is None:
        return list(islice(cycle([read_input(path) for path in EXAMPLES]), count))
    from gryphone.scoring.evaluate import items

    found = [item.input for item in items(data) if item.input is not None]
    return list(islice(cycle(found[:: max(1, len(found) // count)]), count))


def row_of(symbols: int) -> list[Any]:
    """`1+1+1...` as strokes."""
    strokes = []
    for place in range(symbols):
        x = 30.0 * place
        if place % 2:
            strokes += [[[x - 9, 20], [x + 9, 20]], [[x, 11], [x, 29]]]
        else:
            strokes += [[[x, 0], [x, 40]]]
    return strokes


def milliseconds(work: Callable[[Any], object], some: Sequence[Any]) -> tuple[float, float]:
    """The median and 90th percentile of calls, one for each of some arguments, once warm."""
    for each in some:
        work(each)
    times = []
    for each in some:
        began = time.perf_counter()
        work(each)
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times), float(np.percentile(times, 90))


class Bare:
    """The network alone: what encoder and steps take on inks that are known already."""

    def __init__(self, recognizer: Recognizer, gpu: bool) -> None:
        self.recognizer, self.gpu = recognizer, gpu
        self.backend: Any = recognizer.backend

    def on_cpu(self, inks: Sequence[Input], steps: int, calls: int = 3) -> float:
        """Milliseconds of inks that are drawn, looked at, and refined on canvases of 32."""
        strokes, size = EncodedBatch.of(self.recognizer, inks).strokes, len(inks)
        tokens = np.ones((size, 32, 2), dtype=np.int64)
        lengths, images = np.full(size, 32), np.arange(size)

        def work(_: object) -> None:
            memory = self.backend.encode(strokes)
            for _ in range(steps):
                self.backend.predict(memory, tokens, lengths, images)

        return milliseconds(work, range(calls))[0]

    def one(self, ink: Input, steps: int, calls: int = 5) -> float:
        """Milliseconds of one ink, by replays of its graphs."""
        if not self.gpu:
            return self.on_cpu([ink], steps)
        import torch

        from gryphone.recognition.torch_graphs import BUCKETS

        batch = EncodedBatch.of(self.recognizer, [ink])
        with torch.inference_mode():
            graphs, memory = self.backend.graphs, batch.memory.memory
            request = self.recognizer.request(Ask(steps=steps), np.zeros(1, dtype=np.int64))
            graphs.refine([memory], request)  # which loads what the replays read
            size = next(s for s in BUCKETS if len(memory.features) <= s)
            length = len(graphs.refine([memory], request).looks.ids)
            ids = (request.mask_id, request.pad_id)
            encode = graphs._recorded["encode", size]
            step = graphs._recorded.get(("step", size, length, 1, ids))
            opening = graphs._recorded["step", size, request.options.start, 1, ids]

            def work(_: object) -> None:
                graphs.step.fill_(64)
                encode.replay()
                opening.replay()
                graphs.step.fill_(steps - 1)
                for _ in range(steps - 1):
                    step.replay()
                torch.cuda.synchronize()

            return milliseconds(work, range(calls))[0]

    def many(self, inks: Sequence[Input], steps: int, calls: int = 3) -> float:
        """Milliseconds of a batch, refined on canvases of 32."""
        if not self.gpu:
            return self.on_cpu(inks, steps)
        import torch

        from gryphone.model import Packing
        from gryphone.raster import InkBatch, draw, to_patches

        backend = self.backend
        batch = EncodedBatch.of(self.recognizer, inks)
        drawn = InkBatch.from_strokes(batch.strokes).to(backend.device)
        patches = to_patches(draw(drawn, backend.config.canvas), backend.config.canvas)
        size, length = len(inks), 32
        tokens = torch.ones(size * length, 2, dtype=torch.int64, device=backend.device)
        index = torch.arange(length, device=backend.device).repeat(size)
        own = Packing.equal(size, length, backend.device)

        def work(_: object) -> None:
            memory = backend.model.encode(patches)
            for _ in range(steps):
                backend.model.decode(tokens, index, memory, own)
            torch.cuda.synchronize()

        with torch.inference_mode():
            return milliseconds(work, range(calls))[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", choices=("onnx", "torch"), help="of the CPU")
    parser.add_argument("--data", type=Path, help="a data set, else the bundled inks")
    parser.add_argument("--inks", type=int, default=60, help="for the time of one")
    parser.add_argument("--many", type=int, default=0, help="for batches; 64, or 2048 on a GPU")
    parser.add_argument("--workers", type=int, default=0, help="processes that trace")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    calm_threads()  # as the commands do, before PyTorch
    gpu = options.device != "cpu"
    many = options.many or (2048 if gpu else 64)
    began = time.perf_counter()
    recognizer = gryphone.load(
        device=options.device, workers=options.workers, backend=options.backend
    )
    loaded = time.perf_counter() - began
    began = time.perf_counter()
    recognizer.recognize(EXAMPLES[0])
    first = time.perf_counter() - began
    report: dict[str, Any] = {"load_s": round(loaded, 2), "first_s": round(first, 2)}
    console = Console(width=110)
    console.print(f"{options.device}: loaded in {loaded:.2f} s, first answer {first:.2f} s")
    bare, inks = Bare(recognizer, gpu), inks_of(options.data, options.inks)
    everything = inks_of(options.data, many)

    table = Table("steps", "one ink, p50 ms", "p90 ms", "network alone, ms", "ratio")
    report["one"] = {}
    for steps in STEPS:
        p50, p90 = milliseconds(lambda ink, t=steps: recognizer.recognize(ink, steps=t), inks)
        alone = None
        if isinstance(steps, int):
            alone = statistics.median(bare.one(ink, steps) for ink in inks[:20])
        report["one"][steps] = {"p50": p50, "p90": p90, "network": alone}
        rest = ("", "") if alone is None else (f"{alone:.2f}", f"{p50 / alone:.1f}")
        table.add_row(str(steps), f"{p50:.2f}", f"{p90:.2f}", *rest)
    console.print(table)

    table = Table("together", "steps", "inks a second", "network alone", "ratio")
    report["many"] = {}
    for size in (1, 8, 64, 512, many) if gpu else (1, 8, many):
        for steps in ("auto", 10, 50) if gpu else ("auto", 10):
            some = everything[:size]
            rounds = range(max(1, 64 // size) if gpu else 1)
            p50, _ = milliseconds(
                lambda _, t=steps, s=some: recognizer.recognize_many(s, steps=t), rounds
            )
            rate, alone = 1000 * size / p50, None
            if isinstance(steps, int) and 8 <= size <= 512:
                alone = 1000 * size / bare.many(some, steps)
            report["many"][f"{size} {steps}"] = {"rate": rate, "network": alone}
            rest = ("", "") if alone is None else (f"{alone:,.0f}", f"{alone / rate:.1f}")
            table.add_row(str(size), str(steps), f"{rate:,.0f}", *rest)
    console.print(table)

    table = Table("symbols", "steps 10, ms", "of that with 10 symbols")
    report["lengths"] = {}
    for symbols in LENGTHS:
        p50, _ = milliseconds(
            lambda row: recognizer.recognize(row, steps=10), [row_of(symbols)] * 5
        )
        report["lengths"][symbols] = p50
        table.add_row(str(symbols), f"{p50:.2f}", f"{p50 / report['lengths'][LENGTHS[0]]:.2f}")
    console.print(table)
    if gpu:
        import torch

        report["memory_MiB"] = torch.cuda.max_memory_allocated() >> 20
        console.print(f"most memory of the GPU: {report['memory_MiB']} MiB")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
