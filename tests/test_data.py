import io
import tarfile
from dataclasses import replace
from pathlib import Path

import inkmaker
import pytest

from gryphone.data.align import Agreement, align
from gryphone.data.archive import members, source_name
from gryphone.data.contact_sheet import contact_sheet
from gryphone.data.datasets import read_dataset
from gryphone.data.folder import read_labels
from gryphone.data.samples import Sample, Unreadable
from gryphone.errors import DataError
from gryphone.ink import Glyph, Ink
from gryphone.latex.normalize import normalize
from gryphone.reading.inkml import read_inkml, to_inkml
from gryphone.reading.inputs import expand

SHARED = Path(__file__).parents[2] / "shared" / "data"


def image_bytes(size: tuple[int, int] = (30, 20)) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("L", size, 200).save(buffer, "PNG")
    return buffer.getvalue()


def samples_of(*paths: Path) -> list[Sample]:
    found = list(read_dataset(*paths))
    assert all(isinstance(s, Sample) for s in found)
    return found  # type: ignore[return-value]


def test_folder_and_archive_hold_the_same(tmp_path: Path) -> None:
    inks = inkmaker.some(6)
    folder = inkmaker.write_folder(tmp_path / "set", inks)
    files = {f"deep/{i.id}.inkml": to_inkml(i).encode() for i in inks}
    archive = inkmaker.write_tar(tmp_path / "set.tar.xz", files)
    plain = inkmaker.write_tar(tmp_path / "set.tar", files, "w")
    expected = [(i.id, "set", i.label) for i in inks]
    for path in (folder, archive, plain):
        assert [(s.id, s.source, s.label) for s in samples_of(path)] == expected


def test_broken_samples_are_reported_in_place(tmp_path: Path) -> None:
    folder = inkmaker.write_folder(tmp_path / "set", inkmaker.some(2))
    (folder / "s0b.inkml").write_text("<ink><trace>1</trace></ink>")
    found = list(read_dataset(folder))
    assert [type(s) for s in found] == [Sample, Unreadable, Sample]
    assert isinstance(found[1], Unreadable)
    assert found[1].name == "s0b.inkml" and "point 0" in found[1].error


def test_hostile_archive_writes_nothing_and_links_are_ignored(tmp_path: Path) -> None:
    ink = to_inkml(inkmaker.power()).encode()
    path = tmp_path / "evil.tar"
    with tarfile.open(path, "w") as tar:
        for name in ("../../escape.inkml", "/abs.inkml"):
            info = tarfile.TarInfo(name)
            info.size = len(ink)
            tar.addfile(info, io.BytesIO(ink))
        link = tarfile.TarInfo("link.inkml")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    before = sorted(tmp_path.parent.rglob("*"))
    assert [s.id for s in samples_of(path)] == ["escape", "abs"]
    assert sorted(tmp_path.parent.rglob("*")) == before


def test_damaged_archive_names_itself(tmp_path: Path) -> None:
    ink = to_inkml(inkmaker.power()).encode()
    files = {f"{i}.inkml": ink + bytes(str(i), "ascii") * 9000 for i in range(20)}
    path = inkmaker.write_tar(tmp_path / "cut.tar", files, "w")
    path.write_bytes(path.read_bytes()[:100_000])
    with pytest.raises(DataError, match=r"cut\.tar"):
        list(members(path))
    (tmp_path / "bad.tar.xz").write_bytes(b"not an archive")
    with pytest.raises(DataError, match=r"bad\.tar\.xz: damaged after 0 files"):
        list(members(tmp_path / "bad.tar.xz"))


def test_what_is_no_data_set(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        list(read_dataset(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="holds no ink"):
        list(read_dataset(tmp_path))
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(DataError, match="expected a folder"):
        list(read_dataset(tmp_path / "a.txt"))
    assert source_name(Path("/a/valid-2013.tar.xz")) == "valid-2013"


def test_mathwriting_splits(tmp_path: Path) -> None:
    text = to_inkml(inkmaker.power()).replace('type="truth">$', 'type="normalizedLabel">$', 1)
    symbol = to_inkml(inkmaker.row("x")).replace('type="truth">x', 'type="label">x', 1)
    files = {
        "mathwriting-2024/symbols/c.inkml": symbol.encode(),
        "mathwriting-2024/synthetic/b.inkml": text.encode(),
        "mathwriting-2024/train/a.inkml": text.encode(),
        "mathwriting-2024/symbols.jsonl": b"{}",
    }
    path = inkmaker.write_tar(tmp_path / "mathwriting-2024.tgz", files, "w:gz")
    assert [(s.id, s.source, s.label) for s in samples_of(path)] == [
        ("c", "mathwriting-symbols", "x"),
        ("b", "mathwriting-synthetic", "$x^2+2$"),
        ("a", "mathwriting-train", "$x^2+2$"),
    ]


def test_labels_file_with_images_inks_and_gaps(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    inkmaker.write_folder(folder, [inkmaker.power(id="p")])
    (folder / "photo.png").write_bytes(image_bytes())
    (folder / "stray.png").write_bytes(image_bytes())
    (folder / "labels.tsv").write_text("photo\ta + b\np\tx\n\nlost\ty\n")
    found = {getattr(s, "id", None) or s.name: s for s in read_dataset(folder)}  # type: ignore[union-attr]
    assert found["photo"].label == "a + b" and found["photo"].image is not None  # type: ignore[union-attr]
    assert found["p"].label == "x"  # type: ignore[union-attr]
    assert "has no line" in found["stray.png"].error  # type: ignore[union-attr]
    assert "no such file" in found["lost"].error  # type: ignore[union-attr]
    (folder / "labels.tsv").write_text("no tab here\n")
    with pytest.raises(DataError, match="line 1: expected id<TAB>label"):
        read_labels(folder)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"labels.tsv": "a\tx\nb\ty\na\tz\n"},
            r"labels\.tsv, line 3: id 'a' was on line 1; keep one",
        ),
        ({"labels.tsv": "a\tx\na\tx\n"}, "line 2: id 'a' was on line 1"),
        (
            {"1/labels.tsv": "b\ty\na\tx\n", "2/labels.tsv": "a\tz\n"},
            r"2/labels\.tsv, line 1: id 'a' was on .*: 1/labels\.tsv, line 2; keep one",
        ),
    ],
)
def test_an_id_has_one_label(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        read_labels(tmp_path)


def test_names_with_an_ending_in_the_labels_file_are_explained(tmp_path: Path) -> None:
    (tmp_path / "sum.png").write_bytes(image_bytes())
    (tmp_path / "labels.tsv").write_text("sum.png\tx\n")
    errors = [s.error for s in read_dataset(tmp_path) if isinstance(s, Unreadable)]
    assert "has no line 'sum' in labels.tsv" in errors[0]
    assert "leave out the ending" in errors[1]


def test_what_needs_a_labels_file_is_named_without_one(tmp_path: Path) -> None:
    inkmaker.write_folder(tmp_path, [inkmaker.power(id="p")])
    (tmp_path / "a.png").write_bytes(image_bytes())
    (tmp_path / "bare.json").write_text("[[[0, 0], [1, 1]]]")
    (tmp_path / "own.json").write_text('{"strokes": [[[0, 0], [1, 1]]], "label": "x"}')
    (tmp_path / "settings.json").write_text('{"colour": 3}')
    found = {s.name: s for s in read_dataset(tmp_path)}
    assert list(found) == ["a.png", "bare.json", "own.json", "p.inkml"]
    for name in ("a.png", "bare.json"):
        assert isinstance(found[name], Unreadable) and "labels.tsv" in found[name].error  # type: ignore[union-attr]
    assert found["own.json"].label == "x"  # type: ignore[union-attr]


def test_a_folder_of_images_needs_a_labels_file(tmp_path: Path) -> None:
    for name in ("a.png", "b.gif"):
        (tmp_path / name).write_bytes(image_bytes())
    with pytest.raises(DataError, match=r"holds 2 images and no labels\.tsv"):
        list(read_dataset(tmp_path))


def test_unread_files_of_a_folder_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a.jpg", "b.gif", "c.heic", "d.PDF", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    assert [p.name for p in expand([str(tmp_path)])] == ["a.jpg", "b.gif"]
    assert [r.getMessage() for r in caplog.records] == [
        f"{tmp_path}: 2 files not read: c.heic, d.PDF; save as PNG or JPEG",
        f"{tmp_path}: other files not read: 1 (.txt)",
    ]


def test_parts_share_one_labels_file(tmp_path: Path) -> None:
    labels = b"a\tx\nb\ty\n"
    one = inkmaker.write_tar(
        tmp_path / "set-1.tar", {"s/a.png": image_bytes(), "s/labels.tsv": labels}, "w"
    )
    two = inkmaker.write_tar(tmp_path / "set-2.tar", {"s/b.png": image_bytes()}, "w")
    assert [(s.id, s.label) for s in samples_of(one, two)] == [("a", "x"), ("b", "y")]


@pytest.mark.parametrize(
    ("ink", "positions"),
    [
        # Glyphs are listed in writing order; symbols of \frac{1}{2}-1 are \frac 1 2 - 1.
        (inkmaker.fraction(), (2, 0, 1, 4, 3)),
        (inkmaker.power(), (0, 1, 2, 3)),
        (inkmaker.row("1+1=2"), (0, 1, 2, 3, 4)),
    ],
)
def test_alignment_by_layout(ink: Ink, positions: tuple[int, ...]) -> None:
    found = align(ink, normalize(ink.label or ""))
    assert (found.positions, found.agreement) == (positions, Agreement.SAME)


def test_alignment_by_mathml_beats_layout() -> None:
    mathml = '<math><mi xml:id="b">1</mi><mi xml:id="a">1</mi></math>'
    one, two = inkmaker.row("11").glyphs
    glyphs = (Glyph(one.label, one.strokes, "a"), Glyph(two.label, two.strokes, "b"))
    ink = Ink(inkmaker.row("11").strokes, "11", glyphs, mathml=mathml)
    assert align(ink, ["1", "1"]).positions == (1, 0)
    assert align(replace(ink, mathml=None), ["1", "1"]).positions == (0, 1)


def test_alignment_tells_contradiction_from_gaps() -> None:
    ink = inkmaker.row("x+1")
    wrong = align(ink, ["x", "+", "2"])
    assert (wrong.agreement, wrong.positions) == (Agreement.CONTRADICTS, (-1, -1, -1))
    missing = align(ink, ["x", "+", "1", "0"])
    assert missing.agreement is Agreement.CONTRADICTS  # no stroke is left that could be the 0
    partial = Ink(ink.strokes, "x+1", ink.glyphs[:1])
    found = align(partial, ["x", "+", "1"])
    assert (found.agreement, found.positions) == (Agreement.INCOMPLETE, (0,))
    assert align(Ink(ink.strokes), ["x"]).agreement is Agreement.INCOMPLETE


def test_ambiguous_layout_stays_unaligned() -> None:
    # Both twos are right of and above each other's place at once: the boxes do not decide.
    items = [("x", 0.0, 0.0, 10.0), ("2", 12.0, 0.0, 5.0), ("2", 12.0, 0.0, 5.0)]
    ink = inkmaker.place(items, "x_{2}^{2}")
    same = Ink((*ink.strokes[:3], ink.strokes[2]), ink.label, ink.glyphs)
    assert align(same, normalize("x_{2}^{2}")).positions == (0, -1, -1)


def test_contact_sheet_size_and_ink() -> None:
    inks = inkmaker.some(7)
    samples = [Sample(i.id, "made", i.label, ink=i) for i in inks]
    samples.append(Sample("photo", "made", "x", image=image_bytes()))
    sheet = contact_sheet(samples, columns=5)
    assert sheet.size == (5 * 300, 2 * 170)
    assert min(sheet.convert("L").crop((10, 10, 290, 120)).getdata()) < 100
    with pytest.raises(DataError, match="nothing to draw"):
        contact_sheet([])


@pytest.mark.skipif(not SHARED.is_dir(), reason="shared data is not on this machine")
@pytest.mark.parametrize(("name", "count"), [("valid-2013", 671), ("valid-2023", 555)])
def test_every_validation_ink_reads(name: str, count: int) -> None:
    found = samples_of(SHARED / "crohme" / f"{name}.tar.xz")
    assert len(found) == count
    aligned = [align(s.ink, normalize(s.label or "")) for s in found if s.ink is not None]
    shares = [p >= 0 for a in aligned for p in a.positions]
    assert sum(shares) / len(shares) > 0.95
    assert read_inkml(to_inkml(found[0].ink).encode(), name=found[0].id + ".inkml") == found[0].ink  # type: ignore[arg-type]
