"""Strokes as JSON or as plain lists, read as `Ink`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gryphone.errors import InkError
from gryphone.ink import (
    DEFAULT_LIMITS,
    LARGEST_COORDINATE,
    Ink,
    Limits,
    Stroke,
    check_points,
    read_bytes,
)

NUMBERS: tuple[Any, ...] = (int, float, np.integer, np.floating)


def read_strokes(
    source: Path | bytes | str | Sequence[Any] | Mapping[str, Any],
    *,
    name: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Ink:
    """Read strokes JSON: a path, JSON text, or the parsed value.

    A stroke is `[[x, y], ...]` (a third value, time, is dropped) or `{"x": [...], "y": [...]}`;
    strokes come as a list, or under the key "strokes" beside optional "label" and "id". Arrays
    may stand for lists.
    """
    value: Any = source
    if isinstance(source, (Path, bytes, str)):
        raw = source.encode() if isinstance(source, str) else source
        data, name = read_bytes(raw, name, limits)
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise InkError(f"{name}: not JSON: {error}") from error
    name = name or "ink"
    label, identity = None, Path(name).stem or name
    if isinstance(value, Mapping):
        label = value.get("label")
        identity = str(value.get("id", identity))
        value = value.get("strokes", [value] if "x" in value else None)
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise InkError(f'{name}: expected a list of strokes or an object with "strokes"')
    if label is not None and not isinstance(label, str):
        raise InkError(f"{name}: label is {label!r}; expected a string")
    if len(value) > limits.strokes:
        raise InkError(f"{name}: {len(value)} strokes; the limit is {limits.strokes}")
    strokes = [_json_stroke(stroke, name, i) for i, stroke in enumerate(value)]
    check_points(sum(map(len, strokes)), name, limits)
    if not any(map(len, strokes)):
        raise InkError(f"{name}: no strokes; there is nothing to read")
    # A tap that a canvas reports as an empty list drew nothing: leave it out.
    return Ink(tuple(s for s in strokes if len(s)), label=label, id=identity)


def _json_stroke(stroke: Any, name: str, index: int) -> Stroke:
    """One stroke of either JSON form as an (n, 2) array; n may be zero."""
    where = f"{name}: stroke {index}"
    stroke = _plain(stroke)
    if isinstance(stroke, Mapping):
        x, y = _plain(stroke.get("x")), _plain(stroke.get("y"))
        if not isinstance(x, Sequence) or not isinstance(y, Sequence) or len(x) != len(y):
            raise InkError(f'{where} needs "x" and "y" lists of equal length')
        stroke = list(zip(x, y, strict=True))
    if not isinstance(stroke, Sequence) or isinstance(stroke, (str, bytes)):
        raise InkError(f"{where} is {type(stroke).__name__}; expected a list of points")
    points = [_json_point(point, where, i) for i, point in enumerate(stroke)]
    return np.array(points, dtype=np.float64).reshape(-1, 2)


def _json_point(point: Any, where: str, index: int) -> tuple[float, float]:
    point = _plain(point)
    if isinstance(point, Mapping):
        point = (point.get("x"), point.get("y"))
    numbers = isinstance(point, Sequence) and not isinstance(point, (str, bytes))
    if not numbers or len(point) < 2 or not all(_is_number(v) for v in point[:2]):
        raise InkError(
            f"{where}, point {index} is {point!r}; expected two numbers, "
            f"finite and below {LARGEST_COORDINATE:g}"
        )
    return float(point[0]), float(point[1])


def _plain(value: Any) -> Any:
    """What an array holds as lists."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, NUMBERS):
        return False
    return bool(abs(value) <= LARGEST_COORDINATE)  # NaN is not
