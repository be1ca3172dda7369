"""Machines try to break the interface: schemathesis on its schema, and a fuzz of uploads."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inkmaker import power, to_strokes
from PIL import Image, ImageDraw
from serving import in_process, on_a_port, tiny
from starlette.testclient import TestClient

from gryphone.reading.inkml import to_inkml
from gryphone.recognition.recognizer import Recognizer
from gryphone.server.app import create_app
from gryphone.server.settings import Settings

DEEP = int(os.environ.get("GRYPHONE_FUZZ", "0"))  # how many cases, by hand
FUZZ = settings(
    max_examples=DEEP or 120,
    deadline=None,
    derandomize=not DEEP,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
ANSWERS = (200, 400, 413, 422)


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return tiny()


@pytest.fixture(scope="module")
def client(recognizer: Recognizer):
    with in_process(recognizer) as client:
        yield client


def test_schemathesis_finds_nothing(recognizer: Recognizer, tmp_path: Path) -> None:
    # That schema-valid requests are accepted cannot be asked for: a schema cannot say which
    # strings are InkML, nor which symbols the model knows.
    call = "import sys; from schemathesis.cli import schemathesis as run; sys.exit(run())"
    options = ["--exclude-checks", "positive_data_acceptance", "--phases", "examples,fuzzing"]
    options += ["--max-examples", "40", "--seed", "7", "--no-color", "--continue-on-failure"]
    limits = Settings(port=0)
    with on_a_port(create_app(limits, recognizer), limits) as url:
        done = subprocess.run(
            [sys.executable, "-c", call, "run", f"{url}openapi.json", *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stdout + done.stderr


def seeds() -> list[bytes]:
    """Good files of every kind."""
    image = Image.new("RGB", (60, 40), "white")
    pen = ImageDraw.Draw(image)
    pen.line((10, 20, 50, 20), "black", 3)
    pen.line((30, 5, 30, 35), "black", 3)
    files = []
    for format_ in ("PNG", "JPEG", "WEBP", "TIFF", "BMP"):
        out = io.BytesIO()
        image.save(out, format_)
        files.append(out.getvalue())
    ink = {"strokes": to_strokes(power())}
    return [*files, to_inkml(power()).encode(), json.dumps(ink).encode()]


SEEDS = seeds()
EDIT = st.tuples(
    st.sampled_from(("flip", "cut", "double", "insert")),
    st.floats(0, 1, exclude_max=True),
    st.binary(min_size=1, max_size=12),
)


def edited(data: bytes, edits: list[tuple[str, float, bytes]]) -> bytes:
    """Damage that a file may take."""
    for kind, place, extra in edits:
        at = int(place * len(data))
        if kind == "flip":
            data = data[:at] + extra + data[at + len(extra) :]
        elif kind == "cut":
            data = data[:at]
        elif kind == "double":
            data = data[: at + 64] + data[at:]
        else:
            data = data[:at] + extra + data[at:]
    return data


@FUZZ
@given(st.sampled_from(SEEDS), st.lists(EDIT, max_size=4))
def test_damaged_files_are_refused_or_read(client: TestClient, seed: bytes, edits) -> None:
    files = {"file": ("a", edited(seed, edits))}
    response = client.post("/v1/recognize", files=files, data={"options": '{"steps": 1}'})
    assert response.status_code in ANSWERS, response.text
    response.json()


@FUZZ
@given(st.lists(EDIT, min_size=1, max_size=3), st.booleans())
def test_damaged_forms_are_refused_or_read(client: TestClient, edits, stream: bool) -> None:
    part = b'Content-Disposition: form-data; name="%s"; filename="a.json"\r\n\r\n%s\r\n'
    body = (
        b"--B\r\n" + part % (b"file", SEEDS[-1]) + b"--B\r\n" + part % (b"options", b'{"steps": 1}')
    )
    body = edited(body + b"--B--\r\n", edits)
    headers = {"content-type": "multipart/form-data; boundary=B"}
    route = "/v1/recognize/stream" if stream else "/v1/recognize"
    assert client.post(route, content=body, headers=headers).status_code in ANSWERS


NUMBERS = st.one_of(st.integers(-20, 20), st.floats(-1e9, 1e9), st.sampled_from((0, 1e-30, 1e9)))
INKS = st.lists(
    st.lists(st.lists(NUMBERS, min_size=2, max_size=2), min_size=1, max_size=6),
    min_size=1,
    max_size=8,
)
NAMES = st.sampled_from(("x", "1", "+", r"\frac", r"\sqrt", "<empty>", "<pad>", "", r"\nothing"))
MARKS = st.sampled_from(("", "{", "^{}", "_{}", "{}", "}"))
OPTIONS = st.fixed_dictionaries(
    {"steps": st.integers(1, 3)},
    optional={
        "lock": st.dictionaries(st.integers(0, 45).map(str), NAMES, max_size=4),
        "hint": st.text(r"x1?.+\frac{}^_ ", max_size=12),
        "allowed": st.lists(NAMES, max_size=4),
        "given": st.lists(st.tuples(NAMES, MARKS), max_size=6),
        "remask": st.lists(st.integers(0, 6), max_size=3),
        "n_best": st.integers(1, 4),
        "samples": st.integers(1, 3),
    },
)


@FUZZ
@given(INKS, OPTIONS)
def test_any_ink_with_any_question(client: TestClient, ink, options) -> None:
    body = {"strokes": ink, "options": options}
    response = client.post("/v1/recognize", json=body)
    assert response.status_code in ANSWERS, (response.text, body)
