"""Image data sets as ink: every photo traced, its symbols found by their labelled boxes."""

from __future__ import annotations

import json
import lzma
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from gryphone.data.samples import Sample, Samples, Unreadable
from gryphone.errors import DataError, InkError
from gryphone.ink import Glyph, Ink
from gryphone.photo.image import read_image
from gryphone.reading.inputs import naming_unread

if TYPE_CHECKING:
    from gryphone.synth.paper import Paper

Job = TypeVar("Job")
Result = TypeVar("Result")
Box = tuple[str, float, float, float, float]  # label, left, top, right, bottom

INSIDE = 0.85  # share of a stroke's length that must lie in a box to be part of its symbol
SLACK = 3.0  # pixels a box is enlarged by: boxes hug the ink, and thinning moves it a little
SCANS, CLEAN = 0.5, 0.2  # shares of pages that are scans, and black on white; photographs follow
SPELLINGS = {"COMMA": ",", r"\lt": "<", r"\gt": ">"}


def read_boxes(path: Path) -> dict[str, list[Box]]:
    """Symbol boxes by image id; lines `{"id": ..., "symbols": [[label, x0, y0, x1, y1]]}`."""
    open_text = lzma.open if path.suffix == ".xz" else open
    boxes: dict[str, list[Box]] = {}
    try:
        with open_text(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                boxes.update([_image_boxes(line, f"{path}, line {number}")])
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    return boxes


def _image_boxes(line: str, where: str) -> tuple[str, list[Box]]:
    try:
        row = json.loads(line)
        found = [
            (SPELLINGS.get(label, str(label)), float(x0), float(y0), float(x1), float(y1))
            for label, x0, y0, x1, y1 in row["symbols"]
        ]
        return str(row["id"]), found
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{where}: expected an id and [label, x0, y0, x1, y1] boxes") from error


def traced(samples: Iterable[Sample | Unreadable], boxes: Mapping[str, list[Box]]) -> Samples:
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
        yield replace(sample, ink=labelled(ink, sample, boxes.get(sample.id, [])), image=None)


def photographed(samples: Iterable[Sample | Unreadable], seed: int, workers: int = 1) -> Samples:
    """The same inks as tracing would find them in a picture: drawn with a pen on some paper.

    Half of the pages are scans, a fifth is clean, the rest are photographs; an ink that is lost in
    its picture becomes Unreadable.
    """
    jobs = ((sample, (seed, number)) for number, sample in enumerate(samples))
    yield from in_processes(_photograph, jobs, workers)


def in_processes(
    work: Callable[[Job], Result], jobs: Iterable[Job], workers: int
) -> Iterator[Result]:
    """`map` in several processes; the order stays."""
    if workers == 1:
        yield from map(work, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap(work, jobs, chunksize=16)


def _photograph(job: tuple[Sample | Unreadable, tuple[int, int]]) -> Sample | Unreadable:
    from gryphone.synth.paper import place, render

    sample, seed = job
    if isinstance(sample, Unreadable) or sample.ink is None:
        return sample
    generator = np.random.default_rng(seed)
    paper = _some_paper(generator)
    placed, _ = place(sample.ink.strokes, paper)
    boxes: list[Box] = []
    for glyph in sample.ink.glyphs:
        points = np.concatenate([placed[i] for i in glyph.strokes])
        (left, top), (right, bottom) = points.min(axis=0), points.max(axis=0)
        boxes.append((glyph.label, left, top, right, bottom))
    try:
        ink = read_image(render(sample.ink.strokes, paper, generator), name=sample.id)
    except InkError as error:
        return Unreadable(sample.id, str(error))
    return replace(sample, ink=labelled(ink, sample, boxes))


def _some_paper(generator: np.random.Generator) -> Paper:
    from gryphone.synth.paper import Paper, random_paper, random_scan

    kind = generator.random()
    if kind < SCANS:
        return random_scan(generator)
    paper = random_paper(generator)
    # Such pages are often small. The boxes of symbols know of no tilt.
    paper = replace(paper, symbol=paper.symbol * generator.uniform(0.6, 1.0), tilt=0.0)
    if kind < SCANS + CLEAN:
        return Paper(
            symbol=paper.symbol, thickness=paper.thickness, pressure=paper.pressure, blur=0.5
        )
    return paper


def labelled(ink: Ink, sample: Sample, boxes: list[Box]) -> Ink:
    """A sample's traced ink with its label, and its symbols where their boxes are known."""
    return replace(ink, label=sample.label, glyphs=tuple(_glyphs(ink, boxes)))


def _glyphs(ink: Ink, boxes: list[Box]) -> Iterator[Glyph]:
    """One symbol per box that holds whole strokes; a stroke goes to the box that fits it best."""
    if not boxes:
        return
    corners = np.array([box[1:] for box in boxes])  # (n, 4)
    corners += (-SLACK, -SLACK, SLACK, SLACK)
    area = (corners[:, 2:] - corners[:, :2]).prod(axis=1)
    owned: list[list[int]] = [[] for _ in boxes]
    for number, stroke in enumerate(ink.strokes):
        points = _dense(stroke)[:, None]
        inside = ((points >= corners[:, :2]) & (points <= corners[:, 2:])).all(axis=2).mean(axis=0)
        fits = np.flatnonzero(inside >= max(INSIDE, float(inside.max()) - 0.05))
        if len(fits):  # of a root's sign and the digit inside it, the digit's box is the smaller
            owned[int(fits[np.argmin(area[fits])])].append(number)
    for (label, *_), strokes in zip(boxes, owned, strict=True):
        if strokes:
            yield Glyph(label, tuple(strokes))


def _dense(stroke: NDArray[np.float64]) -> NDArray[np.float64]:
    """About one point per pixel along a stroke, so that shares of points are shares of length."""
    steps = np.hypot(*np.diff(stroke, axis=0).T)
    along = np.concatenate([[0.0], np.cumsum(steps)])
    at = np.linspace(0, along[-1], max(1, round(along[-1])) + 1)
    return np.stack([np.interp(at, along, stroke[:, axis]) for axis in (0, 1)], axis=1)
