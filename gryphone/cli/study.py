"""`gryphone study`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from gryphone.cli.recognition import Device, progress_bar


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("study")(study)


def study(
    name: Annotated[
        str,
        typer.Argument(
            help="main, crohme, ablation, tradeoff, steps, recovery, diversity, cases (the "
            "paper's), remasking, breakdown, rivals, or all of these; pages (of several formulas), "
            "conditions (of photographs), live (ink while it is written), additions (to the bare "
            "decoder)."
        ),
    ],
    weights: Annotated[
        list[str] | None,
        typer.Option(help="NAME=DIR of a checkpoint whose predictions are made first."),
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="A set of --data to predict; may be repeated.")
    ] = None,
    data: Annotated[Path, typer.Option(help="Folder of the sets: their truths.")] = Path(
        "../shared/data/crohme"
    ),
    predictions: Annotated[
        Path | None, typer.Option(help="Folder of stored predictions (OUT/predictions).")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the tables and plots.")] = Path("studies"),
    convention: Annotated[str, typer.Option(help="Spelling of the truths.")] = "crohme",
    runs: Annotated[int, typer.Option(min=1, help="Independent runs to predict.")] = 10,
    steps: Annotated[str, typer.Option(help="Numbers of steps to predict.")] = "1,2,5,10,20,50",
    limit: Annotated[int | None, typer.Option(help="Only the first samples of a set.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Inks that are predicted together.")] = 128,
    device: Device = "cpu",
) -> None:
    """Make one of the paper's tables or figures from stored predictions, or predict first.

    Stopped, it goes on when it is given again: predictions are kept batch by batch.
    """
    from gryphone.errors import ConfigError, DataError, need

    if name == "pages":
        _pages(weights, sets or ["valid-2013", "valid-2023"], data, out, limit, device)
        return
    if name in ("conditions", "live", "additions"):
        _by_reading(name, weights, sets or ["valid-2023"], data, out, limit)
        return
    from gryphone.recognition.recognizer import load
    from gryphone.studies.measures import Results, Truths
    from gryphone.studies.paper import Material, make, study_names
    from gryphone.studies.predictions import (
        NOISES,
        RECOVERIES,
        REMASKINGS,
        dump,
        methods_of,
        named_weights,
        plan_of,
    )

    names = study_names(name)
    need("matplotlib", "analysis")  # now, not after hours of predicting
    stored = predictions or out / "predictions"
    truths = Truths(data, convention)
    try:
        numbers = [int(number) for number in steps.split(",")]
    except ValueError:
        raise ConfigError(f"--steps {steps}: write numbers with commas: 1,2,5,10") from None
    remaskings = ("diffusion", "mask-predict", *REMASKINGS, *NOISES)
    methods = {"recovery": RECOVERIES, "remasking": remaskings}
    for arm, folder in named_weights(weights or []).items():
        recognizer = load(folder, device)
        columns = plan_of(runs, *methods.get(name, methods_of(recognizer)), steps=numbers)
        for one in sets or ["valid-2013", "valid-2023", "test-2014"]:
            with progress_bar(f"{arm} {one}", limit) as update:
                dump(
                    recognizer,
                    arm,
                    truths.path(one),
                    stored,
                    columns,
                    batch=batch,
                    limit=limit,
                    progress=update,
                )
    material = Material(Results.of(stored, truths), truths, stored)
    if not material.results.measured:
        raise DataError(f"{stored}: holds no stored predictions; give --weights to make some")
    for each in names:
        path = make(each, material, out)
        note = f"{each}: the stored predictions have nothing for it"
        typer.echo(note if path is None else path, err=path is None)


def _pages(
    weights: list[str] | None,
    sets: list[str],
    data: Path,
    out: Path,
    limit: int | None,
    device: str,
) -> None:
    """Made-up pages of real inks, read."""
    from contextlib import ExitStack

    from gryphone.recognition.recognizer import load
    from gryphone.studies.measures import Truths
    from gryphone.studies.pages import study
    from gryphone.studies.predictions import named_weights

    folders = list(named_weights(weights or []).values())
    recognizer = load(folders[0] if folders else None, device)
    truths = Truths(data)
    with ExitStack() as bars:

        def progress(title: str, total: int) -> Callable[[int], None]:
            return bars.enter_context(progress_bar(title, total))

        paths = {each: truths.path(each) for each in sets}
        typer.echo(study(recognizer, paths, out, limit, progress))


def _by_reading(
    name: str,
    weights: list[str] | None,
    sets: list[str],
    data: Path,
    out: Path,
    limit: int | None,
) -> None:
    """A study that reads a set anew, and prints its table."""
    from importlib import import_module

    from gryphone.errors import writing
    from gryphone.studies.measures import Truths
    from gryphone.studies.predictions import named_weights

    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    given = [str(Truths(data, "crohme").path(one)) for one in sets]
    for folder in named_weights(weights or []).values():
        given += ["--weights", str(folder)]
    if limit is not None:
        given += ["--limit", str(limit)]
    module = import_module(f"gryphone.studies.{name}")
    module.main([*given, "--out", str(out / f"{name}.json")])
