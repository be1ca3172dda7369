"""What a recognition returns: LaTeX, and how sure the model is of each part of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gryphone.errors import GryphoneError

if TYPE_CHECKING:
    from gryphone.writers.compute import Computed

Box = tuple[float, float, float, float]  # left, top, right, bottom, in the input's coordinates


@dataclass(frozen=True)
class Symbol:
    """One recognised symbol, its structure marks, and where it sits (None: it has no ink)."""

    position: int
    symbol: str
    modifier: str
    confidence: float
    alternatives: tuple[tuple[str, float], ...]  # other symbols with their probabilities
    box: Box | None
    strokes: tuple[int, ...] = ()  # the strokes of the ink that were read as this symbol
    span: tuple[int, int] = (0, 0)  # [start, end) of its own glyph in the answer's `latex`
    written: tuple[str, float] | None = None  # what its strokes are alone, where that was asked

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "position": self.position,
            "symbol": self.symbol,
            "modifier": self.modifier,
            "confidence": round(self.confidence, 4),
            "alternatives": [[name, round(p, 4)] for name, p in self.alternatives],
            "box": None if self.box is None else [round(x, 2) for x in self.box],
            "strokes": list(self.strokes),
            "span": list(self.span),
            "written": self.written and [self.written[0], round(self.written[1], 4)],
        }


@dataclass(frozen=True)
class Alternative:
    """One whole answer and its weight; the weights of all alternatives add up to one."""

    latex: str
    weight: float


@dataclass(frozen=True)
class Result:
    """One recognised formula. `ids` are its tokens for decoding again from the same encoding."""

    latex: str
    tokens: tuple[str, ...]
    confidence: float
    symbols: tuple[Symbol, ...]
    n_best: tuple[Alternative, ...]
    steps: int
    seconds: float
    seed: int
    name: str = "ink"
    warnings: tuple[str, ...] = ()
    ids: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int64), compare=False)
    as_written: str | None = None  # LaTeX, where it was asked: what the ink of each letter says
    ink: tuple[np.ndarray, ...] = field(default=(), compare=False)  # its strokes, (points, 2) each
    in_parts: bool = False  # a long row that was put together: no single look has its positions

    def __repr__(self) -> str:
        noted = f", warnings={self.warnings!r}" if self.warnings else ""
        return f"Result({self.latex!r}, confidence={self.confidence:.2f}{noted})"

    @cached_property
    def mathml(self) -> str:
        """Presentation MathML of the answer."""
        from gryphone.latex.mathml import to_mathml

        return to_mathml(self.latex)

    def boxed(self) -> Result:
        r"""The same inside of `\boxed`."""
        start = len(r"\boxed{")
        return replace(
            self,
            latex=rf"\boxed{{{self.latex}}}",
            tokens=(r"\boxed", "{", *self.tokens, "}"),
            symbols=tuple(
                replace(s, span=(s.span[0] + start, s.span[1] + start)) for s in self.symbols
            ),
            n_best=tuple(replace(a, latex=rf"\boxed{{{a.latex}}}") for a in self.n_best),
        )

    def on(self, strokes: Sequence[int]) -> tuple[Symbol, ...]:
        """The symbols with other numbers for their strokes: those that these were elsewhere."""
        return tuple(replace(s, strokes=tuple(strokes[i] for i in s.strokes)) for s in self.symbols)

    def to(self, target: str) -> str:
        """The answer in another notation: a name of `gryphone.writers.TARGETS`, as "typst"."""
        from gryphone.writers import write

        return write(self.latex, target)

    def sympy(self, constants: str = "e") -> Any:
        """The answer as a SymPy object; an error names the part that has no clear meaning."""
        from gryphone.writers.sympy import to_sympy

        return to_sympy(self.latex, constants)

    def compute(self, constants: str = "e", seconds: float = 10, megabytes: int = 1024) -> Computed:
        """What the answer comes to: simplified, its value, its solutions; within limits."""
        from gryphone.writers.compute import compute

        return compute(self.latex, constants, seconds, megabytes)

    def _repr_latex_(self) -> str:
        """What a notebook shows where it has no HTML."""
        return f"${self.to('readable')}$"

    def _repr_html_(self) -> str:
        """What a notebook shows: the formula, how sure each symbol is, and where it sits."""
        from gryphone.recognition.notebook import to_html

        return to_html(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "file": self.name,
            "latex": self.latex,
            "tokens": list(self.tokens),
            "confidence": round(self.confidence, 4),
            "symbols": [symbol.to_dict() for symbol in self.symbols],
            "n_best": [{"latex": a.latex, "weight": round(a.weight, 4)} for a in self.n_best],
            "steps": self.steps,
            "seconds": round(self.seconds, 4),
            "seed": self.seed,
            "warnings": list(self.warnings),
            "as_written": self.as_written,
        }

    def to_full_dict(self) -> dict[str, Any]:
        """The same with MathML; where that cannot be made, a warning says why."""
        data = self.to_dict()
        try:
            data["mathml"] = self.mathml
        except GryphoneError as error:
            data["mathml"] = None
            data["warnings"].append(str(error))
        return data

    def to_text(self) -> str:
        """A few lines for a person: the answer, the doubtful symbols, the alternatives."""
        lines = [f"{self.latex}   ({100 * self.confidence:.0f} %)"]
        for s in self.symbols:
            if s.confidence < 0.9:
                others = ", ".join(f"{name} {100 * p:.0f} %" for name, p in s.alternatives[:3])
                lines.append(
                    f"  {s.position}: {s.symbol} {100 * s.confidence:.0f} %"
                    + (f", or {others}" if others else "")
                )
        if self.as_written is not None:
            lines.append(f"  as written: {self.as_written}")
        lines += [f"  {100 * a.weight:4.0f} %  {a.latex}" for a in self.n_best[1:]]
        lines += [f"  note: {w}" for w in self.warnings]
        return "\n".join(lines)
