"""`gryphone train`."""

from __future__ import annotations

from pathlib import Path

import typer

from gryphone.errors import ConfigError, need


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("train")(train_command)


def train_command(
    config: Path = typer.Argument(help="A YAML file; see configs/ for examples."),
    minutes: float | None = typer.Option(None, help="Wall-clock budget; the schedule fits it."),
    steps: int | None = typer.Option(None, help="Stop after this many steps."),
    init: Path | None = typer.Option(None, help="Start from this checkpoint's weights."),
    out: str | None = typer.Option(None, help="Folder of the runs."),
    set_: list[str] = typer.Option([], "--set", help="Override a setting: --set lr=5e-4."),
) -> None:
    """Train a recogniser; a killed run goes on where it was last saved."""
    need("accelerate", "train")
    import yaml

    from gryphone.config import load_config
    from gryphone.train import train

    overrides: dict[str, object] = {}
    for item in set_:
        key, separator, value = item.partition("=")
        if not separator:
            raise ConfigError(f"--set {item}: write it as name=value")
        overrides[key] = yaml.safe_load(value)
    named = {"minutes": minutes, "steps": steps, "out": out}
    overrides |= {k: v for k, v in named.items() if v is not None}
    path = train(load_config(config, overrides), init=init, report=lambda line: typer.echo(line))
    typer.echo(str(path))
