"""One page in several pictures."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from inkmaker import row
from paper import Page, draw_page
from PIL import Image
from scipy.spatial import cKDTree
from test_cli_data import run

from gryphone.data.images import points_along
from gryphone.data.packed import read_packed
from gryphone.data.samples import Sample, Unreadable
from gryphone.errors import DataError
from gryphone.photo.image import read_image
from gryphone.synth.retakes import another_picture, retake_images


def page(text: str) -> bytes:
    file = io.BytesIO()
    draw_page(row(text).strokes, Page(margin=40)).save(file, "PNG")
    return file.getvalue()


def test_another_picture_maps_back_to_its_page() -> None:
    image = draw_page(row("x+1=2").strokes, Page(margin=40)).convert("L")
    here = cKDTree(np.concatenate([points_along(s) for s in read_image(image).strokes]))
    sizes = set()
    for seed in range(6):
        picture, back = another_picture(image, np.random.default_rng(seed))
        sizes.add(picture.size)
        there = np.concatenate(read_image(picture).strokes) @ back[:, :2].T + back[:, 2]
        assert np.quantile(here.query(there)[0], 0.9) < 3
    assert len(sizes) == 6


def test_retaken_ink_keeps_its_symbols_and_depends_on_the_seed() -> None:
    sample = Sample("a", "made", "x + 1", image=page("x+1"))
    boxes = {"a": [("anything", 0.0, 0.0, 1e4, 1e4)]}
    one, two, again = (next(retake_images([sample], boxes, seed)) for seed in (1, 2, 1))
    for other in (one, two, again):
        assert not isinstance(other, Unreadable) and other.ink and other.image is None
        assert [g.label for g in other.ink.glyphs] == ["anything"]
        assert other.ink.label == "x + 1"
    assert np.array_equal(one.ink.strokes[0], again.ink.strokes[0])
    assert not np.array_equal(one.ink.strokes[0], two.ink.strokes[0])


def test_a_page_without_ink_is_reported() -> None:
    file = io.BytesIO()
    Image.new("L", (200, 100), 255).save(file, "PNG")
    (lost,) = retake_images([Sample("empty", "made", "x", image=file.getvalue())], {}, 0)
    assert isinstance(lost, Unreadable) and lost.error.startswith("empty: ")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "pages"
    folder.mkdir()
    for name in ("x+1", "x=2"):
        (folder / f"{name}.png").write_bytes(page(name))
    (folder / "labels.tsv").write_text("x+1\tx + 1\nx=2\tx = 2\n")
    return folder


def test_pack_takes_several_pictures(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.parquet"
    command = ("pack", folder, "--out", out, "--json", "--takes", 3)
    assert json.loads(run(*command, "--retake", 5))["packed"] == 6
    assert sorted(read_packed(out).labels) == ["x + 1"] * 3 + ["x = 2"] * 3
    with pytest.raises(DataError, match="--retake SEED"):
        run(*command)
