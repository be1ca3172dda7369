"""Typst: its names where it has them, else the sign itself."""

from gryphone.latex.tree import Command, Fence, Matrix, Node, Row, Scripts, Symbol, words
from gryphone.latex.variants import FUNCTIONS
from gryphone.writers.walk import CLOSING, OPENING, Writer, table, text_of

# Each sign and its name in Typst.
NAMES = {
    pair[0]: pair[1:]
    for pair in words(
        """αalpha βbeta γgamma δdelta ϵepsilon.alt εepsilon ζzeta ηeta θtheta ϑtheta.alt ιiota
        κkappa ϰkappa.alt λlambda μmu νnu ξxi πpi ϖpi.alt ρrho ϱrho.alt σsigma ςsigma.alt τtau
        υupsilon ϕphi.alt φphi χchi ψpsi ωomega ΓGamma ΔDelta ΘTheta ΛLambda ΞXi ΠPi ΣSigma
        ΥUpsilon ΦPhi ΨPsi ΩOmega ∞infinity ∂partial ∇nabla ∑sum ∏product ∐product.co ∫integral
        ∬integral.double ∭integral.triple ∮integral.cont ×times ÷div ±plus.minus ∓minus.plus ·dot.c
        ∘compose ∈in ∉in.not ∋in.rev ⊂subset ⊆subset.eq ⊃supset ⊇supset.eq ∪union ∩inter
        ∅emptyset ∀forall ∃exists ¬not ∧and ∨or →arrow.r ←arrow.l ⇒arrow.r.double
        ⇔arrow.l.r.double ↦arrow.r.bar …dots.h ⋯dots.h.c ⋮dots.v ⋱dots.down ≤lt.eq ≥gt.eq ≠eq.not
        ≈approx ≡equiv ∼tilde.op ∝prop ⊕plus.o ⊗times.o ⋃union.big ⋂inter.big ∴therefore
        ∵because ℓell ∥parallel ⟂perp"""
    )
}
_ACCENTS = table(
    r"""\hat hat  \widehat hat  \tilde tilde  \widetilde tilde  \bar macron  \vec arrow
    \overrightarrow arrow  \overleftarrow arrow.l  \overleftrightarrow arrow.l.r  \dot dot
    \ddot dot.double  \dddot dot.triple  \check caron  \widecheck caron  \breve breve
    \acute acute  \grave grave  \mathring circle  \overline overline  \underline underline
    \overbrace overbrace  \underbrace underbrace  \cancel cancel  \mathrm upright  \mathbf bold
    \boldsymbol bold  \mathbb bb  \mathcal cal  \mathscr scr  \mathfrak frak  \mathsf sans
    \mathtt mono"""
)
_WORDS = FUNCTIONS - words(r"\lg") | words(r"\mod")
_ESCAPED = frozenset("#$&\"'/\\_^`~@()[]{}⟨⟩⌊⌋⌈⌉⟦⟧√∛∜")
_DELIMITERS = {"(": '"("', "[": '"["', r"\{": '"{"', "|": '"|"', r"\|": '"||"'}


class TypstWriter(Writer):
    """Math of Typst, to be put between dollar signs."""

    target = "Typst"
    between = " "

    def __init__(self) -> None:
        self.calls = 0  # inside of how many; a comma there would part two arguments

    def row(self, row: Row | None) -> str:
        return super().row(row) or '""'

    def call(self, name: str, *args: Row | None) -> str:
        self.calls += 1
        written = ", ".join(map(self.row, args))
        self.calls -= 1
        return f"{name}({written})"

    def symbol(self, node: Symbol) -> str:
        text = node.text
        if text == r"\\":
            return "\\\n"
        if text in _WORDS:
            return text[1:]
        if text in (r"\limsup", r"\liminf", r"\lg"):
            return f'op("{text[1:]}")' if text == r"\lg" else text[1:]
        found = self.sign(node)
        if found.isspace():
            return "quad"
        if text in "-*":
            return text
        if found in NAMES:
            return NAMES[found]
        return (
            "\\" + found if found in _ESCAPED or (self.calls and found in ",;:") else quoted(found)
        )

    def scripts(self, node: Scripts) -> str:
        plain = isinstance(node.base, Symbol) or _is_bracket(node.base) or node.base is None
        self.calls += not plain
        base = '""' if node.base is None else self.node(node.base)
        if node.limits:
            base = f"{node.limits[1:].replace('nolimits', 'scripts')}({base})"
        sup = node.sup.items if node.sup else ()
        if not plain:
            base += f", b: {self.row(node.sub)}" if node.sub else ""
            base += f", t: {self.row(node.sup)}" if sup else ""
            self.calls -= 1
            return f"attach({base})"
        primes = bool(sup) and all(item == Symbol(r"\prime") for item in sup)
        base += "'" * len(sup) if primes else ""
        base += f"_{self.script(node.sub)}" if node.sub else ""
        return base + (f"^{self.script(node.sup)}" if sup and not primes and node.sup else "")

    def script(self, row: Row) -> str:
        text = self.row(row)
        return text if text.isalnum() and text.isascii() else f"({text})"

    def command(self, node: Command) -> str:
        first, last = node.args[0], node.args[-1]
        match node.name:
            case r"\frac" | r"\binom":
                return self.call(node.name[1:], first, last)
            case r"\sqrt":
                return (
                    self.call("root", node.option, first)
                    if node.option
                    else self.call("sqrt", first)
                )
            case r"\text":
                return quoted(text_of(node), always=True)
            case r"\mathrm" if len(first.items) > 1 and all(
                isinstance(i, Symbol) for i in first.items
            ):
                return f'op("{text_of(node)}")'
            case r"\overset":
                return f"{self.call('limits', last)}^({self.row(first)})"
            case r"\underset":
                return f"{self.call('limits', last)}_({self.row(first)})"
            case r"\boxed":
                return f"#box(stroke: 0.5pt, inset: 3pt, $ {self.row(first)} $)"
        if node.name not in _ACCENTS:
            raise self.cannot(node.name, node)
        return self.call(_ACCENTS[node.name], first)

    def fence(self, node: Fence) -> str:
        body, left, right = node.body.items, node.left, node.right
        if len(body) == 1 and isinstance(body[0], Matrix):
            if (left, right) == (r"\{", "."):
                return self.table(body[0], "cases(", " & quad ", ", ")
            if left in _DELIMITERS and OPENING.get(left, left) == right:
                return self.table(body[0], f"mat(delim: {_DELIMITERS[left]}, ")
        ends = [self.delimiter(end, node) for end in (left, right)]
        # Typst pairs brackets by itself; a bar, or no bracket at all, must be told.
        if left in OPENING and right in CLOSING:
            ends = [end.removeprefix("\\") for end in ends]
            return f"{ends[0]}{self.row(node.body) if body else ''}{ends[1]}"
        self.calls += 1
        inner = self.row(node.body)
        self.calls -= 1
        return f"lr({ends[0]} {inner} {ends[1]})"

    def delimiter(self, end: str, node: Node) -> str:
        return "" if end == "." else self.symbol(Symbol(end, getattr(node, "at", None)))

    def matrix(self, node: Matrix) -> str:
        return self.table(node, "mat(delim: #none, ")

    def table(self, node: Matrix, start: str, cell: str = ", ", line: str = "; ") -> str:
        self.calls += 1
        rows = line.join(cell.join(map(self.row, cells)) for cells in self.cells(node))
        self.calls -= 1
        return f"{start}{rows})"


def _is_bracket(node: Node | None) -> bool:
    return isinstance(node, Fence) and node.left in "([" and node.right in ")]"


def quoted(text: str, always: bool = False) -> str:
    """A word in quotes; a single sign needs none."""
    if not always and (len(text) == 1 or text[:1].isdigit()):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
