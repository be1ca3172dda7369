"""What the ink of each letter says by itself: an answer as written, beside the one as meant.

Hiding the other tokens from the decoder does not take their influence away, since it still sees
their ink. So the strokes of each letter, digit and Greek letter are shown to the reader of lone
symbols, which knows nothing of formulas. It hardly tells c from C: case is never overruled.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gryphone.errors import ConfigError
from gryphone.ink import Ink, typical_stroke
from gryphone.recognition.encoding import Network
from gryphone.recognition.result import Result, Symbol

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
    if network.lone is None:
        raise ConfigError(
            "as_written asks the reader of lone symbols, which is not here; reinstall"
        )
    known = network.lone.symbols
    letters = [s for s in result.symbols if s.strokes and s.symbol in known and is_letter(s.symbol)]
    strokes = [[ink.strokes[k] for k in s.strokes] for s in letters]
    usual = typical_stroke(ink.strokes) if len(result.symbols) > 1 else math.nan
    log_probs = network.lone.log_probs(strokes, usual)
    vocabulary = network.tokenizer.vocabularies[0]
    ids, symbols = result.ids.copy(), list(result.symbols)
    for symbol, row in zip(letters, np.exp(log_probs), strict=True):
        at, best = symbol.position, known[int(row.argmax())]
        symbols[at] = replace(symbol, written=(best, float(row.max())))
        sure = row.max() >= SURE and row[known.index(symbol.symbol)] <= WEAK
        if sure and best in vocabulary.tokens and is_another(symbol.symbol, best):
            ids[at, 0] = vocabulary.id(best)
    return tuple(symbols), ids


def is_letter(symbol: str) -> bool:
    """Whether a symbol is a letter, a digit or a Greek letter."""
    return symbol in GREEK or (len(symbol) == 1 and symbol.isalnum())


def is_another(meant: str, found: str) -> bool:
    """Whether a letter was found that is not the one meant in another case."""
    return is_letter(found) and found.lower() != meant.lower()
