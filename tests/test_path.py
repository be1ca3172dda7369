"""How many files of the package one prediction passes, by a trace of its calls."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import gryphone

PACKAGE = Path(gryphone.__file__).parent
EXAMPLES = PACKAGE.parent / "examples"


@contextmanager
def traced() -> Iterator[set[str]]:
    """The files of the package whose functions are called meanwhile."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            files.add(frame.f_code.co_filename)

    found: set[str] = set()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        here = (Path(name) for name in files if name.startswith(str(PACKAGE)))
        found |= {path.relative_to(PACKAGE).as_posix() for path in here}


@pytest.fixture(scope="module")
def recognizer() -> gryphone.Recognizer:
    recognizer = gryphone.load()
    recognizer.recognize([[[0, 0], [0, 9]]])  # what is made once is made
    return recognizer


def test_an_ink_passes_fifteen_files_at_most(recognizer: gryphone.Recognizer) -> None:
    inks: list[Any] = sorted((EXAMPLES / "ink").glob("*.inkml"))[:3]
    strokes = [[[0, 0], [0, 20]], [[10, 10], [20, 10]], [[30, 0], [30, 20]]]
    for source in (*inks, strokes, json.dumps(strokes).encode()):
        with traced() as files:
            recognizer.recognize(source)
        assert "recognition/recognizer.py" in files
        assert len(files) <= 15, " ".join(sorted(files))


def test_a_second_look_passes_three_more(recognizer: gryphone.Recognizer) -> None:
    with traced() as files:
        recognizer.recognize(EXAMPLES / "ink" / "10-limit.inkml")
    assert {"photo/binarize.py", "photo/skeleton.py", "photo/trace.py"} < files
    assert len(files) <= 18, " ".join(sorted(files))


def test_a_photo_passes_twenty_three_files_at_most(recognizer: gryphone.Recognizer) -> None:
    for source in sorted((EXAMPLES / "photo").glob("*.jpg"))[:3]:
        with traced() as files:
            recognizer.recognize(source)
        assert "photo/trace.py" in files
        assert len(files) <= 23, " ".join(sorted(files))
