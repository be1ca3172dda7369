"""A second opinion on symbols, where there is no context or not all of it yet.

Of a symbol alone the network knows no more than its ink, and of a formula that is still being
written less than it will. There the reader of lone symbols (`recognition.lone`) is heard: what it
says is added, with a weight, to what the network said of the symbol while it was hidden. In whole
formulas that costs more than it brings (docs/training-log.md), and nothing is added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gryphone.decoding import LOWEST, Constraint, Decoded, Looks
from gryphone.ink import typical_stroke
from gryphone.recognition.encoding import EncodedBatch, Network, strokes_of
from gryphone.recognition.lone import normalized

# How much the reader's log-probs count beside the network's (docs/recognition.md has others).
WEIGHT = 0.7
DOUBT = 0.01  # log-prob that a symbol of a formula lacks before anybody is asked,
MOST = 6  # and how many of them at a time, the most doubtful ones: a millisecond each
FEW = 5  # of the likeliest symbols that are tried until one is well-formed


@dataclass(frozen=True)
class Weighed(Looks):
    """Looks at a canvas with something added to what they say of the symbols at some places."""

    looks: Looks
    more: Mapping[int, np.ndarray]  # (V,) for each place

    @cached_property
    def _distributions(self) -> list[np.ndarray]:
        first, *others = self.looks.distributions()
        first = first.copy()
        for place, more in self.more.items():
            first[place] = normalized(first[place] + more)
        return [first, *others]

    def distributions(self) -> list[np.ndarray]:
        return self._distributions

    def symbols(self, places: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        said = self._distributions[0][:places]
        ids = np.argsort(-said, axis=1, kind="stable")[:, :count]
        return ids, np.take_along_axis(said, ids, 1)

    def log_probs(self, answer: np.ndarray) -> np.ndarray:
        found = self.looks.log_probs(answer).copy()
        before, after = self.looks.distributions()[0], self._distributions[0]
        for place in self.more:
            if place < len(answer) and found[place] < 0:  # what was never hidden is sure
                own = answer[place, 0]
                # What a constraint forbids has no log-prob, before as after.
                old = max(normalized(before[place])[own], LOWEST)
                found[place] = min(0.0, found[place] + max(after[place, own], LOWEST) - old)
        return np.asarray(np.maximum(found, 2 * LOWEST))


def heard(
    batch: EncodedBatch,
    index: int,
    decodes: Sequence[Decoded],
    constraint: Constraint | None,
    unfinished: bool,
) -> list[Decoded]:
    """Answers about one input, after the reader was heard about those symbols that it is for."""
    network, reader = batch.network, batch.network.lone
    if reader is None or not network.is_symbolwise:
        return list(decodes)
    strokes, known = batch.strokes[index], network.read_alone
    # What was said of some strokes, alone or not: decodes mostly agree on them.
    said: dict[tuple[bool, tuple[int, ...]], np.ndarray] = {}
    owners: dict[bytes, list[tuple[int, ...]]] = {}
    found = []
    for decoded in decodes:
        ids, alone = decoded.ids, len(decoded.ids) == 1
        places = _places(decoded, constraint, known) if alone or unfinished else []
        if places and ids.tobytes() not in owners:
            owners[ids.tobytes()] = strokes_of(batch, [index], [ids])[0]
        more = {}
        for place in places:
            own = owners[ids.tobytes()][place]
            if not own:
                continue
            if (alone, own) not in said:
                usual = math.nan if alone else typical_stroke(strokes)
                said[alone, own] = reader.log_probs([[strokes[i] for i in own]], usual)[0]
            # What the reader does not know stands to the symbol that was read as it did.
            row = said[alone, own][np.where(known >= 0, known, known[ids[place, 0]])]
            more[place] = WEIGHT * np.maximum(row, LOWEST)
        found.append(decided(network, decoded, Weighed(decoded.looks, more)) if more else decoded)
    return found


def _places(decoded: Decoded, constraint: Constraint | None, known: np.ndarray) -> list[int]:
    """The most doubtful places of an answer whose symbol the reader knows, and nobody gave."""
    ids = decoded.ids
    doubt = np.where(known[ids[:, 0]] >= 0, -decoded.looks.log_probs(ids), 0.0)
    if constraint is not None:
        doubt[: len(constraint.shown)][constraint.shown[: len(ids)]] = 0.0
    places = np.argsort(-doubt, kind="stable")[:MOST]
    return [int(place) for place in places if doubt[place] > (0.0 if len(ids) == 1 else DOUBT)]


def decided(network: Network, decoded: Decoded, looks: Weighed) -> Decoded:
    """The answer that weighed looks speak for, as far as it is well-formed."""
    [said, *_], ids, log_probs = looks.distributions(), decoded.ids.copy(), decoded.log_probs.copy()
    for place in looks.more:
        # The answer has a symbol there: nothing that the reader has not heard of takes its place.
        allowed = network.read_alone >= 0
        order = np.argsort(-np.where(allowed, said[place], -np.inf), kind="stable")
        for ids[place, 0] in order[:FEW]:
            if np.isfinite(said[place, ids[place, 0]]) and network.grammar.accepts(ids):
                break
        else:
            ids[place, 0] = decoded.ids[place, 0]
        log_probs[place, 0] = max(said[place, ids[place, 0]], LOWEST)
    return replace(decoded, ids=ids, log_probs=log_probs, looks=looks)
