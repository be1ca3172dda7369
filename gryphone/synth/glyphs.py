"""The glyph bank: every usable symbol that real people wrote, cut out, cleaned and packed.

A glyph's points are scaled so that its longer side runs from -1 to 1 around its centre. Glyphs
are sorted by class, then writer, so that "this writer's `x`" is a range of rows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gryphone.errors import DataError
from gryphone.ink import simplify

FORMAT = "gryphone-glyphs-1"
SCALE = 127.0
ANY_WRITER = -1

Array = NDArray[np.float64]


@dataclass(frozen=True)
class GlyphSample:
    """One written symbol before packing: its strokes (each (n, 2), y down) and its writer."""

    label: str
    strokes: tuple[Array, ...]
    writer: str | None = None
    stand: tuple[float, float] = (0.0, 0.0)  # see GlyphBank.stands


@dataclass(frozen=True)
class GlyphBank:
    """Packed glyphs (G glyphs, N points, C classes)."""

    classes: tuple[str, ...]
    points: NDArray[np.int8]  # (N, 2), longer side is [-SCALE, SCALE]
    pen: NDArray[np.bool_]  # (N,), False at the first point of each stroke
    offsets: NDArray[np.int32]  # (G + 1,) into points
    labels: NDArray[np.int16]  # (G,) class index, ascending
    writers: NDArray[np.int16]  # (G,) writer index, ascending within a class; -1 unknown
    # (G, 2) top and bottom against the line, y down; capitals are 1 high. 0, 0: unknown
    stands: NDArray[np.float16]

    def __len__(self) -> int:
        return len(self.labels)

    def counts(self) -> dict[str, int]:
        """Number of glyphs of each class."""
        totals = np.bincount(self.labels, minlength=len(self.classes))
        return dict(zip(self.classes, totals.tolist(), strict=True))

    def extents(self) -> NDArray[np.float32]:
        """(G, 2) width and height of each glyph; the longer of the two is 2."""
        starts = self.offsets[:-1]
        high = np.maximum.reduceat(self.points.astype(np.float32), starts)
        low = np.minimum.reduceat(self.points.astype(np.float32), starts)
        return np.asarray((high - low) / np.float32(SCALE), dtype=np.float32)

    def select(self, glyphs: NDArray[np.int64]) -> "GlyphBank":
        """Some of the glyphs, in another order; a bank's order is by class, then writer."""
        lengths = np.diff(self.offsets)[glyphs]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[glyphs] - offsets[:-1], lengths)
        return GlyphBank(
            classes=self.classes,
            points=self.points[rows],
            pen=self.pen[rows],
            offsets=offsets,
            labels=self.labels[glyphs],
            writers=self.writers[glyphs],
            stands=self.stands[glyphs],
        )

    def save(self, path: Path) -> None:
        """Write the bank as one compressed .npz file."""
        first = self.points.astype(np.int16)
        # Differences between neighbouring points are small and compress twice as well.
        delta = np.diff(first, axis=0, prepend=first[:1] * 0).astype(np.int16)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(
            path,
            format=np.array(FORMAT),
            classes=np.array(self.classes),
            delta=(delta & 0xFF).astype(np.uint8),
            pen=np.packbits(self.pen),
            lengths=np.diff(self.offsets).astype(np.uint16),
            labels=self.labels,
            writers=self.writers,
            stands=self.stands,
        )


def load_bank(path: Path) -> GlyphBank:
    """Read a bank that `GlyphBank.save` wrote."""
    try:
        with np.load(path, allow_pickle=False) as file:
            data = {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a readable glyph bank ({error})") from error
    if str(data.get("format")) != FORMAT:
        raise DataError(f"{path}: format {data.get('format')} is not {FORMAT}; build the bank anew")
    points = np.cumsum(data["delta"], axis=0, dtype=np.uint8).view(np.int8)
    offsets = np.concatenate([[0], np.cumsum(data["lengths"], dtype=np.int64)]).astype(np.int32)
    return GlyphBank(
        classes=tuple(data["classes"].tolist()),
        points=points,
        pen=np.unpackbits(data["pen"], count=len(points)).astype(bool),
        offsets=offsets,
        labels=data["labels"],
        writers=data["writers"],
        stands=data.get("stands", np.zeros((len(data["labels"]), 2), np.float16)),
    )


def join_banks(first: GlyphBank, second: GlyphBank) -> GlyphBank:
    """The glyphs of both, for the classes of the first; their writers are different people."""
    known = {name: i for i, name in enumerate(first.classes)}
    names = np.array([known.get(name, -1) for name in second.classes], dtype=np.int16)
    newcomers = np.where(second.writers >= 0, second.writers + first.writers.max() + 1, ANY_WRITER)
    both = GlyphBank(
        classes=first.classes,
        points=np.concatenate([first.points, second.points]),
        pen=np.concatenate([first.pen, second.pen]),
        offsets=np.concatenate([first.offsets, second.offsets[1:] + first.offsets[-1]]),
        labels=np.concatenate([first.labels, names[second.labels]]),
        writers=np.concatenate([first.writers, newcomers]).astype(np.int16),
        stands=np.concatenate([first.stands, second.stands]),
    )
    order = np.lexsort((both.writers, both.labels))
    return both.select(order[both.labels[order] >= 0])


def near_writers(bank: GlyphBank, count: int = 4) -> NDArray[np.int16]:
    """(count, W, C) who writes a class for whom: the writer himself where he can, else people whose
    hand is like his in slant, width, strokes and angles, nearest first; W where there is none.
    """
    writers, classes = int(bank.writers.max()) + 1, len(bank.classes)
    has = np.zeros((writers, classes), dtype=bool)
    named = bank.writers != ANY_WRITER
    has[bank.writers[named], bank.labels[named]] = True
    styles = _writer_styles(bank, writers)
    apart = ((styles[:, None] - styles[None]) ** 2).sum(2).astype(np.float32)  # (W, W)
    found = np.full((count, writers, classes), writers, dtype=np.int16)
    for c in range(classes):
        able, lacking = np.flatnonzero(has[:, c]), np.flatnonzero(~has[:, c])
        nearest = np.argsort(apart[np.ix_(lacking, able)], axis=1, kind="stable")[:, :count]
        found[: nearest.shape[1], lacking, c] = able[nearest].T
        found[:, able, c] = able
    return found


def _writer_styles(bank: GlyphBank, writers: int) -> Array:
    """(W, 4) how each writer's glyphs differ from the usual ones of their classes."""
    points, starts = bank.points.astype(np.float64), bank.offsets[:-1]
    number = np.diff(bank.offsets)
    x, y = (points - np.repeat(np.add.reduceat(points, starts) / number[:, None], number, 0)).T
    slant = np.add.reduceat(x * y, starts) / (np.add.reduceat(y * y, starts) + 100.0)
    wide, high = bank.extents().clip(0.06, None).T
    strokes = np.add.reduceat(~bank.pen, starts)
    facts = np.stack([slant, np.log(wide / high), strokes, np.log(number / strokes)], 1)
    counts = np.bincount(bank.labels, minlength=len(bank.classes)).clip(1)[:, None]
    mean = _sums(bank.labels, facts, len(bank.classes)) / counts
    facts -= mean[bank.labels]
    spread = np.sqrt(_sums(bank.labels, facts**2, len(bank.classes)) / counts)
    facts /= spread[bank.labels] + 1e-3
    named = bank.writers != ANY_WRITER
    total = _sums(bank.writers[named], facts[named], writers)
    known = np.bincount(bank.writers[named], minlength=writers)[:, None]
    styles = total / (known + 10.0)  # of whom little is known, nothing special is said
    return np.asarray(styles / (styles.std(axis=0) + 1e-9))


def _sums(groups: NDArray[np.int16], facts: Array, count: int) -> Array:
    return np.stack([np.bincount(groups, column, minlength=count) for column in facts.T], 1)


def _unit(strokes: Sequence[Array]) -> list[Array]:
    """Strokes centred and scaled to a longer side of 2."""
    points = np.concatenate(strokes)
    low, high = points.min(axis=0), points.max(axis=0)
    scale = max(float((high - low).max()), 1e-12) / 2
    centre = (low + high) / 2
    return [(stroke - centre) / scale for stroke in strokes]


def clean_glyphs(glyphs: Sequence[GlyphSample], spread: float = 4.0) -> list[GlyphSample]:
    """Drop a class's outliers in aspect and stroke count: most of them are mis-segmented."""
    groups: dict[str, list[GlyphSample]] = {}
    for glyph in glyphs:
        groups.setdefault(glyph.label, []).append(glyph)
    kept: list[GlyphSample] = []
    for group in groups.values():
        if len(group) < 8:
            kept += group
            continue
        aspect = np.array([_log_aspect(glyph.strokes) for glyph in group])
        strokes = np.array([len(glyph.strokes) for glyph in group])
        middle = float(np.median(aspect))
        mad = max(1.4826 * float(np.median(np.abs(aspect - middle))), 0.12)
        fine = np.abs(aspect - middle) <= spread * mad
        # A stroke count that almost nobody needs is a neighbour's stroke, or half a symbol.
        common = np.bincount(strokes) >= max(2.0, 0.01 * len(group))
        fine &= common[strokes]
        kept += [glyph for glyph, good in zip(group, fine.tolist(), strict=True) if good]
    return kept


def _log_aspect(strokes: Sequence[Array]) -> float:
    points = np.concatenate(strokes)
    width, height = (points.max(axis=0) - points.min(axis=0)).tolist()
    # The floor keeps dots and exact lines finite; it is 3 % of the longer side.
    floor = 0.03 * max(width, height, 1e-12)
    return float(np.log(max(width, floor) / max(height, floor)))


def pack_glyphs(glyphs: Iterable[GlyphSample], tolerance: float = 0.02) -> GlyphBank:
    """Pack glyphs into a bank; `tolerance` is RDP's, where the longer side is 2."""
    ordered = list(glyphs)
    if not ordered:
        raise DataError("no glyphs to pack; read at least one segmented ink")
    classes = tuple(sorted({glyph.label for glyph in ordered}))
    names = sorted({glyph.writer for glyph in ordered if glyph.writer is not None})
    class_id = {name: i for i, name in enumerate(classes)}
    writer_id: dict[str | None, int] = {name: i for i, name in enumerate(names)}
    writer_id[None] = ANY_WRITER
    ordered.sort(key=lambda glyph: (class_id[glyph.label], writer_id[glyph.writer]))
    glyph_strokes = [_unit(glyph.strokes) for glyph in ordered]
    strokes = [stroke for each in glyph_strokes for stroke in each]
    points = np.concatenate(strokes)
    starts = _starts([len(stroke) for stroke in strokes])
    glyph_starts = _starts([sum(map(len, each)) for each in glyph_strokes])
    keep = simplify(points, starts, glyph_starts, tolerance)
    pen = np.ones(len(points), dtype=bool)
    pen[starts] = False
    kept = np.concatenate([[0], np.cumsum(keep)])  # points kept before each point
    return GlyphBank(
        classes=classes,
        points=np.round(points[keep] * SCALE).clip(-127, 127).astype(np.int8),
        pen=pen[keep],
        offsets=kept[np.append(glyph_starts, len(points))].astype(np.int32),
        labels=np.array([class_id[glyph.label] for glyph in ordered], dtype=np.int16),
        writers=np.array([writer_id[glyph.writer] for glyph in ordered], dtype=np.int16),
        stands=np.array([glyph.stand for glyph in ordered], dtype=np.float16),
    )


def _starts(lengths: Sequence[int]) -> NDArray[np.int64]:
    """The index at which each of several sequences, one behind the other, begins."""
    return np.concatenate([[0], np.cumsum(lengths[:-1], dtype=np.int64)]).astype(np.int64)
