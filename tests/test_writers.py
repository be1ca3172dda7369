"""Writers: each notation as a table of what is written, and by readers that are not ours."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import sympy
import typst
from inkmaker import power, row
from serving import in_process, strokes, tiny
from typer.testing import CliRunner

from gryphone.checkpoint import WEIGHTS, read_checkpoint
from gryphone.cli import make_app
from gryphone.errors import ConfigError, LatexError
from gryphone.latex.mathml import to_mathml
from gryphone.latex.normalize import normalize
from gryphone.latex.tree import ACCENTS, FONTS, TWO_ARGUMENTS
from gryphone.recognition.recognizer import Recognizer
from gryphone.recognition.result import Result
from gryphone.writers import TARGETS, write
from gryphone.writers.omml import SPACE, write_docx
from gryphone.writers.sympy import evaluated, to_sympy
from gryphone.writers.typst import NAMES
from gryphone.writers.walk import Inexpressible, read

GAUSS = r"\int _ { 0 } ^ { \infty } e ^ { - x ^ { 2 } } d x = \frac { \sqrt { \pi } } { 2 }"
MATRIX = r"( \begin{matrix} a & b \\ c & d \end{matrix} ) ^ { 2 }"
CASES = r"f = \{ \begin{matrix} 1 & x > 0 \\ 0 & x < 0 \end{matrix}"
TALL = r"( \frac { a } { b } + c ) ^ { 2 } [ 0 , 1 )"
SUM = r"\sum _ { i = 1 } ^ { n } i"
ODD = r"f ^ { \prime } ( x ) \not \subset \mathbb { R } \sqrt [ 3 ] { 1 2 . 5 } \vec { a } \mod b"
LIMIT = r"\lim _ { x \rightarrow 0 } | x | \leq \binom { n } { k } ! / 2"
FORMULAS = (GAUSS, MATRIX, CASES, TALL, SUM, ODD, LIMIT)

WRITTEN = {
    "readable": (
        r"\int_0^\infty e^{-x^2}\,dx = \frac{\sqrt{\pi}}{2}",
        r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}^2",
        r"f = \begin{cases} 1 & x > 0 \\ 0 & x < 0 \end{cases}",
        r"\left(\frac{a}{b} + c\right)^2[0, 1)",
        r"\sum_{i=1}^n i",
        r"f'(x)\not\subset\mathbb{R}\sqrt[3]{12.5}\vec{a} \bmod b",
        r"\lim_{x\to 0}|x| \leq \binom{n}{k}!/2",
    ),
    "typst": (
        "integral_0^infinity e^(- x^2) d x = frac(sqrt(pi), 2)",
        'mat(delim: "(", a, b; c, d)^2',
        "f = cases(1 & quad x > 0, 0 & quad x < 0)",
        "(frac(a, b) + c)^2 [0 , 1)",
        "sum_(i = 1)^n i",
        "f' (x) ⊄ bb(R) root(3, 12.5) arrow(a) mod b",
        r"lim_(x arrow.r 0) lr(| x |) lt.eq binom(n, k) ! \/ 2",
    ),
    "asciimath": (
        "int_0^oo e^(- x^2) d x = (sqrt(pi))/2",
        "((a,b),(c,d))^2",
        "f = {(1,x > 0),(0,x < 0):}",
        "( a/b + c )^2 [ 0 , 1 )",
        "sum_(i = 1)^n i",
        "f' ( x ) ⊄ bbb(R) root(3)(12.5) vec(a) mod b",
        "lim_(x -> 0) |: x :| <= ((n),(k)) ! // 2",
    ),
    "unicode": (
        "∫₀^∞e^(−x²)dx = (√π)/2",
        "(■(a&b@c&d))²",
        "f = ├{■(1&x > 0@0&x < 0)┤",
        "(a/b +c)²[0,1)",
        "∑_(i = 1)ⁿi",
        "f′(x)⊄ℝ√(3&12.5)a⃗ mod b",
        r"lim_(x → 0) |x| ≤ (n¦k)!\/2",
    ),
    "speech": (
        "the integral from 0 to infinity of e to the minus x squared end power d x equals the "
        "fraction the square root of pi over 2 end fraction",
        "the two by two matrix row 1 a, b; row 2 c, d; end matrix squared",
        "f equals cases row 1 1, x is greater than 0; row 2 0, x is less than 0; end matrix",
        "open paren a over b plus c close paren squared open bracket 0 comma 1 close paren",
        "the sum from i equals 1 to n of i",
        "f prime open paren x close paren not a subset of blackboard capital R the cube root of "
        "12.5 a vector modulo b",
        "the limit over x goes to 0 of the absolute value of x end absolute value is at most "
        "n choose k factorial over 2",
    ),
}


@pytest.mark.parametrize("target", WRITTEN)
def test_what_is_written(target: str) -> None:
    assert tuple(write(latex, target) for latex in FORMULAS) == WRITTEN[target]


def test_a_bracket_without_partner_opens_nothing() -> None:
    assert write("x ] ( y", "asciimath") == 'x "]" "(" y'
    assert write("x ] ( y", "typst") == r"x \] \( y"
    assert write(r"x \text{}", "speech") == "x"
    assert write(r"\left< x \right> \prime", "readable") == r"\langle x\rangle\prime"
    assert write(r"\surd x", "typst") == r"\√ x"  # else the root of x


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (r"\frac{a}{\frac{b}{c}}", r"\frac{\frac{a}{b}}{c}"),
        (r"\frac{a}{b/c}", r"\frac{a/b}{c}"),
        (r"a/\frac{b}{c}", r"\frac{a}{b}/c"),
        (r"\frac{a}{b}^2", "a/b^2"),
        (r"\mathbf{ab}c", r"\mathbf{a}bc"),
        (r"a\underline{b}", r"\underline{ab}"),
        (r"\overset{?}{ab}", r"a\overset{?}{b}"),
        (r"\binom{\binom{a}{b}}{c}", r"\binom{a}{\binom{b}{c}}"),
        (r"a+\binom{n+1}{k}", r"\binom{a+n+1}{k}"),
    ],
)
def test_speech_says_where_a_structure_ends(one: str, two: str) -> None:
    assert write(one, "speech") != write(two, "speech")


def test_speech_of_parts_inside_others() -> None:
    said = {latex: write(latex, "speech") for latex in (r"\frac{a/b}{c}", r"\underline{ab}")}
    assert said == {
        r"\frac{a/b}{c}": "the fraction a divided by b over c end fraction",
        r"\underline{ab}": "group a b end group underlined",
    }
    assert write(r"\frac{\frac{a}{b}}{c}", "speech") == (
        "the fraction the fraction a over b end fraction over c end fraction"
    )


def test_a_text_keeps_the_spaces_at_its_ends() -> None:
    both = r"x\text{ and }y"
    assert write(both, "readable") == both and write(both, "unicode") == 'x" and "y'
    assert '<m:t xml:space="preserve"> and </m:t>' in write(both, "omml")
    assert write(both, "typst") == write(both, "asciimath") == 'x " and " y'
    assert write(both, "speech") == "x and y"
    assert write(r"\text{if } x \text{ then}", "readable") == r"\text{if }x\text{ then}"
    assert write(r"n\text{th}y", "readable") == r"n\text{th}y"
    assert write(r"\text{\ a  $x$}", "readable") == r"\text{ a x}"
    assert normalize(both) == normalize(r"x\text{and}y")  # a label's tokens are what they were


ALIGNED = r"\begin{aligned} a & = b \\ c & = d \end{aligned}"


def test_lines_below_each_other_are_no_matrix() -> None:
    assert write(ALIGNED.replace("& =", "&="), "readable") == ALIGNED
    assert write(ALIGNED, "speech") == "line 1 a equals b; line 2 c equals d; end lines"
    assert write(ALIGNED, "unicode") == "█(a&= b@c&= d)"
    gathered = ALIGNED.replace("aligned", "gathered")
    assert write(rf"\left\{{{gathered}\right.", "readable") == rf"\left\{{{gathered}\right."
    with pytest.raises(Inexpressible, match=r"lines below each other .*\(at character 0\)"):
        to_sympy(r"\begin{gathered} a \\ b \end{gathered}")
    assert write(r"a \\ b", "unicode") == "█(a@b)"


RULED = r"\begin{array}{c|c} a & b \end{array}"


def test_a_line_between_columns_is_kept_or_named() -> None:
    assert write(RULED, "readable") == RULED
    assert write(rf"({RULED})", "readable") == rf"\left({RULED}\right)"
    for target in ("typst", "asciimath", "unicode", "omml", "speech", "sympy"):
        with pytest.raises(LatexError, match=r"a line between columns .*\(at character 1\)"):
            write(rf"({RULED})", target)


@pytest.mark.parametrize(
    ("latex", "cells"),
    [
        (r"\begin{aligned} x &\leq1 \\ y &=0 \end{aligned}", ["x", "≤1", "y", "=0"]),
        (r"\begin{gathered} x \\ y \end{gathered}", ["x", "y"]),
        (r"\begin{dcases} x & y \\ z & 0 \end{dcases}", ["x", "y", "z", "0"]),
        (r"\begin{subarray}{l} x \\\P \end{subarray}", ["x", "¶"]),
    ],
)
def test_environments_that_the_library_does_not_know(latex: str, cells: list[str]) -> None:
    root = ElementTree.fromstring(write(latex, "mathml"))
    found = root.findall(".//{*}mtable/{*}mtr/{*}mtd")
    assert ["".join(cell.itertext()) for cell in found] == cells


def sample(symbol: str) -> str | None:
    """A formula with the symbol in it; None for what is no symbol of a formula."""
    if symbol in TWO_ARGUMENTS:
        return rf"{symbol}{{a}}{{b}}"
    if symbol in ACCENTS | FONTS | {r"\sqrt"}:
        return rf"{symbol}{{A}}"
    if symbol.startswith(r"\begin{") or symbol in ("&", r"\\"):
        columns = "{cc}" if "array" in symbol else ""
        name = "array" if columns else "matrix"
        return rf"\begin{{{name}}}{columns}a & b \\ c & d\end{{{name}}}"
    if symbol.startswith((r"\end{", "<pad", "<mask", "<empty")):
        return None
    return r"a \not = b" if symbol == r"\not" else rf"a {symbol} b"


@pytest.fixture(scope="module")
def vocabulary() -> list[str]:
    names = read_checkpoint(WEIGHTS).tokenizer.vocabularies[0].names
    found = [made for name in names if (made := sample(name)) is not None]
    assert len(found) > 300
    return found


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "sympy"])
def test_every_symbol_of_the_release_is_written(target: str, vocabulary: list[str]) -> None:
    texts = {latex: write(latex, target) for latex in vocabulary}
    assert all(texts.values())
    if target not in ("latex", "readable"):  # a command that nobody translated
        commands = {latex: re.findall(r"\\[A-Za-z]{2,}", text) for latex, text in texts.items()}
        assert not {latex: found for latex, found in commands.items() if found}


# What SymPy has no meaning for, by what it is: a letter, number, function or operator has one.
def test_symbols_without_a_meaning_for_sympy_are_named_with_their_place(
    vocabulary: list[str],
) -> None:
    named = {}
    for latex in vocabulary:
        try:
            to_sympy(latex)
        except Inexpressible as error:
            assert str(error).startswith("SymPy: ") and error.position is not None
            named[latex] = error
    assert 150 < len(named) < 240
    for latex in (r"a \pm b", r"a \ldots b", r"a \wedge b", r"a : b", r"a \mod b"):
        assert named[latex].position == 2
    assert not named.keys() & {r"a \alpha b", r"a \leq b", r"a \infty b", r"\frac{a}{b}", "a / b"}


def test_typst_compiles_all_of_it(vocabulary: list[str]) -> None:
    texts = [write(latex, "typst") for latex in (*FORMULAS, *vocabulary)]
    # Each in math of its own; a comma, semicolon or bracket must not end a call early.
    texts += [write(rf"\frac{{ {latex} , [ }}{{ ) ; : {latex} }}", "typst") for latex in vocabulary]
    assert typst.compile("\n".join(f"$ {text} $" for text in texts).encode(), format="pdf")
    with pytest.raises(Exception, match="unknown variable"):
        typst.compile(b"$ nosuchname $", format="pdf")


def test_typst_names_are_the_signs_they_stand_for() -> None:
    lines = [f'#assert.eq(str(sym.{name}), "{sign}")' for sign, name in NAMES.items()]
    assert typst.compile("\n".join(lines).encode(), format="pdf")


@pytest.mark.parametrize(
    "latex", [*FORMULAS, r"\left. \frac{a}{b} \right|_{x=0}", r"\mathrm{Tr}A", r"a\text{ b}c"]
)
def test_readable_latex_is_the_same_formula(latex: str) -> None:
    assert read(write(latex, "readable")) == read(latex)


def test_office_math_has_words_places_for_sums_and_limits() -> None:
    def find(latex: str, path: str) -> list[str]:
        tree = ElementTree.fromstring(write(latex, "omml"))
        found = tree.findall(path, {"m": SPACE})
        return ["".join(element.itertext()) for element in found]

    assert find(SUM, "m:nary/m:sub") == ["i=1"] and find(SUM, "m:nary/m:e") == ["i"]
    assert find(GAUSS, "m:nary/m:e") == ["e−x2dx"]  # up to the equals sign
    assert find(GAUSS, "m:f/m:den") == ["2"]
    assert find(LIMIT, "m:limLow/m:lim") == ["x→0"]
    assert find(MATRIX, ".//m:mr") == ["ab", "cd"]
    assert find(r"\log_2 x", "m:sSub/m:sub") == ["2"]
    assert find(r"\text{a < b}", "m:r/m:t") == ["a < b"]


def test_a_word_document_opens_and_holds_the_formulas(tmp_path: Path) -> None:
    from docx import Document

    write_docx(FORMULAS, tmp_path / "notes.docx")
    paragraphs = Document(str(tmp_path / "notes.docx")).paragraphs
    maths = [p._p.findall(f"{{{SPACE}}}oMathPara/{{{SPACE}}}oMath") for p in paragraphs]
    assert [len(found) for found in maths] == [1] * len(FORMULAS)
    assert "".join(maths[4][0].itertext()) == "i=1ni"


x, n, i = sympy.symbols("x n i")
MEANT = {
    r"1 / 2 + \frac{1}{3}": sympy.Rational(5, 6),
    r"- x ^ { 2 } ( x + 1 )": -(x**2) * (x + 1),
    r"\sin ^ 2 x + \cos 2 x": sympy.sin(x) ** 2 + sympy.cos(2 * x),
    r"\sin x \cos x": sympy.sin(x) * sympy.cos(x),
    r"\sin ^ { - 1 } x": sympy.asin(x),
    r"\log _ 2 8": sympy.Integer(3),
    r"| x - 1 |": sympy.Abs(x - 1),
    r"3 !": sympy.Integer(6),
    r"5 ! !": sympy.Integer(15),
    r"90 ^ \circ": sympy.pi / 2,
    r"\sqrt [ 3 ] { x }": sympy.cbrt(x),
    SUM: sympy.Sum(i, (i, 1, n)),
    GAUSS.partition("=")[0]: sympy.Integral(sympy.exp(-(x**2)), (x, 0, sympy.oo)),
    r"\int \frac { d x } { x }": sympy.Integral(1 / x, x),
    r"\lim _ { x \to 0 ^ + } x": sympy.Limit(x, x, 0, "+"),
    r"\lim _ { x \to 0 } x": sympy.Limit(x, x, 0, "+-"),
    r"\frac { d } { d x } x ^ 2": sympy.Derivative(x**2, x),
    r"[ 0 , 1 )": sympy.Interval.Ropen(0, 1),
    r"x \in \mathbb{R}": sympy.Contains(x, sympy.S.Reals, evaluate=False),
    r"\begin{matrix} 1 & 2 \\ 3 & 4 \end{matrix}": sympy.Matrix([[1, 2], [3, 4]]),
    r"| \begin{matrix} 1 & 2 \\ 3 & 4 \end{matrix} |": sympy.Determinant(
        sympy.Matrix([[1, 2], [3, 4]])
    ),
    r"f ( x ) + x ( n + 1 )": sympy.Function("f")(x) + x * (n + 1),
    r"x f ^ { - 1 }": x / sympy.Symbol("f"),  # a letter, where no brackets follow
    r"x _ { 1 2 }": sympy.Symbol("x_12"),
    r"\hat { x }": sympy.Symbol("xhat"),
}


@pytest.mark.parametrize("latex", MEANT)
def test_what_sympy_reads(latex: str) -> None:
    assert evaluated(to_sympy(latex)) == MEANT[latex]


def test_nothing_is_corrected_for_sympy() -> None:
    assert str(to_sympy("2 + 2 = 5")) == write("2 + 2 = 5", "sympy") == "Eq(2 + 2, 5)"
    assert str(evaluated(to_sympy("2 + 2 = 5"))) == "Eq(4, 5)"
    assert write(r"\int _ 0 ^ 1 x ^ 2 d x", "sympy") == "Integral(x**2, (x, 0, 1))"
    assert str(to_sympy("1 < x < 2")) == "(1 < x) & (x < 2)"
    assert write(r"x = 1 \neq x", "sympy") == "Eq(x, 1) & Ne(1, x)"  # not that it is false
    y = sympy.Function("y")(x)
    assert to_sympy(r"\frac{dy}{dx} = y").rhs == y  # every y is the function that dy is of
    assert evaluated(to_sympy(r"e ^ { i \pi }", "ei")) == -1 and to_sympy("e", "") == sympy.Symbol(
        "e"
    )


MATRIX = r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}"


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        ("2 ^ { 100 } + 20 !", "2**100 + factorial(20)"),
        ("( x + 2 ) ^ { 99999999 }", "(x + 2)**99999999"),
        ("[ 9 ^ { 9999 } , 9 ^ { 9999 } + 1 ]", "Interval(9**9999, 1 + 9**9999)"),
        (f"2 {MATRIX} ^ {{ 99999999 }}", "2*(Matrix([\n[a, b],\n[c, d]])**99999999)"),
        (MATRIX * 60, "*".join(["Matrix([\n[a, b],\n[c, d]])"] * 60)),
        (rf"\det {MATRIX}", "Determinant(Matrix([\n[a, b],\n[c, d]]))"),
    ],
)
def test_what_would_take_for_ever_stays_as_it_is_written(latex: str, text: str) -> None:
    assert write(latex, "sympy") == text


@pytest.mark.parametrize(
    "latex",
    [
        "9 ^ { 9 ^ { 9 ^ 9 } }",
        "1 + 1.5 ^ { 999999999 }",
        "( 99999 ! ) !",
        r"\binom { 999999999 } { 99999999 }",
        r"\exp ( 9 ^ { 99 } )",
    ],
)
def test_numbers_that_nothing_holds_are_refused(latex: str) -> None:
    with pytest.raises(Inexpressible, match=r"more than 10000 digits; put a letter .*\(at char"):
        to_sympy(latex)


@pytest.mark.parametrize(
    ("latex", "complaint"),
    [
        ("a / b c", r"what a / divides by is not clear; .* \(at character 6\)"),
        (r"x + \ldots", r"\\ldots has no meaning here \(at character 4\)"),
        ("x = 1 , y", r", has no meaning here \(at character 6\)"),
        (r"\int x", r"lacks its d .* \(at character 0\)"),
        (r"\sum _ i i", r"\\sum needs a letter with its first value below.* \(at character 0\)"),
        ("x _ { n + 1 }", r"a subscript must be letters and digits \(at character 8\)"),
        (r"\frac{dy}{dt} = \frac{dy}{dx}", r"y would be a function of two letters"),
        ("1 + ( 2 , 3 )", r"its parts do not go together \(at character 4\)"),
        ("x =", "a term is missing"),
        ("x ! ! !", "more than two ! have no clear meaning"),
        (r"\gcd ( a , b )", r"\\gcd needs whole numbers"),
        (r"1 + f ^ { - 1 } ( x )", r"f\^\{-1\} may be its inverse; .* \(at character 4\)"),
        ("( 1 + " * 99 + "x" + " ) ^ 2" * 99, "nested too deeply"),
    ],
)
def test_what_sympy_cannot_mean_is_said_with_its_place(latex: str, complaint: str) -> None:
    with pytest.raises(Inexpressible, match=f"^SymPy: .*{complaint}"):
        to_sympy(latex)


@pytest.mark.parametrize("target", [name for name in TARGETS if name not in ("latex", "readable")])
def test_an_unknown_command_is_named(target: str) -> None:
    with pytest.raises(LatexError, match=r"\\nonsense"):
        write(r"x + \nonsense", target)


def test_one_list_for_python_command_line_and_http(tmp_path: Path) -> None:
    result = Result(r"\alpha / 2", (), 1.0, (), (), 1, 0.0, 0)
    assert result.to("typst") == r"alpha \/ 2" and result.to("latex") == result.latex
    assert result.to("mathml") == to_mathml(result.latex)
    assert evaluated(result.sympy()) == sympy.Symbol("alpha") / 2
    with pytest.raises(ConfigError, match="format 'word' is unknown; use one of latex, readable"):
        result.to("word")
    run = CliRunner().invoke
    shown = run(make_app(), ["convert", "--to", "unicode"], input="\\alpha^2\n\\frac{a}\n")
    assert shown.stdout == "α²\n\n" and "line 2" in shown.stderr and shown.exit_code != 0
    made = tmp_path / "x.docx"
    assert run(make_app(), ["convert", "--docx", str(made)], input="a^2\n").exit_code == 0
    wrong = run(make_app(), ["convert", "--docx", str(made)], input="a^2\n\n\\foo\n")
    assert "line 3: Office Math cannot say" in str(wrong.exception or wrong.output)
    assert made.read_bytes()[:2] == b"PK"
    helped = run(make_app(), ["recognize", "--help"], env={"COLUMNS": "200"}).stdout
    assert all(name in helped for name in TARGETS)


def test_http_writes_what_is_asked_for() -> None:
    with in_process(tiny()) as client:
        asked = strokes(row("x+1"), hint="x ^ 2", format="typst", steps=1)
        answer = client.post("/v1/recognize", json=asked).json()
        assert answer["formatted"] == "x^2"
        assert "formatted" not in client.post("/v1/recognize", json=strokes(row("x"))).json()
        wrong = client.post("/v1/recognize", json=strokes(row("x"), format="sympy"))
        assert wrong.status_code == 422 and "one of latex, readable" in wrong.text
        offered = client.get("/v1/model").json()["targets"]
        assert list(offered) == [name for name in TARGETS if name != "sympy"]


def test_a_notebook_shows_the_formula_and_its_doubts(recognizer: Recognizer) -> None:
    found = recognizer.recognize(power(), hint="x ^ 2")
    assert found._repr_latex_() == "$x^2$"
    root = ElementTree.fromstring(found._repr_html_().replace("&nbsp;", " "))
    boxes = root.findall(".//rect")
    assert len(boxes) == sum(symbol.box is not None for symbol in found.symbols) > 0
    assert len(root.findall(".//polyline")) == len(power().strokes) > 0
    assert root.find(".//{http://www.w3.org/1998/Math/MathML}msup") is not None
    # Names may hold anything; what is shown is text.
    bad = Result(r"\text{<b>}", (), 0.5, (), (), 1, 0.0, 0, warnings=("<script>",))
    assert "<b>" not in bad._repr_html_() and "<script>" not in bad._repr_html_()
