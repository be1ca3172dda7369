"""What a decoding needs of a network, whoever computes it.

Everything that crosses this seam is numpy; a memory is its backend's own business, and so is how
ink is drawn. ONNX Runtime is one file behind it (`onnx_backend`), PyTorch another
(`torch_backend`), and `recognizer.load` the place to choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from gryphone.decoding import Decoded, Request
from gryphone.errors import ConfigError
from gryphone.ink import Stroke

FLOOR = 1e-4  # of the attention, relative to its highest
LEAST = -12.0  # log-probs of the patch heads below this say no more than "no"
NONE = -99.0  # less than any score


class View(NamedTuple):
    """How ink is drawn: scaled, and turned by an angle in radians."""

    scale: float = 1.0
    angle: float = 0.0


class Backend(Protocol):
    """A network at work."""

    batch: int  # the most inks that are looked at together
    at_once: int  # the most batches that are worth being under way
    few: int  # inks that are answered one by one in less time than together

    def warm(self) -> None:
        """Make ready what the first inks would wait for."""

    def encode(self, inks: Sequence[Sequence[Stroke]], view: View = ...) -> Any:
        """Draw inks and look at them: the memory that all else needs."""

    def select(self, memory: Any, images: Sequence[int]) -> Any:
        """The memory of some of its inks, in the order given."""

    def predict(
        self, memory: Any, tokens: np.ndarray, lengths: np.ndarray, images: np.ndarray
    ) -> list[np.ndarray]:
        """Log-probs [(B, L, V) per stream] for canvases (B, L, S) of some lengths (B,).

        `images` (B,) says which ink of the memory each canvas is about.
        """

    def refine(
        self, memories: Sequence[Any], images: np.ndarray, request: Request
    ) -> list[Decoded] | None:
        """The whole reverse process, by the mean of what all memories say; None: step by step.

        `images` (B,) says which ink of the memories each of the request's canvases is about.
        """

    def evidence(self, memory: Any, canvases: Sequence[np.ndarray]) -> list[np.ndarray] | None:
        """What speaks for which stroke being which token of finished canvases (n, S), one for
        each ink: (strokes, n + 1) mean log-scores of the stroke's pixels, in the last column those
        of each pixel's best token (PAD is none); None: unknown."""

    def nothing(self, memory: Any) -> list[np.ndarray] | None:
        """How likely each stroke (strokes,) of each ink is no symbol's: the mean of its pixels;
        None: unknown."""


def forked() -> ConfigError:
    """Why a network cannot compute in a fork of the process that loaded it."""
    return ConfigError(
        "this process was forked after the recogniser was loaded, and its threads were not: "
        "use multiprocessing.get_context('spawn'), or load it in each process"
    )
