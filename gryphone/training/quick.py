"""What makes a network train faster on a GPU, and changes nothing that is saved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import TypeVar

import torch
from torch import Tensor, nn

from gryphone.model import CrossAttention, GryphOne, SelfAttention, attend


@lru_cache
def _stream(index: int) -> torch.cuda.Stream:
    """The stream of a GPU that samples are made on, after what was put there before."""
    # Its many small kernels go first.
    stream = torch.cuda.Stream(index, priority=-1)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(index))
    return stream


@contextmanager
def aside(device: torch.device) -> Iterator[None]:
    """Make samples on a stream of their own while the network is still busy with the last ones.

    How many pixels and patches there are is read back from the device. On the network's own
    stream that would wait for the whole step before, and leave the device idle after it. What
    leaves this context has to be `handed_on`.
    """
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device), torch.cuda.stream(_stream(torch.cuda.current_device())):
        yield


T = TypeVar("T")


def handed_on(made: T) -> T:
    """Tensors made `aside`, for the stream that is in use here: it waits for them."""
    tensors = [x for x in _tensors(made) if x.is_cuda]
    if tensors:
        current = torch.cuda.current_stream(tensors[0].device)
        current.wait_stream(_stream(tensors[0].get_device()))
        for x in tensors:
            x.record_stream(current)  # whose memory is not to be used again before
    return made


def _tensors(made: object) -> Iterator[Tensor]:
    """All tensors in dataclasses, lists and tuples."""
    if isinstance(made, Tensor):
        yield made
    elif is_dataclass(made) or isinstance(made, list | tuple):
        for part in made if isinstance(made, list | tuple) else vars(made).values():
            yield from _tensors(part)


class HashedDropout(nn.Module):
    """Dropout whose mask is a hash of place and seeds: a tenth of what random numbers cost.

    A compiled block computes the mask again in the backward pass instead of keeping it. `seeds`
    (2,) int32 are drawn anew before every pass by whoever owns them.
    """

    def __init__(self, p: float, seeds: Tensor) -> None:
        super().__init__()
        self.p, self.seeds = p, seeds  # no buffer: processes and averages must not share it

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.p):
            return x
        rows = torch.arange(len(x), dtype=torch.int32, device=x.device)[:, None]
        columns = torch.arange(x.shape[1], dtype=torch.int32, device=x.device)
        # Two rounds of a known mixer (lowbias32), the second one with a seed of its own.
        h = (rows * x.shape[1] + columns) ^ self.seeds[0]
        h = (h ^ ((h >> 16) & 0xFFFF)) * 0x21F0AAAD
        h = (h ^ ((h >> 15) & 0x1FFFF) ^ self.seeds[1]) * -0x2CA5D269  # 0xD35A2D97
        h = (h ^ ((h >> 15) & 0x1FFFF)) & 0x7FFFFFFF
        return torch.where(h >= round(self.p * 2**31), x / (1 - self.p), 0)


def quicken(model: GryphOne) -> str:
    """Give a network kernels of its own for training, and compile its blocks; says what was done.

    Parameters keep their names and places: what is saved is the same with or without it.
    """
    if find_spec("triton") is None:
        return "blocks are not compiled: Triton, which compiles them, is not installed"
    from gryphone.training.attention import attend_tiled

    parents = list(model.modules())
    drops = [(m, n) for m in parents for n, c in m.named_children() if isinstance(c, nn.Dropout)]
    device = next(model.parameters()).device
    # One piece of memory each: a compiled block serves all layers only if they look the same.
    seeds = [torch.zeros(2, dtype=torch.int32, device=device) for _ in drops]
    for (parent, name), pair in zip(drops, seeds, strict=True):
        setattr(parent, name, HashedDropout(getattr(parent, name).p, pair))

    def reseed(*_: object) -> None:
        drawn = torch.randint(-(2**31), 2**31, (len(seeds), 2), dtype=torch.int32, device=device)
        torch._foreach_copy_(seeds, list(drawn.unbind()))

    model.register_forward_pre_hook(reseed)
    for module in parents:
        # A decoder of another kind may attend in its own way.
        if isinstance(module, SelfAttention | CrossAttention) and module.attend is attend:
            module.attend = attend_tiled
    model.compile_blocks()
    return "blocks are compiled"
