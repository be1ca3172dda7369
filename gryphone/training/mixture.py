"""Where training samples come from: real ink, the synthesiser, and their shares of a batch."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from gryphone.config import Precision
from gryphone.data.align import Agreement
from gryphone.data.packed import Packed, PackedFile, join_packed
from gryphone.data.raw_labels import RawTable, raw_tokenizer
from gryphone.data.store import (
    InkStore,
    TrainingBatch,
    concatenate_batches,
    load_packed,
    open_packed,
    pack_command,
    too_long,
)
from gryphone.data.stream import InkStream
from gryphone.errors import ConfigError, DataError
from gryphone.ragged import draw_rows
from gryphone.synth.ink_source import Part, SynthSource, read_part
from gryphone.tokens import EMPTY, SCHEMES, Tokenizer, build_tokenizer, tokenizer_from_dict
from gryphone.training.settings import SourceConfig, TrainConfig

Report = Callable[[str], None]


class Source(Protocol):
    """Anything that can make training samples out of random numbers."""

    def sample(self, counts: Sequence[int], generator: torch.Generator) -> TrainingBatch:
        """Fresh samples: so many of each of the settings' sources that it stands for."""
        ...


@dataclass(frozen=True)
class StoreSource:
    """Real ink, drawn uniformly."""

    store: InkStore
    sizes: tuple[int, ...]  # inks of each of the settings' sources, one behind the other

    @classmethod
    def of(
        cls, packed: Sequence[Packed], tokenizer: Tokenizer, longest: int, device: torch.device
    ) -> StoreSource:
        """The inks of several sources."""
        store = InkStore.of(join_packed(packed), tokenizer, longest, device)
        return cls(store, tuple(map(len, packed)))

    def sample(self, counts: Sequence[int], generator: torch.Generator) -> TrainingBatch:
        """So many inks of each, with replacement."""
        return self.store.batch(draw_rows(self.sizes, counts, generator))


@dataclass(frozen=True)
class StreamSource:
    """Real ink that is not all in memory: each once an epoch, in the order of its stream."""

    stream: InkStream
    device: torch.device
    step: int = 0
    shard: int = 0

    def sample(self, counts: Sequence[int], generator: torch.Generator) -> TrainingBatch:
        """The step's inks, so many."""
        (count,) = counts
        return self.stream.batch(self.step * count, count, self.shard).to(self.device)


@dataclass(frozen=True)
class Mixture:
    """Several sources in fixed shares of every batch, others in the run's last part."""

    sources: tuple[Source, ...]
    counts: tuple[int, ...]  # of each of the settings' sources
    finish: tuple[int, ...]
    stands_for: tuple[tuple[int, ...], ...]  # which of those each of `sources` is
    spelling: torch.Tensor | None = None  # (symbols,) the symbol that each one is spelt as

    @classmethod
    def of(
        cls,
        sources: list[Source],
        weights: list[float],
        batch: int,
        finish: list[float] | None = None,
        spelling: torch.Tensor | None = None,
        stands_for: Iterable[tuple[int, ...]] | None = None,
    ) -> Mixture:
        """Shares proportional to the weights; `stands_for`: by default each source has one."""
        last = weights if finish is None else finish
        alone = [(i,) for i in range(len(sources))]
        return cls(
            tuple(sources),
            batch_shares(weights, batch),
            batch_shares(last, batch),
            tuple(alone if stands_for is None else stands_for),
            spelling,
        )

    @property
    def inks(self) -> int:
        """How many real ones there are."""
        held = sum(len(s.store) for s in self.sources if isinstance(s, StoreSource))
        return held + sum(len(s.stream) for s in self.sources if isinstance(s, StreamSource))

    def sample(
        self, generator: torch.Generator, *, finishing: bool = False, step: int = 0, shard: int = 0
    ) -> TrainingBatch:
        """One micro-batch."""
        sources = [
            replace(s, step=step, shard=shard) if isinstance(s, StreamSource) else s
            for s in self.sources
        ]
        shares = self.finish if finishing else self.counts
        counts = [[shares[i] for i in places] for places in self.stands_for]
        pairs = zip(sources, counts, strict=True)
        batch = concatenate_batches([s.sample(n, generator) for s, n in pairs if any(n)])
        if self.spelling is None:
            return batch
        return replace(
            batch,
            tokens=_spelt(batch.tokens, self.spelling),
            glyph_tokens=_spelt(batch.glyph_tokens, self.spelling),
        )


def _spelt(tokens: torch.Tensor, spelling: torch.Tensor) -> torch.Tensor:
    symbols = tokens[:, 0]
    symbols = torch.where(symbols >= 0, spelling[symbols.clamp_min(0)], symbols)
    return torch.cat([symbols[:, None], tokens[:, 1:]], dim=1)


def spelling_of(
    spell: Mapping[str, str], tokenizer: Tokenizer, device: torch.device
) -> torch.Tensor | None:
    """The symbol (symbols,) that each one counts as; None where all count as themselves."""
    if not spell:
        return None
    symbols = tokenizer.vocabularies[0]
    table = torch.arange(len(symbols), device=device)
    for token, other in spell.items():
        for name in (token, other):
            if name not in symbols:
                raise ConfigError(f"spell: {name!r} is not in the vocabulary")
        table[symbols.id(token)] = symbols.id(other)
    return table


def batch_shares(weights: list[float], batch: int) -> tuple[int, ...]:
    """`batch` shared out in proportion to the weights; rounding goes to the heaviest."""
    if not sum(weights):
        raise ConfigError("all sources have the weight 0; give one of them a share")
    counts = [int(batch * w / sum(weights)) for w in weights]
    counts[weights.index(max(weights))] += batch - sum(counts)
    return tuple(counts)


def report_shareless(config: TrainConfig, report: Report) -> None:
    """Name the sources with a weight that is too small for one sample in a batch."""
    first, last = weights_of(config)
    parts = {"": first}
    if config.finish and last != first:
        parts = {" before the run's last part": first, " in the run's last part": last}
    for when, weights in parts.items():
        counts = batch_shares(weights, config.batch)
        for source, weight, count in zip(config.sources, weights, counts, strict=True):
            if weight and not count:
                enough = math.ceil(sum(weights) / weight)
                report(
                    f"{source.path}: gets no sample of a batch of {config.batch}{when}, since its "
                    f"weight is {weight:g} of {sum(weights):g}; set batch to {enough} or more"
                )


def weights_of(config: TrainConfig) -> tuple[list[float], list[float]]:
    """The sources' weights, and those of the run's last part."""
    weights = [s.weight for s in config.sources]
    return weights, [s.weight if s.finish is None else s.finish for s in config.sources]


def allowed_tokens(source: SourceConfig, convention: str) -> frozenset[str] | None:
    """The tokens of the data set whose symbols a source keeps to; None where it is free."""
    if not source.symbols_of:
        return None
    return tokens_of(Path(source.symbols_of), convention)


def tokens_of(path: Path, convention: str) -> frozenset[str]:
    """The tokens of a data set's labels, and the empty one that every label may have."""
    labels = load_packed(path, convention).labels
    return frozenset([EMPTY, *(token for label in labels for token in label.split(" "))])


def select_samples(
    packed: Packed,
    source: SourceConfig,
    report: Report,
    scheme: str = "sat",
    known: frozenset[str] | None = None,
) -> Packed:
    """Leave out the samples that a source's settings exclude, and say how many. `known` are its
    `allowed_tokens`, for who has them already."""
    unwanted = set(source.without)
    keep = np.array([unwanted.isdisjoint(label.split(" ")) for label in packed.labels])
    if known is None:
        known = allowed_tokens(source, packed.convention)
    if known is not None:
        keep &= np.array([known.issuperset(label.split(" ")) for label in packed.labels])
    if not source.contradicting:
        keep &= packed.agreement != Agreement.CONTRADICTS
    if source.max_tokens is not None:
        split = SCHEMES[scheme].split
        keep &= [len(split(label.split(" "))) <= source.max_tokens for label in packed.labels]
    if keep.all():
        return packed
    if not keep.any():
        raise DataError(
            f"{source.path}: its settings leave out all of its {len(packed)} samples; "
            "change without, max_tokens, symbols_of or contradicting"
        )
    report(f"{source.path}: {(~keep).sum()} of {len(packed)} samples left out by its settings")
    return packed.select(keep)


def load_sources(
    config: TrainConfig, device: torch.device, report: Report, known: Tokenizer | None = None
) -> tuple[Mixture, Tokenizer, dict[str, InkStore]]:
    """Training sources, the tokenizer and validation sets.

    Unless the configuration names a tokenizer it is made of the sources' labels, on top of what
    the weights to start from already know.
    """
    reads = config.convention, config.model.ink_precision
    inks: dict[int, Packed] = {
        i: select_samples(read_ink(s, *reads, report), s, report, config.scheme)
        for i, s in enumerate(config.sources)
        if s.kind == "ink" and not s.stream
    }
    streams = {i: open_stream(s, config, report) for i, s in enumerate(config.sources) if s.stream}
    labels = [label.split(" ") for packed in inks.values() for label in packed.labels]
    for file in (file for files in streams.values() for file in files):
        labels += [label.split(" ") for label in (file.labels or {})["cover"]]
    tokenizer, written = tokenizers_of(config, labels, known)
    raw = RawTable.of(written, tokenizer, device) if config.scheme == "raw" else None
    # Together what goes together, all real ink and what one bank's glyphs write: on a GPU it costs
    # more to start the hundreds of small kernels than to run them.
    sources: dict[tuple[int, ...], Source] = {
        (i,): StreamSource(stream_of(config.sources[i], files, config, tokenizer), device)
        for i, files in streams.items()
    }
    if inks:
        every = [*inks.values()]
        sources[tuple(inks)] = StoreSource.of(every, tokenizer, config.model.length, device)
    banks = dict.fromkeys(s.glyphs for s in config.sources if s.kind == "synth")
    for bank in banks:
        places = [i for i, s in enumerate(config.sources) if s.kind == "synth" and s.glyphs == bank]
        parts = [synth_part(config.sources[i], config, report) for i in places]
        sources[tuple(places)] = SynthSource.of(parts, Path(bank), written, device, raw)
    validation = {}
    for name, path in config.validation.items():
        packed = load_packed(Path(path), *reads)
        validation[name] = InkStore.of(
            packed, tokenizer.grow(x.split(" ") for x in packed.labels), config.model.length, device
        )
    weights, finish = weights_of(config)
    report_shareless(config, report)
    spelling = spelling_of(config.spell, tokenizer, device)
    mixture = Mixture.of([*sources.values()], weights, config.batch, finish, spelling, sources)
    return mixture, tokenizer, validation


def tokenizers_of(
    config: TrainConfig, labels: list[list[str]], known: Tokenizer | None
) -> tuple[Tokenizer, Tokenizer]:
    """The run's tokenizer, and the symbol-aware one that the synthesiser writes with."""
    if config.tokenizer:
        try:
            tokenizer = tokenizer_from_dict(json.loads(Path(config.tokenizer).read_text()))
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read tokenizer {config.tokenizer}: {error}") from error
        if config.scheme == "raw" and tokenizer.scheme == "sat":
            return raw_tokenizer(tokenizer), tokenizer
        if tokenizer.scheme != config.scheme:
            raise ConfigError(
                f"tokenizer {config.tokenizer} has {tokenizer.scheme!r} tokens, scheme is "
                f"{config.scheme!r}; name one of SAT tokens, which serves both"
            )
    elif known is not None and known.scheme != config.scheme:
        raise ConfigError(
            f"the first weights have {known.scheme!r} tokens, scheme is {config.scheme!r}"
        )
    else:
        tokenizer = known.grow(labels) if known else build_tokenizer(config.scheme, labels)
    if tokenizer.scheme == "sat":
        return tokenizer, tokenizer
    if config.tokenizer and any(s.kind == "synth" for s in config.sources):
        raise ConfigError(
            f"tokenizer {config.tokenizer} has 'raw' tokens, and the synthesiser writes symbols "
            "with modifiers; name one of SAT tokens, of which the raw ones are made"
        )
    return tokenizer, build_tokenizer("sat", labels)


def read_ink(source: SourceConfig, convention: str, precision: Precision, report: Report) -> Packed:
    """The ink of a source; where that takes its time, say so before."""
    path = Path(source.path)
    if path.exists() and path.suffix != ".parquet":
        command, _ = pack_command(path, convention)
        report(f"{path}: is packed for this run alone; `{command}` would do it once for all")
    packed = load_packed(path, convention, precision)
    report(f"{path}: {len(packed)} inks")
    return packed


def open_stream(source: SourceConfig, config: TrainConfig, report: Report) -> list[PackedFile]:
    """The files of a source that is not to be read at once: one, or all of a folder."""
    path, longest = Path(source.path), config.model.length
    paths = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not paths or paths[0].suffix != ".parquet":
        command, _ = pack_command(path, config.convention)
        raise DataError(f"{path}: only packed stores can be streamed; run `{command}`")
    files = [open_packed(p, config.convention, config.model.ink_precision) for p in paths]
    for file in files:
        if file.labels is None:
            raise DataError(
                f"{file.path}: was packed before stores could be streamed; pack it again, "
                f"`gryphone data pack {file.path} --convention {config.convention} --out NEW`"
            )
        tokens = min(file.labels["longest"][config.scheme], source.max_tokens or math.inf)
        if tokens >= longest:
            raise too_long(f"{file.path}: a label has", int(tokens), longest)
    inks = sum(sum(file.sizes) for file in files)
    report(f"{path}: {inks} inks, {source.stream} of them in memory at a time")
    return files


def stream_of(
    source: SourceConfig, files: list[PackedFile], config: TrainConfig, tokenizer: Tokenizer
) -> InkStream:
    """The stream of a source's inks, without those that its settings exclude."""
    known = allowed_tokens(source, config.convention)

    def prepare(packed: Packed) -> InkStore:
        kept = select_samples(packed, source, lambda line: None, config.scheme, known)
        return InkStore.of(kept, tokenizer, config.model.length, torch.device("cpu"))

    return InkStream(files, source.stream, prepare, seed=config.seed, shards=config.shards)


def synth_part(source: SourceConfig, config: TrainConfig, report: Report) -> Part:
    """The layouts of a source, those that fit a canvas."""
    known, longest = allowed_tokens(source, config.convention), config.model.length
    raw = config.scheme == "raw"
    part = read_part(Path(source.path), source.style, known, longest, raw=raw)
    if part.left_out:
        report(
            f"{source.path}: {part.left_out} layouts left out, which do not fit a canvas of "
            f"{longest} tokens"
        )
    return part


def read_unseen(config: TrainConfig) -> dict[str, set[str]]:
    """The ids of validation samples whose formula no training ink has."""
    try:
        return {name: set(Path(p).read_text().split()) for name, p in config.unseen.items()}
    except OSError as error:
        raise DataError(f"cannot read a list of unseen samples: {error}") from error
