"""Which stroke became which token."""

import numpy as np

from gryphone.recognition.encoding import assign


def test_every_stroke_goes_to_its_token() -> None:
    votes = np.array([[0.0, -9, -9], [-9, -2, -7], [-9, -9, 0], [-9, -7, -1]])  # stroke by token
    assert assign(votes, np.array([True] * 3)) == [0, 1, 2, 2]


def test_a_token_without_ink_gets_none() -> None:
    votes = np.zeros((3, 2))
    assert assign(votes, np.array([True, False])) == [0, 0, 0]
    assert assign(votes - [9, 0], np.array([True, False])) == [0, 0, 0]
    assert assign(votes, np.array([False, False])) == [-1, -1, -1]
    assert (votes == 0).all()  # they are the caller's


def test_a_token_left_out_takes_the_stroke_nearest_to_it() -> None:
    votes = np.array([[0.0, -5.0], [0.0, -1.0]])
    assert assign(votes, np.array([True, True])) == [0, 1]
    # Nobody gives away its only stroke.
    assert assign(votes[:1], np.array([True, True])) == [0]
