"""The reverse process on a GPU: canvases, draws, constraints and answers stay there.

The same steps as `decoding`'s own loop takes in numpy, from the same draws. The host learns how
long the answers are after the first step, and the answers after the last one. Should a canvas have
been too short for what a later step wrote, that sample is refined again with the host watching.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gryphone.decoding import (
    LOWEST,
    Decoded,
    Looks,
    Request,
    Seen,
    canvas_for,
    reverse,
    unsure,
)
from gryphone.model import GryphOne, Memory, Packing, rows_of

SYMBOLS = 8  # of the likeliest ones of each place, read back for every answer at once


def refine_on_device(
    model: GryphOne, memories: Sequence[Memory], images: np.ndarray, request: Request
) -> list[Decoded]:
    """Refine a request's canvases by the mean of what all memories say of their images."""
    looker = Looker(model, memories, images)
    watched = request.watch is not None or request.deadline is not None
    state = DeviceCanvases(looker, request, watched)
    found = reverse(state, request)
    short = state.outgrown()
    if len(short):
        constraints = request.constraints
        again = replace(
            request,
            keys=request.keys[short],
            constraints=None if constraints is None else [constraints[b] for b in short],
        )
        some = DeviceCanvases(Looker(model, memories, images[short]), again, watched=True)
        for b, decoded in zip(short.tolist(), reverse(some, again), strict=True):
            found[b] = decoded
    return found


@dataclass(frozen=True)
class Layout:
    """Where the places of some canvases lie when they are packed."""

    samples: np.ndarray  # (A,) the canvases
    longest: int
    rows: Tensor  # (N,) of the A * longest places those inside a canvas
    index: Tensor  # (N,) their places
    inside: Tensor  # (A, longest)
    own: Packing
    memories: list[Memory]  # beside each canvas


class Looker:
    """The network's view of some canvases."""

    def __init__(self, model: GryphOne, memories: Sequence[Memory], images: np.ndarray) -> None:
        self.model, self.memories, self.images = model, memories, images
        self.device = memories[0].features.device

    def layout(self, samples: np.ndarray, lengths: np.ndarray) -> Layout:
        """Lay out some canvases of some lengths."""
        longest = int(lengths.max())
        inside = np.arange(longest) < lengths[:, None]
        rows, place = np.flatnonzero(inside), np.nonzero(inside)[1]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        numbers = self._put(np.concatenate([rows, place, offsets]))
        count = len(rows)
        own = Packing(
            numbers[2 * count :].to(torch.int32), longest, bool((lengths == longest).all())
        )
        images = self.images[samples]
        memories = list(self.memories)
        known = len(memories[0].rows.offsets) - 1
        if known > 1 and not np.array_equal(images, np.arange(known)):
            chosen = self._put(images)
            memories = [rows_of(memory, chosen) for memory in memories]
        return Layout(
            samples, longest, numbers[:count], numbers[count : 2 * count],
            self._put(inside), own, memories,
        )  # fmt: skip

    def look(self, layout: Layout, tokens: Tensor) -> list[Tensor]:
        """Log-probs [(A, longest, V) per stream] for canvases (A, longest, S); 0 outside them."""
        packed = tokens.flatten(0, 1)[layout.rows]
        looks = [
            [
                F.log_softmax(stream.float(), -1)
                for stream in self.model.decode(packed, layout.index, memory, layout.own)
            ]
            for memory in layout.memories
        ]
        out = []
        for streams in zip(*looks, strict=True):
            mean = streams[0]
            if len(streams) > 1:
                mean = F.log_softmax(torch.stack(streams).mean(0), -1)
            dense = mean.new_zeros(layout.inside.numel(), mean.shape[1])
            dense[layout.rows] = mean
            out.append(dense.unflatten(0, layout.inside.shape))
        return out

    def _put(self, numbers: np.ndarray) -> Tensor:
        return torch.from_numpy(numbers).to(self.device, non_blocking=True)


class DeviceCanvases:
    """The canvases of one batch on a GPU: `decoding.Canvases`."""

    def __init__(self, looker: Looker, request: Request, watched: bool) -> None:
        """`watched`: the host looks at every step; else it may not know of a widening in time."""
        r, o, size = request, request.options, len(request.keys)
        self.looker, self.request, self.options, self.watched = looker, r, o, watched
        device = looker.device
        shape = (size, o.length, r.streams)
        self.canvas = torch.full(shape, r.mask_id, device=device)  # what is fed
        self.ids = torch.full(shape, r.pad_id, device=device)  # what was predicted
        self.log_probs = torch.zeros(shape, device=device)
        self.grown = torch.zeros(size, dtype=torch.bool, device=device)
        self.lengths = np.full(size, o.start)
        self.steps = np.zeros(size, dtype=np.int64)
        self.active = np.arange(size)
        self.history = History(size)
        self.shown: Tensor | None = None
        self.allowed: list[Tensor] = []
        self._masks: tuple[int, Tensor, Tensor] | None = None
        self._layout: tuple[bytes, Layout] | None = None
        if r.constraints is not None:
            self._constrain()

    def _constrain(self) -> None:
        """Show what is known from the first step on, on canvases that hold it."""
        r, o, device = self.request, self.options, self.looker.device
        fixed = np.full(tuple(self.canvas.shape), r.mask_id)
        shown = np.zeros(fixed.shape[:2], dtype=bool)
        allowed = [
            np.ones((len(fixed), o.length, options.shape[1]), dtype=bool)
            for options in r.constraints[0].options  # type: ignore[index]
        ]
        for b, constraint in enumerate(r.constraints or ()):
            n = len(constraint.shown)
            self.lengths[b] = constraint.room(o, r.pad_id)
            fixed[b, :n] = constraint.fixed(r.mask_id)
            shown[b, :n] = constraint.shown
            for every, options in zip(allowed, constraint.options, strict=True):
                every[b, :n] = options
        self.canvas = torch.from_numpy(fixed).to(device)
        self.shown = torch.from_numpy(shown).to(device)
        self.allowed = [torch.from_numpy(every).to(device) for every in allowed]

    def open_canvases(self) -> None:
        options, todo = self.options, self.active
        while len(todo):
            self._predict(todo)
            symbols = self._symbols()
            last = symbols[todo, self.lengths[todo] - 1]
            widen = todo[(last != self.request.pad_id) & (self.lengths[todo] < options.length)]
            self.lengths[widen] = np.minimum(self.lengths[widen] * 2, options.length)
            todo = widen
        counts = self._counts(symbols)
        if options.start < options.length:
            for b, count in enumerate(counts):
                self.lengths[b] = min(self.lengths[b], canvas_for(count + 2, options.length))
        self._finish_step(self.active)
        if options.sure:
            sure, counts = self.log_probs.cpu().numpy(), [counts[b] for b in self.active]
            self.active = unsure(self.active, sure, counts, options.sure)

    def remask(self, t: int, total: int) -> None:
        share = self.options.share(t, total)
        some = self._some(self.active)
        if self.options.method == "diffusion" and self.options.remasking.from_left:
            ends = np.array(self._counts(self._symbols())) + 1  # read back: a study, no product
            shown = torch.from_numpy(np.round(ends * (1 - share))).to(self.looker.device)
            places = torch.arange(self.options.length, device=shown.device)
            masked = (places >= shown[some, None])[..., None]
        elif self.options.method == "diffusion":
            masks, keys = self._drawn(total)
            masked = masks[t][keys[some]]
        else:
            masked = self._least_sure(some, share, t)[..., None]
        if self.shown is not None:
            masked = masked & ~self.shown[some][..., None]
        self.canvas[some] = torch.where(masked, self.request.mask_id, self.ids[some])

    def _drawn(self, total: int) -> tuple[Tensor, Tensor]:
        """What each step masks by its draws, (T, keys, L, 1 or S), and each sample's key (B,)."""
        if self._masks is None or self._masks[0] != total:
            o, device = self.options, self.looker.device
            keys, place = np.unique(self.request.keys, return_inverse=True)
            uniform = np.stack([self.request.uniform(int(k)) for k in keys], 1)
            shares = np.array([o.share(t, total) for t in range(o.steps)])
            masks = uniform < shares[:, None, None, None]
            on_device = (torch.from_numpy(x).to(device) for x in (masks, place))
            self._masks = (total, *on_device)  # type: ignore[assignment]
        return self._masks[1:]  # type: ignore[index,return-value]

    def _least_sure(self, some: Tensor | slice, share: float, t: int) -> Tensor:
        """Mask-predict: the least probable places of each canvas."""
        lengths = torch.from_numpy(self.lengths).to(self.looker.device)[some, None]
        inside = torch.arange(self.options.length, device=lengths.device) < lengths
        sure = self.log_probs[some].sum(-1)
        if self.options.noise:
            keys = self.request.keys[self.active]
            drawn = np.stack([self.request.uniform(int(k))[t, :, 0] for k in keys])
            sure = sure + torch.from_numpy(self.options.blur(drawn)).to(sure)
        sure = sure.masked_fill(~inside, torch.inf)
        rank = sure.argsort(dim=-1, stable=True).argsort(-1)
        least: Tensor = rank < (lengths * share).long()
        return least

    def refine(self) -> None:
        r, active, some = self.request, self.active, self._some(self.active)
        if self.options.keeps_visible:
            before, before_log = self.ids[some].clone(), self.log_probs[some].clone()
        self._predict(active)
        if self.options.keeps_visible:
            kept = self.canvas[some] != r.mask_id
            self.ids[some] = torch.where(kept, before, self.ids[some])
            self.log_probs[some] = torch.where(kept, before_log, self.log_probs[some])
        if self.watched:
            self._widen(active)
        else:
            lengths = self._layout_of(active).own.offsets.diff().long()
            last = self.ids[some, :, 0].gather(1, lengths[:, None] - 1)[:, 0]
            self.grown[some] |= (last != r.pad_id) & (lengths < self.options.length)
        self._finish_step(active)

    def _widen(self, active: np.ndarray) -> None:
        """Give room to canvases that PAD does not close any more."""
        last = self._symbols()[active, self.lengths[active] - 1]
        for b in active[
            (last != self.request.pad_id) & (self.lengths[active] < self.options.length)
        ]:
            wider = canvas_for(int(self.lengths[b]), self.options.length)
            self.ids[b, self.lengths[b] : wider] = self.request.mask_id
            self.lengths[b] = wider

    def outgrown(self) -> np.ndarray:
        """The samples whose canvas became too short, unnoticed."""
        return np.flatnonzero(self.grown.cpu().numpy())

    def results(self) -> list[Decoded]:
        """All answers, read back at once."""
        longest = int(self.lengths.max())
        ids = self.ids[:, :longest].cpu().numpy()
        log_probs = self.log_probs[:, :longest].cpu().numpy()
        summary = Summary(self.history, self.ids[:, :longest])
        return [
            Decoded(
                ids[b, :n],
                log_probs[b, :n],
                int(self.steps[b]),
                OnDevice(summary, b, ids[b]),
            )
            for b, n in enumerate(self._counts(ids[:, :, 0]))
        ]

    def _layout_of(self, samples: np.ndarray) -> Layout:
        key = samples.tobytes() + self.lengths[samples].tobytes()
        if self._layout is None or self._layout[0] != key:
            self._layout = (key, self.looker.layout(samples, self.lengths[samples]))
        return self._layout[1]

    def _some(self, samples: np.ndarray) -> Tensor | slice:
        """An index of some samples; of all of them none is needed."""
        if len(samples) == len(self.lengths):
            return slice(None)
        return torch.from_numpy(samples).to(self.looker.device)

    def _predict(self, samples: np.ndarray) -> None:
        r, layout, some = self.request, self._layout_of(samples), self._some(samples)
        n = layout.longest
        tokens = self.canvas[some, :n]
        streams = self.looker.look(layout, tokens)
        self.ids[some, n:] = r.pad_id
        for s, log_probs in enumerate(streams):
            log_probs[..., r.mask_id] = -torch.inf  # MASK is an input, never an answer
            if self.allowed:
                log_probs.masked_fill_(~self.allowed[s][some, :n], -torch.inf)
            value, best = log_probs.max(-1)
            self.ids[some, :n, s] = torch.where(layout.inside, best, r.pad_id)
            self.log_probs[some, :n, s] = torch.where(layout.inside, value, 0.0)
        if self.options.keep:
            masked = (tokens == r.mask_id).any(-1) & layout.inside
            self.history.add(samples, self.lengths[samples], masked, streams)

    def _finish_step(self, samples: np.ndarray) -> None:
        self.steps[samples] += 1
        watch = self.request.watch
        if watch is None:
            return
        ids, fed = self.ids.cpu().numpy(), self.canvas.cpu().numpy()
        for b in samples:
            n = self.lengths[b]
            masked = (fed[b, :n] == self.request.mask_id).any(-1)
            if watch(int(self.steps[b]), int(b), ids[b, :n].copy(), masked):
                self.active = self.active[self.active != b]

    def _symbols(self) -> np.ndarray:
        """The symbols of all canvases, (B, L)."""
        return self.ids[:, : int(self.lengths.max()), 0].cpu().numpy()

    def _counts(self, symbols: np.ndarray) -> list[int]:
        """Tokens of each answer before the first PAD or never predicted place."""
        over = (symbols == self.request.pad_id) | (symbols == self.request.mask_id)
        over |= np.arange(symbols.shape[1]) >= self.lengths[:, None]
        counts: list[int] = np.where(over.any(1), over.argmax(1), symbols.shape[1]).tolist()
        return counts


class History:
    """What every step said, on the device."""

    def __init__(self, size: int) -> None:
        self.looks = np.zeros(size, dtype=np.int64)  # at each sample
        # Samples, which of its looks that is for each, masked (A, L), log-probs [(A, L, V)]
        self.steps: list[tuple[np.ndarray, np.ndarray, Tensor, list[Tensor]]] = []
        self.lengths: list[np.ndarray] = []  # of each step's canvases

    def add(
        self, samples: np.ndarray, lengths: np.ndarray, masked: Tensor, streams: list[Tensor]
    ) -> None:
        """Keep one step of some samples."""
        self.steps.append((samples, self.looks[samples], masked, streams))
        self.lengths.append(lengths)
        self.looks[samples] += 1

    def seen(self, sample: int) -> Seen:
        """The looks at one sample, read back."""
        out = Seen()
        for (samples, _, masked, streams), lengths in zip(self.steps, self.lengths, strict=True):
            for row in np.flatnonzero(samples == sample):
                n = lengths[row]
                out.add(masked[row, :n].cpu().numpy(), [x[row, :n].cpu().numpy() for x in streams])
        return out


class Summary:
    """What `Seen` works out, for all answers of a batch at once, and read back at once."""

    def __init__(self, history: History, ids: Tensor) -> None:
        self.history, self.ids = history, ids  # (B, L, S), what was answered

    @cached_property
    def log_probs(self) -> np.ndarray:
        """(B, L) of the answers while they were hidden."""
        size, length, _ = self.ids.shape
        total = torch.zeros(2, size, length, device=self.ids.device)
        count = torch.zeros_like(total)
        for samples, numbers, masked, streams in self.history.steps:
            late = self._put((2 * numbers >= self.history.looks[samples]).astype(np.int64))
            some, n = self._put(samples), min(length, masked.shape[1])
            wanted, hidden = self.ids[some, :n], masked[:, :n]
            seen = streams[0][:, :n].gather(2, wanted[:, :, :1])
            for s, stream in enumerate(streams[1:], 1):
                seen = seen + stream[:, :n].gather(2, wanted[:, :, s : s + 1])
            total[late, some, :n] += torch.where(hidden, seen[..., 0].clamp_min(LOWEST), 0.0)
            count[late, some, :n] += hidden
        part = (count[1] > 0).long()[None]
        mean = total.gather(0, part) / count.gather(0, part).clamp_min(1)
        found: np.ndarray = mean[0].double().cpu().numpy()
        return found

    @cached_property
    def symbols(self) -> tuple[np.ndarray, np.ndarray]:
        """Ids and log-probs (B, L, SYMBOLS) of the likeliest symbols of each place."""
        size, length, _ = self.ids.shape
        vocabulary = self.history.steps[-1][3][0].shape[2]
        total = torch.zeros(size, length, vocabulary, device=self.ids.device)
        last, count = torch.zeros_like(total), torch.zeros_like(total[..., 0])
        for samples, numbers, masked, streams in self.history.steps:
            late = self._put(numbers >= (self.history.looks[samples] + 1) // 2)
            some, n = self._put(samples), min(length, masked.shape[1])
            symbols, hidden = streams[0][:, :n], masked[:, :n] & late[:, None]
            last[some, :n] = symbols
            total[some, :n] += torch.where(hidden[..., None], symbols.exp(), 0.0)
            count[some, :n] += hidden
        mean = (total / count.clamp_min(1)[..., None] + 1e-12).log()
        mean = torch.where((count > 0)[..., None] & last.isfinite(), mean, last)
        best = mean.topk(min(SYMBOLS, vocabulary), -1)
        return best.indices.cpu().numpy(), best.values.cpu().numpy()

    def _put(self, numbers: np.ndarray) -> Tensor:
        return torch.from_numpy(numbers).to(self.ids.device, non_blocking=True)


class OnDevice(Looks):
    """The looks at one sample of a batch; what few answers need is worked out for them alone."""

    def __init__(self, summary: Summary, sample: int, ids: np.ndarray) -> None:
        self.summary, self.sample, self.ids = summary, sample, ids  # (L, S), what was answered

    @cached_property
    def _seen(self) -> Seen:
        return self.summary.history.seen(self.sample)

    def log_probs(self, answer: np.ndarray) -> np.ndarray:
        n = len(answer)
        if n <= len(self.ids) and np.array_equal(answer, self.ids[:n]):
            found: np.ndarray = self.summary.log_probs[self.sample, :n]
            return found
        return self._seen.log_probs(answer)

    def symbols(self, places: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        if count > SYMBOLS:
            return self._seen.symbols(places, count)
        ids, log_probs = self.summary.symbols
        return ids[self.sample, :places, :count], log_probs[self.sample, :places, :count]

    def distributions(self) -> list[np.ndarray]:
        return self._seen.distributions()
