"""InkML, the W3C format of CROHME and MathWriting: to and from `Ink`.

Channels are found by name; explicit, first- and second-difference values, `*`, `?`, hexadecimal
and boolean values and intermittent channels follow the recommendation's trace grammar.
"""

import re
from pathlib import Path, PurePath
from typing import Any, TypeAlias
from xml.etree.ElementTree import Element, ParseError, SubElement, indent, tostring

import numpy as np

from gryphone.errors import InkError
from gryphone.ink import (
    BROKEN_GROUP,
    DEFAULT_LIMITS,
    Glyph,
    Ink,
    Limits,
    Stroke,
    check_points,
    read_bytes,
)

INKML = "http://www.w3.org/2003/InkML"
MATHML = "http://www.w3.org/1998/Math/MathML"
XML_ID = "{http://www.w3.org/XML/1998/namespace}id"

# Which value of a point is x and which is y, and the sign that makes y grow downwards.
Layout: TypeAlias = tuple[tuple[int, int], tuple[float, float]]

NO_SVG = "SVG is not read, export it as PNG"  # it is XML, and so is opened here

MOST_NOTES = 3  # on broken trace groups
MAX_DEPTH = 300  # of MathML; CROHME nests one level per symbol, Python stops at 1000

# MathWriting's clean label goes before CROHME's truth and MathWriting's raw label.
LABEL_NOTES = ("normalizedLabel", "truth", "label")

_PLAIN = re.compile(r"[0-9eE+\-.,\s]*")
_VALUE = re.compile(
    r"\s*(?P<order>['\"!])?\s*"
    r"(?:(?P<number>[+-]?\s*(?:#[0-9A-Fa-f]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))"
    r"|(?P<flag>[*?TF]))\s*"
)


def read_inkml(
    source: Path | bytes, *, name: str | None = None, limits: Limits = DEFAULT_LIMITS
) -> Ink:
    """Read InkML of any W3C writer; `name` is the file to blame and gives the ink its id."""
    data, name = read_bytes(source, name, limits)
    root = _root(data, name)
    try:
        return _ink(root, name, limits)
    except RecursionError as error:
        raise InkError(f"{name}: MathML is nested deeper than {MAX_DEPTH} levels") from error


def _ink(root: Element, name: str, limits: Limits) -> Ink:
    usual, others = _layouts(root, name)
    elements = [e for e in root.iter() if _local(e) == "trace" and e.get("type") != "penUp"]
    if len(elements) > limits.strokes:
        raise InkError(f"{name}: {len(elements)} traces; the limit is {limits.strokes}")
    strokes: list[Stroke] = []
    index: dict[str, int] = {}
    total = 0
    for number, element in enumerate(elements):
        identity = _id(element) or str(number)
        columns, signs = others.get(element, usual)
        points = _trace(element.text or "", columns, f"{name}: trace {number} (id {identity!r})")
        total += len(points)
        check_points(total, name, limits)
        prior = index.get(element.get("priorRef", "").lstrip("#"))
        if element.get("continuation") in ("middle", "end") and prior is not None:
            strokes[prior] = np.concatenate([strokes[prior], points * signs])
            index[identity] = prior
        elif len(points):
            index[identity] = len(strokes)
            strokes.append(points * signs)
    notes = {e.get("type", ""): (e.text or "").strip() for e in root if _local(e) == "annotation"}
    glyphs, lost = _glyphs(root, index, {_id(e) for e in elements})
    return Ink(
        strokes=tuple(strokes),
        label=next((notes[key] for key in LABEL_NOTES if notes.get(key)), None),
        glyphs=glyphs,
        id=PurePath(name).stem,
        writer=notes.get("writer") or None,
        mathml=_mathml(root),
        annotations=notes,
        notes=lost,
    )


def _root(data: bytes, name: str) -> Element:
    """The document's root, parsed without entities, DTD tricks or network."""
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    try:
        root: Element = fromstring(data)
    except ParseError as error:
        raise InkError(f"{name}: broken XML: {error}") from error  # which names line and column
    except DefusedXmlException as error:
        raise InkError(
            f"{name}: XML entities are not allowed in ink; write out what they stand for"
        ) from error
    except (ValueError, LookupError) as error:  # an encoding that does not exist or does not fit
        raise InkError(f"{name}: broken XML: {error}") from error
    if _local(root) == "svg":
        raise InkError(f"{name}: root element is <svg>; {NO_SVG}")
    if _local(root) != "ink":
        raise InkError(f"{name}: root element is <{_local(root)}>; InkML starts with <ink>")
    return root


def _local(element: Element) -> str:
    """The tag without its namespace: CROHME files disagree about namespaces."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def _id(element: Element) -> str | None:
    return element.get("id") or element.get(XML_ID)


def _layouts(root: Element, name: str) -> tuple[Layout, dict[Element, Layout]]:
    """How points are written, and in which traces otherwise, by the formats of their contexts."""
    formats = [e for e in root.iter() if _local(e) == "traceFormat"]
    usual = _layout(formats[0] if formats else None, name)
    if len(formats) < 2:  # nearly every file
        return usual, {}
    forms = _forms(root)
    layouts = {form: _layout(form, name) for form in dict.fromkeys(forms.values())}
    named = _contexts(root).items()
    return usual, {e: layouts[forms[context]] for e, context in named if context in forms}


def _forms(root: Element) -> dict[str, Element]:
    """The trace format of each context that has one, by the context's id."""
    every = {identity: e for e in root.iter() if (identity := _id(e))}
    first: dict[tuple[Element, str], Element] = {}  # of its kind inside of an element
    for parent in root.iter():
        for child in parent:
            first.setdefault((parent, _local(child)), child)

    def form_of(element: Element, deep: int = 4) -> Element | None:
        """What it has or refers to, by itself or by its source of ink."""
        if (own := first.get((element, "traceFormat"))) is not None or not deep:
            return own
        names = (element.get(key, "") for key in ("traceFormatRef", "inkSourceRef", "contextRef"))
        named = next((e for n in names if (e := every.get(n.lstrip("#"))) is not None), None)
        if named is None:
            named = first.get((element, "inkSource"))
        if named is None or _local(named) == "traceFormat":
            return named
        return form_of(named, deep - 1)

    contexts = {identity: e for identity, e in every.items() if _local(e) == "context"}
    found = {identity: form_of(e) for identity, e in contexts.items()}
    return {identity: form for identity, form in found.items() if form is not None}


def _contexts(root: Element) -> dict[Element, str]:
    """The context that each trace names, or a group that it is in."""
    found: dict[Element, str] = {}
    for element in root.iter():  # groups come before what they hold
        named = element.get("contextRef", "").lstrip("#") or found.get(element, "")
        if named:
            found |= dict.fromkeys(element, named) | {element: named}
    return found


def _layout(form: Element | None, name: str) -> Layout:
    """What a trace format says of points."""
    names: list[str] = []
    signs = {"X": 1.0, "Y": 1.0}
    for channel in () if form is None else form:
        if _local(channel) == "channel":
            key = channel.get("name", "")
            names.append(key)
            signs[key] = -1.0 if channel.get("orientation") == "-ve" else 1.0
    if not names:  # the recommendation's default format
        names = ["X", "Y"]
    if "X" not in names or "Y" not in names:
        raise InkError(f"{name}: traceFormat has channels {names}; X and Y are needed")
    return (names.index("X"), names.index("Y")), (signs["X"], signs["Y"])


def _trace(text: str, columns: tuple[int, int], where: str) -> Stroke:
    """The (n, 2) points of one trace's text."""
    if not text.strip():
        return np.empty((0, 2))
    if _PLAIN.fullmatch(text):
        fast = _plain(text, columns)
        if fast is not None:
            return fast
    return _coded(text, columns, where)


def _plain(text: str, columns: tuple[int, int]) -> Stroke | None:
    """Explicit numbers only, the same count in each point: nearly every file; None otherwise."""
    rows = [point.split() for point in text.strip().strip(",").split(",")]
    width = len(rows[0])
    if width <= max(columns) or any(len(row) != width for row in rows):
        return None
    x, y = columns
    try:
        return np.array([(float(row[x]), float(row[y])) for row in rows])
    except ValueError:  # e.g. "3-5", two numbers without a space
        return None


def _coded(text: str, columns: tuple[int, int], where: str) -> Stroke:
    """The general grammar, one value at a time, with the difference order of each channel."""
    channels: list[_Channel] = []
    points: list[tuple[float, float]] = []
    for number, point in enumerate(text.split(",")):
        regular = point.partition(":")[0]  # intermittent channels never hold X or Y
        if not regular.strip():
            continue
        values: list[float | None] = []
        position = 0
        while position < len(regular):
            match = _VALUE.match(regular, position)
            if match is None:
                raise InkError(
                    f"{where}, point {number}: cannot read {regular[position:].strip()[:20]!r}"
                )
            if len(values) == len(channels):
                channels.append(_Channel())
            values.append(channels[len(values)].next(match))
            position = match.end()
        if len(values) <= max(columns):
            raise InkError(
                f"{where}, point {number}: {len(values)} values in {regular.strip()[:40]!r}; "
                f"X and Y are values {columns[0] + 1} and {columns[1] + 1}"
            )
        x, y = values[columns[0]], values[columns[1]]
        if x is not None and y is not None:  # `?`: the device does not know; there is no point
            points.append((x, y))
    return np.array(points, dtype=np.float64).reshape(-1, 2)


class _Channel:
    """The running state of one channel: value, velocity, acceleration and difference order."""

    def __init__(self) -> None:
        self.order = "!"
        self.value = self.velocity = self.acceleration = 0.0

    def next(self, match: re.Match[str]) -> float | None:
        """The channel's value after one more coded value; None where it is unknown."""
        self.order = match["order"] or self.order
        if match["flag"] == "?":
            return None
        if match["flag"] == "*":  # hold the value, the velocity or the acceleration
            number = {"!": self.value, "'": self.velocity, '"': self.acceleration}[self.order]
        elif match["flag"]:
            number = float(match["flag"] == "T")
        else:
            number = _number(match["number"])
        before, speed = self.value, self.velocity
        if self.order == "!":
            self.value = number
        elif self.order == "'":
            self.value += number
        else:
            self.value += speed + number
        self.velocity = self.value - before
        self.acceleration = self.velocity - speed
        return self.value


def _number(text: str) -> float:
    text = "".join(text.split())
    if "#" in text:
        return float(int(text.replace("#", ""), 16))
    return float(text)


def _glyphs(
    root: Element, index: dict[str, int], known: set[str | None]
) -> tuple[tuple[Glyph, ...], tuple[str, ...]]:
    """The innermost trace groups that have a label: CROHME's symbol segmentation.

    Notes name the groups that refer to a trace which is not there; they are left out.
    """
    glyphs: list[Glyph] = []
    notes: list[str] = []
    for group in (e for e in root.iter() if _local(e) == "traceGroup"):
        views = [e for e in group if _local(e) == "traceView"]
        label = next((e.text for e in group if _local(e) == "annotation" and e.text), None)
        if not views or label is None or not label.strip():
            continue
        references = [view.get("traceDataRef", "").lstrip("#") for view in views]
        lost = [r for r in references if r not in index and r not in known]
        if lost:
            notes.append(
                f"{BROKEN_GROUP} {_id(group)!r} ({label.strip()[:40]}) refers to trace "
                f"{lost[0][:40]!r}, which is not in the file; it is left out"
            )
            continue
        strokes = tuple(dict.fromkeys(index[r] for r in references if r in index))
        href = next((e.get("href") for e in group if _local(e) == "annotationXML"), None)
        if strokes:
            glyphs.append(Glyph(label.strip(), strokes, href))
    if len(notes) > MOST_NOTES:
        notes[MOST_NOTES:] = [f"{len(notes) - MOST_NOTES} more such trace groups"]
    return tuple(glyphs), tuple(notes)


def _mathml(root: Element) -> str | None:
    """The document's own MathML, with plain tag names, or None."""
    for annotation in root:
        if _local(annotation) == "annotationXML":
            for child in annotation:
                if _local(child) == "math":
                    plain = _without_namespaces(child)
                    plain.set("xmlns", MATHML)
                    return tostring(plain, encoding="unicode")
    return None


def _without_namespaces(element: Element, depth: int = 0) -> Element:
    if depth > MAX_DEPTH:
        raise RecursionError
    copy = Element(_local(element), dict(element.attrib))
    copy.text = (element.text or "").strip() or None
    for child in element:
        if _local(child):  # comments have none
            copy.append(_without_namespaces(child, depth + 1))
    return copy


def to_inkml(ink: Ink) -> str:
    """InkML that `read_inkml` reads back to an equal Ink (its id is the name of the file)."""
    root = Element("ink", xmlns=INKML)
    form = SubElement(root, "traceFormat")
    for channel in "XY":
        SubElement(form, "channel", name=channel, type="decimal")
    notes: dict[str, str] = dict(ink.annotations)
    if ink.label is not None and ink.label not in [notes.get(key) for key in LABEL_NOTES]:
        notes["truth"] = ink.label
    if ink.writer is not None:
        notes["writer"] = ink.writer
    for key, text in notes.items():
        SubElement(root, "annotation", type=key).text = text
    if ink.mathml is not None:
        holder = SubElement(root, "annotationXML", type="truth", encoding="Content-MathML")
        holder.append(_root_of(ink.mathml))
    for number, stroke in enumerate(ink.strokes):
        text = ", ".join(f"{x!r} {y!r}" for x, y in stroke.tolist())
        SubElement(root, "trace", id=str(number)).text = text
    if ink.glyphs:
        outer = SubElement(root, "traceGroup")
        SubElement(outer, "annotation", type="truth").text = "Segmentation"
        for glyph in ink.glyphs:
            _add_group(outer, glyph)
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _root_of(mathml: str) -> Any:
    from defusedxml.ElementTree import fromstring

    plain = _without_namespaces(fromstring(mathml))
    plain.set("xmlns", MATHML)
    return plain


def _add_group(outer: Element, glyph: Glyph) -> None:
    group = SubElement(outer, "traceGroup")
    SubElement(group, "annotation", type="truth").text = glyph.label
    for stroke in glyph.strokes:
        SubElement(group, "traceView", traceDataRef=str(stroke))
    if glyph.href is not None:
        SubElement(group, "annotationXML", href=glyph.href)
