"""Lines as a still camera and a finer pen would have left them, from blurred and from broad ones.

A hand that moves while the shutter is open smears every line along one way. Along it the picture
changes least, and its autocorrelation bends most where a smear ends: that is how long it is.
Richardson and Lucy's few steps then gather the ink again, which is never less than none.
"""

import math

import numpy as np
from numpy.typing import NDArray

from gryphone.photo.decode import Grey

Floats = NDArray[np.float64]

TURNS = 36  # directions that a hand may move in
NEAR = 2  # of them, by which the ink's own directions may mislead
SHORTEST = 3.0  # pixels of a smear
LONGEST = 0.32  # symbols
SLOPE = 2.0  # pixels over which the picture's change is measured, and
BEND = 1.5  # the bending of its autocorrelation
STEPS = 10
LEAST = 1e-3  # darkness that nothing is divided by less than
THINNER = 0.2  # pen widths that broad lines lose on either side


def without_motion(dark: Grey, symbol: float) -> tuple[Grey, int]:
    """Darkness (H, W) before it was smeared, and the width of the paper that it has around now."""
    turn, length = smear_of(dark, symbol)
    edge = int(length) + 2
    wide = [side + 2 * edge for side in dark.shape]
    room = [(edge, quick_size(side) - side + edge) for side in wide]
    smeared = np.pad(dark, room).astype(np.float64) + LEAST
    kernel = _kernel(turn, length, smeared.shape)
    still = smeared
    for _ in range(STEPS):
        ratio = smeared / np.maximum(_filtered(still, kernel), LEAST)
        still = still * np.maximum(_filtered(ratio, kernel.conj()), 0)
    return still[: wide[0], : wide[1]].astype(np.float32), edge


def smear_of(dark: Grey, symbol: float) -> tuple[float, float]:
    """The direction in radians and the length in pixels of what smeared a picture."""
    longest = max(LONGEST * symbol, SHORTEST + 1)
    reach = int(longest + BEND) + 4
    size = [quick_size(max(side, reach + 1) + reach) for side in dark.shape]
    power = np.abs(np.fft.rfft2(dark.astype(np.float64), size)) ** 2
    alike = np.roll(np.fft.irfft2(power, size), (reach, reach), (0, 1))
    alike = alike[: 2 * reach + 1, : 2 * reach + 1] / alike[reach, reach]
    turns = np.arange(TURNS) * np.pi / TURNS
    way = np.stack([np.cos(turns), np.sin(turns)])[..., None]  # (2, TURNS, 1)

    def along(lags: Floats) -> Floats:  # (TURNS, lags)
        return _between(alike, *(reach + way * lags))

    first = int(along(np.array([SLOPE]))[:, 0].argmax())
    near = np.arange(first - NEAR, first + NEAR + 1) % TURNS
    lags = np.arange(SHORTEST, longest, 0.5)
    bend = along(lags + BEND) + along(lags - BEND) - 2 * along(lags)
    turn, lag = np.unravel_index(int(bend[near].argmax()), (len(near), len(lags)))
    return float(turns[near[turn]]), float(lags[lag])


def quick_size(least: int) -> int:
    """The next size whose only prime factors are 2, 3 and 5: others take three times as long."""
    size = least
    while math.gcd(size, 30**16) != size:
        size += 1
    return size


def slimmed(dark: Grey, width: float) -> tuple[Grey, float]:
    """The same under a pen whose rim is cut off, and what is left of its width.

    Eyes and dots that a broad pen has nearly filled come apart again, before lines are thinned.
    """
    cut = THINNER * width
    reach = int(cut)
    padded, slim = np.pad(dark, reach), dark.copy()
    height, across = dark.shape
    for y, x in np.argwhere(np.hypot(*np.mgrid[-reach : reach + 1, -reach : reach + 1]) <= cut):
        np.minimum(slim, padded[y : y + height, x : x + across], out=slim)
    return slim, width - 2 * cut + 1


def _kernel(turn: float, length: float, shape: tuple[int, int]) -> NDArray[np.complex128]:
    """The transform of an even smear about the origin."""
    share = np.linspace(-0.5, 0.5, max(3, int(8 * length))) * length
    line = np.zeros(shape)
    x, y = share * np.cos(turn), share * np.sin(turn)
    left, top = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
    x, y = x - left, y - top
    for column, row, part in (
        (left, top, (1 - x) * (1 - y)),
        (left + 1, top, x * (1 - y)),
        (left, top + 1, (1 - x) * y),
        (left + 1, top + 1, x * y),
    ):
        np.add.at(line, (row, column), part)
    return np.fft.rfft2(line / len(share))


def _filtered(picture: Floats, kernel: NDArray[np.complex128]) -> Floats:
    return np.fft.irfft2(np.fft.rfft2(picture) * kernel, picture.shape)


def _between(values: Floats, x: Floats, y: Floats) -> Floats:
    """Values (H, W) between pixels, by cubic interpolation: a linear one would bend by itself."""
    left, top = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
    across, down = _weights(x - left), _weights(y - top)
    total = np.zeros_like(x)
    for row, weight in enumerate(down, -1):
        for column, other in enumerate(across, -1):
            total += weight * other * values[top + row, left + column]
    return total


def _weights(t: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Of four neighbours, `t` behind the second of them (Catmull and Rom)."""
    return (
        ((1 - 0.5 * t) * t - 0.5) * t,
        (1.5 * t - 2.5) * t * t + 1,
        ((2 - 1.5 * t) * t + 0.5) * t,
        (0.5 * t - 0.5) * t * t,
    )
