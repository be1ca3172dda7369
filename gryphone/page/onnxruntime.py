"""Stands in the browser for the `onnxruntime` package: as much of it as `onnx_backend` uses.

ONNX Runtime itself is a WebAssembly module there, `ort.js` calls it, and the worker hands that over
as the module `gryphone_ort`. What stays in its memory is known by its address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import gryphone_ort as runtime
import numpy as np
from pyodide.ffi import to_js

TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7}  # as ONNX numbers them


class Output(NamedTuple):
    """One of a session's outputs."""

    name: str


class GraphOptimizationLevel:
    """How graphs are changed before they run: not at all."""

    ORT_DISABLE_ALL = 0


class SessionOptions:
    """Taken and left: `ort.js` has them."""

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Nothing."""


class OrtValue:
    """A tensor in ONNX Runtime's memory."""

    def __init__(self, tensor: int) -> None:
        self.tensor = tensor

    @classmethod
    def ortvalue_from_numpy(cls, array: np.ndarray) -> OrtValue:
        """A copy of an array."""
        data = to_js(np.ascontiguousarray(array).data.cast("B"))
        return cls(runtime.tensor(TYPES[array.dtype.name], data, to_js(list(array.shape))))

    def numpy(self) -> np.ndarray:
        """A copy of its numbers."""
        found = runtime.read(self.tensor)
        numbers: np.ndarray = np.frombuffer(found.bytes.to_bytes(), np.float32)
        return numbers.reshape(found.shape.to_py())

    def __del__(self) -> None:
        runtime.release(self.tensor)


class InferenceSession:
    """A graph, ready to run: the worker has made it while Python was being loaded."""

    def __init__(self, session: int, options: SessionOptions, providers: Sequence[str]) -> None:
        self.session = session

    def get_outputs(self) -> list[Output]:
        """What a run can give."""
        return [Output(name) for name in runtime.outputs(self.session)]

    def run_with_ort_values(
        self, names: Sequence[str], feed: Mapping[str, OrtValue]
    ) -> list[OrtValue]:
        """Some outputs."""
        tensors = [value.tensor for value in feed.values()]
        given = to_js(list(feed)), to_js(tensors), to_js(list(names))
        return [OrtValue(tensor) for tensor in runtime.run(self.session, *given)]
