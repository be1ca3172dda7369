"""Raw LaTeX labels of real and of written ink: the same inks, the same formulas as SAT's."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from inkmaker import write_inks
from test_synth import BOX, bank_of, row_layout

from gryphone.config import PRESETS
from gryphone.data.store import load_packed
from gryphone.errors import ConfigError
from gryphone.synth.layouts import pack_layouts
from gryphone.tokens import build_tokenizer
from gryphone.training.mixture import load_sources
from gryphone.training.objective import seeded
from gryphone.training.settings import SourceConfig, TrainConfig
from gryphone.training.train import train


def synth_config(tmp_path: Path, **settings: object) -> TrainConfig:
    """Real and written inks, with a tokenizer of SAT rows."""
    labels = "x ^ { 2 } + y", "y = 2", "x _ { y x }"
    bank = bank_of(*"xy2+=")
    bank.save(tmp_path / "g.npz")
    boxes = dict.fromkeys(bank.classes, BOX)
    pack_layouts(map(row_layout, labels), boxes, origin="real").save(tmp_path / "l.npz")
    write_inks(tmp_path / "inks", 24)
    real = load_packed(tmp_path / "inks", "crohme").labels
    tokenizer = build_tokenizer("sat", [x.split() for x in (*labels, *real)])
    (tmp_path / "t.json").write_text(json.dumps(tokenizer.to_dict()))
    synth = SourceConfig(str(tmp_path / "l.npz"), kind="synth", glyphs=str(tmp_path / "g.npz"))
    base = TrainConfig(
        name="run",
        sources=(SourceConfig(str(tmp_path / "inks")), synth),
        tokenizer=str(tmp_path / "t.json"),
        model=PRESETS["tiny"],
        out=str(tmp_path / "runs"),
        batch=64,
        precision="no",
    )
    return replace(base, **settings)  # type: ignore[arg-type]


def test_raw_latex_learns_from_the_inks_that_sat_sees(tmp_path: Path) -> None:
    settings, device = synth_config(tmp_path), torch.device("cpu")
    found = {}
    for scheme in ("sat", "raw"):
        mixture, tokenizer, _ = load_sources(
            replace(settings, scheme=scheme), device, lambda line: None
        )
        assert tokenizer.scheme == scheme
        batch = mixture.sample(seeded(0, 0, 0, device))
        rows = batch.tokens.split(batch.lengths.tolist())
        assert (batch.glyph_places >= 0).any() == (scheme == "sat")
        glyphs = [tokenizer.vocabularies[0].tokens[k] for k in batch.glyph_tokens[:, 0] if k >= 0]
        found[scheme] = batch.ink.points, [tokenizer.decode(r.numpy()) for r in rows], glyphs
    assert torch.equal(found["sat"][0], found["raw"][0])
    assert found["sat"][1:] == found["raw"][1:]
    assert any("{" in label for label in found["raw"][1])
    train(replace(settings, scheme="raw", steps=2), report=lambda line: None)


def test_a_raw_tokenizer_cannot_write(tmp_path: Path) -> None:
    settings, device = synth_config(tmp_path), torch.device("cpu")
    raw = build_tokenizer("raw", [["x", "y"]])
    (tmp_path / "t.json").write_text(json.dumps(raw.to_dict()))
    for scheme, message in (("raw", "synthesiser writes symbols"), ("sat", "scheme is 'sat'")):
        with pytest.raises(ConfigError, match=message):
            load_sources(replace(settings, scheme=scheme), device, lambda line: None)


def test_layouts_that_do_not_fit_the_canvas_are_counted(tmp_path: Path) -> None:
    short = replace(PRESETS["tiny"], length=7)
    settings = synth_config(tmp_path, model=short, scheme="raw")
    lines: list[str] = []
    load_sources(replace(settings, sources=settings.sources[1:]), torch.device("cpu"), lines.append)
    assert lines == [
        f"{tmp_path / 'l.npz'}: 1 layouts left out, which do not fit a canvas of 7 tokens"
    ]
