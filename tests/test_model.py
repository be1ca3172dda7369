"""Networks: packing changes nothing, memory is shared, the paper's sizes and DINO's names fit."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from gryphone.config import PRESETS, Canvas, DecoderStyle, ModelConfig
from gryphone.errors import ConfigError
from gryphone.kinds import build_model
from gryphone.model import DenseEncoder, Packing, Sinusoids, attend
from gryphone.raster import InkBatch, Patches, draw, to_patches

SIZES = (30, 9)


def inks(count: int) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(1)
    return [
        [rng.normal(size=(6, 2)).cumsum(0) for _ in range(rng.integers(1, 7))] for _ in range(count)
    ]


def look(batch: InkBatch, config: ModelConfig) -> Patches:
    return to_patches(draw(batch, config.canvas), config.canvas, dense=config.keep_all)


def canvases(lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor, Packing]:
    g = torch.Generator().manual_seed(3)
    total = sum(lengths)
    tokens = torch.stack([torch.randint(0, n, (total,), generator=g) for n in SIZES], 1)
    index = torch.cat([torch.arange(n) for n in lengths])
    return tokens, index, Packing.of(torch.tensor(lengths))


@pytest.mark.parametrize("preset", ["tiny", "tiny-dense"])
def test_a_sample_is_answered_the_same_alone_and_in_a_batch(preset: str) -> None:
    config = PRESETS["tiny"]
    if preset == "tiny-dense":
        config = replace(config, canvas=Canvas("square", 64, 8, 8), dense=True, aux=False)
    model = build_model(config, SIZES).eval()
    batch, lengths = inks(5), [7, 12, 3, 40, 5]
    tokens, index, own = canvases(lengths)
    with torch.inference_mode():
        together = model.decode(
            tokens, index, model.encode(look(InkBatch.from_strokes(batch), config)), own
        )
        for i, ink in enumerate(batch):
            begin, end = own.offsets[i : i + 2].tolist()
            alone = model.decode(
                tokens[begin:end],
                index[begin:end],
                model.encode(look(InkBatch.from_strokes([ink]), config)),
                Packing.of(torch.tensor([lengths[i]])),
            )
            for a, b in zip(alone, together, strict=True):
                assert torch.allclose(a, b[begin:end], atol=2e-5)


def test_two_canvases_share_one_memory() -> None:
    config = PRESETS["tiny"]
    model = build_model(config, SIZES).eval()
    memory = model.encode(look(InkBatch.from_strokes(inks(3)), config))
    tokens, index, own = canvases([6, 6, 9, 9, 4, 4])
    both = model.decode(tokens, index, memory, own)[0]
    for view in (0, 1):
        rows = torch.cat(
            [torch.arange(*own.offsets[2 * i + view : 2 * i + view + 2].tolist()) for i in range(3)]
        )
        single = model.decode(
            tokens[rows], index[rows], memory, Packing.of(torch.tensor([6, 9, 4]))
        )[0]
        assert torch.allclose(single, both[rows], atol=2e-5)


def test_every_token_sees_both_sides_and_the_ink() -> None:
    config = PRESETS["tiny"]
    model = build_model(config, SIZES).eval()
    tokens, index, own = canvases([8])
    one, two = (model.encode(look(InkBatch.from_strokes([ink]), config)) for ink in inks(2))
    base = model.decode(tokens, index, one, own)[0]
    changed = tokens.clone()
    changed[7] = 0
    assert not torch.allclose(base[0], model.decode(changed, index, one, own)[0][0])
    assert not torch.allclose(base, model.decode(tokens, index, two, own)[0])


@pytest.mark.parametrize("learning", [False, True])
def test_ragged_attention_equals_attention_one_by_one(learning: bool) -> None:
    g = torch.Generator().manual_seed(0)
    queries, keys = [3, 1, 9, 40, 2, 33], [4, 17, 2, 40, 65, 50]
    rows, columns = Packing.of(torch.tensor(queries)), Packing.of(torch.tensor(keys))
    q, k, v = (
        torch.randn(sum(counts), 2, 8, generator=g, requires_grad=True)
        for counts in (queries, keys, keys)
    )
    with torch.set_grad_enabled(learning):
        out = attend(q, k, v, rows, columns, 0.0)
    every = zip(q.split(queries), k.split(keys), v.split(keys), strict=True)
    scores = [(torch.einsum("qhd,khd->hqk", q, k) / 8**0.5, v) for q, k, v in every]
    expected = torch.cat([torch.einsum("hqk,khd->qhd", s.softmax(-1), v) for s, v in scores])
    assert torch.allclose(out, expected, atol=1e-5)
    if learning:
        weights = torch.randn(out.shape, generator=g)
        found, wanted = (
            torch.autograd.grad((x * weights).sum(), (q, k, v)) for x in (out, expected)
        )
        assert all(torch.allclose(*pair, atol=1e-5) for pair in zip(found, wanted, strict=True))


def test_the_paper_preset_is_the_paper_s() -> None:
    c = PRESETS["paper"]
    assert (c.canvas.kind, c.canvas.side, c.canvas.patch) == ("square", 224, 8)
    assert (c.dense, c.width, c.encoder_depth, c.decoder_depth, c.length) == (True, 384, 12, 5, 150)
    assert (c.encoder_heads, c.decoder_heads, c.attention_dropout) == (6, 8, 0.3)
    model = build_model(c, (107, 25))
    attention = [m for m in model.modules() if hasattr(m, "dropout") and hasattr(m, "heads")]
    assert [m.dropout for m in attention] == [0.0] * 12 + [0.3] * 10  # DINO's is left as it is
    block = model.decoder.blocks[0]
    assert (block.mlp.fc1[1].out_features, block.mlp.activate) == (384, torch.nn.functional.relu)
    linear = [m for m in model.decoder.modules() if isinstance(m, torch.nn.Linear)]
    norms = [m for m in model.decoder.modules() if isinstance(m, torch.nn.LayerNorm)]
    assert len(linear) == len(norms) == 5 * 7 + 2  # a norm before every one, and no other
    assert not [n for n, _ in model.decoder.named_parameters() if n.startswith("position")]
    patches = to_patches(draw(InkBatch.from_strokes(inks(1)), c.canvas), c.canvas, dense=True)
    shallow = build_model(replace(c, encoder_depth=1), (107, 25))  # no layer changes the shape
    features, rows = shallow.encoder(patches)
    assert features.shape == (785, 384) and rows.longest == 785


def test_streams_of_one_table_share_pad_and_mask() -> None:
    def said(one_table: bool, modifier: int, change: int) -> torch.Tensor:
        torch.manual_seed(0)
        style = DecoderStyle(one_table=one_table, sinusoids=True)
        model = build_model(replace(PRESETS["tiny"], decoder=style), (20, 9)).eval()
        with torch.no_grad():
            model.decoder.embed[1].weight[change] += 1
        c = PRESETS["tiny"].canvas
        memory = model.encode(to_patches(draw(InkBatch.from_strokes(inks(1)), c), c))
        tokens = torch.tensor([[5, modifier], [6, 3]])
        own = Packing.of(torch.tensor([2]))
        return model.decode(tokens, torch.arange(2), memory, own)[0]

    for modifier in (0, 1):  # PAD and MASK: the second stream's own rows say nothing
        assert torch.equal(said(True, modifier, modifier), said(True, modifier, 8))
        assert not torch.equal(said(False, modifier, modifier), said(False, modifier, 8))
    assert not torch.equal(said(True, 4, 4), said(True, 4, 8))


def test_sinusoids_are_one_for_each_place() -> None:
    table = Sinusoids(150, 64)(torch.arange(150))
    assert torch.allclose(table[0], torch.tensor([0.0, 1.0]).repeat(32))
    assert torch.allclose(table[7, :2], torch.tensor([math.sin(7), math.cos(7)]), atol=1e-5)
    assert len(table.unique(dim=0)) == 150


def test_the_ink_preset_has_24_to_32_million_parameters() -> None:
    model = build_model(PRESETS["ink"], (349, 32))
    assert 24e6 < sum(p.numel() for p in model.parameters()) < 32e6


def dino_state(width: int, depth: int, tokens: int) -> dict[str, torch.Tensor]:
    """A state dict with the names and shapes of the public DINO ViT-S/8."""
    g = torch.Generator().manual_seed(0)

    def t(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=g) * 0.02

    state = {
        "cls_token": t(1, 1, width),
        "pos_embed": t(1, tokens + 1, width),
        "patch_embed.proj.weight": t(width, 3, 8, 8),
        "patch_embed.proj.bias": t(width),
        "norm.weight": t(width),
        "norm.bias": t(width),
    }
    for i in range(depth):
        for name, shape in {
            "norm1.weight": (width,),
            "norm1.bias": (width,),
            "attn.qkv.weight": (3 * width, width),
            "attn.qkv.bias": (3 * width,),
            "attn.proj.weight": (width, width),
            "attn.proj.bias": (width,),
            "norm2.weight": (width,),
            "norm2.bias": (width,),
            "mlp.fc1.weight": (4 * width, width),
            "mlp.fc1.bias": (4 * width,),
            "mlp.fc2.weight": (width, 4 * width),
            "mlp.fc2.bias": (width,),
        }.items():
            state[f"blocks.{i}.{name}"] = t(*shape)
    return state


def test_dino_s_state_dict_loads_and_the_patch_embedding_is_its_convolution() -> None:
    encoder = build_model(PRESETS["paper"], SIZES).encoder
    assert isinstance(encoder, DenseEncoder)
    state = dino_state(384, 12, 784)
    encoder.load_dino(dict(state))
    assert torch.equal(encoder.blocks[11].mlp.fc2.weight, state["blocks.11.mlp.fc2.weight"])
    image = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    convolved = torch.nn.functional.conv2d(
        image, state["patch_embed.proj.weight"], state["patch_embed.proj.bias"], stride=8
    )
    cut = image.unfold(2, 8, 8).unfold(3, 8, 8).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
    assert torch.allclose(encoder.patch_embed(cut), convolved.flatten(2).transpose(1, 2), atol=1e-4)


def test_impossible_sizes_are_named() -> None:
    with pytest.raises(ConfigError, match="384 is not a multiple of 7"):
        ModelConfig(encoder_heads=7)
    with pytest.raises(ConfigError, match="square"):
        ModelConfig(dense=True)
