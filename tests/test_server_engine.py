"""Batching, overload, deadlines, clients that leave, and stopping."""

import ctypes
import gc
import os
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest
from inkmaker import fraction, power, row
from serving import events, in_process, on_a_port, repeated_scans, strokes, tiny, wait_until
from starlette.testclient import TestClient

from gryphone.errors import CheckpointError, InkError
from gryphone.ink import Ink
from gryphone.reading.inputs import Input
from gryphone.recognition.page import read_page
from gryphone.recognition.question import AUTO_STEPS, Ask
from gryphone.recognition.recognizer import Recognizer
from gryphone.server import engine as engine_module
from gryphone.server.app import create_app
from gryphone.server.engine import HEAVY, Engine, Job, cost_of
from gryphone.server.problems import Problem
from gryphone.server.readers import Readers
from gryphone.server.settings import Settings
from gryphone.server.telemetry import Metrics, give_back_memory, resident_memory

INKS = [power(), fraction(), row("x+1=2"), row("1"), row("2-1"), row("n=0"), row("(x)"), row("x.")]


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return tiny()


class Gate:
    """Stands in for a server's recogniser, and holds the model's thread before it encodes."""

    def __init__(self, client: TestClient) -> None:
        self.service: Any = client.app.state.service  # type: ignore[attr-defined]
        self.engine: Engine = self.service.engine
        self.open, self.entered = threading.Event(), threading.Event()
        self.batches: list[int] = []
        self.recognizer, self.engine.recognizer = self.engine.recognizer, self  # type: ignore

    def __getattr__(self, name: str) -> Any:
        return getattr(self.recognizer, name)

    def encode_inputs(self, inputs: Any) -> Any:
        self.entered.set()
        self.open.wait(10)
        self.batches.append(len(inputs))
        return self.recognizer.encode_inputs(inputs)


class ExplosiveGate(Gate):
    """Breaks on an ink of one stroke."""

    def encode_inputs(self, inputs: Any) -> Any:
        encoded = super().encode_inputs(inputs)
        if any(len(each.ink.strokes) == 1 for each in inputs):
            raise RuntimeError(f"{inputs[0].ink.strokes} breaks the encoder")
        return encoded


def post(client: TestClient, body: Any, route: str = "/v1/recognize") -> Any:
    return client.post(route, json=body)


def test_concurrent_requests_are_batched_and_answer_like_single_calls(
    recognizer: Recognizer,
) -> None:
    questions: list[dict[str, Any]] = [
        {"steps": 5},
        {"steps": 5},
        {"steps": 5, "n_best": 3},
        {"steps": 5, "lock": {"0": "x"}},
        {"steps": 5, "hint": "?+..."},
        {"steps": 3, "seed": 4, "views": 2},
        {"deadline_ms": 20_000, "steps": 2},
        {"steps": 5, "lock": {"0": r"\nonsense"}},
    ]
    with in_process(recognizer, batch=8) as client, ThreadPoolExecutor(9) as pool:
        gate = Gate(client)
        first = pool.submit(post, client, strokes(row("1")))
        assert gate.entered.wait(5)
        jobs = [
            pool.submit(post, client, strokes(ink, **options))
            for ink, options in zip(INKS, questions, strict=True)
        ]
        wait_until(lambda: gate.engine.waiting == 8)
        gate.open.set()
        answers = [job.result(20) for job in jobs]
        assert first.result(20).status_code == 200
        assert gate.batches == [1, 8]
    assert answers[-1].status_code == 422
    assert "lock[0]" in answers[-1].json()["error"]["message"]
    for ink, options, answer in zip(INKS[:7], questions, answers, strict=False):
        assert answer.status_code == 200, answer.text
        lock = {int(k): v for k, v in options.get("lock", {}).items()}
        expected = recognizer.recognize(ink, **(options | {"lock": lock}))
        assert answer.json()["latex"] == expected.latex
        assert answer.json()["confidence"] == pytest.approx(expected.confidence, abs=1e-3)
        assert [s["strokes"] for s in answer.json()["symbols"]] == [
            list(s.strokes) for s in expected.symbols
        ]


def test_streams_are_batched_too(recognizer: Recognizer) -> None:
    with in_process(recognizer) as client, ThreadPoolExecutor(4) as pool:
        gate = Gate(client)
        first = pool.submit(post, client, strokes(row("1")))
        assert gate.entered.wait(5)
        bodies = [strokes(ink, steps=4) for ink in INKS[:3]]
        route = "/v1/recognize/stream"
        jobs = [pool.submit(post, client, body, route) for body in bodies]
        wait_until(lambda: gate.engine.waiting == 3)
        gate.open.set()
        for ink, job in zip(INKS, jobs, strict=False):
            found = events(job.result(20).text)
            assert [data["number"] for _, data in found[:-1]] == [1, 2, 3, 4] * 2
            assert found[-1][1]["latex"] == recognizer.recognize(ink, steps=4).latex
        assert first.result(20).status_code == 200
        assert gate.batches == [1, 3]


def test_one_bad_ink_hurts_no_other(
    recognizer: Recognizer, caplog: pytest.LogCaptureFixture
) -> None:
    with in_process(recognizer) as client, ThreadPoolExecutor(4) as pool:
        gate = ExplosiveGate(client)
        first = pool.submit(post, client, strokes(power()))
        assert gate.entered.wait(5)
        jobs = [pool.submit(post, client, strokes(ink)) for ink in (power(), row("1"), fraction())]
        wait_until(lambda: gate.engine.waiting == 3)
        gate.open.set()
        assert [job.result(20).status_code for job in jobs] == [200, 500, 200]
        assert first.result(20).status_code == 200
        error = jobs[1].result().json()["error"]
        assert error["code"] == "internal"
        assert "encoder" not in error["message"]
        # What a user wrote is in no log.
        assert "recognition failed: RuntimeError" in caplog.text
        assert "array" not in caplog.text
        assert post(client, strokes(power())).status_code == 200


def test_a_failing_decode_is_separated(
    recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = engine_module.answer_together

    def explode(questions: Any, began: float) -> Any:
        if any(len(q.ink.strokes) == 1 for q in questions):
            raise RuntimeError("this ink breaks the decoder")
        return together(questions, began)

    monkeypatch.setattr(engine_module, "answer_together", explode)
    engine = Engine(Settings(batch=3), Metrics(), recognizer)
    now = time.perf_counter()
    jobs = [Job(Input(ink), Ask(steps=2), now, now + 30) for ink in (power(), row("1"), fraction())]
    for job in jobs:
        engine.submit(job)
    engine.start()
    assert jobs[0].answer.result(20).latex
    assert jobs[2].answer.result(20).latex
    assert isinstance(jobs[1].answer.exception(20), RuntimeError)
    engine.close(5)


def test_a_full_server_sheds_and_recovers(recognizer: Recognizer) -> None:
    with in_process(recognizer, queue=3) as client, ThreadPoolExecutor(4) as pool:
        gate = Gate(client)
        jobs = [pool.submit(post, client, strokes(row("1"))) for _ in range(3)]
        wait_until(lambda: gate.service.admission.inside == 3)
        for route in ("/v1/recognize", "/v1/recognize/stream"):
            response = post(client, strokes(power()), route)
            assert response.status_code == 503
            assert response.json()["error"]["code"] == "busy"
            assert 1 <= int(response.headers["retry-after"]) <= 30
        assert client.get("/healthz").status_code == 200
        gate.open.set()
        assert [job.result(20).status_code for job in jobs] == [200] * 3
        assert post(client, strokes(power())).status_code == 200
        assert gate.service.admission.inside == 0


def test_streams_are_limited(recognizer: Recognizer) -> None:
    with in_process(recognizer, streams=1) as client, ThreadPoolExecutor(2) as pool:
        gate = Gate(client)
        route = "/v1/recognize/stream"
        job = pool.submit(post, client, strokes(row("1")), route)
        assert gate.entered.wait(5)
        assert post(client, strokes(power()), route).status_code == 503
        gate.open.set()
        assert job.result(20).status_code == 200
        assert post(client, strokes(power()), route).status_code == 200
        assert gate.service.admission.streams == 0


def test_what_waited_too_long_is_dropped_before_work(recognizer: Recognizer) -> None:
    with in_process(recognizer) as client, ThreadPoolExecutor(3) as pool:
        gate = Gate(client)
        first = pool.submit(post, client, strokes(row("1")))
        assert gate.entered.wait(5)
        late = pool.submit(post, client, strokes(power(), deadline_ms=50))
        # It is told at its own deadline, while the model still works for somebody else.
        response = late.result(20)
        assert (response.status_code, response.json()["error"]["code"]) == (504, "deadline")
        gate.open.set()
        assert first.result(20).status_code == 200
        assert gate.batches == [1]


def test_a_request_has_a_time_limit(recognizer: Recognizer) -> None:
    with in_process(recognizer, seconds=0.1) as client:
        gate = Gate(client)
        response = post(client, strokes(power()))
        assert response.status_code == 504
        gate.open.set()
        wait_until(lambda: gate.service.admission.inside == 0)


def test_a_reader_that_does_not_end_is_killed() -> None:
    readers = Readers(1, seconds=0.5)
    try:
        process = readers.submit(os.getpid).result(30)
        assert process != os.getpid()
        with pytest.raises(Problem, match=r"not read within 0\.5 s") as slow:
            readers.submit(time.sleep, 60).result(30)
        assert (slow.value.status, slow.value.code) == (504, "slow_ink")
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
        # Another takes its place, and survives what it is asked.
        again = readers.submit(os.getpid).result(30)
        assert again != process
        with pytest.raises(Problem, match="the server failed"):
            readers.submit(int, "x").result(30)
        assert readers.submit(os.getpid).result(30) == again
        with pytest.raises(InkError, match="broke its reader"):
            readers.submit(os._exit, 1).result(30)
        assert readers.submit(len, "abc").result(30) == 3
        # One that died while nobody asked is nobody's fault.
        os.kill(readers.submit(os.getpid).result(30), signal.SIGKILL)
        time.sleep(0.2)
        assert readers.submit(len, "abc").result(30) == 3
        wait_until(lambda: readers.inside == 0)
    finally:
        readers.close()


def test_a_picture_that_takes_too_long_stops_no_other(recognizer: Recognizer) -> None:
    """Within all limits on scans and pixels, and still of some seconds."""
    with in_process(recognizer, read_seconds=1.0, readers=1, scans=2000) as client:
        files = {"file": ("bomb.jpg", repeated_scans(1200, side=5600))}
        slow = client.post("/v1/recognize", files=files)
        assert (slow.status_code, slow.json()["error"]["code"]) == (504, "slow_ink")
        files = {"file": ("fine.jpg", repeated_scans(0))}
        assert client.post("/v1/recognize", files=files).status_code == 200


def test_what_became_of_an_abandoned_upload_is_in_no_log(
    recognizer: Recognizer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gryphone.server.middleware.SENDING_SECONDS", 0.1)
    reading: Future[Any] = Future()
    reading.set_running_or_notify_cancel()
    with in_process(recognizer, seconds=0.2) as client:
        service: Any = client.app.state.service  # type: ignore[attr-defined]
        wait_until(lambda: service.readers.inside == 0)  # else it may say that it is busy
        monkeypatch.setattr(service.readers, "submit", lambda *_: reading)
        response = client.post("/v1/recognize", files={"file": ("secret.png", b"x")})
        assert (response.status_code, response.json()["error"]["code"]) == (504, "timeout")
        reading.set_exception(InkError("secret.png: the page is blank"))
        assert client.get("/healthz").status_code == 200
        gc.collect()
    assert "secret" not in caplog.text


def test_heavy_questions_come_last_and_alone(recognizer: Recognizer) -> None:
    engine = Engine(Settings(batch=8), Metrics(), recognizer)
    costs = [HEAVY + 1, 10, HEAVY + 1, 20, HEAVY, 30]
    jobs = [Job(Input(power()), Ask(), 0.01 * n, 99, cost=cost) for n, cost in enumerate(costs)]
    for job in jobs:
        engine.submit(job)
    engine.close()
    batches = [[jobs.index(job) for job in batch] for batch in engine.batches()]
    assert batches == [[1, 3, 5], [0], [2], [4]]
    # Large ones do not fill a batch: those behind them would wait for all.
    engine = Engine(Settings(batch=8), Metrics(), recognizer)
    for _ in range(5):
        engine.submit(Job(Input(power()), Ask(), 0.0, 99, cost=HEAVY / 2))
    engine.close()
    assert [len(batch) for batch in engine.batches()] == [3, 2]
    engine = Engine(Settings(batch=8), Metrics(), recognizer)
    # Nobody waits for ever: after a while a heavy one is older than what is light and new.
    engine.submit(Job(Input(power()), Ask(), 0.0, 99, cost=HEAVY + 1))
    engine.submit(Job(Input(power()), Ask(), 60.0, 99, cost=10))
    assert next(engine.batches())[0].cost == HEAVY + 1


def test_others_pass_between_the_steps_of_a_heavy_one(recognizer: Recognizer) -> None:
    engine = Engine(Settings(), Metrics(), recognizer)
    now, order = time.perf_counter(), []
    light = Job(Input(row("1")), Ask(steps=1), now, now + 60, cost=1)
    light.answer.add_done_callback(lambda _: order.append("light"))

    def emit(step: Any) -> None:
        order.append(step.number)
        if step.number == 1 and step.look == 1:
            engine.submit(light)

    heavy = Job(Input(power()), Ask(steps=3), now, now + 60, emit, cost=HEAVY + 1)
    heavy.answer.add_done_callback(lambda _: order.append("heavy"))
    engine.submit(heavy)
    engine.start()
    assert heavy.answer.result(20).latex == recognizer.recognize(power(), steps=3).latex
    assert light.answer.result(20).latex == recognizer.recognize(row("1"), steps=1).latex
    assert order[:3] == [1, "light", 2]
    assert order[-1] == "heavy"
    engine.close(5)


def test_who_would_be_answered_too_late_is_told_at_once(recognizer: Recognizer) -> None:
    with in_process(recognizer, seconds=10) as client, ThreadPoolExecutor(9) as pool:
        gate = Gate(client)
        gate.engine.pace = 3 / cost_of(20, Ask())  # seconds for a small ink
        jobs = [pool.submit(post, client, strokes(row("1"), steps=1)) for _ in range(9)]
        wait_until(lambda: sum(job.done() for job in jobs) >= 1)
        refused = next(job for job in jobs if job.done()).result()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "busy")
        assert "is waiting; try again in" in refused.json()["error"]["message"]
        assert 1 <= int(refused.headers["retry-after"]) <= 30
        gate.open.set()
        statuses = sorted(job.result(20).status_code for job in jobs)
        assert set(statuses) == {200, 503}
        assert post(client, strokes(row("1"))).status_code == 200  # when nothing is inside


def test_memory_is_given_back(recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [bytes(50_000) for _ in range(4_000)]
    last, held = bytes(50_000), resident_memory()  # nothing below the last block goes back itself
    del blocks
    give_back_memory()
    if hasattr(ctypes.CDLL(None), "malloc_trim"):
        assert resident_memory() < held - 100_000_000
    assert len(last) == 50_000
    told: list[None] = []
    monkeypatch.setattr(engine_module, "TIDY_SECONDS", 0.0)
    monkeypatch.setattr(engine_module, "give_back_memory", lambda: told.append(None))
    with in_process(recognizer) as client:
        for count in (1, 2):
            assert post(client, strokes(row("1"))).status_code == 200
            wait_until(lambda count=count: len(told) == count)


def test_the_pace_is_learned(recognizer: Recognizer) -> None:
    with in_process(recognizer) as client:
        engine = client.app.state.service.engine  # type: ignore[attr-defined]
        engine.pace = 1.0
        for _ in range(5):
            assert post(client, strokes(row("1"))).status_code == 200
        wait_until(lambda: engine.pace < 0.4)
        assert engine.ahead(float("inf")) == 0.0


def slow_steps(monkeypatch: pytest.MonkeyPatch, seen: list[int], seconds: float = 0.05) -> None:
    """Make refinement slow enough to watch."""
    watch = Job.watch

    def slowly(self: Job, step: Any) -> bool:
        seen.append(step.number)
        time.sleep(seconds)
        return watch(self, step)

    monkeypatch.setattr(Job, "watch", slowly)


def test_a_client_that_goes_away_stops_its_decoding(
    recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    slow_steps(monkeypatch, seen)
    settings = Settings(port=0)
    app = create_app(settings, recognizer)
    metrics = app.state.service.metrics
    with on_a_port(app, settings) as url, httpx.Client(base_url=url) as client:
        body = strokes(power(), steps=50)
        with client.stream("POST", "/v1/recognize/stream", json=body) as response:
            assert next(response.iter_lines()) == "event: step"
        wait_until(lambda: metrics.inks.values.get(("left",)) == 1)
        assert len(seen) < 20
        with pytest.raises(httpx.TimeoutException):
            client.post("/v1/recognize", json=body, timeout=0.2)
        wait_until(lambda: metrics.inks.values.get(("left",)) == 2)
        assert len(seen) < 40
        wait_until(lambda: app.state.service.admission.inside == 0)
        assert client.post("/v1/recognize", json=strokes(power(), steps=1)).status_code == 200


def test_stopping_finishes_what_is_running(
    recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    slow_steps(monkeypatch, seen, 0.02)
    settings = Settings(port=0)
    app = create_app(settings, recognizer)
    with ThreadPoolExecutor(2) as pool:
        with on_a_port(app, settings) as url:
            body = strokes(power(), steps=10)
            plain = pool.submit(httpx.post, f"{url}v1/recognize", json=body)
            wait_until(lambda: seen)
            stream = pool.submit(httpx.post, f"{url}v1/recognize/stream", json=body)
            # It waits its turn, or the first was done before it came.
            wait_until(lambda: app.state.service.engine.waiting or seen.count(1) == 2)
        assert plain.result(20).status_code == 200
        assert events(stream.result(20).text)[-1][0] == "result"
    assert not app.state.service.engine.thread.is_alive()


def test_not_ready_until_the_model_is_loaded(
    recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(engine_module, "load", lambda *_, **__: go_on.wait(10) and recognizer)
    app = create_app(Settings())
    with TestClient(app, "http://localhost") as client:
        assert client.get("/healthz").status_code == 200
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()) == (503, {"status": "loading"})
        response = post(client, strokes(power()))
        assert (response.status_code, response.json()["error"]["code"]) == (503, "loading")
        assert response.headers["retry-after"] == "2"
        assert client.get("/v1/model").status_code == 503
        go_on.set()
        wait_until(lambda: client.get("/readyz").status_code == 200)
        assert post(client, strokes(power())).status_code == 200


@pytest.mark.parametrize("error", [CheckpointError("no weights"), OSError("disk")])
def test_a_model_that_does_not_load_is_reported(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(engine_module, "load", fail)
    engine, told = Engine(Settings(), Metrics()), threading.Event()
    engine.on_failure = told.set
    engine.start()
    assert told.wait(5)
    assert isinstance(engine.failure, CheckpointError) and str(error) in str(engine.failure)
    engine.close(5)


def test_work_is_grouped_by_steps_and_seed_and_bounded() -> None:
    def question(steps: int | str, seed: int = 0, samples: int = 1) -> Any:
        ask = Ask(steps=steps, seed=seed, samples=samples)
        return Job(Input(power()), ask, 0, 1), type("Q", (), {"ask": ask})()

    items = [question(10), question(5), question(10, 1), question(10), question(50, 0, 12)]
    items.append(question(50, 0, 12))
    sizes = sorted(len(group) for group in engine_module.group_alike(items))
    assert sizes == [1, 1, 1, 1, 2]
    # As many steps as are needed are not as many as there may be.
    mixed = [question("auto"), question(AUTO_STEPS), question("auto")]
    groups = [[job.ask.steps for job, _ in some] for some in engine_module.group_alike(mixed)]
    assert sorted(groups, key=len) == [[AUTO_STEPS], ["auto", "auto"]]


def test_a_batch_waits_only_where_more_is_likely(recognizer: Recognizer) -> None:
    expected = 0
    engine = Engine(Settings(linger=0.5), Metrics(), recognizer, lambda: expected)
    batches = engine.batches()

    def put(count: int) -> None:
        for _ in range(count):
            engine.submit(Job(Input(power()), Ask(), 0, 1))

    def timed() -> tuple[int, float]:
        began = time.perf_counter()
        return len(next(batches)), time.perf_counter() - began

    put(1)
    count, seconds = timed()
    assert (count, seconds < 0.3) == (1, True)
    put(2)
    assert timed()[0] == 2
    put(1)
    threading.Timer(0.05, put, (1,)).start()  # a crowd asks again
    assert timed()[0] == 2
    put(1)
    assert timed()[0] == 1  # in vain this time
    expected = 1
    put(1)
    threading.Timer(0.05, put, (1,)).start()
    assert timed()[0] == 2
    engine.submit(Job(Input(power()), Ask(), 0, 1))
    engine.close()
    assert [len(batch) for batch in batches] == [1]


def test_a_job_knows_when_it_is_too_late() -> None:
    now = time.perf_counter()
    job = Job(Input(power()), Ask(deadline_ms=500), now, now + 30)
    assert job.obstacle() is None
    assert job.due == pytest.approx(now + 0.5)
    job.client_left = True
    assert isinstance(job.obstacle(), engine_module.ClientLeft)
    late = Job(Input(power()), replace(job.ask, deadline_ms=1), now - 1, now + 30)
    assert "no answer in time" in str(late.obstacle())


def test_a_page_ends_where_nobody_waits_for_it() -> None:
    class LineByLine:
        batch, looks = 1, 0

        def __getattr__(self, name: str) -> Any:
            return getattr(backend, name)

        def encode(self, *args: Any) -> Any:
            self.looks += 1
            return backend.encode(*args)

    backend, counted = tiny().backend, LineByLine()
    recognizer = replace(tiny(), backend=counted)
    lines = [stroke + np.array([0, 500 * n]) for n in range(4) for stroke in row("x=1").strokes]
    now = time.perf_counter()
    job = Job(Input(Ink(tuple(lines))), Ask(steps=1), now, now + 60, read=read_page)

    def leave(step: Any) -> None:
        job.client_left = True

    job.emit = leave
    engine = Engine(Settings(), Metrics(), recognizer)
    engine.start()
    assert engine.ready.wait(20)
    before = counted.looks
    engine.submit(job)
    with pytest.raises(engine_module.ClientLeft):
        job.answer.result(20)
    engine.close(5)
    assert counted.looks == before + 1
