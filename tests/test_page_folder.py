"""The folder that `gryphone page` writes, with a stand-in for what it would fetch."""

import base64
import hashlib
import io
import json
import re
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tinymodel import tiny_checkpoint

import gryphone
from gryphone.errors import DataError
from gryphone.page import parts
from gryphone.page.folder import for_browser, write_model, write_page
from gryphone.page.local import Local

INK = [[[0, 0], [10, 10]], [[10, 0], [0, 10]], [[20, 5], [30, 5]], [[40, 0], [50, 10]]]


def stand_in(engine: Path) -> None:
    """As little as the fetched parts could be."""
    (engine / "pyodide").mkdir()
    (engine / "pyodide" / "pyodide.mjs").write_text("export {}")


def not_now(engine: Path) -> None:
    """No snapshot of them."""


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return tiny_checkpoint(tmp_path / "weights")


def cached(folder: Path) -> tuple[str, dict[str, str]]:
    """The version and the files of a folder's service worker."""
    text = (folder / "sw.js").read_text()
    version, files = re.search('VERSION = "(.+)"', text), re.search("FILES = ({.*});", text)
    assert version and files
    return version[1], json.loads(files[1])


def test_the_folder_has_all_that_the_service_worker_keeps(tmp_path: Path, weights: Path) -> None:
    out = tmp_path / "site"
    sizes = write_page(out, weights, stand_in, not_now)
    version, files = cached(out)
    assert sizes.keys() == files.keys() | {"sw.js"}
    assert files.keys() >= {
        "index.html",
        "manifest.webmanifest",
        "static/js/app.js",
        "engine/engine.js",
        "engine/engine.d.ts",
        "engine/worker.js",
        "engine/model/encoder.onnx",
        "engine/pyodide/pyodide.mjs",
        "engine/LICENCES.txt",
    }
    page = (out / "index.html").read_text()
    assert 'data-engine="local"' in page and "connect-src 'self'" in page
    manifest = json.loads((out / "manifest.webmanifest").read_text())
    assert all((out / icon["src"]).is_file() for icon in manifest["icons"])
    assert f'href="{"manifest.webmanifest"}"' in page
    # The same again is the same version, another file another.
    write_page(out, weights, stand_in, not_now)
    assert cached(out)[0] == version
    write_page(out, weights, stand_in, lambda engine: (engine / "new.js").write_text(""))
    assert cached(out)[0] != version


def test_the_engine_keeps_what_it_is_given(tmp_path: Path, weights: Path) -> None:
    write_model(tmp_path / "model", weights)
    graphs = [
        (tmp_path / "model" / f"{name}.onnx").read_bytes()
        for name in ("encoder", "decoder", "lone")
    ]
    local = Local((tmp_path / "model" / "model.json").read_text(), *graphs)

    def ask(**options: object) -> dict[str, Any]:
        found = local.recognize(json.dumps(INK), "ink", json.dumps(options), lambda step: False)
        return dict(json.loads(found))

    recognizer = gryphone.load(weights)
    first = ask(steps=2, hint="x+n")
    assert first["latex"] == "x+n"
    mine = recognizer.recognize(INK, steps=2, hint="x+n")
    for options in ({"lock": {1: "-"}}, {"remask": [1], "allowed": ["-"]}):
        again = ask(steps=2, given=first, **options)
        assert [s["symbol"] for s in again["symbols"]] == ["x", "-", "n"]
        assert again["latex"] == recognizer.recognize(INK, steps=2, given=mine, **options).latex
    assert ask(given=[["x", ""]])["error"]["message"].startswith("given: is no answer")
    first["symbols"][2]["symbol"] = "?"
    assert "given.2: '?' is not among" in ask(given=first)["error"]["message"]


def test_the_browser_gets_the_modules_of_a_prediction(tmp_path: Path, weights: Path) -> None:
    write_page(tmp_path / "site", weights, stand_in, not_now)
    with zipfile.ZipFile(tmp_path / "site" / "engine" / "python.zip") as archive:
        names = set(archive.namelist())
    assert names >= {
        "onnxruntime.py",
        "gryphone/decoding.py",
        "gryphone/recognition/answer.py",
        "gryphone/page/local.py",
        "latex2mathml/converter.py",
        "defusedxml/ElementTree.py",
    }
    assert not any(name.startswith(("gryphone/server", "gryphone/training")) for name in names)


def test_other_folders_are_left_alone(tmp_path: Path, weights: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(DataError, match="holds other files"):
        write_page(tmp_path, weights, stand_in)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_page_that_could_not_be_written_leaves_the_earlier_one(
    tmp_path: Path, weights: Path
) -> None:
    out = tmp_path / "site"
    write_page(out, weights, stand_in, not_now)

    def broken(engine: Path) -> None:
        raise DataError("npm is away")

    with pytest.raises(DataError, match="npm is away"):
        write_page(out, weights, broken)
    assert (out / "index.html").is_file()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_served_page_is_told_no_engine() -> None:
    assert for_browser('<html lang="en"><title>x</title>').count("data-engine") == 1


def archive_of(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def test_what_is_fetched_must_be_what_was_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = {name: f"{name} wheel".encode() for name in parts.WHEELS}
    lock = {
        name: {"file_name": f"{name}.whl", "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in wheels.items()
    }
    archives = {}
    for name in ("ONNXRUNTIME", "PYODIDE"):
        package = getattr(parts, name)
        files = {file: file.encode() for file in package.files}
        if name == "PYODIDE":
            files["pyodide-lock.json"] = json.dumps({"packages": lock | {"other": {}}}).encode()
        archives[package.address] = archive_of(files)
        digest = base64.b64encode(hashlib.sha512(archives[package.address]).digest()).decode()
        monkeypatch.setattr(parts, name, replace(package, integrity=f"sha512-{digest}"))
    served = archives | {f"{parts.CDN}{name}.whl": data for name, data in wheels.items()}

    def fetch(address: str, first: int | None, last: int | None) -> bytes:
        if address not in served:
            raise OSError("nothing there")
        return served[address]

    parts.write_parts(tmp_path, fetch)
    assert (tmp_path / "pyodide" / "numpy.whl").read_bytes() == b"numpy wheel"
    assert {"other"} & json.loads((tmp_path / "pyodide" / "pyodide-lock.json").read_text())[
        "packages"
    ].keys() == set()
    served[f"{parts.CDN}numpy.whl"] = b"something else"
    with pytest.raises(DataError, match="not as Pyodide published it"):
        parts.write_parts(tmp_path, fetch)
    served[parts.PYODIDE.address] = b"something else"
    with pytest.raises(DataError, match="as it was published"):
        parts.write_parts(tmp_path, fetch)
