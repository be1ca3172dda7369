"""Computing an answer: what comes out, and what ends it."""

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from gryphone.cli import make_app
from gryphone.errors import ConfigError, LatexError
from gryphone.recognition.result import Result
from gryphone.writers.compute import Calculator, Computed, ComputeError, compare, compute


def test_a_result_is_computed_if_asked() -> None:
    result = Result(r"\frac { 1 } { 2 } + \frac { 1 } { 4 }", (), 1.0, (), (), 1, 0.0, 0)
    assert result.compute() == Computed(r"\frac{3}{4}", value="0.750000000000000")
    assert result.latex == r"\frac { 1 } { 2 } + \frac { 1 } { 4 }"


@pytest.mark.parametrize(
    ("latex", "computed"),
    [
        ("x ^ 2 = 4", Computed("x^{2} = 4", solutions={"x": ["-2", "2"]})),
        ("2 + 2 = 5", Computed(r"\text{False}", holds=False)),
        (r"\int _ 0 ^ 1 x d x", Computed(r"\frac{1}{2}", value="0.500000000000000")),
    ],
)
def test_values_truth_and_solutions(latex: str, computed: Computed) -> None:
    assert compute(latex) == computed


def test_a_working_is_compared_line_by_line() -> None:
    lines = ["2 x + 4 = 6", "x = 1", "x = 2", r"x = \ldots"]
    assert compare(lines) == ["equal", "not equal", "cannot tell"]
    assert compare(["( a + b ) ^ 2", "a ^ 2 + 2 a b + b ^ 2"]) == ["equal"]


def test_after_a_question_that_was_too_much_come_others() -> None:
    with Calculator(seconds=2) as calculator:
        with pytest.raises(ComputeError, match="not computed within 2 s"):
            calculator.compute(r"\prod _ { i = 1 } ^ { 999999999 } i")
        assert calculator.compute("1 + 1").value == "2.00000000000000"
        lines = ["x", r"\sum _ { i = 1 } ^ { 99999999 } \gcd ( i , 2 )", "y", "= y"]
        assert calculator.compare(lines) == ["cannot tell", "cannot tell", "equal"]


def test_time_and_memory_are_bounded() -> None:
    with pytest.raises(ComputeError, match="not computed within 2 s"):
        compute(r"\prod _ { i = 1 } ^ { 999999999 } i", seconds=2)
    with pytest.raises(ComputeError, match="not computed within 24 MB of memory"):
        compute("1", seconds=60, megabytes=24)
    with pytest.raises(LatexError, match=r"SymPy: \\ldots has no meaning here"):
        compute(r"1 + \ldots")
    with pytest.raises(ConfigError, match="limits must be more than 0"):
        compute("1", seconds=0)


def test_many_lines_are_converted_by_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    start = subprocess.Popen.__init__

    def counted(process: subprocess.Popen[str], *args: Any, **options: Any) -> None:
        start(process, *args, **options)
        started.append(process.pid)

    monkeypatch.setattr(subprocess.Popen, "__init__", counted)
    shown = CliRunner().invoke(make_app(), ["convert", "--to", "sympy"], input="x^2\n\\ldots\n1\n")
    assert shown.stdout == "x**2\n\n1\n" and shown.exit_code == 2
    assert "line 2: SymPy: \\ldots has no meaning here (at character 0)" in shown.stderr
    assert len(started) == 1
    with pytest.raises(ProcessLookupError):  # it ended with the command
        os.kill(started[0], 0)


def test_no_other_question_is_begun_after_so_long() -> None:
    with Calculator() as calculator:
        assert calculator.compare(["x", "x", "x"], most=-1) == ["cannot tell", "cannot tell"]


def test_a_process_that_nobody_listens_to_ends() -> None:
    endless = ["_worked_out", r"\prod _ { i = 1 } ^ { 999999999 } i", "e"]
    command = [sys.executable, "-m", "gryphone.writers.compute", "512", "0.5"]
    asked = "".join(json.dumps(each) + "\n" for each in (["unknown"], endless))
    done = subprocess.run(command, input=asked, text=True, capture_output=True, timeout=120)
    assert "cannot compute it: 'unknown'" in done.stdout
    assert done.returncode == -signal.SIGALRM
