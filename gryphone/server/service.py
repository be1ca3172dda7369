"""One request from its body to its answer: read, queue, wait, render."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from gryphone.errors import GryphoneError
from gryphone.latex.mathml import to_mathml
from gryphone.recognition.constraints import given_of
from gryphone.recognition.page import check_ask, read_page
from gryphone.recognition.page_result import PageResult
from gryphone.recognition.question import Ask, Step
from gryphone.recognition.recognizer import Recognizer
from gryphone.recognition.result import Result
from gryphone.recognition.session import Look, check_live
from gryphone.server.admission import Admission, Place
from gryphone.server.calculators import Calculators
from gryphone.server.engine import ClientLeft, Engine, Job, cost_of
from gryphone.server.problems import Problem, problem_of
from gryphone.server.readers import Readers
from gryphone.server.schemas import WRITTEN, ComputeRequest, ConvertRequest, Options, parsed
from gryphone.server.settings import Settings
from gryphone.server.submission import (
    FORM,
    JSON,
    Kind,
    Submission,
    media_type,
    read_request,
    warm_up,
)
from gryphone.server.telemetry import Metrics
from gryphone.writers import TARGETS, write
from gryphone.writers.compute import Calculator

T = TypeVar("T")
Event = Step | Future[Result]
QUICK = 1 << 18  # bytes of strokes that are read at once; a formula has a tenth of that
LATE_SECONDS = 0.25  # by which an answer may miss its own deadline and is still sent


@dataclass(frozen=True)
class Body:
    """What a client sent, and when it began to."""

    data: bytes
    content_type: str
    began: float


class Service:
    """What the routes call."""

    def __init__(self, settings: Settings, recognizer: Recognizer | None = None) -> None:
        self.settings = settings
        self.draining = False  # told to stop
        self.metrics = Metrics(settings.worker)
        self.admission = Admission(settings)
        self.engine = Engine(settings, self.metrics, recognizer, lambda: self.admission.reading)
        # Uploads are read in processes, which can be killed; strokes are soon read.
        self.readers = Readers(settings.readers, settings.read_seconds)
        self.quick_workers = ThreadPoolExecutor(2, "gryphone-quick")
        self.calculators = Calculators(settings)
        add_gauge = self.metrics.add_gauge
        add_gauge("gryphone_requests_inside", "Requests inside.", self.admission, "inside")
        add_gauge("gryphone_streams", "Open event streams.", self.admission, "streams")
        add_gauge("gryphone_queue_jobs", "Questions in the queue.", self.engine, "waiting")

    def start(self) -> None:
        """Load the model, and what reads images beside it."""
        self.engine.start()
        self.readers.start(warm_up)
        self.calculators.start()
        self.quick_workers.submit(to_mathml, "+")

    async def close(self) -> None:
        """Finish what is running."""
        await asyncio.to_thread(self.engine.close, self.settings.seconds)
        self.quick_workers.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self.readers.close)
        await asyncio.to_thread(self.calculators.close)

    @property
    def recognizer(self) -> Recognizer:
        """The loaded model, or a Problem."""
        if not self.engine.ready.is_set() or self.engine.recognizer is None:
            raise Problem(503, "loading", "the model is being loaded; try again in 2 s", 2)
        return self.engine.recognizer

    async def recognize(self, request: Request, kind: Kind = "formula") -> bytes:
        """The answer to one request, as JSON."""
        body = await self._receive(request)
        place = Place(self.admission, self._ahead())
        try:
            submission, job = await self._start(body, None, kind)
            result = await self._answer(request, job)
            return await self._render(submission, result)
        finally:
            place.close()

    async def stream(self, request: Request) -> StreamingResponse:
        """The same, step by step. What fails before the first step has a status of its own."""
        body = await self._receive(request, stream=True)
        place = Place(self.admission, self._ahead(), stream=True)
        job: Job | None = None

        def close() -> None:
            place.close()
            if job is not None:
                job.client_left = True

        try:
            events: asyncio.Queue[Event] = asyncio.Queue()
            submission, job = await self._start(body, events)
            first = await _if_connected(request, events.get(), self.settings.seconds)
            if isinstance(first, Future):
                first.result()
            return EventStreamResponse(self._events(first, events, submission), close)
        except BaseException:
            close()
            raise

    @property
    def targets(self) -> tuple[str, ...]:
        """The notations that formulas are written in; SymPy's, where there are processes for it."""
        return tuple(TARGETS) if self.settings.compute else WRITTEN

    async def convert(self, request: Request) -> dict[str, str]:
        """A formula in another notation."""
        asked = parsed(ConvertRequest, await self._formulas(request))
        if asked.format not in self.targets:
            known = ", ".join(self.targets)
            raise Problem(422, "bad_options", f"format: it must be one of {known}")
        place = Place(self.admission, self._ahead())
        try:
            if TARGETS[asked.format].quick:
                work = self.quick_workers.submit(write, asked.latex, asked.format)
            else:
                work = self.calculators.submit(lambda calculator: calculator.write(asked.latex))
            return {"format": asked.format, "text": await self._worked(request, work)}
        finally:
            place.close()

    async def compute(self, request: Request) -> dict[str, Any]:
        """What a formula comes to, or each line of a working against the next."""
        if not self.settings.compute:
            raise Problem(404, "not_found", "this server does not compute; see its --compute")
        lines = parsed(ComputeRequest, await self._formulas(request)).lines
        most = self.settings.seconds / 2  # or nobody would wait for the end of a long working

        def ask(calculator: Calculator) -> dict[str, Any]:
            if len(lines) > 1:
                return {"steps": calculator.compare(lines, most=most)}
            return asdict(calculator.compute(lines[0]))

        found: dict[str, Any] = await self._worked(request, self.calculators.submit(ask))
        return found

    async def _formulas(self, request: Request) -> bytes:
        """A body of LaTeX, short enough to be parsed on the event loop."""
        body = await self._receive(request)
        if media_type(body.content_type) != JSON:
            raise Problem(415, "bad_type", f"formulas come as {JSON}")
        if len(body.data) > QUICK:
            raise Problem(413, "too_large", f"a body of formulas has {QUICK} bytes at most")
        return body.data

    async def _worked(self, request: Request, work: Future[T]) -> T:
        return await _if_connected(request, asyncio.wrap_future(work), self.settings.seconds)

    async def _receive(self, request: Request, stream: bool = False) -> Body:
        """The body, once it is clear that it will be read; who sends it slowly takes no place."""
        began = time.perf_counter()
        self.recognizer  # noqa: B018  raises while it is loaded
        kind = request.headers.get("content-type", "")
        upload = media_type(kind) == FORM
        self.admission.check(self._ahead() + upload * self.readers.expected, stream)
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding != "identity":
            raise Problem(415, "bad_encoding", f"a {encoding[:20]} body is not read; send it plain")
        try:
            async with asyncio.timeout(self.settings.body_seconds):
                return Body(await request.body(), kind, began)
        except TimeoutError:
            seconds = f"{self.settings.body_seconds:g} s"
            raise Problem(408, "slow_body", f"the body did not arrive within {seconds}") from None

    def _ahead(self) -> float:
        """Seconds of work before a small question that comes now."""
        return self.engine.ahead(time.perf_counter())

    async def _start(
        self, body: Body, events: asyncio.Queue[Event] | None, kind: Kind = "formula"
    ) -> tuple[Submission, Job]:
        """Read the ink of a request and queue its question."""
        submission = await self._read(body, kind)
        ask = ask_of(self.recognizer, submission.options)
        job = Job(submission.input, ask, body.began, body.began + self.settings.seconds)
        if kind == "page":
            check_ask(ask)
            job.read = read_page
        elif (live := submission.live) is not None:
            check_live(ask)
            ask = ask if live.final else replace(ask, steps=2)  # what it costs
            job.read = lambda recognizer, _, ask: live.read(Look(recognizer), ask)
        job.cost = cost_of(submission.patches, ask)
        self.admission.check_time(self.engine.ahead(self.engine.turn_of(job)))
        if events is not None:
            put = _put_from_thread(events)
            job.emit = put
            job.answer.add_done_callback(put)
        self.engine.submit(job)
        return submission, job

    async def _read(self, body: Body, kind: Kind) -> Submission:
        quick = media_type(body.content_type) != FORM and len(body.data) <= QUICK
        pool = self.quick_workers if quick else self.readers
        self.admission.reading += 1
        canvas = self.recognizer.checkpoint.config.canvas
        work = pool.submit(read_request, body.data, body.content_type, self.settings, canvas, kind)
        try:
            # No shield around it: what becomes of a reading that was given up is nobody's business,
            # and asyncio would log its error, in which names of files are.
            return await asyncio.wrap_future(work)
        finally:
            self.admission.reading -= 1

    async def _answer(self, request: Request, job: Job) -> Any:
        try:
            due = job.expires if job.ask.deadline_ms is None else job.due + LATE_SECONDS
            # The engine settles every job, also one that nobody waits for: asyncio is told that
            # its error was seen.
            settled = asyncio.wrap_future(job.answer)
            settled.add_done_callback(lambda done: done.cancelled() or done.exception())
            return await _if_connected(request, asyncio.shield(settled), due - time.perf_counter())
        except ClientLeft:
            raise ClientDisconnect from None
        finally:
            job.client_left = True

    async def _events(
        self, first: Event, events: asyncio.Queue[Event], submission: Submission
    ) -> AsyncIterator[bytes]:
        """Server-sent events up to the result or the error."""
        event = first
        while isinstance(event, Step):
            yield _event("step", event.to_dict())
            event = await events.get()
        try:
            answer = await self._render(submission, event.result())
            yield b"event: result\ndata: " + answer + b"\n\n"
        except Exception as error:
            yield _event("error", problem_of(error).body())

    async def _render(self, submission: Submission, result: Result | PageResult) -> bytes:
        work = self.quick_workers.submit(render, submission, result)
        return await asyncio.wrap_future(work)


def ask_of(recognizer: Recognizer, options: Options) -> Ask:
    """Options in the recogniser's own words."""
    rows = options.given
    given = None if rows is None else given_of(recognizer.tokenizer, rows)
    return options.ask(given)


async def _if_connected(request: Request, work: Awaitable[T], seconds: float) -> T:
    """What `work` brings, unless the client leaves first or time is up."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait({working, leaving}, timeout=seconds, return_when="FIRST_COMPLETED")
        if working.done():
            return working.result()
        if leaving.done():
            raise ClientDisconnect
        raise Problem(504, "deadline", "no answer in time; ask for fewer steps or samples")
    finally:
        working.cancel()
        leaving.cancel()


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _put_from_thread(events: asyncio.Queue[Event]) -> Callable[[Any], None]:
    """How the model's thread puts an event."""
    loop = asyncio.get_running_loop()

    def put(event: Event) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens
            loop.call_soon_threadsafe(events.put_nowait, event)

    return put


def _event(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


class EventStreamResponse(StreamingResponse):
    """A stream that cleans up even if it was never begun."""

    def __init__(self, content: AsyncIterator[bytes], close: Callable[[], None]) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(content, media_type="text/event-stream", headers=headers)
        self.close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send, and clean up."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.close()


def render(submission: Submission, result: Result | PageResult) -> bytes:
    """The answer as JSON."""
    if isinstance(result, PageResult):
        data = result.to_dict()
        answers = list(zip(data["formulas"], [f.result for f in result.formulas], strict=True))
    else:
        data = result.to_full_dict()
        answers = [(data, result)]
    data["size"] = None if submission.size is None else list(submission.size)
    wanted = submission.options.format
    for answer, one in answers if wanted is not None else ():
        try:
            answer["formatted"] = one.to(str(wanted))
        except GryphoneError as error:
            answer["formatted"] = None
            answer["warnings"].append(str(error))
    if submission.options.ink or not submission.sent:
        data["ink"] = {"strokes": [s.round(2).tolist() for s in submission.input.ink.strokes]}
    return json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
