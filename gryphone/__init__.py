"""GryphOne: handwritten mathematics to LaTeX by symbol-aware masked diffusion."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gryphone.recognize import Recognizer as Recognizer
    from gryphone.recognize import load as load
    from gryphone.result import Result as Result

__version__ = "0.1.0"
__all__ = ["Recognizer", "Result", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """Load the recogniser, and PyTorch with it, only when it is asked for."""
    if name in ("load", "Recognizer"):
        from gryphone import recognize

        return getattr(recognize, name)
    if name == "Result":
        from gryphone.result import Result

        return Result
    raise AttributeError(f"module 'gryphone' has no attribute {name!r}")
