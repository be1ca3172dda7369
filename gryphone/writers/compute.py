"""What a formula comes to, by SymPy in a process of its own that time and memory end.

Nothing here changes an answer: what was read stays as it was written, right or wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from gryphone.errors import ConfigError, GryphoneError, need

SECONDS = 10.0
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
    asked = {"latex": latex, "constants": constants}
    return Computed(**_asked(asked, seconds, megabytes))


def compare(
    lines: Sequence[str], constants: str = "e", seconds: float = SECONDS, megabytes: int = MEGABYTES
) -> list[str]:
    """Each line of a working against the next: equal, not equal, or cannot tell."""
    found = []
    for pair in pairwise(lines):
        try:
            found.append(_asked({"pair": pair, "constants": constants}, seconds, megabytes)["is"])
        except GryphoneError:  # one of the two has no clear meaning, or takes too long
            found.append(UNKNOWN)
    return found


def _asked(question: dict[str, Any], seconds: float, megabytes: int) -> dict[str, Any]:
    need("sympy", "formats")
    if seconds <= 0 or megabytes <= 0:
        raise ConfigError(f"{seconds} s and {megabytes} MB; limits must be more than 0")
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", __name__, str(megabytes)]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=seconds,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ComputeError(f"not computed within {seconds:g} s; give it more, or less") from None
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise ComputeError(
            f"not computed within {megabytes} MB of memory; give it more, or less"
        ) from None
    if "error" in answer:
        raise ComputeError(answer["error"])
    return answer


def main() -> None:
    """The process itself: a question from stdin, limits, an answer to stdout."""
    if sys.platform != "win32":  # which has no such limits; the time alone ends it there
        import resource

        most = int(sys.argv[1]) << 20
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    question = json.load(sys.stdin)
    try:
        answer = _equal(**question) if "pair" in question else _worked_out(**question)
    except GryphoneError as error:
        answer = {"error": str(error)}
    except (NotImplementedError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
        answer = {"error": f"SymPy cannot compute it: {error or type(error).__name__}"}
    print(json.dumps(answer))


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


def _equal(pair: tuple[str, str], constants: str) -> dict[str, str]:
    import sympy

    from gryphone.writers.sympy import evaluated, to_sympy

    one, two = (evaluated(to_sympy(latex, constants)).doit() for latex in pair)
    if isinstance(one, sympy.Expr) and isinstance(two, sympy.Expr):
        same = (one - two).equals(0)
        return {"is": UNKNOWN if same is None else EQUAL if same else UNEQUAL}
    if not isinstance(one, sympy.Eq) or not isinstance(two, sympy.Eq):
        simple = sympy.simplify(sympy.Equivalent(one, two))
        return {"is": EQUAL if simple == sympy.true else UNKNOWN}
    first, second = one.lhs - one.rhs, two.lhs - two.rhs
    ratio = sympy.simplify(first / second)
    if ratio.is_number and ratio.is_nonzero:  # both sides times a number
        return {"is": EQUAL}
    letters = first.free_symbols | second.free_symbols
    if len(letters) != 1:
        return {"is": UNKNOWN}
    roots = [sympy.solveset(side, *letters) for side in (first, second)]
    if not all(isinstance(found, sympy.FiniteSet | sympy.sets.sets.EmptySet) for found in roots):
        return {"is": UNKNOWN}
    return {"is": EQUAL if roots[0] == roots[1] else UNEQUAL}


if __name__ == "__main__":
    main()
