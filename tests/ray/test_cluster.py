"""Two machines made of processes on loopback: whatever is killed, every input has one answer.

Not part of `make test`: Ray is large, and starting it takes most of a minute. `make test-ray`.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from inkmaker import some, to_strokes, write_folder
from ray.cluster_utils import Cluster

import gryphone
from gryphone.errors import DataError
from gryphone.recognition.batch import BatchReport, run_batch
from gryphone.recognition.bulk import Job, Shards, read_shard, recognize_dataset, run_bulk
from gryphone.recognition.question import Ask
from gryphone.recognition.recognizer import Recognizer

ASK = Ask(steps=2)
LONG = Ask(steps=50, samples=8)  # so long that something can happen meanwhile
SMALL = 4  # inputs of a shard
PORTS = ("metrics_agent_port", "dashboard_agent_listen_port", "runtime_env_agent_port")


def node_settings() -> dict[str, Any]:
    """One core, and ports chosen here: Ray waits half a minute at most for those it chooses."""
    ports = {}
    for name in PORTS:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports[name] = free.getsockname()[1]
    return {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False, **ports}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    here = [str(Path(gryphone.__file__).parents[1]), str(Path(__file__).parents[1])]
    os.environ["PYTHONPATH"] = os.pathsep.join([*here, os.environ.get("PYTHONPATH", "")])
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")  # others may fill this machine
    cluster = Cluster(initialize_head=True, head_node_args=node_settings())
    cluster.add_node(**node_settings())
    ray.init(cluster.address, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "inks", some(40))


def run(source: Path, out: Path, weights: Path, **options: Any) -> BatchReport:
    return run_bulk(
        [str(source)], out, options.pop("ask", ASK), weights=weights, shard=SMALL, **options
    )


def rows(out: Path) -> dict[str, dict[str, Any]]:
    """The results by name; none has two."""
    all_rows = [json.loads(line) for shard in out.glob("part-*") for line in read_shard(shard)]
    by_name = {Path(row["file"]).name: row for row in all_rows}
    assert len(all_rows) == len(by_name)
    assert not [path for path in out.glob(".part-*") if path.suffix != ".tries"]
    return by_name


def once(happens: Callable[[], None], out: Path) -> Callable[[int], None]:
    """Let something happen after the first shard, while others are still to come."""
    happened: list[int] = []

    def progress(done: int) -> None:
        if not happened:
            happened.append(len([*out.glob("part-*")]))
            assert happened[0] < 40 // SMALL
            happens()

    return progress


def test_the_same_answers_as_one_machine(
    cluster: Cluster, folder: Path, tiny_weights: Path, recognizer: Recognizer, tmp_path: Path
) -> None:
    (folder / "bad.inkml").write_text("nonsense")
    names = sorted(folder.iterdir())
    run_batch(recognizer, names, tmp_path / "local.jsonl", ASK)
    local = map(json.loads, (tmp_path / "local.jsonl").read_text().splitlines())
    out = tmp_path / "out"
    report = run(folder, out, tiny_weights)
    assert (report.recognized, report.errors, report.before) == (40, 1, 0)
    assert report.reasons[0][0].startswith("broken XML")
    kept = ("latex", "confidence", "error", "symbols", "stamp")
    expected = {Path(r["file"]).name: [r.get(k) for k in kept] for r in local}
    assert {name: [row.get(k) for k in kept] for name, row in rows(out).items()} == expected
    # What was wrong or has changed is done again, and only that.
    write_folder(folder, some(2)[1:])
    (folder / "bad.inkml").write_text((folder / "s0.inkml").read_text())
    report = run(folder, out, tiny_weights)
    assert (report.recognized, report.errors, report.before) == (2, 0, 39)
    assert rows(out)["bad.inkml"]["latex"] == rows(out)["s0.inkml"]["latex"]
    with pytest.raises(DataError, match="was made with seed 0, this run uses 1"):
        run(folder, out, tiny_weights, ask=Ask(steps=2, seed=1))


def test_parquet_and_addresses(
    cluster: Cluster, tiny_weights: Path, recognizer: Recognizer, tmp_path: Path
) -> None:
    inks = some(6)
    expected = [recognizer.recognize(to_strokes(ink), ask=ASK).latex for ink in inks]
    for part in (0, 1):
        table = {
            "strokes": [to_strokes(i) for i in inks[part::2]],
            "id": [i.id for i in inks[part::2]],
        }
        pq.write_table(pa.table(table), tmp_path / f"{part}.parquet")
    out = tmp_path / "out"
    assert run(tmp_path, out, tiny_weights, kind="parquet").recognized == 6
    found = pq.read_table([*out.glob("part-*.parquet")], columns=["file", "latex"]).to_pylist()
    by_name = {row["file"].partition("#")[2]: row["latex"] for row in found}
    assert by_name == {ink.id: latex for ink, latex in zip(inks, expected, strict=True)}
    assert run(tmp_path, out, tiny_weights, kind="parquet").before == 6
    folder = write_folder(tmp_path / "inks", inks)
    report = run_bulk([f"file://{folder}"], tmp_path / "two", ASK, weights=tiny_weights)
    assert report.recognized == 6
    answers = recognize_dataset(
        ray.data.from_items([{"file": "x", "s": json.dumps(to_strokes(ink))} for ink in inks]),
        ASK,
        content="s",
        weights=tiny_weights,
    )
    assert sorted(row["latex"] for row in answers.take_all()) == sorted(expected)


def test_a_killed_worker(
    cluster: Cluster, folder: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"

    def kill() -> None:
        mine = psutil.Process().children(recursive=True)
        workers = [p for p in mine if "Shards" in "".join(p.cmdline())]
        assert workers
        for worker in workers:
            worker.kill()

    report = run(folder, out, tiny_weights, ask=LONG, progress=once(kill, out))
    assert (report.recognized, len(rows(out))) == (40, 40)


def test_a_killed_machine(
    cluster: Cluster, folder: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    second = next(node for node in cluster.list_all_nodes() if not node.head)
    try:
        kill = once(lambda: cluster.remove_node(second, allow_graceful=False), out)
        report = run(folder, out, tiny_weights, ask=LONG, progress=kill)
    finally:
        cluster.add_node(**node_settings())
    assert (report.recognized, len(rows(out))) == (40, 40)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a small disk")
def test_a_full_disk(cluster: Cluster, folder: Path, tiny_weights: Path, tmp_path: Path) -> None:
    out, whole = tmp_path / "out", tmp_path / "whole"
    out.mkdir()
    whole.mkdir()
    names = pa.table({"file": [str(path) for path in folder.iterdir()]})
    Shards(Job(ASK, tiny_weights, out=whole))(names)
    half = next(whole.iterdir()).stat().st_size // 2
    mount = ["mount", "-t", "tmpfs", "-o", f"size={half}", "none", str(out)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        with pytest.raises(DataError, match="No space left on device"):
            run(folder, out, tiny_weights)
        before = rows(out)
        assert 0 < len(before) < 40
        subprocess.run(["mount", "-o", "remount,size=10m", str(out)], check=True)
        report = run(folder, out, tiny_weights)
        assert report.before >= len(before)  # a process may have ended its shard since
        assert report.recognized == 40 - report.before
        assert len(rows(out)) == 40
    finally:
        subprocess.run(["umount", str(out)], check=True)


def test_ctrl_c(cluster: Cluster, folder: Path, tiny_weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    inks = write_folder(tmp_path / "inks", some(600))  # three shards
    words = f"recognize {inks} --steps 50 --engine ray --out {out} --weights {tiny_weights}"
    process = subprocess.Popen(
        [sys.executable, "-m", "gryphone", *words.split(), "--workers", "1"],
        env={**os.environ, "RAY_ADDRESS": cluster.address},
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not [*out.glob("part-*")]:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "the same command goes on" in said
    assert "Traceback" not in said
    done = len(rows(out))
    assert 0 < done < 600
    report = run_bulk([str(inks)], out, Ask(steps=50), weights=tiny_weights)
    assert (report.before, report.recognized) == (done, 600 - done)
    assert len(rows(out)) == 600
