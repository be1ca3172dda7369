"""Shared by all tests: one thread (tiny networks gain nothing from more), one tiny model."""

from pathlib import Path

import pytest
import torch
from tinymodel import tiny_checkpoint

import gryphone
from gryphone.recognition.recognizer import Recognizer

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint with random weights."""
    return tiny_checkpoint(tmp_path_factory.mktemp("weights") / "tiny")


@pytest.fixture(scope="session")
def recognizer(tiny_weights: Path) -> Recognizer:
    """The recogniser with them."""
    return gryphone.load(tiny_weights)
