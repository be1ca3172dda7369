"""AsciiMath: what one types into a forum, a wiki, or a learning system."""

from gryphone.latex.tree import Command, Fence, Matrix, Row, Scripts, Symbol, words
from gryphone.latex.variants import FUNCTIONS
from gryphone.writers.walk import Writer

# Symbols whose name in AsciiMath is not LaTeX's; those of the second list have the same.
_NAMES = {
    r"\cdot": "*",
    "*": "**",
    r"\star": "***",
    "/": "//",
    r"\backslash": "\\\\",
    r"\times": "xx",
    r"\div": "-:",
    r"\circ": "@",
    r"\oplus": "o+",
    r"\otimes": "ox",
    r"\odot": "o.",
    r"\wedge": "^^",
    r"\bigwedge": "^^^",
    r"\vee": "vv",
    r"\bigvee": "vvv",
    r"\cap": "nn",
    r"\bigcap": "nnn",
    r"\cup": "uu",
    r"\bigcup": "uuu",
    r"\neq": "!=",
    r"\leq": "<=",
    r"\geq": ">=",
    r"\prec": "-<",
    r"\succ": ">-",
    r"\notin": "!in",
    r"\subset": "sub",
    r"\supset": "sup",
    r"\subseteq": "sube",
    r"\supseteq": "supe",
    r"\equiv": "-=",
    r"\cong": "~=",
    r"\approx": "~~",
    r"\sim": "~",
    r"\propto": "prop",
    r"\neg": "not",
    r"\Rightarrow": "=>",
    r"\Leftrightarrow": "<=>",
    r"\forall": "AA",
    r"\exists": "EE",
    r"\bot": "_|_",
    r"\top": "TT",
    r"\vdash": "|--",
    r"\models": "|==",
    r"\int": "int",
    r"\oint": "oint",
    r"\partial": "del",
    r"\nabla": "grad",
    r"\pm": "+-",
    r"\mp": "-+",
    r"\emptyset": "O/",
    r"\infty": "oo",
    r"\therefore": ":.",
    r"\because": ":'",
    r"\ldots": "...",
    r"\rightarrow": "->",
    r"\leftarrow": "larr",
    r"\leftrightarrow": "harr",
    r"\mapsto": "|->",
    r"\uparrow": "uarr",
    r"\downarrow": "darr",
    r"\epsilon": "epsi",
    r"\prime": "'",
    r"\quad": "quad",
    r"\qquad": "qquad",
    r"\langle": "<<",
    r"\rangle": ">>",
    r"\lfloor": "|__",
    r"\rfloor": "__|",
    r"\lceil": "|~",
    r"\rceil": "~|",
    r"\{": "{",
    r"\}": "}",
    r"\parallel": "∥",
    r"\|": "∥",
    r"\arg": '"arg"',
    r"\mod": "mod",
}
_SAME = words(
    r"""\alpha \beta \gamma \delta \varepsilon \zeta \eta \theta \vartheta \iota \kappa \lambda
    \mu \nu \xi \pi \rho \sigma \tau \upsilon \phi \varphi \chi \psi \omega \Gamma \Delta \Theta
    \Lambda \Xi \Pi \Sigma \Phi \Psi \Omega \sum \prod \cdots \vdots \ddots \in \aleph \diamond
    \square \triangle \angle \setminus \frown \bowtie \ltimes \rtimes"""
)
_WORDS = words(
    r"""\sin \cos \tan \sec \csc \cot \arcsin \arccos \arctan \sinh \cosh \tanh \coth \exp \log
    \ln \det \dim \lim \gcd \min \max"""
)
_ACCENTS = {
    r"\hat": "hat",
    r"\widehat": "hat",
    r"\tilde": "tilde",
    r"\widetilde": "tilde",
    r"\bar": "bar",
    r"\overline": "bar",
    r"\vec": "vec",
    r"\overrightarrow": "vec",
    r"\dot": "dot",
    r"\ddot": "ddot",
    r"\underline": "ul",
    r"\overbrace": "obrace",
    r"\underbrace": "ubrace",
    r"\cancel": "cancel",
    r"\mathbf": "bb",
    r"\boldsymbol": "bb",
    r"\mathbb": "bbb",
    r"\mathcal": "cc",
    r"\mathscr": "cc",
    r"\mathfrak": "fr",
    r"\mathsf": "sf",
    r"\mathtt": "tt",
}
_ABOVE = {  # accents that AsciiMath has no name for
    r"\check": "ˇ",
    r"\widecheck": "ˇ",
    r"\breve": "˘",
    r"\acute": "´",
    r"\grave": "`",
    r"\mathring": "∘",
    r"\dddot": "...",
    r"\overleftarrow": "larr",
    r"\overleftrightarrow": "harr",
}


class AsciiMathWriter(Writer):
    """Parts are set apart by spaces: `in` would be a sign, `i n` are two letters."""

    target = "AsciiMath"
    between = " "

    def symbol(self, node: Symbol) -> str:
        if node.text in _SAME | _WORDS:
            return node.text[1:]
        if node.text in _NAMES:
            return _NAMES[node.text]
        if node.text in FUNCTIONS | words(r"\limsup \liminf"):
            return f'"{node.text[1:]}"'
        if node.text == r"\\":
            raise self.cannot("a second line", node)
        found = self.sign(node)
        return node.text if node.text == "-" else f'"{found}"' if found in "^_#$`" else found

    def group(self, body: Row) -> str:
        return f"{{: {self.row(body)} :}}"

    def bracketed(self, row: Row | None) -> str:
        """An argument, in brackets that are not seen; one symbol needs none."""
        text = self.row(row)
        bare = row is not None and len(row.items) == 1 and isinstance(row.items[0], Symbol)
        return text if bare and text.isalnum() else f"({text})"

    def scripts(self, node: Scripts) -> str:
        if node.base is None:
            base = "{: :}"
        elif isinstance(node.base, Scripts):
            base = self.group(Row((node.base,)))
        else:
            base = self.node(node.base)
        sup = node.sup.items if node.sup else ()
        if sup and all(item == Symbol(r"\prime") for item in sup) and node.sub is None:
            return base + "'" * len(sup)
        base += f"_{self.bracketed(node.sub)}" if node.sub else ""
        return base + (f"^{self.bracketed(node.sup)}" if sup else "")

    def command(self, node: Command) -> str:
        name, first, last = node.name, node.args[0], node.args[-1]
        match name:
            case r"\frac":
                return f"{self.bracketed(first)}/{self.bracketed(last)}"
            case r"\binom":
                return f"(({self.row(first)}),({self.row(last)}))"
            case r"\sqrt":
                index = f"root({self.row(node.option)})" if node.option else "sqrt"
                return f"{index}({self.row(first)})"
            case r"\text":
                return f'"{self.row(first)}"'
            case r"\mathrm" | r"\operatorname":
                if all(isinstance(item, Symbol) for item in first.items):
                    return '"' + "".join(map(self.node, first.items)).replace('"', "") + '"'
                return self.group(first)
            case r"\overset" | r"\underset":
                return f"{name[1:]}({self.row(first)})({self.row(last)})"
            case r"\boxed":
                raise self.cannot("a box", node)
        if name in _ABOVE:
            return f"overset({_ABOVE[name]})({self.row(first)})"
        if name in _ACCENTS:
            return f"{_ACCENTS[name]}({self.row(first)})"
        raise self.cannot(name, node)

    def fence(self, node: Fence) -> str:
        left, right = self.end(node.left, "{:", node), self.end(node.right, ":}", node)
        if node.left == node.right == "|":
            left, right = "|:", ":|"
        if node.left == node.right == r"\|":
            return f"norm({self.row(node.body)})"
        body = node.body.items
        if len(body) == 1 and isinstance(body[0], Matrix):
            return f"{left}{self.lines(body[0])}{right}"
        return f"{left} {self.row(node.body)} {right}"

    def end(self, end: str, none: str, node: Fence) -> str:
        return none if end == "." else self.symbol(Symbol(end, node.at))

    def matrix(self, node: Matrix) -> str:
        return f"{{:{self.lines(node)}:}}"

    def lines(self, node: Matrix) -> str:
        wide = max(map(len, node.cells))
        rows = ([*map(self.row, cells), *[""] * (wide - len(cells))] for cells in node.cells)
        return ",".join(f"({','.join(cells)})" for cells in rows)
