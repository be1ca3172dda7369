"""Commands that say how good the recogniser is, and what it is: evaluate, info, demo."""

import json
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gryphone.cli.options import RATE_TITLES, AsJson
from gryphone.cli.recognition import (
    STDOUT,
    Device,
    Seed,
    Unfinished,
    Views,
    Weights,
    check_writable,
    emit,
    load_weights,
    progress_bar,
)
from gryphone.errors import ConfigError, DataError, GryphoneError

if TYPE_CHECKING:
    from gryphone.scoring.evaluate import Evaluation


def register(app: typer.Typer) -> None:
    """Add the commands to an app."""
    app.command()(evaluate)
    app.command()(info)
    app.command()(demo)


def evaluate(
    dataset: Annotated[
        list[Path],
        typer.Argument(help="InkML with truths, images with labels.tsv, or packed .parquet."),
    ],
    steps: Annotated[str, typer.Option(help="Refinement steps; auto: as many as it takes.")] = "10",
    limit: Annotated[int | None, typer.Option(help="Only the first samples.")] = None,
    seed: Seed = 0,
    runs: Annotated[int, typer.Option(min=1, help="Independent decodes of each sample.")] = 1,
    views: Views = 1,
    method: Annotated[
        str, typer.Option(help="diffusion, or mask-predict: the least sure are masked again.")
    ] = "diffusion",
    plain: Annotated[
        bool,
        typer.Option("--plain", help="The last step alone: no valid-LaTeX search, no second look."),
    ] = False,
    unfinished: Unfinished = False,
    beam: Annotated[
        int, typer.Option(help="Hypotheses of weights that write from left to right (kind ar).")
    ] = 1,
    lg: Annotated[
        Path | None, typer.Option(help="Label graphs (.lg) to compare with, by file name.")
    ] = None,
    convention: Annotated[
        str | None, typer.Option(help="Spelling of the normalised score (the weights' own).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write id, truth, prediction as .tsv; - is stdout.")
    ] = None,
    as_json: AsJson = False,
    weights: Weights = None,
    device: Device = "cpu",
    backend: Annotated[
        str | None, typer.Option(help="onnx, or torch; by default what the device needs.")
    ] = None,
) -> None:
    """Score the recogniser on a data set; nothing is left out."""
    from gryphone.recognition.question import steps_of
    from gryphone.scoring.evaluate import evaluate as run

    for path in dataset:
        if not path.exists():
            raise DataError(f"{path}: no such file or folder")
    if as_json and out == STDOUT:
        raise ConfigError("--json and --out - would both write to stdout; choose one of them")
    if out is not None and out != STDOUT:
        check_writable(out)
    recognizer = load_weights(weights, device, backend)
    with progress_bar("reading", limit) as update:
        report = run(
            recognizer,
            *dataset,
            steps=steps_of(steps),
            limit=limit,
            seed=seed,
            runs=runs,
            views=views,
            method=method,
            plain=plain,
            unfinished=unfinished,
            beam=beam,
            lg=lg,
            convention=convention,
            progress=update,
        )
    if out is not None:
        rows = ((s.id, s.truth, s.prediction or "") for s in report.predictions)
        clean = ("\t".join(" ".join(field.split()) for field in row) for row in rows)
        emit("\n".join(clean), None if out == STDOUT else out)
    if lg is not None:
        _print_graph_truths(report)
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2, ensure_ascii=False))
    else:
        _print_evaluation(report, on_stderr=out == STDOUT)


def _print_graph_truths(report: "Evaluation") -> None:
    """Say it where not every truth's graph is the archive's."""
    from gryphone.scoring.evaluate import GRAPH_TRUTHS

    found, latex, unreadable = (report.graph_truths[name] for name in GRAPH_TRUTHS)
    if not latex + unreadable:
        return
    rest = {"compared with the truth's LaTeX": latex, "unreadable and counted as wrong": unreadable}
    typer.echo(
        f"{found} of {len(report.predictions)} truths from {report.graph_source}; "
        + ", ".join(f"{count} {how}" for how, count in rest.items() if count),
        err=True,
    )


def _print_evaluation(report: "Evaluation", on_stderr: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    given, normalized, graph = report.given[0], report.normalized[0], report.graphs[0]
    rate = given.count / max(report.seconds, 1e-9)
    how = ", plain" * report.plain + f", {report.method}" * (report.method != "diffusion")
    how += f", beam {report.beam}" * (report.beam > 1)
    title = (
        f"{report.name}: {given.count} samples, T={report.steps}{how}, "
        f"{report.passes:.1f} passes each, "
        f"seed {report.seed}, {rate:.1f} per second; 95 % intervals"
    )
    table = Table("%", "as given", report.convention, f"graph ({report.graph_source})", title=title)
    graphs = {"em": graph.exact, "le1": graph.le1, "le2": graph.le2}
    for name, shown in RATE_TITLES.items():
        cells = [_interval(scores, name) for scores in (given, normalized)]
        table.add_row(shown, *cells, f"{graphs[name]:.2f}" if name in graphs else "")
    Console(stderr=on_stderr).print(table)
    if len(report.given) > 1:
        mean = report.runs()
        em, exact = mean["em"], mean["graph"]["exact"]
        typer.echo(
            f"{mean['count']} runs: EM {em['mean']:.2f} ± {em['sd']:.2f}, "
            f"graph {exact['mean']:.2f} ± {exact['sd']:.2f} (mean, standard deviation)",
            err=on_stderr,
        )
    known = {problem.id for problem in report.unreadable}
    others = (problem for problem in normalized.problems if problem.id not in known)
    for problem in (*report.unreadable, *others):
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
    typer.echo("\n".join(_on_one_screen(facts)))


def _on_one_screen(facts: dict[str, Any]) -> Iterator[str]:
    """What a person wants to know, a line each."""
    torch = f"PyTorch {facts['torch']}" if facts["torch"] else "no PyTorch (gryphone[torch])"
    runtime = f"ONNX Runtime {facts['onnxruntime']}"
    yield f"version: {facts['version']}, Python {facts['python']}, {runtime}, {torch}"
    yield f"devices: {', '.join(facts['devices'])}"
    if facts["weights"] is None:
        yield f"weights: none; {facts['problem']}"
        return
    own = facts["facts"]
    sizes = ", ".join(f"{count} {name}" for name, count in facts["vocabulary"].items())
    millions = facts["parameters"] / 1e6
    yield f"weights: {facts['weights']}"
    yield f"model: {own.get('name', 'nameless')}, {millions:.1f} million parameters"
    yield f"vocabulary: {sizes}, spelt as in {own.get('convention', 'crohme')}"
    yield f"licence: {own.get('licence', 'not stated')}"
    for text in own.get("data", ()):
        yield f"trained on: {text}"
    for name, rates in own.get("metrics", {}).items():
        if isinstance(rates, dict) and "em" in rates:
            yield f"{name}: EM {rates['em']:.1f} % of {rates.get('count', '?')} samples"
    yield "the rest, all symbols among it: gryphone info --json"


def _facts(weights: Path | None) -> dict[str, Any]:
    from importlib.metadata import version

    from gryphone import __version__
    from gryphone.checkpoint import WEIGHTS

    facts: dict[str, Any] = {
        "version": __version__,
        "python": sys.version.split()[0],
        "onnxruntime": version("onnxruntime"),
        "torch": None,
        "devices": [f"cpu ({os.cpu_count()} cores)"],
    }
    if find_spec("torch") is not None:
        import torch

        facts["torch"] = torch.__version__
        cuda = range(torch.cuda.device_count())
        facts["devices"] += [torch.cuda.get_device_name(i) for i in cuda]
    try:
        recognizer = load_weights(weights)
    except GryphoneError as error:
        if weights is not None:
            raise
        return facts | {"weights": None, "problem": str(error)}
    checkpoint = recognizer.checkpoint
    vocabularies = zip(checkpoint.tokenizer.streams, checkpoint.tokenizer.vocabularies, strict=True)
    sizes = {name: len(vocabulary.names) for name, vocabulary in vocabularies}
    return facts | {
        "weights": str(weights or WEIGHTS),
        "parameters": checkpoint.parameters,
        "tokens": checkpoint.tokenizer.scheme,
        "vocabulary": sizes,
        "facts": checkpoint.facts,
        "symbols": list(checkpoint.tokenizer.vocabularies[0].names),
    }


def demo(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Examples as in the repository's examples/; without it, three of them."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The picture of one refinement.")] = Path(
        "demo-refinement.png"
    ),
    weights: Weights = None,
    device: Device = "cpu",
) -> None:
    """Recognise the bundled examples, and draw how one of them is refined."""
    from gryphone.cli.demo import BUNDLED, run

    check_writable(out)
    run(load_weights(weights, device), out, typer.echo, folder or BUNDLED)
