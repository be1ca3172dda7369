"""Starting from weights trained elsewhere: another run's, its encoder's alone, or DINO's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from gryphone.checkpoint import Checkpoint, read_checkpoint, read_tensors
from gryphone.errors import CheckpointError, ConfigError
from gryphone.model import GryphOne
from gryphone.tokens import Tokenizer
from gryphone.training.run_files import prefixed
from gryphone.training.settings import TrainConfig


def initialise(
    model: GryphOne, config: TrainConfig, tokenizer: Tokenizer, init: Path | None
) -> None:
    """Start from a checkpoint's weights, from its encoder's, or put DINO's into a dense encoder."""
    starts = {"--init": init, "encoder": config.encoder, "dino": config.dino}
    if len(given := [f"{name} {start}" for name, start in starts.items() if start]) > 1:
        begun = " and ".join(given)
        raise ConfigError(f"a run cannot begin with {begun}; keep one (--set encoder= drops that)")
    if init is not None:
        known = matching_checkpoint(config, init).tokenizer
        tensors = {k: v.float() for k, v in read_tensors(init).items()}
        with _fitting(f"the weights in {init} do not fit this run's model; set 'model' to that"):
            model.load_state_dict(carry_vocabulary(tensors, model.state_dict(), known, tokenizer))
    elif config.encoder:
        path = Path(config.encoder)
        matching_checkpoint(config, path)
        sizes = "model.width, model.encoder_depth and model.canvas"
        with _fitting(f"the encoder of {path} does not fit this run's; set {sizes} to those"):
            model.encoder.load_state_dict(prefixed(read_tensors(path), "encoder."))
    elif config.dino:
        try:
            state = torch.load(config.dino, map_location="cpu", weights_only=True)
            model.encoder.load_dino(state)  # type: ignore[operator]
        except (OSError, RuntimeError, KeyError, AttributeError) as error:
            raise CheckpointError(
                f"{config.dino} is no DINO ViT-S/8 state dict for this model: {error}"
            ) from error


@contextmanager
def _fitting(advice: str) -> Iterator[None]:
    """Weights of other sizes are one error, which says what to do by the checkpoint's settings."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[:2][-1].strip()  # the first names the class alone
        raise CheckpointError(f"{advice} of its config.json ({reason})") from error


def matching_checkpoint(config: TrainConfig, init: Path) -> Checkpoint:
    """What a checkpoint says, unless its weights were trained on ink of another precision."""
    checkpoint = read_checkpoint(init)
    precision = checkpoint.config.ink_precision
    if precision != config.model.ink_precision:
        raise CheckpointError(
            f"the weights in {init} read ink in {precision}, this run's model in "
            f"{config.model.ink_precision}; set model.ink_precision to theirs"
        )
    return checkpoint


def carry_vocabulary(
    old: Mapping[str, Tensor], fresh: Mapping[str, Tensor], known: Tokenizer, wanted: Tokenizer
) -> dict[str, Tensor]:
    """The old weights for a new vocabulary: rows follow their token, new tokens start fresh."""
    out = dict(old)
    if known.scheme != wanted.scheme:
        raise CheckpointError(
            f"the checkpoint's tokens are {known.scheme!r}, this run's are {wanted.scheme!r}"
        )
    pairs = zip(known.vocabularies, wanted.vocabularies, strict=True)
    for s, (before, after) in enumerate(pairs):
        common = [t for t in after.tokens if t in before]
        rows = torch.tensor([after.id(t) for t in common])
        taken = torch.tensor([before.id(t) for t in common])
        for name in (
            f"decoder.embed.{s}.weight",
            *(f"decoder.heads.{s}.{part}" for part in ("weight", "bias", "1.weight", "1.bias")),
            f"patch_heads.{s}.weight",
            f"patch_heads.{s}.bias",
        ):
            if name in old and name in fresh:
                table = fresh[name].detach().cpu().clone()
                table[rows] = old[name][taken]
                out[name] = table
    return out
