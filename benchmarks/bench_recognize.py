"""How long one answer takes on this CPU, by kind of input: part of `make bench`.

The bundled inks, and a photograph of one of them at 1 and 12 megapixels; by ONNX Runtime, and by
PyTorch in the same run.
"""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

import gryphone
from gryphone.cli import calm_threads
from gryphone.reading.inputs import read_input
from gryphone.synth.paper import Paper, render_page

EXAMPLES = Path(__file__).parents[1] / "examples" / "ink"
PHOTOGRAPHED = EXAMPLES / "12-square.inkml"


def milliseconds(work: Callable[[], object], calls: int = 7) -> float:
    """The median of some calls, once it is warm."""
    work()
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return 1000 * statistics.median(times)


def photograph(megapixels: float, ink: Path = PHOTOGRAPHED, kind: str = "JPEG") -> bytes:
    """A picture of an example, written on paper."""
    drawn = render_page(read_input(ink).ink.strokes, Paper(), np.random.default_rng(0))
    page = Image.fromarray(np.asarray(drawn)).convert("RGB")
    zoom = (megapixels * 1e6 / (page.width * page.height)) ** 0.5
    out = io.BytesIO()
    page.resize((round(page.width * zoom), round(page.height * zoom))).save(out, kind)
    return out.getvalue()


def main() -> None:
    calm_threads()  # as the commands do, before PyTorch
    light, torch = gryphone.load(), gryphone.load(backend="torch")
    inputs: dict[str, object] = {p.stem: p for p in sorted(EXAMPLES.glob("*.inkml"))}
    inputs |= {f"photo, {n} megapixels": photograph(n) for n in (1, 12)}
    table = Table("input", "symbols", "reading, ms", "answer, ms", "with PyTorch")
    for name, source in inputs.items():
        symbols = len(light.recognize(source, name=name).symbols)
        reading = milliseconds(lambda s=source, n=name: read_input(s, n))
        fast = milliseconds(lambda s=source, n=name: light.recognize(s, name=n))
        slow = milliseconds(lambda s=source, n=name: torch.recognize(s, name=n))
        table.add_row(
            name, str(symbols), f"{reading:.0f}", f"{fast:.0f}", f"{slow:.0f} ({slow / fast:.2f}x)"
        )
    Console().print(table)


if __name__ == "__main__":
    main()
