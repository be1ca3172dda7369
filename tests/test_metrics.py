"""Metrics: literal tables, intervals, and the published figures."""

import lzma
from pathlib import Path

import pytest

from gryphone.errors import ConfigError, DataError
from gryphone.scoring.metrics import (
    Sample,
    edit_distance,
    mcnemar,
    read_pair,
    read_samples,
    score,
    score_pair,
)

DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.mark.parametrize(
    ("truth", "prediction", "distance"),
    [
        ("a b", "a b", 0),
        ("a b", "a c", 1),
        ("a b", "a", 1),
        (r"\frac { a } { b }", "a / b", 5),
        ("", "a", 1),
    ],
)
def test_edit_distance(truth: str, prediction: str, distance: int) -> None:
    assert edit_distance(truth.split(), prediction.split()) == distance


def test_rates_as_given() -> None:
    samples = [
        Sample("right", "x ^ { 2 }", "x ^ { 2 }"),
        Sample("one", "x ^ { 2 }", "y ^ { 2 }"),
        Sample("broken", "x ^ { 2 }", "x ^ 2 }"),
        Sample("four", "x ^ { 2 }", "x"),
    ]
    scores = score(samples)
    assert (scores.count, scores.em, scores.le1, scores.le3) == (4, 25.0, 75.0, 75.0)
    assert scores.cer == pytest.approx(100 * 6 / 20)
    assert scores.ser == 25.0
    assert scores.problems == ()


def test_normalised_rates() -> None:
    samples = [Sample("a", "x _ { 1 } ^ { 2 }", "x^2_1"), Sample("b", r"a \leq b", r"a \le b")]
    assert score(samples).em == 0
    assert score(samples, "crohme").em == 100


def test_missing_and_unreadable_predictions_are_wrong_and_listed() -> None:
    samples = [
        Sample("missing", "x y", None),
        Sample("unreadable", "x", "\x00"),
        Sample("right", "x", "x"),
    ]
    scores = score(samples)
    assert scores.em == scores.le3 == pytest.approx(100 / 3)
    assert scores.cer == pytest.approx(100 * 3 / 4)
    assert scores.ser == pytest.approx(200 / 3)
    assert [(p.id, p.reason) for p in scores.problems] == [
        ("missing", "no prediction"),
        ("unreadable", "unreadable prediction"),
    ]


def test_what_cannot_be_normalised_is_compared_as_it_stands() -> None:
    samples = [
        Sample("prediction", "x ^ { 2 }", "x ^ { 2"),
        Sample("truth", r"\frac { x }", r"\frac { x }"),
    ]
    scores = score(samples, "crohme")
    assert (scores.em, scores.le1, scores.ser) == (50.0, 100.0, 50.0)
    assert "prediction not normalised: unmatched {" in scores.problems[0].reason
    assert "truth not normalised" in scores.problems[1].reason


def test_files_without_spaces_are_lexed() -> None:
    scores = score([Sample("a", r"\frac{a}{b}", r"\frac{a}{c}")])
    assert scores.le1 == 100
    assert scores.cer == pytest.approx(100 / 7)


def test_intervals_hold_the_rate_and_repeat() -> None:
    samples = [Sample(str(n), "x", "x" if n % 4 else "y") for n in range(200)]
    scores = score(samples, draws=200, seed=3)
    low, high = scores.intervals["em"]
    assert 66 < low < scores.em < high < 84
    assert scores == score(samples, draws=200, seed=3)
    assert scores.intervals != score(samples, draws=200, seed=4).intervals
    assert score(samples, draws=0).intervals == {}


def test_read_samples(tmp_path: Path) -> None:
    text = "a\tx\ty\n\nb\tx\t\nc\tx\r\n"
    expected = [Sample("a", "x", "y"), Sample("b", "x", None), Sample("c", "x", None)]
    plain, packed = tmp_path / "s.tsv", tmp_path / "s.tsv.xz"
    plain.write_text(text)
    packed.write_bytes(lzma.compress(text.encode()))
    assert read_samples(plain) == read_samples(packed) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\n", "line 1: 1 columns"),
        (b"a\tx\ty\nb\t1\t2\t3\n", "line 2: 4 columns"),
        (b"id\tgt\tanswer\na\tx\ty\n", "line 1: is 'id' the head of a column"),
        (b"a\tx\ty\na\tx\ty\n", "line 2: id 'a' was on line 1"),
        (b"\n", "holds no samples"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.tsv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_samples(path)


def test_absent_and_truncated_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_samples(tmp_path / "none.tsv")
    cut = tmp_path / "cut.tsv.xz"
    cut.write_bytes(lzma.compress(b"a\tx\ty\n")[:20])
    with pytest.raises(DataError, match="cannot be read"):
        read_samples(cut)
    with pytest.raises(ConfigError, match="'im2latex' is unknown"):
        score([Sample("a", "x", "x")], "im2latex")


PUBLISHED = {
    "mathwriting-test.tsv.xz": {"em": 51.4129, "le1": 67.5170, "le2": 76.7661, "le3": 83.9744},
    "crohme-2014.tsv": {"em": 82.6572, "le1": 90.3651},
}


@pytest.mark.skipif(not DATA.is_dir(), reason="needs the shared data beside the checkout")
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_figures(name: str) -> None:
    scores = score(read_samples(DATA / "metrics" / name), draws=0)
    assert {key: round(getattr(scores, key), 4) for key in PUBLISHED[name]} == PUBLISHED[name]


def test_a_compact_prediction_is_read_token_by_token() -> None:
    samples = [Sample("a", "x ^ { 2 }", "x^{2}"), Sample("b", "y", "y")]
    assert score(samples, draws=2).to_dict()["em"] == 100.0


@pytest.mark.parametrize(
    ("header", "count"),
    [
        ("ID\tTruth\tPrediction", 1),
        ("id\ttruth", 1),
        ("name\tlabel\tanswer", 1),
        ("file\tgt\tpred", 1),
        ("name\tx\ty", 2),
    ],
)
def test_a_header_is_no_sample(tmp_path: Path, header: str, count: int) -> None:
    path = tmp_path / "named.tsv"
    path.write_text(f"{header}\n1\tx\tx\n")
    found = read_samples(path)
    assert (len(found), found[-1]) == (count, Sample("1", "x", "x"))


def test_two_systems_are_compared_sample_by_sample(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("1\tx\tx\n2\ty\ty\n3\tz\tx\n4\tx^2\t\n5\ta\ta\n")
    (tmp_path / "b.tsv").write_text("5\ta\ta\n2\ty\tx\n3\tz\tz\n1\tx\tx\n4\tx^2\tx^{2}\n")
    a, b = read_pair(tmp_path / "a.tsv", tmp_path / "b.tsv")
    assert [s.id for s in b] == ["1", "2", "3", "4", "5"]
    found = score_pair(a, b, "crohme")
    assert (found.both, found.only_a, found.only_b) == (2, 1, 2)
    rates = (found.a["em"], found.b["em"], found.difference["em"])
    assert rates == pytest.approx((60, 80, 20))
    low, high = found.intervals["em"]
    assert low < 0 < 20 < high
    with pytest.raises(DataError, match="the same ids and truths"):
        score_pair(a, b[1:])


def test_equal_systems_differ_by_nothing() -> None:
    samples = [Sample(str(n), "x", "x" if n % 4 else "y") for n in range(50)]
    found = score_pair(samples, samples, draws=50)
    assert set(found.difference.values()) == {0} and found.p == 1
    assert set(found.intervals.values()) == {(0, 0)}  # the same draws for both


@pytest.mark.parametrize(
    ("only_a", "only_b", "p"), [(0, 0, 1), (3, 3, 1), (5, 12, 0.143463), (0, 10, 2 / 2**10)]
)
def test_mcnemar(only_a: int, only_b: int, p: float) -> None:
    assert mcnemar(only_a, only_b) == mcnemar(only_b, only_a) == pytest.approx(p, rel=1e-5)


@pytest.mark.parametrize(
    ("text", "common", "message"),
    [
        ("1\tx\tx\n", False, r"b\.tsv: lacks 1 ids of the other file, the first is '2'; --common"),
        ("1\tx\tx\n2\ty\ty\n3\tz\tz\n", False, r"a\.tsv: lacks 1 ids .* first is '3'"),
        ("1\ty\tx\n", True, "the truth of '1' is 'x' in .*'y' in"),
        ("9\tx\tx\n", True, "no id in common"),
    ],
)
def test_what_cannot_be_compared(tmp_path: Path, text: str, common: bool, message: str) -> None:
    (tmp_path / "a.tsv").write_text("1\tx\tx\n2\ty\ty\n")
    (tmp_path / "b.tsv").write_text(text)
    with pytest.raises(DataError, match=message):
        read_pair(tmp_path / "a.tsv", tmp_path / "b.tsv", common)


def test_the_shared_ids_can_be_compared(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("1\tx\tx\n2\ty\ty\n")
    (tmp_path / "b.tsv").write_text("2\ty\tx\n3\tz\tz\n")
    a, b = read_pair(tmp_path / "a.tsv", tmp_path / "b.tsv", common=True)
    assert ([s.id for s in a], [s.id for s in b]) == (["2"], ["2"])
