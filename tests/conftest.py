"""Shared by all tests: one thread, since tiny networks gain nothing from more."""

import torch

torch.set_num_threads(1)
