"""Commands on text: normalize, tokenize, detokenize, score, compare."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from gryphone.cli.options import RATE_TITLES, AsJson
from gryphone.errors import DataError, GryphoneError
from gryphone.latex.lexer import tokenize as lex
from gryphone.latex.normalize import normalize as spell
from gryphone.latex.normalize import rules_of
from gryphone.scoring.metrics import RATES, Paired, Scores, read_pair, read_samples, score_pair
from gryphone.scoring.metrics import score as score_samples
from gryphone.tokens import scheme_of
from gryphone.writers import TARGETS, check_target, write, writing_to

Convention = Annotated[
    str, typer.Option(help="How to spell: crohme, mathwriting, or none (tokens only).")
]
Spelling = Annotated[
    str, typer.Option(help="How both sides are spelt: crohme, mathwriting, or none (as given).")
]
Scheme = Annotated[str, typer.Option(help="sat (symbol-aware) or raw (LaTeX tokens).")]
Predictions = Annotated[Path, typer.Argument(help="id, truth, prediction in a .tsv or .tsv.xz.")]
Draws = Annotated[int, typer.Option(min=0, help="Bootstrap draws; 0 for no intervals.")]
Seed = Annotated[int, typer.Option(help="Seed of the bootstrap.")]


def register(app: typer.Typer) -> None:
    """Add the text commands to an app."""
    app.command()(normalize)
    app.command()(tokenize)
    app.command()(detokenize)
    app.command()(convert)
    app.command()(score)
    app.command()(compare)


def normalize(convention: Convention = "crohme", as_json: AsJson = False) -> None:
    """Spell LaTeX one way: a line in, a line of tokens out; empty where it cannot be read."""
    rules_of(convention)
    _each_line(lambda line: {"tokens": spell(line, convention)}, as_json)


def convert(
    to: Annotated[
        str,
        typer.Option(help=f"One of {', '.join(TARGETS)}.", autocompletion=lambda: list(TARGETS)),
    ] = "readable",
    docx: Annotated[Path | None, typer.Option(help="Write a Word document of all lines.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write LaTeX in another notation: a line in, a line out; empty where it cannot be said."""
    check_target(to)
    if docx is not None:
        from gryphone.writers.omml import write_docx

        lines = [(number, line.strip()) for number, line in enumerate(sys.stdin, 1) if line.strip()]
        for number, line in lines:
            try:
                write(line, "omml")
            except GryphoneError as error:
                raise DataError(f"line {number}: {error}; nothing was written") from error
        write_docx((line for _, line in lines), docx)
        return
    with writing_to(to) as written:
        _each_line(lambda line: {"tokens": written(line).splitlines(), "format": to}, as_json)


def tokenize(scheme: Scheme = "sat", as_json: AsJson = False) -> None:
    """Take LaTeX apart: a line in, a JSON object out (with or without --json)."""
    kind: Any = scheme_of(scheme)

    def split(line: str) -> dict[str, Any]:
        rows = kind.split(lex(line))
        columns = zip(*rows, strict=True) if rows else ((),) * len(kind.streams)
        streams = {name: list(c) for name, c in zip(kind.streams, columns, strict=True)}
        return {"scheme": scheme, **streams}

    _each_line(split, as_json=True)


def detokenize(as_json: AsJson = False) -> None:
    """Put LaTeX together again: a JSON object of `tokenize` in, a line of tokens out."""
    _each_line(lambda line: {"tokens": _joined(line)}, as_json)


def score(
    file: Predictions,
    convention: Spelling = "crohme",
    as_json: AsJson = False,
    draws: Draws = 1000,
    seed: Seed = 0,
) -> None:
    """Score predictions: EM, ≤1/2/3, CER and SER in percent, as given and normalised."""
    samples = read_samples(file)
    results = {"as given": score_samples(samples, draws=draws, seed=seed)}
    if convention != "none":
        results[convention] = score_samples(samples, convention, draws, seed)
    if as_json:
        given, *normalized = [scores.to_dict() for scores in results.values()]
        report: dict[str, Any] = {**given, "convention": convention}
        if normalized:  # the same keys as those of `evaluate`
            report |= normalized[0] | {"normalized": normalized[0], "raw": given}
        typer.echo(json.dumps(report, indent=2, ensure_ascii=False))
        return
    _print_table(file, results)


def _print_table(file: Path, results: dict[str, Scores]) -> None:
    from rich.console import Console
    from rich.table import Table

    count = next(iter(results.values())).count
    table = Table("%", *results, title=f"{file.name}: {count} samples, 95 % intervals")
    for name in RATES:
        table.add_row(RATE_TITLES[name], *(_cell(scores, name) for scores in results.values()))
    Console().print(table)
    notes = Console(stderr=True, highlight=False, markup=False)
    for title, scores in results.items():
        for problem in scores.problems:
            notes.print(f"{title}: {problem.id}: {problem.reason}", soft_wrap=True)


def _cell(scores: Scores, name: str) -> str:
    return f"{getattr(scores, name):.4f}" + _interval(scores.intervals.get(name))


def _interval(ends: tuple[float, float] | None) -> str:
    return f"  ({ends[0]:.2f} to {ends[1]:.2f})" if ends else ""


def compare(
    a: Predictions,
    b: Predictions,
    convention: Spelling = "crohme",
    common: Annotated[bool, typer.Option("--common", help="Compare the shared ids only.")] = False,
    as_json: AsJson = False,
    draws: Draws = 1000,
    seed: Seed = 0,
) -> None:
    """Compare two systems sample by sample: is B better than A, and is it chance?"""
    paired = score_pair(*read_pair(a, b, common), convention, draws, seed)
    if as_json:
        report = {"files": [str(a), str(b)], "convention": convention, **asdict(paired)}
        typer.echo(json.dumps(report, indent=2, ensure_ascii=False))
        return
    _print_pair(paired, a, b, convention)


def _print_pair(paired: Paired, a: Path, b: Path, convention: str) -> None:
    from rich.console import Console
    from rich.table import Table

    spelling = "as given"
    if convention != "none":
        spelling = f"both sides spelt as in {convention} (--convention none: as given)"
    typer.echo(f"A: {a}\nB: {b}\n{paired.count} samples, {spelling}; 95 % intervals (bootstrap)")
    table = Table("%", "A", "B", "B − A")
    for name in RATES:
        change = f"{paired.difference[name]:+.2f}" + _interval(paired.intervals.get(name))
        table.add_row(RATE_TITLES[name], f"{paired.a[name]:.2f}", f"{paired.b[name]:.2f}", change)
    Console().print(table)
    typer.echo(
        f"right in both {paired.both}, only in A {paired.only_a}, only in B {paired.only_b}; "
        f"p = {paired.p:.2g} (exact McNemar test of EM)"
    )


def _joined(line: str) -> list[str]:
    """The tokens of one JSON object that `tokenize` printed."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON ({error}); give what `gryphone tokenize` prints") from error
    if not isinstance(data, dict):
        raise DataError("not a JSON object; give what `gryphone tokenize` prints")
    kind = scheme_of(str(data.get("scheme")))
    streams = [data.get(name) for name in kind.streams]
    for name, stream in zip(kind.streams, streams, strict=True):
        if not isinstance(stream, list) or not all(isinstance(item, str) for item in stream):
            raise DataError(f"{name!r} is not a list of strings")
    if len({len(stream) for stream in streams if stream is not None}) != 1:
        raise DataError(f"{' and '.join(kind.streams)} differ in length")
    tokens: list[str] = kind.join(zip(*streams, strict=True))
    return tokens


def _each_line(read: Callable[[str], dict[str, Any]], as_json: bool) -> None:
    """A line out for each line of stdin; one that is bad is named, and means exit code 2."""
    wrong = False
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            data = read(line.decode("utf-8").rstrip("\r\n"))
        except (GryphoneError, UnicodeDecodeError) as error:
            wrong, data = True, {"error": f"line {number}: {_reason(error)}"}
            typer.echo(f"gryphone: {data['error']}", err=True)
        typer.echo(
            json.dumps(data, ensure_ascii=False) if as_json else " ".join(data.get("tokens", ()))
        )
    if wrong:
        raise typer.Exit(2)


def _reason(error: Exception) -> str:
    return (
        f"not UTF-8 ({error}); convert it" if isinstance(error, UnicodeDecodeError) else str(error)
    )
