"""Tools for agents by the protocol's own client, and the clipboard by stand-in programs."""

import asyncio
import base64
import os
import shutil
import subprocess
import sys
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from inkmaker import power, to_strokes
from mcp import Client, StdioServerParameters, stdio_client
from PIL import Image, ImageDraw
from typer.testing import CliRunner

from gryphone.cli import make_app
from gryphone.cli.agents import make_server
from gryphone.cli.clipboard import copy_text, paste_image
from gryphone.errors import DataError
from gryphone.recognition.recognizer import Recognizer


def picture(path: Path) -> Path:
    image = Image.new("L", (120, 80), 255)
    draw = ImageDraw.Draw(image)
    draw.line((20, 40, 100, 40), fill=0, width=5)
    draw.line((60, 10, 60, 70), fill=0, width=5)
    image.save(path)
    return path


def by_itself(talk: Coroutine[Any, Any, Any]) -> Any:
    """What comes of it in a thread of its own: a browser of other tests keeps this one's loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, talk).result()


def call(server: Any, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """The answers, or what an error says, of tools called one after another."""

    async def talk() -> list[Any]:
        async with Client(server) as client:
            found = [await client.call_tool(name, arguments) for name, arguments in calls]
            return [r.content[0].text if r.is_error else r.structured_content for r in found]

    return by_itself(talk())


def test_an_agent_reads_solves_again_and_converts(recognizer: Recognizer, tmp_path: Path) -> None:
    strokes = to_strokes(power())
    path = picture(tmp_path / "plus.png")
    data = base64.b64encode(path.read_bytes()).decode()
    server = make_server(recognizer)
    drawn, shown, sent, locked, hinted, typst, fine, wrong = call(
        server,
        ("read", {"strokes": strokes}),
        ("read", {"path": str(path), "format": "mathml"}),
        ("read", {"image_base64": data}),
        ("solve_again", {"ink": "ink-1", "lock": {"0": "x"}}),
        ("solve_again", {"ink": "ink-1", "hint": "x ^ 2", "format": "unicode"}),
        ("convert", {"latex": r"\frac{1}{2}", "format": "typst"}),
        ("score", {"truth": "x^2", "prediction": "x^{2}"}),
        ("score", {"truth": "x^2", "prediction": "x^{3}"}),
    )
    assert drawn["latex"] == recognizer.recognize(power()).latex and drawn["ink"] == "ink-1"
    assert shown["text"].startswith("<math") and shown["latex"] == sent["latex"]
    assert locked["symbols"][0]["symbol"] == "x"
    assert hinted["text"] == "x²"
    assert typst == {"format": "typst", "text": "frac(1, 2)"}
    assert fine == {"exact": True, "token_error_percent": 0}
    assert wrong == {"exact": False, "token_error_percent": 20}


def test_an_agent_is_told_what_was_wrong(recognizer: Recognizer, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    strokes = to_strokes(power())
    found = call(
        make_server(recognizer),
        ("read", {}),
        ("read", {"path": "/nowhere.png"}),
        ("read", {"path": "-"}),
        ("read", {"path": os.fspath(tmp_path / "pipe")}),
        ("read", {"image_base64": "?"}),
        ("solve_again", {"ink": "ink-7"}),
        ("read", {"strokes": strokes}),
        ("solve_again", {"ink": "ink-1", "lock": {"9" * 5000: "x"}}),
        ("convert", {"latex": "x", "format": "word"}),
        ("convert", {"latex": r"\foo", "format": "typst"}),
        ("convert", {"latex": "x" * 6000, "format": "typst"}),
        ("convert", {"latex": "9^{9^{9^9}}", "format": "sympy"}),
    )
    expected = (
        "give one of path, image_base64 and strokes",
        "/nowhere.png",
        "/-: no such file",
        "is no plain file; give the path of one",
        "image_base64 is no base64",
        "'ink-7' is not among the last 16 inks; read it again",
        "latex",
        "is no position; write the number of a symbol",
        "format 'word' is unknown; use one of latex",
        r"Typst cannot say \foo (at character 0)",
        "6000 characters of LaTeX; at most 5000",
        "SymPy: a number has more than 10000 digits",
    )
    for said, part in zip(found, expected, strict=True):
        assert part in said


def test_the_command_talks_over_stdin_and_stdout(tiny_weights: Path) -> None:
    command = ["-m", "gryphone", "mcp", "--weights", str(tiny_weights)]
    root = str(Path(__file__).parents[1])
    server = StdioServerParameters(
        command=sys.executable, args=command, env={**os.environ, "PYTHONPATH": root}
    )

    async def talk() -> tuple[set[str], Any]:
        async with Client(stdio_client(server)) as client:
            tools = await client.list_tools()
            answer = await client.call_tool("convert", {"latex": "x^2", "format": "speech"})
            return {tool.name for tool in tools.tools}, answer.structured_content

    names, answer = by_itself(talk())
    assert names == {"read", "solve_again", "convert", "score"}
    assert answer["text"] == "x squared"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, and a desktop of X11."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    return folder


def stand_in(folder: Path, name: str, pasted: Path, copied: Path) -> None:
    """A program that pastes one file and copies to another, and notes how it was called."""
    script = folder / name
    script.write_text(
        f"#!{sys.executable}\n"
        "import sys, pathlib\n"
        f"pathlib.Path({str(copied)!r} + '.args').write_text(' '.join(sys.argv[1:]))\n"
        "if any(a in sys.argv for a in ('-out', '--type')):\n"
        f"    sys.stdout.buffer.write(pathlib.Path({str(pasted)!r}).read_bytes())\n"
        "else:\n"
        f"    pathlib.Path({str(copied)!r}).write_bytes(sys.stdin.buffer.read())\n"
    )
    script.chmod(0o755)


@pytest.mark.parametrize("tools", [("xclip",), ("wl-paste", "wl-copy")])
def test_clip_reads_the_clipboard_and_writes_it(
    tools: tuple[str, ...],
    programs: Path,
    tmp_path: Path,
    tiny_weights: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image, copied = picture(tmp_path / "plus.png"), tmp_path / "copied"
    for name in tools:
        stand_in(programs, name, image, copied)
    if "wl-copy" in tools:
        monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    arguments = ["clip", "--weights", str(tiny_weights), "--format", "readable"]
    shown = CliRunner().invoke(make_app(), arguments)
    assert shown.exception is None, shown.exception
    assert copied.read_text() == shown.stdout.rstrip("\n") != ""


def test_clip_says_in_one_line_what_is_missing(programs: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no xclip to reach the clipboard with; install"):
        paste_image()
    with pytest.raises(DataError, match="there is no xclip or xsel to reach"):
        copy_text("x")
    (tmp_path / "words").write_text("no picture")
    stand_in(programs, "xclip", tmp_path / "words", tmp_path / "copied")
    with pytest.raises(DataError, match="the clipboard holds no picture; copy one"):
        paste_image()


@pytest.mark.skipif(
    not (shutil.which("Xvfb") and shutil.which("xclip")), reason="needs Xvfb and xclip"
)
def test_clip_on_a_real_desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with subprocess.Popen(["Xvfb", "-displayfd", "1"], stdout=subprocess.PIPE) as desktop:
        try:
            assert desktop.stdout is not None
            monkeypatch.setenv("DISPLAY", f":{desktop.stdout.readline().decode().strip()}")
            image = picture(tmp_path / "plus.png")
            put = ["xclip", "-selection", "clipboard", "-target", "image/png", str(image)]
            subprocess.run(put, check=True, timeout=10)
            assert paste_image() == image.read_bytes()
            copy_text("α²")
            get = ["xclip", "-selection", "clipboard", "-out"]
            assert subprocess.run(get, capture_output=True, timeout=10).stdout.decode() == "α²"
        finally:
            desktop.terminate()
