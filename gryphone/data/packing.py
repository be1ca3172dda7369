"""Writing the packed store: simplified, quantised, delta-coded ink with its labels in Parquet."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gryphone.config import Precision
from gryphone.data.align import Agreement, align
from gryphone.data.samples import Sample, Unreadable, without_name
from gryphone.errors import DataError, GryphoneError, TokenError, need, writing
from gryphone.ink import BROKEN_GROUP, DEFAULT_PRECISION, Ink, condense
from gryphone.latex.lexer import tokenize
from gryphone.latex.normalize import normalize, rules_of
from gryphone.tokens import SCHEMES

FORMAT = "gryphone-packed-1"
SPLITS = ("train", "valid", "test")
BLOCK = 1024  # inks simplified at once: large enough to be fast, small enough for the cache
GROUP = 8 * BLOCK  # inks of a row group, which is what training holds in memory when it streams
SUMMARY = b"gryphone.labels"  # the file's key for what its labels need: see _Labels


@dataclass
class PackReport:
    """What went into a packed file and what did not, by name."""

    read: int = 0
    packed: int = 0
    points_read: int = 0
    points_packed: int = 0
    glyphs: int = 0
    glyphs_aligned: int = 0
    agreement: dict[str, int] = field(default_factory=dict)  # inks by Agreement
    splits: dict[str, int] = field(default_factory=dict)  # inks by the split they are named for
    contradicting: list[str] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    unlabelled: list[str] = field(default_factory=list)
    bad_labels: list[tuple[str, str]] = field(default_factory=list)
    bytes: int = 0

    def left_out(self) -> list[tuple[str, str]]:
        """Every sample that has no usable ink or label: its name and the reason."""
        return [
            *self.unreadable,
            *((name, "has no label") for name in self.unlabelled),
            *self.bad_labels,
        ]


class NothingPacked(DataError):
    """A data set without one usable ink; `report` says what became of its samples."""

    def __init__(self, report: PackReport) -> None:
        self.report = report
        super().__init__(f"nothing to pack among {first_of(report.left_out())}")


def first_of(left_out: list[tuple[str, str]]) -> str:
    """How many samples were left out, and why the first of them was."""
    first = "".join(f"; the first is {name}: {why}" for name, why in left_out[:1])
    return f"{len(left_out)} samples{first}"


_Rows = dict[str, list[Any]]  # columns of the file under construction
TEXTS = ("id", "source", "label", "writer")
ARRAYS = ("dx", "dy", "stroke_points")  # a numpy array of int32 for each ink


def write_packed(
    samples: Iterable[Sample | Unreadable],
    path: Path,
    *,
    convention: str = "crohme",
    keep_broken: bool = False,
    precision: Precision = DEFAULT_PRECISION,
    progress: Callable[[int], None] = lambda done: None,
) -> PackReport:
    """Pack every readable, labelled ink; the report names every sample that is left out and why.

    `keep_broken` packs an ink whose label cannot be normalised with its label as given, and one
    whose segmentation names missing strokes: a test set must keep its size, and such a truth counts
    as an error.
    """
    rules_of(convention)
    report = PackReport()
    store = _Store(path, convention, precision)
    try:
        for sample in samples:
            report.read += 1
            progress(report.read)
            if isinstance(sample, Unreadable):
                report.unreadable.append((sample.name, without_name(sample.name, sample.error)))
            elif sample.ink is None:
                report.unreadable.append((sample.id, "is an image; only ink can be packed"))
            elif not sample.label:
                report.unlabelled.append(sample.id)
            elif not keep_broken and (broken := _broken_group(sample.ink)):
                report.unreadable.append((sample.id, broken))
            else:
                try:
                    tokens = normalize(sample.label, convention)
                except GryphoneError as error:
                    report.bad_labels.append((sample.id, f"{sample.label}: {error}"))
                    if not keep_broken:
                        continue
                    tokens = _bare_tokens(sample.label)
                _add_row(store.rows, report, sample, sample.ink, tokens, convention)
                store.add(sample.ink, tokens, report)
        if not report.packed:
            raise NothingPacked(report)
        report.bytes = store.finish(report)
    finally:
        store.close()
    return report


def split_of(sample: Sample) -> str | None:
    """The split that the innermost folder with such a name, or else the source, belongs to."""
    folders = PurePosixPath(sample.name).parts[:-1]
    for name in (*reversed(folders), sample.source):
        for word in re.split("[^a-z]+", name.lower()):  # mathwriting-valid, Test_2014
            if word in SPLITS:
                return word
    return None


def _broken_group(ink: Ink) -> str | None:
    """What is wrong with an ink's segmentation: training would learn from the rest of it."""
    note = next((note for note in ink.notes if note.startswith(BROKEN_GROUP)), None)
    return None if note is None else note.removesuffix("; it is left out")


def _bare_tokens(label: str) -> list[str]:
    """The tokens of a label that has no meaning as a whole."""
    try:
        return tokenize(label)
    except GryphoneError:
        return label.split()


def _add_row(
    rows: _Rows, report: PackReport, sample: Sample, ink: Ink, tokens: list[str], convention: str
) -> None:
    """Everything of one ink but its points."""
    rows["id"].append(sample.id)
    rows["source"].append(sample.source)
    rows["label"].append(" ".join(tokens))
    rows["writer"].append(ink.writer or "")
    aligned = align(ink, tokens, convention)
    contradicts = aligned.agreement is Agreement.CONTRADICTS
    # A segmentation that contradicts the label may well be nonsense: better none than a wrong one.
    glyphs = () if contradicts else ink.glyphs
    owner = [-1] * len(ink.strokes)
    for number, glyph in enumerate(glyphs):
        for stroke in glyph.strokes:
            owner[stroke] = number
    rows["stroke_glyph"].append(owner)
    rows["glyph_label"].append([glyph.label for glyph in glyphs])
    rows["glyph_position"].append(list(aligned.positions[: len(glyphs)]))
    rows["agreement"].append(int(aligned.agreement))
    report.packed += 1
    report.glyphs += len(ink.glyphs)
    report.glyphs_aligned += sum(p >= 0 for p in aligned.positions)
    kind = aligned.agreement.name.lower()
    report.agreement[kind] = report.agreement.get(kind, 0) + 1
    if contradicts:
        report.contradicting.append(sample.id)
    if (split := split_of(sample)) is not None:
        report.splits[split] = report.splits.get(split, 0) + 1


def _add_points(rows: _Rows, report: PackReport, inks: list[Ink], precision: Precision) -> None:
    """Scale, simplify, quantise and delta-code the points of a block of inks."""
    points = np.concatenate([stroke for ink in inks for stroke in ink.strokes])
    lengths = np.array([len(stroke) for ink in inks for stroke in ink.strokes])
    ink_points = np.array([ink.point_count for ink in inks])
    ink_strokes = np.array([len(ink.strokes) for ink in inks])
    offsets = np.concatenate([[0], np.cumsum(ink_points)])
    grid, stroke = condense(points, lengths, offsets, precision)
    owner = np.repeat(np.arange(len(inks)), ink_strokes)[stroke]
    delta = np.diff(grid, axis=0, prepend=0)
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    delta[first] = grid[first]
    counts = np.bincount(stroke, minlength=len(lengths)).astype(np.int32)
    rows["dx"] += np.split(delta[:, 0], first[1:])
    rows["dy"] += np.split(delta[:, 1], first[1:])
    rows["stroke_points"] += np.split(counts, np.cumsum(ink_strokes)[:-1])
    report.points_read += len(points)
    report.points_packed += len(grid)


class _Labels:
    """What all labels of a store need, found while they pass: nobody has to read them for it."""

    def __init__(self) -> None:
        self.cover: list[str] = []  # labels that have every token, symbol and modifier of the store
        self.longest = dict.fromkeys(SCHEMES, 0)  # tokens, by scheme
        self._seen: set[tuple[int, str]] = set()

    def add(self, tokens: list[str]) -> None:
        found: set[tuple[int, str]] = set()
        for number, (scheme, kind) in enumerate(SCHEMES.items()):
            with suppress(TokenError):  # kept although it is broken; who trains on it is told
                rows = kind.split(tokens)
                self.longest[scheme] = max(self.longest[scheme], len(rows))
                found.update((2 * number + i, x) for row in rows for i, x in enumerate(row))
        if not found <= self._seen:
            self._seen |= found
            self.cover.append(" ".join(tokens))


class _Store:
    """A file under construction. It is written a row group at a time: any number of inks fits."""

    def __init__(self, path: Path, convention: str, precision: Precision) -> None:
        need("pyarrow", "data")
        facts = {"format": FORMAT, "convention": convention, "precision": asdict(precision)}
        self.facts, self.precision, self.path = facts, precision, path
        self.part = path.with_name(path.name + ".part")  # a reader never sees half a file
        self.rows: _Rows = defaultdict(list)
        self.block: list[Ink] = []
        self.labels = _Labels()
        self.writer: Any = None

    def add(self, ink: Ink, tokens: list[str], report: PackReport) -> None:
        """The points of an ink, whose row is there already."""
        self.labels.add(tokens)
        self.block.append(ink)
        if len(self.block) == BLOCK:
            self._add_block(report)
        if len(self.rows["id"]) == GROUP:
            self._write()

    def _add_block(self, report: PackReport) -> None:
        if self.block:
            _add_points(self.rows, report, self.block, self.precision)
            self.block = []

    def _write(self) -> None:
        import pyarrow.parquet as pq

        table = _table(self.rows, self.facts)
        self.rows.clear()
        with writing(self.path):
            if self.writer is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.writer = pq.ParquetWriter(
                    self.part,
                    table.schema,
                    compression="zstd",
                    compression_level=15,
                    # Bytes of small signed numbers compress far better apart: high ones are 0 or
                    # 255.
                    use_dictionary=["source", "writer", "glyph_label.list.element"],
                    column_encoding={f"{c}.list.element": "BYTE_STREAM_SPLIT" for c in _SPLIT},
                    data_page_size=8 << 20,
                )
            self.writer.write_table(table)

    def finish(self, report: PackReport) -> int:
        """Write the rest, and give the file its name; how large it is."""
        self._add_block(report)
        if self.rows["id"]:
            self._write()
        summary = {"cover": self.labels.cover, "longest": self.labels.longest}
        with writing(self.path):
            self.writer.add_key_value_metadata({SUMMARY.decode(): json.dumps(summary)})
            self.writer.close()
            self.writer = None
            self.part.replace(self.path)
            return self.path.stat().st_size

    def close(self) -> None:
        """Leave nothing behind of what was not finished."""
        with suppress(OSError):  # a full disk
            if self.writer is not None:
                self.writer.close()
        self.part.unlink(missing_ok=True)


def _table(rows: _Rows, facts: dict[str, Any]) -> Any:
    import pyarrow as pa

    lists = {"stroke_glyph": pa.int32(), "glyph_label": pa.string(), "glyph_position": pa.int32()}
    columns = {
        **{name: pa.array(rows[name], pa.string()) for name in TEXTS},
        **{name: _list_array(rows[name], pa.int32()) for name in ARRAYS},
        **{name: pa.array(rows[name], pa.list_(kind)) for name, kind in lists.items()},
        "agreement": pa.array(rows["agreement"], pa.int8()),
    }
    return pa.table(columns, metadata={"gryphone": json.dumps(facts)})


_SPLIT = ("dx", "dy", "stroke_points", "stroke_glyph", "glyph_position")


def _list_array(parts: Sequence[NDArray[np.int32]], kind: Any) -> Any:
    """An Arrow list array from numpy pieces, without a Python object per number."""
    import pyarrow as pa

    offsets = np.zeros(len(parts) + 1, dtype=np.int32)
    offsets[1:] = np.cumsum([len(part) for part in parts])
    values = pa.array(np.concatenate(parts), kind)
    return pa.ListArray.from_arrays(pa.array(offsets), values)
