"""Servers for the tests: in process, or on a port of the loopback interface."""

import io
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastapi import FastAPI
from inkmaker import to_strokes
from PIL import Image
from starlette.testclient import TestClient
from tinymodel import tiny_checkpoint

import gryphone
from gryphone.ink import Ink
from gryphone.recognition.recognizer import Recognizer
from gryphone.server.app import create_app
from gryphone.server.run import address, listen, make_server
from gryphone.server.settings import Settings


@cache
def tiny() -> Recognizer:
    """A tiny recogniser with random weights, one for all tests."""
    with TemporaryDirectory() as folder:
        return gryphone.load(tiny_checkpoint(Path(folder) / "tiny"))


@contextmanager
def in_process(recognizer: Recognizer | None, **settings: Any) -> Iterator[TestClient]:
    """A client of an application without a socket, once its model is loaded."""
    app = create_app(Settings(**settings), recognizer)
    with TestClient(app, "http://localhost", raise_server_exceptions=False) as client:
        assert app.state.service.engine.ready.wait(30)
        yield client


@contextmanager
def on_a_port(app: FastAPI, settings: Settings) -> Iterator[str]:
    """The address of a real server."""
    sock = listen(settings)
    server = make_server(settings, app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    try:
        assert app.state.service.engine.ready.wait(30)
        yield address(sock)
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def strokes(ink: Ink, /, **options: Any) -> dict[str, Any]:
    """The JSON body of a request."""
    return {"strokes": to_strokes(ink), "options": options}


def events(text: str) -> list[tuple[str, Any]]:
    """Server-sent events as (name, data)."""
    found = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def repeated_scans(times: int, side: int = 200) -> bytes:
    """A progressive JPEG whose last scan comes once more, so many times: a few bytes each."""
    out = io.BytesIO()
    image = Image.new("L", (side, side), 255)
    image.paste(0, (20, side // 2, side - 20, side // 2 + 4))
    image.save(out, "JPEG", progressive=True)
    data = out.getvalue()
    last, end = data.rindex(b"\xff\xda"), data.rindex(b"\xff\xd9")
    return data[:end] + data[last:end] * times + data[end:]


def wait_until(condition: Any, seconds: float = 10) -> None:
    """Wait for something that another thread does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)
