"""How pages of several formulas are read, against reading each of their lines alone.

    gryphone study pages --set valid-2023 --limit 300

Real inks are written below each other, as ink and on simulated paper (synth/photographs.py). A line
is found where one formula has its strokes and no others. Then every ink alone is read as a page of
one formula, and as a formula: no formula should be cut apart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from gryphone.data.datasets import read_dataset
from gryphone.data.samples import Sample
from gryphone.errors import ConfigError, GryphoneError, writing
from gryphone.ink import Floats, Ink, Stroke, typical_stroke
from gryphone.reading.inputs import Input, read_input
from gryphone.recognition.page_result import Formula
from gryphone.recognition.recognizer import Recognizer
from gryphone.release.card import table
from gryphone.studies.invariance import is_right
from gryphone.synth.paper import place_strokes, render_page
from gryphone.synth.photographs import some_paper

LINES = (2, 8)  # of a page
GAPS = (0.4, 2.0)  # of paper between lines, in usual strokes
SIZES = (0.85, 1.18)  # of a line's writing
INDENT = 3.0  # usual strokes
SLOPE, OWN_SLOPE = 3.0, 1.0  # degrees: of the page, and of each line besides


@dataclass(frozen=True)
class Page:
    """Several inks on one page: where each of them has its strokes, and what it says."""

    ink: Ink
    lines: tuple[tuple[int, ...], ...]
    truths: tuple[str, ...]
    names: tuple[str, ...]


def made_up(samples: Sequence[Sample], generator: np.random.Generator) -> Page:
    """Inks written below each other, with uneven gaps, sizes, indents and slopes."""
    uniform = generator.uniform
    strokes: list[Stroke] = []
    lines = []
    low = 0.0
    for sample in samples:
        own = sample.ink.strokes if sample.ink is not None else ()
        size = uniform(*SIZES) / (typical_stroke(own) or 1.0)
        placed = _turned([s * size for s in own], uniform(-OWN_SLOPE, OWN_SLOPE))
        points = np.concatenate(placed)
        corner = np.array([uniform(0, INDENT), low]) - points.min(0)
        lines.append(tuple(range(len(strokes), len(strokes) + len(placed))))
        strokes += [s + corner for s in placed]
        low += float(np.ptp(points[:, 1])) + uniform(*GAPS)
    ink = Ink(tuple(_turned(strokes, uniform(-SLOPE, SLOPE))), id=samples[0].id)
    return Page(
        ink, tuple(lines), tuple(s.label or "" for s in samples), tuple(s.id for s in samples)
    )


def _turned(strokes: Sequence[Stroke], degrees: float) -> list[Stroke]:
    angle = np.radians(degrees)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return [s @ turn for s in strokes]


def pages_of(samples: Sequence[Sample], seed: int) -> Iterator[Page]:
    """All inks once, on pages of 2 to 8 lines; the same pages for the same seed."""
    generator = np.random.default_rng(seed)
    left = [samples[i] for i in generator.permutation(len(samples))]
    while len(left) >= LINES[0]:
        count = int(generator.integers(LINES[0], LINES[1] + 1))
        yield made_up(left[:count], generator)
        left = left[count:]


@dataclass(frozen=True)
class Row:
    """What became of the lines of some pages."""

    name: str
    pages: int
    lines: int
    formulas: int  # that were found, right or wrong
    found: int  # lines that are one formula, stroke by stroke
    right: int
    alone: int  # right where the line is read alone
    pages_right: int
    pages_alone: int

    def cells(self) -> list[str]:
        """For a table, in percent."""
        return [
            self.name,
            f"{self.pages}",
            f"{self.lines}",
            _percent(self.found, self.lines),
            _percent(self.found, self.formulas),
            _percent(self.right, self.lines),
            _percent(self.alone, self.lines),
            _percent(self.pages_right, self.pages),
            _percent(self.pages_alone, self.pages),
        ]


HEADER = "pages of|pages|lines|recall|precision|lines right|alone|pages right|alone"


def _percent(count: int, of: int) -> str:
    return f"{100 * count / max(of, 1):.1f}"


def shares(given: Ink, lines: Sequence[Sequence[Stroke]]) -> Floats:
    """(strokes, lines): the length of each stroke, at the line that it lies on."""
    out = np.zeros((len(given.strokes), len(lines)))
    points = [np.concatenate([_dense(s) for s in line]) for line in lines]
    for i, stroke in enumerate(given.strokes):
        some = stroke[:: max(1, len(stroke) // 10)]
        gaps = [float(((some[:, None] - own[None]) ** 2).sum(2).min(1).mean()) for own in points]
        out[i, int(np.argmin(gaps))] = 1 + np.hypot(*np.diff(stroke, axis=0).T).sum()
    return out


def _dense(stroke: Stroke, count: int = 24) -> Stroke:
    at = np.linspace(0, len(stroke) - 1, count)
    return np.stack([np.interp(at, np.arange(len(stroke)), stroke[:, k]) for k in (0, 1)], 1)


ENOUGH = 0.97  # of a line's ink, and of a formula's: a speck of dust is nobody's


def count_page(
    formulas: Sequence[Formula], truths: Sequence[str], owned: Floats
) -> tuple[list[bool], list[bool]]:
    """Which lines were found, and which are right; owned (strokes, lines) is how long each is."""
    found, right = [], []
    for line, truth in enumerate(truths):
        best, share, purity = None, 0.0, 0.0
        for formula in formulas:
            own = owned[list(formula.strokes)]
            part = own[:, line].sum() / max(owned[:, line].sum(), 1e-9)
            if part > share:
                best, share, purity = formula, part, own[:, line].sum() / max(own.sum(), 1e-9)
        found.append(share >= ENOUGH and purity >= ENOUGH)
        right.append(best is not None and share > 0.5 and is_right(best.result.latex, truth))
    return found, right


def measure(
    recognizer: Recognizer,
    name: str,
    pages: Sequence[Page],
    photo: bool,
    progress: Callable[[int], None] = lambda done: None,
) -> Row:
    """Read pages, and each of their lines alone."""
    sums = np.zeros(7, dtype=int)
    for number, page in enumerate(pages):
        given, alone, lines = pictured(page, number) if photo else as_ink(page)
        answers = recognizer.recognize_many(alone, boxes=False, errors="return")
        single = [
            not isinstance(a, GryphoneError) and is_right(a.latex, t)
            for a, t in zip(answers, page.truths, strict=True)
        ]
        formulas = recognizer.recognize_page(given, boxes=False).formulas
        found, right = count_page(formulas, page.truths, shares(given.ink, lines))
        counts = len(lines), len(formulas), sum(found), sum(right), sum(single)
        sums += [*counts, all(right), all(single)]
        progress(number + 1)
    return Row(name, len(pages), *sums.tolist())


def as_ink(page: Page) -> tuple[Input, list[Input], list[list[Stroke]]]:
    """A page as a pen wrote it, each line alone, and the strokes of each."""
    lines = [[page.ink.strokes[i] for i in line] for line in page.lines]
    alone = [Input(Ink(tuple(line), id=n)) for line, n in zip(lines, page.names, strict=True)]
    return Input(page.ink), alone, lines


def pictured(page: Page, seed: int) -> tuple[Input, list[object], list[list[Stroke]]]:
    """The same on paper: as it is traced, pictures of each line alone, and where the lines are."""
    paper = some_paper(np.random.default_rng(seed))
    picture = render_page(page.ink.strokes, paper, np.random.default_rng(seed))
    placed, _ = place_strokes(page.ink.strokes, paper)
    lines = [[placed[i] for i in line] for line in page.lines]
    alone: list[object] = []
    for number, line in enumerate(page.lines):
        own = [page.ink.strokes[i] for i in line]
        # As large as on the page, whose usual stroke may be another.
        size = typical_stroke(own) / typical_stroke(page.ink.strokes)
        same = replace(paper, symbol=max(4.0, paper.symbol * size))
        alone.append(render_page(own, same, np.random.default_rng((seed, number))))
    return read_input(picture), alone, lines


def one_formula(
    recognizer: Recognizer, samples: Sequence[Sample], progress: Callable[[int], None]
) -> tuple[int, int, int, list[tuple[str, str, str, tuple[str, ...]]]]:
    """Right as a formula, right as a page, equal, and all that the page has cut or changed."""
    formula = page = same = 0
    cut = []
    for number, sample in enumerate(samples):
        alone = recognizer.recognize(sample.ink, boxes=False)
        found = recognizer.recognize_page(sample.ink, boxes=False)
        truth = sample.label or ""
        formula += is_right(alone.latex, truth)
        page += len(found.formulas) == 1 and is_right(found.latex, truth)
        whole = len(found.formulas) == 1 and not found.asides
        same += whole and found.latex == alone.latex
        if not (whole and found.latex == alone.latex):
            kinds = (f"{a.kind}: {a.guess}" for a in found.asides)
            cut.append((sample.id, truth, alone.latex, (*found.separate, *kinds)))
        progress(number + 1)
    return formula, page, same, cut


def study(
    recognizer: Recognizer,
    sets: dict[str, Path],
    out: Path,
    limit: int | None,
    progress: Callable[[str, int], Callable[[int], None]],
) -> Path:
    """Read the pages of some sets and write what was found; returns the Markdown."""
    rows, lone, data = [], [], {}
    for name, path in sets.items():
        every = [s for s in read_dataset(path) if isinstance(s, Sample) and s.ink and s.label]
        if len(every) < LINES[0]:
            raise ConfigError(f"{path}: holds {len(every)} labelled inks; a page needs {LINES[0]}")
        few = [every[i] for i in np.random.default_rng(0).permutation(len(every))[:limit]]
        pages = list(pages_of(few, seed=0))
        for photo in (False, True):
            title = f"{name}, {'photos' if photo else 'ink'}"
            rows.append(measure(recognizer, title, pages, photo, progress(title, len(pages))))
        count = len(every)
        formula, page, same, cut = one_formula(recognizer, every, progress(name, count))
        lone.append([name, f"{count}", f"{same}", f"{formula}", f"{page}"])
        data[name] = cut
    lines = ["# Pages", "", "In percent of lines, formulas and pages.", ""]
    lines += [table(HEADER, [row.cells() for row in rows]), "", "## Pages of one formula", ""]
    lines += [table("set|inks|the same answer|right as a formula|right as a page", lone), ""]
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        (out / "pages.md").write_text("\n".join(lines), encoding="utf-8")
        found = {"rows": [asdict(row) for row in rows], "other answers": data}
        text = json.dumps(found, ensure_ascii=False, indent=1)
        (out / "pages.json").write_text(text + "\n", encoding="utf-8")
    return out / "pages.md"
