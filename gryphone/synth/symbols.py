"""What the synthesiser knows about symbols: their shape class, how they stretch, their kind."""

import string
from collections.abc import Sequence
from enum import IntEnum


class Fit(IntEnum):
    """How a glyph is brought into the box of its slot."""

    NATURAL = 0  # keeps its aspect; box from the class, the baseline and the script size
    BAR = 1  # spans the box's width: fraction bars, overlines
    DELIMITER = 2  # spans the box's height: brackets
    ROOT = 3  # fills the box; the hook keeps its width, the bar takes the rest
    BOX = 4  # keeps its aspect inside an explicit box: big operators, wide accents
    FRAME = 5  # fills the box both ways: the two brackets of a binomial coefficient


def words(text: str) -> tuple[str, ...]:
    """The words of a text: a readable way to list symbols."""
    return tuple(text.split())


DIGITS = tuple(string.digits)
LOWER = tuple(string.ascii_lowercase)
UPPER = tuple(string.ascii_uppercase)
GREEK = words(
    r"""\alpha \beta \gamma \delta \epsilon \varepsilon \zeta \eta \theta \vartheta \iota \kappa
    \lambda \mu \nu \xi \pi \varpi \rho \varrho \sigma \varsigma \tau \upsilon \phi \varphi \chi
    \psi \omega \Gamma \Delta \Theta \Lambda \Xi \Pi \Sigma \Upsilon \Phi \Psi \Omega"""
)
OPERATORS = words(
    r"""+ - \times \pm \mp \div \cdot * \oplus \otimes \ominus \odot \cup \cap \wedge \vee \circ
    \bullet \star \setminus \sqcup \sqcap \uplus \boxtimes \boxplus \diamond \ltimes \rtimes"""
)
RELATIONS = words(
    r"""= < > \leq \geq \neq \approx \equiv \sim \simeq \cong \propto \in \notin \ni
    \subset \subseteq \supset \supseteq \subsetneq \ll \gg \prec \succ \preceq \succeq \lesssim
    \gtrsim \leqslant \geqslant \perp \models \vdash \asymp \doteq \triangleq \sqsubseteq"""
)
ARROWS = words(
    r"""\rightarrow \leftarrow \Rightarrow \Leftrightarrow \mapsto \longrightarrow \leftrightarrow
    \Longrightarrow \longmapsto \hookrightarrow \rightleftharpoons \Longleftrightarrow
    \rightharpoonup \longleftrightarrow \rightrightarrows"""
)
SIGNS = words(
    r"""\infty \partial \nabla \forall \exists \hbar \ell \aleph \emptyset \varnothing \neg \top
    \bot \angle \triangle \square \dagger \# \% \Re \Im \imath \jmath \wp \P \S \&
    \natural \flat \sharp \intercal \diamondsuit \heartsuit \bigstar \surd \therefore \because
    \measuredangle \triangledown \bigtriangleup \bigcirc \ddagger"""
)
DOTS = words(r"\ldots \cdots")
# Symbols that may stand in for one another without changing the structure around them.
KINDS = (DIGITS, LOWER, UPPER, GREEK, OPERATORS, RELATIONS, ARROWS, SIGNS, DOTS)
LETTER_KINDS = (KINDS.index(LOWER), KINDS.index(UPPER), KINDS.index(GREEK))
# Told apart by their size or height alone: a reader who trusts the context gets these wrong.
TWINS: tuple[tuple[str, str], ...] = (
    *((letter, letter.upper()) for letter in "ckmopsuvwxyz"),
    (".", "\\cdot"),
    DOTS,  # type: ignore[arg-type]
)

BIG_OPERATORS = frozenset(
    words(r"""\sum \prod \coprod \int \iint \iiint \oint \bigcup \bigcap \bigoplus \bigotimes
    \bigvee \bigwedge \bigsqcup \biguplus \bigodot \fint""")
)

# Brackets that open and close; those that are their own partner are set plain or in pairs.
_OPENING, _CLOSING = r"( [ \{ \langle \lfloor \lceil | \|", r") ] \} \rangle \rfloor \rceil | \|"
BRACKET_PAIRS = dict(zip(words(_OPENING), words(_CLOSING), strict=True))
DELIMITERS = frozenset(BRACKET_PAIRS) | frozenset(BRACKET_PAIRS.values())

# Tokens drawn with the glyph of another symbol.
DRAWN_AS = {
    **dict.fromkeys(words(r"\frac \overline \underline \bar"), "-"),
    **dict.fromkeys(words(r"\hat \widehat"), "\\wedge"),
    **dict.fromkeys(words(r"\tilde \widetilde"), "\\sim"),
    **dict.fromkeys(words(r"\vec \overrightarrow"), "\\rightarrow"),
    "\\dot": ".",
    "\\check": "\\vee",
    "\\not": "/",
}
_FITS: dict[str, Fit] = {
    **dict.fromkeys(words(r"\frac \overline \underline \bar \overrightarrow"), Fit.BAR),
    **dict.fromkeys(words(r"\hat \widehat \tilde \widetilde \vec \dot \ddot \check \not"), Fit.BOX),
    "\\sqrt": Fit.ROOT,
    "\\binom": Fit.FRAME,
    **dict.fromkeys(BIG_OPERATORS, Fit.BOX),
    **dict.fromkeys(DELIMITERS, Fit.DELIMITER),
}

# Functions written letter by letter when the bank has no instance of the whole word.
FUNCTIONS = words(
    r"""\sin \cos \tan \log \lim \max \min \exp \ln \arcsin \arccos \arctan \sinh \cosh
    \tanh \coth \cot \sec \csc \det \dim \ker \gcd \arg \sup \inf \deg \limsup
    \liminf \mod \lg \hom \Pr"""
)


# Commands that change the letter behind them into another glyph, and leave no ink themselves.
FONTS = frozenset(["\\mathcal", "\\mathbb", "\\mathfrak"])
# Symbols of a label that leave no ink of their own.
GLYPHLESS = frozenset(["&", "\\\\", "\\begin{matrix}", "\\end{matrix}"])


def drawn_classes(pairs: Sequence[tuple[str, str]]) -> list[str | None]:
    """The glyph class of each symbol of a label, None where it leaves no ink."""
    classes: list[str | None] = []
    font = ""
    for symbol, modifier in pairs:
        if symbol in FONTS:
            font = symbol
            classes.append(None)
            continue
        if font:
            # A font over more than one letter has no class in any bank, and is refused there.
            classes.append(f"{font}{{{symbol}}}" if modifier.startswith("{}") else f"{font}{{}}")
        else:
            classes.append(None if symbol in GLYPHLESS else glyph_class(symbol))
        font = ""
    return classes


def glyph_class(token: str) -> str:
    """The class of glyph that draws a symbol token: a fraction's is the minus sign."""
    return DRAWN_AS.get(token, token)


def fit_of(token: str) -> Fit:
    """How the glyph of a symbol token fills its box."""
    return _FITS.get(token, Fit.NATURAL)
