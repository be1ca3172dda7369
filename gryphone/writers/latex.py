"""LaTeX as people write it: few braces, brackets that grow, spaces around operators."""

import re

from gryphone.latex.tree import (
    Command,
    Fence,
    Matrix,
    Node,
    Row,
    Scripts,
    Symbol,
)
from gryphone.writers.walk import (
    BINARY,
    INTEGRALS,
    RELATIONS,
    Writer,
    is_operator,
    is_tall,
    text_of,
)

_ENVIRONMENTS = {
    ("(", ")"): "pmatrix",
    ("[", "]"): "bmatrix",
    (r"\{", r"\}"): "Bmatrix",
    ("|", "|"): "vmatrix",
    (r"\|", r"\|"): "Vmatrix",
    (r"\{", "."): "cases",
}
_SPELT = {r"\mod": r"\bmod", r"\rightarrow": r"\to"}
_SPACED = (RELATIONS | BINARY) - {"/"}


class LatexWriter(Writer):
    """Readable LaTeX; what is inside scripts is set without spaces."""

    target = "LaTeX"

    def __init__(self) -> None:
        self.tight = 0

    def row(self, row: Row | None) -> str:
        text = ""
        items = row.items if row else ()
        integral = any(_base(item) in INTEGRALS for item in items)
        for at, item in enumerate(items):
            piece = self.node(item)
            if item == Symbol(r"\\"):
                text = text.rstrip() + " \\\\\n"
            elif _base(item) in _SPACED and not self.tight and _is_infix(items, at):
                text = f"{text.rstrip()} {piece} "
            elif item in (Symbol(","), Symbol(";")) and not self.tight:
                text += f"{piece} "
            else:
                last = at > 0 and isinstance(item, Symbol) and item.text == "d"
                piece = rf"\,{piece}" if integral and last and at + 1 < len(items) else piece
                text = glued(text, piece)
        return text.strip() if not text.endswith("\\ ") else text

    def symbol(self, node: Symbol) -> str:
        return _SPELT.get(node.text, node.text)

    def group(self, body: Row) -> str:
        return "{" + self.row(body) + "}"

    def scripts(self, node: Scripts) -> str:
        text = "{}" if node.base is None else self.node(node.base)
        if isinstance(node.base, Scripts):
            text = f"{{{text}}}"
        text += node.limits
        sup = node.sup.items if node.sup else ()
        primes = 0
        while primes < len(sup) and sup[primes] == Symbol(r"\prime"):
            primes += 1
        text += "'" * primes
        if node.sub is not None:
            text += "_" + self.short(node.sub)
        if len(sup) > primes:
            text += "^" + self.short(Row(sup[primes:]))
        return text

    def short(self, row: Row) -> str:
        """A script: bare where it is one sign."""
        self.tight += 1
        text = self.row(row)
        self.tight -= 1
        single = len(row.items) == 1 and isinstance(row.items[0], Symbol)
        return text if single and re.fullmatch(r"\\[A-Za-z]+|[^\\'}]", text) else f"{{{text}}}"

    def command(self, node: Command) -> str:
        if node.name == r"\text":
            return r"\text{" + re.sub("[#$%&_{}]", r"\\\g<0>", text_of(node)) + "}"
        name, args = node.name, [self.row(arg) for arg in node.args]
        if name == r"\mathrm" and re.fullmatch("[A-Za-z]{2,}", args[0].replace(" ", "")):
            name = r"\operatorname"
        if node.option is not None:
            index = self.row(node.option)
            name += f"[{{{index}}}]" if "]" in index else f"[{index}]"
        return name + "".join(f"{{{arg}}}" for arg in args)

    def fence(self, node: Fence) -> str:
        body, ends = node.body, (node.left, node.right)
        inner = body.items[0] if len(body.items) == 1 else None
        if isinstance(inner, Matrix) and _is_plain(inner) and ends in _ENVIRONMENTS:
            return self.table(inner, _ENVIRONMENTS[ends])
        if not is_tall(body) and "." not in ends:
            return glued(glued(node.left, self.row(body)), node.right)
        return glued(glued(rf"\left{node.left}", self.row(body)), rf"\right{node.right}")

    def matrix(self, node: Matrix) -> str:
        return self.table(node, "array" if node.columns else node.name)

    def table(self, node: Matrix, name: str) -> str:
        rows = r" \\ ".join(" & ".join(map(self.cell, cells)) for cells in node.cells)
        columns = f"{{{''.join(node.columns)}}}" if name == "array" else ""
        return rf"\begin{{{name}}}{columns} {rows} \end{{{name}}}"

    def cell(self, row: Row) -> str:
        """A relation at the front of a cell relates to what stands in the one before."""
        first, rest = row.items[:1], Row(row.items[1:])
        if rest.items and isinstance(first[0], Symbol) and first[0].text in RELATIONS:
            return f"{self.node(first[0])} {self.row(rest)}"
        return self.row(row)


def glued(left: str, right: str) -> str:
    """Side by side; a space where a command's name or a script would seem to go on."""
    apart = re.search(r"\\[A-Za-z]+$|[_^][^{}\\]$", left) and right[:1].isalnum()
    return f"{left} {right}" if apart else left + right


def _is_plain(node: Matrix) -> bool:
    """Whether cells are all there is: no lines between columns, nothing aligned."""
    return node.name == "matrix" and "|" not in node.columns


def _base(node: Node) -> str:
    base = node.base if isinstance(node, Scripts) else node
    return base.text if isinstance(base, Symbol) else ""


def _is_infix(items: tuple[Node, ...], at: int) -> bool:
    """Whether a sign stands between two terms: a minus at the front belongs to what follows."""
    return 0 < at < len(items) - 1 and (
        _base(items[at]) in RELATIONS or not is_operator(items[at - 1])
    )
