"""Forward process and losses on hand-computed values."""

import math

import pytest
import torch

from gryphone.diffusion import (
    corrupt,
    cross_entropy,
    forward_mask,
    rmml,
    sample_time,
    symmetric_kl,
)

MASK = 1


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.9, 1.0])
def test_forward_process_masks_each_position_with_probability_t(share: float) -> None:
    tokens = torch.randint(2, 50, (40_000, 2), generator=generator())
    masked = forward_mask(tokens, torch.full((40_000,), share), MASK, generator(1))
    hit = masked[:, 0] == MASK
    assert torch.equal(hit, masked[:, 1] == MASK)  # a position is masked as a whole
    assert torch.equal(masked[~hit], tokens[~hit])
    assert abs(float(hit.float().mean()) - share) < 0.01


def test_streams_can_be_masked_apart() -> None:
    tokens = torch.randint(2, 50, (40_000, 2), generator=generator())
    masked = forward_mask(tokens, torch.full((40_000,), 0.3), MASK, generator(1), apart=True)
    hit = (masked == MASK).float()
    assert torch.equal(masked[masked != MASK], tokens[masked != MASK])
    assert abs(float(hit.mean()) - 0.3) < 0.01
    assert abs(float(hit.prod(1).mean()) - 0.09) < 0.01  # both of a place, by chance alone
    noisy = corrupt(masked, 1.0, (50, 50), MASK, generator(2))
    assert torch.equal(noisy == MASK, masked == MASK)


def test_a_place_may_be_masked_by_where_it_lies() -> None:
    tokens = torch.full((40_000, 2), 7)
    place = torch.full((40_000,), torch.nan)
    place[:10] = 1 - torch.arange(1, 11) / 10  # one canvas of ten, masked from its end
    masked = forward_mask(tokens, torch.full((40_000,), 0.35), MASK, generator(1), place=place)
    assert (masked[:10] == MASK).all(1).tolist() == [False] * 6 + [True] * 4
    assert abs(float((masked[10:, 0] == MASK).float().mean()) - 0.35) < 0.01


def test_forward_process_follows_each_position_s_own_time() -> None:
    tokens = torch.full((20_000, 1), 7)
    time = torch.arange(20_000) / 20_000
    hit = (forward_mask(tokens, time, MASK, generator(2))[:, 0] == MASK).float()
    assert abs(float(hit[:5000].mean()) - 0.125) < 0.02
    assert abs(float(hit[-5000:].mean()) - 0.875) < 0.02


def test_times_are_uniform_or_lean_toward_heavy_masking() -> None:
    assert abs(float(sample_time(50_000, generator()).mean()) - 1 / 2) < 0.01
    assert abs(float(sample_time(50_000, generator(), power=2).mean()) - 2 / 3) < 0.01


def test_corruption_spares_masks_and_hits_the_given_share() -> None:
    tokens = torch.full((50_000, 2), 5)
    tokens[:10_000] = MASK
    noisy = corrupt(tokens, 0.2, (40, 9), MASK, generator())
    assert torch.equal(noisy[:10_000], tokens[:10_000])
    assert not (noisy[10_000:] == MASK).any()
    changed = (noisy[10_000:] != 5).float().mean(0)
    assert abs(float(changed[0]) - 0.2 * 0.7 * 38 / 40) < 0.01
    assert abs(float(changed[1]) - 0.2 * 0.7 * 7 / 9) < 0.01


def test_cross_entropy_sums_the_streams() -> None:
    symbols = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]])  # p = 1/4 3/4; 1/2 1/2
    modifiers = torch.tensor([[0.0, 0.0, 0.0], [math.log(2), 0.0, 0.0]])  # thirds; 1/2 1/4 1/4
    truth = torch.tensor([[1, 2], [0, 0]])
    expected = torch.tensor([math.log(4 / 3) + math.log(3), math.log(2) + math.log(2)])
    assert torch.allclose(cross_entropy([symbols, modifiers], truth), expected)


def test_kl_is_symmetric_zero_for_equals_and_right_by_hand() -> None:
    p = [torch.tensor([[0.0, math.log(3)]])]  # 1/4 3/4
    q = [torch.tensor([[0.0, 0.0]])]  # 1/2 1/2
    by_hand = (
        0.25 * math.log(0.25 / 0.5)
        + 0.75 * math.log(0.75 / 0.5)
        + 0.5 * math.log(0.5 / 0.25)
        + 0.5 * math.log(0.5 / 0.75)
    )
    assert float(symmetric_kl(p, q)) == pytest.approx(by_hand)
    assert float(symmetric_kl(q, p)) == pytest.approx(by_hand)
    assert float(symmetric_kl(p, p)) == 0.0


def test_rmml_is_the_paper_s_four_terms() -> None:
    a, b = (
        [torch.randn(6, 11, generator=generator(s)), torch.randn(6, 4, generator=generator(s + 9))]
        for s in (1, 2)
    )
    truth = torch.stack([torch.arange(6), torch.arange(6) % 4], 1)
    p, q = ([x.log_softmax(-1) for x in view] for view in (a, b))
    expected = torch.zeros(6)
    for s in range(2):
        rows = torch.arange(6)
        expected -= p[s][rows, truth[:, s]] + q[s][rows, truth[:, s]]
        expected += torch.nn.functional.kl_div(q[s], p[s], log_target=True, reduction="none").sum(1)
        expected += torch.nn.functional.kl_div(p[s], q[s], log_target=True, reduction="none").sum(1)
    assert torch.allclose(rmml(a, b, truth), expected, atol=1e-5)


def test_a_detached_divergence_moves_one_side() -> None:
    p, q = torch.tensor([[0.3, -1.0, 2.0]]), torch.tensor([[1.0, 0.5, -0.2]])
    p.requires_grad_()
    q.requires_grad_()
    detached = symmetric_kl([p], [q], detached=True)
    assert torch.allclose(detached, symmetric_kl([p], [q]))
    detached.sum().backward()
    # The gradient of KL(target || softmax(x)) is softmax(x) - target.
    difference = (p.softmax(-1) - q.softmax(-1)).detach()
    assert torch.allclose(p.grad, difference, atol=1e-6)  # type: ignore[arg-type]
    assert torch.allclose(q.grad, -difference, atol=1e-6)  # type: ignore[arg-type]
