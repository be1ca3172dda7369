r"""What the user knows about the answer, as constraints on decoding.

Locks fix symbols by position. A hint is LaTeX with holes, `\frac{?}{...}`: `?` is one symbol and
`...` any run of symbols. Allowed symbols restrict every position.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gryphone.decoding import Constraint, Decoded
from gryphone.errors import ConfigError, GryphoneError, TokenError
from gryphone.latex.lexer import tokenize
from gryphone.latex.normalize import normalize
from gryphone.recognition.encoding import EncodedBatch
from gryphone.recognition.question import Ask
from gryphone.recognition.result import Result
from gryphone.tokens import MASK_ID, PAD_ID, Tokenizer

ONE, RUN = "?", "..."
MOST_RUNS = 3
MOST_HYPOTHESES = 24  # ways to share out the symbols among the runs of a hint
MOST_SHOWN = 60  # characters of the user's own text in an error
_RUN_COMMAND = r"\anyrun"  # what `...` is called while the hint is read as LaTeX

Lock = Mapping[int, str | Sequence[str]]


def blank(tokenizer: Tokenizer, length: int) -> list[np.ndarray]:
    """Options (length, V) per stream with nothing forbidden but MASK."""
    sizes = [len(vocabulary) for vocabulary in tokenizer.vocabularies]
    options = [np.ones((length, size), dtype=bool) for size in sizes]
    for o in options:
        o[:, MASK_ID] = False
    return options


def leave_only(options: np.ndarray, place: int, token: int) -> None:
    """Leave one option at a place, and nothing when it was forbidden before."""
    kept = bool(options[place, token])
    options[place] = False
    options[place, token] = kept


def quoted(text: str) -> str:
    """A user's text in quotes for an error, cut where it is long (not by `...`, which is a run)."""
    return repr(text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…")


def token_id(tokenizer: Tokenizer, stream: int, token: str, where: str) -> int:
    """The id of a token, or an error that names the place and the nearest known tokens."""
    vocabulary = tokenizer.vocabularies[stream]
    if token not in vocabulary.names:
        near = difflib.get_close_matches(token, vocabulary.names, 3, 0.5)
        hint = (
            f"; did you mean {' or '.join(near)}?"
            if near
            else "; `gryphone info --json` lists them"
        )
        raise TokenError(
            f"{where}: {quoted(token)} is not among the model's {len(vocabulary.names)} "
            f"{tokenizer.streams[stream]}{hint}"
        )
    return vocabulary.id(token)


def given_of(tokenizer: Tokenizer, rows: Sequence[Sequence[str]]) -> Result:
    """An earlier answer by the names of its tokens."""
    streams = len(tokenizer.vocabularies)
    ids = []
    for place, row in enumerate(rows):
        if len(row) != streams:
            raise ConfigError(f"given.{place}: {len(row)} entries, {streams} are needed")
        ids.append([token_id(tokenizer, s, t, f"given.{place}") for s, t in enumerate(row)])
    return Result("", (), 0.0, (), (), 0, 0.0, 0, ids=np.array(ids, dtype=np.int64))


def apply_allowed(
    options: Sequence[np.ndarray], tokenizer: Tokenizer, allowed: str | Iterable[str]
) -> None:
    """Forbid symbols that are not allowed, except where one is fixed; a string is LaTeX tokens."""
    names = tokenize(allowed) if isinstance(allowed, str) else list(allowed)
    if not names:
        raise ConfigError("allowed is empty; name at least one symbol")
    mask = np.zeros(options[0].shape[1], dtype=bool)
    mask[[PAD_ID, *(token_id(tokenizer, 0, name, "allowed") for name in names)]] = True
    options[0][options[0].sum(1) > 1] &= mask


def apply_lock(
    options: Sequence[np.ndarray], shown: np.ndarray, tokenizer: Tokenizer, lock: Lock
) -> None:
    """Fix symbols at positions; a value may be (symbol, modifier) to fix the structure as well."""
    for place, value in lock.items():
        where = f"lock[{place}]"
        if isinstance(place, bool) or not isinstance(place, (int, np.integer)):
            raise ConfigError(f"lock: position {place!r} is no whole number")
        if not 0 <= place < len(shown) - 1:
            raise ConfigError(f"{where}: positions go from 0 to {len(shown) - 2}")
        entries = [value] if isinstance(value, str) else list(value)
        if not 1 <= len(entries) <= len(options):
            raise ConfigError(f"{where}: give a symbol, or a pair (symbol, modifier)")
        for stream, entry in enumerate(entries):
            leave_only(options[stream], place, token_id(tokenizer, stream, entry, where))
        shown[place] = True
    if lock:
        options[0][: max(lock), PAD_ID] = False


def keep_rows(
    options: Sequence[np.ndarray], shown: np.ndarray, ids: np.ndarray, free: Iterable[int]
) -> None:
    """Fix the rows (n, S) of an earlier answer except the `free` positions, and its end."""
    wanted = set(free)
    wrong = sorted(p for p in wanted if not 0 <= p < len(ids))
    if wrong:
        raise ConfigError(f"remask: position {wrong[0]} is outside the answer's 0..{len(ids) - 1}")
    if len(ids) > len(shown) - 1:
        raise ConfigError(
            f"given: {len(ids)} symbols, the canvas holds {len(shown) - 1}; give less"
        )
    for place, row in enumerate(ids):
        if place in wanted:
            options[0][place, PAD_ID] = False
            continue
        for stream, token in enumerate(row):
            leave_only(options[stream], place, int(token))
        shown[place] = True
    close(options, shown, len(ids))


def close(options: Sequence[np.ndarray], shown: np.ndarray, length: int) -> None:
    """End the answer after `length` tokens."""
    for o in options:
        leave_only(o, length, PAD_ID)
    options[0][:length, PAD_ID] = False
    shown[length] = True


class Hint:
    """A parsed hint: rows with their holes."""

    def __init__(self, source: str, tokenizer: Tokenizer, convention: str) -> None:
        try:
            tokens = tokenize(source.replace(RUN, f" {_RUN_COMMAND} "))
            rows = [
                (RUN, *row[1:]) if row[0] == _RUN_COMMAND else row
                for row in tokenizer.split(normalize(tokens, convention))
            ]
        except GryphoneError as error:
            raise ConfigError(f"hint {quoted(source)}: {error}") from error
        if not rows:
            raise ConfigError("hint is empty; write LaTeX with ? for one symbol, ... for a run")
        self.rows, self.tokenizer, self.source = rows, tokenizer, source
        for symbol, *modifiers in rows:
            if symbol not in (ONE, RUN):
                token_id(tokenizer, 0, symbol, f"hint {quoted(source)}")
            for modifier in modifiers if symbol != RUN else ():
                token_id(tokenizer, 1, modifier, f"hint {quoted(source)}")
        self.runs = sum(row[0] == RUN for row in rows)
        if self.runs > MOST_RUNS:
            raise ConfigError(
                f"hint {quoted(source)} has {self.runs} runs; {MOST_RUNS} are the most"
            )
        # A run that carries structure marks needs a symbol to hang them on.
        self.least = [int(bool("".join(row[1:]))) for row in rows if row[0] == RUN]

    def lengths(self, first: Decoded, longest: int) -> list[tuple[int, ...]]:
        """Lengths of the runs worth trying, by what the first look at the ink said is where."""
        if not self.runs:
            return [()]
        fixed, least = len(self.rows) - self.runs, sum(self.least)
        total = min(max(len(first.ids) - fixed, least), longest - 1 - fixed)
        if total < least:
            raise ConfigError(f"hint {quoted(self.source)} is longer than the model's canvas")
        near = range(max(least, total - 2), min(total + 2, longest - 1 - fixed) + 1)
        found = [
            split
            for size in near
            for split in _shares(size, self.runs)
            if all(n >= m for n, m in zip(split, self.least, strict=True))
        ]
        seen = first.looks.distributions()
        found.sort(key=lambda split: -self._fit(split, seen))
        return found[:MOST_HYPOTHESES]

    def _fit(self, split: Sequence[int], seen: Sequence[np.ndarray]) -> float:
        """How probable the known symbols are at the places that a split gives them."""
        place, total, runs = 0, 0.0, iter(split)
        for row in self.rows:
            if row[0] == RUN:
                place += next(runs)
                continue
            if row[0] != ONE and place < len(seen[0]):
                token = self.tokenizer.vocabularies[0].id(row[0])
                total += max(float(seen[0][place, token]), -12.0)
            place += 1
        return total + (max(float(seen[0][place, PAD_ID]), -12.0) if place < len(seen[0]) else 0)

    def apply(self, options: Sequence[np.ndarray], shown: np.ndarray, runs: Sequence[int]) -> None:
        """Write the hint, its runs of the given lengths, onto a canvas."""
        place, lengths = 0, iter(runs)
        for symbol, *modifiers in self.rows:
            if symbol == RUN:
                place = self._run(options, place, next(lengths), "".join(modifiers))
                continue
            if place >= len(shown) - 1:
                raise ConfigError(f"hint {quoted(self.source)} is longer than the model's canvas")
            if symbol != ONE:
                leave_only(options[0], place, self.tokenizer.vocabularies[0].id(symbol))
                shown[place] = True
            for modifier in modifiers:
                leave_only(options[1], place, self.tokenizer.vocabularies[1].id(modifier))
            place += 1
        close(options, shown, place)

    def _run(self, options: Sequence[np.ndarray], place: int, n: int, marks: str) -> int:
        """A run of n symbols that opens and closes the groups written around it."""
        if len(options) > 1 and n and marks:
            names = self.tokenizer.vocabularies[1].tokens
            opening = marks.rstrip("}]")
            closing = marks[len(opening) :]
            fits_first = np.array([name.startswith(opening) for name in names])
            fits_last = np.array([name.endswith(closing) for name in names])
            if n == 1:
                fits_first = np.array([name == marks for name in names])
            options[1][place] &= fits_first
            options[1][place + n - 1] &= fits_last
        return place + n


def _shares(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every way to share out `total` among `parts`."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _shares(total - first, parts - 1):
            yield (first, *rest)


def constraint_of(
    batch: EncodedBatch, index: int, ask: Ask, deadline: float | None = None
) -> Constraint:
    """What a question about an input fixes; a hint's runs get their lengths by trying some."""
    if ask.hint is None:
        return _fixed(batch, ask)
    network = batch.network
    hint = Hint(ask.hint, network.tokenizer, network.checkpoint.convention)

    def tried(steps: int, *few: Constraint, until: float | None = None) -> list[Decoded]:
        count = max(1, len(few))
        quick = replace(ask, steps=min(steps, ask.total_steps))
        keys = np.zeros(count, dtype=np.int64)
        request = network.request(quick, keys, few or None, until)
        return batch.refine(np.full(count, index), request)

    first = tried(1)[0]
    runs = hint.lengths(first, network.checkpoint.config.length)
    ways = [_fixed(batch, ask, hint, lengths) for lengths in runs]
    if len(ways) == 1:
        return ways[0]
    found = tried(4, *ways, until=half_of(deadline))
    return ways[int(np.argmax([_plausibility(decoded, first) for decoded in found]))]


def _fixed(
    batch: EncodedBatch, ask: Ask, hint: Hint | None = None, runs: Sequence[int] = ()
) -> Constraint:
    """Hint, earlier answer, locks and allowed symbols, in that order."""
    tokenizer, length = batch.network.tokenizer, batch.network.checkpoint.config.length
    options, shown = blank(tokenizer, length), np.zeros(length, dtype=bool)
    if hint is not None:
        hint.apply(options, shown, runs)
    if ask.given is not None:
        keep_rows(options, shown, ask.given.ids, {*ask.remask, *ask.lock})
    apply_lock(options, shown, tokenizer, ask.lock)
    if ask.allowed is not None:
        apply_allowed(options, tokenizer, ask.allowed)
    return Constraint(tuple(options), shown)


def half_of(deadline: float | None) -> float | None:
    """When half of the time that is left will be over: the other half is for the answer."""
    now = time.perf_counter()
    return None if deadline is None else now + (deadline - now) / 2


def _plausibility(found: Decoded, first: Decoded) -> float:
    """How well an answer fits the ink: its own log-probs, and those before anything was known."""
    total = float(found.log_probs.sum())
    for s, distribution in enumerate(first.looks.distributions()):
        n = min(len(found.ids) + 1, len(distribution))
        ids = np.append(found.ids[:, s], PAD_ID)[:n]
        total += float(np.maximum(distribution[np.arange(n), ids], -12).sum())
    return total
