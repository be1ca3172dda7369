"""Ruled and squared paper: find the printed lines that cross the whole page and take them out."""

import itertools
from dataclasses import dataclass

import numpy as np

from gryphone.ink import Ints
from gryphone.photo.binarize import Levels, Mask, pieces
from gryphone.photo.decode import Grey

SPAN = 0.85  # of the page that a printed line crosses
COVERED = 0.55  # of the page along which it must be visible
FAINT = 0.6  # of the writing's darkness: a single line across the page that is fainter is printed
MOST_PIECES = 2000  # level runs on one page; more are a texture
MANY = 3  # so many lines across the page are printed however dark; a fraction bar is one


@dataclass
class _Chain:
    """Pieces of one line, from left to right."""

    pieces: list[int]
    left: int
    right: int
    height: float  # where its right end lies
    covered: int


def without_rules(dark: Grey, mask: Mask, levels: Levels) -> Grey:
    """Darkness without printed lines; ink that crosses a line stays whole."""
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
    if len(found) < MANY and tone > FAINT * levels.ink:
        return None
    # Where ink crosses, the column of ink is taller than the line is thick.
    thickness = line.sum() / max(sum(chain.covered for chain in found), 1)
    tall = max(3, int(1.8 * thickness) + 2)
    half = tall // 2
    ends = (half, tall - 1 - half)
    turned = np.pad(mask.T, ((0, 0), ends), mode="symmetric")
    turned = np.pad(_windows(turned, tall, np.logical_and), ((0, 0), ends[::-1]), mode="symmetric")
    crossing = _windows(turned, tall, np.logical_or).T
    soft = _windows(np.pad(line.T, ((0, 0), (2, 2))), 5, np.logical_or).T
    gone: Mask = soft & ~crossing
    if tone < FAINT * levels.ink:  # a bar that happens to lie on a line is darker than the line
        gone &= dark < (tone + levels.ink) / 2
    return gone


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
            chains.append(_Chain([number], left, right, last, right - left))
        else:
            best.pieces.append(number)
            best.covered += right - max(left, best.right)
            best.right, best.height = max(right, best.right), last
    return chains
