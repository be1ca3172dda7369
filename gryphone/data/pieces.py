"""Pieces of real ink, and several of them in a row: what people write before a formula is done.

Lone symbols are glyphs cut out by their segmentation. Beginnings end where a symbol does, in the
order in which the pen wrote (see gryphone/latex/unfinished.py for their labels). Rows put formulas
of one writer side by side, at one size and on one line. Struck-out inks have a symbol or two too
much, with lines through them: the label does not have those, and the segmentation calls them PAD.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from gryphone.data.align import SPELLINGS, Agreement, align
from gryphone.data.samples import Sample, Samples, Unreadable
from gryphone.errors import DataError, GryphoneError
from gryphone.ink import Glyph, Ink, Stroke, in_order, typical_stroke
from gryphone.latex.normalize import normalize
from gryphone.latex.unfinished import unfinished
from gryphone.latex.validity import is_valid
from gryphone.tokens import PAD, openers_of, sat_split

CONVENTION = "crohme"
RELATIONS = frozenset(("=", "<", ">", r"\leq", r"\geq", r"\neq", r"\rightarrow", r"\approx"))
JOINTS = {True: (",", r"\rightarrow", ",", ""), False: ("=", "=", "=", "+", "-", "", "<")}
LONGEST = 110  # symbols of a row; a canvas of tokens holds 149
_LOW = frozenset((",", ".", r"\prime", r"\ldots", r"\sqrt", r"\sum", r"\int", r"\prod"))


def lone_symbols(samples: Iterable[Sample | Unreadable], most: int, seed: int) -> Samples:
    """Up to `most` symbols of each class, each as an ink of its own."""
    found: dict[str, list[tuple[Sample, Ink, Glyph]]] = defaultdict(list)
    for sample in samples:
        if isinstance(sample, Unreadable) or sample.ink is None:
            yield from _unusable(sample)
            continue
        for glyph in sample.ink.glyphs:
            if glyph.strokes:
                found[SPELLINGS.get(glyph.label, glyph.label)].append((sample, sample.ink, glyph))
    draw = Random(seed)
    for name, glyphs in sorted(found.items()):
        label = lone_label(name)
        for number, (sample, ink, glyph) in enumerate(draw.sample(glyphs, min(most, len(glyphs)))):
            identity = f"{sample.id}-{glyph.strokes[0]}"
            if label is None:
                yield Unreadable(identity, f"{name} is no symbol that can stand alone")
                break
            strokes = tuple(ink.strokes[s] for s in glyph.strokes)
            alone = (Glyph(name, tuple(range(len(strokes)))),)
            cut = Ink(strokes, label, alone, identity, ink.writer)
            yield Sample(f"lone-{number}-{identity}", sample.source, label, ink=cut)


def lone_label(name: str) -> str | None:
    """The label of one symbol: itself, a root with nothing in it; None where there is none."""
    for label in (name, f"{name} {{ }}"):
        try:
            tokens = normalize(label, CONVENTION)
        except GryphoneError:
            continue
        # Whatever is written, a bar alone is a minus, and a dot alone is on the line.
        if is_valid(tokens) and len([s for s, _ in sat_split(tokens)]) <= 2:
            return {r"\cdot": ".", r"\cdots": r"\ldots"}.get(label, " ".join(tokens))
    return None


def beginnings(samples: Iterable[Sample | Unreadable], most: int, seed: int) -> Samples:
    """Up to `most` beginnings of each ink, which end with a symbol; `-q2` is the second quarter."""
    draw = Random(seed)
    for sample in samples:
        whole = _whole(sample)
        if isinstance(whole, Unreadable):
            yield whole
            continue
        cuts = list(_cuts(whole))
        if not cuts:
            yield Unreadable(whole.sample.id, "no part of it is decided before it is whole")
        for count, quarter, label in sorted(draw.sample(cuts, min(most, len(cuts)))):
            ink = whole.ink
            glyphs = tuple(g for g in ink.glyphs if max(g.strokes) < count)
            cut = replace(ink, strokes=ink.strokes[:count], glyphs=glyphs, label=label, mathml=None)
            name = f"{whole.sample.id}-{count}-q{quarter}"
            yield replace(whole.sample, id=name, ink=replace(cut, id=name), label=label)


@dataclass(frozen=True)
class _Whole:
    """An ink of which every symbol is found in the label."""

    sample: Sample
    ink: Ink
    tokens: tuple[str, ...]
    places: tuple[int, ...]  # of the glyphs, among the label's symbols


def _whole(sample: Sample | Unreadable) -> _Whole | Unreadable:
    if isinstance(sample, Unreadable) or sample.ink is None:
        return next(_unusable(sample))
    try:
        tokens = normalize(sample.label or "", CONVENTION)
    except GryphoneError as error:
        return Unreadable(sample.id, str(error))
    ink = sample.ink
    found = align(ink, tokens, CONVENTION)
    owned = {stroke for glyph in ink.glyphs for stroke in glyph.strokes}
    if found.agreement is not Agreement.SAME or -1 in found.positions:
        return Unreadable(sample.id, "not every symbol of the label is found in the ink")
    if len(owned) < len(ink.strokes):
        return Unreadable(sample.id, "has strokes that belong to no symbol")
    return _Whole(sample, ink, tuple(tokens), found.positions)


def _cuts(whole: _Whole) -> Iterator[tuple[int, int, str]]:
    """Where the ink may end: the strokes until then, the quarter of its symbols, and the label."""
    ends = [(min(g.strokes), max(g.strokes)) for g in whole.ink.glyphs]
    for count in sorted({last + 1 for _, last in ends}):
        if any(first < count <= last for first, last in ends) or count == len(whole.ink.strokes):
            continue
        there = [p for p, (_, last) in zip(whole.places, ends, strict=True) if last < count]
        parts = unfinished(whole.tokens, there)
        if parts is not None:
            quarter = -(-4 * len(there) // len(ends))
            yield count, quarter, " ".join(part.text for part in parts)


def rows(samples: Iterable[Sample | Unreadable], count: int, least: int, seed: int) -> Samples:
    """`count` rows of `least` tokens or more, of formulas by one writer each."""
    by_writer = yield from _by_writer(samples)
    able = [p for p in by_writer.values() if sum(len(x.tokens) for x in p) > least and len(p) > 2]
    if not able:
        raise DataError("no writer has enough formulas for one row; lower the least tokens")
    draw = Random(seed)
    generator = np.random.default_rng(seed)
    weights = [len(pieces) ** 0.5 for pieces in able]  # four people have most of the ink
    made = 0
    for _ in range(100 * count):
        pieces = draw.choices(able, weights)[0]
        row = _row(pieces, draw.randint(least, max(least, 2 * least)), draw, generator)
        if row is not None and least <= len(row.label.split()):  # type: ignore[union-attr]
            yield Sample(f"row-{made}", "rows", row.label, ink=replace(row, id=f"row-{made}"))
            made += 1
        if made == count:
            return
    raise DataError(f"only {made} of {count} rows came out; lower their number or length")


def _by_writer(
    samples: Iterable[Sample | Unreadable],
) -> Generator[Unreadable, None, dict[str, list["_Piece"]]]:
    """The formulas of each writer; yields what cannot be used."""
    found: dict[str, list[_Piece]] = defaultdict(list)
    for sample in samples:
        whole = _whole(sample)
        if isinstance(whole, Unreadable):
            yield whole
        else:
            found[whole.ink.writer or ""].append(_piece(whole))
    found.pop("", None)  # of whom nobody knows whether they are one
    return found


def struck_out(samples: Iterable[Sample | Unreadable], count: int, seed: int) -> Samples:
    """`count` inks with one or two symbols of their writer too much, struck or scribbled out."""
    by_writer = yield from _by_writer(samples)
    if not by_writer:
        raise DataError("no ink says who wrote it; what is struck out comes from its writer")
    draw, generator = Random(seed), np.random.default_rng(seed)
    writers = sorted(by_writer)
    weights = [len(by_writer[w]) ** 0.5 for w in writers]
    for number in range(count):
        pieces = by_writer[draw.choices(writers, weights)[0]]
        ink = _with_struck(draw.choice(pieces), pieces, draw, generator)
        name = f"struck-{number}"
        yield Sample(name, "struck", ink.label, ink=replace(ink, id=name))


def with_struck(ink: Ink, draw: Random, generator: np.random.Generator) -> Ink:
    """An ink with one or two of its own symbols once more, struck or scribbled out."""
    _, top, _, bottom = ink.bounds
    piece = _Piece(
        tuple((ink.label or "").split()), _at_size_one(ink, (top + bottom) / 2), ink.glyphs, (), ""
    )
    return replace(_with_struck(piece, [piece], draw, generator), id=ink.id, writer=ink.writer)


def _with_struck(
    piece: "_Piece", pieces: Sequence["_Piece"], draw: Random, generator: np.random.Generator
) -> Ink:
    """A formula with something struck out before, in or behind it."""
    wrong: list[Stroke] = []
    for _ in range(draw.choice((1, 1, 2))):
        drawn = _some_glyph(pieces, draw)
        reach = max((float(s[:, 0].max()) for s in wrong), default=0.0)
        gap = reach + 0.15 * bool(wrong) - min(float(s[:, 0].min()) for s in drawn)
        wrong += [s + np.array([gap, 0.0]) for s in drawn]
    points = np.concatenate(wrong)
    wide, room = float(np.ptp(points[:, 0])), generator.uniform(0.15, 0.6, 2)
    left, right = (np.array([f(s[:, 0]) for s in piece.strokes]) for f in (np.min, np.max))
    _, reached, gaps = in_order(left, right)
    last = float(reached[-1])
    inside = [*reached[:-1][gaps > 0.1].tolist(), last]
    cut = draw.choice((-np.inf, last, draw.choice(inside)))  # before it, behind it or in it
    start = float(left.min()) - wide - room[0] if cut == -np.inf else cut + room[0]
    later = (left > cut) & (cut > -np.inf)
    shift = (wide + float(room.sum())) * later
    strokes = [s + np.array([x, 0.0]) for s, x in zip(piece.strokes, shift, strict=True)]
    wrong = [s + np.array([start, generator.normal(0, 0.08)]) for s in wrong]
    wrong += _lines_through(np.concatenate(wrong), draw, generator)
    nothing = Glyph(PAD, tuple(range(len(strokes), len(strokes) + len(wrong))))
    glyphs = (*piece.glyphs, nothing)
    return Ink(tuple(strokes + wrong), " ".join(piece.tokens), glyphs, writer=piece.writer)


def _some_glyph(pieces: Sequence["_Piece"], draw: Random) -> list[Stroke]:
    """One of a writer's symbols that is more than a dot, where it stood on the line."""
    for _ in range(20):
        piece = draw.choice(pieces)
        glyph = draw.choice(piece.glyphs)
        drawn = [piece.strokes[s] for s in glyph.strokes]
        size = np.ptp(np.concatenate(drawn), axis=0)
        if 0.5 < size.max() < 2.5:
            break
    return drawn


def _lines_through(points: Stroke, draw: Random, generator: np.random.Generator) -> list[Stroke]:
    """One or two lines by hand, or a zigzag, over what they strike out."""
    beyond = generator.uniform(0.08, 0.35, (2, 2))
    (x0, y0), (x1, y1) = points.min(0) - beyond[0], points.max(0) + beyond[1]
    level = (y0 + y1) / 2 + generator.normal(0, 0.08, 2)
    up, down = [(x0, y1), (x1, y0)], [(x0, y0), (x1, y1)]
    through = [(x0, level[0]), (x1, level[1])]
    double = [[(x, y + d) for x, y in through] for d in (-0.1, 0.12)]
    count = draw.randint(6, 12)
    zigzag = list(
        zip(np.linspace(x0, x1, count), [(y0, y1)[k % 2] for k in range(count)], strict=True)
    )
    way = draw.choice(([up], [down], [through], [up, down], double, [zigzag], [up], [through]))
    return [_by_hand(np.array(corners, dtype=np.float64), generator) for corners in way]


def _by_hand(corners: Stroke, generator: np.random.Generator) -> Stroke:
    """From corner to corner with a hand's small errors."""
    corners = corners + generator.normal(0, 0.04, corners.shape)
    at = np.linspace(0, len(corners) - 1, 8 * (len(corners) - 1) + 1)
    line = np.stack([np.interp(at, np.arange(len(corners)), corners[:, k]) for k in (0, 1)], 1)
    bend = np.cumsum(generator.normal(0, 0.012, line.shape), axis=0)
    return line + bend


@dataclass(frozen=True)
class _Piece:
    """A formula at a size of one, its axis at height 0 and its left end at 0."""

    tokens: tuple[str, ...]
    strokes: tuple[Stroke, ...]
    glyphs: tuple[Glyph, ...]
    places: tuple[int, ...]
    writer: str


def _piece(whole: _Whole) -> _Piece:
    ink = whole.ink
    depth, level = 0, []
    pairs = sat_split(whole.tokens)
    for _, modifier in pairs:
        opened = openers_of(modifier)
        depth += sum(mark in "{[" for mark in modifier[:opened])
        level.append(depth)
        depth -= len(modifier) - opened
    centres = [
        _centre(ink, glyph)
        for glyph, place in zip(ink.glyphs, whole.places, strict=True)
        if not level[place] and pairs[place][0] not in _LOW
    ]
    _, top, _, bottom = ink.bounds
    axis = float(np.median(centres)) if centres else (top + bottom) / 2
    strokes = _at_size_one(ink, axis)
    return _Piece(whole.tokens, strokes, ink.glyphs, whole.places, ink.writer or "")


def _at_size_one(ink: Ink, axis: float) -> tuple[Stroke, ...]:
    size = max(typical_stroke(ink.strokes), 1e-9)
    return tuple((s - (ink.bounds[0], axis)) / size for s in ink.strokes)


def _centre(ink: Ink, glyph: Glyph) -> float:
    y = np.concatenate([ink.strokes[s][:, 1] for s in glyph.strokes])
    return float(y.min() + y.max()) / 2


def _row(
    pieces: Sequence[_Piece], wanted: int, draw: Random, generator: np.random.Generator
) -> Ink | None:
    """Formulas side by side until there are as many tokens as wanted; None where that fails."""
    tokens: list[str] = []
    strokes: list[Stroke] = []
    glyphs: list[Glyph] = []
    reach = 0.0
    slope = generator.normal(0, 0.01)

    def put(drawn: Sequence[Stroke], own: Sequence[Glyph], gap: float) -> None:
        nonlocal reach
        zero = min(float(s[:, 0].min()) for s in drawn)
        shift = np.array([reach + gap - zero, generator.normal(0, 0.06) + slope * reach])
        first = len(strokes)
        strokes.extend(s + shift for s in drawn)
        glyphs.extend(Glyph(g.label, tuple(first + s for s in g.strokes)) for g in own)
        reach = max(float(s[:, 0].max()) for s in strokes[first:])

    for piece in draw.sample(pieces, len(pieces)):
        grown = len(sat_split(tokens)) + len(sat_split(piece.tokens)) + 1
        if grown > LONGEST or len(piece.tokens) > 0.8 * wanted:
            continue
        if tokens:
            related = any(t in RELATIONS for t in piece.tokens)
            joint = draw.choice(JOINTS[related])
            sign = _sign(pieces, joint, draw) if joint else None
            if sign is not None:
                put(*sign, generator.uniform(0.2, 0.6))
                tokens.append(joint)
            gap = generator.uniform(0.2, 0.6) if sign else generator.uniform(1.0, 2.5)
        else:
            gap = 0.0
        scale = float(np.exp(generator.normal(0, 0.06)))
        put([s * scale for s in piece.strokes], piece.glyphs, gap)
        tokens += piece.tokens
        if len(tokens) >= wanted:
            break
    if len(tokens) < wanted or not is_valid(tokens):
        return None
    return Ink(tuple(strokes), " ".join(tokens), tuple(glyphs), writer=pieces[0].writer)


def _sign(
    pieces: Sequence[_Piece], name: str, draw: Random
) -> tuple[list[Stroke], list[Glyph]] | None:
    """One of the writer's own signs at its place on the line."""
    found = [
        (piece, glyph)
        for piece in pieces
        for glyph, place in zip(piece.glyphs, piece.places, strict=True)
        if sat_split(piece.tokens)[place] == (name, "")
    ]
    if not found:
        return None
    piece, glyph = draw.choice(found)
    drawn = [piece.strokes[s] for s in glyph.strokes]
    return drawn, [Glyph(glyph.label, tuple(range(len(drawn))))]


def _unusable(sample: Sample | Unreadable) -> Iterator[Unreadable]:
    yield (
        sample
        if isinstance(sample, Unreadable)
        else Unreadable(sample.id, "is an image; pieces are cut out of ink")
    )


def read_pieces(text: str, samples: Iterable[Sample | Unreadable], seed: int) -> Samples:
    """The pieces that `lone:20`, `beginnings:4`, `rows:200:50` or `struck:500` ask for."""
    kind, *given = text.split(":")
    wanted: Mapping[str, tuple[Callable[..., Samples], int]] = {
        "lone": (lone_symbols, 1),
        "beginnings": (beginnings, 1),
        "rows": (rows, 2),
        "struck": (struck_out, 1),
    }
    if kind not in wanted or len(given) != wanted[kind][1] or not all(n.isdigit() for n in given):
        raise DataError(
            f"--pieces {text} is unknown; use lone:MOST (of each symbol), beginnings:MOST (of each "
            "ink), rows:COUNT:LEAST (tokens of each) or struck:COUNT"
        )
    return wanted[kind][0](samples, *map(int, given), seed)
