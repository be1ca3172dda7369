"""Packed stores that are larger than memory: read by row groups, in an order that is known.

The row groups of all files, in another order each epoch, are dealt out to the shards in turn. A
shard holds a window of as many groups as fit (at the end of an epoch they may be of two), and
shuffles their inks together; the next window is read meanwhile. What a shard gets at some place of
its stream thus follows from the seed alone: it is the same for one process or many, and after a
restart, and no process reads another one's groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from gryphone.data.packed import Packed, PackedFile, join_packed
from gryphone.data.store import InkStore, TrainingBatch, concatenate_batches
from gryphone.errors import DataError


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, groups: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, epoch]).permutation(groups)


@dataclass(frozen=True)
class Plan:
    """A window of a shard's stream that may still have to be read."""

    turn: int  # of its first group, among those of the shard
    first: int  # place of its first ink in the stream
    inks: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """A window in memory."""

    plan: Plan
    store: InkStore
    order: NDArray[np.int64]


class InkStream:
    """The inks of packed files, endlessly, for each of `shards`; all together hold `most` inks at
    a time, and read as many ahead. `prepare` makes tensors of what was read."""

    def __init__(
        self,
        files: Sequence[PackedFile],
        most: int,
        prepare: Callable[[Packed], InkStore],
        *,
        seed: int,
        shards: int,
    ) -> None:
        self.groups = [(file, g) for file in files for g in range(len(file.sizes))]
        self.sizes = [size for file in files for size in file.sizes]
        self.most, self.seed, self.shards, self.prepare = most // shards, seed, shards, prepare
        if max(self.sizes) > self.most:
            raise DataError(
                f"{files[0].path}: has row groups of up to {max(self.sizes)} inks, and {shards} "
                f"shards are to hold {most}; set its source's stream to {max(self.sizes) * shards} "
                "or more, or pack it again, into groups of 8192"
            )
        self._now: dict[int, Window] = {}
        self._ahead: dict[int, tuple[Plan, Future[Window]]] = {}
        self._thread = ThreadPoolExecutor(1, "gryphone-stream")

    def __len__(self) -> int:
        return sum(self.sizes)

    def batch(self, first: int, count: int, shard: int) -> TrainingBatch:
        """The `count` inks from place `first` on of a shard's stream."""
        parts = []
        while count:
            window = self._window(first, shard)
            begin = first - window.plan.first
            taken = min(count, window.plan.inks - begin)
            # Where settings leave inks out, others of the window come again instead.
            rows = window.order[np.arange(begin, begin + taken) % len(window.order)]
            parts.append(window.store.batch(torch.from_numpy(rows)))
            first, count = first + taken, count - taken
        return concatenate_batches(parts)

    def _window(self, place: int, shard: int) -> Window:
        """The window with a place of the stream, once it is read."""
        window = self._now.get(shard)
        forward = window is not None and place >= window.plan.first
        plan = window.plan if window is not None and forward else self._after(None, shard)
        while place >= plan.first + plan.inks:
            plan = self._after(plan, shard)
        if window is None or plan != window.plan:
            planned, reading = self._ahead.pop(shard, (None, None))
            if reading is None or planned != plan:
                reading = self._thread.submit(self._read, plan, shard)
            window = self._now[shard] = reading.result()
            following = self._after(plan, shard)
            self._ahead[shard] = following, self._thread.submit(self._read, following, shard)
        return window

    def _after(self, plan: Plan | None, shard: int) -> Plan:
        """The next window of a shard, or the first."""
        turn, first = (plan.turn + len(plan.groups), plan.first + plan.inks) if plan else (0, 0)
        groups: list[int] = []
        inks = 0
        while True:
            epoch, place = divmod((turn + len(groups)) * self.shards + shard, len(self.groups))
            group = int(_order(self.seed, epoch, len(self.groups))[place])
            if inks + self.sizes[group] > self.most:
                return Plan(turn, first, inks, tuple(groups))
            groups.append(group)
            inks += self.sizes[group]

    def _read(self, plan: Plan, shard: int) -> Window:
        parts = [file.read([g]) for file, g in (self.groups[group] for group in plan.groups)]
        store = self.prepare(parts[0] if len(parts) == 1 else join_packed(parts))
        draw = np.random.default_rng([self.seed, shard, plan.turn])
        return Window(plan, store, draw.permutation(len(store)))
