"""NAMER: where symbols are looked for, the way through their graph, and training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inkmaker import made_up_ink, write_folder, write_inks
from torch import Tensor

import gryphone
from gryphone.config import PRESETS
from gryphone.decoding import DecodeOptions, Request
from gryphone.errors import ConfigError
from gryphone.kinds import build_model
from gryphone.latex.normalize import normalize
from gryphone.raster import Patches
from gryphone.recognition.recognizer import Recognizer
from gryphone.rivals.namer import walked
from gryphone.rivals.spots import NOWHERE, graph_of, matched, spots_of
from gryphone.scoring.evaluate import evaluate
from gryphone.tokens import MASK_ID, PAD_ID
from gryphone.training.mixture import load_sources
from gryphone.training.objective import found_loss, seeded
from gryphone.training.settings import SourceConfig, TrainConfig
from gryphone.training.train import train

CPU = torch.device("cpu")
TINY = replace(PRESETS["tiny"], kind="namer", length=24)
A, B, C = 2, 3, 4
# Two images. The first is `A B B` on a row of five patches: a glyph of A in three, one of the first
# B in one, and ink that nobody labelled. The second is `C C C` in two patches without any glyph.
TOKENS = torch.tensor([[A, 2], [B, 2], [B, 2], [C, 2], [C, 2], [C, 2]])
LENGTHS = torch.tensor([3, 3])
PLACES = torch.tensor([0, 1, NOWHERE])  # of three glyphs; nobody knows the last one's


def patches() -> Patches:
    row, column = torch.zeros(7), torch.tensor([0, 1, 2, 5, 6, 0, 1])
    return Patches(
        pixels=torch.zeros(7, 256, dtype=torch.uint8),
        position=torch.stack([row, column], 1).long(),
        shape=torch.tensor([[1, 8], [1, 2]]),
        offsets=torch.tensor([0, 5, 7], dtype=torch.int32),
        glyph=torch.tensor([0, 0, 0, 1, 2, -1, -1]),
        home=torch.zeros(0),
    )


def even(here: list[float] | None = None) -> tuple[list[Tensor], Tensor]:
    """Log-probs that prefer nothing, and places that may."""
    odds = [torch.full((7, size), -1.0) for size in (5, 3)]
    return odds, torch.zeros(7) if here is None else torch.tensor(here)


def test_what_is_known_of_places() -> None:
    spots = spots_of(TOKENS, LENGTHS, PLACES, patches(), torch.zeros(2))
    assert spots.owner.tolist() == [0, 0, 0, 1, NOWHERE, NOWHERE, NOWHERE]
    # The patches of A lie 1, 0 and 1 from its middle: 2/3 in the mean of squares.
    torch.testing.assert_close(spots.middle[:4], torch.tensor([-0.3, 0.0, -0.3, 0.0]))
    assert spots.lost.tolist() == [[2, NOWHERE, NOWHERE], [3, 4, 5]]
    assert spots.columns.tolist() == [[0, 1, 2, 3, 4], [5, 6] + [NOWHERE] * 3]


def test_a_token_has_the_patch_of_its_glyph_that_speaks_best_for_it() -> None:
    spots = spots_of(TOKENS, LENGTHS, PLACES, patches(), torch.zeros(2))
    odds, here = even()
    assert matched(odds, here, spots)[:2].tolist() == [1, 3]  # the middle of A
    odds[0][2, A] = -0.5
    assert matched(odds, here, spots)[:2].tolist() == [2, 3]
    # Another's patch is not taken, whatever it says.
    odds[0][3, A], here[4] = 5.0, 5.0
    assert matched(odds, here, spots)[:2].tolist() == [2, 3]


def test_lost_tokens_take_what_is_left_the_surest_first() -> None:
    spots = spots_of(TOKENS, LENGTHS, PLACES, patches(), torch.zeros(2))
    odds, here = even()
    odds[0][3, B], odds[0][4, B], odds[0][0, B] = 0.0, -0.2, -0.1
    # The second B: 3 is the first one's, 0 says more than the ink that nobody labelled.
    assert matched(odds, here, spots)[2] == 0
    here[4] = 0.5
    assert matched(odds, here, spots)[2] == 4
    # Three C in two patches: each patch has one, the third shares the one that says more.
    odds[0][6, C] = 0.0
    found = sorted(matched(odds, here, spots)[3:].tolist())
    assert found == [5, 6, 6]


def test_the_graph_names_neighbours() -> None:
    spots = spots_of(TOKENS, LENGTHS, PLACES, patches(), torch.zeros(2))
    keep = torch.tensor([[True, False], [False, False]])
    graph = graph_of(spots, torch.tensor([1, 3, 4, 5, 6, 6]), torch.tensor([[0, 2], [5, 5]]), keep)
    assert graph.own.offsets.tolist() == [0, 5, 9]
    assert graph.patch.tolist() == [NOWHERE, 1, 3, 4, 0, NOWHERE, 5, 6, 6]
    assert graph.truth[:, 0].tolist() == [NOWHERE, A, B, B, PAD_ID, NOWHERE, C, C, C]
    assert graph.truth[4].tolist() == [PAD_ID, NOWHERE]
    assert graph.right.tolist() == [1, 2, 3, 0, NOWHERE, 1, 2, 3, 0]
    assert graph.left.tolist() == [3, 0, 1, 2, NOWHERE, 3, 0, 1, 2]


def way(edges: dict[tuple[int, int], float], nodes: int = 4, beam: int = 1) -> list[int]:
    """The nodes on the way through a graph whose other edges are all alike, and bad."""
    odds = torch.full((1, nodes + 1, nodes + 1), -9.0)
    for (one, other), value in edges.items():
        odds[0, one, other] = value
    options = DecodeOptions(length=24, start=1, beam=beam)
    request = Request(np.zeros(1), options, 2, MASK_ID, PAD_ID)
    path = walked(odds, request)[0].tolist()
    return path[: path.index(0)]


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ({(0, 3): 0, (3, 1): 0, (1, 4): 0, (4, 2): 0, (2, 0): 0}, [3, 1, 4, 2]),
        ({(0, 2): 0, (2, 0): 0}, [2]),  # what nothing leads to is left out
        ({(0, 1): 0, (1, 2): 0, (2, 1): 0, (2, 3): -1, (3, 0): 0}, [1, 2, 3]),  # a circle
        ({(0, 1): 0, (0, 2): -0.1, (1, 0): 0, (2, 0): 0}, [1]),  # two beginnings
        ({(0, 1): 0, (1, 1): 0, (1, 0): -8}, [1]),  # itself again
    ],
)
def test_the_way_is_read_off(
    edges: dict[tuple[int, int], float], expected: list[int], beam: int
) -> None:
    assert way(edges, beam=beam) == expected


def test_a_beam_finds_the_better_way() -> None:
    edges = {(0, 1): -0.1, (1, 0): -5.0, (0, 2): -0.2, (2, 0): -0.1}
    assert way(edges) == [1] and way(edges, beam=2) == [2]


def test_a_graph_without_symbols_is_an_empty_answer_and_a_full_circle_ends() -> None:
    none = torch.full((1, 3, 3), -torch.inf)
    none[:, :, 0] = -1.0
    request = Request(np.zeros(1), DecodeOptions(length=24, start=1), 2, MASK_ID, PAD_ID)
    assert walked(none, request).tolist() == [[0]]
    # Every node leads on, none to the end: all are visited once, and that is it.
    assert sorted(way({(i, j): 0.0 for i in range(5) for j in range(1, 5)})) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("changes", "sizes", "message"),
    [
        ({}, (9,), "needs scheme: sat"),
        ({"aux": False}, (9, 7), "needs model.aux: true"),
        ({"dense": True, "canvas": PRESETS["paper"].canvas}, (9, 7), "needs model.dense: false"),
    ],
)
def test_what_it_cannot_find_symbols_with_is_refused(
    changes: dict[str, Any], sizes: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build_model(replace(TINY, **changes), sizes)


def settings(folder: Path, **changes: Any) -> TrainConfig:
    given: dict[str, Any] = {
        "name": "namer", "sources": (SourceConfig(str(folder / "inks")),), "model": TINY,
        "validation": {"own": str(folder / "inks")}, "out": str(folder / "runs"), "batch": 16,
        "steps": 150, "lr": 4e-3, "warmup_steps": 10, "weight_decay": 0.0, "ema": 0.5,
        "rmml": False, "augment": None, "precision": "no", "save_minutes": 1e9,
        "eval_minutes": 1e9, "eval_steps": (1,), "aux_weight": 2.0,
    }  # fmt: skip
    return TrainConfig(**(given | changes))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recognizer, Path]:
    """64 inks by heart, and where they are."""
    folder = tmp_path_factory.mktemp("namer")
    write_inks(folder / "inks", 64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCELERATE_USE_CPU", "true")
        path = train(settings(folder), report=lambda line: None)
    return gryphone.load(path), folder / "inks"


def test_inks_are_learned_and_read_back(trained: tuple[Recognizer, Path]) -> None:
    recognizer, inks = trained
    for beam in (1, 3):
        report = evaluate(recognizer, inks, plain=True, steps=1, beam=beam)
        assert report.method == "namer" and report.normalized[0].em >= 95
    some, placed = [made_up_ink(seed) for seed in range(8)], 0
    for ink, many in zip(some, recognizer.recognize_many(some), strict=True):
        one = recognizer.recognize(ink)
        assert normalize(one.latex) == normalize(many.latex) == normalize(ink.label or "")
        assert one.steps == len(one.symbols) + 1
        placed += len({s.strokes for s in one.symbols} & {g.strokes for g in ink.glyphs})
    # Most symbols lie on the strokes that were written for them; bars share patches with others.
    assert placed > 0.7 * sum(len(ink.glyphs) for ink in some)


def test_one_look_is_all_there_is(trained: tuple[Recognizer, Path]) -> None:
    with pytest.raises(ConfigError, match="finds its symbols in one look; leave views out"):
        trained[0].recognize(made_up_ink(0), views=2)


def passed(config: TrainConfig, half: bool = False) -> tuple[float, float, dict[str, Tensor]]:
    """The loss, the gradient's length and the parts of one batch with fresh weights."""
    mixture, tokenizer, _ = load_sources(config, CPU, lambda line: None, None)
    sizes = tuple(len(v) for v in tokenizer.vocabularies)
    torch.manual_seed(0)
    model = build_model(config.model, sizes, tokenizer.vocabularies[0].tokens).train()
    batch = mixture.sample(seeded(0, 0, 0, CPU))
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        loss, parts = found_loss(model, config, batch, sizes, seeded(0, 0, 0, CPU))
    loss.backward()
    norms = [p.grad.norm() for p in model.parameters() if p.grad is not None]
    assert len(norms) == len(list(model.parameters()))
    return float(loss.detach()), float(torch.stack(norms).norm()), parts


def test_half_precision_is_nearly_the_same(tmp_path: Path) -> None:
    write_inks(tmp_path / "inks", 3)
    config = settings(tmp_path, batch=3)
    (*whole, parts), (*half, _) = passed(config), passed(config, half=True)
    assert whole == pytest.approx(half, rel=0.05)
    assert set(parts) == {"tokens", "patches", "here", "right", "left"}


def test_ink_without_segmentation_is_learned_from_too(tmp_path: Path) -> None:
    inks = [replace(made_up_ink(seed), glyphs=()) for seed in range(3)]
    write_folder(tmp_path / "inks", inks)
    loss, length, parts = passed(settings(tmp_path, batch=3))
    assert np.isfinite(loss) and length > 0 and float(parts["patches"]) > 0


def test_there_is_nothing_to_corrupt(tmp_path: Path) -> None:
    write_inks(tmp_path / "inks", 1)
    with pytest.raises(ConfigError, match="shown no tokens to corrupt; set corrupt: 0"):
        passed(settings(tmp_path, batch=1, corrupt=0.1))
