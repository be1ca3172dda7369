"""Training on two "nodes" of this machine: two working directories, one rendezvous, gloo.

A run of one process, and the same run by `torchrun` on two nodes with a process each. Once the
second has saved a state, a process of it is killed (-9), and torchrun starts both again; later a
whole node is killed, and its command given again. Both times they go on from the last state. The
losses of all steps must be those of the one process. A minute or two.
"""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from stream import distorted

from gryphone.data.packing import write_packed

STEPS = 80
PORT = "29577"


def settings(folder: Path) -> Path:
    """A run of the smallest network, on a streamed store."""
    write_packed(distorted(2048), folder / "inks.parquet")
    path = folder / "nodes.yaml"
    run = {
        "model": {"preset": "tiny"},
        "sources": [{"path": str(folder / "inks.parquet"), "stream": 4096}],
        "out": str(folder / "runs"),
        "batch": 8,
        "shards": 2,
        "steps": STEPS,
        "precision": "no",
        "log_every": 1,
        "save_minutes": 0.02,
        "warmup_steps": 10,
    }
    path.write_text(yaml.safe_dump(run))
    return path


def node(number: int, folder: Path, command: list[str]) -> subprocess.Popen[bytes]:
    """torchrun on one node, in a directory of its own."""
    here = folder / f"node-{number}"
    here.mkdir(exist_ok=True)
    call = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    call += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{PORT}"]
    call += ["--rdzv-id", "nodes", "--max-restarts", "3", "-m", *command]
    with (here / "output").open("a") as output:
        return subprocess.Popen(call, cwd=here, stdout=output, stderr=subprocess.STDOUT)


def worker_of(agent: subprocess.Popen[bytes]) -> int:
    """The process that trains on a node."""
    children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
    return next(int(c) for c in children if "gryphone" in Path(f"/proc/{c}/cmdline").read_text())


def state_of(run: Path) -> int:
    """The step of the last state that was saved."""
    return max((int(path.name.removeprefix("state-")) for path in run.glob("state-*")), default=0)


def wait_for_state(run: Path, nodes: list[subprocess.Popen[bytes]], after: int) -> None:
    """Until one is saved that is newer, and some steps have followed."""
    while state_of(run) <= after:
        if any(n.poll() is not None for n in nodes):
            raise SystemExit("a node ended before it was killed")
        time.sleep(0.1)
    time.sleep(1)


def losses(folder: Path, name: str) -> dict[int, float]:
    """By step."""
    with (folder / "runs" / name / "log.csv").open() as file:
        return {int(row["step"]): float(row["loss"]) for row in csv.DictReader(file)}


def main() -> None:
    os.environ |= {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    # Else processes that are started again read addresses of dead ones (PyTorch's issue 135712).
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = settings(folder)
        command = ["gryphone", "train", str(config)]
        alone = [sys.executable, "-m", *command, "--set", "name=one"]
        subprocess.run(alone, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        two = [*command, "--set", "name=two"]
        nodes = [node(n, folder, two) for n in range(2)]
        run = folder / "runs/two"
        wait_for_state(run, nodes, 0)
        print(f"killing the process of node 1, {state_of(run)}")
        os.kill(worker_of(nodes[1]), signal.SIGKILL)
        wait_for_state(run, nodes, state_of(run))
        print(f"killing node 1, {state_of(run)}")
        worker = worker_of(nodes[1])
        nodes[1].kill()
        os.kill(worker, signal.SIGKILL)
        nodes[1].wait()
        nodes[1] = node(1, folder, two)
        print("torchrun ended with", [n.wait() for n in nodes])
        text = "".join((folder / f"node-{n}" / "output").read_text() for n in range(2))
        for line in text.splitlines():
            if "resuming" in line or "processes on" in line:
                print(line)
        one, both = losses(folder, "one"), losses(folder, "two")
        apart = max(abs(one[step] - both[step]) / one[step] for step in one)
        print(
            f"{len(both)} of {len(one)} steps; losses differ by {apart:.1e} of themselves at most"
        )
        print(f"loss of the first and the last: {one[1]} {one[STEPS]}, {both[1]} {both[STEPS]}")


if __name__ == "__main__":
    main()
