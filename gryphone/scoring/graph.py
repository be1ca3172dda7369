"""Symbol layout graphs: what the CROHME graph score compares.

Nodes are visible symbols, edges are spatial relations from a parent to a child: a graph is a tree,
and a symbol is known by its place in it, as there are no strokes to know it by. Two graphs are
compared by aligning their symbols in reading order. One error each: a symbol that is missing or
extra, an aligned symbol with the wrong label, and an aligned symbol that hangs on another parent
or by another relation. A missing symbol is not charged a second time to the symbols around it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gryphone.data.align import MERGED, SPELLINGS
from gryphone.errors import DataError, LatexError
from gryphone.latex.lexer import Source
from gryphone.latex.normalize import CONVENTIONS, Fences, read_tree
from gryphone.latex.tree import (
    ACCENTS,
    ARROWS,
    FONTS,
    LIMITS,
    Command,
    Fence,
    Group,
    Matrix,
    Node,
    Row,
    Scripts,
    Symbol,
    words,
)

RELATIONS = ("Right", "Sup", "Sub", "Above", "Below", "Inside")
MOVABLE = words(
    r"""\sum \prod \coprod \int \oint \lim \max \min \sup \inf \bigcup \bigcap \bigoplus \bigotimes
    \bigwedge \bigvee \bigsqcup \limsup \liminf \det \gcd \Pr"""
)
# The .lg files write some labels another way, or do not tell them apart.
_LG_LABELS = SPELLINGS | MERGED | {r"\parallel": "|"}
_UNDER = words(r"\underline \underbrace \underrightarrow \underleftarrow")


@dataclass(frozen=True, slots=True)
class Place:
    """A symbol, the index of the symbol it hangs on (-1 for the first) and how it hangs there."""

    label: str
    parent: int
    relation: str


@dataclass(frozen=True)
class Graph:
    """Symbols in reading order, parents before children."""

    places: tuple[Place, ...]

    def folded(self) -> "Graph":
        """Limits above and below an operator taken as scripts, as labels do not tell."""
        scripts = {"Above": "Sup", "Below": "Sub"}
        places = list(self.places)
        for at, place in enumerate(places):
            if place.parent >= 0 and places[place.parent].label in MOVABLE:
                relation = scripts.get(place.relation, place.relation)
                places[at] = Place(place.label, place.parent, relation)
        return _ordered(places)


def graph_of_latex(source: Source) -> Graph:
    """The layout that LaTeX describes; `\\limits` puts scripts above and below."""
    rules = CONVENTIONS["crohme"]
    if rules is None:
        raise LatexError("the crohme convention has no rules")
    builder = _Builder(rules.rename, rules.matrices)
    builder.row(read_tree(source, rules, keep=LIMITS), -1, "", "")
    return _ordered(builder.places)


class _Builder:
    """Walks a tree and hangs every visible symbol on the one it is placed by."""

    def __init__(self, rename: Mapping[str, str], matrices: Mapping[str, Fences]) -> None:
        self.rename = rename
        self.matrices = matrices
        self.places: list[Place] = []

    def add(self, label: str, parent: int, relation: str) -> int:
        label = self.rename.get(label, label)
        self.places.append(Place(_LG_LABELS.get(label, label), parent, relation))
        return len(self.places) - 1

    def row(self, row: Row, parent: int, relation: str, font: str) -> int:
        """Add a row whose first symbol hangs on `parent`; return its last symbol, or `parent`."""
        last, how = parent, relation
        for item in row.items:
            at = self.node(item, last, how, font)
            if at != last:
                last, how = at, "Right"
        return last

    def node(self, node: Node, parent: int, relation: str, font: str) -> int:
        """Add one node; return the symbol that its right neighbour and its scripts hang on."""
        if isinstance(node, Symbol):
            return self.add(font + node.text, parent, relation)
        if isinstance(node, Row):
            return self.row(node, parent, relation, font)
        if isinstance(node, Group):
            return self.row(node.body, parent, relation, font)
        if isinstance(node, Scripts):
            return self.scripts(node, parent, relation, font)
        if isinstance(node, Command):
            return self.command(node, parent, relation, font)
        if isinstance(node, Fence):
            inner = (Symbol(node.left), *node.body.items, Symbol(node.right))
            return self.row(Row(inner), parent, relation, font)
        return self.matrix(node, parent, relation, font)

    def scripts(self, node: Scripts, parent: int, relation: str, font: str) -> int:
        at = parent
        if node.base is not None:
            at = self.node(node.base, parent, relation, font)
        if at < 0:
            raise LatexError("a script with no symbol in front of it has no place in a graph")
        over, under = ("Above", "Below") if node.limits == r"\limits" else ("Sup", "Sub")
        if node.sub is not None:
            self.row(node.sub, at, under, font)
        if node.sup is not None:
            self.row(node.sup, at, over, font)
        return at

    def command(self, node: Command, parent: int, relation: str, font: str) -> int:
        if node.name in FONTS:
            return self.row(node.args[0], parent, relation, node.name)
        if node.name in (r"\overset", r"\stackrel", r"\underset"):
            at = self.row(node.args[1], parent, relation, font)
            self.row(node.args[0], at, "Below" if node.name == r"\underset" else "Above", font)
            return at
        at = self.add("-" if node.name == r"\frac" else node.name, parent, relation)
        if node.option is not None:
            self.row(node.option, at, "Below" if node.name in ARROWS else "Above", font)
        if node.name in ARROWS:
            self.row(node.args[0], at, "Above", font)
        elif node.name in ACCENTS:
            self.row(node.args[0], at, "Above" if node.name in _UNDER else "Below", font)
        elif len(node.args) == 2:
            self.row(node.args[0], at, "Above", font)
            self.row(node.args[1], at, "Below", font)
        else:
            self.row(node.args[0], at, "Inside", font)
        return at

    def matrix(self, node: Matrix, parent: int, relation: str, font: str) -> int:
        """Cells side by side with their separators: CROHME has no relation for a grid."""
        if node.name in self.matrices:
            left, right = self.matrices[node.name]
            inner: list[Node] = [*map(Symbol, left), Matrix("matrix", node.cells)]
            return self.row(Row((*inner, *map(Symbol, right))), parent, relation, font)
        at = self.add(f"\\begin{{{node.name}}}", parent, relation)
        last, how = at, "Inside"
        for row_index, cells in enumerate(node.cells):
            for cell_index, cell in enumerate(cells):
                if row_index or cell_index:
                    last = self.add("&" if cell_index else r"\\", last, how)
                    how = "Right"
                after = self.row(cell, last, how, font)
                last, how = after, "Right" if after != at else "Inside"
        return at


def read_lg(text: str, name: str = "label graph") -> Graph:
    """Read a CROHME symbol label graph: `O, id, label, ...` and `R, parent, child, relation`."""
    labels: dict[str, str] = {}
    hangs: dict[str, tuple[str, str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        fields = [field.strip() for field in line.split(",")]
        if fields[0] == "O" and len(fields) >= 3:
            labels[fields[1]] = _LG_LABELS.get(fields[2], fields[2])
        elif fields[0] == "R" and len(fields) >= 4:
            if fields[3] not in RELATIONS:
                raise DataError(f"{name}, line {number}: unknown relation {fields[3]!r}")
            if fields[2] in hangs:
                raise DataError(f"{name}, line {number}: {fields[2]!r} has two parents")
            hangs[fields[2]] = (fields[1], fields[3])
        elif fields[0] and not fields[0].startswith("#"):
            raise DataError(f"{name}, line {number}: {line!r} is neither an O nor an R line")
    for child, (parent, _) in hangs.items():
        for end in (child, parent):
            if end not in labels:
                raise DataError(f"{name}: a relation names {end!r}, which is no object")
    # The tool that wrote the files adds an AUTO object for a stray stroke of no known symbol.
    tied = {end for child, (parent, _) in hangs.items() for end in (child, parent)}
    order = [key for key in labels if key in tied or not key.startswith("AUTO_")]
    index = {key: at for at, key in enumerate(order)}
    places = []
    for key in order:
        parent, relation = hangs.get(key, ("", ""))
        places.append(Place(labels[key], index.get(parent, -1), relation))
    return _ordered(places, name)


# Reading order: what hangs on a symbol comes before what follows it.
_READING = {name: at for at, name in enumerate(("Inside", "Sub", "Below", "Sup", "Above", "Right"))}


def _ordered(places: Sequence[Place], name: str = "graph") -> Graph:
    """The graph with its symbols in reading order, which does not depend on how it was made."""
    children: dict[int, list[int]] = {}
    for at, place in enumerate(places):
        children.setdefault(place.parent, []).append(at)
    ordered: list[Place] = []
    stack = [(at, -1) for at in reversed(children.get(-1, []))]
    while stack:
        at, parent = stack.pop()
        ordered.append(Place(places[at].label, parent, places[at].relation))
        following = sorted(children.get(at, []), key=lambda child: _READING[places[child].relation])
        stack += [(child, len(ordered) - 1) for child in reversed(following)]
    if len(ordered) != len(places):
        raise DataError(f"{name}: its relations go round in a circle")
    return Graph(tuple(ordered))


def graph_errors(truth: Graph, prediction: Graph) -> int:
    """Wrong labels plus wrong relations; 0 exactly when the two graphs are the same."""
    pairs = _align(truth.places, prediction.places)
    matched = dict(pairs)
    back = {b: a for a, b in pairs}
    errors = len(truth.places) + len(prediction.places) - 2 * len(pairs)
    for a, b in pairs:
        errors += truth.places[a].label != prediction.places[b].label
        parent, relation = _anchor(truth.places, a, matched)
        other, how = _anchor(prediction.places, b, back)
        errors += matched.get(parent, -1) != other or relation != how
    return errors


def _anchor(places: Sequence[Place], at: int, matched: Mapping[int, int]) -> tuple[int, str]:
    """What a symbol hangs on and how, looking through unmatched symbols in front of it."""
    place = places[at]
    parent, relation = place.parent, place.relation
    while parent >= 0 and parent not in matched:
        if relation == "Right":
            relation = places[parent].relation
        parent = places[parent].parent
    return (parent, relation) if parent >= 0 else (-1, "")


def _align(truth: Sequence[Place], prediction: Sequence[Place]) -> list[tuple[int, int]]:
    """Pairs of symbols, in order, that make labels and relations disagree least."""
    rows, columns = len(truth), len(prediction)
    cost = [[0] * (columns + 1) for _ in range(rows + 1)]
    for a in range(rows, -1, -1):
        for b in range(columns, -1, -1):
            if a == rows or b == columns:
                cost[a][b] = rows - a + columns - b
                continue
            pair = _unlike(truth[a], prediction[b]) + cost[a + 1][b + 1]
            cost[a][b] = min(pair, 1 + cost[a + 1][b], 1 + cost[a][b + 1])
    pairs: list[tuple[int, int]] = []
    a = b = 0
    while a < rows and b < columns:
        if cost[a][b] == _unlike(truth[a], prediction[b]) + cost[a + 1][b + 1]:
            pairs.append((a, b))
            a, b = a + 1, b + 1
        elif cost[a][b] == 1 + cost[a + 1][b]:
            a += 1
        else:
            b += 1
    return pairs


def _unlike(one: Place, other: Place) -> int:
    return (one.label != other.label) + (one.relation != other.relation)


@dataclass(frozen=True)
class GraphScores:
    """Shares of graphs without errors and with at most one and two, in percent."""

    count: int
    exact: float
    le1: float
    le2: float
    unreadable: tuple[str, ...]


def score_graphs(samples: Iterable[tuple[str, Graph, str | None]]) -> GraphScores:
    """Score (id, true graph, predicted LaTeX); a prediction without a graph is wrong and listed."""
    errors: list[int | None] = []
    unreadable: list[str] = []
    for name, truth, latex in samples:
        try:
            prediction = graph_of_latex(latex or "")
        except LatexError:
            prediction = Graph(())
        if not prediction.places:
            unreadable.append(name)
            errors.append(None)
        else:
            errors.append(graph_errors(truth.folded(), prediction.folded()))
    if not errors:
        raise DataError("nothing to score; give at least one graph")
    within = [100 * sum(e is not None and e <= k for e in errors) / len(errors) for k in range(3)]
    return GraphScores(len(errors), within[0], within[1], within[2], tuple(unreadable))
