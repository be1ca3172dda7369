"""The packed store, as training reads it: flat arrays of ink, symbols and labels.

One row of the Parquet file is one ink (see packing.py for what is stored). Decoding is a handful of
cumulative sums over all points of a file at once; there is no Python loop over points or strokes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gryphone.config import Precision
from gryphone.data.packing import FORMAT, SUMMARY
from gryphone.errors import DataError, need
from gryphone.ink import DEFAULT_PRECISION, Glyph, Ink

# What there is one of for each ink, point and segmented symbol.
INK_COLUMNS = ("ids", "sources", "labels", "writers", "agreement")
POINT_COLUMNS = ("points", "pen")
GLYPH_COLUMNS = ("glyph_labels", "glyph_positions")


@dataclass(frozen=True)
class Packed:
    """Training-ready ink, flat: n inks, N points, G segmented symbols."""

    ids: list[str]
    sources: list[str]
    labels: list[str]  # normalised tokens joined by spaces
    writers: list[str]  # empty where unknown
    points: NDArray[np.float32]  # (N, 2), each ink's box starts at 0 and its longer side is 1
    pen: NDArray[np.bool_]  # (N,), False at the first point of each stroke
    glyph: NDArray[np.int32]  # (N,), 0..G-1, -1 when the stroke belongs to no known symbol
    offsets: NDArray[np.int64]  # (n + 1,) into points
    glyph_offsets: NDArray[np.int64]  # (n + 1,) into glyph_labels
    glyph_labels: list[str]
    glyph_positions: NDArray[np.int16]  # (G,) index in the label's SAT symbols, -1 when unknown
    agreement: NDArray[np.int8]  # (n,) Agreement of segmentation and label
    convention: str = "none"
    precision: Precision = DEFAULT_PRECISION

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, chosen: NDArray[Any]) -> "Packed":
        """The chosen inks: indices in any order, or a mask (n,)."""
        index = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        points, offsets = _ranges(self.offsets, index)
        glyphs, glyph_offsets = _ranges(self.glyph_offsets, index)
        shift = np.repeat(glyph_offsets[:-1] - self.glyph_offsets[index], np.diff(offsets))
        owner = self.glyph[points]
        of_rows = {INK_COLUMNS: index, POINT_COLUMNS: points, GLYPH_COLUMNS: glyphs}
        return replace(
            self,
            **{
                name: _taken(getattr(self, name), rows)
                for names, rows in of_rows.items()
                for name in names
            },
            glyph=np.where(owner >= 0, owner + shift, -1).astype(np.int32),
            offsets=offsets,
            glyph_offsets=glyph_offsets,
        )

    def strokes(self, index: int) -> list[NDArray[np.float32]]:
        """The strokes of one ink, (n, 2) each."""
        begin, end = self.offsets[index], self.offsets[index + 1]
        cuts = np.flatnonzero(~self.pen[begin:end])[1:]
        return np.split(self.points[begin:end], cuts)

    def ink(self, index: int) -> Ink:
        """One sample as an Ink again, with its symbols."""
        begin, end = self.offsets[index], self.offsets[index + 1]
        owners = self.glyph[begin:end][~self.pen[begin:end]]  # (strokes,)
        first, last = self.glyph_offsets[index], self.glyph_offsets[index + 1]
        glyphs = tuple(
            Glyph(self.glyph_labels[g], tuple(np.flatnonzero(owners == g).tolist()))
            for g in range(first, last)
        )
        strokes = tuple(s.astype(np.float64) for s in self.strokes(index))
        writer = self.writers[index] or None
        return Ink(strokes, self.labels[index], glyphs, self.ids[index], writer)


def _taken(values: Any, rows: NDArray[np.int64]) -> Any:
    return [values[row] for row in rows] if isinstance(values, list) else values[rows]


def _ranges(
    offsets: NDArray[np.int64], index: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All positions in the chosen rows of a ragged array, and the offsets of those rows."""
    counts = offsets[index + 1] - offsets[index]
    chosen = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return np.arange(chosen[-1]) + np.repeat(offsets[index] - chosen[:-1], counts), chosen


def read_packed(path: Path | Sequence[Path]) -> Packed:
    """Load one packed file, or several as one."""
    paths = [path] if isinstance(path, (str, Path)) else list(path)
    if not paths:
        raise DataError("no packed files were given")
    parts = [PackedFile(Path(p)).read() for p in paths]
    return parts[0] if len(parts) == 1 else join_packed(parts)


class PackedFile:
    """A packed file that was opened, but not read: its facts, and how its inks are grouped."""

    def __init__(self, path: Path) -> None:
        need("pyarrow", "data")
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not path.exists():
            raise DataError(f"{path}: no such file; `gryphone data pack` makes one")
        self.path = path
        try:
            self.file = pq.ParquetFile(path)
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(error) from error
        facts = json.loads((self.file.schema_arrow.metadata or {}).get(b"gryphone", b"{}"))
        if facts.get("format") != FORMAT:
            raise DataError(
                f"{path}: not a packed store of format {FORMAT}; run `gryphone data pack`"
            )
        if "agreement" not in self.file.schema_arrow.names:
            raise DataError(f"{path}: has no column agreement; pack it again")
        self.convention: str = facts["convention"]
        self.precision = Precision(**facts["precision"])
        about = self.file.metadata
        self.sizes = [about.row_group(g).num_rows for g in range(about.num_row_groups)]
        # Labels that have all that the others have, and their greatest lengths, by scheme.
        summary = (about.metadata or {}).get(SUMMARY)
        self.labels: dict[str, Any] | None = None if summary is None else json.loads(summary)

    def read(self, groups: Sequence[int] | None = None) -> Packed:
        """The inks of some row groups; without them, of all."""
        import pyarrow as pa

        chosen = range(len(self.sizes)) if groups is None else groups
        try:
            table = self.file.read_row_groups(list(chosen))
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(error) from error
        return _unpacked(table, self.convention, self.precision)

    def _unreadable(self, error: Exception) -> DataError:
        return DataError(f"{self.path}: not a readable Parquet file: {error}")


def _unpacked(table: Any, convention: str, precision: Precision) -> Packed:
    column = {name: table[name].combine_chunks() for name in table.column_names}
    dx, offsets = _flat(column["dx"])
    dy, _ = _flat(column["dy"])
    stroke_points, stroke_offsets = _flat(column["stroke_points"])
    stroke_glyph, _ = _flat(column["stroke_glyph"])
    positions, glyph_offsets = _flat(column["glyph_position"])
    begins = np.cumsum(stroke_points) - stroke_points
    pen = np.ones(len(dx), dtype=bool)
    pen[begins] = False
    base = np.repeat(glyph_offsets[:-1], np.diff(stroke_offsets))  # (strokes,)
    owner = np.where(stroke_glyph >= 0, stroke_glyph + base, -1).astype(np.int32)
    return Packed(
        ids=column["id"].to_pylist(),
        sources=column["source"].to_pylist(),
        labels=column["label"].to_pylist(),
        writers=column["writer"].to_pylist(),
        points=_points(dx, dy, offsets),
        pen=pen,
        glyph=np.repeat(owner, stroke_points),
        offsets=offsets,
        glyph_offsets=glyph_offsets,
        glyph_labels=column["glyph_label"].flatten().to_pylist(),
        glyph_positions=positions.astype(np.int16),
        agreement=column["agreement"].to_numpy(zero_copy_only=False),
        convention=convention,
        precision=precision,
    )


def _flat(column: Any) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The values of a list column and the offsets of its rows."""
    values = column.flatten().to_numpy(zero_copy_only=False)
    return values, column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)


def _points(
    dx: NDArray[np.int32], dy: NDArray[np.int32], offsets: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Undo the delta coding of all inks at once and scale each longer side to 1."""
    counts = np.diff(offsets)
    points = np.empty((len(dx), 2), dtype=np.float32)
    longest = np.ones(len(counts), dtype=np.int64)
    for axis, delta in enumerate((dx, dy)):
        total = np.cumsum(delta, dtype=np.int64)
        before = np.concatenate([[0], total])[offsets[:-1]]
        total -= np.repeat(before, counts)
        longest = np.maximum(longest, np.maximum.reduceat(total, offsets[:-1]))
        points[:, axis] = total
    points /= np.repeat(longest, counts).astype(np.float32)[:, None]
    return points


def join_packed(parts: Sequence[Packed]) -> Packed:
    """Several stores as one; they must have been packed alike."""
    for name in ("convention", "precision"):
        values = sorted({str(getattr(part, name)) for part in parts})
        if len(values) > 1:
            raise DataError(f"packed files differ in {name}: {', '.join(values)}")

    def joined(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        return [*chain(*values)] if isinstance(values[0], list) else np.concatenate(values)

    def offsets(name: str) -> NDArray[np.int64]:
        counts = np.concatenate([np.diff(getattr(part, name)) for part in parts])
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    shifts = np.cumsum([0, *(len(part.glyph_labels) for part in parts)])
    glyph = [
        np.where(part.glyph >= 0, part.glyph + shift, -1).astype(np.int32)
        for part, shift in zip(parts, shifts, strict=False)
    ]
    return replace(
        parts[0],
        **{name: joined(name) for name in (*INK_COLUMNS, *POINT_COLUMNS, *GLYPH_COLUMNS)},
        glyph=np.concatenate(glyph),
        offsets=offsets("offsets"),
        glyph_offsets=offsets("glyph_offsets"),
    )
