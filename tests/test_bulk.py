"""Shards of results: whole or not there, nothing twice. tests/ray has the cluster."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from inkmaker import some, to_strokes, write_folder

from gryphone.cli import make_app
from gryphone.errors import DataError, MissingExtra
from gryphone.recognition.bulk import (
    KINDS,
    TRIES,
    Job,
    Reader,
    Recognise,
    Shards,
    key_of,
    names_of,
    read_shard,
    write_shard,
)
from gryphone.recognition.question import Ask
from gryphone.recognition.recognizer import Recognizer

ASK = Ask(steps=2)
ODD = "a \udcff\u2028\x85.inkml"  # no UTF-8, as old archives have it, and line ends of Unicode


@pytest.fixture
def table(tmp_path: Path) -> pa.Table:
    folder = write_folder(tmp_path / "inks", some(9))
    (folder / "s8.inkml").rename(folder / ODD)
    (folder / "bad.inkml").write_text("nonsense")
    return pa.table({"file": [os.fsencode(path) for path in sorted(folder.iterdir())]})


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_one_shard_and_is_not_done_again(
    table: pa.Table, tiny_weights: Path, recognizer: Recognizer, tmp_path: Path, kind: str
) -> None:
    work = Shards(Job(ASK, tiny_weights, out=tmp_path, kind=kind))
    counted = work(table)
    (shard,) = tmp_path.glob("part-*")
    rows = {row["file"]: row for row in map(json.loads, read_shard(shard))}
    assert rows.keys() == {os.fsdecode(name) for name in table["file"].to_pylist()}
    for name, row in rows.items():
        if "bad" in name:
            assert "broken XML" in row["error"]
        else:
            assert row["latex"] == recognizer.recognize(name, ask=ASK).latex
    assert counted["files"] == [10]
    assert [len(reasons) for reasons in counted["reasons"]] == [1]
    before = shard.stat().st_mtime_ns
    assert work(table) == counted  # as Ray does it where it lost the answer
    assert shard.stat().st_mtime_ns == before
    assert work(table.slice(0, 0))["files"] == [0]
    assert [path.name for path in tmp_path.glob(".part-*")] == []


def test_a_batch_that_kills_its_process_ends_the_run(
    table: pa.Table, tiny_weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Shards(Job(ASK, tiny_weights, out=tmp_path))

    def killed(self: Recognizer, inks: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Recognizer, "recognize_many", killed)
    for _ in range(TRIES):
        with pytest.raises(KeyboardInterrupt):
            work(table)
    with pytest.raises(DataError, match="inkml and 9 others: their process died 4 times"):
        work(table)


def test_traced_elsewhere_is_the_same(table: pa.Table, tiny_weights: Path) -> None:
    job = Job(ASK, tiny_weights)
    columns = ["file", "latex", "confidence", "error"]
    traced = Reader(job)(table)
    there = Recognise(replace(job, traced=True))(traced)
    assert there.select(columns) == Recognise(job)(table).select(columns)
    assert there.num_rows == 10
    assert Reader(job)(table.slice(0, 0)).num_rows == 0


def test_what_a_column_may_hold(tiny_weights: Path, recognizer: Recognizer) -> None:
    strokes = to_strokes(some(1)[0])
    text = json.dumps(strokes)
    truth = recognizer.recognize(strokes, ask=ASK).latex
    contents: list[Any] = [strokes, text, text.encode(), {"bytes": text.encode(), "path": None}]
    for content in (*contents, None):
        table = pa.table({"path": ["a.parquet"], "id": [7], "cell": [content]})
        row = Recognise(Job(ASK, tiny_weights, names=("path", "id"), content="cell"))(table)
        assert row["file"].to_pylist() == ["a.parquet#7"]
        assert row["latex"].to_pylist() == [None if content is None else truth]
        assert row["error"].null_count == (content is not None)


def test_a_store_that_does_not_answer_is_one_row(tiny_weights: Path) -> None:
    table = pa.table({"file": ["nosuch://place/a.png"]})
    assert "cannot be read: " in Recognise(Job(ASK, tiny_weights))(table)["error"][0].as_py()


def test_results_among_the_sources_are_no_input(tmp_path: Path) -> None:
    ink, out = tmp_path / "a.parquet", tmp_path / "out"
    out.mkdir()
    for file in (ink, out / "part-0.parquet"):
        file.touch()
    assert names_of([str(tmp_path), str(ink)], out) == [str(ink)]


def test_a_state_has_one_key() -> None:
    keys = [key_of("a", None), key_of("a", [1, 2]), key_of("a", [1, 3]), key_of("b", [1, 2])]
    assert len(set(keys)) == 4
    assert key_of(ODD, [1, 2]) == key_of(ODD, [1, 2])


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_leaves_the_old_shard(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard, first = tmp_path / f"part-0.{kind}", ['{"file": "a", "error": "b"}\n']
    write_shard(shard, first)

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        with pytest.raises(DataError, match="No space left on device; make room; the same"):
            write_shard(shard, first * 2)
    assert [path.name for path in tmp_path.iterdir()] == [shard.name]
    assert read_shard(shard) == first
    write_shard(shard, [])
    assert not shard.exists()


def test_without_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    words = ["recognize", str(tmp_path), "--engine", "ray", "--out", str(tmp_path / "out")]
    with pytest.raises(MissingExtra, match=r"^ray is not installed; run: pip install 'gryphone"):
        make_app()(words, standalone_mode=False)
