"""Constrained decoding: whatever the distributions, the answer is LaTeX that renders."""

import itertools
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gryphone
from gryphone.checkpoint import WEIGHTS, read_checkpoint
from gryphone.errors import ConfigError
from gryphone.latex.validity import is_valid
from gryphone.recognition.constraints import apply_lock, blank
from gryphone.recognition.grammar import Grammar
from gryphone.tokens import (
    EMPTY,
    MASK_ID,
    PAD_ID,
    RawTokenizer,
    SatTokenizer,
    Tokenizer,
    Vocabulary,
    build_tokenizer,
)

CHECK = Path(__file__).parent / "katex_check.mjs"
KATEX = Path(gryphone.__file__).parent / "server" / "static" / "katex" / "katex.min.js"
GOOD = [
    "x",
    "x ^ { 2 }",
    "x _ { 1 } ^ { 2 }",
    "x ^ { 2 } _ { 1 }",
    "^ { 2 }",
    "{ } ^ { 2 } x",
    "{ x ^ { 2 } } ^ { 3 }",
    "x ^ { ^ { 2 } }",
    "x ^ { }",
    r"\frac { a } { b } ^ { 2 }",
    r"\frac { } { x _ { 1 } }",
    r"\sqrt { x }",
    r"\sqrt [ 3 ] { x }",
    r"\sqrt [ { \sqrt [ 3 ] { 2 } } ] { x }",
    r"\sqrt [ [ 2 ] { x }",
    r"\hat { x } _ { 1 } \mathbb { R } ^ { n }",
    r"\binom { n } { 2 }",
    "[ 1 , 2 ) | x ]",
    r"a \mod \frac { a } { b }",
    r"\begin{matrix} a & b \\ ^ { 2 } & \end{matrix} ^ { 2 }",
    r"\begin{matrix} [ a & \frac { 1 } { \begin{matrix} 1 \end{matrix} } \\ \end{matrix}",
    r"\begin{array} { c | l } 1 & 2 \end{array}",
    r"\text { a b } 1",
]
BAD = [
    "{ }",
    "- { 1 } { 2 }",  # a fraction whose bar was taken for a minus
    "x { 1 }",
    "{ x } 1",
    "{ { x } } ^ { 2 }",
    r"\begin{matrix} a \\ { 2 } \end{matrix}",
    "x ^ { 1 } ^ { 2 }",
    "x _ { 1 } ^ { 2 } _ { 3 }",
    "_ { 1 } _ { 2 }",
    "x ^ { 2",
    "x }",
    "x ^ 2",
    r"\frac { a }",
    r"\frac { a } ^ { 2 } { b }",
    r"\frac a b",
    r"\hat",
    r"\sqrt [ 3 ]",
    r"\sqrt [ 3 ] ^ { 2 }",
    r"\sqrt [ \sqrt [ 3 ] { 2 } ] { x }",
    r"\sqrt [ 3 ] ] { x }",
    r"a \mod",
    r"\frac { a \mod } { b }",
    r"\mod { x _ { 1 } } _ { 2 }",
    "a & b",
    r"a \\ b",
    r"\begin{matrix} a",
    r"\begin{matrix} { a & b } \end{matrix}",
    r"\begin{matrix} a \\ [ 2 ] \end{matrix}",
    r"\begin{matrix} a \end{array}",
    r"\frac { \begin{matrix} a } { b } \end{matrix}",
    r"\begin{array} 1 & 2 \end{array}",
    r"\begin{array} { } 1 \end{array}",
    r"\begin{array} { 2 } 1 \end{array}",
    r"\text { \frac { a } { b } }",
    r"\text { a ^ { 2 } }",
    r"\fint x",
    r"\left ( x )",
]


def split(labels: Sequence[str]) -> list[list[str]]:
    return [label.split(" ") for label in labels]


SAT = build_tokenizer("sat", split([*GOOD, *BAD]))
RAW = build_tokenizer("raw", split([*GOOD, *BAD]))
GRAMMARS = {"sat": Grammar(SAT), "raw": Grammar(RAW)}


def certain(tokenizer: Tokenizer, label: str, places: int, doubt: float = -9.0) -> list[np.ndarray]:
    """Log-probs that put a label, then PAD, first at every place."""
    ids = tokenizer.encode(label.split(" "))
    out = []
    for stream, vocabulary in enumerate(tokenizer.vocabularies):
        log_probs = np.full((places, len(vocabulary)), doubt)
        log_probs[np.arange(len(ids)), ids[:, stream]] = -0.01
        log_probs[len(ids) :, PAD_ID] = -0.01
        out.append(log_probs)
    return out


def noise(tokenizer: Tokenizer, rng: np.random.Generator, places: int) -> list[np.ndarray]:
    """Distributions no model would give: flat, sharp, structural, partly or wholly NaN or -inf."""
    kind = rng.choice(["flat", "soft", "sharp", "open", "close", "holes", "certain", "nan", "none"])
    out = []
    for vocabulary in tokenizer.vocabularies:
        x = rng.normal(size=(places, len(vocabulary)))
        x *= {"flat": 0.0, "sharp": 30.0}.get(kind, 3.0)
        if kind in ("open", "close"):
            marks = {"open": ("{", "[", "begin", "frac", "sqrt", "hat", "mod"), "close": ("}", "]")}
            hot = [any(m in token for m in marks[kind]) for token in vocabulary.tokens]
            x[:, hot] += 8
            x[:, PAD_ID] -= 20
        x -= np.log(np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True)) + x.max()
        if kind == "holes":
            x[rng.random(x.shape) < 0.8] = rng.choice([np.nan, -np.inf, np.inf])
        if kind in ("nan", "none"):
            x[:] = np.nan if kind == "nan" else -np.inf
        if kind == "certain":
            only = rng.integers(0, x.shape[1], places)
            x[:] = -np.inf
            x[np.arange(places), only] = 0.0
        out.append(x)
    return out


def test_the_automaton_knows_what_renders() -> None:
    for scheme, tokenizer in (("sat", SAT), ("raw", RAW)):
        verdicts = {
            label: GRAMMARS[scheme].accepts(tokenizer.encode(label.split(" ")))
            for label in [*GOOD, *BAD]
        }
        assert [label for label in GOOD if not verdicts[label]] == []
        assert [label for label in BAD if verdicts[label]] == []
    assert [label for label in GOOD if not is_valid(label)] == []


def test_special_entries_stand_only_where_they_mean_something() -> None:
    grammar, (symbols, modifiers) = GRAMMARS["sat"], SAT.vocabularies
    x, empty, plain = symbols.id("x"), symbols.id(EMPTY), modifiers.id("")
    assert grammar.accepts([[x, plain], [PAD_ID, PAD_ID], [PAD_ID, plain]])
    assert not grammar.accepts([[x, plain], [PAD_ID, PAD_ID], [x, plain]])
    assert not grammar.accepts([[x, plain], [MASK_ID, plain]])
    assert not grammar.accepts([[x, PAD_ID]])
    assert not grammar.accepts([[x, plain], [empty, plain]])
    assert not grammar.accepts([[empty, modifiers.id("^{")], [x, modifiers.id("}")]])
    assert not grammar.accepts(np.zeros((0, 2), dtype=int))
    # `\sqrt [ 3 ] { x }` is an index, so its brackets are not symbols.
    three = [[symbols.id(r"\sqrt"), plain], [symbols.id("["), plain], [symbols.id("3"), plain]]
    assert not grammar.accepts([*three, [symbols.id("]"), plain], [x, modifiers.id("{}")]])


@pytest.mark.parametrize("scheme", ["sat", "raw"])
@pytest.mark.parametrize("label", GOOD)
def test_a_valid_argmax_comes_back_unchanged(scheme: str, label: str) -> None:
    grammar = GRAMMARS[scheme]
    ids = grammar.tokenizer.encode(label.split(" "))
    for places in (len(ids), len(ids) + 3):
        best = grammar.best(certain(grammar.tokenizer, label, places), beam=1)
        assert best.dtype == np.int16
        assert best.tolist() == ids.tolist()


@pytest.mark.parametrize("scheme", ["sat", "raw"])
@pytest.mark.parametrize("label", BAD)
def test_every_broken_argmax_becomes_valid(scheme: str, label: str) -> None:
    grammar = GRAMMARS[scheme]
    best = grammar.best(certain(grammar.tokenizer, label, 24))
    assert grammar.accepts(best)
    assert is_valid(grammar.tokenizer.decode(best))


@pytest.mark.parametrize("scheme", ["sat", "raw"])
def test_a_group_that_scripts_come_behind_is_found(scheme: str) -> None:
    tokenizer = {"sat": SAT, "raw": RAW}[scheme]
    broken = certain(tokenizer, "{ x } ^ { 2 } }", 12)
    assert tokenizer.decode(GRAMMARS[scheme].best(broken)) == ["{", "x", "}", "^", "{", "2", "}"]


def test_the_cheapest_of_two_repairs_wins() -> None:
    """`x ^ { 2 y` is closed behind the 2 or never opened: the probabilities decide."""
    symbols, modifiers = SAT.vocabularies
    log_probs = certain(SAT, "x 2 a", 4)
    log_probs[1][1, modifiers.id("^{")] = 0.0
    log_probs[1][1, modifiers.id("")] = -2.0
    log_probs[1][1, modifiers.id("^{}")] = -1.0
    log_probs[1][2, modifiers.id("}")] = -3.0
    assert SAT.decode(GRAMMARS["sat"].best(log_probs)) == ["x", "^", "{", "2", "}", "a"]
    log_probs[1][1, modifiers.id("^{}")] = -2.5
    assert SAT.decode(GRAMMARS["sat"].best(log_probs)) == ["x", "2", "a"]
    log_probs[1][2, modifiers.id("}")] = -0.5
    assert SAT.decode(GRAMMARS["sat"].best(log_probs)) == ["x", "^", "{", "2", "a", "}"]
    assert symbols.token(int(GRAMMARS["sat"].best(log_probs)[2, 0])) == "a"


@pytest.mark.parametrize(
    ("scheme", "labels", "places"),
    [
        ("sat", ["x ^ { 2 }", r"\frac { 1 } { x ^ { 2 } }", r"\sqrt [ 3 ] { x }", "{ } x"], 3),
        ("sat", ["x ^ { 2 a }", r"{ x _ { 1 } }", r"\begin{matrix} 1 & 2 \end{matrix}"], 3),
        ("raw", ["x ^ { 2 } _ { }", r"\frac { 1 } { x }", r"\sqrt [ 3 ] { x }"], 4),
    ],
)
def test_no_valid_sequence_is_more_probable(scheme: str, labels: list[str], places: int) -> None:
    """Against every sequence there is."""
    tokenizer = build_tokenizer(scheme, split(labels))
    grammar = Grammar(tokenizer)
    rows = list(itertools.product(*(range(2, len(v)) for v in tokenizer.vocabularies)))
    # Sixty rows, drawn once, leave few enough sequences to try them all.
    rng = np.random.default_rng(len(rows))
    rows = [rows[i] for i in rng.permutation(len(rows))[:60]]
    valid = [
        np.array(ids)
        for n in range(1, places + 1)
        for ids in itertools.product(rows, repeat=n)
        if len(rows) ** n < 250_000 and grammar.accepts(ids)
    ]
    assert len(valid) > 20
    for _ in range(20):
        streams = [rng.normal(size=(places, len(v))) * 3 for v in tokenizer.vocabularies]

        def score(ids: np.ndarray, streams: list[np.ndarray] = streams) -> float:
            n = len(ids)
            total = streams[0][n:, PAD_ID].sum()
            total += sum(np.delete(s, MASK_ID, 1)[n:].max(1).sum() for s in streams[1:])
            return float(
                total + sum(s[np.arange(n), ids[:, k]].sum() for k, s in enumerate(streams))
            )

        assert score(grammar.best(streams)) >= max(map(score, valid)) - 1e-9


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["sat", "raw"]), st.integers(1, 20))
def test_any_distribution_gives_valid_latex(seed: int, scheme: str, places: int) -> None:
    grammar = GRAMMARS[scheme]
    best = grammar.best(noise(grammar.tokenizer, np.random.default_rng(seed), places), beam=8)
    assert 1 <= len(best) <= places
    tokens = grammar.tokenizer.decode(best)
    assert is_valid(tokens)
    assert grammar.accepts(best)
    assert grammar.tokenizer.encode(tokens).tolist() == best.tolist()


def test_no_corner_without_a_way_out() -> None:
    """Modifiers that open more than others can close: the search stays where it can get out."""
    symbols = Vocabulary(("<pad>", "<mask>", EMPTY, "x", r"\frac", r"\begin{matrix}"))
    modifiers = Vocabulary(("<pad>", "<mask>", "", "{", "^{", "_{_{", "{}", "}}", "}{", "[", "^"))
    grammar = Grammar(SatTokenizer((symbols, modifiers)))
    rng = np.random.default_rng(0)
    for places in range(1, 9):
        streams = [rng.normal(size=(places, len(v))) for v in (symbols, modifiers)]
        streams[1][:, 3:6] += 9
        assert is_valid(grammar.tokenizer.decode(grammar.best(streams)))
    # A frame that only `}}` closes may be opened as long as both braces close together.
    two = grammar.best(certain_rows(grammar.tokenizer, [("x", "_{_{"), ("x", "}}")]))
    assert grammar.tokenizer.decode(two) == ["_", "{", "_", "{", "x", "x", "}", "}"]


def certain_rows(tokenizer: Tokenizer, rows: list[tuple[str, str]]) -> list[np.ndarray]:
    out = []
    for stream, vocabulary in enumerate(tokenizer.vocabularies):
        log_probs = np.full((len(rows), len(vocabulary)), -9.0)
        for place, row in enumerate(rows):
            log_probs[place, vocabulary.id(row[stream])] = 0.0
        out.append(log_probs)
    return out


def test_a_vocabulary_that_writes_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="no formula can be written"):
        Grammar(RawTokenizer((Vocabulary(("<pad>", "<mask>", "{", "}")),)))


def test_wrong_shapes_are_named() -> None:
    log_probs = certain(SAT, "x", 2)
    for wrong in ([], log_probs[:1], log_probs[::-1], [s[:0] for s in log_probs]):
        with pytest.raises(ConfigError, match="log_probs of shapes"):
            GRAMMARS["sat"].best(wrong)
    with pytest.raises(ConfigError, match="beam is 0"):
        GRAMMARS["sat"].best(log_probs, beam=0)


def test_katex_renders_every_answer() -> None:
    if shutil.which("node") is None:
        pytest.skip("needs node, to run the KaTeX that the page uses")
    rng = np.random.default_rng(7)
    answers = dict.fromkeys(GOOD, "")
    shipped = Grammar(read_checkpoint(WEIGHTS).tokenizer)
    for grammar in (*GRAMMARS.values(), shipped):
        for _ in range(600):
            places = int(rng.integers(1, 16))
            best = grammar.best(noise(grammar.tokenizer, rng, places), beam=4)
            answers[" ".join(grammar.tokenizer.decode(best))] = ""
    assert len(answers) > 1000
    refused = subprocess.run(
        ["node", str(CHECK), str(KATEX)],
        input="\n".join(answers),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert refused.stdout == ""


def test_positions_of_locks_are_whole_numbers() -> None:
    def locked(place: Any) -> np.ndarray:
        options, shown = blank(SAT, 5), np.zeros(5, dtype=bool)
        apply_lock(options, shown, SAT, {place: "x"})
        return np.flatnonzero(shown)

    assert locked(np.int64(2)).tolist() == [2]
    with pytest.raises(ConfigError, match="'2' is no whole number"):
        locked("2")
    with pytest.raises(ConfigError, match=r"lock\[4\]: positions go from 0 to 3"):
        locked(4)
