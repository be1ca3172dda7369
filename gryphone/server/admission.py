"""How many requests are being served, and whether one more is admitted. On the event loop alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gryphone.server.problems import busy
from gryphone.server.settings import Settings

# Of a request's time: what is expected to take longer would only be answered too late. Some of it
# is left, for a guess is a guess.
SHARE = 0.6


@dataclass
class Admission:
    """Counts of the requests that are being served."""

    settings: Settings
    inside: int = 0  # requests between their body and their answer
    reading: int = 0  # those whose ink is being read
    streams: int = 0
    buffered: int = 0  # bytes of bodies

    def check(self, ahead: float, stream: bool = False) -> None:
        """Raise where there is no room, or where what comes first takes too long (seconds)."""
        retry = min(30, max(1, math.ceil(ahead)))
        if self.inside >= self.settings.queue:
            raise busy(retry, f"{self.settings.queue} requests are waiting")
        if stream and self.streams >= self.settings.streams:
            raise busy(retry, f"{self.settings.streams} streams are open")
        self.check_time(ahead)

    def check_time(self, ahead: float) -> None:
        """Better no at once than an answer that comes too late."""
        most = SHARE * self.settings.seconds
        if ahead > most:
            # By then so much is done that there is room again.
            retry = min(30, max(1, math.ceil(ahead - most / 2)))
            raise busy(retry, f"work for {ahead:.0f} s is waiting")

    def add_bytes(self, size: int) -> None:
        """Count bytes that were received."""
        self.buffered += size
        if self.buffered > self.settings.buffer:
            raise busy(1, "too many bytes are being received")


class Place:
    """The place that one request takes; closing it twice is harmless."""

    def __init__(self, admission: Admission, ahead: float, stream: bool = False) -> None:
        admission.check(ahead, stream)
        self.admission, self.stream, self.open = admission, stream, True
        admission.inside += 1
        admission.streams += stream

    def close(self) -> None:
        """Make room."""
        if self.open:
            self.open = False
            self.admission.inside -= 1
            self.admission.streams -= self.stream
