"""One prediction, top to bottom: ink -> patches -> memory -> refined tokens -> LaTeX.

Encode once, refine many: an `Encoded` formula answers any number of questions (more steps, locked
symbols, hints, other seeds) without looking at the ink again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from gryphone.checkpoint import WEIGHTS, checkpoint_directory, read_checkpoint
from gryphone.errors import CheckpointError, ConfigError
from gryphone.ink import Ink
from gryphone.reading.inputs import Input, read_input
from gryphone.recognition.answer import answer, answer_together, prepare
from gryphone.recognition.encoding import EncodedBatch, Network
from gryphone.recognition.question import Ask, Options
from gryphone.recognition.result import Result


@dataclass(frozen=True)
class Recognizer(Network):
    """A loaded checkpoint, ready to read ink and images."""

    def __repr__(self) -> str:
        name, millions = self.checkpoint.facts.get("name", ""), self.checkpoint.parameters / 1e6
        return f"Recognizer({name!r}, {millions:.1f} million parameters)"

    def encode(self, source: Any, *, name: str | None = None) -> Encoded:
        """Read and look at one input: a path, bytes, image, array, Ink or list of strokes."""
        return self.encode_inputs([read_input(source, name)])[0]

    def encode_inputs(self, inputs: Sequence[Input]) -> list[Encoded]:
        """Look at several inputs in one pass of the encoder."""
        batch = EncodedBatch.of(self, inputs)
        return [Encoded(batch, index) for index in range(len(inputs))]

    def recognize(
        self,
        source: Any,
        *,
        name: str | None = None,
        ask: Ask | None = None,
        **options: Unpack[Options],
    ) -> Result:
        """The formula in one input; the options are those of `Ask`, or a ready `ask`."""
        began = time.perf_counter()
        return self.encode(source, name=name).answer(_ask(ask, options), began)

    def recognize_many(
        self, sources: Sequence[Any], *, ask: Ask | None = None, **options: Unpack[Options]
    ) -> list[Result]:
        """The formulas in several inputs, together; one by one where each has its deadline."""
        ask = _ask(ask, options)
        if ask.deadline_ms is not None:
            return [self.recognize(source, ask=ask) for source in sources]
        if not sources:
            return []
        inputs = [read_input(source) for source in sources]
        began = time.perf_counter()
        batch = EncodedBatch.of(self, inputs)
        questions = [prepare(batch, index, ask) for index in range(len(inputs))]
        return answer_together(questions, began)


def _ask(ask: Ask | None, options: Mapping[str, Any]) -> Ask:
    if ask is not None and options:
        raise ConfigError(f"give `ask` or options, not both: {', '.join(options)}")
    return ask or Ask.of(options)


@dataclass(frozen=True)
class Encoded:
    """One input the model has looked at: ask it as often as you like."""

    batch: EncodedBatch
    index: int = 0

    def __repr__(self) -> str:
        return f"Encoded({self.ink.id!r}, {len(self.ink.strokes)} strokes)"

    @property
    def input(self) -> Input:
        """What was read: its ink and, of a picture, another tracing of it."""
        return self.batch.inputs[self.index]

    @property
    def ink(self) -> Ink:
        """The strokes that were read."""
        return self.input.ink

    def decode(self, **options: Unpack[Options]) -> Result:
        """Answer one question about the input; the options are those of `Ask`."""
        return self.answer(Ask.of(options), time.perf_counter())

    def answer(self, ask: Ask, began: float) -> Result:
        """The same for a ready question; its time counts from `began`."""
        return answer(self.batch, self.index, ask, began)


def load(path: Path | str | None = None, device: str = "cpu") -> Recognizer:
    """Load a recogniser from a checkpoint directory; without one, the weights of the package."""
    from gryphone.recognition.torch_backend import TorchBackend, device_of

    if path is None and not (WEIGHTS / "config.json").is_file():
        raise CheckpointError(
            f"this installation has no default weights ({WEIGHTS}); name a checkpoint directory, "
            "as in gryphone.load('runs/mine') or --weights runs/mine"
        )
    where = device_of(device)
    folder = checkpoint_directory(Path(WEIGHTS if path is None else path))
    checkpoint = read_checkpoint(folder)
    return Recognizer(checkpoint, TorchBackend.load(folder, checkpoint, where))
