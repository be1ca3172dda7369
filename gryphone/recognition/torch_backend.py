"""The network at work in PyTorch, on a CPU or a GPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gryphone.checkpoint import Checkpoint, load_model
from gryphone.config import ModelConfig
from gryphone.decoding import Decoded, Request
from gryphone.errors import CheckpointError
from gryphone.ink import Stroke
from gryphone.kinds import KINDS, part_of
from gryphone.model import GryphOne, Memory, Packing, rows_of
from gryphone.raster import InkBatch, Patches, draw, to_patches, turned
from gryphone.recognition.backend import FLOOR, LEAST, NONE, View, forked
from gryphone.recognition.drawing import Drawing, drawing_of
from gryphone.recognition.torch_graphs import Graphs
from gryphone.recognition.torch_loop import refine_on_device
from gryphone.tokens import MASK_ID, PAD_ID

FEW = 4  # inks that are drawn one by one
# oneDNN keeps what it made for a shape, up to 1024 times half a megabyte, and nearly every ink has
# a shape of its own: one answer needs about a hundred of them. Read at its first use.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")


@dataclass(frozen=True)
class TorchMemory:
    """What the network remembers of some `images` of a batch, and where all its strokes are."""

    memory: Memory
    images: tuple[int, ...]
    home: Tensor  # (M,) the patch, of the whole batch, that each inked pixel lies in
    stroke: Tensor  # (M,) its stroke, numbered through the whole batch
    strokes: list[int]  # of each ink of the whole batch
    patches: list[int]  # likewise


class TorchBackend:
    """A network and the device it runs on."""

    def __init__(self, model: GryphOne, config: ModelConfig, half: bool | None = None) -> None:
        """`half` computes in bfloat16 with weights in float32, too; by default on GPUs."""
        self.model, self.config, self.dense = model, config, config.keep_all
        self.device = next(model.parameters()).device
        gpu = self.device.type == "cuda"
        self.half = gpu if half is None else half
        self.batch, self.at_once, self.few = (256, 3, 16) if gpu else (8, 1, 1)
        if KINDS[config.kind].cached:  # a step costs as much for one ink as for many
            self.few = 1
        self._process = os.getpid()
        self.graphs: Graphs | None = None

    @classmethod
    def load(
        cls, path: Path, checkpoint: Checkpoint, device: torch.device, threads: int = 0
    ) -> TorchBackend:
        """Put a checkpoint's network on a device; `threads` are all of PyTorch's (0: as it is)."""
        if threads:
            torch.set_num_threads(threads)
        model = load_model(path, device, checkpoint)
        config, sizes = checkpoint.config, [len(v) for v in checkpoint.tokenizer.vocabularies]
        if device.type != "cuda":
            return cls(model, config)
        backend = cls(model.bfloat16(), config, half=False)
        if not config.dense and config.kind == "diffusion":
            backend.graphs = Graphs(model, config, sizes, backend.scores)
        return backend

    @torch.inference_mode()
    def warm(self) -> None:
        """Make ready what the first inks would wait for."""
        if self.graphs is not None:
            self.graphs.warm(MASK_ID, PAD_ID)

    @torch.inference_mode()
    def encode(self, inks: Sequence[Sequence[Stroke]], view: View = View()) -> TorchMemory:  # noqa: B008
        """Draw inks and look at them."""
        if os.getpid() != self._process:
            raise forked()
        if self.device.type == "cuda" and len(inks) > FEW:
            return self.encode_batch(InkBatch.from_strokes(inks), view)
        drawn = [drawing_of(ink, self.config.canvas, view, self.dense) for ink in inks]
        strokes = [len(ink) for ink in inks]
        if self.graphs is not None and len(inks) == 1:
            memory, (one,) = self.graphs.encode(drawn[0]), drawn
            if memory is not None:
                where = (torch.from_numpy(one.home), torch.from_numpy(one.stroke))
                return TorchMemory(memory, (0,), *where, strokes, [len(one.position)])
        return self._look(*self._put(drawn, strokes), strokes)

    @torch.inference_mode()
    def encode_batch(self, batch: InkBatch, view: View = View()) -> TorchMemory:  # noqa: B008
        """The same for inks that are tensors already, and drawn on the device."""
        strokes = torch.bincount(batch.sample[~batch.pen], minlength=batch.size).tolist()
        # Every point knows its stroke, so that strokes can be found again in the patches.
        batch = replace(batch, glyph=(~batch.pen).cumsum(0) - 1).to(self.device)
        batch = replace(batch, points=turned(batch.points, view.angle))
        area = batch.points.new_full((batch.size,), view.scale**2)
        pixels = draw(batch, self.config.canvas, area)
        patches = to_patches(
            pixels, self.config.canvas, area_factor=view.scale**2, dense=self.dense
        )
        return self._look(patches, pixels.glyph, strokes)

    @torch.inference_mode()
    def _look(self, patches: Patches, stroke: Tensor, strokes: list[int]) -> TorchMemory:
        """Encode the patches of inks that have so many `strokes`."""
        with self._autocast():
            memory = self.model.encode(patches)
        if len(strokes) == 1:  # one image: its rows need no padding
            rows = Packing.equal(1, len(memory.features), self.device)
            memory = replace(memory, rows=rows)
        images, sizes = tuple(range(len(strokes))), patches.offsets.diff().tolist()
        return TorchMemory(memory, images, patches.home, stroke, strokes, sizes)

    def _put(self, some: Sequence[Drawing], strokes: Sequence[int]) -> tuple[Patches, Tensor]:
        """The patches of inks that were drawn one by one, and each pixel's stroke."""
        firsts = np.cumsum([0, *(len(one.position) for one in some)])
        numbers = np.cumsum([0, *strokes])

        def joined(*parts: np.ndarray) -> Tensor:
            return torch.from_numpy(parts[0] if len(parts) == 1 else np.concatenate(parts))

        patches = Patches(
            joined(*(one.pixels for one in some)).to(self.device),
            joined(*(one.position for one in some)).to(self.device),
            torch.tensor([one.grid for one in some], device=self.device),
            torch.from_numpy(firsts.astype(np.int32)).to(self.device),
            torch.empty(0),
            joined(*(one.home + first for one, first in zip(some, firsts, strict=False))),
        )
        return patches, joined(*(one.stroke + n for one, n in zip(some, numbers, strict=False)))

    @torch.inference_mode()
    def select(self, memory: TorchMemory, images: Sequence[int]) -> TorchMemory:
        """The memory of some inks."""
        if list(images) == list(range(len(memory.images))):
            return memory
        some = rows_of(memory.memory, torch.tensor(images, device=self.device))
        return replace(memory, memory=some, images=tuple(memory.images[i] for i in images))

    @torch.inference_mode()
    def predict(
        self, memory: TorchMemory, tokens: np.ndarray, lengths: np.ndarray, images: np.ndarray
    ) -> list[np.ndarray]:
        """Log-probs [(B, L, V) per stream] of canvases (B, L, S)."""
        some, count = memory.memory, len(memory.images)
        # One image is shared by all canvases; several must be laid beside their canvases.
        if count > 1 and not np.array_equal(images, np.arange(count)):
            some = rows_of(some, torch.from_numpy(images).to(self.device))
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
    def refine(
        self, memories: Sequence[TorchMemory], images: np.ndarray, request: Request
    ) -> list[Decoded] | None:
        """On a GPU the whole reverse process stays there."""
        if KINDS[self.config.kind].cached:
            decode = part_of(self.config.kind, "cached")
            with self._autocast():
                found: list[Decoded] = decode(
                    self.model, [m.memory for m in memories], images, request
                )
                return found
        if self.device.type != "cuda" or self.config.kind != "diffusion":
            return None
        if request.first is not None:
            return None  # the plain loop alone begins with what is known
        if self.graphs is not None and all(len(m.images) == 1 for m in memories):
            one = self.graphs.refine([m.memory for m in memories], request)
            if one is not None:
                return [one]
        with self._autocast():
            return refine_on_device(self.model, [m.memory for m in memories], images, request)

    @torch.inference_mode()
    def evidence(
        self, memory: TorchMemory, canvases: Sequence[np.ndarray]
    ) -> list[np.ndarray] | None:
        """How much the patches of each stroke speak for each token."""
        if self.config.dense:
            return None
        lengths = [len(ids) for ids in canvases]
        placed = None
        if self.graphs is not None and len(canvases) == 1:
            placed = self.graphs.place(memory.memory, canvases[0])
        if placed is not None:
            score = torch.from_numpy(placed)[None]
        else:
            tokens = torch.from_numpy(np.concatenate(canvases)).to(self.device)
            index = torch.from_numpy(np.concatenate([np.arange(n) for n in lengths]))
            own = Packing.of(torch.tensor(lengths, device=self.device), max(lengths))
            if len(lengths) == 1:
                own = Packing.equal(1, lengths[0], self.device)
            with self._autocast():
                score = self.scores(tokens, index.to(self.device), memory.memory, own)
        ink = torch.zeros(score.shape[:2], dtype=torch.bool)
        for own, ids in zip(ink, canvases, strict=True):
            own[: len(ids)] = torch.from_numpy(ids[:, 0] != PAD_ID)
        hidden = ~ink.to(score.device)[..., None]
        best = score.masked_fill(hidden, NONE).amax(1, keepdim=True)
        parts = _votes(memory, torch.cat([score, best], 1))
        return [part[:, [*range(n), -1]] for part, n in zip(parts, lengths, strict=True)]

    @torch.inference_mode()
    def nothing(self, memory: TorchMemory) -> list[np.ndarray] | None:
        """How likely each stroke is no symbol's."""
        if self.config.dense or not self.model.patch_heads:
            return None
        with self._autocast():
            said = self.model.patch_heads[0](memory.memory.features).float().softmax(-1)
        score, _ = memory.memory.rows.pad(said[:, [PAD_ID]])  # (B, P, 1)
        return [part[:, 0] for part in _votes(memory, score.transpose(1, 2))]

    def scores(self, tokens: Tensor, index: Tensor, memory: Memory, own: Packing) -> Tensor:
        """Log-scores (B, n, P) of tokens and patches belonging together.

        Two witnesses: the patch heads say which token's ink a patch holds, the decoder's
        cross-attention where each token looked, which tells equal symbols apart.
        """
        looked = self.model.attention(tokens, index, memory, own)
        looked = looked / looked.amax(2, keepdim=True).clamp_min(1e-12)
        score = looked.clamp_min(FLOOR).log()
        ids, _ = own.pad(tokens)  # (B, n, S)
        for stream, head in enumerate(self.model.patch_heads):
            said, _ = memory.rows.pad(head(memory.features).float().log_softmax(-1))  # (B, P, V)
            wanted = ids[:, :, stream, None].expand(-1, -1, said.shape[1])
            score = score + said.transpose(1, 2).gather(1, wanted).clamp_min(LEAST)
        return score

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


def _votes(memory: TorchMemory, score: Tensor) -> list[np.ndarray]:
    """What scores (B, n, P) say of the strokes of each image, (strokes, n): their pixels' mean."""
    votes = _means(memory, score.to(memory.home.device)).cpu().numpy()
    ends = np.cumsum([memory.strokes[image] for image in memory.images])
    return np.split(votes, ends[:-1])


def _means(memory: TorchMemory, score: Tensor) -> Tensor:
    """The same for the strokes of all images together."""
    if len(memory.strokes) == 1:
        shape = (memory.strokes[0], score.shape[2])
        cell = memory.stroke * shape[1] + memory.home
        pixels = torch.bincount(cell, minlength=shape[0] * shape[1]).view(shape).float()
        return pixels @ score[0].T / pixels.sum(1, keepdim=True).clamp_min(1)
    # Where patches and strokes of the whole batch are among those of the images, if at all.
    patch, _ = _renumbered(memory.patches, memory.images, score.shape[2])
    stroke, strokes = _renumbered(memory.strokes, memory.images)
    places = torch.from_numpy(patch).to(score.device)[memory.home]
    owners = torch.from_numpy(stroke).to(score.device)[memory.stroke]
    # A pixel of another image goes to a row of its own, behind the others.
    flat = F.pad(score.transpose(1, 2).flatten(0, 1), (0, 1), value=1.0)
    flat = F.pad(flat, (0, 0, 0, 1))
    total = flat.new_zeros(strokes + 1, flat.shape[1]).index_add_(0, owners, flat[places])
    return total[:-1, :-1] / total[:-1, -1:].clamp_min(1)


def _renumbered(
    sizes: Sequence[int], images: Sequence[int], room: int | None = None
) -> tuple[np.ndarray, int]:
    """Rows of a batch's images of some sizes, numbered anew among `images`, and their number.

    Each image takes the `room`, or as much as it needs; rows of other images get the number.
    """
    firsts = np.cumsum([0, *sizes])
    each = [sizes[image] if room is None else room for image in images]
    starts = np.cumsum([0, *each])
    found = np.full(firsts[-1], starts[-1])
    for image, start in zip(images, starts.tolist(), strict=False):
        found[firsts[image] : firsts[image + 1]] = start + np.arange(sizes[image])
    return found, int(starts[-1])
