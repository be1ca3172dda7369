"""The kinds of decoder, chosen in one place: the network, the objective and the sampler of each.

A checkpoint names its kind (`ModelConfig.kind`). The parts are named by where they stand and
imported by whoever needs one: reading loads no objective, training no recogniser.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gryphone.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

    from gryphone.config import ModelConfig
    from gryphone.model import Decoder, GryphOne


@dataclass(frozen=True)
class Kind:
    """Where the parts of a kind stand, as `module:function`.

    network: (ModelConfig, sizes of the vocabularies, names of the first one's tokens) -> the
    network with fresh weights.
    objective: (network, TrainConfig, batch, sizes, generator) -> the loss and its parts.
    sampler: (Predict, Request) -> an answer for each of the request's canvases; empty where nobody
    asks the network for whole canvases, but for `cached`.
    cached: (network, memories, images, Request) -> the same in PyTorch, on any device, by a decoder
    that keeps what it computed; empty where there is none.
    """

    network: str
    objective: str
    sampler: str = ""
    cached: str = ""


def _two_way(network: str) -> Kind:
    """A kind on the trunk of the published rivals, `gryphone.rivals.trunk`."""
    return Kind(
        network,
        objective="gryphone.training.objective:two_way_loss",
        sampler="gryphone.rivals.search:decode",
        cached="gryphone.rivals.joint:decode_jointly",
    )


KINDS = {
    "diffusion": Kind(
        network="gryphone.kinds:diffusion_network",
        objective="gryphone.training.objective:training_loss",
        sampler="gryphone.decoding:decode",
    ),
    "ar": Kind(
        network="gryphone.rivals.causal:causal_network",
        objective="gryphone.training.objective:forced_loss",
        sampler="gryphone.rivals.search:decode",
        cached="gryphone.rivals.search:decode_cached",
    ),
    "bttr": _two_way("gryphone.rivals.trunk:two_way_network"),
    "comer": _two_way("gryphone.rivals.coverage:coverage_network"),
    "ical": _two_way("gryphone.rivals.ical:implicit_network"),
    "tamer": _two_way("gryphone.rivals.tamer:tree_network"),
    "posformer": _two_way("gryphone.rivals.posformer:forest_network"),
    "namer": Kind(
        network="gryphone.rivals.namer:graph_network",
        objective="gryphone.training.objective:found_loss",
        cached="gryphone.rivals.namer:decode_found",
    ),
}


def check_kind(kind: str) -> None:
    """Refuse a kind that is not in the table."""
    if kind not in KINDS:
        raise ConfigError(f"decoder kind {kind!r} is unknown; use one of {', '.join(KINDS)}")


def part_of(kind: str, part: str) -> Any:
    """One part of a kind, imported."""
    check_kind(kind)
    module, _, name = getattr(KINDS[kind], part).partition(":")
    return getattr(import_module(module), name)


def build_model(
    config: ModelConfig, vocabularies: tuple[int, ...], names: Sequence[str] = ()
) -> GryphOne:
    """The network that a configuration describes, with fresh weights.

    `names` are those of the first vocabulary's tokens, for a kind that asks what they mean.
    """
    network: GryphOne = part_of(config.kind, "network")(config, vocabularies, names)
    return network


def diffusion_network(
    config: ModelConfig, vocabularies: tuple[int, ...], names: Sequence[str]
) -> GryphOne:
    """Encoder and bidirectional decoder in the sizes that the settings give."""
    from gryphone.model import Decoder

    return network_with(Decoder, config, vocabularies)


def network_with(
    kind: type[Decoder],
    config: ModelConfig,
    vocabularies: tuple[int, ...],
    network: type[GryphOne] | None = None,
) -> GryphOne:
    """The encoder that the settings describe, and a decoder of some kind in their sizes."""
    from gryphone.model import DenseEncoder, GryphOne, InkEncoder

    c = config
    encoder: nn.Module
    shared: dict[str, Any] = {"width": c.width, "dropout": c.dropout}
    sizes: dict[str, Any] = {"depth": c.encoder_depth, "heads": c.encoder_heads, **shared}
    if c.encoder == "densenet":
        encoder = import_module("gryphone.rivals.densenet").DenseNetEncoder(c.width)
    elif c.dense:
        grid = c.canvas.side // c.canvas.patch
        encoder = DenseEncoder(grid=grid, patch=c.canvas.patch, **sizes)
    else:
        encoder = InkEncoder(window=c.canvas.window, **sizes)
    decoder = kind(
        vocabularies=vocabularies,
        length=c.length,
        depth=c.decoder_depth,
        heads=c.decoder_heads,
        attention_dropout=c.attention_dropout,
        **shared,
        **vars(c.decoder),
    )
    return (network or GryphOne)(encoder, decoder, c.width, vocabularies if c.aux else ())
