"""Masked diffusion as pure functions: the forward process and the two losses.

Tokens come as (N, S): N positions, S streams (symbol and modifier for SAT, one for raw LaTeX).
A position is masked in all its streams at once, or each stream by a draw of its own (`apart`). The
mask id and the generator are arguments.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def sample_time(size: int, generator: torch.Generator, power: float = 1.0) -> Tensor:
    """Continuous diffusion times t/T in (0, 1), (size,).

    `power` 1 is the paper's uniform draw; larger values lean toward heavy masking, where the
    decoder has to look at the ink instead of reading its own neighbours.
    """
    u = torch.rand(size, generator=generator, device=generator.device)
    return u ** (1 / power)


def forward_mask(
    tokens: Tensor,
    time: Tensor,
    mask_id: int,
    generator: torch.Generator,
    apart: bool = False,
    place: Tensor | None = None,
) -> Tensor:
    """Forward process: mask each position with its probability t/T. tokens (N, S), time (N,).

    place (N,): how far from the end of its canvas a position is, 0 to 1, where it is masked by that
    and not by chance; NaN elsewhere.
    """
    shape = (len(tokens), tokens.shape[1] if apart else 1)
    u = torch.rand(shape, generator=generator, device=generator.device)
    if place is not None:
        u = torch.where(place.isnan()[:, None], u, place[:, None])
    return torch.where(u < time[:, None], mask_id, tokens)


def corrupt(
    tokens: Tensor, rate: float, sizes: tuple[int, ...], mask_id: int, generator: torch.Generator
) -> Tensor:
    """Exchange visible positions for random tokens with probability `rate`.

    The reverse process feeds the model its own mistakes; this teaches it to mend them.
    """
    n = len(tokens)
    hit = torch.rand(n, generator=generator, device=generator.device) < rate
    noise = [
        torch.randint(0, size, (n,), generator=generator, device=generator.device) for size in sizes
    ]
    random = torch.stack(noise, 1)
    random = torch.where(random == mask_id, tokens, random)
    # Streams are exchanged together or one at a time, as mistakes come.
    which = torch.rand(random.shape, generator=generator, device=generator.device) < 0.7
    return torch.where(hit[:, None] & which & (tokens != mask_id), random, tokens)


def cross_entropy(logits: list[Tensor], truth: Tensor) -> Tensor:
    """Cross-entropy of every position, masked or not, summed over the streams. (N,)"""
    losses = [
        F.cross_entropy(x.float(), truth[:, s], reduction="none") for s, x in enumerate(logits)
    ]
    return torch.stack(losses).sum(0)


def symmetric_kl(first: list[Tensor], second: list[Tensor], detached: bool = False) -> Tensor:
    """KL(first‖second) + KL(second‖first) of every position, summed over the streams. (N,)

    `detached`: each divergence moves only the side that is compared with the other as its target.
    """
    total = first[0].new_zeros(len(first[0]), dtype=torch.float32)
    for a, b in zip(first, second, strict=True):
        log_p, log_q = F.log_softmax(a.float(), -1), F.log_softmax(b.float(), -1)
        p, q = (log_p.detach(), log_q.detach()) if detached else (log_p, log_q)
        total = total + (p.exp() * (p - log_q) + q.exp() * (q - log_p)).sum(-1)
    return total


def rmml(
    first: list[Tensor], second: list[Tensor], truth: Tensor, detached: bool = False
) -> Tensor:
    """Random-masking mutual learning: both copies must be right, and agree. (N,)"""
    agree = symmetric_kl(first, second, detached)
    return cross_entropy(first, truth) + cross_entropy(second, truth) + agree
