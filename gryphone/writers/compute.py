"""What a formula comes to, by SymPy in a process of its own that time and memory end.

Nothing here changes an answer: what was read stays as it was written, right or wrong.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from gryphone.errors import ConfigError, GryphoneError, LatexError, need

SECONDS = 10.0
STARTING = 60.0  # seconds in which SymPy is imported, on a busy machine
MEGABYTES = 1024
LONGEST = 20_000  # characters that one part of an answer may have
EQUAL, UNEQUAL, UNKNOWN = "equal", "not equal", "cannot tell"


class ComputeError(GryphoneError):
    """A formula that could not be computed within its limits."""


@dataclass(frozen=True)
class Computed:
    """What a formula comes to, as LaTeX; what it does not have is None or empty."""

    simplified: str
    value: str | None = None  # of a formula without letters, in decimals
    holds: bool | None = None  # whether an equation or inequality is true, whatever its letters
    solutions: dict[str, list[str]] = field(default_factory=dict)  # of an equation, by letter


def compute(
    latex: str, constants: str = "e", seconds: float = SECONDS, megabytes: int = MEGABYTES
) -> Computed:
    """Simplify, evaluate and solve a formula; a ComputeError says which limit it met."""
    with Calculator(seconds, megabytes) as calculator:
        return calculator.compute(latex, constants)


def compare(
    lines: Sequence[str], constants: str = "e", seconds: float = SECONDS, megabytes: int = MEGABYTES
) -> list[str]:
    """Each line of a working against the next: equal, not equal, or cannot tell."""
    with Calculator(seconds, megabytes) as calculator:
        return calculator.compare(lines, constants)


def to_python(latex: str) -> str:
    """The formula as Python. Nothing is evaluated, but SymPy itself may not come to an end."""
    with Calculator() as calculator:
        return calculator.write(latex)


class Calculator:
    """SymPy in a process of its own: each question has so many seconds, all together so much
    memory. It starts with the first question, and again after one that was too much for it."""

    def __init__(self, seconds: float = SECONDS, megabytes: int = MEGABYTES) -> None:
        need("sympy", "formats")
        if seconds <= 0 or megabytes <= 0:
            raise ConfigError(f"{seconds} s and {megabytes} MB; limits must be more than 0")
        self.seconds, self.megabytes = seconds, megabytes
        self._process: subprocess.Popen[str] | None = None
        self._listener = ThreadPoolExecutor(1, "gryphone-sympy")

    def __enter__(self) -> Calculator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def compute(self, latex: str, constants: str = "e") -> Computed:
        """Simplify, evaluate and solve a formula."""
        return Computed(**self._ask(_worked_out, latex, constants))

    def compare(
        self, lines: Sequence[str], constants: str = "e", most: float = math.inf
    ) -> list[str]:
        """Each line of a working against the next; a line may begin with =. After `most` seconds
        no other question is begun."""
        found: list[str] = []
        due = time.monotonic() + most
        for one, two in pairwise(line.strip().removeprefix("=") for line in lines):
            if time.monotonic() > due:
                found.append(UNKNOWN)
                continue
            try:
                found.append(self._ask(_equal, one, two, constants)["is"])
            except (LatexError, ComputeError):  # one has no clear meaning, or takes too long
                found.append(UNKNOWN)
        return found

    def write(self, latex: str) -> str:
        """The formula as Python."""
        return str(self._ask(_written, latex)["text"])

    def start(self) -> None:
        """Have it ready before somebody asks."""
        if self._process is None:
            paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(self.megabytes), str(self.seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
            self._hear(STARTING)

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):  # what was not sent yet
                    pipe.close()  # type: ignore[union-attr]

    def _ask(self, function: Callable[..., Any], *args: str) -> dict[str, Any]:
        self.start()
        assert self._process is not None and self._process.stdin is not None
        with suppress(OSError):  # it is gone, as will be heard
            self._process.stdin.write(json.dumps([function.__name__, *args]) + "\n")
            self._process.stdin.flush()
        answer = self._hear(self.seconds)
        if "latex" in answer:
            raise LatexError(answer["latex"])
        if "error" in answer:
            raise ComputeError(answer["error"])
        return answer

    def _hear(self, seconds: float) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        try:
            line = self._listener.submit(self._process.stdout.readline).result(seconds)
        except TimeoutError:
            self.close()
            raise ComputeError(
                f"not computed within {seconds:g} s; give it more, or less"
            ) from None
        if not line.endswith("\n"):
            self.close()
            raise ComputeError(
                f"not computed within {self.megabytes} MB of memory; give it more, or less"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer


def main() -> None:
    """The process itself: limits, then questions from stdin and answers to stdout, line by line."""
    if sys.platform != "win32":  # which has no such limits; the time alone ends it there
        import resource

        most = int(sys.argv[1]) << 20
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    import sympy  # noqa: F401  now, not while a question waits

    # Whoever asked may be gone, and would not end it: it ends itself (but on Windows).
    alarm = getattr(signal, "alarm", lambda seconds: None)
    print("{}", flush=True)
    functions = {f.__name__: f for f in (_worked_out, _equal, _written)}
    for line in sys.stdin:
        name, *args = json.loads(line)
        alarm(math.ceil(float(sys.argv[2])) + 1)
        try:
            answer = functions[name](*args)
        except LatexError as error:
            answer = {"latex": str(error)}
        except GryphoneError as error:
            answer = {"error": str(error)}
        except MemoryError:
            raise
        except Exception as error:  # SymPy has many
            answer = {"error": f"SymPy cannot compute it: {error or type(error).__name__}"}
        alarm(0)
        print(json.dumps(answer), flush=True)


def _written(latex: str) -> dict[str, str]:
    from gryphone.writers.sympy import to_python

    return {"text": to_python(latex)}


def _shown(value: Any) -> str:
    import sympy

    text = str(sympy.latex(value))
    if len(text) > LONGEST:
        raise ComputeError(f"the result has {len(text)} characters; at most {LONGEST} are shown")
    return text


def _worked_out(latex: str, constants: str) -> dict[str, Any]:
    import sympy

    from gryphone.writers.sympy import evaluated, to_sympy

    meant = evaluated(to_sympy(latex, constants)).doit()
    simple = sympy.simplify(meant)
    answer: dict[str, Any] = {"simplified": _shown(simple)}
    if isinstance(meant, sympy.Expr) and not meant.free_symbols and meant.is_number:
        answer["value"] = str(sympy.N(simple, 15))
    if simple in (sympy.true, sympy.false):
        answer["holds"] = bool(simple)
    elif isinstance(meant, sympy.Eq):
        letters = sorted(meant.free_symbols, key=str)
        found = {str(letter): sympy.solve(meant, letter) for letter in letters}
        answer["solutions"] = {name: [*map(_shown, roots)] for name, roots in found.items()}
    return answer


def _equal(first: str, second: str, constants: str) -> dict[str, str]:
    import sympy

    from gryphone.writers.sympy import evaluated, to_sympy

    one, two = (evaluated(to_sympy(latex, constants)).doit() for latex in (first, second))
    if isinstance(one, sympy.Expr) and isinstance(two, sympy.Expr):
        same = (one - two).equals(0)
        return {"is": UNKNOWN if same is None else EQUAL if same else UNEQUAL}
    if not isinstance(one, sympy.Eq) or not isinstance(two, sympy.Eq):
        simple = sympy.simplify(sympy.Equivalent(one, two))
        return {"is": EQUAL if simple == sympy.true else UNKNOWN}
    zero = [side.lhs - side.rhs for side in (one, two)]
    ratio = sympy.simplify(zero[0] / zero[1])
    if ratio.is_number and ratio.is_nonzero:  # both sides times a number
        return {"is": EQUAL}
    letters = zero[0].free_symbols | zero[1].free_symbols
    if len(letters) != 1:
        return {"is": UNKNOWN}
    roots = [sympy.solveset(side, *letters) for side in zero]
    if not all(isinstance(found, sympy.FiniteSet | sympy.sets.sets.EmptySet) for found in roots):
        return {"is": UNKNOWN}
    return {"is": EQUAL if roots[0] == roots[1] else UNEQUAL}


if __name__ == "__main__":
    main()
