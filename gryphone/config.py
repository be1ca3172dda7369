"""Typed settings of models and training runs, checked once, where they are made."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gryphone.augment import Augment
from gryphone.errors import ConfigError
from gryphone.model import Decoder, DenseEncoder, GryphOne, InkEncoder
from gryphone.raster import Canvas

T = TypeVar("T")


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a network and the canvas it was made for."""

    canvas: Canvas = field(default_factory=Canvas)
    dense: bool = False  # every patch and a class token (DINO), instead of inked patches only
    all_patches: bool = False  # keep blank patches too (what sparsity is measured against)
    width: int = 384
    encoder_depth: int = 10
    encoder_heads: int = 6
    decoder_depth: int = 5
    decoder_heads: int = 6
    length: int = 150  # the longest canvas of tokens
    attention_dropout: float = 0.0
    dropout: float = 0.1
    aux: bool = True  # heads that read patches without the decoder

    def __post_init__(self) -> None:
        for heads in (self.encoder_heads, self.decoder_heads):
            if self.width % heads:
                raise ConfigError(f"width {self.width} is not a multiple of {heads} heads")
        if self.dense and self.canvas.kind != "square":
            raise ConfigError("a dense encoder needs canvas.kind 'square'")

    @property
    def keep_all(self) -> bool:
        """Whether blank patches go through the encoder."""
        return self.dense or self.all_patches


PRESETS = {
    "paper": ModelConfig(
        canvas=Canvas("square", 224, 8, 8),
        dense=True,
        encoder_depth=12,
        encoder_heads=8,
        decoder_heads=8,
        attention_dropout=0.3,
        dropout=0.0,
        aux=False,
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


def build_model(config: ModelConfig, vocabularies: tuple[int, ...]) -> GryphOne:
    """The network that a configuration describes, with fresh weights."""
    c = config
    shared = {"width": c.width, "attention_dropout": c.attention_dropout, "dropout": c.dropout}
    encoder: DenseEncoder | InkEncoder
    sizes: dict[str, Any] = {"depth": c.encoder_depth, "heads": c.encoder_heads, **shared}
    if c.dense:
        grid = c.canvas.side // c.canvas.patch
        encoder = DenseEncoder(grid=grid, patch=c.canvas.patch, **sizes)
    else:
        encoder = InkEncoder(window=c.canvas.window, **sizes)
    decoder = Decoder(
        vocabularies=vocabularies,
        length=c.length,
        depth=c.decoder_depth,
        heads=c.decoder_heads,
        **shared,  # type: ignore[arg-type]
    )
    return GryphOne(encoder, decoder, c.width, vocabularies if c.aux else ())


@dataclass(frozen=True)
class SourceConfig:
    """One source of training samples and its share of every batch."""

    path: str
    weight: float = 1.0
    finish: float | None = None  # the share in the run's last part (TrainConfig.finish)
    kind: str = "ink"  # "ink": a packed store or data set; "synth": layouts written by the hand
    glyphs: str = ""  # synth: the glyph bank
    style: Mapping[str, float] = field(default_factory=dict)  # synth: other values of its Style
    symbols_of: str = ""  # leave out formulas with a symbol that this data set does not have
    contradicting: bool = True  # ink: keep samples whose segmentation contradicts their label
    without: tuple[str, ...] = ()  # ink: leave out samples whose label has one of these tokens

    def __post_init__(self) -> None:
        if self.kind not in ("ink", "synth"):
            raise ConfigError(f"source kind {self.kind!r} is unknown; use 'ink' or 'synth'")
        if self.kind == "synth" and not self.glyphs:
            raise ConfigError(f"source {self.path} of kind 'synth' needs 'glyphs', a glyph bank")
        if self.weight < 0 or (self.finish is not None and self.finish < 0):
            raise ConfigError(f"source {self.path} has a negative share; use 0 to leave it out")


@dataclass(frozen=True)
class TrainConfig:
    """One training run. `minutes` (wall-clock) or `steps` ends it, whichever comes first."""

    name: str
    sources: tuple[SourceConfig, ...]
    validation: Mapping[str, str] = field(default_factory=dict)  # name -> packed store or data set
    unseen: Mapping[str, str] = field(default_factory=dict)  # name -> file that lists sample ids
    model: ModelConfig = field(default_factory=ModelConfig)
    scheme: str = "sat"
    convention: str = "crohme"
    tokenizer: str = ""  # a saved tokenizer; without one it is built from the sources' labels
    spell: Mapping[str, str] = field(default_factory=dict)  # symbols that labels give as another
    dino: str = ""  # a local DINO ViT-S/8 state dict for the dense encoder
    out: str = "runs"
    seed: int = 0
    batch: int = 512  # samples per shard
    shards: int = 1  # micro-batches per step, shared out among the processes
    steps: int = 1_000_000
    minutes: float = 1e9
    finish: float = 0.0  # the last part of the run, in which sources have their `finish` shares
    lr: float = 1e-3
    min_lr: float = 0.01  # the cosine's end, as a share of lr
    warmup_steps: int = 300
    weight_decay: float = 0.05
    betas: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0
    ema: float = 0.999
    rmml: bool = True
    time_power: float = 1.0
    corrupt: float = 0.0
    aux_weight: float = 0.5
    augment: Augment | None = field(default_factory=Augment)
    precision: str = "bf16"  # "no", "bf16" or "fp16", as Accelerate names them
    compile: bool = True
    save_minutes: float = 2.0
    eval_minutes: float = 5.0
    eval_steps: tuple[int, ...] = (1, 10)  # refinement steps T to report
    eval_limit: int = 0  # samples per validation set while training; 0: all
    log_every: int = 50

    def __post_init__(self) -> None:
        if not self.sources:
            raise ConfigError("sources is empty; name at least one data set to train on")
        if not 0 <= self.finish <= 1:
            raise ConfigError(f"finish is {self.finish}; it is a share of the run, from 0 to 1")
        for name in ("batch", "shards", "steps", "log_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be 1 or more")
        if self.precision not in ("no", "bf16", "fp16"):
            raise ConfigError(f"precision {self.precision!r} is unknown; use no, bf16 or fp16")
        if self.scheme not in ("sat", "raw"):
            raise ConfigError(f"scheme {self.scheme!r} is unknown; use 'sat' or 'raw'")


def load_config(path: Path, overrides: Mapping[str, Any] | None = None) -> TrainConfig:
    """Read a YAML training configuration; `model: {preset: ink, ...}` starts from a preset."""
    import yaml

    try:
        raw = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path} holds no settings; see configs/ for examples")
    return config_of({"name": path.stem, **raw, **(overrides or {})}, str(path))


def config_of(raw: Mapping[str, Any], where: str) -> TrainConfig:
    """A training configuration from plain data; `where` it stands is named in errors."""
    model = dict(raw.get("model") or {})
    preset = model.pop("preset", "ink")
    if preset not in PRESETS:
        raise ConfigError(f"{where}: preset {preset!r} is unknown; use one of {', '.join(PRESETS)}")
    model = {**dataclasses.asdict(PRESETS[preset]), **model}
    return from_dict(TrainConfig, {**raw, "model": model}, where)


def from_dict(cls: type[T], raw: Mapping[str, Any], where: str) -> T:
    """Build a (nested) settings dataclass; an unknown key or a value of a wrong type is named."""
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    unknown = sorted(set(raw) - set(fields))
    if unknown:
        raise ConfigError(f"{where}: unknown setting {unknown[0]!r}; known: {', '.join(fields)}")
    values: dict[str, Any] = {}
    nested: dict[str, type[Any]] = {"canvas": Canvas, "model": ModelConfig, "augment": Augment}
    for key, value in raw.items():
        if key in nested and isinstance(value, Mapping):
            value = from_dict(nested[key], value, f"{where}: {key}")
        elif key == "sources":
            value = tuple(from_dict(SourceConfig, s, f"{where}: sources") for s in value)
        elif key == "precision" and value is False:
            value = "no"  # which YAML takes for a truth value
        elif isinstance(value, list):
            value = tuple(value)
        elif isinstance(value, str) and fields[key].type in ("float", "int"):
            value = _number(value, f"{where}: {key}")  # YAML reads 1e-3 as a string
        values[key] = value
    try:
        return cls(**values)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from error


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{where} is {text!r}; it must be a number") from None
