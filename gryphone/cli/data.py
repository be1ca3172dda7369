"""Commands on data sets: pack, stats, show."""

import itertools
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gryphone.cli.options import AsJson
from gryphone.errors import DataError

if TYPE_CHECKING:
    from gryphone.data.packing import PackReport
    from gryphone.data.samples import Sample, Samples
    from gryphone.data.stats import Stats

Paths = Annotated[
    list[Path], typer.Argument(help="Folders or tar archives of ink, or parts of one data set.")
]
Convention = Annotated[str, typer.Option(help="How labels are spelt: crohme, mathwriting or none.")]
SHOWN = 10  # names listed of each kind of problem; --json lists them all


def register(app: typer.Typer) -> None:
    """Add the `data` commands to an app."""
    data = typer.Typer(no_args_is_help=True, help="Look at data sets and pack them for training.")
    data.command()(pack)
    data.command()(stats)
    data.command()(show)
    app.add_typer(data, name="data")


def pack(
    paths: Paths,
    out: Annotated[Path, typer.Option(help="The Parquet file to write.")],
    convention: Convention = "crohme",
    keep_broken: Annotated[
        bool, typer.Option(help="Keep inks whose label cannot be normalised (for test sets).")
    ] = False,
    boxes: Annotated[
        Path | None, typer.Option(help="Symbol boxes of images (.jsonl or .jsonl.xz).")
    ] = None,
    photograph: Annotated[
        int | None,
        typer.Option(help="Draw inks on paper and trace them again; the number is a seed."),
    ] = None,
    retake: Annotated[
        int | None,
        typer.Option(help="Picture images anew (turned, resized, fainter); the number is a seed."),
    ] = None,
    takes: Annotated[
        int, typer.Option(min=1, help="Pictures of each sample, with seeds one after another.")
    ] = 1,
    conditions: Annotated[
        float,
        typer.Option(min=0, max=1, help="Share of pictures with boxes, dust, fingertips."),
    ] = 0.0,
    pieces: Annotated[
        str | None,
        typer.Option(
            help="Pack pieces of the inks: lone:MOST of each symbol, beginnings:MOST of each ink, "
            "rows:COUNT:LEAST, formulas side by side of so many tokens, or struck:COUNT, inks with "
            "something struck out."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Which --pieces.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes that make pictures.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Pack inks (images are traced) and labels into one small file that loads in a moment."""
    import time

    from gryphone.data.datasets import read_dataset
    from gryphone.data.images import read_boxes, trace_images
    from gryphone.data.packing import write_packed
    from gryphone.data.pieces import read_pieces
    from gryphone.synth.photographs import photograph_inks
    from gryphone.synth.retakes import retake_images

    if takes > 1 and photograph is None and retake is None:
        raise DataError("--takes needs a picture to take: add --photograph SEED or --retake SEED")
    if conditions and photograph is None and retake is None:
        raise DataError("--conditions are those of pictures: add --photograph or --retake SEED")
    began = time.perf_counter()
    known = read_boxes(boxes) if boxes else {}

    def take(number: int) -> "Samples":
        samples = read_dataset(*paths)
        if retake is not None:
            samples = retake_images(samples, known, retake + number, workers, conditions)
        samples = trace_images(samples, known)
        if pieces is not None:
            samples = read_pieces(pieces, samples, seed)
        if photograph is not None:
            samples = photograph_inks(samples, photograph + number, workers, conditions)
        return samples

    samples = itertools.chain.from_iterable(map(take, range(takes)))
    with _progress("packing") as progress:
        report = write_packed(
            samples,
            out,
            convention=convention,
            keep_broken=keep_broken,
            progress=progress,
        )
    seconds = time.perf_counter() - began
    if len(report.splits) > 1:
        mixed = ", ".join(f"{count:,} {name}" for name, count in report.splits.items())
        remedy = "give each split a store of its own, or training sees what it is tested with"
        typer.echo(f"{out} mixes splits ({mixed}); {remedy}", err=True)
    if as_json:
        typer.echo(json.dumps(_pack_json(report, out, seconds), ensure_ascii=False))
    else:
        _print_pack(report, out, seconds)


def _pack_json(report: "PackReport", out: Path, seconds: float) -> dict[str, Any]:
    from dataclasses import asdict

    rate = report.read / max(seconds, 1e-9)
    facts = {"out": str(out), "seconds": round(seconds, 2), "inks_per_second": round(rate, 1)}
    return facts | asdict(report)


def _print_pack(report: "PackReport", out: Path, seconds: float) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("", "", title=str(out), show_header=False)
    per_ink = report.bytes / report.packed
    table.add_row("inks packed", f"{report.packed:,} of {report.read:,} samples")
    table.add_row("size", f"{report.bytes:,} bytes, {per_ink:.0f} per ink")
    table.add_row("points kept", f"{report.points_packed:,} of {report.points_read:,}")
    table.add_row("symbols aligned", f"{report.glyphs_aligned:,} of {report.glyphs:,}")
    for name, count in sorted(report.agreement.items()):
        table.add_row(f"segmentation and label: {name}", f"{count:,}")
    table.add_row("time", f"{seconds:.1f} s, {report.read / max(seconds, 1e-9):,.0f} inks/s")
    Console().print(table)
    problems = {"left out or kept as it was": [f"{n}: {why}" for n, why in report.left_out()]}
    problems["segmentation contradicts the label, and was dropped"] = report.contradicting
    _print_problems(problems)


def _print_problems(problems: dict[str, list[str]]) -> None:
    from rich.console import Console

    notes = Console(stderr=True, highlight=False, markup=False)
    for title, names in problems.items():
        if names:
            notes.print(f"{title}: {len(names)}")
            for name in names[:SHOWN]:
                notes.print(f"  {name}", soft_wrap=True)
            if len(names) > SHOWN:
                notes.print(f"  and {len(names) - SHOWN} more; --json lists them all")


def stats(
    paths: Annotated[list[Path], typer.Argument(help="Packed .parquet files, or data sets.")],
    convention: Convention = "crohme",
    plot: Annotated[Path | None, typer.Option(help="Also draw the distributions here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Count and measure: lengths, token frequencies, aspect ratios, inked patches."""
    from gryphone.data.datasets import read_dataset
    from gryphone.data.packed import read_packed
    from gryphone.data.stats import dataset_stats, packed_stats
    from gryphone.data.stats import plot as draw_plot

    with _progress("measuring") as progress:
        if all(path.suffix == ".parquet" for path in paths):
            result = packed_stats(read_packed(paths), progress=progress)
        else:
            result = dataset_stats(read_dataset(*paths), convention, progress)
    if plot is not None:
        draw_plot(result, plot)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), ensure_ascii=False))
    else:
        _print_stats(result)


def _print_stats(result: "Stats") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    title = f"{len(result.sources):,} samples, {result.distinct_labels:,} distinct labels"
    table = Table("source", "count", "measure", "mean", "1 %", "median", "99 %", "max", title=title)
    for name, count, measures in result.rows():
        first = (name, f"{count:,}")
        for measure, figures in measures.items():
            if figures:
                numbers = [f"{value:,.2f}".rstrip("0").rstrip(".") for value in figures.values()]
                table.add_row(*first, measure, *numbers)
                first = ("", "")
        table.add_section()
    console.print(table)
    for kind, counts in (("symbols", result.symbols), ("modifiers", result.modifiers)):
        common = "  ".join(f"{token or '(none)'} {n:,}" for token, n in counts.most_common(40))
        console.print(f"{len(counts)} {kind}: {common}", markup=False, highlight=False)
    _print_problems({"left out": [f"{name}: {why}" for name, why in result.left_out]})


def show(
    paths: Annotated[list[Path], typer.Argument(help="Packed .parquet files, or data sets.")],
    out: Annotated[Path, typer.Option(help="The picture to write (.png).")],
    count: Annotated[int, typer.Option(min=1, max=2000, help="How many samples to draw.")] = 40,
    seed: Annotated[int, typer.Option(help="Which samples: the same seed draws the same.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Draw a random choice of samples with their labels to a contact sheet."""
    from gryphone.data.contact_sheet import contact_sheet

    with _progress("choosing") as progress:
        chosen, left_out = _choose(paths, count, random.Random(seed), progress)
    try:
        contact_sheet(chosen).save(out)
    except (OSError, ValueError) as error:
        raise DataError(f"{out}: cannot write the picture: {error}") from error
    if as_json:
        drawn = [{"id": s.id, "source": s.source, "label": s.label} for s in chosen]
        lost = [{"name": name, "reason": why} for name, why in left_out]
        typer.echo(json.dumps({"out": str(out), "drawn": drawn, "left_out": lost}))
    else:
        typer.echo(f"{out}: {len(chosen)} samples")
        _print_problems({"unreadable": [f"{name}: {why}" for name, why in left_out]})


def _choose(
    paths: list[Path], count: int, draw: random.Random, progress: Callable[[int], None]
) -> tuple[list["Sample"], list[tuple[str, str]]]:
    """A fair choice in one pass over a stream of unknown length, in the stream's order."""
    from gryphone.data.datasets import read_dataset
    from gryphone.data.packed import read_packed
    from gryphone.data.samples import Sample, without_name

    if all(path.suffix == ".parquet" for path in paths):
        packed = read_packed(paths)
        rows = sorted(draw.sample(range(len(packed)), min(count, len(packed))))
        inks = [(packed.sources[row], packed.ink(row)) for row in rows]
        return [Sample(ink.id, source, ink.label, ink=ink) for source, ink in inks], []
    kept: list[tuple[int, Sample]] = []
    left_out: list[tuple[str, str]] = []
    seen = 0
    for sample in read_dataset(*paths):
        if not isinstance(sample, Sample):
            left_out.append((sample.name, without_name(sample.name, sample.error)))
            continue
        seen += 1
        progress(seen)
        if len(kept) < count:
            kept.append((seen, sample))
        elif (slot := draw.randrange(seen)) < count:
            kept[slot] = (seen, sample)
    kept.sort(key=lambda item: item[0])
    return [sample for _, sample in kept], left_out


@contextmanager
def _progress(title: str) -> Iterator[Callable[[int], None]]:
    """A counter on stderr; how many samples a stream holds is not known before its end."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description} {task.completed:,} samples"))
    with Progress(
        *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done: bar.update(task, completed=done)
