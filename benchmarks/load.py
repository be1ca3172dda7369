"""Load test of `gryphone serve` on the loopback interface; ends in some ten minutes.

Throughput and latency with 1, 8 and 64 clients against calls one at a time, memory over many
requests, and what happens under overload, all with the bundled weights.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from gryphone.cli import calm_threads

ROOT = Path(__file__).parent.parent
INKS = sorted((ROOT / "examples/ink").glob("*.inkml"))
PHOTO = ROOT / "examples/photo/01-power.jpg"
JSON = "application/json"


class Body(NamedTuple):
    """What is posted, and where to."""

    data: bytes
    kind: str = JSON
    path: str = "/v1/recognize"


@contextmanager
def server(*options: str) -> Iterator[tuple[str, int]]:
    """A server of its own process: its address and process id."""
    call = [sys.executable, "-m", "gryphone", "serve", "--port", "0", "--no-open", *options]
    process = subprocess.Popen(call, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            found = re.search(r"http://\S+", line)
            if found:
                break
        else:
            raise SystemExit("the server did not start")
        yield found.group(), process.pid
    finally:
        process.terminate()
        process.wait(60)


def requests(**options: Any) -> list[Body]:
    """The bundled inks as strokes, as a page sends them."""
    from gryphone.reading.inkml import read_inkml

    inks = [[s.tolist() for s in read_inkml(path).strokes] for path in INKS]
    return [Body(json.dumps({"strokes": ink, "options": options}).encode()) for ink in inks]


def upload(name: str, data: bytes) -> Body:
    """A form with one file."""
    head = f'--B\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return Body(head.encode() + data + b"\r\n--B--\r\n", "multipart/form-data; boundary=B")


class Client:
    """One that keeps its connection, if the server does."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)

    def ask(self, what: str | Body) -> tuple[int, bytes, float]:
        """The status of an answer, the answer, and seconds to come back after."""
        if isinstance(what, Body):
            headers = {"Content-Type": what.kind}
            self.connection.request("POST", what.path, what.data, headers)
        else:
            self.connection.request("GET", what)
        response = self.connection.getresponse()
        retry = float(response.headers.get("retry-after", 0))
        return response.status, response.read(), retry


def hammer(
    url: str, clients: int, total: int, bodies: list[Body], pause: bool = False
) -> tuple[dict[int, np.ndarray], float]:
    """`total` requests by so many clients: the seconds of each by status, and seconds in all.

    With `pause` a client does what Retry-After says.
    """
    times: defaultdict[int, list[float]] = defaultdict(list)
    numbers, lock = iter(range(total)), threading.Lock()

    def one() -> None:
        client = Client(url)
        while True:
            with lock:
                n = next(numbers, None)
            if n is None:
                return
            began = time.perf_counter()
            status, _, retry = client.ask(bodies[n % len(bodies)])
            with lock:
                times[status].append(time.perf_counter() - began)
            if status == 503 and pause:
                client.connection.close()  # as the server does with one that is idle
                time.sleep(retry)

    threads = [threading.Thread(target=one) for _ in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {status: np.array(found) for status, found in times.items()}, time.perf_counter() - began


def resident(pid: int, most: bool = False) -> float:
    """MiB of memory that a process holds, or has held at most."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:" if most else "VmRSS:")[2].split()[0]) / 1024


def single_calls(count: int, device: str) -> float:
    """Answers per second of the Python API, one at a time."""
    import gryphone
    from gryphone.reading.inkml import read_inkml

    recognizer, inks = gryphone.load(device=device), [read_inkml(path) for path in INKS]
    recognizer.recognize(inks[0])
    began = time.perf_counter()
    for n in range(count):
        recognizer.recognize(inks[n % len(inks)])
    return count / (time.perf_counter() - began)


def latency(report: dict[str, Any], scale: int, device: str) -> None:
    """Throughput and latency with the bundled weights."""
    report["python_one_at_a_time"] = round(single_calls(16 * scale, device), 2)
    print(f"Python API, one at a time: {report['python_one_at_a_time']} inks/s\n")
    print("| clients | requests | refused | inks/s | p50 ms | p99 ms |")
    print("| --- | --- | --- | --- | --- | --- |")
    report["clients"] = {}
    with server("--device", device) as (url, _):
        for clients in (1, 8, 64):  # so that every size of batch has been met
            hammer(url, clients, 2 * clients, requests())
        for clients, total in ((1, 16 * scale), (8, 48 * scale), (64, 96 * scale)):
            times, seconds = hammer(url, clients, total, requests(), pause=True)
            assert set(times) <= {200, 503}, set(times)
            p50, p99 = np.percentile(times[200], (50, 99)) * 1000
            rate, refused = len(times[200]) / seconds, len(times.get(503, ()))
            print(
                f"| {clients} | {total} | {refused} | {rate:.1f} | {p50:.0f} | {p99:.0f} |",
                flush=True,
            )
            found = {"rate": rate, "p50": p50, "p99": p99, "n": total, "refused": refused}
            report["clients"][clients] = found
        text = Client(url).ask("/metrics")[1].decode()
        sums = dict(re.findall(r"gryphone_batch_inks_(sum|count) (\S+)", text))
        report["mean_batch"] = float(sums["sum"]) / float(sums["count"])
        print(f"\nmean batch: {report['mean_batch']:.1f} inks")


def a_page() -> Body:
    """Three of the inks below each other."""
    from gryphone.reading.inkml import read_inkml

    strokes: list[Any] = []
    for ink in map(read_inkml, INKS[:3]):
        top = max((y for stroke in strokes for _, y in stroke), default=0.0)
        left, low, _, high = ink.bounds
        by = np.array([-left, top - low + (high - low)])
        strokes += [(stroke + by).tolist() for stroke in ink.strokes]
    return Body(json.dumps({"strokes": strokes}).encode(), path="/v1/page")


def memory(report: dict[str, Any], total: int) -> None:
    """Memory over many requests: strokes, photos, pages, ink that is being written, bad ones."""
    bad = [Body(b'{"strokes": [[[0, 1e12]]]}'), upload("a.png", b"no image")]
    live = [body._replace(path="/v1/live") for body in requests()[:3]]
    mixed = [*requests(), upload("a.jpg", PHOTO.read_bytes()), a_page(), *live, *bad]
    seen = []
    with server() as (url, pid):
        print("\n| requests | resident MiB | at most |\n| --- | --- | --- |")
        done, began = 0, time.perf_counter()
        while done <= total:
            seen.append((done, round(resident(pid), 1), round(resident(pid, most=True), 1)))
            print("| {} | {} | {} |".format(*seen[-1]), flush=True)
            if done == total:
                break
            times, _ = hammer(url, 8, total // 10, mixed)
            assert set(times) == {200, 400}, set(times)
            done += total // 10
    rate = total / (time.perf_counter() - began)
    report["memory"] = {"seen": seen, "rate": rate}
    print(f"{rate:.0f} requests/s")


def overload(report: dict[str, Any]) -> None:
    """Far more clients than places: refusals must be quick, and the server must live."""
    with server("--queue", "16") as (url, _):
        times, seconds = hammer(url, 200, 2000, requests())
        assert set(times) == {200, 503}, set(times)
        assert Client(url).ask("/healthz")[0] == 200
        polite, _ = hammer(url, 24, 48, requests(), pause=True)
        after = Client(url).ask(requests()[0])[0]
    answered, refused = times[200], times[503]
    report["overload"] = {"answered": len(answered), "refused": len(refused), "seconds": seconds}
    report["overload"]["polite"] = {status: len(found) for status, found in polite.items()}
    print(
        f"\noverload, 200 clients on 16 places, {seconds:.1f} s: {len(answered)} answered (p99 "
        f"{1000 * np.percentile(answered, 99):.0f} ms), {len(refused)} refused (p50 "
        f"{1000 * np.median(refused):.0f} ms); one more afterwards: {after}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=1, help="how much more to measure")
    parser.add_argument("--requests", type=int, default=10_000, help="of the memory test")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--device", default="cpu", help="of the first part")
    parser.add_argument("--no-memory", action="store_true", help="leave the long part out")
    args = parser.parse_args()
    calm_threads()  # as the server does, before PyTorch
    report: dict[str, Any] = {"load": os.getloadavg(), "cores": os.cpu_count()}
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the test")
    latency(report, args.scale, args.device)
    if not args.no_memory:
        memory(report, args.requests)
    overload(report)
    report["load_after"] = os.getloadavg()
    print(f"load {os.getloadavg()[0]:.1f} after the test")
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
