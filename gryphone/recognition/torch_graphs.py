"""One ink on a GPU: encoder, steps and what confidence needs as CUDA graphs.

A single formula is so little work that starting its kernels one by one takes ten times as long as
they run. Shapes come from a few buckets (patches, canvas); the first ink of a bucket records its
graph. Patches are filled up to their bucket by a second, empty image that nobody asks about.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gryphone.config import ModelConfig, Remasking
from gryphone.decoding import (
    CANVASES,
    LOWEST,
    Decoded,
    Looks,
    Request,
    Seen,
    canvas_for,
    draws,
    unsure,
)
from gryphone.model import GryphOne, Memory, Packing
from gryphone.raster import Patches
from gryphone.recognition.drawing import Drawing

BUCKETS = (64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536)  # patches
STEPS = 64  # the most that are recorded
ALL = STEPS  # the row of the step that hides everything
WARM = 64  # places: few formulas are longer
SYMBOLS = 8  # of the likeliest ones of each place
# (tokens, index, memory, packing of the canvases) -> scores (B, n, P) of tokens and patches
Scores = Callable[[Tensor, Tensor, Memory, Packing], Tensor]


class Graphs:
    """A network's graphs, and the buffers that they read and write; one ink at a time."""

    def __init__(
        self, model: GryphOne, config: ModelConfig, vocabularies: Sequence[int], scores: Scores
    ) -> None:
        self.model, self.length, self.scores = model, config.length, scores
        weight = next(model.decoder.parameters())
        self.device, dtype = weight.device, weight.dtype
        self.lock = threading.Lock()
        self._recorded: dict[tuple[Any, ...], torch.cuda.CUDAGraph] = {}
        self._loaded: dict[str, Any] = {}  # what is in which buffers now
        self._numbers = cache(lambda *n: torch.tensor(n, dtype=torch.int32, device=self.device))
        self._masks_of = lru_cache(256)(self._draw_masks)
        self._weights_of = cache(self._find_weights)

        def buffer(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=self.device)

        most, streams = BUCKETS[-1], len(vocabularies)
        length, width, heads = config.length, config.width, config.decoder_heads
        self.pixels = buffer(most, config.canvas.window**2, dtype=torch.uint8)
        self.position, self.grid = buffer(most, 2), torch.ones_like(buffer(2, 2))
        # What is remembered of up to two looks.
        self.offsets = buffer(2, 3, dtype=torch.int32)
        self.features = buffer(2, most, width, dtype=dtype)
        self.pairs = buffer(2, config.decoder_depth, 2, most, heads, width // heads, dtype=dtype)
        # The canvas, and for every step what it masked and said.
        self.ids, self.grown = buffer(length, streams), buffer(1, dtype=torch.bool)
        self.log_probs = buffer(length, streams, dtype=torch.float32)
        self.masks = buffer(STEPS + 1, length, dtype=torch.bool)
        self.masks[ALL] = True
        self.step = buffer(1)  # the row that comes next
        self.masked = torch.zeros_like(self.masks)
        self.said = [buffer(STEPS + 1, length, n, dtype=torch.float32) for n in vocabularies]
        self.weights = buffer(2, STEPS + 1, dtype=torch.bool)  # rows of early and of late looks
        self.last = buffer(1)
        self.answer = buffer(length, 2 * streams + 2 + 2 * SYMBOLS, dtype=torch.float64)
        # A finished canvas, and where its tokens are.
        self.canvas, self.own = buffer(length, streams), buffer(3, dtype=torch.int32)
        self.score = buffer(length, most, dtype=torch.float32)

    # What is recorded: it reads and writes the buffers, and nothing else.

    def _encode(self, size: int) -> None:
        nobody = self.position[:0, 0]
        patches = Patches(
            self.pixels[:size],
            self.position[:size],
            self.grid,
            self.offsets[0],
            nobody,
            nobody,
            longest=size,
        )
        memory = self.model.encode(patches)
        self.features[0, :size] = memory.features
        for layer, pair in enumerate(memory.keys_values):
            for part, tensor in enumerate(pair):
                self.pairs[0, layer, part, :size] = tensor

    def _memory(self, look: int, size: int) -> Memory:
        pairs = [(pair[0, :size], pair[1, :size]) for pair in self.pairs[look]]
        return Memory(self.features[look, :size], Packing(self.offsets[look], size), pairs)

    def _step(self, size: int, length: int, looks: int, mask_id: int, pad_id: int) -> None:
        masked = self.masks[:, :length].index_select(0, self.step)
        self.masked[:, :length].index_copy_(0, self.step, masked)
        tokens = torch.where(masked[0, :, None], mask_id, self.ids[:length])
        index = torch.arange(length, device=self.device)
        own = Packing(self._numbers(0, length, length), length)
        said = [
            [
                F.log_softmax(logits.float(), -1)
                for logits in self.model.decode(tokens, index, self._memory(look, size), own)
            ]
            for look in range(looks)
        ]
        for s, streams in enumerate(zip(*said, strict=True)):
            mean = F.log_softmax(torch.stack(streams).mean(0), -1) if looks > 1 else streams[0]
            mean[:, mask_id] = -torch.inf  # MASK is an input, never an answer
            value, best = mean.max(-1)
            self.ids[:length, s], self.log_probs[:length, s] = best, value
            self.said[s][:, :length].index_copy_(0, self.step, mean[None])
        if length < self.length:
            self.grown |= self.ids[length - 1, 0] != pad_id
        self.step -= 1

    def _summarise(self, n: int) -> None:
        """What `Looks` work out, for the answer that stands there now, in one table."""
        masked = self.masked[:, :n] & self.weights[:, :, None]  # (2, steps, n)
        total = torch.zeros(STEPS + 1, n, device=self.device)
        for s, said in enumerate(self.said):
            wanted = self.ids[:n, s].expand(STEPS + 1, n)[..., None]
            total = total + said[:, :n].gather(2, wanted)[..., 0]
        count = masked.sum(1)
        looked = torch.where(masked, total.clamp_min(LOWEST), 0.0).sum(1)
        part = (count[1] > 0).long()[None]
        mean = looked.gather(0, part) / count.gather(0, part).clamp_min(1)
        symbols, times = self.said[0][:, :n], count[1, :, None]
        chance = torch.where(masked[1, ..., None], symbols.exp(), 0.0).sum(0)
        chance = (chance / times.clamp_min(1) + 1e-12).log()
        last = symbols.index_select(0, self.last)[0]
        best = torch.where((times > 0) & last.isfinite(), chance, last).topk(SYMBOLS, -1)
        grown = self.grown.expand(n, 1)
        columns = (self.ids[:n], self.log_probs[:n], mean.T, grown, best.indices, best.values)
        self.answer[:n] = torch.cat([column.double() for column in columns], 1)

    def _place(self, size: int, length: int) -> None:
        index = torch.arange(length, device=self.device)
        memory, own = self._memory(0, size), Packing(self.own, length)
        scores = self.scores(self.canvas[:length], index, memory, own)
        self.score[:length, :size] = scores[0]

    # How it is used.

    def encode(self, drawing: Drawing) -> Memory | None:
        """What the network remembers of one ink; None: it is too large."""
        count = len(drawing.position)
        size = _bucket(count)
        if size is None:
            return None
        with self.lock:
            self.pixels[:count] = torch.from_numpy(drawing.pixels)
            self.position[:count] = torch.from_numpy(drawing.position)
            self.grid[0] = torch.tensor(drawing.grid)
            self.offsets[0] = self._numbers(0, count, size)
            self._run(partial(self._encode, size), "encode", size)
            pairs = self.pairs[0, :, :, :count].clone()
            memory = Memory(
                self.features[0, :count].clone(),
                Packing.equal(1, count, self.device),
                [(pair[0], pair[1]) for pair in pairs],
            )
            self._loaded[f"look {0}"] = memory
            return memory

    def refine(self, memories: Sequence[Memory], request: Request) -> Decoded | None:
        """One canvas, from all-masked to its answer; None: it does not fit what is recorded."""
        r, o = request, request.options
        count = max(len(memory.features) for memory in memories)
        size = _bucket(count)
        plain = r.constraints is None and r.watch is None and r.deadline is None
        usual = o.method == "diffusion" and o.remasking == Remasking()
        if size is None or not plain or not usual:
            return None
        if len(r.keys) > 1 or len(memories) > 2 or o.steps > STEPS:
            return None
        with self.lock:
            self._load_looks(memories, size)
            ids = (r.mask_id, r.pad_id)
            opening = o.start
            while True:
                self.step.fill_(ALL)
                self._take_step(size, opening, len(memories), ids)
                first = torch.cat([self.ids[:opening], self.log_probs[:opening]], 1).cpu().numpy()
                if first[-1, 0] == r.pad_id or opening == o.length:
                    break
                opening = min(2 * opening, o.length)
            ends = np.flatnonzero(first[:, 0] == r.pad_id)
            needed = int(ends[0]) if len(ends) else opening
            length, steps = opening, o.steps
            if o.start < o.length:
                length = min(opening, canvas_for(needed + 2, o.length))
            if not len(unsure(np.zeros(1, int), first[None, :, r.streams :], [needed], o.sure)):
                steps = 1
            self._load_steps(o.seed, int(r.keys[0]), o.steps, steps)
            self.grown.zero_()
            self.step.fill_(o.steps - 1)
            for _ in range(steps - 1):
                self._take_step(size, length, len(memories), ids)
            self._run(partial(self._summarise, length), "summary", length)
            table = self.answer[:length].cpu().numpy().copy()
            return self._decoded(table, steps, opening, r)

    def place(self, memory: Memory, canvas: np.ndarray) -> np.ndarray | None:
        """The scores (n, P) of a finished canvas's tokens and patches; None: it is too large."""
        count, n = len(memory.features), len(canvas)
        size, length = _bucket(count), min((c for c in CANVASES if c >= n), default=self.length)
        if size is None:
            return None
        with self.lock:
            self._load_looks([memory], size)
            self.canvas[:n] = torch.from_numpy(canvas)
            self.own.copy_(self._numbers(0, n, length))
            self._run(partial(self._place, size, length), "place", size, length)
            found: np.ndarray = self.score[:n, :count].cpu().numpy()
            return found

    def warm(self, mask_id: int, pad_id: int) -> None:
        """Record what inks of every size need, on canvases up to `WARM`."""
        with self.lock:
            lengths = [length for length in CANVASES if length <= min(WARM, self.length)]
            for size in BUCKETS:
                self.offsets[:] = self._numbers(0, size, size)
                self._run(partial(self._encode, size), "encode", size)
                for length in lengths:
                    self.own.copy_(self._numbers(0, length, length))
                    self._run(partial(self._place, size, length), "place", size, length)
                    for looks in (1, 2):
                        self.step.fill_(ALL)
                        self._take_step(size, length, looks, (mask_id, pad_id))
            for length in lengths:
                self._run(partial(self._summarise, length), "summary", length)
            self._loaded.clear()

    def _take_step(self, size: int, length: int, looks: int, ids: tuple[int, int]) -> None:
        self._run(partial(self._step, size, length, looks, *ids), "step", size, length, looks, ids)

    def _decoded(
        self, table: np.ndarray, steps: int, opening: int, request: Request
    ) -> Decoded | None:
        streams = self.ids.shape[1]
        ends = np.cumsum([streams, streams, 1, 1, SYMBOLS])
        ids, log_probs, seen, grown, best, odds = np.split(table, ends, axis=1)
        if grown.any():
            return None
        ids = ids.astype(np.int64)
        ends = np.flatnonzero(ids[:, 0] == request.pad_id)
        n = int(ends[0]) if len(ends) else len(ids)
        rows = [(ALL, opening), *((t, len(ids)) for t in range(steps - 1, 0, -1))]
        longest = max(opening, len(ids))  # the buffers are the next ink's
        said = [streams[:, :longest].clone() for streams in (self.masked, *self.said)]
        looks = Recorded(said, rows, ids, seen[:, 0], best.astype(np.int64), odds)
        return Decoded(ids[:n], log_probs[:n].astype(np.float32), steps, looks)

    def _load_looks(self, memories: Sequence[Memory], size: int) -> None:
        """Put memories where the graphs find them."""
        for look, memory in enumerate(memories):
            count = len(memory.features)
            if self._loaded.get(f"look {look}") is not memory:
                for layer, pair in enumerate(memory.keys_values):
                    for part, tensor in enumerate(pair):
                        self.pairs[look, layer, part, :count] = tensor
                self.features[look, :count] = memory.features
                self._loaded[f"look {look}"] = memory
            self.offsets[look] = self._numbers(0, count, size)

    def _load_steps(self, seed: int, key: int, steps: int, taken: int) -> None:
        """Put there what each of the steps masks, and which of those taken are late."""
        if self._loaded.get("steps") != (seed, key, steps, taken):
            self.masks[:steps] = self._masks_of(seed, key, steps)
            self.weights.copy_(self._weights_of(taken))
            self.last.fill_(1 if taken > 1 else ALL)
            self._loaded["steps"] = (seed, key, steps, taken)

    def _draw_masks(self, seed: int, key: int, steps: int) -> Tensor:
        share = np.arange(steps) / steps
        masks = draws(seed, key, steps, self.length) < share[:, None]
        return torch.from_numpy(masks).to(self.device)

    def _find_weights(self, taken: int) -> Tensor:
        weights = np.zeros((2, STEPS + 1), dtype=bool)
        for number, row in enumerate((ALL, *range(taken - 1, 0, -1))):
            weights[int(2 * number >= taken), row] = True
        return torch.from_numpy(weights).to(self.device)

    def _run(self, work: Callable[[], None], *key: Any) -> None:
        """Replay what was recorded for some shapes; at first, record it."""
        if self.device.type != "cuda":  # where nothing can be recorded, as in tests
            work()
            return
        graph = self._recorded.get(key)
        if graph is None:
            graph = self._recorded[key] = self._record(work)
        graph.replay()

    def _record(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Record work; a run before that lets the libraries set themselves up, and is undone."""
        kept = [self.ids, self.log_probs, self.grown, self.step]
        before = [tensor.clone() for tensor in kept]
        side: Any = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            work()
        torch.cuda.current_stream(self.device).wait_stream(side)
        for tensor, old in zip(kept, before, strict=True):
            tensor.copy_(old)
        graph = torch.cuda.CUDAGraph()
        # What one graph needs meanwhile, the next may use: all that stays is in the buffers.
        pool = next((other.pool() for other in self._recorded.values()), None)
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            work()
        return graph


class Recorded(Looks):
    """The looks at an answer of some graphs, still on the device."""

    def __init__(
        self,
        said: Sequence[Tensor],
        rows: Sequence[tuple[int, int]],
        ids: np.ndarray,
        seen: np.ndarray,
        best: np.ndarray,
        odds: np.ndarray,
    ) -> None:
        """`said` is what was masked, then log-probs; `rows` of it are the steps', so long each."""
        self.said, self.rows = said, rows
        self.ids, self.seen, self.best, self.odds = ids, seen, best, odds

    def log_probs(self, answer: np.ndarray) -> np.ndarray:
        n = len(answer)
        if n <= len(self.ids) and np.array_equal(answer, self.ids[:n]):
            return self.seen[:n]
        return self._read().log_probs(answer)

    def symbols(self, places: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        if count > SYMBOLS:
            return self._read().symbols(places, count)
        return self.best[:places, :count], self.odds[:places, :count]

    def distributions(self) -> list[np.ndarray]:
        return self._read().distributions()

    def _read(self) -> Seen:
        out = Seen()
        for row, n in self.rows:
            masked, *streams = (part[row, :n].cpu().numpy() for part in self.said)
            out.add(masked, streams)
        return out


def _bucket(count: int) -> int | None:
    return next((size for size in BUCKETS if count <= size), None)
