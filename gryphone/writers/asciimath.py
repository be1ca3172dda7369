"""AsciiMath: what one types into a forum, a wiki, or a learning system."""

from gryphone.latex.tree import Command, Fence, Matrix, Row, Scripts, Symbol, words
from gryphone.latex.variants import FUNCTIONS
from gryphone.writers.walk import CLOSING, OPENING, Writer, table

# Symbols whose name in AsciiMath is not LaTeX's; those of the second list have the same.
_NAMES = table(
    r"""\cdot *  * **  \star ***  / //  \backslash \\  \times xx  \div -:  \circ @  \oplus o+
    \otimes ox  \odot o.  \wedge ^^  \bigwedge ^^^  \vee vv  \bigvee vvv  \cap nn  \bigcap nnn
    \cup uu  \bigcup uuu  \neq !=  \leq <=  \geq >=  \prec -<  \succ >-  \notin !in  \subset sub
    \supset sup  \subseteq sube  \supseteq supe  \equiv -=  \cong ~=  \approx ~~  \sim ~
    \propto prop  \neg not  \Rightarrow =>  \Leftrightarrow <=>  \forall AA  \exists EE  \bot _|_
    \top TT  \vdash |--  \models |==  \int int  \oint oint  \partial del  \nabla grad  \pm +-
    \mp -+  \emptyset O/  \infty oo  \therefore :.  \because :'  \ldots ...  \rightarrow ->
    \leftarrow larr  \leftrightarrow harr  \mapsto |->  \uparrow uarr  \downarrow darr
    \epsilon epsi  \prime '  \quad quad  \qquad qquad  \langle <<  \rangle >>  \lfloor |__
    \rfloor __|  \lceil |~  \rceil ~|  \{ {  \} }  \parallel ∥  \| ∥  \arg "arg"  \mod mod"""
)
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
_ACCENTS = table(
    r"""\hat hat  \widehat hat  \tilde tilde  \widetilde tilde  \bar bar  \overline bar  \vec vec
    \overrightarrow vec  \dot dot  \ddot ddot  \underline ul  \overbrace obrace
    \underbrace ubrace  \cancel cancel  \mathbf bb  \boldsymbol bb  \mathbb bbb  \mathcal cc
    \mathscr cc  \mathfrak fr  \mathsf sf  \mathtt tt"""
)
_ABOVE = table(
    r"""\check ˇ  \widecheck ˇ  \breve ˘  \acute ´  \grave `  \mathring ∘  \dddot ...
    \overleftarrow larr  \overleftrightarrow harr"""
)


class AsciiMathWriter(Writer):
    """Parts are set apart by spaces: `in` would be a sign, `i n` are two letters."""

    target = "AsciiMath"
    between = " "

    def symbol(self, node: Symbol) -> str:
        if node.text in OPENING or node.text in CLOSING:  # without its partner it opens nothing
            return f'"{self.sign(node)}"'
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
            case r"\mathrm":
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
        return none if end == "." else _NAMES.get(end) or self.sign(Symbol(end, node.at))

    def matrix(self, node: Matrix) -> str:
        return f"{{:{self.lines(node)}:}}"

    def lines(self, node: Matrix) -> str:
        table = self.cells(node)
        wide = max(map(len, table))
        rows = ([*map(self.row, cells), *[""] * (wide - len(cells))] for cells in table)
        return ",".join(f"({','.join(cells)})" for cells in rows)
