"""Which stroke became which token: the assignment, and the stroke counts on patches."""

from dataclasses import replace

import torch
from inkmaker import power, row

from gryphone.config import PRESETS
from gryphone.raster import InkBatch, draw, to_patches
from gryphone.recognition.stroke_assignment import assign, strokes_on_patches


def test_every_stroke_goes_to_its_token() -> None:
    score = torch.tensor([[0.0, -9, -9], [-9, 0, -9], [-9, -9, 0]])  # token by patch
    ink = torch.tensor([[4.0, 0, 0], [0, 3, 1], [0, 0, 2], [0, 1, 5]])
    assert assign(score, ink, torch.tensor([True] * 3)) == [0, 1, 2, 2]


def test_a_token_without_ink_gets_none() -> None:
    score = torch.zeros(2, 1)
    writes = torch.tensor([True, False])
    assert assign(score, torch.ones(3, 1), writes) == [0, 0, 0]
    assert assign(score, torch.ones(3, 1), torch.tensor([False, False])) == [-1, -1, -1]


def test_a_token_left_out_takes_the_stroke_nearest_to_it() -> None:
    score = torch.tensor([[0.0, 0.0], [-5.0, -1.0]])
    ink = torch.tensor([[1.0, 0], [0, 1.0]])
    assert assign(score, ink, torch.tensor([True, True])) == [0, 1]
    # Nobody gives away its only stroke.
    assert assign(score, ink[:1], torch.tensor([True, True])) == [0]


def test_stroke_pixels_are_counted_on_the_patches_of_their_sample() -> None:
    inks = [power(), row("x+1")]
    canvas = PRESETS["tiny"].canvas
    batch = InkBatch.from_strokes([ink.strokes for ink in inks])
    batch = replace(batch, glyph=(~batch.pen).cumsum(0) - 1)
    pixels = draw(batch, canvas)
    patches = to_patches(pixels, canvas)
    first = len(inks[0].strokes)
    for sample, strokes in ((0, range(first)), (1, range(first, first + len(inks[1].strokes)))):
        counts = strokes_on_patches(pixels, patches, canvas, sample, strokes)
        assert counts.shape == (len(strokes), int(patches.offsets.diff()[sample]))
        assert counts.sum() == (pixels.sample == sample).sum()
        assert (counts.sum(0) > 0).all()
        assert (counts.sum(1) > 0).all()
