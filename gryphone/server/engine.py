"""The one thread that owns the model, and the queue in front of it.

Whatever waits is taken together, encoded in one pass, and refined in as few decodes as the
questions allow. A question that fails, whose client left or whose time is up, hurts no other; a
heavy one comes late, is answered alone, and lets others pass between its steps.
"""

from __future__ import annotations

import itertools
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from gryphone.errors import CheckpointError, GryphoneError
from gryphone.reading.inputs import Input
from gryphone.recognition.answer import Question, answer_together, prepare
from gryphone.recognition.page_result import PageResult
from gryphone.recognition.question import AUTO_STEPS, Ask, Step
from gryphone.recognition.recognizer import Encoded, Recognizer, load
from gryphone.recognition.result import Result
from gryphone.recognition.rows import ROW
from gryphone.server.problems import Problem, log, traceback_text
from gryphone.server.settings import Settings
from gryphone.server.telemetry import Metrics, give_back_memory

# Canvases times steps of one decode: every step's distributions are kept until the answer.
MOST_WORK = 640
# What costs more is answered late and alone: nothing that CROHME's writers wrote does (up to 540
# patches, read with automatic steps or ten).
HEAVY = 2_500
ORDINARY = 320  # of a batch, for each of the inks it may hold: it is done before large ones fill it
# A question waits so many times longer than others as it takes longer.
PATIENCE = 5.0
TIDY_SECONDS = 10.0  # between times at which memory is given back


def cost_of(patches: int, ask: Ask) -> float:
    """Roughly how long a question takes, in milliseconds of one core: an encoder's pass or two,
    and decoding steps at a fifth of that."""
    return (patches + 20) * (2 + 0.2 * ask.work)


Read = Callable[[Recognizer, Input, Ask], Result | PageResult]


class ClientLeft(Exception):
    """Nobody waits for the answer any more."""


@dataclass(eq=False)
class Job:
    """One question in the queue. `arrived` and `expires` are time.perf_counter() values."""

    input: Input
    ask: Ask
    arrived: float
    expires: float
    emit: Callable[[Step], None] | None = None
    cost: float = 0.0
    read: Read | None = None  # by itself: a page, or ink that is being written
    answer: Future[Any] = field(default_factory=Future)  # a Result, or a PageResult
    client_left: bool = False  # stop at the next step

    @property
    def due(self) -> float:
        """When the answer must be ready."""
        if self.ask.deadline_ms is None:
            return self.expires
        return min(self.expires, self.arrived + self.ask.deadline_ms / 1000)

    def obstacle(self) -> Exception | None:
        """Why no work should be done for it, if so."""
        if self.client_left:
            return ClientLeft()
        late = time.perf_counter() - self.due
        if late >= 0:
            waited = 1000 * (time.perf_counter() - self.arrived)
            return Problem(504, "deadline", f"no answer in time: it waited for {waited:.0f} ms")
        return None

    def watch(self, step: Step) -> bool:
        """Pass a step on; True when the work is for nothing."""
        if self.emit is not None and step.sample == 0 and not self.client_left:
            self.emit(step)
        return self.client_left or time.perf_counter() > self.expires


class Engine:
    """The model and its queue."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        recognizer: Recognizer | None = None,
        expected: Callable[[], int] = lambda: 0,
    ) -> None:
        """`expected` says how many requests are being read and will want a place soon."""
        self.settings, self.metrics, self.expected = settings, metrics, expected
        self.recognizer = recognizer
        self.failure: GryphoneError | None = None
        self.ready = threading.Event()
        self.pace = 0.0005  # seconds for each unit of cost, as seen lately
        # By the turn of each, then in the order in which they came.
        self._jobs: queue.PriorityQueue[tuple[float, int, Job | None]] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._open: set[Job] = set()  # not answered yet
        self._aside = 0.0  # seconds in all for those that heavy ones let pass
        self.thread = threading.Thread(target=self._run, name="gryphone-model", daemon=True)
        self.on_ready: Callable[[], None] = lambda: None
        self.on_failure: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Load the model in its thread."""
        self.thread.start()

    def submit(self, job: Job) -> None:
        """Queue a question."""
        self._open.add(job)
        job.answer.add_done_callback(lambda _: self._open.discard(job))
        self._jobs.put((self.turn_of(job), next(self._numbers), job))

    def turn_of(self, job: Job) -> float:
        """What decides who is next: when it came, and how long it takes."""
        return job.arrived + PATIENCE * self.pace * job.cost

    def ahead(self, turn: float) -> float:
        """Seconds that the model needs for what comes before some turn."""
        return self.pace * sum(job.cost for job in tuple(self._open) if self.turn_of(job) <= turn)

    @property
    def loading(self) -> bool:
        """Whether the model is neither there nor known to be of no use."""
        return not self.ready.is_set() and self.failure is None

    @property
    def batch(self) -> int:
        """The most inks that are encoded together."""
        if self.settings.batch is not None:
            return self.settings.batch
        return 1 if self.recognizer is None else self.recognizer.backend.batch

    @property
    def waiting(self) -> int:
        """Questions that no batch has taken yet."""
        return self._jobs.qsize()

    def close(self, timeout: float | None = None) -> None:
        """Finish what is queued, then stop."""
        self._jobs.put((math.inf, 0, None))  # behind all others
        if self.thread.is_alive():
            self.thread.join(timeout)

    def _run(self) -> None:
        try:
            self._load()
        except Exception as error:
            if not isinstance(error, GryphoneError):
                error = CheckpointError(f"the model does not load: {error}")
            self.failure = error
            self.on_failure()
            return
        self.ready.set()
        self.on_ready()
        tidied = time.perf_counter()
        for batch in self.batches():
            self._work_on(batch)
            if time.perf_counter() - tidied >= TIDY_SECONDS:
                give_back_memory()
                tidied = time.perf_counter()

    def _work_on(self, batch: Sequence[Job]) -> None:
        began, aside = time.perf_counter(), self._aside
        try:
            self._answer(batch)
        except Exception as error:  # this thread must outlive whatever happens in it
            for job in batch:
                if not job.answer.done():
                    self._fail(job, error)
        seconds = time.perf_counter() - began - (self._aside - aside)
        self.metrics.count_batch(len(batch), seconds)
        done = [job for job in batch if job.answer.done() and job.answer.exception() is None]
        cost = sum(job.cost for job in done)
        if cost:
            self.pace += 0.2 * (seconds / cost - self.pace)

    def _load(self) -> None:
        if self.recognizer is None:
            # The first answers build the grammar and warm the network up: no user waits for that.
            settings = self.settings
            self.recognizer = load(
                settings.weights, settings.device, threads=settings.cores, warm=True
            )
        self.recognizer.recognize([[[0, 0], [0, 9]], [[5, 5], [9, 5]]], steps=2)

    def batches(self) -> Iterator[list[Job]]:
        """What waits, a batch at a time; a little patience where more is about to come.

        That is, while other requests are being read, and after a batch of several: clients that
        were answered together ask again together.
        """
        crowd = False
        while True:
            job = self._jobs.get()[2]
            if job is None:
                return
            batch, end = [job], time.perf_counter() + self.settings.linger
            while self._has_room(batch):
                patience = end - time.perf_counter() if crowd or self.expected() else 0.0
                another = self._next_light(patience)
                if another is None:
                    break
                batch.append(another)
            crowd = len(batch) > 1
            yield batch

    def _has_room(self, batch: Sequence[Job]) -> bool:
        """Whether any light question may join a batch."""
        cost = sum(job.cost for job in batch)
        alone = batch[0].cost > HEAVY
        return not alone and len(batch) < self.batch and cost <= ORDINARY * self.batch

    def _next_light(self, patience: float = 0.0) -> Job | None:
        """The next question, if there is one and it is not heavy."""
        try:
            entry = self._jobs.get(patience > 0, max(patience, 0.0))
        except queue.Empty:
            return None
        if entry[2] is None or entry[2].cost > HEAVY:
            self._jobs.put(entry)
            return None
        return entry[2]

    def _let_pass(self) -> None:
        """Answer what came while a heavy one is being refined."""
        began = time.perf_counter()
        while (job := self._next_light()) is not None:
            batch = [job]
            while self._has_room(batch) and (job := self._next_light()) is not None:
                batch.append(job)
            self._work_on(batch)
        self._aside += time.perf_counter() - began

    def _answer(self, jobs: Sequence[Job]) -> None:
        """Answer a batch; should it fail as a whole, every job on its own."""
        for job in jobs:
            if job.read is not None and self._wanted(job):
                self._answer_alone(job, job.read)
        jobs = [job for job in jobs if job.read is None and self._wanted(job)]
        if not jobs:
            return
        if self.recognizer is not None and 1 < len(jobs) <= self.recognizer.backend.few:
            for job in jobs:
                self._answer([job])
            return
        try:
            encoded = self._encode(jobs)
        except Exception as error:
            self._separate(jobs, error, self._answer)
            return
        pairs = list(zip(jobs, encoded, strict=True))
        # Who is in a hurry goes first, alone: a schedule that shrinks cannot be shared.
        for job, seen in sorted(pairs, key=lambda pair: pair[0].due):
            if job.ask.deadline_ms is not None:
                self._answer_in_time(job, seen)
        questions: list[tuple[Job, Question]] = []
        for job, seen in pairs:
            if job.ask.deadline_ms is None and self._wanted(job):
                try:
                    questions.append((job, prepare(seen.batch, seen.index, self._asked(job))))
                except Exception as error:
                    self._fail(job, error)
        for group in sorted(group_alike(questions), key=_work):  # a heavy one holds up no light one
            self._decode(group)

    def _encode(self, jobs: Sequence[Job]) -> list[Encoded]:
        if self.recognizer is None:
            raise RuntimeError("the model is not loaded")
        return self.recognizer.encode_inputs([job.input for job in jobs])

    def _asked(self, job: Job) -> Ask:
        """The question, and who looks at its steps: nobody where it is soon answered anyway, for
        a GPU is slowed down by that."""

        def watch(step: Step) -> bool:
            self._let_pass()
            return job.watch(step)

        if job.cost > HEAVY:
            return replace(job.ask, on_step=watch)
        long = len(job.input.ink.strokes) > ROW  # and may be read in parts
        watched = job.emit is not None or job.ask.work > AUTO_STEPS or long
        return replace(job.ask, on_step=job.watch if watched else None)

    def _answer_in_time(self, job: Job, seen: Encoded) -> None:
        """As many steps as fit before a job's own deadline."""
        if not self._wanted(job):
            return
        try:
            self._succeed(job, seen.answer(self._asked(job), job.arrived))
        except Exception as error:
            self._fail(job, error)

    def _answer_alone(self, job: Job, read: Read) -> None:
        """What asks the model more than once."""
        if self.recognizer is None:
            raise RuntimeError("the model is not loaded")
        asked = self._asked(job)

        def watch(step: Step) -> None:
            """One step too late ends it all: the whole page, not a line of it."""
            if asked.on_step is not None:
                asked.on_step(step)
            if (obstacle := job.obstacle()) is not None:
                raise obstacle

        try:
            self._succeed(job, read(self.recognizer, job.input, replace(asked, on_step=watch)))
        except Exception as error:
            self._fail(job, error)

    def _decode(self, group: Sequence[tuple[Job, Question]]) -> None:
        """Refine questions together; should that fail, each on its own."""
        group = [(job, question) for job, question in group if self._wanted(job)]
        if not group:
            return
        jobs = [job for job, _ in group]
        try:
            results = answer_together([q for _, q in group], time.perf_counter())
        except Exception as error:
            alone = {id(job): question for job, question in group}
            self._separate(jobs, error, lambda js: self._decode([(j, alone[id(j)]) for j in js]))
            return
        for job, result in zip(jobs, results, strict=True):
            self._succeed(job, result)

    def _separate(
        self, jobs: Sequence[Job], error: Exception, again: Callable[[list[Job]], None]
    ) -> None:
        """Find the one that hurts the others."""
        if len(jobs) == 1:
            self._fail(jobs[0], error)
            return
        for job in jobs:
            again([job])

    def _wanted(self, job: Job) -> bool:
        """Whether there is still work to do for a job; if not, it is told why."""
        if job.answer.done():
            return False
        obstacle = job.obstacle()
        if obstacle is not None:
            self._fail(job, obstacle)
        return obstacle is None

    def _succeed(self, job: Job, result: Result | PageResult) -> None:
        # Its own deadline shortened the work; only the server's limit makes it worthless.
        obstacle = job.obstacle() if job.client_left or job.expires < time.perf_counter() else None
        if obstacle is not None:
            self._fail(job, obstacle)
            return
        self.metrics.count_ink("answered")
        job.answer.set_result(replace(result, seconds=time.perf_counter() - job.arrived))

    def _fail(self, job: Job, error: Exception) -> None:
        if isinstance(error, ClientLeft):
            outcome = "left"
        elif isinstance(error, Problem):
            outcome = "late"
        elif isinstance(error, GryphoneError):
            outcome = "refused"
        else:
            outcome = "failed"
            log.error("recognition failed: %s", traceback_text(error))
        self.metrics.count_ink(outcome)
        job.answer.set_exception(error)


def group_alike(questions: Sequence[tuple[Job, Question]]) -> Iterator[list[tuple[Job, Question]]]:
    """Questions that one decode can answer: equal steps, seed and views, bounded work."""

    def kind(item: tuple[Job, Question]) -> tuple[int, bool, int, str, int]:
        ask = item[1].ask
        return ask.total_steps, ask.auto, ask.seed, ask.method, ask.views

    for _, alike in itertools.groupby(sorted(questions, key=kind), key=kind):
        group: list[tuple[Job, Question]] = []
        work = 0
        for item in alike:
            more = _work([item])
            if group and work + more > MOST_WORK:
                yield group
                group, work = [], 0
            group.append(item)
            work += more
        yield group


def _work(group: Sequence[tuple[Job, Question]]) -> int:
    return sum(q.ask.work for _, q in group)
