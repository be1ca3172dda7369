"""A question to the recogniser, checked once, where it is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral
from typing import Any, TypedDict

from gryphone.config import Remasking
from gryphone.errors import ConfigError
from gryphone.recognition.result import Result

AUTO = "auto"
AUTO_STEPS = 8  # where one step leaves doubt
MOST_STEPS = 50  # what a deadline alone may use up
MOST_SAMPLES = 256
MOST_VIEWS = 5
MOST_BEAM = 100
MOST_SEED = 2**63 - 1
OTHER = 3


@dataclass(frozen=True)
class Step:
    """One refinement step as `on_step` sees it.

    Where the first look at the ink leaves doubt, a second one is refined from the beginning.
    """

    number: int  # from 1, of each look
    total: int  # of this look, at most
    latex: str
    tokens: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]  # (symbol, modifier) of each position
    masked: tuple[int, ...]  # positions that were hidden from this step
    sample: int = 0  # which of the independent decodes
    # The first or the second one; from OTHER on, of what is doubtful read in other ways: a picture
    # turned, or without some of its ink, or a long row in parts, all of them together.
    look: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as a page shows it."""
        shown = ("number", "total", "latex", "rows", "masked", "look")
        return {name: getattr(self, name) for name in shown}


class Options(TypedDict, total=False):
    """The options of `Ask` as keywords, so that type checkers know them."""

    steps: int | str | None
    deadline_ms: float | None
    seed: int
    n_best: int
    samples: int | None
    lock: Mapping[int, str | Sequence[str]]
    hint: str | None
    remask: Sequence[int]
    given: Result | None
    allowed: str | Iterable[str] | None
    on_step: Callable[[Step], bool | None] | None
    alternatives: int
    boxes: bool
    views: int
    method: str
    plain: bool
    remasking: Remasking | None
    beam: int
    as_written: bool
    boxed: bool
    unfinished: bool


@dataclass(frozen=True)
class Ask:
    r"""How to recognise.

    steps: refinement steps; "auto", the default, takes one, and more where that leaves doubt (up to
    50 where only a deadline is given, as many as fit). deadline_ms: answer within that time from
    the call on. seed: the same seed gives the same answer. n_best: how many alternatives to return;
    samples: independent decodes behind them (1, or 5 and more for n-best). lock: {position: symbol}
    to keep, of a page {stroke: symbol}. hint: LaTeX with holes, `?` one symbol and `...` any run.
    remask: positions of `given` (an earlier result; without it, of a first answer) to solve again
    while the rest stays. allowed: the only symbols to use. on_step: called with a Step; True stops.
    alternatives: how many other symbols to list per position. boxes: say where each symbol sits.
    views: looks at the ink, slightly turned and rescaled, whose predictions are averaged (1 to 5).
    method: "diffusion", or "mask-predict", which masks what it is least sure of. plain: what the
    last step says, nothing added: no search for valid LaTeX, no second look (needs a number of
    steps). remasking: another than the weights were trained for. beam: hypotheses of weights that
    write from left to right (kind `ar`), which take no steps. as_written: say what the strokes of
    each letter are when they are looked at alone, too. boxed: write the box that a picture has
    round its formula as \boxed, instead of a warning that it was left out. unfinished: more will be
    written, so that symbols are read with less trust in what stands around them so far.
    """

    steps: int | str | None = None
    deadline_ms: float | None = None
    seed: int = 0
    n_best: int = 1
    samples: int | None = None
    lock: Mapping[int, str | Sequence[str]] = field(default_factory=dict)
    hint: str | None = None
    remask: Sequence[int] = ()
    given: Result | None = None
    allowed: str | Iterable[str] | None = None
    on_step: Callable[[Step], bool | None] | None = None
    alternatives: int = 5
    boxes: bool = True
    views: int = 1
    method: str = "diffusion"
    plain: bool = False
    remasking: Remasking | None = None
    beam: int = 1
    as_written: bool = False
    boxed: bool = False
    unfinished: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.steps, str) and self.steps != AUTO:
            raise ConfigError(f"steps is {self.steps!r}; it must be a whole number or {AUTO!r}")
        steps = None if self.steps == AUTO else self.steps
        for name, value, most in (
            ("steps", steps, 1000),
            ("n_best", self.n_best, MOST_SAMPLES),
            ("samples", self.samples, MOST_SAMPLES),
            ("views", self.views, MOST_VIEWS),
            ("beam", self.beam, MOST_BEAM),
        ):
            if value is not None and not 1 <= _whole(name, value) <= most:
                raise ConfigError(f"{name} is {value}; it must be between 1 and {most}")
        for name in ("seed", "alternatives"):
            _whole(name, getattr(self, name))
        _kind("lock", self.lock, Mapping, "a mapping from positions to symbols")
        for place, symbol in self.lock.items():
            _whole("a position of lock", place)
            _kind(f"lock[{place}]", symbol, (str, Sequence), "a symbol, or symbol and modifier")
        _kind("hint", self.hint, (str, type(None)), "text")
        _kind("remask", self.remask, Iterable, "a list of positions")
        object.__setattr__(self, "remask", tuple(self.remask))
        for place in self.remask:
            _whole("a position of remask", place)
        _kind("given", self.given, (Result, type(None)), "an earlier result")
        if not 0 <= self.seed <= MOST_SEED:
            raise ConfigError(f"seed is {self.seed}; it must be between 0 and {MOST_SEED}")
        if self.deadline_ms is not None and not 0 < self.deadline_ms < math.inf:
            raise ConfigError(
                f"deadline_ms is {self.deadline_ms}; it must be above 0 and finite "
                "(leave it out for no deadline)"
            )
        if self.alternatives < 0:
            raise ConfigError(f"alternatives is {self.alternatives}; it must be 0 or more")
        if self.plain and (self.auto or self.deadline_ms is not None):
            raise ConfigError("plain decoding takes a number of steps: give steps, and no deadline")
        if self.plain and self.unfinished:
            raise ConfigError("plain decoding adds nothing, and so does unfinished then; give one")
        if self.hint is not None and (self.remask or self.given is not None):
            raise ConfigError("a hint and remask cannot be combined; give one of them")
        if self.as_written and not self.boxes:
            raise ConfigError("as_written needs to know where the symbols sit; leave boxes on")
        if self.allowed is not None and not isinstance(self.allowed, str):
            object.__setattr__(self, "allowed", tuple(self.allowed))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Ask:
        """The question of these options; one that does not exist is named with the nearest."""
        names = [f.name for f in fields(cls)]
        for unknown in options.keys() - set(names):
            from difflib import get_close_matches

            near = get_close_matches(unknown, names, 1)
            remedy = f"did you mean {near[0]}?" if near else f"choose among {', '.join(names)}"
            raise ConfigError(f"option {unknown!r} is unknown; {remedy}")
        return cls(**options)

    @property
    def total_steps(self) -> int:
        """Refinement steps, the most that may be taken."""
        if self.steps is not None and not isinstance(self.steps, str):
            return int(self.steps)
        return AUTO_STEPS if self.auto else MOST_STEPS

    @property
    def auto(self) -> bool:
        """Whether steps are taken only where there is doubt."""
        return self.steps == AUTO or (self.steps is None and self.deadline_ms is None)

    @property
    def decodes(self) -> int:
        """Independent stochastic decodes."""
        if self.samples is not None:
            return self.samples
        return 1 if self.n_best == 1 else max(5, self.n_best)

    @property
    def work(self) -> int:
        """Canvases times steps times looks."""
        return self.total_steps * self.decodes * self.views * self.beam

    @property
    def constrained(self) -> bool:
        """Whether anything restricts the answer."""
        known = self.lock or self.remask or self.given is not None
        return bool(known) or self.hint is not None or self.allowed is not None


def steps_of(text: str | None) -> int | str | None:
    """A number of steps, or what else was written, for `Ask` to judge."""
    return int(text) if text is not None and text.lstrip("-").isdecimal() else text


def _whole(name: str, value: Any) -> int:
    """A number of something; True is no number, nor is 2.5."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ConfigError(f"{name} is {value!r}; it must be a whole number")
    return int(value)


def _kind(name: str, value: Any, kinds: Any, wanted: str) -> None:
    if not isinstance(value, kinds):
        raise ConfigError(f"{name} is {value!r}; it must be {wanted}")
