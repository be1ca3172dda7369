"""Formulas over HTTP: written in other notations, and computed where that is turned on."""

from collections.abc import Iterator

import pytest
from serving import in_process, tiny, wait_until
from starlette.testclient import TestClient

from gryphone.errors import ConfigError
from gryphone.server.settings import Settings
from gryphone.writers import TARGETS, write

ENDLESS = r"\prod_{i=1}^{999999999}i"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with in_process(tiny()) as client:
        yield client


@pytest.fixture(scope="module")
def computing() -> Iterator[TestClient]:
    with in_process(tiny(), compute=1, compute_seconds=3) as client:
        yield client


def test_a_formula_is_written_in_every_notation(client: TestClient, computing: TestClient) -> None:
    latex = r"\frac{1}{2}x"
    for each in (client, computing):
        targets = each.get("/v1/model").json()["targets"]
        for name in targets:
            answer = each.post("/v1/convert", json={"latex": latex, "format": name})
            assert answer.json() == {"format": name, "text": write(latex, name)}
    assert targets.keys() == TARGETS.keys()


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"latex": "x", "format": "word"}, 422, "format: it must be one of latex, readable"),
        ({"latex": "x", "format": "sympy"}, 422, "format: it must be one of latex, readable"),
        ({"latex": r"\ket{x}", "format": "typst"}, 400, r"Typst cannot say \ket (at character 0)"),
        ({"latex": "(" * 900 + ")" * 900, "format": "typst"}, 400, "nested too deeply"),
        ({"latex": "x" * 2001, "format": "typst"}, 422, "latex: String should have at most 2000"),
        ({"latex": "x"}, 422, "format: Field required"),
    ],
)
def test_what_cannot_be_written(
    client: TestClient, body: dict[str, str], status: int, message: str
) -> None:
    answer = client.post("/v1/convert", json=body)
    assert answer.status_code == status
    assert message in answer.json()["error"]["message"]


def test_bodies_that_are_not_parsed(client: TestClient) -> None:
    body = b'{"latex": "x", "format": "typst"}'
    answer = client.post("/v1/convert", content=body, headers={"content-type": "text/plain"})
    assert answer.status_code == 415
    long = {"latex": "x", "format": "typst", "more": ["x"] * 100_000}
    answer = client.post("/v1/convert", json=long)
    assert answer.status_code == 413 and "262144 bytes" in answer.json()["error"]["message"]


def test_writing_formulas_takes_a_place(client: TestClient) -> None:
    admission = client.app.state.service.admission
    asked = {"latex": "x", "format": "typst"}
    admission.inside += 64
    try:
        assert client.post("/v1/convert", json=asked).status_code == 503
    finally:
        admission.inside -= 64
    assert client.post("/v1/convert", json=asked).status_code == 200
    assert admission.inside == 0


def test_nothing_is_computed_unless_it_is_turned_on(client: TestClient) -> None:
    assert client.get("/v1/model").json()["compute"] is False
    answer = client.post("/v1/compute", json={"lines": ["1+1"]})
    assert answer.status_code == 404 and "does not compute" in answer.json()["error"]["message"]
    with pytest.raises(ConfigError, match="compute is -1"):
        Settings(compute=-1)


def test_a_formula_is_computed_and_a_working_compared(computing: TestClient) -> None:
    assert computing.get("/v1/model").json()["compute"] is True
    found = computing.post("/v1/compute", json={"lines": ["x^2=4"]}).json()
    assert found["solutions"] == {"x": ["-2", "2"]} and found["steps"] == []
    lines = ["2x+4=6", "x=1", "x=2", r"\ldots"]
    found = computing.post("/v1/compute", json={"lines": lines}).json()
    assert found["steps"] == ["equal", "not equal", "cannot tell"]
    # A sum that does not come out is not mended.
    found = computing.post("/v1/compute", json={"lines": ["2+2=5"]}).json()
    assert found["holds"] is False


def test_limits_of_computing(computing: TestClient) -> None:
    answer = computing.post("/v1/compute", json={"lines": [ENDLESS]})
    assert answer.status_code == 400
    assert "not computed within 3 s" in answer.json()["error"]["message"]
    for lines in ([], ["x"] * 13, [""], ["x" * 2001], "x"):
        assert computing.post("/v1/compute", json={"lines": lines}).status_code == 422
    calculators = computing.app.state.service.calculators
    waiting = [
        calculators.submit(lambda calculator: calculator.compute(ENDLESS)) for _ in "12345678"
    ]
    answer = computing.post("/v1/compute", json={"lines": ["1+1"]})
    assert answer.status_code == 503 and answer.headers["retry-after"] == "2"
    for work in waiting[1:]:
        work.cancel()
    wait_until(lambda: calculators.inside == 0, 30)
    assert computing.post("/v1/compute", json={"lines": ["1+1"]}).json()["simplified"] == "2"
