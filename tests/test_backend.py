"""A backend is added through the protocol alone: this one counts strokes, and PyTorch is gone."""

import subprocess
import sys
from pathlib import Path

TOY = '''
import sys
sys.modules["torch"] = None  # whoever imports it now, fails

import numpy as np
from gryphone.checkpoint import Checkpoint
from gryphone.config import PRESETS
from gryphone.errors import InkError
from gryphone.recognition.backend import View
from gryphone.recognition.recognizer import Recognizer
from gryphone.tokens import PAD_ID, build_tokenizer

LABEL = "x ^ { 2 } + x"  # what it reads: as many symbols of it as there are strokes


class StrokeCounter:
    """Reads one symbol of LABEL a stroke. Its memory are the inks."""

    looks = 0
    batch = at_once = 2
    few = 0

    def __init__(self, tokenizer, sure=-1e-4):
        self.sure, self.most = sure, 0
        self.sizes = [len(v) for v in tokenizer.vocabularies]
        self.ids = tokenizer.encode(LABEL.split())

    def encode(self, inks, view=View()):
        self.looks, self.most = self.looks + 1, max(self.most, len(inks))
        return list(inks)

    def select(self, memory, images):
        return [memory[i] for i in images]

    def predict(self, memory, tokens, lengths, images):
        rest = [np.log(-np.expm1(self.sure) / (size - 1)) for size in self.sizes]
        out = [
            np.full((*tokens.shape[:2], size), log_prob, np.float32)
            for size, log_prob in zip(self.sizes, rest, strict=True)
        ]
        for row, image in enumerate(images):
            known = self.ids[: len(memory[image])]
            for stream, log_probs in enumerate(out):
                log_probs[row, :, PAD_ID] = self.sure
                log_probs[row, : len(known), PAD_ID] = rest[stream]
                log_probs[row, np.arange(len(known)), known[:, stream]] = self.sure
        return out

    def refine(self, memories, images, request):
        return None  # step by step

    def evidence(self, memory, canvases):
        return [
            -abs(np.subtract.outer(np.arange(len(ink)), np.arange(len(ids)))) * 1.0
            for ink, ids in zip(memory, canvases, strict=True)
        ]

    def nothing(self, memory):  # level strokes are no symbols
        return [np.array([np.ptp(stroke[:, 1]) == 0 for stroke in ink]) * 0.9 for ink in memory]


tokenizer = build_tokenizer("sat", [LABEL.split(), ["y"]])
checkpoint = Checkpoint(PRESETS["tiny"], tokenizer, {"convention": "crohme"}, 0)
recognizer = Recognizer(checkpoint, StrokeCounter(tokenizer))
strokes = [[[10 * i, 0], [10 * i, 20]] for i in range(4)]
result = recognizer.recognize(strokes)
assert result.latex == "x^{2}+x", result.latex
assert result.steps == 1  # of up to 8: it is sure
assert [s.strokes for s in result.symbols] == [(0,), (1,), (2,), (3,)]
assert result.symbols[2].box == (20.0, 0.0, 20.0, 20.0)
assert recognizer.encode(strokes).decode(lock={0: ("y", "")}, steps=3).latex == "y^{2}+x"
short, long = recognizer.recognize_many([strokes[:1], strokes], views=2)
assert (short.latex, long.latex) == ("x", "x^{2}+x")
assert recognizer.backend.looks == 4  # one for each call, and one for the other view

unsure = Recognizer(checkpoint, StrokeCounter(tokenizer, sure=-0.5))
assert unsure.recognize(strokes, steps=3).latex == "x^{2}+x"
assert unsure.backend.looks == 2  # the ink was drawn on paper, traced, and looked at again
result = unsure.recognize(strokes)
assert (result.latex, result.steps, unsure.backend.looks) == ("x^{2}+x", 8, 4)
doubted = Recognizer(checkpoint, StrokeCounter(tokenizer, sure=-0.05))  # 0.4 for four symbols
result = doubted.recognize(strokes)
assert (result.latex, result.steps, doubted.backend.looks) == ("x^{2}+x", 1, 2)

level = [[50, 10], [60, 10]]
result = recognizer.recognize([strokes[0], level, *strokes[1:3]])
assert result.latex == "x^{2}+", result.latex
assert result.warnings == ("crossed-out writing was left out",), result.warnings
assert [s.strokes for s in result.symbols] == [(0,), (2,), (3,)]
result = recognizer.recognize([strokes[0], level, *strokes[1:3]], lock={0: ("y", "")}, steps=3)
assert result.latex == "y^{2}+x"  # who locks a symbol has said what is ink

few = [strokes[: 1 + i % 4] for i in range(11)]
expected = ["x", "x^{2}", "x^{2}+", "x^{2}+x"] * 3
for at_once in (1, 2, 9):
    many = Recognizer(checkpoint, StrokeCounter(tokenizer))
    many.backend.at_once = at_once
    assert [r.latex for r in many.recognize_many(few)] == expected[:11]
    assert many.backend.most == 2
    if at_once == 1:
        assert many.backend.looks == 6
mixed = many.recognize_many([few[0], [], few[1], 3.5, few[2], [], []], errors="return")
kinds = [isinstance(each, InkError) for each in mixed]
assert kinds == [False, True, False, True, False, True, True]
assert [mixed[i].latex for i in (0, 2, 4)] == expected[:3]
for at_once in (1, 2):
    many.backend.at_once = at_once
    try:
        many.recognize_many([few[0], few[1], few[2], 3.5])
    except InkError as error:
        assert "cannot read a float" in str(error)
    else:
        raise AssertionError("an input that cannot be read ends it all")
'''


def test_a_toy_backend_reads_without_torch(tmp_path: Path) -> None:
    script = tmp_path / "toy.py"
    script.write_text(TOY)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
