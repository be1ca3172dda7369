"""GryphOne: handwritten mathematics to LaTeX by symbol-aware masked diffusion."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gryphone.recognition.recognizer import Recognizer as Recognizer
    from gryphone.recognition.recognizer import load as load
    from gryphone.recognition.result import Result as Result

__version__ = "0.1.0"
__all__ = ["Recognizer", "Result", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """Import the recogniser only when it is asked for; `load` brings PyTorch."""
    if name in ("load", "Recognizer"):
        from gryphone.recognition import recognizer

        return getattr(recognizer, name)
    if name == "Result":
        from gryphone.recognition.result import Result

        return Result
    raise AttributeError(f"module 'gryphone' has no attribute {name!r}")
