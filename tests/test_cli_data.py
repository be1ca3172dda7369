import json
from pathlib import Path

import inkmaker
import pytest
import typer
from test_data import image_bytes
from typer.testing import CliRunner, Result

from gryphone.cli.data import register
from gryphone.errors import DataError


def invoke(*arguments: object) -> Result:
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    words = ["data", *(str(a) for a in arguments)]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def run(*arguments: object) -> str:
    return invoke(*arguments).stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = inkmaker.write_folder(tmp_path / "made", inkmaker.some(8))
    (made / "torn.inkml").write_text("<ink>")
    return made


def test_pack_reports_and_stats_reads_it(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.parquet"
    report = json.loads(run("pack", folder, "--out", out, "--json"))
    assert (report["read"], report["packed"], report["bytes"]) == (9, 8, out.stat().st_size)
    assert report["glyphs_aligned"] == report["glyphs"] == 38
    assert report["unreadable"][0][0] == "torn.inkml"
    assert report["agreement"] == {"same": 8}
    stats = json.loads(run("stats", out, "--json"))
    assert stats["count"] == 8 and stats["symbols"]["1"] == 8
    direct = json.loads(run("stats", folder, "--json"))
    assert direct["sources"] == stats["sources"]
    assert direct["left_out"][0]["name"] == "torn.inkml"


def test_tables_are_for_people(folder: Path, tmp_path: Path) -> None:
    result = invoke("pack", folder, "--out", tmp_path / "a.parquet")
    assert "8 of 9 samples" in result.stdout
    assert "  torn.inkml: broken XML" in result.stderr  # its name once
    text = run("stats", tmp_path / "a.parquet", "--plot", tmp_path / "plot.png")
    assert "8 samples, 4 distinct labels" in text and "patches" in text
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_stats_of_images(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(image_bytes((60, 20)))
    (tmp_path / "labels.tsv").write_text("a\tx^2\nlost\ty\n")
    stats = json.loads(run("stats", tmp_path, "--json"))
    figures = stats["sources"][tmp_path.name]
    assert figures["aspect"]["mean"] == 3 and figures["symbols"]["mean"] == 2
    assert figures["patches"] == {} and stats["left_out"][0]["name"] == "lost"


def test_inks_and_images_of_one_folder_are_counted_together(tmp_path: Path) -> None:
    mixed = inkmaker.write_folder(tmp_path / "mixed", [inkmaker.power(id="p")])
    (mixed / "a.png").write_bytes(image_bytes((60, 20)))
    (mixed / "b.inkml").write_text("<ink>")
    (mixed / "s.json").write_text("[[[0, 0], [1, 1]]]")
    (mixed / "labels.tsv").write_text("a\tx\ns\tx\n")
    stats = json.loads(run("stats", mixed, "--json"))
    assert (stats["count"], stats["distinct_labels"], stats["symbols"]["x"]) == (3, 2, 3)
    assert [row["name"] for row in stats["left_out"]] == ["b.inkml"]


@pytest.mark.parametrize(
    ("parts", "mixed"),
    [
        (["set/train", "set/valid"], "4 train, 3 valid"),
        (["set"], "3 test, 4 train, 3 valid"),
        (["set/train", "set/synthetic"], None),
        (["set/test"], None),
        (["set/train.parquet", "set/valid"], "4 train, 3 valid"),
    ],
)
def test_a_store_of_several_splits_is_remarked(
    tmp_path: Path, parts: list[str], mixed: str | None
) -> None:
    for name in ("valid", "test", "synthetic", "train"):
        inks = inkmaker.some(4 if name == "train" else 3)
        inkmaker.write_folder(tmp_path / "set" / name, inks)
    run("pack", tmp_path / "set/train", "--out", tmp_path / "set/train.parquet")
    out = tmp_path / "a.parquet"
    result = invoke("pack", *(tmp_path / part for part in parts), "--out", out, "--json")
    assert (f"mixes splits ({mixed}); give each" in result.stderr) == (mixed is not None)
    assert "mixes" in result.stderr or mixed is None


def test_nothing_usable_gives_the_first_reason(tmp_path: Path) -> None:
    (tmp_path / "labels.tsv").write_text("02-sum\tx\n03-sum\ty\n")
    reason = "2 samples; the first is 02-sum: .* there is no such file"
    with pytest.raises(DataError, match=f"nothing to pack among {reason}"):
        run("pack", tmp_path, "--out", tmp_path / "a.parquet")
    with pytest.raises(DataError, match=f"nothing to measure among {reason}"):
        run("stats", tmp_path)


def test_show_draws_the_same_choice_for_the_same_seed(folder: Path, tmp_path: Path) -> None:
    run("pack", folder, "--out", tmp_path / "a.parquet")
    for source in (folder, tmp_path / "a.parquet"):
        drawn = [
            [
                d["id"]
                for d in json.loads(
                    run(
                        "show",
                        source,
                        "--out",
                        tmp_path / "s.png",
                        "--count",
                        3,
                        "--seed",
                        seed,
                        "--json",
                    )
                )["drawn"]
            ]
            for seed in (1, 1, 2)
        ]
        assert drawn[0] == drawn[1] != drawn[2]
        assert len(drawn[0]) == 3
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")


def test_bad_paths_are_data_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        run("stats", tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"no\.parquet: no such file"):
        run("show", tmp_path / "no.parquet", "--out", tmp_path / "a.png")
    inkmaker.write_folder(tmp_path / "made", inkmaker.some(1))
    with pytest.raises(DataError, match="cannot write the picture"):
        run("show", tmp_path / "made", "--out", tmp_path / "a.nonsense")
