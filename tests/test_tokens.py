"""Tokens: SAT and raw round trips, vocabularies."""

import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gryphone.errors import TokenError
from gryphone.latex.lexer import tokenize
from gryphone.latex.normalize import normalize
from gryphone.latex.validity import is_balanced, is_valid
from gryphone.tokens import (
    EMPTY,
    MASK_ID,
    PAD_ID,
    Vocabulary,
    build_tokenizer,
    sat_join,
    sat_split,
    tokenizer_from_dict,
)

DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.mark.parametrize(
    ("source", "pairs"),
    [
        ("{x_{1}}^{y_{2}}", [("x", "{"), ("1", "_{}}"), ("y", "^{"), ("2", "_{}}")]),
        (r"\frac{a}{b}", [(r"\frac", ""), ("a", "{}"), ("b", "{}")]),
        (r"\sqrt[3]{x}", [(r"\sqrt", ""), ("3", "[]"), ("x", "{}")]),
        (r"\sqrt[a]]", [(r"\sqrt", ""), ("a", "[]"), ("]", "")]),
        (r"\sqrt{[x]}", [(r"\sqrt", ""), ("[", "{"), ("x", ""), ("]", "}")]),
        (r"\sqrt[3", [(r"\sqrt", ""), ("[", ""), ("3", "")]),
        (r"\sqrt[{]}]x", [(r"\sqrt", ""), ("]", "[{}]"), ("x", "")]),
        ("{}", [(EMPTY, "{}")]),
        ("x^{}", [("x", ""), (EMPTY, "^{}")]),
        ("x^", [("x", ""), (EMPTY, "^")]),
        ("{{}x}", [(EMPTY, "{{}"), ("x", "}")]),
        (r"\begin{matrix}a&b\end{matrix}", [(s, "") for s in (
            r"\begin{matrix}", "a", "&", "b", r"\end{matrix}")]),
        ("", []),
    ],
)  # fmt: skip
def test_sat(source: str, pairs: list[tuple[str, str]]) -> None:
    tokens = tokenize(source)
    assert sat_split(tokens) == pairs
    assert sat_join(pairs) == tokens


SYMBOLS = st.sampled_from(["x", "2", "+", r"\alpha", "[", "]", "(", r"\{", r"\\", "&", r"\sqrt"])


LEAVES = ["x", "2", "+", r"\alpha", "{}", "(", "["]
BRANCHES = {  # with how many rows of children
    "{{{}}}": 1,
    r"\frac{{{}}}{{{}}}": 2,
    r"\sqrt[{{{}}}]{{{}}}": 2,
    "{}_{{{}}}^{{{}}}": 3,
    r"\begin{{matrix}}{}&{}\\{}\end{{matrix}}": 3,
    "{} {}": 2,
}


def plant(words: list[str]) -> str:
    """Formulas from words in postfix order: a branch takes the rows before it, or empty ones."""
    rows: list[str] = []
    for word in words:
        count = BRANCHES.get(word, 0)
        taken = [rows.pop() if rows else "" for _ in range(count)]
        rows.append(word.format(*reversed(taken)) if count else word)
    return " ".join(rows)


# A recursive strategy takes five times as long to draw such trees.
WORDS = st.sampled_from([*LEAVES, *BRANCHES])
TREES = st.integers(0, 60).flatmap(lambda n: st.lists(WORDS, min_size=n, max_size=n)).map(plant)


@settings(max_examples=200, deadline=None)
@given(TREES)
def test_round_trip_of_trees(source: str) -> None:
    tokens = tokenize(source)
    assert is_balanced(tokens)
    for scheme in ("sat", "raw"):
        tokenizer = build_tokenizer(scheme, [tokens])
        assert tokenizer.decode(tokenizer.encode(tokens)) == tokens


@settings(max_examples=200, deadline=None)
@given(TREES)
def test_normal_form_is_valid_and_stable(source: str) -> None:
    if not is_valid(source):  # such as a script on a base that has one
        return
    for convention in ("crohme", "mathwriting"):
        tokens = normalize(source, convention)
        assert is_valid(tokens)
        assert normalize(tokens, convention) == tokens


@settings(max_examples=300, deadline=None)
@given(st.lists(SYMBOLS | st.sampled_from(["{", "}", "^", "_"])))
def test_round_trip_of_any_token_sequence(tokens: list[str]) -> None:
    assert sat_join(sat_split(tokens)) == tokens


@pytest.mark.parametrize("scheme", ["sat", "raw"])
def test_ids(scheme: str) -> None:
    labels = [tokenize(s) for s in ("x^{2}", r"\frac{x}{2}", "x")]
    tokenizer = build_tokenizer(scheme, labels)
    ids = tokenizer.encode(labels[0])
    assert ids.dtype == np.int16
    assert ids.shape == ((2, 2) if scheme == "sat" else (5, 1))
    assert ids.min() > MASK_ID
    padded = np.full((9, ids.shape[1]), PAD_ID)
    padded[: len(ids)] = ids
    assert tokenizer.decode(padded) == labels[0]
    masked = np.full_like(ids, MASK_ID)
    assert tokenizer.decode(masked) == ["<mask>"] * len(ids)
    assert tokenizer.encode([]).shape == (0, ids.shape[1])
    assert tokenizer.decode(tokenizer.encode([])) == []


@pytest.mark.parametrize("scheme", ["sat", "raw"])
def test_save_load_and_grow(scheme: str) -> None:
    tokenizer = build_tokenizer(scheme, [["x", "^", "{", "2", "}"]])
    assert tokenizer_from_dict(tokenizer.to_dict()) == tokenizer
    new = ["y", "_", "{", "x", "}"]
    with pytest.raises(TokenError, match=r"'y' is not among .* grow"):
        tokenizer.encode(new)
    grown = tokenizer.grow([new])
    assert grown.decode(grown.encode(new)) == new
    for before, after in zip(tokenizer.vocabularies, grown.vocabularies, strict=True):
        assert after.tokens[: len(before)] == before.tokens


def test_unseen_modifier_is_named() -> None:
    tokenizer = build_tokenizer("sat", [["x"]])
    with pytest.raises(TokenError, match=r"'\^\{\}'"):
        tokenizer.encode(["x", "^", "{", "x", "}"])


def test_rare_tokens_can_be_left_out() -> None:
    tokenizer = build_tokenizer("raw", []).grow([["x", "x", "y"]], 2)
    assert tokenizer.vocabularies[0].tokens == ("<pad>", "<mask>", "x")


def test_bad_values_are_refused() -> None:
    with pytest.raises(TokenError, match="starts with"):
        Vocabulary(("x",))
    with pytest.raises(TokenError, match="twice"):
        Vocabulary(("<pad>", "<mask>", "x", "x"))
    with pytest.raises(TokenError, match="id 9 is outside"):
        Vocabulary(("<pad>", "<mask>")).token(9)
    with pytest.raises(TokenError, match="reserved"):
        sat_split(["<empty>"])
    with pytest.raises(TokenError, match="unknown scheme 'bpe'"):
        build_tokenizer("bpe", [])
    with pytest.raises(TokenError, match="'modifiers'"):
        tokenizer_from_dict({"scheme": "sat", "symbols": ["<pad>", "<mask>"]})
    with pytest.raises(TokenError, match=r"shape \(L, 2\)"):
        build_tokenizer("sat", []).decode(np.zeros(3))


@pytest.mark.skipif(not DATA.is_dir(), reason="needs the shared data beside the checkout")
def test_mathwriting_labels() -> None:
    with lzma.open(DATA / "metrics" / "mathwriting-test.tsv.xz", "rt") as file:
        labels = [tokenize(line.split("\t")[1]) for line in file]
    tokenizer = build_tokenizer("sat", labels)
    assert all(tokenizer.decode(tokenizer.encode(label)) == label for label in labels)
    # PAD, MASK and the placeholder aside: 215 symbols; 30 modifiers and the two index brackets.
    assert [len(v) for v in tokenizer.vocabularies] == [215 + 3, 30 + 2 + 2]


@pytest.mark.skipif(not DATA.is_dir(), reason="needs the shared data beside the checkout")
def test_formulas_round_trip() -> None:
    with lzma.open(DATA / "formulas" / "formulas.tsv.xz", "rt") as file:
        for line in list(file)[::10]:
            tokens = tokenize(line.rstrip("\n").split("\t")[1])
            assert tokenize(" ".join(tokens)) == tokens
            assert sat_join(sat_split(tokens)) == tokens
