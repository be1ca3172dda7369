"""An answer as a notebook shows it: no scripts, nothing from elsewhere."""

from html import escape
from typing import Any

from gryphone.errors import GryphoneError

DOUBT = 0.9  # a symbol that is less sure is tinted
HIGH = 90  # pixels of the map of boxes
WIDE = 600


def to_html(result: Any) -> str:
    """A Result: its formula as MathML, then each symbol in its box, tinted where it is doubtful."""
    try:
        formula = result.mathml
    except GryphoneError:
        formula = f"<code>{escape(result.latex)}</code>"
    sure = f"{100 * result.confidence:.0f} %"
    notes = "".join(f"<div><small>{escape(note)}</small></div>" for note in result.warnings)
    return (
        f'<div><div style="font-size:1.5em">{formula} '
        f'<small style="opacity:.6">{sure}</small></div>'
        f"{_map(result.symbols)}<code>{escape(result.latex)}</code>{notes}</div>"
    )


def _map(symbols: Any) -> str:
    """Where each symbol was found, and on its box what else it may be."""
    placed = [(symbol, symbol.box) for symbol in symbols if symbol.box is not None]
    if not placed:
        return ""
    left, top = (min(box[side] for _, box in placed) for side in (0, 1))
    right, bottom = (max(box[side] for _, box in placed) for side in (2, 3))
    scale = min(HIGH / max(bottom - top, 1e-9), WIDE / max(right - left, 1e-9))
    shapes = []
    for symbol, box in placed:
        x, y = ((box[0] - left) * scale + 2, (box[1] - top) * scale + 2)
        wide, high = (max((box[i + 2] - box[i]) * scale, 1) for i in (0, 1))
        red = max(0.0, min(1.0, (DOUBT - symbol.confidence) / DOUBT))
        others = ", ".join(f"{name} {100 * p:.0f} %" for name, p in symbol.alternatives[:3])
        title = f"{symbol.symbol} {100 * symbol.confidence:.0f} %" + (others and f", or {others}")
        shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="#d33" '
            f'fill-opacity="{red:.2f}" stroke="#888"><title>{escape(title)}</title></rect>'
        )
    size = ((right - left) * scale + 4, (bottom - top) * scale + 4)
    return f'<svg width="{size[0]:.0f}" height="{size[1]:.0f}">{"".join(shapes)}</svg><br/>'
