"""What the server refuses, and that a refusal is one clear line with the right status."""

import io
import json
import socket
import struct
import time
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
import uvicorn
from fastapi import FastAPI
from inkmaker import power
from PIL import Image
from serving import in_process, on_a_port, repeated_scans, strokes, tiny, wait_until
from starlette.testclient import TestClient

from gryphone.errors import InkError
from gryphone.recognition.recognizer import Recognizer
from gryphone.server.app import create_app
from gryphone.server.problems import Problem
from gryphone.server.run import make_server
from gryphone.server.settings import Settings
from gryphone.server.submission import (
    jpeg_scans,
    read_form,
    read_photo,
    read_request,
    read_upload,
)

SMALL = {"body": 20_000, "strokes": 50, "points": 400, "megapixels": 2, "path": 100}
BOMB = (
    '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]>'
    "<ink><trace>&c;</trace></ink>"
)


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return tiny()


@pytest.fixture(scope="module")
def client(recognizer: Recognizer):
    with in_process(recognizer, **SMALL) as client:
        yield client


def header_only_png(width: int, height: int) -> bytes:
    """A PNG that promises pixels and has none."""

    def chunk(name: bytes, data: bytes) -> bytes:
        check = zlib.crc32(name + data)
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rest = chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + rest


def noise(format_: str, side: int = 60) -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (side, side), dtype=np.uint8)
    Image.fromarray(pixels).save(out, format_)
    return out.getvalue()


@pytest.mark.parametrize(
    ("body", "status", "code", "message"),
    [
        (b"", 400, "bad_json", "not JSON"),
        (b"{", 400, "bad_json", "not JSON"),
        (b"\xff\xfe", 400, "bad_json", "not JSON"),
        (b"[" * 10_000, 400, "bad_json", "not JSON"),
        (b"[]", 422, "bad_options", "the body"),
        (b"{}", 422, "bad_options", "give either strokes or inkml"),
        (b'{"strokes": [[[0,0]]], "inkml": "<ink/>"}', 422, "bad_options", "give either"),
        (b'{"strokes": []}', 400, "bad_ink", "no strokes"),
        (b'{"strokes": [[]]}', 400, "bad_ink", "no strokes"),
        (b'{"strokes": 3}', 400, "bad_ink", "expected a list of strokes"),
        (b'{"strokes": [[[0]]]}', 400, "bad_ink", "stroke 0, point 0"),
        (b'{"strokes": [[[0, NaN]]]}', 400, "bad_ink", "finite"),
        (b'{"strokes": [[[0, 1e999]]]}', 400, "bad_ink", "finite"),
        (b'{"strokes": [[[0, "1"]]]}', 400, "bad_ink", "expected two numbers"),
        (b'{"strokes": [[{"x": 1}]]}', 400, "bad_ink", "expected two numbers"),
        (b'{"inkml": 3}', 400, "bad_ink", "inkml: Input should be a valid string"),
        (b'{"strokes": [[[0, 1e12]]]}', 400, "bad_ink", "finite and below 1e+09"),
        (b'{"strokes": [[[0,0]]], "color": 1}', 422, "bad_options", "color"),
        (b'{"inkml": "<ink>"}', 400, "bad_ink", "broken XML"),
        (b'{"inkml": "<ink/>"}', 400, "bad_ink", "no strokes"),
        (b'{"inkml": "<html/>"}', 400, "bad_ink", "InkML starts with <ink>"),
    ],
)
def test_bad_json(client: TestClient, body: bytes, status: int, code: str, message: str) -> None:
    headers = {"content-type": "application/json"}
    response = client.post("/v1/recognize", content=body, headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert message in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"hello", "not an image"),
        (BOMB.encode(), "entities are not allowed"),
        (noise("JPEG")[:400], "damaged image"),
        (noise("PNG")[:60], "image"),
        (header_only_png(10_000, 10_000), "100 megapixels, the limit is 2"),
        (header_only_png(60_000, 60_000), "megapixels"),
        (header_only_png(100, 100), "damaged image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
        (b"GIF89a" + b"\0" * 50, "not an image"),
        (b'{"strokes": 3}', "expected a list of strokes"),
        (b'{"strokes": [[[0,0]]], "label": 3}', "label is 3"),
    ],
)
def test_bad_files(client: TestClient, data: bytes, message: str) -> None:
    for route in ("/v1/recognize", "/v1/page", "/v1/recognize/stream"):
        response = client.post(route, files={"file": ("note.png", data)})
        assert response.status_code == 400, response.text
        error = response.json()["error"]
        assert error["code"] == "bad_ink"
        assert message in error["message"]
        assert error["message"].startswith("note.png: ")
        assert error["message"].isprintable()


def test_a_blank_page_and_a_texture_are_told_apart(client: TestClient) -> None:
    out = io.BytesIO()
    Image.new("L", (100, 100), 255).save(out, "PNG")
    response = client.post("/v1/recognize", files={"file": out.getvalue()})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "bad_ink")
    assert "blank" in response.json()["error"]["message"]


def test_an_image_is_read_as_the_format_it_was_accepted_as() -> None:
    out = io.BytesIO()
    Image.fromarray(np.pad(np.zeros((4, 40), np.uint8), 30, constant_values=255)).save(out, "WEBP")
    data = out.getvalue().ljust(6000, b"\0")
    data = data[:2048] + b"PCD_" + data[2052:]  # Pillow on its own takes it for a Photo CD
    assert Image.open(io.BytesIO(data)).format == "PCD"
    assert read_photo(data, "a.webp", Settings())[1] == (100, 64)


def test_too_much_ink(client: TestClient) -> None:
    many = [[[n, 0], [n, 9]] for n in range(51)]
    long = [[[n, n % 7] for n in range(401)]]
    scribble = [[[100 * (n % 2), n / 10] for n in range(300)]]
    for ink, message in (
        (many, "51 strokes; the limit is 50"),
        (long, "401 points; the limit is 400"),
        (scribble, "the limit is 100; this is no writing"),
    ):
        response = client.post("/v1/recognize", json={"strokes": ink})
        assert (response.status_code, response.json()["error"]["code"]) == (400, "bad_ink")
        assert message in response.json()["error"]["message"]


@pytest.mark.parametrize("point", [b"[0],", b"[0,0],", b"[],", b"0,"])
def test_a_body_of_bad_points_costs_no_more_than_its_bytes(point: bytes) -> None:
    """It once cost 350 times as much: a complaint for each of a million points."""
    for count in (5_000, 500_000):  # complained about once; refused before it is parsed
        body = b'{"strokes": [[' + point * count + b"[1]]]}"
        tracemalloc.start()
        with pytest.raises((Problem, InkError)) as caught:
            read_request(body, "application/json", Settings(points=20_000))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 4_000_000
        assert "more)" not in str(caught.value)
    assert "far more than the limit of 20000 points" in str(caught.value)


KEYS = {f"k{n}": 1 for n in range(20_000)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (KEYS, "options: k0 is no option"),
        ({"lock": KEYS}, "options.lock: 20000 entries; far too many"),
        ({"allowed": [1] * 20_000}, "options.allowed: 20000 entries"),
        ({"remask": [""] * 20_000}, "options.remask: 20000 entries"),
        ({"given": [1] * 20_000}, "options.given: 20000 entries"),
    ],
)
def test_many_bad_options_are_one_complaint(options: Any, message: str) -> None:
    """Each once cost a kilobyte, and all of them together held up whoever asked for the time."""
    body = json.dumps({"strokes": [[[0, 0], [1, 1]]], "options": options}).encode()
    tracemalloc.start()
    with pytest.raises(Problem, match=message):
        read_request(body, "application/json", Settings())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        ("<ink " + " ".join(f'a{n}="1"' for n in range(11_000)) + ">", "10500 attributes"),
        ("<ink>" + "<a/>" * 11_000, "10500 tags"),
        ("<ink>" + "1 2," * 11_000, "10400 points"),
        ("<ink>" + "1 " * 20_000, "14000 values"),
    ],
)
def test_xml_is_counted_before_it_is_parsed(inside: str, message: str) -> None:
    document = f"{inside}<trace>0 0, 1 1</trace></ink>"
    body = json.dumps({"inkml": document}).encode()
    settings = Settings(**SMALL)
    with pytest.raises(InkError, match=message):
        read_request(body, "application/json", settings)
    with pytest.raises(InkError, match=message):
        read_upload(document.encode("utf-16"), "a.inkml", settings)


def test_scans_of_a_jpeg_are_counted_before_it_is_decoded() -> None:
    plain = noise("JPEG")
    assert jpeg_scans(plain) == 1
    # What is behind the image may be anything, and so may a comment.
    assert jpeg_scans(plain + b"\xff\xda" * 500) == 1
    comment = b"\xff\xfe\x00\x06\xff\xda\xff\xda"
    assert jpeg_scans(plain[:2] + comment + plain[2:]) == 1
    assert jpeg_scans(noise("PNG")) == 0
    few = repeated_scans(0)
    assert jpeg_scans(repeated_scans(50)) == jpeg_scans(few) + 50
    assert read_photo(repeated_scans(20), "a.jpg", Settings())[1] == (200, 200)
    with pytest.raises(InkError, match=r"a JPEG of 1[0-9]+ scans, the limit is 50"):
        read_photo(repeated_scans(100), "a.jpg", Settings())


def test_ink_is_limited_by_what_it_costs(client: TestClient) -> None:
    canvas = tiny().checkpoint.config.canvas
    body = json.dumps({"strokes": [[[10 * (n % 7), 10 * (n // 7)]] for n in range(49)]}).encode()
    patches = read_request(body, "application/json", Settings(), canvas).patches
    assert 49 <= patches <= 4 * 49
    limits = Settings(patches=patches - 1)
    with pytest.raises(InkError, match=f"cover {patches} patches of the canvas, the limit is"):
        read_request(body, "application/json", limits, canvas)


def talk(url: str, request: bytes) -> bytes:
    """What a server says to some bytes before it hangs up."""
    port = int(url.rstrip("/").rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(request)
        answer = b""
        while part := client.recv(65536):
            answer += part
    return answer


def test_what_is_no_http_is_told_so_as_all_else_is(recognizer: Recognizer) -> None:
    settings = Settings(port=0)
    with on_a_port(create_app(settings, recognizer), settings) as url:
        post = (
            b"POST /v1/recognize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        )
        both = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        hidden = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for request, code in (
            (b"NONSENSE\r\n\r\n", "bad_http"),
            (b"GET / HTTP/1.1\r\n\r\n", "bad_http"),  # without a host
            (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000, "bad_http"),
            (post + both + hidden, "bad_request"),
        ):
            head, _, body = talk(url, request).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
            assert b"application/json" in head
            assert b"x-content-type-options: nosniff" in head
            assert json.loads(body)["error"]["code"] == code  # and nothing behind it


def test_the_body_is_limited_while_it_is_read(client: TestClient) -> None:
    headers = {"content-type": "application/json"}
    for body in (b" " * 20_001, (b" " * 1000 for _ in range(30))):  # with a length, and chunked
        response = client.post("/v1/recognize", content=body, headers=headers)
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "too_large"
    assert client.app.state.service.admission.buffered == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "kind", ["text/plain", "image/png", "", "application/x-www-form-urlencoded"]
)
def test_other_media_types(client: TestClient, kind: str) -> None:
    headers = {"content-type": kind}
    response = client.post("/v1/recognize", content=b"x", headers=headers)
    assert response.status_code == 415
    assert "application/json" in response.json()["error"]["message"]


def test_packed_bodies_are_refused(client: TestClient) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    response = client.post("/v1/recognize", content=b"\x1f\x8b", headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (415, "bad_encoding")


def test_paths_and_methods_that_do_not_exist(client: TestClient) -> None:
    assert client.get("/nothing").json()["error"]["code"] == "not_found"
    wrong = client.get("/v1/recognize")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "bad_method")
    assert client.get("/static/../app.py").status_code == 404
    assert client.get("/static/%2e%2e/app.py").status_code == 404


def form(*parts: bytes, end: bytes = b"--B--\r\n") -> dict[str, Any]:
    body = b"".join(b"--B\r\n" + part + b"\r\n" for part in parts) + end
    return {"content": body, "headers": {"content-type": "multipart/form-data; boundary=B"}}


FILE = b'Content-Disposition: form-data; name="file"\r\n\r\n<ink/>'


@pytest.mark.parametrize(
    ("request_", "status", "message"),
    [
        (form(), 422, "file: is missing"),
        (form(FILE, FILE), 422, "file: is in the form twice"),
        (form(FILE, FILE.replace(b"file", b"color")), 422, "color: is no field"),
        (form(*[FILE.replace(b"file", b"f%d" % n) for n in range(9)]), 413, "more than 8 fields"),
        (form(b"Content-Disposition: form-data\r\n\r\nx"), 400, "no name"),
        (form(FILE, end=b""), 400, "closing boundary"),
        (form(FILE, FILE.replace(b"file", b"options")), 400, "options is not JSON"),
        ({"content": b"x", "headers": {"content-type": "multipart/form-data"}}, 400, "boundary"),
        ({"content": b"x", "headers": form()["headers"]}, 400, "broken form"),
    ],
)
def test_bad_forms(client: TestClient, request_: Any, status: int, message: str) -> None:
    response = client.post("/v1/recognize", **request_)
    assert response.status_code == status, response.text
    assert message in response.json()["error"]["message"]


def test_no_upload_touches_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("a file was opened")

    for name in ("TemporaryFile", "SpooledTemporaryFile", "NamedTemporaryFile", "mkstemp"):
        monkeypatch.setattr(f"tempfile.{name}", forbidden)
    monkeypatch.setattr("builtins.open", forbidden)
    data = b"\r\n--Bx\r" * 400_000  # beyond the size at which Starlette's forms spill over
    head = b'--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    parts = read_form(head + data + b"\r\n--B--\r\n", "multipart/form-data; boundary=B")
    assert bytes(parts["file"].data) == data


def test_slow_clients_are_cut_off(recognizer: Recognizer) -> None:
    settings = Settings(port=0, header_seconds=0.3, body_seconds=0.3)
    with on_a_port(create_app(settings, recognizer), settings) as url:
        port = int(url.rstrip("/").rpartition(":")[2])
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.settimeout(5)
            slow.sendall(b"POST /v1/recognize HTTP/1.1\r\nHost: localhost\r\n")  # and no more
            assert slow.recv(100) == b""
        head = (
            b"POST /v1/recognize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        )
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.settimeout(5)
            slow.sendall(head + b"Content-Length: 50\r\n\r\n{")  # and no more
            assert slow.recv(1000).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - began < 4


def test_a_client_that_reads_nothing_is_cut_off(
    recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers: list[uvicorn.Server] = []

    def remember(settings: Settings, app: FastAPI) -> uvicorn.Server:
        servers.append(make_server(settings, app))
        return servers[0]

    monkeypatch.setattr("serving.make_server", remember)
    monkeypatch.setattr("gryphone.server.middleware.SENDING_SECONDS", 0.2)
    settings = Settings(port=0, seconds=0.2, header_seconds=0.5)
    with on_a_port(create_app(settings, recognizer), settings) as url:
        port = int(url.rstrip("/").rpartition(":")[2])
        with socket.socket() as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            lazy.connect(("127.0.0.1", port))
            lazy.sendall(b"GET /static/katex/katex.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 40)
            wait_until(lambda: servers[0].server_state.connections)
            wait_until(lambda: not servers[0].server_state.connections)


def test_a_refused_body_leaves_the_server_well(recognizer: Recognizer) -> None:
    settings = Settings(port=0, **SMALL)
    with on_a_port(create_app(settings, recognizer), settings) as url:
        port = int(url.rstrip("/").rpartition(":")[2])
        head = (
            b"POST /v1/recognize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        )
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.settimeout(5)
            client.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
            answer = b""
            try:
                for _ in range(30):
                    client.sendall(b"3e8\r\n" + b" " * 1000 + b"\r\n")
            except OSError:
                pass  # it may hang up while we still talk
            answer = client.recv(1000)
        assert answer.startswith(b"HTTP/1.1 413")
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 200")


def test_too_many_bytes_at_once_are_shed(recognizer: Recognizer) -> None:
    with in_process(recognizer, buffer=100) as client:
        response = client.post("/v1/recognize", json=strokes(power()))
        assert response.status_code == 503
        assert int(response.headers["retry-after"]) >= 1
