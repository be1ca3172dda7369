"""`gryphone serve`: what it says when it cannot, and how it stops."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx2 as httpx
import pytest
from inkmaker import power
from serving import strokes, wait_until
from tinymodel import tiny_checkpoint

from gryphone.cli import main

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("weights") / "tiny")


def serve(*options: str) -> subprocess.Popen[str]:
    call = [sys.executable, "-m", "gryphone", "serve", "--no-open", *options]
    # Whoever runs the tests in the background has Ctrl-C ignored; the server must hear it.
    return subprocess.Popen(
        call,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_errors_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def one_line(status: object, text: str) -> str:
        assert status == 2
        lines = text.strip().splitlines()
        assert len(lines) == 1, text
        return lines[0]

    def refused(*options: str) -> str:
        monkeypatch.setattr(sys, "argv", ["gryphone", "serve", "--no-open", *options])
        with pytest.raises(SystemExit) as stopped:
            main()
        return one_line(stopped.value.code, capsys.readouterr().err)

    # A folder without weights is found out in the model's thread; the process must end by itself.
    process = serve("--weights", str(tmp_path), "--port", "0")
    several = serve("--weights", str(tmp_path), "--port", "0", "--workers", "2")
    monkeypatch.setenv("GOMP_SPINCOUNT", "1000")  # as main() sets it
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert "is in use; choose another --port" in refused("--port", port)
    assert "no such folder" in refused("--weights", str(tmp_path / "none"))
    assert "queue is 0" in refused("--queue", "0")
    assert "API key must be 8" in refused("--api-key", "x")
    assert "CORS origin" in refused("--cors", "example.org")
    assert "cannot be used" in refused("--host", "no.such.host.invalid", "--api-key", "12345678")
    assert "drain is -1.0; it must be 0 or more" in refused("--drain", "-1")
    for failed in (process, several):
        _, text = failed.communicate(timeout=60)
        assert "gryphone: " in one_line(failed.returncode, text)


def test_it_serves_warns_and_stops(weights: Path) -> None:
    process = serve("--weights", str(weights), "--port", "0", "--host", "0.0.0.0")
    assert process.stderr is not None
    try:
        assert "can be reached by others" in process.stderr.readline()
        found = re.search(r"http://\S+:(\d+)/", process.stderr.readline())
        assert found is not None
        url = f"http://127.0.0.1:{found.group(1)}"
        assert httpx.get(f"{url}/readyz").status_code == 200
        assert httpx.post(f"{url}/v1/recognize", json=strokes(power())).status_code == 200
        assert httpx.get(f"{url}/").headers["content-security-policy"]
    finally:
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=60)
    assert process.returncode == 130
    assert rest == ""


def workers_of(process: subprocess.Popen[str]) -> set[int]:
    """The processes that share a server's port."""
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return {int(n) for n in found if "spawn_main" in Path(f"/proc/{n}/cmdline").read_text()}


def test_workers_outlive_one_of_them_and_drain_together(weights: Path) -> None:
    options = ("--weights", str(weights), "--port", "0", "--workers", "2", "--drain", "30")
    process = serve(*options)
    assert process.stderr is not None
    try:
        found = re.search(r"http://\S+:\d+", process.stderr.readline())
        assert found is not None
        url, seen = found.group(), set()

        def both_answer() -> bool:
            text = httpx.get(f"{url}/metrics").text
            seen.update(re.findall(r'^gryphone_streams\{worker="(\d)"\} 0$', text, re.M))
            return seen == {"0", "1"}

        wait_until(both_answer, 60)
        first = workers_of(process)
        assert len(first) == 2
        os.kill(min(first), signal.SIGKILL)
        wait_until(lambda: min(first) not in workers_of(process), 60)
        body = strokes(power())
        for _ in range(4):  # none waits for the dead one, nor is refused by one that still loads
            assert httpx.post(f"{url}/v1/recognize", json=body).status_code == 200
        assert "ended with -9; another takes its place" in process.stderr.readline()
        wait_until(lambda: len(workers_of(process) - first) == 1, 60)
        seen.clear()
        wait_until(both_answer, 60)
        process.terminate()

        def all_drain() -> bool:  # either worker, whoever answers; one may hear of it later
            answers = [httpx.get(f"{url}/readyz") for _ in range(8)]
            return {(a.status_code, a.text) for a in answers} == {(503, '{"status":"draining"}')}

        wait_until(all_drain, 60)
        assert httpx.post(f"{url}/v1/recognize", json=body).status_code == 200
    finally:
        process.terminate()  # once more: enough of draining
        _, rest = process.communicate(timeout=60)
    assert (process.returncode, rest) == (-signal.SIGTERM, "")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/readyz")


def test_a_missing_extra_is_named() -> None:
    code = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'fastapi' else find(name, *a)\n"
        "sys.argv = ['gryphone', 'serve']\n"
        "from gryphone.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install 'gryphone[serve]'" in done.stderr
