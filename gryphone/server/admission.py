"""How many requests are being served, and whether one more is admitted. On the event loop alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gryphone.server.problems import busy
from gryphone.server.settings import Settings


@dataclass
class Admission:
    """Counts of the requests that are being served."""

    settings: Settings
    inside: int = 0  # requests between their body and their answer
    reading: int = 0  # those whose ink is being read
    overdue: int = 0  # readings that nobody waits for, and that still hold a thread
    streams: int = 0
    buffered: int = 0  # bytes of bodies
    seconds_per_ink: float = 0.2  # as seen lately

    @property
    def retry_seconds(self) -> int:
        """Seconds after which there is likely room again."""
        return min(30, max(1, math.ceil(self.inside * self.seconds_per_ink)))

    def check(self, stream: bool = False) -> None:
        """Raise where there is no room: better no at once than an answer that comes too late."""
        if self.inside + self.overdue >= self.settings.queue:
            raise busy(self.retry_seconds, f"{self.settings.queue} requests are waiting")
        if stream and self.streams >= self.settings.streams:
            raise busy(self.retry_seconds, f"{self.settings.streams} streams are open")

    def add_bytes(self, size: int) -> None:
        """Count bytes that were received."""
        self.buffered += size
        if self.buffered > self.settings.buffer:
            raise busy(self.retry_seconds, "too many bytes are being received")


class Place:
    """The place that one request takes; closing it twice is harmless."""

    def __init__(self, admission: Admission, stream: bool = False) -> None:
        admission.check(stream)
        self.admission, self.stream, self.open = admission, stream, True
        admission.inside += 1
        admission.streams += stream

    def close(self) -> None:
        """Make room."""
        if self.open:
            self.open = False
            self.admission.inside -= 1
            self.admission.streams -= self.stream
