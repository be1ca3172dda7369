"""Which stroke became which token."""

import numpy as np

from gryphone.recognition.answer import assign


def test_every_stroke_goes_to_its_token() -> None:
    score = np.array([[0.0, -9, -9], [-9, 0, -9], [-9, -9, 0]])  # token by patch
    ink = np.array([[4.0, 0, 0], [0, 3, 1], [0, 0, 2], [0, 1, 5]])
    assert assign(score, ink, np.array([True] * 3)) == [0, 1, 2, 2]


def test_a_token_without_ink_gets_none() -> None:
    score = np.zeros((2, 1))
    writes = np.array([True, False])
    assert assign(score, np.ones((3, 1)), writes) == [0, 0, 0]
    assert assign(score, np.ones((3, 1)), np.array([False, False])) == [-1, -1, -1]


def test_a_token_left_out_takes_the_stroke_nearest_to_it() -> None:
    score = np.array([[0.0, 0.0], [-5.0, -1.0]])
    ink = np.array([[1.0, 0], [0, 1.0]])
    assert assign(score, ink, np.array([True, True])) == [0, 1]
    # Nobody gives away its only stroke.
    assert assign(score, ink[:1], np.array([True, True])) == [0]
