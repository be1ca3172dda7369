import subprocess
import sys
from pathlib import Path

import inkmaker
import numpy as np
import pytest

from gryphone.config import Precision
from gryphone.data.datasets import read_dataset
from gryphone.data.packed import read_packed
from gryphone.data.packing import write_packed
from gryphone.data.samples import Sample, Unreadable
from gryphone.data.stats import inked_patches, packed_stats
from gryphone.errors import ConfigError, DataError
from gryphone.ink import Ink, simplify, to_canvas
from gryphone.reading.inkml import read_inkml


def samples(inks: list[Ink], source: str = "made") -> list[Sample | Unreadable]:
    return [Sample(ink.id, source, ink.label, ink=ink) for ink in inks]


def test_layout_of_a_packed_store(tmp_path: Path) -> None:
    inks = inkmaker.some(8)
    report = write_packed(samples(inks), tmp_path / "a.parquet")
    packed = read_packed(tmp_path / "a.parquet")
    assert (report.read, report.packed, len(packed)) == (8, 8, 8)
    assert packed.ids == [ink.id for ink in inks] and set(packed.sources) == {"made"}
    assert packed.labels[:2] == ["x + 1 = 2", r"\frac { 1 } { 2 } - 1"]
    assert packed.writers[3] == "writer3" and packed.convention == "crohme"
    assert packed.points.dtype == np.float32 and packed.points.shape == (packed.offsets[-1], 2)
    begins = packed.offsets[:-1]
    np.testing.assert_array_equal(np.minimum.reduceat(packed.points, begins), 0)
    np.testing.assert_array_equal(np.maximum.reduceat(packed.points, begins).max(1), 1)
    assert (~packed.pen).sum() == sum(len(ink.strokes) for ink in inks)
    assert not packed.pen[begins].any()
    assert packed.glyph_labels[:5] == ["x", "+", "1", "=", "2"]
    assert packed.glyph_positions[:10].tolist() == [0, 1, 2, 3, 4, 2, 0, 1, 4, 3]
    assert packed.glyph.max() == len(packed.glyph_labels) - 1
    assert packed.agreement.tolist() == [0] * 8
    assert packed.ink(1).glyphs == inks[1].glyphs


def test_a_packed_store_is_a_data_set_again(tmp_path: Path) -> None:
    inks = inkmaker.some(4)
    write_packed(samples(inks), tmp_path / "a.parquet")
    again = list(read_dataset(tmp_path / "a.parquet"))
    assert [s.id for s in again] == [ink.id for ink in inks]  # type: ignore[union-attr]
    write_packed(again, tmp_path / "b.parquet")
    one, two = (read_packed(tmp_path / name) for name in ("a.parquet", "b.parquet"))
    assert two.labels == one.labels and two.sources == one.sources
    assert two.glyph_labels == one.glyph_labels
    np.testing.assert_allclose(two.points, one.points, atol=1e-3)


def test_drawing_moves_less_than_half_a_pixel(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.normal(0, 3, (400, 2)), axis=0)
    inks = [*inkmaker.some(4), Ink((walk, walk[:1] + 9), "x", id="walk")]
    write_packed(samples(inks), tmp_path / "a.parquet")
    packed = read_packed(tmp_path / "a.parquet")
    precision = Precision()
    for index, ink in enumerate(inks):
        points = np.concatenate(ink.strokes)
        canvas = to_canvas(points, np.array([0, len(points)]), precision)
        longest = canvas.max()
        strokes = packed.strokes(index)
        assert len(strokes) == len(ink.strokes)
        cuts = np.cumsum([len(s) for s in ink.strokes])[:-1]
        for original, stored in zip(np.split(canvas, cuts), strokes, strict=True):
            distance = _distance_to_line(original, stored.astype(float) * longest)
            assert distance.max() < precision.tolerance + 2 / precision.grid


def _distance_to_line(points: np.ndarray, line: np.ndarray) -> np.ndarray:
    """Distance of each point from the nearest piece of the polyline."""
    a, b = (line[:-1], line[1:]) if len(line) > 1 else (line, line)
    chord = b - a
    along = ((points[:, None] - a) * chord).sum(2) / np.maximum((chord**2).sum(1), 1e-12)
    nearest = a + np.clip(along, 0, 1)[:, :, None] * chord
    return np.sqrt(((points[:, None] - nearest) ** 2).sum(2)).min(1)


def test_simplify_keeps_corners_and_drops_the_straight() -> None:
    straight = np.stack([np.linspace(0, 100, 50), np.zeros(50)], 1)
    corner = np.concatenate([straight, np.stack([np.full(20, 100.0), np.linspace(5, 50, 20)], 1)])
    keep = simplify(corner, np.array([0]), np.array([0]), 0.25)
    assert np.flatnonzero(keep).tolist() == [0, 49, 69]
    two = np.concatenate([corner, corner])
    keep = simplify(two, np.array([0, 70]), np.array([0, 70]), 0.25)
    assert np.flatnonzero(keep).tolist() == [0, 49, 69, 70, 119, 139]


def test_dots_and_lines_have_a_defined_result(tmp_path: Path) -> None:
    dot, bar = Ink((np.array([[5.0, 5.0]]),), "."), Ink((np.array([[0.0, 3.0], [9.0, 3.0]]),), "-")
    still = Ink((np.zeros((30, 2)),), ".")
    write_packed(samples([dot, bar, still]), tmp_path / "a.parquet")
    packed = read_packed(tmp_path / "a.parquet")
    assert packed.strokes(0)[0].tolist() == [[0, 0]]
    assert packed.strokes(1)[0].tolist() == [[0, 0], [1, 0]]
    assert packed.strokes(2)[0].tolist() == [[0, 0]]
    assert inked_patches(packed).tolist()[0] == 1


def test_report_names_what_is_left_out(tmp_path: Path) -> None:
    good, bare = inkmaker.row("x", id="good"), Ink((np.zeros((1, 2)),), id="bare")
    broken = Ink(good.strokes, r"\frac{1", id="broken")
    stream = [*samples([good, bare, broken]), Unreadable("torn.inkml", "broken XML")]
    stream.append(Sample("photo", "made", "x", image=b""))
    report = write_packed(stream, tmp_path / "a.parquet")
    assert (report.read, report.packed) == (5, 1)
    assert [name for name, _ in report.left_out()] == ["torn.inkml", "photo", "bare", "broken"]
    report = write_packed(stream, tmp_path / "a.parquet", keep_broken=True)
    packed = read_packed(tmp_path / "a.parquet")
    assert packed.ids == ["good", "broken"] and packed.labels[1] == r"\frac { 1"
    assert [name for name, _ in report.bad_labels] == ["broken"]
    with pytest.raises(DataError, match="nothing to pack among 1 samples; the first is a: b"):
        write_packed([Unreadable("a", "b")], tmp_path / "b.parquet")


def test_training_refuses_an_ink_whose_symbols_lack_strokes(tmp_path: Path) -> None:
    group = '<annotation type="truth">x</annotation><traceView traceDataRef="7"/>'
    broken = read_inkml(
        f'<ink><trace id="0">1 2, 3 4</trace><traceGroup>{group}</traceGroup></ink>'.encode(),
        name="broken.inkml",
    )
    inks = [Sample("broken", "made", "x", ink=broken), *samples([inkmaker.row("x")])]
    report = write_packed(inks, tmp_path / "train.parquet")
    assert report.packed == 1
    [(name, why)] = report.left_out()
    assert name == "broken" and why.endswith("refers to trace '7', which is not in the file")
    assert write_packed(inks, tmp_path / "test.parquet", keep_broken=True).packed == 2


def test_an_unknown_convention_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'foo' is unknown; use one of crohme"):
        write_packed(samples(inkmaker.some(1)), tmp_path / "a", convention="foo", keep_broken=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_leaves_the_old_store(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_packed(samples(inkmaker.some(1)), path)
    before = path.read_bytes()
    (tmp_path / "a.parquet.part").symlink_to("/dev/full")
    with pytest.raises(DataError, match=r"a\.parquet: cannot be written: .*No space left"):
        write_packed(samples(inkmaker.some(2)), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_contradicting_segmentation_is_dropped_and_flagged(tmp_path: Path) -> None:
    ink = inkmaker.row("x+1")
    wrong = Ink(ink.strokes, "x+2", ink.glyphs, id="wrong")
    report = write_packed(samples([ink, wrong]), tmp_path / "a.parquet")
    packed = read_packed(tmp_path / "a.parquet")
    assert packed.agreement.tolist() == [0, 2] and report.contradicting == ["wrong"]
    assert packed.glyph_offsets.tolist() == [0, 3, 3]
    assert (packed.glyph[packed.offsets[1] :] == -1).all()


def test_files_join_and_rows_can_be_selected(tmp_path: Path) -> None:
    one, two = inkmaker.some(5), inkmaker.some(9)[5:]
    write_packed(samples(one, "one"), tmp_path / "1.parquet")
    write_packed(samples(two, "two"), tmp_path / "2.parquet")
    write_packed(samples(one + two), tmp_path / "all.parquet")
    joined = read_packed([tmp_path / "1.parquet", tmp_path / "2.parquet"])
    whole = read_packed(tmp_path / "all.parquet")
    assert joined.sources == ["one"] * 5 + ["two"] * 4
    for name in ("points", "pen", "glyph", "offsets", "glyph_offsets", "glyph_positions"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))
    chosen = joined.select(np.array([7, 2]))
    assert chosen.ids == ["s7", "s2"]
    assert chosen.ink(0) == joined.ink(7) and chosen.ink(1) == joined.ink(2)
    assert joined.select(np.array(joined.sources) == "two").ids == ["s5", "s6", "s7", "s8"]
    write_packed(samples(one), tmp_path / "none.parquet", convention="none")
    with pytest.raises(DataError, match="differ in convention: crohme, none"):
        read_packed([tmp_path / "1.parquet", tmp_path / "none.parquet"])
    write_packed(samples(one), tmp_path / "fine.parquet", precision=Precision(grid=16))
    fine = read_packed(tmp_path / "fine.parquet")
    assert (whole.precision, chosen.precision) == (Precision(), Precision())
    assert fine.precision == fine.select(np.array([0])).precision == Precision(grid=16)
    with pytest.raises(DataError, match=r"differ in precision: .*grid=16\), .*grid=8\)"):
        read_packed([tmp_path / "1.parquet", tmp_path / "fine.parquet"])


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(DataError, match="not a readable Parquet file"):
        read_packed(tmp_path / "text.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(DataError, match="not a packed store"):
        read_packed(tmp_path / "other.parquet")
    with pytest.raises(DataError, match="no packed files"):
        read_packed([])


def test_statistics_of_a_store(tmp_path: Path) -> None:
    write_packed(samples(inkmaker.some(8)), tmp_path / "a.parquet")
    stats = packed_stats(read_packed(tmp_path / "a.parquet"))
    assert stats.measures["symbols"].tolist() == [5, 5, 4, 5] * 2
    assert stats.measures["strokes"].tolist() == [8, 5, 6, 5] * 2
    assert stats.symbols["1"] == 8 and stats.symbols[r"\frac"] == 2
    assert stats.distinct_labels == 4
    assert stats.to_dict()["sources"]["made"]["symbols"]["median"] == 5


def test_reading_needs_no_xml_or_text_extras() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('defusedxml', 'rapidfuzz', 'pydantic',"
        "'latex2mathml', 'matplotlib', 'PIL', 'rich', 'typer')))\n"
        "import gryphone.data.packed"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1])
