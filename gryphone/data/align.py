"""Which symbol of the label each segmented glyph is.

The segmentation names a glyph's class, and the label holds its symbols in LaTeX order. A class that
occurs once aligns by itself. Where it occurs more often, the ink's MathML gives the order; without
MathML the label's own layout does: it says which of two symbols is to the left or above, and an
assignment counts only when it is the only one that fits the boxes of the glyphs.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from xml.etree.ElementTree import Element

import numpy as np

from gryphone.errors import GryphoneError
from gryphone.ink import Ink
from gryphone.latex.normalize import normalize
from gryphone.latex.tree import Command, Fence, Group, Matrix, Node, Row, Scripts, Symbol, parse
from gryphone.tokens import EMPTY, PAD, sat_split

# A route leads from the whole formula to one symbol: (kind of node, branch taken) at each step.
Route = tuple[tuple[str, int], ...]
GlyphBox = tuple[float, float, float, float]  # left, top, right, bottom
Places = dict[str, list[int]]  # where each class occurs

# Spellings of segmentations, symbol boxes, graphs and drawings that the `crohme` convention writes
# otherwise.
SPELLINGS = {
    "COMMA": ",",
    r"\lt": "<",
    r"\gt": ">",
    r"\ast": "*",
    r"\le": r"\leq",
    r"\ge": r"\geq",
    r"\ne": r"\neq",
    r"\to": r"\rightarrow",
    r"\colon": ":",
    "'": r"\prime",
}
# Segmentations call a fraction bar `-`, a centred dot `.` and any ellipsis `\ldots`: each pair is
# one class, whose members the layout tells apart.
MERGED = {r"\frac": "-", r"\cdot": ".", r"\cdots": r"\ldots"}
LIMIT_BASES = frozenset((r"\sum", r"\prod", r"\lim", r"\max", r"\min", r"\int", r"\sup", r"\inf"))
MOST_REPEATS = 12  # a class that occurs more often is left unaligned unless it stands in one row
XML_ID = "{http://www.w3.org/XML/1998/namespace}id"


class Agreement(IntEnum):
    """How the symbols that the segmentation names compare with those of the label.

    A contradiction means that one of the two is wrong, and only looking tells which: in CROHME's
    artificial-cut it is mostly the label, in artificial-latex nearly always the segmentation.
    """

    SAME = 0
    INCOMPLETE = 1  # strokes are left over for the symbols that it lacks (all, where there is none)
    CONTRADICTS = 2  # it names a symbol that the label lacks, or no stroke is left for one it has


@dataclass(frozen=True)
class Alignment:
    """Index of each glyph in the label's SAT symbols, -1 where unknown."""

    positions: tuple[int, ...]
    agreement: Agreement


def align(ink: Ink, tokens: list[str], convention: str = "crohme") -> Alignment:
    """Align the glyphs of `ink` with its normalised label."""
    unknown = (-1,) * len(ink.glyphs)
    symbols = [symbol for symbol, _ in sat_split(tokens)]
    classes = [segmented_class(glyph.label, convention) for glyph in ink.glyphs]
    places = _places([symbol_class(symbol) for symbol in symbols])
    glyphs = _places(classes)
    agreement = _agreement(ink, places, glyphs)
    if agreement is Agreement.CONTRADICTS:
        return Alignment(unknown, agreement)
    order = _mathml_order(ink)
    positions = list(unknown)
    routes: dict[int, Route] | None = None
    for name, members in glyphs.items():
        targets = places[name]
        if len(members) < len(targets):
            continue  # which of them is missing is anyone's guess
        if len(members) > 1 and order is not None and all(m in order for m in members):
            members = sorted(members, key=lambda m: order[m])
        elif len(members) > 1:
            if routes is None:
                routes = _routes(tokens, symbols)
            boxes = [_box(ink, member) for member in members]
            chosen = _assign(boxes, [routes.get(t, ()) for t in targets], name)
            if chosen is None:
                continue
            members = [members[c] for c in chosen]
        for member, target in zip(members, targets, strict=True):
            positions[member] = target
    return Alignment(tuple(positions), agreement)


def _agreement(ink: Ink, places: Places, glyphs: Places) -> Agreement:
    if any(len(members) > len(places.get(name, ())) for name, members in glyphs.items()):
        return Agreement.CONTRADICTS
    if sum(map(len, glyphs.values())) == sum(map(len, places.values())):
        return Agreement.SAME
    owned = {stroke for glyph in ink.glyphs for stroke in glyph.strokes}
    return Agreement.CONTRADICTS if len(owned) == len(ink.strokes) else Agreement.INCOMPLETE


@lru_cache(maxsize=4096)
def segmented_class(label: str, convention: str) -> str:
    """A segmentation's label in the spelling of the normalised label."""
    label = "." if label == r"\dot" else SPELLINGS.get(label, label)
    try:
        tokens = normalize(label, convention)
    except GryphoneError:
        tokens = []
    return symbol_class(tokens[0] if len(tokens) == 1 else label)


def symbol_class(symbol: str) -> str:
    """The class of a label's symbol; "" for symbols without a glyph, and for ink that is none."""
    if symbol in (EMPTY, PAD, "&", r"\\") or symbol.startswith((r"\begin{", r"\end{")):
        return ""
    symbol = SPELLINGS.get(symbol, symbol)
    return MERGED.get(symbol, symbol)


def _places(classes: list[str]) -> Places:
    places: Places = {}
    for index, name in enumerate(classes):
        if name:
            places.setdefault(name, []).append(index)
    return places


def _box(ink: Ink, glyph: int) -> GlyphBox:
    points = np.concatenate([ink.strokes[s] for s in ink.glyphs[glyph].strokes])
    (left, top), (right, bottom) = points.min(axis=0).tolist(), points.max(axis=0).tolist()
    return left, top, right, bottom


def _mathml_order(ink: Ink) -> dict[int, int] | None:
    """The rank of each glyph in the reading order of the ink's MathML, for those that have one."""
    if ink.mathml is None:
        return None
    from defusedxml.ElementTree import fromstring

    ranks: dict[str, int] = {}
    for rank, identity in enumerate(_ids(fromstring(ink.mathml))):
        ranks.setdefault(identity, rank)
    hrefs = [glyph.href for glyph in ink.glyphs]
    return {
        index: ranks[href]
        for index, href in enumerate(hrefs)
        if href in ranks and hrefs.count(href) == 1
    }


def _ids(element: Element) -> Iterator[str]:
    """Node ids in LaTeX order, which is document order but for the index of a root."""
    identity = element.get(XML_ID)
    if identity:
        yield identity
    children = list(element)
    for child in reversed(children) if element.tag.endswith("mroot") else children:
        yield from _ids(child)


def _routes(tokens: list[str], symbols: list[str]) -> dict[int, Route]:
    """The route of each SAT symbol; none where the tree and the symbols do not match."""
    try:
        walked = list(_walk(parse(tokens), ()))
    except GryphoneError:
        return {}
    visible = [index for index, symbol in enumerate(symbols) if symbol != EMPTY]
    if [symbols[index] for index in visible] != [text for text, _ in walked]:
        return {}
    return {index: route for index, (_, route) in zip(visible, walked, strict=True)}


def _walk(node: Node, route: Route) -> Iterator[tuple[str, Route]]:
    """Every symbol below `node` in LaTeX order, with its route."""
    if isinstance(node, Symbol):
        yield node.text, route
    elif isinstance(node, Group):
        yield from _walk(node.body, route)
    elif isinstance(node, Row):
        for index, item in enumerate(node.items):
            yield from _walk(item, (*route, ("row", index)))
    elif isinstance(node, Scripts):
        limits = isinstance(node.base, Symbol) and node.base.text in LIMIT_BASES
        kind = "limits" if limits else "scripts"
        for branch, part in enumerate((node.base, node.sub, node.sup)):
            if part is not None:
                yield from _walk(part, (*route, (kind, branch)))
    elif isinstance(node, Command):
        yield node.name, (*route, (node.name, 0))
        parts = [node.option, *node.args] if node.name == r"\sqrt" else node.args
        for branch, row in enumerate(parts, 1):
            if row is not None:
                yield from _walk(row, (*route, (node.name, branch)))
    else:
        yield from _walk_cells(node, route)


def _walk_cells(node: Fence | Matrix, route: Route) -> Iterator[tuple[str, Route]]:
    if isinstance(node, Fence):
        yield from _walk(node.body, route)
        return
    yield f"\\begin{{{node.name}}}", (*route, ("matrix", 0))
    for number, cells in enumerate(node.cells):
        if number:
            yield r"\\", (*route, ("matrix", 0))
        for column, cell in enumerate(cells):
            if column:
                yield "&", (*route, ("matrix", 0))
            yield from _walk(cell, (*route, ("matrix row", number), ("matrix column", column)))
    yield f"\\end{{{node.name}}}", (*route, ("matrix", 0))


# What a layout says of two symbols, of which the first comes first in LaTeX.
_LAYOUT = {
    ("scripts", 0, 1): "left",
    ("scripts", 0, 2): "left",
    ("scripts", 1, 2): "below",
    ("limits", 1, 2): "below",
    (r"\frac", 0, 1): "below",
    (r"\frac", 0, 2): "above",
    (r"\frac", 1, 2): "above",
    (r"\sqrt", 0, 2): "left",
    (r"\sqrt", 1, 2): "left",
}


def _relation(first: Route, second: Route) -> str:
    """Where the first symbol is, seen from the second: left, above, below, or "" when unknown."""
    for (kind, i), (_, j) in zip(first, second, strict=False):
        if i != j:
            if kind in ("row", "matrix column"):
                return "left"
            return "above" if kind == "matrix row" else _LAYOUT.get((kind, i, j), "")
    return ""


def _assign(boxes: list[GlyphBox], routes: list[Route], name: str) -> list[int] | None:
    """The one order of the boxes that fits the layout of the label's positions, or None."""
    count = len(boxes)
    relation = [[_relation(routes[i], routes[j]) for j in range(count)] for i in range(count)]
    pairs = {relation[i][j] for i in range(count) for j in range(i + 1, count)}
    left = [_across(box, name) for box in boxes]
    down = [(top + bottom) / 2 for _, top, _, bottom in boxes]
    if pairs == {"left"}:
        order = sorted(range(count), key=lambda box: left[box])
        distinct = all(left[a] < left[b] for a, b in itertools.pairwise(order))
        return order if distinct else None
    if "" in pairs or count > MOST_REPEATS:
        return None

    def fits(a: int, b: int, wanted: str) -> bool:
        if wanted == "left":
            return left[a] < left[b]
        return down[a] < down[b] if wanted == "above" else down[a] > down[b]

    solutions: list[list[int]] = []

    def extend(chosen: list[int]) -> None:
        if len(solutions) > 1:
            return
        if len(chosen) == count:
            solutions.append(chosen)
        for box in range(count):
            if box not in chosen and all(
                fits(other, box, relation[i][len(chosen)]) for i, other in enumerate(chosen)
            ):
                extend([*chosen, box])

    extend([])
    return solutions[0] if len(solutions) == 1 else None


def _across(box: GlyphBox, name: str) -> float:
    """Horizontal place: a root reaches over what it holds, so only its left end tells."""
    left, _, right, _ = box
    return left if name == r"\sqrt" else (left + right) / 2
