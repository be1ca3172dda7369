"""What the ink of one symbol is by itself, says a small network that has seen nothing else.

The strokes are drawn at a size of their own, as density and direction of the line, and a few
convolutions name the symbol. It knows nothing of formulas: where there is no context, or none yet,
it is a second opinion (`recognition.opinion`). `gryphone.release.lone` trains it, and its weights
lie beside a checkpoint's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gryphone.checkpoint import SCALE, WEIGHTS, arrays_in, texts_in
from gryphone.errors import CheckpointError
from gryphone.ink import Stroke
from gryphone.reading.gestures import evenly
from gryphone.recognition.onnx_file import Graph
from gryphone.recognition.onnx_graph import in_eight_bits

if TYPE_CHECKING:
    import onnxruntime as ort

FILE = "lone.safetensors"
SIDE, MARGIN = 32, 2  # pixels of the picture, and how many of them are left around the ink
POINTS = 192  # of a symbol: less than a pixel apart
CHANNELS = (24, 48, 96, 160)  # of the picture at full size, a half, a quarter and an eighth
HIDDEN = 256
MOST_SIZE = 4.0  # of the logarithm of a symbol's size


def evenly_drawn(strokes: Sequence[Stroke]) -> tuple[np.ndarray, np.ndarray]:
    """A symbol as POINTS points at equal distances (POINTS, 2), its longer side from -1 to 1, and
    which of them ink joins to the one before (POINTS,)."""
    strokes = strokes[: POINTS // 4]
    every = np.concatenate(strokes)
    low, high = every.min(0), every.max(0)
    unit = max(float((high - low).max()) / 2, 1e-12)
    lengths = [float(np.hypot(*np.diff(s, axis=0).T).sum()) for s in strokes]
    free = POINTS - 2 * len(strokes)
    counts = [2 + int(free * each / max(sum(lengths), 1e-12)) for each in lengths]
    counts[int(np.argmax(lengths))] += POINTS - sum(counts)
    pen = np.ones(POINTS, dtype=bool)
    pen[np.cumsum([0, *counts[:-1]])] = False
    points = np.concatenate([evenly(*each) for each in zip(strokes, counts, strict=True)])
    return ((points - (low + high) / 2) / unit).astype(np.float32), pen


def pictures(points: np.ndarray, pen: np.ndarray) -> np.ndarray:
    """Symbols (B, POINTS, 2) as pictures (B, 3, SIDE, SIDE): how much line is in a pixel, and twice
    its angle as cosine and sine, which do not depend on the way it was drawn."""
    count = len(points)
    low, high = points.min(1, keepdims=True), points.max(1, keepdims=True)
    unit = np.maximum((high - low).max(2, keepdims=True), 1e-6)
    at = (points - (low + high) / 2) / unit * (SIDE - 1 - 2 * MARGIN) + (SIDE - 1) / 2
    way = np.zeros_like(at)
    way[:, 1:] = np.where(pen[:, 1:, None], at[:, 1:] - at[:, :-1], 0)
    length = np.hypot(way[..., 0], way[..., 1])
    square = np.maximum(length**2, 1e-8)
    ink = np.where(length < 1e-4, 0.05, np.minimum(length, 2.0))  # a dot has no length
    cos = ink * (way[..., 0] ** 2 - way[..., 1] ** 2) / square
    sin = ink * 2 * way[..., 0] * way[..., 1] / square
    middle = at - way / 2
    corner = np.clip(np.floor(middle), 0, SIDE - 2).astype(np.intp)
    part = middle - corner
    first = np.arange(count, dtype=np.intp)[:, None] * SIDE * SIDE
    out = np.zeros((3, count * SIDE * SIDE), dtype=np.float32)
    for right in (0, 1):
        for down in (0, 1):
            share = (part[..., 0] if right else 1 - part[..., 0]) * (
                part[..., 1] if down else 1 - part[..., 1]
            )
            pixel = (first + (corner[..., 1] + down) * SIDE + corner[..., 0] + right).ravel()
            for channel, value in enumerate((ink, cos, sin)):
                weights = (share * value).ravel()
                out[channel] += np.bincount(pixel, weights, out.shape[1]).astype(np.float32)
    full = np.minimum(out[0], 1.5) / np.maximum(out[0], 1e-6)
    return np.ascontiguousarray((out * full).reshape(3, count, SIDE, SIDE).swapaxes(0, 1))


class LoneReader:
    """The network at work."""

    def __init__(self, graph: Any, symbols: Sequence[str]) -> None:
        """`graph` is the file, or in the browser the session that was made of it."""
        self.graph, self.symbols = graph, tuple(symbols)

    @classmethod
    def load(cls, folder: Path) -> LoneReader | None:
        """The reader beside a checkpoint, or else the package's, which serves them all."""
        path = next((f / FILE for f in (folder, WEIGHTS) if (f / FILE).is_file()), None)
        if path is None:
            return None
        arrays, texts = arrays_in(path), texts_in(path)
        try:
            symbols = [str(name) for name in list[Any](json.loads(texts["symbols"]))]
            graph = graph_of(arrays, len(symbols))
        except (KeyError, ValueError, TypeError) as error:
            raise CheckpointError(f"{path} holds no reader of lone symbols: {error}") from error
        return cls(graph.to_bytes({}), symbols)

    @cached_property
    def _session(self) -> ort.InferenceSession:
        from gryphone.recognition.onnx_backend import session_of

        return session_of(self.graph, 1)

    def log_probs(self, symbols: Sequence[Sequence[Stroke]], usual: float = math.nan) -> np.ndarray:
        """What each of some symbols is, (n, classes); `usual` is the size of a stroke of the
        formula that they stand in, NaN where they are alone."""
        return np.array([self._read(strokes, size_of(strokes, usual)) for strokes in symbols])

    def _read(self, strokes: Sequence[Stroke], size: float) -> np.ndarray:
        """One at a time: no answer depends on what else is asked."""
        import onnxruntime as ort

        points, pen = evenly_drawn(strokes)
        given = {
            "pictures": pictures(points[None], pen[None]),
            "size": described(np.array([size])),
        }
        feed = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in given.items()}
        [found] = self._session.run_with_ort_values(["log_probs"], feed)
        return np.asarray(found.numpy()[0])


def normalized(log_odds: np.ndarray) -> np.ndarray:
    """Log-probs (V,)."""
    lower = log_odds - log_odds.max()
    return np.asarray(lower - np.log(np.exp(lower).sum()))


def size_of(strokes: Sequence[Stroke], usual: float) -> float:
    """A symbol's longer side against a usual stroke, as a logarithm; NaN where there is none."""
    if math.isnan(usual):
        return math.nan
    points = np.concatenate(strokes)
    side = float((points.max(0) - points.min(0)).max())
    return math.log(max(side, 1e-9) / max(usual, 1e-9))


def described(sizes: np.ndarray) -> np.ndarray:
    """Sizes (n,) as the network takes them, (n, 2): the size, or 0, and whether it is known."""
    known = np.isfinite(sizes)
    size = np.where(known, np.clip(np.where(known, sizes, 0), -MOST_SIZE, MOST_SIZE), 0)
    return np.stack([size, known], 1).astype(np.float32)


def graph_of(arrays: Mapping[str, np.ndarray], classes: int) -> Graph:
    """The network as ONNX has it, its weights in eight bits: pictures (B, 3, SIDE, SIDE) and size
    (B, 2) -> log_probs (B, classes)."""
    g = Graph("lone")
    x = g.input("pictures", "float32", ["B", 3, SIDE, SIDE])
    size = g.input("size", "float32", ["B", 2])

    def bias(name: str, size: int) -> str:
        found = arrays[f"{name}.bias"].astype(np.float32).reshape(size)
        return g.tensor(found, name=f"{name}.bias")

    def matrix(name: str, *shape: int) -> str:
        whole, scale = in_eight_bits(arrays[f"{name}.weight"], arrays[f"{name}.weight{SCALE}"])
        step = g.tensor(scale.reshape(shape[0]), name=f"{name}.scale")
        none = g.tensor(np.zeros(shape[0]), "int8", f"{name}.none")
        stored = g.tensor(whole.reshape(shape), "int8", f"{name}.weight")
        return g.add("DequantizeLinear", stored, step, none, axis=0)

    def convolution(x: str, name: str, inputs: int, outputs: int, stride: int = 1) -> str:
        weight = matrix(name, outputs, inputs, 3, 3)
        return g.add("Conv", x, weight, bias(name, outputs), pads=[1] * 4, strides=[stride] * 2)

    def linear(x: str, name: str, inputs: int, outputs: int) -> str:
        return g.add("Gemm", x, matrix(name, outputs, inputs), bias(name, outputs), transB=1)

    x = g.add("Relu", convolution(x, "first", 3, CHANNELS[0]))
    for i, (few, many) in enumerate(pairwise(CHANNELS)):
        x = g.add("Relu", convolution(x, f"down.{i}", few, many, stride=2))
        y = g.add("Relu", convolution(x, f"one.{i}", many, many))
        x = g.add("Relu", g.add("Add", x, convolution(y, f"two.{i}", many, many)))
    pixels = CHANNELS[-1] * (SIDE // 8) ** 2
    x = linear(g.shaped(x, 0, -1), "seen", pixels, HIDDEN)
    x = g.add("Relu", g.add("Add", x, linear(size, "size", 2, HIDDEN)))
    said = g.add("LogSoftmax", linear(x, "named", HIDDEN, classes), axis=-1)
    g.output(said, "log_probs", ["B", classes])
    return g


def stored(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Weights and biases by layer as they are stored: matrices in eight bits, a scale for each row.

    A convolution's weight is (outputs, inputs, 3, 3), a linear layer's (outputs, inputs).
    """
    out: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        if name.endswith(".bias"):
            out[name] = array.astype(np.float16)
        else:
            out[name], out[name + SCALE] = in_eight_bits(array.reshape(len(array), -1), None)
    return out
