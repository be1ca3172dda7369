"""Many files: resumable, nothing twice, nothing lost, one bad file is one line."""

import json
import os
from pathlib import Path

import pytest
from inkmaker import some, write_folder
from tinymodel import tiny_checkpoint

import gryphone
from gryphone.batch import BATCH, recognize_files, resume, run_batch
from gryphone.errors import DataError
from gryphone.inputs import expand
from gryphone.options import Ask
from gryphone.recognize import Recognizer

ASK = Ask(steps=2)


@pytest.fixture(scope="module")
def recognizer(tmp_path_factory: pytest.TempPathFactory) -> Recognizer:
    return gryphone.load(tiny_checkpoint(tmp_path_factory.mktemp("weights") / "tiny"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_folder(tmp_path_factory.mktemp("many") / "inks", some(BATCH + 3))
    (folder / "bad.inkml").write_text("nonsense")
    (folder / "notes.txt").write_text("not for us")
    return folder


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_file_has_one_line_in_order(
    recognizer: Recognizer, folder: Path, tmp_path: Path
) -> None:
    files, out = expand([str(folder)]), tmp_path / "r.jsonl"
    seen: list[tuple[int, int]] = []
    report = run_batch(recognizer, files, out, ASK, progress=lambda a, b: seen.append((a, b)))
    assert (report.files, report.recognized, report.errors) == (BATCH + 4, BATCH + 3, 1)
    assert report.per_second > 0
    rows = lines(out)
    assert [row["file"] for row in rows] == [str(f) for f in files]
    assert [row["file"] for row in rows if "error" in row] == [str(folder / "bad.inkml")]
    assert seen[0] == (0, len(files))
    assert seen[-1] == (len(files), len(files))


def test_batches_answer_like_single_files(recognizer: Recognizer, folder: Path) -> None:
    files = [f for f in expand([str(folder)]) if f.stem != "bad"]
    together = [r.latex for _, r in recognize_files(recognizer, files, ASK)]  # type: ignore[union-attr]
    assert together == [recognizer.recognize(f, ask=ASK).latex for f in files]


def test_a_killed_run_goes_on(recognizer: Recognizer, folder: Path, tmp_path: Path) -> None:
    files, out = expand([str(folder)]), tmp_path / "r.jsonl"
    run_batch(recognizer, files, out, ASK)
    whole = out.read_bytes()
    cut = whole.splitlines(keepends=True)
    # Killed in the middle of the fifth line.
    out.write_bytes(b"".join(cut[:4]) + cut[4][:20])
    report = run_batch(recognizer, files, out, ASK)
    assert report.before == 4
    rows = lines(out)
    assert [row["file"] for row in rows] == [str(f) for f in files]
    assert {r["file"]: r.get("latex") for r in rows} == {
        r["file"]: r.get("latex") for r in map(json.loads, cut)
    }
    again = run_batch(recognizer, files, out, ASK)
    assert (again.before, again.recognized) == (len(files), 0)
    assert len(lines(out)) == len(files)


def test_interrupted_while_it_works(recognizer: Recognizer, folder: Path, tmp_path: Path) -> None:
    files, out = expand([str(folder)]), tmp_path / "r.jsonl"

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_batch(recognizer, files, out, ASK, progress=stop)
    assert len(lines(out)) == 3
    run_batch(recognizer, files, out, ASK)
    assert sorted(str(row["file"]) for row in lines(out)) == sorted(map(str, files))


def test_other_settings_are_not_mixed(recognizer: Recognizer, folder: Path, tmp_path: Path) -> None:
    files, out = expand([str(folder)])[:2], tmp_path / "r.jsonl"
    run_batch(recognizer, files, out, ASK)
    with pytest.raises(DataError, match="line 1: was made with steps 2, this run uses 3"):
        run_batch(recognizer, files, out, Ask(steps=3))


def test_a_foreign_file_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "diary.txt"
    out.write_text("dear diary\nmore")
    with pytest.raises(DataError, match="choose another --out"):
        resume(out, {"steps": 2, "seed": 0})
    assert out.read_text() == "dear diary\nmore"


def test_workers_read_the_same(recognizer: Recognizer, folder: Path) -> None:
    files = expand([str(folder)])[:4]
    plain = [
        str(r) if isinstance(r, str) else r.latex
        for _, r in recognize_files(recognizer, files, ASK)
    ]
    spawned = recognize_files(recognizer, files, ASK, workers=1)
    assert [str(r) if isinstance(r, str) else r.latex for _, r in spawned] == plain


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder(recognizer: Recognizer, folder: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DataError, match="cannot be written"):
        run_batch(recognizer, expand([str(folder)]), tmp_path / "r.jsonl", ASK)


def test_no_such_output_folder(recognizer: Recognizer, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be written"):
        run_batch(recognizer, expand([str(folder)]), tmp_path / "no" / "r.jsonl", ASK)


def test_expand(folder: Path, tmp_path: Path) -> None:
    from gryphone.errors import InkError

    assert folder / "notes.txt" not in expand([str(folder)])
    assert expand([str(folder / "s1*.inkml"), str(folder / "s1.inkml")])[0] == folder / "s1.inkml"
    twice = expand([str(folder / "s0.inkml"), str(folder)])
    assert len(twice) == len(set(twice))
    with pytest.raises(InkError, match="no file matches"):
        expand([str(folder / "*.xyz")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InkError, match="holds no ink or image"):
        expand([str(tmp_path / "empty")])
