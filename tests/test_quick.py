"""What makes training faster must not change what is learned."""

import os
import sys
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from gryphone.config import PRESETS
from gryphone.kinds import build_model
from gryphone.model import Packing, attend
from gryphone.rivals.causal import attend_causal
from gryphone.training.quick import HashedDropout, aside, handed_on, quicken


def seeds(number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(number)
    return torch.randint(-(2**31), 2**31, (2,), dtype=torch.int32, generator=generator)


def test_hashed_dropout_drops_its_share_everywhere_and_keeps_the_mean() -> None:
    x = torch.ones(1000, 384)
    out = HashedDropout(0.1, seeds(0))(x)
    assert out.unique().tolist() == pytest.approx([0, 1 / 0.9])
    dropped = (out == 0).float()
    assert dropped.mean() == pytest.approx(0.1, abs=0.003)  # six deviations
    # Rows and columns differ among each other as much as chance lets them.
    assert dropped.mean(1).std() == pytest.approx((0.09 / 384) ** 0.5, rel=0.15)
    assert dropped.mean(0).std() == pytest.approx((0.09 / 1000) ** 0.5, rel=0.2)


def test_masks_of_other_seeds_have_nothing_to_do_with_each_other() -> None:
    x = torch.ones(1000, 384)
    masks = [(HashedDropout(0.1, seeds(n))(x) == 0).float() - 0.1 for n in range(6)]
    masks += [masks[0].roll(1, 0), masks[0].roll(1, 1)]  # neighbours within one mask
    for one, other in [*pairwise(masks[:6]), (masks[0], masks[6]), (masks[0], masks[7])]:
        assert abs(float((one * other).mean() / 0.09)) < 6 / (1000 * 384) ** 0.5


def test_the_gradient_passes_where_the_value_did_and_evaluation_drops_nothing() -> None:
    x = torch.randn(50, 16, requires_grad=True)
    drop = HashedDropout(0.5, seeds(1))
    out = drop(x)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(gradient, torch.where(out != 0, 2.0, 0.0))
    assert drop.eval()(x) is x


def test_without_triton_the_network_stays_as_it_is_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    model = build_model(PRESETS["tiny"], (5, 3))
    before = [type(m) for m in model.modules()]
    assert "Triton" in quicken(model)
    assert [type(m) for m in model.modules()] == before


def test_on_a_cpu_samples_are_handed_on_as_they_are() -> None:
    with aside(torch.device("cpu")):
        made = (Packing.of(torch.tensor([2, 3])), [torch.ones(2)])
    assert handed_on(made) is made


class WholeSearches(TorchFunctionMode):
    """Counts searches, and refuses one in a slice, which some compilers take for its tensor."""

    count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.searchsorted:
            assert args[0].storage_offset() == 0
            self.count += 1
        return func(*args, **(kwargs or {}))


def test_a_causal_place_sees_its_own_past_and_is_found_as_compilers_can() -> None:
    torch.manual_seed(0)
    lengths = [3, 1, 0, 5]
    rows = Packing.of(torch.tensor(lengths))
    q, k, v = torch.randn(3, sum(lengths), 2, 16).unbind()
    with WholeSearches() as searches:
        found = attend_causal(q, k, v, rows, rows, 0.0)
    assert searches.count == 1
    for ours, *alone in zip(*(x.split(lengths) for x in (found, q, k, v)), strict=True):
        parts = [x.transpose(0, 1) for x in alone]  # (H, L, D)
        wanted = F.scaled_dot_product_attention(*parts, is_causal=True).transpose(0, 1)
        torch.testing.assert_close(ours, wanted)


@pytest.mark.skipif(
    find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1",
    reason="wants Triton, and TRITON_INTERPRET=1, which needs no GPU",
)
@pytest.mark.parametrize(
    ("queries", "keys"),
    [
        ([1, 70, 130, 64, 5], None),  # tiles of 64, of themselves
        ([16, 24, 3], None),  # tiles of 32
        ([20, 33, 1], [100, 65, 3]),  # of others: 32 by 64
    ],
)
def test_attention_in_tiles_equals_the_plain_one(
    queries: list[int], keys: list[int] | None
) -> None:
    from gryphone.training.attention import attend_tiled

    torch.manual_seed(0)
    rows = Packing.of(torch.tensor(queries))
    columns = rows if keys is None else Packing.of(torch.tensor(keys))
    packed = torch.randn(int(columns.offsets[-1]), 3, 2, 16).half()
    q, k, v = packed.unbind(1)  # not contiguous, as in the network
    q = q if keys is None else torch.randn(sum(queries), 2, 16).half()
    weight = torch.randn(len(q), 2, 16)
    answers = []
    for way, dtype in ((attend_tiled, torch.float16), (attend, torch.float32)):
        leaves = [x.to(dtype).detach().requires_grad_() for x in (q, k, v)]
        out = way(*leaves, rows, columns, 0.0)
        answers.append([out, *torch.autograd.grad(out, leaves, weight.to(dtype))])
    for found, wanted in zip(*answers, strict=True):
        assert (found.float() - wanted).norm() < 1e-3 * wanted.norm()
