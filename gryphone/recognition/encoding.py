"""What the network sees of inputs: a first look, turned views of it, and a second look in doubt.

Where the first look leaves doubt, the network looks at another tracing too: of a picture, which is
traced twice, less smoothed the second time; of pen ink, drawn on paper and traced. All canvases of
such an input are refined once more, by the mean of what both looks say.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from gryphone.checkpoint import Checkpoint
from gryphone.config import Canvas
from gryphone.decoding import Constraint, Decoded, DecodeOptions, Request, Sampler, Watch
from gryphone.errors import InkError
from gryphone.ink import LONGEST_STROKES, Stroke, condensed, typical_stroke
from gryphone.kinds import part_of
from gryphone.reading.inputs import Input
from gryphone.recognition.backend import Backend, View
from gryphone.recognition.confidence import hidden_log_probs
from gryphone.recognition.grammar import Grammar
from gryphone.recognition.question import Ask
from gryphone.tokens import MASK_ID, PAD_ID, Tokenizer

# Looks at one ink; `Ask.views` takes the first few.
VIEWS = (View(), View(0.87, 0.03), View(1.15, -0.03), View(1.0, 0.05), View(1.0, -0.05))
OTHER_TRACING = -1
# Log-prob that an answer may lack before another tracing is looked at: of a picture, where the
# first may have lost ink, and of pen ink, where only real doubt is worth it. Half of the validation
# scans and four of five inks lack less.
DOUBT_ABOUT_PICTURE = 0.05
DOUBT_ABOUT_INK = 0.3
PAPER = Canvas("stroke", 1024, stroke=48.0)
PEN = 3.0  # pixels: a pen's line of one pixel and its two neighbours


@dataclass(frozen=True)
class Network:
    """A checkpoint and the backend that computes with it."""

    checkpoint: Checkpoint
    backend: Backend

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabularies the checkpoint was trained with."""
        return self.checkpoint.tokenizer

    @cached_property
    def grammar(self) -> Grammar:
        """The search for the best well-formed answer, built once for the vocabularies."""
        return Grammar(self.tokenizer)

    @cached_property
    def sampler(self) -> Sampler:
        """The reverse process of the decoder's kind."""
        sampler: Sampler = part_of(self.checkpoint.config.kind, "sampler")
        return sampler

    def request(
        self,
        ask: Ask,
        keys: np.ndarray,
        constraints: Sequence[Constraint] | None = None,
        deadline: float | None = None,
        watch: Watch | None = None,
    ) -> Request:
        """Canvases to refine as a question wants it, one for each key."""
        length = self.checkpoint.config.length
        options = DecodeOptions(
            steps=ask.total_steps,
            method=ask.method,
            seed=ask.seed,
            length=length,
            start=min(48, length),
            keep=True,
        )
        streams = len(self.tokenizer.vocabularies)
        return Request(keys, options, streams, MASK_ID, PAD_ID, constraints, deadline, watch)


@dataclass(frozen=True)
class EncodedBatch:
    """Inputs, and what the network saw of them."""

    network: Network
    inputs: Sequence[Input]
    strokes: list[list[Stroke]]  # of each input, as training saw ink
    memory: Any
    # What was looked at or traced in doubt, kept for the next question.
    memories: dict[tuple[int, ...], Any] = field(default_factory=dict, repr=False)
    tracings: dict[int, tuple[Stroke, ...]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, network: Network, inputs: Sequence[Input]) -> EncodedBatch:
        """Look at inputs, at the precision of ink that the weights were trained with."""
        precision = network.checkpoint.config.ink_precision
        strokes = condensed([each.ink.strokes for each in inputs], precision)
        return cls(network, inputs, strokes, network.backend.encode(strokes))

    def memory_of(self, look: int, inputs: Sequence[int]) -> Any:
        """The memory of some of the inputs in one of the VIEWS, or in their OTHER_TRACING."""
        network, key = self.network, (look, *inputs)
        if look == 0:
            return network.backend.select(self.memory, inputs)
        if key not in self.memories:
            strokes, view = [self.strokes[i] for i in inputs], VIEWS[max(look, 0)]
            if look == OTHER_TRACING:
                tracings = [self.tracing(i) for i in inputs]
                strokes = condensed(tracings, network.checkpoint.config.ink_precision)
            self.memories[key] = network.backend.encode(strokes, view)
        return self.memories[key]

    def tracing(self, number: int) -> tuple[Stroke, ...]:
        """Another tracing of one of the inputs; nothing where there is none."""
        if number not in self.tracings:
            given = self.inputs[number]
            self.tracings[number] = given.retraced or redrawn(given.ink.strokes)
        return self.tracings[number]

    def is_doubtful(self, number: int, decoded: Decoded) -> bool:
        """Whether an answer leaves so much doubt that another tracing should be looked at."""
        most = DOUBT_ABOUT_PICTURE if self.inputs[number].retraced else DOUBT_ABOUT_INK
        return bool(-hidden_log_probs(decoded.ids, decoded).sum() > most)

    def decode(
        self, owners: np.ndarray, request: Request, *, views: int = 1, again: bool = True
    ) -> list[Decoded]:
        """Refine the request's canvases; `owners` (B,) name the input of each.

        Where that leaves doubt about an input, all its canvases are refined `again` with another
        tracing of it in view as well, unless `watch` or the deadline stopped it. The steps of that
        count on behind those of the first look.
        """
        began = time.perf_counter()
        found = self._refine(owners, request, views)
        if not again:
            return found
        now = time.perf_counter()
        if request.deadline is not None and now + 2 * (now - began) > request.deadline:
            return found
        unsure = {
            int(owner)
            for owner, decoded in zip(owners, found, strict=True)
            if decoded.steps == request.options.steps and self.is_doubtful(int(owner), decoded)
        }
        unsure = {owner for owner in unsure if self.tracing(owner)}
        doubtful = [place for place, owner in enumerate(owners) if int(owner) in unsure]
        if not doubtful:
            return found
        onward = _onward(request, doubtful)
        better = self._refine(owners[doubtful], onward, views, both_tracings=True)
        for place, decoded in zip(doubtful, better, strict=True):
            found[place] = decoded
        return found

    def _refine(
        self, owners: np.ndarray, request: Request, views: int, *, both_tracings: bool = False
    ) -> list[Decoded]:
        inputs, places = np.unique(owners, return_inverse=True)
        looks = [*range(views), OTHER_TRACING][: views + both_tracings]
        memories = [self.memory_of(look, inputs.tolist()) for look in looks]
        backend = self.network.backend

        def predict(
            tokens: np.ndarray, lengths: np.ndarray, samples: np.ndarray
        ) -> list[np.ndarray]:
            images = places[samples]
            return mean_of([backend.predict(m, tokens, lengths, images) for m in memories])

        return self.network.sampler(predict, request)


def mean_of(looks: Sequence[list[np.ndarray]]) -> list[np.ndarray]:
    """The mean of several looks' log-probs, normalised, for each stream."""
    if len(looks) == 1:
        return looks[0]
    means = [np.mean(streams, 0) for streams in zip(*looks, strict=True)]
    return [m - np.logaddexp.reduce(m, -1, keepdims=True) for m in means]


def _onward(request: Request, places: Sequence[int]) -> Request:
    """The same for some of a request's canvases, whose steps count on."""
    constraints, watch = request.constraints, request.watch

    def onward(step: int, canvas: int, ids: np.ndarray, masked: np.ndarray) -> bool | None:
        return watch and watch(request.options.steps + step, places[canvas], ids, masked)

    return replace(
        request,
        keys=request.keys[places],
        constraints=None if constraints is None else [constraints[i] for i in places],
        watch=None if watch is None else onward,
    )


def redrawn(strokes: Sequence[Stroke]) -> tuple[Stroke, ...]:
    """What a tracing finds of strokes that are drawn on paper; nothing where it gives up."""
    from gryphone.photo.binarize import grown
    from gryphone.photo.trace import trace  # not before there is doubt

    try:
        return tuple(trace(grown(np.pad(on_paper(strokes), 2)), PEN))
    except InkError:
        return ()


def scale_on(canvas: Canvas, strokes: Sequence[Any]) -> Any:
    """Pixels per unit of one ink on a canvas, as `raster.fit` has it; in its own number type."""
    points = np.concatenate(strokes)
    number = points.dtype.type
    extent = np.ptp(points, axis=0)
    longest = np.maximum(extent.max(), number(1e-12))
    if canvas.kind == "square":
        return number(canvas.side - 1) / longest
    effective = np.maximum(extent, longest / number(canvas.max_aspect))
    scale = number(canvas.side) / np.sqrt(effective.prod())
    if canvas.kind == "stroke":
        typical = np.maximum(number(typical_stroke(strokes)), longest / number(LONGEST_STROKES))
        scale = np.minimum(scale, number(canvas.stroke) / typical)
    return scale


def on_paper(strokes: Sequence[Stroke]) -> np.ndarray:
    """Strokes one pixel wide, (H, W) bool, as `raster.draw` draws them, but for one ink."""
    lines = [stroke.astype(np.float32) for stroke in strokes]
    points, scale = np.concatenate(lines), scale_on(PAPER, lines)
    pixels = np.ptp(points, axis=0) * scale + 1
    width, height = (np.ceil(pixels / PAPER.patch).clip(1) * PAPER.patch).astype(int)
    ends = (points - points.min(0)) * scale + np.float32(0.5)
    firsts = np.cumsum([0, *map(len, lines[:-1])])
    starts = np.roll(ends, 1, axis=0)
    starts[firsts] = ends[firsts]
    steps = np.ceil(np.abs(ends - starts).max(1)).clip(1).astype(np.int64)
    owner = np.repeat(np.arange(len(steps)), steps + 1)
    k = np.arange(len(owner)) - (np.cumsum(steps + 1) - (steps + 1))[owner]
    along = (k.astype(np.float32) / steps[owner].astype(np.float32))[:, None]
    column, row = np.floor(starts[owner] + (ends - starts)[owner] * along).astype(int).T
    sheet = np.zeros((height, width), dtype=bool)
    sheet[row.clip(0, height - 1), column.clip(0, width - 1)] = True
    return sheet
