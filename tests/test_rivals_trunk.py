"""The trunk of the published rivals: two directions, their joint beam, and training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inkmaker import some, write_inks

import gryphone
from gryphone.checkpoint import load_model, read_checkpoint, save_checkpoint
from gryphone.config import PRESETS, ModelConfig
from gryphone.decoding import Decoded
from gryphone.kinds import KINDS, build_model
from gryphone.latex.normalize import normalize
from gryphone.model import GryphOne, Memory, Packing
from gryphone.reading.inputs import Input
from gryphone.recognition.encoding import EncodedBatch
from gryphone.recognition.question import Ask
from gryphone.recognition.recognizer import Recognizer
from gryphone.recognition.torch_backend import TorchBackend
from gryphone.rivals.joint import forwards, laid_out, rated
from gryphone.rivals.trunk import TwoWayDecoder, sheet_of
from gryphone.scoring.evaluate import evaluate
from gryphone.tokens import MASK_ID, PAD_ID, build_tokenizer
from gryphone.training.mixture import load_sources
from gryphone.training.objective import seeded, two_way_loss
from gryphone.training.settings import SourceConfig, TrainConfig
from gryphone.training.train import train

INKS = some(5)
TRUNK = [kind for kind, parts in KINDS.items() if "joint" in parts.cached]


def config_of(kind: str) -> ModelConfig:
    return replace(PRESETS["tiny"], kind=kind, length=24)


@pytest.fixture(scope="module", params=TRUNK)
def recognizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Random weights whose answers have some length, in float32."""
    path, config = tmp_path_factory.mktemp("rival") / request.param, config_of(request.param)
    torch.manual_seed(3)
    tokenizer = build_tokenizer("raw", [normalize(ink.label or "") for ink in INKS])
    vocabulary = tokenizer.vocabularies[0]
    model = build_model(config, (len(vocabulary),), vocabulary.tokens)
    for parameter in model.decoder.parameters():  # far from uniform
        parameter.data *= 3
    save_checkpoint(path, model.state_dict(), config, tokenizer, {"convention": "crohme"})
    checkpoint = read_checkpoint(path)
    network = load_model(path, torch.device("cpu"), checkpoint)
    return Recognizer(checkpoint, TorchBackend(network, config))


def network_of(recognizer: Recognizer) -> GryphOne:
    backend: Any = recognizer.backend
    model: GryphOne = backend.model
    return model


def memory_of(recognizer: Recognizer, count: int) -> Memory:
    backend: Any = recognizer.backend
    memory: Memory = backend.encode([ink.strokes for ink in INKS[:count]]).memory
    return memory


def answers(recognizer: Recognizer, inks: list[Any], beam: int) -> list[Decoded]:
    batch = EncodedBatch.of(recognizer, [Input(ink) for ink in inks])
    request = recognizer.request(Ask(steps=1, beam=beam), np.zeros(len(inks), dtype=np.int64))
    return batch.refine(np.arange(len(inks)), request)


def test_right_to_left_is_the_mirror() -> None:
    tokens = torch.tensor([5, 6, 7, PAD_ID, 5, 6, 7, PAD_ID, 8, PAD_ID, 8, PAD_ID])[:, None]
    lengths = torch.tensor([4, 4, 2, 2])
    canvas = torch.arange(4).repeat_interleave(lengths)
    index = torch.cat([torch.arange(n) for n in lengths.tolist()])
    sheet = sheet_of(tokens, index, canvas, lengths, torch.tensor([False, True] * 2))
    assert sheet.truth[:, 0].tolist() == [5, 6, 7, 0, 7, 6, 5, 0, 8, 0, 8, 0]
    starts = (MASK_ID, PAD_ID)
    assert sheet.before[:, 0].tolist() == [
        *(starts[0], 5, 6, 7, starts[1], 7, 6, 5, starts[0], 8, starts[1], 8)
    ]
    ids = torch.tensor([[7, 6, 5, 0, 0], [1, 2, 3, 4, 0]])[..., None]
    turned = forwards(ids, torch.tensor([3, 4]), torch.tensor([True, False]))
    assert turned[..., 0].tolist() == [[5, 6, 7, 0, 0], [1, 2, 3, 4, 0]]


@torch.inference_mode()
def test_the_cached_decoder_is_the_uncached_one(recognizer: Recognizer) -> None:
    """Rows of both directions, which change places on the way."""
    model, memory = network_of(recognizer), memory_of(recognizer, 3)
    size = len(recognizer.tokenizer.vocabularies[0])
    rows, steps, decoder = 4, 7, model.decoder
    assert isinstance(decoder, TwoWayDecoder)
    generator = torch.Generator().manual_seed(0)
    writer, past = decoder.writer(memory, rows, 24), torch.empty(3 * rows, 0, 1, dtype=torch.long)
    tokens = torch.tensor([MASK_ID, MASK_ID, PAD_ID, PAD_ID]).repeat(3)[:, None]
    for step in range(steps):
        past = torch.cat([past, tokens[:, None]], 1)  # (R, n, 1)
        said = writer.step(tokens)[0]
        own = Packing.equal(len(past), step + 1, past.device)
        index = torch.arange(step + 1).repeat(len(past))
        states = decoder.hidden(past.flatten(0, 1), index, memory, own)
        whole = decoder.logits(states)[0].log_softmax(-1).view(len(past), step + 1, -1)
        torch.testing.assert_close(said, whole[:, -1], atol=2e-4, rtol=1e-4)
        order = torch.cat([b * rows + torch.randint(rows, (rows,), generator=generator)
                           for b in range(3)])  # fmt: skip
        writer.follow(order)
        past = past[order]
        tokens = torch.randint(2, size, (len(past), 1), generator=generator)


def test_a_beam_of_one_is_greedy(recognizer: Recognizer) -> None:
    backend: Any = recognizer.backend
    found = answers(recognizer, INKS, 1)
    assert max(len(answer.ids) for answer in found) > 2
    memory = EncodedBatch.of(recognizer, [Input(ink) for ink in INKS]).memory
    for number, answer in enumerate(found):
        canvas: list[int] = []
        while len(canvas) < 24:
            tokens = np.array([[*canvas, MASK_ID]])[..., None]
            said = backend.predict(memory, tokens, np.array([tokens.shape[1]]), np.array([number]))
            said[0][0, -1, MASK_ID] = -np.inf
            canvas.append(int(said[0][0, -1].argmax()))
            if canvas[-1] == PAD_ID:
                canvas.pop()
                break
        assert answer.ids[:, 0].tolist() == canvas


@pytest.mark.parametrize("beam", [1, 4])
def test_a_batch_reads_as_single_inks_do(recognizer: Recognizer, beam: int) -> None:
    together = answers(recognizer, INKS, beam)
    for ink, one in zip(INKS, together, strict=True):
        (alone,) = answers(recognizer, [ink], beam)
        np.testing.assert_array_equal(one.ids, alone.ids)
        np.testing.assert_allclose(one.log_probs, alone.log_probs, atol=1e-3)


@torch.inference_mode()
def test_a_rating_is_the_mean_of_both_directions(recognizer: Recognizer) -> None:
    model, memory = network_of(recognizer), memory_of(recognizer, 2)
    decoder: Any = model.decoder
    ids = torch.tensor([[2, 3, 4], [3, 2, 0]])[..., None]
    lengths = torch.tensor([3, 2])
    found = rated(decoder, memory, ids, lengths)
    sheet = laid_out(ids, lengths, (False, True))
    states = decoder.hidden(sheet.before, sheet.index, memory, sheet.own)
    extra = decoder.score(states, sheet)
    for row, count in enumerate(lengths.tolist()):
        total, own = 0.0, ids[row, :count, 0].tolist()
        for way, start in ((own, MASK_ID), (own[::-1], PAD_ID)):
            fed = torch.tensor([start, *way])[:, None]
            index, packing = torch.arange(count + 1), Packing.equal(1, count + 1, fed.device)
            backend: Any = recognizer.backend
            alone = backend.encode([INKS[row].strokes]).memory
            said = decoder.logits(decoder.hidden(fed, index, alone, packing))[0].log_softmax(-1)
            total += sum(float(said[i, t]) for i, t in enumerate([*way, PAD_ID])) / (count + 1)
        if extra is not None:
            total += float(extra.view(-1, 2)[row].sum())
        assert float(found[row]) == pytest.approx(total, abs=1e-3)


def test_the_joint_beam_takes_what_is_rated_best(recognizer: Recognizer) -> None:
    """No worse than greedy in the measure that decides, and better somewhere."""
    model, memory = network_of(recognizer), memory_of(recognizer, len(INKS))
    decoder: Any = model.decoder
    ratings = []
    for beam in (1, 6):
        found = answers(recognizer, INKS, beam)
        ids = torch.zeros(len(INKS), 24, 1, dtype=torch.long)
        for row, answer in enumerate(found):
            ids[row, : len(answer.ids)] = torch.from_numpy(answer.ids)
        lengths = torch.tensor([min(len(answer.ids), 23) for answer in found])
        with torch.inference_mode():
            ratings.append(rated(decoder, memory, ids, lengths))
    assert bool((ratings[1] >= ratings[0] - 1e-3).all())
    assert float((ratings[1] - ratings[0]).sum()) > 0.1


def training(kind: str, folder: Path, **changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "name": kind, "sources": (SourceConfig(str(folder / "inks")),), "model": config_of(kind),
        "validation": {"own": str(folder / "inks")}, "out": str(folder / "runs"), "batch": 4,
        "steps": 60, "lr": 4e-3, "warmup_steps": 10, "weight_decay": 0.0, "ema": 0.5,
        "rmml": False, "augment": None, "precision": "no", "save_minutes": 1e9,
        "eval_minutes": 1e9, "eval_steps": (1,), "scheme": "raw",
    }  # fmt: skip
    return TrainConfig(**(settings | changes))


@pytest.mark.parametrize("kind", TRUNK)
def test_inks_are_learned_and_read_back(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    write_inks(tmp_path / "inks", 2)
    path = train(training(kind, tmp_path), report=lambda line: None)
    recognizer = gryphone.load(path)
    for beam in (1, 3):
        report = evaluate(recognizer, tmp_path / "inks", plain=True, steps=1, beam=beam)
        assert (report.normalized[0].em, report.method, report.beam) == (100.0, kind, beam)


@pytest.mark.parametrize("kind", TRUNK)
def test_half_precision_is_nearly_the_same(kind: str, tmp_path: Path) -> None:
    """What a GPU does in training, on the CPU: the losses and gradients of one batch."""
    cpu = torch.device("cpu")
    write_inks(tmp_path / "inks", 3)
    settings = training(kind, tmp_path, batch=3)
    mixture, tokenizer, _ = load_sources(settings, cpu, lambda line: None, None)
    vocabulary = tokenizer.vocabularies[0]
    torch.manual_seed(0)
    model = build_model(settings.model, (len(vocabulary),), vocabulary.tokens).train()
    batch, found = mixture.sample(seeded(0, 0, 0, cpu)), []
    for half in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss, parts = two_way_loss(
                model, settings, batch, (len(vocabulary),), seeded(0, 0, 0, cpu)
            )
        loss.backward()
        norms = [p.grad.norm() for p in model.parameters() if p.grad is not None]
        assert len(norms) == len(list(model.parameters()))
        found.append((float(loss.detach()), float(torch.stack(norms).norm())))
        assert set(parts) >= {"tokens", "patches"}
    assert found[0] == pytest.approx(found[1], rel=0.05)
