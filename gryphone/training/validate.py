"""Exact match on validation sets while training: no dependency beyond the training path's."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import torch

from gryphone.data.store import InkStore
from gryphone.decoding import DecodeOptions, Request, first_canvas
from gryphone.kinds import part_of
from gryphone.model import GryphOne
from gryphone.recognition.torch_backend import TorchBackend
from gryphone.tokens import MASK_ID, PAD_ID, Tokenizer
from gryphone.training.settings import TrainConfig


def evaluate_store(
    model: GryphOne, config: TrainConfig, tokenizer: Tokenizer, store: InkStore, steps: int
) -> dict[str, bool]:
    """Read every ink of a store: which samples match their label exactly."""
    options = DecodeOptions(
        steps=steps,
        length=config.model.length,
        start=first_canvas(config.model.length, config.model.dense),
        remasking=config.model.remasking,
    )
    backend = TorchBackend(model, config.model)
    count = min(len(store), config.eval_limit or len(store))
    right: dict[str, bool] = {}
    for begin in range(0, count, 256):
        index = torch.arange(begin, min(begin + 256, count), device=store.points.device)
        memory = backend.encode_batch(store.batch(index).ink)
        keys = np.zeros(len(index), dtype=np.int64)
        request = Request(keys, options, len(tokenizer.vocabularies), MASK_ID, PAD_ID)
        answers = backend.refine([memory], np.arange(len(keys)), request)
        if answers is None:
            sample = part_of(config.model.kind, "sampler")
            answers = sample(partial(backend.predict, memory), request)
        for i, answer in zip(index.tolist(), answers, strict=True):
            right[store.ids[i]] = " ".join(tokenizer.decode(answer.ids)) == store.labels[i]
    return right


def evaluate_all(
    model: GryphOne,
    config: TrainConfig,
    tokenizer: Tokenizer,
    stores: Mapping[str, InkStore],
    unseen: Mapping[str, set[str]],
) -> dict[str, float]:
    """EM in percent for every validation set and number of steps, and on its unseen formulas."""
    out: dict[str, float] = {}
    model.eval()
    for name, store in stores.items():
        for steps in config.eval_steps:
            right = evaluate_store(model, config, tokenizer, store, steps)
            out[f"{name}/T{steps}"] = 100 * sum(right.values()) / len(right)
            new = [ok for key, ok in right.items() if key in unseen.get(name, ())]
            if new:
                out[f"{name}-unseen/T{steps}"] = 100 * sum(new) / len(new)
    return out
