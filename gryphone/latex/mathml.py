"""LaTeX to MathML, by latex2mathml."""

import re

from gryphone.errors import LatexError
from gryphone.latex.tree import words
from gryphone.latex.validity import check

_ELEMENTS = words(
    """math semantics annotation mrow mi mn mo ms mtext mspace mfrac msqrt mroot msub msup msubsup
    munder mover munderover mmultiscripts mprescripts mtable mtr mtd mstyle mpadded mphantom
    menclose merror"""
)
# Commands that the library copies as they stand.
_SPELT = {
    r"\arg": r"\operatorname{arg}",
    r"\dag": r"\dagger",
    r"\mod": r"\operatorname{mod}",
    r"\P": "¶",
    r"\shortparallel": r"\parallel",
}
# Environments that it does not know, and those that look the same.
_ENVIRONMENTS = {
    "aligned": "split",
    "gathered": "matrix",
    "dcases": "cases",
    "subarray": "array",
}
# A line's end is taken whole: `\\P` is one, and a letter.
_COMMAND = re.compile(r"\\(?:begin|end)\s*\{\s*([A-Za-z]+)\s*\}|\\(?:\\|[A-Za-z]+)")


def to_mathml(latex: str) -> str:
    """Presentation MathML of a formula; a LatexError says why there is none."""
    check(latex)
    from latex2mathml.converter import convert

    try:
        markup = str(convert(_COMMAND.sub(_spelt, latex)))
    except Exception as error:  # the library raises a dozen unrelated classes
        name = type(error).__name__
        raise LatexError(f"{latex!r} has no MathML ({name}: {error}); simplify it") from error
    _inspect(latex, markup)
    return markup


def _spelt(found: re.Match[str]) -> str:
    name = found[1]
    if name in _ENVIRONMENTS:
        return found[0].replace(name, _ENVIRONMENTS[name])
    return _SPELT.get(found[0], found[0])


def _inspect(latex: str, markup: str) -> None:
    """Refuse markup that a page must not run: the library copies `\\text{<script>}` as it is."""
    from defusedxml.ElementTree import fromstring

    try:
        root = fromstring(markup)
    except Exception as error:
        raise LatexError(f"{latex!r} does not make well-formed MathML; remove markup") from error
    for element in root.iter():
        name = str(element.tag).rpartition("}")[2]
        if name not in _ELEMENTS:
            raise LatexError(f"{latex!r} would put <{name}> into MathML; remove the markup")
        left = re.search(r"\\[A-Za-z]+", element.text or "")
        if left:
            raise LatexError(f"{latex!r} has no MathML: {left[0]} is unknown; replace it")
        for key in element.attrib:
            attribute = str(key).rpartition("}")[2].lower()
            if attribute.startswith("on") or attribute in ("href", "src", "action", "style"):
                raise LatexError(f"{latex!r} would set {attribute} in MathML; remove it")
