"""NAMER: symbols are found on the ink first; then all are read, and put into their order, at once.

*Found*: the heads on patches say whose ink a patch holds, and one more logit whether its symbol is
counted there (`gryphone.rivals.spots` says which patch that is in training). Each such patch is a
node, with what was seen there and what it was taken for.

*Read*: blocks in which nodes see each other and the ink say anew which symbol and modifier a node
is, or that it is none (PAD), and compare all pairs of nodes: what stands behind each, what before.
One more node, the border, stands before the first and behind the last. The LaTeX is the best way
from the border back to it that visits no node twice, greedily or by a beam: there always is one,
whatever was said of the pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gryphone.config import ModelConfig
from gryphone.decoding import LOWEST, Decoded, DecodeOptions, Request
from gryphone.errors import ConfigError
from gryphone.kinds import network_with
from gryphone.model import Decoder, GryphOne, Memory, Packing
from gryphone.ragged import ranges
from gryphone.raster import Patches
from gryphone.rivals.search import explore, once, read_out, shown, written
from gryphone.rivals.spots import NOWHERE, Graph, Spots, graph_of, matched
from gryphone.tokens import MASK_ID, PAD_ID

FOUND = 0.1  # probability of a node: one too many is taken back later, one too few is lost
FALSE = 8  # nodes of an image that training has beside its tokens, at most
HERE = 4.0  # weight of the loss of places: most patches have no symbol, which is soon said
NAMES = 2  # the first id that is neither PAD nor MASK
NEAR = 1.5  # patches: ink around a node is rather its own than that of an equal symbol elsewhere


def graph_network(
    config: ModelConfig, vocabularies: tuple[int, ...], names: Sequence[str]
) -> GryphOne:
    """Encoder, the finder of symbols and the decoder of their graph in the settings' sizes."""
    wanted = {
        "scheme: sat, one token for each glyph": len(vocabularies) == 2,
        "model.aux: true, the heads that find symbols": config.aux,
        "model.dense: false, features of single patches": not config.dense,
    }
    for setting, there in wanted.items():
        if not there:
            raise ConfigError(f"kind 'namer' needs {setting}; set it")
    return network_with(GraphDecoder, config, vocabularies, Namer)


class GraphDecoder(Decoder):
    """Blocks over nodes: a node is a token in a patch, its `index` among all packed patches."""

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**sizes)
        del self.position  # nodes have no order
        width, self.length = sizes["width"], sizes["length"]
        self.place = nn.Linear(width, width)
        self.border = nn.Parameter(torch.randn(width) * 0.02)
        self.pairs = nn.Linear(width, 4 * width)

    def hidden(
        self,
        tokens: Tensor,
        index: Tensor,
        memory: Memory,
        own: Packing,
        queries: list[Tensor] | None = None,
    ) -> Tensor:
        """States (N, width) of nodes with tokens (N, S) in patches (N,); NOWHERE is a border."""
        seen = self.place(memory.features.index_select(0, index.clamp_min(0)))
        x = torch.where((index < 0)[:, None], self.border.to(seen.dtype), seen)
        for stream, table in enumerate(self.embed):
            x = x + table(tokens[:, stream])
        return self.through_blocks(x.to(seen.dtype), memory, own, queries)

    def neighbours(self, states: Tensor, image: Tensor, place: Tensor, own: Packing) -> Tensor:
        """Logits (2, B, M, M) of the node behind each and of the one before each."""
        count, most = len(own.offsets) - 1, own.longest
        room = states.new_zeros(count * most, 4 * states.shape[1])
        padded = room.index_copy(0, image * most + place, self.pairs(states).to(room.dtype))
        each, other = padded.view(count, most, 4, -1).permute(2, 0, 1, 3).chunk(2)
        alike: Tensor = (each @ other.transpose(2, 3)).float() / states.shape[1] ** 0.5
        real = torch.arange(most, device=place.device) < own.offsets.diff()[:, None]
        return alike.masked_fill(~real[:, None], -torch.inf)


class Namer(GryphOne):
    """Encoder, finder and graph decoder."""

    decoder: GraphDecoder

    def __init__(self, encoder: nn.Module, decoder: Decoder, width: int, aux: tuple[int, ...]):
        super().__init__(encoder, decoder, width, aux)
        self.here = nn.Linear(width, 1)  # is a symbol counted in this patch

    def encode(self, patches: Patches) -> Memory:
        """Look at a batch of images, and remember where the patches were."""
        return replace(super().encode(patches), position=patches.position)

    def forward(  # type: ignore[override]
        self, patches: Patches, spots: Spots
    ) -> tuple[list[Tensor], list[Tensor], Graph, dict[str, Tensor]]:
        """Logits of nodes and of patches, what the nodes are, and further losses."""
        memory = self.encode(patches)
        seen = [head(memory.features) for head in self.patch_heads]
        here = self.here(memory.features)[:, 0].float()
        odds = [stream.detach().float().log_softmax(1) for stream in seen]
        spot = matched(odds, F.logsigmoid(here.detach()), spots)
        target = torch.zeros_like(here).index_fill(0, spot, 1)
        free = here.detach().masked_fill(target > 0, -torch.inf)
        graph = graph_of(spots, spot, *self._mistaken(free, memory, spots.bar))
        tokens = named(seen, graph.patch)
        states = self.decoder.hidden(tokens, graph.patch, memory, graph.own)
        alike = self.decoder.neighbours(states, graph.image, graph.index, graph.own)
        slot = graph.image * graph.own.longest + graph.index
        more = {"here": HERE * F.binary_cross_entropy_with_logits(here, target)}
        for side, logits in zip(("right", "left"), alike, strict=True):
            every = torch.full_like(logits[..., 0], NOWHERE, dtype=torch.long).flatten()
            every = every.index_copy(0, slot, getattr(graph, side))
            more[side] = F.cross_entropy(logits.flatten(0, 1), every, ignore_index=NOWHERE)
        return self.decoder.logits(states), seen, graph, more

    def _mistaken(self, free: Tensor, memory: Memory, bar: Tensor) -> tuple[Tensor, Tensor]:
        """Patches (B, F) that may be taken for a symbol's, by logits (P,), and which of them are.

        By a bar (B,) that is drawn for each image: who reads cannot count on any number of them.
        """
        padded, real = memory.rows.pad(free)
        padded = padded.masked_fill(~real, -torch.inf)
        odds, rows = padded.sigmoid().topk(min(FALSE, padded.shape[1]))
        return rows + memory.rows.offsets[:-1, None], odds > FOUND * bar[:, None]

    def find(self, memory: Memory) -> Nodes:
        """The nodes of each image: the likeliest patch, and others that are likely."""
        padded, real = memory.rows.pad(self.here(memory.features)[:, 0].float())
        odds = padded.masked_fill(~real, -torch.inf).sigmoid()
        odds, rows = odds.sort(dim=1, descending=True, stable=True)
        most = min(self.decoder.length - 1, odds.shape[1])
        keep = odds[:, :most] > FOUND
        keep[:, 0] = True  # where there is ink there is a symbol
        lengths = keep.sum(1) + 1
        own = Packing.of(lengths, int(lengths.max()))
        if len(lengths) == 1:
            own = Packing.equal(1, own.longest, lengths.device)
        image, place = ranges(lengths)
        rows = rows + memory.rows.offsets[:-1, None]
        patch = torch.where(place == 0, NOWHERE, rows[image, (place - 1).clamp_min(0)])
        return Nodes(patch, image, place, own)

    def attention(self, tokens: Tensor, index: Tensor, memory: Memory, own: Packing) -> Tensor:
        """Where the tokens of answers are, (B, n, P): around their nodes; anywhere without one."""
        assert memory.position is not None
        canvases, columns = own.offsets.tolist(), memory.rows.pad(memory.position)[0].float()
        count = len(canvases) - 1
        options = DecodeOptions(length=self.decoder.length, start=1)
        read = read_nodes(self, memory, Request(np.zeros(count), options, 2, MASK_ID, PAD_ID))
        found = columns.new_ones(count, own.longest, columns.shape[1])
        for b in range(count):
            symbols = tokens[canvases[b] : canvases[b + 1], 0].tolist()
            path = read.ids[b, :, 0].tolist()
            for block in SequenceMatcher(None, symbols, path, False).get_matching_blocks():
                some = read.patch[b, block.b : block.b + block.size]
                away = (columns[b] - memory.position[some, None]).square().sum(2)
                found[b, block.a : block.a + block.size] = (-away / (2 * NEAR**2)).exp()
        return found


@dataclass(frozen=True)
class Nodes:
    """What was found in some images; the border is place 0 of each."""

    patch: Tensor  # (N,) among all packed ones, or NOWHERE
    image: Tensor  # (N,)
    place: Tensor  # (N,) among those of its image
    own: Packing


def named(seen: Sequence[Tensor], patch: Tensor) -> Tensor:
    """The tokens (N, S) that patches (N,) are taken for; a border is MASK."""
    rows = [stream.index_select(0, patch.clamp_min(0))[:, NAMES:].argmax(1) for stream in seen]
    return torch.where((patch < 0)[:, None], MASK_ID, torch.stack(rows, 1) + NAMES)


class Walk:
    """A speaker (`gryphone.rivals.search`) whose tokens are nodes: PAD is the border at the end,
    MASK at the start, node k is k + 1. Nothing is said twice."""

    def __init__(self, odds: Tensor, beam: int) -> None:
        """odds (B, M, M): of going from each node to each other; -inf into what is no symbol."""
        end, nodes = odds[:, :, :1], odds[:, :, 1:]
        self.odds = torch.cat([end, torch.full_like(end, -torch.inf), nodes], 2)
        self.image = torch.arange(len(odds), device=odds.device).repeat_interleave(beam)
        self.gone = torch.zeros_like(self.odds[:, 0], dtype=torch.bool)[self.image]

    def step(self, tokens: Tensor) -> list[Tensor]:
        self.gone = self.gone.scatter(1, tokens, True)
        self.gone[:, PAD_ID] = False  # the end is always near
        odds = self.odds[self.image, (tokens[:, 0] - 1).clamp_min(0)]
        return [odds.masked_fill(self.gone, -torch.inf)]

    def follow(self, rows: Tensor) -> None:
        self.gone = self.gone[rows]


def walked(odds: Tensor, request: Request) -> Tensor:
    """The nodes (B, T) on the way through each graph; 0 behind its end."""
    beam, count = request.options.beam, len(odds)
    starts = torch.full((count,), MASK_ID, device=odds.device)
    found = explore(Walk(odds, beam), replace(request, streams=1), starts)
    ids, _ = written(found, torch.arange(count, device=odds.device) * beam)
    return (ids[..., 0] - 1).clamp_min(0)


@dataclass(frozen=True)
class Read:
    """Answers, and where their symbols are."""

    ids: Tensor  # (B, T, S), PAD behind the end
    looks: list[Tensor]  # [(B, T, V) per stream] log-probs
    patch: Tensor  # (B, T)


def read_nodes(model: Namer, memory: Memory, request: Request) -> Read:
    """Find the nodes of each image, read them, and go from one to the next."""
    nodes, decoder = model.find(memory), model.decoder
    seen = [head(memory.features) for head in model.patch_heads]
    states = decoder.hidden(named(seen, nodes.patch), nodes.patch, memory, nodes.own)
    right, left = decoder.neighbours(states, nodes.image, nodes.place, nodes.own).log_softmax(3)
    said = []
    for logits in decoder.logits(states):
        logits = logits.float()
        logits[:, MASK_ID] = -torch.inf
        said.append(nodes.own.pad(logits.log_softmax(1))[0])  # (B, M, V)
    none = said[0][:, :, PAD_ID] > math.log(0.5)  # rather no symbol than any
    none[:, 0] = False
    path = walked((right + left.transpose(1, 2)).masked_fill(none[:, None], -torch.inf), request)
    over = (path == 0)[..., None]
    looks, ids = [], []
    for stream in said:
        own = stream.gather(1, path[..., None].expand(-1, -1, stream.shape[2]))
        end = torch.full_like(stream[0, 0], LOWEST).index_fill(0, path.new_tensor([PAD_ID]), 0)
        looks.append(torch.where(over, end, own))
        ids.append(torch.where(over[..., 0], PAD_ID, own[..., NAMES:].argmax(2) + NAMES))
    patch = nodes.own.pad(nodes.patch)[0].gather(1, path)
    return Read(torch.stack(ids, 2), looks, patch.clamp_min(0))


def decode_found(
    model: GryphOne, memories: Sequence[Memory], images: np.ndarray, request: Request
) -> list[Decoded]:
    """The answers; `images` name each canvas's ink of the memory."""
    assert isinstance(model, Namer)
    if len(memories) > 1:
        raise ConfigError("kind 'namer' finds its symbols in one look; leave views out")
    (memory,), owners = once(memories, images)
    read = read_nodes(model, memory, request)
    looks = [stream.cpu().numpy() for stream in read.looks]
    answers = read_out(read.ids.cpu().numpy(), looks, request)
    return shown([answers[owner] for owner in owners], request)
