"""What the published rivals share: one causal decoder that writes in both directions.

Both directions of a label are canvases of one batch, each with a start of its own: MASK in front of
the first token, PAD in front of the last one, as BTTR begins at its end token. A PAD ends either.
An image's left-to-right canvas comes first, then the other. In decoding both write a beam, and all
hypotheses are rated in both directions (`gryphone.rivals.joint`).

`TwoWayDecoder` is BTTR. Others are subclasses of it in a file of their own, with a function like
`two_way_network` and a row in `gryphone.kinds`; what they may change:

- *Attention on the image*: `hidden` (training and rating: whole canvases) together with
  `writer`, which gives a `Writer` whose `look_at` does the same for one new place of each row, and
  whose `follow` lets rows change places in what it keeps (`gryphone.rivals.coverage`).
- *States behind the blocks*: `hidden` and `Writer.finish`.
- *The logits*: `logits`, from states; reading and training both ask it.
- *More heads and losses*: modules of their own, and `losses(states, sheet, memory)`, which names
  scalars that are added to the loss of the tokens as they are, and logged.
- *One more score of whole hypotheses*: `score(states, sheet)`, (C,) of each canvas, which is added
  to its mean log-prob where the beams are rated.

`Sheet` has everything of the canvases; names of tokens come to the function that builds the
network, and belong into buffers that are not saved (`persistent=False`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gryphone.config import ModelConfig
from gryphone.kinds import network_with
from gryphone.model import GryphOne, Memory, Packing
from gryphone.raster import Patches
from gryphone.rivals.causal import CausalDecoder
from gryphone.tokens import MASK_ID, PAD_ID


@dataclass(frozen=True)
class Sheet:
    """Packed canvases of tokens to be written, each in one direction."""

    truth: Tensor  # (N, S) what is written, in the order of writing; PAD ends it
    before: Tensor  # (N, S) the token before each, or the start of its direction
    index: Tensor  # (N,) place in the order of writing
    canvas: Tensor  # (N,) the canvas of each place
    backward: Tensor  # (C,) bool, which canvases are written from right to left
    own: Packing


def sheet_of(
    tokens: Tensor, index: Tensor, canvas: Tensor, lengths: Tensor, backward: Tensor
) -> Sheet:
    """Canvases (N, S) from left to right, PAD behind each; those that are `backward` (C,) turn.

    index and canvas (N,), lengths (C,) with the PAD, as `data.store.token_canvases` has them.
    """
    turned, row = backward[canvas], torch.arange(len(index), device=index.device)
    end = lengths[canvas] - 1  # the PAD stays where it is
    mirror = row - index + end - 1 - index
    truth = tokens[torch.where(turned & (index < end), mirror, row)]
    start = torch.where(turned, PAD_ID, MASK_ID)
    before = torch.where((index == 0)[:, None], start[:, None], truth.roll(1, 0))
    return Sheet(truth, before, index, canvas, backward, Packing.of(lengths))


class TwoWayDecoder(CausalDecoder):
    """BTTR's decoder. Whoever feeds whole canvases to `forward` writes from left to right."""

    @property
    def more_blocks(self) -> Sequence[nn.Module]:
        """Blocks besides the decoder's own, to be compiled as those are."""
        return ()

    def losses(self, states: Tensor, sheet: Sheet, memory: Memory) -> dict[str, Tensor]:
        """More losses of states (N, width), by name."""
        return {}

    def score(self, states: Tensor, sheet: Sheet) -> Tensor | None:
        """What more speaks for each canvas (C,); None: nothing."""
        return None


class Rival(GryphOne):
    """A network whose training pass takes both directions."""

    decoder: TwoWayDecoder

    def encode(self, patches: Patches) -> Memory:
        """Look at a batch of images, and remember where the patches were."""
        features, rows = self.encoder(patches)
        return Memory(features, rows, self.decoder.remember(features), patches.position)

    def forward(  # type: ignore[override]
        self, patches: Patches, sheet: Sheet
    ) -> tuple[list[Tensor], list[Tensor], dict[str, Tensor]]:
        """Token logits, patch logits, and the losses that the decoder adds."""
        memory = self.encode(patches)
        states = self.decoder.hidden(sheet.before, sheet.index, memory, sheet.own)
        return (
            self.decoder.logits(states),
            [head(memory.features) for head in self.patch_heads],
            self.decoder.losses(states, sheet, memory),
        )

    def compile_blocks(self) -> None:
        super().compile_blocks()
        for block in self.decoder.more_blocks:
            block.compile(dynamic=True)  # type: ignore[no-untyped-call]


def two_way_network(
    config: ModelConfig, vocabularies: tuple[int, ...], names: Sequence[str]
) -> GryphOne:
    """Encoder and two-way decoder in the sizes that the settings give."""
    return network_with(TwoWayDecoder, config, vocabularies, Rival)
