from pathlib import Path

from inkmaker import fraction, row
from paper import draw_page
from PIL import Image

from gryphone.recognition.recognizer import Recognizer
from gryphone.studies.invariance import CHANGES, is_right, labelled, measure


def test_what_is_right_is_changed_and_read_again(recognizer: Recognizer, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    draw_page(row("x+1=2").strokes).save(folder / "a.png")
    draw_page(fraction().strokes).save(folder / "b.png")
    Image.new("L", (60, 60), 255).save(folder / "blank.png")
    answer = recognizer.recognize(folder / "a.png").latex
    (folder / "labels.tsv").write_text(f"a\t{answer}\nb\t999\nblank\t1\n")
    total, right, same = measure(recognizer, labelled(folder))
    assert (total, right) == (3, 1)
    assert set(same) == set(CHANGES) and same["dark"] == 1


def test_unreadable_answers_are_wrong() -> None:
    assert is_right("x^2", "x ^ { 2 }")
    assert not is_right("", "x")
    assert not is_right("}", "x")
