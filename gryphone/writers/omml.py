"""Office Math, the XML of formulas in Word; and a document that holds some."""

import re
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from gryphone.errors import need, writing
from gryphone.latex.lexer import Source
from gryphone.latex.tree import Command, Fence, Matrix, Node, Row, Scripts, Symbol, words
from gryphone.writers.unicode import COMBINING
from gryphone.writers.walk import BIG, INTEGRALS, NAMES, RELATIONS, Writer

SPACE = "http://schemas.openxmlformats.org/officeDocument/2006/math"
_BARS = {r"\overline": "top", r"\underline": "bot"}
_GROUPS = {r"\overbrace": ("⏞", "top"), r"\underbrace": ("⏟", "bot")}
_STYLES = {
    r"\mathrm": '<m:sty m:val="p"/>',
    r"\text": "<m:nor/>",
    r"\mathbf": '<m:sty m:val="b"/>',
    r"\boldsymbol": '<m:sty m:val="bi"/>',
    r"\mathbb": '<m:scr m:val="double-struck"/>',
    r"\mathcal": '<m:scr m:val="script"/>',
    r"\mathscr": '<m:scr m:val="script"/>',
    r"\mathfrak": '<m:scr m:val="fraktur"/>',
    r"\mathsf": '<m:scr m:val="sans-serif"/>',
    r"\mathtt": '<m:scr m:val="monospace"/>',
}
# Limits stand above and below.
_BELOW = BIG - INTEGRALS | words(r"\lim \limsup \liminf \max \min \sup \inf \det \gcd \Pr")


def tag(name: str, *inner: str) -> str:
    return f"<m:{name}>{''.join(inner)}</m:{name}>"


def _value(name: str, value: str) -> str:
    return f"<m:{name} m:val={quoteattr(value)}/>"


class OmmlWriter(Writer):
    """An `m:oMath` element."""

    target = "Office Math"

    def __init__(self) -> None:
        self.style = ""

    def write(self, source: Source) -> str:
        return super().write(source).join((f'<m:oMath xmlns:m="{SPACE}">', "</m:oMath>"))

    def row(self, row: Row | None) -> str:
        text = ""
        items = row.items if row else ()
        for at, item in enumerate(items):
            base = item.base if isinstance(item, Scripts) else item
            if isinstance(base, Symbol) and base.text in BIG:
                # What is summed belongs into the sum, or Word shows an empty box there.
                end = next(
                    (i for i in range(at + 1, len(items)) if _is_relation(items[i])), len(items)
                )
                text += self.nary(base, item, Row(items[at + 1 : end]))
                return text + self.row(Row(items[end:]))
            text += self.node(item)
        return text

    def nary(self, base: Symbol, node: Node, body: Row) -> str:
        sub, sup = (node.sub, node.sup) if isinstance(node, Scripts) else (None, None)
        place = "undOvr" if base.text in _BELOW else "subSup"
        limits = node.limits if isinstance(node, Scripts) else ""
        place = {r"\limits": "undOvr", r"\nolimits": "subSup"}.get(limits, place)
        hidden = "".join(
            _value(f"{name}Hide", "1")
            for name, part in (("sub", sub), ("sup", sup))
            if part is None
        )
        about = tag("naryPr", _value("chr", self.sign(base)), _value("limLoc", place), hidden)
        parts = tag("sub", self.row(sub)), tag("sup", self.row(sup)), tag("e", self.row(body))
        return tag("nary", about, *parts)

    def symbol(self, node: Symbol) -> str:
        if node.text == r"\\":
            return '<m:r><w:br xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"/></m:r>'
        name = node.text in NAMES
        return self.run(
            node.text[1:] if name else self.sign(node), _STYLES[r"\mathrm"] if name else ""
        )

    def run(self, text: str, style: str = "") -> str:
        style = self.style or style
        about = tag("rPr", style) if style else ""
        return tag("r", about, f'<m:t xml:space="preserve">{escape(text)}</m:t>')

    def scripts(self, node: Scripts) -> str:
        base = tag("e", "" if node.base is None else self.node(node.base))
        sub, sup = tag("sub", self.row(node.sub)), tag("sup", self.row(node.sup))
        if (
            isinstance(node.base, Symbol)
            and node.base.text in _BELOW
            and node.limits != r"\nolimits"
        ):
            if node.sub:
                base = tag("e", tag("limLow", base, tag("lim", self.row(node.sub))))
            if node.sup:
                return tag("sSup", base, sup)
            return base.removeprefix("<m:e>").removesuffix("</m:e>")
        if node.sub and node.sup:
            return tag("sSubSup", base, sub, sup)
        return tag("sSub", base, sub) if node.sub else tag("sSup", base, sup)

    def command(self, node: Command) -> str:
        name, first, last = node.name, node.args[0], node.args[-1]
        if name in _STYLES:
            before, self.style = self.style, _STYLES[name]
            text = self.row(first)
            self.style = before
            # Word sets letters apart that are runs of their own.
            return re.sub(r"</m:t></m:r><m:r>(<m:rPr>.*?</m:rPr>)?<m:t[^>]*>", "", text)
        inner = tag("e", self.row(first))
        if name in COMBINING and name != r"\cancel":
            return tag("acc", tag("accPr", _value("chr", COMBINING[name])), inner)
        if name in _BARS:
            return tag("bar", tag("barPr", _value("pos", _BARS[name])), inner)
        if name in _GROUPS:
            sign, place = _GROUPS[name]
            about = tag("groupChrPr", _value("chr", sign), _value("pos", place))
            return tag("groupChr", about, inner)
        match name:
            case r"\frac":
                return tag("f", tag("num", self.row(first)), tag("den", self.row(last)))
            case r"\binom":
                bare = tag("fPr", _value("type", "noBar"))
                stack = tag("f", bare, tag("num", self.row(first)), tag("den", self.row(last)))
                return tag("d", tag("e", stack))
            case r"\sqrt":
                about = "" if node.option else tag("radPr", _value("degHide", "1"))
                return tag("rad", about, tag("deg", self.row(node.option)), inner)
            case r"\overset" | r"\underset":
                kind = "limUpp" if name == r"\overset" else "limLow"
                return tag(kind, tag("e", self.row(last)), tag("lim", self.row(first)))
            case r"\boxed":
                return tag("borderBox", inner)
        raise self.cannot(name, node)

    def fence(self, node: Fence) -> str:
        ends = [
            "" if end == "." else self.sign(Symbol(end, node.at)) for end in (node.left, node.right)
        ]
        about = tag("dPr", _value("begChr", ends[0]), _value("endChr", ends[1]))
        return tag("d", about, tag("e", self.row(node.body)))

    def matrix(self, node: Matrix) -> str:
        return tag(
            "m", *(tag("mr", *(tag("e", self.row(c)) for c in cells)) for cells in self.cells(node))
        )


def _is_relation(node: Node) -> bool:
    return isinstance(node, Symbol) and node.text in RELATIONS


def write_docx(formulas: Iterable[Source], path: Path) -> None:
    """A Word document with a paragraph for each formula."""
    need("docx", "formats")
    from docx import Document
    from docx.oxml import parse_xml

    document = Document()
    for formula in formulas:
        math = OmmlWriter().write(formula)
        paragraph = f'<m:oMathPara xmlns:m="{SPACE}">{math}</m:oMathPara>'
        document.add_paragraph()._p.append(parse_xml(paragraph))
    with writing(path):
        document.save(str(path))
