"""Ink replayed stroke by stroke: does what has settled stay, and how soon is there an answer?

    gryphone study live --set valid-2023 --limit 300

After every stroke the ink so far is read anew, and followed by a session. A symbol has settled when
the same strokes had the same name in so many answers; what is counted is a change although the new
stroke is not near it: a correction where the last answer has it too, else it flickers. Times are of
one process, reading by reading in turn.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

import gryphone
from gryphone.data.datasets import read_dataset
from gryphone.data.samples import Sample
from gryphone.errors import writing
from gryphone.ink import Stroke
from gryphone.reading.gestures import erased_by
from gryphone.recognition.recognizer import Recognizer
from gryphone.recognition.result import Result
from gryphone.recognition.session import near
from gryphone.release.card import table
from gryphone.release.common import run
from gryphone.studies.invariance import is_right

STOOD = 2  # answers: at two strokes a second, one second
Names = dict[frozenset[int], str]


@dataclass
class Arm:
    """What one way of reading did."""

    settled: int = 0  # symbols, at every stroke that is not near them
    corrected: int = 0
    flickers: int = 0
    shaken: int = 0  # inks with a flicker
    right: int = 0  # last answers
    seconds: list[float] = field(default_factory=list)

    def watch(self, trail: Sequence[Names], last: Names, strokes: Sequence[Stroke]) -> None:
        """Count what the answers to an ink, one for each stroke, did to what had settled."""
        before = self.flickers
        for at in range(STOOD, len(trail)):
            old = trail[at - STOOD : at]
            there = dict(enumerate(strokes[:at]))
            close = near(strokes[at : at + 1], there)
            for own, name in old[-1].items():
                if all(each.get(own) == name for each in old) and not own & close:
                    now, changed = trail[at].get(own), trail[at].get(own) != name
                    self.settled += 1
                    self.corrected += changed and now == last.get(own)
                    self.flickers += changed and now != last.get(own)
        self.shaken += self.flickers > before


@dataclass
class Found:
    """All that was counted."""

    inks: int = 0
    strokes: int = 0
    same: int = 0  # final answers that are those of a fresh reading
    moved: int = 0  # settled symbols that the final reading changes
    alarms: int = 0  # gestures, where there are none
    fresh: Arm = field(default_factory=Arm)
    live: Arm = field(default_factory=Arm)
    final: list[float] = field(default_factory=list)  # seconds


def names(result: Result) -> Names:
    """What the strokes of each symbol are called."""
    return {frozenset(s.strokes): s.symbol for s in result.symbols if s.strokes}


def replay(recognizer: Recognizer, sample: Sample, found: Found) -> None:
    """Write one ink again."""
    strokes = sample.ink.strokes if sample.ink is not None else ()
    session = recognizer.session(gestures=False)  # an alarm would end the comparison
    trails: tuple[list[Names], list[Names]] = ([], [])
    for at, stroke in enumerate(strokes):
        earlier = dict(enumerate(strokes[:at]))
        known = [s.strokes for s in session.result.symbols] if session.result else []
        found.alarms += erased_by(stroke, earlier, known) is not None
        began = time.perf_counter()
        live = session.add(stroke)
        between = time.perf_counter()
        fresh = recognizer.recognize(strokes[: at + 1])
        found.live.seconds.append(between - began)
        found.fresh.seconds.append(time.perf_counter() - between)
        trails[0].append(names(fresh))
        trails[1].append(names(live))
    began = time.perf_counter()
    final = session.finish()
    found.final.append(time.perf_counter() - began)
    last = names(final)
    found.fresh.watch(trails[0], last, strokes)
    found.live.watch(trails[1], last, strokes)
    stood = trails[1][-STOOD:]
    found.moved += sum(
        all(each.get(own) == name for each in stood) and last.get(own) != name
        for own, name in trails[1][-1].items()
    )
    found.inks += 1
    found.strokes += len(strokes)
    found.same += final.latex == fresh.latex
    found.fresh.right += is_right(fresh.latex, sample.label or "")
    found.live.right += is_right(live.latex, sample.label or "")


def report(found: Found) -> str:
    """Two tables."""
    rows = []
    for name, arm in (("read anew", found.fresh), ("session", found.live)):
        rate = 100 * arm.flickers / max(1, arm.settled)
        ratios = np.array(arm.seconds) / np.median(found.fresh.seconds)
        p50, p90 = np.percentile(ratios, [50, 90])
        counts = (arm.settled, arm.corrected, arm.flickers, arm.shaken, arm.right)
        rows.append([name, *map(str, counts), f"{rate:.2f}", f"{p50:.2f}", f"{p90:.2f}"])
    head = "way|settled|corrected|flickers|inks with these|last right|flickers, %|p50|p90"
    ratio = np.median(found.final) / np.median(found.fresh.seconds)
    return "\n".join(
        [
            f"{found.inks} inks, {found.strokes} strokes; times in medians of reading anew "
            f"({1000 * np.median(found.fresh.seconds):.0f} ms).",
            "",
            table(head, rows),
            "",
            f"Final answers equal to a fresh reading: {found.same} of {found.inks}; they change "
            f"{found.moved} settled symbols and take {ratio:.2f}. False alarms of gestures: "
            f"{found.alarms} of {found.strokes} strokes.",
        ]
    )


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--limit", type=int, default=300, help="inks of each set")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args(arguments)
    recognizer = gryphone.load(options.weights)
    found = Found()
    for path in options.data:
        every = [s for s in read_dataset(path) if isinstance(s, Sample) and s.ink and s.label]
        chosen = np.random.default_rng(0).permutation(len(every))[: options.limit]
        for number, at in enumerate(chosen, 1):
            replay(recognizer, every[at], found)
            if number % 10 == 0:
                print(f"{path.name}: {number} of {len(chosen)}", flush=True)
            if options.out:
                with writing(options.out):
                    options.out.write_text(json.dumps(asdict(found), indent=1))
    print(report(found))


if __name__ == "__main__":
    run(main)
