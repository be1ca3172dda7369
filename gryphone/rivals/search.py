"""Writing from left to right: the likeliest next token (a beam of one), or the best of a beam.

A hypothesis is weighed by its whole log-prob, its end included, whatever its length. It ends with
the first PAD symbol; the other streams are not asked there. All inks of a batch take their steps
together, until all have ended.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
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
    return shown(search(Anew(predict, request), request, count, cpu), request)


def decode_cached(
    model: GryphOne, memories: Sequence[Memory], images: np.ndarray, request: Request
) -> list[Decoded]:
    """The same with cached keys and values; `images` name each canvas's ink of the memories."""
    decoder = model.decoder
    assert isinstance(decoder, CausalDecoder)
    memories, owners = once(memories, images)
    o = request.options
    speaker = Writers([decoder.writer(memory, o.beam, o.length) for memory in memories])
    first = memories[0]
    found = search(speaker, request, len(first.rows.offsets) - 1, first.features.device)
    return shown([found[owner] for owner in owners], request)


def once(memories: Sequence[Memory], images: np.ndarray) -> tuple[Sequence[Memory], list[int]]:
    """The memories of the inks that `images` name, each once, and which of them a canvas has.

    Nothing is drawn: several canvases of one ink have one answer.
    """
    inks, owners = np.unique(images, return_inverse=True)
    if len(inks) != len(memories[0].rows.offsets) - 1:
        chosen = torch.from_numpy(inks).to(memories[0].features.device)
        memories = [rows_of(memory, chosen) for memory in memories]
    return memories, owners.tolist()


def shown(found: list[Decoded], request: Request) -> list[Decoded]:
    """The answers, after whoever watches has seen each as a whole: nothing is refined."""
    for canvas, decoded in enumerate(found):
        if request.watch is not None:
            request.watch(1, canvas, decoded.ids, np.ones(len(decoded.ids), dtype=bool))
    return found


@dataclass(frozen=True)
class Found:
    """The beams of some groups of rows, step by step."""

    tokens: list[Tensor]  # (R, S) of each step
    parents: list[Tensor]  # (R,) the row of the step before that each goes on from
    said: list[list[Tensor]]  # [(R, V) per stream] of each step, by the rows before it


def search(speaker: Speaker, request: Request, inks: int, device: torch.device) -> list[Decoded]:
    """The best of a beam of hypotheses for each ink."""
    starts = torch.full((inks,), request.mask_id, device=device)
    found = explore(speaker, request, starts)
    first = torch.arange(inks, device=device) * request.options.beam
    return _answers(found, first, request)


def explore(
    speaker: Speaker, request: Request, starts: Tensor, *, to_the_end: bool = False
) -> Found:
    """Write a beam of hypotheses for each group of rows, which all begin with its start (G,).

    Ends when the best of every group has ended; `to_the_end`: when all of each have.
    """
    beam, pad_id, groups, device = request.options.beam, request.pad_id, len(starts), starts.device
    first = torch.arange(groups, device=device)
    tokens = starts.repeat_interleave(beam)[:, None].repeat(1, request.streams)
    scores = torch.full((groups, beam), -torch.inf, device=device)
    scores[:, 0] = 0  # all begin alike: one of them is enough
    ended = torch.zeros(groups, beam, dtype=torch.bool, device=device)
    found = Found([], [], [])
    for _ in range(request.options.length):
        said = speaker.step(tokens)
        for stream in said:
            stream[:, request.mask_id] = -torch.inf  # MASK is an input, never an answer
        shape = [stream.shape[1] for stream in said]
        odds = _together(said, pad_id).view(groups, beam, -1)  # (G, K, J)
        stay = torch.full_like(odds[0, 0], -torch.inf)
        stay[_end(shape, pad_id)] = 0  # what has ended costs no more
        odds = torch.where(ended[..., None], stay, odds)
        scores, best = (scores[..., None] + odds).flatten(1).topk(beam)
        parents, choice = best // odds.shape[2], best % odds.shape[2]
        rows = (first[:, None] * beam + parents).flatten()
        tokens = torch.stack(torch.unravel_index(choice.flatten(), shape), 1)
        found.tokens.append(tokens)
        found.parents.append(rows)
        found.said.append(said)
        ended = (tokens[:, 0] == pad_id).view(groups, beam)
        late = request.deadline is not None and time.perf_counter() > request.deadline
        # Scores only fall: the first of a beam that has ended stays the first.
        if late or bool((ended if to_the_end else ended[:, 0]).all()):
            break
        if beam > 1:
            speaker.follow(rows)
    return found


def written(found: Found, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The hypotheses that end in some rows (R,): ids (R, T, S), and the rows (T, R) they took."""
    ids, path = [], []
    for tokens, parents in zip(reversed(found.tokens), reversed(found.parents), strict=True):
        ids.append(tokens[rows])
        rows = parents[rows]
        path.append(rows)
    return torch.stack(ids[::-1], 1), torch.stack(path[::-1])


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


def _answers(found: Found, rows: Tensor, request: Request) -> list[Decoded]:
    """Follow the best hypotheses (B,) back to their first tokens, and read them out."""
    ids, path = written(found, rows)
    said = [[s[rows] for s in streams] for rows, streams in zip(path, found.said, strict=True)]
    looks = [torch.stack(stream, 1).cpu().numpy() for stream in zip(*said, strict=True)]
    return read_out(ids.cpu().numpy(), looks, request)


def read_out(ids: np.ndarray, looks: list[np.ndarray], request: Request) -> list[Decoded]:
    """Answers in rows of ids (B, T, S) up to their PAD, and what was said of each place."""
    out = []
    for b, own in enumerate(ids):
        count = next(iter(np.flatnonzero(own[:, 0] == request.pad_id)), len(own))
        steps = min(count + 1, len(own))  # the end is a step, too
        seen = Seen()
        seen.add(np.ones(steps, dtype=bool), [look[b, :steps] for look in looks])
        answer = own[:count]
        places = np.arange(count)
        log_probs = np.stack([look[b, places, answer[:, s]] for s, look in enumerate(looks)], 1)
        out.append(Decoded(answer, log_probs, int(steps), seen))
    return out
