"""Many files: read ahead, recognised in batches, one line of results each, resumable."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, fields
from functools import partial
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from gryphone.checkpoint import checkpoint_directory
from gryphone.errors import DataError, GryphoneError, writing
from gryphone.interrupt import process_pool
from gryphone.reading.inputs import STDIN, Input, normal_path, read_input
from gryphone.recognition.question import AUTO, Ask
from gryphone.recognition.recognizer import Recognizer
from gryphone.recognition.result import Result

START = b'{"file": '  # of every line of results
NO_SETTINGS = ("on_step", "given")  # of Ask: a callback, and an answer about one single ink
UNSAID = {f.name: f.default for f in fields(Ask)}  # by earlier versions, which had fewer options
UNSURE = 0.5  # an answer below it is more likely wrong than right
REASONS = 3  # the most frequent ones

Stamp = list[int]  # size and time of change (ns) of a file; a list, as JSON reads it back


@dataclass(frozen=True)
class BatchReport:
    """What a run over many files did."""

    files: int
    before: int  # had their line from an earlier run
    recognized: int
    errors: int
    unsure: int  # recognised, and more likely wrong than right
    warned: int  # recognised, with a warning
    seconds: float
    reasons: tuple[tuple[str, int], ...] = ()  # the most frequent errors, with their number

    @property
    def per_second(self) -> float:
        """Files read and recognised per second in this run."""
        return (self.recognized + self.errors) / max(self.seconds, 1e-9)


def read_file(source: Any, name: str | None = None) -> Input | str:
    """What one file holds, or the reason why there is none."""
    try:
        return read_input(source, name)
    except GryphoneError as error:
        return str(error)
    except Exception as error:  # a flaw of ours or of a library: no single file may end the run
        return f"{name or source}: cannot be read: {type(error).__name__}: {error}"


def recognize_files(
    recognizer: Recognizer, files: Sequence[Path], ask: Ask, workers: int = 0
) -> Generator[tuple[Path, Result | str], None, None]:
    """Each file with its result or its error, in order; `workers` processes read ahead.

    Where the model computes on the CPU, that is most of the work, and they answer, too.
    """
    size = recognizer.backend.batch * recognizer.backend.at_once
    with ExitStack() as stack:
        shared = recognizer.copies(workers)
        if shared is not None:
            stack.callback(shared.pool.shutdown, cancel_futures=True)
            # What is piped into this process is not there in another one.
            given = [read_file(file) if str(file) == STDIN else file for file in files]
            parts = [given[i : i + size] for i in range(0, len(files), size)]
            found = shared.pool.map(partial(_answers, shared.copy, ask), parts)
            try:
                yield from zip(files, chain.from_iterable(found), strict=True)
            except BaseException:  # Ctrl-C, or nobody wants the rest: these would finish it first
                shared.stop()
                raise
            return
        stream: Iterator[Input | str] = map(read_file, files)
        if workers > 0:
            pool = process_pool(workers, import_module, read_input.__module__)
            stack.callback(pool.shutdown, cancel_futures=True)
            stream = pool.map(read_file, files)
        pairs = zip(files, stream, strict=True)
        while batch := list(islice(pairs, size)):
            yield from recognize_read(recognizer, batch, ask)


def _answers(
    copy: Callable[[], Recognizer], ask: Ask, files: Sequence[Path | Input | str]
) -> list[Result | str]:
    """The results or errors of some files, in a process that has a recogniser of its own."""
    read = [(Path(), read_file(each) if isinstance(each, Path) else each) for each in files]
    return [answer for _, answer in recognize_read(copy(), read, ask)]


def recognize_read(
    recognizer: Recognizer, batch: Sequence[tuple[Path, Input | str]], ask: Ask
) -> Iterator[tuple[Path, Result | str]]:
    """Recognise together what could be read; every file keeps its place."""
    inputs = [read for _, read in batch if isinstance(read, Input)]
    results = iter(recognizer.recognize_many(inputs, ask=ask))
    for path, read in batch:
        yield path, next(results) if isinstance(read, Input) else read


def run_batch(
    recognizer: Recognizer,
    files: Sequence[Path],
    out: Path,
    ask: Ask,
    workers: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    weights: str = "",
) -> BatchReport:
    """Write one JSON line per file to `out`; what it already answers is not done again.

    `weights` names the recogniser's weights (`fingerprint`): answers of others are not mixed in.
    """
    began = time.perf_counter()
    settings = settings_of(ask, weights)
    stamps = {normal_path(path): stamp_of(path) for path in files}
    reasons: Counter[str] = Counter()
    unsure = warned = 0
    with writing(out), ExitStack() as held:
        hold(out, held)
        done = resume(out, settings, stamps, held)
        todo = [path for path in files if normal_path(path) not in done]
        before = len(files) - len(todo)
        progress(before, len(files))
        answers = held.enter_context(closing(recognize_files(recognizer, todo, ask, workers)))
        # A lone surrogate, of a name that is no UTF-8, becomes the escape that JSON has for it.
        file = held.enter_context(out.open("a", encoding="utf-8", errors="backslashreplace"))
        for count, (path, answer) in enumerate(answers, 1):
            if isinstance(answer, str):
                reasons[answer.removeprefix(f"{path}: ")] += 1
            else:
                unsure += answer.confidence < UNSURE
                warned += bool(answer.warnings)
            _write(file, path, answer, settings, stamps[normal_path(path)])
            progress(before + count, len(files))
    return BatchReport(
        files=len(files),
        before=before,
        recognized=len(todo) - reasons.total(),
        errors=reasons.total(),
        unsure=unsure,
        warned=warned,
        seconds=time.perf_counter() - began,
        reasons=tuple(reasons.most_common(REASONS)),
    )


def stamp_of(path: Path) -> Stamp | None:
    """What tells whether a file has changed since."""
    if str(path) == STDIN:
        return None
    try:
        status = path.stat()
    except OSError:  # reading it says why
        return None
    return [status.st_size, status.st_mtime_ns]


def hold(out: Path, held: ExitStack) -> None:
    """Refuse a results file that another run is writing, and keep others off while `held` is."""
    if sys.platform == "win32" or (out.exists() and not out.is_file()):  # or a device or pipe
        return
    import fcntl

    file = held.enter_context(out.open("ab"))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The other run may have put a new file in its place meanwhile (`_remove_lines`).
        free = os.path.samestat(os.fstat(file.fileno()), out.stat())
    except OSError as error:  # some network folders know no locks
        free = not isinstance(error, BlockingIOError)
    if not free:
        raise DataError(f"{out}: another run is writing it; wait for that, or choose another --out")


def settings_of(ask: Ask, weights: str) -> dict[str, Any]:
    """All that decides what the answers are, as it is read back from JSON."""
    options = {f.name: getattr(ask, f.name) for f in fields(ask) if f.name not in NO_SETTINGS}
    steps = AUTO if ask.auto else ask.total_steps
    options |= {"steps": steps, "weights": weights}
    settings: dict[str, Any] = json.loads(json.dumps(options, default=asdict))
    return settings


def fingerprint(weights: Path) -> str:
    """A short name for the content of a checkpoint directory."""
    weights, digest = checkpoint_directory(weights), hashlib.sha256()
    for path in (weights / "config.json", *sorted(weights.glob("weights-*.safetensors"))):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def _write(
    file: IO[str],
    path: Path,
    answer: Result | str,
    settings: dict[str, Any],
    stamp: Stamp | None,
) -> None:
    """One line, written at once and pushed out, so that a kill cuts one line at most."""
    file.write(line_of(str(path), answer, settings, stamp))
    file.flush()


def line_of(name: str, answer: Result | str, settings: dict[str, Any], stamp: Stamp | None) -> str:
    """One line of results."""
    steps, seed = settings["steps"], settings["seed"]
    made = {"steps": steps, "seed": seed, "settings": settings, "stamp": stamp}
    if isinstance(answer, str):
        line: dict[str, Any] = {"file": name, "error": answer, **made}
    else:
        line = answer.to_full_dict() | {"file": name, **made, "used": answer.steps}
    return json.dumps(line, ensure_ascii=False) + "\n"


def resume(
    out: Path, settings: dict[str, Any], stamps: Mapping[str, Stamp | None], held: ExitStack
) -> set[str]:
    """The files that `out` answers, by what all their spellings have in `normal_path`.

    Lines cut short, with an error, or about what a file of `stamps` was before, are taken out.
    """
    done: set[str] = set()
    if not out.is_file():  # not there yet, or a device or pipe, which has nothing to go on from
        return done
    spoilt: set[int] = set()
    try:
        with out.open("rb") as file:
            for number, line in enumerate(file, 1):
                name = answered(line, f"{out}, line {number}", settings, stamps.get)
                if name is None:
                    spoilt.add(number)
                elif name != STDIN:  # which has something else every time
                    done.add(normal_path(name))
        if spoilt:
            _remove_lines(out, spoilt, held)
    except OSError as error:
        raise DataError(f"{out}: cannot be continued: {error.strerror or error}") from error
    return done


def answered(
    line: bytes, where: str, settings: dict[str, Any], now_of: Callable[[str], Stamp | None]
) -> str | None:
    """The file that a line answers, or None where the line has to be made again."""
    if not line.endswith(b"\n") and line[: len(START)] == START[: len(line)]:
        return None
    try:
        row = json.loads(line)
        name, made = str(row["file"]), dict(row["settings"])
    except (ValueError, KeyError, TypeError):
        raise DataError(
            f"{where}: is no result of this version's `gryphone recognize`; choose another --out"
        ) from None
    if "error" in row and name != STDIN:
        return None
    for key, value in settings.items():
        then = made.get(key, UNSAID.get(key))
        if then != value:
            raise DataError(
                f"{where}: was made with {key} {then}, this run uses {value}; "
                "use the same, or choose another --out"
            )
    then, now = row.get("stamp"), now_of(normal_path(name))
    # Lines of earlier versions have no stamp, and a file that is gone cannot be read again.
    return name if then is None or now is None or then == now else None


def _remove_lines(path: Path, numbers: Collection[int], held: ExitStack) -> None:
    """Write the other lines to a new file, then move it: a kill leaves the old or the new one."""
    path = path.resolve()  # a link stays a link
    fresh = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        with path.open("rb") as old, fresh.open("wb") as new:
            new.writelines(line for n, line in enumerate(old, 1) if n not in numbers)
        shutil.copymode(path, fresh)
        hold(fresh, held)  # before others can see it
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
