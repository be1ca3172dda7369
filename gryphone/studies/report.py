"""What a study found, as Markdown, JSON and plots."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gryphone.errors import need, writing
from gryphone.release.card import table as markdown
from gryphone.studies.measures import plain

Cells = Sequence[Any]
TICKS = (1, 2, 5, 10, 20, 50)
SAID = (
    "Plain decoding, in percent: mean ± standard deviation over independent runs, and in brackets "
    "the 95 % interval of the mean over inks drawn anew. Made by `make tables`."
)


@dataclass(frozen=True)
class Panel:
    """One plot: lines (x, y) by name; names that agree up to a comma share a colour."""

    title: str
    x: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    steep: bool = False  # values of several magnitudes


@dataclass(frozen=True)
class Report:
    """What a study found: tables (title, header, rows), all of it as data, and plots."""

    title: str
    notes: list[str]
    tables: Sequence[tuple[str, Cells, Sequence[Cells]]]
    data: dict[str, Any]
    panels: list[Panel] = field(default_factory=list)


def write(report: Report, name: str, out: Path) -> Path:
    """Write a report; returns its Markdown."""
    lines = [f"# {report.title}", "", SAID, *(f"\n{note}" for note in report.notes), ""]
    for title, header, rows in report.tables:
        lines += [f"## {title}\n"] if title else []
        cells = [[_cell(cell) for cell in row] for row in rows]
        lines += [markdown("|".join(map(str, header)), cells), ""]
    if report.panels:
        lines.append(f"![{report.title}]({name}.png)\n")
    path = out / f"{name}.md"
    with writing(path):
        out.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines))
        data = {"title": report.title, "notes": report.notes, "data": report.data}
        (out / f"{name}.json").write_text(json.dumps(plain(data), ensure_ascii=False) + "\n")
        if report.panels:
            draw(report.panels, out / f"{name}.png")
    return path


def _cell(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else str(value).replace("|", "\\|")


def draw(panels: Sequence[Panel], path: Path) -> None:
    """Panels side by side."""
    need("matplotlib", "analysis")
    from matplotlib.figure import Figure as Sheet

    sheet = Sheet(figsize=(4.2 * len(panels), 3.4), layout="constrained")
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    colours, ways = ([*dict.fromkeys(n.partition(",")[k] for n in names)] for k in (0, 2))
    shown: dict[str, Any] = {}
    for axes, panel in zip(sheet.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for name, (x, y) in panel.lines.items():
            own, _, way = name.partition(",")
            colour = f"C{colours.index(own)}"
            style = ("-", "--", ":", "-.", (0, (1, 3)))[ways.index(way) % 5]
            (shown[name],) = axes.plot(
                list(x), list(y), "o", linestyle=style, color=colour, markersize=2.5, linewidth=1.2
            )
        if panel.steep:
            axes.set_yscale("log")
        axes.set_title(panel.title, fontsize=9)
        axes.set_xlabel(panel.x, fontsize=8)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
        if panel.x == "T":
            axes.set_xscale("log")
            axes.set_xticks(TICKS, map(str, TICKS))
    sheet.legend(
        [*shown.values()],
        [*shown],
        loc="outside lower center",
        ncols=min(4, len(names)),
        fontsize=8,
    )
    sheet.savefig(path, dpi=90, metadata={"Software": None})
