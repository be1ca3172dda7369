"""One spelling for each formula: named conventions, each a table of what to drop and rename."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gryphone.errors import ConfigError
from gryphone.latex.lexer import Source, Token, positioned, tokenize
from gryphone.latex.tree import (
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

_SPACING = words(
    r"""\, \; \: \! \> \/ \space \quad \qquad \enspace \enskip \thinspace \medspace \thickspace
    \negthinspace \nobreakspace \hfill \allowbreak \nobreak \noindent ~"""
)
_SIZES = words(
    r"""\big \Big \bigg \Bigg \bigl \Bigl \biggl \Biggl \bigr \Bigr \biggr \Biggr
    \bigm \Bigm \biggm \Biggm \displaystyle \textstyle \scriptstyle \scriptscriptstyle
    \limits \nolimits \nonumber \notag $ \( \) \[ \]"""
)
_STYLES = UPRIGHT | words(
    r"\mathbf \textbf \boldsymbol \bm \bold \pmb \bf \mathsf \textsf \mathtt \texttt"
)
_COMMON = {
    r"\dfrac": r"\frac",
    r"\tfrac": r"\frac",
    r"\cfrac": r"\frac",
    r"\dbinom": r"\binom",
    r"\tbinom": r"\binom",
    r"\gt": ">",
    r"\lt": "<",
    r"\lbrack": "[",
    r"\rbrack": "]",
    r"\lbrace": r"\{",
    r"\rbrace": r"\}",
    r"\to": r"\rightarrow",
    r"\gets": r"\leftarrow",
    r"\lnot": r"\neg",
    r"\land": r"\wedge",
    r"\lor": r"\vee",
    r"\owns": r"\ni",
    r"\iff": r"\Leftrightarrow",
    r"\implies": r"\Rightarrow",
    "'": r"\prime",
}
_CROHME = _COMMON | {
    r"\ge": r"\geq",
    r"\le": r"\leq",
    r"\ne": r"\neq",
    r"\dots": r"\ldots",
    r"\dotsc": r"\ldots",
    r"\dotsb": r"\cdots",
    r"\vert": "|",
    r"\lvert": "|",
    r"\rvert": "|",
    r"\mid": "|",
    r"\Vert": r"\|",
    r"\lVert": r"\|",
    r"\rVert": r"\|",
    r"\colon": ":",
    r"\ast": "*",
}
_MATHWRITING = _COMMON | {
    r"\geq": r"\ge",
    r"\leq": r"\le",
    r"\neq": r"\ne",
    r"\ldots": r"\dots",
    r"\cdots": r"\dots",
    r"\dotsc": r"\dots",
    r"\dotsb": r"\dots",
    r"\vert": "|",
    r"\lvert": "|",
    r"\rvert": "|",
    r"\mid": "|",
    r"\|": r"\parallel",
    r"\Vert": r"\parallel",
    r"\lVert": r"\parallel",
    r"\rVert": r"\parallel",
    r"\colon": ":",
    r"\bmod": r"\mod",
    r"\ell": "l",
}
# Environments that are a matrix between two signs.
Fences = tuple[tuple[str, ...], tuple[str, ...]]
_FENCED: Mapping[str, Fences] = {
    "pmatrix": (("(",), (")",)),
    "bmatrix": (("[",), ("]",)),
    "Bmatrix": ((r"\{",), (r"\}",)),
    "vmatrix": (("|",), ("|",)),
    "Vmatrix": ((r"\|",), (r"\|",)),
}
_MATRICES: Mapping[str, Fences] = {
    **_FENCED,
    "matrix": ((), ()),
    "smallmatrix": ((), ()),
    "array": ((), ()),
    "Vmatrix": ((r"\parallel",), (r"\parallel",)),
    "cases": ((r"\{",), ()),
}


@dataclass(frozen=True)
class Convention:
    """What a data set's labels look like: tokens dropped, renamed, split and spelt out."""

    drop: frozenset[str]
    rename: Mapping[str, str]
    spell: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    matrices: Mapping[str, Fences] = field(default_factory=dict)
    glued: frozenset[str] = frozenset()


# CROHME has truths such as `\ltN`, where a space was lost behind one of these.
_GLUED = words(r"\lt \gt \leq \geq \rightarrow \log \neq \times \infty \theta")
_COMMANDS = words(r"\leqq \geqq")  # that look glued and are not
CONVENTIONS: Mapping[str, Convention | None] = {
    "crohme": Convention(_SPACING | _SIZES | UPRIGHT, _CROHME, matrices=_FENCED, glued=_GLUED),
    "mathwriting": Convention(
        _SPACING | _SIZES | _STYLES,
        _MATHWRITING,
        # Named functions are the letters that the hand wrote.
        {name: tuple(name[1:]) for name in FUNCTIONS},
        _MATRICES,
    ),
    "none": None,
}


def rules_of(convention: str) -> Convention | None:
    """The rules of a named convention; `none` has none."""
    if convention not in CONVENTIONS:
        known = ", ".join(sorted(CONVENTIONS))
        raise ConfigError(f"convention {convention!r} is unknown; use one of {known}")
    return CONVENTIONS[convention]


def normalize(source: str | Sequence[str], convention: str = "crohme") -> list[str]:
    """Spell LaTeX (source or tokens) the way the named convention does."""
    rules = rules_of(convention)
    if rules is None:
        return tokenize(source) if isinstance(source, str) else list(source)
    return _Writer(rules).row(read_tree(source, rules))


def read_tree(source: Source, rules: Convention, keep: frozenset[str] = frozenset()) -> Row:
    """The tree behind a label, its tokens dropped and renamed except those to `keep`."""
    return parse(_filter(unified(positioned(source)), replace(rules, drop=rules.drop - keep)))


def _filter(tokens: list[Token], rules: Convention) -> list[Token]:
    """Drop and rename single tokens, before the structure is read."""
    kept: list[Token] = []
    fenced = False
    for token in tokens:
        text = token.text
        if text in (r"\left", r"\right", r"\middle"):
            fenced = True
            continue
        # `\left.` is an invisible delimiter.
        if text in rules.drop or (fenced and text == "."):
            fenced = False
            continue
        fenced = False
        if text[:-1] in rules.glued and text not in _COMMANDS:
            head = rules.rename.get(text[:-1], text[:-1])
            kept.append(Token(head, token.position))
            kept.append(Token(text[-1], token.position + len(text) - 1))
            continue
        # A bare prime is a superscript: the parser must see it as it is.
        name = text if text == "'" else rules.rename.get(text, text)
        kept.append(Token(name, token.position))
    return kept


class _Writer:
    """Writes a tree back as tokens: braced arguments, subscript first, no idle groups."""

    def __init__(self, rules: Convention) -> None:
        self.rules = rules

    def row(self, row: Row) -> list[str]:
        tokens: list[str] = []
        for index, item in enumerate(_flat(row)):
            if isinstance(item, Scripts):
                tokens += self.scripts(item, first=index == 0)
            else:
                tokens += self.node(item)
        return tokens

    def node(self, node: Node) -> list[str]:
        if isinstance(node, Symbol):
            text = self.rules.rename.get(node.text, node.text)
            return list(self.rules.spell.get(text, (text,)))
        if isinstance(node, Command):
            return self.command(node)
        if isinstance(node, Matrix):
            return self.matrix(node)
        if isinstance(node, Scripts):
            return self.scripts(node, first=True)
        if isinstance(node, Fence):
            return [r"\left", node.left, *self.row(node.body), r"\right", node.right]
        return self.braced(node.body if isinstance(node, Group) else node)

    def braced(self, row: Row) -> list[str]:
        return ["{", *self.row(row), "}"]

    def scripts(self, node: Scripts, first: bool) -> list[str]:
        """A base and its scripts; an empty base is written only where it keeps scripts apart."""
        if node.base is not None:
            tokens = self.node(node.base)
        else:
            tokens = [] if first else ["{", "}"]
        if node.sub is not None:
            tokens += ["_", *self.braced(node.sub)]
        if node.sup is not None:
            tokens += ["^", *self.braced(node.sup)]
        return tokens

    def command(self, node: Command) -> list[str]:
        tokens = [node.name]
        index = self.row(node.option) if node.option is not None else []
        if index:
            # Braces hide a bracket inside the index from the reader of the root.
            tokens += ["[", *(["{", *index, "}"] if "]" in index else index), "]"]
        for argument in node.args:
            tokens += self.braced(argument)
        return tokens

    def matrix(self, node: Matrix) -> list[str]:
        name = node.name
        left: tuple[str, ...] = ()
        right: tuple[str, ...] = ()
        columns: list[str] = ["{", *node.columns, "}"] if node.columns else []
        if name in self.rules.matrices:
            left, right = self.rules.matrices[name]
            name, columns = "matrix", []
        rows = [[self.row(cell) for cell in cells] for cells in node.cells]
        while len(rows) > 1 and rows[-1] == [[]]:
            rows.pop()
        tokens = [*left, f"\\begin{{{name}}}", *columns]
        for row_index, cells in enumerate(rows):
            tokens += [r"\\"] if row_index else []
            for cell_index, cell in enumerate(cells):
                tokens += ["&", *cell] if cell_index else cell
        return [*tokens, f"\\end{{{name}}}", *right]


def _flat(row: Row) -> tuple[Node, ...]:
    """The row's nodes, without groups, limit controls and scripts that change nothing."""
    items: list[Node] = []
    for item in row.items:
        if isinstance(item, Group | Row):
            items += _flat(item.body if isinstance(item, Group) else item)
        elif isinstance(item, Scripts):
            items += _flat_scripts(item)
        else:
            items.append(item)
    return tuple(items)


def _flat_scripts(node: Scripts) -> tuple[Node, ...]:
    """Hang the scripts of a braced base on its last node, unless they would collide there."""
    base = _flat(Row(() if node.base is None else (node.base,)))
    sub = node.sub if node.sub is not None and _flat(node.sub) else None
    sup = node.sup if node.sup is not None and _flat(node.sup) else None
    if sub is None and sup is None:
        return base
    if not base:
        return (Scripts(None, sub, sup),)
    last = base[-1]
    if not isinstance(last, Scripts):
        return (*base[:-1], Scripts(last, sub, sup))
    if (last.sub and sub) or (last.sup and sup):
        return (Scripts(Group(Row(base)), sub, sup),)
    return (*base[:-1], Scripts(last.base, last.sub or sub, last.sup or sup))
