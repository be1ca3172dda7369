"""The page as a folder of static files that works on any web host, and offline once loaded."""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import importlib.util
import json
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from gryphone import __version__
from gryphone.checkpoint import checkpoint_directory, read_checkpoint, read_description
from gryphone.errors import DataError, writing
from gryphone.page.parts import ONNXRUNTIME, PYODIDE, write_parts
from gryphone.recognition.lone import LoneReader
from gryphone.recognition.onnx_graph import Arithmetic, graphs_of

PACKAGE = Path(__file__).parents[1]
STATIC = PACKAGE / "server" / "static"
ENGINE = Path(__file__).parent / "engine"
# The rooms and modules that a prediction in the browser passes.
OURS = ("latex", "photo", "reading", "recognition", "rivals", "page", "writers")
OTHERS = ("latex2mathml", "defusedxml")  # of the installation that writes the folder
NEVER = re.compile("/tests/|/f2py/|/testing/|/typing/")  # modules of numpy
SNAPSHOT = "engine/pyodide/snapshot.bin.gz"
MARK = "sw.js"  # whose presence says that a folder is an earlier page
# No request leaves the page: the browser sees to it, whatever the scripts do.
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self' 'wasm-unsafe-eval'",
        "worker-src 'self'",
        "style-src 'self'",
        "style-src-attr 'unsafe-inline'",
        "img-src 'self'",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
)
MANIFEST = {
    "name": "GryphOne",
    "short_name": "GryphOne",
    "description": "Handwritten formulas to LaTeX, read in this browser.",
    "start_url": "./",
    "scope": "./",
    "display": "standalone",
    "background_color": "#f6f5f1",
    "theme_color": "#f6f5f1",
    "icons": [{"src": "static/icon.svg", "sizes": "any", "type": "image/svg+xml"}],
}


def freeze(engine: Path) -> None:
    """Have Node.js put Python's memory after an answer into a file; without it a page starts later.

    The snapshot holds numpy's libraries; of its wheel remain the modules, of which some may be
    wanted later.
    """
    node = shutil.which("node")
    if node is None:
        return
    (wheel,) = (engine / "pyodide").glob("numpy-*.whl")
    with tempfile.TemporaryDirectory() as tree:
        for archive, place in ((wheel, ""), (engine / "python.zip", "modules")):
            with zipfile.ZipFile(archive) as files:
                files.extractall(Path(tree) / place)
        command = [node, str(Path(__file__).with_name("snapshot.mjs")), str(engine), tree]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DataError(
            f"{node} could not make a snapshot of the engine: {done.stderr.strip()[-500:]}; "
            "a newer Node.js (20 or later), or none on the PATH, will do"
        )
    with (
        zipfile.ZipFile(wheel) as files,
        zipfile.ZipFile(engine / "pyodide" / "numpy.zip", "w", zipfile.ZIP_DEFLATED) as rest,
    ):
        for name in files.namelist():
            if name.endswith(".py") and not NEVER.search(name):
                rest.writestr(files.getinfo(name), files.read(name), zipfile.ZIP_DEFLATED)
    wheel.unlink()


def write_page(
    out: Path,
    weights: Path,
    fetch_parts: Callable[[Path], None] = write_parts,
    freeze: Callable[[Path], None] = freeze,
) -> dict[str, int]:
    """Write the folder; the bytes of each of its files."""
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or (out / MARK).is_file())):
        raise DataError(f"{out}: holds other files; choose a new folder or an earlier page")
    with writing(out):
        fresh = out.with_name(f".{out.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            _write(fresh, weights, fetch_parts, freeze)
            shutil.rmtree(out, ignore_errors=True)
            fresh.rename(out)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return sizes_of(out)


def _write(
    out: Path,
    weights: Path,
    fetch_parts: Callable[[Path], None],
    freeze: Callable[[Path], None],
) -> None:
    engine = out / "engine"
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(STATIC, out / "static", ignore=unwanted)
    shutil.copytree(ENGINE, engine, ignore=unwanted)
    fetch_parts(engine)
    write_model(engine / "model", weights)
    write_python(engine / "python.zip")
    write_licences(engine / "LICENCES.txt")
    freeze(engine)
    for file in engine.rglob("*.wasm"):  # the service worker unpacks it, or the engine
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
        file.unlink()
    files = sizes_of(engine)
    (engine / "files.json").write_text(json.dumps(files))
    page = (out / "static" / "index.html").read_text()
    (out / "static" / "index.html").unlink()
    (out / "index.html").write_text(for_browser(page))
    (out / "manifest.webmanifest").write_text(json.dumps(MANIFEST, indent=1))
    (engine / "sw.js").rename(out / MARK)
    seal(out)


def for_browser(page: str) -> str:
    """The page of the server, told that its engine is in the browser."""
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '  <script src="engine/isolate.js"></script>\n'
        '  <link rel="manifest" href="manifest.webmanifest">\n  <title>'
    )
    page = page.replace('<html lang="en">', '<html lang="en" data-engine="local">', 1)
    return page.replace("<title>", head, 1)


def write_model(folder: Path, weights: Path) -> None:
    """The eight-bit graphs, and what the checkpoint says of itself."""
    folder.mkdir()
    weights = checkpoint_directory(weights)
    checkpoint = read_checkpoint(weights)
    for graph in graphs_of(weights, Arithmetic.int8, checkpoint):
        (folder / f"{graph.name}.onnx").write_bytes(graph.to_bytes({}))
    reader = LoneReader.load(weights)
    if reader is None:
        raise DataError("the page needs the reader of lone symbols, which is not here; reinstall")
    (folder / "lone.onnx").write_bytes(reader.graph)
    about = read_description(weights)
    about |= {"parameters": checkpoint.parameters, "lone": reader.symbols}
    (folder / "model.json").write_text(json.dumps(about))


def write_python(path: Path) -> None:
    """The modules that run in the browser, ours as they are here, as one archive."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(file: Path, name: str) -> None:
            entry = zipfile.ZipInfo(name)  # without a date: the same modules, the same archive
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())

        rooms = [f for room in OURS for f in (PACKAGE / room).glob("*.py")]
        for file in sorted([*PACKAGE.glob("*.py"), *rooms]):
            add(file, f"gryphone/{file.relative_to(PACKAGE).as_posix()}")
        add(Path(__file__).with_name("onnxruntime.py"), "onnxruntime.py")
        for name in OTHERS:
            for part in sorted(importlib.metadata.files(name) or ()):
                if part.suffix != ".pyc" and ".." not in part.parts:
                    add(Path(str(part.locate())), part.as_posix())


def write_licences(path: Path) -> None:
    """What is in the folder, under which licences, and their texts where we have them."""
    lines = [
        f"GryphOne {__version__}: Apache-2.0; its weights: see below; KaTeX: static/katex/LICENSE",
        *(f"{p.name} {p.version}: {p.licence}, {p.source}" for p in (ONNXRUNTIME, PYODIDE)),
        "numpy, Pillow: BSD-3-Clause, MIT-CMU; their licences are in their wheels",
        "latex2mathml: MIT; defusedxml: PSF-2.0",
    ]
    found = importlib.util.find_spec("onnxruntime")
    runtime = Path(found.origin).parent if found and found.origin else Path()
    texts = (
        PACKAGE / "weights" / "LICENSE",
        runtime / "LICENSE",
        runtime / "ThirdPartyNotices.txt",
    )
    parts = [f"\n\n==== {t.parent.name}/{t.name}\n\n{t.read_text()}" for t in texts if t.is_file()]
    path.write_text("\n".join(lines) + "".join(parts))


def sizes_of(folder: Path) -> dict[str, int]:
    """Bytes of every file by its path inside."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}


def seal(out: Path) -> None:
    """Tell the service worker what is there: its cache is named by all of it."""
    digests = {
        name: hashlib.sha256((out / name).read_bytes()).hexdigest()[:16]
        for name in sizes_of(out)
        if name != MARK
    }
    version = hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:16]
    worker = out / MARK
    text = worker.read_text()
    text = text.replace('"VERSION"', json.dumps(version), 1)
    worker.write_text(text.replace("{ FILES: 0 }", json.dumps(digests), 1))
