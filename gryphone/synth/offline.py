"""Glyphs out of labelled boxes in images (OffHME): thinned, traced and cleaned."""

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gryphone.data.images import LabelledBox
from gryphone.data.samples import Sample, Unreadable
from gryphone.synth.glyphs import Array, GlyphSample

Mask = NDArray[np.bool_]

_MARGIN = 2  # pixels that ink may leave its box: boxes are drawn by hand
_FOREIGN = 0.12  # share of a box's ink that may belong to a neighbour before the glyph is dropped


def from_images(
    samples: Iterable[Sample | Unreadable],
    boxes: Mapping[str, Sequence[LabelledBox]],
    dropped: Counter[str],
) -> Iterator[GlyphSample]:
    """The glyphs of images with known boxes; `dropped` counts why others cannot be used."""
    for sample in samples:
        name = Path(sample.id).stem if isinstance(sample, Sample) else ""
        if not isinstance(sample, Sample) or sample.image is None or name not in boxes:
            dropped["image unreadable or without boxes"] += 1
            continue
        ink, components = _components(_grey(sample.image))
        for box in boxes[name]:
            found = cut_out(ink, components, box)
            if isinstance(found, str):
                dropped[found] += 1
            else:
                # Pen widths say that neighbouring images are of different writers: nobody's name.
                yield GlyphSample(box.label, found)


def _grey(image: bytes) -> NDArray[np.uint8]:
    from PIL import Image

    with Image.open(io.BytesIO(image)) as picture:
        return np.asarray(picture.convert("L"))


def _components(grey: NDArray[np.uint8]) -> tuple[Mask, NDArray[Any]]:
    """Ink (H, W) by Otsu's threshold, and the number of the connected piece of each pixel."""
    from skimage.filters import threshold_otsu
    from skimage.measure import label

    flat = grey.min() == grey.max()
    ink = grey <= (-1 if flat else threshold_otsu(grey))
    return ink, label(ink, connectivity=2)


def cut_out(ink: Mask, components: NDArray[Any], box: LabelledBox) -> tuple[Array, ...] | str:
    """The strokes of the symbol in a box, or the reason why it cannot be used.

    Pieces of ink that lie mostly outside belong to neighbours: a little of one is left out, much
    of one means that both are written together, and nobody knows where to cut.
    """
    height, width = ink.shape
    x0, y0 = max(int(box.x0) - _MARGIN, 0), max(int(box.y0) - _MARGIN, 0)
    x1 = min(int(np.ceil(box.x1)) + _MARGIN, width)
    y1 = min(int(np.ceil(box.y1)) + _MARGIN, height)
    inside = components[y0:y1, x0:x1]
    here = np.bincount(inside.ravel())
    here[0] = 0
    total = int(here.sum())
    if x1 - x0 < 3 or y1 - y0 < 3 or total < 6:
        return "no ink in the box"
    pieces = np.flatnonzero(here)
    everywhere = _sizes(components, pieces, (x0, y0, x1, y1))
    own = here[pieces] >= 0.9 * everywhere
    if here[pieces[~own]].sum() > _FOREIGN * total:
        return "written together with a neighbour"
    specks = here[pieces] < max(6, 0.01 * total)
    kept = np.isin(inside, pieces[own & ~specks])
    if not kept.any():
        return "no ink in the box"
    return trace_glyph(kept, 2) or "no ink in the box"


def trace_glyph(ink: Mask, margin: int) -> tuple[Array, ...]:
    """The strokes of one symbol's pixels, with some paper around them."""
    from gryphone.photo.binarize import pen_width
    from gryphone.photo.trace import trace

    ink = np.pad(ink, margin)
    return tuple(np.asarray(s, dtype=np.float64) for s in trace(ink, pen_width(ink)))


def _sizes(
    components: NDArray[Any], pieces: NDArray[Any], box: tuple[int, int, int, int]
) -> NDArray[Any]:
    """Pixels of each piece, looked for in a window three times the box: enough to tell."""
    x0, y0, x1, y1 = box
    w, h = x1 - x0, y1 - y0
    window = components[max(y0 - h, 0) : y1 + h, max(x0 - w, 0) : x1 + w]
    counts: NDArray[Any] = np.bincount(window.ravel(), minlength=int(pieces.max()) + 1)[pieces]
    return counts
