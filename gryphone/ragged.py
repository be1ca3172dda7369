"""Selecting whole sequences out of a packed tensor, without a loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def ranges(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """For sequences of the given lengths (B,): owner and place of every element, (T,) both.

    lengths [2, 3] -> owners [0, 0, 1, 1, 1], places [0, 1, 0, 1, 2].
    """
    owner = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
    begin = lengths.cumsum(0) - lengths
    return owner, torch.arange(len(owner), device=lengths.device) - begin[owner]


def select(offsets: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of the sequences `index` (B,) of a packed tensor with `offsets` (n + 1,).

    Returns rows (T,) into the packed tensor, owner (T,) in 0..B-1 and lengths (B,).
    """
    begin = offsets[index]
    lengths = offsets[index + 1] - begin
    owner, place = ranges(lengths)
    return begin[owner] + place, owner, lengths


def draw_rows(sizes: Sequence[int], counts: Sequence[int], generator: torch.Generator) -> Tensor:
    """Rows of tables of some sizes that lie one behind the other: so many of each, evenly."""
    table = np.repeat(np.arange(len(sizes)), counts)
    begins = np.cumsum([0, *sizes])
    bounds = torch.from_numpy(np.stack([begins[table], np.asarray(sizes)[table]]))
    begin, size = bounds.to(generator.device, non_blocking=True).unbind()
    u = torch.rand(len(table), generator=generator, device=generator.device, dtype=torch.float64)
    return begin + (u * size).long()
