"""Pictures of what the recogniser misreads or cannot decide, in our own hand.

`python examples/failures.py docs/failures.png docs/results/tables/cases-drawn.png` writes formulas
carelessly until some are misread, for the model card; and draws those with the most readings in ten
independent runs, the paper's Figure 6. No data set's ink may be shown.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

sys.path.insert(0, str(Path(__file__).parent))
from make import Hand, clean

import gryphone
from gryphone.ink import Ink
from gryphone.latex.normalize import normalize
from gryphone.reading.inputs import Input
from gryphone.scoring.evaluate import Item
from gryphone.studies.predictions import plan_of, predict

FORMULAS = (
    r"x_{1}k^{2}+b_{6}",
    r"\frac{a_{n}}{b_{m}}-\frac{1}{l}",
    r"z_{2}+2z-\theta",
    r"\sqrt{s+5}=\sqrt{t+f}",
    r"e^{x_{i}^{2}}+e^{-y}",
    r"o-0+\infty",
    r"\alpha a+\beta b-\pi n",
    r"\int_{a}^{b}f(t)dt",
    r"\sum_{i=0}^{m}\frac{(-1)^{i}}{i+l}",
    r"c(b-a)+6b",
)
SHOWN, WIDTH, HEIGHT, LINE = 6, 520, 190, 22
RUNS = 10


class CarelessHand(Hand):
    """Three times as uneven as the hand of the examples, or more."""

    def __init__(self, seed: int, careless: float = 3) -> None:
        super().__init__(seed)
        self.careless = careless

    def wobble(self, scale: float) -> float:
        return super().wobble(self.careless * scale)


Case = tuple[Image.Image, list[str]]  # the writing, and what is said below it


def misread(recognizer: gryphone.Recognizer) -> list[Case]:
    """Up to SHOWN different formulas: the truth and the answer."""
    found: dict[str, Case] = {}
    for seed in range(30):
        for latex in FORMULAS:
            if latex in found:
                continue
            strokes = CarelessHand(seed).write(latex)
            answer = recognizer.recognize(Ink(tuple(strokes)))
            if list(answer.tokens) != normalize(latex):
                found[latex] = (clean(strokes), [f"is    {latex}", f"read  {answer.latex}"])
            if len(found) == SHOWN:
                return list(found.values())
    return list(found.values())


def ambiguous(recognizer: gryphone.Recognizer) -> list[Case]:
    """Of each formula the writing with the most readings in RUNS plain runs at T=50, best first."""
    found: dict[str, tuple[int, Case]] = {}
    columns = plan_of(RUNS, "diffusion", steps=(50,))
    for latex in FORMULAS:
        written = [CarelessHand(seed, 6).write(latex) for seed in range(30)]
        inks = [Ink(tuple(strokes)) for strokes in written]
        answers = recognizer.recognize_many(inks)
        order = sorted(range(len(inks)), key=lambda k: answers[k].confidence)
        for k in order[:4]:  # the others have one reading, or two
            item = Item(str(k), latex, Input(inks[k]))
            (row,) = predict(recognizer, [item], columns)
            votes = Counter(row.pool[answer] for answer in row.answers)
            if len(votes) > found.get(latex, (1,))[0]:
                best = [f"{n}/{RUNS}  {' '.join(x)}" for x, n in votes.most_common(3)]
                found[latex] = (len(votes), (clean(written[k]), best))
    ranked = sorted(found.values(), key=lambda pair: -pair[0])
    return [case for _, case in ranked[:SHOWN]]


def sheet(cases: list[Case]) -> Image.Image:
    """Two columns: the writing, and the lines below it."""
    rows = (len(cases) + 1) // 2
    page = Image.new("L", (2 * WIDTH, max(rows, 1) * HEIGHT), 255)
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(15)
    for number, (image, lines) in enumerate(cases):
        x, y = number % 2 * WIDTH, number // 2 * HEIGHT
        text = LINE * len(lines)
        image.thumbnail((WIDTH - 20, HEIGHT - text - 16))
        page.paste(image, (x + 10, y + 5))
        for k, line in enumerate(lines):
            pen.text((x + 12, y + HEIGHT - text - 6 + k * LINE), line, fill=0, font=font)
    return page


def main() -> None:
    """Draw both sheets."""
    recognizer = gryphone.load()
    for path, find in zip(sys.argv[1:], (misread, ambiguous), strict=False):
        cases = find(recognizer)
        sheet(cases).quantize(16).save(path, optimize=True)
        print(f"{path}: {len(cases)} of {len(FORMULAS)} formulas within 30 tries each")
        for _, lines in cases:
            print("  " + "   ".join(lines))


if __name__ == "__main__":
    main()
