"""`gryphone train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gryphone.errors import ConfigError, need


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("train")(train_command)


def train_command(
    config: Annotated[Path, typer.Argument(help="A YAML file; see configs/ for examples.")],
    minutes: Annotated[
        float | None, typer.Option(help="Wall-clock budget; the schedule fits it.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Stop after this many steps.")] = None,
    init: Annotated[Path | None, typer.Option(help="Start from this checkpoint's weights.")] = None,
    out: Annotated[str | None, typer.Option(help="Folder of the runs.")] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a setting: --set lr=5e-4, --set model.length=200."),
    ] = None,
) -> None:
    """Train a recogniser; a run that was stopped or killed goes on where it was last saved."""
    need("accelerate", "train")
    import yaml

    from gryphone.config import load_config
    from gryphone.train import train

    overrides: dict[str, object] = {}
    for item in change or []:
        key, separator, value = item.partition("=")
        if not separator:
            raise ConfigError(f"--set {item}: write it as name=value")
        try:
            overrides[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            reason = getattr(error, "problem", None) or "put it in quotes"
            raise ConfigError(f"--set {item}: {value!r} is no YAML value: {reason}") from error
    named = {"minutes": minutes, "steps": steps, "out": out}
    overrides |= {k: v for k, v in named.items() if v is not None}
    try:
        train(load_config(config, overrides), init=init, report=typer.echo)
    except KeyboardInterrupt:
        typer.echo("gryphone: stopped", err=True)
        raise typer.Exit(130) from None
