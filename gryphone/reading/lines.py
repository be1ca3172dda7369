"""A page of strokes in lines: pure geometry, for pen strokes and traced ones alike.

Strokes that lie side by side, or touch, are one strip. Between two neighbouring strips there is
paper, and how it lies there says whether they are two lines or parts of one formula: a fraction's
bar holds both its sides, a limit is small and near. Where that leaves doubt, `Strips.odds` says how
much, and whoever can read decides. Lengths are in strokes of the usual size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gryphone.ink import Floats, Stroke, in_order, stroke_boxes, usual_size

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
CRUMBS, CRUMB = 2, 0.9  # strokes that are no line by themselves, and how near they stand
TIGHT = 0.4  # between symbols of one numerator


class Boxes:
    """The boxes of strokes, in strokes of the usual size."""

    def __init__(self, strokes: Sequence[Stroke]) -> None:
        low, high = stroke_boxes([strokes])[0]
        self.usual = usual_size(low, high)
        self.left, self.top = (low / self.usual).T
        self.right, self.bottom = (high / self.usual).T
        self.width, self.height = self.right - self.left, self.bottom - self.top

    def across(self) -> Floats:
        """(n, n): room between two strokes from left to right, below 0 where they overlap."""
        return np.maximum(self.left[None] - self.right[:, None], self.left[:, None] - self.right)

    def down(self) -> Floats:
        """(n, n): the same from top to bottom."""
        return np.maximum(self.top[None] - self.bottom[:, None], self.top[:, None] - self.bottom)

    def around(self, some: Sequence[int] | Chosen) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of some strokes together."""
        s = np.asarray(some)
        return (
            float(self.left[s].min()),
            float(self.top[s].min()),
            float(self.right[s].max()),
            float(self.bottom[s].max()),
        )


    def middle(self, some: Sequence[int] | Chosen) -> float:
        """The height of some strokes' middle."""
        _, top, _, bottom = self.around(some)
        return (top + bottom) / 2


def linked(links: Chosen) -> NDArray[np.int64]:
    """A number (n,) for each stroke, the same for those that links (n, n) join."""
    owner = np.arange(len(links))
    for i in range(len(links)):
        for j in np.flatnonzero(links[i, :i]):
            if owner[i] != owner[j]:
                owner[owner == owner[i]] = owner[j]
    return owner


def bars(boxes: Boxes) -> Chosen:
    """Level lines that may divide a fraction: long enough, and no part of an equals sign."""
    flat = (boxes.width > BAR) & (boxes.height < FLAT * boxes.width + 0.05)
    near = np.abs(boxes.down()) < 0.6
    alike = np.minimum.outer(boxes.width, boxes.width) > 0.5 * np.maximum.outer(
        boxes.width, boxes.width
    )
    twin = near & alike & (boxes.across() < -0.4 * np.minimum.outer(boxes.width, boxes.width))
    twin &= flat[:, None] & flat[None]
    np.fill_diagonal(twin, False)
    return flat & ~twin.any(1)


def fractions(boxes: Boxes) -> Chosen:
    """(n, n): a bar and what it divides, where something that is no wider stands on both sides."""
    n = len(boxes.left)
    links = np.zeros((n, n), dtype=bool)
    side, level = boxes.across(), boxes.down()
    word = linked((side <= TIGHT) & (level <= -SHARED * np.minimum.outer(boxes.height, boxes.height)))
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


def strips_of(strokes: Sequence[Stroke]) -> list[Strip]:
    """Strokes that cannot be told apart, from top to bottom."""
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
    found = with_crumbs(boxes, found)
    return sorted(in_rows(boxes, found), key=lambda some: boxes.middle(some))


def in_rows(boxes: Boxes, strips: Sequence[Strip]) -> list[Strip]:
    """Strips that lie at one height made one."""
    done: list[Strip] = []
    for strip in sorted(strips, key=lambda some: -len(some)):
        while True:
            _, top, _, bottom = boxes.around(strip)
            for place, other in enumerate(done):
                _, above, _, below = boxes.around(other)
                shared = min(bottom, below) - max(top, above)
                if shared >= LEVEL * min(bottom - top, below - above):
                    strip = np.sort(np.concatenate([strip, done.pop(place)]))
                    break
            else:
                break
        done.append(strip)
    return done


def with_crumbs(boxes: Boxes, strips: Sequence[Strip]) -> list[Strip]:
    """What is too little for a line put to the strip that is nearest."""
    side, level = boxes.across(), boxes.down()
    away = np.hypot(np.maximum(side, 0), np.maximum(level, 0))
    left = sorted(strips, key=lambda some: len(some))
    done: list[Strip] = []
    while left:
        strip = left.pop(0)
        x0, _, x1, _ = boxes.around(strip)
        others = [*left, *done]
        if others and len(strip) <= CRUMBS and x1 - x0 < 1.5:
            gaps = [float(away[np.ix_(strip, other)].min()) for other in others]
            near = int(np.argmin(gaps))
            if gaps[near] < CRUMB:
                joined = np.sort(np.concatenate([strip, others[near]]))
                rest = [o for k, o in enumerate(others) if k != near]
                left = sorted([joined, *rest], key=lambda some: len(some))
                done = []
                continue
        done.append(strip)
    return done
