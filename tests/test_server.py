"""The HTTP interface as a client meets it, on a tiny model with random weights."""

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inkmaker import fraction, power, row, to_strokes
from PIL import Image
from serving import events, in_process, strokes, tiny
from starlette.testclient import TestClient

from gryphone.errors import ConfigError
from gryphone.reading.formats import FORMATS
from gryphone.reading.inkml import to_inkml
from gryphone.recognition.question import AUTO_STEPS
from gryphone.recognition.recognizer import Recognizer
from gryphone.server.app import create_app
from gryphone.server.schemas import Answer, LiveAnswer, ModelAnswer
from gryphone.server.settings import Settings
from gryphone.server.telemetry import Counter, Histogram


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return tiny()


@pytest.fixture(scope="module")
def client(recognizer: Recognizer):
    with in_process(recognizer) as client:
        yield client


def picture(format_: str = "PNG", turned: bool = False) -> bytes:
    """An image of a plus sign, 120 by 80."""
    pixels = np.full((80, 120), 255, dtype=np.uint8)
    pixels[38:43, 30:90] = 0
    pixels[15:65, 58:63] = 0
    image, out = Image.fromarray(pixels), io.BytesIO()
    exif = Image.Exif()
    if turned:
        exif[0x0112] = 6  # held on its side
    image.save(out, format_, exif=exif)
    return out.getvalue()


def test_strokes_answer_like_the_python_api(client: TestClient, recognizer: Recognizer) -> None:
    ink = row("x+1=2")
    response = client.post("/v1/recognize", json=strokes(ink, steps=4, n_best=2, seed=3))
    assert response.status_code == 200
    answer = response.json()
    Answer.model_validate(answer)
    expected = recognizer.recognize(ink, steps=4, n_best=2, seed=3).to_dict()
    for key in ("latex", "tokens", "steps", "seed", "warnings"):
        assert answer[key] == expected[key]
    for key in ("symbol", "modifier", "strokes", "span", "box"):
        assert [s[key] for s in answer["symbols"]] == [s[key] for s in expected["symbols"]]
    assert answer["confidence"] == pytest.approx(expected["confidence"], abs=1e-3)
    assert answer["mathml"].startswith("<math")
    assert answer["size"] is None
    assert "ink" not in answer


def test_as_written_over_http(client: TestClient, recognizer: Recognizer) -> None:
    ink = row("x+1=2")
    answer = client.post("/v1/recognize", json=strokes(ink, as_written=True)).json()
    Answer.model_validate(answer)
    expected = recognizer.recognize(ink, as_written=True).to_dict()
    assert answer["as_written"] == expected["as_written"] is not None
    found = [s["written"] and s["written"][0] for s in answer["symbols"]]
    assert found == [s["written"] and s["written"][0] for s in expected["symbols"]]
    assert client.post("/v1/recognize", json=strokes(ink)).json()["as_written"] is None


def test_steps_are_automatic_unless_something_else_is_asked_for(
    client: TestClient, recognizer: Recognizer
) -> None:
    ink = row("x+1")
    expected = recognizer.recognize(ink, steps="auto")
    assert expected.steps == AUTO_STEPS  # a network with random weights is never sure
    for options in ({}, {"steps": "auto"}, {"steps": None}):
        answer = client.post("/v1/recognize", json=strokes(ink, **options)).json()
        assert (answer["latex"], answer["steps"]) == (expected.latex, expected.steps)
    found = events(client.post("/v1/recognize/stream", json=strokes(ink)).text)
    looks = [(data["look"], data["number"], data["total"]) for _, data in found[:-1]]
    assert looks == [(1, 1, 1), *((2, n, AUTO_STEPS) for n in range(1, AUTO_STEPS + 1))]
    limited = client.post("/v1/recognize", json=strokes(ink, deadline_ms=20_000)).json()
    assert limited["steps"] == 50


def test_points_and_strokes_are_read_as_in_python(client: TestClient) -> None:
    plain = [[[0, 0], [5, 9]], [[5, 0], [0, 9]]]
    answer = client.post("/v1/recognize", json={"strokes": plain}).json()
    for same in (
        [[{"x": x, "y": y} for x, y in stroke] for stroke in plain],
        [{"x": [x for x, _ in stroke], "y": [y for _, y in stroke]} for stroke in plain],
        [[[x, y, 17] for x, y in stroke] for stroke in plain],
        [*plain, []],
    ):
        other = client.post("/v1/recognize", json={"strokes": same})
        assert other.json() | {"seconds": 0} == answer | {"seconds": 0}


def test_strokes_come_back_when_asked_for(client: TestClient) -> None:
    ink = power()
    answer = client.post("/v1/recognize", json=strokes(ink, ink=True)).json()
    sent = [np.round(s, 2).tolist() for s in ink.strokes]
    assert answer["ink"]["strokes"] == sent
    owned = sorted(n for symbol in answer["symbols"] for n in symbol["strokes"])
    assert owned == list(range(len(sent)))


def test_inkml_and_uploads_of_ink_give_the_same_answer(client: TestClient) -> None:
    ink = fraction()
    inkml = to_inkml(ink)
    plain = client.post("/v1/recognize", json=strokes(ink)).json()
    others = [
        client.post("/v1/recognize", json={"inkml": inkml}),
        client.post(
            "/v1/recognize", json={"inkml": f'<?xml version="1.0" encoding="UTF-16"?>{inkml}'}
        ),
        client.post("/v1/recognize", files={"file": ("f.inkml", inkml)}),
        *(
            client.post("/v1/recognize", files={"file": ("f", (mark + inkml).encode(wide))})
            for wide in ("utf-16-be", "utf-16-le")
            for mark in ("\ufeff", "")
        ),
        client.post("/v1/recognize", files={"file": ("f.json", json.dumps(to_strokes(ink)))}),
    ]
    for response in others:
        assert response.status_code == 200, response.text
        answer = response.json()
        assert answer["latex"] == plain["latex"]
        assert len(answer["ink"]["strokes"]) == len(ink.strokes)


@pytest.mark.parametrize("format_", ["PNG", "JPEG", "WEBP", "TIFF", "BMP"])
def test_images_are_traced_in_their_own_pixels(client: TestClient, format_: str) -> None:
    files = {"file": (f"C:\\plus.{format_.lower()}", picture(format_))}
    response = client.post("/v1/recognize", files=files, data={"options": '{"steps": 2}'})
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["size"] == [120, 80]
    assert answer["steps"] == 2
    assert answer["file"] == "plus"
    points = np.concatenate([np.array(s) for s in answer["ink"]["strokes"]])
    assert points.min(0) == pytest.approx([32, 17], abs=4)
    assert points.max(0) == pytest.approx([88, 63], abs=4)


def test_size_is_that_of_the_turned_image(client: TestClient) -> None:
    files = {"file": ("plus.jpg", picture("JPEG", turned=True))}
    assert client.post("/v1/recognize", files=files).json()["size"] == [80, 120]


def test_a_stream_shows_every_step_and_ends_with_the_answer(client: TestClient) -> None:
    body = strokes(row("x+1"), steps=4)
    response = client.post("/v1/recognize/stream", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    found = events(response.text)
    # A network with random weights is never sure, and looks a second time.
    assert [name for name, _ in found] == ["step"] * 8 + ["result"]
    assert [data["number"] for _, data in found[:8]] == [1, 2, 3, 4] * 2
    assert [data["look"] for _, data in found[:8]] == [1] * 4 + [2] * 4
    first = found[0][1]
    assert set(first) == {"number", "total", "latex", "rows", "masked", "look"}
    assert first["total"] == 4
    assert first["masked"] == list(range(len(first["rows"])))
    plain = client.post("/v1/recognize", json=body).json()
    for key in set(plain) - {"seconds"}:
        assert found[-1][1][key] == plain[key]


def test_locks_hints_and_given_answers(client: TestClient) -> None:
    def ask(**options: Any) -> Any:
        response = client.post("/v1/recognize", json=strokes(power(), **options))
        assert response.status_code == 200, response.text
        return response.json()

    locked = ask(lock={"0": "x", "2": ["2", ""]})
    assert locked["symbols"][0]["symbol"] == "x"
    assert [locked["symbols"][2][k] for k in ("symbol", "modifier")] == ["2", ""]
    assert ask(hint=r"\frac{?}{x}")["latex"].endswith("}{x}")
    assert {s["symbol"] for s in ask(allowed=["x", "1"])["symbols"]} <= {"x", "1"}
    rows = [["x", ""], ["+", ""], ["1", ""]]
    again = ask(given=rows, remask=[1], allowed=["-"])
    assert [[s["symbol"], s["modifier"]] for s in again["symbols"]] == [rows[0], ["-", ""], rows[2]]
    assert ask(deadline_ms=20_000, steps=3)["steps"] == 3
    plain = ask(boxes=False, alternatives=0)
    assert all(s["box"] is None and s["alternatives"] == [] for s in plain["symbols"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": 3}, "options.step: Extra inputs"),
        ({"steps": 0}, "options.steps: it must be a whole number from 1 to 50, or 'auto'"),
        ({"steps": 51}, "options.steps: it must be"),
        ({"steps": "3"}, "options.steps: it must be"),
        ({"steps": True}, "options.steps: it must be"),
        ({"steps": 2.0}, "options.steps: it must be"),
        ({"deadline_ms": 0}, "options.deadline_ms"),
        ({"deadline_ms": 30_001}, "options.deadline_ms: at most 30000"),
        ({"n_best": 11}, "options.n_best"),
        ({"samples": 17}, "options.samples"),
        ({"views": 6}, "options.views"),
        ({"steps": 50, "samples": 5, "views": 5}, "views is 1250; at most 1200"),
        ({"seed": -1}, "options.seed"),
        ({"lock": {"x": "1"}}, "options.lock.x"),
        ({"lock": {"0": r"\sqr"}}, r"did you mean \sqrt"),
        ({"lock": {"999": "x"}}, "positions go from 0"),
        ({"lock": {str(n): "x" for n in range(151)}}, "options.lock"),
        ({"hint": "x" * 1001}, "options.hint"),
        ({"hint": r"\frac{"}, "hint"),
        ({"hint": "?", "remask": [0]}, "cannot be combined"),
        ({"allowed": []}, "options.allowed"),
        ({"allowed": [r"\foo"]}, "allowed"),
        ({"given": [["x"]]}, "given.0: 1 entries, 2 are needed"),
        ({"given": [["x", r"\foo"]]}, "given.0"),
        ({"given": [["x", ""]] * 41}, "the canvas holds 39"),
        ({"given": [["x", ""]], "remask": [7]}, "outside the answer"),
    ],
)
def test_bad_options_are_named(client: TestClient, options: Any, message: str) -> None:
    for route in ("/v1/recognize", "/v1/recognize/stream"):
        response = client.post(route, json=strokes(power()) | {"options": options})
        assert response.status_code == 422, response.text
        error = response.json()["error"]
        assert error["code"] == "bad_options"
        assert message in error["message"]
        assert "\n" not in error["message"]


def test_about(client: TestClient, recognizer: Recognizer) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ok"}
    model = client.get("/v1/model").json()
    ModelAnswer.model_validate(model)
    assert model["symbols"] == list(recognizer.tokenizer.vocabularies[0].tokens[2:])
    assert model["vocabulary"]["symbols"] == len(model["symbols"])
    assert [f["name"] for f in model["formats"]] == [row.name for row in FORMATS]
    assert model["max_steps"] == model["limits"]["steps"] == 50
    assert {"bytes", "megapixels", "strokes", "points", "samples", "hint"} <= set(model["limits"])


def test_openapi_has_bodies_examples_and_errors(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    assert set(schema["paths"]) == {
        "/v1/recognize",
        "/v1/page",
        "/v1/live",
        "/v1/recognize/stream",
        "/v1/convert",
        "/v1/compute",
        "/v1/model",
        "/healthz",
        "/readyz",
        "/metrics",
    }
    post = schema["paths"]["/v1/recognize"]["post"]
    assert set(post["requestBody"]["content"]) == {"application/json", "multipart/form-data"}
    assert {"200", "400", "413", "415", "422", "503", "504"} <= set(post["responses"])
    for example in schema["components"]["schemas"]["InkRequest"]["examples"]:
        assert client.post("/v1/recognize", json=example).status_code == 200


def test_a_session_goes_on_from_what_the_client_sends(
    client: TestClient, recognizer: Recognizer
) -> None:
    sent, known = to_strokes(row("x+1")), []
    session = recognizer.session()
    for count in range(1, len(sent) + 1):
        answer = client.post("/v1/live", json={"strokes": sent[:count], "known": known}).json()
        LiveAnswer.model_validate(answer)
        ours = session.add(sent[count - 1]).to_dict()
        same = ("latex", "symbols", "kept", "erased", "final", "confidence")
        assert {k: answer[k] for k in same} == {k: ours[k] for k in same}
        known = [{k: s[k] for k in ("symbol", "modifier", "strokes")} for s in answer["symbols"]]
    scratch = [[-2 + 40 * (i % 2), 2 * i - 2] for i in range(8)]
    question = {"strokes": [*sent, scratch], "known": known}
    erased = client.post("/v1/live", json=question).json()
    assert (erased["latex"], erased["symbols"]) == ("", [])
    assert (erased["erased"], erased["gestures"]) == ([*range(len(sent) + 1)], ["scratched"])
    left = client.post("/v1/live", json={**question, "gestures": False}).json()
    assert left["erased"] == []
    final = client.post("/v1/live", json={"strokes": sent, "known": known, "final": True}).json()
    fresh = client.post("/v1/recognize", json={"strokes": sent}).json()
    assert (final["latex"], final["symbols"]) == (fresh["latex"], fresh["symbols"])


@pytest.mark.parametrize(
    ("wrong", "status", "word"),
    [
        ({"known": [{"symbol": "x", "modifier": "", "strokes": [0]}] * 151}, 422, "known"),
        ({"known": [{"symbol": "x", "modifier": "", "strokes": [-2]}]}, 422, "known.0.strokes.0"),
        ({"known": [{"symbol": "quux", "modifier": "", "strokes": [0]}]}, 422, "quux"),
        ({"options": {"hint": "x"}}, 422, "hint"),
        ({"strokes": []}, 400, "no strokes"),
        ({"inkml": "<ink/>"}, 400, "inkml"),
    ],
)
def test_a_session_of_nonsense_is_refused(
    client: TestClient, wrong: dict[str, Any], status: int, word: str
) -> None:
    answer = client.post("/v1/live", json={"strokes": to_strokes(power()), **wrong})
    assert answer.status_code == status
    assert word in answer.json()["error"]["message"]
    upload = client.post("/v1/live", files={"file": b"[[[0, 0], [1, 1]]]"})
    assert (upload.status_code, upload.json()["error"]["code"]) == (415, "bad_type")


def test_metrics_count_with_few_labels(client: TestClient) -> None:
    client.get("/no/such/path")
    client.post("/v1/recognize", json=strokes(power()))
    text = client.get("/metrics").text
    assert 'gryphone_requests_total{route="other",status="404"}' in text
    assert 'gryphone_requests_total{route="/v1/recognize",status="200"}' in text
    assert 'gryphone_inks_total{outcome="answered"}' in text
    assert "no/such" not in text
    for line in text.splitlines():
        if not line.startswith("#"):
            float(line.rpartition(" ")[2])


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/metrics", "/v1/model"])
def test_head_is_get_without_the_body(client: TestClient, path: str) -> None:
    response = client.head(path)
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-type"] == client.get(path).headers["content-type"]


def test_every_answer_has_the_security_headers(client: TestClient) -> None:
    answers = [
        client.get("/"),
        client.get("/healthz"),
        client.get("/nothing"),
        client.post("/v1/recognize", content=b"", headers={"content-type": "text/plain"}),
    ]
    for response in answers:
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy.replace("style-src-attr 'unsafe-inline'", "")
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "cache-control" in response.headers
        assert "server" not in response.headers


def test_a_key_guards_the_interface_but_not_the_health(recognizer: Recognizer) -> None:
    with in_process(recognizer, api_key="correct horse") as client:
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 200
        for headers in ({}, {"x-api-key": "wrong"}, {"authorization": "Bearer correct hors"}):
            for path in ("/v1/model", "/metrics"):
                response = client.get(path, headers=headers)
                assert response.status_code == 401
                assert response.json()["error"]["code"] == "bad_key"
                assert response.headers["www-authenticate"] == "Bearer"
        for headers in ({"x-api-key": "correct horse"}, {"authorization": "Bearer correct horse"}):
            assert client.get("/v1/model", headers=headers).status_code == 200
        schema = client.get("/openapi.json").json()
        for path, method in (("/v1/recognize", "post"), ("/metrics", "get")):
            assert schema["paths"][path][method]["security"] == [{"key": []}]
        assert "security" not in schema["paths"]["/healthz"]["get"]


def test_a_form_of_another_site_is_refused(recognizer: Recognizer) -> None:
    ink = {"file": b"<ink><trace>0 0, 9 9</trace></ink>"}
    site, origin = "sec-fetch-site", "https://notes.example"
    for cors, headers, status in (
        ((), {}, 200),
        ((), {site: "same-origin", "origin": "http://localhost"}, 200),
        ((), {site: "cross-site", "origin": origin}, 403),
        ((), {site: "same-site", "origin": origin}, 403),
        ((), {site: "cross-site"}, 403),
        ((origin,), {site: "cross-site", "origin": "https://other.example"}, 403),
        ((origin,), {site: "cross-site", "origin": origin}, 200),
        (("*",), {site: "cross-site", "origin": "null"}, 200),
    ):
        with in_process(recognizer, cors=cors) as client:
            response = client.post("/v1/recognize", files=ink, headers=headers)
            assert response.status_code == status, (cors, headers)


def test_a_proxy_s_own_name_is_no_foreign_origin(recognizer: Recognizer) -> None:
    for hosts, status in (((), 403), (("notes.lan",), 200)):
        with in_process(recognizer, hosts=hosts) as client:
            headers = {"origin": "http://notes.lan", "host": "127.0.0.1:8000"}
            response = client.post("/v1/recognize", json=strokes(power()), headers=headers)
            assert response.status_code == status


def test_an_origin_is_compared_where_a_browser_says_no_more(client: TestClient) -> None:
    def ask(**headers: str) -> int:
        return client.post("/v1/recognize", json=strokes(power()), headers=headers).status_code

    for origin, host, status in (
        ("http://localhost", "localhost", 200),
        ("https://192.168.1.9:8000", "192.168.1.9:8000", 200),
        ("http://localhost", "localhost:80", 200),
        ("https://localhost:443", "localhost", 200),
        ("http://localhost:9000", "localhost", 403),
        ("https://evil.example", "localhost", 403),
        ("null", "localhost", 403),
    ):
        assert ask(origin=origin, host=host) == status, origin
    # Behind a proxy that has another name; nobody but the browser writes this header.
    assert ask(origin="https://notes.example", **{"sec-fetch-site": "same-origin"}) == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST.:8000", 200),
        ("127.0.0.1:8000", 200),
        ("192.168.1.9", 200),
        ("[::1]:8000", 200),
        ("bound.example:8000", 200),
        ("Notes.example", 200),
        ("evil.example", 403),
        ("notes.example.evil.example", 403),
        ("localhost@evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("[::1", 403),
    ],
)
def test_only_names_of_its_own_are_answered(client: TestClient, host: str, status: int) -> None:
    settings = Settings(host="bound.example", hosts=("notes.example",))
    other = TestClient(create_app(settings, tiny()), "http://localhost")
    for path in ("/healthz", "/static/icon.svg"):
        response = other.get(path, headers={"host": host})
        assert response.status_code == status
    if status == 403:
        assert response.json()["error"]["code"] == "bad_host"
    anybody = TestClient(create_app(Settings(hosts=("*",)), tiny()))
    assert anybody.get("/healthz", headers={"host": "evil.example"}).status_code == 200


def test_nobody_is_sent_elsewhere(client: TestClient) -> None:
    for path in ("/v1/model/", "/static", "/healthz/"):
        response = client.get(path, headers={"host": "6.6.6.6"}, follow_redirects=False)
        assert (response.status_code, "location" in response.headers) == (404, False)


def test_parameters_of_the_address_are_named(client: TestClient) -> None:
    for query in ("steps=1", "steps", "steps=1&seed=2"):
        response = client.post(f"/v1/recognize?{query}", json=strokes(power()))
        assert (response.status_code, response.json()["error"]["code"]) == (422, "bad_options")
        assert "steps: " in response.json()["error"]["message"]
    assert client.get("/?from=bookmark").status_code == 200


def test_answers_and_the_page_are_packed_but_streams_are_not(client: TestClient) -> None:
    packed = {"accept-encoding": "gzip"}
    page, script = client.get("/", headers=packed), "/static/katex/katex.min.js"
    assert page.headers["content-encoding"] == "gzip"
    assert "<!doctype html>" in page.text.lower()
    response = client.get(script, headers=packed)
    assert response.num_bytes_downloaded < 0.4 * len(response.content)
    assert client.get(script, headers={"accept-encoding": ""}).content == response.content
    answer = client.post("/v1/recognize", json=strokes(row("x+1=2")), headers=packed)
    assert (answer.headers["content-encoding"], answer.json()["file"]) == ("gzip", "ink")
    stream = client.post("/v1/recognize/stream", json=strokes(power()), headers=packed)
    assert "content-encoding" not in stream.headers


def test_other_origins_may_ask_only_where_allowed(recognizer: Recognizer) -> None:
    origin = {"origin": "https://notes.example"}
    with in_process(recognizer, cors=("https://notes.example",)) as client:
        allowed = client.get("/v1/model", headers=origin)
        assert allowed.headers["access-control-allow-origin"] == "https://notes.example"
        other = client.get("/v1/model", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers
        asked = {**origin, "access-control-request-method": "POST"}
        asked["access-control-request-headers"] = "content-type"
        assert client.options("/v1/recognize", headers=asked).status_code == 200
    with in_process(recognizer) as client:
        plain = client.get("/v1/model", headers=origin)
        assert "access-control-allow-origin" not in plain.headers


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"queue": 0}, "queue is 0"),
        ({"seconds": -1}, "seconds is -1"),
        ({"port": 70000}, "port is 70000"),
        ({"api_key": "short"}, "8 or more"),
        ({"api_key": " spaces around "}, "without outer spaces"),
        ({"cors": ("example.org",)}, "CORS origin 'example.org'"),
        ({"hosts": ("example.org:80",)}, "host 'example.org:80' is no name"),
        ({"linger": -1}, "linger is -1"),
    ],
)
def test_bad_settings_are_named(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Settings(**settings)


def test_a_file_name_is_made_harmless(client: TestClient, tmp_path: Path) -> None:
    name = "../../etc/" + "é" * 300 + ".png"
    answer = client.post("/v1/recognize", files={"file": (name, picture())}).json()
    assert len(answer["file"]) <= 80
    assert "/" not in answer["file"]


def test_histograms_are_cumulative() -> None:
    histogram = Histogram("h", "Help.", (1.0, 2.0), ("route",))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value, "/")
    assert histogram.lines() == [
        "# HELP h Help.",
        "# TYPE h histogram",
        'h_bucket{route="/",le="1"} 2',
        'h_bucket{route="/",le="2"} 3',
        'h_bucket{route="/",le="+Inf"} 4',
        'h_sum{route="/"} 12.000000',
        'h_count{route="/"} 4',
    ]
    counter = Counter("c", "Help.")
    assert counter.lines()[-1] == "c 0"
    counter.add(by=12345678)
    assert counter.lines()[-1] == "c 12345678"


def test_the_page_and_its_files_are_served(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["cache-control"] == "no-cache"
    linked = re.findall(r'(?:src|href)="(/?static/[^"]+)"', page.text)
    assert linked
    for path in linked:
        response = client.get("/" + path.lstrip("/"))
        assert response.status_code == 200, path
        assert (
            client.get(
                "/" + path.lstrip("/"), headers={"if-none-match": response.headers["etag"]}
            ).status_code
            == 304
        )
