"""The command that serves the page and the HTTP interface."""

import os
import sys
from typing import Annotated

import typer

from gryphone.cli.recognition import Device, Weights
from gryphone.errors import ConfigError, need


def register(app: typer.Typer) -> None:
    """Add the command to an app."""
    app.command()(serve)


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes any free one.")] = 8000,
    weights: Weights = None,
    device: Device = "cpu",
    threads: Annotated[int | None, typer.Option(help="Threads that compute (one a core).")] = None,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="GRYPHONE_API_KEY", help="Ask clients for this key."),
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(help="An origin whose pages may ask; repeat it.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A name this server is called by, beside localhost; repeat it."),
    ] = None,
    queue: Annotated[int, typer.Option(help="Requests inside before others get a 503.")] = 64,
    batch: Annotated[
        int | None, typer.Option(help="Inks that are read together (as suits the device).")
    ] = None,
    readers: Annotated[int, typer.Option(help="Processes that read photos and files.")] = 2,
    compute: Annotated[
        int, typer.Option(help="Processes that compute what is read with SymPy; 0 for none.")
    ] = 0,
    workers: Annotated[
        int, typer.Option(help="Processes with a model each, on one port; GPUs are shared out.")
    ] = 1,
    drain: Annotated[
        float, typer.Option(help="Seconds of serving on, not ready, after the signal to stop.")
    ] = 0.0,
    open_: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Show the page in a browser (on a desktop)."),
    ] = None,
) -> None:
    """Serve the page and the HTTP interface."""
    for module in ("fastapi", "uvicorn", "python_multipart"):
        need(module, "serve")
    from gryphone.server.settings import Settings

    settings = Settings(
        host=host,
        port=port,
        weights=weights,
        device=device,
        threads=threads,
        api_key=api_key,
        cors=tuple(cors or ()),
        hosts=tuple(allow_host or ()),
        queue=queue,
        batch=batch,
        readers=readers,
        compute=compute,
        workers=workers,
        drain=drain,
    )
    if weights is not None and not weights.is_dir():
        raise ConfigError(f"--weights {weights}: no such folder")
    if settings.exposed:
        typer.echo(
            f"gryphone: warning: {host} can be reached by others, and there is no --api-key",
            err=True,
        )
    from gryphone.server.run import serve as serve_one
    from gryphone.server.workers import serve_many

    def ready(url: str) -> None:
        typer.echo(f"GryphOne is ready at {url} (Ctrl-C stops it)", err=True)
        if _desktop() if open_ is None else open_:
            import threading
            import webbrowser

            # Some browsers block until they are closed.
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    (serve_one if workers == 1 else serve_many)(settings, ready)


def _desktop() -> bool:
    """Whether somebody sits before this machine: a terminal, and a screen to show a page on."""
    if not sys.stderr.isatty():
        return False
    screen = "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    return screen or sys.platform in ("darwin", "win32")
