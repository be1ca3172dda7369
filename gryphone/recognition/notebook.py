"""An answer as a notebook shows it: no scripts, nothing from elsewhere."""

from html import escape
from typing import Any

import numpy as np

from gryphone.errors import GryphoneError

DOUBT = 0.9  # a symbol that is less sure is tinted
HIGH = 90  # pixels of the map of boxes
WIDE = 600


def to_html(result: Any) -> str:
    """A Result: its formula as MathML, then its ink with each symbol's box, tinted in doubt."""
    try:
        formula = result.mathml
    except GryphoneError:
        formula = f"<code>{escape(result.latex)}</code>"
    sure = f"{100 * result.confidence:.0f} %"
    notes = "".join(f"<div><small>{escape(note)}</small></div>" for note in result.warnings)
    return (
        f'<div><div style="font-size:1.5em">{formula} '
        f'<small style="opacity:.6">{sure}</small></div>'
        f"{_map(result.symbols, result.ink)}<code>{escape(result.latex)}</code>{notes}</div>"
    )


def _map(symbols: Any, ink: Any) -> str:
    """The ink; where each symbol was found in it, and on its box what else it may be."""
    placed = [(symbol, symbol.box) for symbol in symbols if symbol.box is not None]
    if not placed:
        return ""
    points = np.concatenate([[b[:2], b[2:]] for _, b in placed] + [s[:, :2] for s in ink])
    corner, size = points.min(0), np.maximum(np.ptp(points, axis=0), 1e-9)
    scale = min(HIGH / size[1], WIDE / size[0])

    def at(some: Any) -> Any:
        return (np.asarray(some) - corner) * scale + 2

    shapes = []
    for stroke in ink:
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in at(stroke[:, :2]))
        shapes.append(f'<polyline points="{line}" fill="none" stroke="currentColor"/>')
    for symbol, box in placed:
        (x, y), (right, bottom) = at(box[:2]), at(box[2:])
        red = max(0.0, min(1.0, (DOUBT - symbol.confidence) / DOUBT))
        others = ", ".join(f"{name} {100 * p:.0f} %" for name, p in symbol.alternatives[:3])
        title = f"{symbol.symbol} {100 * symbol.confidence:.0f} %" + (others and f", or {others}")
        shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(right - x, 1):.1f}" '
            f'height="{max(bottom - y, 1):.1f}" fill="#d33" fill-opacity="{red:.2f}" '
            f'stroke="#888"><title>{escape(title)}</title></rect>'
        )
    wide, high = size * scale + 4
    return f'<svg width="{wide:.0f}" height="{high:.0f}">{"".join(shapes)}</svg><br/>'
