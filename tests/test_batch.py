"""Many files: resumable, nothing twice, nothing lost, one bad file is one line."""

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from inkmaker import some, write_folder
from tinymodel import tiny_checkpoint

from gryphone.errors import DataError, InkError
from gryphone.reading.inputs import expand
from gryphone.recognition.batch import (
    fingerprint,
    read_file,
    recognize_files,
    resume,
    run_batch,
    settings_of,
)
from gryphone.recognition.question import AUTO_STEPS, Ask
from gryphone.recognition.recognizer import Recognizer
from gryphone.recognition.result import Result

ASK = Ask(steps=2)
BATCH = 8  # what is recognised together on a CPU


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
    assert report.before == 3  # and one line with an error, which is done again
    rows = lines(out)
    done_before, again = files[1:4], [files[0], *files[4:]]
    assert [row["file"] for row in rows] == [str(f) for f in [*done_before, *again]]
    assert {r["file"]: r.get("latex") for r in rows} == {
        r["file"]: r.get("latex") for r in map(json.loads, cut)
    }
    third = run_batch(recognizer, files, out, ASK)
    assert (third.before, third.recognized) == (len(files) - 1, 0)
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


def test_a_kill_loses_one_batch_at_most(
    recognizer: Recognizer, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, out = [f for f in expand([str(folder)]) if f.stem != "bad"], tmp_path / "r.jsonl"
    calls: list[int] = []

    def killed(self: Recognizer, inks: Sequence[object], **options: Any) -> Any:
        calls.append(len(lines(out)))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return many(self, inks, **options)

    many = Recognizer.recognize_many
    monkeypatch.setattr(Recognizer, "recognize_many", killed)
    with pytest.raises(KeyboardInterrupt):
        run_batch(recognizer, files, out, ASK)
    assert calls == [0, BATCH]
    assert [row["file"] for row in lines(out)] == [str(f) for f in files[:BATCH]]


def test_results_of_a_version_with_fewer_options_are_continued(
    recognizer: Recognizer, folder: Path, tmp_path: Path
) -> None:
    files, out = [folder / "s0.inkml", folder / "s1.inkml"], tmp_path / "r.jsonl"
    run_batch(recognizer, files, out, ASK)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    for row in rows:
        del row["settings"]["beam"], row["settings"]["plain"]
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run_batch(recognizer, files, out, ASK).before == 2
    with pytest.raises(DataError, match="was made with plain False, this run uses True"):
        run_batch(recognizer, files, out, replace(ASK, plain=True))


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("steps", Ask(steps=3)),
        ("seed", Ask(steps=2, seed=1)),
        ("n_best", Ask(steps=2, n_best=2)),
        ("samples", Ask(steps=2, samples=2)),
        ("lock", Ask(steps=2, lock={0: "x"})),
        ("hint", Ask(steps=2, hint="x...")),
        ("allowed", Ask(steps=2, allowed="x1")),
        ("views", Ask(steps=2, views=2)),
        ("deadline_ms", Ask(steps=2, deadline_ms=1e6)),
        ("method", Ask(steps=2, method="mask-predict")),
    ],
)
def test_other_settings_are_not_mixed(
    recognizer: Recognizer, folder: Path, tmp_path: Path, name: str, ask: Ask
) -> None:
    files, out = [folder / "s0.inkml", folder / "s1.inkml"], tmp_path / "r.jsonl"
    run_batch(recognizer, files, out, ASK)
    whole = out.read_text()
    with pytest.raises(DataError, match=f"line 1: was made with {name} .*, this run uses"):
        run_batch(recognizer, files, out, ask)
    assert out.read_text() == whole


def test_as_many_steps_as_are_needed_are_no_number(
    recognizer: Recognizer, folder: Path, tmp_path: Path
) -> None:
    files, out = [folder / "s0.inkml"], tmp_path / "r.jsonl"
    run_batch(recognizer, files, out, Ask())
    assert run_batch(recognizer, files, out, Ask(steps="auto")).before == 1
    with pytest.raises(DataError, match=f"was made with steps .*, this run uses {AUTO_STEPS}"):
        run_batch(recognizer, files, out, Ask(steps=AUTO_STEPS))


def test_the_same_settings_go_on(recognizer: Recognizer, folder: Path, tmp_path: Path) -> None:
    files, out = [folder / "s0.inkml"], tmp_path / "r.jsonl"
    ask = Ask(steps=2, lock={0: "x"}, allowed=["x", "1"])  # JSON knows neither numbers nor tuples
    run_batch(recognizer, files, out, ask)
    assert run_batch(recognizer, files, out, ask).before == 1


def test_other_weights_are_not_mixed(recognizer: Recognizer, folder: Path, tmp_path: Path) -> None:
    files, out = [folder / "s0.inkml"], tmp_path / "r.jsonl"
    first, second, copy = (
        fingerprint(tiny_checkpoint(tmp_path / name, seed))
        for name, seed in (("a", 0), ("b", 1), ("c", 0))
    )
    assert first == copy
    run_batch(recognizer, files, out, ASK, weights=first)
    with pytest.raises(DataError, match=f"was made with weights {first}, this run uses {second}"):
        run_batch(recognizer, files, out, ASK, weights=second)


def test_errors_are_done_again(recognizer: Recognizer, folder: Path, tmp_path: Path) -> None:
    ink, out = (folder / "s0.inkml").read_text(), tmp_path / "r.jsonl"
    files = [tmp_path / "a.inkml", tmp_path / "b.inkml", tmp_path / "c.inkml"]
    for path, text in zip(files, ("nonsense", ink, "nonsense"), strict=True):
        path.write_text(text)
    assert run_batch(recognizer, files, out, ASK).errors == 2
    out.chmod(0o640)
    files[0].write_text(ink)
    report = run_batch(recognizer, files, out, ASK)
    assert (report.before, report.recognized, report.errors) == (1, 1, 1)
    rows = lines(out)
    assert [Path(str(row["file"])).stem for row in rows] == ["b", "a", "c"]
    assert ["error" in row for row in rows] == [False, False, True]
    assert out.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        *(p.name for p in files),
        out.name,
    ]


def test_a_changed_file_is_done_again(recognizer: Recognizer, folder: Path, tmp_path: Path) -> None:
    inks, out = [(folder / f"s{i}.inkml").read_text() for i in range(3)], tmp_path / "r.jsonl"
    files = [tmp_path / f"{name}.inkml" for name in "abc"]
    for path, text in zip(files, inks, strict=True):
        path.write_text(text)
    run_batch(recognizer, files, out, ASK)
    rows = lines(out)
    status = files[0].stat()
    assert rows[0]["stamp"] == [status.st_size, status.st_mtime_ns]
    del rows[1]["stamp"]  # as an earlier version wrote it
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    files[0].write_text(inks[1])
    os.utime(files[1], ns=(0, 0))
    files[2].unlink()  # an answer is better than none
    assert run_batch(recognizer, files, out, ASK).before == 2
    again = lines(out)
    assert [Path(str(row["file"])).stem for row in again] == ["b", "c", "a"]
    assert again[2]["latex"] == recognizer.recognize(files[0], ask=ASK).latex
    assert run_batch(recognizer, files, out, ASK).before == 3


def test_other_spellings_of_a_path(
    recognizer: Recognizer, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    names = ["s0.inkml", str(folder / "s0.inkml"), f"../{folder.name}/s0.inkml"]
    assert expand(names) == [Path("s0.inkml")]
    befores = [
        run_batch(recognizer, expand([name]), tmp_path / "r.jsonl", ASK).before for name in names
    ]
    assert befores == [0, 1, 1]
    assert [row["file"] for row in lines(tmp_path / "r.jsonl")] == ["s0.inkml"]


def test_a_name_that_is_no_text(recognizer: Recognizer, folder: Path, tmp_path: Path) -> None:
    path, out = tmp_path / os.fsdecode(b"\xff\xc3\xa9.inkml"), tmp_path / "r.jsonl"
    path.write_text((folder / "s0.inkml").read_text())
    assert [run_batch(recognizer, [path], out, ASK).before for _ in range(2)] == [0, 1]
    assert "é.inkml" in out.read_text(encoding="utf-8")  # for others to read
    assert lines(out)[0]["file"] == str(path)


def test_no_file_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def flawed(path: Path, name: str | None = None) -> None:
        raise MemoryError("of 3 bytes")

    monkeypatch.setattr("gryphone.recognition.batch.read_input", flawed)
    assert read_file(Path("a.png")) == "a.png: cannot be read: MemoryError: of 3 bytes"


def test_two_runs_do_not_mix(recognizer: Recognizer, folder: Path, tmp_path: Path) -> None:
    files, out = [folder / "s0.inkml", folder / "bad.inkml"], tmp_path / "r.jsonl"
    refused: list[int] = []

    def another(done: int, total: int) -> None:
        with pytest.raises(DataError, match="another run is writing it"):
            run_batch(recognizer, files, out, ASK)
        refused.append(done)

    run_batch(recognizer, files, out, ASK, progress=another)
    run_batch(recognizer, files, out, ASK, progress=another)  # takes out a line first
    assert refused == [0, 1, 2, 1, 2]
    assert len(lines(out)) == 2


@pytest.mark.parametrize("device", ["/dev/full", "/dev/null"])
def test_a_device_is_not_read(
    recognizer: Recognizer, folder: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    plain = Path.open

    def spy(self: Path, mode: str = "r", **options: Any) -> Any:
        if str(self) == device:
            opened.append(mode)
            assert mode == "a", f"{device} would be read without end"
        return plain(self, mode, **options)

    monkeypatch.setattr(Path, "open", spy)
    files = [folder / "s0.inkml"]
    if device == "/dev/full":
        with pytest.raises(DataError, match="/dev/full: cannot be written: No space left"):
            run_batch(recognizer, files, Path(device), ASK)
    else:
        assert run_batch(recognizer, files, Path(device), ASK).recognized == 1
    assert opened == ["a"]


@pytest.mark.parametrize(
    "text",
    ["dear diary\nmore", "one line", '{"file": "a", "latex": "x", "steps": 2, "seed": 0}\n'],
    ids=["lines", "no line end", "an earlier version's"],
)
def test_a_foreign_file_is_left_alone(tmp_path: Path, text: str) -> None:
    out = tmp_path / "diary.txt"
    out.write_text(text)
    with pytest.raises(DataError, match=r"line 1: is no result .* choose another --out"):
        resume(out, settings_of(ASK, ""), {}, ExitStack())
    assert out.read_text() == text


@pytest.mark.parametrize("elsewhere", [False, True])
def test_workers_read_the_same_and_leave_ctrl_c_to_the_main_process(
    recognizer: Recognizer, folder: Path, capfd: pytest.CaptureFixture[str], elsewhere: bool
) -> None:
    if elsewhere:  # as on a GPU, they read, and do not answer
        recognizer = replace(recognizer, origin=None)

    def shown(answer: tuple[Path, Result | str]) -> str:
        return answer[1] if isinstance(answer[1], str) else answer[1].latex

    files = expand([str(folder)])
    plain = [shown(answer) for answer in recognize_files(recognizer, files, ASK)]
    answers = recognize_files(recognizer, files, ASK, workers=1)
    first = next(answers)
    workers = multiprocessing.active_children()
    assert workers
    for worker in workers:
        os.kill(worker.pid or 0, signal.SIGINT)
    assert [shown(answer) for answer in (first, *answers)] == plain
    assert len(plain) == BATCH + 4
    assert [worker.exitcode for worker in workers] == [0]
    assert "KeyboardInterrupt" not in capfd.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder(recognizer: Recognizer, folder: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DataError, match="cannot be written"):
        run_batch(recognizer, expand([str(folder)]), tmp_path / "r.jsonl", ASK)


def test_no_such_output_folder(recognizer: Recognizer, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be written"):
        run_batch(recognizer, expand([str(folder)]), tmp_path / "no" / "r.jsonl", ASK)


def test_workers_are_stopped_in_the_middle_of_their_work(
    recognizer: Recognizer, tmp_path: Path
) -> None:
    write_folder(tmp_path, some(BATCH))
    stuck = tmp_path / "z.inkml"
    os.mkfifo(stuck)  # nobody ever writes to it
    answers = recognize_files(recognizer, [*sorted(tmp_path.glob("s*")), stuck], ASK, workers=1)
    assert not isinstance(next(answers)[1], str)
    closing = threading.Thread(target=answers.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


def test_expand(folder: Path, tmp_path: Path) -> None:
    assert folder / "notes.txt" not in expand([str(folder)])
    assert expand([str(folder / "s1*.inkml"), str(folder / "s1.inkml")])[0] == folder / "s1.inkml"
    twice = expand([str(folder / "s0.inkml"), str(folder)])
    assert len(twice) == len(set(twice))
    with pytest.raises(InkError, match="no file matches"):
        expand([str(folder / "*.xyz")])
    with pytest.raises(InkError, match="1 folders that match are not read; name them without"):
        expand([str(folder.parent / f"{folder.name[:-1]}?")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InkError, match="holds no ink or image"):
        expand([str(tmp_path / "empty")])


def test_all_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    readable = ["a.png", "shut/b.png", "sub/deep/c.PPM", "sub/d.avif", "../outside/e.json"]
    others = ["._a.png", ".thumbs/a.png", "f.heic", "notes.txt", "README", "labels.tsv"]
    for name in [*readable, *others]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (folder / "sub/up").symlink_to(folder)
    (folder / "link").symlink_to(outside)
    (folder / "gone.png").symlink_to(tmp_path / "nowhere.png")
    os.mkfifo(folder / "pipe.png")
    listed = os.scandir

    def refusing(path: str) -> Any:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", refusing)
    names = [str(path.relative_to(folder)) for path in expand([str(folder)])]
    assert names == ["a.png", "gone.png", "link/e.json", "shut", "sub/d.avif", "sub/deep/c.PPM"]
    assert [r.getMessage() for r in caplog.records] == [
        f"{folder}: 1 files not read: f.heic; save as PNG or JPEG",
        f"{folder}: other files not read: 2 (.txt, no ending)",
    ]
    assert expand([str(folder / "g*")]) == [folder / "gone.png"]
    assert str(read_file(folder / "gone.png")).endswith("is a link to a file that is gone")
