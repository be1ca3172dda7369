"""The command that reads handwriting: recognize."""

import json
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gryphone.errors import ConfigError, DataError, GryphoneError, writing
from gryphone.writers import TARGETS, check_target, writing_to

if TYPE_CHECKING:
    from gryphone.recognition.batch import BatchReport
    from gryphone.recognition.page_result import PageResult
    from gryphone.recognition.recognizer import Recognizer
    from gryphone.recognition.result import Result

Weights = Annotated[
    Path | None, typer.Option(help="A checkpoint directory; without it, the package's own.")
]
Device = Annotated[str, typer.Option(help="cpu, or cuda.")]
Views = Annotated[
    int,
    typer.Option(help="Looks at the ink whose predictions are averaged: slower, hardly better."),
]
Unfinished = Annotated[
    bool,
    typer.Option("--unfinished", help="More will be written: trust what is there so far less."),
]
Seed = Annotated[int, typer.Option(help="The same seed gives the same answer.")]

LINES = (".jsonl", ".ndjson", ".json")  # names of a results file
STDOUT = Path("-")
ALSO = ("json", "text")  # what can be printed besides the notations
FORMATS = (*TARGETS, *ALSO)
ENGINES = ("local", "ray")
SHARDS = {"json": "jsonl", "parquet": "parquet"}  # what --engine ray writes, by --format
UNPRINTED = ("Cc", "Cs", "Zl", "Zp")  # Unicode's controls, lone surrogates, line ends
SPEAK = 60  # seconds between two lines of progress where there is no terminal


def register(app: typer.Typer) -> None:
    """Add the command to an app."""
    app.command()(recognize)


def recognize(
    files: Annotated[
        list[str], typer.Argument(help="Images, InkML, strokes JSON, folders, globs; - is stdin.")
    ],
    steps: Annotated[
        str | None, typer.Option(help="Refinement steps; auto, the default: as many as it takes.")
    ] = None,
    n_best: Annotated[int, typer.Option(help="How many alternatives to give.")] = 1,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            help=f"latex (as without it), {', '.join(FORMATS[1:])}.",
            autocompletion=lambda: FORMATS,
        ),
    ] = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write here (- is stdout); .jsonl, .ndjson, .json are JSON Lines, and resumable."
        ),
    ] = None,
    weights: Weights = None,
    device: Device = "cpu",
    workers: Annotated[
        int, typer.Option(min=0, help="Processes that read; on a CPU they answer, too.")
    ] = 0,
    deadline_ms: Annotated[float | None, typer.Option(help="Answer within this time.")] = None,
    hint: Annotated[
        str | None, typer.Option(help="LaTeX with holes: ? is one symbol, ... any run.")
    ] = None,
    lock: Annotated[
        list[str] | None, typer.Option(help="Keep a symbol: --lock POSITION=SYMBOL.")
    ] = None,
    allowed: Annotated[str | None, typer.Option(help="The only symbols to use.")] = None,
    views: Views = 1,
    as_written: Annotated[
        bool,
        typer.Option("--as-written", help="Give what each letter's ink says by itself."),
    ] = False,
    boxed: Annotated[
        bool, typer.Option("--boxed", help="Write a box round the formula as \\boxed{...}.")
    ] = False,
    unfinished: Unfinished = False,
    page: Annotated[
        bool, typer.Option("--page", help="Each file is a page of formulas: find and read all.")
    ] = False,
    engine: Annotated[
        str, typer.Option(help="local, or ray: a cluster, with shards in the folder --out.")
    ] = "local",
) -> None:
    """Read handwritten formulas: one answer for each file, with its name unless one was named."""
    from gryphone.recognition.question import Ask, steps_of

    if engine not in ENGINES:
        raise ConfigError(f"--engine {engine} is unknown; use {' or '.join(ENGINES)}")
    if format_ is not None and engine == "local":
        check_target(format_, ALSO)
    out = None if out == STDOUT else out

    ask = Ask(
        steps=steps_of(steps),
        deadline_ms=deadline_ms,
        seed=seed,
        n_best=n_best,
        hint=hint,
        lock=_locks(lock or []),
        allowed=allowed,
        views=views,
        as_written=as_written,
        boxed=boxed,
        unfinished=unfinished,
    )
    if engine == "ray":
        if out is None or page:
            raise ConfigError("--engine ray writes shards to the folder --out DIR, and no pages")
        _to_shards(files, out, ask, format_ or "json", workers, weights, device)
        return
    names = _inputs(files, out)
    if page:
        _pages(names, ask, format_ or "latex", out, weights, device)
        return
    # A folder or pattern that holds one file today holds two tomorrow: its name is printed, too.
    many = names != [Path(file) for file in files] or len(names) > 1
    if out is not None:
        _check_out(out, many)
    if out is not None and (many or out.suffix.lower() in LINES):
        _check_lines(out, format_)
        _to_results(names, out, ask, workers, weights, device)
    elif many:
        _to_stdout(names, ask, format_ or "latex", workers, weights, device)
    else:
        if out is not None:
            check_writable(out)
        result = load_weights(weights, device).recognize(str(names[0]), ask=ask)
        result = replace(result, name=str(names[0]))
        with _showing(format_ or "latex") as shown:
            emit(shown(result), out)
        _warn(result)


def _pages(
    names: list[Path],
    ask: Any,
    format_: str,
    out: Path | None,
    weights: Path | None,
    device: str,
) -> None:
    """Pages, one after the other: LaTeX as a block for each, JSON as a line, and in the other
    formats one formula after the other."""
    from gryphone.recognition.page import check_ask

    check_ask(ask)
    if out is not None:
        check_writable(out)
    recognizer = load_weights(weights, device)
    printed: list[str] = []
    wrong = 0
    with _stoppable(len(names), "give the rest again") as count, _showing(format_) as shown:
        for done, path in enumerate(names, 1):
            try:
                found = replace(recognizer.recognize_page(str(path), ask=ask), name=str(path))
            except GryphoneError as error:
                wrong += 1
                typer.echo(f"gryphone: {_on_one_line(str(error))}", err=True)
                continue
            name = f"{_on_one_line(str(path))}\t" if len(names) > 1 and format_ != "json" else ""
            texts, refused = _page_lines(found, format_, shown)
            wrong += len(refused)
            for text in texts:
                printed.append(name + text)
                if out is None:
                    typer.echo(printed[-1])
            for note in (*refused, *found.notes):
                typer.echo(f"gryphone: {_on_one_line(str(path))}: {note}", err=True)
            count(done)
    if out is not None:
        emit("\n".join(printed), out)
    if wrong:
        raise typer.Exit(2)


def _page_lines(
    page: "PageResult", format_: str, shown: "Callable[[Result], str]"
) -> tuple[list[str], list[str]]:
    """What is printed of a page, and which of its lines the format has no words for."""
    if format_ in ("json", "latex"):
        return [_json(page.to_dict()) if format_ == "json" else page.latex], []
    texts, refused = [], []
    for number, formula in enumerate(page.formulas, 1):
        try:
            texts.append(shown(formula.result))
        except GryphoneError as error:
            refused.append(f"line {number}: {error}")
    return texts, refused


def _inputs(files: list[str], out: Path | None) -> list[Path]:
    """The files to read; results that lie among them are no input."""
    from gryphone.reading.inputs import STDIN, expand

    if "" in files:
        raise ConfigError("an empty path names nothing to read; for this folder write .")
    if STDIN in files and len(files) > 1:
        raise ConfigError(f"{STDIN} reads one formula from stdin; give it alone")
    if files == [STDIN]:
        return [Path(STDIN)]
    names = expand(files)
    if out is None or not out.is_file():
        return names
    others = [name for name in names if not _is_same_file(name, out)]
    if not others:
        raise ConfigError(f"{out} is to be read and to be written; choose another --out")
    return others


def _is_same_file(name: Path, out: Path) -> bool:
    with suppress(OSError):  # it is not there, or not for us; reading it will say so
        return out.samefile(name)
    return False


def _check_out(out: Path, many: bool) -> None:
    """Refuse a name whose ending promises something else than what would be written."""
    from gryphone.reading.formats import readers

    ending = out.suffix.lower()
    if ending in LINES or not ending or (out.exists() and not out.is_file()):  # or a pipe
        return
    if ending in readers():
        raise ConfigError(f"--out {out}: {ending} is a kind of input; choose .txt or .jsonl")
    if many:
        raise ConfigError(
            f"--out {out}: results of several inputs are JSON Lines; choose a name with .jsonl"
        )


def _check_lines(out: Path, format_: str | None) -> None:
    """A results file has its own format: say so before the work."""
    if format_ not in (None, "json"):
        raise ConfigError(
            f"--format {format_} cannot be written to {out}: results of several inputs, and "
            f"{', '.join(LINES)} files, are JSON Lines; leave out --format, or leave out --out"
        )


def _locks(items: list[str]) -> dict[int, str]:
    locks: dict[int, str] = {}
    for item in items:
        place, separator, symbol = item.partition("=")
        if not separator or not place.strip().isdecimal() or not symbol:
            raise ConfigError(f"--lock {item}: write it as POSITION=SYMBOL, as in --lock 0=x")
        if int(place) in locks:
            raise ConfigError(f"--lock {item}: position {int(place)} has a lock already; keep one")
        locks[int(place)] = symbol
    return locks


def load_weights(
    weights: Path | None, device: str = "cpu", backend: str | None = None
) -> "Recognizer":
    from gryphone.recognition.recognizer import load

    return load(weights, device, backend=backend)


@contextmanager
def _showing(format_: str) -> "Iterator[Callable[[Result], str]]":
    """How results are printed; many of them share the process that SymPy needs."""
    if format_ == "json":
        yield lambda result: _json(result.to_full_dict())
    elif format_ == "text":
        yield lambda result: result.to_text()
    elif format_ == "latex":
        yield _latex
    else:
        with writing_to(format_) as written:
            yield lambda result: written(result.latex)


def _json(data: dict[str, Any]) -> str:
    """One line; a name that is no UTF-8 cannot be printed, and JSON has an escape for that."""
    text = json.dumps(data, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _latex(result: "Result") -> str:
    """One line, or the weighed alternatives where there is more than one."""
    if len(result.n_best) > 1:
        return "\n".join(f"{a.weight:.4f}\t{a.latex}" for a in result.n_best)
    return result.latex if result.as_written is None else result.as_written


def emit(text: str, out: Path | None) -> None:
    if out is None:
        typer.echo(text)
        return
    with writing(out):
        out.write_text(text + "\n", encoding="utf-8")


def _warn(result: "Result") -> None:
    """Say what is doubtful about an answer where stdout has only the answer."""
    from gryphone.recognition.batch import UNSURE

    doubts = list(result.warnings)
    if result.confidence < UNSURE:
        doubts.append(f"only {100 * result.confidence:.0f} % sure")
    for doubt in doubts:
        typer.echo(f"gryphone: {_on_one_line(result.name)}: {doubt}", err=True)


def _on_one_line(text: str) -> str:
    """A file's name may hold line ends, tabs, and bytes that are no text: show them as escapes."""
    return "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) in UNPRINTED else c
        for c in text
    )


def check_writable(out: Path) -> None:
    """Find out before the work, not after it."""
    there = out.exists()
    if there and not out.is_file() and not out.is_dir():
        return  # a device or pipe, whose reader would take a look for the whole answer
    with writing(out, "choose another --out"):
        out.open("a").close()
        if not there:
            out.unlink()


def _to_results(
    names: list[Path], out: Path, ask: Any, workers: int, weights: Path | None, device: str
) -> None:
    """Many files to a results file, with a progress bar; an unreadable file means exit code 2."""
    from gryphone.checkpoint import WEIGHTS
    from gryphone.recognition.batch import fingerprint, run_batch

    check_writable(out)
    with (
        _stoppable(len(names), "the same command goes on") as count,
        progress_bar("recognizing", len(names)) as update,
    ):
        recognizer = load_weights(weights, device)
        made_by = fingerprint(weights or WEIGHTS)

        def progress(done: int, _: int) -> None:
            count(done)
            update(done)

        report = run_batch(recognizer, names, out, ask, workers, progress, made_by)
    _report(report, out)


def _to_shards(
    sources: list[str],
    out: Path,
    ask: Any,
    format_: str,
    workers: int,
    weights: Path | None,
    device: str,
) -> None:
    """As many files as there are to shards of results, by a cluster; its progress is Ray's own."""
    from gryphone.recognition.bulk import run_bulk, start_ray

    if format_ not in SHARDS:
        raise ConfigError(f"--format {format_}: --engine ray writes {' or '.join(SHARDS)}")
    start_ray()  # which has a handler for SIGTERM, too
    with _stoppable(None, "the same command goes on") as count:
        report = run_bulk(
            sources,
            out,
            ask,
            weights=weights,
            device=device,
            actors=workers,
            kind=SHARDS[format_],
            progress=count,
        )
    _report(report, out)


def _report(report: "BatchReport", out: Path) -> None:
    """What a run did, on stderr; errors mean exit code 2."""
    typer.echo(
        f"{out}: {report.recognized} recognized ({report.unsure} unsure, "
        f"{report.warned} with warnings), "
        f"{report.errors} errors, {report.before} done before; "
        f"{report.seconds:.1f} s, {report.per_second:.1f} files/s",
        err=True,
    )
    for reason, number in report.reasons:
        typer.echo(f"  {number} x {_on_one_line(reason)}", err=True)
    if report.errors:
        raise typer.Exit(2)


def _to_stdout(
    names: list[Path], ask: Any, format_: str, workers: int, weights: Path | None, device: str
) -> None:
    """Many files to stdout: name<TAB>answer lines; an error is a line on stderr and exit code 2."""
    from gryphone.recognition.batch import recognize_files

    wrong = 0
    with _stoppable(len(names), "use --out to go on after a stop") as count, ExitStack() as stack:
        recognizer = load_weights(weights, device)
        shown = stack.enter_context(_showing(format_))
        answers = stack.enter_context(closing(recognize_files(recognizer, names, ask, workers)))
        for done, (path, answer) in enumerate(answers, 1):
            try:
                _print_answer(path, answer, format_, shown)
            except GryphoneError as error:
                wrong += 1
                typer.echo(f"gryphone: {_on_one_line(str(error))}", err=True)
            count(done)
    if wrong:
        raise typer.Exit(2)


def _print_answer(
    path: Path, answer: "Result | str", format_: str, shown: "Callable[[Result], str]"
) -> None:
    """One of several answers, with its file's name on every line."""
    if isinstance(answer, str):
        raise DataError(answer)
    result = replace(answer, name=str(path))
    text = shown(result)
    if format_ != "json":  # which has the name inside
        name = _on_one_line(str(path))
        text = "\n".join(f"{name}\t{line}" for line in text.splitlines())
    typer.echo(text)
    _warn(result)


@contextmanager
def _stoppable(total: int | None, remedy: str) -> Iterator[Callable[[int], None]]:
    """Turn Ctrl-C and SIGTERM into a line that says how far the work got, and exit code 130."""
    from concurrent.futures.process import BrokenProcessPool

    from gryphone.interrupt import Interrupts

    done = 0
    of = "" if total is None else f" of {total}"

    def count(number: int) -> None:
        nonlocal done
        done = number

    try:
        with Interrupts():  # SIGTERM too ends the workers, and leaves nothing behind
            yield count
    except KeyboardInterrupt:
        typer.echo(f"gryphone: stopped: {done}{of} done; {remedy}", err=True)
        raise typer.Exit(130) from None
    except BrokenProcessPool:
        raise DataError(
            f"a worker was killed, perhaps for want of memory: {done}{of} done; {remedy}; "
            "use fewer --workers"
        ) from None


@contextmanager
def progress_bar(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, or a line every minute where that is no terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _progress_lines(title, total)
        return
    with Progress(*columns, *times, console=console, transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done: progress.update(task, completed=done)


def _progress_lines(title: str, total: int | None) -> Callable[[int], None]:
    spoke = time.monotonic()

    def update(done: int) -> None:
        nonlocal spoke
        if time.monotonic() - spoke >= SPEAK:
            spoke = time.monotonic()
            of = "" if total is None else f" of {total}"
            typer.echo(f"gryphone: {title}: {done}{of} done", err=True)

    return update
