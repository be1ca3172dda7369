"""A canvas in a notebook: the page's own modules in a widget, read by the notebook's kernel."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from gryphone.errors import ConfigError, GryphoneError, need
from gryphone.ink import Ink
from gryphone.page.folder import STATIC
from gryphone.reading.inputs import read_input
from gryphone.recognition.question import Ask
from gryphone.recognition.recognizer import Recognizer, load
from gryphone.recognition.result import Result

try:
    import anywidget
    import traitlets
except ImportError:
    need("anywidget", "notebook")
    raise

WIDGET = Path(__file__).parent / "notebook" / "widget.js"
_IMPORT = re.compile(r'from "\./([\w-]+\.js)"')
_FONT = re.compile(r"@font-face\{.*?\}")
_PROPERTY = re.compile(r"@property .*?\}", re.DOTALL)
# A widget is one module, and ours are several: they find each other as blobs. KaTeX is to see no
# loader of the notebook's.
_START = """
const sources = SOURCES;
const urls = {};
for (const [name, text] of Object.entries(sources)) {
  const linked = text.replace(/from "\\.\\/(.+?)"/g, (_, other) => `from "${urls[other]}"`);
  urls[name] = URL.createObjectURL(new Blob([linked], { type: "text/javascript" }));
}
const { render } = await import(urls["widget.js"]);
export default { render };
"""


def script() -> str:
    """The widget as one module."""
    sources = {"look.js": _look()}

    def add(name: str) -> None:
        if name in sources:
            return
        text = _text(WIDGET if name == WIDGET.name else STATIC / "js" / name)
        for other in _IMPORT.findall(text):
            add(other)
        sources[name] = text

    add(WIDGET.name)
    katex = _text(STATIC / "katex" / "katex.min.js")
    start = _START.replace("SOURCES", json.dumps(sources), 1)
    return f"const define = undefined, exports = undefined, module = undefined;\n{katex}\n{start}"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _look() -> str:
    """The page's styles, icons and fonts as a module."""
    styles = _text(STATIC / "katex" / "katex.min.css")
    base, page = (_text(STATIC / "css" / name) for name in ("base.css", "page.css"))
    fonts = []
    for rule in _FONT.findall(styles):
        family, style, weight = (
            re.search(rf"font-{what}:\"?([^;\"]+)", rule) for what in ("family", "style", "weight")
        )
        file = re.search(r"url\(([^)]+\.woff2)\)", rule)
        assert family and style and weight and file
        path = STATIC / "katex" / file[1]
        if path.is_file():  # those that no answer needs are not there
            data = base64.b64encode(path.read_bytes()).decode()
            fonts.append([family[1], style[1], weight[1], data])
    sprite = re.search(r'<svg class="sprite".*?</svg>', _text(STATIC / "index.html"), re.DOTALL)
    parts = {
        "STYLE": _FONT.sub("", styles) + base.replace(":root", ":host") + page,
        "PROPERTIES": "\n".join(_PROPERTY.findall(base)),
        "SPRITE": sprite[0] if sprite else "",
        "FONTS": fonts,
    }
    return "".join(f"export const {name} = {json.dumps(value)};\n" for name, value in parts.items())


def _strokes(ink: Ink | None, _: Any) -> list[Any]:
    return [stroke.tolist() for stroke in ink.strokes] if ink else []


class Pad(anywidget.AnyWidget):  # type: ignore[misc]
    """A canvas to write on in a notebook. `latex` and `result` are what was read of the `ink`
    there (None: nothing is written); `observe` tells of changes. Options are those of
    `Recognizer.recognize`."""

    _esm = script()
    ink = traitlets.Instance(Ink, allow_none=True, read_only=True).tag(sync=True, to_json=_strokes)
    result = traitlets.Instance(Result, allow_none=True, read_only=True)
    latex = traitlets.Unicode("", read_only=True).tag(sync=True)
    seen = traitlets.Float(0.0).tag(sync=True)  # the question whose answer is shown
    height = traitlets.Int(300).tag(sync=True)  # of the paper, in pixels

    def __init__(
        self, recognizer: Recognizer | None = None, height: int = 300, **options: Any
    ) -> None:
        if height < 100:
            raise ConfigError(f"height is {height}; it must be 100 pixels or more")
        super().__init__(height=height)
        self._recognizer, self._ask = recognizer or load(), Ask.of(options)
        self.on_msg(self._answer)

    def _answer(self, _: Any, asked: dict[str, Any], __: Any) -> None:
        """Read what the canvas sends, and send back each step and the result."""

        def tell(event: str, data: Any) -> None:
            self.send({"id": asked["id"], "event": event, "data": data})

        ink, result = None, None
        try:
            if asked["strokes"]:
                ink = read_input(asked["strokes"], "pad").ink
                watched = replace(self._ask, on_step=lambda step: tell("step", step.to_dict()))
                result = self._recognizer.recognize(ink, ask=watched)
                tell("result", result.to_full_dict())
        except GryphoneError as error:
            tell("error", str(error))
        with self.hold_trait_notifications():
            self.set_trait("ink", ink)
            self.set_trait("result", result)
            self.set_trait("latex", result.latex if result else "")
