"""A skeleton, one pixel wide, to smooth strokes: lines are followed straight through crossings."""

import numpy as np
from numpy.typing import NDArray

from gryphone.synth.glyphs import Array

Pixel = tuple[int, int]
_AROUND = tuple((r, c) for r in (-1, 0, 1) for c in (-1, 0, 1) if r or c)
_STRAIGHT = -0.35  # cosine between two ends that meet; below it they are one line


def trace(
    skeleton: NDArray[np.bool_], *, spur: float = 0.0, smooth: float = 1.2
) -> tuple[Array, ...]:
    """Strokes (n, 2) x right, y down, of a skeleton (H, W).

    Dead ends shorter than `spur` pixels are dropped; `smooth` is the deviation, in pixels, of the
    Gaussian that takes the stairs out.
    """
    pixels: set[Pixel] = set(zip(*(a.tolist() for a in np.nonzero(skeleton)), strict=True))
    near = {p: _neighbours(p, pixels) for p in pixels}
    nodes = {p for p, others in near.items() if len(others) != 2}
    edges = _prune(_edges(near, nodes), spur)
    edges, cells = _contract(edges, max(spur, 3.0))
    lines = _join(edges, cells)
    return tuple(_smooth(np.array(line, dtype=np.float64)[:, ::-1], smooth) for line in lines)


def _neighbours(pixel: Pixel, pixels: set[Pixel]) -> list[Pixel]:
    """Pixels that touch; a diagonal one counts only when no straight one leads there."""
    row, column = pixel
    found = []
    for r, c in _AROUND:
        if (row + r, column + c) in pixels:
            short = r and c and ((row + r, column) in pixels or (row, column + c) in pixels)
            if not short:
                found.append((row + r, column + c))
    return found


def _edges(near: dict[Pixel, list[Pixel]], nodes: set[Pixel]) -> list[list[Pixel]]:
    """Paths from node to node, then the rings that have none."""
    edges: list[list[Pixel]] = []
    used: set[tuple[Pixel, Pixel]] = set()
    starts = sorted(nodes) + sorted(near.keys() - nodes)
    visited: set[Pixel] = set()
    for start in starts:
        ring = start not in nodes
        if ring and start in visited:
            continue
        if not near[start]:
            edges.append([start])
        for step in near[start][:1] if ring else near[start]:
            if (start, step) in used:
                continue
            path = [start, step]
            while path[-1] not in nodes and path[-1] != start:
                back, here = path[-2], path[-1]
                path.append(next((p for p in near[here] if p != back), back))
                if len(path) > len(near) + 1:
                    break
            used.add((start, step))
            used.add((path[-1], path[-2]))
            visited.update(path)
            edges.append(path)
    return edges


def _prune(edges: list[list[Pixel]], spur: float) -> list[list[Pixel]]:
    """Without the short dead ends that thinning leaves at corners and blots."""
    ends: dict[Pixel, int] = {}
    for edge in edges:
        for end in (edge[0], edge[-1]):
            ends[end] = ends.get(end, 0) + 1
    kept = []
    for edge in edges:
        loose = [ends[edge[0]] == 1, ends[edge[-1]] == 1]
        # Between two junctions, or a line of its own: not a spur.
        if len(edge) > spur or not any(loose) or all(loose):
            kept.append(edge)
    return kept or edges


def _contract(
    edges: list[list[Pixel]], longest: float
) -> tuple[list[list[Pixel]], dict[Pixel, Pixel]]:
    """Take out short links between junctions: thinning parts one crossing into two.

    Returns the other edges, and for the ends of the links the pixel that stands for both.
    """
    cells: dict[Pixel, Pixel] = {}

    def find(pixel: Pixel) -> Pixel:
        while cells.get(pixel, pixel) != pixel:
            pixel = cells[pixel]
        return pixel

    ends = [p for edge in edges for p in (edge[0], edge[-1])]
    kept = []
    for edge in edges:
        inner = ends.count(edge[0]) > 1 and ends.count(edge[-1]) > 1
        if inner and 1 < len(edge) <= longest and edge[0] != edge[-1]:
            cells[find(edge[0])] = find(edge[-1])
        else:
            kept.append(edge)
    return kept or edges, {pixel: find(pixel) for pixel in cells}


def _join(edges: list[list[Pixel]], cells: dict[Pixel, Pixel]) -> list[list[Pixel]]:
    """Edges that go straight on through a junction become one line."""
    lines = [list(edge) for edge in edges]
    meeting: dict[Pixel, list[tuple[int, bool]]] = {}
    for number, line in enumerate(lines):
        if len(line) > 1 and line[0] != line[-1]:
            meeting.setdefault(cells.get(line[0], line[0]), []).append((number, True))
            meeting.setdefault(cells.get(line[-1], line[-1]), []).append((number, False))
    pairs = []
    for ends in meeting.values():
        for i, (a, first_a) in enumerate(ends):
            for b, first_b in ends[i + 1 :]:
                if a != b:
                    cosine = float(_heading(lines[a], first_a) @ _heading(lines[b], first_b))
                    # Where only two meet, the pen turned: it is one line, however sharp the turn.
                    cosine = min(cosine, -1.0) if len(ends) == 2 else cosine
                    pairs.append((cosine, (a, first_a), (b, first_b)))
    partner: dict[tuple[int, bool], tuple[int, bool]] = {}
    for cosine, one, other in sorted(pairs):
        if cosine < _STRAIGHT and one not in partner and other not in partner:
            partner[one], partner[other] = other, one
    return _chains(lines, partner)


def _heading(line: list[Pixel], first: bool) -> Array:
    """Unit direction from an end into its line."""
    path = line if first else line[::-1]
    far = path[min(len(path) - 1, 7)]
    away = np.array(far, dtype=np.float64) - np.array(path[0], dtype=np.float64)
    result: Array = away / max(float(np.hypot(away[0], away[1])), 1e-9)
    return result


def _chains(
    lines: list[list[Pixel]], partner: dict[tuple[int, bool], tuple[int, bool]]
) -> list[list[Pixel]]:
    done: set[int] = set()
    chains: list[list[Pixel]] = []
    loose = [n for n in range(len(lines)) if (n, True) not in partner or (n, False) not in partner]
    for number in [*loose, *range(len(lines))]:
        if number in done:
            continue
        enter = (number, True) if (number, True) not in partner else (number, False)
        chain: list[Pixel] = []
        while enter is not None and enter[0] not in done:
            done.add(enter[0])
            path = lines[enter[0]] if enter[1] else lines[enter[0]][::-1]
            chain += path if not chain or chain[-1] != path[0] else path[1:]
            enter = partner.get((enter[0], not enter[1]))  # type: ignore[assignment]
        chains.append(chain)
    return chains


def _smooth(line: Array, sigma: float) -> Array:
    """A Gaussian along the line; its ends stay where they are."""
    if len(line) < 4 or sigma <= 0:
        return line
    reach = min(int(3 * sigma + 0.5), len(line) - 1)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    kernel /= kernel.sum()
    closed = bool((line[0] == line[-1]).all())
    if closed:
        padded = np.concatenate([line[-reach - 1 : -1], line, line[1 : reach + 1]])
    else:  # reflected through the end points
        padded = np.concatenate(
            [2 * line[0] - line[reach:0:-1], line, 2 * line[-1] - line[-2 : -reach - 2 : -1]]
        )
    return np.stack([np.convolve(padded[:, i], kernel, "valid") for i in (0, 1)], axis=1)
