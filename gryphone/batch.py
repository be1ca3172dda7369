"""Many files: batches of like size, one line of results each, resumable at any point."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from gryphone.errors import DataError, GryphoneError
from gryphone.evaluate import chunks, ink_length
from gryphone.ink import Ink
from gryphone.inputs import read_source
from gryphone.options import Ask
from gryphone.recognize import Recognizer
from gryphone.result import Result

WINDOW, BATCH = 64, 8
SETTINGS = ("steps", "seed")


@dataclass(frozen=True)
class BatchReport:
    """What a run over many files did."""

    files: int
    before: int  # had their line from an earlier run
    recognized: int
    errors: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Files read and recognised per second in this run."""
        return (self.recognized + self.errors) / max(self.seconds, 1e-9)


def read_file(path: Path) -> Ink | str:
    """The ink of one file, or the reason why there is none."""
    try:
        return read_source(path)
    except GryphoneError as error:
        return str(error)


def recognize_files(
    recognizer: Recognizer, files: Sequence[Path], ask: Ask, workers: int = 0
) -> Iterator[tuple[Path, Result | str]]:
    """Each file with its result or its error, in order; `workers` processes read ahead."""
    with ExitStack() as stack:
        if workers > 0:
            # A fresh interpreter: forking a process that runs PyTorch's threads may hang.
            context = multiprocessing.get_context("spawn")
            pool = stack.enter_context(ProcessPoolExecutor(workers, mp_context=context))
            stream: Iterator[Ink | str] = pool.map(read_file, files, chunksize=8)
        else:
            stream = map(read_file, files)
        pairs = zip(files, stream, strict=True)
        while window := list(islice(pairs, WINDOW)):
            yield from _window(recognizer, window, ask)


def _window(
    recognizer: Recognizer, window: Sequence[tuple[Path, Ink | str]], ask: Ask
) -> Iterator[tuple[Path, Result | str]]:
    """Recognise what was read, in batches of like size; answers come in the order of the files."""
    done: dict[int, Result | str] = {}
    inks: list[tuple[int, Ink]] = []
    for i, (_, read) in enumerate(window):
        if isinstance(read, Ink):
            inks.append((i, read))
        else:
            done[i] = read
    inks.sort(key=lambda pair: ink_length(pair[1]))
    for part in chunks(inks, BATCH):
        results = recognizer.recognize_many([ink for _, ink in part], ask=ask)
        done |= {i: result for (i, _), result in zip(part, results, strict=True)}
    for i, (path, _) in enumerate(window):
        yield path, done[i]


def run_batch(
    recognizer: Recognizer,
    files: Sequence[Path],
    out: Path,
    ask: Ask,
    workers: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> BatchReport:
    """Write one JSON line per file to `out`; what it already holds is not done again."""
    began = time.perf_counter()
    settings = {"steps": ask.total_steps, "seed": ask.seed}
    done = resume(out, settings)
    todo = [path for path in files if str(path) not in done]
    before = len(files) - len(todo)
    progress(before, len(files))
    errors = 0
    try:
        with out.open("a", encoding="utf-8") as file:
            answers = recognize_files(recognizer, todo, ask, workers)
            for count, (path, answer) in enumerate(answers, 1):
                errors += isinstance(answer, str)
                _write(file, path, answer, settings)
                progress(before + count, len(files))
    except OSError as error:
        raise DataError(f"{out}: cannot be written: {error.strerror or error}") from error
    seconds = time.perf_counter() - began
    return BatchReport(len(files), before, len(todo) - errors, errors, seconds)


def _write(file: IO[str], path: Path, answer: Result | str, settings: dict[str, Any]) -> None:
    """One line, written at once and pushed out, so that a kill loses at most a part of a line."""
    if isinstance(answer, str):
        line: dict[str, Any] = {"file": str(path), "error": answer, **settings}
    else:
        line = answer.to_dict() | {"file": str(path), **settings, "used": answer.steps}
    file.write(json.dumps(line, ensure_ascii=False) + "\n")
    file.flush()


def resume(out: Path, settings: dict[str, Any]) -> set[str]:
    """The files that `out` has a line for; a last line that was cut short is removed."""
    done: set[str] = set()
    if not out.exists():
        return done
    whole = 0
    try:
        with out.open("rb+") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                done.add(_file_of(line, f"{out}, line {number}", settings))
                whole += len(line)
            file.truncate(whole)
    except OSError as error:
        raise DataError(f"{out}: cannot be continued: {error.strerror or error}") from error
    return done


def _file_of(line: bytes, where: str, settings: dict[str, Any]) -> str:
    try:
        row = json.loads(line)
        name = str(row["file"])
    except (ValueError, KeyError, TypeError):
        raise DataError(
            f"{where}: is no result of `gryphone recognize`; choose another --out"
        ) from None
    for key, value in settings.items():
        if row.get(key) != value:
            raise DataError(
                f"{where}: was made with {key} {row.get(key)}, this run uses {value}; "
                "use the same, or choose another --out"
            )
    return name
