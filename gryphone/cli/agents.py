"""Commands for agents and editors: mcp, a server of the Model Context Protocol, and clip."""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gryphone.cli.recognition import Device, Weights, load_weights
from gryphone.errors import ConfigError, GryphoneError, need
from gryphone.writers import TARGETS, check_target, write

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from gryphone.recognition.recognizer import Encoded, Recognizer
    from gryphone.recognition.result import Result

KEPT = 16  # inks that can be solved again
LONGEST = 5_000  # characters of LaTeX that are converted or scored
ABOUT = "Reads handwritten mathematics, and writes it as LaTeX, Typst, SymPy and more."


def register(app: typer.Typer) -> None:
    """Add the commands to an app."""
    app.command()(mcp)
    app.command()(clip)


def mcp(weights: Weights = None, device: Device = "cpu") -> None:
    """Serve tools for agents over stdin and stdout: read, solve_again, convert, score."""
    need("mcp", "mcp")
    make_server(load_weights(weights, device)).run()


def make_server(recognizer: Recognizer) -> MCPServer:
    """A server of the Model Context Protocol with the tools."""
    from mcp.server import MCPServer

    server = MCPServer("gryphone", instructions=ABOUT)
    for tool in _Tools(recognizer).all():
        server.tool(structured_output=True)(_said(tool))
    return server


def _said(tool: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """The agent is told what was wrong with its question; of anything else it hears nothing."""
    from mcp.server.mcpserver.exceptions import ToolError

    @wraps(tool)
    def call(*args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            return tool(*args, **kwargs)
        except GryphoneError as error:
            raise ToolError(str(error)) from error

    return call


class _Tools:
    """What an agent may call. Inks are looked at once, and asked about as often as it likes."""

    def __init__(self, recognizer: Recognizer) -> None:
        self.recognizer = recognizer
        self.inks: OrderedDict[str, Encoded] = OrderedDict()
        self.count = 0

    def all(self) -> list[Callable[..., dict[str, Any]]]:
        return [self.read, self.solve_again, self.convert, self.score]

    def read(
        self,
        path: str | None = None,
        image_base64: str | None = None,
        strokes: list[list[list[float]]] | None = None,
        format: str = "latex",
        n_best: int = 1,
    ) -> dict[str, Any]:
        """Read a handwritten formula: a file (image, InkML or strokes JSON), the base64 of an
        image, or strokes, each a list of [x, y] with y growing downwards. `symbols` says how sure
        each is, and what else it may be; `ink` names it for solve_again."""
        given = [each for each in (path, image_base64, strokes) if each is not None]
        if len(given) != 1:
            raise ConfigError("give one of path, image_base64 and strokes")
        source: Any = given[0]
        if image_base64 is not None:
            try:
                source = base64.b64decode(image_base64, validate=True)
            except binascii.Error as error:
                raise ConfigError(f"image_base64 is no base64 ({error}); send it plain") from error
        elif path is not None:
            source = Path(path).absolute()  # a dash is a file like any other: stdin is the agent's
            if source.exists() and not source.is_file():  # a pipe would be waited for
                raise ConfigError(f"{path} is no plain file; give the path of one")
        check_target(format)
        encoded = self.recognizer.encode(source)
        result = encoded.decode(n_best=n_best)
        self.count += 1
        name = f"ink-{self.count}"
        self.inks[name] = encoded
        while len(self.inks) > KEPT:
            self.inks.popitem(last=False)
        return _told(result, name, format)

    def solve_again(
        self,
        ink: str,
        lock: dict[str, str] | None = None,
        hint: str | None = None,
        allowed: str | None = None,
        format: str = "latex",
    ) -> dict[str, Any]:
        """Solve an ink again under what is known: `lock` holds symbols at positions, as {"0": "x"};
        `hint` is LaTeX with holes (? one symbol, ... any run); `allowed` the only symbols."""
        if ink not in self.inks:
            raise ConfigError(f"{ink!r} is not among the last {KEPT} inks; read it again")
        bad = [place for place in lock or () if not place.isdecimal() or len(place) > 4]
        if bad:
            raise ConfigError(f"lock {bad[0]!r} is no position; write the number of a symbol")
        check_target(format)
        places = {int(place): symbol for place, symbol in (lock or {}).items()}
        result = self.inks[ink].decode(lock=places, hint=hint, allowed=allowed)
        return _told(result, ink, format)

    def convert(self, latex: str, format: str) -> dict[str, Any]:
        """Write LaTeX in another notation: latex, readable (as people write it), mathml, typst,
        asciimath, unicode (plain text), omml (Word), sympy, or speech."""
        _check_length(latex)
        return {"format": format, "text": write(latex, format)}

    def score(self, truth: str, prediction: str, convention: str = "crohme") -> dict[str, Any]:
        """Compare a prediction with the truth, both spelt one way: is it exact, and how many
        percent of the tokens are wrong."""
        from gryphone.scoring.metrics import Sample
        from gryphone.scoring.metrics import score as score_samples

        _check_length(truth, prediction)
        scores = score_samples([Sample("pair", truth, prediction)], convention, draws=0)
        if scores.problems:
            raise ConfigError(scores.problems[0].reason)
        return {"exact": scores.em == 100, "token_error_percent": round(scores.cer, 2)}


def _check_length(*texts: str) -> None:
    for text in texts:
        if len(text) > LONGEST:
            raise ConfigError(f"{len(text)} characters of LaTeX; at most {LONGEST}")


def _told(result: Result, ink: str, format_: str) -> dict[str, Any]:
    data = {key: value for key, value in result.to_dict().items() if key not in ("tokens", "file")}
    data |= {"ink": ink, "format": format_, "text": result.to(format_)}
    return data


def clip(
    format_: Annotated[
        str, typer.Option("--format", help=f"What to copy: {', '.join(TARGETS)}.")
    ] = "latex",
    weights: Weights = None,
    device: Device = "cpu",
) -> None:
    """Read the image on the clipboard, and copy its formula there."""
    from gryphone.cli.clipboard import copy_text, paste_image

    check_target(format_)
    image = paste_image()
    result = load_weights(weights, device).recognize(image, name="clipboard")
    text = result.to(format_)
    copy_text(text)
    typer.echo(text)
    for warning in result.warnings:
        typer.echo(f"gryphone: {warning}", err=True)
