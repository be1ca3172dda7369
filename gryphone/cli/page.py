"""The command that writes the page as static files: page."""

from pathlib import Path
from typing import Annotated

import typer

from gryphone.cli.recognition import Weights


def register(app: typer.Typer) -> None:
    """Add the command to an app."""
    app.command()(page)


def page(
    out: Annotated[Path, typer.Argument(help="The folder to write, new or an earlier page.")],
    weights: Weights = None,
) -> None:
    """Write the page as static files that read formulas in the browser, without a server.

    Any web host can serve them; once loaded they work offline. ONNX Runtime and Pyodide are fetched
    from npm's registry now. With Node.js the page starts faster: Python's start is done here.
    """
    from gryphone.checkpoint import WEIGHTS
    from gryphone.page.folder import SNAPSHOT, write_page

    files = write_page(out, weights or WEIGHTS)
    typer.echo(f"{out}: {len(files)} files, {sum(files.values()):,} bytes")
    if SNAPSHOT not in files:
        typer.echo("Node.js was not found (`node`, 20 or later): the page will start more slowly.")
    typer.echo(f"To try it: python -m http.server --directory {out}")
