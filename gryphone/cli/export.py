"""The command that hands the network to other programs: export."""

import json
from pathlib import Path
from typing import Annotated

import typer

from gryphone.cli.recognition import Weights
from gryphone.errors import ConfigError, DataError, writing

PRECISIONS = ("int8", "uint8", "float32")


def register(app: typer.Typer) -> None:
    """Add the command to an app."""
    app.command()(export)


def export(
    out: Annotated[Path, typer.Argument(help="The folder to write, new or an earlier export.")],
    weights: Weights = None,
    precision: Annotated[
        str,
        typer.Option(
            help="int8; uint8, the same for processors that add int8 inexactly; or float32."
        ),
    ] = "int8",
) -> None:
    """Write a recogniser as encoder.onnx and decoder.onnx, for ONNX Runtime anywhere.

    Each says in its metadata what the checkpoint's config.json says: sizes, vocabularies, facts.
    """
    from gryphone.checkpoint import WEIGHTS, checkpoint_directory, read_description
    from gryphone.recognition.onnx_graph import Arithmetic, graphs_of

    if precision not in PRECISIONS:
        raise ConfigError(f"--precision {precision} is unknown; use one of {', '.join(PRECISIONS)}")
    graphs = graphs_of(weights or WEIGHTS, Arithmetic(precision))
    ours = {f"{graph.name}.onnx" for graph in graphs}
    if out.is_dir() and {path.name for path in out.iterdir()} - ours:
        raise DataError(f"{out}: holds other files; choose a new folder or an earlier export")
    about = json.dumps(read_description(checkpoint_directory(weights or WEIGHTS)))
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        for graph in graphs:
            file = out / f"{graph.name}.onnx"
            file.write_bytes(graph.to_bytes({"gryphone": about, "precision": precision}))
            typer.echo(f"{file}: {file.stat().st_size:,} bytes")
