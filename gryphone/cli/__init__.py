"""Command name -> function. Errors a user can cause become one line and exit code 2."""

from __future__ import annotations

import os
import sys

import typer

from gryphone import __version__
from gryphone.cli import (
    agents,
    completion,
    data,
    evaluation,
    export,
    page,
    recognition,
    serve,
    study,
    synth,
    text,
    training,
)
from gryphone.errors import GryphoneError


def make_app() -> typer.Typer:
    """The command-line program."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="GryphOne: handwritten mathematics to LaTeX.",
    )

    @app.callback(invoke_without_command=True)
    def root(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
        if version:
            typer.echo(__version__)
            raise typer.Exit

    reading = (recognition, agents, export, page, serve, text, completion)
    for part in (*reading, evaluation, data, synth, training, study):
        part.register(app)
    return app


def calm_threads() -> None:
    """Let PyTorch's idle threads spin for a moment only; to be called before it is imported.

    Spinning on, they take the cores from those that work: on a busy machine one ink took 9 s
    instead of 0.5 s. Asleep at once, they wake up late: 160 ms instead of 100.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def main() -> None:
    """Run the program."""
    calm_threads()
    try:
        code = make_app()(standalone_mode=False)
    except GryphoneError as error:
        print(f"gryphone: {error}", file=sys.stderr)
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        print("gryphone: stopped", file=sys.stderr)
        sys.exit(130)
    except OSError as error:  # a full disk, most of all
        # Or Python would write the rest at its end, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"gryphone: {error.filename or 'output'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        # A usage error: Typer brings its own Click, whose base class has no public name.
        if not hasattr(error, "exit_code") or not hasattr(error, "show"):
            raise
        error.show()
        sys.exit(error.exit_code)
    sys.exit(code if isinstance(code, int) else 0)
