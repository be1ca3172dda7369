"""Is it LaTeX that a renderer accepts? Structure only: any command may stand as a symbol."""

from collections.abc import Sequence

from gryphone.errors import LatexError
from gryphone.latex.lexer import positioned
from gryphone.latex.tree import parse

_FORBIDDEN = frozenset({"$", "#", r"\middle"})


def check(source: str | Sequence[str]) -> None:
    """Raise a LatexError unless braces, arguments, scripts, roots and matrices are well-formed."""
    tokens = positioned(source)
    for token in tokens:
        if token.text in _FORBIDDEN:
            raise LatexError(f"{token.text} has no place in a formula; remove it", token.position)
    parse(tokens, strict=True)


def is_valid(source: str | Sequence[str]) -> bool:
    """Whether `check` accepts it."""
    try:
        check(source)
    except LatexError:
        return False
    return True


def is_balanced(tokens: Sequence[str]) -> bool:
    """Whether every brace has its partner, in order; what the syntax error rate counts."""
    depth = 0
    for token in tokens:
        depth += (token == "{") - (token == "}")
        if depth < 0:
            return False
    return depth == 0
