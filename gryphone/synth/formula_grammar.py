"""Formulas that nobody wrote: parts of real labels grafted onto one another, with rare symbols.

The grammar is its examples: for every role (numerator, superscript, lower limit, ...) it keeps the
rows that real labels have there, as often as they have them. A formula is such a row in which some
parts are exchanged for other rows of their role, some symbols for rarer ones of their kind.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from gryphone.errors import GryphoneError
from gryphone.latex.tree import Command, Group, Matrix, Node, Row, Scripts, Symbol, parse
from gryphone.synth.symbols import (
    ARROWS,
    BIG_OPERATORS,
    BRACKET_PAIRS,
    DELIMITERS,
    DIGITS,
    FONTS,
    FUNCTIONS,
    GLYPHLESS,
    GREEK,
    LOWER,
    OPERATORS,
    RELATIONS,
    SIGNS,
    UPPER,
    words,
)
from gryphone.tokens import sat_split

_ACCENTS = words(
    r"""\hat \bar \vec \dot \ddot \tilde \check \widehat \overline \underline \widetilde
    \overrightarrow"""
)
_STRUCTURES = frozenset([*_ACCENTS, "\\frac", "\\sqrt", "\\binom", "\\not", *FONTS])
_PAIRS = tuple(p for p in BRACKET_PAIRS.items() if p[0] not in ("|", "\\|"))
_JOINTS = ("+", "+", "+", "-", "-", "-", "\\times", "\\cdot", "=", ",")
_LETTERS = frozenset([*LOWER, *UPPER, *GREEK])


@dataclass(frozen=True)
class Widening:
    """How far the grammar goes beyond its examples; chances unless said otherwise."""

    graft: float = 0.3  # that a part is exchanged for another row of its role
    elsewhere: float = 0.12  # of those: that the row comes from any role
    depth: int = 4  # grafts inside one another, at most
    join: float = 0.35  # that terms are joined to a sum or an equation
    terms: int = 6  # in a sum, at most
    matrix: float = 0.03
    binomial: float = 0.02
    plain: float = 0.1  # that something is written which no context foretells, see _Writer.plain
    spiced: float = 0.6  # formulas with rarer symbols
    spice: float = 0.3  # of their symbols that change
    shortest: int = 2  # symbols
    longest: int = 40


@dataclass
class FormulaGrammar:
    """Rows by role; `symbols` is what may be written."""

    pools: dict[str, list[Row]]
    symbols: Collection[str]
    widening: Widening = field(default_factory=Widening)

    @classmethod
    def fit(
        cls, labels: Iterable[Sequence[str]], symbols: Collection[str], widening: Widening
    ) -> FormulaGrammar:
        """Collect the rows of labels; what cannot be parsed is left out."""
        pools: dict[str, list[Row]] = {}
        for tokens in labels:
            try:
                _collect(parse(tokens), "top", pools)
            except GryphoneError:
                continue
        for row in pools.get("top", []):
            pools.setdefault("term", []).extend(_terms(row))
        return cls(pools, symbols, widening)

    def formulas(self, seed: int) -> Iterator[list[str]]:
        """Formulas without end, as tokens; the rarest symbols so far are preferred as spice."""
        writer = _Writer(self, random.Random(seed))
        while True:
            tokens = tree_tokens(writer.formula())
            known = all(s in self.symbols for s, _ in sat_split(tokens))
            size = len(sat_split(tokens))
            if known and self.widening.shortest <= size <= self.widening.longest:
                writer.seen.update(tokens)
                yield tokens


def _collect(row: Row, role: str, pools: dict[str, list[Row]]) -> None:
    if not row.items:
        return
    pools.setdefault(role, []).append(row)
    for node in row.items:
        for part, name in _parts(node):
            _collect(part, name, pools)


def _parts(node: Node) -> list[tuple[Row, str]]:
    """The rows inside a node, with their roles; a script's base may hold more."""
    if isinstance(node, Scripts):
        limits = isinstance(node.base, Symbol) and (
            node.base.text in BIG_OPERATORS or node.base.text in FUNCTIONS
        )
        sub, sup = ("lower", "upper") if limits else ("sub", "sup")
        rows = [(r, n) for r, n in ((node.sub, sub), (node.sup, sup)) if r is not None]
        return rows + (_parts(node.base) if node.base is not None else [])
    if isinstance(node, Command):
        option = [(node.option, "index")] if node.option is not None else []
        return option + [(row, f"{node.name}{i}") for i, row in enumerate(node.args)]
    if isinstance(node, Row):
        return [part for item in node.items for part in _parts(item)]
    return _parts(node.body) if isinstance(node, Group) else []


def _terms(row: Row) -> list[Row]:
    """What stands between operators and relations, outside of brackets."""
    terms: list[list[Node]] = [[]]
    depth = 0
    for node in row.items:
        text = node.text if isinstance(node, Symbol) else ""
        depth += (text in ("(", "[", "\\{")) - (text in (")", "]", "\\}"))
        if depth == 0 and (text in OPERATORS or text in RELATIONS or text == ","):
            terms.append([])
        else:
            terms[-1].append(node)
    return [Row(tuple(term)) for term in terms if term]


def tree_tokens(node: Node) -> list[str]:
    """The tokens of a tree."""
    if isinstance(node, Symbol):
        return [node.text]
    if isinstance(node, Row):
        return [token for item in node.items for token in tree_tokens(item)]
    if isinstance(node, Group):
        return tree_tokens(node.body)
    if isinstance(node, Scripts):
        tokens = tree_tokens(node.base) if node.base is not None else []
        for mark, row in (("_", node.sub), ("^", node.sup)):
            tokens += [mark, "{", *tree_tokens(row), "}"] if row is not None else []
        return tokens
    if isinstance(node, Command):
        tokens = [node.name]
        tokens += ["[", *tree_tokens(node.option), "]"] if node.option is not None else []
        for row in node.args:
            tokens += ["{", *tree_tokens(row), "}"]
        return tokens
    if isinstance(node, Matrix):
        return _emit_matrix(node)
    return [node.left, *tree_tokens(node.body), node.right]


def _emit_matrix(node: Matrix) -> list[str]:
    tokens = ["\\begin{matrix}"]
    for number, cells in enumerate(node.cells):
        tokens += ["\\\\"] if number else []
        for column, cell in enumerate(cells):
            tokens += (["&"] if column else []) + tree_tokens(cell)
    return [*tokens, "\\end{matrix}"]


class _Writer:
    """Draws formulas from a grammar."""

    def __init__(self, grammar: FormulaGrammar, draw: random.Random) -> None:
        self.grammar, self.draw, self.wide = grammar, draw, grammar.widening
        self.seen: Counter[str] = Counter()
        self.kinds = _kinds(grammar.symbols)
        self.spice = 0.0

    def chance(self, probability: float) -> bool:
        return self.draw.random() < probability

    def formula(self) -> Row:
        self.spice = self.wide.spice if self.chance(self.wide.spiced) else 0.0
        if self.chance(self.wide.plain):
            row = Row(self.plain())
            while self.chance(self.wide.join):
                row = self.beside(row, self.plain())
            return row
        if self.chance(self.wide.join):
            row = self.joined()
        else:
            row = self.row("top", 0)
        if self.chance(self.wide.matrix):
            row = self.beside(row, self.matrix())
        if self.chance(self.wide.binomial):
            row = self.beside(row, (Command("\\binom", (self.atom(), self.atom())),))
        return self.brackets(row)

    def joined(self) -> Row:
        items: list[Node] = []
        for number in range(self.draw.randint(2, self.draw.randint(2, self.wide.terms))):
            if number:
                items.append(self.symbol(Symbol(self.draw.choice(_JOINTS))))
            items += self.row("term", 1).items
        return Row(tuple(items))

    def plain(self) -> tuple[Node, ...]:
        """A function of any letter or digit, a product in an exponent, a lone symbol under a root,
        with an index or without, a quotient: labels have few, and a reader who goes by what is
        frequent overrules the ink (`\\cos 0` is no `\\cos \\theta`).
        """
        known = self.grammar.symbols
        functions = FUNCTIONS[:9] if self.chance(0.7) else FUNCTIONS  # the common ones come first
        function = self.draw.choice([n for n in functions if n in known] or [self.any().text])
        power = Scripts(
            self.any(), None, Row(tuple(self.any() for _ in range(2 + self.chance(0.3))))
        )
        index = Row((self.any(),)) if self.chance(0.5) else None
        forms: list[tuple[Node, ...]] = [
            (Symbol(function), self.any()),
            (power,),
            (Command("\\sqrt", (Row((self.any(),)),), index),),
            (self.any(), Symbol("\\div" if "\\div" in known else "-"), self.any()),
        ]
        return self.draw.choices(forms, (4, 3, 2, 1))[0]

    def any(self) -> Symbol:
        """Any digit, letter or Greek letter; each of the four kinds is as likely."""
        kind = self.draw.choice((DIGITS, LOWER, UPPER, GREEK))
        return Symbol(self.rarest([n for n in kind if n in self.grammar.symbols] or ["x"]))

    def beside(self, row: Row, items: tuple[Node, ...]) -> Row:
        """A row with something new at its end, behind a relation or an operator."""
        keep = row.items if len(row.items) < 9 else ()
        joint = (Symbol(self.draw.choice(("=", "+", "-"))),) if keep else ()
        return Row((*keep, *joint, *items))

    def matrix(self) -> tuple[Node, ...]:
        rows, columns = self.draw.choice(((2, 1), (2, 2), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3)))
        cells = tuple(tuple(self.atom() for _ in range(columns)) for _ in range(rows))
        left, right = self.draw.choice((("(", ")"), ("(", ")"), ("[", "]"), ("|", "|")))
        return Symbol(left), Matrix("matrix", cells), Symbol(right)

    def atom(self) -> Row:
        """A short row."""
        for _ in range(20):
            row = self.row(self.draw.choice(("term", "sub", "sup")), self.wide.depth)
            if len(tree_tokens(row)) <= 6:
                return row
        return Row((Symbol(self.draw.choice(DIGITS)),))

    def row(self, role: str, depth: int) -> Row:
        pool = self.grammar.pools.get(role) or self.grammar.pools["top"]
        return self.vary(self.draw.choice(pool), depth)

    def vary(self, row: Row, depth: int) -> Row:
        items = [self.node(node, depth) for node in row.items]
        return Row(tuple(items))

    def part(self, row: Row, role: str, depth: int) -> Row:
        if depth < self.wide.depth and self.chance(self.wide.graft):
            return self.row("term" if self.chance(self.wide.elsewhere) else role, depth + 1)
        return self.vary(row, depth)

    def node(self, node: Node, depth: int) -> Node:
        if isinstance(node, Symbol):
            return self.symbol(node)
        roles = {id(row): role for row, role in _parts(node)}

        def inner(row: Row | None) -> Row | None:
            return None if row is None else self.part(row, roles.get(id(row), "term"), depth)

        if isinstance(node, Scripts):
            base = self.node(node.base, depth) if node.base is not None else None
            return replace(node, base=base, sub=inner(node.sub), sup=inner(node.sup))
        if isinstance(node, Command):
            args = tuple(inner(row) or Row() for row in node.args)
            args = node.args if node.name in FONTS else args
            return replace(node, args=args, option=inner(node.option))
        return node

    def symbol(self, node: Symbol) -> Node:
        """Another symbol of the kind, sometimes; letters may get an accent or another font."""
        kind = next((k for k in self.kinds if node.text in k[0]), None)
        # There are more relations than places for them.
        eager = 2.0 if node.text in RELATIONS or node.text in ARROWS else 1.0
        if kind is None or not self.chance(eager * self.spice):
            return node
        if node.text in _LETTERS and self.chance(0.3):
            accents = [name for name in _ACCENTS if name in self.grammar.symbols]
            return Command(self.rarest(accents), (Row((node,)),)) if accents else node
        if node.text in UPPER and self.chance(0.25):
            fonts = sorted(FONTS & set(self.grammar.symbols))
            return Command(self.rarest(fonts), (Row((node,)),)) if fonts else node
        if node.text in RELATIONS and node.text != "=" and self.chance(0.05):
            return Row((Symbol("\\not"), node)) if "\\not" in self.grammar.symbols else node
        return Symbol(self.rarest(kind[1]))

    def rarest(self, names: Sequence[str]) -> str:
        """One of a few random names: the one written least often so far."""
        some = [self.draw.choice(names) for _ in range(4)]
        return min(some, key=lambda name: self.seen[name])

    def brackets(self, row: Row) -> Row:
        """Other brackets in place of round ones, all of a row's at once."""
        if not self.chance(0.15 + self.spice / 2):
            return row
        pairs = [p for p in _PAIRS if p[0] in self.grammar.symbols]
        left, right = self.draw.choice(pairs or [("(", ")")])
        swap = {"(": left, ")": right}
        return Row(
            tuple(
                Symbol(swap.get(n.text, n.text)) if isinstance(n, Symbol) else n for n in row.items
            )
        )


def _kinds(symbols: Collection[str]) -> list[tuple[frozenset[str], tuple[str, ...]]]:
    """What may be exchanged, and for what: every symbol of the vocabulary has a kind to enter."""
    letters = (*LOWER, *UPPER, *GREEK, *GREEK, *SIGNS, "?", "!")
    big = tuple(sorted(BIG_OPERATORS))
    listed = {*letters, *OPERATORS, *RELATIONS, *ARROWS, *FUNCTIONS, *big, *DIGITS, *DELIMITERS}
    listed |= _STRUCTURES | GLYPHLESS | {",", ".", "\\prime"}
    # What nobody listed is mostly infix: arrows of all directions, odd relations.
    others = sorted(s for s in symbols if s not in listed and not s.startswith(("<", "\\begin")))
    infix = (*RELATIONS, *ARROWS, *others)
    groups = (
        (_LETTERS, letters),
        (frozenset(OPERATORS), OPERATORS),
        (frozenset((*RELATIONS, *ARROWS)), infix),
        (frozenset(FUNCTIONS), FUNCTIONS),
        (BIG_OPERATORS, big),
    )
    usable = [(old, tuple(n for n in new if n in symbols)) for old, new in groups]
    return [(old, new) for old, new in usable if new]
