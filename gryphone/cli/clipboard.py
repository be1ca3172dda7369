"""The clipboard by the programs that systems have for it."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gryphone.errors import DataError

SECONDS = 10
# Programs that write the picture on the clipboard to stdout, and such that copy stdin to it.
_PASTE = {
    "wayland": [["wl-paste", "--no-newline", "--type", "image/png"]],
    "x11": [["xclip", "-selection", "clipboard", "-target", "image/png", "-out"]],
    "darwin": [["pngpaste", "-"]],
}
_COPY = {
    "wayland": [["wl-copy"]],
    "x11": [["xclip", "-selection", "clipboard", "-in"], ["xsel", "--clipboard", "--input"]],
    "darwin": [["pbcopy"]],
    "win32": [["clip"]],
}
_REMEDY = {
    "wayland": "install wl-clipboard",
    "x11": "install xclip",
    "darwin": "run: brew install pngpaste",
    "win32": "PowerShell is needed",
}
_POWERSHELL = (
    "Add-Type -AssemblyName System.Windows.Forms,System.Drawing;"
    "$i=[Windows.Forms.Clipboard]::GetImage();"
    "if($i -eq $null){exit 3};$i.Save($env:GRYPHONE_CLIP,[Drawing.Imaging.ImageFormat]::Png)"
)


def desktop() -> str:
    """Whose clipboard it is."""
    if sys.platform in ("darwin", "win32"):
        return sys.platform
    return "wayland" if os.environ.get("WAYLAND_DISPLAY") else "x11"


def paste_image() -> bytes:
    """The PNG on the clipboard, or a DataError: no program for it, or no picture there."""
    system = desktop()
    image = _paste_on_windows() if system == "win32" else _run(_tool(_PASTE, system))
    if not image.startswith(b"\x89PNG"):
        raise DataError("the clipboard holds no picture; copy one, such as a screenshot, first")
    return image


def copy_text(text: str) -> None:
    """Put a text on the clipboard."""
    system = desktop()
    # Windows' `clip` knows UTF-16, and takes nothing else for what is not ASCII.
    data = text.encode("utf-16" if system == "win32" else "utf-8")
    _run(_tool(_COPY, system), data)


def _tool(table: dict[str, list[list[str]]], system: str) -> list[str]:
    for command in table[system]:
        if shutil.which(command[0]):
            return command
    names = " or ".join(command[0] for command in table[system])
    raise DataError(f"there is no {names} to reach the clipboard with; {_REMEDY[system]}")


def _run(command: Sequence[str], data: bytes | None = None) -> bytes:
    """What a program writes. One that copies stays behind to serve what it copied: its output
    must not be waited for."""
    out = subprocess.PIPE if data is None else subprocess.DEVNULL
    try:
        done = subprocess.run(
            command, input=data, stdout=out, stderr=subprocess.DEVNULL, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"{command[0]} failed ({error}); try it by hand") from error
    if data is not None and done.returncode:
        raise DataError(f"{command[0]} ended with {done.returncode}; is there a desktop?")
    return done.stdout or b""


def _paste_on_windows() -> bytes:
    if not shutil.which("powershell"):
        raise DataError(f"there is no powershell to reach the clipboard with; {_REMEDY['win32']}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.png"
        os.environ["GRYPHONE_CLIP"] = str(path)
        _run(["powershell", "-NoProfile", "-STA", "-Command", _POWERSHELL])
        return path.read_bytes() if path.is_file() else b""
