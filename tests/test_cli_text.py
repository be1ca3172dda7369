"""Commands on text, through a small app."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from gryphone.cli import make_app
from gryphone.cli.text import register
from gryphone.errors import GryphoneError
from gryphone.latex.lexer import tokenize

RUNNER = CliRunner()


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    register(made)
    return made


def run(app: typer.Typer, *arguments: str, text: str = "") -> str:
    result = RUNNER.invoke(app, list(arguments), input=text, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_normalize(app: typer.Typer) -> None:
    lines = run(app, "normalize", text="$x^2_1$\n\n\\le\n").split("\n")
    assert lines == ["x _ { 1 } ^ { 2 }", "", r"\leq", ""]
    assert run(app, "normalize", "--convention", "mathwriting", text=r"\leq") == "\\le\n"
    assert run(app, "normalize", "--convention", "none", text=r"$x^2$") == "$ x ^ 2 $\n"
    assert json.loads(run(app, "normalize", "--json", text="x^2")) == {
        "tokens": ["x", "^", "{", "2", "}"]
    }


@pytest.mark.parametrize("scheme", ["sat", "raw"])
def test_tokenize_and_back(app: typer.Typer, scheme: str) -> None:
    sources = [r"\frac{x^{}}{\sqrt[3]{y}}", "", "é_", r"a\ "]
    objects = run(app, "tokenize", "--scheme", scheme, text="\n".join(sources) + "\n")
    assert len(objects.splitlines()) == 4
    back = run(app, "detokenize", text=objects).split("\n")
    assert back[:-1] == [" ".join(tokenize(source)) for source in sources]


def test_tokenize_prints_streams(app: typer.Typer) -> None:
    assert json.loads(run(app, "tokenize", text="x^{2}")) == {
        "scheme": "sat",
        "symbols": ["x", "2"],
        "modifiers": ["", "^{}"],
    }
    assert json.loads(run(app, "tokenize", "--scheme", "raw", text="x^2")) == {
        "scheme": "raw",
        "tokens": ["x", "^", "2"],
    }


@pytest.mark.parametrize(
    ("arguments", "text", "message"),
    [
        (["normalize"], "x\n\\frac{1}\n", r"line 2: \\frac lacks an argument \(at character 8\)"),
        (["normalize"], b"x\n\xff\n", r"line 2: not UTF-8 .*; convert it"),
        (["tokenize"], "x\ny\x00\n", "line 2: character"),
        (["detokenize"], "x\n", "line 1: not JSON"),
        (["detokenize"], "[" * 100_000, "line 1: not JSON"),
        (["detokenize"], "[1]\n", "line 1: not a JSON object"),
        (["detokenize"], '{"scheme": "sat", "symbols": ["x"]}', "'modifiers' is not a list"),
        (["detokenize"], '{"scheme": "raw", "tokens": [1]}', "'tokens' is not a list"),
        (
            ["detokenize"],
            '{"scheme": "sat", "symbols": ["x"], "modifiers": []}',
            "differ in length",
        ),
    ],
)
def test_errors_name_the_line(
    app: typer.Typer, arguments: list[str], text: str | bytes, message: str
) -> None:
    result = RUNNER.invoke(app, arguments, input=text, catch_exceptions=False)
    assert result.exit_code == 2
    assert re.search(f"^gryphone: .*{message}", result.stderr)


def test_a_bad_line_does_not_end_the_others(app: typer.Typer) -> None:
    text = "x^2\n\\frac{1}\n\ny\n}\nz"
    result = RUNNER.invoke(app, ["normalize"], input=text, catch_exceptions=False)
    assert result.stdout.split("\n") == ["x ^ { 2 }", "", "", "y", "", "z", ""]
    assert result.stderr.count("gryphone: line ") == 2
    assert result.exit_code == 2
    result = RUNNER.invoke(app, ["normalize", "--json"], input=text, catch_exceptions=False)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [list(row) for row in rows[:3]] == [["tokens"], ["error"], ["tokens"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["normalize", "--convention", "x"], "convention 'x' is unknown"),
        (["tokenize", "--scheme", "bpe"], "unknown scheme 'bpe'"),
        (["score", "absent.tsv"], "absent.tsv: cannot be read"),
    ],
)
def test_wrong_options_are_errors(app: typer.Typer, arguments: list[str], message: str) -> None:
    with pytest.raises(GryphoneError, match=message):
        RUNNER.invoke(app, arguments, catch_exceptions=False)


def test_score(app: typer.Typer, tmp_path: Path) -> None:
    file = tmp_path / "s.tsv"
    file.write_text("a\tx ^ { 2 }\tx ^ 2\nb\ty\ty\nc\tz\t\n")
    report = json.loads(run(app, "score", str(file), "--json"))
    assert {"count", "em", "le1", "le2", "le3", "cer", "ser"} <= report.keys()
    assert (report["count"], round(report["em"], 4)) == (3, 66.6667)  # as `evaluate` counts
    assert report["convention"] == "crohme"
    assert report["normalized"]["em"] == report["em"]
    assert round(report["raw"]["em"], 4) == 33.3333
    assert report["problems"] == [{"id": "c", "reason": "no prediction"}]
    plain = json.loads(run(app, "score", str(file), "--json", "--convention", "none"))
    assert "normalized" not in plain
    assert plain["em"] == report["raw"]["em"]


def test_score_table(app: typer.Typer, tmp_path: Path) -> None:
    file = tmp_path / "s.tsv"
    file.write_text("a\tx\tx\nb\ty\t\n")
    result = RUNNER.invoke(app, ["score", str(file)])
    assert result.exit_code == 0
    assert "50.0000" in result.stdout
    assert "as given" in result.stdout and "crohme" in result.stdout
    assert "b: no prediction" in result.stderr
    assert "(" not in run(app, "score", str(file), "--draws", "0").split("EM")[1]


def test_compare(app: typer.Typer, tmp_path: Path) -> None:
    a, b = tmp_path / "a.tsv", tmp_path / "b.tsv"
    a.write_text("1\tx\tx\n2\ty ^ { 2 }\tx\n")
    b.write_text("1\tx\tx\n2\ty ^ { 2 }\ty ^ 2\n")
    assert "+0.00" in run(app, "compare", str(a), str(b), "--convention", "none").split("≤1")[0]
    text = run(app, "compare", str(a), str(b))
    assert "spelt as in crohme (--convention none: as given)" in text
    assert "+50.00" in text and "only in A 0, only in B 1; p = 1 (" in text
    report = json.loads(run(app, "compare", str(a), str(b), "--json", "--draws", "0"))
    assert (report["a"]["em"], report["b"]["em"], report["intervals"]) == (50, 100, {})


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "gryphone", "normalize"]
        done = subprocess.run(command, input="x", stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "gryphone: output: No space left on device\n"


def test_shells_are_taught_and_answered() -> None:
    app = make_app()
    for shell in ("bash", "zsh", "fish"):
        assert f"_GRYPHONE_COMPLETE=complete_{shell}" in run(app, "completion", shell)
    assert RUNNER.invoke(app, ["completion", "tcsh"]).exit_code == 2

    def completed(*words: str) -> list[str]:
        line = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
        asked = {"_GRYPHONE_COMPLETE": "complete_bash", **line}
        return RUNNER.invoke(app, [], env=asked, prog_name="gryphone").stdout.split()

    assert completed("gryphone", "recog") == ["recognize"]
    assert completed("gryphone", "recognize", "--form") == ["--format"]
    assert completed("gryphone", "recognize", "--format", "typ") == ["typst"]
    assert completed("gryphone", "convert", "--to", "s") == ["sympy", "speech"]
