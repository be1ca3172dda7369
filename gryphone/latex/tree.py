"""A small tree of mathematics: what a token sequence means, whatever way it was spelt."""

from dataclasses import dataclass, field

from gryphone.errors import LatexError
from gryphone.latex.lexer import Source, Token, positioned

# Far deeper than real mathematics, and shallow enough for Python's own recursion limit.
MAX_DEPTH = 100


def words(text: str) -> frozenset[str]:
    """The set of the words in a text: a table of commands that a person can read."""
    return frozenset(text.split())


FRACTIONS = frozenset({r"\frac", r"\dfrac", r"\tfrac", r"\cfrac"})
BINOMIALS = frozenset({r"\binom", r"\dbinom", r"\tbinom"})
STACKS = frozenset({r"\stackrel", r"\overset", r"\underset"})
TWO_ARGUMENTS = FRACTIONS | BINOMIALS | STACKS
ACCENTS = words(
    r"""\hat \bar \vec \dot \ddot \dddot \tilde \check \breve \acute \grave \mathring
    \widehat \widetilde \widecheck \overline \underline \overrightarrow \overleftarrow
    \overleftrightarrow \underrightarrow \underleftarrow \overbrace \underbrace \boxed
    \cancel \phantom \hphantom \vphantom \smash"""
)
FONTS = words(
    r"""\mathrm \mathbf \mathbb \mathcal \mathfrak \mathscr \mathsf \mathit \mathtt \mathnormal
    \boldsymbol \bm \bold \pmb \text \textrm \textbf \textit \textsf \texttt \textnormal \emph
    \mbox \hbox \operatorname \mathop \mathbin \mathrel \mathord \mathopen
    \mathclose \mathpunct \mathinner \substack"""
)
# Arrows with a text above and, in brackets, one below.
ARROWS = words(
    r"""\xrightarrow \xleftarrow \xRightarrow \xLeftarrow \xleftrightarrow \xLeftrightarrow
    \xmapsto \xhookrightarrow \xhookleftarrow \xlongequal"""
)
ONE_ARGUMENT = ACCENTS | FONTS | ARROWS
INFIX = {r"\over": r"\frac", r"\choose": r"\binom", r"\atop": r"\substack"}
DELIMITERS = words(
    r"""( ) [ ] | / . < > \{ \} \| \lbrack \rbrack \lbrace \rbrace \vert \Vert \lvert \rvert
    \lVert \rVert \langle \rangle \lfloor \rfloor \lceil \rceil \backslash \uparrow \downarrow
    \updownarrow \Uparrow \Downarrow \Updownarrow \lgroup \rgroup \lmoustache \rmoustache
    \ulcorner \urcorner \llcorner \lrcorner \lt \gt \parallel \mid"""
)
LIMITS = frozenset({r"\limits", r"\nolimits"})
OPERATORS = words(
    r"""\sum \prod \coprod \int \iint \iiint \oint \lim \max \min \sup \inf \bigcup \bigcap
    \bigoplus \bigotimes \bigodot \biguplus \bigwedge \bigvee \bigsqcup \limsup \liminf \det \gcd
    \Pr \sin \cos \tan \cot \sec \csc \sinh \cosh \tanh \coth \arcsin \arccos \arctan \log \ln
    \lg \exp \arg \dim \ker \deg \hom"""
)
_BRACED = ACCENTS | OPERATORS | {r"\sqrt", r"\left", "'"}


@dataclass(frozen=True, slots=True)
class Symbol:
    """One visible token, and where it stands in the source."""

    text: str
    at: int | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Row:
    """Nodes side by side."""

    items: tuple["Node", ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """A row in braces of its own, which is no argument and no script."""

    body: Row


@dataclass(frozen=True, slots=True)
class Scripts:
    """A base with scripts; `limits` is the limit control between them, if any."""

    base: "Node | None"
    sub: Row | None
    sup: Row | None
    limits: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """A command with arguments, such as a fraction, a root, an accent or a font."""

    name: str
    args: tuple[Row, ...]
    option: Row | None = None
    at: int | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Fence:
    """A `\\left` ... `\\right` pair."""

    left: str
    body: Row
    right: str
    at: int | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Matrix:
    """An environment of rows and cells; `columns` is the column specification of an array."""

    name: str
    cells: tuple[tuple[Row, ...], ...]
    columns: tuple[str, ...] = ()
    at: int | None = field(default=None, compare=False, repr=False)


Node = Symbol | Row | Group | Scripts | Command | Fence | Matrix


def parse(source: Source, strict: bool = False) -> Row:
    """Read LaTeX source or tokens into a tree; a LatexError names what is wrong and where.

    TeX takes more without braces than renderers do: `strict` refuses what KaTeX refuses.
    """
    tokens = positioned(source)
    parser = _Parser(tokens, strict)
    row = parser.row(frozenset())
    if parser.at < len(tokens):
        raise parser.error(f"unexpected {tokens[parser.at].text}")
    return row


def _infix(name: str, above: Row, below: Row) -> Node:
    """The command that `above \\over below` stands for."""
    if name == r"\substack":
        return Command(name, (Row((*above.items, Symbol(r"\\"), *below.items)),))
    return Command(name, (above, below))


def _takes_limits(base: "Node | None") -> bool:
    if isinstance(base, Command):
        return base.name in (r"\mathop", r"\operatorname", r"\underbrace", r"\overbrace")
    return isinstance(base, Symbol) and base.text in OPERATORS


class _Parser:
    """Recursive descent over tokens; every level of nesting passes through `_enter`."""

    def __init__(self, tokens: list[Token], strict: bool) -> None:
        self.tokens = tokens
        self.strict = strict
        self.at = 0
        self.depth = 0

    def error(self, message: str, at: int | None = None) -> LatexError:
        where = self.at if at is None else at
        if where < len(self.tokens):
            return LatexError(message, self.tokens[where].position)
        end = self.tokens[-1].position + len(self.tokens[-1].text) if self.tokens else 0
        return LatexError(message, end)

    def where(self) -> int:
        """Where the next token stands in the source; there must be one."""
        return self.tokens[self.at].position

    def peek(self) -> str:
        """The next token's text, or "" at the end."""
        return self.tokens[self.at].text if self.at < len(self.tokens) else ""

    def take(self) -> str:
        text = self.peek()
        self.at += 1
        return text

    def _enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels; simplify the formula")

    def row(self, stops: frozenset[str]) -> Row:
        """Nodes up to one of `stops` (not taken), the end, or a closer nobody opened."""
        self._enter()
        items: list[Node] = []
        while (text := self.peek()) and text not in stops:
            if text in INFIX:
                self.take()
                items = [_infix(INFIX[text], Row(tuple(items)), self.row(stops))]
                break
            if text in ("}", r"\right", "&") or text.startswith(r"\end{"):
                break
            items.append(self.scripted())
        self.depth -= 1
        return Row(tuple(items))

    def scripted(self) -> Node:
        """One atom with the scripts, primes and limit controls behind it."""
        base = None if self.peek() in ("^", "_") else self.atom()
        limits = ""
        sub: Row | None = None
        sup: Row | None = None
        primes: list[Node] = []
        while True:
            text = self.peek()
            if text in LIMITS:
                if self.strict and not _takes_limits(base):
                    raise self.error(f"{text} needs an operator in front of it")
                limits = self.take()
            elif text == "'" and base != Symbol("'"):
                if sup is not None:
                    raise self.error("a prime behind a superscript; write it first")
                where = self.where()
                self.take()
                primes.append(Symbol(r"\prime", where))
            elif text == "_":
                if sub is not None:
                    raise self.error("double subscript; put one of the two in braces")
                sub = self.script()
            elif text == "^":
                if sup is not None:
                    raise self.error("double superscript; put one of the two in braces")
                sup = self.script()
            else:
                break
        if primes:
            sup = Row((*primes, *(sup.items if sup else ())))
        if sub is None and sup is None and not limits and base is not None:
            return base
        return Scripts(base, sub, sup, limits)

    def script(self) -> Row:
        mark = self.take()
        if self.peek() in ("", "}", "^", "_", "&", r"\\", r"\right") or self.peek() in LIMITS:
            raise self.error(f"{mark} needs a script behind it")
        return self.argument(mark)

    def argument(self, owner: str) -> Row:
        """A braced row, or the one atom that stands in for it."""
        text = self.peek()
        if text == "{":
            return self.braced()
        if text in ("", "}", "&", "^", "_", r"\\", r"\right") or text.startswith(r"\end{"):
            raise self.error(f"{owner} lacks an argument")
        if text in INFIX or (self.strict and (text in _BRACED or text.startswith(r"\begin{"))):
            raise self.error(f"{owner} takes {text} only in braces")
        self._enter()
        node = self.atom()
        self.depth -= 1
        return Row((node,))

    def braced(self) -> Row:
        opened = self.at
        self.take()
        row = self.row(frozenset({"}"}))
        if self.peek() != "}":
            found = self.peek()
            if found:
                raise self.error(f"unexpected {found} inside braces")
            raise self.error("unmatched {; add the missing }", opened)
        self.take()
        return row

    def atom(self) -> Node:
        text = self.peek()
        if text == "{":
            return Group(self.braced())
        if text == r"\left":
            return self.fence()
        if text.startswith(r"\begin{"):
            return self.matrix()
        where = self.where()
        if text in TWO_ARGUMENTS:
            self.take()
            return Command(text, (self.argument(text), self.argument(text)), at=where)
        if text == r"\sqrt" or text in ARROWS:
            return self.with_option()
        if text in ONE_ARGUMENT:
            self.take()
            return Command(text, (self.argument(text),), at=where)
        if text in LIMITS:
            raise self.error(f"{text} needs an operator in front of it")
        self.take()
        return Symbol(text, where)

    def with_option(self) -> Node:
        where = self.where()
        name, option = self.take(), None
        if self.peek() == "[":
            opened = self.at
            self.take()
            option = self.row(frozenset({"]"}))
            if self.peek() != "]":
                raise self.error(f"{name}[ is never closed; add the missing ]", opened)
            self.take()
        return Command(name, (self.argument(name),), option, where)

    def fence(self) -> Node:
        opened, where = self.at, self.where()
        self.take()
        left = self.delimiter(r"\left")
        body = self.row(frozenset({r"\right"}))
        if self.peek() != r"\right":
            raise self.error(r"\left without a matching \right", opened)
        self.take()
        return Fence(left, body, self.delimiter(r"\right"), where)

    def delimiter(self, owner: str) -> str:
        if self.peek() not in DELIMITERS:
            raise self.error(f"{owner} needs a delimiter, not {self.peek() or 'the end'}")
        return self.take()

    def matrix(self) -> Node:
        opened, where = self.at, self.where()
        name = self.take()[len(r"\begin{") : -1]
        columns: tuple[str, ...] = ()
        if name in ("array", "subarray", "tabular"):
            columns = self.columns(name)
        end = f"\\end{{{name}}}"
        stops = frozenset({"&", r"\\", end})
        rows: list[tuple[Row, ...]] = []
        cells: list[Row] = []
        while True:
            cells.append(self.row(stops))
            mark = self.peek()
            if mark not in stops:
                if mark:
                    raise self.error(f"unexpected {mark} inside {name}")
                raise self.error(f"\\begin{{{name}}} is never closed; add {end}", opened)
            self.take()
            if mark == "&":
                continue
            # A last row without content is only the `\\` in front of `\end`.
            if mark == r"\\" or len(cells) > 1 or cells[0].items or not rows:
                rows.append(tuple(cells))
            cells = []
            if mark == end:
                return Matrix(name, tuple(rows), columns, where)

    def columns(self, name: str) -> tuple[str, ...]:
        opened = self.at
        if self.take() != "{":
            raise self.error(f"{name} needs a column specification such as {{cc}}", opened)
        columns: list[str] = []
        depth = 1
        while depth:
            text = self.take()
            if not text:
                raise self.error("unmatched {; add the missing }", opened)
            depth += (text == "{") - (text == "}")
            columns.append(text)
        return tuple(columns[:-1])
