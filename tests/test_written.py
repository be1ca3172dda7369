"""As written beside as meant: what each letter's ink says by itself."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from inkmaker import power

from gryphone.errors import ConfigError
from gryphone.ink import Ink
from gryphone.recognition.encoding import Network
from gryphone.recognition.recognizer import Recognizer
from gryphone.recognition.result import Result, Symbol
from gryphone.recognition.written import is_another, is_letter, written

STROKES = tuple(np.array([[0.0, 0.0], [float(n), 5.0]]) for n in (1, 2, 3, 4))


class Oracle:
    """A reader that says of each lone ink what it is told to; it counts strokes."""

    def __init__(self, odds: Sequence[dict[str, float]]) -> None:
        self.symbols = tuple(sorted({name for each in odds for name in each}))
        self.odds = odds
        self.seen: list[int] = []

    def log_probs(self, inks: Sequence[Any], usual: float) -> np.ndarray:
        self.seen += [len(strokes) for strokes in inks]
        assert usual == 5.0  # of the whole formula
        return np.log([[each.get(name, 1e-9) for name in self.symbols] for each in self.odds])


def answer(recognizer: Recognizer, names: str) -> Result:
    """An answer of one symbol for each stroke."""
    vocabulary = recognizer.tokenizer.vocabularies[0]
    ids = np.array([[vocabulary.id(name), 2] for name in names])
    first = recognizer.recognize(power())
    symbols = tuple(Symbol(i, n, "", 1.0, (), None, (i,)) for i, n in enumerate(names))
    return replace(first, symbols=symbols, ids=ids)


def test_ink_overrules_where_it_is_sure_of_another_letter(recognizer: Recognizer) -> None:
    vocabulary = recognizer.tokenizer.vocabularies[0]
    known = [n for n in vocabulary.tokens if is_letter(n)]
    a, b = known[:2]
    plus = vocabulary.id("+")
    result = answer(recognizer, a + a + a + "+")
    x, y = vocabulary.id(a), vocabulary.id(b)
    odds = [{b: 0.95, a: 0.01}, {b: 0.6, "+": 0.39, a: 0.01}, {"+": 0.99, a: 0.001}]
    oracle = Oracle(odds)
    network = Network(recognizer.checkpoint, recognizer.backend, oracle)  # type: ignore[arg-type]
    symbols, ids = written(network, Ink(STROKES), result)
    assert ids[:, 0].tolist() == [y, x, x, plus]  # doubt, and what is no letter, change nothing
    assert oracle.seen == [1, 1, 1]  # three letters alone; the plus is none
    assert symbols[0].written == (b, pytest.approx(0.95))
    assert symbols[2].written is not None and symbols[2].written[0] == "+"
    assert symbols[3].written is None
    assert result.ids[0, 0] == x  # the answer as meant stays


def test_case_is_not_judged_from_lone_ink() -> None:
    assert not is_another("c", "C") and is_another("\\theta", "0") and not is_another("x", "+")
    assert not is_letter("\\frac") and is_letter("\\Omega") and is_letter("7")


def test_only_who_asks_gets_it(recognizer: Recognizer) -> None:
    plain = recognizer.recognize(power())
    assert plain.as_written is None and plain.to_dict()["as_written"] is None
    asked = recognizer.recognize(power(), as_written=True)
    assert asked.latex == plain.latex and isinstance(asked.as_written, str)
    for symbol in asked.symbols:
        assert (symbol.written is not None) == (is_letter(symbol.symbol) and bool(symbol.strokes))
    assert "as written: " in asked.to_text()
    with pytest.raises(ConfigError, match="leave boxes on"):
        recognizer.recognize(power(), as_written=True, boxes=False)
