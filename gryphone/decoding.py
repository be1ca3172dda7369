"""The reverse process: from an all-masked canvas to tokens, step by step.

Framework-free: the loop works on numpy token ids and a `predict` callable, so that every
backend and a test double share it. Random draws depend on the seed and the sample's key alone,
and every sample has a canvas of its own, so batch size and order never change an answer.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from gryphone.config import Remasking
from gryphone.errors import ConfigError

# (tokens (B, L, S), lengths (B,) of the canvases, samples (B,)) -> log-probs [(B, L, V) per stream]
Predict = Callable[[np.ndarray, np.ndarray, np.ndarray], list[np.ndarray]]
# (step, sample, ids (L, S) predicted, masked (L,) what was hidden from that step) -> True when
# nobody waits for that sample any more: it is not refined further
Watch = Callable[[int, int, np.ndarray, np.ndarray], bool | None]
LOWEST = -12.0  # log-probs below this say no more than "no"
CANVASES = (16, 24, 32, 48, 64, 96, 128)


def canvas_for(length: int, longest: int) -> int:
    """The smallest canvas that holds `length` tokens and a closing PAD."""
    return next((c for c in CANVASES if length < c <= longest), longest)


def first_canvas(longest: int, one_length: bool) -> int:
    """The canvas that decoding begins with: the longest where training had no other."""
    return longest if one_length else min(48, longest)


@dataclass(frozen=True)
class DecodeOptions:
    """How to decode.

    steps: refinement steps T. method: "diffusion" (random remasking, Algorithm 2 of the paper) or
    "mask-predict" (remask the least confident). length: the longest canvas. start: the first
    canvas, widened until PAD closes the answer; `length` switches cropping off. sure: what a first
    answer may lack in log-prob to be the last (0: never). keep: what every step said of each place.
    remasking: how "diffusion" masks again. noise: how much chance there is in what "mask-predict"
    takes for the least confident. begin: the t of T that a request with `first` canvases begins at.
    beam: hypotheses of a decoder that writes from left to right, which has no steps.
    """

    steps: int = 10
    method: str = "diffusion"
    seed: int = 0
    length: int = 150
    start: int = 48
    sure: float = 0.0
    keep: bool = False
    remasking: Remasking = field(default_factory=Remasking)
    noise: float = 0.0
    begin: int | None = None
    beam: int = 1

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ConfigError(f"steps is {self.steps}; it must be 1 or more")
        if self.method not in ("diffusion", "mask-predict"):
            raise ConfigError(
                f"method {self.method!r} is unknown; use 'diffusion' or 'mask-predict'"
            )
        if self.begin is not None and not 1 <= self.begin <= self.steps:
            raise ConfigError(f"begin is {self.begin}; it must be between 1 and steps={self.steps}")
        if not 1 <= self.start <= self.length:
            raise ConfigError(
                f"start is {self.start}; it must be between 1 and length={self.length}"
            )

    @property
    def keeps_visible(self) -> bool:
        """Whether a step leaves what it can see as it is."""
        return self.method == "mask-predict" or self.remasking.keep_visible

    def share(self, t: int, total: int) -> float:
        """The share of places that is masked before t more steps of `total`."""
        return t / (total - 1 if self.remasking.from_all else total)

    def blur(self, uniform: np.ndarray) -> np.ndarray:
        """What chance adds to log-probs: Gumbel noise, which at 1 draws places by their doubt."""
        if not self.noise:
            return np.zeros_like(uniform)
        gumbel: np.ndarray = -np.log(-np.log(np.clip(uniform, 1e-12, 1 - 1e-12)))
        return self.noise * gumbel


class Looks(Protocol):
    """What was said of one canvas while parts of it were hidden.

    A token that the model can see is copied with certainty, so only looks at a token while it was
    masked count, and late ones (of the second half of the steps) where there are any.
    """

    def log_probs(self, answer: np.ndarray) -> np.ndarray:
        """Mean log-prob (n,) of each token of an answer (n, S) while it was hidden.

        A token that was never hidden (the user gave it) is sure.
        """

    def symbols(self, places: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The likeliest symbols of each of the first places, ids and log-probs (places, count),
        best first."""

    def distributions(self) -> list[np.ndarray]:
        """The last distributions (canvas, V), replaced by the mean of the late looks at hidden
        tokens: the last step copies what it sees. What a constraint forbids stays forbidden."""


@dataclass(frozen=True)
class Decoded:
    """One sample's answer: ids (L, S), their log-probs (L, S), steps used, and how it came about.

    `passes` counts the decoder's: of all looks, and of those that were not the last ones too.
    """

    ids: np.ndarray
    log_probs: np.ndarray
    steps: int
    looks: Looks
    passes: int = 0


@dataclass(frozen=True)
class Constraint:
    """What one sample's answer must hold.

    options: per stream (n, V) bool, what each of the first n places may hold. shown: (n,) places
    that are known and never masked again, so that the others settle around them.
    """

    options: tuple[np.ndarray, ...]
    shown: np.ndarray

    def __post_init__(self) -> None:
        for options in self.options:
            empty = np.flatnonzero(~options.any(1))
            if len(empty):
                raise ConfigError(
                    f"nothing is allowed at position {empty[0]}; "
                    "loosen the lock, the hint or the allowed symbols"
                )

    def fixed(self, mask_id: int) -> np.ndarray:
        """Ids (n, S) of the places where every stream has one option; `mask_id` elsewhere."""
        ids = np.stack([o.argmax(1) for o in self.options], 1)
        sure = np.stack([o.sum(1) == 1 for o in self.options], 1).all(1)
        return np.where((sure & self.shown)[:, None], ids, mask_id)

    def broken(self, ids: np.ndarray, pad_id: int) -> list[int]:
        """The places where an answer (n, S) has something else than was asked for."""
        n = len(ids)  # an answer is never longer than the canvas that `options` describe
        wrong = ~self.options[0][:, pad_id]
        wrong[:n] = False
        for stream, options in enumerate(self.options):
            wrong[:n] |= ~options[np.arange(n), ids[:, stream]]
        return [int(place) for place in np.flatnonzero(wrong)]

    def room(self, options: DecodeOptions, pad_id: int) -> int:
        """The length of the first canvas that holds the shortest answer."""
        needed = np.flatnonzero(~self.options[0][:, pad_id])  # the places that cannot be PAD
        least = int(needed[-1]) + 1 if len(needed) else 0
        if least >= options.length or len(self.shown) > options.length:
            raise ConfigError(
                f"{max(least, len(self.shown))} tokens are asked for, "
                f"the canvas holds {options.length - 1}; shorten the hint"
            )
        return options.start if least < options.start else canvas_for(least + 2, options.length)


@dataclass(frozen=True)
class Request:
    """What to refine: one canvas of `streams` tokens a place for each key.

    keys (B,) name the samples; equal keys draw equal numbers. constraints: one for each canvas.
    deadline is a time.perf_counter() value: as many of the steps are taken as fit before it.
    first: what to begin with instead of nothing, (n, S) for each key, masked where it is unknown.
    """

    keys: np.ndarray
    options: DecodeOptions
    streams: int
    mask_id: int
    pad_id: int
    constraints: Sequence[Constraint] | None = None
    deadline: float | None = None
    watch: Watch | None = None
    first: Sequence[np.ndarray] | None = None

    def uniform(self, key: int) -> np.ndarray:
        """The draws (steps, length, S) of one key; (steps, length, 1) where streams share them."""
        o = self.options
        streams = self.streams if o.remasking.apart else 1
        return np.moveaxis(draws(o.seed, key, streams, o.steps, o.length), 0, -1)


Sampler = Callable[[Predict, Request], list[Decoded]]  # the reverse process of a kind of decoder


def run_key(run: int, name: str) -> int:
    """The key of one of several independent runs over a data set.

    The first has key 0, as every single question has; later ones have a key for each sample, or
    all samples would share the luck of one draw, and the runs' deviation would say nothing.
    """
    if run == 0:
        return 0
    digest = hashlib.blake2b(f"{run}:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def draws(seed: int, key: int, *shape: int) -> np.ndarray:
    """Uniform numbers, (..., steps, length), that decide what one sample remasks."""
    # As a plain list, numbers of 2**63 and more would be rounded to floats: many seeds, one draw.
    numbers = np.array([seed % 2**64, key % 2**64], dtype=np.uint64)
    generator = np.random.Generator(np.random.Philox(key=numbers))
    return generator.random(shape)


class Seen(Looks):
    """The looks at one canvas, kept step by step."""

    def __init__(self) -> None:
        self.steps: list[tuple[np.ndarray, list[np.ndarray]]] = []  # masked, log-probs by stream
        self._known: dict[bytes, np.ndarray] = {}

    def add(self, masked: np.ndarray, log_probs: list[np.ndarray]) -> None:
        """One step: what was masked (canvas,), and log-probs [(canvas, V) per stream]."""
        self.steps.append((masked, log_probs))
        self._known.clear()

    def log_probs(self, answer: np.ndarray) -> np.ndarray:
        key = answer.tobytes()  # asked for twice: to know whether to look again, and to weigh
        if key not in self._known:
            self._known[key] = self._log_probs(answer)
        return self._known[key]

    def _log_probs(self, answer: np.ndarray) -> np.ndarray:
        total, count = np.zeros((2, len(answer))), np.zeros((2, len(answer)))
        for number, (masked, streams) in enumerate(self.steps):
            n = min(len(answer), len(masked))
            places = np.arange(n)
            seen = sum(d[places, answer[:n, s]] for s, d in enumerate(streams))
            late = int(2 * number >= len(self.steps))
            total[late, :n] += np.where(masked[:n], np.maximum(seen, LOWEST), 0)
            count[late, :n] += masked[:n]
        part = np.where(count[1] > 0, 1, 0)
        rows = np.arange(len(answer))
        mean: np.ndarray = total[part, rows] / np.maximum(count[part, rows], 1)
        return mean

    def symbols(self, places: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        log_probs = self._mean(0, places)
        rows, ids, found = np.arange(len(log_probs)), [], []
        for _ in range(min(count, log_probs.shape[1])):  # sooner than to sort them all
            ids.append(log_probs.argmax(1))
            found.append(log_probs[rows, ids[-1]])
            log_probs[rows, ids[-1]] = -np.inf
        return np.stack(ids, 1), np.stack(found, 1)

    def distributions(self) -> list[np.ndarray]:
        return [self._mean(stream) for stream in range(len(self.steps[-1][1]))]

    def _mean(self, stream: int, places: int | None = None) -> np.ndarray:
        last = self.steps[-1][1][stream][:places]
        total, count = np.zeros(last.shape), np.zeros(len(last))
        for masked, streams in self.steps[(len(self.steps) + 1) // 2 :]:
            hidden = np.flatnonzero(masked[: len(last)])
            total[hidden] += np.exp(streams[stream][hidden])
            count[hidden] += 1
        mean = np.log(total / np.maximum(count, 1)[:, None] + 1e-12)
        seen = (count > 0)[:, None] & np.isfinite(last)
        return np.where(seen, mean, last)


class Canvases(Protocol):
    """The canvases of one batch while they are refined, wherever they lie."""

    active: np.ndarray  # those that are refined further

    def open_canvases(self) -> None:
        """First prediction; widen canvases that PAD does not close, then crop them to the need."""

    def remask(self, t: int, total: int) -> None:
        """Build the next input: keep predictions, mask some of them again."""

    def refine(self) -> None:
        """Predict all positions of the active samples, or the masked ones alone."""

    def results(self) -> list[Decoded]:
        """Answers cut at the first PAD, or at a place that a late widening left unpredicted."""


def decode(predict: Predict, request: Request) -> list[Decoded]:
    """Refine every canvas from all-masked to its answer."""
    return reverse(_State(predict, request), request)


def reverse(state: Canvases, request: Request) -> list[Decoded]:
    """The reverse process: as many steps as were asked for, or as there is time for."""
    options, deadline = request.options, request.deadline
    began = time.perf_counter()
    state.open_canvases()
    total = options.steps
    for t in range(options.begin or options.steps, 1, -1):
        if deadline is not None:
            now = time.perf_counter()
            spent = (now - began) / (options.steps - t + 1)  # per step so far
            # The time of one step stays in hand: steps vary, and the answer has to be read out.
            room = (deadline - now) / max(spent, 1e-9) - 1  # in steps; endless for a far deadline
            fits = max(0, int(min(room, options.steps)))
            if t == options.steps:
                total = min(total, 1 + fits)  # the whole schedule shrinks to what there is time for
            if t > total:
                continue
            if not fits:
                break
        if not len(state.active):
            break
        state.remask(t - 1, total)
        state.refine()
    return state.results()


def unsure(
    samples: np.ndarray, log_probs: np.ndarray, counts: Sequence[int], sure: float
) -> np.ndarray:
    """Those samples whose first answers, so many tokens each, lack more than allowed."""
    lacks = [-log_probs[b, :n].sum() for b, n in zip(samples, counts, strict=True)]
    return samples[np.array(lacks, dtype=float) > sure] if sure else samples


class _State:
    """The canvases of one batch while they are refined."""

    def __init__(self, predict: Predict, request: Request) -> None:
        r, o, size = request, request.options, len(request.keys)
        self.predict, self.options, self.mask_id, self.pad_id = predict, o, r.mask_id, r.pad_id
        self.constraints, self.watch = r.constraints, r.watch
        self.uniform = np.stack([r.uniform(int(k)) for k in r.keys])  # (B, T, L, 1 or S)
        self.canvas = np.full((size, o.length, r.streams), r.mask_id, dtype=np.int64)  # what is fed
        self.ids = np.full_like(self.canvas, r.pad_id)  # what was predicted
        self.log_probs = np.zeros(self.canvas.shape, dtype=np.float32)
        self.lengths = np.full(size, o.start)
        self.steps = np.zeros(size, dtype=np.int64)
        self.active = np.arange(size)
        self.looks = [Seen() for _ in range(size)]
        self.shown = np.zeros((size, o.length), dtype=bool)
        for b, constraint in enumerate(r.constraints or ()):
            self._constrain(b, constraint)
        for b, known in enumerate(r.first or ()):
            self.canvas[b] = r.pad_id
            self.canvas[b, : len(known)] = known
            self.lengths[b] = max(o.start, canvas_for(len(known), o.length))

    def _constrain(self, b: int, constraint: Constraint) -> None:
        """Show what is known from the first step on, on a canvas that holds it."""
        self.lengths[b] = constraint.room(self.options, self.pad_id)
        fixed = constraint.fixed(self.mask_id)
        self.canvas[b, : len(fixed)] = fixed
        self.shown[b, : len(fixed)] = constraint.shown

    def open_canvases(self) -> None:
        options, todo = self.options, self.active
        while len(todo):
            self._predict(todo)
            open_ends = self._last(todo) != self.pad_id
            widen = todo[open_ends & (self.lengths[todo] < options.length)]
            self.lengths[widen] = np.minimum(self.lengths[widen] * 2, options.length)
            todo = widen
        if options.keeps_visible:
            self.ids = np.where(self.canvas == self.mask_id, self.ids, self.canvas)
        if options.start < options.length:
            for b in self.active:
                self.lengths[b] = min(
                    self.lengths[b], canvas_for(self._count(int(b)) + 2, options.length)
                )
        self._finish_step(self.active)
        counts = [self._count(int(b)) for b in self.active]
        self.active = unsure(self.active, self.log_probs, counts, options.sure)

    def remask(self, t: int, total: int) -> None:
        active, share = self.active, self.options.share(t, total)
        if self.options.method == "diffusion" and self.options.remasking.from_left:
            ends = np.array([self._count(int(b)) + 1 for b in active])  # with the closing PAD
            shown = np.round(ends * (1 - share))
            masked = (np.arange(self.options.length) >= shown[:, None])[..., None]
        elif self.options.method == "diffusion":
            masked = self.uniform[active, t] < share  # (A, L, 1 or S)
        else:
            masked = np.zeros((len(active), self.options.length, 1), dtype=bool)
            for row, b in enumerate(active):
                n = self.lengths[b]
                sure = self.log_probs[b, :n].sum(-1) + self.options.blur(self.uniform[b, t, :n, 0])
                worst = np.argsort(sure, kind="stable")
                masked[row, worst[: int(n * share)]] = True
        masked &= ~self.shown[active, :, None]
        self.canvas[active] = np.where(masked, self.mask_id, self.ids[active])

    def refine(self) -> None:
        active = self.active
        before, before_log = self.ids[active].copy(), self.log_probs[active].copy()
        self._predict(active)
        if self.options.keeps_visible:
            kept = self.canvas[active] != self.mask_id
            self.ids[active] = np.where(kept, before, self.ids[active])
            self.log_probs[active] = np.where(kept, before_log, self.log_probs[active])
        open_ends = (self._last(active) != self.pad_id) & (
            self.lengths[active] < self.options.length
        )
        for b in active[open_ends]:
            wider = canvas_for(int(self.lengths[b]), self.options.length)
            self.ids[b, self.lengths[b] : wider] = self.mask_id
            self.lengths[b] = wider
        self._finish_step(active)

    def results(self) -> list[Decoded]:
        out = []
        for b in range(len(self.ids)):
            n = self._count(b)
            out.append(
                Decoded(
                    self.ids[b, :n].copy(),
                    self.log_probs[b, :n].copy(),
                    int(self.steps[b]),
                    self.looks[b],
                )
            )
        return out

    def _predict(self, samples: np.ndarray) -> None:
        """Fill ids and log-probs of the given samples with the most probable tokens."""
        longest = int(self.lengths[samples].max())
        streams = self.predict(self.canvas[samples, :longest], self.lengths[samples], samples)
        inside = np.arange(longest) < self.lengths[samples, None]  # (A, longest)
        free = []
        for s, log_probs in enumerate(streams):
            log_probs = log_probs.copy()
            log_probs[..., self.mask_id] = -np.inf  # MASK is an input, never an answer
            if self.constraints is not None:
                for row, b in enumerate(samples):
                    options = self.constraints[b].options[s][:longest]
                    log_probs[row, : len(options)][~options] = -np.inf
            best, value = log_probs.argmax(-1), log_probs.max(-1)
            self.ids[samples, :longest, s] = np.where(inside, best, self.pad_id)
            self.log_probs[samples, :longest, s] = np.where(inside, value, 0)
            free.append(log_probs)
        self.ids[samples, longest:] = self.pad_id
        if self.options.keep:
            for row, b in enumerate(samples):
                n = self.lengths[b]
                masked = (self.canvas[b, :n] == self.mask_id).any(-1)
                self.looks[b].add(masked, [x[row, :n] for x in free])

    def _finish_step(self, samples: np.ndarray) -> None:
        self.steps[samples] += 1
        if self.watch is not None:
            for b in samples:
                n = self.lengths[b]
                masked = (self.canvas[b, :n] == self.mask_id).any(-1)
                if self.watch(int(self.steps[b]), int(b), self.ids[b, :n].copy(), masked):
                    self.active = self.active[self.active != b]

    def _last(self, samples: np.ndarray) -> np.ndarray:
        """The symbol in the last place of each canvas."""
        last: np.ndarray = self.ids[samples, self.lengths[samples] - 1, 0]
        return last

    def _count(self, b: int) -> int:
        """Tokens before the first PAD or never predicted place."""
        symbols = self.ids[b, : self.lengths[b], 0]
        ends = np.flatnonzero((symbols == self.pad_id) | (symbols == self.mask_id))
        return int(ends[0]) if len(ends) else len(symbols)
