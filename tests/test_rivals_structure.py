"""What the rivals read off raw LaTeX: implicit characters, parents, positions; by hand."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gryphone.config import PRESETS
from gryphone.errors import ConfigError
from gryphone.kinds import build_model
from gryphone.model import Memory, Packing
from gryphone.rivals.ical import implicit_loss, implicit_of
from gryphone.rivals.posformer import ForestDecoder, codes_of, targets_of
from gryphone.rivals.structure import Groups, groups_of, roles_of, rows_in, well_formed
from gryphone.rivals.tamer import TreeDecoder, parents_of
from gryphone.rivals.trunk import Sheet, sheet_of
from gryphone.tokens import MASK, PAD

RAW = r"{ } ^ _ [ ] \frac \sqrt \overline a b c 1 2 n +"
NAMES = (PAD, MASK, *RAW.split())
IDS = {name: at for at, name in enumerate(NAMES)}
ROLES = roles_of("tamer", (len(NAMES),), NAMES)


def ids_of(*formulas: str) -> Tensor:
    """Padded rows of ids, longer than the longest by two."""
    rows = [[IDS[token] for token in formula.split()] for formula in formulas]
    out = torch.zeros(len(rows), max(map(len, rows)) + 2, dtype=torch.long)
    for row, ids in zip(out, rows, strict=True):
        row[: len(ids)] = torch.tensor(ids)
    return out


def groups(*formulas: str) -> Groups:
    return groups_of(ROLES[ids_of(*formulas)])


PARENTS = {
    "a + b": [-1, 0, 1],
    # a ^ { b _ { 1 } } + c: the exponent hangs on a, its index on b, the sign on a again.
    "a ^ { b _ { 1 } } + c": [-1, -1, -1, 0, -1, -1, 3, -1, -1, 0, 9],
    r"\frac { a + b } { c } 2": [-1, -1, 0, 2, 3, -1, -1, 0, -1, 0],
    r"a _ { 1 } ^ { 2 } b": [-1, -1, -1, 0, -1, -1, -1, 0, -1, 0],
    r"1 + \sqrt [ n ] { a } + [ b ]": [-1, 0, 1, -1, 2, -1, -1, 2, -1, 2, 9, 10, 11],
    r"\overline { a b } c": [-1, -1, 0, 2, -1, 0],
    "^ { 2 }": [-1, -1, -1, -1],  # on nothing
}


def test_parents_are_those_of_the_tree() -> None:
    found = parents_of(groups(*PARENTS))
    for row, parents in zip(found.tolist(), PARENTS.values(), strict=True):
        assert row == parents + [-1] * (len(row) - len(parents))


# The way to each token: R the row, A above, B below.
CODES = {
    "a + b": "R R R",
    "a ^ { b _ { 1 } } + c": "R R R AR AR AR ABR AR R R R",
    r"\frac { a + b } { c } 2": "R R AR AR AR R R BR R R",
    r"\sqrt { a } + \sqrt [ n ] { \frac { 1 } { 2 } }": "R R BR R R R R AR R R BR BR BAR BR BR BBR "
    "BR R",
    # An accent's argument is part of the row; so is a bracket that belongs to no root.
    r"\overline { a ^ { 2 } } [ b ]": "R R R R R AR R R R R R",
    "a ^ { a ^ { a ^ { a ^ { a ^ { b } } } } }": "R R R AR AR AR AAR AAR AAR AAAR AAAR AAAR AAAAR "
    "AAAAR AAAAR AAAAA AAAAR AAAR AAR AR R",
}
LETTERS = {".": 0, "R": 3, "A": 4, "B": 5}


def test_codes_lead_from_the_outermost_group_in() -> None:
    codes = codes_of(groups(*CODES))
    for row, (formula, text) in zip(codes.tolist(), CODES.items(), strict=True):
        expected = [[LETTERS[x] for x in way.ljust(5, ".")] for way in text.split()]
        assert row[: len(expected)] == expected, formula
        assert not any(map(any, row[len(expected) :])), "padding has no position"


def test_targets_are_the_depth_and_the_innermost_side() -> None:
    rows = [[LETTERS[x] for x in way.ljust(5, ".")] for way in ("R", "AR", "ABR", "BAAAR", "BAAAB")]
    level, side = targets_of(torch.tensor([*rows, [0] * 5]))
    assert level.tolist() == [0, 1, 2, 4, 4, 0]
    assert side.tolist() == [3, 4, 5, 4, 4, 0]  # the end has no side


@pytest.mark.parametrize(
    ("formula", "right"),
    [
        (r"a ^ { \frac { 1 } { 2 } } + \sqrt [ n ] { a }", True),
        ("a ^ { 2", False),
        ("a } ^ { 2", False),
        ("a ^ 2", False),
        ("a ^", False),
        (r"\frac { a } b", False),
        (r"\frac { a }", False),
        (r"\sqrt [ n ] a", False),
        (r"\sqrt [ n { a }", False),
        ("[ a ]", True),
    ],
)
def test_what_is_a_formula(formula: str, right: bool) -> None:
    assert well_formed(groups(formula, "a + b")).tolist() == [right, True]


def test_implicit_characters_and_what_they_weigh() -> None:
    classes = implicit_of(ROLES)
    found = classes[ids_of("a ^ { b _ { 1 } }")[0]].tolist()
    assert found == [0, 4, 2, 0, 5, 2, 0, 3, 3, 1, 1]
    # Half are of class 0: the others weigh 1 + ln(1 + 1 / 0.5) = 2.0986.
    logits, target = torch.zeros(4, 6), torch.tensor([0, 0, 4, 2])
    logits[:2, 0] = 20.0
    loss = implicit_loss(logits, target)
    weight = 1 + torch.log(torch.tensor(3.0))
    torch.testing.assert_close(loss, 2 * weight * torch.tensor(6.0).log() / (2 + 2 * weight))


def both_ways(formula: str) -> Sheet:
    ids = [*ids_of(formula)[0].tolist()[:-2], 0]
    count = len(ids)
    tokens, lengths = torch.tensor(ids * 2)[:, None], torch.tensor([count, count])
    canvas, index = torch.arange(2).repeat_interleave(count), torch.arange(count).repeat(2)
    return sheet_of(tokens, index, canvas, lengths, torch.tensor([False, True]))


def test_a_sheet_is_read_from_left_to_right_and_written_as_it_is() -> None:
    sheet = both_ways("a ^ { 2 }")
    rows = rows_in(sheet)
    assert torch.equal(rows.ids[0], rows.ids[1])
    assert torch.equal(rows.written(rows.ids), sheet.truth[:, 0])


def test_parents_are_scored_in_both_directions() -> None:
    """By hand: a ^ { 2 }, whose 2 hangs on a; backwards that is } 2 { ^ a. The end hangs on the
    last token of either, the first symbol on nothing."""
    torch.manual_seed(0)
    config = replace(PRESETS["tiny"], kind="tamer", length=24)
    decoder = build_model(config, (len(NAMES),), NAMES).decoder.eval()
    assert isinstance(decoder, TreeDecoder)
    sheet, states = both_ways("a ^ { 2 }"), torch.randn(12, 64)
    odds, asked, formula = decoder.log_odds(states, sheet)
    assert asked[:, :6].tolist() == [[False] * 3 + [True, False, True],
                                     [False, True] + [False] * 3 + [True]]  # fmt: skip
    assert formula.tolist() == [True, True]
    for way, parents in enumerate(({3: 0, 5: 4}, {1: 4, 5: 4})):
        own = sheet.own.__class__.equal(1, 6, states.device)
        x = states[6 * way : 6 * way + 6] + decoder.way.weight[way]
        x = decoder.after(decoder.block(x, own))
        alike = (decoder.child(x) @ decoder.parent(x).T / 8).log_softmax(1)
        for child, parent in parents.items():
            torch.testing.assert_close(odds[way, child], alike[child, parent], atol=1e-4, rtol=1e-4)
    broken = decoder.score(torch.randn(10, 64), both_ways("a ^ { 2"))
    assert broken is not None and (broken < -100).all()


@torch.inference_mode()
def test_behind_opening_marks_nothing_is_covered() -> None:
    """a ^ { 2 } b: places fed with ^ and { are in no sum, which the next place is first to tell."""
    torch.manual_seed(0)
    config = replace(PRESETS["tiny"], kind="posformer", length=24)
    decoder = build_model(config, (len(NAMES),), NAMES).decoder.eval()
    assert isinstance(decoder, ForestDecoder)
    tokens = ids_of("a ^ { 2 } b")[0, :6, None]
    assert decoder.counted(tokens).tolist() == [True, False, False, True, True, True]
    for parameter in decoder.parameters():  # far from even attention
        parameter.data *= 3
    features, own = torch.randn(7, 64), Packing.equal(1, 6, tokens.device)
    position = torch.cartesian_prod(torch.arange(7), torch.arange(1))
    rows = Packing.equal(1, 7, tokens.device)
    memory = Memory(features, rows, decoder.remember(features), position)
    corrected = decoder.hidden(tokens, torch.arange(6), memory, own)
    decoder.roles = torch.zeros_like(decoder.roles)  # all count
    plain = decoder.hidden(tokens, torch.arange(6), memory, own)
    torch.testing.assert_close(corrected[:2], plain[:2])
    assert ((corrected - plain)[2:].abs().amax(1) > 1e-3).all()


@pytest.mark.parametrize("kind", ["ical", "tamer", "posformer"])
def test_symbol_aware_tokens_are_refused(kind: str) -> None:
    config = replace(PRESETS["tiny"], kind=kind)
    with pytest.raises(ConfigError, match=f"kind '{kind}' reads the structure off raw LaTeX"):
        build_model(config, (9, 7), ["x"] * 9)
