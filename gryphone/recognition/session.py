"""Ink that is still being written: known symbols stay, and only what the new ink touches is read.

After each change the model looks at all the ink once. What it says of a symbol whose ink did not
change, and which no new ink is near, is not taken up unless it is sure: the symbol stays, is shown
to the decoder, and what is new is refined around it. `finish`, when the pen rests, is a reading
like any other.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gryphone.errors import ConfigError
from gryphone.ink import Ink, Stroke, frozen_strokes, typical_stroke
from gryphone.reading.gestures import erased_by, evenly
from gryphone.reading.inputs import Input
from gryphone.recognition.answer import answer, answer_together, prepare
from gryphone.recognition.constraints import token_id
from gryphone.recognition.encoding import EncodedBatch, Network
from gryphone.recognition.question import Ask
from gryphone.recognition.result import Result, Symbol

NEAR = 0.3  # usual strokes: ink that close may be of the same symbol
SURE = 0.9  # of another symbol: what has settled gives way
UNSURE = 0.9  # what is new is refined once more below it
MOST_HISTORY = 1_000


@dataclass(frozen=True)
class Known:
    """A symbol of an earlier answer, with the numbers of its strokes; the user may have locked it.

    Where one of the strokes is gone, so is what was known.
    """

    symbol: str
    modifier: str
    strokes: tuple[int, ...]
    locked: bool = False


@dataclass(frozen=True)
class LiveResult(Result):
    """An answer while ink is written; its symbols' strokes are the session's numbers.

    kept: positions that were known before. erased: strokes that a gesture took away, and how.
    final: whether it is a full reading.
    """

    kept: tuple[int, ...] = ()
    erased: tuple[int, ...] = ()
    gestures: tuple[str, ...] = ()
    final: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        own = {"kept": list(self.kept), "erased": list(self.erased)}
        return super().to_dict() | own | {"gestures": list(self.gestures), "final": self.final}


@dataclass(frozen=True)
class State:
    """What is written, by number, and what is known of it."""

    strokes: Mapping[int, Stroke] = field(default_factory=dict)
    known: tuple[Known, ...] = ()
    result: LiveResult | None = None


class Session:
    """Ink and what it says, change by change. Every stroke has a number, which it keeps.

    Any process can go on with a session: `strokes` by number and what is `known` of them are all.
    """

    def __init__(
        self,
        network: Network,
        ask: Ask | None = None,
        *,
        gestures: bool = True,
        strokes: Mapping[int, Any] | None = None,
        known: Iterable[Known] = (),
    ) -> None:
        self.network, self.ask, self.gestures = network, ask or Ask(), gestures
        check_live(self.ask)
        given = dict(strokes or {})
        read = dict(zip(given, frozen_strokes(given.values(), "ink"), strict=True))
        for each in (known := tuple(known)):
            token_id(network.tokenizer, 0, each.symbol, "known")
        self._state = State(read, known)
        self._next = max(read, default=-1) + 1
        self._past: list[State] = []
        self._future: list[State] = []
        self._encoded: tuple[Mapping[int, Stroke], EncodedBatch] | None = None

    @property
    def strokes(self) -> Mapping[int, Stroke]:
        """What is written, by number."""
        return self._state.strokes

    @property
    def result(self) -> LiveResult | None:
        """The last answer."""
        return self._state.result

    def add(self, *strokes: Any) -> LiveResult:
        """Write strokes; one that is a gesture erases others, and itself."""
        new = frozen_strokes(strokes, "ink")
        numbers = range(self._next, self._next + len(new))
        self._next += len(new)
        return self._change({**self.strokes, **dict(zip(numbers, new, strict=True))}, numbers)

    def remove(self, *numbers: int) -> LiveResult:
        """Take strokes away."""
        self._check(numbers)
        return self._change({n: s for n, s in self.strokes.items() if n not in numbers})

    def replace(self, numbers: Sequence[int], *strokes: Any) -> LiveResult:
        """Take strokes away and write others, which are no gestures."""
        self._check(numbers)
        left = {n: s for n, s in self.strokes.items() if n not in numbers}
        new = frozen_strokes(strokes, "ink")
        left |= dict(zip(range(self._next, self._next + len(new)), new, strict=True))
        self._next += len(new)
        return self._change(left)

    def lock(self, position: int, symbol: str) -> LiveResult:
        """Keep a symbol of the last answer, or another in its place, while its ink is there."""
        if not 0 <= position < len(self._state.known):
            raise ConfigError(f"position is {position}; the answer has {len(self._state.known)}")
        token_id(self.network.tokenizer, 0, symbol, f"lock[{position}]")
        known = list(self._state.known)
        known[position] = replace(known[position], symbol=symbol, locked=True)
        return self._change(self.strokes, known=tuple(known))

    def undo(self) -> LiveResult | None:
        """What was before the last change, also one by a gesture or a lock."""
        return self._go(self._past, self._future)

    def redo(self) -> LiveResult | None:
        """What was undone last."""
        return self._go(self._future, self._past)

    def finish(self) -> LiveResult:
        """A full reading: that of `recognize`, but for what is locked."""
        found = self.read((), final=True)
        self._state = State(self.strokes, self._known(found), found)
        return found

    def read(self, new: Iterable[int], final: bool = False) -> LiveResult:
        """Read what is there; strokes that are `new` may be gestures, and then erase others."""
        began = time.perf_counter()
        erased, gestures = self._gestures(new)
        strokes = {n: s for n, s in self.strokes.items() if n not in erased}
        self._state = replace(self._state, strokes=strokes)
        if not strokes:
            empty = Result("", (), 1.0, (), (), 0, 0.0, self.ask.seed)
            return _live(empty, {}, erased, gestures, final=final)
        batch = self._look(strokes)
        found = self._finished(batch, began) if final else None
        kept: list[int] = []
        if found is None:
            found, kept = self._followed(batch, began)
        seconds = time.perf_counter() - began
        found = replace(found, seconds=seconds)
        return _live(found, dict(enumerate(strokes)), erased, gestures, kept, final)

    def _change(
        self,
        strokes: Mapping[int, Stroke],
        new: Iterable[int] = (),
        known: tuple[Known, ...] | None = None,
    ) -> LiveResult:
        before = self._state
        self._state = State(strokes, before.known if known is None else known)
        try:
            found = self.read(new)
        except BaseException:
            self._state = before
            raise
        self._past = [*self._past, before][-MOST_HISTORY:]
        self._future.clear()
        self._state = State(self.strokes, self._known(found), found)
        return found

    def _known(self, found: LiveResult) -> tuple[Known, ...]:
        """What is known after an answer; locks stay with their ink."""
        locked = {known.strokes: known.symbol for known in self._state.known if known.locked}
        return tuple(
            Known(s.symbol, s.modifier, s.strokes, locked.get(s.strokes) == s.symbol)
            for s in found.symbols
        )

    def _go(self, back: list[State], forth: list[State]) -> LiveResult | None:
        if back:
            forth.append(self._state)
            self._state = back.pop()
        return self.result

    def _check(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if number not in self.strokes:
                raise ConfigError(f"there is no stroke {number}; see session.strokes")

    def _gestures(self, new: Iterable[int]) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """The strokes that new ones take away, those themselves where they scratch, and how."""
        gone: list[int] = []
        names = []
        for number in new if self.gestures else ():
            earlier = {n: s for n, s in self.strokes.items() if n < number and n not in gone}
            symbols = [known.strokes for known in self._state.known]
            if done := erased_by(self.strokes[number], earlier, symbols):
                name, under = done
                gone += [*under, *([number] if name == "scratched" else ())]
                names.append(name)
        return tuple(gone), tuple(names)

    def _look(self, strokes: Mapping[int, Stroke]) -> EncodedBatch:
        if self._encoded is None or self._encoded[0].keys() != strokes.keys():
            given = Input(Ink(tuple(strokes.values())))
            self._encoded = strokes, EncodedBatch.of(self.network, [given])
        return self._encoded[1]

    def _finished(self, batch: EncodedBatch, began: float) -> Result:
        """What any reading says; once more where that is not what was locked."""
        found = answer(batch, 0, self.ask, began)
        wrong = {s.position: k.symbol for s, k in self._matched(found) if k.locked}
        if all(found.symbols[place].symbol == name for place, name in wrong.items()):
            return found
        return answer(batch, 0, replace(self.ask, lock=wrong), began)

    def _followed(self, batch: EncodedBatch, began: float) -> tuple[Result, list[int]]:
        """One step about everything, and one about what is new, around what has settled."""
        quick = replace(self.ask, steps=1, deadline_ms=None, on_step=None, n_best=1, samples=1)
        first = _ask_once(batch, quick, began)
        if self.network.checkpoint.config.kind != "diffusion":
            return first, []
        matched = self._matched(first)
        near = self._near({n for _, known in matched for n in known.strokes})
        ids = first.ids.copy()
        kept = []
        for symbol, known in matched:
            if known.symbol != symbol.symbol:
                if not known.locked and (symbol.confidence > SURE or near & {*known.strokes}):
                    continue
                ids[symbol.position, 0] = self.network.tokenizer.vocabularies[0].id(known.symbol)
            kept.append(symbol.position)
        doubtful = [
            s.position
            for s in first.symbols
            if s.position not in kept and (s.confidence < UNSURE or (ids != first.ids).any())
        ]
        if not doubtful and (ids == first.ids).all():
            return first, kept
        asked = replace(quick, given=replace(first, ids=ids), remask=tuple(doubtful))
        return _ask_once(batch, asked, began), kept

    def _matched(self, found: Result) -> list[tuple[Symbol, Known]]:
        """Symbols of an answer that have the very strokes of a known one."""
        numbers = list(self.strokes)
        by_strokes = {frozenset(k.strokes): k for k in self._state.known if k.strokes}
        pairs = [
            (s, by_strokes.get(frozenset(numbers[i] for i in s.strokes))) for s in found.symbols
        ]
        return [(symbol, known) for symbol, known in pairs if known is not None]

    def _near(self, known: set[int]) -> set[int]:
        """Those of the known strokes that new ones come near."""
        strokes = self.strokes
        new = [evenly(s) for n, s in strokes.items() if n not in known]
        if not new:
            return set()
        room = NEAR * typical_stroke(list(strokes.values()))
        ink = np.concatenate(new)
        return {
            n for n in known if (((evenly(strokes[n])[:, None] - ink) ** 2).sum(2).min() <= room**2)
        }


@dataclass(frozen=True)
class Resumed:
    """What any process needs, besides the strokes, to go on with a session."""

    known: tuple[Known, ...] = ()
    gestures: bool = True
    final: bool = False

    @classmethod
    def of(cls, known: Iterable[Mapping[str, Any]], gestures: bool, final: bool) -> Resumed:
        """The same from plain data."""
        rows = (Known(**each | {"strokes": tuple(each["strokes"])}) for each in known)
        return cls(tuple(rows), gestures, final)

    def read(self, network: Network, given: Input, ask: Ask) -> LiveResult:
        """The answer after the newest strokes, which nothing is known of."""
        strokes = dict(enumerate(given.ink.strokes))
        session = Session(network, ask, gestures=self.gestures, strokes=strokes, known=self.known)
        old = {number for known in self.known for number in known.strokes}
        return session.read([n for n in strokes if n not in old], self.final)


def check_live(ask: Ask) -> None:
    """Refuse what a session decides itself."""
    if ask.constrained or not ask.boxes or ask.as_written or ask.deadline_ms is not None:
        raise ConfigError(
            "ink that is being written is read without lock, hint, remask, given, allowed, "
            "as_written and deadline_ms, and with boxes; a symbol that is known can be locked"
        )


def _ask_once(batch: EncodedBatch, ask: Ask, began: float) -> Result:
    """An answer without a second look."""
    question = replace(prepare(batch, 0, ask), again=False)
    return answer_together([question], began, otherwise=False)[0]


def _live(
    found: Result,
    numbers: Mapping[int, int],
    erased: tuple[int, ...],
    gestures: tuple[str, ...],
    kept: Sequence[int] = (),
    final: bool = False,
) -> LiveResult:
    """An answer with the session's numbers for its strokes."""
    symbols = tuple(replace(s, strokes=tuple(numbers[i] for i in s.strokes)) for s in found.symbols)
    own = {name: getattr(found, name) for name in Result.__dataclass_fields__}
    return LiveResult(
        **own | {"symbols": symbols},
        kept=tuple(kept),
        erased=erased,
        gestures=gestures,
        final=final,
    )
