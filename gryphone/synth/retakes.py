"""Another picture of the same page: turned, resized, fainter, traced anew.

Tracing is sensitive to its picture: a line's end moves, the eye of an e closes. A recogniser that
has seen one page in several pictures learns what does not depend on them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gryphone.data.images import LabelledBox, label_ink
from gryphone.data.samples import Sample, Samples, Unreadable
from gryphone.errors import InkError
from gryphone.photo.decode import open_picture
from gryphone.photo.image import read_image
from gryphone.synth.conditions import under_some_condition
from gryphone.synth.paper import compressed
from gryphone.synth.photographs import map_in_processes

if TYPE_CHECKING:
    from PIL.Image import Image

TURN = 6.0  # degrees, either way
SIZES = 0.4, 1.2  # of the original; writing that gets too small to read keeps its size
SHORTEST = 60  # pixels on a side after the resize
BLUR = 0.9  # pixels
NOISE = 7.0  # grey levels
FAINT = 0.5  # of its contrast that a page may lose
QUALITY = 35, 95  # of a JPEG file
AROUND = 0.35  # of a page's shorter side, as room for what conditions put beside the ink


def retake_images(
    samples: Iterable[Sample | Unreadable],
    boxes: Mapping[str, list[LabelledBox]],
    seed: int,
    workers: int = 1,
    conditions: float = 0.0,
) -> Samples:
    """The same samples with images pictured once more and turned into ink.

    A share of them is met under `conditions`, as photographs of ink are.
    """
    jobs = (
        (sample, [] if isinstance(sample, Unreadable) else boxes.get(sample.id, []), (seed, number))
        for number, sample in enumerate(samples)
    )
    yield from map_in_processes(partial(_retake, conditions=conditions), jobs, workers)


def _retake(
    job: tuple[Sample | Unreadable, list[LabelledBox], tuple[int, int]], conditions: float = 0.0
) -> Sample | Unreadable:
    sample, boxes, seed = job
    if isinstance(sample, Unreadable) or sample.image is None:
        return sample
    try:
        image = open_picture(sample.image, sample.id).image
        generator = np.random.default_rng(seed)
        picture, back = another_picture(image, generator)
        if conditions > 0 and generator.random() < conditions:
            picture, back = _met(picture, back, generator)
        ink = read_image(picture, name=sample.id)
    except InkError as error:
        return Unreadable(sample.id, str(error))
    # In pixels of the original again, where the boxes of symbols are known.
    ink = replace(ink, strokes=tuple(s @ back[:, :2].T + back[:, 2] for s in ink.strokes))
    return replace(sample, ink=label_ink(ink, sample, boxes), image=None)


def _met(
    picture: "Image", back: NDArray[np.float64], generator: np.random.Generator
) -> tuple["Image", NDArray[np.float64]]:
    """The picture with some room around it, under a condition, and the map of its pixels."""
    from PIL import Image

    edge = max(1, round(AROUND * min(picture.size)))
    paper = int(np.median(np.asarray(picture)))
    wide = Image.new("L", (picture.width + 2 * edge, picture.height + 2 * edge), paper)
    wide.paste(picture, (edge, edge))
    shift = back[:, 2] - back[:, :2] @ np.array([edge, edge])
    return under_some_condition(wide, generator), np.column_stack([back[:, :2], shift])


def another_picture(
    image: "Image", generator: np.random.Generator
) -> tuple["Image", NDArray[np.float64]]:
    """A grey picture of a grey page, and the map (2, 3) of its pixels to the page's."""
    from PIL import Image, ImageFilter

    low, high = np.log(SIZES)
    size = max(np.exp(generator.uniform(low, high)), min(1.0, SHORTEST / min(image.size)))
    width, height = (max(1, round(side * size)) for side in image.size)
    factors = np.array([image.width / width, image.height / height])
    picture = image.resize((width, height), Image.Resampling.BICUBIC)
    turn = generator.uniform(-TURN, TURN)
    paper = int(np.median(np.asarray(picture)))
    turned = picture.rotate(turn, Image.Resampling.BICUBIC, expand=True, fillcolor=paper)
    if generator.random() < 0.5:
        turned = turned.filter(ImageFilter.GaussianBlur(generator.uniform(0, BLUR)))
    grey = np.asarray(turned, dtype=np.float32)
    grey = paper + (grey - paper) * (1 - FAINT * generator.uniform() ** 2)
    grey += generator.normal(0, NOISE * generator.uniform() ** 2, grey.shape)
    turned = Image.fromarray(np.clip(grey, 0, 255).astype(np.uint8))
    if generator.random() < 0.5:
        turned = compressed(turned, int(generator.integers(*QUALITY)))
    # Pillow turns about the middle, against the clock on the screen, where y goes down.
    angle = np.radians(turn)
    inverse = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    shift = np.array(picture.size) / 2 - inverse @ (np.array(turned.size) / 2)
    return turned, np.concatenate([inverse, shift[:, None]], axis=1) * factors[:, None]
