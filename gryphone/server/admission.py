"""How many requests are inside, and who may still come in. Lives on the event loop alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gryphone.server.problems import busy
from gryphone.server.settings import Settings


@dataclass
class House:
    """Counts of the requests that are being served."""

    settings: Settings
    inside: int = 0  # requests between their body and their answer
    reading: int = 0  # those whose ink is being read
    overdue: int = 0  # readings that nobody waits for, and that still hold a thread
    streams: int = 0
    buffered: int = 0  # bytes of bodies
    pace: float = 0.2  # seconds per ink, as seen lately

    @property
    def retry(self) -> int:
        """Seconds after which there is likely room again."""
        return min(30, max(1, math.ceil(self.inside * self.pace)))

    def check(self, stream: bool = False) -> None:
        """Raise where there is no room: better no at once than an answer that comes too late."""
        if self.inside + self.overdue >= self.settings.queue:
            raise busy(self.retry, f"{self.settings.queue} requests are waiting")
        if stream and self.streams >= self.settings.streams:
            raise busy(self.retry, f"{self.settings.streams} streams are open")

    def hold(self, size: int) -> None:
        """Take bytes in."""
        self.buffered += size
        if self.buffered > self.settings.buffer:
            raise busy(self.retry, "too many bytes are being received")


class Visit:
    """One request inside the house; closing it twice is harmless."""

    def __init__(self, house: House, stream: bool = False) -> None:
        house.check(stream)
        self.house, self.stream, self.open = house, stream, True
        house.inside += 1
        house.streams += stream

    def close(self) -> None:
        """Make room."""
        if self.open:
            self.open = False
            self.house.inside -= 1
            self.house.streams -= self.stream
