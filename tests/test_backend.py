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
from gryphone.recognition.backend import Evidence, View
from gryphone.recognition.recognizer import Recognizer
from gryphone.tokens import PAD_ID, build_tokenizer

LABEL = "x ^ { 2 } + x"  # what it reads: as many symbols of it as there are strokes


class StrokeCounter:
    """Reads one symbol of LABEL a stroke. Its memory are the inks."""

    looks = 0

    def __init__(self, tokenizer, sure=-1e-4):
        self.sure = sure
        self.sizes = [len(v) for v in tokenizer.vocabularies]
        self.ids = tokenizer.encode(LABEL.split())

    def encode(self, inks, view=View()):
        self.looks += 1
        return list(inks)

    def select(self, memory, images):
        return [memory[i] for i in images]

    def predict(self, memory, tokens, lengths, images):
        out = [np.full((*tokens.shape[:2], size), -20.0, np.float32) for size in self.sizes]
        for row, image in enumerate(images):
            known = self.ids[: len(memory[image])]
            for stream, log_probs in enumerate(out):
                log_probs[row, :, PAD_ID] = self.sure
                log_probs[row, : len(known), PAD_ID] = -20
                log_probs[row, np.arange(len(known)), known[:, stream]] = self.sure
        return out

    def evidence(self, memory, canvases):
        return [
            Evidence(-abs(np.subtract.outer(np.arange(len(ids)), np.arange(len(ink)))) * 1.0,
                     np.eye(len(ink)))
            for ink, ids in zip(memory, canvases, strict=True)
        ]


tokenizer = build_tokenizer("sat", [LABEL.split(), ["y"]])
checkpoint = Checkpoint(PRESETS["tiny"], tokenizer, {"convention": "crohme"}, 0)
recognizer = Recognizer(checkpoint, StrokeCounter(tokenizer))
strokes = [[[10 * i, 0], [10 * i, 20]] for i in range(4)]
result = recognizer.recognize(strokes)
assert result.latex == "x^{2}+x", result.latex
assert [s.strokes for s in result.symbols] == [(0,), (1,), (2,), (3,)]
assert result.symbols[2].box == (20.0, 0.0, 20.0, 20.0)
assert recognizer.encode(strokes).decode(lock={0: ("y", "")}, steps=3).latex == "y^{2}+x"
short, long = recognizer.recognize_many([strokes[:1], strokes], views=2)
assert (short.latex, long.latex) == ("x", "x^{2}+x")
assert recognizer.backend.looks == 4  # one for each call, and one for the other view

unsure = Recognizer(checkpoint, StrokeCounter(tokenizer, sure=-0.5))
assert unsure.recognize(strokes).latex == "x^{2}+x"
assert unsure.backend.looks == 2  # the ink was drawn on paper, traced, and looked at again
'''


def test_a_toy_backend_reads_without_torch(tmp_path: Path) -> None:
    script = tmp_path / "toy.py"
    script.write_text(TOY)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
