"""Typesets formulas with real TeX and reads back where each symbol's ink stands."""

import random
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from gryphone.errors import DataError, MissingExtra
from gryphone.synth.dvi import UNMARKED, FontMetrics, InkBox, Page, read_dvi
from gryphone.synth.layouts import EmBox, Layout, Slot
from gryphone.synth.symbols import (
    BIG_OPERATORS,
    BRACKET_PAIRS,
    GLYPHLESS,
    Fit,
    drawn_classes,
    fit_of,
)
from gryphone.tokens import openers_of

Pairs = Sequence[tuple[str, str]]

_WITH_LIMITS = BIG_OPERATORS | {"\\lim", "\\max", "\\min", "\\sup", "\\inf", "\\limsup", "\\liminf"}

# What TeX sets with words or room of its own.
_SPELT = {"\\mod": "\\operatorname{mod}"}

_PREAMBLE = r"""\documentclass{article}
\usepackage{amsmath,amssymb}
\batchmode
\begin{document}
\catcode`\:=11 \catcode`\_=11 \let\ship\tex_shipout:D \catcode`\_=8 \catcode`\:=12
\def\m#1 {\special{#1}}
\def\dfrac#1#2{\frac{\displaystyle#1}{\displaystyle#2}}
\def\llbracket{[\kern-.15em[}\def\rrbracket{]\kern-.15em]}\def\fint{\int}
\delimitershortfall=3pt
\def\f#1 {\count0=#1 \ship\hbox}
"""
# A finished paragraph resets TeX's count of errors, which would stop the run at one hundred.
_RESET = "\\setbox0\\vbox{\\leavevmode\\par}\n"


def split_modifier(modifier: str) -> tuple[str, str]:
    """What stands before the symbol and what stands behind it."""
    opening = openers_of(modifier)
    return modifier[:opening], modifier[opening:]


def script_depths(pairs: Pairs) -> list[tuple[int, int]]:
    """For each symbol: how many scripts it is inside of, and superscripts minus subscripts."""
    stack: list[int] = []
    depths: list[tuple[int, int]] = []
    for _, modifier in pairs:
        before, behind = split_modifier(modifier)
        kind = 0
        for mark in before:
            if mark in "^_":
                kind = 1 if mark == "^" else -1
            else:
                stack.append(kind)
                kind = 0
        depths.append((sum(1 for k in stack if k), sum(stack)))
        for _ in behind[: len(stack)]:
            stack.pop()
    return depths


def matched_brackets(pairs: Pairs) -> dict[int, int]:
    """Brackets that open and close in the same group: index of the opening to the closing one."""
    partner: dict[int, int] = {}
    levels: list[list[int]] = [[]]
    for at, (symbol, modifier) in enumerate(pairs):
        before, behind = split_modifier(modifier)
        for mark in before:
            if mark in "{[":
                levels.append([])
        level = levels[-1]
        # Two bars at once open a norm: the second one closes nothing.
        doubled = symbol == "|" and bool(level) and level[-1] == at - 1
        if level and not doubled and BRACKET_PAIRS.get(pairs[level[-1]][0]) == symbol:
            partner[level.pop()] = at
        elif symbol in BRACKET_PAIRS:
            level.append(at)
        elif symbol.startswith("\\begin"):
            levels.append([])
        elif symbol.startswith("\\end") and len(levels) > 1:
            levels.pop()
        elif symbol in GLYPHLESS:
            level.clear()
        for _ in behind[: len(levels) - 1]:
            levels.pop()
    return partner


def limit_starts(pairs: Pairs) -> set[int]:
    """The symbols that begin a limit: a script of a big operator, \\lim and the like."""
    starts: set[int] = set()
    owners: list[int] = []  # whose script or argument each open group is
    last = -1  # what a script would attach to now
    for at, (_, modifier) in enumerate(pairs):
        before, behind = split_modifier(modifier)
        if before[:1] in ("^", "_") and last >= 0 and pairs[last][0] in _WITH_LIMITS:
            starts.add(at)
        owners += [last if before[:1] in ("^", "_") else at - 1] * sum(m in "{[" for m in before)
        last = at
        for _ in behind[: len(owners)]:
            last = owners.pop()
    return starts


def to_tex(pairs: Pairs, choose: random.Random) -> str:
    """TeX source in which a numbered mark stands before every symbol.

    Labels do not say how large brackets are or where limits stand; `choose` decides as people do.
    """
    pairing = matched_brackets(pairs)
    closing = set(pairing.values())
    depths = script_depths(pairs)
    big_fractions = choose.random() < 0.75
    side_limits = choose.random() < 0.15
    over_limits = choose.random() < 0.35
    # People write limits larger than other scripts.
    limits = limit_starts(pairs) if choose.random() < 0.75 else set()
    text: list[str] = []
    for at, (symbol, modifier) in enumerate(pairs):
        before, behind = split_modifier(modifier)
        text += [before, "\\textstyle" if at in limits else "", f"\\m{at} "]
        if at in pairing:
            text.append("\\left")
        elif at in closing:
            text.append("\\right")
        if symbol == "\\frac" and big_fractions and not depths[at][0]:
            symbol = "\\dfrac"
        text += [_SPELT.get(symbol, symbol), " "]
        if symbol in BIG_OPERATORS and at + 1 < len(pairs) and pairs[at + 1][1][:1] in ("^", "_"):
            if symbol.endswith("int"):
                text.append("\\limits" if over_limits else "")
            else:
                text.append("\\nolimits" if side_limits else "\\limits")
        text.append(behind)
    return "".join(text)


def run_tex(sources: Sequence[str], fonts: FontMetrics) -> tuple[dict[int, Page], set[int]]:
    """Typeset each source on a page of its own: the pages by index, and the indices TeX refused."""
    if shutil.which("latex") is None:
        raise MissingExtra("latex is not installed; run: apt-get install texlive-latex-recommended")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with (place / "f.tex").open("w", encoding="ascii") as file:
            file.write(_PREAMBLE)
            for number, source in enumerate(sources):
                file.write(f"\\f{number} {{$\\displaystyle{source}$}}\n{_RESET}")
            file.write("\\stop\n")
        subprocess.run(["latex", "f.tex"], cwd=place, capture_output=True, check=False)
        log, dvi = place / "f.log", place / "f.dvi"
        if not dvi.exists():
            raise DataError(f"TeX wrote nothing; its log ends: {log.read_text('latin-1')[-500:]}")
        pages = {page.number: page for page in read_dvi(dvi.read_bytes(), fonts)}
        return pages, _refused(log.read_text("latin-1"))


def _refused(log: str) -> set[int]:
    """Pages with an error: TeX logs `! ...` before it logs the page's number in brackets."""
    bad: set[int] = set()
    error = False
    for line in log.splitlines():
        error = error or line.startswith("!")
        for word in line.split("[")[1:]:
            number = word.split("]")[0]
            if number.isdigit():
                if error:
                    bad.add(int(number))
                error = False
    return bad


def typeset(
    formulas: Iterable[Pairs],
    boxes: Mapping[str, EmBox],
    dropped: Counter[str],
    *,
    seed: int = 0,
    batch: int = 4000,
) -> Iterator[Layout]:
    """Layouts of formulas given as symbol-modifier pairs; what cannot be set is counted.

    `boxes` are the class boxes that the layouts will be used with; slots are centred for them.
    """
    fonts = FontMetrics()
    choose = random.Random(seed)
    waiting: list[Pairs] = []
    for pairs in formulas:
        waiting.append(pairs)
        if len(waiting) == batch:
            yield from _typeset(waiting, boxes, dropped, choose, fonts)
            waiting = []
    if waiting:
        yield from _typeset(waiting, boxes, dropped, choose, fonts)


def _typeset(
    formulas: Sequence[Pairs],
    class_boxes: Mapping[str, EmBox],
    dropped: Counter[str],
    choose: random.Random,
    fonts: FontMetrics,
) -> Iterator[Layout]:
    pages, refused = run_tex([to_tex(pairs, choose) for pairs in formulas], fonts)
    for number, pairs in enumerate(formulas):
        page = pages.get(number)
        if page is None or number in refused:
            dropped["TeX refused it"] += 1
            continue
        layout = _layout(pairs, page, class_boxes)
        if layout is None:
            dropped["ink without a symbol, or a symbol without ink"] += 1
            continue
        yield layout


def _layout(pairs: Pairs, page: Page, boxes: Mapping[str, EmBox]) -> Layout | None:
    """One slot for each symbol, around all ink that bears its mark."""
    ink: list[list[InkBox]] = [[] for _ in pairs]
    for box in page.boxes:
        if box.mark == UNMARKED:
            return None
        ink[box.mark].append(box)
    slots: list[Slot] = []
    rises = script_depths(pairs)
    for at, name in enumerate(drawn_classes(pairs)):
        if name is None:
            continue
        class_box = boxes.get(name)
        if not ink[at] or class_box is None:
            return None
        fit = fit_of(pairs[at][0])
        slots.append(_slot(name, at, fit, rises[at][1], ink[at], page.baseline, class_box))
    return Layout(tuple(pairs), tuple(slots)) if slots else None


def _slot(
    name: str, at: int, fit: Fit, rise: int, ink: Sequence[InkBox], zero: float, box: EmBox
) -> Slot:
    x0, x1 = min(b.x0 for b in ink), max(b.x1 for b in ink)
    y0, y1 = min(b.y0 for b in ink) - zero, max(b.y1 for b in ink) - zero
    if fit is Fit.NATURAL:
        size = ink[0].size
        x = (x0 + x1) / 2 - (box[2] - box[0]) / 2 * size
        return Slot(name, at, fit, rise, x, ink[0].baseline - zero, size, 0.0)
    return Slot(name, at, fit, rise, x0, y0, x1 - x0, y1 - y0)


# Classes that TeX sets only around something else, or not at all.
_PLAIN_BOX: EmBox = (0.05, -0.7, 0.75, 0.0)


def class_boxes(classes: Sequence[str], dropped: Counter[str]) -> dict[str, EmBox]:
    """The printed ink of each class at text size: left, top, right, bottom from its baseline."""
    pages, refused = run_tex([f"\\m0 {name}" for name in classes], FontMetrics())
    boxes: dict[str, EmBox] = {}
    for number, name in enumerate(classes):
        page = pages.get(number)
        ink = page.boxes if page else ()
        if number in refused or not ink or any(box.mark == UNMARKED for box in ink):
            dropped[f"class {name} has no printed box"] += 1
            boxes[name] = _PLAIN_BOX
            continue
        zero = ink[0].baseline
        boxes[name] = (
            min(box.x0 for box in ink),
            min(box.y0 for box in ink) - zero,
            max(box.x1 for box in ink),
            max(box.y1 for box in ink) - zero,
        )
    return boxes
