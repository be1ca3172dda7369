"""Writing from left to right: the likeliest next token (a beam of one), or the best of a beam.

A hypothesis is weighed by its whole log-prob, its end included, whatever its length. It ends with
the first PAD symbol; the other streams are not asked there. All inks of a batch take their steps
together, until all have ended.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gryphone.decoding import Decoded, Predict, Request, Seen
from gryphone.model import GryphOne, Memory, rows_of
from gryphone.rivals.causal import CausalDecoder, Writer


class Speaker(Protocol):
    """What says how rows of tokens go on, `beam` of them for every ink."""

    def step(self, tokens: Tensor) -> list[Tensor]:
        """Log-probs [(R, V) per stream] of each row's next token, after one more of them (R, S)."""

    def follow(self, rows: Tensor) -> None:
        """Let each row go on from the past of another (R,)."""


class Anew:
    """A speaker that keeps nothing: every step reads the whole rows again."""

    def __init__(self, predict: Predict, request: Request) -> None:
        self.predict, self.mask_id = predict, request.mask_id
        self.samples = np.arange(len(request.keys)).repeat(request.options.beam)
        self.rows: list[np.ndarray] = []  # (R, S) of each place, MASK in front

    def step(self, tokens: Tensor) -> list[Tensor]:
        self.rows.append(tokens.numpy())
        # The decoder shifts what it is fed: the last place is to be written.
        canvas = np.stack([*self.rows[1:], np.full_like(self.rows[0], self.mask_id)], 1)
        lengths = np.full(len(canvas), canvas.shape[1])
        said = self.predict(canvas, lengths, self.samples)
        return [torch.from_numpy(stream[:, -1].copy()) for stream in said]

    def follow(self, rows: Tensor) -> None:
        self.rows = [each[rows.numpy()] for each in self.rows]


class Writers:
    """A speaker with cached keys and values, by the mean of what several memories say."""

    def __init__(self, writers: Sequence[Writer]) -> None:
        self.writers = writers

    def step(self, tokens: Tensor) -> list[Tensor]:
        looks = [writer.step(tokens) for writer in self.writers]
        if len(looks) == 1:
            return looks[0]
        pairs = zip(*looks, strict=True)
        return [F.log_softmax(torch.stack(streams).mean(0), -1) for streams in pairs]

    def follow(self, rows: Tensor) -> None:
        for writer in self.writers:
            writer.follow(rows)


def decode(predict: Predict, request: Request) -> list[Decoded]:
    """The answers by a backend that reads whole canvases."""
    count, cpu = len(request.keys), torch.device("cpu")
    return _shown(search(Anew(predict, request), request, count, cpu), request)


def decode_cached(
    model: GryphOne, memories: Sequence[Memory], images: np.ndarray, request: Request
) -> list[Decoded]:
    """The same with cached keys and values; `images` name each canvas's ink of the memories."""
    assert isinstance(model.decoder, CausalDecoder)
    # Nothing is drawn: several canvases of one ink have one answer.
    inks, owners = np.unique(images, return_inverse=True)
    if len(inks) != len(memories[0].rows.offsets) - 1:
        chosen = torch.from_numpy(inks).to(memories[0].features.device)
        memories = [rows_of(memory, chosen) for memory in memories]
    o = request.options
    writers = [Writer(model.decoder, memory, o.beam, o.length) for memory in memories]
    found = search(Writers(writers), request, len(inks), memories[0].features.device)
    return _shown([found[owner] for owner in owners], request)


def _shown(found: list[Decoded], request: Request) -> list[Decoded]:
    """The answers, after whoever watches has seen each as a whole: nothing is refined."""
    for canvas, decoded in enumerate(found):
        if request.watch is not None:
            request.watch(1, canvas, decoded.ids, np.ones(len(decoded.ids), dtype=bool))
    return found


def search(speaker: Speaker, request: Request, inks: int, device: torch.device) -> list[Decoded]:
    """The best of a beam of hypotheses for each ink."""
    beam, pad_id, first = request.options.beam, request.pad_id, torch.arange(inks, device=device)
    tokens = torch.full((inks * beam, request.streams), request.mask_id, device=device)
    scores = torch.full((inks, beam), -torch.inf, device=device)
    scores[:, 0] = 0  # all begin alike: one of them is enough
    ended = torch.zeros(inks, beam, dtype=torch.bool, device=device)
    history: list[tuple[Tensor, Tensor, list[Tensor]]] = []  # tokens, parents, what was said
    for _ in range(request.options.length):
        said = speaker.step(tokens)
        for stream in said:
            stream[:, request.mask_id] = -torch.inf  # MASK is an input, never an answer
        shape = [stream.shape[1] for stream in said]
        odds = _together(said, pad_id).view(inks, beam, -1)  # (B, K, J)
        stay = torch.full_like(odds[0, 0], -torch.inf)
        stay[_end(shape, pad_id)] = 0  # what has ended costs no more
        odds = torch.where(ended[..., None], stay, odds)
        scores, best = (scores[..., None] + odds).flatten(1).topk(beam)
        parents, choice = best // odds.shape[2], best % odds.shape[2]
        rows = (first[:, None] * beam + parents).flatten()
        tokens = torch.stack(torch.unravel_index(choice.flatten(), shape), 1)
        history.append((tokens, rows, said))
        ended = (tokens[:, 0] == pad_id).view(inks, beam)
        late = request.deadline is not None and time.perf_counter() > request.deadline
        # Scores only fall: the first of a beam that has ended stays the first.
        if late or bool(ended[:, 0].all()):
            break
        if beam > 1:
            speaker.follow(rows)
    return _answers(history, first * beam, request)


def _end(shape: Sequence[int], pad_id: int) -> int:
    """Where the end stands among all combinations of tokens: PAD in every stream."""
    return int(np.ravel_multi_index([pad_id] * len(shape), shape))


def _together(said: Sequence[Tensor], pad_id: int) -> Tensor:
    """Log-probs (R, J) of every combination of the streams' tokens; PAD stands alone."""
    first, *others = said
    odds = first.clone()
    odds[:, pad_id] = -torch.inf
    for stream in others:
        more = stream.clone()
        more[:, pad_id] = -torch.inf
        odds = (odds[:, :, None] + more[:, None]).flatten(1)
    odds[:, _end([stream.shape[1] for stream in said], pad_id)] = first[:, pad_id]
    return odds


def _answers(
    history: Sequence[tuple[Tensor, Tensor, list[Tensor]]], rows: Tensor, request: Request
) -> list[Decoded]:
    """Follow the best hypotheses (B,) back to their first tokens, and read them out."""
    ids, said = [], []
    for tokens, parents, streams in reversed(history):
        ids.append(tokens[rows])
        rows = parents[rows]
        said.append([stream[rows] for stream in streams])
    every = torch.stack(ids[::-1], 1).cpu().numpy()  # (B, T, S)
    looks = [torch.stack(s[::-1], 1).cpu().numpy() for s in zip(*said, strict=True)]
    out = []
    for b, own in enumerate(every):
        count = next(iter(np.flatnonzero(own[:, 0] == request.pad_id)), len(own))
        steps = min(count + 1, len(own))  # the end is a step, too
        seen = Seen()
        seen.add(np.ones(steps, dtype=bool), [look[b, :steps] for look in looks])
        answer = own[:count]
        places = np.arange(count)
        log_probs = np.stack([look[b, places, answer[:, s]] for s, look in enumerate(looks)], 1)
        out.append(Decoded(answer, log_probs, int(steps), seen))
    return out
