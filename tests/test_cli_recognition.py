"""recognize, evaluate and info from the command line."""

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from inkmaker import power, some, write_folder
from PIL import Image
from tinymodel import tiny_checkpoint
from typer.testing import CliRunner, Result

from gryphone.checkpoint import load_model
from gryphone.cli import evaluation, recognition
from gryphone.cli.demo import BUNDLED
from gryphone.errors import CheckpointError, ConfigError, DataError, GryphoneError, InkError
from gryphone.reading.inkml import to_inkml
from gryphone.recognition.batch import read_file
from gryphone.recognition.recognizer import Recognizer, load

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def weights(tiny_weights: Path) -> str:
    return str(tiny_weights)


@pytest.fixture
def ink(tmp_path: Path) -> str:
    path = tmp_path / "p.inkml"
    path.write_text(to_inkml(power()))
    return str(path)


def run(*arguments: str, input: bytes | None = None) -> Result:
    app = typer.Typer(pretty_exceptions_enable=False)
    recognition.register(app)
    evaluation.register(app)
    return CliRunner().invoke(app, list(arguments), input=input)


def fine(*arguments: str, input: bytes | None = None) -> str:
    result = run(*arguments, input=input)
    assert result.exception is None, result.exception
    return result.stdout


def test_formats(ink: str, weights: str) -> None:
    latex = fine("recognize", ink, "--weights", weights, "--steps", "2").strip()
    data = json.loads(
        fine("recognize", ink, "--weights", weights, "--steps", "2", "--format", "json")
    )
    assert data["latex"] == latex
    assert data["file"] == ink
    assert data["steps"] == 2
    assert data["mathml"] is None or data["mathml"].startswith("<math")
    text = fine("recognize", ink, "--weights", weights, "--steps", "2", "--format", "text")
    assert text.startswith(latex)
    mathml = fine("recognize", ink, "--weights", weights, "--hint", "x^2", "--format", "mathml")
    assert mathml.startswith("<math")


def test_as_written_is_printed_instead(ink: str, weights: str) -> None:
    asked = ("recognize", ink, "--weights", weights, "--steps", "2", "--as-written")
    data = json.loads(fine(*asked, "--format", "json"))
    assert fine(*asked).strip() == data["as_written"]
    assert data["latex"] == fine(*asked[:-1]).strip()


def test_stdin_and_out(ink: str, weights: str, tmp_path: Path) -> None:
    out = tmp_path / "answer.txt"
    direct = fine("recognize", ink, "--weights", weights)
    piped = fine("recognize", "-", "--weights", weights, input=Path(ink).read_bytes())
    assert piped == direct
    assert fine("recognize", ink, "--weights", weights, "--out", str(out)) == ""
    assert out.read_text() == direct


def test_a_minus_is_stdout(ink: str, weights: str, tmp_path: Path) -> None:
    common = ("recognize", ink, "--weights", weights, "--steps", "2")
    assert fine(*common, "--out", "-") == fine(*common)
    folder = write_folder(tmp_path / "set", some(2))
    evaluate = ("evaluate", str(folder), "--weights", weights, "--steps", "2", "--out", "-")
    rows = fine(*evaluate).splitlines()
    assert [len(row.split("\t")) for row in rows] == [3, 3]
    assert isinstance(run(*evaluate, "--json").exception, ConfigError)
    assert not Path("-").exists()


def test_a_folder_or_pattern_with_one_file_is_like_one_with_many(
    ink: str, weights: str, tmp_path: Path
) -> None:
    common = ("--weights", weights, "--steps", "2")
    answer = fine("recognize", ink, *common)
    for source in (str(Path(ink).parent), str(Path(ink).with_name("*.inkml"))):
        assert fine("recognize", source, *common) == f"{ink}\t{answer}"
        refused = run("recognize", source, *common, "--out", str(tmp_path / "r.txt"))
        assert "choose a name with .jsonl" in str(refused.exception)


def test_stdin_is_something_else_every_time(ink: str, weights: str, tmp_path: Path) -> None:
    common = ("recognize", "-", "--weights", weights, "--out", str(tmp_path / "r.jsonl"))
    codes = [run(*common, input=data).exit_code for data in (b"x", Path(ink).read_bytes()) * 2]
    assert codes == [2, 0] * 2
    rows = [json.loads(row) for row in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert ["error" in row for row in rows] == [True, False] * 2


def test_n_best_lines_have_weights(ink: str, weights: str) -> None:
    rows = fine("recognize", ink, "--weights", weights, "--n-best", "3").splitlines()
    values = [float(row.split("\t")[0]) for row in rows]
    assert values == sorted(values, reverse=True)


def test_locks_hints_and_allowed(ink: str, weights: str) -> None:
    assert fine("recognize", ink, "--weights", weights, "--hint", r"\frac{?}{x}").endswith("{x}\n")
    data = fine("recognize", ink, "--weights", weights, "--lock", "0=x", "--format", "json")
    assert json.loads(data)["symbols"][0]["symbol"] == "x"
    data = fine("recognize", ink, "--weights", weights, "--allowed", "x1", "--format", "json")
    assert {s["symbol"] for s in json.loads(data)["symbols"]} <= {"x", "1"}


def test_folder_to_stdout_and_to_a_file(weights: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "inks", some(3))
    rows = fine("recognize", str(folder), "--weights", weights, "--steps", "2").splitlines()
    assert [row.split("\t")[0] for row in rows] == [str(folder / f"s{i}.inkml") for i in range(3)]
    (folder / "bad.inkml").write_text("x")
    result = run("recognize", str(folder), "--weights", weights, "--steps", "2")
    assert result.exit_code == 2
    assert len(result.stdout.splitlines()) == 3
    out = tmp_path / "r.jsonl"
    result = run("recognize", str(folder), "--weights", weights, "--steps", "2", "--out", str(out))
    assert result.exit_code == 2
    assert "3 recognized (3 unsure, 3 with warnings), 1 errors" in result.stderr
    assert "files/s\n  1 x broken XML" in result.stderr
    assert len(out.read_text().splitlines()) == 4


def test_every_line_of_several_files_has_a_name(weights: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "inks", some(2))
    names = {str(folder / f"s{i}.inkml") for i in range(2)}
    common = ("recognize", str(folder), "--weights", weights, "--steps", "2")
    for more in (("--n-best", "3"), ("--format", "text")):
        rows = fine(*common, *more).splitlines()
        assert len(rows) > 2
        assert {row.split("\t")[0] for row in rows} == names


def test_json_has_the_same_fields_for_one_and_for_several(weights: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "inks", some(2))
    out, more = tmp_path / "r.jsonl", ("--weights", weights, "--format", "json", "--steps", "2")
    one = json.loads(fine("recognize", str(folder / "s0.inkml"), *more))
    several = [json.loads(row) for row in fine("recognize", str(folder), *more).splitlines()]
    assert [set(row) for row in several] == [set(one)] * 2
    assert several[0] | {"seconds": 0} == one | {"seconds": 0}
    fine("recognize", str(folder), *more, "--out", str(out))
    rows = [json.loads(row) for row in out.read_text().splitlines()]
    assert [set(row) for row in rows] == [{*one, "settings", "stamp", "used"}] * 2


@pytest.mark.parametrize("format_", ["latex", "mathml", "json", "text"])
def test_warnings_go_to_stderr(ink: str, weights: str, format_: str, tmp_path: Path) -> None:
    broken = "no well-formed formula has what was asked for"
    more = ("--weights", weights, "--allowed", r"\frac", "--format", format_)
    alone = run("recognize", ink, *more)
    assert f"gryphone: {ink}: {broken}" in alone.stderr
    folder = run("recognize", str(tmp_path), *more)
    assert f"gryphone: {ink}: {broken}" in folder.stderr
    if format_ in ("latex", "mathml"):
        assert broken not in alone.stdout + folder.stdout


@pytest.mark.parametrize(("confidence", "said"), [(0.243, "only 24 % sure\n"), (0.5, "")])
def test_doubt_goes_to_stderr(
    ink: str, weights: str, confidence: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = replace(load(weights).recognize(ink, steps=2), warnings=(), confidence=confidence)
    monkeypatch.setattr(Recognizer, "recognize", lambda *_, **options: result)
    told = run("recognize", ink, "--weights", weights).stderr
    assert told == (f"gryphone: {ink}: {said}" if said else "")


def test_pages_that_are_not_read_are_said(weights: str, tmp_path: Path) -> None:
    page = Image.new("L", (60, 60), 255)
    page.paste(0, (28, 10, 32, 50))
    page.save(tmp_path / "a.tiff", save_all=True, append_images=[page])
    result = run("recognize", str(tmp_path / "a.tiff"), "--weights", weights, "--steps", "2")
    assert "a.tiff: page 1 of 2 was read; save the others" in result.stderr


def test_odd_names_stay_on_one_line(weights: str, tmp_path: Path) -> None:
    (inks := tmp_path / "inks").mkdir()
    for name in ("a\tb\n.inkml", os.fsdecode(b"\xff.inkml")):
        (inks / name).write_text(to_inkml(power()))
    (inks / "bad\n.inkml").write_text("x")
    common = ("recognize", str(inks), "--weights", weights, "--steps", "2")
    result = run(*common)
    names = [row.split("\t")[0] for row in result.stdout.splitlines()]
    assert names == [rf"{inks}/a\tb\n.inkml", rf"{inks}/\udcff.inkml"]
    assert rf"gryphone: {inks}/bad\n.inkml: broken XML" in result.stderr
    rows = [json.loads(row) for row in run(*common, "--format", "json").stdout.splitlines()]
    assert [os.fsencode(Path(row["file"]).name) for row in rows] == [b"a\tb\n.inkml", b"\xff.inkml"]


@pytest.mark.parametrize("name", ["r", "r.json", "r.jsonl"])
def test_a_results_file_has_no_other_format(weights: str, tmp_path: Path, name: str) -> None:
    folder, out = write_folder(tmp_path / "inks", some(2)), tmp_path / name
    common = ("recognize", str(folder), "--weights", weights, "--out", str(out))
    for format_ in ("latex", "mathml"):
        result = run(*common, "--format", format_)
        assert isinstance(result.exception, ConfigError)
        assert f"--format {format_} cannot be written to {out}" in str(result.exception)
        assert not out.exists()


def test_one_file_may_have_any_format(ink: str, weights: str, tmp_path: Path) -> None:
    out = tmp_path / "answer.mml"
    more = ("--weights", weights, "--hint", "x^2", "--format", "mathml")
    fine("recognize", ink, *more, "--out", str(out))
    assert out.read_text().startswith("<math")


def test_results_among_the_inputs_are_not_read(weights: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "inks", some(2))
    out = folder / "r.json"
    common = ("--weights", weights, "--steps", "2", "--out", str(out))
    for source in (str(folder), str(folder), str(folder / "*")):
        fine("recognize", source, *common)
        files = [json.loads(row)["file"] for row in out.read_text().splitlines()]
        assert files == [str(folder / f"s{i}.inkml") for i in range(2)]


def test_other_weights_need_another_out(ink: str, weights: str, tmp_path: Path) -> None:
    out, others = tmp_path / "r.jsonl", tiny_checkpoint(tmp_path / "other", seed=1)
    fine("recognize", ink, "--weights", weights, "--out", str(out))
    result = run("recognize", ink, "--weights", str(others), "--out", str(out))
    assert isinstance(result.exception, DataError)
    assert "was made with weights " in str(result.exception)


def test_out_may_be_a_device(ink: str, weights: str) -> None:
    for source in (ink, str(Path(ink).parent)):
        fine("recognize", source, "--weights", weights, "--out", "/dev/null")


def test_ctrl_c_says_how_far_it_got(
    weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    BATCH = 8  # what is recognised together on a CPU

    folder, out = write_folder(tmp_path / "inks", some(BATCH + 2)), tmp_path / "r.jsonl"
    many = Recognizer.recognize_many

    def stopped(self: Recognizer, inks: list[object], **options: Any) -> Any:
        if len(inks) < BATCH:
            raise KeyboardInterrupt
        return many(self, inks, **options)  # type: ignore[arg-type]

    def stopped_early(weights: Path, device: str, **_: Any) -> None:
        raise KeyboardInterrupt

    def terminated(weights: Path, device: str, **_: Any) -> None:
        assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
        signal.raise_signal(signal.SIGTERM)

    common = ("recognize", str(folder), "--weights", weights, "--steps", "2")
    for stop, more in ((stopped_early, ()), (terminated, ("--out", str(out)))):
        with monkeypatch.context() as patch:
            patch.setattr("gryphone.recognition.recognizer.load", stop)
            assert f"stopped: 0 of {BATCH + 2} done; " in run(*common, *more).stderr
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    with monkeypatch.context() as patch:
        patch.setattr(Recognizer, "recognize_many", stopped)
        for more in ((), ("--out", str(out))):
            result = run(*common, *more)
            assert result.exit_code == 130
            assert f"stopped: {BATCH} of {BATCH + 2} done; " in result.stderr
    assert result.stderr.endswith("; the same command goes on\n")
    assert f"{BATCH} done before" in run(*common, "--out", str(out)).stderr


def test_a_killed_worker_is_one_line(
    weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*given: object) -> Iterator[list[str]]:
        yield ["a.inkml: empty"] * 8
        raise BrokenProcessPool("terminated abruptly")

    monkeypatch.setattr(ProcessPoolExecutor, "map", killed)
    folder = write_folder(tmp_path / "inks", some(12))
    common = ("recognize", str(folder), "--weights", weights, "--steps", "1", "--workers", "1")
    for more, remedy in (((), "use --out"), (("--out", f"{tmp_path}/r.jsonl"), "the same command")):
        problem = run(*common, *more).exception
        assert isinstance(problem, DataError)
        assert f"a worker was killed, perhaps for want of memory: 8 of 12 done; {remedy}" in str(
            problem
        )


def test_progress_without_a_terminal(
    weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recognition, "SPEAK", 0)
    folder = write_folder(tmp_path / "inks", some(2))
    common = ("recognize", str(folder), "--weights", weights, "--steps", "1", "--out", "/dev/null")
    said = run(*common).stderr.splitlines()[:-1]
    assert said == [f"gryphone: recognizing: {n} of 2 done" for n in range(3)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<svg/>", "SVG is not read, export it as PNG"),
        ('<!DOCTYPE a [<!ENTITY a "b">]><ink/>', "XML entities are not allowed in ink; write out"),
    ],
)
def test_xml_that_is_not_read(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.svg").write_text(content)
    problem = str(read_file(tmp_path / "a.svg"))
    assert message in problem
    assert "Forbidden" not in problem


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (["recognize", "no.png"], InkError, "no such file"),
        (["recognize", "a.png", "-"], ConfigError, "give it alone"),
        (["recognize", "*.nothing"], InkError, "no file matches"),
        (["recognize", ""], ConfigError, "an empty path"),
        (["recognize", "{ink}", "--out", "{ink}"], ConfigError, "to be read and to be written"),
        (["recognize", "{ink}", "--steps", "0"], ConfigError, "steps is 0"),
        (["recognize", "{ink}", "--seed", "-1"], ConfigError, "seed is -1"),
        (["recognize", "{ink}", "--deadline-ms", "inf"], ConfigError, "deadline_ms is inf"),
        (["recognize", "{ink}", "--lock", "x"], ConfigError, "POSITION=SYMBOL"),
        (["recognize", "{ink}", "--lock", r"0=\foo"], GryphoneError, "not among"),
        (["recognize", "{ink}", "--lock", "0=x", "--lock", "00=y"], ConfigError, "keep one"),
        (["recognize", "{ink}", "--hint", "x" * 400 + r"\foo"], GryphoneError, "x…': '\\\\foo' is"),
        (["recognize", "{ink}", "--out", "new.PNG"], ConfigError, "choose .txt or .jsonl"),
        (["recognize", "{folder}", "--out", "r.csv"], ConfigError, "choose a name with .jsonl"),
        (["recognize", "{folder}", "--out", "r.jsonl.gz"], ConfigError, "a name with .jsonl"),
        (["recognize", "{ink}", "--out", "/no/such/folder/x.txt"], DataError, "cannot be written"),
        (["recognize", "{ink}", "--out", "/no/such/r.jsonl"], DataError, "cannot be written"),
        (["evaluate", "/no/such/set"], DataError, "no such file or folder"),
        (["recognize", "{ink}", "--weights", "/no/weights"], CheckpointError, "no checkpoint"),
        (["info", "--weights", "/no/weights"], CheckpointError, "no checkpoint"),
    ],
)
def test_bad_calls_are_named(
    arguments: list[str], kind: type[GryphoneError], message: str, ink: str, weights: str
) -> None:
    folder = str(Path(ink).parent)
    words = [word.replace("{ink}", ink).replace("{folder}", folder) for word in arguments]
    if "--weights" not in words:
        words += ["--weights", weights]
    result = run(*words)
    # main() turns these into one line and exit code 2.
    assert isinstance(result.exception, kind)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)
    assert len(str(result.exception)) < 300


def test_evaluate(weights: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set", some(4))
    out = tmp_path / "p.tsv"
    common = ("evaluate", str(folder), "--weights", weights, "--steps", "2", "--limit", "3")
    report = json.loads(fine(*common, "--json", "--out", str(out)))
    assert report["count"] == 3
    assert {"em", "le1", "le2", "le3", "cer", "ser", "normalized", "graph"} <= set(report)
    assert len(out.read_text().splitlines()) == 3
    table = fine(*common, "--runs", "2")
    assert "EM" in table
    assert "2 runs" in table


def test_info(weights: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    facts = json.loads(fine("info", "--json", "--weights", weights))
    assert facts["vocabulary"]["symbols"] == len(facts["symbols"])
    trained = load_model(weights).parameters()
    assert facts["parameters"] == sum(p.numel() for p in trained)
    screen = fine("info", "--weights", weights).splitlines()
    assert screen[0].startswith("version: ")
    assert len(screen) <= 20 and max(map(len, screen)) <= 200
    monkeypatch.setattr("gryphone.recognition.recognizer.WEIGHTS", tmp_path)
    assert "no default weights" in json.loads(fine("info", "--json"))["problem"]
    assert "weights: none; this installation has no default weights" in fine("info")


@pytest.mark.parametrize(("folder", "count"), [([str(EXAMPLES)], 16), ([], 3)])
def test_demo_reads_every_example_three_ways(
    weights: str, tmp_path: Path, folder: list[str], count: int
) -> None:
    out = tmp_path / "refinement.png"
    text = fine("demo", *folder, "--weights", weights, "--out", str(out))
    assert text.count(f" of {count} right") == 3
    assert "error" not in text
    assert out.read_bytes().startswith(b"\x89PNG")


def test_bundled_examples_are_the_repositorys() -> None:
    files = [path for path in BUNDLED.rglob("*") if path.is_file() and path.suffix != ".tsv"]
    assert len(files) == 9
    for path in files:
        assert path.read_bytes() == (EXAMPLES / path.relative_to(BUNDLED)).read_bytes()


def test_demo_without_examples(weights: str, tmp_path: Path) -> None:
    result = run("demo", str(tmp_path), "--weights", weights, "--out", str(tmp_path / "x.png"))
    assert isinstance(result.exception, DataError)
    assert "give a folder such as examples/ of the repository" in str(result.exception)
