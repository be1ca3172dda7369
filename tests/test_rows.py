"""Rows too long for one look: how they are cut, joined, and put in the place of one answer."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from inkmaker import Place, place, row

import gryphone
from gryphone.ink import Ink, Stroke
from gryphone.reading.inputs import Input
from gryphone.recognition.question import OTHER, Ask, Options, Step
from gryphone.recognition.recognizer import Recognizer
from gryphone.recognition.result import Alternative, Result, Symbol
from gryphone.recognition.rows import (
    IN_PARTS,
    MOST,
    MUCH,
    NONE,
    REACH,
    SIZES,
    as_result,
    joined,
    parts_of,
)
from gryphone.scoring.evaluate import Item, read_window
from gryphone.tokens import build_tokenizer

PART, SHARED = SIZES[0]
SUM = "1+1-1=1+1-1=1+1-1=1+1-1=1+1-1=1+1-1=1+1-1=1+1-1=1"


@pytest.fixture(scope="module")
def shipped() -> Recognizer:
    return gryphone.load(threads=1)


def symbols(text: str, first: int = 0, sure: float = 0.9) -> list[Symbol]:
    """`a^b` spelled as rows: a mark before a symbol makes it a script; one stroke each."""
    out: list[Symbol] = []
    mark = ""
    for name in text:
        if name in "^_":
            mark = name
            continue
        at = first + len(out)
        marks = f"{mark}{{}}" if mark else ""
        out.append(Symbol(len(out), name, marks, sure, (), None, (at,)))
        mark = ""
    return out


def spelled(some: list[Symbol] | None) -> str:
    return "".join(f"{s.modifier[:1]}{s.symbol}" for s in some or [])


def test_parts_overlap_and_cover_the_row() -> None:
    strokes = row("x+1=2" * 12).strokes
    parts = parts_of(strokes, PART, SHARED)
    assert len(parts) == 5
    assert {*np.concatenate(parts)} == {*range(len(strokes))}
    assert all(PART - 2 * REACH <= len(part) <= PART + 2 * REACH for part in parts)
    assert all(6 <= len({*one} & {*two}) <= PART for one, two in pairwise(parts))
    assert [len(p) for p in parts_of(row("x+1=2").strokes, PART, SHARED)] == [8]  # nothing to cut


def test_no_part_ends_inside_of_a_fraction() -> None:
    strokes = row("1" * 60).strokes
    free = {i for part in parts_of(strokes, PART, SHARED)[:-1] for i in (int(part.max()),)}
    bar = np.array([[12.0 * min(free) - 20, 14.0], [12.0 * min(free) + 40, 14.0]])
    under = [i for i, s in enumerate(strokes) if bar[0, 0] < s[0, 0] < bar[1, 0]]
    for part in parts_of([*strokes, bar], PART, SHARED):
        inside = {*part.tolist()} & {*under, len(strokes)}
        assert inside in (set(), {*under, len(strokes)})
    wide = np.array([[0.0, 14.0], [800.0, 14.0]])  # all of it is one
    assert len(parts_of([*strokes, wide], PART, SHARED)) == 1


def test_a_part_ends_where_there_is_room() -> None:
    items: list[Place] = [("0", 11.0 * i + (4.0 if i > 31 else 0.0), 0.0, 10.0) for i in range(50)]
    parts = parts_of(place(items, "0" * 50).strokes, PART, SHARED)
    assert parts[0].tolist() == [*range(32)]


def test_parts_are_joined_away_from_their_ends() -> None:
    left, right = symbols("a+b-c=dt"), symbols("l-c=d+e", 2)
    assert spelled(joined([left, right])) == "a+b-c=d+e"
    # By ink, not by name: strokes say which of several equal symbols is which.
    assert spelled(joined([symbols("1-1-1-1-"), symbols("1-1-1-1", 4)])) == "1-1-1-1-1-1"


def test_the_surer_part_is_believed() -> None:
    left, right = symbols("a+b-c=d"), symbols("b-G=d+e", 2)
    right = [replace(s, confidence=0.3 if s.symbol == "G" else 0.9) for s in right]
    assert spelled(joined([left, right])) == "a+b-c=d+e"
    left = [replace(s, confidence=0.1 if s.symbol == "c" else 0.9) for s in left]
    assert spelled(joined([left, right])) == "a+b-G=d+e"


def test_nothing_is_joined_inside_of_a_script() -> None:
    # The right part begins in the exponent, and takes it for the line.
    assert spelled(joined([symbols("x^2^3^4=y+"), symbols("34=y+z", 2)])) == "x^2^3^4=y+z"
    assert joined([symbols("x^2^3"), symbols("3^4+z", 2)]) is None
    assert joined([symbols("a+b"), symbols("c+d", 3)]) is None  # no ink in common
    assert joined([symbols("a+b"), [replace(s, strokes=()) for s in symbols("b+d")]]) is None


def whole_and_ask(text: str, sure: float, **options: object) -> tuple[Result, Ask]:
    own = tuple(symbols(text, sure=sure))
    notes = (MUCH, NONE, "a note")
    best = (Alternative(text, 1.0),)
    return Result(text, tuple(text), 0.2, own, best, 1, 0.0, 0, "ink", notes), Ask(**options)  # type: ignore[arg-type]


def test_a_row_takes_the_place_of_a_doubtful_whole() -> None:
    tokenizer = build_tokenizer("sat", [["a", "+", "b", "^", "{", "c", "}", "="]])
    first, ask = whole_and_ask("a+b=", 0.5, n_best=2)
    found = as_result(symbols("a+b^c"), first, tokenizer, ask)
    assert (found.latex, found.confidence) == ("a+b^{c}", pytest.approx(0.9**4))
    assert [found.latex[slice(*s.span)] for s in found.symbols] == ["a", "+", "b", "c"]
    assert [s.position for s in found.symbols] == [0, 1, 2, 3]
    assert np.array_equal(found.ids, tokenizer.encode(found.tokens))
    assert found.warnings == ("a note",)  # nothing is lost any more
    assert [a.latex for a in found.n_best] == ["a+b^{c}", "a+b="]
    assert sum(a.weight for a in found.n_best) == pytest.approx(1)
    hidden = as_result(symbols("a+b^c"), first, tokenizer, Ask(boxes=False))
    assert not any(s.strokes for s in hidden.symbols)
    doubtful = as_result(symbols("a+b^c", sure=0.7), first, tokenizer, ask)
    assert doubtful.warnings == ("a note", IN_PARTS)


def test_a_whole_that_is_as_sure_stays() -> None:
    tokenizer = build_tokenizer("sat", [["a", "+", "b"]])
    first, ask = whole_and_ask("a+b+", 0.8)
    assert as_result(symbols("a+b"), first, tokenizer, ask) is first
    # It has lost a symbol; and one of 40 has lost some, however sure it is.
    assert as_result(symbols("a+b+b", sure=0.84), first, tokenizer, ask).latex == "a+b+b"
    first, ask = whole_and_ask("a+" * 20, 0.9)
    assert len(as_result(symbols("a+" * 30, sure=0.8), first, tokenizer, ask).symbols) == 60


def test_a_long_row_is_read_whole(shipped: Recognizer) -> None:
    ink = row(SUM)
    found = shipped.recognize(ink)
    assert (found.latex, found.warnings) == (SUM, ())
    assert [s.strokes for s in found.symbols] == [g.strokes for g in ink.glyphs]
    assert shipped.recognize_many([ink, row("1+1=2")], boxes=False)[0].latex == SUM
    assert shipped.recognize_page(ink).latex == SUM
    assert "".join(read_window(shipped, [Item("row", None, Input(ink))], Ask())[0][0]) == " ".join(
        SUM
    )
    without = shipped.recognize(ink, lock={0: "1"})  # what is asked about positions is of one look
    assert without.latex != SUM
    assert MUCH in without.warnings


def looks_at(recognizer: Recognizer, ink: Ink | list[Stroke], **options: object) -> set[int]:
    seen: set[int] = set()

    def watch(step: Step) -> None:
        seen.add(step.look)

    known: Options = {"on_step": watch, **options}  # type: ignore[typeddict-item]
    recognizer.recognize(ink, **known)
    return {look for look in seen if look >= OTHER}


def test_when_parts_are_read(recognizer: Recognizer) -> None:
    ink = row("x+1" * 12)
    assert looks_at(recognizer, ink)
    assert not looks_at(recognizer, row("x+1" * 4))
    for options in ({"allowed": "x+1"}, {"hint": "x..."}, {"deadline_ms": 9e6}):
        assert not looks_at(recognizer, ink, **options)
    assert not looks_at(recognizer, ink, plain=True, steps=2)


def test_a_watch_sees_the_whole_and_stops_the_parts(recognizer: Recognizer) -> None:
    ink, seen = row("x+1" * 12), []
    first = recognizer.recognize(ink, deadline_ms=9e6, steps=1)

    def watch(step: Step) -> bool:
        seen.append(step)
        return step.look >= OTHER

    stopped = recognizer.recognize(ink, on_step=watch, steps=1)
    shown = {step.latex for step in seen if step.look >= OTHER}
    assert shown == {stopped.latex} == {first.latex}


def test_nothing_is_read_in_parts_after_a_stop(shipped: Recognizer) -> None:
    seen = []

    def watch(step: Step) -> bool:
        seen.append(step.look)
        return step.look == 1

    stopped = shipped.recognize(row(SUM), on_step=watch)
    assert {*seen} == {1} and not stopped.in_parts


def test_what_is_no_row_is_not_read_in_parts(recognizer: Recognizer) -> None:
    assert not looks_at(recognizer, row("1" * (MOST + 1)))


def test_a_lock_in_a_finished_row_keeps_the_rest(shipped: Recognizer) -> None:
    session = shipped.session(gestures=False)
    session.add(*row(SUM).strokes)
    first = session.finish()
    assert first.latex == SUM and first.in_parts
    assert first.n_best[0].weight > 0.5
    session.lock(48, "2")
    second = session.finish()
    assert second.latex == f"{SUM[:-1]}2"
    assert [s.confidence for s in second.symbols] == [s.confidence for s in first.symbols[:48]] + [
        1
    ]
    assert first.confidence < second.confidence < 0.98


def test_a_row_longer_than_a_canvas_is_locked_and_asked_again(shipped: Recognizer) -> None:
    ink = row("1+1-1=" * 26 + "1+1")
    session = shipped.session(gestures=False)
    session.add(*ink.strokes)
    assert len(session.finish().symbols) > 150
    session.lock(3, "2")
    assert session.finish().symbols[3].symbol == "2"
    assert shipped.recognize(ink, remask=[3]).latex
