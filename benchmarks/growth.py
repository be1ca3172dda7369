"""What an answer costs as things grow, with the exponent of each: the table of docs/scale.md.

Costs are CPU time of this process, one thread, the least of some calls: other work on the machine
hardly changes it. An exponent is the slope of the costs' logarithms, least squares; that of the
larger half is given too, for a fixed part hides growth among small ones.

    python benchmarks/growth.py
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
from bench_recognize import photograph
from bench_speed import EXAMPLES, row_of

import gryphone
from gryphone.reading.inputs import read_input
from gryphone.recognition.batch import line_of, resume, settings_of
from gryphone.recognition.bulk import Job, Reader, key_of
from gryphone.recognition.question import Ask
from gryphone.server.engine import Engine
from gryphone.server.engine import Job as Question
from gryphone.server.settings import Settings
from gryphone.server.telemetry import Metrics


def cost(work: Callable[[], object], calls: int) -> float:
    """Milliseconds of CPU, the least of some calls, once it is warm."""
    work()
    times = []
    for _ in range(calls):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return 1000 * min(times)


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(costs, 1e-6)), 1)[0])


def show(what: str, sizes: Sequence[float], work: Callable[[float], Callable[[], object]]) -> None:
    """One row: the cost at each size, and how it grows."""
    costs = [cost(work(size), CALLS) for size in sizes]
    half = len(sizes) // 2
    cells = ", ".join(f"{size:g}: {each:.3g}" for size, each in zip(sizes, costs, strict=True))
    print(
        f"| {what} | {cells} | {exponent(sizes, costs):.2f} | "
        f"{exponent(sizes[half:], costs[half:]):.2f} |",
        flush=True,
    )


def queue_of(count: int, recognizer: gryphone.Recognizer) -> Callable[[], object]:
    """What a queue of so many questions costs until it is batches: all but the answers."""
    inputs = [read_input(path) for path in EXAMPLES]

    def work() -> None:
        engine = Engine(Settings(batch=8), Metrics(), recognizer)
        now = time.perf_counter()
        for number in range(count):
            job = Question(inputs[number % len(inputs)], Ask(), now, now + 1e6, cost=100)
            engine.ahead(engine.turn_of(job))  # as every request asks first
            engine.submit(job)
        batches = engine.batches()
        for _ in range(-(-count // 8)):
            for job in next(batches):
                job.answer.set_result(None)

    return work


def results_of(count: int, folder: Path, line: str) -> Callable[[], object]:
    """Going on with a file of so many results."""
    out, ask = folder / f"{count}.jsonl", Ask()
    row = json.loads(line)
    with out.open("w") as file:
        for number in range(count):
            file.write(json.dumps(row | {"file": f"{number}.png"}) + "\n")
    return lambda: resume(out, settings_of(ask, ""), {}, ExitStack())


def keys_of(count: int) -> Callable[[], object]:
    """Asking for a thousand inputs whether so many keys of finished ones hold them."""
    reader = Reader(Job(Ask()))
    reader.done = np.sort(np.array([key_of(str(number), None) for number in range(count)]))
    asked = [key_of(str(number), None) for number in range(1000)]
    return lambda: [reader.is_done(key) for key in asked]


def main() -> None:
    light = gryphone.load(threads=1)
    inks = [read_input(path) for path in EXAMPLES]
    print(
        "| cost, in ms of CPU, of | at | exponent | of the larger half |\n| --- | --- | --- | --- |"
    )
    lengths = (5, 10, 20, 40, 80)
    show(
        "an answer, by symbols, 10 steps",
        lengths,
        lambda n: lambda: light.recognize(row_of(int(n)), steps=10, plain=True),
    )
    show("the same, auto steps", lengths, lambda n: lambda: light.recognize(row_of(int(n))))
    photos = {n: photograph(n) for n in (0.25, 0.5, 1, 2, 4, 8, 12)}
    show(
        "reading a photo, by megapixels",
        list(photos),
        lambda n: lambda: read_input(photos[n], "photo"),
    )
    whole = {n: photograph(n, kind="PNG") for n in photos}
    show(
        "reading a PNG, by megapixels",
        list(whole),
        lambda n: lambda: read_input(whole[n], "photo"),
    )
    show(
        "its answer, by megapixels",
        list(photos),
        lambda n: partial(light.recognize, read_input(photos[n], "photo")),
    )
    show(
        "many answers, by inks",
        (2, 4, 8, 16, 32),
        lambda n: lambda: light.recognize_many([inks[7]] * int(n)),
    )
    show("queueing, by questions", (8, 16, 32, 64, 256), lambda n: queue_of(int(n), light))
    line = line_of("", light.recognize(inks[7]), settings_of(Ask(), ""), None)
    with tempfile.TemporaryDirectory() as folder:
        show(
            "going on, by stored results",
            (100, 1_000, 10_000),
            lambda n: results_of(int(n), Path(folder), line),
        )
    show("1,000 lookups, by finished inputs", (1_000, 10_000, 100_000), lambda n: keys_of(int(n)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=3)
    CALLS = parser.parse_args().calls
    main()
