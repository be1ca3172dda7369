"""Which stroke became which token."""

import numpy as np

from gryphone.recognition import encoding


def assign(votes: np.ndarray, writes: np.ndarray, unread: tuple[int, ...] = ()) -> list[int]:
    return encoding.assign(votes, writes, ~np.isin(np.arange(len(votes)), unread))


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


def test_a_stroke_that_is_read_as_nothing_is_nobodys() -> None:
    votes = np.array([[0.0, -9], [-8, -7], [-9, -1], [-9, -6]])
    every = np.array([True, True])
    assert assign(votes, every) == [0, 1, 1, 1]
    assert assign(votes, every, (1, 3)) == [0, -1, 1, -1]
    # A token that has no better one keeps its own.
    assert assign(votes, every, (0, 3)) == [0, 1, 1, -1]
    assert assign(votes, every, (1, 2, 3)) == [0, 1, 1, 1]
