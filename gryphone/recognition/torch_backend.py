"""The network at work in PyTorch, on a CPU or a GPU."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gryphone.checkpoint import Checkpoint, load_model
from gryphone.config import ModelConfig
from gryphone.errors import CheckpointError
from gryphone.ink import Stroke
from gryphone.model import GryphOne, Memory, Packing
from gryphone.ragged import select
from gryphone.raster import InkBatch, Patches, Pixels, draw, to_patches
from gryphone.recognition.backend import Evidence, View

FLOOR = 1e-4  # of the attention, relative to its highest
LEAST = -12.0  # log-probs of the patch heads below this say no more than "no"
# oneDNN keeps what it made for a shape, up to 1024 times half a megabyte, and nearly every ink has
# a shape of its own: one answer needs about a hundred of them. Read at its first use.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")


@dataclass(frozen=True)
class TorchMemory:
    """What the network remembers of some `images` of a batch, and how the whole batch was drawn."""

    memory: Memory
    images: tuple[int, ...]
    pixels: Pixels  # whose glyphs number the strokes of all inks
    patches: Patches
    strokes: list[int]  # of each ink


class TorchBackend:
    """A network and the device it runs on."""

    def __init__(self, model: GryphOne, config: ModelConfig, half: bool | None = None) -> None:
        """`half` computes in bfloat16 where that is safe; by default on GPUs."""
        self.model, self.config = model, config
        self.device = next(model.parameters()).device
        self.half = self.device.type == "cuda" if half is None else half
        self.keep_all = config.keep_all

    @classmethod
    def load(cls, path: Path, checkpoint: Checkpoint, device: torch.device) -> TorchBackend:
        """Put a checkpoint's network on a device."""
        backend = cls(load_model(path, device, checkpoint), checkpoint.config)
        if device.type == "cpu":
            pack_linear_layers(backend.model)
        return backend

    @torch.inference_mode()
    def encode(self, inks: Sequence[Sequence[Stroke]], view: View = View()) -> TorchMemory:  # noqa: B008
        """Draw inks and look at them."""
        return self.encode_batch(InkBatch.from_strokes(inks), view)

    @torch.inference_mode()
    def encode_batch(self, batch: InkBatch, view: View = View()) -> TorchMemory:  # noqa: B008
        """The same for inks that are tensors already."""
        starts = ~batch.pen
        # Every point knows its stroke, so that strokes can be found again in the patches.
        batch = replace(batch, glyph=starts.cumsum(0) - 1).to(self.device)
        area = None
        if view != View():
            cos, sin = math.cos(view.angle), math.sin(view.angle)
            turned = batch.points @ batch.points.new_tensor([[cos, sin], [-sin, cos]])
            batch = replace(batch, points=turned)
            area = turned.new_full((batch.size,), view.scale**2)
        pixels = draw(batch, self.config.canvas, area)
        patches = to_patches(
            pixels, self.config.canvas, area_factor=view.scale**2, dense=self.keep_all
        )
        with self._autocast():
            memory = self.model.encode(patches)
        if batch.size == 1:  # one image: its rows need no padding
            rows = Packing.equal(1, len(memory.features), self.device)
            memory = Memory(memory.features, rows, memory.keys_values)
        strokes = torch.bincount(batch.sample[~batch.pen], minlength=batch.size).tolist()
        return TorchMemory(memory, tuple(range(batch.size)), pixels, patches, strokes)

    @torch.inference_mode()
    def select(self, memory: TorchMemory, images: Sequence[int]) -> TorchMemory:
        """The memory of some inks."""
        if list(images) == list(range(len(memory.images))):
            return memory
        some = _rows_of(memory.memory, torch.tensor(images, device=self.device))
        return replace(memory, memory=some, images=tuple(memory.images[i] for i in images))

    @torch.inference_mode()
    def predict(
        self, memory: TorchMemory, tokens: np.ndarray, lengths: np.ndarray, images: np.ndarray
    ) -> list[np.ndarray]:
        """Log-probs [(B, L, V) per stream] of canvases (B, L, S)."""
        some, count = memory.memory, len(memory.images)
        # One image is shared by all canvases; several must be laid beside their canvases.
        if count > 1 and not np.array_equal(images, np.arange(count)):
            some = _rows_of(some, torch.from_numpy(images).to(self.device))
        inside = np.arange(tokens.shape[1]) < lengths[:, None]
        packed = torch.from_numpy(tokens[inside]).to(self.device)
        index = torch.from_numpy(np.nonzero(inside)[1]).to(self.device)
        longest = int(lengths.max())
        own = Packing.of(torch.from_numpy(lengths).to(self.device), longest)
        if (lengths == longest).all():
            own = replace(own, uniform=True)
        with self._autocast():
            logits = self.model.decode(packed, index, some, own)
        out = []
        for stream in logits:
            dense = np.zeros((*inside.shape, stream.shape[-1]), dtype=np.float32)
            dense[inside] = F.log_softmax(stream.float(), -1).cpu().numpy()
            out.append(dense)
        return out

    @torch.inference_mode()
    def evidence(
        self, memory: TorchMemory, canvases: Sequence[np.ndarray]
    ) -> list[Evidence] | None:
        """Two witnesses: the patch heads say which token's ink a patch holds, the decoder's
        cross-attention where each token looked, which tells equal symbols apart."""
        if self.config.dense:
            return None
        lengths = [len(ids) for ids in canvases]
        own = Packing.of(torch.tensor(lengths, device=self.device), max(lengths))
        if len(lengths) == 1:
            own = Packing.equal(1, lengths[0], self.device)
        tokens = torch.from_numpy(np.concatenate(canvases)).to(self.device)
        index = torch.from_numpy(np.concatenate([np.arange(n) for n in lengths])).to(self.device)
        with self._autocast():
            attention = self.model.decoder.attention(tokens, index, memory.memory, own)
            heads = [head(memory.memory.features) for head in self.model.patch_heads]
        sizes = memory.memory.rows.offsets.diff().tolist()
        seen = [head.float().log_softmax(-1).split_with_sizes(sizes) for head in heads]
        out = []
        for image, (layers, ids) in enumerate(
            zip(attention, tokens.split_with_sizes(lengths), strict=True)
        ):
            looked = layers.mean(0)
            looked = looked / looked.amax(1, keepdim=True).clamp_min(1e-12)
            score = looked.clamp_min(FLOOR).log()
            for stream, log_probs in enumerate(seen):  # (P, V)
                score = score + log_probs[image][:, ids[:, stream]].T.clamp_min(LEAST)
            strokes = strokes_on_patches(memory, self.config.canvas.patch, memory.images[image])
            out.append(Evidence(score.cpu().numpy(), strokes))
        return out

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.half)


def device_of(name: str) -> torch.device:
    """The device that a name stands for, if it is there."""
    try:
        device = torch.device(name)
    except RuntimeError as error:  # which lists 20 kinds of devices
        raise CheckpointError(f"device {name!r} is unknown; use cpu, cuda or cuda:1") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise CheckpointError(f"device {name!r} cannot be used: no CUDA device was found")
    return device


def _rows_of(memory: Memory, samples: Tensor) -> Memory:
    """The memory of some samples of a batch."""
    rows, _, lengths = select(memory.rows.offsets.long(), samples)
    if len(samples) == 1:
        packing = Packing.equal(1, len(rows), rows.device)
    else:
        packing = Packing(
            F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32),
            memory.rows.longest,
            memory.rows.uniform,
        )
    pairs = [(k[rows], v[rows]) for k, v in memory.keys_values]
    return Memory(memory.features[rows], packing, pairs)


def strokes_on_patches(drawn: TorchMemory, patch: int, sample: int) -> np.ndarray:
    """How many pixels of each stroke lie in each patch of one sample, (strokes, P) float32."""
    pixels, patches = drawn.pixels, drawn.patches
    begin, end = (int(o) for o in patches.offsets[sample : sample + 2])
    position = patches.position[begin:end].cpu()
    rows, columns = (int(n) for n in patches.shape[sample])
    place = torch.zeros(rows * columns, dtype=torch.int64)
    place[position[:, 0] * columns + position[:, 1]] = torch.arange(end - begin)
    own = (pixels.sample == sample).cpu()
    row, column = pixels.row.cpu()[own], pixels.column.cpu()[own]
    home = place[(row // patch) * columns + column // patch]
    counts = torch.zeros(drawn.strokes[sample], end - begin)
    stroke = pixels.glyph.cpu()[own] - sum(drawn.strokes[:sample])
    return counts.index_put_((stroke, home), torch.ones(len(home)), accumulate=True).numpy()


class PackedLinear(nn.Module):
    """A linear layer whose weights are laid out once for this CPU: the same numbers in less time.

    PyTorch lays them out anew at every call, which costs more than the arithmetic where few rows
    go through (one formula: 16 to 150). oneDNN can keep them ready; TorchInductor calls the same
    operators. On two cores a layer takes 50 to 75 % of its time.
    """

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), None)
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return out


def pack_linear_layers(model: nn.Module) -> None:
    """Replace a network's linear layers, where PyTorch and this CPU can do it."""
    if not _packing_works():
        return
    for module in list(model.modules()):
        for name, layer in list(module.named_children()):
            if type(layer) is nn.Linear:
                setattr(module, name, PackedLinear(layer))


@torch.inference_mode()
def _packing_works() -> bool:
    """The operators are PyTorch's own business: they may be missing or refuse this CPU."""
    layer, x = nn.Linear(8, 8), torch.ones(3, 8)
    try:
        return torch.allclose(PackedLinear(layer)(x), layer(x), atol=1e-5)
    except (AttributeError, RuntimeError):
        return False
