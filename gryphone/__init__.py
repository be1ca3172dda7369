"""GryphOne: handwritten mathematics to LaTeX by symbol-aware masked diffusion.

recognizer = gryphone.load()
print(recognizer.recognize("note.jpg").latex)
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gryphone.errors import GryphoneError as GryphoneError
    from gryphone.page.widget import Pad as Pad
    from gryphone.recognition.question import Ask as Ask
    from gryphone.recognition.recognizer import Encoded as Encoded
    from gryphone.recognition.recognizer import Recognizer as Recognizer
    from gryphone.recognition.recognizer import load as load
    from gryphone.recognition.result import Result as Result

__version__ = "0.1.0"
# `Pad` is not among them: it needs an extra, and `from gryphone import *` must do without.
__all__ = ["Ask", "Encoded", "GryphoneError", "Recognizer", "Result", "__version__", "load"]

_HOMES = {
    "Ask": "recognition.question",
    "Encoded": "recognition.recognizer",
    "GryphoneError": "errors",
    "Pad": "page.widget",
    "Recognizer": "recognition.recognizer",
    "Result": "recognition.result",
    "load": "recognition.recognizer",
}


def __dir__() -> list[str]:
    """What is there, the parts that are not imported yet among it."""
    return sorted({*globals(), *__all__} - {"TYPE_CHECKING"})


if not TYPE_CHECKING:  # or type checkers would believe that there is everything

    def __getattr__(name: str) -> object:
        """Import a part only when it is asked for."""
        if name not in _HOMES:
            raise AttributeError(f"module 'gryphone' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"gryphone.{_HOMES[name]}"), name)
