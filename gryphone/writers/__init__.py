"""A formula's tree, written for where people are: Typst, Word, SymPy, a screen reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from gryphone.errors import ConfigError, LatexError


@dataclass(frozen=True)
class Target:
    """What a formula can be written as; `writer` is where the function or class for it lives."""

    title: str
    writer: str
    quick: bool = True  # a server may write it: whatever the formula, the time is short


# The one list: --format, Result.to, HTTP and the tools for agents know these.
TARGETS: Mapping[str, Target] = {
    "latex": Target("LaTeX as the labels are spelt", ""),
    "readable": Target("LaTeX as people write it", "gryphone.writers.latex:LatexWriter"),
    "mathml": Target("Presentation MathML", "gryphone.latex.mathml:to_mathml"),
    "typst": Target("Typst math", "gryphone.writers.typst:TypstWriter"),
    "asciimath": Target("AsciiMath", "gryphone.writers.asciimath:AsciiMathWriter"),
    "unicode": Target("UnicodeMath, plain text", "gryphone.writers.unicode:UnicodeWriter"),
    "omml": Target("Office Math, for Word", "gryphone.writers.omml:OmmlWriter"),
    "sympy": Target("SymPy, as Python", "gryphone.writers.compute:to_python", quick=False),
    "speech": Target("Words for a screen reader", "gryphone.writers.speech:SpeechWriter"),
}


def check_target(name: str, also: tuple[str, ...] = ()) -> None:
    """Raise a ConfigError that names the list, unless the name is on it."""
    if name not in TARGETS and name not in also:
        known = ", ".join((*TARGETS, *also))
        raise ConfigError(f"format {name!r} is unknown; use one of {known}")


@contextmanager
def writing_to(target: str) -> Iterator[Callable[[str], str]]:
    """`write` for many formulas, which share one process where SymPy writes them."""
    check_target(target)
    if TARGETS[target].quick:
        yield lambda latex: write(latex, target)
        return
    from gryphone.writers.compute import Calculator

    with Calculator() as calculator:
        yield calculator.write


def write(latex: str, target: str) -> str:
    """A formula in another notation; a LatexError names what that has no words for."""
    from importlib import import_module

    check_target(target)
    module, _, name = TARGETS[target].writer.partition(":")
    if not module:
        return latex
    writer = getattr(import_module(module), name)
    try:
        return str(writer().write(latex) if isinstance(writer, type) else writer(latex))
    except RecursionError:
        raise LatexError("it is nested too deeply; simplify the formula") from None
