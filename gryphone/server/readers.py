"""Processes that read uploads: a decoder that does not come to an end can only be killed."""

from __future__ import annotations

import logging
import multiprocessing
import queue
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from gryphone.errors import InkError
from gryphone.interrupt import ctrl_c_held_back
from gryphone.server.problems import Problem, log, problem_of, traceback_text
from gryphone.server.telemetry import give_back_memory

# What a reader imports is imported once, in a process that readers are forked from: a new one is
# there in milliseconds, and shares its memory.
PRELOADED = (
    "__main__",
    "gryphone.server.submission",
    "PIL.ImageOps",
)


class Readers:
    """So many processes; each does one thing at a time, for so many seconds at most."""

    def __init__(self, count: int, seconds: float) -> None:
        self.count, self.seconds = count, seconds
        self.usual = 0.2  # seconds, as seen lately
        self.inside = 0  # what is being read or waits for it
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(count, "gryphone-reader")
        self._all = [Reader() for _ in range(count)]
        self._idle: queue.SimpleQueue[Reader] = queue.SimpleQueue()
        for reader in self._all:
            self._idle.put(reader)

    @property
    def expected(self) -> float:
        """Seconds until all that is inside is read."""
        return self.inside * self.usual / self.count

    def start(self, warm_up: Callable[[], None]) -> None:
        """Have all processes ready before somebody needs them."""
        for _ in self._all:
            self.submit(warm_up)

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """What a function of a module returns or raises there."""
        with self._lock:
            self.inside += 1
        work = self._threads.submit(self._run, function, *args)
        work.add_done_callback(self._count)
        return work

    def _count(self, _: Future[Any]) -> None:
        with self._lock:
            self.inside -= 1

    def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        reader = self._idle.get()
        began = time.perf_counter()
        try:
            return reader.run(self.seconds, function, *args)
        finally:
            self.usual += 0.2 * (time.perf_counter() - began - self.usual)
            self._idle.put(reader)

    def close(self) -> None:
        """Stop at once."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for reader in self._all:
            reader.stop(closed=True)


class Reader:
    """One process, started when it is needed."""

    def __init__(self) -> None:
        self.process: Any = None
        self.pipe: Connection[Any, Any] | None = None
        self.closed = False
        self._lock = threading.Lock()  # it may be closed while it starts

    def run(self, seconds: float, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function there; where it takes too long the process is killed."""
        if self.process is not None and not self.process.is_alive():
            self.stop()  # it died while nobody asked: that is not this file's fault
        try:
            pipe = self.pipe or self._start()
            pipe.send((function, args))
            if not pipe.poll(seconds):
                self.stop()
                raise Problem(504, "slow_ink", f"the ink was not read within {seconds:g} s")
            done, found = pipe.recv()
        except (EOFError, OSError) as error:
            self.stop()
            raise InkError(
                "the file broke its reader, perhaps for want of memory; save it again, smaller"
            ) from error
        if not done:
            raise found
        return found

    def _start(self) -> Connection[Any, Any]:
        forked = "forkserver" in multiprocessing.get_all_start_methods()
        context: Any = multiprocessing.get_context("forkserver" if forked else "spawn")
        if forked:
            context.set_forkserver_preload(list(PRELOADED))
        pipe, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs,), daemon=True)
        with self._lock, ctrl_c_held_back():
            if self.closed:
                raise OSError("this reader is closed")
            process.start()
            self.process, self.pipe = process, pipe
        theirs.close()
        pipe.recv()  # it is ready
        found: Connection[Any, Any] = pipe
        return found

    def stop(self, closed: bool = False) -> None:
        """Kill the process; where it is closed, no other takes its place."""
        with self._lock:
            pipe, process, self.pipe, self.process = self.pipe, self.process, None, None
            self.closed = self.closed or closed
        if process is not None:
            process.kill()
            process.join()
        if pipe is not None:
            pipe.close()


def _work(pipe: Connection[Any, Any]) -> None:
    """What a process does: call what comes, until nobody sends any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # It tells of every broken form; the client is told, and that is enough.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    with suppress(EOFError, OSError):  # the server is gone
        pipe.send(None)
        while True:
            function, args = pipe.recv()
            try:
                answer = True, function(*args)
            except Exception as error:
                problem = problem_of(error)
                if problem.status == 500:
                    log.error("reading failed: %s", traceback_text(error))
                answer = False, problem
            pipe.send(answer)
            give_back_memory()
