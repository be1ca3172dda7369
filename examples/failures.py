"""Pictures of what the recogniser misreads, for the model card, in our own hand.

`python examples/failures.py docs/failures.png` writes formulas carelessly until some are misread:
no data set's ink may be shown.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

sys.path.insert(0, str(Path(__file__).parent))
from make import Hand, clean

import gryphone
from gryphone.ink import Ink
from gryphone.latex.normalize import normalize

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
SHOWN, WIDTH, HEIGHT = 6, 520, 190


class CarelessHand(Hand):
    """Three times as uneven as the hand of the examples."""

    def wobble(self, scale: float) -> float:
        return super().wobble(3 * scale)


def misread(recognizer: gryphone.Recognizer) -> list[tuple[Image.Image, str, str]]:
    """Up to SHOWN different formulas with a picture, the truth and the answer."""
    found: dict[str, tuple[Image.Image, str, str]] = {}
    for seed in range(30):
        for latex in FORMULAS:
            if latex in found:
                continue
            strokes = CarelessHand(seed).write(latex)
            answer = recognizer.recognize(Ink(tuple(strokes)))
            if list(answer.tokens) != normalize(latex):
                found[latex] = (clean(strokes), latex, answer.latex)
            if len(found) == SHOWN:
                return list(found.values())
    return list(found.values())


def sheet(cases: list[tuple[Image.Image, str, str]]) -> Image.Image:
    """Two columns: the writing, what it means, what was read."""
    rows = (len(cases) + 1) // 2
    page = Image.new("L", (2 * WIDTH, max(rows, 1) * HEIGHT), 255)
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(15)
    for number, (image, truth, answer) in enumerate(cases):
        x, y = number % 2 * WIDTH, number // 2 * HEIGHT
        image.thumbnail((WIDTH - 20, HEIGHT - 60))
        page.paste(image, (x + 10, y + 5))
        pen.text((x + 12, y + HEIGHT - 50), f"is    {truth}", fill=90, font=font)
        pen.text((x + 12, y + HEIGHT - 28), f"read  {answer}", fill=0, font=font)
    return page


def main() -> None:
    """Draw the sheet."""
    cases = misread(gryphone.load())
    sheet(cases).quantize(16).save(sys.argv[1], optimize=True)
    print(f"{sys.argv[1]}: {len(cases)} of {len(FORMULAS)} formulas misread within 30 tries each")
    for _, truth, answer in cases:
        print(f"  {truth}   read as   {answer}")


if __name__ == "__main__":
    main()
