"""Every error a user can cause. Each message names the value, the place and the remedy."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class GryphoneError(ValueError):
    """Base class: the command line turns it into one line and exit code 2."""


class InkError(GryphoneError):
    """Ink that cannot be read or drawn."""


class LatexError(GryphoneError):
    """LaTeX that cannot be read; `position` is the character offset in the source."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message if position is None else f"{message} (at character {position})")
        self.position = position


class TokenError(GryphoneError):
    """A token that a vocabulary does not hold."""


class DataError(GryphoneError):
    """A data set, label file or packed store that cannot be used."""


class CheckpointError(GryphoneError):
    """A checkpoint directory that is missing, truncated or foreign."""


class ConfigError(GryphoneError):
    """A setting with an impossible value."""


class MissingExtra(GryphoneError):
    """An optional dependency is not installed."""


def need(module: str, extra: str) -> None:
    """Raise MissingExtra unless `module` can be imported; name the extra that brings it."""
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise MissingExtra(f"{module} is not installed; run: pip install 'gryphone[{extra}]'")


@contextmanager
def writing(path: Path, remedy: str = "make room or choose another place") -> Iterator[None]:
    """Turn what the system says against writing to `path` into one line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path}: cannot be written: {reason}; {remedy}") from error
