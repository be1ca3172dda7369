"""What is on a page and is no part of its formula: holes, stains, boxes, underlines, scribbles.

Few rules, on pieces of ink: what a rule takes away it names, and whatever formulas have themselves
(fraction bars, roots, bars, determinants) must not fit it. Lengths are in usual symbols or pens.
"""

import numpy as np
from numpy.typing import NDArray

from gryphone.photo.binarize import Levels, Mask, Parts, grown, pen_width, symbol_size
from gryphone.photo.decode import Grey

Chosen = NDArray[np.bool_]  # (n + 1,) of the pieces
Floats = NDArray[np.float64]

BOXED = "a box round the writing was left out"
PART_BOXED = "a box round a part of the writing was left out"
UNDERLINED = "an underline was left out"
SCRIBBLED = "scribbled-out writing was left out"
STAIN = "a ring-shaped stain was left out"

FILLED = 0.6  # of its box that a punched hole fills: a disc has 0.79
FEWEST_HOLES = 4
SIDES = 0.85  # of a box's side that must be seen
LEVEL = 0.14  # slope of an underline
WIDE = 0.6  # of the writing's width that an underline has at least, and
LONG = 2.0  # symbols
SCRIBBLE = 4.2  # times its longer side, the length of a scribble's line; writing has up to 3.6
RING = 1.2  # symbols: the least radius of a stain, and
LARGEST_RING = 8.0
FAINT = 0.6  # of the writing's darkness that a stain has at most
# How much of a circle must be seen, with which share of all faint ink: a faint ring shows in arcs.
SEEN = ((0.5, 0.4), (0.2, 0.75))
TRIES = 200


def without_marks(parts: Parts, keep: Chosen, width: float) -> tuple[Chosen, tuple[str, ...]]:
    """Which of the kept pieces are writing, and what is to be said about the others."""
    notes = []
    keep = keep & ~_holes(parts, keep)
    for find, note in ((_scribbles, SCRIBBLED), (_boxes, BOXED), (_underlines, UNDERLINED)):
        found = find(parts, keep, width)
        if found.any() and (keep & ~found).any():
            keep = keep & ~found
            part = note == BOXED and not _round_all(parts, found, keep)
            notes.append(PART_BOXED if part else note)
    return keep, tuple(notes)


def _sizes(parts: Parts) -> NDArray[np.int64]:
    size: NDArray[np.int64] = parts.boxes[:, 2:] - parts.boxes[:, :2]
    return size


def _pixels(parts: Parts, chosen: Chosen) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """x and y of the pixels of some pieces."""
    y, x = np.divmod(parts.at[chosen[parts.owner]], parts.shape[1])
    return x, y


def _holes(parts: Parts, keep: Chosen) -> Chosen:
    """A row of equal filled spots along a side of the page, with all writing on the other side."""
    found = np.zeros_like(keep)
    sizes = _sizes(parts)
    spot = keep & (parts.area > FILLED * sizes.prod(1)) & (sizes.max(1) < 1.6 * sizes.min(1))
    lines = keep & ~spot
    if spot.sum() < FEWEST_HOLES or not lines.any():
        return found
    spot &= sizes.min(1) > 2 * pen_width(parts.mask(lines))
    if spot.sum() < FEWEST_HOLES:
        return found
    centre = (parts.boxes[:, :2] + parts.boxes[:, 2:]) / 2
    size = float(np.median(sizes[spot].max(1)))
    alike = spot & (np.abs(sizes.max(1) - size) < 0.4 * size)
    for axis in (0, 1):  # a column, a row
        across = float(np.median(centre[alike, axis]))
        row = alike & (np.abs(centre[:, axis] - across) < 0.5 * size)
        strip = np.abs(centre[:, axis] - across) < size  # what is left of a hole at the corner too
        rest = keep & ~strip
        if row.sum() < FEWEST_HOLES or not rest.any():
            continue
        before = parts.boxes[rest, axis + 2].max() < across - size
        behind = parts.boxes[rest, axis].min() > across + size
        if before or behind:
            found |= keep & strip
    return found


def _scribbles(parts: Parts, keep: Chosen, width: float) -> Chosen:
    """Pieces with more line in so little room than any symbol, or word, has."""
    sizes = _sizes(parts)
    found: Chosen = keep & (parts.area > SCRIBBLE * width * sizes.max(1))
    found &= sizes.min(1) > 5 * width
    return found


def _boxes(parts: Parts, keep: Chosen, width: float) -> Chosen:
    """Frames with writing inside: one piece, or several that go round all the rest."""
    found = np.zeros_like(keep)
    sizes, size = _sizes(parts), symbol_size(parts.longer[keep], width)
    large = keep & (sizes.min(1) > 10 * width) & (sizes.max(1) > 1.2 * size)
    for part in [*np.flatnonzero(large), None]:
        own = keep.copy() if part is None else np.arange(len(keep)) == part
        frame = _frame(parts, own, keep, width)
        if frame is not None:
            found |= frame
    return found


def _round_all(parts: Parts, frame: Chosen, rest: Chosen) -> bool:
    """Whether a frame goes round all the rest."""
    low, high = parts.boxes[frame, :2].min(0), parts.boxes[frame, 2:].max(0)
    return bool((parts.boxes[rest, :2] > low).all() and (parts.boxes[rest, 2:] < high).all())


def _frame(parts: Parts, own: Chosen, keep: Chosen, width: float) -> Chosen | None:
    """The pieces along the four sides of the outline of some pieces, where that is a rectangle."""
    x, y = _pixels(parts, own)
    sides = [(x, y, 1), (x, y, -1), (y, x, 1), (y, x, -1)]  # top, bottom, left, right
    near = np.zeros(len(x), dtype=bool)
    places = []
    for along, across, sign in sides:
        first = int(along.min())
        outer = np.full(int(along.max()) - first + 1, np.iinfo(np.int64).max)
        np.minimum.at(outer, along - first, sign * across)
        seen = np.flatnonzero(outer < np.iinfo(np.int64).max)
        line = _robust_line(seen, outer[seen])
        tolerance = 1.5 * width + 0.015 * len(outer)
        if abs(line[0]) > 0.2:
            return None
        fits = np.abs(outer[seen] - np.polyval(line, seen)) < tolerance
        if fits.sum() < SIDES * len(outer):
            return None
        places.append(float(np.polyval(line, len(outer) / 2)))
        near |= np.abs(sign * across - np.polyval(line, along - first)) < tolerance + width
    low, high = parts.boxes[own, :2].min(0), parts.boxes[own, 2:].max(0)
    apart = -(places[2] + places[3]), -(places[0] + places[1])
    if (np.array(apart) < 0.6 * (high - low)).any():  # a root has one line above only
        return None
    inside = np.bincount(parts.owner[own[parts.owner]], ~near, len(keep))
    frame: Chosen = own & (inside < 0.1 * parts.area)
    held = keep & ~frame & (parts.boxes[:, :2] > low).all(1) & (parts.boxes[:, 2:] < high).all(1)
    if not frame.any() or not held.any():
        return None
    # What is inside is as large as writing, and the frame goes round it at a distance.
    tall, room = parts.boxes[held, 3].max() - parts.boxes[held, 1].min(), high - low
    return frame if tall > 3 * width and min(room) > 6 * width else None


def _robust_line(at: NDArray[np.int64], values: NDArray[np.int64]) -> Floats:
    """Slope and height of the line that most of the values lie on."""
    third = max(1, len(at) // 3)
    begin, end = slice(0, third), slice(len(at) - third, None)
    rise = float(np.median(values[end]) - np.median(values[begin]))
    slope = rise / max(float(np.median(at[end]) - np.median(at[begin])), 1.0)
    return np.array([slope, float(np.median(values - slope * at))])


def _underlines(parts: Parts, keep: Chosen, width: float) -> Chosen:
    """Long straight level lines below everything else, one or two."""
    found = np.zeros_like(keep)
    sizes = _sizes(parts)
    flat = keep & (sizes[:, 1] < LEVEL * sizes[:, 0] + 2.5 * width)
    rest = keep & ~flat
    if not flat.any() or not rest.any():
        return found
    size = symbol_size(parts.longer[rest], width)
    left, right = parts.boxes[keep, 0].min(), parts.boxes[keep, 2].max()
    flat &= (sizes[:, 0] > WIDE * (right - left)) & (sizes[:, 0] > LONG * size)
    centre = (parts.boxes[:, 1] + parts.boxes[:, 3]) / 2
    for part in sorted(np.flatnonzero(flat), key=lambda p: -centre[p])[:2]:
        others = keep & ~found
        others[part] = False
        low = parts.boxes[part, 1]
        mid = parts.boxes[others, 1] + 0.6 * (sizes[others, 1])
        if (mid > low).any() or not others.any():
            break
        found[part] = True
    return found


def without_stain(dark: Grey, mask: Mask, levels: Levels) -> Grey:
    """Darkness without a faint ring on the page, such as a cup leaves; the same where none is.

    The ring is judged by the darkest ink, not by `levels`, which it has its part in.
    """
    width = pen_width(mask)
    if not mask.any():
        return dark
    # A ring may have more pixels than the writing, whose darkest ones tell how dark a pen is.
    sure = dark > FAINT * float(np.quantile(dark[mask], 0.96))
    near = _spread(sure, max(2, round(width)))
    y, x = np.divmod(np.flatnonzero(mask & ~near), mask.shape[1])
    if len(x) < 30:
        return dark
    # The size of a symbol is not known yet; it is about ten pens.
    least = RING * 10 * width
    if min(np.ptp(x), np.ptp(y)) < least:
        return dark
    ring = _circle(np.stack([x, y], 1).astype(np.float64), width, least)
    if ring is None:
        return dark
    rows, columns = np.nonzero(mask & ~sure)
    away = np.abs(np.hypot(columns - ring[0], rows - ring[1]) - ring[2]) < 3 * width
    gone = np.zeros_like(mask)
    gone[rows[away], columns[away]] = True
    gone = _spread(gone, 2) & ~_spread(sure, 1)
    return np.where(gone, np.float32(0), dark)


def _spread(mask: Mask, times: int) -> Mask:
    for _ in range(times):
        mask = grown(mask)
    return mask


def _circle(points: Floats, width: float, least: float) -> tuple[float, float, float] | None:
    """Middle and radius of the circle that these points (n, 2) show a good part of."""
    generator = np.random.default_rng(0)  # the same page gives the same answer
    chosen = points[generator.integers(len(points), size=min(len(points), 600))]
    three = points[generator.integers(len(points), size=(TRIES, 3))]
    a, b, c = three.transpose(1, 0, 2)
    ab, ac = b - a, c - a
    cross = 2 * (ab[:, 0] * ac[:, 1] - ab[:, 1] * ac[:, 0])
    cross = np.where(np.abs(cross) < 1e-6, 1e-6, cross)
    sq_b, sq_c = (ab**2).sum(1), (ac**2).sum(1)
    middle = (
        a
        + np.stack([ac[:, 1] * sq_b - ab[:, 1] * sq_c, ab[:, 0] * sq_c - ac[:, 0] * sq_b], 1)
        / cross[:, None]
    )
    radius = np.hypot(*(a - middle).T)
    fits = (radius > least) & (radius < least / RING * LARGEST_RING)
    if not fits.any():
        return None
    middle, radius = middle[fits], radius[fits]
    away = np.hypot(*(chosen[None] - middle[:, None]).transpose(2, 0, 1)) - radius[:, None]
    best = int((np.abs(away) < 1.5 * width).sum(1).argmax())
    x, y = (points - middle[best]).T
    on = np.abs(np.hypot(x, y) - radius[best]) < 2 * width
    turns = np.unique((np.arctan2(y[on], x[on]) * 36 / np.pi).astype(int))
    shown, share = len(turns) / 72, on.sum() / len(points)
    if not any(shown >= part and share >= ink for part, ink in SEEN):
        return None
    return float(middle[best, 0]), float(middle[best, 1]), float(radius[best])
