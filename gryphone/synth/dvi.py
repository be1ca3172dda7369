"""Reads TeX's DVI output into marked ink boxes: which token drew which ink, and where.

Marks are numbers in `\\special`s. TeX brackets every box with push and pop, so a mark holds for
the rest of its box and for the boxes inside: a fraction bar, set after the numerator, still
belongs to the mark that stood before the fraction.
"""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gryphone.errors import DataError, MissingExtra

UNMARKED = -1  # ink before the first mark, or of a character without metrics
EM = 10 * 65536.0  # DVI units (scaled points) per em of a ten-point font


@dataclass(frozen=True)
class InkBox:
    """The ink of one printed character or rule, in em, y down; `size` 1 is a 10 pt font."""

    mark: int
    x0: float
    y0: float
    x1: float
    y1: float
    baseline: float
    size: float


@dataclass(frozen=True)
class Page:
    """One shipped-out box: TeX's \\count0, the height of its first mark, every piece of ink."""

    number: int
    baseline: float
    boxes: tuple[InkBox, ...]


# Advance width and ink box (left, bottom, right, top; y up) of one character, in em.
Metric = tuple[float, float, float, float, float]


class FontMetrics:
    """True ink boxes of TeX's Type 1 fonts, from their AFM files (TFM boxes are too loose)."""

    def __init__(self) -> None:
        self._fonts: dict[str, dict[int, Metric]] = {}

    def __getitem__(self, name: str) -> dict[int, Metric]:
        if name not in self._fonts:
            path = _find_afm(name)
            self._fonts[name] = {} if path is None else _read_afm(path)
        return self._fonts[name]


def _find_afm(name: str) -> Path | None:
    if shutil.which("kpsewhich") is None:
        raise MissingExtra("TeX is not installed; run: apt-get install texlive-latex-recommended")
    found = subprocess.run(["kpsewhich", f"{name}.afm"], capture_output=True, text=True).stdout
    return Path(found.strip()) if found.strip() else None


def _read_afm(path: Path) -> dict[int, Metric]:
    chars: dict[int, Metric] = {}
    for line in path.read_text("latin-1").splitlines():
        if line.startswith("C ") and not line.startswith("C -1"):
            fields = {k: v for k, *v in (part.split() for part in line.split(";") if part.strip())}
            box = [float(v) / 1000 for v in fields["B"]]
            chars[int(fields["C"][0])] = (float(fields["WX"][0]) / 1000, *box)  # type: ignore[assignment]
    return chars


def read_dvi(data: bytes, fonts: FontMetrics) -> Iterator[Page]:
    """Yield the pages of a DVI file."""
    return _Reader(data, fonts).pages()


# First opcode of each kind of move, the register that keeps it (if any), across (0) or down (1).
_MOVES = ((166, "z", 1), (161, "y", 1), (157, "", 1), (152, "x", 0), (147, "w", 0), (143, "", 0))


class _Reader:
    """The DVI machine: position registers, a stack, a current font and the current mark."""

    def __init__(self, data: bytes, fonts: FontMetrics) -> None:
        self.data, self.at, self.fonts = data, 0, fonts
        self.defined: dict[int, tuple[dict[int, Metric], float]] = {}
        self.first_mark = 0.0

    def number(self, size: int, signed: bool = False) -> int:
        value = int.from_bytes(self.data[self.at : self.at + size], "big", signed=signed)
        self.at += size
        return value

    def define_font(self, op: int) -> None:
        key = self.number(op - 242)
        self.at += 4  # checksum
        scaled, _ = self.number(4), self.number(4)
        length = self.number(1) + self.number(1)
        name = self.data[self.at : self.at + length].decode("ascii")
        self.at += length
        self.defined[key] = (self.fonts[name], scaled / EM)

    def pages(self) -> Iterator[Page]:
        while self.at < len(self.data):
            op = self.number(1)
            if op == 247:  # preamble
                self.at += 13
                comment = self.number(1)
                self.at += comment
            elif op == 139:  # beginning of page
                number = self.number(4, signed=True)
                self.at += 40
                boxes = tuple(self.page())
                yield Page(number, self.first_mark, boxes)
            elif 243 <= op <= 246:
                self.define_font(op)
            elif op == 248:  # postamble: nothing more to draw
                return
            elif op != 138:
                raise DataError(f"DVI byte {self.at - 1}: unexpected opcode {op} between pages")

    def page(self) -> Iterator[InkBox]:
        place = [0.0, 0.0]  # across, down
        kept = dict.fromkeys(("", *"wxyz"), 0.0)
        mark, marked = UNMARKED, False
        stack: list[tuple[list[float], dict[str, float], int]] = []
        chars: dict[int, Metric] = {}
        size = 1.0
        while True:
            op = self.number(1)
            x, y = place[0] / EM, place[1] / EM
            if op <= 128 or op == 133:  # set or put a character
                code = op if op < 128 else self.number(1)
                width, left, bottom, right, top = chars.get(code, (0.0,) * 5)
                yield InkBox(
                    mark if code in chars else UNMARKED,
                    x + left * size,
                    y - top * size,
                    x + right * size,
                    y - bottom * size,
                    y,
                    size,
                )
                if op != 133:
                    place[0] += width * size * EM
            elif op == 141:
                stack.append((place.copy(), kept.copy(), mark))
            elif op == 142:
                place, kept, mark = stack.pop()
            elif 143 <= op <= 170:
                first, register, axis = next(move for move in _MOVES if op >= move[0])
                length = op - first + (not register)
                if length:  # or as far as the last time
                    kept[register] = self.number(length, signed=True)
                place[axis] += kept[register]
            elif 171 <= op <= 234:
                chars, size = self.defined[op - 171]
            elif 235 <= op <= 238:
                chars, size = self.defined[self.number(op - 234)]
            elif op in (132, 137):  # set or put a rule
                height, width = self.number(4, signed=True), self.number(4, signed=True)
                if height > 0 and width > 0:
                    yield InkBox(mark, x, y - height / EM, x + width / EM, y, y, size)
                if op == 132:
                    place[0] += width
            elif 239 <= op <= 242:  # \special
                length = self.number(op - 238)
                text = self.data[self.at : self.at + length]
                self.at += length
                self.first_mark = self.first_mark if marked else y
                marked = True
                mark = int(text) if text.isdigit() else mark
            elif 243 <= op <= 246:
                self.define_font(op)
            elif op == 140:
                return
            elif op != 138:
                raise DataError(f"DVI byte {self.at - 1}: unexpected opcode {op} in a page")
