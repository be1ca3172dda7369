"""A page of strokes in lines: pure geometry, for pen strokes and traced ones alike.

Strokes that lie side by side, or touch, are one strip. Between two neighbouring strips there is
paper, and how it lies there says whether they are two lines or parts of one formula: a fraction's
bar holds both its sides, whoever goes back with the pen is still writing the same formula. Where
that leaves doubt, `cut_odds` says how much, and whoever can read decides. Lengths are in strokes
of the usual size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from gryphone.ink import Floats, Stroke, in_order, quantile_of, stroke_boxes, usual_size

Strip = NDArray[np.int64]  # strokes, by their indices
Chosen = NDArray[np.bool_]

ASIDE = 1.5  # between strokes of one strip that lie side by side
SHARED = 0.25  # of the lower one's height that both have in common
ABOVE = 0.15  # between strokes of one strip that lie above each other
ASKEW = 0.1  # and between a script's corner and its base's
FLAT = 0.25  # height over width of a bar
BAR = 0.5  # the least width of a bar, and
LONG_BAR = 1.2  # of one that is no minus
REACH = 0.9  # from a long bar to what it divides, and
NEAR = 0.45  # from a short one
BEYOND = 0.4  # that numerators stick out over their bar
LEVEL = 0.5  # of the lower strip's height that two at one height have in common
LATER = 0.3  # by which what was not written next to a crumb seems farther away
CRUMBS, CRUMB = 2, 0.9  # strokes that are no line by themselves, and how near they stand
TIGHT = 0.4  # between symbols of one numerator


APART, LOOSE = 0.95, 1.3  # of paper between two lines: written one after the other; traced
BACK = 0.15  # of the pairs of two strips' strokes that were written from bottom to top
FAR = 2.0  # between parts of one formula, however they were written
# Of paper, at which two lines are as likely as one formula: traced, or written one after the other.
MIDDLE, MIDDLE_IN_TIME, STEEP = 0.75, 0.35, 4.0  # and by how much the odds grow with it
HANGING = 3.0  # odds against a line that would be the other half of a fraction,
SPECK = 0.3  # the size of a dot
SHORT_LINE = 2.0  # odds against a line of one or two strokes, and
SMALL_LINE, SMALLER = 1.5, 0.75  # against one that is written smaller, as limits are
SCRIBBLE = 5.0  # times its longer side, the length of a scribble's line
STRUCK, STRUCK_LONG = 3, 2.0  # strokes that a line must cross to strike them out; its length
MOST_MARKS = 50  # of the longest strokes that are looked at
STRAIGHT = 0.97  # of its length that its ends are apart
MARGIN, UPRIGHT = 3.0, 0.06  # height of a line in the margin; its width over that
ONE_SIDE, PAPER = 0.8, 0.7  # of the strokes that lie on one side of it; else, paper on both
TALL, NARROW = 1.8, 0.4  # of a bracket round several rows; width over height
SHALLOW = 0.04  # depth over height of a bracket that is rather straight
AROUND = 0.4  # by which a row may stick out above or below its bracket
MOST_BRACKETS = 3  # that are tried
COLUMN, CONDITION = 0.5, 1.2  # between columns of a matrix; between cases and their conditions


class Boxes:
    """The boxes of strokes, in strokes of the usual size."""

    def __init__(self, strokes: Sequence[Stroke]) -> None:
        low, high = stroke_boxes([strokes])[0]
        self.usual = usual_size(low, high)
        self.left, self.top = (low / self.usual).T
        self.right, self.bottom = (high / self.usual).T
        self.width, self.height = self.right - self.left, self.bottom - self.top

    def of(self, some: Strip) -> Boxes:
        """The boxes of some of the strokes, in the same unit."""
        part = copy(self)
        for name in ("left", "top", "right", "bottom", "width", "height"):
            setattr(part, name, getattr(self, name)[some])
        return part

    def across(self) -> Floats:
        """(n, n): room between two strokes from left to right, below 0 where they overlap."""
        return apart(self.left, self.right)

    def down(self) -> Floats:
        """(n, n): the same from top to bottom."""
        return apart(self.top, self.bottom)

    def around(self, some: Strip | Chosen) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of some strokes together."""
        s = np.asarray(some)
        return (
            float(self.left[s].min()),
            float(self.top[s].min()),
            float(self.right[s].max()),
            float(self.bottom[s].max()),
        )

    def middle(self, some: Strip | Chosen) -> float:
        """The height of some strokes' middle."""
        _, top, _, bottom = self.around(some)
        return (top + bottom) / 2


def apart(low: Floats, high: Floats) -> Floats:
    """(n, n): room between intervals, below 0 where they overlap."""
    room: Floats = np.maximum(low[None] - high[:, None], low[:, None] - high)
    return room


def linked(links: Chosen) -> NDArray[np.int64]:
    """A number (n,) for each stroke, the same for those that links (n, n) join."""
    owner = np.full(len(links), -1)
    for first in range(len(links)):
        new = np.array([first] if owner[first] < 0 else [], dtype=int)
        while len(new):
            owner[new] = first
            new = np.flatnonzero((links[new].any(0) | links[:, new].any(1)) & (owner < 0))
    return owner


def bars(boxes: Boxes, some: Strip | None = None) -> Chosen:
    """Level lines that may divide a fraction: long enough, and no part of an equals sign."""
    boxes = boxes if some is None else boxes.of(some)
    flat = (boxes.width > BAR) & (boxes.height < FLAT * boxes.width + 0.05)
    near = np.abs(boxes.down()) < 0.6
    alike = np.minimum.outer(boxes.width, boxes.width) > 0.5 * np.maximum.outer(
        boxes.width, boxes.width
    )
    twin = near & alike & (boxes.across() < -0.4 * np.minimum.outer(boxes.width, boxes.width))
    twin &= flat[:, None] & flat[None]
    np.fill_diagonal(twin, False)
    found: Chosen = flat & ~twin.any(1)
    return found


def fractions(boxes: Boxes) -> Chosen:
    """(n, n): a bar and what it divides, where something that is no wider stands on both sides."""
    n = len(boxes.left)
    links = np.zeros((n, n), dtype=bool)
    side, level = boxes.across(), boxes.down()
    word = linked(
        (side <= TIGHT) & (level <= -SHARED * np.minimum.outer(boxes.height, boxes.height))
    )
    for bar in np.flatnonzero(bars(boxes)):
        reach = REACH if boxes.width[bar] > LONG_BAR else NEAR
        middle = (boxes.left + boxes.right) / 2
        over = (middle > boxes.left[bar]) & (middle < boxes.right[bar])
        over[bar] = False
        centre = (boxes.top[bar] + boxes.bottom[bar]) / 2
        held = []
        for gap in (centre - boxes.bottom, boxes.top - centre):
            near = over & (gap > -0.25) & (gap < reach)
            inside = np.zeros(n, dtype=bool)
            for number in np.unique(word[near]):
                own = (word == number) & (np.arange(n) != bar)
                left, _, right, _ = boxes.around(own)
                if left > boxes.left[bar] - BEYOND and right < boxes.right[bar] + BEYOND:
                    inside |= own & near
            held.append(inside)
        if held[0].any() and held[1].any():
            links[bar] |= held[0] | held[1]
    return links | links.T


def strips_of(strokes: Sequence[Stroke], timed: bool = False) -> list[Strip]:
    """Strokes that cannot be told apart, from top to bottom; `timed` where a pen wrote them in
    this order."""
    boxes = Boxes(strokes)
    side, level = boxes.across(), boxes.down()
    lower = np.maximum(np.minimum.outer(boxes.height, boxes.height), 0.05)
    links = (side <= ASIDE) & (level <= -SHARED * lower)
    links |= (side <= 0) & (level <= ABOVE)
    links |= (side <= 0.5) & (level <= ASKEW)
    links |= fractions(boxes)
    owner = linked(links)
    found = [np.flatnonzero(owner == number) for number in np.unique(owner)]
    found = in_rows(boxes, found)
    found = in_rows(boxes, with_crumbs(boxes, found, timed))
    found = with_rows(boxes, strokes, found)
    return sorted(found, key=lambda some: boxes.middle(some))


def in_rows(boxes: Boxes, strips: Sequence[Strip]) -> list[Strip]:
    """Strips that lie at one height made one: each goes to the largest that it shares most with.

    A note in the margin between two lines goes to one of them, and does not join the other to it.
    """
    rows: list[tuple[list[Strip], float, float]] = []
    for strip in sorted(strips, key=lambda some: -len(some)):
        _, top, _, bottom = boxes.around(strip)
        shared = [min(bottom, below) - max(top, above) for _, above, below in rows]
        best = int(np.argmax(shared)) if rows else 0
        if rows:
            parts, above, below = rows[best]
            if shared[best] >= LEVEL * min(bottom - top, below - above):
                parts.append(strip)
                continue
        rows.append(([strip], top, bottom))
    return [np.sort(np.concatenate(parts)) for parts, _, _ in rows]


def with_rows(boxes: Boxes, strokes: Sequence[Stroke], strips: Sequence[Strip]) -> list[Strip]:
    """Strips with all rows that their brackets reach round; a line in the margin is no bracket."""
    found = list(strips)
    tall = (boxes.height > 2 * TALL) & (boxes.width < NARROW * boxes.height)
    for stroke in np.flatnonzero(tall).tolist():
        if bracket_of(strokes[stroke]) == "|":
            continue
        low, high = boxes.top[stroke] - AROUND, boxes.bottom[stroke] + AROUND
        inside = []
        for place, strip in enumerate(found):
            left, top, _, bottom = boxes.around(strip)
            if stroke in strip or (left > boxes.left[stroke] and top > low and bottom < high):
                inside.append(place)
        rest = [strip for place, strip in enumerate(found) if place not in inside]
        found = [*rest, np.sort(np.concatenate([found[place] for place in inside]))]
    return found


def with_crumbs(boxes: Boxes, strips: Sequence[Strip], timed: bool = False) -> list[Strip]:
    """What is too little for a line put to the strip that is nearest."""
    order, firsts = np.concatenate(strips), np.cumsum([0, *map(len, strips[:-1])])

    def least(each: Floats) -> Floats:
        """(strips, strips) of (strokes, strokes)."""
        rows = np.minimum.reduceat(each[np.ix_(order, order)], firsts, 0)
        found: Floats = np.minimum.reduceat(rows, firsts, 1)
        return found

    gaps = least(np.hypot(np.maximum(boxes.across(), 0), np.maximum(boxes.down(), 0)))
    if timed:  # what was written just before or after is nearer than it looks
        number = np.arange(len(order))
        gaps += LATER * (least(np.abs(number[:, None] - number)) > 1)
    np.fill_diagonal(gaps, math.inf)
    found = list(strips)
    for place in sorted(range(len(strips)), key=lambda k: len(strips[k])):
        left, _, right, _ = boxes.around(found[place])
        near = int(np.argmin(gaps[place]))
        if len(found[place]) <= CRUMBS and right - left < 1.5 and gaps[place, near] < CRUMB:
            found[near] = np.sort(np.concatenate([found[near], found[place]]))
            found[place] = found[place][:0]
            gaps[near] = np.minimum(gaps[near], gaps[place])
            gaps[:, near] = np.minimum(gaps[:, near], gaps[:, place])
            gaps[place], gaps[:, place] = math.inf, math.inf
            gaps[near, near] = math.inf
    return [strip for strip in found if len(strip)]


def cut_odds(boxes: Boxes, upper: Strip, lower: Strip, timed: bool = False) -> float:
    """Log-odds that two neighbouring strips are two lines; infinite where there is no doubt."""
    side = np.maximum(
        boxes.left[lower][None] - boxes.right[upper][:, None],
        boxes.left[upper][:, None] - boxes.right[lower][None],
    )
    down = boxes.top[lower][None] - boxes.bottom[upper][:, None]
    gap = float(down[side <= 0.5].min() if (side <= 0.5).any() else down.min())
    if timed:
        back = float((lower[None] < upper[:, None]).mean())
        if back > BACK and gap < FAR:
            return -math.inf
    longer = np.maximum(boxes.width, boxes.height)
    # The dot of an i that hangs on the strip beside it does not lie above the i's own.
    bodies = [
        strip[large] if (large := longer[strip] > SPECK).any() else strip
        for strip in (upper, lower)
    ]
    (left, _, right, _), (begin, _, end, _) = map(boxes.around, bodies)
    if max(left, begin) > min(right, end) and gap < APART:
        return -STEEP  # nothing lies above anything: rather one line that climbs
    if gap > (APART if timed else LOOSE) and (min(len(upper), len(lower)) > CRUMBS or gap > FAR):
        return math.inf
    odds = STEEP * (gap - (MIDDLE_IN_TIME if timed else MIDDLE))
    small, large = sorted(float(quantile_of(longer[strip])) for strip in (upper, lower))
    odds -= SMALL_LINE * (small < SMALLER * large)
    odds -= HANGING * (_hangs(boxes, upper, lower, 1) or _hangs(boxes, lower, upper, -1))
    return odds - SHORT_LINE * (min(len(upper), len(lower)) <= CRUMBS)


def _hangs(boxes: Boxes, strip: Strip, other: Strip, side: int) -> bool:
    """Whether the other strip is what a strip's fraction bar lacks: below (1), above (-1)."""
    left, _, right, _ = boxes.around(other)
    middle, height = (boxes.left + boxes.right) / 2, side * (boxes.top + boxes.bottom) / 2
    for bar in strip[bars(boxes, strip)]:
        if left > boxes.left[bar] - BEYOND and right < boxes.right[bar] + BEYOND:
            over = strip[(middle[strip] > boxes.left[bar]) & (middle[strip] < boxes.right[bar])]
            over = over[over != bar]
            # A long one with nothing on either side lacks both.
            alone = not len(over) and boxes.width[bar] > max(LONG_BAR, right - left)
            alone = alone and right - left > boxes.width[bar] / 3
            if alone or (len(over) and (height[over] < height[bar]).all()):
                return True
    return False


def crossed_out(strokes: Sequence[Stroke]) -> list[tuple[int, ...]]:
    """Scribbles and long straight lines through writing, each with the strokes beneath it."""
    boxes = Boxes(strokes)
    longer, shorter = np.maximum(boxes.width, boxes.height), np.minimum(boxes.width, boxes.height)
    length = np.array([np.hypot(*np.diff(s, axis=0).T).sum() for s in strokes]) / boxes.usual
    scribbles = (length > SCRIBBLE * longer) & (shorter > 0.4) & (longer > 0.8)
    found = []
    for i in np.argsort(-length)[:MOST_MARKS]:
        line = _straight(strokes[i])
        long = float(np.hypot(*(line[-1] - line[0]))) / boxes.usual
        if not scribbles[i] and long < STRUCK_LONG:
            continue
        under = _inside(boxes, [i]) if scribbles[i] else _crossed(boxes, strokes, line)
        under[i] = False
        if under.sum() >= (1 if scribbles[i] else STRUCK):
            under[i] = True
            under |= _inside(boxes, under)  # what lies along the line, an equals sign, say
            found.append(tuple(np.flatnonzero(under).tolist()))
    return found


def margin_line(strokes: Sequence[Stroke]) -> int | None:
    """A straight upright line beside two rows of writing or more, with hardly any on its other
    side, or with paper on both: the margin of a page, or what parts its columns. Where something
    else is as tall, it may be a matrix's."""
    boxes = Boxes(strokes)
    line = int(np.argmax(boxes.height))
    rest, height = np.delete(np.arange(len(strokes)), line), float(boxes.height[line])
    highest = float(boxes.height[rest].max(initial=0.0))
    if height < max(MARGIN, 1.4 * highest) or boxes.width[line] > UPRIGHT * height:
        return None
    points = strokes[line] / boxes.usual
    if height < STRAIGHT * float(np.hypot(*np.diff(points, axis=0).T).sum()):
        return None
    right = (boxes.left + boxes.right)[rest] / 2 > boxes.right[line]
    before, behind = rest[~right], rest[right]
    room = min(
        boxes.left[line] - boxes.right[before].max(initial=-math.inf),
        boxes.left[behind].min(initial=math.inf) - boxes.right[line],
    )
    beside_it = max(len(before), len(behind)) > ONE_SIDE * len(rest) or room > PAPER
    rows = [
        rest[row] for row in strips_of([strokes[i] for i in rest.tolist()]) if len(row) > CRUMBS
    ]
    beside = [row for row in rows if boxes.top[line] < boxes.middle(row) < boxes.bottom[line]]
    return line if beside_it and len(beside) > 1 else None


def _inside(boxes: Boxes, outer: Sequence[int] | Chosen) -> Chosen:
    """Strokes most of whose box lies in that of others."""
    left, top, right, bottom = boxes.around(np.asarray(outer))
    x = np.minimum(boxes.right, right) - np.maximum(boxes.left, left)
    y = np.minimum(boxes.bottom, bottom) - np.maximum(boxes.top, top)
    wide, high = np.maximum(boxes.width, 0.02), np.maximum(boxes.height, 0.02)
    # A level line has no height: it is inside where it lies between top and bottom.
    inside: Chosen = (x > 0.6 * wide) & (y >= np.minimum(0.6 * high, boxes.height))
    return inside


def _straight(stroke: Stroke) -> Stroke:
    """The longest straight part of a stroke between its turns back; one point where there is none.

    A tracing goes on from the end of a line into what the line crosses.
    """
    steps = np.diff(stroke, axis=0)
    back = (steps[1:] * steps[:-1]).sum(1) < -0.5 * np.hypot(*steps[1:].T) * np.hypot(*steps[:-1].T)
    parts = np.split(np.arange(len(stroke) - 1), np.flatnonzero(back) + 1)
    best = stroke[:1]
    for part in parts:
        line = stroke[part[0] : part[-1] + 2] if len(part) else stroke[:1]
        long, apart = np.hypot(*np.diff(line, axis=0).T).sum(), np.hypot(*(line[-1] - line[0]))
        if apart > max(STRAIGHT * long, float(np.hypot(*(best[-1] - best[0])))):
            best = line
    return best


def _crossed(boxes: Boxes, strokes: Sequence[Stroke], line: Stroke) -> Chosen:
    """Strokes that have a good deal of themselves on both sides of a straight one."""
    begin, way = line[0], line[-1] - line[0]
    length = float(np.hypot(*way))
    x, y = (np.concatenate(strokes) - begin).T
    along = (x * way[0] + y * way[1]) / length**2
    off = np.where((along > 0) & (along < 1), (x * way[1] - y * way[0]) / length / boxes.usual, 0)
    firsts = np.cumsum([0, *(len(s) for s in strokes[:-1])])
    above, below = np.maximum.reduceat(off, firsts), np.minimum.reduceat(off, firsts)
    crossed: Chosen = (above > 0.15) & (below < -0.15)
    return crossed


def brackets(strokes: Sequence[Stroke], strip: Strip) -> tuple[int, int | None] | None:
    """The tall stroke that opens several rows, and the one that closes them, if there is one."""
    boxes = Boxes(strokes)
    tall = strip[(boxes.height[strip] > TALL) & (boxes.width[strip] < NARROW * boxes.height[strip])]
    tall = tall[np.argsort(boxes.left[tall])]
    # Brackets of one row, as in f(x), may stand before it: the tallest are tried.
    tallest = np.sort(np.argsort(-boxes.height[tall], kind="stable")[:MOST_BRACKETS])
    for place in tallest.tolist():
        first = tall[place]
        for last in [*tall[:place:-1][:MOST_BRACKETS], None]:
            fits = last is None or boxes.height[last] > 0.7 * boxes.height[first]
            if fits and len(rows_between(strokes, strip, int(first), last)) > 1:
                return int(first), None if last is None else int(last)
    return None


def rows_between(
    strokes: Sequence[Stroke], strip: Strip, first: int, last: int | None
) -> list[Strip]:
    """The rows behind one tall stroke, and before another."""
    boxes = Boxes(strokes)
    middle = (boxes.left + boxes.right) / 2
    end = math.inf if last is None else boxes.left[last]
    inside = strip[(middle[strip] > boxes.right[first]) & (middle[strip] < end)]
    inside = inside[(inside != first) & (inside != last)]
    if len(inside) < 2:
        return []
    found = strips_of([strokes[i] for i in inside])
    if any(bars(boxes, some).all() for some in (inside[part] for part in found)):
        return []  # the line of a root, or of a fraction
    low, high = boxes.top[first] - AROUND, boxes.bottom[first] + AROUND
    rows = [inside[some] for some in found]
    spans = [boxes.around(row) for row in rows]
    return rows if all(top > low and bottom < high for _, top, _, bottom in spans) else []


def cells_of(strokes: Sequence[Stroke], rows: Sequence[Strip], room: float) -> list[list[Strip]]:
    """Rows cut where paper runs through all of them from top to bottom."""
    boxes = Boxes(strokes)
    every = np.concatenate(rows)
    _, reached, gaps = in_order(boxes.left[every], boxes.right[every])
    cuts = (reached[:-1] + gaps / 2)[gaps > room]
    middle = (boxes.left + boxes.right) / 2
    column = np.searchsorted(cuts, middle)
    return [[row[column[row] == k] for k in range(len(cuts) + 1)] for row in rows]


def bracket_of(stroke: Stroke) -> str:
    """Which of ( [ { | a tall stroke is, seen from the left; a closing one mirrored."""
    y = (stroke[:, 1] - stroke[:, 1].min()) / max(float(np.ptp(stroke[:, 1])), 1e-9)
    order = np.argsort(y)
    at = np.interp([0.03, 0.25, 0.5, 0.75, 0.97], y[order], stroke[order, 0])
    ends, quarters, middle = (at[0] + at[4]) / 2, (at[1] + at[3]) / 2, at[2]
    depth = abs(ends - middle)
    if depth < SHALLOW * float(np.ptp(stroke[:, 1])):
        return "[" if float(np.ptp(stroke[:, 0])) > 0.12 * float(np.ptp(stroke[:, 1])) else "|"
    share = (quarters - middle) / (ends - middle)
    return "[" if share < 0.1 else "(" if share < 0.42 else "{"
