"""Typed settings, checked once, where they are made: what a network was made for.

Everything here imports without PyTorch: a checkpoint's settings are facts, whoever computes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from gryphone.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both of them in it unless it is open there."""

    low: float = 0.0
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:  # nan is in none
        above = self.low < value if self.open_low else self.low <= value
        return above and (value < self.high if self.open_high else value <= self.high)

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"more than {self.low:g}" if self.open_low else f"{self.low:g} or more"
        return f"from {self.low:g} to {'less than ' if self.open_high else ''}{self.high:g}"


COUNT = Range(1)
AMOUNT = Range(0)
POSITIVE = Range(0, open_low=True)
SHARE = Range(0, 1)
DECAY = Range(0, 1, open_high=True)


def check_ranges(settings: object, ranges: Mapping[str, Range]) -> None:
    """Raise ConfigError for the first setting that holds a number outside its range."""
    for name, allowed in ranges.items():
        value = getattr(settings, name)
        for number in value if isinstance(value, tuple) else (value,):
            if number not in allowed:
                raise ConfigError(f"{name} is {number}; it must be {allowed}")


@dataclass(frozen=True)
class Canvas:
    """How ink is scaled before it is drawn.

    `square`: the longer side fills `side` pixels, centred (the paper). `area`: width times height
    is side², whatever the shape. `stroke`: a typical stroke is `stroke` pixels long, so that
    symbols have one size in short and long formulas; the area never exceeds side². The last two
    limit the aspect ratio to `max_aspect`: beyond it, the longer side decides. A stroke that is
    smaller than `dot` pixels is drawn as one and the same dot: some pens leave a point, others a
    scribble, and only its height says what it means.
    """

    kind: str = "stroke"
    side: int = 384
    patch: int = 8
    window: int = 16  # receptive field of one patch, in pixels: patch or twice the patch
    max_aspect: float = 16.0
    stroke: float = 36.0
    dot: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in ("square", "area", "stroke"):
            raise ConfigError(f"canvas kind {self.kind!r} is unknown; use square, area or stroke")
        if self.patch < 1:
            raise ConfigError(f"canvas patch is {self.patch}; it must be 1 or more")
        if self.side % self.patch or self.window not in (self.patch, 2 * self.patch):
            raise ConfigError(
                f"canvas side {self.side} must be a multiple of the patch {self.patch}, and the "
                f"window {self.window} the patch or twice the patch"
            )


@dataclass(frozen=True)
class Precision:
    """How ink is stored and read: the canvas that defines a pixel, and the errors in pixels.

    It belongs to a network (`ModelConfig.ink_precision`): ink that training never saw costs EM.
    """

    side: float = 384.0  # width times height is side²; models may draw on other canvases
    max_aspect: float = 16.0  # flatter ink counts as this flat
    tolerance: float = 0.25  # a dropped point lies at most this far from the line kept
    grid: int = 8  # steps per pixel

    def __post_init__(self) -> None:
        check_ranges(self, {f.name: POSITIVE for f in dataclasses.fields(self)})


@dataclass(frozen=True)
class Remasking:
    """How tokens are masked again, in reverse steps and (`apart`) in training.

    Ours is Algorithm 2 as it is printed; the first three set is what its authors' code does.
    """

    keep_visible: bool = False  # a step fills masked places only; else it answers all places anew
    apart: bool = False  # every stream of a place by a draw of its own; else all of them together
    from_all: bool = False  # shares linspace(1, 0, T): all is masked once more; else t/T
    from_left: bool = False  # the end of the answer is masked again; else places at random


@dataclass(frozen=True)
class DecoderStyle:
    """How the decoder's blocks are built; all changed is what the paper's authors' code does."""

    norm_every: bool = False  # a norm before every linear layer; else before each part of a block
    feedforward: int = 4  # hidden layer of the feed-forward part, in widths
    activation: str = "gelu"  # of it, or "relu"
    sinusoids: bool = False  # fixed positions; else learned
    one_table: bool = False  # PAD and MASK are the same in all streams; else each has its own

    def __post_init__(self) -> None:
        check_ranges(self, {"feedforward": COUNT})
        if self.activation not in ("gelu", "relu"):
            raise ConfigError(f"activation {self.activation!r} is unknown; use 'gelu' or 'relu'")


SIZES = ("width", "encoder_depth", "encoder_heads", "decoder_depth", "decoder_heads", "length")
MODEL_RANGES = dict.fromkeys(SIZES, COUNT) | {"attention_dropout": SHARE, "dropout": SHARE}


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a network and the canvas it was made for."""

    canvas: Canvas = field(default_factory=Canvas)
    dense: bool = False  # every patch and a class token (DINO), instead of inked patches only
    encoder: str = "vit"  # or "densenet", that of the published rivals, on whole pictures
    all_patches: bool = False  # keep blank patches too (what sparsity is measured against)
    width: int = 384
    encoder_depth: int = 10
    encoder_heads: int = 6
    decoder_depth: int = 5
    decoder_heads: int = 6
    length: int = 150  # the longest canvas of tokens
    attention_dropout: float = 0.0  # on the decoder's attention weights
    dropout: float = 0.1
    aux: bool = True  # heads that read patches without the decoder
    kind: str = "diffusion"  # of decoder, one of gryphone.kinds
    ink_precision: Precision = field(default_factory=Precision)  # of what it was trained on
    remasking: Remasking = field(default_factory=Remasking)
    decoder: DecoderStyle = field(default_factory=DecoderStyle)

    def __post_init__(self) -> None:
        check_ranges(self, MODEL_RANGES)
        for heads in (self.encoder_heads, self.decoder_heads):
            if self.width % heads:
                raise ConfigError(f"width {self.width} is not a multiple of {heads} heads")
        if self.dense and self.canvas.kind != "square":
            raise ConfigError("a dense encoder needs canvas.kind 'square'")
        if self.encoder not in ("vit", "densenet"):
            raise ConfigError(f"encoder {self.encoder!r} is unknown; use 'vit' or 'densenet'")
        if self.encoder == "densenet":
            if self.dense or (self.canvas.patch, self.canvas.window) != (16, 16):
                raise ConfigError(
                    "encoder 'densenet' makes a feature of 16x16 pixels: set canvas.patch: 16, "
                    "canvas.window: 16, dense: false"
                )
            if self.width % 4:
                raise ConfigError(f"width {self.width} is no multiple of 4, as 'densenet' needs")

    @property
    def has_graphs(self) -> bool:
        """Whether `recognition.onnx_graph` can write this network down."""
        ours = self.kind == "diffusion" and self.encoder == "vit"
        return ours and self.decoder == DecoderStyle()

    @property
    def keep_all(self) -> bool:
        """Whether blank patches go through the encoder."""
        return self.dense or self.all_patches or self.encoder == "densenet"


PRESETS = {
    "paper": ModelConfig(
        canvas=Canvas("square", 224, 8, 8),
        dense=True,
        encoder_depth=12,
        decoder_heads=8,
        attention_dropout=0.3,
        dropout=0.0,
        aux=False,
        remasking=Remasking(keep_visible=True, apart=True, from_all=True),
        decoder=DecoderStyle(True, 1, "relu", True, True),
    ),
    "ink": ModelConfig(canvas=Canvas("stroke", 456, stroke=44.0, dot=4.0)),
    "tiny": ModelConfig(
        canvas=Canvas("stroke", 160, 8, 16, stroke=16),
        width=64,
        encoder_depth=2,
        encoder_heads=4,
        decoder_depth=2,
        decoder_heads=4,
        length=40,
        dropout=0.0,
    ),
}


def from_dict(cls: type[T], raw: Mapping[str, Any], where: str) -> T:
    """Build a (nested) settings dataclass; an unknown key or a value of a wrong type is named."""
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    unknown = sorted(set(raw) - set(fields), key=str)
    if unknown:
        raise ConfigError(f"{where}: unknown setting {unknown[0]!r}; known: {', '.join(fields)}")
    for name, setting in fields.items():
        optional = (setting.default, setting.default_factory) != (dataclasses.MISSING,) * 2
        if name not in raw and not optional:
            raise ConfigError(f"{where}: the setting {name!r} is missing")
    kinds = get_type_hints(cls)
    typed = {key: _typed(value, kinds[key], f"{where}: {key}") for key, value in raw.items()}
    try:
        return cls(**typed)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _typed(value: Any, kind: Any, where: str) -> Any:
    """A setting's value as its annotation wants it."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:  # X | None
        return None if value is None else _typed(value, inner[0], where)
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, Mapping):
            first = dataclasses.fields(kind)[0].name
            raise unfit(value, f"a mapping such as {{{first}: ...}}", where)
        return from_dict(kind, value, where)  # type: ignore[arg-type]
    if origin is tuple:
        return _typed_list(value, inner, where)
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise unfit(value, "a mapping of names to values", where)
        return {
            _typed(k, str, where): _typed(v, inner[1], f"{where}: {k}") for k, v in value.items()
        }
    return _typed_scalar(value, kind, where)


def _typed_list(value: Any, inner: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    """A tuple of one kind of any length (`X, ...`), or of exactly the kinds given."""
    many = inner[-1] is Ellipsis
    if not isinstance(value, (list, tuple)) or not (many or len(value) == len(inner)):
        raise unfit(value, "a list" if many else f"a list of {len(inner)} values", where)
    kinds = inner[:1] * len(value) if many else inner
    return tuple(_typed(v, k, where) for v, k in zip(value, kinds, strict=True))


def _typed_scalar(value: Any, kind: type, where: str) -> Any:
    """A text, a truth value or a number."""
    if kind in (str, bool):
        if not isinstance(value, kind):
            raise unfit(value, "true or false" if kind is bool else "text; put it in quotes", where)
        return value
    number = _number(value)
    if number is None:
        raise unfit(value, "a number", where)
    if kind is int:
        if number % 1:
            raise unfit(value, "a whole number", where)
        return int(number)
    return number


def _number(value: Any) -> float | None:
    """The number that a value is; YAML reads 1e-3 as a string, and true is no number."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def unfit(value: Any, expected: str, where: str) -> ConfigError:
    return ConfigError(f"{where} is {value!r}; it must be {expected}")
