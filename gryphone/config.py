"""Typed settings of models and training runs, checked once, where they are made."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from gryphone.augment import Augment
from gryphone.errors import ConfigError
from gryphone.latex.normalize import rules_of
from gryphone.limits import AMOUNT, COUNT, DECAY, POSITIVE, SHARE, check_ranges
from gryphone.model import Decoder, DenseEncoder, GryphOne, InkEncoder
from gryphone.raster import Canvas

T = TypeVar("T")
SIZES = ("width", "encoder_depth", "encoder_heads", "decoder_depth", "decoder_heads", "length")
MODEL_RANGES = dict.fromkeys(SIZES, COUNT) | {"attention_dropout": SHARE, "dropout": SHARE}
TRAIN_RANGES = {
    **dict.fromkeys(("batch", "shards", "steps", "log_every", "eval_steps"), COUNT),
    **dict.fromkeys(("minutes", "lr", "clip", "time_power"), POSITIVE),
    **dict.fromkeys(("save_minutes", "eval_minutes", "eval_limit", "warmup_steps"), AMOUNT),
    **dict.fromkeys(("weight_decay", "aux_weight"), AMOUNT),
    **dict.fromkeys(("finish", "min_lr", "corrupt"), SHARE),
    **dict.fromkeys(("betas", "ema"), DECAY),
}


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
        check_ranges(self, MODEL_RANGES)
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
    max_tokens: int | None = None  # ink: leave out samples whose label is longer (see model.length)

    def __post_init__(self) -> None:
        if self.kind not in ("ink", "synth"):
            raise ConfigError(f"source kind {self.kind!r} is unknown; use 'ink' or 'synth'")
        if self.kind == "synth" and not self.glyphs:
            raise ConfigError(f"source {self.path} of kind 'synth' needs 'glyphs', a glyph bank")
        for share in (self.weight, 0.0 if self.finish is None else self.finish):
            if not 0 <= share < math.inf:
                raise ConfigError(
                    f"source {self.path} has the share {share}; it must be 0 (left out) or more"
                )
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ConfigError(
                f"source {self.path} has max_tokens {self.max_tokens}; it must be 1 or more"
            )


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
        check_ranges(self, TRAIN_RANGES)
        if self.name in ("", "..") or Path(self.name).name != self.name:
            raise ConfigError(
                f"name is {self.name!r}; it must be that of one folder, which 'out' gets"
            )
        for name in self.unseen:
            if name not in self.validation:
                known = ", ".join(self.validation) or "none"
                raise ConfigError(f"unseen names {name!r}; the validation sets are: {known}")
        rules_of(self.convention)
        if self.precision not in ("no", "bf16", "fp16"):
            raise ConfigError(f"precision {self.precision!r} is unknown; use no, bf16 or fp16")
        if self.scheme not in ("sat", "raw"):
            raise ConfigError(f"scheme {self.scheme!r} is unknown; use 'sat' or 'raw'")


def load_config(path: Path, overrides: Mapping[str, Any] | None = None) -> TrainConfig:
    """Read a YAML training configuration; `model: {preset: ink, ...}` starts from a preset."""
    import yaml

    try:
        raw = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path} holds no settings; see configs/ for examples")
    return config_of({"name": path.stem, **raw, **(overrides or {})}, str(path))


def changes_of(items: Iterable[str]) -> dict[str, Any]:
    """The settings in `name=value` texts, as `--set` gives them; values are YAML."""
    import yaml

    changes: dict[str, Any] = {}
    for item in items:
        name, separator, value = item.partition("=")
        if not separator:
            raise ConfigError(f"--set {item}: write it as name=value")
        try:
            changes[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            reason = getattr(error, "problem", None) or "put it in quotes"
            raise ConfigError(f"--set {item}: {value!r} is no YAML value: {reason}") from error
    return changes


def config_of(raw: Mapping[str, Any], where: str) -> TrainConfig:
    """A training configuration from plain data; `where` it stands is named in errors.

    A dotted name (`model.length`) sets one value of a nested setting, and keeps the others.
    """
    dotted = {key: value for key, value in raw.items() if "." in str(key)}
    raw = {key: value for key, value in raw.items() if key not in dotted}
    chosen = raw.get("model") or {}
    if not isinstance(chosen, Mapping):
        raise _unfit(chosen, "a mapping such as {preset: ink}", f"{where}: model")
    preset = dotted.pop("model.preset", chosen.get("preset", "ink"))
    if preset not in list(PRESETS):  # a list: what is no preset may have no hash either
        raise ConfigError(f"{where}: preset {preset!r} is unknown; use one of {', '.join(PRESETS)}")
    changes = {key: value for key, value in chosen.items() if key != "preset"}
    model = {**dataclasses.asdict(PRESETS[preset]), **changes}
    raw = {**raw, "model": model}
    for key, value in dotted.items():
        raw = _changed(raw, key.split("."), value, where)
    if raw.get("precision") is False:
        raw["precision"] = "no"  # which YAML takes for a truth value
    return from_dict(TrainConfig, raw, where)


def _changed(raw: Mapping[str, Any], names: list[str], value: Any, where: str) -> dict[str, Any]:
    """A copy of the settings in which the one that a path of names leads to is another."""
    first, *rest = names
    if rest:
        inner = raw.get(first, {})
        if not isinstance(inner, Mapping):
            dotted = ".".join(names)
            raise ConfigError(f"{where}: {first} is {inner!r}; {dotted} needs a mapping there")
        value = _changed(inner, rest, value, f"{where}: {first}")
    return {**raw, first: value}


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
            raise _unfit(value, f"a mapping such as {{{first}: ...}}", where)
        return from_dict(kind, value, where)  # type: ignore[arg-type]
    if origin is tuple:
        return _typed_list(value, inner, where)
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise _unfit(value, "a mapping of names to values", where)
        return {
            _typed(k, str, where): _typed(v, inner[1], f"{where}: {k}") for k, v in value.items()
        }
    return _typed_scalar(value, kind, where)


def _typed_list(value: Any, inner: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    """A tuple of one kind of any length (`X, ...`), or of exactly the kinds given."""
    many = inner[-1] is Ellipsis
    if not isinstance(value, (list, tuple)) or not (many or len(value) == len(inner)):
        raise _unfit(value, "a list" if many else f"a list of {len(inner)} values", where)
    kinds = inner[:1] * len(value) if many else inner
    return tuple(_typed(v, k, where) for v, k in zip(value, kinds, strict=True))


def _typed_scalar(value: Any, kind: type, where: str) -> Any:
    """A text, a truth value or a number."""
    if kind in (str, bool):
        if not isinstance(value, kind):
            raise _unfit(
                value, "true or false" if kind is bool else "text; put it in quotes", where
            )
        return value
    number = _number(value)
    if number is None:
        raise _unfit(value, "a number", where)
    if kind is int:
        if number % 1:
            raise _unfit(value, "a whole number", where)
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


def _unfit(value: Any, expected: str, where: str) -> ConfigError:
    return ConfigError(f"{where} is {value!r}; it must be {expected}")
