"""The recogniser in the browser: the package's own modules, asked in JSON by a worker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gryphone import __version__
from gryphone.checkpoint import checkpoint_of
from gryphone.errors import ConfigError, GryphoneError
from gryphone.reading.formats import FORMATS
from gryphone.reading.inputs import Input, read_content, read_input
from gryphone.recognition.answer import answer
from gryphone.recognition.constraints import given_of
from gryphone.recognition.encoding import EncodedBatch, Network
from gryphone.recognition.lone import LoneReader
from gryphone.recognition.onnx_backend import OnnxBackend
from gryphone.recognition.page import read_page
from gryphone.recognition.question import MOST_STEPS, Ask
from gryphone.recognition.result import Result
from gryphone.recognition.session import Live, Look
from gryphone.writers import TARGETS, write


class Local:
    """A network in this browser."""

    def __init__(self, about: str, encoder: Any, decoder: Any, lone: Any) -> None:
        described = json.loads(about)
        checkpoint = checkpoint_of(described, "model.json")
        self.checkpoint = replace(checkpoint, parameters=described["parameters"])
        backend = OnnxBackend(encoder, decoder, self.checkpoint.config, 0)
        reader = LoneReader(lone, described["lone"])
        self.network = Network(self.checkpoint, backend, reader)
        self._live = Look(self.network)
        # What was looked at last: a correction asks about the same ink again.
        self._source: Any = None
        self._encoded: EncodedBatch | None = None

    def about(self) -> str:
        """What `/v1/model` says of a server, as far as it is said of this one."""
        names = [list(v.names) for v in self.checkpoint.tokenizer.vocabularies]
        return json.dumps(
            {
                "name": "gryphone",
                "version": __version__,
                "parameters": self.checkpoint.parameters,
                "symbols": names[0],
                "max_steps": MOST_STEPS,
                "formats": [row.about() for row in FORMATS],
                "targets": {name: t.title for name, t in TARGETS.items() if t.quick},
            }
        )

    def convert(self, latex: str, target: str) -> str:
        """LaTeX in another notation."""
        try:
            return json.dumps({"text": write(latex, target)})
        except GryphoneError as error:
            return json.dumps({"error": {"message": str(error)}})

    def recognize(
        self, source: str | bytes, name: str, options: str, emit: Callable[[str], bool]
    ) -> str:
        """The answer to strokes (JSON) or a file; its steps go to `emit`, which may stop it.

        With `live` among the options, to ink that is being written; with `page`, all formulas.
        """
        try:
            began = time.perf_counter()
            asked = json.loads(options)
            ink, page = asked.pop("ink", False), asked.pop("page", False)
            live = asked.pop("live", None)
            asked["lock"] = {int(place): lock for place, lock in asked.get("lock", {}).items()}
            if asked.get("given") is not None:
                asked["given"] = self._given(asked["given"])
            ask = Ask.of(asked | {"on_step": lambda step: emit(json.dumps(step.to_dict()))})
            if live is not None:
                read = _read(source, name)
                followed = Live.of(read.ink.strokes, **live).read(self._live, ask)
                found = followed.to_full_dict()
            elif page:
                read = _read(source, name)
                found = read_page(self.network, read, replace(ask, on_step=None)).to_dict()
            else:
                encoded = self._look(source, name)
                read, found = encoded.inputs[0], answer(encoded, 0, ask, began).to_full_dict()
            if ink or isinstance(source, bytes):
                found["ink"] = {"strokes": [s.round(2).tolist() for s in read.ink.strokes]}
            return json.dumps(found)
        except (GryphoneError, KeyError, ValueError, TypeError) as error:
            return json.dumps({"error": {"message": str(error)}})

    def _given(self, answer: Any) -> Result:
        """An earlier answer, as it was told."""
        tokenizer = self.checkpoint.tokenizer
        try:
            rows = [[s["symbol"], s["modifier"]] for s in answer["symbols"]]
        except (KeyError, TypeError) as error:
            raise ConfigError("given: is no answer; give what `recognize` returned") from error
        return given_of(tokenizer, [row[: len(tokenizer.vocabularies)] for row in rows])

    def _look(self, source: str | bytes, name: str) -> EncodedBatch:
        if self._encoded is None or source != self._source:
            encoded = EncodedBatch.of(self.network, [_read(source, name)])
            self._encoded, self._source = encoded, source
        return self._encoded


def _read(source: str | bytes, name: str) -> Input:
    if isinstance(source, str):
        return read_input(json.loads(source), name)
    return read_content(source, name)
