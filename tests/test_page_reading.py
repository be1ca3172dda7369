"""Pages of formulas: read together, put together, on the command line and over HTTP."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from inkmaker import place, row, to_strokes, write_folder
from serving import in_process, tiny
from test_lines import at, brace
from typer.testing import CliRunner

from gryphone.cli import recognition, study
from gryphone.data.samples import Sample
from gryphone.errors import ConfigError, InkError, LatexError, TokenError
from gryphone.ink import Ink
from gryphone.latex.validity import check
from gryphone.reading.inputs import Input
from gryphone.recognition import page as page_module
from gryphone.recognition.answer import Question
from gryphone.recognition.page import (
    MARGIN,
    MOST_IN_PARTS,
    best_cuts,
    is_text,
    kind_of,
    read_in_parts,
    segments,
)
from gryphone.recognition.page_result import Formula, PageResult, at_relation
from gryphone.recognition.paper import MOST_COLUMNS, Frame, Paper, put_together
from gryphone.recognition.recognizer import Recognizer, load
from gryphone.recognition.result import Result, Symbol
from gryphone.recognition.rows import ROW
from gryphone.studies.pages import count_page, pages_of, shares

LINES = ("x+1=2", "n-1", "2=1+x")


def page() -> Ink:
    """Three lines, far enough apart."""
    strokes = [s for k, text in enumerate(LINES) for s in at(text, 4.0 * k, 30.0 * k)]
    return Ink(tuple(strokes), id="page")


def said(latex: str, confidence: float = 0.9, *tokens: str) -> Result:
    return Result(latex, tokens or tuple(latex), confidence, (), (), 1, 0.0, 0)


def test_the_formulas_of_a_page_come_in_reading_order(recognizer: Recognizer) -> None:
    ink = page()
    found = recognizer.recognize_page(ink)
    assert [f.strokes for f in found.formulas] == [
        (*range(8),),
        (*range(8, 11),),
        (*range(11, 19),),
    ]
    alone = [recognizer.recognize([ink.strokes[i] for i in f.strokes]) for f in found.formulas]
    assert found.separate == tuple(one.latex for one in alone)
    for formula, one in zip(found.formulas, alone, strict=True):
        assert formula.result.confidence == pytest.approx(one.confidence)
        assert [s.box for s in formula.result.symbols] == [s.box for s in one.symbols]
        for mine, theirs in zip(formula.result.symbols, one.symbols, strict=True):
            assert mine.strokes == tuple(formula.strokes[i] for i in theirs.strokes)
        points = np.concatenate([ink.strokes[i] for i in formula.strokes])
        assert formula.box == pytest.approx((*points.min(0), *points.max(0)))
    check(found.latex)
    assert found.latex.count(r"\\") == 2


def test_a_page_of_one_formula_is_read_as_one(recognizer: Recognizer) -> None:
    ink = row("x+1=2")
    found, alone = recognizer.recognize_page(ink), recognizer.recognize(ink)
    assert found.latex == alone.latex and len(found.formulas) == 1
    assert found.formulas[0].result.to_dict()["symbols"] == alone.to_dict()["symbols"]


def test_what_is_crossed_out_is_reported_and_not_read(recognizer: Recognizer) -> None:
    zigzag = np.array([[x, 12 * (i % 2) - 1] for i, x in enumerate(np.linspace(-1, 10, 14))])
    found = recognizer.recognize_page([*page().strokes, zigzag])
    assert [(a.kind, a.strokes) for a in found.asides] == [("crossed out", (0, 1, 19))]
    assert found.formulas[0].strokes == (*range(2, 8),)
    assert "crossed out was left out" in found.notes


def test_a_margin_is_reported_and_joins_no_lines(recognizer: Recognizer) -> None:
    free = recognizer.recognize_page(page())
    found = recognizer.recognize_page([*page().strokes, np.array([[-8.0, -5.0], [-8.0, 85.0]])])
    assert [(a.kind, a.strokes) for a in found.asides] == [("margin line", (19,))]
    assert found.separate == free.separate and "margin line was left out" in found.notes


def test_options_of_one_formula_are_refused(recognizer: Recognizer) -> None:
    for options in ({"hint": "x?"}, {"deadline_ms": 50.0}, {"remask": [1]}):
        with pytest.raises(ConfigError, match=f"{next(iter(options))} is about one formula"):
            recognizer.recognize_page(page(), **options)


def test_a_locked_stroke_keeps_its_symbol_on_a_page(recognizer: Recognizer) -> None:
    free = recognizer.recognize_page(page())
    (symbol, *_) = [s for s in free.formulas[1].result.symbols if s.strokes]
    stroke, wanted = symbol.strokes[0], next(n for n in ("x", "2") if n != symbol.symbol)
    held = recognizer.recognize_page(page(), lock={stroke: wanted})
    (line,) = [f for f in held.formulas if stroke in f.strokes]
    assert line.result.symbols[symbol.position].symbol == wanted
    alone = recognizer.recognize(
        [page().strokes[i] for i in line.strokes], lock={symbol.position: wanted}
    )
    assert line.result.latex == alone.latex
    # Other lines are what they were.
    assert held.formulas[0].result.latex == free.formulas[0].result.latex
    for nowhere in (-1, 999):
        with pytest.raises(ConfigError, match=f"lock names stroke {nowhere}; the page has 19"):
            recognizer.recognize_page(page(), lock={nowhere: "x"})
    with pytest.raises(TokenError, match="'nonsense' is not among"):
        recognizer.recognize_page(page(), lock={stroke: "nonsense"})


def test_more_lines_than_a_page_has_are_refused(recognizer: Recognizer) -> None:
    many = [s for k in range(61) for s in at("x+1", 0, 30.0 * k)]
    with pytest.raises(InkError, match="61 lines; the limit is 60; give a part"):
        recognizer.recognize_page(many)


def test_where_geometry_doubts_the_surer_reading_decides() -> None:
    strokes = [*at("x+1=2", 0, 0), *at("n-1+n", 0, 17)]
    paper = Paper(Input(Ink(tuple(strokes))))
    [run] = paper.runs()
    keys = [tuple(s.tolist()) for s in segments(run)]
    assert [len(key) for key in keys] == [8, 14, 6]
    parts = dict(zip(keys, (said("a"), said("c", 0.1), said("b")), strict=True))
    assert [len(s) for s in best_cuts(paper, run, parts)] == [8, 6]
    whole = dict(zip(keys, (said("a", 0.3), said("c", 0.9), said("b", 0.3)), strict=True))
    assert [len(s) for s in best_cuts(paper, run, whole)] == [14]


def test_lines_that_are_sure_to_be_two_do_not_hide_another_cut() -> None:
    """A script above its line is a strip of its own, until it joins the line; then it is far below
    the line before it."""
    first, script = at("n-1", 0, 0), at("1", 40, 18, 5.0)
    lines = [*at("x+1", 0, 26), *at("n-1+n", 0, 42)]
    paper = Paper(Input(Ink((*first, *script, *lines))))
    run = [np.arange(3), np.arange(3, 9), np.arange(9, 15)]
    assert paper.odds(run[0], run[1]) == math.inf > paper.odds(run[1], run[2])
    read = {tuple(some.tolist()): said("c", 0.1) for some in segments(run)}
    read |= {tuple(some.tolist()): said("a", 0.9) for some in run}
    assert [len(some) for some in best_cuts(paper, run, read)] == [3, 6, 6]


def columns_of(*columns: tuple[str, ...]) -> Ink:
    """Rows of symbols in columns, 40 units (four symbols) of paper between them."""
    reach, strokes = 0.0, []
    for texts in columns:
        for k, text in enumerate(texts):
            strokes += at(text, reach, 30.0 * k)
        reach += 12.0 * max(map(len, texts)) + 40
    return Ink(tuple(strokes))


def test_columns_are_cut_where_paper_runs_from_top_to_bottom() -> None:
    def columns(ink: Ink) -> list[list[list[int]]]:
        return [[part.kept.tolist() for part in way] for way in Paper(Input(ink)).columns()]

    both = [[*range(11)], [*range(11, 25)]]
    assert columns(columns_of(("x+1=2", "n-1"), ("2=1+x", "n-1+n"))) == [both]
    assert columns(columns_of(("x+1=2", "n-1"))) == []
    assert columns(columns_of(("x+1=2",), ("n-1",))) == []  # one row
    assert columns(Ink((np.array([[0.0, 0.0], [9.0, 9.0]]),))) == []  # one stroke
    apart = [
        stroke + np.array([0.0, 60.0]) for stroke in columns_of(("x", "n"), ("2", "1")).strokes
    ]
    heading = at("x-1-n-x-1-n", 0.0, 0.0)
    [[head, *rest]] = columns(Ink((*heading, *apart)))
    assert head == [*range(len(heading))] and len(rest) == 2
    assert columns(Ink((*heading, *at("x", 0.0, 60.0), *at("2", 90.0, 60.0)))) == []
    three = columns(columns_of(("x", "n"), ("x", "1"), ("2", "1")))
    assert [len(way) for way in three] == [3, 2]  # everywhere, and where it is widest
    assert columns(columns_of(*[("x", "n")] * 6)) != [] and MOST_COLUMNS < 6  # the widest alone
    assert all(len(way) == 2 for way in columns(columns_of(*[("x", "n")] * 6)))


def test_a_page_in_two_columns_is_read_column_by_column() -> None:
    recognizer = load()
    examples = Path(__file__).parents[1] / "examples" / "ink"
    names = ("06-line", "14-euler", "05-root", "13-quadratic")
    alone = [recognizer.recognize(examples / f"{name}.inkml") for name in names]
    strokes: list[np.ndarray] = []
    for number, name in enumerate(names):
        own = recognizer.encode(examples / f"{name}.inkml").ink.strokes
        size = np.median([np.ptp(s, axis=0).max() for s in own]) / 10
        corner = np.concatenate(own).min(0)
        place = np.array([98.0 * (number > 1), 60.0 * (number % 2)])
        strokes += [(s - corner) / size + place for s in own]
    found = recognizer.recognize_page(strokes)
    assert found.separate == tuple(one.latex for one in alone)
    # Far apart, rows across are as sure, and keep their order, unless there is a line between.
    wide = [s + np.array([60.0 * (s[0, 0] > 90), 0.0]) for s in strokes]
    line = np.array([[115.0, -5.0], [115.5, 60.0], [115.0, 110.0]])
    across = tuple(alone[k].latex for k in (0, 2, 1, 3))
    assert recognizer.recognize_page(wide).separate == across
    divided = recognizer.recognize_page([*wide, line])
    assert divided.separate == found.separate and [a.kind for a in divided.asides] == [MARGIN]


def cuts_of(given: Input, *readings: Result) -> list[int]:
    """How many strokes each formula of two lines has: the upper one, both as one, the lower one."""
    paper = Paper(given)
    [run] = paper.runs()
    read = dict(zip((tuple(s.tolist()) for s in segments(run)), readings, strict=True))
    return [len(s) for s in best_cuts(paper, run, read)]


def with_symbols(latex: str, confidence: float) -> Result:
    own = tuple(Symbol(i, s, "", confidence, (), None) for i, s in enumerate(latex))
    return replace(said(latex, confidence), symbols=own)


def test_a_reading_that_passes_over_a_line_is_not_believed() -> None:
    ink = Ink((*at("x+1=2", 0, 0), *at("n-1+n", 0, 14)))
    apart = with_symbols("x+1=2", 0.7), with_symbols("n-1+n", 0.7)
    whole = with_symbols("x+1=2n-1+n", 0.8)
    assert cuts_of(Input(ink), apart[0], whole, apart[1]) == [14]
    whole = with_symbols("n-1+n", 0.8)
    assert cuts_of(Input(ink), apart[0], whole, apart[1]) == [8, 6]


def test_lines_of_a_picture_are_told_apart_without_time() -> None:
    ink = Ink((*at("x+1=2", 0, 0), *at("n-1+n", 0, 16)))
    doubtful = with_symbols("x+1=2", 0.4), with_symbols("x+1=2n-1+n", 0.3), with_symbols("n", 0.4)
    traced = Input(ink, tuple(s + 0.1 for s in ink.strokes))
    assert cuts_of(traced, *doubtful) == [8, 6]
    sure = doubtful[0], with_symbols("x+1=2n-1+n", 0.9), doubtful[2]
    assert cuts_of(traced, *sure) == [14]


def test_rows_are_aligned_at_their_first_relation_outside_of_braces() -> None:
    tokens = [r"\sum", "_", "{", "i", "=", "1", "}", "x", "=", "y", "=", "2"]
    assert at_relation(tokens) == r"\sum_{i=1}x &=y=2"
    assert at_relation(["=", "2"]) == "&=2"
    assert at_relation(["x", "+", "1"]) == "&x+1"
    assert at_relation([r"\leq", "x"]) == r"&\leq x"
    box = (0.0, 0.0, 1.0, 1.0)
    rows = [Formula(said(t), box, (0,)) for t in ("x=1", "=2", "y+z")]
    assert PageResult(tuple(rows)).latex == (r"\begin{aligned} x &=1 \\ &=2 \\ &y+z \end{aligned}")
    check(PageResult(tuple(rows)).latex)
    assert PageResult(()).latex == "" and PageResult((rows[0],)).latex == "x=1"


def test_words_and_numbers_beside_a_formula() -> None:
    formula, whole = said("x=1", 0.8), said("a)x=1", 0.6)
    assert is_text(said("or")) and is_text(said("wherc", 0.3))
    assert not is_text(said("xy", 0.3)) and not is_text(said("abcd", 0.9))
    assert not is_text(said("I_{moy}", 0.3)) and not is_text(said("o^{r}"))
    assert is_text(said("50", 0.3)) and not is_text(said("50", 0.9))  # so, or fifty
    assert kind_of(said("3)"), formula, whole, "left") == "number"
    assert kind_of(said("(12)"), formula, whole, "right") == "number"
    assert kind_of(said("(x)"), formula, whole, "right") == ""
    assert kind_of(said("21", 0.7), formula, said("21x=1", 0.3), "left") == "number"  # 2)
    assert kind_of(said("21", 0.7), formula, said("21x=1", 0.7), "left") == ""
    assert kind_of(said("where", 0.2), formula, whole, "left") == "text"
    assert kind_of(said("where", 0.2), said("x=1", 0.3), whole, "left") == ""  # no surer without
    assert kind_of(said("y=2", 0.8), formula, whole, "both") == "apart"  # two formulas on a line
    assert kind_of(said("y=2", 0.5), formula, whole, "both") == ""
    three = tuple(Symbol(i, "x", "", 1.0, (), None) for i in range(3))
    parts = [replace(said(text, 0.8), symbols=three) for text in ("y=2", "x=1")]
    sure = replace(said("x=1", 0.96), symbols=three)  # which has passed over the other one
    assert kind_of(*parts, sure, "both") == "apart"
    assert kind_of(*parts, replace(sure, symbols=three * 2), "both") == ""
    assert kind_of(said("3)"), said("=1", 0.8), whole, "left") == ""  # a sign joins them


def test_what_stands_apart_on_either_side_is_looked_at() -> None:
    strokes = [*at("n", 0, 0), *at("x+1=2x", 40, 0), *at("2", 130, 0)]
    paper = Paper(Input(Ink(tuple(strokes))))
    found = list(paper.beside(np.arange(len(strokes))))
    assert [(each.part.tolist(), each.side) for each in found] == [
        ([0], "left"),
        ([11], "right"),
        ([0], "both"),
    ]
    close = Paper(Input(row("x+1=2")))
    assert list(close.beside(np.arange(8))) == []


def test_cases_and_matrices_are_put_together() -> None:
    strokes = [*at("n=", -40, 12), brace(0, -2, 40), *at("x+1", 10, 0), *at("n-1", 10, 26)]
    paper = Paper(Input(Ink(tuple(strokes))))
    frame = paper.frame(np.arange(len(strokes)))
    assert frame is not None and frame.kind == "cases"
    assert [part.tolist() for part in frame.parts] == [[0, 1, 2], [4, 5, 6, 7, 8], [9, 10, 11]]
    put = frame.result([said("n=", 0.5), said("x+1"), said("n-1")])
    assert put.latex == r"n=\begin{cases}x+1\\n-1\end{cases}"
    assert put.confidence == pytest.approx(0.5 * 0.9 * 0.9)
    check(put.latex)
    cells = [[np.array([0]), np.array([1])], [np.array([], dtype=int), np.array([2])]]
    none = np.array([], dtype=int)
    matrix = Frame("bmatrix", none, cells, none).result([said("1"), said("2"), said("3")])
    assert matrix.latex == r"\begin{bmatrix}1&2\\&3\end{bmatrix}"


def test_symbols_of_a_whole_keep_their_places() -> None:
    first = Symbol(0, "x", "", 0.9, (), None, (3,), (0, 1))
    one, two = (replace(said(t), symbols=(first,)) for t in "xy")
    put = put_together([one, "&", two])
    assert [(s.position, s.span, s.strokes) for s in put.symbols] == [
        (0, (0, 1), (3,)),
        (1, (2, 3), (3,)),
    ]


def test_a_picture_s_second_tracing_is_shared_out() -> None:
    ink = page()
    moved = tuple(s + 0.5 for s in ink.strokes)
    paper = Paper(Input(ink, moved))
    assert not paper.timed
    part = paper.given.part(np.arange(8, 11))
    assert len(part.ink.strokes) == len(part.retraced) == 3
    assert np.array_equal(part.retraced[0], moved[8])


def test_the_command_reads_pages_and_folders(tmp_path: Path, tiny_weights: Path) -> None:
    app = typer.Typer(pretty_exceptions_enable=False)
    recognition.register(app)
    app.callback()(lambda: None)
    folder = write_folder(tmp_path / "pages", [page(), replace(page(), id="other")])
    common = ["recognize", "--page", "--weights", str(tiny_weights)]
    done = CliRunner().invoke(app, [*common, str(folder / "page.inkml")])
    assert done.exit_code == 0 and done.stdout.startswith(r"\begin{aligned}")
    assert done.stdout.count("\n") == 1
    done = CliRunner().invoke(app, [*common, str(folder), "--format", "json"])
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [Path(line["file"]).stem for line in lines] == ["other", "page"]
    assert all(len(line["formulas"]) == 3 for line in lines)
    (folder / "broken.json").write_text("[]")
    done = CliRunner().invoke(app, [*common, str(folder), "--out", str(tmp_path / "all.txt")])
    assert done.exit_code == 2 and "no strokes" in done.stderr
    assert len((tmp_path / "all.txt").read_text().splitlines()) == 2
    results = [formula.result for formula in load(tiny_weights).recognize_page(page()).formulas]
    for name in ("typst", "sympy"):
        written, refused = [], []
        for number, result in enumerate(results, 1):
            try:
                written.append(result.to(name))
            except LatexError as error:
                refused.append(f"line {number}: {error}")
        done = CliRunner().invoke(app, [*common, str(folder / "page.inkml"), "--format", name])
        assert done.stdout.splitlines() == written
        assert done.exit_code == (2 if refused else 0)
        assert all(line in done.stderr for line in refused)


def test_pages_over_http() -> None:
    ink = page()
    with in_process(tiny()) as client:
        answer = client.post("/v1/page", json={"strokes": to_strokes(ink)})
        assert answer.status_code == 200
        data = answer.json()
        assert data["latex"] == tiny_page(ink).latex and data["asides"] == []
        assert [f["strokes"] for f in data["formulas"]] == [
            list(f.strokes) for f in tiny_page(ink).formulas
        ]
        assert '{route="/v1/page",status="200"}' in client.get("/metrics").text
        body = {"strokes": to_strokes(ink), "options": {"format": "unicode"}}
        written = client.post("/v1/page", json=body).json()["formulas"]
        assert [f["formatted"] for f in written] == [
            f.result.to("unicode") for f in tiny_page(ink).formulas
        ]
        body = {"strokes": to_strokes(ink), "options": {"hint": "x"}}
        refused = client.post("/v1/page", json=body)
        assert refused.status_code == 422 and "hint is about one formula" in refused.text


def tiny_page(ink: Ink) -> PageResult:
    return tiny().recognize_page(ink)


def test_a_page_has_limits_over_http() -> None:
    with in_process(tiny(), page=100) as client:
        answer = client.post("/v1/page", json={"strokes": to_strokes(page())})
        assert answer.status_code == 400 and "the limit is 100" in answer.text
    # 27 kB that took half a minute: of dots a patch holds one, and each is a symbol.
    dots = [[[10 * (n % 50), 10 * (n // 50)]] for n in range(2000)]
    with in_process(tiny()) as client:
        answer = client.post("/v1/page", json={"strokes": dots})
        assert answer.status_code == 400 and "the limit of a page is 1000" in answer.text
        answer = client.post("/v1/page", json={"strokes": dots[:1000]})
        assert answer.status_code == 400 and "cover 4400 patches" in answer.text


def test_the_first_long_rows_of_a_page_are_read_in_parts() -> None:
    strips = np.split(np.arange(1000), np.cumsum([40, 400, 30, 60, 400]))
    assert {len(key) for key in read_in_parts(strips)} == {40, 400, 30}


def test_so_is_what_stands_beside_a_doubtful_line(
    recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = page_module.answer_together
    rows: list[int] = []  # strokes of what may be read in parts, of each batch

    def spy(questions: list[Question], *rest: float, **options: bool) -> list[Result]:
        sizes = [len(q.ink.strokes) for q in questions if q.parts]
        rows.append(sum(size for size in sizes if size > ROW))
        return read(questions, *rest, **options)

    monkeypatch.setattr(page_module, "answer_together", spy)
    # Lines of 110 strokes whose two halves lie apart, all of them doubtful.
    line = [x + (200 if x >= 660 else 0) for x in range(0, 1320, 12)]
    strokes = [np.array([[x, 80 * y], [x + 4, 80 * y + 8]]) for y in range(5) for x in line]
    recognizer.recognize_page(Ink(tuple(strokes)))
    # Its lines, what stands beside them, and both columns: each as much as a page may have.
    assert MOST_IN_PARTS < sum(rows) <= 4 * MOST_IN_PARTS


def test_the_study_counts_lines(tmp_path: Path, tiny_weights: Path) -> None:
    inks = [row("x+1=2", id="a"), place([("x", 0, 0, 10), ("2", 12, 0, 10)], "x2", id="b")]
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    study.register(app)
    write_folder(tmp_path / "set", inks)
    options = ["--set", "set", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["study", "pages", *options, "--weights", f"t={tiny_weights}"])
    assert done.exit_code == 0, done.exception
    data = json.loads((tmp_path / "out" / "pages.json").read_text())
    assert [(r["name"], r["pages"], r["lines"]) for r in data["rows"]] == [
        ("set, ink", 1, 2),
        ("set, photos", 1, 2),
    ]
    assert data["rows"][0]["found"] == 2


def test_a_line_is_found_where_a_formula_has_its_ink_and_no_other() -> None:
    ink = page()
    lines = [[ink.strokes[i] for i in part] for part in (range(8), range(8, 11), range(11, 19))]
    owned = shares(ink, lines)
    assert (owned > 0).sum(1).tolist() == [1] * 19
    box = (0.0, 0.0, 1.0, 1.0)
    some = [Formula(said("a"), box, (*range(8),)), Formula(said("b"), box, (*range(8, 19),))]
    assert count_page(some, ("a", "c", "b"), owned) == ([True, False, False], [True, False, True])


def test_pages_hold_every_ink_once() -> None:
    samples = [Sample(f"{i}", "made", "x+1", row("x+1", id=f"{i}")) for i in range(20)]
    made = list(pages_of(samples, 0))
    names = [name for one in made for name in one.names]
    assert len(set(names)) == len(names) >= 19
    assert all(2 <= len(one.lines) <= 8 for one in made)
