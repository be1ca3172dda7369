"""A pushdown automaton that reads LaTeX token by token: which token may stand where.

It accepts the normaliser's spelling (every script and argument in braces) of what KaTeX renders.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from gryphone.latex.tree import INFIX, LIMITS, MAX_DEPTH, ONE_ARGUMENT, TWO_ARGUMENTS, words

# KaTeX does not know these (\fint needs the package esint): never an answer.
UNRENDERED = frozenset({r"\fint", r"\mbox"})
# What the normaliser drops, and what binds its neighbours in ways that no label needs.
_SIZED = words(
    r"""$ # % ' \left \right \middle \hline \big \Big \bigg \Bigg \bigl \Bigl \biggl \Biggl
    \bigr \Bigr \biggr \Biggr \bigm \Bigm \biggm \Biggm"""
)
REFUSED = _SIZED | UNRENDERED | LIMITS | frozenset(INFIX)
_TEXT = words(r"\text \textrm \textbf \textit \textsf \texttt \textnormal \emph \hbox")
_MATRICES = words("matrix pmatrix bmatrix Bmatrix vmatrix Vmatrix smallmatrix cases array")
_MARKS = {"{": "{", "}": "}", "^": "^", "_": "_", "[": "any [", "]": "any ]"}
_SYMBOLS = {
    "&": "&",
    r"\\": r"\\",
    "[": "symbol [",
    "]": "symbol ]",
    r"\sqrt": "root",
    **dict.fromkeys((r"\mod", r"\pmod", r"\pod"), "item"),
    **dict.fromkeys("lcr|", "column"),
    **dict.fromkeys(ONE_ARGUMENT, "1"),
    **dict.fromkeys(TWO_ARGUMENTS, "2"),
    **dict.fromkeys(_TEXT, "text"),
    **{f"\\begin{{{name}}}": f"begin {name}" for name in _MATRICES},
    **{f"\\end{{{name}}}": f"end {name}" for name in _MATRICES},
}
_INVISIBLE = frozenset({*"{}^_[]&", r"\\", "empty"}) | {
    f"{edge} {name}" for edge in ("begin", "end") for name in _MATRICES
}


class Frame(NamedTuple):
    """One open construct.

    kind: "" (the formula), "{", "[" (a root's index), "columns", "text" or a matrix's name.
    want: what must follow: "2" or "1" braced arguments, "root" (an index or an argument),
    "script", "columns" or "text" (their brace), "item" (no end, no group), "row" (no `[`), "base"
    (scripts).
    scripts: 1 when the last atom has a subscript, 2 a superscript, 3 both.
    bare: a `]` here would close a root's index.
    """

    kind: str = ""
    want: str = ""
    scripts: int = 0
    bare: bool = False


# Whether something visible was written, then the open constructs, the innermost last.
State = tuple[bool, tuple[Frame, ...]]
START: State = (False, (Frame(),))


def action_of(token: str, raw: bool) -> str | None:
    """What a token does: tokens with one action are interchangeable. None: never an answer.

    Among `raw` tokens braces, scripts and index brackets stand for themselves; elsewhere they
    are modifiers, written `{ } ^ _ [ ]`, and a bracket in the symbol stream is only a symbol.
    """
    if raw and token in _MARKS:
        return _MARKS[token]
    foreign = token.startswith((r"\begin{", r"\end{")) and token not in _SYMBOLS
    if token in REFUSED or token in ("{", "}", "^", "_") or foreign or not token:
        return None
    letter = len(token) == 1 and token.isascii() and token.isalnum()
    return _SYMBOLS.get(token, "letter" if letter else "plain")


@cache
def step(top: Frame, action: str) -> tuple[Frame, ...] | None:
    """The frames that replace the innermost one; None when it does not allow the action."""
    kind, want, scripts, bare = top
    literal = kind in ("columns", "text")
    if action in ("any [", "any ]"):
        mark = step(top, action[-1])
        return mark if mark is not None else step(top, f"symbol {action[-1]}")
    if action == "{":
        # These macros strip the braces of a group, and scripts inside and behind it would meet.
        return None if literal or want in ("item", "base") else _open(top)
    if action == "}":
        return () if kind in ("{", "columns", "text") and not want else None
    if action == "[":
        # A reader of the outer index would stop at the inner one's `]`.
        opens = want == "root" and not bare
        return (Frame(kind, "1", 0, bare), Frame("[", bare=True)) if opens else None
    if action == "]":
        return () if kind == "[" and not want else None
    if action in ("^", "_") and want == "base":
        want = ""
    if want not in ("", "item", "row") or (literal and action not in ("column", "letter", "empty")):
        return None
    if action in ("^", "_"):
        script = 1 if action == "_" else 2
        return None if scripts & script else (Frame(kind, "script", scripts | script, bare),)
    return _symbol(top, action)


def _open(top: Frame) -> tuple[Frame, ...]:
    """The brace that the frame waits for, or a group."""
    inside = {"columns": Frame("columns", "item"), "text": Frame("text")}
    # A group that is no argument is there for its scripts, or to hold an index's brackets: what is
    # misread for a fraction's or root's sign leaves others.
    group = top.want in ("", "row") and top.kind != "["
    want = "1" if top.want == "2" else "base" * group
    scripts = top.scripts if top.want == "script" else 0
    return (Frame(top.kind, want, scripts, top.bare), inside.get(top.want, Frame("{")))


def _symbol(top: Frame, action: str) -> tuple[Frame, ...] | None:
    """A symbol in a frame that waits for nothing else."""
    after = Frame(top.kind, "", 0, top.bare)
    edge, _, name = action.partition(" ")
    cell = top.kind in _MATRICES and top.want != "item"
    if action == "empty":
        return (top,)
    if edge == "begin":
        return (after, Frame(name, "columns" if name == "array" else "", 0, top.bare))
    if edge == "end":
        return () if cell and name == top.kind else None
    if action in ("&", r"\\"):
        # LaTeX takes a bracket behind `\\` for the height of the row.
        return (after._replace(want="row" if action == r"\\" else ""),) if cell else None
    if action in ("2", "1", "root", "text", "item"):
        return (after._replace(want=action),)
    if (name == "[" and top.want == "row") or (name == "]" and top.bare):
        return None
    return None if top.kind == "columns" and action != "column" else (after,)


class Effect(NamedTuple):
    """What actions make of the innermost frames: whether they show something, the frames in
    their place, and the actions left for the frames below once these are closed."""

    seen: bool
    frames: tuple[Frame, ...]
    rest: tuple[str, ...] = ()


def apply(seen: bool, frames: tuple[Frame, ...], actions: Sequence[str]) -> Effect | None:
    """The effect of some actions; None when one of them is not allowed."""
    for index, action in enumerate(actions):
        if not frames:
            return Effect(seen, frames, tuple(actions[index:]))
        new = step(frames[-1], action)
        if new is None:
            return None
        frames = frames[:-1] + new
        seen = seen or action not in _INVISIBLE
    return Effect(seen, frames)


def after(state: State, effect: Effect) -> State | None:
    """The state when its innermost frame meets an effect; None when those below refuse the rest."""
    seen, frames = state[0] or effect.seen, state[1][:-1] + effect.frames
    if effect.rest:
        return run((seen, frames), effect.rest)
    return (seen, frames) if len(frames) <= MAX_DEPTH else None


def run(state: State, actions: Sequence[str]) -> State | None:
    """The state behind some actions; None when one of them is not allowed."""
    effect = apply(*state, actions)
    if effect is None or effect.rest or len(effect.frames) > MAX_DEPTH:
        return None
    return effect.seen, effect.frames


def accepting(state: State) -> bool:
    """Whether the formula may end here: something is visible, nothing is open or awaited."""
    return state[0] and len(state[1]) == 1 and not state[1][0].want


_WEIGHTS = {"": 0, "row": 0, "item": 1, "base": 4, "columns": 4, "2": 6}


def weight(frames: tuple[Frame, ...]) -> int:
    """How much is left to do in the innermost frames; what leads towards an end makes it smaller.

    Four to a unit: a new symbol, which may take the scripts the last one has, is a small step too.
    """
    left = sum(2 + _WEIGHTS.get(frame.want, 3) for frame in frames)
    return 4 * left + (frames[-1].scripts if frames else 0)
