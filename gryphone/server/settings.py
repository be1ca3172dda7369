"""How a server is run: every limit in one place, checked once, where it is made."""

from __future__ import annotations

import dataclasses
import os
import re
from dataclasses import dataclass
from pathlib import Path

from gryphone.errors import ConfigError
from gryphone.ink import Limits

_ORIGIN = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+")
_HOST = re.compile(r"[A-Za-z0-9._\-]+")
MAY_BE_ZERO = ("port", "linger", "drain", "worker", "compute")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Settings:
    """What a server may use. Sizes are bytes unless the name says otherwise, times seconds.

    queue: requests between their body and their answer, before others get a 503. batch: inks that
    go through the encoder together (None: as many as suit the device). linger: how long a batch
    waits for requests that are about to come. readers: processes that read uploads. streams: event
    streams at a time. seconds: the most a request may take in all; read_seconds for reading an
    upload, body_seconds for sending its body, header_seconds for sending its headers. buffer:
    bodies that are held at a time, all together. path: length of all strokes together, in longer
    sides of the ink. patches: squares of the canvas that the ink touches; page: those of all lines
    of a page. scans: of a JPEG. compute: processes that compute with SymPy (0: nobody may ask),
    each with so many seconds for a question and so many megabytes. hosts: names that this server is
    called by, beside localhost, `host` and IP addresses; * is any. workers: processes that share
    the port, each with a model and with all limits; worker: which of them this is. drain: how long
    a server that was told to stop still serves, but says that it is not ready.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    weights: Path | None = None
    device: str = "cpu"
    threads: int | None = None  # that compute; None: as many as there are cores
    api_key: str | None = None
    cors: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    queue: int = 64
    batch: int | None = None
    linger: float = 0.01
    readers: int = 2
    streams: int = 16
    seconds: float = 30.0
    read_seconds: float = 5.0
    body_seconds: float = 15.0
    header_seconds: float = 10.0
    body: int = 16 << 20
    buffer: int = 256 << 20
    megapixels: int = 32
    strokes: int = 2_000
    points: int = 100_000
    path: int = 1_000
    patches: int = 1_500
    page: int = 4_000
    scans: int = 50
    compute: int = 0
    compute_seconds: float = 5.0
    compute_megabytes: int = 512
    workers: int = 1
    worker: int | None = None
    drain: float = 0.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            positive = isinstance(value, (int, float)) and field.name not in MAY_BE_ZERO
            if positive and not value > 0:
                raise ConfigError(f"{field.name} is {value}; it must be above 0")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port is {self.port}; it must be between 0 (any free one) and 65535")
        for name in ("linger", "drain", "compute"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        if self.api_key is not None and not (
            self.api_key.isascii()
            and self.api_key.isprintable()
            and len(self.api_key) >= 8
            and self.api_key == self.api_key.strip()  # a header's value has no outer spaces
        ):
            raise ConfigError(
                "the API key must be 8 or more printable ASCII characters, without outer spaces"
            )
        for origin in self.cors:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ConfigError(
                    f"CORS origin {origin!r} is none; write it as https://example.org, or *"
                )

        for host in self.hosts:
            if host != "*" and not _HOST.fullmatch(host):
                raise ConfigError(
                    f"host {host!r} is no name; write it as notes.example.org, without a port"
                )

    @property
    def cores(self) -> int:
        """Threads that compute: `threads`, or this worker's share of the cores; 0 is all."""
        if self.threads is None and self.workers > 1:
            return max(1, (os.cpu_count() or 1) // self.workers)
        return self.threads or 0

    @property
    def ink(self) -> Limits:
        """What the readers of ink accept."""
        return Limits(self.body, self.strokes, self.points)

    @property
    def exposed(self) -> bool:
        """Whether others than this machine can ask, without a key."""
        return self.host not in LOOPBACK and self.api_key is None
