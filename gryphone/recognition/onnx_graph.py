"""The networks of `gryphone.model` as two ONNX graphs, made from a checkpoint's arrays alone.

Encoder, one image a run: pixels (P, window²), position (P, 2), grid (2,) -> key_i and value_i
(1, heads, P, D) for every block of the decoder, and patch_s (P, V), log-probs of the patch heads.
Decoder, canvases of one image: tokens (B, L, S), key_i, value_i -> log_probs_s (B, L, V), and
query_i (B, L, width), what each token looked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import numpy as np

from gryphone.checkpoint import SCALE, Checkpoint, read_arrays, read_checkpoint
from gryphone.config import ModelConfig
from gryphone.errors import CheckpointError
from gryphone.recognition.onnx_file import MICROSOFT, Graph

Arrays = Mapping[str, np.ndarray]

DINO_MEAN, DINO_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Arithmetic(StrEnum):
    """How linear layers are computed.

    int8: in eight bits, as the weights are shipped; what goes through is rounded to 255 levels of
    each row's own size, so that a row's result does not depend on the rows beside it.
    uint8: the same numbers, stored with an offset of 128, for processors whose instructions for
    int8 add pairs of products in 16 bits, where they overflow.
    """

    float32 = "float32"
    int8 = "int8"
    uint8 = "uint8"


class NetworkGraph(Graph):
    """A graph of this network's parts; values have their rows before and their width last."""

    def __init__(self, name: str, width: int, arrays: Arrays, how: Arithmetic) -> None:
        super().__init__(name)
        self.width, self.arrays, self.how = width, arrays, how
        self._rounded: dict[str, tuple[str, str]] = {}

    def array(self, name: str, *shape: int) -> np.ndarray:
        """A checkpoint's tensor as it is stored."""
        found = self.arrays.get(name)
        if found is None or found.shape != shape:
            what = "is missing" if found is None else f"has the shape {found.shape}"
            raise CheckpointError(f"{name} {what}, and should have {shape}")
        return found

    def parameter(self, name: str, *shape: int) -> str:
        """A checkpoint's tensor in float32."""
        return self.tensor(restored(self.arrays, name, self.array(name, *shape)), name=name)

    def linear(self, x: str, name: str, size: int, width: int | None = None) -> str:
        """A linear layer on (..., width), by default the network's, -> (..., size)."""
        weight = self.array(f"{name}.weight", size, width or self.width)
        bias = self.parameter(f"{name}.bias", size)
        if self.how is Arithmetic.float32:
            matrix = restored(self.arrays, f"{name}.weight", weight).T
            return self.add("Add", self.add("MatMul", x, self.tensor(matrix, name=name)), bias)
        whole, scale = in_eight_bits(weight, self.arrays.get(f"{name}.weight{SCALE}"))
        if self.how is Arithmetic.uint8:
            whole = (whole.view(np.uint8) ^ 128).astype(np.uint8)
        rounded, largest = self._in_eight_bits(x)
        middle, step = self.tensor(128, "uint8"), self.tensor(np.float32(1 / 127))
        offset = [middle] if self.how is Arithmetic.uint8 else []
        product = self.add(
            f"{MICROSOFT}:MatMulIntegerToFloat",
            *(rounded, self.tensor(whole.T, str(whole.dtype), f"{name}.weight")),
            *(step, self.tensor(scale, name=f"{name}.scale"), middle, *offset),
        )
        return self.add("Add", self.add("Mul", product, largest), bias)

    def _in_eight_bits(self, x: str) -> tuple[str, str]:
        """Each row as 255 levels of its own size, so that no row depends on those beside it."""
        if x not in self._rounded:
            size = self.add("ReduceMax", self.add("Abs", x), self.tensor([-1], "int64"), keepdims=1)
            size = self.add("Max", size, self.tensor(1e-12))
            step, middle = self.tensor(np.float32(1 / 127)), self.tensor(128, "uint8")
            rounded = self.add("QuantizeLinear", self.add("Div", x, size), step, middle)
            self._rounded[x] = rounded, size
        return self._rounded[x]

    def norm(self, x: str, name: str, epsilon: float) -> str:
        """Layer normalisation."""
        weights = [self.parameter(f"{name}.{part}", self.width) for part in ("weight", "bias")]
        return self.add("LayerNormalization", x, *weights, axis=-1, epsilon=epsilon)

    def mlp(self, x: str, one: str, two: str, hidden: int, width: int | None = None) -> str:
        """Two layers with GELU: (..., width) -> (..., hidden) -> (..., the network's width)."""
        x = self.add(f"{MICROSOFT}:Gelu", self.linear(x, one, hidden, width))
        return self.linear(x, two, self.width, hidden)

    def split(self, x: str, parts: int, axis: int = -1) -> tuple[str, ...]:
        """Equal parts."""
        return self.add_many("Split", x, outputs=parts, axis=axis, num_outputs=parts)

    def attend(self, q: str, k: str, v: str, heads: int) -> str:
        """Attention of (B, L, W) on (B, P, W) or (B, H, P, D)."""
        return self.add(f"{MICROSOFT}:MultiHeadAttention", q, k, v, num_heads=heads)


def graphs_of(
    path: Path, how: Arithmetic, checkpoint: Checkpoint | None = None
) -> tuple[Graph, Graph]:
    """Encoder and decoder of a checkpoint directory; `checkpoint` is what it says."""
    checkpoint = checkpoint or read_checkpoint(path)
    if not checkpoint.config.has_graphs:
        raise CheckpointError(
            f"the network in {path} has a decoder that is built in PyTorch alone; "
            "use backend='torch' (--backend torch)"
        )
    sizes = tuple(len(vocabulary) for vocabulary in checkpoint.tokenizer.vocabularies)
    parts = (checkpoint.config, sizes, read_arrays(path), how)
    try:
        return encoder_graph(*parts), decoder_graph(*parts)
    except CheckpointError as error:
        raise CheckpointError(
            f"the weights in {path} do not fit its config.json: {error}"
        ) from error


def encoder_graph(
    config: ModelConfig, sizes: tuple[int, ...], arrays: Arrays, how: Arithmetic
) -> Graph:
    """From the patches of an image to what the decoder asks."""
    g = NetworkGraph("encoder", config.width, arrays, how)
    heads, window, W, seen = config.encoder_heads, config.canvas.window, config.width, "P"
    pixels = g.input("pixels", "uint8", ["P", window**2])
    position = g.input("position", "float32", ["P", 2])
    grid = g.input("grid", "float32", [2])
    ink = g.add("Cast", pixels, to=1)
    if config.dense:
        patches = (config.canvas.side // config.canvas.patch) ** 2
        x, turn, seen = _dense_stem(g, ink, window, patches), None, "P + 1"
    else:
        x, turn = _ink_stem(g, ink, position, grid, window), _rotary(g, position, W // heads)
    x = g.add("Unsqueeze", x, g.tensor([0], "int64"))  # (1, P, W)
    for i in range(config.encoder_depth):
        name = f"encoder.blocks.{i}"
        y = g.linear(g.norm(x, f"{name}.norm1", 1e-6), f"{name}.attn.qkv", 3 * W)
        q, k, v = g.split(y, 3)
        if turn is not None:
            q, k = (_rotated(g, each, turn, heads) for each in (q, k))
        x = g.add("Add", x, g.linear(g.attend(q, k, v, heads), f"{name}.attn.proj", W))
        y = g.mlp(g.norm(x, f"{name}.norm2", 1e-6), f"{name}.mlp.fc1", f"{name}.mlp.fc2", 4 * W)
        x = g.add("Add", x, y)
    x = g.norm(x, "encoder.norm", 1e-6)
    heads = config.decoder_heads
    for i in range(config.decoder_depth):
        both = g.split(g.linear(x, f"decoder.blocks.{i}.cross.kv", 2 * W), 2)
        for part, y in zip(("key", "value"), both, strict=True):
            y = g.add("Transpose", g.shaped(y, 0, 0, heads, -1), perm=[0, 2, 1, 3])
            g.output(y, f"{part}_{i}", [1, heads, seen, W // heads])
    for s, size in enumerate(sizes if config.aux else ()):
        said = g.add("LogSoftmax", g.linear(x, f"patch_heads.{s}", size), axis=-1)
        g.output(g.shaped(said, -1, size), f"patch_{s}", [seen, size])
    return g


def _ink_stem(g: NetworkGraph, ink: str, position: str, grid: str, window: int) -> str:
    """What `model.InkEncoder` makes of patches before its blocks."""
    x = g.add("Mul", g.add("Sub", ink, g.tensor(0.1)), g.tensor(2.0))
    x = g.mlp(x, "encoder.stem.0", "encoder.stem.2", 2 * g.width, window**2)
    rates = g.tensor(2.0 ** np.arange(8))
    absolute = g.add("Div", g.add("Unsqueeze", position, g.tensor([2], "int64")), g.tensor(256.0))
    relative = g.add("Div", g.add("Add", position, g.tensor(0.5)), grid)
    relative = g.add("Div", g.add("Unsqueeze", relative, g.tensor([2], "int64")), g.tensor(4.0))
    both = [g.add("Mul", each, rates) for each in (absolute, relative)]
    angle = g.add("Mul", g.shaped(g.add("Concat", *both, axis=1), 0, -1), g.tensor(2 * math.pi))
    waves = g.add("Concat", g.add("Sin", angle), g.add("Cos", angle), axis=1)
    return g.add("Add", x, g.linear(waves, "encoder.place", g.width, 64))


def _dense_stem(g: NetworkGraph, ink: str, window: int, patches: int) -> str:
    """What `model.DenseEncoder` makes of patches before its blocks."""
    paper = g.add("Sub", g.tensor(1.0), ink)
    channels = [
        g.add("Div", g.add("Sub", paper, g.tensor(m)), g.tensor(s))
        for m, s in zip(DINO_MEAN, DINO_STD, strict=True)
    ]
    x = g.linear(g.add("Concat", *channels, axis=1), "encoder.patch_embed", g.width, 3 * window**2)
    first = g.shaped(g.parameter("encoder.cls_token", 1, 1, g.width), 1, -1)
    places = g.shaped(g.parameter("encoder.pos_embed", 1, patches + 1, g.width), -1, g.width)
    return g.add("Add", g.add("Concat", first, x, axis=0), places)


def _rotary(g: NetworkGraph, position: str, dim: int) -> tuple[str, str]:
    """Cosine and signed sine (P, 1, dim), as `model.rotary` and `model.rotate` use them."""
    rates = np.float32(100.0) ** -(np.arange(0, dim // 2, 2, dtype=np.float32) / (dim // 2))
    angle = g.add("Mul", g.add("Unsqueeze", position, g.tensor([2], "int64")), g.tensor(rates))
    angle = g.shaped(angle, 0, 1, dim // 2)
    cos, sin = g.add("Cos", angle), g.add("Sin", angle)
    signed = g.add("Concat", g.add("Neg", sin), sin, axis=-1)
    return g.add("Concat", cos, cos, axis=-1), signed


def _rotated(g: NetworkGraph, x: str, turn: tuple[str, str], heads: int) -> str:
    """Queries or keys (1, P, W) turned by their positions."""
    cos, sin = turn
    x = g.shaped(x, 0, 0, heads, -1)
    a, b = g.split(x, 2)
    turned = g.add("Mul", g.add("Concat", b, a, axis=-1), sin)
    return g.shaped(g.add("Add", g.add("Mul", x, cos), turned), 0, 0, -1)


def decoder_graph(
    config: ModelConfig, sizes: tuple[int, ...], arrays: Arrays, how: Arithmetic
) -> Graph:
    """From canvases to what each of their places holds."""
    g = NetworkGraph("decoder", config.width, arrays, how)
    heads, W = config.decoder_heads, config.width
    tokens = g.input("tokens", "int32", ["B", "L", len(sizes)])
    shape = (1, heads, "P", W // heads)
    length = g.add("Shape", tokens, start=1, end=2)
    places = g.parameter("decoder.position.weight", config.length, W)
    x = g.add("Slice", places, g.tensor([0], "int64"), length)
    for s, size in enumerate(sizes):
        column = g.add("Gather", tokens, g.tensor(s, "int64"), axis=2)
        table = g.parameter(f"decoder.embed.{s}.weight", size, W)
        x = g.add("Add", x, g.add("Gather", table, column))
    canvases = g.add("Shape", x)
    queries = []
    for i in range(config.decoder_depth):
        name = f"decoder.blocks.{i}"
        key, value = (g.input(f"{part}_{i}", "float32", shape) for part in ("key", "value"))
        y = g.linear(g.norm(x, f"{name}.norm1", 1e-5), f"{name}.attn.qkv", 3 * W)
        q, k, v = g.split(y, 3)
        x = g.add("Add", x, g.linear(g.attend(q, k, v, heads), f"{name}.attn.proj", W))
        q = g.linear(g.norm(x, f"{name}.norm2", 1e-5), f"{name}.cross.q", W)
        queries.append(q)
        # All canvases form one sequence of queries: the patches are read once.
        y = g.attend(g.shaped(q, 1, -1, W), key, value, heads)
        x = g.add("Add", x, g.add("Reshape", g.linear(y, f"{name}.cross.proj", W), canvases))
        y = g.mlp(g.norm(x, f"{name}.norm3", 1e-5), f"{name}.mlp.fc1", f"{name}.mlp.fc2", 4 * W)
        x = g.add("Add", x, y)
    x = g.norm(x, "decoder.norm", 1e-5)
    for s, size in enumerate(sizes):
        said = g.add("LogSoftmax", g.linear(x, f"decoder.heads.{s}", size), axis=-1)
        g.output(said, f"log_probs_{s}", ["B", "L", size])
    for i, q in enumerate(queries):
        g.output(q, f"query_{i}", ["B", "L", W])
    return g


def restored(arrays: Arrays, name: str, array: np.ndarray) -> np.ndarray:
    """A stored tensor in float32, whether it was rounded to eight bits or not."""
    scale = arrays.get(name + SCALE)
    whole = array.astype(np.float32)
    return whole if scale is None else whole * scale


def in_eight_bits(weight: np.ndarray, scale: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """A matrix (out, in) in int8 with the scale (out,) of its rows, as stored or rounded now."""
    if scale is not None:
        return weight, scale.ravel()
    weight = weight.astype(np.float32)
    found = np.maximum(np.abs(weight).max(1) / np.float32(127), np.float32(1e-12))
    return np.rint(weight / found[:, None]).clip(-128, 127).astype(np.int8), found
