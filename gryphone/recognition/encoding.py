"""What the network sees of inputs: a first look, turned views of it, and a second look in doubt.

Where the first look leaves doubt, the network looks at another tracing too: of a picture, which is
traced twice, less smoothed the second time; of pen ink, drawn on paper and traced. All canvases of
such an input are refined once more, by the mean of what both looks say.

With `steps="auto"` the first look is one step. Where the model is sure of all that it wrote there,
more steps change nothing, and that is the answer. The others are looked at in both ways at once;
where one step of that leaves no doubt, it is the answer, and else all steps are taken.

Last, which strokes became which token: what its patches say, and where the decoder looked.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from gryphone.checkpoint import Checkpoint
from gryphone.config import Canvas
from gryphone.decoding import (
    Constraint,
    Decoded,
    DecodeOptions,
    Request,
    Sampler,
    Watch,
    first_canvas,
)
from gryphone.errors import ConfigError, InkError
from gryphone.ink import Stroke, condensed
from gryphone.kinds import part_of
from gryphone.reading.inputs import Input
from gryphone.recognition.backend import Backend, View
from gryphone.recognition.drawing import pixels_of
from gryphone.recognition.grammar import Grammar
from gryphone.recognition.lone import LoneReader
from gryphone.recognition.question import Ask
from gryphone.tokens import EMPTY, MASK_ID, PAD_ID, Tokenizer

# Looks at one ink; `Ask.views` takes the first few.
VIEWS = (View(), View(0.87, 0.03), View(1.15, -0.03), View(1.0, 0.05), View(1.0, -0.05))
OTHER_TRACING = -1
# Log-prob that an answer may lack before another tracing is looked at: of a picture, where the
# first may have lost ink, and of pen ink, where only real doubt is worth it. Half of the validation
# scans and four of five inks lack less.
DOUBT_ABOUT_PICTURE = 0.05
DOUBT_ABOUT_INK = 0.3
# The same after one step, where steps are taken as they are needed (docs/auto-steps.md has the
# curve): by one look, and by two.
SURE, BOTH_SURE = 0.3, 0.7
PAPER = Canvas("stroke", 1024, stroke=48.0)
PEN, MARGIN = 3.0, 3  # pixels: a pen's line of one pixel and its two neighbours, and paper around
INKLESS = (EMPTY, "&", r"\\")
NO_INK = (r"\begin", r"\end")
# Mean log-score of its pixels' best tokens below which a stroke is read as none of them
# (docs/recognition.md has what other limits bring).
UNREAD = -4.0


@dataclass(frozen=True)
class Network:
    """A checkpoint and the backend that computes with it."""

    checkpoint: Checkpoint
    backend: Backend
    lone: LoneReader | None = field(default=None, repr=False)  # a second opinion on single symbols

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabularies the checkpoint was trained with."""
        return self.checkpoint.tokenizer

    @cached_property
    def grammar(self) -> Grammar:
        """The search for the best well-formed answer, built once for the vocabularies."""
        return Grammar(self.tokenizer)

    @cached_property
    def read_alone(self) -> np.ndarray:
        """The reader's number (V,) for each symbol of the vocabulary, -1 for those it lacks."""
        known = {name: i for i, name in enumerate(self.lone.symbols if self.lone else ())}
        return np.array([known.get(name, -1) for name in self.tokenizer.vocabularies[0].tokens])

    @property
    def is_symbolwise(self) -> bool:
        """Whether answers are refined all at once, and a token is a symbol with its structure."""
        return self.checkpoint.config.kind == "diffusion" and self.tokenizer.scheme == "sat"

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
        config = self.checkpoint.config
        check_fit(config.kind, ask)
        options = DecodeOptions(
            steps=ask.total_steps,
            method=ask.method,
            seed=ask.seed,
            length=config.length,
            start=first_canvas(config.length, config.dense),
            keep=True,
            remasking=ask.remasking or config.remasking,
            beam=ask.beam,
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
    seconds: float = 0.0  # that looking at one of them took
    # What was looked at or traced in doubt, kept for the next question.
    memories: dict[tuple[int, ...], Any] = field(default_factory=dict, repr=False)
    tracings: dict[int, list[Stroke]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, network: Network, inputs: Sequence[Input]) -> EncodedBatch:
        """Look at inputs, at the precision of ink that the weights were trained with."""
        precision = network.checkpoint.config.ink_precision
        began = time.perf_counter()
        strokes = condensed([each.ink.strokes for each in inputs], precision)
        memory = network.backend.encode(strokes)
        seconds = (time.perf_counter() - began) / max(1, len(inputs))
        return cls(network, inputs, strokes, memory, seconds)

    def memory_of(self, look: int, inputs: Sequence[int]) -> Any:
        """The memory of some of the inputs in one of the VIEWS, or in their OTHER_TRACING."""
        network, key = self.network, (look, *inputs)
        if look == 0:
            return network.backend.select(self.memory, inputs)
        if key not in self.memories:
            self.trace(inputs if look == OTHER_TRACING else ())
            strokes = self.tracings if look == OTHER_TRACING else self.strokes
            view = VIEWS[max(look, 0)]
            self.memories[key] = network.backend.encode([strokes[i] for i in inputs], view)
        return self.memories[key]

    def trace(self, inputs: Iterable[int]) -> None:
        """Get another tracing of each of some inputs; nothing where there is none."""
        todo = [i for i in inputs if i not in self.tracings]
        found = {i: self.inputs[i].retraced for i in todo}
        if pen := [i for i in todo if not found[i]]:
            again = redrawn([self.inputs[i].ink.strokes for i in pen])
            found.update(zip(pen, again, strict=True))
        self.tracings.update((i, []) for i in todo)
        if some := [i for i in todo if found[i]]:
            precision = self.network.checkpoint.config.ink_precision
            strokes = condensed([found[i] for i in some], precision)
            self.tracings.update(zip(some, strokes, strict=True))

    @cached_property
    def nothing(self) -> list[np.ndarray]:
        """How likely each stroke (strokes,) of each input is no symbol's: struck out, say."""
        found = self.network.backend.nothing(self.memory)
        return [np.zeros(len(strokes)) for strokes in self.strokes] if found is None else found

    def doubt_about(self, decoded: Decoded) -> float:
        """The log-prob that an answer lacks in the looks at it while it was hidden."""
        return -float(decoded.looks.log_probs(decoded.ids).sum())

    def decode(
        self, owners: np.ndarray, request: Request, *, views: int = 1, auto: bool = False
    ) -> list[Decoded]:
        """Refine the request's canvases; `owners` (B,) name the input of each.

        Where that leaves doubt about an input, all its canvases are refined again with another
        tracing of it in view as well, unless `watch` or the deadline stopped it. The steps of that
        count on behind those of the first look. With `auto`, the first look takes one step only.
        """
        if self.network.checkpoint.config.kind != "diffusion":
            return self.refine(owners, request, views)  # no steps to take, and thresholds of others
        began, steps = time.perf_counter(), 1 if auto else request.options.steps
        stopped: set[int] = set()
        first = _noting(request, steps, stopped)
        sure = replace(request.options, sure=BOTH_SURE if auto else 0.0)
        found = self.refine(owners, first, views)
        now = time.perf_counter()
        # A second look costs what the first did, a tracing (half as much again), and both of them
        # at every step.
        needed = 1.5 * self.seconds + 2 * (now - began)
        if request.deadline is not None and now + needed > request.deadline:
            return found
        unsure = {
            int(owner)
            for place, (owner, decoded) in enumerate(zip(owners, found, strict=True))
            if decoded.steps == steps
            and place not in stopped
            and self.doubt_about(decoded) > (SURE if auto else self._most(int(owner)))
        }
        self.trace(unsure)
        traced = {owner for owner in unsure if self.tracings[owner]}
        for some, both in ((traced, True), (unsure - traced, False)):
            known = enumerate(owners.tolist())
            places = [p for p, owner in known if owner in some and p not in stopped]
            if places and (both or auto):
                onward = _onward(replace(request, options=sure), places)
                better = self.refine(owners[places], onward, views, both_tracings=both)
                for place, decoded in zip(places, better, strict=True):
                    passes = found[place].passes + decoded.passes
                    found[place] = replace(decoded, passes=passes)
        return found

    def _most(self, number: int) -> float:
        """The doubt about one of the inputs that calls for a second look at it."""
        return DOUBT_ABOUT_PICTURE if self.inputs[number].retraced else DOUBT_ABOUT_INK

    def refine(
        self, owners: np.ndarray, request: Request, views: int = 1, *, both_tracings: bool = False
    ) -> list[Decoded]:
        """Refine canvases by one look, or by the mean of several; nothing is done again."""
        inputs, places = np.unique(owners, return_inverse=True)
        looks = [*range(views), OTHER_TRACING][: views + both_tracings]
        memories = [self.memory_of(look, inputs.tolist()) for look in looks]
        backend = self.network.backend
        refined = backend.refine(memories, places, request)
        if refined is not None:
            return [replace(d, passes=d.steps * len(looks)) for d in refined]

        def predict(
            tokens: np.ndarray, lengths: np.ndarray, samples: np.ndarray
        ) -> list[np.ndarray]:
            images = places[samples]
            return mean_of([backend.predict(m, tokens, lengths, images) for m in memories])

        found = self.network.sampler(predict, request)
        return [replace(d, passes=d.steps * len(looks)) for d in found]


def check_fit(kind: str, ask: Ask) -> None:
    """Refuse what a kind of decoder cannot do."""
    if kind == "diffusion":
        asked = {"a beam": ask.beam > 1}
    else:
        known = "lock, hint, remask, given or allowed"
        asked = {known: ask.constrained, f"method {ask.method!r}": ask.method != "diffusion"}
        asked |= {"another remasking": ask.remasking is not None, "as_written": ask.as_written}
    for what, wanted in asked.items():
        if wanted:
            raise ConfigError(f"weights of kind {kind!r} do not take {what}; leave it out")


def mean_of(looks: Sequence[list[np.ndarray]]) -> list[np.ndarray]:
    """The mean of several looks' log-probs, normalised, for each stream."""
    if len(looks) == 1:
        return looks[0]
    means = [np.mean(streams, 0) for streams in zip(*looks, strict=True)]
    lower = [mean - mean.max(-1, keepdims=True) for mean in means]
    return [m - np.log(np.exp(m).sum(-1, keepdims=True)) for m in lower]


def _noting(request: Request, steps: int, stopped: set[int]) -> Request:
    """The same with so many steps, and with a note of the canvases that `watch` stops."""
    watch = request.watch

    def noting(step: int, canvas: int, ids: np.ndarray, masked: np.ndarray) -> bool:
        done = bool(watch and watch(step, canvas, ids, masked))
        stopped.update([canvas] * done)
        return done

    options = replace(request.options, steps=steps)
    return replace(request, options=options, watch=None if watch is None else noting)


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


def redrawn(inks: Sequence[Sequence[Stroke]]) -> list[tuple[Stroke, ...]]:
    """What a tracing finds of inks that are drawn on paper; nothing where it gives up."""
    from gryphone.photo.binarize import grown
    from gryphone.photo.trace import Followed, followed, strokes_of  # not before there is doubt

    pages: dict[int, Followed] = {}
    for number, strokes in enumerate(inks):
        with suppress(InkError):
            pages[number] = followed(grown(on_paper(strokes)), PEN)
    found = dict(zip(pages, strokes_of([*pages.values()], PEN), strict=True))
    return [tuple(found.get(number, ())) for number in range(len(inks))]


def on_paper(strokes: Sequence[Stroke]) -> np.ndarray:
    """Strokes one pixel wide, (H, W) bool, with room for a broader pen."""
    row, column, _, (height, width) = pixels_of(strokes, PAPER)
    sheet = np.zeros((height + 2 * MARGIN, width + 2 * MARGIN), dtype=bool)
    sheet[row + MARGIN, column + MARGIN] = True
    return sheet


def strokes_of(
    batch: EncodedBatch, places: Sequence[int], answers: Sequence[np.ndarray]
) -> list[list[tuple[int, ...]]]:
    """The strokes that became each token of answers about inks: one more look of the decoder."""
    backend, length = batch.network.backend, batch.network.checkpoint.config.length
    nothing: list[list[tuple[int, ...]]] = [[()] * len(ids) for ids in answers]
    if not answers:
        return nothing
    canvases = []
    for ids in answers:
        room = min(length - len(ids), 1)
        canvases.append(np.concatenate([ids, np.full((room, ids.shape[1]), PAD_ID)]))
    seen = backend.evidence(backend.select(batch.memory, list(places)), canvases)
    if seen is None:
        return nothing
    inky = _inky(batch.network.tokenizer.vocabularies[0].tokens)
    found = []
    for ids, evidence in zip(answers, seen, strict=True):
        own: list[list[int]] = [[] for _ in ids]
        votes, best = evidence[:, : len(ids)], evidence[:, -1]
        for stroke, token in enumerate(assign(votes, inky[ids[:, 0]], best >= UNREAD)):
            if token >= 0:
                own[token].append(stroke)
        found.append([tuple(some) for some in own])
    return found


@cache
def _inky(names: tuple[str, ...]) -> np.ndarray:
    """Which symbols have ink at all."""
    return np.array([n not in INKLESS and not n.startswith(NO_INK) for n in names])


def assign(votes: np.ndarray, writes: np.ndarray, read: np.ndarray) -> list[int]:
    """The token of each stroke, -1 for none: the one that its pixels speak for.

    votes (strokes, n) say how much a stroke speaks for each token, writes (n,) which tokens have
    ink at all. A token that is left without a stroke takes the one that speaks for it most, if
    its owner has another. A stroke that is not `read` (strokes,) is no token's that has others.
    """
    if not writes.any():
        return [-1] * len(votes)
    votes = np.where(writes, votes, -np.inf)
    owner: list[int] = votes.argmax(1).tolist()
    for token in np.flatnonzero(writes).tolist():
        if token in owner:
            continue
        gain = votes[:, token] - votes.max(1)
        for stroke in np.argsort(-gain, kind="stable").tolist():
            if owner.count(owner[stroke]) > 1:
                owner[stroke] = token
                break
    known = {token for token, good in zip(owner, read, strict=True) if good}
    return [-1 if token in known and not r else token for token, r in zip(owner, read, strict=True)]
