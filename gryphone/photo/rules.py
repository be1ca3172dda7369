"""Ruled, squared and dotted paper: find what is printed across the whole page and take it out."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gryphone.ink import Floats, Ints
from gryphone.photo.binarize import (
    Levels,
    Mask,
    Parts,
    grown,
    parts_of,
    pen_width,
    pieces,
    symbol_size,
)
from gryphone.photo.decode import Grey

SPAN = 0.85  # of the page that a printed line crosses
COVERED = 0.55  # of the page along which it must be visible
FAINT = 0.6  # of the writing's darkness: a single line across the page that is fainter is printed
VISIBLE = 0.5  # of the darkness from which on there is ink: squares are their own paper's noise
MOST_PIECES = 2000  # level runs on one page; more are a texture
MOST_MISSING = 5  # times the usual distance, between two lines
UNEVEN = 0.15  # of that distance, by which it may differ
MANY = 3  # so many lines from side to side are printed however dark; a fraction bar is one
EDGE = 0.04  # of the page that may be missing of these at either side

# Dotted paper, and squared paper of which the crossings alone are dark enough to be seen.
LEAST_DOTS, MOST_DOTS = 10, 80  # that are looked at together
SPOT = 2.5  # pen widths: the size of a dot
NEAREST, FARTHEST = 0.15, 4.0  # symbols between two of them
REGULAR = 0.85  # how well they fit to one distance, across and down: the mean of unit vectors
OFF = 0.15  # of the distance, by which a dot may be off its place
ASKEW = 0.05  # radians by which the paper may be turned


@dataclass
class _Chain:
    """Pieces of one line, from left to right."""

    pieces: list[int]
    left: int
    right: int
    ends: list[tuple[int, float]]  # column and height of both ends of each piece
    covered: int

    @property
    def height(self) -> float:
        """Where its right end lies."""
        return self.ends[-1][1]

    def rows(self, width: int) -> Floats:
        """Its height in every column (W,), also where no piece of it is visible."""
        columns, heights = np.array(sorted(self.ends)).T
        rows: Floats = np.interp(np.arange(width), columns, heights)
        return rows


def without_rules(dark: Grey, mask: Mask, levels: Levels) -> Grey:
    """Darkness without printed lines; ink that crosses a line stays whole."""
    mask = mask | (dark > VISIBLE * levels.low)
    for turned in (False, True):
        ink = mask.T if turned else mask
        gone = _printed(dark.T if turned else dark, ink, levels)
        if gone is not None:
            dark = np.where(gone.T if turned else gone, np.float32(0), dark)
    return dark


def _printed(dark: Grey, mask: Mask, levels: Levels) -> Mask | None:
    """Pixels of the level lines that cross the page, or None."""
    width = mask.shape[1]
    reach = max(20, width // 40)
    # Most pages have too little ink, or too few level runs, for any line across the page.
    if width < 4 * reach or not _spans(mask):
        return None
    # A slanted line climbs a pixel now and then: thickened, it still has level runs.
    thick = mask.copy(order="K")  # laid out as the mask, which may be turned
    thick[1:] |= mask[:-1]
    thick[:-1] |= mask[1:]
    level = _long_runs(thick, reach) & mask
    if not _spans(level):
        return None
    at, owner, count = pieces(level, diagonal=True)
    if count > MOST_PIECES:
        return None
    chains = _chains(*np.divmod(at, width), owner, width)
    found = [c for c in chains if c.right - c.left > SPAN * width and c.covered > COVERED * width]
    if not found:
        return None
    wanted = np.zeros(count + 1, dtype=bool)
    wanted[[piece for chain in found for piece in chain.pieces]] = True
    line = np.zeros_like(level)
    np.put(line, at, wanted[owner])
    tone = float(np.median(dark[line]))
    # Of a page full of lines, most of what is dark is no writing: lines the other way, say.
    written = dark[mask & ~line & (dark > 0)]
    ink = max(levels.ink, float(np.percentile(written, 95)) if len(written) else 0.0)
    # Strokes may be as long as a picture without margins, but do not come out of its sides.
    through = [c for c in found if c.left < EDGE * width and c.right > (1 - EDGE) * width]
    if tone > FAINT * ink and len(through) < MANY:
        return None
    # Where ink crosses, the column of ink is taller than the line is thick.
    thickness = line.sum() / max(sum(chain.covered for chain in found), 1)
    # A faint line comes and goes: what is left of it between its pieces is the line's, too.
    across = sorted((chain.rows(width) for chain in found), key=lambda rows: float(rows.mean()))
    if tone < FAINT * ink:
        across += _missing(across)
    for rows, off in itertools.product(across, (-1, 0, 1)):
        row = (np.rint(rows).astype(int) + off).clip(0, len(line) - 1)
        line[row, np.arange(width)] |= mask[row, np.arange(width)]
    tall = max(3, int(1.8 * thickness) + 2)
    half = tall // 2
    ends = (half, tall - 1 - half)
    turned = np.pad(mask.T, ((0, 0), ends), mode="symmetric")
    turned = np.pad(_windows(turned, tall, np.logical_and), ((0, 0), ends[::-1]), mode="symmetric")
    crossing = _windows(turned, tall, np.logical_or).T
    soft = _windows(np.pad(line.T, ((0, 0), (2, 2))), 5, np.logical_or).T
    gone: Mask = soft & ~crossing
    if tone < FAINT * ink:  # a bar that happens to lie on a line is darker than the line
        gone &= dark < (tone + ink) / 2
    return gone


def _missing(across: Sequence[Floats]) -> list[Floats]:
    """Lines (W,) that the writing hides, where the others lie at one distance from each other."""
    if len(across) < MANY:
        return []
    gaps = np.diff([float(rows.mean()) for rows in across])
    usual = max(float(np.median(gaps)), 1.0)
    found = []
    for (upper, lower), gap in zip(itertools.pairwise(across), gaps.tolist(), strict=True):
        count = min(round(gap / usual), MOST_MISSING)
        if count > 1 and abs(gap / count - usual) < UNEVEN * usual:
            found += [upper + (lower - upper) * k / count for k in range(1, count)]
    return found


def without_dots(dark: Grey, mask: Mask, levels: Levels) -> Grey:
    """Darkness without the dots of dotted paper, those that are too faint for ink among them."""
    # Squared paper of which only crossings are ink leaves crumbs of its lines among fainter pieces.
    for seen in (dark > levels.low, mask):
        parts = parts_of(seen, dark)
        if not LEAST_DOTS < len(parts.area) < MOST_PIECES:
            continue
        printed = _dots(parts, pen_width(mask))
        if printed.any():
            gone = grown(grown(parts.mask(printed))) & ~parts.mask(~printed)
            return np.where(gone, np.float32(0), dark)
    return dark


def _dots(parts: Parts, width: float) -> Mask:
    """Which pieces (n + 1,) are as small as dots, and lie in rows and columns."""
    symbol = symbol_size(parts.longer[1:], width)
    places = (parts.boxes[:, :2] + parts.boxes[:, 2:]) / 2  # (n + 1, 2)
    printed = np.zeros(len(parts.area), dtype=bool)
    groups = [np.flatnonzero(parts.longer[1:] <= max(3.0, SPOT * width)) + 1]
    while groups:
        group = groups.pop()
        if len(group) > MOST_DOTS:  # in parts, for a camera sees no paper quite evenly
            across = int(np.argmax(np.ptp(places[group], axis=0)))
            groups += np.array_split(group[np.argsort(places[group, across])], 2)
        elif len(group) >= LEAST_DOTS:
            printed[group] = _regular(places[group], symbol)
    return printed


def _regular(places: Floats, symbol: float) -> Mask:
    """Which dots (n, 2) lie at one distance from each other, across and down; (n,)."""
    places = places - places.mean(0)
    extent = float(np.ptp(places, axis=0).max())
    nearest, farthest = max(NEAREST * symbol, 6.0), FARTHEST * symbol
    if extent < nearest or farthest < nearest:
        return np.zeros(len(places), dtype=bool)
    # So fine that waves stay in step from one end to the other.
    size = 4 * int(1.5 * extent + 2)
    first, last = int(size / farthest), int(size / nearest) + 1
    angles = np.linspace(-ASKEW, ASKEW, 2 * min(30, int(ASKEW * extent / (OFF * nearest))) + 1)
    best, found = REGULAR, None
    for angle in angles:
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        turned = places @ turn
        pixels = np.rint(turned - turned.min(0)).astype(int)
        waves = [np.fft.rfft(np.bincount(line), size)[first:last] for line in pixels.T]
        fit = np.abs(waves).min(0) / len(places)  # of the worse axis
        good = np.flatnonzero(fit > best)
        if len(good):
            # Half the distance fits as well: of waves that fit, the longest counts.
            near = good[good < good[0] + 6]  # the peak is as wide as that
            place = near[np.argmax(fit[near])]
            steps = (first + place) / size * turned
            phase = np.angle(np.exp(2j * np.pi * steps).mean(0)) / (2 * np.pi)
            best, found = float(fit[place]), steps - phase
    if found is None:
        return np.zeros(len(places), dtype=bool)
    # Which dot of which row each would be; what fits to that as a whole says where they are.
    number = np.column_stack([np.rint(found), np.ones(len(found))])
    fits = (np.abs(found - number[:, :2]) < 2 * OFF).all(1)
    grid, *_ = np.linalg.lstsq(number[fits], places[fits], rcond=None)
    off = np.abs(number @ grid - places).max(1)
    return np.asarray(off < OFF * np.hypot(*grid[0]))


def _spans(mask: Mask) -> bool:
    """Whether as many columns hold ink as a line across the page would fill."""
    width, filled = mask.shape[1], np.flatnonzero(mask.any(axis=0))
    return len(filled) > COVERED * width and bool(filled[-1] + 1 - filled[0] > SPAN * width)


def _long_runs(mask: Mask, reach: int) -> Mask:
    """Runs along rows of at least `reach` pixels; beyond the sides all is ink.

    Shifted by half a pixel to the right for an even `reach`, as filters of even sizes do.
    """
    half, width = reach // 2, mask.shape[1]
    runs = np.pad(mask, ((0, 0), (half, reach - 1 - half)), constant_values=True)
    runs = np.pad(_windows(runs, reach, np.logical_and), ((0, 0), (half, reach - 1 - half)))
    return _windows(runs, reach, np.logical_or)[:, :width]


def _windows(mask: Mask, reach: int, combine: np.ufunc) -> Mask:
    """All or any of each `reach` neighbours in a row, from left to right: (H, W - reach + 1)."""
    done = 1
    while done < reach:  # as wide as what is known, then twice as wide
        step = min(done, reach - done)
        mask = combine(mask[:, :-step], mask[:, step:])
        done += step
    return mask


def _chains(rows: Ints, columns: Ints, owner: Ints, width: int) -> list[_Chain]:
    """Pieces that continue each other, put together from left to right."""
    order = np.argsort(owner, kind="stable")
    rows, columns = rows[order], columns[order]
    ends = np.flatnonzero(np.diff(owner[order], append=-1)) + 1
    parts = []
    for number, (low, high) in enumerate(itertools.pairwise([0, *ends.tolist()]), 1):
        row, column = rows[low:high], columns[low:high]
        left, right = int(column.min()), int(column.max())
        first, last = (float(row[column == side].mean()) for side in (left, right))
        parts.append((left, right + 1, first, last, number))
    chains: list[_Chain] = []
    for left, right, first, last, number in sorted(parts):
        best, least = None, 0.0
        for chain in chains:
            gap = left - chain.right
            step = abs(first - chain.height)
            near = -0.02 * width < gap < 0.2 * width and step < 4 + 0.08 * max(gap, 0)
            if near and (best is None or step < least):
                best, least = chain, step
        if best is None:
            both = [(left, first), (right - 1, last)]
            chains.append(_Chain([number], left, right, both, right - left))
        else:
            best.pieces.append(number)
            best.covered += right - max(left, best.right)
            best.right = max(right, best.right)
            best.ends += [(left, first), (right - 1, last)]
    return chains
