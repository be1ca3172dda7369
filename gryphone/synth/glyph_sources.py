"""Where the bank's glyphs come from: inks, Detexify's drawings, letters, and look-alikes."""

import hashlib
import json
import lzma
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gryphone.data.align import SPELLINGS
from gryphone.data.samples import Sample, Unreadable
from gryphone.errors import DataError
from gryphone.synth.glyphs import (
    Array,
    GlyphBank,
    GlyphSample,
    clean_glyphs,
    join_banks,
    pack_glyphs,
)
from gryphone.synth.symbols import DIGITS, FUNCTIONS, LOWER, UPPER, words

# Drawings that are text, or stand in the bank under another name.
_SKIP = frozenset(
    words(r"""\\ \_ \mid \dots \dotsb \dotsc \dotsi \dotsm \dotso \mathellipsis \ldotp \cdotp
    \mathdollar \mathparagraph \mathsection \mathsterling \mathunderscore \sqrt{}
    \ldots""")
)
# Capitals that people write like the small letter or a digit.
_LOOK_ALIKE = {"K": ("k",), "O": ("o", "0"), "U": ("u",), "W": ("w",), "Z": ("z",)}

# Drawn alike, at another height: each gets the other's glyphs. Whoever drew only one of the two
# would else give it away by the size of the dots.
_SHARED = {".": "\\cdot", "\\cdot": ".", "\\ldots": "\\cdots", "\\cdots": "\\ldots"}

# The letters' files: their writers' capitals are 500 high. Some samples have their place on a line;
# of those that reach below it, this share of the height is below (medians).
_CAPITAL = 500.0
_BELOW = {"g": 0.62, "j": 0.47, "p": 0.55, "q": 0.59, "y": 0.64}
_SIZED = frozenset((*DIGITS, *LOWER, *UPPER))
_NO_MATHEMATICS = frozenset(words(r"""^ ` " @ \_ \# \$"""))
# Named in the letters' README: an epsilon drawn like \in, a G with a bar over it.
_FAULTY = frozenset([("mathbrush unknown", "\\epsilon"), ("unipen val-137342", "G")])
_NOBODY = "mathbrush unknown"  # several people, on pages of different scales
MOST_LETTERS = 8  # of one character by one writer: four people wrote 16 % of UNIPEN

_ASCENDERS, _DESCENDERS = frozenset("bdfhklt"), frozenset("gpqy")


def from_inks(samples: Iterable[Sample | Unreadable]) -> Iterator[GlyphSample]:
    """The segmented symbols of inks; the fraction bar's label is the minus sign's."""
    for sample in samples:
        if not isinstance(sample, Sample) or sample.ink is None:
            continue
        ink = sample.ink
        for glyph in ink.glyphs:
            strokes = tuple(ink.strokes[i] for i in glyph.strokes)
            if strokes and not (glyph.label == "\\div" and len(strokes) == 1):  # two wrote a slash
                writer = ink.writer or _session(sample.id)
                yield GlyphSample(SPELLINGS.get(glyph.label, glyph.label), strokes, writer)


def _session(name: str) -> str | None:
    """Inks without a writer's name are numbered within a session (`200923-1254-13`): one hand."""
    found = re.fullmatch(r"(?:.*/)?(\d+-\d+)-\d+(?:\.inkml)?", name)
    return found[1] if found else None


def from_detexify(path: Path) -> Iterator[GlyphSample]:
    """The drawings of a Detexify file (.jsonl.xz with symbol and strokes)."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                name = str(row["symbol"])
                strokes = tuple(np.array(s, dtype=np.float64) for s in row["strokes"])
            except (KeyError, TypeError, ValueError) as error:
                raise DataError(f"{path}, line {number}: not a Detexify drawing") from error
            name = name.replace("\\mathds{", "\\mathbb{")
            if name not in _SKIP and strokes:
                yield GlyphSample(SPELLINGS.get(name, name), strokes)


def is_held_out(writer: str) -> bool:
    """Whether the letters of a writer are kept for validation: a tenth of the people, by name."""
    return int(hashlib.sha256(writer.encode()).hexdigest(), 16) % 10 == 0


def with_letters(
    bank: GlyphBank, folder: Path, dropped: Counter[str], *, held_out: bool = False
) -> GlyphBank:
    """A bank and the hands of the letters' writers: those to learn from, or those held out."""
    found = list(from_letters(folder, dropped, held_out=held_out))
    kept = clean_glyphs(found)
    dropped["outlier of its class"] += len(found) - len(kept)
    return join_banks(bank, pack_glyphs(kept))


def from_letters(
    folder: Path, dropped: Counter[str], *, held_out: bool = False
) -> Iterator[GlyphSample]:
    """Isolated characters of a folder's .jsonl.xz files; letters and digits with the size that
    their writer gives them. `dropped` counts what is not used.
    """
    paths = sorted(folder.glob("*.jsonl.xz"))
    if not paths:
        raise DataError(f"{folder}: holds no letters (.jsonl.xz)")
    chosen: dict[tuple[str, str], list[GlyphSample]] = {}
    for path in paths:
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    row = json.loads(line)
                    glyph = _letter(row, f"{path.name.partition('.')[0]} {row['writer']}")
                except (KeyError, TypeError, ValueError) as error:
                    raise DataError(f"{path}, line {number}: not a character") from error
                if (glyph.writer is not None and is_held_out(glyph.writer)) is not held_out:
                    continue
                writer = glyph.writer or _NOBODY
                reason = _flaw(glyph, writer)
                if reason is None:
                    chosen.setdefault((writer, glyph.label), []).append(glyph)
                else:
                    dropped[reason] += 1
    for (writer, _), glyphs in chosen.items():
        most = len(glyphs) if writer == _NOBODY else MOST_LETTERS
        dropped["one of many by its writer"] += max(len(glyphs) - most, 0)
        yield from glyphs[:: -(-len(glyphs) // most)][:most]


def _letter(row: dict[str, Any], writer: str) -> GlyphSample:
    label = SPELLINGS.get(str(row["char"]), str(row["char"]))
    strokes = tuple(np.array(s, dtype=np.float64).reshape(-1, 2) for s in row["strokes"])
    height = float(np.concatenate(strokes)[:, 1].max()) / _CAPITAL
    if writer == _NOBODY:
        return GlyphSample(label, strokes)
    top = (_BELOW.get(label, 0.0) - 1) * height
    top = float(row["y"]) / _CAPITAL if "y" in row else top
    stand = (top, top + height) if label in _SIZED else (0.0, 0.0)
    return GlyphSample(label, strokes, writer, stand)


def _flaw(glyph: GlyphSample, writer: str) -> str | None:
    """Why a character is not used, or None."""
    if glyph.label in _NO_MATHEMATICS:
        return "no mathematics"
    if (writer, glyph.label) in _FAULTY:
        return "a known fault of its writer"
    if glyph.label == "0" and _is_crossed(glyph.strokes):
        return "a zero with a slash"
    return None


def _is_crossed(strokes: Sequence[Array]) -> bool:
    """Whether ink passes through the middle of a character's box."""
    points = np.concatenate(strokes)
    low, high = points.min(axis=0), points.max(axis=0)
    steps = np.linspace(0, 1, 20)[:, None, None]
    dense = [(s[:-1] + steps * (s[1:] - s[:-1])).reshape(-1, 2) for s in strokes]
    share = (np.concatenate(dense) - low) / np.maximum(high - low, 1e-9)
    return bool((np.abs(share - 0.5) < 0.14).all(axis=1).any())


def build_bank(
    written: Sequence[GlyphSample],
    drawn: Sequence[GlyphSample],
    traced: Sequence[GlyphSample] = (),
    *,
    enough: int = 60,
    generator: np.random.Generator,
) -> GlyphBank:
    """Clean and pack glyphs: `written` and `traced` ones, `drawn` ones for classes with fewer than
    `enough`, then what none has, put together from their letters and dots.

    Traced glyphs are cleaned by themselves: thinning has its own outliers and stroke counts.
    """
    kept = clean_glyphs(written) + clean_glyphs(traced, spread=3.0)
    have: dict[str, int] = {}
    for glyph in kept:
        have[glyph.label] = have.get(glyph.label, 0) + 1
    kept += clean_glyphs([glyph for glyph in drawn if have.get(glyph.label, 0) < enough])
    kept += [replace(g, label=_SHARED[g.label]) for g in kept if g.label in _SHARED]
    by_class: dict[str, list[GlyphSample]] = {}
    for glyph in kept:
        by_class.setdefault(glyph.label, []).append(glyph)
    return pack_glyphs(kept + list(_made_up(by_class, generator)))


def _made_up(
    bank: dict[str, list[GlyphSample]], generator: np.random.Generator
) -> Iterator[GlyphSample]:
    """Symbols that nobody wrote, composed of what somebody wrote."""
    for capital, letters in _LOOK_ALIKE.items():
        for letter in letters if capital not in bank else ():
            for glyph in bank.get(letter, ()):
                yield GlyphSample(capital, glyph.strokes, glyph.writer)
    for glyph in bank.get("j", ()) if "J" not in bank else ():
        if len(glyph.strokes) == 2:  # a j without its dot
            body = max(glyph.strokes, key=lambda s: float(np.ptp(s[:, 1])))
            yield GlyphSample("J", (body,), glyph.writer)
    for glyph in bank.get("2", ())[:1000] if "?" not in bank else ():
        if len(glyph.strokes) == 1:
            yield GlyphSample("?", _question_mark(glyph.strokes[0]), glyph.writer)
    for name, parts in _COMPOSED.items():
        if name not in bank and all(part in bank or part == "\\" for part, *_ in parts):
            yield from _compose(name, parts, bank, 400, generator)
    for wide in np.exp(np.linspace(-1.2, 1.0, 30)) if "\\binom" not in bank else ():
        edge = 0.16 * min(wide, 1.5)  # brackets of every aspect: a frame looks for its shape
        parts = (("(", 0, 0, edge, 1), (")", wide - edge, 0, wide, 1))
        if "(" in bank and ")" in bank:
            yield from _compose("\\binom", parts, bank, 10, generator)
    for name in FUNCTIONS:
        word = name[1:]
        if name not in bank and all(letter in bank for letter in word):
            yield from _compose(name, _spell(word), bank, 80, generator)


# Part, and its box (x0, y0, x1, y1; y down) in a unit of which only the proportions matter.
_Part = tuple[str, float, float, float, float]
_COMPOSED: dict[str, tuple[_Part, ...]] = {
    ":": ((".", 0, 0, 0.1, 0.1), (".", 0, 0.5, 0.1, 0.6)),
    ";": ((".", 0, 0, 0.1, 0.1), (",", -0.05, 0.45, 0.1, 0.75)),
    "\\ddot": ((".", 0, 0, 0.1, 0.1), (".", 0.35, 0, 0.45, 0.1)),
    "D": (("|", -0.03, 0, 0.03, 1), (")", -0.08, -0.02, 0.6, 1.02)),
    "Q": (("0", 0, 0, 0.8, 1), ("\\", 0.5, 0.7, 0.95, 1.1)),
}
_TAIL = (np.array([[0.0, 0.0], [0.55, 0.6], [1.0, 1.0]]),)


def _question_mark(two: Array) -> tuple[Array, ...]:
    """A two without its foot, and a dot below."""
    low, high = two.min(axis=0), two.max(axis=0)
    size = float((high - low).max())
    corner = int((two[:, 1] - two[:, 0]).argmax())  # bottom left, where the foot begins
    hook = two[: max(corner, 2)].copy()
    # The diagonal ends in the middle, going straight down.
    end = (low[0] + high[0]) / 2
    fall = np.clip((hook[:, 1] - low[1]) / max(size, 1e-9) - 0.45, 0, None)
    hook[:, 0] = np.where(fall > 0, np.maximum(hook[:, 0], end - 0.1 * size), hook[:, 0])
    hook[:, 1] = low[1] + (hook[:, 1] - low[1]) * 0.8
    dot = np.array([[0.0, 0.0], [0.03, 0.02]]) * size + np.array([end, low[1] + 1.02 * size])
    return hook, dot


def _spell(word: str) -> tuple[_Part, ...]:
    parts: list[_Part] = []
    x = 0.0
    for letter in word:
        top = -1.0 if letter in _ASCENDERS or letter.isupper() else -0.62
        top = -0.9 if letter == "i" else top
        bottom = 0.35 if letter in _DESCENDERS else 0.0
        width = {"m": 0.85, "i": 0.15, "l": 0.2, "t": 0.4, "r": 0.4}.get(letter, 0.55)
        parts.append((letter, x, top, x + width, bottom))
        x += width + 0.13
    return tuple(parts)


def _compose(
    name: str,
    parts: Sequence[_Part],
    bank: dict[str, list[GlyphSample]],
    count: int,
    generator: np.random.Generator,
) -> Iterator[GlyphSample]:
    """`count` glyphs out of parts in boxes; one writer's parts where that writer has them."""
    anchors = bank[parts[0][0]]
    writers: dict[tuple[str, str | None], list[GlyphSample]] = {}
    for part, *_ in parts:
        for glyph in bank.get(part, ()):
            writers.setdefault((part, glyph.writer), []).append(glyph)
    for _ in range(count):
        writer = anchors[int(generator.integers(len(anchors)))].writer
        strokes: list[Array] = []
        for part, *box in parts:
            pool = writers.get((part, writer)) or bank.get(part)
            source = pool[int(generator.integers(len(pool)))].strokes if pool else _TAIL
            strokes += _into(source, np.array(box) + generator.normal(0, 0.02, 4))
        yield GlyphSample(name, tuple(strokes), writer)


def _into(strokes: Sequence[Array], box: Array) -> list[Array]:
    """Strokes stretched into a box, but never by more than a factor of 2.5 against their aspect."""
    points = np.concatenate(strokes)
    low, high = points.min(axis=0), points.max(axis=0)
    size = np.maximum(high - low, 1e-9)
    scale = np.maximum(box[2:] - box[:2], 0.01) / size
    if size.min() < 1e-6 * size.max():
        scale[:] = scale.min()
    scale = np.minimum(scale, 2.5 * scale.min())
    centre = (box[:2] + box[2:]) / 2
    return [(stroke - (low + high) / 2) * scale + centre for stroke in strokes]
