"""One prediction, top to bottom: ink -> patches -> memory -> refined tokens -> LaTeX.

Encode once, refine many: an `Encoded` formula answers any number of questions (more steps, locked
symbols, hints, other seeds) without looking at the ink again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cache, partial
from multiprocessing import active_children
from pathlib import Path
from typing import Any, Literal, Unpack, overload

from gryphone.checkpoint import WEIGHTS, Checkpoint, checkpoint_directory, read_checkpoint
from gryphone.errors import CheckpointError, ConfigError, GryphoneError, need
from gryphone.ink import Ink
from gryphone.interrupt import process_pool
from gryphone.reading.inputs import STDIN, Input, read_input
from gryphone.recognition.answer import answer, answer_together, prepare
from gryphone.recognition.backend import Backend
from gryphone.recognition.encoding import EncodedBatch, Network
from gryphone.recognition.lone import LoneReader
from gryphone.recognition.page import read_page
from gryphone.recognition.page_result import PageResult
from gryphone.recognition.question import MOST_STEPS, Ask, Options
from gryphone.recognition.result import Result
from gryphone.recognition.session import Session

PLUS = [[[0, 5], [10, 5]], [[5, 0], [5, 10]]]
BACKENDS = ("onnx", "torch")


@dataclass(frozen=True)
class Recognizer(Network):
    """A loaded checkpoint, ready to read ink and images.

    A copy for another process (`pickle`) loads the weights again there.
    """

    origin: tuple[Any, ...] | None = None  # what `load` was asked for
    workers: Workers | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        name, millions = self.checkpoint.facts.get("name", ""), self.checkpoint.parameters / 1e6
        return f"Recognizer({name!r}, {millions:.1f} million parameters)"

    @classmethod
    def from_pretrained(
        cls,
        path_or_repo: Path | str,
        device: str = "cpu",
        *,
        backend: str | None = None,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: Path | str | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
    ) -> Recognizer:
        """Load a checkpoint directory or, where there is none, a repository of Hugging Face's Hub.

        Only the latter needs `pip install 'gryphone[hub]'`, and the options behind `backend`, which
        are those of the Hub's own `from_pretrained`.
        """
        folder = Path(path_or_repo)
        if not folder.is_dir():
            need("huggingface_hub", "hub")
            from gryphone.recognition.hub import Shared, one_line

            with one_line(f"{path_or_repo}: no folder here, nor to be had from the Hub"):
                folder = Shared.from_pretrained(
                    str(path_or_repo),
                    revision=revision,
                    token=token,
                    cache_dir=cache_dir,
                    force_download=force_download,
                    local_files_only=local_files_only,
                ).folder
        return load(folder, device, backend=backend)

    def save_pretrained(self, save_directory: Path | str, **options: Any) -> str | None:
        """Save the checkpoint with a card, as the Hub wants it; the options are its mixin's."""
        folder, to = self._folder(), Path(save_directory)
        if to.exists() and to.samefile(folder):
            raise ConfigError(f"{to} holds this very checkpoint; save it elsewhere")
        from gryphone.recognition.hub import Shared, one_line

        with one_line(f"{to}: cannot be saved"):
            return Shared(folder).save_pretrained(to, **options)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload the checkpoint to the Hub; the address of the commit. The options are the mixin's:
        private, token, branch, create_pr, commit_message."""
        folder = self._folder()
        from gryphone.recognition.hub import Shared, one_line

        with one_line(f"{repo_id}: cannot be pushed to the Hub"):
            return Shared(folder).push_to_hub(
                repo_id, model_card_kwargs={"repo": repo_id}, **options
            )

    def _folder(self) -> Path:
        """Where this recogniser was loaded from, once it is known that the Hub's client is here."""
        need("huggingface_hub", "hub")
        if self.origin is None:
            raise ConfigError("a recogniser that was not loaded from a folder cannot be saved")
        return Path(self.origin[0])

    def encode(self, source: Any, *, name: str | None = None) -> Encoded:
        """Read and look at one input: a path, bytes, image, array, Ink or list of strokes."""
        return self.encode_inputs([read_input(source, name)])[0]

    def encode_inputs(self, inputs: Sequence[Input]) -> list[Encoded]:
        """Look at several inputs in one pass of the encoder."""
        batch = EncodedBatch.of(self, inputs)
        return [Encoded(batch, index) for index in range(len(inputs))]

    def recognize(
        self,
        source: Any,
        *,
        name: str | None = None,
        ask: Ask | None = None,
        **options: Unpack[Options],
    ) -> Result:
        """The formula in one input; the options are those of `Ask`, or a ready `ask`."""
        began = time.perf_counter()
        return self.encode(source, name=name).answer(_ask(ask, options), began)

    def recognize_page(
        self,
        source: Any,
        *,
        name: str | None = None,
        ask: Ask | None = None,
        **options: Unpack[Options],
    ) -> PageResult:
        """All formulas of an ink or a picture, in reading order."""
        return read_page(self, read_input(source, name), _ask(ask, options))

    def session(self, *, gestures: bool = True, **options: Unpack[Options]) -> Session:
        """Ink that is still being written, read change by change."""
        return Session(self, Ask.of(options), gestures=gestures)

    @overload
    def recognize_many(
        self,
        sources: Iterable[Any],
        *,
        ask: Ask | None = None,
        errors: Literal["raise"] = "raise",
        **options: Unpack[Options],
    ) -> list[Result]: ...

    @overload
    def recognize_many(
        self,
        sources: Iterable[Any],
        *,
        ask: Ask | None = None,
        errors: Literal["return"],
        **options: Unpack[Options],
    ) -> list[Result | GryphoneError]: ...

    def recognize_many(
        self,
        sources: Iterable[Any],
        *,
        ask: Ask | None = None,
        errors: str = "raise",
        **options: Unpack[Options],
    ) -> Any:
        """The formulas in several inputs, together; one by one where each has its deadline.

        One that cannot be read ends it all, or with errors="return" has its error in its place.
        """
        ask = _ask(ask, options)
        if errors not in ("raise", "return"):
            raise ConfigError(f"errors is {errors!r}; it must be 'raise' or 'return'")
        if isinstance(sources, (str, bytes, os.PathLike)):
            raise ConfigError(f"sources is one input, {sources!r:.60}; give a list of them")
        sources = list(sources)
        # What many steps of many decodes say of an ink has to fit into memory.
        size = max(1, self.backend.batch * MOST_STEPS // max(MOST_STEPS, ask.work))
        keep = errors == "return"
        if ask.deadline_ms is not None:
            size = 1
        if self.workers is not None:
            size = shared_out(len(sources), self.workers.count, size, self.backend.few)
        parts = [sources[i : i + size] for i in range(0, len(sources), size)]
        some = partial(self._recognize_some, ask=ask, keep=keep)
        if len(parts) <= 1 or (self.workers is None and self.backend.at_once == 1):
            return [result for part in parts for result in some(part)]
        if self.workers is not None and ask.on_step is None:
            parts = [[_portable(source, keep) for source in part] for part in parts]
            return self.workers.recognize(parts, ask, keep)
        # While one part waits for the device, another is read or put together.
        with ThreadPoolExecutor(self.backend.at_once) as threads:
            return [result for found in threads.map(some, parts) for result in found]

    def _recognize_some(
        self, sources: Sequence[Any], ask: Ask, keep: bool
    ) -> list[Result | GryphoneError]:
        """A part of many inputs; `keep` an error for what cannot be read."""
        began = time.perf_counter()
        out: list[Any] = _read(sources, keep)
        inputs = [each for each in out if isinstance(each, Input)]
        if not inputs:
            return out
        if ask.deadline_ms is not None or len(inputs) <= self.backend.few:
            found = iter(
                [one.answer(ask, began) for i in inputs for one in self.encode_inputs([i])]
            )
        else:
            batch = EncodedBatch.of(self, inputs)
            questions = [prepare(batch, index, ask) for index in range(len(inputs))]
            found = iter(answer_together(questions, began))
        return [next(found) if isinstance(each, Input) else each for each in out]

    def copies(self, count: int) -> Workers | None:
        """So many processes with this recogniser; None where it does not compute on the CPU."""
        if self.origin is None or not self.origin[1].startswith("cpu") or count < 1:
            return None
        path, device, _, backend, _ = self.origin
        return Workers(path, device, count, backend)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.origin is None:
            raise TypeError("a recogniser that was not loaded from a folder cannot be copied")
        return load, self.origin


def shared_out(count: int, workers: int, most: int, few: int) -> int:
    """How many inputs a part has: as many rounds as it takes, in which every worker has one.

    Parts of `few` times four are as small as it pays.
    """
    rounds = -(-count // (workers * most))
    return max(min(most, 4 * few), -(-count // max(1, workers * rounds)))


class Workers:
    """Processes that each have a recogniser of their own, on the same device."""

    def __init__(self, path: Path, device: str, count: int, backend: str | None) -> None:
        self.count = count
        threads = max(1, (os.cpu_count() or 1) // count)
        self.copy = partial(_copy, path, device, backend, threads)
        others = active_children()
        self.pool = process_pool(count, self.copy)
        self._own = [child for child in active_children() if child not in others]

    def stop(self) -> None:
        """End them in the middle of what they do, of which nothing comes."""
        for child in self._own:
            child.terminate()

    def recognize(self, parts: Sequence[Sequence[Any]], ask: Ask, keep: bool) -> list[Any]:
        """The formulas in many inputs, shared out in parts."""
        work = partial(_recognize_there, self.copy, ask, keep)
        try:
            return [result for found in self.pool.map(work, parts) for result in found]
        except BrokenProcessPool as error:
            raise GryphoneError(
                f"one of {self.count} workers died, perhaps for want of memory; use fewer"
            ) from error


@cache
def _copy(path: Path, device: str, backend: str | None, threads: int) -> Recognizer:
    """A worker's own recogniser."""
    return load(path, device, backend=backend, threads=threads)


def _portable(source: Any, keep: bool) -> Any:
    """The same for another process, which has neither this one's open files nor its stdin."""
    ours = hasattr(source, "read") or (isinstance(source, str | Path) and str(source) == STDIN)
    return _read([source], keep)[0] if ours else source


def _read(sources: Sequence[Any], keep: bool) -> list[Input | GryphoneError]:
    """What some sources hold; `keep` an error for what cannot be read."""
    out: list[Input | GryphoneError] = []
    for source in sources:
        try:
            if isinstance(source, GryphoneError):
                raise source
            out.append(read_input(source))
        except GryphoneError as error:
            if not keep:
                raise
            out.append(error)
    return out


def _recognize_there(
    copy: Callable[[], Recognizer], ask: Ask, keep: bool, sources: Sequence[Any]
) -> list[Result | GryphoneError]:
    return copy()._recognize_some(sources, ask, keep)


def _ask(ask: Ask | None, options: Mapping[str, Any]) -> Ask:
    if ask is not None and options:
        raise ConfigError(f"give `ask` or options, not both: {', '.join(options)}")
    return ask or Ask.of(options)


@dataclass(frozen=True)
class Encoded:
    """One input the model has looked at: ask it as often as you like."""

    batch: EncodedBatch
    index: int = 0

    def __repr__(self) -> str:
        return f"Encoded({self.ink.id!r}, {len(self.ink.strokes)} strokes)"

    def __reduce__(self) -> tuple[Any, ...]:
        return Recognizer.encode, (self.batch.network, self.input)  # looked at again there

    @property
    def input(self) -> Input:
        """What was read: its ink and, of a picture, another tracing of it."""
        return self.batch.inputs[self.index]

    @property
    def ink(self) -> Ink:
        """The strokes that were read."""
        return self.input.ink

    def decode(self, **options: Unpack[Options]) -> Result:
        """Answer one question about the input; the options are those of `Ask`."""
        return self.answer(Ask.of(options), time.perf_counter())

    def answer(self, ask: Ask, began: float) -> Result:
        """The same for a ready question; its time counts from `began`."""
        return answer(self.batch, self.index, ask, began)


def load(
    path: Path | str | None = None,
    device: str = "cpu",
    workers: int = 0,
    backend: str | None = None,
    threads: int = 0,
    *,
    warm: bool = False,
) -> Recognizer:
    """Load a recogniser from a checkpoint directory; without one, the weights of the package.

    ONNX Runtime computes on the CPU, with so many `threads` (0: as many as there are cores);
    another device, or backend="torch", wants PyTorch (`pip install 'gryphone[torch]'`).

    So many `workers` (processes that each load it too) share what `recognize_many` is given: a fast
    GPU needs them, since one process cannot prepare inks as fast as it reads them. `warm` makes
    ready what the first answers would wait for (a GPU: some seconds).
    """
    if path is None and not (WEIGHTS / "config.json").is_file():
        raise CheckpointError(
            f"this installation has no default weights ({WEIGHTS}); name a checkpoint directory, "
            "as in gryphone.load('runs/mine') or --weights runs/mine"
        )
    folder = checkpoint_directory(Path(WEIGHTS if path is None else path))
    checkpoint = read_checkpoint(folder)
    start = _backend_for(device, backend, threads, checkpoint)
    shared = Workers(folder, device, workers, backend) if workers > 0 else None
    origin = (folder, device, workers, backend, threads)
    lone = LoneReader.load(folder)
    recognizer = Recognizer(checkpoint, start(folder, checkpoint), lone, origin, shared)
    if warm:
        recognizer.backend.warm()
        recognizer.recognize(PLUS)
    return recognizer


def _backend_for(
    device: str, backend: str | None, threads: int, checkpoint: Checkpoint
) -> Callable[[Path, Checkpoint], Backend]:
    """Choose who computes: how to load a checkpoint there."""
    if backend not in (None, *BACKENDS):
        raise ConfigError(f"backend {backend!r} is unknown; use {' or '.join(BACKENDS)}")
    on_cpu = device.partition(":")[0] == "cpu"
    if backend == "onnx" and not on_cpu:
        raise ConfigError(f"backend 'onnx' computes on the CPU; for {device!r} use backend 'torch'")
    if on_cpu and (backend or BACKENDS[not checkpoint.config.has_graphs]) == "onnx":
        from gryphone.recognition.onnx_backend import OnnxBackend

        return partial(OnnxBackend.load, threads=threads)
    need("torch", "torch")
    from gryphone.recognition.torch_backend import TorchBackend, device_of

    return partial(TorchBackend.load, device=device_of(device), threads=threads)
