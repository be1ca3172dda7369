"""Label graphs: from LaTeX, from .lg files, and their differences."""

import re
import tarfile
from html import unescape
from pathlib import Path

import pytest

from gryphone.errors import DataError, GryphoneError, LatexError
from gryphone.scoring.graph import Graph, graph_errors, graph_of_latex, read_lg, score_graphs

DATA = Path(__file__).parents[2] / "shared" / "data"

LG = """# IUD, x
# Objects(5):
O, _1, -, 1.0, O
O, x_1, x, 1.0, OAbove
O, 2_1, 2, 1.0, OAboveSup
O, COMMA_1, COMMA, 1.0, OR
O, AUTO_1, -, 1.0, O
O, y_1, y, 1.0, OBelow

# Relations from SRT:
R, _1, x_1, Above, 1.0
R, _1, y_1, Below, 1.0
R, x_1, 2_1, Sup, 1.0
R, _1, COMMA_1, Right, 1.0
"""


def test_lg_equals_its_latex() -> None:
    assert read_lg(LG) == graph_of_latex(r"$\frac{x^2}{y},$")


def paths_of(graph: Graph) -> dict[str, str]:
    """Each symbol's label by its path of relations from the first symbol."""
    paths: list[str] = []
    for place in graph.places:
        above = paths[place.parent] + "/" if place.parent >= 0 else ""
        paths.append(f"{above}{place.relation}")
    return dict(zip(paths, (place.label for place in graph.places), strict=True))


@pytest.mark.parametrize(
    ("source", "paths"),
    [
        ("x_1^2+y", {"": "x", "/Sub": "1", "/Sup": "2", "/Right": "+", "/Right/Right": "y"}),
        (r"\sqrt[3]{x}y", {"": r"\sqrt", "/Above": "3", "/Inside": "x", "/Right": "y"}),
        (r"\sum\limits_{i}^{n}", {"": r"\sum", "/Below": "i", "/Above": "n"}),
        (r"{ab}^2", {"": "a", "/Right": "b", "/Right/Sup": "2"}),
        (r"\left(x\right.", {"": "(", "/Right": "x"}),
        (r"\hat{x}", {"": r"\hat", "/Below": "x"}),
        (r"\underset{a}{b}", {"": "b", "/Below": "a"}),
        (r"\mathbb{R}\mathrm{d}", {"": r"\mathbbR", "/Right": "d"}),
        (r"f'", {"": "f", "/Sup": r"\prime"}),
        ("", {}),
    ],
)
def test_paths(source: str, paths: dict[str, str]) -> None:
    assert paths_of(graph_of_latex(source)) == paths


def test_matrix_cells_are_told_apart() -> None:
    one = graph_of_latex(r"\begin{matrix}a&b\\c\end{matrix}x")
    other = graph_of_latex(r"\begin{matrix}a\\b&c\end{matrix}x")
    assert one != other
    assert paths_of(one)["/Right"] == "x"
    assert paths_of(graph_of_latex(r"\begin{matrix}&\\\end{matrix}"))["/Inside"] == "&"


@pytest.mark.parametrize(
    ("truth", "prediction", "errors"),
    [
        ("x+1", "x+1", 0),
        ("x^2_1", "x_1^2", 0),
        ("x+1", "x+2", 1),
        ("x^2", "x2", 1),
        ("x^2+1", "x2+1", 2),  # 2 hangs on x another way, + hangs on another symbol
        ("a+b+c", "a+b", 2),
        ("a+b", "ab", 1),
        ("ab", "a+b", 1),
        (r"\frac{a}{b}", r"\frac{b}{a}", 2),
        (r"\sqrt{x}y", r"\sqrt{xy}", 1),
        ("x", "", 1),
    ],
)
def test_errors(truth: str, prediction: str, errors: int) -> None:
    assert graph_errors(graph_of_latex(truth), graph_of_latex(prediction)) == errors


def test_limits_fold_into_scripts() -> None:
    above, beside = graph_of_latex(r"\sum\limits_i^n"), graph_of_latex(r"\sum_i^n")
    assert above != beside
    assert above.folded() == beside.folded()
    fraction = graph_of_latex(r"\frac{a}{b}")
    assert fraction.folded() == fraction


def test_scores_count_everything() -> None:
    truth = graph_of_latex("x+1")
    predictions = ["x+1", "x+2", None, "x^", "x+1"]
    scores = score_graphs((str(at), truth, latex) for at, latex in enumerate(predictions))
    assert (scores.count, scores.exact, scores.le1, scores.le2) == (5, 40.0, 60.0, 60.0)
    assert scores.unreadable == ("2", "3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("O, a, x, 1.0, O\nR, a, b, Right, 1.0", "names 'b'"),
        ("O, a, x\nO, b, y\nR, a, b, Near, 1.0", "line 3: unknown relation 'Near'"),
        ("O, a, x\nO, b, y\nR, a, b, Sup\nR, a, b, Sub", "line 4: 'b' has two parents"),
        ("O, a, x\nO, b, y\nR, a, b, Sup\nR, b, a, Sup", "circle"),
        ("hello", "line 1"),
    ],
)
def test_bad_lg(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_lg(text, "bad.lg")


def test_script_on_nothing() -> None:
    with pytest.raises(LatexError, match="no symbol in front"):
        graph_of_latex("^2")
    with pytest.raises(DataError, match="nothing to score"):
        score_graphs([])


def test_long_rows_do_not_recurse() -> None:
    graph = graph_of_latex("x" * 1500)
    assert len(graph.places) == 1500
    assert graph.folded() == graph


def _texts(name: str, suffix: str) -> dict[str, str]:
    texts = {}
    with tarfile.open(DATA / "crohme" / f"{name}.tar.xz") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(suffix) else None
            if file is not None:
                texts[Path(member.name).stem] = file.read().decode()
    return texts


@pytest.mark.skipif(not DATA.is_dir(), reason="needs the shared data beside the checkout")
@pytest.mark.parametrize(
    ("name", "count", "agree"),
    [("test-2014", 986, 957), ("valid-2013", 671, 654), ("valid-2023", 555, 543)],
)
def test_truths_agree_with_lg_files(name: str, count: int, agree: int) -> None:
    """The others are broken truths, or graphs with other symbols than the ink's own label."""
    inks = _texts(name, ".inkml")
    graphs = _texts(f"{name}-symlg", ".lg")
    same = 0
    for key, text in graphs.items():
        truth = re.search(r'type="truth">([^<]*)<', inks[key])
        try:
            graph = graph_of_latex(unescape(truth.group(1)) if truth else "")
            same += read_lg(text, key).folded() == graph.folded()
        except GryphoneError:
            continue
    assert (len(graphs), same) == (count, agree)


def test_graphs_do_not_tell_spellings_apart() -> None:
    matrix = r"\begin{matrix}a\\b\end{matrix}"
    fenced = matrix.replace("matrix", "bmatrix") + "^2"
    assert graph_of_latex(fenced) == graph_of_latex(f"[{matrix}]^2")
    arrow = paths_of(graph_of_latex(r"\xrightarrow[b]{a}c"))
    assert arrow == {"": r"\xrightarrow", "/Below": "b", "/Above": "a", "/Right": "c"}
