"""Several processes behind one port: each has its own model, and a socket of its own on the port.

The system deals connections out to the sockets, evenly by chance (from one socket that all accept
from, the first to wake up would take all that wait). One that dies is replaced; its own requests
are lost with it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any

from gryphone.errors import ConfigError, GryphoneError, need
from gryphone.interrupt import SIGNALS, ctrl_c_held_back
from gryphone.server.problems import log
from gryphone.server.run import address, listen, run
from gryphone.server.settings import Settings

LOOK_SECONDS = 0.2  # between looks at signals
AGAIN_SECONDS = 1.0  # before a place is filled again: what dies at once shall not keep a core busy


class Worker:
    """One place among the workers, and the process that has it now."""

    def __init__(self, settings: Settings, number: int) -> None:
        self.settings, self.number = settings, number
        self.ready = False
        self.start()

    def start(self) -> None:
        """Fill the place."""
        context = multiprocessing.get_context("spawn")  # a fork would copy what threads hold
        self.pipe, theirs = context.Pipe(duplex=False)
        args = (self.settings, self.number, theirs)
        self.process = context.Process(target=work, args=args, name=f"worker-{self.number}")
        with ctrl_c_held_back():  # the parent alone is told, and tells them
            self.process.start()
        theirs.close()
        self.failure: str | None = None
        self.again = 0.0

    def hear(self) -> None:
        """Take in that it is ready, or why it cannot load."""
        with suppress(EOFError):
            if self.pipe.poll():
                self.failure = self.pipe.recv()
                self.ready = self.ready or self.failure is None

    def refill(self) -> None:
        """Find a successor for one that died."""
        if self.process.is_alive():
            return
        now = time.monotonic()
        if not self.again:
            self.again = now + AGAIN_SECONDS
            log.error(
                "worker %d (process %s) ended with %s; another takes its place",
                *(self.number, self.process.pid, self.failure or self.process.exitcode),
            )
        elif now >= self.again:
            self.pipe.close()
            self.start()


def serve_many(settings: Settings, ready: Callable[[str], None] = lambda url: None) -> None:
    """Serve with `settings.workers` processes until a signal comes; `ready` as in `serve`."""
    if sys.platform != "linux":
        raise ConfigError(f"several workers share a port on Linux, not on {sys.platform}; use 1")
    listen(settings).close()  # another server's workers would share theirs
    with listen(settings, shared=True) as sock:  # so that the port stays ours
        _supervise(replace(settings, port=sock.getsockname()[1]), lambda: ready(address(sock)))


def _supervise(settings: Settings, ready: Callable[[], None]) -> None:
    signals: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        signals.append(number)

    before = {number: signal.signal(number, note) for number in SIGNALS}
    workers = [Worker(settings, number) for number in range(settings.workers)]
    try:
        waiting = True
        while not signals:
            wait([w.process.sentinel for w in workers if not w.again], LOOK_SECONDS)
            for worker in workers:
                worker.hear()
            failures = [w.failure for w in workers if w.failure is not None]
            if failures and not any(worker.ready for worker in workers):
                raise GryphoneError(failures[0])
            for worker in workers:
                worker.refill()
            if waiting and all(worker.ready for worker in workers):
                waiting = False
                ready()
    finally:
        _end(workers, signals)
        for number, handler in before.items():
            signal.signal(number, handler)
    signal.raise_signal(signals[0])  # as uvicorn does: whoever sent it expects this end


def _end(workers: list[Worker], signals: list[int]) -> None:
    """Have all finish what they have; another signal ends their draining too."""
    told = 0
    while any(worker.process.is_alive() for worker in workers):
        if told < max(1, len(signals)):
            told += 1
            for worker in workers:
                worker.process.terminate()
        time.sleep(LOOK_SECONDS / 4)


def work(settings: Settings, number: int, pipe: Connection[Any, Any]) -> None:
    """What a process does: serve, and tell the parent that it can, or why it cannot."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        own = replace(settings, worker=number, device=_device_of(settings.device, number))
        run(own, listen(own, shared=True), lambda: pipe.send(None))
    except GryphoneError as error:
        pipe.send(str(error))


def _leave_with_parent() -> None:
    """Without it nobody would stop this process, and its port would stay taken."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _device_of(device: str, number: int) -> str:
    """The GPU of a worker: they are shared out in turn."""
    if device != "cuda":
        return device
    need("torch", "torch")
    import torch

    return f"cuda:{number % max(1, torch.cuda.device_count())}"
