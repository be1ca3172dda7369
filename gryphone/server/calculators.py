"""Processes that compute with SymPy: which may take long, and is ended where it does."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from gryphone.server.problems import busy
from gryphone.server.settings import Settings
from gryphone.writers.compute import Calculator

WAITING = 8  # questions for each process, before others get a 503


class Calculators:
    """As many as the settings say; each answers one question at a time."""

    def __init__(self, settings: Settings) -> None:
        limits = settings.compute_seconds, settings.compute_megabytes
        self.inside = 0  # questions that are being answered or wait
        self._lock = threading.Lock()
        self._all = [Calculator(*limits) for _ in range(settings.compute)]
        self._threads = ThreadPoolExecutor(max(settings.compute, 1), "gryphone-calculator")
        self._idle: queue.SimpleQueue[Calculator] = queue.SimpleQueue()
        for calculator in self._all:
            self._idle.put(calculator)

    def start(self) -> None:
        """Have the processes ready before somebody asks."""
        for _ in self._all:
            self.submit(Calculator.start)

    def submit(self, ask: Callable[[Calculator], Any]) -> Future[Any]:
        """What a calculator answers; a Problem where too many wait."""
        if self.inside >= WAITING * len(self._all):
            raise busy(2, "too much is being computed")
        self._add(1)
        work = self._threads.submit(self._run, ask)
        work.add_done_callback(lambda _: self._add(-1))
        return work

    def _run(self, ask: Callable[[Calculator], Any]) -> Any:
        calculator = self._idle.get()
        try:
            return ask(calculator)
        finally:
            self._idle.put(calculator)

    def _add(self, number: int) -> None:
        with self._lock:
            self.inside += number

    def close(self) -> None:
        """Stop at once."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for calculator in self._all:
            calculator.close()
