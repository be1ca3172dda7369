"""Servers more than once, on the loopback interface; ends in a minute or two.

Throughput of one process with a thread and with two, and of two processes on one port with a thread
each; then two replicas behind Debian's nginx (apt install nginx-light) with
deploy/nginx.conf: under load one is killed and started again, the other is told to stop and started
again. Whatever the balancer can send to the other one must be answered.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

from load import Client, hammer, requests, server

ROOT = Path(__file__).parent.parent
PORTS = {"one": 8731, "two": 8732}
FRONT = 8730


def workers(total: int, clients: int) -> None:
    """Answers a second of one worker and of two, twice in turn: others use the machine too."""
    print("| workers | threads of each | refused | inks/s | inks by worker |")
    print("| --- | --- | --- | --- | --- |")
    bodies = requests(steps=5)
    for count, threads in 2 * ((1, 1), (1, 2), (2, 1)):
        with server("--workers", str(count), "--threads", str(threads)) as (url, _):
            hammer(url, clients, 2 * clients, bodies)
            times, seconds = hammer(url, clients, total, bodies, pause=True)
            shares: dict[str, str] = {}
            while len(shares) < count:
                text = Client(url).ask("/metrics")[1].decode()
                shares |= re.findall(
                    r'^gryphone_inks_total{(.*)outcome="answered"} (.*)$', text, re.M
                )
        rate, refused = len(times[200]) / seconds, len(times.get(503, ()))
        shared = " + ".join(shares.values())
        print(f"| {count} | {threads} | {refused} | {rate:.2f} | {shared} |", flush=True)


class Replica:
    """A server of one process on a port of its own, that can be started again."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.start()

    def start(self) -> None:
        options = ["--port", str(PORTS[self.name]), "--no-open"]
        call = [
            sys.executable,
            "-m",
            "gryphone",
            "serve",
            *options,
            "--drain",
            "2",
            "--threads",
            "1",
        ]
        self.process = subprocess.Popen(call, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.process.stderr.readline()  # it is ready

    def stop(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait()


@contextmanager
def nginx(folder: Path) -> Iterator[str]:
    """nginx with the repository's configuration, the replicas on this machine."""
    program = which("nginx", path="/usr/sbin:/usr/bin")
    if program is None:
        raise SystemExit("there is no nginx; apt install nginx-light")
    text = (ROOT / "deploy/nginx.conf").read_text().replace("listen 8080", f"listen {FRONT}")
    for name, port in PORTS.items():
        text = text.replace(f"{name}:8000", f"127.0.0.1:{port}")
    (folder / "nginx.conf").write_text(text)
    call = [program, "-p", str(folder), "-c", "nginx.conf", "-g", "daemon off;"]
    with (folder / "errors").open("w") as errors:
        process = subprocess.Popen(call, stderr=errors)
        while not (folder / "nginx.pid").exists() and process.poll() is None:
            time.sleep(0.05)
        try:
            yield f"http://127.0.0.1:{FRONT}"
        finally:
            process.terminate()
            process.wait()


def faults(clients: int) -> None:
    """Kill and stop replicas under load: what clients see."""
    seen: Counter[tuple[str, int]] = Counter()
    phase, slowest, over = ["both"], Counter[str](), threading.Event()
    bodies = requests(steps=5)

    def ask(number: int, url: str) -> None:
        client = Client(url)
        while not over.is_set():
            began, now = time.perf_counter(), phase[0]
            status = client.ask(bodies[number % len(bodies)])[0]
            seen[now, status] += 1
            slowest[now] = max(slowest[now], time.perf_counter() - began)  # type: ignore[assignment]
            number += clients

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one, two = map(Replica, PORTS)
        try:
            with nginx(folder) as url:
                threads = [
                    threading.Thread(target=ask, args=(n, url), daemon=True) for n in range(clients)
                ]
                for thread in threads:
                    thread.start()
                time.sleep(3)
                for phase[0], replica, number in (
                    ("kill -9", one, signal.SIGKILL),
                    ("SIGTERM", two, signal.SIGTERM),
                    ("kill -9 again", two, signal.SIGKILL),
                ):
                    time.sleep(0.2)
                    replica.stop(number)
                    time.sleep(2)
                    replica.start()
                    phase[0] = "both"
                    time.sleep(1)
                over.set()
                for thread in threads:
                    thread.join()
            retried = sum(
                "upstream" in line for line in (folder / "errors").read_text().splitlines()
            )
        finally:
            for replica in (one, two):
                replica.process.kill()
                replica.process.wait()
    print("\n| what happens | status | requests | slowest s |\n| --- | --- | --- | --- |")
    for (now, status), count in sorted(seen.items()):
        print(f"| {now} | {status} | {count} | {slowest[now]:.2f} |")
    print(f"sent to the other replica, as nginx says: {retried}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=48, help="of each measurement")
    parser.add_argument("--part", choices=("workers", "faults"), help="one of the two alone")
    options = parser.parse_args()
    if options.part != "faults":
        workers(options.requests, options.clients)
    if options.part != "workers":
        faults(options.clients)


if __name__ == "__main__":
    main()
