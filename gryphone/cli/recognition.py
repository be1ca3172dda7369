"""Commands that read handwriting: recognize, evaluate, info, demo."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gryphone.errors import ConfigError, DataError, GryphoneError

if TYPE_CHECKING:
    from gryphone.evaluate import Evaluation
    from gryphone.recognize import Recognizer
    from gryphone.result import Result

Weights = Annotated[
    Path | None, typer.Option(help="A checkpoint directory; without it, the package's own.")
]
Device = Annotated[str, typer.Option(help="cpu, or cuda.")]
Views = Annotated[
    int, typer.Option(help="Looks at the ink whose predictions are averaged: slower, better.")
]
Seed = Annotated[int, typer.Option(help="The same seed gives the same answer.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON to stdout.")]
TITLES = {"em": "EM", "le1": "≤1", "le2": "≤2", "le3": "≤3", "cer": "CER", "ser": "SER"}


class Format(StrEnum):
    """How answers are printed."""

    latex = "latex"
    json = "json"
    mathml = "mathml"
    text = "text"


def register(app: typer.Typer) -> None:
    """Add the commands to an app."""
    app.command()(recognize)
    app.command()(evaluate)
    app.command()(info)
    app.command()(demo)


def recognize(
    files: Annotated[
        list[str], typer.Argument(help="Images, InkML, strokes JSON, folders, globs; - is stdin.")
    ],
    steps: Annotated[int | None, typer.Option(help="Refinement steps (10).")] = None,
    n_best: Annotated[int, typer.Option(help="How many alternatives to give.")] = 1,
    format_: Annotated[Format, typer.Option("--format", help="What to print.")] = Format.latex,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Write here; .jsonl can be continued after a kill.")
    ] = None,
    weights: Weights = None,
    device: Device = "cpu",
    workers: Annotated[int, typer.Option(min=0, help="Processes that read ahead (0: none).")] = 0,
    deadline_ms: Annotated[float | None, typer.Option(help="Answer within this time.")] = None,
    hint: Annotated[
        str | None, typer.Option(help="LaTeX with holes: ? is one symbol, ... any run.")
    ] = None,
    lock: Annotated[
        list[str] | None, typer.Option(help="Keep a symbol: --lock POSITION=SYMBOL.")
    ] = None,
    allowed: Annotated[str | None, typer.Option(help="The only symbols to use.")] = None,
    views: Views = 1,
) -> None:
    """Read handwritten formulas: one answer for each file."""
    from gryphone.inputs import STDIN, expand
    from gryphone.options import Ask

    ask = Ask(
        steps=steps,
        deadline_ms=deadline_ms,
        seed=seed,
        n_best=n_best,
        hint=hint,
        lock=_locks(lock or []),
        allowed=allowed,
        views=views,
    )
    if STDIN in files and len(files) > 1:
        raise ConfigError("- reads one formula from stdin; give it alone")
    names = [Path(STDIN)] if files == [STDIN] else expand(files)
    many = len(names) > 1 or any(Path(f).is_dir() for f in files)
    if out is not None and (many or out.suffix in (".jsonl", ".json")):
        _to_results(names, out, ask, workers, weights, device)
    elif many:
        _to_stdout(names, ask, format_, workers, weights, device)
    else:
        if out is not None:
            _check_writable(out)
        result = _load(weights, device).recognize(str(names[0]), ask=ask)
        _emit(_shown(replace(result, name=str(names[0])), format_), out)


def _locks(items: list[str]) -> dict[int, str]:
    locks: dict[int, str] = {}
    for item in items:
        place, separator, symbol = item.partition("=")
        if not separator or not place.strip().isdecimal() or not symbol:
            raise ConfigError(f"--lock {item}: write it as POSITION=SYMBOL, as in --lock 0=x")
        locks[int(place)] = symbol
    return locks


def _load(weights: Path | None, device: str = "cpu") -> "Recognizer":
    from gryphone.recognize import load

    return load(weights, device)


def _shown(result: "Result", format_: Format) -> str:
    if format_ is Format.json:
        return json.dumps(result.to_full_dict(), ensure_ascii=False)
    if format_ is Format.mathml:
        return result.mathml
    return result.to_text() if format_ is Format.text else _latex(result)


def _latex(result: "Result") -> str:
    """One line, or the weighed alternatives where there is more than one."""
    if len(result.n_best) > 1:
        return "\n".join(f"{a.weight:.4f}\t{a.latex}" for a in result.n_best)
    return result.latex


def _emit(text: str, out: Path | None) -> None:
    if out is None:
        typer.echo(text)
        return
    try:
        out.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise DataError(f"{out}: cannot be written: {error.strerror or error}") from error


def _check_writable(out: Path) -> None:
    """Find out before the work, not after it."""
    there = out.exists()
    try:
        with out.open("a"):
            pass
        if not there:
            out.unlink()
    except OSError as error:
        raise DataError(
            f"{out}: cannot be written: {error.strerror or error}; choose another --out"
        ) from error


def _to_results(
    names: list[Path], out: Path, ask: Any, workers: int, weights: Path | None, device: str
) -> None:
    """Many files to a results file, with a progress bar."""
    from gryphone.batch import run_batch

    _check_writable(out)
    recognizer = _load(weights, device)
    with _bar("recognizing", len(names)) as update:
        report = run_batch(recognizer, names, out, ask, workers, lambda done, _: update(done))
    typer.echo(
        f"{out}: {report.recognized} recognized, {report.errors} errors, {report.before} done "
        f"before; {report.seconds:.1f} s, {report.per_second:.1f} files/s",
        err=True,
    )


def _to_stdout(
    names: list[Path], ask: Any, format_: Format, workers: int, weights: Path | None, device: str
) -> None:
    """Many files to stdout: name<TAB>answer lines; an error is a line on stderr and exit code 2."""
    from gryphone.batch import recognize_files

    wrong = 0
    for path, answer in recognize_files(_load(weights, device), names, ask, workers):
        if isinstance(answer, str):
            wrong += 1
            typer.echo(f"gryphone: {answer}", err=True)
        elif format_ is Format.json:
            typer.echo(json.dumps(answer.to_dict() | {"file": str(path)}, ensure_ascii=False))
        else:
            typer.echo(f"{path}\t{_shown(answer, format_)}")
    if wrong:
        raise typer.Exit(2)


@contextmanager
def _bar(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr."""
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
    with Progress(*columns, *times, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done: progress.update(task, completed=done)


def evaluate(
    dataset: Annotated[
        list[Path],
        typer.Argument(help="InkML with truths, images with labels.tsv, or packed .parquet."),
    ],
    steps: Annotated[int, typer.Option(help="Refinement steps.")] = 10,
    limit: Annotated[int | None, typer.Option(help="Only the first samples.")] = None,
    seed: Seed = 0,
    runs: Annotated[int, typer.Option(help="Independent decodes of each sample.")] = 1,
    views: Views = 1,
    lg: Annotated[
        Path | None, typer.Option(help="Label graphs (.lg) to compare with, by file name.")
    ] = None,
    convention: Annotated[
        str | None, typer.Option(help="Spelling of the normalised score (the weights' own).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write id, truth, prediction as .tsv.")] = None,
    as_json: AsJson = False,
    weights: Weights = None,
    device: Device = "cpu",
) -> None:
    """Score the recogniser on a data set; nothing is left out."""
    from gryphone.evaluate import evaluate as run

    for path in dataset:
        if not path.exists():
            raise DataError(f"{path}: no such file or folder")
    if out is not None:
        _check_writable(out)
    recognizer = _load(weights, device)
    with _bar("reading", limit) as update:
        report = run(
            recognizer,
            *dataset,
            steps=steps,
            limit=limit,
            seed=seed,
            runs=runs,
            views=views,
            lg=lg,
            convention=convention,
            progress=update,
        )
    if out is not None:
        rows = ((s.id, s.truth, s.prediction or "") for s in report.predictions)
        clean = ("\t".join(" ".join(field.split()) for field in row) for row in rows)
        _emit("\n".join(clean), out)
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2, ensure_ascii=False))
    else:
        _print_evaluation(report)


def _print_evaluation(report: "Evaluation") -> None:
    from rich.console import Console
    from rich.table import Table

    given, normalized, graph = report.given[0], report.normalized[0], report.graphs[0]
    rate = given.count / max(report.seconds, 1e-9)
    title = (
        f"{report.name}: {given.count} samples, T={report.steps}, seed {report.seed}, "
        f"{rate:.1f} per second; 95 % intervals"
    )
    table = Table("%", "as given", report.convention, f"graph ({report.graph_source})", title=title)
    graphs = {"em": graph.exact, "le1": graph.le1, "le2": graph.le2}
    for name, shown in TITLES.items():
        cells = [_interval(scores, name) for scores in (given, normalized)]
        table.add_row(shown, *cells, f"{graphs[name]:.2f}" if name in graphs else "")
    Console().print(table)
    if len(report.given) > 1:
        mean = report.runs()
        em, exact = mean["em"], mean["graph"]["exact"]
        typer.echo(
            f"{mean['count']} runs: EM {em['mean']:.2f} ± {em['sd']:.2f}, "
            f"graph {exact['mean']:.2f} ± {exact['sd']:.2f} (mean, standard deviation)"
        )
    for problem in (*report.unreadable, *normalized.problems):
        typer.echo(f"{problem.id}: {problem.reason}", err=True)


def _interval(scores: Any, name: str) -> str:
    low, high = scores.intervals[name]
    return f"{getattr(scores, name):.2f}  ({low:.1f} to {high:.1f})"


def info(weights: Weights = None, as_json: AsJson = False) -> None:
    """Say what is installed: version, weights, vocabulary, devices."""
    facts = _facts(weights)
    if as_json:
        typer.echo(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    for name, value in facts.items():
        if isinstance(value, list):
            value = " ".join(str(v) for v in value)
        elif isinstance(value, dict):
            value = json.dumps(value, ensure_ascii=False)
        typer.echo(f"{name.replace('_', ' ')}: {value}")


def _facts(weights: Path | None) -> dict[str, Any]:
    import torch

    from gryphone import __version__
    from gryphone.recognize import WEIGHTS

    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    facts: dict[str, Any] = {
        "version": __version__,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "devices": [f"cpu ({torch.get_num_threads()} threads)", *cuda],
    }
    try:
        recognizer = _load(weights)
    except GryphoneError as error:
        if weights is not None:
            raise
        return facts | {"weights": None, "problem": str(error)}
    checkpoint = recognizer.checkpoint
    vocabularies = zip(checkpoint.tokenizer.streams, checkpoint.tokenizer.vocabularies, strict=True)
    sizes = {name: len(vocabulary) for name, vocabulary in vocabularies}
    return facts | {
        "weights": str(weights or WEIGHTS),
        "parameters": checkpoint.parameters,
        "tokens": checkpoint.tokenizer.scheme,
        "vocabulary": sizes,
        "facts": checkpoint.facts,
        "symbols": list(checkpoint.tokenizer.vocabularies[0].tokens[2:]),
    }


def demo(
    out: Annotated[Path, typer.Option(help="The picture of one refinement.")] = Path(
        "demo-refinement.png"
    ),
    weights: Weights = None,
) -> None:
    """Recognise the bundled examples, and draw how one of them is refined."""
    from gryphone.demo import run

    _check_writable(out)
    run(_load(weights), out, typer.echo)
