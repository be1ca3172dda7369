"""PyTorch behind the backend seam: strokes found again in the patches, types, processes."""

import multiprocessing
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inkmaker import power, row, some

from gryphone.checkpoint import load_model
from gryphone.config import PRESETS
from gryphone.kinds import build_model
from gryphone.model import Packing
from gryphone.raster import InkBatch
from gryphone.recognition.backend import View
from gryphone.recognition.recognizer import Recognizer
from gryphone.recognition.torch_backend import TorchBackend
from gryphone.tokens import PAD_ID


def tiny_backend(half: bool | None = None) -> TorchBackend:
    config = PRESETS["tiny"]
    torch.manual_seed(0)
    return TorchBackend(build_model(config, (9, 4)).eval(), config, half)


def test_pixels_know_the_patch_and_the_stroke_that_they_lie_in() -> None:
    inks = [power(), row("x+1")]
    backend = tiny_backend()
    drawn = backend.encode([ink.strokes for ink in inks])
    assert drawn.strokes == [len(ink.strokes) for ink in inks]
    assert drawn.patches == drawn.memory.rows.offsets.diff().tolist()
    assert drawn.home.unique().tolist() == list(range(sum(drawn.patches)))  # every patch has ink
    assert drawn.stroke.unique().tolist() == list(range(sum(drawn.strokes)))  # every stroke has
    # A pixel's patch and its stroke are of the same ink.
    of_patch = np.repeat([0, 1], drawn.patches)[drawn.home]
    of_stroke = np.repeat([0, 1], drawn.strokes)[drawn.stroke]
    assert np.array_equal(of_patch, of_stroke)


@pytest.mark.parametrize("view", [View(), View(0.87, 0.03)])
def test_inks_are_seen_alike_whoever_draws_them(view: View) -> None:
    """Few are drawn in numpy, many on the device."""
    inks = [ink.strokes for ink in some(3)]
    backend = tiny_backend()
    one, other = backend.encode(inks, view), backend.encode_batch(InkBatch.from_strokes(inks), view)
    assert (one.strokes, one.patches, one.images) == (other.strokes, other.patches, other.images)
    assert torch.allclose(one.memory.features, other.memory.features, atol=1e-5)
    canvases = [np.full((3 + k, 2), 2) for k in range(3)]
    for mine, yours in zip(
        backend.evidence(one, canvases), backend.evidence(other, canvases), strict=True
    ):
        assert np.allclose(mine, yours, atol=1e-4)


def test_a_stroke_speaks_by_the_mean_of_its_pixels() -> None:
    inks = [power(), row("x+1"), row("1")]
    backend = tiny_backend()
    memory = backend.encode([ink.strokes for ink in inks])
    canvases = [np.full((n, 2), 2 + k % 2) for k, n in enumerate((4, 3, 5))]
    canvases[0][-1] = PAD_ID  # which is no token of an answer
    found = backend.evidence(memory, canvases)
    tokens = torch.from_numpy(np.concatenate(canvases))
    index = torch.from_numpy(np.concatenate([np.arange(len(c)) for c in canvases]))
    own = Packing.of(torch.tensor([4, 3, 5]))
    with torch.inference_mode():
        scores = backend.scores(tokens, index, memory.memory, own).numpy()
        said = backend.model.patch_heads[0](memory.memory.features).softmax(-1)[:, PAD_ID].numpy()
    blank = backend.nothing(memory)
    for k, ink in enumerate(inks):
        assert found[k].shape == (len(ink.strokes), len(canvases[k]) + 1)
        for stroke in range(len(ink.strokes)):
            pixels = memory.home[memory.stroke == sum(memory.strokes[:k]) + stroke]
            seen = scores[k][: len(canvases[k]), pixels - sum(memory.patches[:k])]
            assert np.allclose(found[k][stroke, :-1], seen.mean(1), atol=1e-5)
            best = seen[canvases[k][:, 0] != PAD_ID].max(0)
            assert np.isclose(found[k][stroke, -1], best.mean(), atol=1e-5)
            assert np.isclose(blank[k][stroke], said[pixels].mean(), atol=1e-5)
    # Some of the inks, in another order.
    few = backend.evidence(backend.select(memory, [2, 0]), [canvases[2], canvases[0]])
    assert np.allclose(few[0], found[2], atol=1e-4) and np.allclose(few[1], found[0], atol=1e-4)


def test_a_part_of_the_memory_gives_the_same_answer() -> None:
    backend = tiny_backend()
    memory = backend.encode([ink.strokes for ink in some(4)])
    tokens = np.random.default_rng(0).integers(0, 4, (4, 5, 2))
    lengths = np.full(4, 5)
    whole = backend.predict(memory, tokens, lengths, np.arange(4))
    one = backend.predict(backend.select(memory, [1]), tokens[1:2], lengths[1:2], np.zeros(1, int))
    for part, all_of_it in zip(one, whole, strict=True):
        assert np.allclose(part[0], all_of_it[1], atol=2e-5)
    canvases = list(tokens)
    seen = backend.evidence(memory, canvases)
    alone = backend.evidence(backend.select(memory, [2]), canvases[2:3])
    assert seen is not None and alone is not None
    assert np.allclose(alone[0], seen[2], atol=1e-4)


@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
def test_a_gpu_s_data_types_are_no_obstacle(weights: torch.dtype) -> None:
    """On a GPU the memory is in bfloat16: tokens are predicted, and found, all the same."""
    exact, rough = tiny_backend(), tiny_backend(half=weights == torch.float32)
    rough.model.to(weights)
    canvas = np.full((4, 2), 2)
    seen = [backend.encode([power().strokes]) for backend in (exact, rough)]
    assert seen[1].memory.keys_values[0][0].dtype == torch.bfloat16
    for backend, memory in zip((exact, rough), seen, strict=True):
        log_probs = backend.predict(memory, canvas[None], np.array([4]), np.zeros(1, int))
        assert [x.dtype for x in log_probs] == [np.float32] * 2
    (one,), (other,) = exact.evidence(seen[0], [canvas]), rough.evidence(seen[1], [canvas])
    assert other.dtype == np.float32
    assert np.allclose(one, other, atol=0.5)


def test_a_model_in_bfloat16_reads_and_places(recognizer: Recognizer, tiny_weights: Path) -> None:
    checkpoint = recognizer.checkpoint
    model = load_model(tiny_weights, torch.device("cpu"), checkpoint).bfloat16()
    rough = Recognizer(checkpoint, TorchBackend(model, checkpoint.config, half=False))
    inks = some(3)
    results = rough.recognize_many(inks)
    for ink, result in zip(inks, results, strict=True):
        assert result.latex
        assert {n for s in result.symbols for n in s.strokes} == set(range(len(ink.strokes)))
        assert rough.recognize(ink, steps=2, lock={0: "x"}).symbols[0].symbol == "x"


def _read(recognizer: Recognizer, out: Any) -> None:
    try:
        out.put(recognizer.recognize(power(), steps=1).latex)
    except Exception as error:
        out.put("".join(traceback.format_exception_only(error)))


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork"
)
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_is_told_what_to_do(recognizer: Recognizer) -> None:
    context = multiprocessing.get_context("fork")
    out = context.Queue()
    child = context.Process(target=_read, args=(recognizer, out))
    child.start()
    said = out.get(timeout=60)
    child.join()
    assert "ConfigError: this process was forked" in said
    assert "get_context('spawn')" in said
