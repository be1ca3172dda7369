"""What the commands of this folder share: errors in one line, and what differs in settings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gryphone.errors import GryphoneError


def run(main: Callable[[], None]) -> None:
    """Run a command; an error that a user can cause becomes one line and exit code 2."""
    try:
        main()
        return
    except GryphoneError as error:
        line, code = str(error), 2
    except OSError as error:
        line, code = f"{error.filename or 'output'}: {error.strerror or error}", 2
    except KeyboardInterrupt:
        line, code = "stopped", 130
    print(f"{Path(sys.argv[0]).stem}: {line}", file=sys.stderr)
    sys.exit(code)


def first_difference(one: Any, other: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """The first value in which nested settings differ: its dotted name, and both values."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        one, other = dict(enumerate(one)), dict(enumerate(other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in {**one, **other}:
            inner = f"{name}.{key}" if name else str(key)
            found = first_difference(one.get(key), other.get(key), inner)
            if found is not None:
                return found
        return None
    return None if one == other else (name, one, other)
