"""The structure of raw LaTeX tokens on the device: levels, groups and positions without a loop.

Canvases come padded, (C, L), and are compared place by place: L² small numbers for each. What is
no formula (a hypothesis with a brace too many) gets some structure, too, and `well_formed` says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gryphone.errors import ConfigError
from gryphone.latex.tree import BINOMIALS, FRACTIONS
from gryphone.rivals.trunk import Sheet
from gryphone.tokens import PAD

OTHER, OPEN, CLOSE, UP, DOWN, PAIR, ROOT, LEFT, RIGHT, END = range(10)
_ROLES = {"{": OPEN, "}": CLOSE, "^": UP, "_": DOWN, r"\sqrt": ROOT, "[": LEFT, "]": RIGHT}
_ROLES |= dict.fromkeys(FRACTIONS | BINOMIALS, PAIR) | {PAD: END}


def roles_of(kind: str, vocabularies: tuple[int, ...], names: Sequence[str]) -> Tensor:
    """What each token (V,) does for the structure; a kind that asks reads raw tokens alone."""
    if len(vocabularies) != 1 or len(names) != vocabularies[0]:
        raise ConfigError(
            f"kind {kind!r} reads the structure off raw LaTeX tokens; set scheme: raw"
        )
    return torch.tensor([_ROLES.get(name, OTHER) for name in names])


@dataclass(frozen=True)
class Rows:
    """The canvases of a sheet, padded, from left to right whatever way they are written."""

    ids: Tensor  # (C, L), PAD behind the last token
    lengths: Tensor  # (C,) without PAD
    turn: Tensor  # (C, L) where each place of a canvas stands in its other order
    slot: Tensor  # (N,) where each place of the sheet stands among (C * L)

    def written(self, x: Tensor) -> Tensor:
        """What belongs to places (C, L, ...) from left to right, in the sheet's order (N, ...)."""
        rows = torch.arange(len(x), device=x.device)[:, None]
        return x[rows, self.turn].flatten(0, 1)[self.slot]


def rows_in(sheet: Sheet) -> Rows:
    """Lay a sheet's canvases out."""
    longest, count = sheet.own.longest, len(sheet.backward)
    slot = sheet.canvas * longest + sheet.index
    ids = sheet.truth.new_zeros(count * longest).index_copy(0, slot, sheet.truth[:, 0])
    lengths = sheet.own.offsets.diff().long() - 1
    place = torch.arange(longest, device=slot.device)
    turned = sheet.backward[:, None] & (place < lengths[:, None])
    turn = torch.where(turned, lengths[:, None] - 1 - place, place)
    return Rows(ids.view(count, longest).gather(1, turn), lengths, turn, slot)


def last_before(chosen: Tensor, key: Tensor, wanted: Tensor) -> Tensor:
    """The last place before each (C, L) that is chosen and whose key is as wanted; -1 for none."""
    place = torch.arange(chosen.shape[1], dtype=torch.int16, device=chosen.device)
    hit = key[:, None] == wanted[:, :, None]
    hit &= chosen[:, None] & (place < place[:, None])
    return torch.where(hit, place, -1).amax(-1).long()


def at(x: Tensor, place: Tensor, none: int) -> Tensor:
    """x (C, L) at a place for each (C, L), and `none` where that is -1."""
    return torch.where(place >= 0, x.gather(1, place.clamp_min(0)), none)


def _levels(opens: Tensor, closes: Tensor) -> Tensor:
    """How many groups each place lies in; the marks of a group lie outside it."""
    opens, closes = opens.long(), closes.long()
    return opens.cumsum(1) - opens - closes.cumsum(1)


@dataclass(frozen=True)
class Groups:
    """Which group each place (C, L) lies in: in braces, or in the brackets of a root's index."""

    role: Tensor
    opens: Tensor  # bool
    closes: Tensor  # bool
    level: Tensor
    owner: Tensor  # the mark that opened the group which a place lies in, or -1
    opener: Tensor  # of a mark that closes a group: the one that opened it, or -1

    @property
    def before(self) -> Tensor:
        """The role of the token before each."""
        return torch.cat([torch.full_like(self.role[:, :1], END), self.role[:, :-1]], 1)

    @property
    def after(self) -> Tensor:
        """The role of the token behind each."""
        return torch.cat([self.role[:, 1:], torch.full_like(self.role[:, :1], END)], 1)

    @property
    def second(self) -> Tensor:
        """Whether a mark opens the second argument of a fraction: behind the first one's end."""
        first = at(self.before, self.opener, END) == PAIR  # closers of first arguments
        return self.opens & (self.role == OPEN) & shifted(first & self.closes)


def shifted(x: Tensor) -> Tensor:
    """Truth values (C, L) of the place before each."""
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)


def groups_of(role: Tensor) -> Groups:
    """The groups of roles (C, L)."""
    opens, closes = role == OPEN, role == CLOSE
    level = _levels(opens, closes)
    owner = last_before(opens, level, level - 1)
    # The brackets of an index: `[` behind a root and the next `]` of the same group. A root in an
    # index takes that one; the outer brackets are plain symbols then.
    left = (role == LEFT) & shifted(role == ROOT)
    right = role == RIGHT
    last = last_before(left | right, owner, owner)
    ends = right & (at(left.long(), last, 0) == 1)
    begins = torch.zeros_like(role).scatter_add(1, last.clamp_min(0), ends.long()) > 0
    opens, closes = opens | begins, closes | ends
    level = _levels(opens, closes)
    owner = last_before(opens, level, level - 1)
    opener = torch.where(closes, last_before(opens, level, level), -1)
    return Groups(role, opens, closes, level, owner, opener)


def well_formed(groups: Groups) -> Tensor:
    """Whether all groups close, and scripts, fractions and roots have theirs (C,)."""
    role, opens, after = groups.role, groups.opens, groups.after
    opened = torch.cat([opens[:, 1:], torch.zeros_like(opens[:, :1])], 1) & (after != END)
    wants = (role == UP) | (role == DOWN) | (role == PAIR) | (role == ROOT)
    wants |= groups.closes & (role == RIGHT)  # an index
    wants |= groups.closes & (at(groups.before, groups.opener, END) == PAIR)
    balanced = groups.opens.sum(1) == groups.closes.sum(1)
    return balanced & (groups.level >= 0).all(1) & (opened | ~wants).all(1)
