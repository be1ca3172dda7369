"""Other ways to write the same formula: Unicode signs, colours, functions in upright letters."""

import unicodedata

from gryphone.latex.lexer import Token
from gryphone.latex.tree import words

# Commands that set letters upright or as words, which a hand does not tell apart.
UPRIGHT = words(
    r"""\mathrm \mbox \hbox \vtop \text \textrm \textnormal \mathnormal \operatorname \rm
    \mathit \textit \it \mathop \mathbin \mathrel \mathord"""
)
FUNCTIONS = words(
    r"""\sin \cos \tan \cot \sec \csc \sinh \cosh \tanh \coth \arcsin \arccos \arctan \log
    \ln \lg \exp \lim \max \min \sup \inf \arg \det \dim \ker \deg \gcd \hom \Pr"""
)
# CROHME's `\mbox{Pr}` is two letters, and stays what it was.
_NAMES = FUNCTIONS - {r"\Pr"} | {r"\limsup", r"\liminf"}
_SWITCHES = words(r"\rm \it")
_COLOURS = words(r"\color \textcolor")
_SCRIPTS = {"<super>": "^", "<sub>": "_"}  # as Unicode's decompositions call them
# Each sign and its command, as renderers draw it.
_SIGNS = {
    pair[0]: pair[1:]
    for pair in words(
        r"""α\alpha β\beta γ\gamma δ\delta ϵ\epsilon ε\varepsilon ζ\zeta η\eta θ\theta ϑ\vartheta
        ι\iota κ\kappa λ\lambda μ\mu µ\mu ν\nu ξ\xi π\pi ϖ\varpi ρ\rho ϱ\varrho σ\sigma ς\varsigma
        τ\tau υ\upsilon ϕ\phi φ\varphi χ\chi ψ\psi ω\omega Γ\Gamma Δ\Delta ∆\Delta Θ\Theta Λ\Lambda
        Ξ\Xi Π\Pi Σ\Sigma Υ\Upsilon Φ\Phi Ψ\Psi Ω\Omega ∞\infty ∂\partial ∇\nabla ∑\sum ∏\prod
        ∫\int −- ×\times ÷\div ±\pm ∓\mp ·\cdot ⋅\cdot ∘\circ ≤\leq ≥\geq ≠\neq ≈\approx ≡\equiv
        ∼\sim ∝\propto ∈\in ∉\notin ⊂\subset ⊆\subseteq ∪\cup ∩\cap ∅\emptyset ∀\forall ∃\exists
        ¬\neg ∧\wedge ∨\vee →\rightarrow ←\leftarrow ⇒\Rightarrow ⇔\Leftrightarrow …\ldots ⋯\cdots
        ′' ‖\| ∥\parallel ⟨\langle ⟩\rangle"""
    )
}


def unified(tokens: list[Token]) -> list[Token]:
    """The same formula in LaTeX's own commands: `α` is `\\alpha`, `x²` is `x^{2}`,
    `\\mathrm{sin}` is `\\sin`, and colours and the star of `\\operatorname*` are gone."""
    plain: list[Token] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.text in _COLOURS:
            at = _behind_colour(tokens, at + 1)
        elif token.text in UPRIGHT:
            upright, at = _upright(tokens, at)
            plain += upright
        elif not token.text.isascii():
            signs, at = _signs(tokens, at)
            plain += signs
        else:
            plain.append(token)
            at += 1
    return plain


def _behind_colour(tokens: list[Token], at: int) -> int:
    """Where the colour's name ends: `[model]` and `{name}`; what is never closed stays."""
    for opening, closing in ("[]", "{}"):
        if _text(tokens, at) == opening:
            texts = (_text(tokens, end) for end in range(at, len(tokens)))
            at = next((end + 1 for end, text in enumerate(texts, at) if text == closing), at)
    return at


def _upright(tokens: list[Token], at: int) -> tuple[list[Token], int]:
    """A function whose name is all that stands upright, or the command alone."""
    command, behind = tokens[at], at + 1
    if command.text == r"\operatorname" and _text(tokens, behind) == "*":
        behind += 1
    braced = _text(tokens, behind) == "{"
    first = end = behind + braced
    while len(letter := _text(tokens, end)) == 1 and letter.isalpha():
        end += 1
    name = "\\" + "".join(token.text for token in tokens[first:end])
    whole = braced or command.text in _SWITCHES
    if whole and name in _NAMES and _text(tokens, end) == "}":
        return [Token(name, command.position)], end + braced
    return [command], behind


def _signs(tokens: list[Token], at: int) -> tuple[list[Token], int]:
    """The command of a sign, or a run of raised or lowered characters as one script."""
    position = tokens[at].position
    mark, _ = _script(tokens[at].text)
    if not mark:
        return [Token(_SIGNS.get(tokens[at].text, tokens[at].text), position)], at + 1
    signs = [mark, "{"]
    while at < len(tokens) and _script(tokens[at].text)[0] == mark:
        signs += [_SIGNS.get(sign, sign) for sign in _script(tokens[at].text)[1]]
        at += 1
    return [Token(sign, position) for sign in (*signs, "}")], at


def _script(text: str) -> tuple[str, str]:
    """`^` or `_` and what it raises or lowers: ("^", "2") for a raised 2."""
    kind, _, codes = unicodedata.decomposition(text[:1]).partition(" ")
    if len(text) > 1 or kind not in _SCRIPTS:
        return "", ""
    return _SCRIPTS[kind], "".join(chr(int(code, 16)) for code in codes.split())


def _text(tokens: list[Token], at: int) -> str:
    return tokens[at].text if at < len(tokens) else ""
