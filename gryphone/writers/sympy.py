"""SymPy: what a formula means. Where it may mean two things, or none, an error says which part.

Nothing is evaluated, and numbers that no memory holds, such as 9^{9^{9^9}}, are refused: SymPy puts
terms in order by their values, and would never be done.
"""

from __future__ import annotations

import math
from typing import Any

from gryphone.errors import GryphoneError, need
from gryphone.latex.lexer import Source
from gryphone.latex.tree import Command, Fence, Group, Matrix, Node, Row, Scripts, Symbol, words
from gryphone.writers.walk import BARS, INTEGRALS, NAMES, RELATIONS, Inexpressible, read, table

_FUNCTIONS = table(
    r"""\sin sin  \cos cos  \tan tan  \cot cot  \sec sec  \csc csc  \sinh sinh  \cosh cosh
    \tanh tanh  \coth coth  \arcsin asin  \arccos acos  \arctan atan  \ln log  \log log  \exp exp
    \max Max  \min Min  \gcd gcd  \det det  \arg arg  \Re re  \Im im"""
)
_SETS = {"R": "Reals", "N": "Naturals", "Z": "Integers", "Q": "Rationals", "C": "Complexes"}
_RELATIONS = {"=": "Eq", r"\neq": "Ne", "<": "Lt", ">": "Gt", r"\leq": "Le", r"\geq": "Ge"}
_RELATIONS |= {r"\leqslant": "Le", r"\geqslant": "Ge", r"\in": "Contains"}
_TIMES = (r"\times", r"\cdot", "*")
_NAMED = {  # as SymPy prints it: xhat is \hat{x}
    **{rf"\{word}": word for word in ("hat", "bar", "vec", "dot", "ddot", "tilde", "check")},
    **{rf"\{word}": word for word in ("dddot", "breve", "acute", "grave", "mathring")},
    r"\widehat": "hat",
    r"\widetilde": "tilde",
    r"\overline": "bar",
    r"\overrightarrow": "vec",
    r"\mathcal": "cal",
    r"\mathscr": "scr",
    r"\mathfrak": "frak",
    r"\mathbf": "bold",
    r"\boldsymbol": "bm",
}
_GREEK = words(
    """alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau
    upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega ell hbar
    pi"""
)
MOST_DIGITS = 10_000
_APPLIED = "fghFGH"  # letters that take what stands in brackets behind them


def to_sympy(source: Source, constants: str = "e") -> Any:
    """The formula as a SymPy object, as it is written; `evaluated` says what it comes to. Of the
    letters e and i, those in `constants` are Euler's number and the imaginary unit; f, g and h in
    front of brackets are functions."""
    need("sympy", "formats")
    import sympy

    reader = _Reader(constants)
    with sympy.evaluate(False):
        try:
            items = read(source).items
            value = reader.relation(items)
            # Where there is dy/dx, every y is a function of x, those before it too.
            value = reader.relation(items) if reader.implied else value
        except GryphoneError:
            raise
        except RecursionError:
            raise _deep() from None
        except Exception as error:  # a set minus one; SymPy has many kinds
            message = f"SymPy: {error}; its parts do not go together"
            raise Inexpressible(message, reader.at) from error
    return value


def evaluated(value: Any) -> Any:
    """What SymPy makes of it by itself: sums of numbers, equal powers. Relations stay; it may take
    long."""
    kept = {"evaluate": False} if value.is_Boolean or value.is_Relational else {}
    return value.func(*map(evaluated, value.args), **kept) if value.args else value


def to_python(source: Source) -> str:
    """The formula as Python, its terms in the order in which they are written: to put them in
    another, SymPy would evaluate them. So it would to know the sign of a product of matrices."""
    need("sympy", "formats")
    import sympy
    from sympy.printing.precedence import PRECEDENCE
    from sympy.printing.str import StrPrinter

    class Printer(StrPrinter):  # type: ignore[misc]
        def parenthesize(self, item: Any, level: int, strict: bool = False) -> str:
            if isinstance(item, sympy.MatMul | sympy.MatAdd | sympy.MatPow):
                return f"({self._print(item)})"
            return str(super().parenthesize(item, level, strict))

        def _print_And(self, value: Any) -> str:
            return str(self.stringify(value.args, " & ", PRECEDENCE["BitwiseAnd"]))

        def _print_MatMul(self, value: Any) -> str:
            return "*".join(self.parenthesize(part, 50) for part in value.args)

        def _print_MatAdd(self, value: Any) -> str:
            return " + ".join(self.parenthesize(part, 40) for part in value.args)

    value = to_sympy(source)
    try:
        return str(Printer({"order": "none"}).doprint(value))
    except RecursionError:
        raise _deep() from None


def _deep() -> Inexpressible:
    return Inexpressible("SymPy: it is nested too deeply; simplify the formula")


def _error(message: str, node: Node | None) -> Inexpressible:
    inner = node.base if isinstance(node, Scripts) else node
    return Inexpressible(f"SymPy: {message}", getattr(inner, "at", None))


def _text(node: Node | None) -> str:
    """The symbol's text, that of a base with scripts too."""
    node = node.base if isinstance(node, Scripts) else node
    return node.text if isinstance(node, Symbol) else ""


class _Reader:
    def __init__(self, constants: str) -> None:
        import sympy

        self.sympy = sympy
        self.constants = {"e": sympy.E, "i": sympy.I}
        self.constants = {name: self.constants[name] for name in constants}
        self.items: list[Node] = []
        self.at: int | None = None  # where the factor stands that was read last
        self.implied: dict[Any, Any] = {}  # letters that are functions

    def inside(self, items: tuple[Node, ...], what: str = "relation") -> Any:
        """Read other items, then go on with these."""
        kept, self.items = self.items, []
        value = getattr(self, what)(items)
        self.items = kept
        return value

    def row(self, row: Row) -> Any:
        return self.inside(row.items)

    def relation(self, items: tuple[Node, ...]) -> Any:
        self.items = [item for item in items if _text(item) not in (r"\quad", r"\space", "~")]
        terms, signs = [self.sum()], []
        while self.items:
            sign = self.items.pop(0)
            if not isinstance(sign, Symbol) or sign.text not in _RELATIONS:
                raise _error(f"{_shown(sign)} has no meaning here", sign)
            signs.append(_RELATIONS[sign.text])
            terms.append(self.sum())
        parts = [
            getattr(self.sympy, sign)(*terms[at : at + 2], evaluate=False)
            for at, sign in enumerate(signs)
        ]
        if len(parts) < 2:
            return parts[0] if parts else terms[0]
        # Made by hand: it would compare the parts, and say that two of them cannot both be.
        chain = self.sympy.Basic.__new__(self.sympy.And, *parts)
        chain._argset = frozenset(parts)
        return chain

    def sum(self) -> Any:
        terms: list[Any] = []
        while not terms or _text(self.peek()) in ("+", "-"):
            sign = 1
            while isinstance(self.peek(), Symbol) and _text(self.peek()) in ("+", "-"):
                sign *= -1 if _text(self.items.pop(0)) == "-" else 1
            term = self.product()
            terms.append(self.negative(term) if sign < 0 else term)
        return self.joined("Add", terms)

    def joined(self, kind: str, parts: list[Any]) -> Any:
        """The sum or product of all parts, among which may be matrices."""
        if len(parts) == 1:
            return parts[0]
        for part in parts:
            if not isinstance(part, self.sympy.Expr):
                raise TypeError(f"{type(part).__name__} in a sum or product")
        of_matrices = any(part.is_Matrix for part in parts)
        return getattr(self.sympy, f"Mat{kind}" if of_matrices else kind)(*parts)

    def negative(self, value: Any) -> Any:
        if isinstance(value, self.sympy.Number):
            return -value
        factors = value.args if isinstance(value, self.sympy.Mul) else (value,)
        return self.joined("Mul", [self.sympy.Integer(-1), *factors])

    def inverse(self, value: Any) -> Any:
        return self.power(value, self.sympy.Integer(-1))

    def power(self, base: Any, exponent: Any) -> Any:
        if not isinstance(exponent, self.sympy.Expr) or not isinstance(base, self.sympy.Expr):
            raise TypeError(f"{type(base).__name__} to the {type(exponent).__name__}")
        if base is self.sympy.E:
            return self.bounded(self.sympy.exp(exponent))
        if base.is_Matrix:
            return self.sympy.MatPow(base, exponent)
        return self.bounded(self.sympy.Pow(base, exponent))

    def bounded(self, value: Any) -> Any:
        """The value, unless it is a number that is too long."""
        if not self.digits(value) <= MOST_DIGITS:
            message = f"a number has more than {MOST_DIGITS} digits; put a letter in its place"
            raise Inexpressible(f"SymPy: {message}", self.at)
        return value

    def digits(self, value: Any) -> float:
        """At most so many digits above or below a fraction's line; none where there are letters."""
        sympy = self.sympy
        if value.free_symbols:
            return 0.0
        if isinstance(value, sympy.Rational):
            return float(math.log10(max(abs(value.p), value.q)))
        if isinstance(value, sympy.Float):
            return abs(math.log10(abs(float(value)))) if float(value) else 0.0
        sizes = [self.digits(arg) for arg in value.args]
        most = 10.0 ** min(sizes[-1], 300.0) if sizes else 0.0  # of the exponent or argument
        match value:
            case sympy.Pow():
                return sizes[0] * most
            case sympy.exp() | sympy.sinh() | sympy.cosh() | sympy.Product():
                return most
            case sympy.factorial() | sympy.factorial2():
                return sizes[0] * most
            case sympy.binomial():
                return sizes[0] * float(min(most, 10.0 ** min(sizes[0], 300.0)))
        return float(sum(sizes) + 1)

    def ratio(self, above: Any, below: Any) -> Any:
        whole = isinstance(above, self.sympy.Integer) and isinstance(below, self.sympy.Integer)
        if whole and below != 0 and self.sympy.igcd(above, below) == 1:
            return self.sympy.Rational(above, below)
        one = above is self.sympy.S.One
        return self.joined("Mul", [*([] if one else [above]), self.inverse(below)])

    def peek(self) -> Node | None:
        return self.items[0] if self.items else None

    def ends(self) -> bool:
        """Whether the product ends here."""
        text = _text(self.peek())
        return not self.items or text in RELATIONS or text in ("+", "-", ",", ";", r"\\")

    def product(self, argument: bool = False) -> Any:
        """Factors side by side; a function's argument ends where the next function begins."""
        factors: list[Any] = []
        divided = False
        while not self.ends():
            text = _text(self.peek())
            if argument and (text in NAMES or text in (*_TIMES, r"\div", "/")):
                break
            explicit = bool(factors) and text in (*_TIMES, r"\div", "/")
            node = self.items.pop(0) if explicit else self.peek()
            if divided and not explicit:
                raise _error("what a / divides by is not clear; write a fraction or brackets", node)
            divided = explicit and text in (r"\div", "/")
            negative = explicit and _text(self.peek()) == "-"
            if negative:
                self.items.pop(0)
            factor = self.negative(self.factor()) if negative else self.factor()
            if divided:
                factors[-1] = self.ratio(factors[-1], factor)
            else:
                factors.append(factor)
        if not factors:
            raise _error("a term is missing", self.peek())
        return self.joined("Mul", factors)

    def factor(self) -> Any:
        node = self.peek()
        if node is None:
            raise _error("a term is missing", None)
        self.items.pop(0)
        where = getattr(node.base if isinstance(node, Scripts) else node, "at", self.at)
        self.at = where
        value = self.scripted(node) if isinstance(node, Scripts) else self.atom(node, None)
        self.at = where
        marks = 0
        while self.peek() == Symbol("!"):
            mark, marks = self.items.pop(0), marks + 1
            if marks > 2:
                raise _error("more than two ! have no clear meaning; write brackets", mark)
        if not marks:
            return value
        function = self.sympy.factorial if marks == 1 else self.sympy.factorial2
        return self.bounded(function(value))

    def scripted(self, node: Scripts) -> Any:
        base, text, sup = node.base, _text(node), node.sup
        if base is None:
            raise _error("a script hangs on nothing", node)
        if text in NAMES | INTEGRALS or text in (r"\sum", r"\prod"):
            return self.operator(text, node)
        primes = len(sup.items) if sup and all(i == Symbol(r"\prime") for i in sup.items) else 0
        if primes:
            value = self.atom(base, node.sub, primes)
        else:
            value = self.atom(base, node.sub)
        if sup is None or primes:
            return value
        applied = getattr(value, "is_Function", False) and text in _APPLIED
        if applied and sup == Row((Symbol("-"), Symbol("1"))):
            raise _error(f"{text}^{{-1}} may be its inverse; write 1/{text} as a fraction", node)
        if sup == Row((Symbol(r"\circ"),)):
            return self.joined("Mul", [value, self.ratio(self.sympy.pi, self.sympy.Integer(180))])
        if sup == Row((Symbol("T"),)) and getattr(value, "is_Matrix", False):
            return self.sympy.Transpose(value)
        return self.power(value, self.row(sup))

    def atom(self, node: Node, sub: Row | None, primes: int = 0) -> Any:
        sympy = self.sympy
        if sub is not None and not isinstance(node, Symbol | Command):
            raise _error("a subscript has no meaning there", node)
        match node:
            case Symbol(text):
                return self.symbol(node, text, sub, primes)
            case Group(Row() as body) | (Row() as body):
                return self.row(body)
            case Scripts():
                return self.scripted(node)
            case Fence():
                return self.fence(node)
            case Matrix():
                if node.name != "matrix":
                    raise _error("lines below each other are many; give one by itself", node)
                if "|" in node.columns:
                    raise _error("a line between columns has no meaning", node)
                if len({len(cells) for cells in node.cells}) > 1:
                    raise _error("the rows of a matrix differ in length", node)
                rows = [[self.row(cell) for cell in cells] for cells in node.cells]
                return sympy.ImmutableMatrix(rows)
        return self.command(node, sub)

    def symbol(self, node: Symbol, text: str, sub: Row | None, primes: int = 0) -> Any:
        sympy = self.sympy
        if text in NAMES | INTEGRALS or text in (r"\sum", r"\prod"):
            return self.operator(text, Scripts(node, sub, None))
        if text in (r"\Re", r"\Im"):
            return getattr(sympy, _FUNCTIONS[text])(self.product(argument=True))
        if text[:1].isdigit() and sub is None:
            return sympy.Float(text) if "." in text else sympy.Integer(text)
        known = {r"\infty": sympy.oo, r"\pi": sympy.pi, r"\emptyset": sympy.S.EmptySet}
        known |= self.constants
        if text in known and sub is None and not primes:
            return known[text]
        name = self.name(node, sub)
        behind = self.peek()
        fence = behind.base if isinstance(behind, Scripts) else behind
        if (
            text in _APPLIED
            and isinstance(fence, Fence)
            and (fence.left, fence.right) == ("(", ")")
        ):
            return self.applied(name, primes)
        letter = sympy.Symbol(name + "'" * primes)
        return self.implied.get(letter, letter)

    def name(self, node: Symbol, sub: Row | None = None) -> str:
        """A letter, or Greek letter, with the letters and digits below it."""
        word = node.text.lstrip("\\").removeprefix("var") if len(node.text) > 2 else node.text
        greek = node.text.startswith("\\") and word in _GREEK
        if not greek and not (len(node.text) == 1 and node.text.isalpha()):
            raise _error(f"{node.text} has no meaning here", node)
        word = node.text.lstrip("\\")
        word = "lamda" if word == "lambda" else word  # as SymPy spells it
        for item in sub.items if sub else ():
            if not isinstance(item, Symbol) or not item.text.lstrip("\\").isalnum():
                raise _error("a subscript must be letters and digits", item)
        below = "".join(item.text.lstrip("\\") for item in sub.items) if sub else ""  # type: ignore[union-attr]
        return f"{word}_{below}" if below else word

    def applied(self, name: str, primes: int) -> Any:
        behind = self.items.pop(0)
        fence = behind.base if isinstance(behind, Scripts) else behind
        assert isinstance(fence, Fence)
        args = self.several(fence.body)
        value = self.sympy.Function(name)(*args)
        if primes:
            if len(args) > 1 or not args[0].is_Symbol:
                raise _error("a prime needs a function of one letter", fence)
            value = self.sympy.Derivative(value, (args[0], primes))
        if isinstance(behind, Scripts):
            if behind.sub is not None or behind.sup is None:
                raise _error("a subscript has no meaning there", fence)
            value = self.power(value, self.row(behind.sup))
        return value

    def several(self, row: Row) -> list[Any]:
        """What commas set apart."""
        parts: list[list[Node]] = [[]]
        for item in row.items:
            if item in (Symbol(","), Symbol(";")):
                parts.append([])
            else:
                parts[-1].append(item)
        return [self.inside(tuple(part)) for part in parts]

    def fence(self, node: Fence) -> Any:
        sympy, ends = self.sympy, (node.left, node.right)
        if len(node.body.items) == 1 and isinstance(node.body.items[0], Matrix) and "." not in ends:
            matrix = self.atom(node.body.items[0], None)
            return sympy.Determinant(matrix) if ends == ("|", "|") else matrix
        values = self.several(node.body)
        if len(values) == 1:
            match ends:
                case ("|", "|"):
                    return sympy.Abs(values[0])
                case (r"\lfloor", r"\rfloor"):
                    return sympy.floor(values[0])
                case (r"\lceil", r"\rceil"):
                    return sympy.ceiling(values[0])
                case ("(", ")") | ("[", "]") | (r"\{", r"\}"):
                    return values[0]
        match ends:
            case ("(", ")"):
                return sympy.Tuple(*values)
            case (r"\{", r"\}"):
                if any(value.has(sympy.Sum, sympy.Product, sympy.Integral) for value in values):
                    raise _error("a sum or integral in a set is not clear; put a letter", node)
                return sympy.FiniteSet(*values)
            case ("[" | "(", "]" | ")") if len(values) == 2:
                opened = sympy.sympify(ends[0] == "("), sympy.sympify(ends[1] == ")")
                return sympy.Basic.__new__(
                    sympy.Interval, *values, *opened
                )  # it would compare them
        raise _error(f"{node.left} and {node.right} around it have no meaning", node)

    def command(self, node: Node, sub: Row | None) -> Any:
        assert isinstance(node, Command)
        sympy, first, last = self.sympy, node.args[0], node.args[-1]
        if node.name in _NAMED and len(first.items) == 1 and isinstance(first.items[0], Symbol):
            word = self.name(first.items[0]) + _NAMED[node.name]
            return sympy.Symbol(
                self.name(first.items[0], sub).replace(self.name(first.items[0]), word, 1)
            )
        if sub is not None:
            raise _error("a subscript has no meaning there", node)
        match node.name:
            case r"\frac":
                found = self.derivative(first, last)
                return self.ratio(self.row(first), self.row(last)) if found is None else found
            case r"\sqrt":
                index = self.row(node.option) if node.option else sympy.Integer(2)
                return self.power(self.row(first), self.ratio(sympy.S.One, index))
            case r"\binom":
                return self.bounded(sympy.binomial(self.row(first), self.row(last)))
            case r"\mathbb" if _text(first.items[0] if first.items else None) in _SETS:
                return getattr(sympy.S, _SETS[_text(first.items[0])])
        raise _error(f"{node.name} has no meaning", node)

    def derivative(self, above: Row, below: Row) -> Any:
        """`d/dx`, of what stands above or else of the term behind; None where it is no such."""
        top, bottom = above.items, below.items
        marks = ("d", r"\partial")
        if (
            not top
            or len(bottom) != 2
            or _text(top[0]) not in marks
            or _text(bottom[0]) not in marks
        ):
            return None
        order = self.row(top[0].sup) if isinstance(top[0], Scripts) and top[0].sup else 1
        by, index = _indexed(bottom[1])
        times = self.row(bottom[1].sup) if isinstance(bottom[1], Scripts) and bottom[1].sup else 1
        if not isinstance(by, Symbol) or order != times:
            raise _error("a derivative's two orders differ", top[0])
        variable = self.sympy.Symbol(self.name(by, index))
        if len(top) == 1:
            return self.sympy.Derivative(self.product(), (variable, order))
        letter, index = _indexed(top[1])
        if len(top) == 2 and isinstance(letter, Symbol) and (letter is top[1] or index):
            name = self.name(letter, index)
            function = self.sympy.Function(name)(variable)
            if self.implied.setdefault(self.sympy.Symbol(name), function) != function:
                raise _error(f"{name} would be a function of two letters", letter)
            return self.sympy.Derivative(function, (variable, order))
        return self.sympy.Derivative(self.inside(top[1:]), (variable, order))

    def operator(self, text: str, node: Scripts) -> Any:
        """Sums, integrals, limits, and functions with their argument."""
        if text in (r"\sum", r"\prod"):
            return self.total(text, node)
        if text == r"\int":
            return self.integral(node)
        if text == r"\lim":
            return self.limit(node)
        if text not in _FUNCTIONS and text != r"\lg":
            raise _error(f"{text} has no meaning", node)
        return self.function(text, node)

    def function(self, text: str, node: Scripts) -> Any:
        sympy, sub, sup = self.sympy, node.sub, node.sup
        if sub is not None and text != r"\log":
            raise _error(f"{text} takes no subscript", node)
        base = self.row(sub) if sub else sympy.Integer(10) if text == r"\lg" else None
        name = _FUNCTIONS.get(text, "log")
        inverse = sup == Row((Symbol("-"), Symbol("1")))
        if inverse and name not in ("sin", "cos", "tan", "cot", "sec", "csc"):
            raise _error(f"an inverse of {text} has no meaning", node)
        power = None
        behind = self.peek()
        fence = behind.base if isinstance(behind, Scripts) else behind
        if isinstance(fence, Fence) and fence.left not in BARS:
            self.items.pop(0)
            args = self.several(fence.body)
            if isinstance(behind, Scripts) and behind.sup:
                power = self.row(behind.sup)
        else:
            args = [self.product(argument=True)]
        args += [base] if base is not None else []
        if name == "det":
            if not getattr(args[0], "is_Matrix", False):
                raise _error("a determinant needs a matrix", node)
            value = sympy.Determinant(args[0])
        elif name == "gcd":  # which SymPy cannot leave as it is
            if not all(isinstance(arg, sympy.Integer) for arg in args):
                raise _error(r"\gcd needs whole numbers", node)
            value = sympy.Integer(sympy.igcd(*args))
        elif name in ("Max", "Min"):
            value = getattr(sympy, name)(*args, evaluate=False)
        else:
            value = self.bounded(getattr(sympy, f"a{name}" if inverse else name)(*args))
        value = value if sup is None or inverse else self.power(value, self.row(sup))
        return value if power is None else self.power(value, power)

    def total(self, text: str, node: Scripts) -> Any:
        below = node.sub.items if node.sub else ()
        if (
            len(below) < 3
            or below[1] != Symbol("=")
            or node.sup is None
            or not isinstance(below[0], Symbol)
        ):
            raise _error(f"{text} needs a letter with its first value below, its last above", node)
        bounds = self.sympy.Symbol(self.name(below[0])), self.inside(below[2:]), self.row(node.sup)
        kind = self.sympy.Sum if text == r"\sum" else self.sympy.Product
        kept = self.constants
        self.constants = {k: v for k, v in kept.items() if k != below[0].text}
        value = self.bound(kind, self.product(), bounds)
        self.constants = kept
        return value

    def integral(self, node: Scripts) -> Any:
        for at, item in enumerate(self.items):
            follows = self.items[at + 1] if at + 1 < len(self.items) else None
            if (
                item == Symbol("d")
                and isinstance(follows, Symbol)
                and follows.text not in RELATIONS
            ):
                inner, self.items = tuple(self.items[:at]), self.items[at + 2 :]
                value = self.inside(inner) if inner else self.sympy.Integer(1)
                break
            if isinstance(item, Command) and item.name == r"\frac":
                top = item.args[0].items
                if len(top) > 1 and top[-2] == Symbol("d") and isinstance(top[-1], Symbol):
                    follows = top[-1]
                    rest = Command(r"\frac", (Row(top[:-2] or (Symbol("1"),)), item.args[1]))
                    inner, self.items = (*self.items[:at], rest), self.items[at + 1 :]
                    value = self.inside(inner)
                    break
        else:
            raise _error("an integral lacks its d and the letter behind it", node)
        variable = self.sympy.Symbol(self.name(follows))
        if (node.sub is None) != (node.sup is None):
            raise _error("an integral has one limit; give both or none", node)
        if node.sub is None or node.sup is None:
            return self.bound(self.sympy.Integral, value, variable)
        bounds = variable, self.row(node.sub), self.row(node.sup)
        return self.bound(self.sympy.Integral, value, bounds)

    def bound(self, kind: Any, value: Any, bounds: Any) -> Any:
        """A sum or an integral; unless it evaluates, it begins with 1 *."""
        with self.sympy.evaluate(True):
            return kind(value, bounds)

    def limit(self, node: Scripts) -> Any:
        below = node.sub.items if node.sub else ()
        if len(below) < 3 or below[1] != Symbol(r"\rightarrow") or not isinstance(below[0], Symbol):
            raise _error(r"\lim needs a letter and where it goes to below it", node)
        goal, side = below[2:], "+-"
        last = goal[-1]
        if (
            isinstance(last, Scripts)
            and last.base
            and last.sup in (Row((Symbol("+"),)), Row((Symbol("-"),)))
        ):
            goal, side = (*goal[:-1], last.base), _text(last.sup.items[0])
        variable, value = self.sympy.Symbol(self.name(below[0])), self.inside(goal)
        if value in (self.sympy.oo, -self.sympy.oo):
            side = "-" if value is self.sympy.oo else "+"
        return self.sympy.Limit(self.product(), variable, value, dir=side)


def _indexed(node: Node) -> tuple[Node | None, Row | None]:
    """A base and what stands below it."""
    return (node.base, node.sub) if isinstance(node, Scripts) else (node, None)


def _shown(node: Node) -> str:
    return _text(node) or {Fence: "a bracket", Matrix: "a matrix"}.get(type(node), "a part")
