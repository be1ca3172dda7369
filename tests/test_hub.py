"""Checkpoints in the Hub's layout: from a folder, from its cache, and to a Hub on this machine."""

import base64
import json
import threading
from collections.abc import Iterator
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from inkmaker import power

from gryphone.errors import CheckpointError, ConfigError, MissingExtra
from gryphone.recognition.recognizer import Recognizer

COMMIT = "c0ffee" * 6 + "c0de"


class Hub(BaseHTTPRequestHandler):
    """As much of the Hub as takes a commit of small files, and gives them back."""

    files: dict[str, bytes]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if "/commit/" in self.path:
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    self.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
        asked = json.loads(body) if "/preupload/" in self.path else {"files": []}
        kinds = [
            {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
            for file in asked["files"]
        ]
        at = f"http://{self.headers['Host']}/ours/tiny"
        told = {"name": "ours/tiny", "url": at, "files": kinds, "errors": [], "warnings": []}
        told |= {"commitUrl": f"{at}/commit/{COMMIT}", "commitOid": COMMIT}
        self.answer(200, json.dumps(told).encode())

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        told: object = {"id": "ours/tiny", "sha": COMMIT}
        if self.path.startswith("/api/models/ours/tiny"):
            if "/tree/" in self.path:
                told = [
                    {"type": "file", "path": name, "size": len(body), "oid": sha1(body).hexdigest()}
                    for name, body in self.files.items()
                ]
            self.answer(200, json.dumps(told).encode())
        elif self.path.startswith("/ours/tiny/resolve/") and name in self.files:
            self.answer(200, self.files[name])
        else:
            self.answer(404, b"{}")

    do_HEAD = do_GET

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        headers = {"Content-Length": str(len(body)), "ETag": f'"{sha1(body).hexdigest()}"'}
        for name, value in (headers | {"X-Repo-Commit": COMMIT}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    """A Hub on this machine, and the client told of it."""
    kind = type("OurHub", (Hub,), {"files": {}})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        at = f"http://127.0.0.1:{server.server_port}"
        there = at + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", at)
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", there)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield kind
        server.shutdown()


def test_a_saved_checkpoint_is_loaded_again(recognizer: Recognizer, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "weights-7.safetensors").write_text("of an earlier checkpoint")
    assert recognizer.save_pretrained(saved) is None
    names = {"config.json", "weights-0.safetensors", "README.md"}
    assert {path.name for path in saved.iterdir()} == names
    card = (saved / "README.md").read_text()
    assert "library_name: gryphone" in card and "license: other" in card
    assert "Licence of the weights: none." in card
    again = Recognizer.from_pretrained(saved)
    assert again.recognize(power()).latex == recognizer.recognize(power()).latex
    with pytest.raises(ConfigError, match="holds this very checkpoint"):
        again.save_pretrained(saved)
    assert (saved / "config.json").is_file()


def test_pushed_and_fetched(recognizer: Recognizer, hub: type[Hub], tmp_path: Path) -> None:
    url = recognizer.push_to_hub("ours/tiny", token="hf_none", private=True)
    assert url.endswith(f"/ours/tiny/commit/{COMMIT}")
    assert 'from_pretrained("ours/tiny")' in hub.files["README.md"].decode()
    hub.files["harm.py"] = b"raise SystemExit"
    again = Recognizer.from_pretrained("ours/tiny", cache_dir=tmp_path)
    assert again.recognize(power()).latex == recognizer.recognize(power()).latex
    assert not [*tmp_path.rglob("harm.py")]
    hub.files.clear()  # what was fetched once stays
    Recognizer.from_pretrained("ours/tiny", cache_dir=tmp_path, local_files_only=True)
    with pytest.raises(CheckpointError, match=r"^ours/other: no folder here, nor to be had from"):
        Recognizer.from_pretrained("ours/other", cache_dir=tmp_path)


def test_without_the_package(
    recognizer: Recognizer, tiny_weights: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    wanted = r"^huggingface_hub is not installed; run: pip install 'gryphone\[hub\]'$"
    with pytest.raises(MissingExtra, match=wanted):
        Recognizer.from_pretrained("ours/tiny")
    with pytest.raises(MissingExtra, match=wanted):
        recognizer.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
    assert Recognizer.from_pretrained(tiny_weights).checkpoint == recognizer.checkpoint
