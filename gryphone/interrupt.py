"""Ctrl-C and SIGTERM alike; in training a step is finished first: half an update is no state."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While it is entered, both signals raise KeyboardInterrupt, but not within a step.

    `several` processes must leave together: there a signal is noted in `asked`, never raised.
    """

    def __init__(self, several: bool = False) -> None:
        self.several = several
        self.asked = self.mid_step = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # nobody else may set handlers
            self._before = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def step(self) -> Iterator[None]:
        """A step: it is finished first, unless it is interrupted twice."""
        self.mid_step = True
        yield
        self.mid_step = False
        if self.asked and not self.several:
            raise KeyboardInterrupt

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if not self.several and (self.asked or not self.mid_step):
            raise KeyboardInterrupt
        self.asked = True
        if not self.several:  # print may be what was interrupted
            os.write(2, b"\nstopping after this step; once more to stop at once, unsaved\n")


def process_pool(workers: int, prepare: Callable[..., object], *args: Any) -> ProcessPoolExecutor:
    """So many processes, busy with getting ready, that leave Ctrl-C to this one."""
    # Fresh interpreters: forking a process that runs PyTorch's threads may hang.
    pool = ProcessPoolExecutor(
        workers,
        multiprocessing.get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )
    with _ctrl_c_held_back():
        for _ in range(workers):  # each submission starts one
            pool.submit(prepare, *args)
    return pool


@contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    """Processes that start meanwhile inherit this: Ctrl-C does not hit them while they import."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
