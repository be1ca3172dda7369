"""Training samples on the device: whole data sets as flat tensors, batches by index alone."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gryphone.config import Precision
from gryphone.data.archive import source_name
from gryphone.data.datasets import read_dataset
from gryphone.data.packed import Packed, PackedFile, read_packed
from gryphone.data.packing import write_packed
from gryphone.data.samples import Sample, Samples
from gryphone.errors import DataError, TokenError
from gryphone.ink import DEFAULT_PRECISION
from gryphone.ragged import ranges, select
from gryphone.raster import InkBatch
from gryphone.tokens import PAD_ID, Tokenizer, sat_split

UNKNOWN = -1  # a glyph's token, or one stream of it, that nobody labelled


def open_packed(path: Path, convention: str, precision: Precision | None = None) -> PackedFile:
    """A packed store that has the convention and precision that are asked for, still to be read."""
    packed = PackedFile(path)
    if packed.convention != convention:
        raise DataError(
            f"{path} was packed with convention {packed.convention!r}, this run wants "
            f"{convention!r}; run `gryphone data pack --convention {convention}` again"
        )
    if precision not in (None, packed.precision):
        raise DataError(
            f"{path} was packed with {packed.precision}, this run's model reads {precision}; "
            "give the data set itself, which is packed as the model reads, or set "
            "model.ink_precision"
        )
    return packed


def load_packed(path: Path, convention: str, precision: Precision | None = None) -> Packed:
    """Read a packed store, or pack any other data set (a user's folder) on the way.

    A store must have the convention and precision that are asked for; None takes any precision.
    """
    if path.suffix == ".parquet":
        return open_packed(path, convention, precision).read()
    if not path.exists():
        raise DataError(f"{path} does not exist; give a packed store, a folder or an archive")
    command, store = pack_command(path, convention)
    with tempfile.TemporaryDirectory() as folder:
        packed_path = Path(folder) / "packed.parquet"
        report = write_packed(
            _inks_alone(path, f"run `{command}` and name {store} instead"),
            packed_path,
            convention=convention,
            precision=precision or DEFAULT_PRECISION,
        )
        left_out = [
            *report.unreadable,
            *report.bad_labels,
            *((x, "has no label") for x in report.unlabelled),
        ]
        if left_out:
            name, why = left_out[0]
            raise DataError(
                f"{path}: {len(left_out)} samples cannot be used, the first is {name}: {why}; "
                f"mend or remove them, or leave them out knowingly: `{command}` lists them and "
                f"packs the others into {store}"
            )
        return read_packed(packed_path)


def pack_command(path: Path, convention: str) -> tuple[str, str]:
    """The command that packs a data set, and the store that it writes."""
    store = str(path.parent / f"{source_name(path)}.parquet")
    options = [] if convention == "crohme" else ["--convention", convention]
    words = ["gryphone", "data", "pack", str(path), *options, "--out", store]
    return shlex.join(words), store


def _inks_alone(path: Path, remedy: str) -> Samples:
    """The samples of a data set of ink; pictures take too long to be traced for every run."""
    for sample in read_dataset(path):
        if isinstance(sample, Sample) and sample.ink is None:
            raise DataError(f"{path} holds pictures, which are traced once, before: {remedy}")
        yield sample


@dataclass(frozen=True)
class TrainingBatch:
    """Inks with their labels; `ink.glyph` is a row of `glyph_tokens`."""

    ink: InkBatch
    tokens: Tensor  # (T, S) int64, the labels one behind the other
    lengths: Tensor  # (B,) int64, tokens of each label
    glyph_tokens: Tensor  # (G, S) int64, the token each glyph was written for, or UNKNOWN
    glyph_places: Tensor  # (G,) int64, where that token stands in its label, or UNKNOWN

    def to(self, device: torch.device) -> TrainingBatch:
        """The same on another device."""
        rest = (self.tokens, self.lengths, self.glyph_tokens, self.glyph_places)
        return TrainingBatch(self.ink.to(device), *(x.to(device) for x in rest))


@dataclass(frozen=True)
class InkStore:
    """A packed data set as tensors on one device."""

    ids: list[str]
    labels: list[str]
    points: Tensor  # (N, 2) float32
    pen: Tensor  # (N,) bool
    glyph: Tensor  # (N,) int64, global glyph index or -1
    offsets: Tensor  # (n + 1,) int64 into points
    tokens: Tensor  # (T, S) int64
    token_offsets: Tensor  # (n + 1,) int64 into tokens
    glyph_tokens: Tensor  # (G, S) int64
    glyph_places: Tensor  # (G,) int64
    glyph_offsets: Tensor  # (n + 1,) int64

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(
        cls, packed: Packed, tokenizer: Tokenizer, longest: int, device: torch.device
    ) -> InkStore:
        """Encode the labels and move everything to the device.

        A label that the vocabulary or the canvas cannot hold is an error: nothing is dropped.
        """
        encoded = []
        for name, label in zip(packed.ids, packed.labels, strict=True):
            try:
                ids = tokenizer.encode(label.split(" "))
            except TokenError as error:
                raise DataError(f"label of {name}: {error}") from error
            if len(ids) >= longest:
                raise too_long(f"label of {name} has", len(ids), longest)
            encoded.append(ids)
        flat = np.concatenate(encoded).astype(np.int64)
        token_offsets = np.concatenate([[0], np.cumsum([len(e) for e in encoded])])
        glyph_tokens = _glyph_tokens(packed, tokenizer, flat, token_offsets)

        def put(x: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(x)).to(device)

        return cls(
            ids=packed.ids,
            labels=packed.labels,
            points=put(packed.points.astype(np.float32)),
            pen=put(packed.pen),
            glyph=put(packed.glyph.astype(np.int64)),
            offsets=put(packed.offsets),
            tokens=put(flat),
            token_offsets=put(token_offsets),
            glyph_tokens=put(glyph_tokens),
            glyph_places=put(_glyph_places(packed, tokenizer)),
            glyph_offsets=put(packed.glyph_offsets),
        )

    def batch(self, index: Tensor) -> TrainingBatch:
        """The samples `index` (B,), gathered without a loop."""
        rows, sample, _ = select(self.offsets, index)
        glyph_rows, _, glyph_counts = select(self.glyph_offsets, index)
        token_rows, _, lengths = select(self.token_offsets, index)
        # Global glyph indices become rows of this batch's glyph_tokens.
        shift = (glyph_counts.cumsum(0) - glyph_counts) - self.glyph_offsets[index]
        glyph = self.glyph[rows]
        glyph = torch.where(glyph >= 0, glyph + shift[sample], -1)
        ink = InkBatch(self.points[rows], self.pen[rows], sample, glyph, len(index))
        glyphs = self.glyph_tokens[glyph_rows], self.glyph_places[glyph_rows]
        return TrainingBatch(ink, self.tokens[token_rows], lengths, *glyphs)


def too_long(what: str, tokens: int, longest: int) -> DataError:
    """The error of a label that the model's canvas cannot hold."""
    return DataError(
        f"{what} {tokens} tokens, the model's canvas holds {longest - 1}; raise model.length "
        f"(--set model.length={2 * longest}), or leave long samples out by its source's max_tokens"
    )


def _glyph_tokens(
    packed: Packed, tokenizer: Tokenizer, tokens: np.ndarray, token_offsets: np.ndarray
) -> np.ndarray:
    """Each glyph's token (G, S): by its place in the label, else its symbol, else UNKNOWN."""
    symbols = tokenizer.vocabularies[0]
    by_name = {t: i for i, t in enumerate(symbols.tokens)}
    out = np.full((len(packed.glyph_labels), tokens.shape[1]), UNKNOWN, dtype=np.int64)
    out[:, 0] = [by_name.get(label, UNKNOWN) for label in packed.glyph_labels]
    owner = np.repeat(np.arange(len(packed.ids)), np.diff(packed.glyph_offsets))
    known = np.flatnonzero(packed.glyph_positions >= 0)
    if tokenizer.scheme == "sat":
        out[known] = tokens[token_offsets[owner[known]] + packed.glyph_positions[known]]
    else:  # places are those of symbols, which stand somewhere among the raw tokens
        rows = [
            [by_name.get(s, UNKNOWN) for s, _ in sat_split(x.split(" "))] for x in packed.labels
        ]
        pairs = zip(owner[known].tolist(), packed.glyph_positions[known].tolist(), strict=True)
        out[known, 0] = [rows[sample][place] for sample, place in pairs]
    return out


def _glyph_places(packed: Packed, tokenizer: Tokenizer) -> np.ndarray:
    """Where each glyph's token stands in its label (G,); places are those of symbols alone."""
    places = packed.glyph_positions.astype(np.int64)
    return places if tokenizer.scheme == "sat" else np.full_like(places, UNKNOWN)


def concatenate_batches(batches: Sequence[TrainingBatch]) -> TrainingBatch:
    """Several batches as one."""
    if len(batches) == 1:
        return batches[0]
    samples, glyphs, sample, glyph = 0, 0, [], []
    for b in batches:
        sample.append(b.ink.sample + samples)
        glyph.append(torch.where(b.ink.glyph >= 0, b.ink.glyph + glyphs, -1))
        samples += b.ink.size
        glyphs += len(b.glyph_tokens)
    ink = InkBatch(
        torch.cat([b.ink.points for b in batches]),
        torch.cat([b.ink.pen for b in batches]),
        torch.cat(sample),
        torch.cat(glyph),
        samples,
    )
    return TrainingBatch(
        ink,
        torch.cat([b.tokens for b in batches]),
        torch.cat([b.lengths for b in batches]),
        torch.cat([b.glyph_tokens for b in batches]),
        torch.cat([b.glyph_places for b in batches]),
    )


def token_canvases(
    batch: TrainingBatch, lengths: Tensor, copies: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Lay labels on token canvases of the given lengths (B,), padded, `copies` of each sample.

    Returns truth (N, S), index (N,) place in the canvas, canvas (N,) in 0..B*copies-1 and the
    canvas lengths (B*copies,). All copies of sample 0 come first, then those of sample 1, ...
    """
    repeated = lengths.repeat_interleave(copies)
    canvas, place = ranges(repeated)
    sample = canvas // copies
    begin = batch.lengths.cumsum(0) - batch.lengths
    real = place < batch.lengths[sample]
    rows = torch.where(real, begin[sample] + place, 0)
    truth = torch.where(real[:, None], batch.tokens[rows], PAD_ID)
    return truth, place, canvas, repeated
