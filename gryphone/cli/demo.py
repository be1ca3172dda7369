"""The bundled examples, read: truth beside answer, and a picture of one refinement."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gryphone.errors import DataError, GryphoneError
from gryphone.ink import Ink
from gryphone.latex.normalize import normalize
from gryphone.recognition.question import Step
from gryphone.recognition.recognizer import Recognizer

BUNDLED = Path(__file__).parent / "examples"  # some of the repository's, in every installation
EXAMPLE_KINDS = {"ink": ".inkml", "clean": ".png", "photo": ".jpg"}
CELL, LINE, MARGIN = 58, 46, 24


def run(
    recognizer: Recognizer, out: Path, echo: Callable[[str], None], folder: Path = BUNDLED
) -> dict[str, tuple[int, int]]:
    """Read every example as ink, image and photo; (right, all) of each kind."""
    truths = _truths(folder)
    tally: dict[str, tuple[int, int]] = {}
    for kind, suffix in EXAMPLE_KINDS.items():
        right = 0
        echo(f"\n{kind}")
        for name, truth in truths.items():
            began = time.perf_counter()
            try:
                result = recognizer.recognize(folder / kind / f"{name}{suffix}")
            except GryphoneError as error:
                echo(f"  error  {error}")
                continue
            same = list(result.tokens) == normalize(truth)
            right += same
            ms = 1000 * (time.perf_counter() - began)
            mark = "right" if same else "WRONG"
            echo(f"  {mark}  {100 * result.confidence:3.0f} %  {ms:4.0f} ms  {truth}")
            if not same:
                echo(f"         read as              {result.latex}")
        tally[kind] = (right, len(truths))
    echo("\n" + ", ".join(f"{kind}: {a} of {b} right" for kind, (a, b) in tally.items()))
    longest = max(truths, key=lambda name: len(truths[name]))
    encoded = recognizer.encode(folder / "ink" / f"{longest}.inkml")
    steps: list[Step] = []
    encoded.decode(steps=10, on_step=steps.append)
    draw_refinement(encoded.ink, steps, out)
    echo(f"refinement of {longest}: {out}")
    return tally


def _truths(folder: Path) -> dict[str, str]:
    """Names and truths of the examples."""
    labels = folder / "clean" / "labels.tsv"
    try:
        lines = labels.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", error)
        raise DataError(
            f"{labels}: cannot be read ({reason}); give a folder such as examples/ of the "
            "repository, or none"
        ) from error
    pairs = (line.partition("\t") for line in lines if line.strip())
    truths = {name: truth for name, _, truth in pairs}
    if not truths:
        raise DataError(f"{labels}: names no example; write lines of name<TAB>LaTeX")
    return truths


def draw_refinement(ink: Ink, steps: Sequence[Step], out: Path) -> None:
    """A picture: the ink, then one line of tokens per step; grey was hidden, red has changed."""
    from PIL import Image, ImageDraw, ImageFont

    font, small = ImageFont.load_default(15), ImageFont.load_default(11)
    most = max(len(step.rows) for step in steps)
    width = 2 * MARGIN + CELL * (most + 1)
    top = MARGIN + 240
    image = Image.new("RGB", (width, top + LINE * len(steps) + MARGIN), "white")
    pencil = ImageDraw.Draw(image)
    left, upper, right, lower = ink.bounds
    scale = min((width - 2 * MARGIN) / max(right - left, 1e-9), 220 / max(lower - upper, 1e-9))
    for stroke in ink.strokes:
        points = (stroke - [left, upper]) * scale + MARGIN
        pencil.line([(float(x), float(y)) for x, y in points], fill="black", width=2)
    before: tuple[tuple[str, ...], ...] = ()
    for number, step in enumerate(steps):
        y = top + LINE * number
        pencil.text((MARGIN, y + 12), f"{step.number}", fill="black", font=font)
        for place, (symbol, *marks) in enumerate(step.rows):
            x = MARGIN + CELL * (place + 1)
            fill = "#e2e2e2" if place in step.masked else "white"
            changed = number > 0 and before[place : place + 1] != (step.rows[place],)
            pencil.rectangle((x, y, x + CELL - 4, y + LINE - 6), fill=fill, outline="#b0b0b0")
            color = "#c00000" if changed else "black"
            pencil.text((x + 4, y + 3), symbol, fill=color, font=font)
            pencil.text((x + 4, y + 23), "".join(marks), fill=color, font=small)
        before = step.rows
    try:
        image.save(out)
    except (OSError, ValueError) as error:
        raise DataError(f"{out}: cannot write the picture: {error}") from error
