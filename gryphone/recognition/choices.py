"""What else an answer may be: other symbols at each position, other answers as a whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gryphone.decoding import Decoded
from gryphone.latex.validity import is_valid
from gryphone.recognition.encoding import Network
from gryphone.recognition.result import Alternative
from gryphone.tokens import MASK_ID, PAD_ID, spell


def others_of(network: Network, best: Decoded, count: int) -> list[tuple[tuple[str, float], ...]]:
    """The most probable other symbols of each position."""
    names = network.tokenizer.vocabularies[0].tokens
    ids, log_probs = best.looks.symbols(len(best.ids), count + 3)
    rows = zip(best.ids[:, 0].tolist(), ids.tolist(), np.exp(log_probs).tolist(), strict=True)
    return [
        tuple(
            (names[k], p)
            for k, p in zip(some, odds, strict=True)
            if k not in (PAD_ID, MASK_ID, own) and p > 0
        )[:count]
        for own, some, odds in rows
    ]


def n_best_of(
    network: Network, groups: Sequence[Sequence[Decoded]], best: Decoded, count: int, latex: str
) -> tuple[Alternative, ...]:
    """Distinct answers of the decodes by their votes, then the best single exchanges of a symbol.

    An exchange weighs as much as the answer it changes times the odds of the two symbols.
    """
    if len(groups) == count == 1:
        return (Alternative(latex, 1.0),)
    total = sum(len(g) for g in groups)
    weights: dict[tuple[str, ...], float] = {}
    for group in groups:
        weights[tuple(network.tokenizer.decode(group[0].ids))] = len(group) / total
    if count > 1:
        lead = len(groups[0]) / total
        for odds, ids in _exchanges(best, 4 * count):
            if len(weights) >= 2 * count:
                break
            tokens = tuple(network.tokenizer.decode(ids))
            if tokens not in weights and is_valid(tokens):
                weights[tokens] = lead * odds
    kept = sorted(weights.items(), key=lambda item: -item[1])[:count]
    mass = sum(weight for _, weight in kept)
    return tuple(Alternative(spell(tokens)[0], w / mass) for tokens, w in kept)


def _exchanges(best: Decoded, count: int) -> list[tuple[float, np.ndarray]]:
    """The answer with one symbol exchanged, the likeliest exchanges first."""
    found = []
    chosen = best.ids[:, 0]
    every = best.looks.distributions()[0]
    order = np.argsort(-every, axis=1, kind="stable")[:, :4]
    for place, (own, others) in enumerate(zip(chosen.tolist(), order.tolist(), strict=False)):
        if not np.isfinite(every[place, own]):
            continue
        for other in others:
            odds = every[place, other] - every[place, own]
            if other not in (PAD_ID, MASK_ID, own) and np.isfinite(odds):
                found.append((float(np.exp(min(odds, 0.0))), place, other))
    found.sort(reverse=True)
    out = []
    for odds, place, other in found[:count]:
        ids = best.ids.copy()
        ids[place, 0] = other
        out.append((odds, ids))
    return out
