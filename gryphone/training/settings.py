"""The settings of a training run, checked once, where they are made."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gryphone.config import (
    AMOUNT,
    COUNT,
    DECAY,
    POSITIVE,
    PRESETS,
    SHARE,
    ModelConfig,
    check_ranges,
    from_dict,
    unfit,
)
from gryphone.errors import ConfigError
from gryphone.kinds import KINDS, check_kind
from gryphone.latex.normalize import rules_of
from gryphone.training.augment import Augment

TRAIN_RANGES = {
    **dict.fromkeys(("batch", "shards", "steps", "log_every", "eval_steps"), COUNT),
    **dict.fromkeys(("minutes", "lr", "clip", "time_power"), POSITIVE),
    **dict.fromkeys(("save_minutes", "eval_minutes", "eval_limit", "warmup_steps"), AMOUNT),
    **dict.fromkeys(("weight_decay", "aux_weight"), AMOUNT),
    **dict.fromkeys(("finish", "min_lr", "warmup_from", "corrupt", "suffix"), SHARE),
    **dict.fromkeys(("betas", "ema"), DECAY),
}


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
    stream: int = 0  # ink: hold so many inks at a time, and read the others when it is their turn

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
        if self.stream < 0 or (self.stream and self.kind != "ink"):
            raise ConfigError(
                f"source {self.path} of kind {self.kind!r} has stream {self.stream}; it must be 0 "
                "(all in memory), or for 'ink' the number of inks to hold"
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
    encoder: str = ""  # a checkpoint whose encoder to begin with, whatever its decoder
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
    warmup_from: float = 0.0  # the share of lr that the warm-up begins with
    drop_from: float | None = None  # the share of the run from which lr is a tenth; no cosine then
    weight_decay: float = 0.05
    decay_all: bool = False  # biases, norms and embeddings too
    betas: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0
    ema: float = 0.999
    rmml: bool = True
    shared_time: bool = False  # RMML: both copies of a sample are masked at one t, not each at its
    detached: bool = False  # RMML: a divergence's target gets no gradient
    time_power: float = 1.0
    corrupt: float = 0.0
    suffix: float = 0.0  # the share of samples whose end is masked, instead of places at random
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
        if self.drop_from is not None:
            check_ranges(self, {"drop_from": SHARE})
        if self.name in ("", "..") or Path(self.name).name != self.name:
            raise ConfigError(
                f"name is {self.name!r}; it must be that of one folder, which 'out' gets"
            )
        for name in self.unseen:
            if name not in self.validation:
                known = ", ".join(self.validation) or "none"
                raise ConfigError(f"unseen names {name!r}; the validation sets are: {known}")
        rules_of(self.convention)
        check_kind(self.model.kind)
        kind = self.model.kind
        # What keeps what it computed writes from left to right.
        if KINDS[kind].cached and (self.rmml or self.time_power != 1 or self.suffix):
            raise ConfigError(
                f"kind {kind!r} masks nothing in training; set rmml: false, time_power: 1 and "
                "suffix: 0"
            )
        if self.precision not in ("no", "bf16", "fp16"):
            raise ConfigError(f"precision {self.precision!r} is unknown; use no, bf16 or fp16")
        if self.scheme not in ("sat", "raw"):
            raise ConfigError(f"scheme {self.scheme!r} is unknown; use 'sat' or 'raw'")


def load_config(path: Path, overrides: Mapping[str, Any] | None = None) -> TrainConfig:
    """Read a YAML training configuration; `model: {preset: ink, ...}` starts from a preset."""
    return config_of({"name": path.stem, **read_settings(path), **(overrides or {})}, str(path))


def read_settings(path: Path, extended_by: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The settings in a YAML file, on top of those in the file that it `extends`.

    A mapping changes what it names and keeps the rest, as dotted names do; a list is replaced. A
    run's name is never another's. A preset is filled in last, and gives way to a whole mapping.
    """
    import yaml

    chain = (*extended_by, path)
    if path.resolve() in [other.resolve() for other in extended_by]:
        raise ConfigError(f"extends leads in a circle: {' -> '.join(map(str, chain))}")
    try:
        raw: Any = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        place = "".join(f", which {other} extends" for other in extended_by[-1:])
        raise ConfigError(f"cannot read {path}{place}: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path} holds no settings; see configs/ for examples")
    settings: dict[str, Any] = raw
    base = settings.pop("extends", None)
    for key in [key for key in settings if "." in str(key)]:
        settings = _changed(settings, key.split("."), settings.pop(key), str(path))
    if base is None:
        return settings
    if not isinstance(base, str):
        raise unfit(base, "the name of another file", f"{path}: extends")
    older = read_settings(path.parent / base, chain)
    older.pop("name", None)
    return _merged(older, settings)


def _merged(older: Mapping[str, Any], newer: Mapping[str, Any]) -> dict[str, Any]:
    """Settings on top of others: a mapping keeps what it does not name."""
    both = dict(older)
    for key, value in newer.items():
        kept = both.get(key)
        if isinstance(value, Mapping) and isinstance(kept, Mapping):
            value = _merged(kept, value)
        both[key] = value
    return both


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
        raise unfit(chosen, "a mapping such as {preset: ink}", f"{where}: model")
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
