"""`gryphone train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gryphone.errors import need


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("train")(train_command)


def train_command(
    config: Annotated[Path, typer.Argument(help="A YAML file; see configs/ for examples.")],
    minutes: Annotated[
        float | None, typer.Option(help="Wall-clock budget; the schedule fits it.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Stop after this many steps.")] = None,
    init: Annotated[
        Path | None,
        typer.Option(help="Start from this checkpoint's weights; `default` are the package's."),
    ] = None,
    out: Annotated[str | None, typer.Option(help="Folder of the runs.")] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a setting: --set lr=5e-4, --set model.length=200."),
    ] = None,
) -> None:
    """Train a recogniser; a run that was stopped or killed goes on where it was last saved."""
    for module in ("torch", "accelerate"):
        need(module, "train")
    from gryphone.training.settings import changes_of, load_config
    from gryphone.training.train import leave_processes, train

    overrides = changes_of(change or [])
    named = {"minutes": minutes, "steps": steps, "out": out}
    overrides |= {k: v for k, v in named.items() if v is not None}
    try:
        train(load_config(config, overrides), init=init, report=typer.echo)
    except KeyboardInterrupt:
        typer.echo("gryphone: stopped", err=True)
        raise typer.Exit(130) from None
    finally:
        leave_processes()
