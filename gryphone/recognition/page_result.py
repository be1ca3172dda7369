r"""What a page holds: its formulas, what is none, and both as `aligned`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gryphone.latex.tree import words
from gryphone.recognition.result import Box, Result
from gryphone.tokens import spell

RELATIONS = words(
    r"""= < > \leq \geq \le \ge \neq \ne \approx \equiv \sim \simeq \cong \propto \in \subset
    \subseteq \Rightarrow \Leftrightarrow \iff \implies"""
)


@dataclass(frozen=True)
class Formula:
    """One formula of a page: its result, whose strokes are the page's, and where it is."""

    result: Result
    box: Box
    strokes: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            **self.result.to_full_dict(),
            "box": [round(x, 2) for x in self.box],
            "strokes": list(self.strokes),
        }


@dataclass(frozen=True)
class Aside:
    """Ink that is no formula: a word, a number, what is crossed out, a margin's line."""

    kind: str
    box: Box
    strokes: tuple[int, ...]
    guess: str = ""  # what it may say

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "kind": self.kind,
            "box": [round(x, 2) for x in self.box],
            "strokes": list(self.strokes),
            "guess": self.guess,
        }


@dataclass(frozen=True)
class PageResult:
    """The formulas of a page in reading order, and what else is on it."""

    formulas: tuple[Formula, ...]
    asides: tuple[Aside, ...] = ()
    seconds: float = 0.0
    name: str = "ink"
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"PageResult({len(self.formulas)} formulas, {self.latex!r})"

    @property
    def separate(self) -> tuple[str, ...]:
        """The LaTeX of each formula."""
        return tuple(formula.result.latex for formula in self.formulas)

    @property
    def latex(self) -> str:
        """The whole page: the one formula that is on it, or all of them aligned."""
        return self.aligned if len(self.formulas) > 1 else "".join(self.separate)

    @cached_property
    def aligned(self) -> str:
        r"""All formulas below each other, aligned at the first relation of each."""
        rows = r" \\ ".join(at_relation(f.result.tokens) for f in self.formulas)
        return rf"\begin{{aligned}} {rows} \end{{aligned}}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know: warnings, of lines too, and what is no formula."""
        said = [*self.warnings]
        for number, formula in enumerate(self.formulas, 1):
            said += [f"line {number}: {note}" for note in formula.result.warnings]
        said += [f"{a.kind} was left out: {a.guess}".rstrip(": ") for a in self.asides]
        return tuple(said)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "file": self.name,
            "latex": self.latex,
            "aligned": self.aligned,
            "formulas": [formula.to_dict() for formula in self.formulas],
            "asides": [aside.to_dict() for aside in self.asides],
            "seconds": round(self.seconds, 4),
            "warnings": list(self.warnings),
        }


def at_relation(tokens: Sequence[str]) -> str:
    """A row of `aligned`: the first relation outside of all braces has the mark before it."""
    depth = 0
    for place, token in enumerate(tokens):
        depth += (token == "{" or token.startswith(r"\begin")) - (
            token == "}" or token.startswith(r"\end")
        )
        if depth == 0 and token in RELATIONS:
            left, right = spell(tokens[:place])[0], spell(tokens[place:])[0]
            return f"{left} &{right}".strip()
    return f"&{spell(tokens)[0]}"
