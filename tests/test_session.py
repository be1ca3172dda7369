"""Ink that is being written: what stays, what is read again, and that any process can go on."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inkmaker import row

import gryphone
from gryphone.errors import ConfigError, InkError, TokenError
from gryphone.page.folder import write_model
from gryphone.page.local import Local
from gryphone.recognition.question import Ask
from gryphone.recognition.recognizer import Recognizer
from gryphone.recognition.session import Known, Live, LiveResult, Look, near

INK = row("x+1=2")
SCRATCH = np.array([[11 + 10 * (i % 2), 1.5 * i] for i in range(7)], dtype=float)  # over the +


@pytest.fixture(scope="module")
def reader() -> Recognizer:
    """The weights of the package, which read."""
    return gryphone.load()


def names(result: LiveResult | None) -> list[tuple[str, tuple[int, ...]]]:
    return [] if result is None else [(s.symbol, s.strokes) for s in result.symbols]


def test_what_is_known_stays_and_the_end_is_a_reading_like_any_other(reader: Recognizer) -> None:
    session = reader.session()
    for stroke in INK.strokes[:4]:
        session.add(stroke)
    before = names(session.result)
    found = session.add(*INK.strokes[4:])
    assert [s.position for s in found.symbols if (s.symbol, s.strokes) in before] == [*found.kept]
    assert 0 < len(found.kept) < len(found.symbols)
    final, fresh = session.finish(), reader.recognize(INK)
    assert final.latex == fresh.latex
    assert final.confidence == fresh.confidence
    assert [s.to_dict() for s in final.symbols] == [s.to_dict() for s in fresh.symbols]
    assert (found.final, final.final) == (False, True)


def test_a_settled_symbol_gives_way_to_a_sure_reading_alone(reader: Recognizer) -> None:
    look, strokes = Look(reader), dict(enumerate(INK.strokes))
    free = Live(strokes).read(look, Ask())
    one = free.symbols[2]
    known = Known("l", "", one.strokes)
    assert (one.symbol, one.confidence > 0.95) == ("1", True)
    assert Live(strokes, (known,)).read(look, Ask()).symbols[2].symbol == "1"
    # Alone, a stroke may be either; what was there before stays, and says how likely it is.
    alone = {2: strokes[one.strokes[0]]}
    lone = Live(alone).read(look, Ask()).symbols[0]
    other = lone.alternatives[0]
    assert lone.confidence < 0.95
    kept = Live(alone, (Known(other[0], "", (2,)),)).read(look, Ask())
    assert names(kept) == [(other[0], (2,))]
    assert kept.kept == (0,)
    assert kept.symbols[0].confidence == pytest.approx(other[1], abs=0.01)
    assert kept.symbols[0].alternatives[0][0] == lone.symbol
    assert kept.confidence <= kept.symbols[0].confidence


def test_new_ink_beside_a_symbol_may_change_it(reader: Recognizer) -> None:
    plus = {0: np.array([[0.0, 5.0], [8.0, 5.0]]), 1: np.array([[4.0, 1.0], [4.0, 9.0]])}
    assert near([plus[1]], {0: plus[0], 5: plus[0] + 20}) == {0}
    assert near([], plus) == near([plus[0]], {}) == set()
    before = Live({0: plus[0]}).read(Look(reader), Ask())
    after = Live(plus, (Known("-", "", (0,)),)).read(Look(reader), Ask())
    assert before.latex == "-"
    assert [s.strokes for s in after.symbols] == [(0, 1)]


def test_locks_stay_and_are_undone(reader: Recognizer) -> None:
    session = reader.session()
    session.add(*INK.strokes)
    locked = session.lock(2, "l")
    assert locked.latex == "x+l=2"
    assert locked.symbols[2].confidence > 0.9  # the user is not doubted
    assert session.finish().latex == "x+l=2"
    session.add(INK.strokes[0] + 70)
    assert session.result and session.result.latex.startswith("x+l=2")
    session.undo()
    undone = session.undo()
    assert undone and undone.latex == "x+1=2"
    for nowhere in (9, "2"):
        with pytest.raises(ConfigError, match=f"position is {nowhere!r}; the answer has 5"):
            session.lock(nowhere, "x")  # type: ignore[arg-type]
    with pytest.raises(TokenError, match="quux"):
        session.lock(0, "quux")
    assert session.result is undone  # nothing has happened


def test_what_cannot_be_where_it_was_locked_is_said(reader: Recognizer) -> None:
    session = reader.session()
    session.add([[0, 0], [10, 0], [4, 20]], [[20, 10], [30, 10]], [[40, 0], [40, 20]])  # 7-1
    for place in range(3):
        before = session.result.latex if session.result else ""
        locked = session.lock(place, r"\sqrt")
        held = r"\sqrt" in locked.latex
        assert held or (locked.latex == before and "the lock was dropped" in locked.warnings[-1])
        assert session.finish().latex == locked.latex
        session.undo()


def test_what_has_no_ink_cannot_be_locked(reader: Recognizer) -> None:
    session = reader.session()
    begun = session.add([[20, 0], [20, 20]], [[0, 30], [40, 30]])  # a one, and a bar beneath it
    assert begun.latex == r"\frac{1}{}" and not begun.symbols[2].strokes
    with pytest.raises(ConfigError, match="at position 2 has no strokes to be locked with"):
        session.lock(2, "x")


def test_strokes_have_any_form_that_is_read(recognizer: Recognizer) -> None:
    session = recognizer.session()
    session.add(
        [[0, 0, 5], [0, 20, 6]], {"x": [10, 20], "y": [10, 10]}, np.array([[30, 0], [30, 9]])
    )
    assert [len(stroke) for stroke in session.strokes.values()] == [2, 2, 2]
    with pytest.raises(ConfigError, match=r"numbers is 0; give a list, as \[3\]"):
        session.replace(0, [[0, 0], [1, 1]])  # type: ignore[arg-type]
    with pytest.raises(InkError, match="point 1"):
        session.add([[0, 0], [float("nan"), 1]])
    assert len(session.strokes) == 3


def test_undo_and_redo_bring_back_what_a_gesture_erased(recognizer: Recognizer) -> None:
    session = recognizer.session()
    first = session.add(*INK.strokes)
    found = session.add(SCRATCH)
    number = len(INK.strokes)
    assert found.gestures == ("scratched",)
    assert found.erased == (*INK.glyphs[1].strokes, number)
    assert [*session.strokes] == [n for n in range(number) if n not in found.erased]
    assert {n for s in found.symbols for n in s.strokes} <= set(session.strokes)
    assert session.undo() is first
    assert [*session.strokes] == [*range(number)]
    assert session.redo() is found
    assert session.redo() is found  # there is no more
    again = session.add(INK.strokes[1])
    assert number + 1 in session.strokes
    assert session.redo() is again


def test_gestures_are_a_choice(recognizer: Recognizer) -> None:
    session = recognizer.session(gestures=False)
    session.add(*INK.strokes)
    assert session.add(SCRATCH).erased == ()
    assert len(session.strokes) == len(INK.strokes) + 1


def test_ink_that_is_opened_holds_no_gestures(recognizer: Recognizer) -> None:
    found = recognizer.session().add(*INK.strokes, INK.strokes[0] + 70, SCRATCH)
    assert found.erased == ()
    assert near([SCRATCH] * 9, {4: SCRATCH + 500}) == {4}  # so much is new that all may be


def test_strokes_are_removed_and_replaced_by_their_numbers(recognizer: Recognizer) -> None:
    session = recognizer.session()
    session.add(*INK.strokes[:3])
    session.remove(1)
    session.replace([0], INK.strokes[4], INK.strokes[5])
    assert [*session.strokes] == [2, 3, 4]
    assert names(session.finish()) == [
        (s.symbol, tuple(2 + n for n in s.strokes))
        for s in recognizer.recognize([session.strokes[n] for n in (2, 3, 4)]).symbols
    ]
    with pytest.raises(ConfigError, match="no stroke 7"):
        session.remove(7)
    with pytest.raises(InkError, match="stroke 0"):
        session.add([[0, float("nan")]])
    assert session.remove(2, 3, 4).latex == ""
    assert session.finish().symbols == ()
    assert session.add(INK.strokes[0]).symbols


def test_a_session_decides_how_to_read(recognizer: Recognizer) -> None:
    options: list[dict[str, Any]] = [{"hint": "x"}, {"boxes": False}, {"deadline_ms": 5}]
    for wrong in options:
        with pytest.raises(ConfigError, match="without lock, hint"):
            recognizer.session(**wrong)


def test_both_backends_follow(recognizer: Recognizer, tiny_weights: Path) -> None:
    sessions = [recognizer.session(), gryphone.load(tiny_weights, backend="torch").session()]
    for stroke in INK.strokes[:5]:
        onnx, torch = (names(session.add(stroke)) for session in sessions)
        assert len(onnx) == len(torch)
    finals = [session.finish() for session in sessions]
    assert (
        finals[1].latex
        == gryphone.load(tiny_weights, backend="torch").recognize(INK.strokes[:5]).latex
    )


def test_the_same_ink_is_looked_at_once(recognizer: Recognizer) -> None:
    looked = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(recognizer.backend, name)

        def encode(self, inks: Any, *view: Any) -> Any:
            looked.append(len(inks[0]))
            return recognizer.backend.encode(inks, *view)

    look = Look(replace(recognizer, backend=Counting()))
    look(INK.strokes[:2]), look(INK.strokes[:2]), look(INK.strokes[:3])
    assert looked == [2, 3]


def test_the_engine_of_the_browser_follows(tmp_path: Path, tiny_weights: Path) -> None:
    write_model(tmp_path / "model", tiny_weights)
    names = ("encoder", "decoder", "lone")
    graphs = [(tmp_path / "model" / f"{name}.onnx").read_bytes() for name in names]
    local = Local((tmp_path / "model" / "model.json").read_text(), *graphs)

    def ask(strokes: list[Any], **live: Any) -> Any:
        given = {"known": [], "gestures": True, "final": False, **live}
        options = json.dumps({"live": given})
        return json.loads(local.recognize(json.dumps(strokes), "ink", options, lambda _: False))

    strokes = [s.tolist() for s in INK.strokes]
    first = ask(strokes)
    known = [{k: s[k] for k in ("symbol", "modifier", "strokes")} for s in first["symbols"]]
    inky = [place for place, each in enumerate(known) if each["strokes"]]
    assert ask(strokes, known=known)["kept"] == inky
    assert ask([*strokes, SCRATCH.tolist()], known=known)["gestures"] == ["scratched"]
    assert ask(strokes, final=True)["final"] is True
    assert "quux" in ask(strokes, known=[{**known[0], "symbol": "quux"}])["error"]["message"]
