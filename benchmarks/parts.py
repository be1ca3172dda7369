"""Where the CPU's time goes, part by part, of inks and of photographs: part of `make bench`.

One thread. Each moment counts for the innermost part that is at work. Of inks the network's own
time is left out: what it said is recorded first, and said again while the rest is measured.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench_recognize import photograph
from bench_speed import inks_of
from rich.console import Console
from rich.table import Table

import gryphone
from gryphone.photo import image, skeleton, trace
from gryphone.photo.decode import Picture
from gryphone.recognition import encoding, onnx_backend
from gryphone.recognition.encoding import EncodedBatch
from gryphone.recognition.onnx_backend import OnnxBackend
from gryphone.recognition.recognizer import Recognizer

INK = {
    "condensing": (encoding, "condensed"),
    "drawing": (onnx_backend, "drawing_of"),
    "second tracing": (EncodedBatch, "trace"),
    "loop": (EncodedBatch, "refine"),
    "strokes of symbols": (OnnxBackend, "evidence"),
}
PHOTO = {
    "decode": (image, "open_picture", Picture, "grey", image, "_at_working_size"),
    "sheet": (image, "find_sheet"),
    "light": (image, "darkness"),
    "ink or paper": (image, "ink_levels", image, "ink_mask", image, "parts_of", image, "_kept"),
    "what is no writing": (image, "without_rules", image, "without_stain", image, "without_marks"),
    "blur": (skeleton, "blurred"),
    "thin": (trace, "thinned"),
    "trace": (trace, "trace"),
}
WITHIN = ("second tracing",)  # all that it calls is its own


class Clock:
    """CPU seconds by part; `rest` is what belongs to none."""

    def __init__(self, rest: str, parts: dict[str, tuple[Any, ...]]) -> None:
        self.rest, self.parts = rest, parts
        for part, places in parts.items():
            for owner, name in zip(places[::2], places[1::2], strict=True):
                setattr(owner, name, self._timed(part, getattr(owner, name)))
        self.start()

    def start(self) -> None:
        self.spent: Counter[str] = Counter()
        self.at, self.since = [self.rest], time.thread_time()

    def stop(self) -> dict[str, float]:
        self._turn()
        return {part: self.spent[part] for part in (*self.parts, self.rest)}

    def _turn(self) -> None:
        now = time.thread_time()
        self.spent[self.at[-1]] += now - self.since
        self.since = now

    def _timed(self, part: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **options: Any) -> Any:
            self._turn()
            self.at.append(self.at[-1] if self.at[-1] in WITHIN else part)
            try:
                return work(*args, **options)
            finally:
                self._turn()
                self.at.pop()

        return timed

    def least(self, work: Callable[[], object], per: int, rounds: int = 4) -> dict[str, float]:
        """Milliseconds of each part, for one of `per` things: the least of some rounds."""
        found = []
        for _ in range(rounds):
            self.start()
            work()
            found.append(self.stop())
        return {part: 1000 * min(each[part] for each in found) / per for part in found[0]}


class Replayed:
    """A session of ONNX Runtime that says again what it said."""

    def __init__(self, session: Any) -> None:
        self.session, self.said, self.place = session, list[Any](), -1

    def run_with_ort_values(self, *given: Any) -> Any:
        if self.place < 0:
            self.said.append(self.session.run_with_ort_values(*given))
            return self.said[-1]
        self.place += 1
        return self.said[self.place - 1]


def of_inks(inks: Sequence[Any], steps: int | str, together: int) -> dict[str, float]:
    """Milliseconds of the host for one ink, when so many are answered together."""
    recognizer: Any = gryphone.load(threads=1)
    backend = recognizer.backend
    sessions = backend.encoder, backend.decoder = (
        Replayed(backend.encoder),
        Replayed(backend.decoder),
    )
    backend.batch = together

    def work() -> None:
        if together == 1:
            for ink in inks:
                recognizer.recognize(ink, steps=steps)
        else:
            recognizer.recognize_many(inks, steps=steps)

    def again() -> None:
        for session in sessions:
            session.place = 0
        work()

    work()
    return CLOCK.least(again, len(inks))


def of_photo(recognizer: Recognizer, photo: bytes) -> dict[str, float]:
    """Milliseconds of a photo, reading and answer."""
    recognizer.recognize(photo)
    return CLOCK.least(lambda: recognizer.recognize(photo), 1)


def show(title: str, parts: Sequence[str], last: str, columns: dict[str, dict[str, float]]) -> None:
    """A table of some parts, of all others as the `last`, and of their sums."""
    table = Table(title, *columns)
    for part in parts:
        table.add_row(part, *(f"{column[part]:.2f}" for column in columns.values()))
    rest = ([v for k, v in column.items() if k not in parts] for column in columns.values())
    table.add_row(last, *(f"{sum(some):.2f}" for some in rest))
    table.add_row("sum", *(f"{sum(column.values()):.2f}" for column in columns.values()))
    Console(width=110).print(table)


CLOCK = Clock("answer", INK | PHOTO)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a data set, else the bundled inks")
    parser.add_argument("--inks", type=int, default=128)
    options = parser.parse_args()
    inks = inks_of(options.data, options.inks)
    ways = {"alone, auto": ("auto", 1), "alone, 10 steps": (10, 1), "together": (10, len(inks))}
    found = {name: of_inks(inks, *way) for name, way in ways.items()}
    show(f"{len(inks)} inks, host ms", [*INK], "answer", found)
    recognizer = gryphone.load(threads=1)
    found = {f"{n} megapixels": of_photo(recognizer, photograph(n)) for n in (1, 12)}
    show("one photo, ms", [*PHOTO], "network and answer", found)


if __name__ == "__main__":
    main()
