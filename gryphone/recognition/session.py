"""Ink that is still being written: known symbols stay, and what the new ink touches is read.

After each change the model looks at all the ink once. What it says of a symbol whose ink did not
change, and which no new ink is near, is not taken up unless it is sure: the symbol stays, is shown
to the decoder, and what is new is refined around it. `finish`, when the pen rests, is a reading
like any other.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gryphone.errors import ConfigError
from gryphone.ink import Ink, Stroke, typical_stroke
from gryphone.reading.gestures import erased_by, evenly
from gryphone.reading.inputs import Input, read_input
from gryphone.recognition.answer import answer, answer_together, prepare
from gryphone.recognition.constraints import token_id
from gryphone.recognition.encoding import EncodedBatch, Network
from gryphone.recognition.question import Ask
from gryphone.recognition.result import Result, Symbol
from gryphone.recognition.rows import spelt

NEAR = 0.3  # usual strokes: ink that close may be of the same symbol
SURE = 0.95  # of another symbol: what has settled gives way
UNSURE = 0.9  # what is new is refined once more below it
MOST_NEW = 8  # strokes at a time: more of them were opened, not written
MOST_HISTORY = 1_000
LOST = "no well-formed formula has {} where that was locked; the lock was dropped"


@dataclass(frozen=True)
class Known:
    """A symbol of an earlier answer, with the numbers of its strokes; the user may have locked it.

    Where one of the strokes is not there any more, nothing is known.
    """

    symbol: str
    modifier: str
    strokes: tuple[int, ...]
    locked: bool = False


@dataclass(frozen=True)
class LiveResult(Result):
    """An answer while ink is written; its symbols' strokes are numbered as they were given.

    kept: positions that are as they were known. erased: strokes that gestures took away, and which
    gestures. final: whether it is a full reading.
    """

    kept: tuple[int, ...] = ()
    erased: tuple[int, ...] = ()
    gestures: tuple[str, ...] = ()
    final: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        own = {name: list(getattr(self, name)) for name in ("kept", "erased", "gestures")}
        return super().to_dict() | own | {"final": self.final}


class Look:
    """What a network sees of ink, kept until it is asked about other ink."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._last: tuple[list[bytes], EncodedBatch] | None = None

    def __call__(self, strokes: Iterable[Stroke]) -> EncodedBatch:
        """Look at some strokes, if they are not those of the last time."""
        ink = Ink(tuple(strokes))
        same = [stroke.tobytes() for stroke in ink.strokes]
        if self._last is None or self._last[0] != same:
            self._last = same, EncodedBatch.of(self.network, [Input(ink)])
        return self._last[1]


@dataclass(frozen=True)
class Live:
    """Ink by the numbers of its strokes, and what is known of it: all that a session is.

    gestures: whether a stroke that nothing is known of may erase others, if there are few of them.
    final: whether the pen rests.
    """

    strokes: Mapping[int, Stroke] = field(default_factory=dict)
    known: tuple[Known, ...] = ()
    gestures: bool = True
    final: bool = False

    @classmethod
    def of(cls, strokes: Sequence[Stroke], known: Iterable[Mapping[str, Any]], **how: bool) -> Live:
        """The same from plain data."""
        rows = (Known(**{**each, "strokes": tuple(each["strokes"])}) for each in known)
        return cls(dict(enumerate(strokes)), tuple(rows), **how)

    def read(self, look: Look, ask: Ask) -> LiveResult:
        """The answer, after what gestures have erased."""
        check_live(ask)
        for each in self.known:
            token_id(look.network.tokenizer, 0, each.symbol, "known")
        began = time.perf_counter()
        erased, gestures = self._erased()
        own: dict[str, Any] = {"erased": erased, "gestures": gestures, "final": self.final}
        left = replace(self, strokes={n: s for n, s in self.strokes.items() if n not in erased})
        if not left.strokes:
            return LiveResult("", (), 1.0, (), (), 0, 0.0, ask.seed, **own)
        batch = look(left.strokes.values())
        found = left._finished(batch, ask, began) if self.final else left._followed(batch, ask)
        own["kept"] = tuple(s.position for s, k in left._matched(found) if s.symbol == k.symbol)
        own["symbols"] = left._numbered(found)
        own["seconds"] = time.perf_counter() - began
        said = {name: getattr(found, name) for name in Result.__dataclass_fields__}
        return LiveResult(**said | own)

    def after(self, found: LiveResult) -> Live:
        """What is there, and known, after an answer; locks stay with their ink."""
        strokes = {n: s for n, s in self.strokes.items() if n not in found.erased}
        locked = {frozenset(known.strokes): known.symbol for known in self.known if known.locked}
        known = (
            Known(s.symbol, s.modifier, s.strokes, locked.get(frozenset(s.strokes)) == s.symbol)
            for s in found.symbols
        )
        return replace(self, strokes=strokes, known=tuple(known))

    def _erased(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """The strokes that new ones take away, and how; what scratches is no ink itself."""
        old = {n for known in self.known for n in known.strokes}
        symbols = [known.strokes for known in self.known]
        gone: list[int] = []
        names = []
        new = [n for n in self.strokes if n not in old]
        for number in new if self.gestures and len(new) <= MOST_NEW else ():
            earlier = {n: s for n, s in self.strokes.items() if n < number and n not in gone}
            if done := erased_by(self.strokes[number], earlier, symbols):
                name, under = done
                gone += [*under, *([number] if name == "scratched" else ())]
                names.append(name)
        return tuple(gone), tuple(names)

    def _finished(self, batch: EncodedBatch, ask: Ask, began: float) -> Result:
        """What any reading says; once more where that is not what was locked."""
        found = answer(batch, 0, ask, began)
        lock = {s.position: k.symbol for s, k in self._matched(found) if k.locked}
        if all(found.symbols[place].symbol == name for place, name in lock.items()):
            return found
        if found.in_parts:
            network = batch.network
            symbols = [
                replace(s, symbol=lock[s.position], confidence=1.0) if s.position in lock else s
                for s in found.symbols
            ]
            row = spelt(symbols, found, network.tokenizer)
            if network.grammar.accepts(row.ids):
                return row
        return self._with_locks(found, answer(batch, 0, replace(ask, lock=lock), began))

    def _followed(self, batch: EncodedBatch, ask: Ask) -> Result:
        """One step about everything, and one about what is new, around what has settled."""
        quick = replace(ask, steps=1, on_step=None, n_best=1, samples=1)
        first = _ask_once(batch, quick)
        config = batch.network.checkpoint.config
        if config.kind != "diffusion" or len(first.ids) >= config.length:  # no place for an end
            return first
        kept = self._kept(first)
        ids = first.ids.copy()
        for place, name in kept.items():
            ids[place, 0] = batch.network.tokenizer.vocabularies[0].id(name)
        changed = bool((ids != first.ids).any())
        fresh = [s for s in first.symbols if s.position not in kept]
        again = [s.position for s in fresh if changed or s.confidence < UNSURE]
        if not again and not changed:
            return first
        asked = replace(quick, given=replace(first, ids=ids), remask=again, boxes=False)
        second = _ask_once(batch, asked)
        lock = {s.position: k.symbol for s, k in self._matched(first) if k.locked}
        alike = len(second.symbols) == len(first.symbols)
        if lock and not (alike and all(second.symbols[p].symbol == lock[p] for p in lock)):
            # A root or a fraction where a letter was: the rest must find new places.
            return self._with_locks(first, _ask_once(batch, replace(quick, lock=lock)))
        if not alike:  # what is well-formed comes first
            return _ask_once(batch, replace(asked, boxes=True))
        return _joined(first, second, kept.keys() - lock.keys())

    def _with_locks(self, found: Result, locked: Result) -> Result:
        """The answer to what is locked; the one without, which says so, where that cannot be."""
        wanted = {k.strokes: k.symbol for _, k in self._matched(found) if k.locked}
        held = {k.strokes for s, k in self._matched(locked) if k.locked and s.symbol == k.symbol}
        lost = ", ".join(symbol for strokes, symbol in wanted.items() if strokes not in held)
        if not lost:
            return locked
        return replace(found, warnings=(*found.warnings, LOST.format(lost)))

    def _kept(self, found: Result) -> dict[int, str]:
        """What stands at those positions of a new answer whose ink was known."""
        matched = self._matched(found)
        same = {n for _, known in matched for n in known.strokes}
        other = [s for n, s in self.strokes.items() if n not in same]
        touched = near(other, {n: self.strokes[n] for n in same})
        return {
            symbol.position: known.symbol
            for symbol, known in matched
            if known.locked
            or known.symbol == symbol.symbol
            or not (symbol.confidence > SURE or touched & {*known.strokes})
        }

    def _matched(self, found: Result) -> list[tuple[Symbol, Known]]:
        """Symbols of an answer with the known ones that have the very same strokes."""
        known = {frozenset(each.strokes): each for each in self.known if each.strokes}
        pairs = zip(found.symbols, self._numbered(found), strict=True)
        return [(s, known[own]) for s, n in pairs if (own := frozenset(n.strokes)) in known]

    def _numbered(self, found: Result) -> tuple[Symbol, ...]:
        """An answer's symbols with our numbers for their strokes."""
        return found.on(list(self.strokes))


class Session:
    """Ink that is being written. Every stroke has a number, which it keeps."""

    def __init__(self, network: Network, ask: Ask | None = None, *, gestures: bool = True) -> None:
        self.ask, self._look = ask or Ask(), Look(network)
        check_live(self.ask)
        self._live, self.result = Live(gestures=gestures), None
        self._next = 0
        self._past: list[tuple[Live, LiveResult | None]] = []
        self._future: list[tuple[Live, LiveResult | None]] = []

    result: LiveResult | None  # the last answer

    @property
    def strokes(self) -> Mapping[int, Stroke]:
        """What is written, by number."""
        return self._live.strokes

    def add(self, *strokes: Any) -> LiveResult:
        """Write strokes; one that is a gesture erases others."""
        return self.replace((), *strokes)

    def remove(self, *numbers: int) -> LiveResult:
        """Take strokes away."""
        return self.replace(numbers)

    def replace(self, numbers: Sequence[int], *strokes: Any) -> LiveResult:
        """Take strokes away and write others, which have any form that `recognize` reads."""
        if not isinstance(numbers, Collection):
            raise ConfigError(f"numbers is {numbers!r}; give a list, as [3]")
        for number in numbers:
            if number not in self.strokes:
                raise ConfigError(f"there is no stroke {number}; session.strokes has all")
        left = {n: s for n, s in self.strokes.items() if n not in numbers}
        new = read_input(strokes).ink.strokes if strokes else ()
        found = self._change(replace(self._live, strokes=left | dict(enumerate(new, self._next))))
        self._next += len(new)
        return found

    def lock(self, position: int, symbol: str) -> LiveResult:
        """Keep a symbol of the last answer, or another for it, while its strokes are one."""
        known = list(self._live.known)
        if not isinstance(position, int) or not 0 <= position < len(known):
            raise ConfigError(f"position is {position!r}; the answer has {len(known)} symbols")
        if not known[position].strokes:
            raise ConfigError(f"the symbol at position {position} has no strokes to be locked with")
        known[position] = replace(known[position], symbol=symbol, locked=True)
        return self._change(replace(self._live, known=tuple(known)))

    def finish(self) -> LiveResult:
        """A full reading: that of `recognize`, but for what is locked."""
        self.result = replace(self._live, final=True).read(self._look, self.ask)
        self._live = self._live.after(self.result)
        return self.result

    def undo(self) -> LiveResult | None:
        """What was before the last change, also one by a gesture or a lock."""
        return self._go(self._past, self._future)

    def redo(self) -> LiveResult | None:
        """What was undone last."""
        return self._go(self._future, self._past)

    def _change(self, live: Live) -> LiveResult:
        found = live.read(self._look, self.ask)
        self._past = [*self._past, (self._live, self.result)][-MOST_HISTORY:]
        self._future.clear()
        self._live, self.result = live.after(found), found
        return found

    def _go(self, back: list[Any], forth: list[Any]) -> LiveResult | None:
        if back:
            forth.append((self._live, self.result))
            self._live, self.result = back.pop()
        return self.result


def check_live(ask: Ask) -> None:
    """Refuse what a session decides itself."""
    if ask.constrained or not ask.boxes or ask.as_written or ask.deadline_ms is not None:
        raise ConfigError(
            "ink that is being written is read without lock, hint, remask, given, allowed, "
            "as_written and deadline_ms, and with boxes; a symbol that is known can be locked"
        )


def near(new: Sequence[Stroke], earlier: Mapping[int, Stroke]) -> set[int]:
    """Those of some strokes that new ones come near; where many are new, all of them."""
    if not new or len(new) > MOST_NEW or not earlier:
        return set(earlier) if new else set()
    room = NEAR * typical_stroke([*earlier.values(), *new])
    ink = np.concatenate([evenly(stroke) for stroke in new])

    def is_near(stroke: Stroke) -> bool:
        return bool((((evenly(stroke)[:, None] - ink) ** 2).sum(2) <= room**2).any())

    return {n for n, stroke in earlier.items() if is_near(stroke)}


def _ask_once(batch: EncodedBatch, ask: Ask) -> Result:
    """An answer without a second look."""
    question = replace(prepare(batch, 0, replace(ask, unfinished=True)), again=False)
    return answer_together([question], time.perf_counter(), otherwise=False)[0]


def _joined(first: Result, second: Result, kept: Collection[int]) -> Result:
    """The second answer; the first said where its symbols are, and doubted those that were kept."""
    symbols = []
    for one, two in zip(first.symbols, second.symbols, strict=True):
        two = replace(two, box=one.box, strokes=one.strokes)
        if one.position in kept:
            odds = {one.symbol: one.confidence, **dict(one.alternatives)}
            sure = odds.pop(two.symbol, 0.0)
            two = replace(two, confidence=sure, alternatives=tuple(odds.items()))
        symbols.append(two)
    whole = min([second.confidence, *(symbols[place].confidence for place in kept)])
    return replace(second, symbols=tuple(symbols), confidence=whole)
