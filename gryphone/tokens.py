"""Tokens to ids and back: symbol-aware tokens (SAT) and raw LaTeX behind one interface."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from gryphone.errors import TokenError

PAD, MASK = "<pad>", "<mask>"
PAD_ID, MASK_ID = 0, 1
# Carries the modifiers of an empty group or a script without content: a symbol without a glyph.
EMPTY = "<empty>"

OPENERS = frozenset({"{", "^", "_"})
CLOSERS = frozenset({"}"})
_INDEX_OPEN, _INDEX_CLOSE = "[", "]"
_PREFIX = OPENERS | {_INDEX_OPEN}

Ids = npt.NDArray[np.int16]


def sat_split(tokens: Sequence[str]) -> list[tuple[str, str]]:
    """Symbol-modifier pairs: openers lean on the symbol to their right, closers to their left.

    A modifier is the run of openers and the run of closers, written together: the two alphabets
    are disjoint, so `_{}}` can only mean `_ {` before the symbol and `} }` behind it.
    """
    index_marks = _root_index_marks(tokens)
    pairs: list[tuple[str, str]] = []
    pending = ""
    for at, token in enumerate(tokens):
        if token in (PAD, EMPTY):
            raise TokenError(f"token {at} is {token}, which is reserved; remove it from the label")
        if token in OPENERS or (token == _INDEX_OPEN and at in index_marks):
            pending += token
        elif token in CLOSERS or (token == _INDEX_CLOSE and at in index_marks):
            if pending or not pairs:
                pairs.append((EMPTY, pending))
                pending = ""
            symbol, modifier = pairs[-1]
            pairs[-1] = (symbol, modifier + token)
        else:
            pairs.append((token, pending))
            pending = ""
    if pending:
        pairs.append((EMPTY, pending))
    return pairs


def sat_join(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """The tokens that `sat_split` took apart."""
    tokens: list[str] = []
    for symbol, modifier in pairs:
        opening = openers_of(modifier)
        tokens += modifier[:opening]
        if symbol != EMPTY:
            tokens.append(symbol)
        tokens += modifier[opening:]
    return tokens


def openers_of(modifier: str) -> int:
    """How many marks of a modifier stand before the symbol."""
    opening = 0
    while opening < len(modifier) and modifier[opening] in _PREFIX:
        opening += 1
    return opening


def _root_index_marks(tokens: Sequence[str]) -> set[int]:
    """Where the brackets of root indices stand: behind `\\sqrt`, closed at the same brace depth."""
    marks: set[int] = set()
    opened: list[tuple[int, int]] = []
    depth = 0
    for at, token in enumerate(tokens):
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
            while opened and opened[-1][1] > depth:
                opened.pop()
        elif token == _INDEX_OPEN and at and tokens[at - 1] == r"\sqrt":
            opened.append((at, depth))
        elif token == _INDEX_CLOSE and opened and opened[-1][1] == depth:
            marks.update((opened.pop()[0], at))
    return marks


@dataclass(frozen=True)
class Vocabulary:
    """Tokens in the order of their ids; the first two are always PAD and MASK."""

    tokens: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.tokens[:2] != (PAD, MASK):
            raise TokenError(f"a vocabulary starts with {PAD}, {MASK}, not {self.tokens[:2]}")
        if len(self.tokens) > np.iinfo(np.int16).max:
            raise TokenError(f"{len(self.tokens)} tokens do not fit 16-bit ids; raise min_count")
        twice = [token for token, count in Counter(self.tokens).items() if count > 1]
        if twice:
            raise TokenError(f"token {twice[0]!r} is in the vocabulary twice; remove one")

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    @property
    def names(self) -> tuple[str, ...]:
        """The tokens that can stand in an answer: all but PAD and MASK."""
        return self.tokens[2:]

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: at for at, token in enumerate(self.tokens)}

    def id(self, token: str) -> int:
        """The token's id, or a TokenError that names the token."""
        found = self._ids.get(token)
        if found is None:
            raise TokenError(
                f"{token!r} is not among the {len(self)} tokens of the vocabulary;"
                " grow it with tokenizer.grow([label])"
            )
        return found

    def token(self, at: int) -> str:
        """The token of an id."""
        if not 0 <= at < len(self.tokens):
            raise TokenError(f"id {at} is outside the vocabulary's 0..{len(self) - 1}")
        return self.tokens[at]

    def grow(self, counts: Mapping[str, int], min_count: int = 1) -> "Vocabulary":
        """Append unseen tokens, the most frequent first; known ids stay what they are."""
        new = [t for t, n in counts.items() if n >= min_count and t not in self._ids]
        new.sort(key=lambda token: (-counts[token], token))
        return Vocabulary(self.tokens + tuple(new))


_BARE = Vocabulary((PAD, MASK))


@dataclass(frozen=True)
class Tokenizer:
    """Label tokens to an (L, S) array of ids, one column for each stream, and back."""

    vocabularies: tuple[Vocabulary, ...]
    scheme: ClassVar[str]
    streams: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        if len(self.vocabularies) != len(self.streams):
            raise TokenError(
                f"scheme {self.scheme} has the streams {', '.join(self.streams)},"
                f" not {len(self.vocabularies)} vocabularies"
            )

    @classmethod
    def split(cls, tokens: Sequence[str]) -> list[tuple[str, ...]]:
        """Label tokens as rows with one entry for each stream."""
        raise NotImplementedError

    @classmethod
    def join(cls, rows: Iterable[tuple[str, ...]]) -> list[str]:
        """The label tokens of such rows."""
        raise NotImplementedError

    @classmethod
    def places(cls, rows: Iterable[tuple[str, ...]]) -> list[tuple[int, int]]:
        """Where each row's own symbol stands in `join(rows)`: [first, end) token, or nowhere."""
        raise NotImplementedError

    def encode(self, tokens: Sequence[str]) -> Ids:
        """Ids of shape (L, S), without padding; an unknown token raises a TokenError."""
        rows = [
            [vocabulary.id(entry) for vocabulary, entry in zip(self.vocabularies, row, strict=True)]
            for row in self.split(tokens)
        ]
        return np.array(rows, dtype=np.int16).reshape(len(rows), len(self.streams))

    def rows(self, ids: npt.ArrayLike) -> list[tuple[str, ...]]:
        """The entries of (L, S) ids, up to the first PAD of the first stream."""
        array = np.asarray(ids)
        if array.ndim != 2 or array.shape[1] != len(self.streams):
            raise TokenError(f"ids of shape (L, {len(self.streams)}) expected, not {array.shape}")
        stops = np.flatnonzero(array[:, 0] == PAD_ID)
        length = int(stops[0]) if len(stops) else len(array)
        columns = array[:length].T.tolist()
        pairs = zip(self.vocabularies, columns, strict=True)
        return list(zip(*([v.token(at) for at in column] for v, column in pairs), strict=True))

    def decode(self, ids: npt.ArrayLike) -> list[str]:
        """Label tokens of (L, S) ids; a masked position shows as `<mask>`."""
        return self.join(self.rows(ids))

    def grow(self, labels: Iterable[Sequence[str]], min_count: int = 1) -> "Tokenizer":
        """A tokenizer that also knows these labels; known ids stay what they are."""
        counts: tuple[Counter[str], ...] = tuple(Counter() for _ in self.streams)
        for tokens in labels:
            for row in self.split(tokens):
                for counter, entry in zip(counts, row, strict=True):
                    counter[entry] += 1
        grown = zip(self.vocabularies, counts, strict=True)
        return type(self)(tuple(vocabulary.grow(c, min_count) for vocabulary, c in grown))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a checkpoint's config."""
        lists = (list(vocabulary.tokens) for vocabulary in self.vocabularies)
        return {"scheme": self.scheme, **dict(zip(self.streams, lists, strict=True))}


class SatTokenizer(Tokenizer):
    """Symbol-aware tokens: one row (symbol, modifier) for each glyph."""

    scheme = "sat"
    streams = ("symbols", "modifiers")

    @classmethod
    def split(cls, tokens: Sequence[str]) -> list[tuple[str, ...]]:
        return [*sat_split(tokens)]

    @classmethod
    def join(cls, rows: Iterable[tuple[str, ...]]) -> list[str]:
        return sat_join((s, _decided(modifier)) for s, modifier in rows)

    @classmethod
    def places(cls, rows: Iterable[tuple[str, ...]]) -> list[tuple[int, int]]:
        found, at = [], 0
        for symbol, modifier in rows:
            marks, own = _decided(modifier), int(symbol != EMPTY)
            first = at + openers_of(marks)
            found.append((first, first + own))
            at += len(marks) + own
        return found


def _decided(modifier: str) -> str:
    """A modifier that is not decided yet has nothing to show."""
    return "" if modifier in (PAD, MASK) else modifier


class RawTokenizer(Tokenizer):
    """Raw LaTeX tokens: one row for each token."""

    scheme = "raw"
    streams = ("tokens",)

    @classmethod
    def split(cls, tokens: Sequence[str]) -> list[tuple[str, ...]]:
        return [(token,) for token in tokens]

    @classmethod
    def join(cls, rows: Iterable[tuple[str, ...]]) -> list[str]:
        return [token for (token,) in rows]

    @classmethod
    def places(cls, rows: Iterable[tuple[str, ...]]) -> list[tuple[int, int]]:
        return [(at, at + 1) for at, _ in enumerate(rows)]


SCHEMES: Mapping[str, type[Tokenizer]] = {"sat": SatTokenizer, "raw": RawTokenizer}


def build_tokenizer(scheme: str, labels: Iterable[Sequence[str]]) -> Tokenizer:
    """A tokenizer whose vocabularies hold what these labels (lists of tokens) need."""
    kind = scheme_of(scheme)
    empty = kind(
        (_BARE,) if kind is RawTokenizer else (_BARE.grow({EMPTY: 1}), _BARE.grow({"": 1}))
    )
    return empty.grow(labels)


def tokenizer_from_dict(data: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that `to_dict` described."""
    kind = scheme_of(str(data.get("scheme")))
    missing = [stream for stream in kind.streams if stream not in data]
    if missing:
        raise TokenError(f"tokenizer without its {missing[0]!r} vocabulary; save it again")
    return kind(tuple(Vocabulary(tuple(data[stream])) for stream in kind.streams))


def scheme_of(name: str) -> type[Tokenizer]:
    """The way to take labels apart that a name stands for."""
    if name not in SCHEMES:
        raise TokenError(f"unknown scheme {name!r}; choose one of {', '.join(SCHEMES)}")
    return SCHEMES[name]


def spell(tokens: Sequence[str]) -> tuple[str, list[int]]:
    """Tokens as LaTeX, and the offset in it at which each token starts."""
    out, starts = "", []
    for token in tokens:
        command = out.rpartition("\\")[2]
        # A lone backslash pair ends a matrix row; letters behind it are text, not its name.
        named = "\\" in out and command.isalpha() and not out.endswith("\\\\")
        out += " " if named and token[:1].isalpha() else ""
        starts.append(len(out))
        out += token
    return out, starts


def spans(
    tokens: Sequence[str], starts: Sequence[int], places: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """[start, end) in `spell(tokens)` of what stands at each place, [first, end) tokens."""
    ends = [start + len(token) for start, token in zip(starts, tokens, strict=True)]
    last = ends[-1] if ends else 0
    out = []
    for first, end in places:
        start = starts[first] if first < len(starts) else last
        out.append((start, ends[end - 1] if end > first else start))
    return out
