"""What people who mean harm may send to `gryphone serve`, and what it costs everybody else.

For each attack on a server of its own: what it was answered, seconds until the last answer, and
what others met in the meantime: the slowest /healthz, and an ordinary request that came right
behind (docs/server.md has the table). Everything stays on the loopback interface.
"""

from __future__ import annotations

import io
import json
import re
import socket
import sys
import threading
import time
from collections import Counter
from urllib.parse import urlsplit

from load import PHOTO, Body, Client, requests, resident, server, upload
from PIL import Image


def scans(times: int, size: tuple[int, int] = (5600, 5700)) -> Body:
    """A progressive JPEG of a line, whose last scan is repeated."""
    image, out = Image.new("L", size, 255), io.BytesIO()
    image.paste(0, (20, 500, size[0] - 20, 540))
    image.save(out, "JPEG", progressive=True)
    data = out.getvalue()
    last, end = data.rindex(b"\xff\xda"), data.rindex(b"\xff\xd9")
    return upload("a.jpg", data[:end] + data[last:end] * times + data[end:])


def strokes(found: list[list[list[float]]], path: str = "/v1/recognize", **options: object) -> Body:
    """Strokes as a page sends them."""
    return Body(json.dumps({"strokes": found, "options": options}).encode(), path=path)


DOTS = [[[10.0 * (n % 50), 10.0 * (n // 50)]] for n in range(2000)]
# A zigzag by each of 128 strokes, side by side: more patches than the limits let through.
SCRIBBLES = [
    [[12.0 * (n % 16) + 8 * k / 11, 30.0 * (n // 16) + 20 * (k % 2)] for k in range(12)]
    for n in range(128)
]
TWO = [[[0.0, 0.0], [1.0, 1.0]]]
ATTRIBUTES = " ".join(f'a{n}="1"' for n in range(800_000))
# Each of them refers to one that has as many children, and its format as many channels.
CONTEXTS = (
    f'<ink><traceFormat/><context id="s">{"<c/>" * 20_000}<traceFormat><channel name="X"/>'
    f'<channel name="Y"/>{"<channel/>" * 20_000}</traceFormat></context>'
    + "".join(f'<context id="k{n}" contextRef="#s"/>' for n in range(20_000))
    + '<trace contextRef="#k1">0 0, 9 9</trace></ink>'
)
ATTACKS: dict[str, list[Body]] = {
    "two JPEGs of 1,206 scans": 2 * [scans(1200)],
    "2,000 dots, eight times": 8 * [strokes(DOTS)],
    "2,000 dots as a page, twice": 2 * [strokes(DOTS, "/v1/page")],
    "18 rows of 50 dots as a page": [strokes(DOTS[:900], "/v1/page")],
    "128 scribbles, eight times": 8 * [strokes(SCRIBBLES)],
    "32 clients, an ink of 31 strokes twice each": 64 * [requests()[12]],
    "200,000 unknown options": [strokes(TWO, **{f"k{n}": 1 for n in range(200_000)})],
    "a lock of 200,000 places": [strokes(TWO, lock={str(n): "x" for n in range(200_000)})],
    "800,000 XML attributes": [
        upload("a.inkml", f"<ink {ATTRIBUTES}><trace>0 0, 1 1</trace></ink>".encode())
    ],
    "20,000 contexts of one trace format": [upload("a.inkml", CONTEXTS.encode())],
    "3 million XML elements": [upload("a.inkml", b"<ink>" + b"<a/>" * 3_000_000 + b"</ink>")],
}


def attack(name: str, bodies: list[Body]) -> str:
    """A row of the table."""
    answers: list[tuple[int, float]] = []
    photo = bodies[0].kind != requests()[0].kind
    other = upload("b.jpg", PHOTO.read_bytes()) if photo else requests()[0]
    with server() as (url, pid):
        for _ in range(2):  # everything is warm
            Client(url).ask(other)
        alone = timed(url, other)[1]

        def one(body: Body) -> None:
            answers.append(timed(url, body))

        threads = [threading.Thread(target=one, args=(body,)) for body in bodies]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        behind: list[tuple[int, float]] = []
        last = threading.Thread(target=lambda: behind.append(timed(url, other)))
        last.start()
        slowest = 0.0
        while any(thread.is_alive() for thread in [*threads, last]):
            slowest = max(slowest, timed(url, "/healthz")[1])
            time.sleep(0.01)
        memory = resident(pid, most=True)
    counts = Counter(status for status, _ in answers)
    said = ", ".join(f"{count} × {status}" for status, count in sorted(counts.items()))
    longest = max(seconds for _, seconds in answers)
    status, waited = behind[0]
    return (
        f"| {name} | {said} | {longest:.2f} | {slowest:.3f} | {status} in {waited:.2f} "
        f"({alone:.2f} alone) | {memory:.0f} |"
    )


def timed(url: str, what: str | Body) -> tuple[int, float]:
    """The status of an answer, and the seconds until it came."""
    began = time.perf_counter()
    return Client(url).ask(what)[0], time.perf_counter() - began


def raw(url: str, text: str) -> str:
    """The status line that a request by hand gets."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=5) as to:
        to.sendall(text.replace("\n", "\r\n").encode())
        return to.recv(1 << 16).decode().partition("\r\n")[0]


def headers() -> None:
    """What is refused by its head alone."""
    post = "POST /v1/recognize HTTP/1.1\nHost: {}\nContent-Type: application/json\n{}\n\n"
    with server() as (url, _):
        for name, text in {
            "Host: evil.example": post.format("evil.example", "Content-Length: 0"),
            "a foreign Origin": post.format(
                "localhost", "Content-Length: 0\nOrigin: http://evil.example"
            ),
            "Content-Length and Transfer-Encoding": post.format(
                "localhost", "Content-Length: 4\nTransfer-Encoding: chunked"
            ),
        }.items():
            print(f"| {name} | {raw(url, text)} |", flush=True)


def main() -> None:
    wanted = re.compile(sys.argv[1] if len(sys.argv) > 1 else "")
    print("| attack | answers | s | slowest /healthz, s | an ordinary request, s | most MiB |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, bodies in ATTACKS.items():
        if wanted.search(name):
            print(attack(name, bodies), flush=True)
    print("\n| head | answer |\n| --- | --- |")
    headers()


if __name__ == "__main__":
    main()
