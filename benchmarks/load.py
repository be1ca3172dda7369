"""Load test of `gryphone serve` on the loopback interface; ends in a few minutes.

Throughput and latency with 1, 8 and 64 clients against calls one at a time, memory over many
requests (a tiny model, so that they are done soon), and what happens under overload.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np

from gryphone.cli import calm_threads

ROOT = Path(__file__).parent.parent
INKS = sorted((ROOT / "examples/ink").glob("*.inkml"))
PHOTO = ROOT / "examples/photo/01-power.jpg"


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


def requests() -> list[dict[str, Any]]:
    """The bundled inks as strokes, as a page sends them."""
    from gryphone.reading.inkml import read_inkml

    return [{"json": {"strokes": [s.tolist() for s in read_inkml(path).strokes]}} for path in INKS]


async def hammer(
    url: str, clients: int, total: int, bodies: list[dict[str, Any]], pause: bool = False
) -> tuple[dict[int, np.ndarray], float]:
    """`total` requests by so many clients: the seconds of each by status, and seconds in all.

    With `pause` a client does what Retry-After says.
    """
    times: defaultdict[int, list[float]] = defaultdict(list)
    numbers = iter(range(total))
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as client:

        async def one() -> None:
            for n in numbers:
                began = time.perf_counter()
                response = await client.post("/v1/recognize", **bodies[n % len(bodies)])
                times[response.status_code].append(time.perf_counter() - began)
                if response.status_code == 503 and pause:
                    await asyncio.sleep(float(response.headers["retry-after"]))

        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(clients)))
        seconds = time.perf_counter() - began
        return {status: np.array(found) for status, found in times.items()}, seconds


def tiny_weights(folder: Path) -> Path:
    """A checkpoint of the smallest network, with random weights."""
    import torch

    from gryphone.checkpoint import save_checkpoint
    from gryphone.config import PRESETS
    from gryphone.kinds import build_model
    from gryphone.latex.normalize import normalize
    from gryphone.reading.inkml import read_inkml
    from gryphone.tokens import build_tokenizer

    torch.manual_seed(0)
    tokenizer = build_tokenizer("sat", [normalize(read_inkml(p).label or "") for p in INKS])
    model = build_model(PRESETS["tiny"], tuple(len(v) for v in tokenizer.vocabularies))
    save_checkpoint(folder, model.state_dict(), PRESETS["tiny"], tokenizer, {})
    return folder


def resident(pid: int) -> float:
    """MiB of memory that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


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
    print("| clients | requests | inks/s | p50 ms | p99 ms |\n| --- | --- | --- | --- | --- |")
    report["clients"] = {}
    with server("--device", device) as (url, _):
        for clients in (1, 8, 64):  # so that every size of batch has been met
            asyncio.run(hammer(url, clients, 2 * clients, requests()))
        for clients, total in ((1, 16 * scale), (8, 48 * scale), (64, 96 * scale)):
            times, seconds = asyncio.run(hammer(url, clients, total, requests()))
            assert set(times) == {200}, set(times)
            p50, p99 = np.percentile(times[200], (50, 99)) * 1000
            rate = total / seconds
            print(f"| {clients} | {total} | {rate:.1f} | {p50:.0f} | {p99:.0f} |", flush=True)
            report["clients"][clients] = {"rate": rate, "p50": p50, "p99": p99, "n": total}
        text = httpx.get(f"{url}metrics").text
        sums = dict(re.findall(r"gryphone_batch_inks_(sum|count) (\S+)", text))
        report["mean_batch"] = float(sums["sum"]) / float(sums["count"])
        print(f"\nmean batch: {report['mean_batch']:.1f} inks")


def memory(report: dict[str, Any], total: int, weights: Path) -> None:
    """Memory over many requests: strokes, photos, bad ones."""
    good = [{"json": body["json"] | {"options": {"steps": 2}}} for body in requests()]
    photo = {"files": {"file": ("a.jpg", PHOTO.read_bytes())}}
    bad = [{"json": {"strokes": [[[0, 1e12]]]}}, {"files": {"file": ("a.png", b"no image")}}]
    mixed = [*good, photo, *bad]
    seen = []
    with server("--weights", str(weights)) as (url, pid):
        print("\n| requests | resident MiB |\n| --- | --- |")
        done, began = 0, time.perf_counter()
        while done <= total:
            seen.append((done, round(resident(pid), 1)))
            print(f"| {done} | {seen[-1][1]} |", flush=True)
            if done == total:
                break
            times, _ = asyncio.run(hammer(url, 8, total // 10, mixed))
            assert set(times) == {200, 400}, set(times)
            done += total // 10
    rate = total / (time.perf_counter() - began)
    report["memory"] = {"seen": seen, "rate": rate}
    print(f"{rate:.0f} requests/s (tiny model)")


def overload(report: dict[str, Any]) -> None:
    """Far more clients than places: refusals must be quick, and the server must live."""
    with server("--queue", "16") as (url, _):
        times, seconds = asyncio.run(hammer(url, 200, 2000, requests()))
        assert set(times) == {200, 503}, set(times)
        assert httpx.get(f"{url}healthz").status_code == 200
        polite, _ = asyncio.run(hammer(url, 24, 48, requests(), pause=True))
        after = httpx.post(f"{url}v1/recognize", **requests()[0], timeout=60).status_code
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
        with tempfile.TemporaryDirectory() as folder:
            memory(report, args.requests, tiny_weights(Path(folder) / "tiny"))
    overload(report)
    report["load_after"] = os.getloadavg()
    print(f"load {os.getloadavg()[0]:.1f} after the test")
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
