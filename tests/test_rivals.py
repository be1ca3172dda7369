"""The autoregressive decoder: causal, the same with and without a cache, learns, and searches."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inkmaker import made_up_ink, some, write_inks

import gryphone
from gryphone.checkpoint import load_model, read_checkpoint, save_checkpoint
from gryphone.config import PRESETS
from gryphone.decoding import Decoded, DecodeOptions, Request
from gryphone.errors import CheckpointError, ConfigError
from gryphone.kinds import build_model
from gryphone.latex.normalize import normalize
from gryphone.model import Packing
from gryphone.reading.inputs import Input
from gryphone.recognition.answer import Question, refine_all
from gryphone.recognition.encoding import EncodedBatch, mean_of
from gryphone.recognition.question import Ask
from gryphone.recognition.recognizer import Recognizer
from gryphone.recognition.torch_backend import TorchBackend
from gryphone.rivals.search import decode
from gryphone.scoring.evaluate import evaluate
from gryphone.tokens import MASK_ID, PAD_ID, build_tokenizer
from gryphone.training.settings import SourceConfig, TrainConfig
from gryphone.training.train import train

INKS = some(5)
AR = replace(PRESETS["tiny"], kind="ar", length=24)
FACTS = {"convention": "crohme", "licence": "none"}


@pytest.fixture(scope="module", params=["sat", "raw"])
def weights(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights whose answers have some length."""
    path = tmp_path_factory.mktemp("ar") / request.param
    torch.manual_seed(1)
    tokenizer = build_tokenizer(request.param, [normalize(ink.label or "") for ink in INKS])
    model = build_model(AR, tuple(len(v) for v in tokenizer.vocabularies))
    for parameter in model.decoder.parameters():  # far from uniform
        parameter.data *= 3
    save_checkpoint(path, model.state_dict(), AR, tokenizer, FACTS)
    return path


@pytest.fixture(scope="module")
def recognizer(weights: Path) -> Recognizer:
    """With layers in float32, which a batch does not round otherwise."""
    checkpoint = read_checkpoint(weights)
    model = load_model(weights, torch.device("cpu"), checkpoint)
    return Recognizer(checkpoint, TorchBackend(model, checkpoint.config))


def batch_of(recognizer: Recognizer) -> EncodedBatch:
    return EncodedBatch.of(recognizer, [Input(ink) for ink in INKS])


def total(decoded: Decoded) -> float:
    """The log-prob of an answer, its end included."""
    whole = float(decoded.log_probs.sum())
    return whole + float(decoded.looks.distributions()[0][len(decoded.ids) :, PAD_ID].sum())


def same(a: list[Decoded], b: list[Decoded]) -> None:
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-4)
        assert one.steps == other.steps == min(len(one.ids) + 1, AR.length)


def test_a_later_token_changes_no_earlier_prediction(recognizer: Recognizer) -> None:
    backend: Any = recognizer.backend
    memory = backend.encode([ink.strokes for ink in INKS[:2]])
    sizes = [len(v) for v in recognizer.tokenizer.vocabularies]
    rng, lengths = np.random.default_rng(0), np.array([9, 6])
    canvas = np.stack([rng.integers(2, size, (2, 9)) for size in sizes], 2)
    before = backend.predict(memory, canvas, lengths, np.arange(2))
    other = canvas.copy()
    other[:, 4] = [2 if size == 3 else size - 1 for size in sizes]
    other[:, 4, 0] = np.where(canvas[:, 4, 0] == 2, 3, 2)
    after = backend.predict(memory, other, lengths, np.arange(2))
    for one, two in zip(before, after, strict=True):
        np.testing.assert_allclose(one[:, :5], two[:, :5], atol=1e-6)
        assert np.abs(one[:, 5] - two[:, 5]).max() > 1e-3  # and the next one does change


@torch.inference_mode()
def test_packed_sequences_do_not_see_each_other(recognizer: Recognizer) -> None:
    backend: Any = recognizer.backend
    memory = backend.encode([ink.strokes for ink in INKS[:2]])
    lengths = torch.tensor([7, 4])
    tokens = torch.randint(2, 4, (11, len(recognizer.tokenizer.vocabularies)))
    index = torch.cat([torch.arange(n) for n in lengths.tolist()])
    together = backend.model.decode(tokens, index, memory.memory, Packing.of(lengths))
    for number, part in enumerate((slice(0, 7), slice(7, 11))):
        alone = backend.encode([INKS[number].strokes]).memory
        count = int(lengths[number])
        own = Packing.equal(1, count, torch.device("cpu"))
        found = backend.model.decode(tokens[part], index[part], alone, own)
        for one, other in zip(found, together, strict=True):
            torch.testing.assert_close(one, other[part], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("views", [1, 2])
def test_cached_decoding_is_uncached_decoding(
    recognizer: Recognizer, beam: int, views: int
) -> None:
    batch, owners = batch_of(recognizer), np.array([4, 0, 2, 2])
    ask = Ask(steps=1, beam=beam, views=views)
    request = recognizer.request(ask, np.zeros(4, dtype=np.int64))
    cached = batch.refine(owners, request, views)
    backend: Any = recognizer.backend
    inputs, places = np.unique(owners, return_inverse=True)
    memories = [batch.memory_of(look, inputs.tolist()) for look in range(views)]
    anew = decode(
        lambda tokens, lengths, samples: mean_of(
            [backend.predict(m, tokens, lengths, places[samples]) for m in memories]
        ),
        request,
    )
    same(cached, anew)
    assert max(len(d.ids) for d in cached) > 3


@pytest.mark.parametrize("beam", [1, 4])
def test_a_batch_reads_as_single_inks_do(recognizer: Recognizer, beam: int) -> None:
    request = recognizer.request(Ask(steps=1, beam=beam), np.zeros(1, dtype=np.int64))
    alone = [
        decoded
        for ink in INKS
        for decoded in EncodedBatch.of(recognizer, [Input(ink)]).refine(np.zeros(1, int), request)
    ]
    keys = np.zeros(len(INKS), dtype=np.int64)
    every = recognizer.request(Ask(steps=1, beam=beam), keys)
    same(batch_of(recognizer).refine(np.arange(len(INKS)), every), alone)


def test_a_beam_finds_what_is_as_likely_or_likelier(recognizer: Recognizer) -> None:
    batch, keys = batch_of(recognizer), np.zeros(len(INKS), dtype=np.int64)
    found = [
        [total(d) for d in batch.refine(np.arange(len(INKS)), recognizer.request(ask, keys))]
        for ask in (Ask(steps=1), Ask(steps=1, beam=32))
    ]
    assert all(wide >= narrow - 1e-4 for narrow, wide in zip(*found, strict=True))
    assert sum(found[1]) > sum(found[0]) + 0.1


A, B, C = 2, 3, 4
# What follows what, by the last symbol: A comes first greedily, but B leads to the likelier end.
NEXT = {
    MASK_ID: {A: 0.6, B: 0.4},
    A: {A: 0.3, B: 0.4, PAD_ID: 0.3},
    B: {C: 0.9, PAD_ID: 0.1},
    C: {PAD_ID: 1.0},
}


def spoken(tokens: np.ndarray, lengths: np.ndarray, samples: np.ndarray) -> list[np.ndarray]:
    said = np.full((*tokens.shape[:2], 5), -30.0)
    for row, canvas in enumerate(tokens[..., 0]):
        for place, last in enumerate([MASK_ID, *canvas[:-1]]):
            for token, p in NEXT.get(int(last), {PAD_ID: 1.0}).items():
                said[row, place, token] = np.log(p)
    return [said]


@pytest.mark.parametrize(
    ("beam", "answer", "odds"), [(1, [A, B, C], 0.6 * 0.4 * 0.9), (2, [B, C], 0.4 * 0.9)]
)
def test_the_beam_on_a_hand_made_garden_path(beam: int, answer: list[int], odds: float) -> None:
    options = DecodeOptions(length=12, start=12, beam=beam)
    request = Request(np.zeros(2, dtype=np.int64), options, 1, MASK_ID, PAD_ID)
    for decoded in decode(spoken, request):
        assert decoded.ids[:, 0].tolist() == answer
        assert decoded.steps == len(answer) + 1
        assert total(decoded) == pytest.approx(np.log(odds))


def test_two_streams_end_by_the_symbol_alone() -> None:
    """PAD (0.48) is likelier than any pair (0.52 x 0.5), whatever the modifiers say at an end."""

    def said(tokens: np.ndarray, lengths: np.ndarray, samples: np.ndarray) -> list[np.ndarray]:
        with np.errstate(divide="ignore"):
            symbols, modifiers = np.log([0.48, 0, 0.52]), np.log([0.3, 0, 0.5, 0.2])
        return [np.tile(s, (*tokens.shape[:2], 1)) for s in (symbols, modifiers)]

    request = Request(np.zeros(1), DecodeOptions(length=4, start=4), 2, MASK_ID, PAD_ID)
    assert decode(said, request)[0].ids.shape == (0, 2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two inks by heart, and where they are."""
    folder = tmp_path_factory.mktemp("two")
    write_inks(folder / "inks", 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCELERATE_USE_CPU", "true")
        settings = TrainConfig(
            name="ar", sources=(SourceConfig(str(folder / "inks")),), model=AR,
            validation={"own": str(folder / "inks")}, out=str(folder / "runs"), batch=8, steps=60,
            lr=4e-3, warmup_steps=10, weight_decay=0.0, ema=0.5, rmml=False, augment=None,
            precision="no", save_minutes=1e9, eval_minutes=1e9, eval_steps=(1,),
        )  # fmt: skip
        return train(settings, report=lambda line: None), folder / "inks"


def test_two_inks_are_learned_and_read_back(trained: tuple[Path, Path]) -> None:
    path, inks = trained
    lines = (path.parent / "eval.csv").read_text().splitlines()
    assert lines[-1].split(",")[-1] == "100.0"
    recognizer = gryphone.load(path)  # which chooses PyTorch by itself
    assert isinstance(recognizer.backend, TorchBackend)
    for beam in (1, 10):
        report = evaluate(recognizer, inks, plain=True, steps=1, beam=beam)
        assert (report.normalized[0].em, report.method, report.beam) == (100.0, "ar", beam)
        assert report.to_dict()["beam"] == beam
    one, two = made_up_ink(0), made_up_ink(1)
    both = recognizer.recognize_many([one, two])
    assert [r.latex for r in both] == [recognizer.recognize(ink).latex for ink in (one, two)]
    assert [normalize(r.latex) for r in both] == [normalize(i.label or "") for i in (one, two)]
    for result in both:
        assert result.confidence > 0.5 and result.steps == len(result.symbols) + 1
        assert all(symbol.box for symbol in result.symbols)
        assert all(symbol.alternatives for symbol in result.symbols)
    assert len(recognizer.recognize(one, n_best=3).n_best) == 3


def test_answers_are_made_well_formed(recognizer: Recognizer) -> None:
    batch = batch_of(recognizer)
    ask = Ask(steps=1)
    questions = [Question(batch, index, ask) for index in range(len(INKS))]
    plain = refine_all([replace(q, ask=replace(ask, plain=True)) for q in questions])
    accepts = recognizer.grammar.accepts
    assert not all(accepts(one.ids) for (one,) in plain)
    assert all(accepts(one.ids) for (one,) in refine_all(questions))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"hint": "x+?"},
            "kind 'ar' do not take lock, hint, remask, given or allowed; leave it out",
        ),
        ({"lock": {0: "x"}}, "kind 'ar' do not take lock"),
        ({"method": "mask-predict"}, "kind 'ar' do not take method 'mask-predict'"),
        ({"beam": 0}, "beam is 0; it must be between 1 and 100"),
    ],
)
def test_what_it_cannot_do_is_refused(
    recognizer: Recognizer, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        recognizer.recognize(INKS[0], **options)


def test_other_weights_have_no_beam_and_this_kind_no_graphs(weights: Path) -> None:
    with pytest.raises(ConfigError, match="weights of kind 'diffusion' do not take a beam"):
        gryphone.load().recognize(INKS[0], beam=3)
    with pytest.raises(CheckpointError, match="built in PyTorch alone; use backend='torch'"):
        gryphone.load(weights, backend="onnx")


def test_what_masks_in_training_is_refused() -> None:
    for changes in ({"rmml": True}, {"rmml": False, "time_power": 1.5}):
        with pytest.raises(ConfigError, match="kind 'ar' masks nothing in training; set rmml"):
            TrainConfig(name="a", sources=(SourceConfig("b"),), model=AR, **changes)  # type: ignore[arg-type]


def test_steps_are_watched_as_one(recognizer: Recognizer) -> None:
    seen: list[tuple[int, str]] = []
    result = recognizer.recognize(
        INKS[0], steps=2, plain=True, on_step=lambda s: seen.append((s.number, s.latex))
    )
    assert seen == [(1, result.latex)]
