"""What a formula says while it is still being written: its label without what is not there yet.

An open bracket is a bracket, a bar without a denominator has an empty one, a root may be empty.
What has no sign yet is just its content: a numerator before its bar stands on the line, so does a
script whose base comes later. A bar with nothing above and below is a minus. Where what is there
could be read in two ways (both parts of a fraction without the bar, an accent over nothing, half a
matrix) there is no label.
"""

from collections.abc import Collection, Sequence
from random import Random
from typing import NamedTuple

from gryphone.latex.tree import (
    ACCENTS,
    FONTS,
    FRACTIONS,
    Command,
    Fence,
    Group,
    Matrix,
    Node,
    Row,
    Scripts,
    Symbol,
    parse,
)
from gryphone.latex.validity import is_valid
from gryphone.tokens import EMPTY, sat_split

BAR_FIRST, BODY_FIRST = 0.15, 0.1  # how often a bar comes before, a root's sign behind its content


class Part(NamedTuple):
    """One token of an unfinished label, and the symbol that it was in the whole one."""

    text: str
    place: int | None = None  # index in the whole label's SAT symbols; None: a brace


class _UndecidedError(Exception):
    """What is written so far can be read in two ways."""


def unfinished(tokens: Sequence[str], written: Collection[int]) -> list[Part] | None:
    """The label of the `written` ones among the SAT symbols of a normalised label.

    None where nothing is written, or where it is undecided what the label would be.
    """
    walk = _Walk(tokens)
    try:
        parts = walk.written(parse(list(tokens)), frozenset(written))
    except _UndecidedError:
        return None
    return parts if parts and is_valid([part.text for part in parts]) else None


def writing_order(tokens: Sequence[str], draw: Random) -> list[int]:
    """The SAT symbols in an order in which somebody may write them."""
    return _Walk(tokens).order(parse(list(tokens)), draw)


class _Walk:
    """Goes through a label's tree and counts its symbols, which come in the order of the label."""

    def __init__(self, tokens: Sequence[str]) -> None:
        pairs = enumerate(sat_split(tokens))
        self.places = iter([at for at, (symbol, _) in pairs if symbol != EMPTY])

    def written(self, node: Node | None, there: frozenset[int]) -> list[Part]:
        if isinstance(node, Symbol):
            place = next(self.places)
            return [Part(node.text, place)] if place in there else []
        if isinstance(node, Row):
            return [part for item in node.items for part in self.written(item, there)]
        if isinstance(node, Group):
            body = self.written(node.body, there)
            return _braced(body) if body else []
        if isinstance(node, Scripts):
            return self._scripts(node, there)
        if isinstance(node, Command):
            return self._command(node, there)
        if node is None:
            return []
        raise _UndecidedError

    def _scripts(self, node: Scripts, there: frozenset[int]) -> list[Part]:
        base, sub, sup = (self.written(n, there) for n in (node.base, node.sub, node.sup))
        if not base:
            if sub and sup:
                raise _UndecidedError
            return sub or sup
        marked = [(mark, part) for mark, part in (("_", sub), ("^", sup)) if part]
        return base + [p for mark, part in marked for p in (Part(mark), *_braced(part))]

    def _command(self, node: Command, there: frozenset[int]) -> list[Part]:
        place = next(self.places)
        option = self.written(node.option, there)
        args = [self.written(arg, there) for arg in node.args]
        contents = [part for part in (option, *args) if part]
        sign = Part(node.name, place)
        if node.name in FONTS:  # leaves no ink of its own
            return [sign, *_braced(args[0])] if args[0] else []
        if place not in there:
            if len(contents) > 1:
                raise _UndecidedError
            return contents[0] if contents else []
        if node.name in FRACTIONS:
            return [sign, *_braced(args[0]), *_braced(args[1])] if contents else [Part("-", place)]
        if node.name == r"\sqrt":
            index = [Part("["), *option, Part("]")] if option else []
            return [sign, *index, *_braced(args[0])]
        if node.name in ACCENTS and args[0]:
            return [sign, *_braced(args[0])]
        raise _UndecidedError

    def order(self, node: Node | None, draw: Random) -> list[int]:
        if isinstance(node, Symbol):
            return [next(self.places)]
        if isinstance(node, Row):
            return [place for item in node.items for place in self.order(item, draw)]
        if isinstance(node, Group | Fence):
            return self.order(node.body, draw)
        if isinstance(node, Scripts):
            base, sub, sup = (self.order(n, draw) for n in (node.base, node.sub, node.sup))
            return base + (sub + sup if draw.random() < 0.5 else sup + sub)
        if isinstance(node, Command):
            sign, option = [next(self.places)], self.order(node.option, draw)
            first, *rest = (self.order(arg, draw) for arg in node.args)
            behind = [place for part in rest for place in part]
            if node.name in FRACTIONS:
                bar_first = draw.random() < BAR_FIRST
                return (sign + first if bar_first else first + sign) + behind
            late = node.name in ACCENTS or (node.name == r"\sqrt" and draw.random() < BODY_FIRST)
            return first + sign + option if late else sign + option + first + behind
        return self._cells(node) if isinstance(node, Matrix) else []

    def _cells(self, node: Matrix) -> list[int]:
        """A matrix is only ever there as a whole: as the label has it."""
        draw = Random(0)
        out = [next(self.places)]
        for row, cells in enumerate(node.cells):
            out += [next(self.places)] if row else []
            for column, cell in enumerate(cells):
                out += [next(self.places)] if column else []
                out += self.order(cell, draw)
        return [*out, next(self.places)]


def _braced(parts: Sequence[Part]) -> list[Part]:
    return [Part("{"), *parts, Part("}")]
