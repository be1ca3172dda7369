"""A network as the bytes of an ONNX file, written without the `onnx` package.

The few messages of onnx.proto that a graph of plain operators needs, and protobuf's three ways to
write a field. Everything is little-endian, as protobuf and `raw_data` want it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np

IR = 9  # with operator set 18, what ONNX Runtime has long read, its web build too
MICROSOFT = "com.microsoft"  # operators that ONNX Runtime adds
DOMAINS = (("", 18), (MICROSOFT, 1))
TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7}

Attribute = int | float | str | Sequence[int]
Shape = Sequence[int | str]  # a name stands for a size that differs from run to run


class Graph:
    """Nodes and tensors while a network is put together; every method gives its output's name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tensors: dict[str, np.ndarray] = {}
        self._nodes: list[bytes] = []
        self._inputs: list[bytes] = []
        self._outputs: list[bytes] = []
        self._count = 0

    def input(self, name: str, dtype: str, shape: Shape) -> str:
        """What a run is given."""
        self._inputs.append(_value(name, dtype, shape))
        return name

    def output(self, value: str, name: str, shape: Shape) -> None:
        """What a run gives back, in float32."""
        self._nodes.append(_node("Identity", [value], [name], {}))
        self._outputs.append(_value(name, "float32", shape))

    def tensor(self, value: object, dtype: str = "float32", name: str = "") -> str:
        """Numbers that are part of the file; equal small ones without a name are kept once."""
        array = np.asarray(value, dtype=dtype, order="C")
        name = name or f"{dtype}{array.shape}{array.tolist()}"
        self.tensors[name] = array
        return name

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Attribute) -> str:
        """One operator; "domain:Kind" names one that is not ONNX's own, "" an input left out."""
        return self.add_many(kind, *inputs, outputs=outputs, **attributes)[0]

    def add_many(
        self, kind: str, *inputs: str, outputs: int, **attributes: Attribute
    ) -> tuple[str, ...]:
        """The same for one with several outputs."""
        self._count += 1
        names = tuple(f"{kind.rpartition(':')[2]}_{self._count}_{i}" for i in range(outputs))
        self._nodes.append(_node(kind, inputs, names, attributes))
        return names

    def shaped(self, x: str, *shape: int) -> str:
        """0 keeps a size, -1 takes what is left."""
        return self.add("Reshape", x, self.tensor(shape, "int64"))

    def to_bytes(self, metadata: Mapping[str, str]) -> bytes:
        """The whole file."""
        graph = [_bytes(1, node) for node in self._nodes]
        graph.append(_bytes(2, self.name.encode()))
        for name, array in self.tensors.items():
            graph += _tensor(name, array)
        graph += [_bytes(11, each) for each in self._inputs]
        graph += [_bytes(12, each) for each in self._outputs]
        pairs = [_bytes(1, k.encode()) + _bytes(2, v.encode()) for k, v in metadata.items()]
        return b"".join(  # once: the weights are most of it
            [
                _number(1, IR),
                _bytes(2, b"gryphone"),
                _head(7, sum(map(len, graph))),
                *graph,
                *(_bytes(8, _bytes(1, d.encode()) + _number(2, v)) for d, v in DOMAINS),
                *(_bytes(14, pair) for pair in pairs),
            ]
        )


def _varint(value: int) -> bytes:
    value &= 2**64 - 1  # negative numbers, as protobuf has them
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _head(field: int, size: int) -> bytes:
    return _varint(field << 3 | 2) + _varint(size)


def _bytes(field: int, value: bytes) -> bytes:
    return _head(field, len(value)) + value


def _node(
    kind: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, Attribute]
) -> bytes:
    domain, _, name = kind.rpartition(":")
    return b"".join(
        [
            *(_bytes(1, each.encode()) for each in inputs),
            *(_bytes(2, each.encode()) for each in outputs),
            _bytes(3, outputs[0].encode()),
            _bytes(4, name.encode()),
            *(_bytes(5, _attribute(key, value)) for key, value in attributes.items()),
            _bytes(7, domain.encode()),
        ]
    )


def _attribute(name: str, value: Attribute) -> bytes:
    head = _bytes(1, name.encode())
    if isinstance(value, str):
        return head + _bytes(4, value.encode()) + _number(20, 3)
    if isinstance(value, float):
        return head + _varint(2 << 3 | 5) + struct.pack("<f", value) + _number(20, 1)
    if isinstance(value, int):
        return head + _number(3, value) + _number(20, 2)
    return head + b"".join(_number(8, each) for each in value) + _number(20, 7)


def _tensor(name: str, array: np.ndarray) -> tuple[bytes, bytes, bytes]:
    """Field 5 of a graph: an initialiser."""
    data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    kind = TYPES[str(array.dtype)]
    head = b"".join(_number(1, size) for size in array.shape) + _number(2, kind)
    head += _bytes(8, name.encode()) + _head(9, len(data))
    return _head(5, len(head) + len(data)), head, data


def _value(name: str, dtype: str, shape: Shape) -> bytes:
    sizes = [_number(1, s) if isinstance(s, int) else _bytes(2, s.encode()) for s in shape]
    dims = b"".join(_bytes(1, size) for size in sizes)
    return _bytes(1, name.encode()) + _bytes(
        2, _bytes(1, _number(1, TYPES[dtype]) + _bytes(2, dims))
    )
