"""The published rivals' encoder: a DenseNet on the whole picture, one feature for 16x16 pixels.

Growth 24, three blocks of 16 bottleneck layers, halved in channels and size between them. A patch
of 16 pixels without a halo is a cell of its last grid, so that all else sees patches as ever.
Pictures of about one size are padded and taken together, as many as `PIXELS` allow, with a batch
norm of their own; a backward pass computes their blocks anew.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from gryphone.model import Packing
from gryphone.raster import Patches

CELL = 16  # pixels, each way, that the network makes one feature of
GROWTH, LAYERS, DROPOUT = 24, 16, 0.2
PIXELS = 2**22  # of pictures that are taken together, padded


class Norm(nn.Module):
    """A batch norm that counts no batches: a checkpoint holds no whole numbers."""

    mean: Tensor
    variance: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        moments, own = (self.mean, self.variance), (self.weight, self.bias)
        return F.batch_norm(x, *moments, *own, self.training)


class Bottleneck(nn.Module):
    """A layer that adds `GROWTH` channels to what it gets."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 4 * GROWTH, 1, bias=False)
        self.norm1 = Norm(4 * GROWTH)
        self.conv2 = nn.Conv2d(4 * GROWTH, GROWTH, 3, padding=1, bias=False)
        self.norm2 = Norm(GROWTH)

    def forward(self, x: Tensor) -> Tensor:
        new = F.dropout(F.relu(self.norm1(self.conv1(x))), DROPOUT, self.training)
        new = F.dropout(F.relu(self.norm2(self.conv2(new))), DROPOUT, self.training)
        return torch.cat([x, new], 1)


class Transition(nn.Module):
    """Half the channels, and half the size."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels // 2, 1, bias=False)
        self.norm = Norm(channels // 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(F.relu(self.norm(self.conv(x))), DROPOUT, self.training)
        return F.avg_pool2d(x, 2)


class DenseNetEncoder(nn.Module):
    """Features of all cells of pictures; `patches` are all patches of `CELL` pixels."""

    blocks = ()  # nothing is compiled: nearly every group of pictures has a shape of its own

    def __init__(self, width: int) -> None:
        super().__init__()
        channels = 2 * GROWTH
        self.stem = nn.Sequential(
            nn.Conv2d(1, channels, 7, stride=2, padding=3, bias=False),
            Norm(channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        stages: list[nn.Module] = []
        for number in range(3):
            layers: list[nn.Module] = []
            for _ in range(LAYERS):
                layers.append(Bottleneck(channels))
                channels += GROWTH
            if number < 2:
                layers.append(Transition(channels))
                channels //= 2
            stages.append(nn.Sequential(*layers))
        self.stages = nn.ModuleList(stages)
        self.last = Norm(channels)
        self.proj = nn.Conv2d(channels, width, 1)
        self.norm = nn.LayerNorm(width)

    def forward(self, patches: Patches) -> tuple[Tensor, Packing]:
        """Features (P, width) of the patches, and how they are packed."""
        lengths = patches.offsets.diff()
        owner = torch.repeat_interleave(
            torch.arange(len(lengths), device=lengths.device),
            lengths,
            output_size=len(patches.pixels),
        )
        shapes = patches.shape.cpu().numpy()
        found, places = [], torch.zeros_like(owner)
        begin, row, column = 0, patches.position[:, 0], patches.position[:, 1]
        slot = torch.empty(len(shapes), dtype=torch.long)
        for images in grouped(shapes):
            rows, columns = (int(n) for n in shapes[images].max(0))
            slot.fill_(-1)
            slot[torch.from_numpy(images)] = torch.arange(len(images))
            at = slot.to(owner.device)[owner]
            cell = (at * rows + row) * columns + column
            room = len(images) * rows * columns
            inside = torch.where(at < 0, room, cell)
            paper = patches.pixels.new_zeros(room + 1, CELL**2)
            paper = paper.index_copy(0, inside, patches.pixels)[:-1]
            picture = paper.view(len(images), rows, columns, CELL, CELL).transpose(2, 3)
            picture = picture.reshape(len(images), 1, rows * CELL, columns * CELL)
            features = self.look(picture.to(self.norm.weight.dtype))
            found.append(features.permute(0, 2, 3, 1).flatten(0, 2))
            places = torch.where(at < 0, places, cell + begin)
            begin += room
        x = torch.cat(found).index_select(0, places)
        shape = patches.shape[owner]
        x = x + waves(patches.position, shape, x.shape[1]).to(x.dtype)
        return self.norm(x), Packing.of(lengths, patches.longest)

    def look(self, picture: Tensor) -> Tensor:
        """Pictures (n, 1, H, W) -> features (n, width, H / 16, W / 16)."""
        x = self.stem(picture.contiguous(memory_format=torch.channels_last))
        for stage in self.stages:
            again = torch.is_grad_enabled()
            x = cast(Tensor, checkpoint(stage, x, use_reentrant=False) if again else stage(x))
        found: Tensor = self.proj(self.last(x))
        return found


def grouped(shapes: np.ndarray) -> list[np.ndarray]:
    """Pictures (n, 2) in groups of about one size, of at most `PIXELS` with their padding."""
    order, groups = np.lexsort((shapes[:, 1], shapes[:, 0])), []
    while len(order):
        sides = np.maximum.accumulate(shapes[order]).prod(1) * CELL**2
        fit = int((sides * np.arange(1, len(order) + 1) <= PIXELS).sum())
        groups.append(order[: max(1, fit)])
        order = order[max(1, fit) :]
    return groups


def waves(position: Tensor, shape: Tensor, width: int) -> Tensor:
    """Fixed places (P, width) relative to the picture: half of the waves for each axis."""
    angle = 2 * math.pi * (position + 1) / shape  # (P, 2)
    rates = 10000.0 ** -(torch.arange(0, width // 2, 2, device=position.device) / (width // 2))
    turns = angle[:, :, None] * rates
    return torch.stack([turns.sin(), turns.cos()], -1).flatten(1)
