"""Ink on paper, pictured and traced like any photograph: training samples for scans."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from gryphone.data.images import LabelledBox, label_ink
from gryphone.data.samples import Sample, Samples, Unreadable
from gryphone.errors import InkError
from gryphone.photo.image import read_image
from gryphone.synth.conditions import MARGIN, under_some_condition
from gryphone.synth.paper import Paper, place_strokes, random_paper, random_scan, render_page

Job = TypeVar("Job")
Result = TypeVar("Result")

SCANS, CLEAN = 0.5, 0.2  # shares of pages that are scans, and black on white; photographs follow


def photograph_inks(
    samples: Iterable[Sample | Unreadable], seed: int, workers: int = 1, conditions: float = 0.0
) -> Samples:
    """The same inks as tracing would find them in a picture: drawn with a pen on some paper.

    Half of the pages are scans, a fifth is clean, the rest are photographs; an ink that is lost in
    its picture becomes Unreadable. A share of the pages is met under `conditions`: boxed, stained,
    with a fingertip in view.
    """
    jobs = ((sample, (seed, number)) for number, sample in enumerate(samples))
    yield from map_in_processes(partial(_photograph, conditions=conditions), jobs, workers)


def map_in_processes(
    work: Callable[[Job], Result], jobs: Iterable[Job], workers: int
) -> Iterator[Result]:
    """`map` in several processes; the order stays."""
    if workers == 1:
        yield from map(work, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap(work, jobs, chunksize=16)


def _photograph(
    job: tuple[Sample | Unreadable, tuple[int, int]], conditions: float = 0.0
) -> Sample | Unreadable:
    sample, seed = job
    if isinstance(sample, Unreadable) or sample.ink is None:
        return sample
    generator = np.random.default_rng(seed)
    paper = some_paper(generator)
    met = conditions > 0 and generator.random() < conditions
    if met:
        paper = replace(paper, margin=MARGIN)
    placed, _ = place_strokes(sample.ink.strokes, paper)
    boxes: list[LabelledBox] = []
    for glyph in sample.ink.glyphs:
        points = np.concatenate([placed[i] for i in glyph.strokes])
        boxes.append(LabelledBox(glyph.label, *points.min(axis=0), *points.max(axis=0)))
    try:
        page = render_page(sample.ink.strokes, paper, generator)
        page = under_some_condition(page, generator) if met else page
        ink = read_image(page, name=sample.id)
    except InkError as error:
        return Unreadable(sample.id, str(error))
    return replace(sample, ink=label_ink(ink, sample, boxes))


def some_paper(generator: np.random.Generator) -> Paper:
    """A scan, a clean page or a photographed one."""
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
