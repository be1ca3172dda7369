"""Does the answer survive what does not change the writing: scale, dark mode, paper, tilt, a desk?

    python -m gryphone.studies.invariance ../shared/data/offline/valid-2023-scans.tar --limit 200

Of the images that are read right as they are, the share whose answer stays the same.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

import gryphone
from gryphone.data.datasets import read_dataset
from gryphone.data.samples import Sample
from gryphone.errors import ConfigError, InkError, LatexError
from gryphone.latex.normalize import normalize
from gryphone.reading.inputs import Input, read_input
from gryphone.recognition.recognizer import Recognizer
from gryphone.release.common import run

WINDOW = 16


def scaled(image: Image.Image, factor: float) -> Image.Image:
    """A larger or smaller scan of the same page."""
    size = max(1, round(image.width * factor)), max(1, round(image.height * factor))
    return image.resize(size, Image.Resampling.LANCZOS)


def turned(image: Image.Image, degrees: float) -> Image.Image:
    """The page lies askew; what comes into view is paper."""
    paper = tuple(int(v) for v in np.median(np.asarray(image), axis=(0, 1)))
    return image.rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=paper)


def sepia(image: Image.Image) -> Image.Image:
    """Brown ink on yellowed paper."""
    grey = np.asarray(image.convert("L"), dtype=np.float64) / 255
    dark, light = np.array([70, 45, 20]), np.array([240, 222, 179])
    tinted = dark + (light - dark) * grey[..., None]
    return Image.fromarray(tinted.round().astype(np.uint8))


def on_desk(image: Image.Image, level: int) -> Image.Image:
    """A sheet with wide margins lies askew on a grained desk, which is as light as `level`."""
    margin = max(image.size) // 6
    paper = int(np.median(np.asarray(image.convert("L"))))
    sheet = ImageOps.expand(image.convert("L"), margin, paper).convert("LA")
    sheet = sheet.rotate(4, Image.Resampling.BICUBIC, expand=True)
    size = sheet.height + 2 * margin, sheet.width + 2 * margin
    grain = np.random.default_rng(0).normal(level, 4, size)
    desk = Image.fromarray(grain.clip(0, 255).astype(np.uint8))
    desk.paste(sheet.getchannel("L"), (margin, margin), sheet.getchannel("A"))
    return desk


CHANGES: dict[str, Callable[[Image.Image], Image.Image]] = {
    **{f"{factor:g}×": partial(scaled, factor=factor) for factor in (0.5, 0.8, 1.2, 2.0)},
    "dark": ImageOps.invert,
    "sepia": sepia,
    "+5°": partial(turned, degrees=5),
    "−5°": partial(turned, degrees=-5),
    "desk": partial(on_desk, level=100),
}


def answers(recognizer: Recognizer, images: Sequence[Image.Image], views: int = 1) -> list[str]:
    """The LaTeX of each image; empty where no ink is found."""
    inputs: dict[int, Input] = {}
    for number, image in enumerate(images):
        try:
            inputs[number] = read_input(image)
        except InkError:
            continue
    read = recognizer.recognize_many(list(inputs.values()), boxes=False, views=views)
    found = dict(zip(inputs, (r.latex for r in read), strict=True))
    return [found.get(i, "") for i in range(len(images))]


def is_right(latex: str, truth: str) -> bool:
    """Whether an answer equals the truth after normalising both."""
    try:
        return normalize(latex, "crohme") == normalize(truth, "crohme")
    except LatexError:
        return False


def labelled(path: Path) -> Iterator[tuple[Image.Image, str]]:
    """The images of a data set with their truths."""
    for sample in read_dataset(path):
        if isinstance(sample, Sample) and sample.image is not None and sample.label:
            yield Image.open(io.BytesIO(sample.image)).convert("RGB"), sample.label


def measure(
    recognizer: Recognizer, images: Iterator[tuple[Image.Image, str]], views: int = 1
) -> tuple[int, int, dict[str, int]]:
    """How many images there are, how many are right, and how many of those stay the same."""
    total, right, same = 0, 0, dict.fromkeys(CHANGES, 0)
    while window := list(itertools.islice(images, WINDOW)):
        total += len(window)
        plain = answers(recognizer, [image for image, _ in window], views)
        kept = [
            (image, answer)
            for (image, truth), answer in zip(window, plain, strict=True)
            if is_right(answer, truth)
        ]
        right += len(kept)
        for name, change in CHANGES.items():
            changed = answers(recognizer, [change(image) for image, _ in kept], views)
            same[name] += sum(a == b for (_, a), b in zip(kept, changed, strict=True))
    return total, right, same


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("images", type=Path, help="images with labels.tsv, a folder or archive")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--limit", type=int, help="only the first images")
    parser.add_argument("--views", type=int, default=1, help="looks at each image")
    options = parser.parse_args()
    if options.limit is not None and options.limit < 1:
        raise ConfigError(f"limit is {options.limit}; it must be 1 or more")
    images = itertools.islice(labelled(options.images), options.limit)
    total, right, same = measure(gryphone.load(options.weights), images, options.views)
    shares = {name: round(100 * n / max(right, 1), 1) for name, n in same.items()}
    print(json.dumps({"images": total, "right": right, "same": shares}, ensure_ascii=False))


if __name__ == "__main__":
    run(main)
