"""Coverage on hand-computed cases."""

import pytest
import torch
from torch.nn import functional as F

from gryphone.rivals import coverage
from gryphone.rivals.coverage import Convolution, Refinement, before_each, neighbours

# Two images: an L of three patches and one far away; a single patch where the first has one, too.
POSITION = torch.tensor([[0, 0], [1, 0], [1, 1], [9, 40], [1, 1]])
OWNER = torch.tensor([0, 0, 0, 0, 1])


def test_sums_are_of_the_places_before() -> None:
    """Two canvases of three places, two patches, one head: each canvas begins anew."""
    looks = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.3, 0.7], [1.0, 0.0], [0.0, 1.0]])
    sums = before_each(looks.T[None, None], 2)  # (H, P, C * T)
    expected = [[0, 0.9, 1.1, 0, 0.3, 1.3], [0, 0.1, 0.9, 0, 0.7, 0.7]]
    torch.testing.assert_close(sums[0], torch.tensor(expected))


def test_neighbours_are_those_of_the_grid() -> None:
    table = neighbours(POSITION, OWNER)
    assert table[:, 12].tolist() == [0, 1, 2, 3, 4]  # the middle of the kernel
    # Around the corner of the L: one row up is place 2 rows of five before the middle.
    assert [(k, n) for k, n in enumerate(table[1].tolist()) if n < 5] == [(7, 0), (12, 1), (13, 2)]
    assert [n for n in table[3].tolist() if n < 5] == [3]
    assert [n for n in table[4].tolist() if n < 5] == [4]


def on_grid(x: torch.Tensor) -> torch.Tensor:
    """The first image's patches (C, 4, R) on a grid (R, C, 10, 41)."""
    grid = x.new_zeros(x.shape[2], x.shape[0], 10, 41)
    for patch, (row, column) in enumerate(POSITION[:4].tolist()):
        grid[:, :, row, column] = x[:, patch].T
    return grid


def with_blank(table: torch.Tensor) -> torch.Tensor:
    """Neighbours (P, 25) as a grid has them, (25, P + 1): the last patch is none."""
    none = torch.full((1, 25), len(table))
    return torch.cat([table, none]).T.contiguous()


def test_it_is_a_convolution_of_the_grid() -> None:
    torch.manual_seed(0)
    table = with_blank(neighbours(POSITION[:4], OWNER[:4]))
    kernel = torch.randn(7, 6, 5, 5, dtype=torch.float64, requires_grad=True)
    x = torch.randn(6, 4, 3, dtype=torch.float64, requires_grad=True)
    found = Convolution.apply(F.pad(x, (0, 0, 0, 1)), table, kernel.flatten(1))[:, :4]
    whole = F.conv2d(on_grid(x), kernel, padding=2)  # (R, 7, 10, 41)
    expected = torch.stack([whole[:, :, row, column].T for row, column in POSITION[:4].tolist()], 1)
    torch.testing.assert_close(found, expected)
    push = torch.randn_like(found)
    ours = torch.autograd.grad((found * push).sum(), (x, kernel))
    theirs = torch.autograd.grad((expected * push).sum(), (x, kernel))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_the_norm_runs_after_real_places_alone() -> None:
    torch.manual_seed(0)
    module, table = Refinement(2).train(), with_blank(neighbours(POSITION, OWNER))
    sums, real = F.pad(20 * torch.rand(4, 5, 4), (0, 0, 0, 1)), torch.ones(6, 4, dtype=torch.bool)
    real[3, 2:] = real[5] = False
    for _ in range(200):
        _, totals = module(sums, table, module.running(), real)
        module.follow(totals)
    off, _ = module(sums, table, module.running(), real)
    torch.testing.assert_close(off[:, real].mean(1), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(off[:, real].std(1, correction=0), torch.ones(2), atol=1e-2, rtol=0)
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
        monkeypatch.setattr(coverage, "ROOM", 1e9)
        assert len(coverage.plan(memory, Packing.of(lengths))[0]) == 1
        whole = decoder.hidden(tokens, index, memory, Packing.of(lengths))
        monkeypatch.setattr(coverage, "PAIRS", 1)
        assert len(coverage.plan(memory, Packing.of(lengths))[0]) == 2
        parts = decoder.hidden(tokens, index, memory, Packing.of(lengths))
    torch.testing.assert_close(whole, parts)
