"""What the ink of each letter says by itself: an answer as written, beside the one as meant.

Hiding the other tokens from the decoder does not take their influence away, since it still sees
their ink. So the strokes of each letter, digit and Greek letter are looked at alone, all together
in one pass of the encoder and one of the decoder. Alone, c and C are the same: case is never
overruled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gryphone.decoding import canvas_for
from gryphone.ink import Ink
from gryphone.reading.inputs import Input
from gryphone.recognition.encoding import EncodedBatch, Network
from gryphone.recognition.result import Result, Symbol
from gryphone.tokens import MASK_ID, PAD_ID

# The ink overrules the answer where it is for another letter with this probability at least, and
# for the answer's with that at most (docs/recognition.md has what other limits bring).
SURE, WEAK = 0.8, 0.03
_GREEK = r"""
    \alpha \beta \gamma \delta \epsilon \varepsilon \zeta \eta \theta \vartheta \iota \kappa
    \lambda \mu \nu \xi \pi \varpi \rho \varrho \sigma \varsigma \tau \upsilon \phi \varphi \chi
    \psi \omega \Gamma \Delta \Theta \Lambda \Xi \Pi \Sigma \Upsilon \Phi \Psi \Omega"""
GREEK = frozenset(_GREEK.split())


def written(network: Network, ink: Ink, result: Result) -> tuple[tuple[Symbol, ...], np.ndarray]:
    """The symbols with what each letter's strokes are alone, and the tokens that this makes."""
    letters = [s for s in result.symbols if s.strokes and is_letter(s.symbol)]
    log_probs = _alone(network, ink, letters)
    names = network.tokenizer.vocabularies[0].tokens
    ids, symbols = result.ids.copy(), list(result.symbols)
    for symbol, row in zip(letters, np.exp(log_probs), strict=True):
        at, best = symbol.position, int(row.argmax())
        symbols[at] = replace(symbol, written=(names[best], float(row[best])))
        own = float(row[ids[at, 0]])
        if row[best] >= SURE and own <= WEAK and is_another(symbol.symbol, names[best]):
            ids[at, 0] = best
    return tuple(symbols), ids


def is_letter(symbol: str) -> bool:
    """Whether a symbol is a letter, a digit or a Greek letter."""
    return symbol in GREEK or (len(symbol) == 1 and symbol.isalnum())


def is_another(meant: str, found: str) -> bool:
    """Whether a letter was found that is not the one meant in another case."""
    return is_letter(found) and found.lower() != meant.lower()


def _alone(network: Network, ink: Ink, letters: Sequence[Symbol]) -> np.ndarray:
    """Log-probs (letters, symbols) of each letter's strokes, read as the first of a formula."""
    vocabularies, config = network.tokenizer.vocabularies, network.checkpoint.config
    if not letters:
        return np.zeros((0, len(vocabularies[0])))
    inks = [Input(Ink(tuple(ink.strokes[k] for k in s.strokes))) for s in letters]
    batch = EncodedBatch.of(network, inks)
    length = config.length if config.dense else canvas_for(1, config.length)
    canvas = np.full((len(inks), length, len(vocabularies)), MASK_ID)
    every = np.arange(len(inks))
    said = network.backend.predict(batch.memory, canvas, np.full(len(inks), length), every)
    first = np.array(said[0][:, 0], dtype=np.float64)
    first[:, [PAD_ID, MASK_ID]] = -np.inf
    return first - np.logaddexp.reduce(first, 1, keepdims=True)
