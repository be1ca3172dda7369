"""The command that teaches a shell our commands and options: completion."""

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import (  # type: ignore[attr-defined]
    completion_init,
    get_completion_script,
)


class Shell(StrEnum):
    """The shells that can be taught."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def register(app: typer.Typer) -> None:
    """Add the command to an app, and let it answer the shells."""
    completion_init()
    app.command()(completion)


def completion(shell: Annotated[Shell, typer.Argument(help="Who is to complete.")]) -> None:
    """Print what makes a shell complete commands and options.

    bash: eval "$(gryphone completion bash)" in ~/.bashrc; zsh: the same with zsh in ~/.zshrc,
    behind compinit; fish: gryphone completion fish > ~/.config/fish/completions/gryphone.fish
    """
    var = "_GRYPHONE_COMPLETE"
    typer.echo(get_completion_script(prog_name="gryphone", complete_var=var, shell=shell.value))
