"""Where the tokens of labels are on the ink: one patch for each, which NAMER learns to find.

A token that the segmentation places has one of its glyph's patches, the one that speaks best for
it, near the middle. Glyphs share no patch, so that this choice is a matching. Tokens that nothing
places (unsegmented ink, symbols without ink, glyphs that lie in others' patches) then take the best
of the patches that are left, the surest pair of token and patch first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gryphone.model import Packing
from gryphone.ragged import ranges
from gryphone.raster import Patches
from gryphone.tokens import PAD_ID

NOWHERE = -1
SHARED = 1e4  # what a second token in a patch costs: more than all else, and still possible


@dataclass(frozen=True)
class Spots:
    """Labels, and what is known of the places of their tokens."""

    tokens: Tensor  # (T, S) the labels, one behind the other
    lengths: Tensor  # (B,)
    owner: Tensor  # (P,) the token whose glyph has ink in a patch, or NOWHERE
    middle: Tensor  # (P,) log-odds of a patch by its distance from the middle of its glyph
    lost: Tensor  # (b, L) tokens without a patch, of the images that have such; NOWHERE fills up
    columns: Tensor  # (b, Q) the patches of those images; NOWHERE fills up
    bar: Tensor  # (B,) from 0 to 1: how little makes a patch one more node


def spots_of(
    tokens: Tensor, lengths: Tensor, places: Tensor, patches: Patches, bar: Tensor
) -> Spots:
    """Labels (T, S) of lengths (B,) on patches whose glyphs have places (G,) in their labels."""
    begin, offsets = lengths.cumsum(0) - lengths, patches.offsets.long()
    counts = offsets.diff()
    home, _ = ranges(counts)
    place = torch.full_like(patches.glyph, NOWHERE)
    if len(places):
        place = torch.where(patches.glyph >= 0, places[patches.glyph.clamp_min(0)], NOWHERE)
    owner = torch.where(place >= 0, begin[home] + place, NOWHERE)
    # Images with tokens that have no patch.
    found = torch.zeros(len(tokens) + 1, dtype=torch.bool, device=tokens.device)
    found[owner] = True  # NOWHERE is the last row
    image, _ = ranges(lengths)
    lost = (~found[:-1]).nonzero().squeeze(1)
    waiting = torch.bincount(image[lost], minlength=len(lengths))
    some = waiting.nonzero().squeeze(1)
    first = waiting[some].cumsum(0) - waiting[some]
    return Spots(
        tokens,
        lengths,
        owner,
        _middle(owner, patches.position, len(tokens)),
        _rows(lost, first, waiting[some]),
        _rows(torch.arange(len(home), device=home.device), offsets[some], counts[some]),
        bar,
    )


@dataclass(frozen=True)
class Graph:
    """Nodes, and what is to be said of them.

    An image's nodes are its border, the tokens in their order, and some that are no symbol. Who
    reads nodes does not know their order: border and tokens name their neighbours among them.
    """

    own: Packing
    patch: Tensor  # (N,) of each node, among all packed ones; NOWHERE for a border
    image: Tensor  # (N,)
    index: Tensor  # (N,) its place among the nodes of its image; 0 is the border
    truth: Tensor  # (N, S) what it is; PAD is no symbol, NOWHERE is not asked for
    right: Tensor  # (N,) the place of the node behind it, or NOWHERE
    left: Tensor  # (N,) the place of the node before it, or NOWHERE


def graph_of(spots: Spots, spot: Tensor, false: Tensor, keep: Tensor) -> Graph:
    """Tokens in their patches (T,), and those of patches (B, F) that are kept, which are none."""
    tokens, lengths = spots.tokens, spots.lengths
    nodes = 1 + lengths + keep.sum(1)
    image, index = ranges(nodes)
    count = lengths[image]
    begin = (lengths.cumsum(0) - lengths)[image]
    token = torch.where((index > 0) & (index <= count), begin + index - 1, NOWHERE)
    truth = torch.where((token >= 0)[:, None], tokens[token], NOWHERE)
    truth[:, 0] = torch.where(index > count, PAD_ID, truth[:, 0])
    patch = torch.where(token >= 0, spot[token], NOWHERE)
    patch[index > count] = false[keep]
    asked = index <= count
    right = torch.where(asked, torch.where(index < count, index + 1, 0), NOWHERE)
    left = torch.where(asked, torch.where(index > 0, index - 1, count), NOWHERE)
    return Graph(Packing.of(nodes), patch, image, index, truth, right, left)


def _rows(x: Tensor, first: Tensor, counts: Tensor) -> Tensor:
    """Runs of x that begin at `first` (b,), side by side (b, longest); NOWHERE fills up."""
    longest = int(counts.max()) if len(counts) else 0
    place = torch.arange(longest, device=x.device)
    real = place < counts[:, None]
    return torch.where(real, x[torch.where(real, first[:, None] + place, 0)], NOWHERE)


def _middle(owner: Tensor, position: Tensor, tokens: int) -> Tensor:
    """Half the squared distance (P,) of a patch from its glyph's middle, by the glyph's size."""
    row = torch.where(owner < 0, tokens, owner)
    spot = torch.cat([position.float(), torch.ones_like(position[:, :1])], 1)
    total = spot.new_zeros(tokens + 1, 3).index_add(0, row, spot)
    away = (position - total[row, :2] / total[row, 2:]).square().sum(1)
    size = away.new_zeros(tokens + 1).index_add(0, row, away) / total[:, 2].clamp_min(1)
    return -away / (2 * (1 + size[row]))


@torch.no_grad()
def matched(odds: Sequence[Tensor], here: Tensor, spots: Spots) -> Tensor:
    """The patch (T,) of each token, by log-probs of tokens [(P, V) per stream] and `here` (P,)."""
    tokens, count, patches = spots.tokens, len(spots.tokens), len(here)
    owner = torch.where(spots.owner < 0, count, spots.owner)
    wanted = tokens[spots.owner.clamp_min(0)]
    score = here + spots.middle
    for stream, said in enumerate(odds):
        score = score + said.gather(1, wanted[:, stream, None])[:, 0]
    best = score.new_full((count + 1,), -torch.inf).scatter_reduce(0, owner, score, "amax")
    row = torch.arange(patches, device=here.device)
    row = torch.where(score == best[owner], row, patches)
    spot = row.new_full((count + 1,), patches).scatter_reduce(0, owner, row, "amin")
    spot[-1] = patches  # nobody's best patch is not taken
    _place_lost(spot, odds, here, spots)
    return spot[:-1].clamp_max(patches - 1)


def _place_lost(spot: Tensor, odds: Sequence[Tensor], here: Tensor, spots: Spots) -> None:
    """Give lost tokens patches in `spot` (T + 1,), whose last row is for nobody."""
    lost, columns, nobody = spots.lost, spots.columns, len(spots.tokens)
    taken = torch.zeros(len(here) + 1, dtype=torch.bool, device=here.device)
    taken[spot] = True
    pair = (here[columns] - SHARED * taken[columns])[:, None].expand(-1, lost.shape[1], -1).clone()
    for stream, said in enumerate(odds):
        pair += said[columns[:, None], spots.tokens[lost][:, :, None, stream]]  # (b, L, Q)
    pair.masked_fill_((columns < 0)[:, None] | (lost < 0)[:, :, None], -torch.inf)
    every = torch.arange(len(lost), device=lost.device)
    for _ in range(lost.shape[1]):
        value, at = pair.flatten(1).max(1)
        token, column = at // columns.shape[1], at % columns.shape[1]
        spot[torch.where(value == -torch.inf, nobody, lost[every, token])] = columns[every, column]
        pair[every, token] = -torch.inf
        pair[every, :, column] -= SHARED
