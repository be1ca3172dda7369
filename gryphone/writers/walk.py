"""A formula's tree made ready for writing, and the walk that the writers share."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeGuard

from gryphone.errors import LatexError
from gryphone.latex.lexer import Source, Token, positioned
from gryphone.latex.normalize import rules_of
from gryphone.latex.tree import (
    BINOMIALS,
    FRACTIONS,
    OPERATORS,
    Command,
    Fence,
    Group,
    Matrix,
    Node,
    Row,
    Scripts,
    Symbol,
    parse,
    words,
)
from gryphone.latex.variants import FUNCTIONS, UPRIGHT, unified

NAMES = FUNCTIONS | words(r"\limsup \liminf \mod")  # functions, written as the words they are
BIG = OPERATORS - NAMES  # signs that take limits: sums, integrals, unions
INTEGRALS = words(r"\int \iint \iiint \oint \fint")
RELATIONS = words(
    r"""= < > \leq \geq \neq \approx \equiv \sim \simeq \cong \propto \in \notin \ni \subset
    \subseteq \supset \supseteq \subsetneq \supsetneq \sqsubseteq \Subset \ll \gg \lesssim \gtrsim
    \gtrless \gtrapprox \leqslant \geqslant \triangleq \doteq \asymp \prec \succ \preceq \succeq
    \parallel \shortparallel \nmid \perp \models \vdash \dashv \vDash \Vdash \rightarrow \leftarrow
    \leftrightarrow \Rightarrow \Leftarrow \Leftrightarrow \longrightarrow \longleftarrow
    \longleftrightarrow \Longrightarrow \Longleftrightarrow \mapsto \longmapsto \hookrightarrow
    \rightharpoonup \rightleftharpoons \rightrightarrows \therefore \because \uparrow \downarrow
    \nearrow \searrow \smile \frown \smallfrown \vartriangleright :"""
)
BINARY = words(
    r"""+ - \pm \mp \times \div \cdot * / \circ \bullet \star \oplus \ominus \otimes \odot
    \boxplus \boxtimes \cap \cup \sqcap \sqcup \uplus \wedge \vee \setminus \smallsetminus \mod
    \wr \ltimes \rtimes \diamond \dagger \dag \ddagger"""
)
OPENING = {
    "(": ")",
    "[": "]",
    r"\{": r"\}",
    r"\langle": r"\rangle",
    r"\lfloor": r"\rfloor",
    r"\lceil": r"\rceil",
    r"\llbracket": r"\rrbracket",
}
CLOSING = frozenset(OPENING.values())
BARS = words(r"| \| \parallel")
_ANGLES = {"<": r"\langle", ">": r"\rangle"}  # what \left< draws
_BETWEEN = RELATIONS | BINARY | words(r", ; \\ \quad \qquad")
_HALF_OPEN = {("(", "]"), ("[", ")")}
_MATRICES = {
    "pmatrix": ("(", ")"),
    "bmatrix": ("[", "]"),
    "Bmatrix": (r"\{", r"\}"),
    "vmatrix": ("|", "|"),
    "Vmatrix": (r"\|", r"\|"),
    "cases": (r"\{", "."),
    "dcases": (r"\{", "."),
}
_TABLES = words("matrix smallmatrix array aligned split gathered subarray")
_LINES = {"aligned": "aligned", "split": "aligned", "gathered": "gathered"}  # which no matrix is
# One name for each look, commands that change nothing, and such that nobody sees.
_COMMANDS = {
    **dict.fromkeys(FRACTIONS, r"\frac"),
    **dict.fromkeys(BINOMIALS, r"\binom"),
    **dict.fromkeys(words(r"\textbf \bold"), r"\mathbf"),
    **dict.fromkeys(words(r"\bm \pmb"), r"\boldsymbol"),
    **dict.fromkeys(words(r"\textrm \mbox \hbox \textnormal \textit \emph"), r"\text"),
    r"\textsf": r"\mathsf",
    r"\texttt": r"\mathtt",
    r"\stackrel": r"\overset",
    r"\operatorname": r"\mathrm",
}
_KEPT = words(
    r"""\mathit \mathnormal \mathop \mathbin \mathrel \mathord \mathopen \mathclose \mathpunct
    \mathinner \smash"""
)
_UNSEEN = words(r"\phantom \hphantom \vphantom")
_SWITCHES = {r"\rm": r"\mathrm", r"\bf": r"\mathbf", r"\cal": r"\mathcal", r"\it": r"\mathit"}
_SAME = {r"\bmod": r"\mod", r"\dag": r"\dagger", r"\ ": r"\space"}
_SIGNS = {  # where the library's table has another sign, or none
    r"\sim": "∼",
    r"\setminus": "∖",
    r"\square": "□",
    r"\P": "¶",
    r"\shortparallel": "∥",
    r"\quad": "\u2003",
    r"\qquad": "\u2003\u2003",
    r"\space": " ",
    "~": " ",
    "-": "−",
    "*": "∗",
}


def table(text: str) -> dict[str, str]:
    """Names and what they become, in turn: a table that a person can read."""
    parts = text.split()
    return dict(zip(parts[::2], parts[1::2], strict=True))


class Inexpressible(LatexError):
    """A formula that a target has no words for; the message names the part and its place."""


def sign(symbol: str) -> str | None:
    """The Unicode sign of a symbol, if there is one."""
    from latex2mathml.symbols_parser import convert_symbol

    if symbol.startswith(r"\not") and len(symbol) > 4 and not symbol[4].isalpha():
        struck = sign(symbol[4:])
        return struck and unicodedata.normalize("NFC", struck + "\u0338")
    if symbol in _SIGNS or not symbol.startswith("\\"):
        return _SIGNS.get(symbol, symbol)
    code = convert_symbol(symbol)
    found = chr(int(code, 16)) if code else None
    return None if found and unicodedata.combining(found) else found


def read(source: Source) -> Row:
    """The tree of a formula, ready to be written: one name for each look, numbers in one piece,
    brackets in pairs, and no sizes."""
    rules = rules_of("crohme")
    assert rules is not None
    dropped = rules.drop - UPRIGHT - words(r"\limits \nolimits \quad \qquad \space ~")
    names = {**rules.rename, **_SAME, "'": "'"}  # a prime is the parser's
    tokens = [
        Token(names.get(token.text, token.text), token.position)
        for token in _spaced(unified(positioned(source)))
        if token.text not in dropped
    ]
    return _row(parse(tokens))


def _spaced(tokens: Sequence[Token]) -> list[Token]:
    """The tokens, and the spaces just inside a text's braces: the tree has no place of a brace."""
    out: list[Token] = []
    braces: list[bool] = []  # those that are open, and whether they are a text's
    for at, token in enumerate(tokens):
        last = tokens[at - 1] if at else None
        bound = braces and braces[-1] and (token.text == "}" or (last and last.text == "{"))
        if last and bound and token.position > last.position + len(last.text):
            out.append(Token(r"\space", last.position + len(last.text)))
        if token.text == "{":
            braces.append(last is not None and _is_text(last.text))
        elif token.text == "}" and braces:
            braces.pop()
        out.append(token)
    return out


def _is_text(name: str) -> bool:
    return _COMMANDS.get(name, name) == r"\text"


def _row(row: Row) -> Row:
    items = [_node(item) for item in _switched(row.items)]
    return Row(tuple(paired(_numbers(_struck(items)))))


def _switched(items: Sequence[Node]) -> Sequence[Node]:
    """`{\\bf x}` is `\\mathbf{x}`: a switch is for all that follows."""
    for at, item in enumerate(items):
        if isinstance(item, Symbol) and item.text in _SWITCHES:
            rest = Row(tuple(_switched(items[at + 1 :])))
            return (*items[:at], Command(_SWITCHES[item.text], (rest,), at=item.at))
    return items


def _node(node: Node) -> Node:
    match node:
        case Row():
            return _row(node)
        case Group(body):
            inner = _row(body)
            return inner.items[0] if len(inner.items) == 1 else Group(inner)
        case Scripts(base, sub, sup):
            base = None if base == Group(Row()) else base
            low, high = (_row(part) if part and part.items else None for part in (sub, sup))
            return replace(node, base=base and _node(base), sub=low, sup=high)
        case Command():
            return _command(node)
        case Fence():
            left, right = (_ANGLES.get(end, end) for end in (node.left, node.right))
            return replace(node, left=left, body=_row(node.body), right=right)
        case Matrix():
            return _matrix(node)
    return node


def _command(node: Command) -> Node:
    if node.name in _UNSEEN:
        return Row()
    name = _COMMANDS.get(node.name, node.name)
    if name == r"\text":
        text = _words(node.args[0])
        return Command(name, (Row((Symbol(text, node.at),)),), at=node.at) if text else Row()
    args = tuple(map(_row, node.args))
    if name in _KEPT:
        return args[0].items[0] if len(args[0].items) == 1 else Group(args[0])
    return Command(name, args, node.option and _row(node.option), node.at)


def _words(row: Row) -> str:
    """Text as it was typed; where its tokens stand tells the spaces between them."""
    text, end = "", None
    for item in row.items:
        if not isinstance(item, Symbol):
            at = getattr(item, "at", None)
            raise Inexpressible("there is a formula inside a text; take it out", at)
        gap = end is not None and item.at is not None and item.at > end
        text += " " * gap + (sign(item.text) or item.text)
        # Behind a space no other is seen.
        bare = item.at is None or item.text == r"\space"
        end = None if bare else (item.at or 0) + len(item.text)
    return text


def _matrix(node: Matrix) -> Node:
    cells = tuple(tuple(map(_row, row)) for row in node.cells)
    name = _LINES.get(node.name.rstrip("*"), "matrix")
    inner = Matrix(name, cells, tuple(c for c in node.columns if c in "lcr|"), node.at)
    if node.name in _MATRICES:
        left, right = _MATRICES[node.name]
        return Fence(left, Row((inner,)), right, node.at)
    if node.name.rstrip("*") not in _TABLES:
        raise Inexpressible(f"{node.name} is no table that can be written; use matrix", node.at)
    return inner


def _struck(items: Iterable[Node]) -> list[Node]:
    """`\\not` and the sign behind it are one sign."""
    out: list[Node] = []
    for item in items:
        base = item.base if isinstance(item, Scripts) else item
        if out and out[-1] == Symbol(r"\not") and isinstance(base, Symbol):
            struck = Symbol(
                {"=": r"\neq", r"\in": r"\notin"}.get(base.text, rf"\not{base.text}"), base.at
            )
            out[-1] = replace(item, base=struck) if isinstance(item, Scripts) else struck
        else:
            out.append(item)
    return out


def _is_digit(node: Node | None) -> TypeGuard[Symbol]:
    return isinstance(node, Symbol) and node.text.isascii() and node.text.isdigit()


def _numbers(items: list[Node]) -> list[Node]:
    """Digits in a row, with one point among them, are a number; its scripts are the number's."""
    out: list[Node] = []
    for at, item in enumerate(items):
        base = item.base if isinstance(item, Scripts) else item
        last = out[-1] if out else None
        if isinstance(last, Symbol) and last.text[:1].isdigit():
            follows = items[at + 1] if at + 1 < len(items) else None
            after = follows.base if isinstance(follows, Scripts) else follows
            point = item == Symbol(".") and "." not in last.text and _is_digit(after)
            if _is_digit(base) or point:
                assert isinstance(base, Symbol)
                number = Symbol(last.text + base.text, last.at)
                out[-1] = replace(item, base=number) if isinstance(item, Scripts) else number
                continue
        out.append(item)
    return out


def paired(items: Iterable[Node]) -> list[Node]:
    """Brackets that belong together become fences, half-open intervals too; scripts of the last
    one are the fence's. Bars that open stand where a term begins; any other bar stays a bar."""
    out: list[Node] = []
    opened: list[int] = []  # places in `out` of brackets that wait for their partner
    for item in items:
        base = item.base if isinstance(item, Scripts) else item
        text = base.text if isinstance(base, Symbol) else ""
        partner = _partner(out, opened, text)
        if partner is not None:
            first = out[partner]
            assert isinstance(first, Symbol)
            fence = Fence(first.text, Row(tuple(out[partner + 1 :])), text, first.at)
            out[partner:] = [replace(item, base=fence) if isinstance(item, Scripts) else fence]
            opened = [place for place in opened if place < partner]
            continue
        starts = not out or is_operator(out[-1]) or (opened and opened[-1] == len(out) - 1)
        if isinstance(item, Symbol) and (text in OPENING or (text in BARS and starts)):
            opened.append(len(out))
        out.append(item)
    if len(out) > 1 and out[-2] == Symbol(r"\{") and isinstance(out[-1], Matrix):  # cases
        out[-2:] = [Fence(r"\{", Row((out[-1],)), ".", out[-1].at)]
    return out


def _partner(out: list[Node], opened: list[int], text: str) -> int | None:
    """The place of the bracket that `text` closes."""
    for place in reversed(opened):
        first = out[place]
        assert isinstance(first, Symbol)
        if text in BARS:
            if first.text == text and place < len(out) - 1 and not is_operator(out[-1]):
                return place
        elif text in CLOSING and (
            OPENING.get(first.text) == text or (first.text, text) in _HALF_OPEN
        ):
            return place
        if first.text not in BARS:
            return None
    return None


def is_operator(node: Node) -> bool:
    """Whether a term begins behind it."""
    base = node.base if isinstance(node, Scripts) else node
    if isinstance(base, Symbol) and base.text in NAMES | BIG:
        return True
    return isinstance(node, Symbol) and node.text in _BETWEEN


def text_of(node: Command) -> str:
    """The words of a text, with the spaces around them, or a name's letters."""
    return "".join(item.text for item in node.args[0].items if isinstance(item, Symbol))


def is_tall(node: Node | None) -> bool:
    """Whether brackets around it should grow."""
    match node:
        case None:
            return False
        case Row(items) | Group(Row(items)):
            return any(map(is_tall, items))
        case Scripts(base, sub, sup):
            limits = isinstance(base, Symbol) and base.text in BIG and (sub or sup)
            return bool(limits) or any(map(is_tall, (base, sub, sup)))
        case Command(name, args):
            return name in (r"\frac", r"\binom", r"\overset", r"\underset") or any(
                map(is_tall, args)
            )
        case Fence(_, body, _):
            return is_tall(body)
        case Matrix():
            return True
    return False


class Writer:
    """Goes through a tree; a target says how each kind of node is written."""

    target = ""
    between = ""

    def write(self, source: Source) -> str:
        """A formula in the target's words; an Inexpressible names what it has none for."""
        return self.row(read(source))

    def row(self, row: Row | None) -> str:
        return self.between.join(filter(None, map(self.node, row.items if row else ())))

    def node(self, node: Node) -> str:
        match node:
            case Symbol():
                return self.symbol(node)
            case Scripts():
                return self.scripts(node)
            case Command():
                return self.command(node)
            case Fence():
                return self.fence(node)
            case Matrix():
                return self.matrix(node)
            case Group(body):
                return self.group(body)
        return self.row(node)

    def cannot(self, what: str, node: Node) -> Inexpressible:
        return Inexpressible(f"{self.target} cannot say {what}", getattr(node, "at", None))

    def group(self, body: Row) -> str:
        return self.row(body)

    def sign(self, node: Symbol) -> str:
        """The Unicode sign of a symbol, or the error that there is none."""
        found = node.text if node.text[:1].isdigit() else sign(node.text)
        if found is None:
            raise self.cannot(node.text, node)
        return found

    def symbol(self, node: Symbol) -> str:
        raise NotImplementedError

    def scripts(self, node: Scripts) -> str:
        raise NotImplementedError

    def command(self, node: Command) -> str:
        raise NotImplementedError

    def fence(self, node: Fence) -> str:
        raise NotImplementedError

    def matrix(self, node: Matrix) -> str:
        raise NotImplementedError

    def cells(self, node: Matrix) -> tuple[tuple[Row, ...], ...]:
        """The rows of a table, or the error that a line between its columns is lost."""
        if "|" in node.columns:
            raise self.cannot("a line between columns", node)
        return node.cells
