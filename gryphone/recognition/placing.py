"""Where the symbols of an answer are: which strokes became which token."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from gryphone.recognition.encoding import EncodedBatch
from gryphone.recognition.result import Box
from gryphone.tokens import EMPTY, PAD_ID

INKLESS = (EMPTY, "&", r"\\")
NO_INK = (r"\begin", r"\end")


def strokes_of(
    batch: EncodedBatch, places: Sequence[int], answers: Sequence[np.ndarray]
) -> list[list[tuple[int, ...]]]:
    """The strokes that became each token of answers about inks: one more look of the decoder."""
    backend, length = batch.network.backend, batch.network.checkpoint.config.length
    nothing: list[list[tuple[int, ...]]] = [[()] * len(ids) for ids in answers]
    if not answers:
        return nothing
    canvases = []
    for ids in answers:
        room = min(length - len(ids), 1)
        canvases.append(np.concatenate([ids, np.full((room, ids.shape[1]), PAD_ID)]))
    seen = backend.evidence(backend.select(batch.memory, list(places)), canvases)
    if seen is None:
        return nothing
    inky = _inky(batch.network.tokenizer.vocabularies[0].tokens)
    found = []
    for ids, evidence in zip(answers, seen, strict=True):
        own: list[list[int]] = [[] for _ in ids]
        for stroke, token in enumerate(assign(evidence[:, : len(ids)], inky[ids[:, 0]])):
            if token >= 0:
                own[token].append(stroke)
        found.append([tuple(some) for some in own])
    return found


@cache
def _inky(names: tuple[str, ...]) -> np.ndarray:
    """Which symbols have ink at all."""
    return np.array([n not in INKLESS and not n.startswith(NO_INK) for n in names])


def assign(votes: np.ndarray, writes: np.ndarray) -> list[int]:
    """The token of each stroke, -1 for none: the one that its pixels speak for.

    votes (strokes, n) say how much a stroke speaks for each token, writes (n,) which tokens have
    ink at all. A token that is left without a stroke takes the one that speaks for it most, if
    its owner has another.
    """
    if not writes.any():
        return [-1] * len(votes)
    votes = np.where(writes, votes, -np.inf)
    owner: list[int] = votes.argmax(1).tolist()
    for token in np.flatnonzero(writes).tolist():
        if token in owner:
            continue
        gain = votes[:, token] - votes.max(1)
        for stroke in np.argsort(-gain, kind="stable").tolist():
            if owner.count(owner[stroke]) > 1:
                owner[stroke] = token
                break
    return owner


def box_of(low: list[list[float]], high: list[list[float]], some: Sequence[int]) -> Box | None:
    """Around some of the strokes, in the coordinates of the input."""
    if not some:
        return None
    left, top = map(min, zip(*(low[i] for i in some), strict=True))
    right, bottom = map(max, zip(*(high[i] for i in some), strict=True))
    return left, top, right, bottom
