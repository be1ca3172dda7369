"""Attention of short packed sequences, for training on a GPU: kernels in tiles of 32 or 64 rows.

Flash attention cuts every sequence into tiles of 128 rows and adds the queries' gradient up in
memory. Ink has 158 patches in the mean, a canvas 21 tokens: most of such a tile is padding. Here
each tile computes its own rows of the gradients alone, in a fixed order: nothing is added up
between programs, so that a step gives the same bits again.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from gryphone.model import Packing, attend


@triton.jit
def _tile(base, rows, length, stride, WIDTH: tl.constexpr):
    """Rows (n,) of one head, (n, WIDTH); zeros beyond the sequence's length."""
    places = base + rows[:, None] * stride + tl.arange(0, WIDTH)[None, :]
    return tl.load(places, mask=rows[:, None] < length, other=0.0)


@triton.jit
def _write(base, rows, length, values, stride, WIDTH: tl.constexpr):
    """The counterpart of `_tile`; nothing is written beyond the sequence's length."""
    places = base + rows[:, None] * stride + tl.arange(0, WIDTH)[None, :]
    tl.store(places, values.to(base.dtype.element_ty), mask=rows[:, None] < length)


@triton.jit
def _sequence(offsets, number):
    """Where a sequence begins, and its length."""
    begin = tl.load(offsets + number)
    return begin.to(tl.int64), tl.load(offsets + number + 1) - begin


@triton.jit
def _forward(
    q, k, v, out, sums, q_offsets, k_offsets, q_stride, k_stride, v_stride, scale,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A tile of queries over all keys; scores are powers of two, `scale` turns them into such."""
    block, head = tl.program_id(0), tl.program_id(1)
    q_begin, q_length = _sequence(q_offsets, tl.program_id(2))
    k_begin, k_length = _sequence(k_offsets, tl.program_id(2))
    if block * ROWS >= q_length:
        return
    k += k_begin * k_stride + head * WIDTH
    v += k_begin * v_stride + head * WIDTH
    rows = block * ROWS + tl.arange(0, ROWS)
    query = _tile(q + q_begin * q_stride + head * WIDTH, rows, q_length, q_stride, WIDTH)
    highest = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, k_length, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        key = _tile(k, columns, k_length, k_stride, WIDTH)
        value = _tile(v, columns, k_length, v_stride, WIDTH)
        score = tl.dot(query, tl.trans(key)) * scale
        score = tl.where(columns[None, :] < k_length, score, -float("inf"))
        higher = tl.maximum(highest, tl.max(score, 1))
        share = tl.exp2(score - higher[:, None])
        fade = tl.exp2(highest - higher)
        total = total * fade + tl.sum(share, 1)
        mixed = mixed * fade[:, None] + tl.dot(share.to(value.dtype), value)
        highest = higher
    line = q_begin * HEADS + head
    _write(out + line * WIDTH, rows, q_length, mixed / total[:, None], HEADS * WIDTH, WIDTH)
    tl.store(sums + line + rows * HEADS, highest + tl.log2(total), mask=rows < q_length)


@triton.jit
def _queries_gradient(
    q, k, v, out, gradient, sums, products, dq, q_offsets, k_offsets,
    q_stride, k_stride, v_stride, scale, factor,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A tile of queries over all keys; `products`, output times gradient, is for the keys' turn."""
    block, head = tl.program_id(0), tl.program_id(1)
    q_begin, q_length = _sequence(q_offsets, tl.program_id(2))
    k_begin, k_length = _sequence(k_offsets, tl.program_id(2))
    if block * ROWS >= q_length:
        return
    k += k_begin * k_stride + head * WIDTH
    v += k_begin * v_stride + head * WIDTH
    line = q_begin * HEADS + head
    rows = block * ROWS + tl.arange(0, ROWS)
    query = _tile(q + q_begin * q_stride + head * WIDTH, rows, q_length, q_stride, WIDTH)
    grad = _tile(gradient + line * WIDTH, rows, q_length, HEADS * WIDTH, WIDTH)
    output = _tile(out + line * WIDTH, rows, q_length, HEADS * WIDTH, WIDTH)
    product = tl.sum(output.to(tl.float32) * grad.to(tl.float32), 1)
    tl.store(products + line + rows * HEADS, product, mask=rows < q_length)
    total = tl.load(sums + line + rows * HEADS, mask=rows < q_length, other=0.0)
    found = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, k_length, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        key = _tile(k, columns, k_length, k_stride, WIDTH)
        value = _tile(v, columns, k_length, v_stride, WIDTH)
        share = tl.exp2(tl.dot(query, tl.trans(key)) * scale - total[:, None])
        share = tl.where(columns[None, :] < k_length, share, 0.0)
        of_score = share * (tl.dot(grad, tl.trans(value)) - product[:, None])
        found += tl.dot(of_score.to(key.dtype), key)
    _write(dq + line * WIDTH, rows, q_length, found * factor, HEADS * WIDTH, WIDTH)


@triton.jit
def _keys_gradient(
    q, k, v, gradient, sums, products, dk, dv, q_offsets, k_offsets,
    q_stride, k_stride, v_stride, scale, factor,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A tile of keys and values over all queries."""
    block, head = tl.program_id(0), tl.program_id(1)
    q_begin, q_length = _sequence(q_offsets, tl.program_id(2))
    k_begin, k_length = _sequence(k_offsets, tl.program_id(2))
    if block * COLUMNS >= k_length:
        return
    q += q_begin * q_stride + head * WIDTH
    line = q_begin * HEADS + head
    columns = block * COLUMNS + tl.arange(0, COLUMNS)
    key = _tile(k + k_begin * k_stride + head * WIDTH, columns, k_length, k_stride, WIDTH)
    value = _tile(v + k_begin * v_stride + head * WIDTH, columns, k_length, v_stride, WIDTH)
    of_key = tl.zeros((COLUMNS, WIDTH), tl.float32)
    of_value = tl.zeros((COLUMNS, WIDTH), tl.float32)
    for start in range(0, q_length, ROWS):
        rows = start + tl.arange(0, ROWS)
        query = _tile(q, rows, q_length, q_stride, WIDTH)
        grad = _tile(gradient + line * WIDTH, rows, q_length, HEADS * WIDTH, WIDTH)
        # Beyond the last query the gradient is zero, and so is every term.
        total = tl.load(sums + line + rows * HEADS, mask=rows < q_length, other=0.0)
        product = tl.load(products + line + rows * HEADS, mask=rows < q_length, other=0.0)
        share = tl.exp2(tl.dot(key, tl.trans(query)) * scale - total[None, :])
        of_value += tl.dot(share.to(grad.dtype), grad)
        of_score = share * (tl.dot(value, tl.trans(grad)) - product[None, :])
        of_key += tl.dot(of_score.to(query.dtype), query)
    line = k_begin * HEADS + head
    _write(dk + line * WIDTH, columns, k_length, of_key * factor, HEADS * WIDTH, WIDTH)
    _write(dv + line * WIDTH, columns, k_length, of_value, HEADS * WIDTH, WIDTH)


def _plan(rows: int, columns: int, sequences: int) -> dict[str, int]:
    """Tiles for sequences of some mean length: one of 64 rows would be mostly padding for some."""
    tiles = [32 if n <= 48 * sequences else 64 for n in (rows, columns)]
    warps = 4 if max(tiles) > 32 else 2
    return {"ROWS": tiles[0], "COLUMNS": tiles[1], "num_warps": warps, "num_stages": 2}


def _packed(x: Tensor) -> Tensor:
    """Heads one behind the other within a row, as the kernels read them."""
    return x if x.stride(2) == 1 and x.stride(1) == x.shape[2] else x.contiguous()


def _empty(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("gryphone::attend", mutates_args=())
def _attend(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor, longest: list[int]
) -> tuple[Tensor, Tensor]:
    """The output (Tq, H, D), and the logarithms of the scores' sums (Tq, H) to the base 2."""
    q, k, v = _packed(q), _packed(k), _packed(v)
    length, heads, width = q.shape
    out, sums = _empty(q), q.new_empty(length, heads, dtype=torch.float32)
    count = len(rows) - 1
    plan = _plan(length, len(k), count)
    _forward[(triton.cdiv(longest[0], plan["ROWS"]), heads, count)](
        q, k, v, out, sums, rows, columns, q.stride(0), k.stride(0), v.stride(0),
        math.log2(math.e) / math.sqrt(width), heads, width, **plan,
    )  # fmt: skip
    return out, sums


@_attend.register_fake
def _(q: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return _empty(q), q.new_empty(q.shape[:2], dtype=torch.float32)


@torch.library.custom_op("gryphone::attend_backward", mutates_args=())
def _attend_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor,
    out: Tensor, sums: Tensor, longest: list[int],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of queries, keys and values."""
    gradient, q, k, v = gradient.contiguous(), _packed(q), _packed(k), _packed(v)
    length, heads, width = q.shape
    dq, dk, dv, products = _empty(q), _empty(k), _empty(v), _empty(sums)
    count = len(rows) - 1
    plan = _plan(length, len(k), count)
    factor = 1 / math.sqrt(width)
    numbers = (q.stride(0), k.stride(0), v.stride(0), math.log2(math.e) * factor, factor)
    _queries_gradient[(triton.cdiv(longest[0], plan["ROWS"]), heads, count)](
        q, k, v, out, gradient, sums, products, dq, rows, columns, *numbers, heads, width, **plan
    )
    # A few registers less let three tiles share a multiprocessor instead of two.
    _keys_gradient[(triton.cdiv(longest[1], plan["COLUMNS"]), heads, count)](
        q, k, v, gradient, sums, products, dk, dv, rows, columns, *numbers, heads, width,
        maxnreg=168, **plan,
    )  # fmt: skip
    return dq, dk, dv


@_attend_backward.register_fake
def _(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: object) -> tuple[Tensor, ...]:
    return _empty(q), _empty(k), _empty(v)


def _keep(ctx, inputs, output) -> None:
    *tensors, ctx.longest = inputs
    ctx.save_for_backward(*tensors, *output)


def _differentiate(ctx, gradient, _):
    found = torch.ops.gryphone.attend_backward(gradient, *ctx.saved_tensors, ctx.longest)
    return *found, None, None, None


_attend.register_autograd(_differentiate, setup_context=_keep)


def attend_tiled(
    q: Tensor, k: Tensor, v: Tensor, rows: Packing, columns: Packing, dropout: float
) -> Tensor:
    """As `gryphone.model.attend`, which is asked where there is something that no kernel does."""
    if dropout or q.dtype == torch.float32 or q.shape[2] not in (16, 32, 64, 128):
        return attend(q, k, v, rows, columns, dropout)
    where = rows.offsets, columns.offsets
    out: Tensor = torch.ops.gryphone.attend(q, k, v, *where, [rows.longest, columns.longest])[0]
    return out
