"""Coverage on hand-computed cases."""

import pytest
import torch
from torch.nn import functional as F

from gryphone.rivals import coverage
from gryphone.rivals.coverage import Refinement, Surroundings, before_each, neighbours

# Two images: an L of three patches and one far away; a single patch where the first has one, too.
POSITION = torch.tensor([[0, 0], [1, 0], [1, 1], [9, 40], [1, 1]])
OWNER = torch.tensor([0, 0, 0, 0, 1])


def test_sums_are_of_the_places_before() -> None:
    """Two canvases of three places, two patches, one head: each canvas begins anew."""
    looks = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.3, 0.7], [1.0, 0.0], [0.0, 1.0]])
    sums = before_each(looks[None, None], 2)  # (P, C * T, H)
    expected = [[0, 0.9, 1.1, 0, 0.3, 1.3], [0, 0.1, 0.9, 0, 0.7, 0.7]]
    torch.testing.assert_close(sums[..., 0], torch.tensor(expected))


def test_neighbours_are_those_of_the_grid() -> None:
    table = neighbours(POSITION, OWNER)
    assert table[:, 12].tolist() == [0, 1, 2, 3, 4]  # the middle of the kernel
    # Around the corner of the L: one row up is place 2 rows of five before the middle.
    assert [(k, n) for k, n in enumerate(table[1].tolist()) if n < 5] == [(7, 0), (12, 1), (13, 2)]
    assert [n for n in table[3].tolist() if n < 5] == [3]
    assert [n for n in table[4].tolist() if n < 5] == [4]


def on_grid(x: torch.Tensor) -> torch.Tensor:
    """The first image's patches (4, T, C) on a grid (T, C, 10, 41)."""
    grid = x.new_zeros(x.shape[1], x.shape[2], 10, 41)
    for patch, (row, column) in enumerate(POSITION[:4].tolist()):
        grid[:, :, row, column] = x[patch]
    return grid


def test_it_is_a_convolution_of_the_grid() -> None:
    torch.manual_seed(0)
    table = neighbours(POSITION[:4], OWNER[:4])
    weight = torch.randn(7, 25 * 6, dtype=torch.float64, requires_grad=True)
    x = torch.randn(4, 3, 6, dtype=torch.float64, requires_grad=True)
    found = F.linear(Surroundings.apply(x, table), weight)
    kernel = weight.unflatten(1, (5, 5, 6)).permute(0, 3, 1, 2)
    whole = F.conv2d(on_grid(x), kernel, padding=2)
    expected = torch.stack([whole[:, :, row, column] for row, column in POSITION[:4].tolist()])
    torch.testing.assert_close(found, expected)
    push = torch.randn_like(found)
    ours = torch.autograd.grad((found * push).sum(), (x, weight))
    theirs = torch.autograd.grad((expected * push).sum(), (x, weight))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_the_norm_runs_after_real_places_alone() -> None:
    torch.manual_seed(0)
    module, table = Refinement(2).train(), neighbours(POSITION, OWNER)
    sums, real = 20 * torch.rand(5, 4, 4), torch.ones(5, 4, dtype=torch.bool)
    real[3, 2:] = False
    for _ in range(200):
        _, totals = module(sums, table, module.running(), real)
        module.follow(totals)
    off, _ = module(sums, table, module.running(), real)
    torch.testing.assert_close(off[real].mean(0), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(off[real].std(0, correction=0), torch.ones(2), atol=1e-2, rtol=0)
    torch.testing.assert_close(module.eval()(sums, table, module.running())[0], off)


def test_small_groups_are_one_large(monkeypatch: pytest.MonkeyPatch) -> None:
    from gryphone.model import Memory, Packing

    torch.manual_seed(1)
    decoder = coverage.CoverageDecoder(
        vocabularies=(9,), length=8, width=16, depth=3, heads=2, attention_dropout=0.0, dropout=0.0
    ).eval()
    features = torch.randn(5, 16)
    rows = Packing.of(torch.tensor([4, 1]))
    memory = Memory(features, rows, decoder.remember(features), POSITION)
    lengths = torch.tensor([5, 3, 2, 6])
    index = torch.cat([torch.arange(n) for n in lengths.tolist()])
    tokens = torch.randint(0, 9, (len(index), 1))
    with torch.no_grad():
        whole = decoder.hidden(tokens, index, memory, Packing.of(lengths))
        monkeypatch.setattr(coverage, "PAIRS", 1)
        parts = decoder.hidden(tokens, index, memory, Packing.of(lengths))
    torch.testing.assert_close(whole, parts)
