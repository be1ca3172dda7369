"""The network at work in ONNX Runtime, on a CPU: what an installation without PyTorch has.

The graphs are made from the checkpoint when it is loaded, so that weights exist once. Every image
has a run of the encoder to itself, and canvases share a run of the decoder where they are of one
image and one length: nothing is padded, and no answer depends on what else is asked.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from gryphone.checkpoint import Checkpoint
from gryphone.config import ModelConfig
from gryphone.decoding import Decoded, Request
from gryphone.ink import Stroke
from gryphone.recognition.backend import FLOOR, LEAST, NONE, View, forked
from gryphone.recognition.drawing import Drawing, drawing_of
from gryphone.recognition.onnx_file import MICROSOFT, Graph
from gryphone.recognition.onnx_graph import Arithmetic, graphs_of
from gryphone.tokens import PAD_ID

# Before it is imported: it would tell its makers of every session, and we say that nothing leaves.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime as ort

ALONE = 250_000  # multiplications: OpenBLAS shares out products of 262,144 and more


@dataclass(frozen=True)
class Look:
    """What the network remembers of one ink, and where its strokes are."""

    memory: dict[str, ort.OrtValue]  # key_i and value_i (1, H, P, D)
    patches: list[ort.OrtValue]  # patch_s (P, V)
    home: np.ndarray  # (M,) the patch that each inked pixel lies in
    stroke: np.ndarray  # (M,) its stroke
    strokes: int


class OnnxBackend:
    """The two graphs of a network."""

    batch, at_once, few = 8, 1, 1

    def __init__(self, encoder: bytes, decoder: bytes, config: ModelConfig, threads: int) -> None:
        """`threads` is how many compute; 0: as many as there are cores."""
        self.config = config
        self.encoder, self.decoder = (session_of(graph, threads) for graph in (encoder, decoder))
        self._process = os.getpid()
        self._streams = [o.name for o in self.decoder.get_outputs() if o.name[0] == "l"]
        self._queries = [o.name for o in self.decoder.get_outputs() if o.name[0] == "q"]
        self._seen = [o.name for o in self.encoder.get_outputs()]

    @classmethod
    def load(
        cls,
        path: Path,
        checkpoint: Checkpoint,
        threads: int = 0,
        arithmetic: Arithmetic | None = None,
    ) -> OnnxBackend:
        """Put a checkpoint's network together, by default as this processor does it best."""
        how = arithmetic or (Arithmetic.int8 if adds_exactly() else Arithmetic.uint8)
        encoder, decoder = (each.to_bytes({}) for each in graphs_of(path, how, checkpoint))
        return cls(encoder, decoder, checkpoint.config, threads)

    def warm(self) -> None:
        """Nothing is made later."""

    def encode(self, inks: Sequence[Sequence[Stroke]], view: View = View()) -> list[Look]:  # noqa: B008
        """Draw inks and look at them, one by one."""
        if os.getpid() != self._process:
            raise forked()
        canvas, dense = self.config.canvas, self.config.keep_all
        drawn = [drawing_of(ink, canvas, view, dense) for ink in inks]
        return [self._look(one, len(ink)) for one, ink in zip(drawn, inks, strict=True)]

    def _look(self, drawing: Drawing, strokes: int) -> Look:
        feed = {
            "pixels": drawing.pixels,
            "position": drawing.position.astype(np.float32),
            "grid": np.array(drawing.grid, dtype=np.float32),
        }
        given = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in feed.items()}
        found = self.encoder.run_with_ort_values(self._seen, given)
        named = dict(zip(self._seen, found, strict=True))
        patches = [named.pop(name) for name in self._seen if name.startswith("patch_")]
        return Look(named, patches, drawing.home, drawing.stroke, strokes)

    def select(self, memory: list[Look], images: Sequence[int]) -> list[Look]:
        """The memory of some inks."""
        return [memory[i] for i in images]

    def predict(
        self, memory: list[Look], tokens: np.ndarray, lengths: np.ndarray, images: np.ndarray
    ) -> list[np.ndarray]:
        """Log-probs [(B, L, V) per stream] of canvases (B, L, S)."""
        alike: dict[tuple[int, int], list[int]] = {}
        for row, (image, length) in enumerate(zip(images.tolist(), lengths.tolist(), strict=True)):
            alike.setdefault((image, length), []).append(row)
        out: list[np.ndarray] = []
        for (image, length), rows in alike.items():
            found = self._run(self._streams, memory[image], tokens[rows, :length])
            if len(rows) == len(tokens) and length == tokens.shape[1]:
                return found
            if not out:
                shape = tokens.shape[:2]
                out = [np.zeros((*shape, x.shape[-1]), dtype=np.float32) for x in found]
            for whole, part in zip(out, found, strict=True):
                whole[rows, :length] = part
        return out

    def _run(self, names: list[str], look: Look, tokens: np.ndarray) -> list[np.ndarray]:
        """Outputs of the decoder for canvases (B, L, S) of one ink."""
        canvases = ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(tokens, dtype=np.int32))
        found = self.decoder.run_with_ort_values(names, {"tokens": canvases, **look.memory})
        return [each.numpy() for each in found]

    def refine(
        self, memories: Sequence[list[Look]], images: np.ndarray, request: Request
    ) -> list[Decoded] | None:
        """Step by step."""
        return None

    def evidence(
        self, memory: list[Look], canvases: Sequence[np.ndarray]
    ) -> list[np.ndarray] | None:
        """How much the patches of each stroke speak for each token."""
        if self.config.dense:
            return None
        return [self._votes(look, ids) for look, ids in zip(memory, canvases, strict=True)]

    def _votes(self, look: Look, ids: np.ndarray) -> np.ndarray:
        """The mean of (strokes, n + 1) log-scores: see `torch_backend.TorchBackend.scores`."""
        queries = self._run(self._queries, look, ids[None])
        looked = np.mean([_attention(q[0], look, i) for i, q in enumerate(queries)], 0)  # (n, P)
        looked /= np.maximum(looked.max(1, keepdims=True), 1e-12)
        score = np.log(np.maximum(looked, FLOOR))
        for stream, said in enumerate(look.patches):
            score += np.maximum(said.numpy().T[ids[:, stream]], LEAST)
        best = score[ids[:, 0] != PAD_ID].max(0, initial=NONE, keepdims=True)
        return _mean_of_pixels(look, np.concatenate([score, best]))

    def nothing(self, memory: list[Look]) -> list[np.ndarray] | None:
        """How likely each stroke is no symbol's."""
        if self.config.dense or not self.config.aux:
            return None
        said = [np.exp(look.patches[0].numpy()[None, :, PAD_ID]) for look in memory]
        return [_mean_of_pixels(*each)[:, 0] for each in zip(memory, said, strict=True)]


def _mean_of_pixels(look: Look, score: np.ndarray) -> np.ndarray:
    """What scores (n, P) of patches say of the strokes, (strokes, n)."""
    shape = (look.strokes, score.shape[1])
    cells = np.bincount(look.stroke * shape[1] + look.home, minlength=shape[0] * shape[1])
    pixels = cells.reshape(shape).astype(np.float32)
    votes: np.ndarray = np.einsum("sp,np->sn", pixels, score)
    votes /= np.maximum(pixels.sum(1, keepdims=True), 1)
    return votes


def _attention(queries: np.ndarray, look: Look, block: int) -> np.ndarray:
    """Where tokens (n, W) look, (n, P): the mean of a block's heads."""
    keys = look.memory[f"key_{block}"].numpy()[0]  # (H, P, D)
    heads, _, size = keys.shape
    asked = queries.reshape(-1, heads, size).transpose(1, 0, 2)
    # A few patches at a time: BLAS deals larger products out to threads, and waits for them half a
    # second where the cores are busy.
    some = max(1, ALONE // asked[0].size)
    parts = range(0, keys.shape[1], some)
    scores = np.concatenate([asked @ keys[:, i : i + some].transpose(0, 2, 1) for i in parts], 2)
    scores /= np.float32(size**0.5)
    scores -= scores.max(2, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(2, keepdims=True)
    mean: np.ndarray = scores.mean(0)
    return mean


def session_of(graph: bytes, threads: int = 0) -> ort.InferenceSession:
    """A graph, ready to run."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors
    # The graphs are as they should be; and nearly every ink has shapes of its own.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_mem_pattern = options.enable_cpu_mem_arena = False
    # Threads that wait awake take the cores from those that work.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


@cache
def adds_exactly() -> bool:
    """Whether products of int8 are added without overflow, as not every processor does it."""
    graph = Graph("sum")
    rows = graph.input("rows", "uint8", ["P", 64])
    one, none = graph.tensor(1.0), graph.tensor(0, "uint8")
    columns = graph.tensor(np.full((64, 32), 127), "int8", "columns")
    product = graph.add(f"{MICROSOFT}:MatMulIntegerToFloat", rows, columns, one, one, none)
    graph.output(product, "sums", ["P", 32])
    found = session_of(graph.to_bytes({}), 1).run(None, {"rows": np.full((8, 64), 255, np.uint8)})
    return bool((found[0] == 64 * 255 * 127).all())
