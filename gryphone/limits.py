"""The range that a number among the settings must lie in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gryphone.errors import ConfigError


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both of them in it unless it is open there."""

    low: float = 0.0
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:  # nan is in none
        above = self.low < value if self.open_low else self.low <= value
        return above and (value < self.high if self.open_high else value <= self.high)

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"more than {self.low:g}" if self.open_low else f"{self.low:g} or more"
        return f"from {self.low:g} to {'less than ' if self.open_high else ''}{self.high:g}"


COUNT = Range(1)
AMOUNT = Range(0)
POSITIVE = Range(0, open_low=True)
SHARE = Range(0, 1)
DECAY = Range(0, 1, open_high=True)


def check_ranges(settings: object, ranges: Mapping[str, Range]) -> None:
    """Raise ConfigError for the first setting that holds a number outside its range."""
    for name, allowed in ranges.items():
        value = getattr(settings, name)
        for number in value if isinstance(value, tuple) else (value,):
            if number not in allowed:
                raise ConfigError(f"{name} is {number}; it must be {allowed}")
