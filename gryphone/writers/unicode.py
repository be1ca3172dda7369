"""UnicodeMath, which Word reads and people do, too: one line of plain text."""

import unicodedata

from gryphone.latex.tree import Command, Fence, Matrix, Node, Row, Scripts, Symbol
from gryphone.writers.walk import BINARY, NAMES, RELATIONS, Writer, table, text_of

STYLES = table(
    r"""\mathbb DOUBLE-STRUCK  \mathcal SCRIPT  \mathscr SCRIPT  \mathfrak FRAKTUR  \mathbf BOLD
    \boldsymbol BOLD  \mathsf SANS-SERIF  \mathtt MONOSPACE"""
)
COMBINING = {
    r"\hat": "\u0302",
    r"\widehat": "\u0302",
    r"\tilde": "\u0303",
    r"\widetilde": "\u0303",
    r"\bar": "\u0305",
    r"\vec": "\u20d7",
    r"\overrightarrow": "\u20d7",
    r"\overleftarrow": "\u20d6",
    r"\overleftrightarrow": "\u20e1",
    r"\dot": "\u0307",
    r"\ddot": "\u0308",
    r"\dddot": "\u20db",
    r"\check": "\u030c",
    r"\widecheck": "\u030c",
    r"\breve": "\u0306",
    r"\acute": "\u0301",
    r"\grave": "\u0300",
    r"\mathring": "\u030a",
    r"\cancel": "\u0338",
}
_AROUND = table(r"""\overline ¯  \underline ▁  \overbrace ⏞  \underbrace ⏟  \boxed ▭""")
_RAISED = dict(zip("0123456789+−=()ni", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ", strict=True))
_LOWERED = dict(zip("0123456789+−=()", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎", strict=True))


def styled(letter: str, style: str) -> str | None:
    """A letter or digit of one of Unicode's mathematical alphabets."""
    try:
        name = unicodedata.name(letter)
    except (TypeError, ValueError):
        return None
    kind, _, rest = name.removeprefix("LATIN ").removeprefix("GREEK ").partition(" ")
    rest = rest.replace("LETTER ", "")
    for words in (f"MATHEMATICAL {style} {kind} {rest}", f"{style} {kind} {rest}"):
        # Some letters had a place before the alphabets came.
        for spelt in (words, words.replace("FRAKTUR CAPITAL", "BLACK-LETTER CAPITAL")):
            try:
                return unicodedata.lookup(spelt.strip())
            except KeyError:
                continue
    return None


class UnicodeWriter(Writer):
    """One line; a group that needs brackets nobody sees gets 〖 and 〗."""

    target = "UnicodeMath"

    def symbol(self, node: Symbol) -> str:
        text = node.text
        if text in NAMES:
            return f" {text[1:]} " if text == r"\mod" else f"{text[1:]} "
        found = self.sign(node)
        if text in RELATIONS | BINARY and text not in "-/:":
            return f" {found} " if text in RELATIONS else found
        return f"\\{found}" if found in "/_^&@" else found

    def row(self, row: Row | None) -> str:
        lines: list[list[Node]] = [[]]
        for item in row.items if row else ():
            if item == Symbol(r"\\"):
                lines.append([])
            else:
                lines[-1].append(item)
        texts = [self.line(Row(tuple(line))) for line in lines]
        return f"█({'@'.join(texts)})" if len(lines) > 1 else texts[0]

    def line(self, row: Row) -> str:
        return super().row(row).replace("  ", " ").strip(" ")

    def group(self, body: Row) -> str:
        return f"〖{self.row(body)}〗"

    def argument(self, row: Row) -> str:
        """What stands beside a sign of structure, in brackets unless it is one piece."""
        text = self.row(row)
        one = len(row.items) == 1 and isinstance(row.items[0], Symbol)
        return text if one and text else f"({text})"

    def scripts(self, node: Scripts) -> str:
        base = "" if node.base is None else self.node(node.base).rstrip(" ")
        base = f"〖{base}〗" if isinstance(node.base, Scripts) else base
        sup = node.sup
        primes = 0
        while sup and primes < len(sup.items) and sup.items[primes] == Symbol(r"\prime"):
            primes += 1
        base += "′" * primes
        sup = Row(sup.items[primes:]) if sup and len(sup.items) > primes else None
        name = isinstance(node.base, Symbol) and node.base.text in NAMES
        text = base + self.script(node.sub, "_", _LOWERED) + self.script(sup, "^", _RAISED)
        return text + " " * name

    def script(self, row: Row | None, mark: str, signs: dict[str, str]) -> str:
        if row is None:
            return ""
        text = self.row(row)
        if text and all(c in signs for c in text):
            return "".join(signs[c] for c in text)
        return mark + self.argument(row)

    def command(self, node: Command) -> str:
        name, first, last = node.name, node.args[0], node.args[-1]
        match name:
            case r"\frac":
                return f"{self.argument(first)}/{self.argument(last)} "
            case r"\binom":
                return f"({self.row(first)}¦{self.row(last)})"
            case r"\sqrt":
                index = f"{self.row(node.option)}&" if node.option else ""
                return f"√({index}{self.row(first)})" if index else f"√{self.argument(first)}"
            case r"\text":
                return f'"{text_of(node)}"'
            case r"\mathrm":
                return f"{self.row(first)} " if len(first.items) > 1 else self.row(first)
            case r"\overset":
                return f"{self.argument(last)}┴{self.argument(first)} "
            case r"\underset":
                return f"{self.argument(last)}┬{self.argument(first)} "
        if name in STYLES:
            return "".join(self.styled(item, name) for item in first.items)
        if name in COMBINING:
            text = self.argument(first)
            return f"{text}{COMBINING[name]}"
        if name in _AROUND:
            return f"{_AROUND[name]}({self.row(first)})"
        raise self.cannot(name, node)

    def styled(self, node: Node, name: str) -> str:
        if not isinstance(node, Symbol):
            if isinstance(node, Scripts) and node.base is not None:
                inner = Command(name, (Row((node.base,)),))
                return self.scripts(Scripts(inner, node.sub, node.sup, node.limits))
            return self.node(node)
        return "".join(styled(c, STYLES[name]) or c for c in self.node(node))

    def fence(self, node: Fence) -> str:
        ends = [
            "" if end == "." else self.sign(Symbol(end, node.at)) for end in (node.left, node.right)
        ]
        if "." in (node.left, node.right):
            ends = [f"├{ends[0]}", f"┤{ends[1]}"]
        return f"{ends[0]}{self.row(node.body)}{ends[1]}"

    def matrix(self, node: Matrix) -> str:
        mark = "■" if node.name == "matrix" else "█"  # lines that are aligned, where & stands
        return f"{mark}({'@'.join('&'.join(map(self.row, cells)) for cells in self.cells(node))})"
