"""What a Prometheus scrapes, in its text format. Labels come from fixed sets only."""

from __future__ import annotations

import ctypes
import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

Labels = tuple[str, ...]
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


@dataclass
class Counter:
    """A number that grows, one for each combination of labels."""

    name: str
    help: str
    labels: Labels = ()
    values: dict[Labels, float] = field(default_factory=dict)

    def add(self, *labels: str, by: float = 1) -> None:
        """Count."""
        self.values[labels] = self.values.get(labels, 0) + by

    def lines(self) -> list[str]:
        values = self.values or ({} if self.labels else {(): 0.0})
        return [
            *_head(self.name, self.help, "counter"),
            *(f"{self.name}{_braces(self.labels, k)} {v:.15g}" for k, v in values.items()),
        ]


@dataclass
class Gauge:
    """A number read when it is asked for."""

    name: str
    help: str
    read: Callable[[], float]

    def lines(self) -> list[str]:
        return [*_head(self.name, self.help, "gauge"), f"{self.name} {self.read():.15g}"]


@dataclass
class Histogram:
    """How often a value fell into each bucket."""

    name: str
    help: str
    buckets: Sequence[float]
    labels: Labels = ()
    counts: dict[Labels, list[int]] = field(default_factory=dict)
    sums: dict[Labels, float] = field(default_factory=dict)

    def observe(self, value: float, *labels: str) -> None:
        """Count a value."""
        counts = self.counts.setdefault(labels, [0] * (len(self.buckets) + 1))
        counts[bisect_left(self.buckets, value)] += 1
        self.sums[labels] = self.sums.get(labels, 0.0) + value

    def lines(self) -> list[str]:
        out = _head(self.name, self.help, "histogram")
        names = (*self.labels, "le")
        for key, counts in self.counts.items():
            total = 0
            for bound, count in zip((*self.buckets, float("inf")), counts, strict=True):
                total += count
                edge = "+Inf" if bound == float("inf") else f"{bound:g}"
                out.append(f"{self.name}_bucket{_braces(names, (*key, edge))} {total}")
            out.append(f"{self.name}_sum{_braces(self.labels, key)} {self.sums[key]:.6f}")
            out.append(f"{self.name}_count{_braces(self.labels, key)} {total}")
        return out


def _head(name: str, text: str, kind: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _braces(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    return "{" + ",".join(f'{n}="{v}"' for n, v in zip(names, values, strict=True)) + "}"


class Metrics:
    """All that is counted. The event loop and the model's thread both write."""

    def __init__(self, worker: int | None = None) -> None:
        """`worker`: which of several processes behind one port this is, a label of all numbers."""
        self.worker = worker
        self.lock = threading.Lock()
        self.requests = Counter(
            "gryphone_requests_total", "Requests by route and status.", ("route", "status")
        )
        self.latency = Histogram(
            "gryphone_request_seconds", "Time from request to answer.", SECONDS, ("route",)
        )
        self.batches = Histogram("gryphone_batch_inks", "Inks encoded together.", SIZES)
        self.model = Counter("gryphone_model_seconds_total", "Time the model was at work.")
        self.inks = Counter("gryphone_inks_total", "Inks by what became of them.", ("outcome",))
        self.gauges = [Gauge("process_resident_memory_bytes", "Memory in use.", resident_memory)]

    def add_gauge(self, name: str, text: str, owner: object, attribute: str) -> None:
        """Report a number that someone else keeps."""
        self.gauges.append(Gauge(name, text, lambda: float(getattr(owner, attribute))))

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """One finished request."""
        with self.lock:
            self.requests.add(route, str(status))
            self.latency.observe(seconds, route)

    def count_batch(self, inks: int, seconds: float) -> None:
        """One batch that went through the model."""
        with self.lock:
            self.batches.observe(inks)
            self.model.add(by=seconds)

    def count_ink(self, outcome: str) -> None:
        """One ink that was read, refused or dropped."""
        with self.lock:
            self.inks.add(outcome)

    def text(self) -> str:
        """The page that is scraped."""
        with self.lock:
            parts: list[Counter | Histogram | Gauge]
            parts = [self.requests, self.latency, self.batches, self.model, self.inks]
            lines = [line for part in (*parts, *self.gauges) for line in part.lines()]
        if self.worker is not None:
            lines = [line if line[0] == "#" else _of_worker(line, self.worker) for line in lines]
        return "\n".join(lines) + "\n"


def _of_worker(line: str, worker: int) -> str:
    name, brace, rest = line.partition("{")
    if brace:
        return f'{name}{{worker="{worker}",{rest}'
    name, _, value = line.partition(" ")
    return f'{name}{{worker="{worker}"}} {value}'


def give_back_memory() -> None:
    """Have the allocator return what it keeps of freed memory: every shape of batch frees blocks
    of other sizes, and glibc would keep half a gigabyte of them."""
    with suppress(AttributeError, OSError, TypeError):  # another C library has no such function
        ctypes.CDLL(None).malloc_trim(0)


def resident_memory() -> float:
    """Bytes of memory this process holds; NaN where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            pages = int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return float("nan")
    import resource

    return float(pages * resource.getpagesize())
