"""Image data sets as ink: every photo traced, its symbols found by their labelled boxes."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gryphone.data.align import SPELLINGS
from gryphone.data.samples import Sample, Samples, Unreadable
from gryphone.errors import DataError, InkError
from gryphone.ink import Glyph, Ink
from gryphone.photo.image import read_image
from gryphone.reading.inputs import naming_unread

INSIDE = 0.85  # share of a stroke's length that must lie in a box to be part of its symbol
SLACK = 3.0  # pixels a box is enlarged by: boxes hug the ink, and thinning moves it a little


class LabelledBox(NamedTuple):
    """One symbol of an image, in pixels."""

    label: str
    x0: float
    y0: float
    x1: float
    y1: float


def read_boxes(path: Path) -> dict[str, list[LabelledBox]]:
    """Symbol boxes by image id; lines `{"id": ..., "symbols": [[label, x0, y0, x1, y1]]}`."""
    open_text = lzma.open if path.suffix == ".xz" else open
    boxes: dict[str, list[LabelledBox]] = {}
    try:
        with open_text(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                boxes.update([_image_boxes(line, f"{path}, line {number}")])
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    return boxes


def _image_boxes(line: str, where: str) -> tuple[str, list[LabelledBox]]:
    try:
        row = json.loads(line)
        found = [
            LabelledBox(SPELLINGS.get(label, str(label)), *map(float, corners))
            for label, *corners in row["symbols"]
        ]
        return str(row["id"]), found
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{where}: expected an id and [label, x0, y0, x1, y1] boxes") from error


def trace_images(
    samples: Iterable[Sample | Unreadable], boxes: Mapping[str, list[LabelledBox]]
) -> Samples:
    """The same samples with images turned into ink; one that holds no ink becomes Unreadable."""
    for sample in samples:
        if isinstance(sample, Unreadable) or sample.image is None:
            yield sample
            continue
        try:
            with naming_unread(sample.image, sample.id):
                ink = read_image(sample.image, name=sample.id)
        except InkError as error:
            yield Unreadable(sample.id, str(error))
            continue
        yield replace(sample, ink=label_ink(ink, sample, boxes.get(sample.id, [])), image=None)


def label_ink(ink: Ink, sample: Sample, boxes: Sequence[LabelledBox]) -> Ink:
    """A sample's traced ink with its label, and its symbols where their boxes are known."""
    return replace(ink, label=sample.label, glyphs=tuple(_glyphs(ink, boxes)))


def _glyphs(ink: Ink, boxes: Sequence[LabelledBox]) -> Iterator[Glyph]:
    """One symbol per box that holds whole strokes; a stroke goes to the box that fits it best."""
    if not boxes:
        return
    corners = np.array([box[1:] for box in boxes])  # (n, 4)
    corners += (-SLACK, -SLACK, SLACK, SLACK)
    area = (corners[:, 2:] - corners[:, :2]).prod(axis=1)
    owned: list[list[int]] = [[] for _ in boxes]
    for number, stroke in enumerate(ink.strokes):
        points = points_along(stroke)[:, None]
        inside = ((points >= corners[:, :2]) & (points <= corners[:, 2:])).all(axis=2).mean(axis=0)
        fits = np.flatnonzero(inside >= max(INSIDE, float(inside.max()) - 0.05))
        if len(fits):  # of a root's sign and the digit inside it, the digit's box is the smaller
            owned[int(fits[np.argmin(area[fits])])].append(number)
    for (label, *_), strokes in zip(boxes, owned, strict=True):
        if strokes:
            yield Glyph(label, tuple(strokes))


def points_along(stroke: NDArray[np.float64]) -> NDArray[np.float64]:
    """About one point per pixel along a stroke, so that shares of points are shares of length."""
    steps = np.hypot(*np.diff(stroke, axis=0).T)
    along = np.concatenate([[0.0], np.cumsum(steps)])
    at = np.linspace(0, along[-1], max(1, round(along[-1])) + 1)
    return np.stack([np.interp(at, along, stroke[:, axis]) for axis in (0, 1)], axis=1)
