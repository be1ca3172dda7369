"""Every command block of the README and of the tutorial runs as it stands there."""

import importlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gryphone.cli import make_app

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text() + (ROOT / "docs" / "tutorial.md").read_text()
ELSEWHERE = ("make ", "python3 -m venv ", ". ", "pip ", "curl ")  # set-up, or asks the server
BASH = dict.fromkeys(
    line
    for block in re.findall(r"```bash\n(.*?)```", TEXT, re.S)
    for line in block.splitlines()
    if line.strip() and not line.startswith(ELSEWHERE)
)
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, re.S)
NEEDS_WEIGHTS = ("demo", "recognize", "evaluate", "info", "serve")

weights = pytest.mark.skipif(
    not (ROOT / "gryphone" / "weights" / "config.json").exists(), reason="no bundled weights"
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a copy of the examples, with few of the pictures that take time."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    clean = tmp_path / "examples" / "clean"
    labels = (clean / "labels.tsv").read_text().splitlines(keepends=True)[:3]
    (clean / "labels.tsv").write_text("".join(labels))
    for picture in sorted(clean.glob("*.png"))[3:]:
        picture.unlink()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(line: str) -> None:
    """Run a line by the shell if it needs one, else here, where PyTorch is loaded already."""
    if "|" in line:
        line = line.replace("gryphone ", f"{sys.executable} -m gryphone ")
        subprocess.run(["bash", "-ec", line], check=True, timeout=300)
        return
    program, *words = shlex.split(line)
    assert program == "gryphone"
    result = CliRunner().invoke(make_app(), words)
    assert result.exit_code == 0, f"{line}: {result.output} {result.exception}"


def test_the_readme_has_commands() -> None:
    assert len(BASH) >= 10
    assert len(PYTHON) == 4


@pytest.mark.parametrize("line", BASH)
def test_shell_line(line: str, place: Path) -> None:
    if any(f"gryphone {word}" in line for word in NEEDS_WEIGHTS) and weights.args[0]:
        pytest.skip("no bundled weights")
    if ("ink.parquet" in line and "pack" not in line) or "gryphone serve" in line:
        pytest.skip("has a test of its own, below")
    run(line)


def test_packed_store(place: Path) -> None:
    for line in BASH:
        if "ink.parquet" in line:
            run(line)


@weights
def test_the_server_starts_and_stops(place: Path) -> None:
    assert "gryphone serve" in BASH
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "gryphone", "serve", "--port", str(port), "--no-open"]
    server = subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(600):
            assert server.poll() is None, server.stderr and server.stderr.read()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
                    assert answer.status == 200
                    break
            except OSError:
                time.sleep(0.1)
        else:
            pytest.fail("the server was not ready within a minute")
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(30) in (0, 130)  # 0 where Ctrl-C is ignored, as under nohup


@weights
def test_python_blocks_run_in_order(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec("\n".join(PYTHON), {})
    assert capsys.readouterr().out.count("\n") == 6


def test_contributing_names_what_is_there() -> None:
    """The walks through one prediction and one training step name real functions."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    names = re.findall(r"`((?:[a-z_]+\.)+[A-Za-z_]+)`", text)
    assert len(names) > 30
    for name in names:
        module, _, part = name.rpartition(".")
        assert hasattr(importlib.import_module(f"gryphone.{module}"), part), name


def test_links_between_documents_lead_somewhere() -> None:
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    assert len(documents) > 15
    for document in documents:
        links = re.findall(r"\]\(([^)\s#]+)", document.read_text(encoding="utf-8"))
        for link in (link for link in links if "://" not in link):
            assert (document.parent / link).exists(), f"{document.name}: {link}"


def test_every_document_has_its_place_in_the_site() -> None:
    site = (ROOT / "mkdocs.yml").read_text()
    places = re.findall(r"^ +- (?:[\w ]+: )?([\w-]+\.md)$", site, re.M)
    made = {"index.md", "try.md", "gallery.md", "model-card.md", "contributing.md", "changelog.md"}
    assert sorted(places) == sorted({path.name for path in ROOT.glob("docs/*.md")} | made)
