"""Only well-formed LaTeX: the most probable valid sequence under a model's own distributions.

The automaton of `latex.automaton` reads one row (symbol and modifier, or raw token) after the
other. Symbols that behave alike share a class, so the best symbol of each class is all a search
has to look at; of the rows that lead to one state only the best lives on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gryphone.errors import ConfigError
from gryphone.latex.automaton import (
    START,
    Effect,
    Frame,
    State,
    accepting,
    action_of,
    after,
    apply,
    run,
    weight,
)
from gryphone.tokens import EMPTY, MASK, MASK_ID, PAD, PAD_ID, Tokenizer

_FLOOR = 1e6  # minus this stands for -inf and NaN: worse than any real log-prob, yet possible
_NEVER = 10_000
_MOST_ALONE = 8  # rows after which one frame that is still open counts as impossible to close
_REMEMBERED = 100_000  # states whose way to an end is kept
_CLOSING = frozenset({"plain", "letter", "column", "empty", "{", "}", "any ]"})

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class _Effects(NamedTuple):
    """The effects on one frame, the rows that have each (`rows[starts[i]:starts[i + 1]]`), and
    the effects that lead towards an end."""

    effects: list[Effect]
    rows: Ints
    starts: Ints
    closing: list[Effect]


class Grammar:
    """The well-formed sequences of one tokenizer; build it once, it remembers what it met."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._actions = _actions(tokenizer)
        self._barred = np.array([a is None for a in self._actions])
        self._barred[PAD_ID] = False
        raw = len(tokenizer.vocabularies) == 1
        self._halves = [_halves(m) for m in (("",) if raw else tokenizer.vocabularies[1].tokens)]
        self._most_closed = max(1 + len(halves[1]) for halves in self._halves if halves)
        self.classes = sorted({action for action in self._actions if action})
        self.members = [
            np.array([i for i, a in enumerate(self._actions) if a == name], dtype=np.int64)
            for name in self.classes
        ]
        self._plan_rows()
        self.effects = cache(self._effects_on)  # what the rows make of an innermost frame
        self._to_end: dict[State, tuple[int, int]] = {}  # rows too few, rows enough
        self._rows_alone = cache(self._rows_alone_of)
        self._rows_to_close = cache(lambda frame: self._rows_alone((True, (Frame(), frame))))
        if self._rows_alone(START) >= _NEVER:
            raise ConfigError(
                "no formula can be written with this vocabulary; add a symbol such as x"
            )

    def accepts(self, ids: npt.ArrayLike) -> bool:
        """Whether (n, S) ids are a well-formed formula; behind a PAD only PAD may follow."""
        array = np.asarray(ids)
        length = _length(array)
        if (array[length:, 0] != PAD_ID).any():
            return False
        state: State | None = START
        for symbol, *modifier in array[:length].tolist():
            action = self._actions[symbol]
            halves = self._halves[modifier[0]] if modifier else ("", "")
            if action is None or halves is None or (action == "empty" and not all(halves)):
                return False
            state = run(state, (*halves[0], action, *halves[1])) if state else None
        return state is not None and accepting(state)

    def best(self, log_probs: Sequence[npt.ArrayLike], *, beam: int = 32) -> npt.NDArray[np.int16]:
        """The most probable well-formed ids (n, S), 1 <= n <= L, under log-probs [(L, V_s)].

        Behind the formula every place up to L counts as PAD. A log-prob of -inf or NaN is worse
        than any number, yet possible.
        """
        if beam < 1:
            raise ConfigError(f"beam is {beam}; it must be 1 or more")
        streams = self._streams(log_probs)
        ids = np.stack([stream.argmax(1) for stream in streams], 1)
        if self.accepts(ids):
            return ids[: _length(ids)].astype(np.int16)
        if len(self._to_end) > _REMEMBERED:
            self._to_end.clear()
        return _Search(self, streams).best(beam)

    def can_end(self, state: State, rows: int) -> bool:
        """Whether a state can become a whole formula within some rows."""
        seen, (outer, *frames) = state
        if len(frames) > rows * self._most_closed:
            return False
        # Frames closed one by one: a bound that costs little and mostly settles it.
        apart = self._rows_alone((seen, (outer,))) + sum(map(self._rows_to_close, frames))
        return apart <= rows or self._can_end(state, rows)

    def _can_end(self, state: State, rows: int) -> bool:
        if accepting(state):
            return True
        too_few, enough = self._to_end.get(state, (0, _NEVER))
        if too_few < rows < enough and len(state[1]) - 1 <= rows * self._most_closed:
            ends = (after(state, effect) for effect in self.effects(state[1][-1]).closing)
            nearest = sorted({end for end in ends if end}, key=_depth)
            found = any(self._can_end(end, rows - 1) for end in nearest)
            too_few, enough = (too_few, rows) if found else (rows, enough)
            self._to_end[state] = (too_few, enough)
        return rows >= enough

    def _rows_alone_of(self, state: State) -> int:
        """The least rows that end a state with next to nothing open."""
        rows = (rows for rows in range(_MOST_ALONE) if self._can_end(state, rows))
        return next(rows, _NEVER)

    def _plan_rows(self) -> None:
        """Number the rows (class, modifier) that can be legal, sorted by how they begin."""
        pairs: list[tuple[int, int]] = []
        self._plan: dict[str, dict[str, list[tuple[str, int]]]] = {}
        for modifier, halves in enumerate(self._halves):
            for index, action in enumerate(self.classes):
                # An empty group is all that the placeholder may stand for.
                if halves is None or (action == "empty" and not all(halves)):
                    continue
                ends = self._plan.setdefault(halves[0], {}).setdefault(action, [])
                ends.append((halves[1], len(pairs)))
                pairs.append((index, modifier))
        table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        self.row_class, self.row_modifier = table[:, 0], table[:, 1]

    def _effects_on(self, top: Frame) -> _Effects:
        found: dict[Effect, list[int]] = {}
        closing: dict[Effect, None] = {}
        for openers, classes in self._plan.items():
            if apply(False, (top,), openers) is None:
                continue
            for action, ends in classes.items():
                for closers, row in ends:
                    effect = apply(False, (top,), (*openers, action, *closers))
                    if effect is not None:
                        found.setdefault(effect, []).append(row)
                        led = action in _CLOSING or action.startswith("end ")
                        if led or top.want == "base":  # which only scripts come behind
                            closing[effect] = None
        rows = [np.array(rows, dtype=np.int64) for rows in found.values()]
        starts = np.cumsum([0, *(len(r) for r in rows)])[:-1]
        # A symbol can be all that a formula lacks; else only what makes things lighter helps.
        lighter = [
            e
            for e in closing
            if weight(e.frames) < weight((top,)) or (not top.kind and e.frames == (top,))
        ]
        return _Effects(list(found), np.concatenate([*rows, starts[:0]]), starts, lighter)

    def _streams(self, log_probs: Sequence[npt.ArrayLike]) -> list[Floats]:
        """Checked copies of the log-probs; only what may never be an answer is -inf there."""
        sizes = [len(vocabulary) for vocabulary in self.tokenizer.vocabularies]
        arrays = [np.asarray(stream, dtype=np.float64) for stream in log_probs]
        length = len(arrays[0]) if arrays and arrays[0].ndim else 0
        if [a.shape for a in arrays] != [(length, size) for size in sizes] or not length:
            wanted = ", ".join(f"(L, {size})" for size in sizes)
            raise ConfigError(
                f"log_probs of shapes {[a.shape for a in arrays]}; they must be [{wanted}], L >= 1"
            )
        streams = [np.clip(np.nan_to_num(a, nan=-_FLOOR), -_FLOOR, _FLOOR) for a in arrays]
        for stream in streams:
            stream[:, MASK_ID] = -np.inf
        streams[0][:, self._barred] = -np.inf
        return streams


class _Search:
    """One search over the places of a canvas."""

    def __init__(self, grammar: Grammar, streams: list[Floats]) -> None:
        self.grammar, self.symbols = grammar, streams[0]
        classes = np.stack([streams[0][:, m].max(1) for m in grammar.members], 1)  # (L, C)
        self.rows = classes[:, grammar.row_class]  # (L, K) log-probs of the rows
        pads = streams[0][:, PAD_ID].copy()
        for modifiers in streams[1:]:
            self.rows = self.rows + modifiers[:, grammar.row_modifier]
            pads += modifiers.max(1)  # behind the end a modifier means nothing: any will do
        self.offers = cache(self._offers_of)
        self.tail = _sums_to_end(pads)  # (L + 1,) of ending before a place
        self.bound = _sums_to_end(np.maximum(self.rows.max(1), pads))  # (L + 1,) at best

    def best(self, beam: int) -> npt.NDArray[np.int16]:
        """Sweep narrowly for any answer, then widely for better ones."""
        score, path = self.sweep(min(2, beam), -np.inf)
        path = self.sweep(beam, score)[1] or path
        if not path:
            raise ConfigError(f"no well-formed formula has {len(self.rows)} places at most")
        return self.ids(path)

    def sweep(self, beam: int, floor: float) -> tuple[float, list[int]]:
        """The best sequence of rows above a score; no rows when there is none."""
        length = len(self.rows)
        states, totals = [START], np.zeros(1)
        history: list[list[tuple[int, int]]] = []
        path: list[int] = []
        for place in range(length + 1):
            for i in [i for i, state in enumerate(states) if accepting(state)]:
                if totals[i] + self.tail[place] > floor:
                    floor, path = float(totals[i] + self.tail[place]), _trace(history, i)
            if place == length:
                break
            offers = [self.offers(place, frames[-1]) for _, frames in states]
            values = np.concatenate([t + offer for t, offer in zip(totals, offers, strict=True)])
            found = np.flatnonzero(values + self.bound[place + 1] > floor)
            found = found[np.argsort(-values[found], kind="stable")]
            ends = self.ends(states, [len(o) for o in offers], found, place + 1)
            kept = dict(islice(ends, beam))
            if not kept:
                break
            states, totals = list(kept), values[[entry for entry, _, _ in kept.values()]]
            history.append([(i, self.row(place, *at)) for _, i, at in kept.values()])
        return floor, path

    def _offers_of(self, place: int, top: Frame) -> Floats:
        """The best log-prob of each effect on an innermost frame."""
        effects = self.grammar.effects(top)
        best: Floats = np.maximum.reduceat(self.rows[place, effects.rows], effects.starts)
        return best

    def row(self, place: int, top: Frame, effect: int) -> int:
        """The best row that has an effect."""
        effects = self.grammar.effects(top)
        start, *stop = effects.starts[effect : effect + 2]
        rows = effects.rows[start : stop[0] if stop else None]
        return int(rows[self.rows[place, rows].argmax()])

    def ends(
        self, states: list[State], sizes: list[int], found: Ints, place: int
    ) -> Iterator[tuple[State, tuple[int, int, tuple[Frame, int]]]]:
        """New states in the order of the entries found, each once, unless they lead nowhere."""
        firsts = np.cumsum([0, *sizes])
        owners = np.searchsorted(firsts, found, "right") - 1
        met: set[State] = set()
        for entry, i in zip(found.tolist(), owners.tolist(), strict=True):
            top, effect = states[i][1][-1], entry - int(firsts[i])
            end = after(states[i], self.grammar.effects(top).effects[effect])
            if end is not None and end not in met:
                met.add(end)
                if self.grammar.can_end(end, len(self.rows) - place):
                    yield end, (entry, i, (top, effect))

    def ids(self, path: list[int]) -> npt.NDArray[np.int16]:
        """The ids (n, S) of some rows."""
        grammar, out = self.grammar, []
        for place, row in enumerate(path):
            members = grammar.members[grammar.row_class[row]]
            symbol = members[self.symbols[place, members].argmax()]
            out.append((symbol, grammar.row_modifier[row]))
        return np.array(out, dtype=np.int16)[:, : len(grammar.tokenizer.vocabularies)]


def _actions(tokenizer: Tokenizer) -> list[str | None]:
    """What each entry of the first stream does; None where it is never an answer."""
    raw = len(tokenizer.vocabularies) == 1
    actions: list[str | None] = []
    for token in tokenizer.vocabularies[0].tokens:
        action = None if token in (PAD, MASK) else action_of(token, raw)
        if token == EMPTY:
            action = None if raw else "empty"
        actions.append(action)
    return actions


def _halves(modifier: str) -> tuple[str, str] | None:
    """A modifier's openers and closers; None for what is no modifier."""
    closers = modifier.lstrip("{^_[")
    return None if closers.strip("}]") else (modifier[: len(modifier) - len(closers)], closers)


def _length(ids: npt.NDArray[np.integer]) -> int:
    """Rows before the first PAD."""
    stops = np.flatnonzero(ids[:, 0] == PAD_ID)
    return int(stops[0]) if len(stops) else len(ids)


def _sums_to_end(values: Floats) -> Floats:
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)


def _trace(history: list[list[tuple[int, int]]], at: int) -> list[int]:
    """The rows that led to one of the last states."""
    path = []
    for states in reversed(history):
        at, row = states[at]
        path.append(row)
    return path[::-1]


def _depth(state: State) -> int:
    return len(state[1])
