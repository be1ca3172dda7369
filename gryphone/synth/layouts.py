"""Layouts: where the symbols of a formula stand, in one packed format for TeX's and real ink's.

A NATURAL slot is (x of the ink, baseline, size): its box follows from its class, so that another
symbol can take its place. All other slots are explicit boxes (x, y, width, height). Unit: em of
the formula's main size, y down; stored in steps of 1/64 em.
"""

import lzma
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gryphone.errors import DataError
from gryphone.synth.symbols import Fit
from gryphone.tokens import EMPTY

FORMAT = "gryphone-layouts-1"
STEP = 64.0
SLOT_COLUMNS = ("glyph", "position", "fit", "rise", "geometry")
# Shorter formulas are everybody's: `x ^ { 2 }` in a test set forbids nobody to write it.
PROTECTED_LENGTH = 4


class Slot(NamedTuple):
    """The place of one symbol: glyph class, index in the label, fit, script rise, geometry."""

    glyph: str
    position: int
    fit: Fit
    rise: int
    x: float
    y: float  # baseline when NATURAL, else top
    a: float  # size when NATURAL, else width
    b: float  # unused when NATURAL, else height


class Layout(NamedTuple):
    """A label as symbol-modifier pairs, and a slot for each symbol that leaves ink."""

    pairs: tuple[tuple[str, str], ...]
    slots: tuple[Slot, ...]


EmBox = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Layouts:
    """Packed layouts (n layouts, S slots, T label positions)."""

    classes: tuple[str, ...]
    class_boxes: NDArray[np.float32]  # (C, 4) left, top, right, bottom at size 1
    symbols: tuple[str, ...]
    modifiers: tuple[str, ...]
    slot_offsets: NDArray[np.int64]  # (n + 1,)
    label_offsets: NDArray[np.int64]  # (n + 1,)
    glyph: NDArray[np.int16]  # (S,) index into classes
    position: NDArray[np.int16]  # (S,) index into the layout's label
    fit: NDArray[np.uint8]  # (S,)
    rise: NDArray[np.int8]  # (S,)
    geometry: NDArray[np.int16]  # (S, 4) x, y, a, b in steps
    label: NDArray[np.int16]  # (T, 2) indices into symbols and modifiers
    origin: str = "tex"  # "tex" or "real"
    protected: tuple[str, ...] = ()  # labels that must not be written, tokens joined by spaces

    def __len__(self) -> int:
        return len(self.slot_offsets) - 1

    def pairs(self, index: int) -> list[tuple[str, str]]:
        """The label of one layout."""
        rows = self.label[self.label_offsets[index] : self.label_offsets[index + 1]]
        return [(self.symbols[s], self.modifiers[m]) for s, m in rows.tolist()]

    def select(self, chosen: NDArray[np.bool_]) -> "Layouts":
        """The layouts that are marked in `chosen` (n,)."""
        slots, labels = np.diff(self.slot_offsets), np.diff(self.label_offsets)
        slot, label = np.repeat(chosen, slots), np.repeat(chosen, labels)
        return replace(
            self,
            slot_offsets=_offsets(slots[chosen]),
            label_offsets=_offsets(labels[chosen]),
            **{name: getattr(self, name)[slot] for name in SLOT_COLUMNS},
            label=self.label[label],
        )

    def written_with(self, symbols: Collection[str]) -> "Layouts":
        """The layouts whose labels have these symbols alone."""
        known = np.array([name in symbols for name in self.symbols])[self.label[:, 0]]
        chosen = np.logical_and.reduceat(known, self.label_offsets[:-1])
        if not chosen.any():
            raise DataError(f"none of the {len(self)} layouts keeps to the symbols asked for")
        return self.select(chosen)

    def shorter_than(self, longest: int, raw: bool) -> "Layouts":
        """The layouts whose labels leave a place free on a canvas, in SAT rows or raw tokens."""
        own = np.array([name != EMPTY for name in self.symbols], dtype=np.int64)
        marks = np.array([len(name) for name in self.modifiers], dtype=np.int64)
        raw_counts = own[self.label[:, 0]] + marks[self.label[:, 1]]
        counts = raw_counts if raw else np.ones(len(self.label), dtype=np.int64)
        fits = np.add.reduceat(counts, self.label_offsets[:-1]) < longest
        if not fits.any():
            raise DataError(f"none of the {len(self)} layouts fits a canvas of {longest} tokens")
        return self if fits.all() else self.select(fits)

    def save(self, path: Path) -> None:
        """Write one .npz whose columns are xz-compressed."""
        arrays: dict[str, NDArray[np.generic]] = {
            "slot_lengths": np.diff(self.slot_offsets).astype(np.uint8),
            "label_lengths": np.diff(self.label_offsets).astype(np.uint8),
            "glyph": self.glyph,
            "position": self.position.astype(np.uint8),
            "fit": self.fit,
            "rise": self.rise,
            "symbol": self.label[:, 0],
            "modifier": self.label[:, 1],
            **{f"geometry{i}": self.geometry[:, i] for i in range(4)},
        }
        protected = np.frombuffer("\n".join(self.protected).encode(), dtype=np.uint8)
        arrays["protected"] = protected
        names = {
            "format": np.array(FORMAT),
            "origin": np.array(self.origin),
            "classes": np.array(self.classes),
            "symbols": np.array(self.symbols),
            "modifiers": np.array(self.modifiers),
            "class_boxes": self.class_boxes,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        packed = {f"{name}:{array.dtype}": _squeeze(array) for name, array in arrays.items()}
        np.savez(path, allow_pickle=False, **names, **packed)


def _squeeze(array: NDArray[np.generic]) -> NDArray[np.uint8]:
    # All low bytes, then all high bytes: the high ones are nearly constant.
    planes = np.ascontiguousarray(array).view(np.uint8).reshape(-1, array.dtype.itemsize).T
    return np.frombuffer(lzma.compress(planes.tobytes(), preset=6), dtype=np.uint8)


def _unsqueeze(data: NDArray[np.uint8], dtype: str) -> NDArray[np.generic]:
    kind = np.dtype(dtype)
    planes = np.frombuffer(lzma.decompress(data.tobytes()), dtype=np.uint8)
    return np.ascontiguousarray(planes.reshape(kind.itemsize, -1).T).view(kind)[:, 0]


def load_layouts(path: Path) -> Layouts:
    """Read layouts that `Layouts.save` wrote."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if str(file["format"]) != FORMAT:
                raise DataError(f"{path}: format {file['format']}, not {FORMAT}; build it anew")
            names = {n: file[n] for n in file.files if ":" not in n}
            packed = dict(name.split(":") for name in file.files if ":" in name)
            data = {name: _unsqueeze(file[f"{name}:{d}"], d) for name, d in packed.items()}
    except (OSError, KeyError, ValueError, lzma.LZMAError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: not a readable layout file ({error})") from error
    return Layouts(
        classes=tuple(names["classes"].tolist()),
        class_boxes=names["class_boxes"],
        symbols=tuple(names["symbols"].tolist()),
        modifiers=tuple(names["modifiers"].tolist()),
        slot_offsets=_offsets(data["slot_lengths"]),
        label_offsets=_offsets(data["label_lengths"]),
        glyph=data["glyph"].astype(np.int16),
        position=data["position"].astype(np.int16),
        fit=data["fit"].astype(np.uint8),
        rise=data["rise"].astype(np.int8),
        geometry=np.stack([data[f"geometry{i}"] for i in range(4)], axis=1).astype(np.int16),
        label=np.stack([data["symbol"], data["modifier"]], axis=1).astype(np.int16),
        origin=str(names["origin"]),
        protected=tuple(data["protected"].tobytes().decode().splitlines()),
    )


def _offsets(lengths: NDArray[np.generic]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths.astype(np.int64))])


def pack_layouts(
    layouts: Iterable[Layout],
    boxes: Mapping[str, EmBox],
    *,
    origin: str = "tex",
    protected: Iterable[str] = (),
) -> Layouts:
    """Pack layouts; `boxes` gives the box of every class that a slot may use."""
    classes, symbols, modifiers = _Names(boxes), _Names(), _Names()
    slot_lengths: list[int] = []
    label_lengths: list[int] = []
    columns = bytearray(), bytearray(), bytearray()  # int16 rows: slots, geometry, label
    for layout in layouts:
        slots = [(classes(s.glyph), s.position, int(s.fit), s.rise) for s in layout.slots]
        geometry = [s[4:8] for s in layout.slots]
        label = [(symbols(s), modifiers(m)) for s, m in layout.pairs]
        columns[0].extend(np.array(slots, dtype=np.int16).tobytes())
        steps = np.round(np.array(geometry, dtype=np.float64) * STEP).clip(-32768, 32767)
        columns[1].extend(steps.astype(np.int16).tobytes())
        columns[2].extend(np.array(label, dtype=np.int16).tobytes())
        slot_lengths.append(len(slots))
        label_lengths.append(len(label))
    if not slot_lengths:
        raise DataError("no layouts to pack; every formula was dropped")
    slots_array = np.frombuffer(bytes(columns[0]), dtype=np.int16).reshape(-1, 4)
    return Layouts(
        classes=classes.names,
        class_boxes=np.array([boxes[n] for n in classes.names], dtype=np.float32),
        symbols=symbols.names,
        modifiers=modifiers.names,
        slot_offsets=_offsets(np.array(slot_lengths)),
        label_offsets=_offsets(np.array(label_lengths)),
        glyph=slots_array[:, 0].copy(),
        position=slots_array[:, 1].copy(),
        fit=slots_array[:, 2].astype(np.uint8),
        rise=slots_array[:, 3].astype(np.int8),
        geometry=np.frombuffer(bytes(columns[1]), dtype=np.int16).reshape(-1, 4).copy(),
        label=np.frombuffer(bytes(columns[2]), dtype=np.int16).reshape(-1, 2).copy(),
        origin=origin,
        protected=tuple(sorted(protected)),
    )


class _Names:
    """Strings to indices, in order of appearance; closed when the strings are given."""

    def __init__(self, known: Iterable[str] | None = None) -> None:
        self._ids = {name: i for i, name in enumerate(known or ())}
        self._closed = known is not None

    def __call__(self, name: str) -> int:
        if name not in self._ids and self._closed:
            raise DataError(f"class {name!r} has no printed box; measure it with class_boxes")
        return self._ids.setdefault(name, len(self._ids))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._ids)
