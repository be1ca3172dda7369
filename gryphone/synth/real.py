"""Layouts of real ink: where people put the symbols of the formulas that they wrote."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gryphone.data.packed import Packed
from gryphone.synth.formulas import is_protected
from gryphone.synth.layouts import EmBox, Layout, Slot
from gryphone.synth.symbols import Fit, drawn_classes, fit_of, words
from gryphone.synth.texlayout import script_depths
from gryphone.tokens import sat_split

# Their size says little about the size of the writing around them.
_SIZELESS = frozenset(words(r""". , - ' \cdot \ldots \cdots \prime | : ; 1 l !"""))
_SMALLEST, _LARGEST = 0.25, 3.0


def real_layouts(
    packed: Packed, boxes: Mapping[str, EmBox], protected: Collection[str], dropped: Counter[str]
) -> Iterator[Layout]:
    """A layout of each ink in which every symbol is found; `dropped` counts the reasons."""
    return (layout for _, layout in numbered_layouts(packed, boxes, protected, dropped))


def numbered_layouts(
    packed: Packed, boxes: Mapping[str, EmBox], protected: Collection[str], dropped: Counter[str]
) -> Iterator[tuple[int, Layout]]:
    """The same, with the number of each ink."""
    extents = _glyph_boxes(packed)
    for ink in range(len(packed)):
        tokens = packed.labels[ink].split()
        pairs = sat_split(tokens)
        rows = slice(packed.glyph_offsets[ink], packed.glyph_offsets[ink + 1])
        positions = packed.glyph_positions[rows].tolist()
        classes = drawn_classes(pairs)
        wanted = [at for at, name in enumerate(classes) if name is not None]
        if not wanted or sorted(positions) != wanted:
            dropped["a symbol not found in the ink"] += 1
        elif len(pairs) > 255:
            dropped["too long"] += 1
        elif is_protected(tokens, protected):
            dropped["protected: in a validation or test set"] += 1
        elif any(name is not None and name not in boxes for name in classes):
            dropped["a symbol without glyphs"] += 1
        else:
            yield ink, _layout(pairs, classes, positions, extents[rows], boxes)


def hand_boxes(
    layouts: Iterable[Layout], boxes: Mapping[str, EmBox], least: int = 20
) -> dict[str, EmBox]:
    """Class boxes at the size people write them: printed boxes, scaled about their centres.

    `layouts` were measured with `boxes`; a class seen fewer than `least` times keeps its box.
    """
    sizes: dict[bool, dict[str, list[float]]] = {True: {}, False: {}}
    for layout in layouts:
        depths = script_depths(layout.pairs)
        for slot in layout.slots:
            if slot.fit is Fit.NATURAL and depths[slot.position][0] < 2:
                level = sizes[depths[slot.position][0] == 1]
                level.setdefault(slot.glyph, []).append(slot.a)
    # What is seen in scripts counts as well, against what is usual there.
    script = [s for name, seen in sizes[True].items() if name not in _SIZELESS for s in seen]
    usual = float(np.median(script)) if script else 1.0
    scaled = {}
    for name, (left, top, right, bottom) in boxes.items():
        seen = sizes[False].get(name, []) + [s / usual for s in sizes[True].get(name, [])]
        factor = float(np.median(seen)) if len(seen) >= least else 1.0
        x, y = (left + right) / 2, (top + bottom) / 2
        w, h = (right - left) / 2 * factor, (bottom - top) / 2 * factor
        scaled[name] = (x - w, y - h, x + w, y + h)
    return scaled


def _glyph_boxes(packed: Packed) -> NDArray[np.float64]:
    """(G, 4) left, top, right, bottom of every segmented symbol."""
    known = packed.glyph >= 0
    owner = packed.glyph[known]
    points = packed.points[known].astype(np.float64)
    boxes = np.full((len(packed.glyph_labels), 4), np.nan)
    boxes[:, :2], boxes[:, 2:] = np.inf, -np.inf
    for axis in (0, 1):
        np.minimum.at(boxes[:, axis], owner, points[:, axis])
        np.maximum.at(boxes[:, axis + 2], owner, points[:, axis])
    return boxes


def _layout(
    pairs: Sequence[tuple[str, str]],
    classes: Sequence[str | None],
    positions: Sequence[int],
    extents: NDArray[np.float64],
    boxes: Mapping[str, EmBox],
) -> Layout:
    rises = script_depths(pairs)
    by_position = dict(zip(positions, extents.tolist(), strict=True))
    sizes = {}
    for at, box in by_position.items():
        left, top, right, bottom = boxes[classes[at] or ""]
        printed = float(np.hypot(right - left, bottom - top))
        sizes[at] = float(np.hypot(box[2] - box[0], box[3] - box[1])) / printed
    em = _main_size(pairs, sizes, rises)
    corner = [min(box[axis] for box in by_position.values()) for axis in (0, 1)] * 2
    slots = []
    for at in sorted(by_position):
        fit, name, rise = fit_of(pairs[at][0]), classes[at] or "", rises[at][1]
        x0, y0, x1, y1 = ((v - zero) / em for v, zero in zip(by_position[at], corner, strict=True))
        if fit is not Fit.NATURAL:
            slots.append(Slot(name, at, fit, rise, x0, y0, x1 - x0, y1 - y0))
            continue
        size = float(np.clip(sizes[at] / em, _SMALLEST, _LARGEST))
        left, top, right, bottom = boxes[name]
        x = (x0 + x1) / 2 - (right - left) / 2 * size
        baseline = (y0 + y1) / 2 - (top + bottom) / 2 * size
        slots.append(Slot(name, at, fit, rise, x, baseline, size, 0.0))
    return Layout(tuple(pairs), tuple(slots))


def _main_size(
    pairs: Sequence[tuple[str, str]],
    sizes: Mapping[int, float],
    depths: Sequence[tuple[int, int]],
) -> float:
    """The em of an ink: the middle size of its symbols outside of scripts."""

    def of(at: int) -> bool:
        symbol = pairs[at][0]
        return fit_of(symbol) is Fit.NATURAL and symbol not in _SIZELESS

    best = [s for at, s in sizes.items() if of(at) and not depths[at][0]]
    best = best or [s for at, s in sizes.items() if of(at)] or list(sizes.values())
    return max(float(np.median(best)), 1e-6)
