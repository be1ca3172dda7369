"""No validation or test ink gets into the synthesiser: by name, by stroke, by formula."""

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from gryphone.data.datasets import read_dataset
from gryphone.data.samples import Sample
from gryphone.errors import DataError
from gryphone.ink import Ink
from gryphone.synth.build import grammar_formulas, protected_of, protected_sets
from gryphone.synth.compose import Composer
from gryphone.synth.formulas import clean_formulas, is_protected
from gryphone.synth.glyph_sources import from_inks
from gryphone.synth.glyphs import GlyphBank, GlyphSample, pack_glyphs
from gryphone.synth.ink_source import STYLES
from gryphone.synth.layouts import load_layouts
from gryphone.synth.leakage import (
    SAME_STROKE,
    bank_strokes,
    check_bank,
    copied_strokes,
    nearest_distances,
    only_training,
    protected_names,
    stroke_shapes,
)
from gryphone.synth.write import read_order
from gryphone.tokens import sat_join, sat_split, tokenizer_from_dict

DATA = Path(__file__).parents[2] / "shared" / "data"
PACKED = Path(__file__).parents[1] / "packed"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="the shared data folder is not here")
needs_packed = pytest.mark.skipif(
    not (PACKED / "glyphs.npz").exists(), reason="packed/ is not built here"
)


def curl(seed: int, turns: float = 2.0) -> np.ndarray:
    """A winding stroke that is nobody else's."""
    draw = np.random.default_rng(seed)
    t = np.linspace(0, 1, 60)
    waves = draw.normal(size=(2, 4, 2))
    x = sum(a * np.cos(k * turns * 3 * t + b) for k, (a, b) in enumerate(waves[0], 1))
    y = sum(a * np.sin(k * turns * 3 * t + b) for k, (a, b) in enumerate(waves[1], 1))
    return np.stack([np.asarray(x), np.asarray(y)], axis=1) * 100


def ink_bank(*seeds: int) -> GlyphBank:
    return pack_glyphs([GlyphSample("x", (curl(seed),)) for seed in seeds])


def sample(name: str, seed: int) -> Sample:
    return Sample(name, "made-up", "x", ink=Ink((curl(seed),), "x"))


def test_a_copied_stroke_is_found_at_any_size_and_place() -> None:
    strokes = [curl(1) * 0.01 + 7, curl(2), curl(3)]
    assert copied_strokes(ink_bank(1, 3, 4), strokes) == [0, 2]


def test_simple_strokes_are_everybodys() -> None:
    line = np.stack([np.linspace(0, 1, 20), np.linspace(0, 0.3, 20)], axis=1)
    shapes, kept = stroke_shapes([line, curl(1)])
    assert kept == [1] and shapes.shape == (1, 48)
    assert np.isinf(nearest_distances(shapes, np.zeros((0, 48)))).all()


def test_a_protected_name_stops_the_build() -> None:
    fine = list(only_training([sample("a", 1), sample("b", 2)], {"c"}))
    assert [s.id for s in fine if isinstance(s, Sample)] == ["a", "b"]
    with pytest.raises(DataError, match="b belongs to a validation or test set"):
        list(only_training([sample("a", 1), sample("b", 2)], {"b"}))


def test_a_protected_stroke_stops_the_build(tmp_path: Path) -> None:
    points = ", ".join(f"{x:.3f} {y:.3f}" for x, y in curl(5).tolist())
    (tmp_path / "one.inkml").write_text(f'<ink><trace id="0">{points}</trace></ink>')
    assert protected_names([tmp_path]) == {"one"}
    check_bank(ink_bank(1, 2), [tmp_path])
    with pytest.raises(DataError, match="1 of its strokes"):
        check_bank(ink_bank(1, 5), [tmp_path])


def test_protected_formulas_are_refused_by_every_source() -> None:
    protected = {"x + y = 1", "x + y"}
    dropped: Counter[str] = Counter()
    assert list(clean_formulas(["x+y=1"], set("xy+=1"), protected, dropped)) == []
    order = read_order(["x+y=1", "x + y", "x^"], protected)
    assert [" ".join(tokens) for _, tokens in order.accepted] == ["x + y"]
    assert [number for number, _ in order.refused] == [0, 2]
    made = grammar_formulas([["x", "+", "y", "=", "2"]], set("xy+=12"), {"x + y = 1"}, 40)
    assert made and not any(is_protected(tokens, protected) for tokens in made)


@needs_data
def test_training_glyphs_are_nobodys_from_the_validation_sets() -> None:
    inks = islice(read_dataset(DATA / "crohme" / "train.tar.xz"), 150)
    bank = pack_glyphs(from_inks(inks))
    held, _ = stroke_shapes(bank_strokes(bank))
    assert len(held) > 100
    closest = []
    for path in protected_sets(DATA):
        some = islice(read_dataset(path), 60)
        strokes = [
            s for one in some if isinstance(one, Sample) and one.ink for s in one.ink.strokes
        ]
        closest.append(nearest_distances(stroke_shapes(strokes)[0], held).min())
    assert min(closest) > SAME_STROKE
    path = protected_sets(DATA)[0]
    leaked = pack_glyphs(from_inks(islice(read_dataset(path), 5)))
    with pytest.raises(DataError, match="in the glyph bank"):
        check_bank(leaked, [path])


@needs_data
@needs_packed
def test_shipped_layouts_hold_no_protected_formula() -> None:
    protected = protected_of(DATA)
    assert len(protected) > 5000
    layouts = load_layouts(PACKED / "layouts-real.npz")
    assert protected <= set(layouts.protected)
    labels = (sat_join(layouts.pairs(i)) for i in range(len(layouts)))
    assert not any(is_protected(tokens, protected) for tokens in labels)


@needs_packed
def test_exchanged_symbols_never_make_a_protected_formula() -> None:
    from gryphone.synth.glyphs import load_bank

    bank, layouts = load_bank(PACKED / "glyphs.npz"), load_layouts(PACKED / "layouts-real.npz")
    tokenizer = tokenizer_from_dict(json.loads((PACKED / "tokenizer.json").read_text()))
    composer = Composer(bank, layouts, tokenizer, style=STYLES["real"])
    generator = torch.Generator().manual_seed(3)
    protected = set(layouts.protected)
    index = torch.randint(len(layouts), (1500,), generator=generator)
    made = composer.compose(index, generator)
    labels = [tokenizer.decode(row.numpy()) for row in made.tokens]
    assert not any(is_protected(tokens, protected) for tokens in labels)
    assert sum(len(sat_split(tokens)) >= 4 for tokens in labels) > 500
