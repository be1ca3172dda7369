"""A checkpoint is a directory that rebuilds itself: weights, sizes, vocabularies, facts.

Its description imports without PyTorch, which only those need who touch the weights.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gryphone import __version__
from gryphone.config import ModelConfig, from_dict
from gryphone.errors import CheckpointError, GryphoneError
from gryphone.kinds import build_model, check_kind
from gryphone.tokens import Tokenizer, tokenizer_from_dict

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from gryphone.model import GryphOne

WEIGHTS = Path(__file__).parent / "weights"  # the default checkpoint, package data
FORMAT, VERSION = "gryphone-checkpoint", 1
SHARD_BYTES = 15 * 2**20
SCALE = ":scale"  # suffix of a quantised matrix's scales


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint directory says of its network."""

    config: ModelConfig
    tokenizer: Tokenizer
    facts: dict[str, Any]  # convention, training data, licence, metrics
    parameters: int

    @property
    def convention(self) -> str:
        """How its labels were normalised."""
        return str(self.facts.get("convention", "crohme"))


def save_checkpoint(
    path: Path,
    state: Mapping[str, Tensor],
    config: ModelConfig,
    tokenizer: Tokenizer,
    facts: Mapping[str, Any],
    *,
    dtype: torch.dtype | None = None,
    int8: bool = False,
) -> None:
    """Write a checkpoint directory in one move: it is either whole or not there.

    With `int8` matrices are stored as bytes with one scale per row: a quarter of the size.
    """
    tensors = {k: v.detach().to("cpu", dtype).contiguous() for k, v in state.items()}
    if int8:
        tensors = quantize(tensors)
    description = {
        "format": FORMAT,
        "version": VERSION,
        "gryphone": __version__,
        "model": dataclasses.asdict(config),
        "tokenizer": tokenizer.to_dict(),
        "facts": dict(facts),
    }
    write_directory(path, {"config.json": json.dumps(description, indent=1)}, tensors)


def quantize(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Matrices as int8 with a scale for each row (`name:scale`), everything else as float16."""
    import torch

    out: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.ndim == 2:
            scale = tensor.float().abs().amax(1, keepdim=True).clamp_min(1e-8) / 127
            out[name] = (tensor.float() / scale).round().to(torch.int8)
            out[name + SCALE] = scale
        else:
            out[name] = tensor.to(torch.float16)
    return out


def dequantize(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Float matrices again; tensors without a scale pass unchanged."""
    return {
        name: tensor.float() * tensors[name + SCALE] if name + SCALE in tensors else tensor
        for name, tensor in tensors.items()
        if not name.endswith(SCALE)
    }


def write_directory(path: Path, texts: Mapping[str, str], tensors: Mapping[str, Tensor]) -> None:
    """Write texts and sharded tensors into a fresh directory, then move it to `path`.

    What is there already must be such a directory: it is removed.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    _check_replaceable(path, texts)
    fresh = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    old = path.with_name(f".{path.name}.old-{os.getpid()}")
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        for name, text in texts.items():
            (fresh / name).write_text(text)
        for i, shard in enumerate(_shards(tensors)):
            save_file(shard, fresh / f"weights-{i}.safetensors")
            (fresh / f"weights-{i}.safetensors").chmod(0o644)  # safetensors keeps them private
        if path.exists():
            path.rename(old)
        fresh.rename(path)
    except (OSError, SafetensorError) as error:  # the latter is safetensors' own full disk
        shutil.rmtree(fresh, ignore_errors=True)
        raise CheckpointError(f"cannot write checkpoint {path}: {error}") from error
    shutil.rmtree(old, ignore_errors=True)


def _check_replaceable(path: Path, texts: Mapping[str, str]) -> None:
    """Refuse to remove anything but an older directory with the same files."""
    ours = all((path / name).is_file() for name in (*texts, "weights-0.safetensors"))
    if path.exists() and not ours and not (path.is_dir() and next(path.iterdir(), None) is None):
        kind = "a directory that is no checkpoint" if path.is_dir() else "a file"
        raise CheckpointError(f"{path} is {kind} and will not be replaced; choose another place")


def _shards(tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Split tensors into files of at most SHARD_BYTES (a single larger tensor stays whole)."""
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if shards[-1] and size + tensor.nbytes > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    return shards


def checkpoint_directory(path: Path) -> Path:
    """The directory of a checkpoint that is named by itself or by its run's folder.

    `default` names the package's own weights, unless there is a folder of that name.
    """
    if path == Path("default") and not path.exists():
        return WEIGHTS
    inside = path / "checkpoint"
    named_by_run = not (path / "config.json").exists() and (inside / "config.json").exists()
    return inside if named_by_run else path


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint directory, quantised ones restored."""
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = {}
    for file in _weight_files(path):
        with _undamaged(file):
            tensors.update(load_file(file))
    return dequantize(tensors)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The same as they are stored (matrices in int8 beside their `:scale`), without PyTorch."""
    arrays: dict[str, np.ndarray] = {}
    for file in _weight_files(path):
        arrays |= arrays_in(file)
    return arrays


def arrays_in(file: Path) -> dict[str, np.ndarray]:
    """The tensors of one safetensors file."""
    from safetensors import safe_open

    arrays: dict[str, np.ndarray] = {}
    with _undamaged(file), safe_open(file, "np"):  # which checks what it opens
        data = np.memmap(file, np.uint8, "r")
        begin = 8 + int(data[:8].view("<u8")[0])
        for name, about in json.loads(data[8:begin].tobytes()).items():
            if name != "__metadata__":
                low, high = (begin + offset for offset in about["data_offsets"])
                array = _numbers(np.asarray(data[low:high]), about["dtype"])
                arrays[name] = array.reshape(about["shape"])
    return arrays


def texts_in(file: Path) -> dict[str, str]:
    """What a safetensors file says of itself."""
    from safetensors import safe_open

    with _undamaged(file), safe_open(file, "np") as tensors:
        return dict(tensors.metadata() or {})


def _numbers(data: np.ndarray, kind: str) -> np.ndarray:
    """Bytes of a safetensors file as numbers; bfloat16, which numpy lacks, as float32."""
    if kind == "BF16":
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
    kinds = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I8": "i1"}
    if kind not in kinds:
        raise ValueError(f"tensors of kind {kind} are none of GryphOne's")
    return data.view(kinds[kind])


def _weight_files(path: Path) -> list[Path]:
    path = checkpoint_directory(path)
    files = sorted(path.glob("weights-*.safetensors"))
    if not files:
        raise CheckpointError(
            f"{path} holds no weights-*.safetensors; it is no GryphOne checkpoint"
        )
    return files


@contextmanager
def _undamaged(file: Path) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{file} is damaged or truncated: {error}; copy it again") from error


def _count_parameters(path: Path) -> int:
    """How many numbers the network learned, by the headers of its files alone."""
    from safetensors import safe_open

    count = 0
    for file in _weight_files(path):
        with _undamaged(file), safe_open(file, "np") as tensors:
            names = [name for name in tensors.keys() if not name.endswith(SCALE)]  # noqa: SIM118
            count += sum(math.prod(tensors.get_slice(name).get_shape()) for name in names)
    return count


def read_description(path: Path) -> dict[str, Any]:
    """The parsed and checked config.json of a checkpoint directory."""
    path = checkpoint_directory(path)
    try:
        description = json.loads((path / "config.json").read_text())
    except FileNotFoundError:
        raise CheckpointError(f"{path} is no checkpoint directory: it has no config.json") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path / 'config.json'} cannot be read: {error}") from error
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise CheckpointError(f"{path} was not written by GryphOne (config.json names no {FORMAT})")
    if description.get("version") != VERSION:
        raise CheckpointError(
            f"{path} has checkpoint version {description.get('version')}, this GryphOne reads "
            f"version {VERSION}; install the release that wrote it ({description.get('gryphone')})"
        )
    return description


def read_checkpoint(path: Path | str) -> Checkpoint:
    """The settings, vocabularies and facts of a checkpoint directory."""
    path = checkpoint_directory(Path(path))
    found = checkpoint_of(read_description(path), f"{path}/config.json")
    return dataclasses.replace(found, parameters=_count_parameters(path))


def checkpoint_of(description: Mapping[str, Any], where: str) -> Checkpoint:
    """What a description that was read `where` says, without its weights."""
    try:
        config = from_dict(ModelConfig, description["model"], f"{where}: model")
        check_kind(config.kind)
        tokenizer = tokenizer_from_dict(description["tokenizer"])
    except (GryphoneError, KeyError) as error:
        raise CheckpointError(f"{where} is incomplete: {error}") from error
    return Checkpoint(config, tokenizer, description.get("facts", {}), 0)


def load_model(
    path: Path | str, device: torch.device | str = "cpu", checkpoint: Checkpoint | None = None
) -> GryphOne:
    """The network of a checkpoint directory, ready to be used; `checkpoint` is what it says."""
    from gryphone.model import Undrawn

    path = checkpoint_directory(Path(path))
    checkpoint = checkpoint or read_checkpoint(path)
    sizes = tuple(len(v) for v in checkpoint.tokenizer.vocabularies)
    with Undrawn():
        model = build_model(checkpoint.config, sizes, checkpoint.tokenizer.vocabularies[0].tokens)
    try:
        tensors = {k: v.float() for k, v in read_tensors(path).items()}
        model.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        first = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
        raise CheckpointError(
            f"the weights in {path} do not fit its config.json: {first}"
        ) from error
    return model.to(device).eval()
