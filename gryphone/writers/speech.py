"""Words for a screen reader: every structure that is longer than one symbol says where it ends."""

import unicodedata

from gryphone.latex.tree import Command, Fence, Group, Matrix, Row, Scripts, Symbol
from gryphone.writers.walk import BIG, NAMES, Writer

_NAMES = {
    "+": "plus",
    "-": "minus",
    "=": "equals",
    "*": "times",
    "/": "over",
    "<": "is less than",
    ">": "is greater than",
    ",": "comma",
    ".": "point",
    ":": "colon",
    ";": "semicolon",
    "!": "factorial",
    "?": "question mark",
    "|": "bar",
    "'": "prime",
    "(": "open paren",
    ")": "close paren",
    "[": "open bracket",
    "]": "close bracket",
    r"\{": "open brace",
    r"\}": "close brace",
    r"\\": "new line",
    r"\#": "number sign",
    r"\%": "percent",
    r"\&": "and",
    r"\times": "times",
    r"\cdot": "times",
    r"\div": "divided by",
    r"\pm": "plus or minus",
    r"\mp": "minus or plus",
    r"\leq": "is at most",
    r"\geq": "is at least",
    r"\neq": "is not equal to",
    r"\approx": "is approximately",
    r"\equiv": "is equivalent to",
    r"\in": "is in",
    r"\notin": "is not in",
    r"\subset": "is a subset of",
    r"\subseteq": "is a subset of or equal to",
    r"\cup": "union",
    r"\cap": "intersection",
    r"\wedge": "and",
    r"\vee": "or",
    r"\neg": "not",
    r"\forall": "for all",
    r"\exists": "there exists",
    r"\rightarrow": "goes to",
    r"\Rightarrow": "implies",
    r"\Leftrightarrow": "if and only if",
    r"\mapsto": "maps to",
    r"\infty": "infinity",
    r"\partial": "partial",
    r"\nabla": "nabla",
    r"\sum": "the sum",
    r"\prod": "the product",
    r"\int": "the integral",
    r"\oint": "the contour integral",
    r"\ldots": "dot dot dot",
    r"\cdots": "dot dot dot",
    r"\circ": "composed with",
    r"\prime": "prime",
    r"\emptyset": "the empty set",
    r"\therefore": "therefore",
    r"\propto": "is proportional to",
    r"\sin": "sine",
    r"\cos": "cosine",
    r"\tan": "tangent",
    r"\cot": "cotangent",
    r"\sec": "secant",
    r"\csc": "cosecant",
    r"\sinh": "hyperbolic sine",
    r"\cosh": "hyperbolic cosine",
    r"\tanh": "hyperbolic tangent",
    r"\arcsin": "arc sine",
    r"\arccos": "arc cosine",
    r"\arctan": "arc tangent",
    r"\ln": "natural log",
    r"\lim": "the limit",
    r"\max": "the maximum",
    r"\min": "the minimum",
    r"\sup": "the supremum",
    r"\inf": "the infimum",
    r"\det": "the determinant",
    r"\mod": "modulo",
    r"\hbar": "h bar",
    r"\perp": "is perpendicular to",
    r"\parallel": "is parallel to",
    r"\quad": "",
    r"\qquad": "",
    r"\space": "",
    "~": "",
}
_FENCES = {
    ("(", ")"): ("open paren", "close paren"),
    ("|", "|"): ("the absolute value of", "end absolute value"),
    (r"\|", r"\|"): ("the norm of", "end norm"),
    (r"\lfloor", r"\rfloor"): ("the floor of", "end floor"),
    (r"\lceil", r"\rceil"): ("the ceiling of", "end ceiling"),
}
_STYLES = {
    r"\mathbb": "blackboard",
    r"\mathcal": "script",
    r"\mathscr": "script",
    r"\mathfrak": "fraktur",
    r"\mathbf": "bold",
    r"\boldsymbol": "bold",
}
_ACCENTS = {
    r"\vec": "vector",
    r"\overrightarrow": "arrow",
    r"\overleftarrow": "left arrow",
    r"\ddot": "double dot",
    r"\dddot": "triple dot",
    r"\widehat": "hat",
    r"\widetilde": "tilde",
    r"\widecheck": "check",
    r"\overline": "bar",
    r"\mathring": "ring",
    r"\overbrace": "with a brace above",
    r"\underbrace": "with a brace below",
    r"\cancel": "crossed out",
}
# Beside one of these, or inside another, a fraction says where it ends.
_DIVIDING = (Symbol("/"), Symbol(r"\div"), Symbol("!"))
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class SpeechWriter(Writer):
    """English words in one line."""

    target = "speech"
    between = " "

    def __init__(self) -> None:
        self.ending = 0  # inside of how many parts in which a fraction says where it ends

    def row(self, row: Row | None) -> str:
        dividing = any(item in _DIVIDING for item in (row.items if row else ()))
        self.ending += dividing
        text = super().row(row)
        self.ending -= dividing
        return text

    def symbol(self, node: Symbol) -> str:
        if node.text in _NAMES:
            return _NAMES[node.text]
        if node.text in NAMES or node.text[:1].isdigit():
            return node.text.lstrip("\\")
        if len(node.text) == 1 and node.text.isalpha():
            return f"capital {node.text}" if node.text.isupper() else node.text
        found = self.sign(node)
        name = unicodedata.name(found[0], found).lower()
        _, _, letter = name.partition("letter ")  # greek small letter alpha
        kind = "capital " if "capital" in name else ""
        return kind + letter if letter else name.removesuffix(" symbol").removeprefix("greek ")

    def argument(self, row: Row | None) -> tuple[str, bool]:
        """What a part says, and whether it is one word's worth."""
        items = row.items if row else ()
        return self.row(row), len(items) == 1 and isinstance(items[0], Symbol)

    def grouped(self, row: Row) -> str:
        """What a part says, with an end where it is longer than one symbol."""
        text, short = self.argument(row)
        return text if short else f"group {text} end group"

    def scripts(self, node: Scripts) -> str:
        open_ended = isinstance(node.base, Command | Group)  # a fence says its end itself
        self.ending += open_ended
        base = "" if node.base is None else self.node(node.base)
        self.ending -= open_ended
        if isinstance(node.base, Symbol) and (node.base.text in BIG or base.startswith("the ")):
            return f"{base} {self.over(node)} of"
        if isinstance(node.base, Scripts):
            base = f"group {base} end group"
        if node.base == Symbol(r"\log") and node.sub is not None and node.sup is None:
            return f"{base} base {self.row(node.sub)} of"
        if node.sub is not None:
            text, short = self.argument(node.sub)
            base += f" sub {text}" + ("" if short else " end sub")
        if node.sup is not None:
            text, short = self.argument(node.sup)
            primes = node.sup.items and all(item == Symbol(r"\prime") for item in node.sup.items)
            simple = {"2": "squared", "3": "cubed"}.get(text)
            power = f"to the {text}" + ("" if short else " end power")
            base += f" {text if primes else simple or power}"
        return base

    def over(self, node: Scripts) -> str:
        both = node.sub is not None and node.sup is not None
        below = f"{'from' if both else 'over'} {self.row(node.sub)}" if node.sub else ""
        return below + (f" to {self.row(node.sup)}" if node.sup else "")

    def command(self, node: Command) -> str:
        name, first, last = node.name, node.args[0], node.args[-1]
        if name == r"\frac":
            return self.fraction(first, last)
        (one, short), (two, brief) = self.argument(first), self.argument(last)
        match name:
            case r"\binom":
                return f"{self.grouped(first)} choose {two}" + ("" if brief else " end choose")
            case r"\sqrt":
                index = self.row(node.option) if node.option else "2"
                which = {"2": "square", "3": "cube"}.get(index, f"{index}-th")
                return f"the {which} root of {one}" + ("" if short else " end root")
            case r"\text" | r"\mathrm" | r"\mathsf" | r"\mathtt":
                plain = all(isinstance(item, Symbol) for item in first.items)
                word = "".join(getattr(item, "text", "") for item in first.items) if plain else one
                return word.strip()
            case r"\overset" | r"\underset":
                place = "above" if name == r"\overset" else "below"
                return f"{self.grouped(last)} with {one} {place}"
            case r"\underline":
                return f"{self.grouped(first)} underlined"
            case r"\boxed":
                return f"box {one} end box"
        if name in _STYLES:
            return f"{_STYLES[name]} {self.grouped(first)}"
        if name in _ACCENTS or name in (r"\hat", r"\bar", r"\dot", r"\tilde", r"\check", r"\breve"):
            return f"{self.grouped(first)} {_ACCENTS.get(name, name[1:])}"
        raise self.cannot(name, node)

    def fraction(self, above: Row, below: Row) -> str:
        (one, short), (two, brief) = map(self.divided, (above, below))
        if short and brief and not self.ending:
            return f"{one} over {two}"
        return f"the fraction {one} over {two} end fraction"

    def divided(self, part: Row) -> tuple[str, bool]:
        """Part of a fraction, in which `over` is said of the fraction alone."""
        items = (Symbol(r"\div") if item == Symbol("/") else item for item in part.items)
        self.ending += 1
        said = self.argument(Row(tuple(items)))
        self.ending -= 1
        return said

    def fence(self, node: Fence) -> str:
        body = node.body.items
        ends = (node.left, node.right)
        inner = body[0] if len(body) == 1 else None
        if isinstance(inner, Matrix) and inner.name == "matrix" and ends != ("|", "|"):
            return "cases " + self.lines(inner) if "." in ends else self.matrix(inner)
        left, right = _FENCES.get(ends, ends)
        if ends not in _FENCES:
            left, right = ("" if end == "." else self.symbol(Symbol(end, node.at)) for end in ends)
        return " ".join(filter(None, (left, self.row(node.body), right)))

    def matrix(self, node: Matrix) -> str:
        if node.name != "matrix":
            return self.aligned(node)
        size = [len(node.cells), max(map(len, node.cells))]
        tall, wide = (_NUMBERS[n] if n < len(_NUMBERS) else str(n) for n in size)
        return f"the {tall} by {wide} matrix {self.lines(node)}"

    def lines(self, node: Matrix) -> str:
        rows = (
            f"row {at} {', '.join(map(self.row, cells))}"
            for at, cells in enumerate(self.cells(node), 1)
        )
        return "; ".join(rows) + "; end matrix"

    def aligned(self, node: Matrix) -> str:
        """Formulas below each other; what stands where is nothing that they say."""
        lines = (" ".join(filter(None, map(self.row, cells))) for cells in node.cells)
        said = (f"line {at} {line}" for at, line in enumerate(lines, 1))
        return "; ".join(said) + "; end lines"
