"""LaTeX source to tokens: commands, single characters, and whole `\\begin{...}`, `\\end{...}`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gryphone.errors import LatexError

# A control space becomes a name, so that no token holds white space and `" ".join` is lossless.
CONTROL_SPACE = r"\space"

_COMMAND = re.compile(r"\\(?:[A-Za-z]+|.)", re.DOTALL)
_SKIP = re.compile(r"(?:\s+|%[^\n]*(?:\n|$))+")
_ENVIRONMENT = re.compile(r"\s*\{\s*([A-Za-z]+\*?)\s*\}")


@dataclass(frozen=True, slots=True)
class Token:
    """One TeX token and the offset in the source where it starts."""

    text: str
    position: int


# LaTeX as a string, as bare tokens, or as tokens that know where they came from.
Source = str | Sequence[str] | Sequence[Token]


def lex(source: str) -> list[Token]:
    """Split LaTeX into tokens with positions; white space and comments are dropped."""
    tokens: list[Token] = []
    at = 0
    while at < len(source):
        skipped = _SKIP.match(source, at)
        if skipped:
            at = skipped.end()
            continue
        text, end = _next(source, at)
        tokens.append(Token(text, at))
        at = end
    return tokens


def tokenize(source: str) -> list[str]:
    """The texts of `lex(source)`."""
    return [token.text for token in lex(source)]


def positioned(source: Source) -> list[Token]:
    """Lex a string, or place bare tokens where they stand once joined by single spaces."""
    if isinstance(source, str):
        return lex(source)
    tokens: list[Token] = []
    at = 0
    for item in source:
        if isinstance(item, Token):
            tokens.append(item)
            continue
        tokens.append(Token(item, at))
        at += len(item) + 1
    return tokens


def _next(source: str, at: int) -> tuple[str, int]:
    """The token that starts at `at`, and the offset just behind it."""
    character = source[at]
    if character != "\\":
        if not character.isprintable():
            raise LatexError(f"character {character!r} is not LaTeX; remove it", at)
        return character, at + 1
    match = _COMMAND.match(source, at)
    if match is None:
        # TeX reads a backslash at the end of a line as a control space, too.
        return CONTROL_SPACE, at + 1
    command = match.group()
    if command in (r"\begin", r"\end"):
        name = _ENVIRONMENT.match(source, match.end())
        if name is None:
            raise LatexError(f"{command} needs an environment name in braces", at)
        return f"{command}{{{name.group(1)}}}", name.end()
    if command[1].isspace():
        return CONTROL_SPACE, match.end()
    if not command[1].isprintable():
        raise LatexError(f"character {command[1]!r} is not LaTeX; remove it", at + 1)
    return command, match.end()
