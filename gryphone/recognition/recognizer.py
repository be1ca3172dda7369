"""One prediction, top to bottom: ink -> patches -> memory -> refined tokens -> LaTeX.

Encode once, refine many: an `Encoded` formula answers any number of questions (more steps, locked
symbols, hints, other seeds) without looking at the ink again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from gryphone.checkpoint import Checkpoint, load_checkpoint
from gryphone.config import ModelConfig
from gryphone.decoding import Constraint, Decoded, DecodeOptions, Predict, Watch, decode
from gryphone.errors import CheckpointError, ConfigError
from gryphone.ink import Ink, Stroke, condensed
from gryphone.model import GryphOne, Memory, Packing
from gryphone.ragged import ranges, select
from gryphone.raster import InkBatch, Patches, Pixels, draw, fit, to_patches, typical_stroke
from gryphone.reading.inputs import Input, read_input
from gryphone.recognition.confidence import hidden_log_probs
from gryphone.recognition.cpu_linear import prepack
from gryphone.recognition.question import Ask, Step
from gryphone.recognition.result import Result
from gryphone.tokens import MASK_ID, PAD_ID, Tokenizer

WEIGHTS = Path(__file__).parents[1] / "weights"  # the default checkpoint, package data
# Looks at one ink, each at a scale and turned by an angle; `Ask.views` takes the first few.
VIEWS = ((1.0, 0.0), (0.87, 0.03), (1.15, -0.03), (1.0, 0.05), (1.0, -0.05))
# Log-prob that an answer may lack before another tracing is looked at: of a picture, where the
# first may have lost ink, and of pen ink, where only real doubt is worth it. Half of the validation
# scans and four of five inks lack less.
DOUBT_ABOUT_PICTURE = 0.05
DOUBT_ABOUT_INK = 0.3


def batch_of(inks: Sequence[Sequence[Stroke]]) -> InkBatch:
    """Inks as training saw them: at the precision of the packed store, without a pen's jitter."""
    return InkBatch.from_strokes(condensed(inks))


def look(batch: InkBatch, config: ModelConfig) -> Patches:
    """Draw inks and cut them into the patches that a model was made for."""
    return cut(draw(batch, config.canvas), config)


def cut(pixels: Pixels, config: ModelConfig, area: float = 1.0) -> Patches:
    """The patches of drawn inks, whose canvases were scaled by an `area` factor."""
    canvas = config.canvas
    return to_patches(pixels, canvas, area_factor=area, dense=config.keep_all)


def choose(memory: Memory, samples: torch.Tensor) -> Memory:
    """The memory of some samples of a batch."""
    rows, _, lengths = select(memory.rows.offsets.long(), samples)
    if len(samples) == 1:
        packing = Packing.equal(1, len(rows), rows.device)
    else:
        packing = Packing(
            F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32),
            memory.rows.longest,
            memory.rows.uniform,
        )
    pairs = [(k[rows], v[rows]) for k, v in memory.keys_values]
    return Memory(memory.features[rows], packing, pairs)


def predictor(model: GryphOne, memory: Memory, owners: np.ndarray | None = None) -> Predict:
    """What the decoding loop calls: token ids in, log-probs out, by PyTorch.

    `owners` (B,) name the image of each canvas, where there is more than one canvas per image.
    """
    device = memory.features.device
    images = len(memory.rows.offsets) - 1

    @torch.inference_mode()
    def predict(tokens: np.ndarray, lengths: np.ndarray, samples: np.ndarray) -> list[np.ndarray]:
        looked = samples if owners is None else owners[samples]
        some = memory
        # One image is shared by all canvases; several must be laid beside their canvases.
        if images > 1 and not np.array_equal(looked, np.arange(images)):
            some = choose(memory, torch.from_numpy(looked).to(device))
        inside = np.arange(tokens.shape[1]) < lengths[:, None]
        packed = torch.from_numpy(tokens[inside]).to(device)
        counts = torch.from_numpy(lengths).to(device)
        _, index = ranges(counts)
        longest = int(lengths.max())
        own = Packing.of(counts, longest)
        if (lengths == longest).all():
            own = replace(own, uniform=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = model.decode(packed, index, some, own)
        out = []
        for stream in logits:
            dense = np.zeros((*inside.shape, stream.shape[-1]), dtype=np.float32)
            dense[inside] = F.log_softmax(stream.float(), -1).cpu().numpy()
            out.append(dense)
        return out

    return predict


def together(predictors: Sequence[Predict]) -> Predict:
    """Several views of the same images: the mean of their log-probs, normalised."""
    if len(predictors) == 1:
        return predictors[0]

    def predict(tokens: np.ndarray, lengths: np.ndarray, samples: np.ndarray) -> list[np.ndarray]:
        views = [p(tokens, lengths, samples) for p in predictors]
        means = [np.mean(streams, 0) for streams in zip(*views, strict=True)]
        return [m - np.logaddexp.reduce(m, -1, keepdims=True) for m in means]

    return predict


@torch.inference_mode()
def read_inks(
    model: GryphOne,
    config: ModelConfig,
    batch: InkBatch,
    options: DecodeOptions,
    *,
    streams: int,
    keys: np.ndarray | None = None,
) -> list[Decoded]:
    """Encode a batch of inks once and refine all their canvases together."""
    memory = encode_patches(model, look(batch.to(_device(model)), config))
    if keys is None:
        keys = np.zeros(batch.size, dtype=np.int64)
    return decode(
        predictor(model, memory), keys, options, streams=streams, mask_id=MASK_ID, pad_id=PAD_ID
    )


@torch.inference_mode()
def encode_patches(model: GryphOne, patches: Patches) -> Memory:
    """Look once; what is seen serves every decoding."""
    device = patches.pixels.device
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        memory = model.encode(patches)
    if len(memory.rows.offsets) == 2:  # one image: its rows need no padding
        rows = Packing.equal(1, len(memory.features), device)
        memory = Memory(memory.features, rows, memory.keys_values)
    return memory


def _device(model: GryphOne) -> torch.device:
    return next(model.parameters()).device


def _question(ask: Ask | None, options: dict[str, Any]) -> Ask:
    if ask is not None and options:
        raise ConfigError(f"give `ask` or options, not both: {', '.join(options)}")
    return ask or Ask(**options)


@dataclass(frozen=True)
class Recognizer:
    """A loaded checkpoint, ready to read ink and images."""

    checkpoint: Checkpoint

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabularies the checkpoint was trained with."""
        return self.checkpoint.tokenizer

    @cached_property
    def grammar(self) -> Any:
        """The search for the best well-formed answer, built once for the vocabularies."""
        from gryphone.recognition.grammar import Grammar

        return Grammar.of(self.tokenizer)

    def encode(self, source: Any, *, name: str | None = None) -> Encoded:
        """Read and look at one input: a path, bytes, image, array, Ink or list of strokes."""
        began = time.perf_counter()
        return self.encode_inks([read_input(source, name)], began)[0]

    def encode_inks(self, inks: Sequence[Input | Ink], began: float | None = None) -> list[Encoded]:
        """Look at several inks in one pass of the encoder."""
        return Looked.at(self, inks, time.perf_counter() if began is None else began).each()

    def recognize(
        self, source: Any, *, name: str | None = None, ask: Ask | None = None, **options: Any
    ) -> Result:
        """The formula in one input; the options are those of `Ask`, or a ready `ask`."""
        return self.encode(source, name=name).answer(_question(ask, options))

    def recognize_many(
        self, sources: Sequence[Any], *, ask: Ask | None = None, **options: Any
    ) -> list[Result]:
        """The formulas in several inputs, together; one by one where each has its deadline."""
        from gryphone.recognition.answer import answer_batch

        ask = _question(ask, options)
        if ask.deadline_ms is not None:
            return [self.recognize(source, ask=ask) for source in sources]
        if not sources:
            return []
        inputs = [read_input(source) for source in sources]
        return answer_batch(Looked.at(self, inputs, time.perf_counter()), ask)

    def decode_options(self, ask: Ask) -> DecodeOptions:
        """How to decode for one question."""
        length = self.checkpoint.config.length
        return DecodeOptions(
            steps=ask.total_steps,
            method=ask.method,
            seed=ask.seed,
            length=length,
            start=min(48, length),
            keep="all",
        )


@dataclass(frozen=True)
class Looked:
    """A batch of inks and what the encoder saw of them."""

    recognizer: Recognizer
    inputs: Sequence[Input]
    batch: InkBatch
    pixels: Pixels
    patches: Patches
    memory: Memory
    began: float

    @classmethod
    def at(cls, recognizer: Recognizer, inks: Sequence[Input | Ink], began: float) -> Looked:
        """Draw and encode."""
        inputs = [read_input(ink) for ink in inks]
        model, config = recognizer.checkpoint.model, recognizer.checkpoint.config
        batch = batch_of([each.ink.strokes for each in inputs])
        # Every point knows its stroke, so that strokes can be found again in the patches.
        batch = replace(batch, glyph=(~batch.pen).cumsum(0) - 1).to(_device(model))
        pixels = draw(batch, config.canvas)
        patches = cut(pixels, config)
        memory = encode_patches(model, patches)
        return cls(recognizer, inputs, batch, pixels, patches, memory, began)

    @property
    def inks(self) -> list[Ink]:
        """The strokes that were read."""
        return [each.ink for each in self.inputs]

    @cached_property
    def _views(self) -> dict[tuple[int, ...], Memory]:
        return {}

    def view(self, number: int, inks: Sequence[int]) -> Memory:
        """What the encoder sees of some of the inks in one of the VIEWS, looked at once."""
        if number == 0:
            return self.of(inks)
        key = (number, *inks)
        if key not in self._views:
            scale, angle = VIEWS[number]
            batch = self.batch.select(torch.tensor(inks, device=self.batch.points.device))
            turn = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
            points = batch.points @ batch.points.new_tensor(turn)
            area = points.new_full((batch.size,), scale**2)
            config = self.recognizer.checkpoint.config
            pixels = draw(replace(batch, points=points), config.canvas, area)
            model = self.recognizer.checkpoint.model
            self._views[key] = encode_patches(model, cut(pixels, config, scale**2))
        return self._views[key]

    @cached_property
    def _tracings(self) -> dict[int, tuple[Stroke, ...]]:
        return {}

    def tracing(self, number: int) -> tuple[Stroke, ...]:
        """Another tracing of one of the inks: of its picture, or of its strokes on paper."""
        if number not in self._tracings:
            from gryphone.photo.redraw import redrawn  # not before there is doubt

            read = self.inputs[number]
            self._tracings[number] = read.retraced or redrawn(read.ink.strokes)
        return self._tracings[number]

    def is_doubtful(self, number: int, decoded: Decoded) -> bool:
        """Whether an answer leaves so much doubt that another tracing should be looked at."""
        most = DOUBT_ABOUT_PICTURE if self.inputs[number].retraced else DOUBT_ABOUT_INK
        return bool(-hidden_log_probs(decoded.ids, decoded).sum() > most)

    def other(self, inks: Sequence[int]) -> Memory:
        """What the encoder sees of some of the inks in their other tracing, looked at once."""
        key = (-1, *inks)
        if key not in self._views:
            model, config = self.recognizer.checkpoint.model, self.recognizer.checkpoint.config
            batch = batch_of([self.tracing(i) for i in inks])
            self._views[key] = encode_patches(model, look(batch.to(_device(model)), config))
        return self._views[key]

    @cached_property
    def drawn_size(self) -> np.ndarray:
        """How large a typical stroke of each ink was drawn (B,), as a share of its usual size."""
        canvas = self.recognizer.checkpoint.config.canvas
        drawn = replace(self.batch, points=fit(self.batch, canvas)[0])
        size: np.ndarray = (typical_stroke(drawn) / canvas.stroke).cpu().numpy()
        return size

    def of(self, inks: Sequence[int]) -> Memory:
        """What the encoder saw of some of the inks."""
        if list(inks) == list(range(len(self.inks))):
            return self.memory
        return choose(self.memory, torch.tensor(inks, device=self.memory.features.device))

    def each(self) -> list[Encoded]:
        """The inks one by one."""
        return [Encoded(self, i) for i in range(len(self.inks))]

    def decode(
        self,
        owners: np.ndarray,
        keys: np.ndarray,
        options: DecodeOptions,
        constraints: Sequence[Constraint] | None = None,
        deadline: float | None = None,
        watch: Watch | None = None,
        views: int = 1,
        *,
        again: bool = True,
    ) -> list[Decoded]:
        """Refine one canvas for each owner (an ink of the batch) and key.

        Where that leaves doubt about an ink, all its canvases are refined `again` with another
        tracing of it in view as well, unless `watch` or the deadline stopped it. The steps of that
        count on behind those of the first look.
        """
        began = time.perf_counter()
        found = self._refine(owners, keys, options, constraints, deadline, watch, views)
        unsure = {
            int(owner)
            for owner, decoded in zip(owners, found, strict=True)
            if decoded.steps == options.steps and self.is_doubtful(int(owner), decoded)
        }
        now = time.perf_counter()
        if not again or (deadline is not None and now + 2 * (now - began) > deadline):
            return found
        unsure = {owner for owner in unsure if self.tracing(owner)}
        if not unsure:
            return found
        doubtful = [place for place, owner in enumerate(owners) if int(owner) in unsure]
        some = None if constraints is None else [constraints[i] for i in doubtful]

        def onward(step: int, canvas: int, ids: np.ndarray, masked: np.ndarray) -> bool | None:
            return watch and watch(options.steps + step, doubtful[canvas], ids, masked)

        watched = None if watch is None else onward
        better = self._refine(
            owners[doubtful], keys[doubtful], options, some, deadline, watched, views, twice=True
        )
        for place, decoded in zip(doubtful, better, strict=True):
            found[place] = decoded
        return found

    def _refine(
        self,
        owners: np.ndarray,
        keys: np.ndarray,
        options: DecodeOptions,
        constraints: Sequence[Constraint] | None,
        deadline: float | None,
        watch: Watch | None,
        views: int,
        *,
        twice: bool = False,
    ) -> list[Decoded]:
        model = self.recognizer.checkpoint.model
        inks, places = np.unique(owners, return_inverse=True)
        memories = [self.view(v, inks.tolist()) for v in range(views)]
        if twice:
            memories.append(self.other(inks.tolist()))
        return decode(
            together([predictor(model, memory, places) for memory in memories]),
            keys,
            options,
            streams=len(self.recognizer.tokenizer.vocabularies),
            mask_id=MASK_ID,
            pad_id=PAD_ID,
            constraints=constraints,
            deadline=deadline,
            watch=watch,
        )


@dataclass(frozen=True)
class Encoded:
    """One input the model has looked at: ask it as often as you like."""

    looked: Looked
    index: int = 0

    @property
    def ink(self) -> Ink:
        """The strokes that were read."""
        return self.looked.inks[self.index]

    def decode(self, **options: Any) -> Result:
        """Answer one question about the input; the options are those of `Ask`."""
        return self.answer(Ask(**options), time.perf_counter())

    def answer(self, ask: Ask, began: float | None = None) -> Result:
        """The same for a ready question; time counts from `began` or from reading the input."""
        from gryphone.recognition.answer import answer

        return answer(self, ask, self.looked.began if began is None else began)


def load(path: Path | str | None = None, device: str = "cpu") -> Recognizer:
    """Load a recogniser from a checkpoint directory; without one, the weights of the package."""
    if path is None and not (WEIGHTS / "config.json").is_file():
        raise CheckpointError(
            f"this installation has no default weights ({WEIGHTS}); name a checkpoint directory, "
            "as in gryphone.load('runs/mine') or --weights runs/mine"
        )
    try:
        where = torch.device(device)
    except RuntimeError as error:  # which lists 20 kinds of devices
        raise CheckpointError(f"device {device!r} is unknown; use cpu, cuda or cuda:1") from error
    if where.type == "cuda" and not torch.cuda.is_available():
        raise CheckpointError(f"device {device!r} cannot be used: no CUDA device was found")
    checkpoint = load_checkpoint(WEIGHTS if path is None else path, where)
    if where.type == "cpu":
        prepack(checkpoint.model)
    return Recognizer(checkpoint)


__all__ = ["Ask", "Encoded", "Recognizer", "Step", "load", "read_inks"]
