"""One prediction, top to bottom: ink -> patches -> memory -> refined tokens -> LaTeX."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from gryphone.checkpoint import Checkpoint, load_checkpoint
from gryphone.config import ModelConfig
from gryphone.decoding import Decoded, DecodeOptions, Predict, decode
from gryphone.model import GryphOne, Memory, Packing
from gryphone.ragged import ranges, select
from gryphone.raster import InkBatch, Patches, draw, to_patches
from gryphone.tokens import MASK_ID, PAD_ID, Tokenizer


def look(batch: InkBatch, config: ModelConfig) -> Patches:
    """Draw inks and cut them into the patches that a model was made for."""
    canvas = config.canvas
    return to_patches(draw(batch, canvas), canvas, slots=canvas.slots(), dense=config.keep_all)


def choose(memory: Memory, samples: torch.Tensor) -> Memory:
    """The memory of some samples of a batch."""
    rows, _, lengths = select(memory.rows.offsets.long(), samples)
    packing = Packing(
        F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32), memory.rows.longest, memory.rows.uniform
    )
    pairs = [(k[rows], v[rows]) for k, v in memory.keys_values]
    return Memory(memory.features[rows], packing, pairs)


def predictor(model: GryphOne, memory: Memory) -> Predict:
    """What the decoding loop calls: token ids in, log-probs out, by PyTorch."""
    device = memory.features.device

    @torch.inference_mode()
    def predict(tokens: np.ndarray, lengths: np.ndarray, samples: np.ndarray) -> list[np.ndarray]:
        some = memory
        if len(samples) < len(memory.rows.offsets) - 1:
            some = choose(memory, torch.from_numpy(samples).to(device))
        inside = np.arange(tokens.shape[1]) < lengths[:, None]
        packed = torch.from_numpy(tokens[inside]).to(device)
        counts = torch.from_numpy(lengths).to(device)
        _, index = ranges(counts)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = model.decode(packed, index, some, Packing.of(counts, int(lengths.max())))
        out = []
        for stream in logits:
            dense = np.zeros((*inside.shape, stream.shape[-1]), dtype=np.float32)
            dense[inside] = F.log_softmax(stream.float(), -1).cpu().numpy()
            out.append(dense)
        return out

    return predict


@torch.inference_mode()
def read_inks(
    model: GryphOne,
    config: ModelConfig,
    batch: InkBatch,
    options: DecodeOptions,
    *,
    streams: int,
    keys: np.ndarray | None = None,
) -> list[Decoded]:
    """Encode a batch of inks once and refine all their canvases together."""
    device = next(model.parameters()).device
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        memory = model.encode(look(batch.to(device), config))
    if keys is None:
        keys = np.zeros(batch.size, dtype=np.int64)
    return decode(
        predictor(model, memory), keys, options, streams=streams, mask_id=MASK_ID, pad_id=PAD_ID
    )


@dataclass(frozen=True)
class Recognizer:
    """A loaded checkpoint, ready to read ink."""

    checkpoint: Checkpoint

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabularies the checkpoint was trained with."""
        return self.checkpoint.tokenizer

    def read(self, batch: InkBatch, options: DecodeOptions | None = None) -> list[str]:
        """LaTeX of every ink in the batch."""
        config, tokenizer = self.checkpoint.config, self.checkpoint.tokenizer
        options = options or DecodeOptions(length=config.length, start=min(48, config.length))
        answers = read_inks(
            self.checkpoint.model, config, batch, options, streams=len(tokenizer.vocabularies)
        )
        return [" ".join(tokenizer.decode(a.ids)) for a in answers]


def load(path: Path | str, device: str = "cpu") -> Recognizer:
    """Load a recogniser from a checkpoint directory."""
    return Recognizer(load_checkpoint(path, device))
