import json
import pickle
from pathlib import Path

import inkmaker
import numpy as np
import pytest
from inkmaker import to_strokes

from gryphone.errors import InkError
from gryphone.ink import Glyph, Ink, Limits, stroke_boxes, typical_stroke
from gryphone.reading.inkml import read_inkml, to_inkml
from gryphone.reading.inputs import read_input
from gryphone.reading.strokes import read_strokes

SHARED = Path(__file__).parents[2] / "shared" / "data"


def inkml(trace: str, channels: str = "XY", extra: str = "") -> bytes:
    names = "".join(f'<channel name="{c}" type="decimal"/>' for c in channels)
    head = f"<traceFormat>{names}</traceFormat>" if channels else ""
    xmlns = 'xmlns="http://www.w3.org/2003/InkML"'
    return f'<ink {xmlns}>{head}{extra}<trace id="0">{trace}</trace></ink>'.encode()


def points(trace: str, channels: str = "XY") -> list[list[float]]:
    return to_strokes(read_inkml(inkml(trace, channels)))[0]


@pytest.mark.parametrize(
    ("trace", "channels", "expected"),
    [
        ("1 2, 3 4", "XY", [[1, 2], [3, 4]]),
        ("\n 1   2,\n3 4\n", "XY", [[1, 2], [3, 4]]),
        ("1 2, 3 4", "", [[1, 2], [3, 4]]),
        ("1 2 99, 3 4 98", "XYT", [[1, 2], [3, 4]]),
        ("9 2 1 7, 9 4 3 7", "TYXF", [[1, 2], [3, 4]]),
        ("1 2 99 5, 3 4 98 5", "XY", [[1, 2], [3, 4]]),  # more values than declared
        ("1.5e1 -2, 3 4", "XY", [[15, -2], [3, 4]]),
        (
            "1125 18432,'23'43,\"7\"-8,3-5",
            "XY",
            [[1125, 18432], [1148, 18475], [1178, 18510], [1211, 18540]],
        ),
        ("10 20, '1'2, 3 4, !7!8, 1 1", "XY", [[10, 20], [11, 22], [14, 26], [7, 8], [1, 1]]),
        ("1 2, * 5, 6 *", "XY", [[1, 2], [1, 5], [6, 5]]),
        ("1 2, '3'3, * *", "XY", [[1, 2], [4, 5], [7, 8]]),
        ("1 2, ? 5, 6 7", "XY", [[1, 2], [6, 7]]),
        ("#A #1f, -#2 3", "XY", [[10, 31], [-2, 3]]),
        ("1 2 T, 3 4 F", "XYS", [[1, 2], [3, 4]]),
        ("1 2 : 5, 3 4", "XY", [[1, 2], [3, 4]]),
        ("7 8", "XY", [[7, 8]]),
    ],
)
def test_trace_grammar(trace: str, channels: str, expected: list[list[float]]) -> None:
    assert points(trace, channels) == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "broken XML: no element found: line 1"),
        (b"<ink><trace>1 2</ink>", "broken XML: mismatched tag: line 1, column"),
        (b"<svg/>", "root element is <svg>"),
        (b"<ink></ink>", "no strokes"),
        (b"<ink><trace>  </trace></ink>", "no strokes"),
        (inkml("1 2, 3"), "point 1: 1 values in '3'"),
        (inkml("1 2, nan 3"), "point 1: cannot read 'nan 3'"),
        (inkml("1 2, 1e999 3"), "stroke 0, point 1 is (inf, 3.0)"),
        (inkml("1 2", "AB"), "channels ['A', 'B']; X and Y are needed"),
        (
            b'<!DOCTYPE a [<!ENTITY b "c">]><ink><trace>&b;</trace></ink>',
            "entities are not allowed",
        ),
        (b"\xff\xfe\x00", "broken XML"),
        (b"<?xml version='1.0' encoding='nope'?><ink/>", "broken XML"),
    ],
)
def test_broken_inkml_names_file_and_place(data: bytes, message: str) -> None:
    with pytest.raises(InkError) as error:
        read_inkml(data, name="some/file.inkml")
    assert message in str(error.value)
    assert "file" in str(error.value)


def test_group_that_names_a_lost_trace() -> None:
    def group(label: str, trace: str) -> str:
        view = f'<traceView traceDataRef="{trace}"/>'
        return f'<traceGroup><annotation type="truth">{label}</annotation>{view}</traceGroup>'

    ink = read_inkml(inkml("1 2", extra=group("x", "7") + group("y", "0")))
    assert [glyph.label for glyph in ink.glyphs] == ["y"] and len(ink.strokes) == 1
    assert len(ink.notes) == 1 and "(x) refers to trace '7'" in ink.notes[0]
    many = read_inkml(inkml("1 2", extra=group("x", "7") * 9))
    assert len(many.notes) == 4 and many.notes[-1] == "6 more such trace groups"


def test_deep_nesting_is_an_ink_error() -> None:
    deep = "<annotationXML><math>" + "<a>" * 50_000 + "</a>" * 50_000 + "</math></annotationXML>"
    with pytest.raises(InkError, match="nested"):
        read_inkml(inkml("1 2", extra=deep))


def test_limits() -> None:
    with pytest.raises(InkError, match="larger than 10 bytes"):
        read_inkml(inkml("1 2"), limits=Limits(bytes=10))
    with pytest.raises(InkError, match="3 points; the limit is 2"):
        read_inkml(inkml("1 2, 3 4, 5 6"), limits=Limits(points=2))
    with pytest.raises(InkError, match="2 strokes; the limit is 1"):
        read_strokes([[[0, 0]], [[1, 1]]], limits=Limits(strokes=1))
    with pytest.raises(InkError, match="1 traces; the limit is 0"):
        read_inkml(inkml("1 2"), limits=Limits(strokes=0))


def test_orientation_pen_up_and_continuation() -> None:
    data = (
        b'<ink><traceFormat><channel name="X"/><channel name="Y" orientation="-ve"/></traceFormat>'
        b'<trace xml:id="a" continuation="begin">1 2</trace><trace type="penUp">5 5</trace>'
        b'<trace xml:id="b" continuation="end" priorRef="#a">3 4</trace></ink>'
    )
    assert to_strokes(read_inkml(data)) == [[[1, -2], [3, -4]]]


def test_a_trace_is_read_as_its_context_says() -> None:
    def form(identity: str, channels: str) -> str:
        names = "".join(f'<channel name="{c}"/>' for c in channels)
        return f'<traceFormat xml:id="{identity}">{names}</traceFormat>'

    contexts = (
        '<context xml:id="one" traceFormatRef="#a"/><context xml:id="two" traceFormatRef="#b"/>'
        f'<context xml:id="three"><inkSource>{form("c", "YX")}</inkSource></context>'
        '<context xml:id="four" contextRef="#three"/>'
    )
    data = (
        f"<ink><definitions>{form('a', 'XY')}{form('b', 'TXY')}{contexts}</definitions>"
        '<trace>1 2</trace><trace contextRef="#two">9 3 4</trace>'
        '<traceGroup contextRef="#two"><trace>9 5 6</trace>'
        '<trace contextRef="#one">7 8</trace></traceGroup>'
        '<trace contextRef="#four">10 9</trace><trace contextRef="#none">11 12</trace></ink>'
    )
    found = [stroke.tolist()[0] for stroke in read_inkml(data.encode()).strokes]
    assert found == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10], [11, 12]]


def test_labels_segmentation_and_mathml() -> None:
    extra = """<annotation type="label">raw</annotation>
    <annotation type="normalizedLabel">x^{2}</annotation><annotation type="writer">w1</annotation>
    <annotationXML type="truth"><math xmlns="http://www.w3.org/1998/Math/MathML">
      <mi xml:id="x_1">x</mi></math></annotationXML>
    <traceGroup><annotation type="truth">Segmentation</annotation><traceGroup>
      <annotation type="truth"> x </annotation><traceView traceDataRef="0"/>
      <annotationXML href="x_1"/></traceGroup></traceGroup>"""
    ink = read_inkml(inkml("1 2", extra=extra), name="dir/abc.inkml")
    assert (ink.id, ink.label, ink.writer) == ("abc", "x^{2}", "w1")
    assert ink.glyphs == (Glyph("x", (0,), "x_1"),)
    assert ink.mathml is not None and '<mi xml:id="x_1">x</mi>' in ink.mathml


@pytest.mark.parametrize("ink", [inkmaker.fraction(), inkmaker.power(), inkmaker.row("x.")])
def test_inkml_round_trip(ink: Ink) -> None:
    again = read_inkml(to_inkml(ink).encode(), name=f"{ink.id}.inkml")
    assert to_strokes(again) == to_strokes(ink)
    assert (again.label, again.glyphs, again.id, again.writer) == (
        ink.label,
        ink.glyphs,
        ink.id,
        ink.writer,
    )
    assert read_inkml(to_inkml(again).encode(), name=f"{ink.id}.inkml") == again


@pytest.mark.parametrize(
    "value",
    [
        [[[0, 1], [2, 3]], [[4, 5]]],
        [[[0, 1, 17], [2, 3, 18]], [[4, 5, 20]]],
        [{"x": [0, 2], "y": [1, 3]}, {"x": [4], "y": [5]}],
        [[{"x": 0, "y": 1}, {"x": 2, "y": 3}], [{"x": 4, "y": 5}]],
        {"strokes": [[[0, 1], [2, 3]], [], [[4, 5]]]},
    ],
)
def test_strokes_json_forms(value: object, tmp_path: Path) -> None:
    expected = [[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0]]]
    assert to_strokes(read_strokes(value)) == expected  # type: ignore[arg-type]
    assert to_strokes(read_strokes(json.dumps(value))) == expected
    path = tmp_path / "a.json"
    path.write_text(json.dumps(value))
    assert to_strokes(read_strokes(path)) == expected
    assert read_strokes(path).id == "a"


@pytest.mark.parametrize(
    "value",
    [
        [np.array([[0, 1], [2, 3]]), [[4, 5]]],
        [np.array([[0, 1], [2, 3]]), np.zeros((0, 2)), np.array([[4, 5]])],
        {"strokes": [[[np.float32(0), np.int64(1)], np.array([2, 3])], np.array([[4, 5]])]},
        [{"x": np.array([0, 2]), "y": (1, 3)}, [[4, 5]]],
    ],
)
def test_arrays_stand_for_lists(value: object) -> None:
    expected = [[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0]]]
    assert to_strokes(read_input(value).ink) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "no strokes"),
        ([[]], "no strokes"),
        ("{", "not JSON"),
        ({"ink": 1}, "expected a list of strokes"),
        ([[[0]]], "stroke 0, point 0 is [0]"),
        ([[[0, "1"]]], "stroke 0, point 0"),
        ([[[0, 1], [float("nan"), 1]]], "stroke 0, point 1"),
        ([[[0, 1e300]]], "stroke 0, point 0"),
        ([{"x": [1, 2], "y": [1]}], "equal length"),
        ([3], "stroke 0 is int"),
        ("[[[0, 1], [NaN, 2]]]", "stroke 0, point 1"),
    ],
)
def test_broken_strokes(value: object, message: str) -> None:
    with pytest.raises(InkError) as error:
        read_strokes(value, name="canvas")  # type: ignore[arg-type]
    assert message in str(error.value)


def test_ink_is_immutable_and_survives_pickling() -> None:
    ink = inkmaker.power()
    with pytest.raises(ValueError, match="read-only"):
        ink.strokes[0][0, 0] = 1
    with pytest.raises(TypeError):
        ink.annotations["a"] = "b"  # type: ignore[index]
    again = pickle.loads(pickle.dumps(ink))
    assert again == ink and hash(again) == hash(ink)
    assert not again.strokes[0].flags.writeable
    assert ink != inkmaker.power(seed=1)


def test_ink_checks_its_strokes() -> None:
    with pytest.raises(InkError, match="shape"):
        Ink((np.zeros((3, 3)),))
    with pytest.raises(InkError, match="names stroke 4"):
        Ink((np.zeros((1, 2)),), glyphs=(Glyph("x", (4,)),))
    assert Ink((np.array([[3.0, 4.0]]),)).bounds == (3, 4, 3, 4)


def test_boxes_of_the_strokes_of_several_inks() -> None:
    inks = [ink.strokes for ink in inkmaker.some(4)]
    inks += [(np.array([[3.0, 4.0]]),), (np.array([[-1.0, 9.0], [5.0, -2.0]]), np.zeros((1, 2)))]
    boxes = stroke_boxes(inks)
    assert len(boxes) == len(inks)
    for strokes, (low, high) in zip(inks, boxes, strict=True):
        assert low.tolist() == [stroke.min(0).tolist() for stroke in strokes]
        assert high.tolist() == [stroke.max(0).tolist() for stroke in strokes]


def test_the_typical_stroke_is_a_quantile_of_the_longer_sides() -> None:
    sides = [1.0, 7.0, 3.0, 9.0, 5.0]
    flat = [np.array([[0.0, 0.0], [side, 0.5]]) for side in sides]
    tall = [stroke[:, ::-1] for stroke in flat]
    assert typical_stroke(flat) == typical_stroke(tall) == 7.0
    assert typical_stroke([np.zeros((1, 2))]) == 0.0


def test_unknown_kind_and_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InkError, match=r"nothing\.inkml: cannot be read"):
        read_inkml(tmp_path / "nothing.inkml")


@pytest.mark.skipif(not SHARED.is_dir(), reason="shared data is not on this machine")
def test_mathwriting_excerpt_reads() -> None:
    files = sorted((SHARED / "mathwriting-excerpt").rglob("*.inkml"))
    inks = [read_inkml(file) for file in files]
    assert len(inks) == 11
    assert all(ink.label == ink.annotations["normalizedLabel"] for ink in inks)
    assert all(read_inkml(to_inkml(i).encode(), name=f"{i.id}.inkml") == i for i in inks)
