"""The training loop. One step is in `train`; what it calls is above it.

A step's batch consists of `shards` micro-batches. Each is drawn from a generator seeded by
(seed, step, shard), and the processes share the shards out: the stream of samples is the same
for one process or many, and after a restart.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from gryphone.checkpoint import read_description, read_tensors, save_checkpoint, write_directory
from gryphone.config import SourceConfig, TrainConfig, build_model
from gryphone.data.align import Agreement
from gryphone.data.packed import Packed
from gryphone.data.store import (
    UNKNOWN,
    InkStore,
    TrainingBatch,
    canvases,
    concatenate,
    load_packed,
)
from gryphone.decoding import CANVASES, DecodeOptions
from gryphone.diffusion import corrupt, cross_entropy, forward_mask, rmml, sample_time
from gryphone.errors import CheckpointError, ConfigError, DataError
from gryphone.model import GryphOne, Packing
from gryphone.raster import augment, draw, thicken, to_patches
from gryphone.recognize import read_inks
from gryphone.tokens import MASK_ID, Tokenizer, build_tokenizer, tokenizer_from_dict

Report = Callable[[str], None]


class Source(Protocol):
    """Anything that can make training samples out of random numbers."""

    def sample(self, count: int, generator: torch.Generator) -> TrainingBatch:
        """`count` fresh samples."""
        ...


@dataclasses.dataclass(frozen=True)
class StoreSource:
    """Real ink, drawn uniformly."""

    store: InkStore

    def sample(self, count: int, generator: torch.Generator) -> TrainingBatch:
        """`count` inks, with replacement."""
        index = torch.randint(
            len(self.store), (count,), generator=generator, device=generator.device
        )
        return self.store.batch(index)


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Several sources in fixed shares of every batch."""

    sources: tuple[Source, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, sources: list[Source], weights: list[float], batch: int) -> Mixture:
        """Shares proportional to the weights; rounding goes to the heaviest source."""
        counts = [int(batch * w / sum(weights)) for w in weights]
        counts[weights.index(max(weights))] += batch - sum(counts)
        return cls(tuple(sources), tuple(counts))

    def sample(self, generator: torch.Generator) -> TrainingBatch:
        """One micro-batch."""
        pairs = zip(self.sources, self.counts, strict=True)
        return concatenate([s.sample(n, generator) for s, n in pairs if n])


def seeded(seed: int, step: int, shard: int, device: torch.device) -> torch.Generator:
    """The generator of one micro-batch; it also seeds dropout."""
    digest = hashlib.sha256(f"{seed}:{step}:{shard}".encode()).digest()
    number = int.from_bytes(digest[:7], "big")
    torch.manual_seed(number)
    return torch.Generator(device).manual_seed(number)


def training_canvases(lengths: Tensor, longest: int, generator: torch.Generator) -> Tensor:
    """A canvas for each label (B,): the smallest that holds it and a PAD, now and then a larger one.

    Canvases are few and shared by many lengths, so their size gives no label away.
    """
    sizes = torch.tensor([c for c in CANVASES if c < longest] + [longest], device=lengths.device)
    choice = torch.searchsorted(sizes, lengths + 1)
    u = torch.rand(len(lengths), generator=generator, device=generator.device)
    choice = choice + (u < 0.25).long() + (u < 0.06).long()
    return sizes[choice.clamp_max(len(sizes) - 1)]


def training_loss(
    model: nn.Module,
    config: TrainConfig,
    batch: TrainingBatch,
    sizes: tuple[int, ...],
    generator: torch.Generator,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Draw, mask, predict, compare: the loss of one micro-batch and its parts."""
    canvas, strength = config.model.canvas, config.augment
    ink, area, room = batch.ink, None, 1.0
    if strength is not None:
        ink = augment(ink, strength, generator)
        if canvas.kind == "area":
            area, room = strength.area_factor(ink.size, generator), strength.max_area_factor
    pixels = draw(ink, canvas, area)
    if strength is not None and strength.thick:
        u = torch.rand(ink.size, generator=generator, device=generator.device)
        pixels = thicken(pixels, u < strength.thick)
    patches = to_patches(pixels, canvas, slots=canvas.slots(room), dense=config.model.keep_all)

    views = 2 if config.rmml else 1
    if config.model.dense:
        lengths = torch.full_like(batch.lengths, config.model.length)
    else:
        lengths = training_canvases(batch.lengths, config.model.length, generator)
    truth, index, owner, lengths = canvases(batch, lengths, views)
    moment = sample_time(len(lengths), generator, config.time_power)[owner]
    masked = forward_mask(truth, moment, MASK_ID, generator)
    if config.corrupt:
        masked = corrupt(masked, config.corrupt, sizes, MASK_ID, generator)

    if config.model.dense:
        own = Packing.equal(len(lengths), config.model.length, lengths.device)
    else:
        own = Packing.of(lengths)
    logits, patch_logits = model(patches, masked, index, own)
    if config.rmml:
        first, second = ((owner % 2 == v).nonzero().squeeze(1) for v in (0, 1))
        loss = rmml([x[first] for x in logits], [x[second] for x in logits], truth[first]).mean()
    else:
        loss = cross_entropy(logits, truth).mean()
    parts = {"tokens": loss.detach()}
    if patch_logits:
        tokens = batch.glyph_tokens
        target = (
            torch.where((patches.glyph >= 0)[:, None], tokens[patches.glyph.clamp_min(0)], UNKNOWN)
            if len(tokens)
            else patches.glyph.new_full((len(patches.glyph), len(sizes)), UNKNOWN)
        )
        seen = patch_loss(patch_logits, target)
        parts["patches"] = seen.detach()
        loss = loss + config.aux_weight * seen
    return loss, parts


def patch_loss(logits: list[Tensor], target: Tensor) -> Tensor:
    """Which token's ink is in a patch: mean cross-entropy of the patches for which that is known."""
    total = logits[0].new_zeros(())
    for s, stream in enumerate(logits):
        known = (target[:, s] != UNKNOWN).sum().clamp_min(1)
        losses = F.cross_entropy(
            stream.float(), target[:, s], ignore_index=UNKNOWN, reduction="sum"
        )
        total = total + losses / known
    return total


def learning_rate(config: TrainConfig, step: int, progress: float) -> float:
    """Linear warm-up by steps, then a cosine over the run's progress (0 to 1)."""
    warm = min(1.0, (step + 1) / config.warmup_steps) if config.warmup_steps else 1.0
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return config.lr * warm * (config.min_lr + (1 - config.min_lr) * cosine)


def make_optimizer(
    model: nn.Module, config: TrainConfig, device: torch.device
) -> torch.optim.AdamW:
    """AdamW; biases, norms and embeddings are not decayed."""
    decayed, plain = [], []
    for name, parameter in model.named_parameters():
        flat = parameter.ndim < 2 or "embed" in name or "position" in name
        (plain if flat else decayed).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=device.type == "cuda")


def evaluate_store(
    model: GryphOne, config: TrainConfig, tokenizer: Tokenizer, store: InkStore, steps: int
) -> dict[str, bool]:
    """Read every ink of a store: which samples match their label exactly."""
    options = DecodeOptions(
        steps=steps, length=config.model.length, start=min(48, config.model.length)
    )
    count = min(len(store), config.eval_limit or len(store))
    right: dict[str, bool] = {}
    for begin in range(0, count, 256):
        index = torch.arange(begin, min(begin + 256, count), device=store.points.device)
        answers = read_inks(
            model,
            config.model,
            store.batch(index).ink,
            options,
            streams=len(tokenizer.vocabularies),
        )
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


class Run:
    """The files of one run: state to resume from, the checkpoint to use, logs to read."""

    def __init__(self, config: TrainConfig) -> None:
        self.folder = Path(config.out) / config.name
        self.checkpoint = self.folder / "checkpoint"

    def newest_state(self) -> Path | None:
        """The last whole state; a killed run leaves none half-written under this name."""
        states = sorted(self.folder.glob("state-*"))
        return states[-1] if states else None

    def save_state(self, step: int, elapsed: float, tensors: Mapping[str, Tensor]) -> None:
        """Write the state of a step, then drop the older ones."""
        texts = {"state.json": json.dumps({"step": step, "elapsed": elapsed})}
        older = list(self.folder.glob("state-*"))
        path = self.folder / f"state-{step:09d}"
        write_directory(path, texts, {k: v.detach().cpu().contiguous() for k, v in tensors.items()})
        for other in older:
            if other != path:
                shutil.rmtree(other, ignore_errors=True)

    def log(self, file: str, row: Mapping[str, Any]) -> None:
        """Append a row to a CSV file."""
        path = self.folder / file
        fresh = not path.exists()
        with path.open("a", newline="") as handle:
            writer = csv.DictWriter(handle, list(row))
            if fresh:
                writer.writeheader()
            writer.writerow(row)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as named tensors (no pickle)."""
    return {
        f"optimizer.{i}.{name}": value
        for i, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put named tensors back into the optimizer."""
    states: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            _, number, name = key.split(".", 2)
            states.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": states})


def prefixed(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors under a prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def choose(packed: Packed, source: SourceConfig, report: Report) -> Packed:
    """Leave out the samples that a source's settings exclude, and say how many."""
    unwanted = set(source.without)
    keep = np.array([unwanted.isdisjoint(label.split(" ")) for label in packed.labels])
    if not source.contradicting:
        keep &= packed.agreement != Agreement.CONTRADICTS
    if keep.all():
        return packed
    report(f"{source.path}: {(~keep).sum()} of {len(packed)} samples left out by its settings")
    return packed.select(keep)


def load_sources(
    config: TrainConfig, device: torch.device, report: Report
) -> tuple[Mixture, Tokenizer, dict[str, InkStore]]:
    """Training sources, the tokenizer (built from them unless one is named) and validation sets."""
    inks: dict[int, Packed] = {
        i: choose(load_packed(Path(s.path), config.convention), s, report)
        for i, s in enumerate(config.sources)
        if s.kind == "ink"
    }
    if config.tokenizer:
        try:
            tokenizer = tokenizer_from_dict(json.loads(Path(config.tokenizer).read_text()))
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read tokenizer {config.tokenizer}: {error}") from error
    else:
        labels = [label.split(" ") for packed in inks.values() for label in packed.labels]
        tokenizer = build_tokenizer(config.scheme, labels)
    sources = [
        StoreSource(InkStore.of(inks[i], tokenizer, config.model.length, device))
        if s.kind == "ink"
        else synth_source(s, tokenizer, device)
        for i, s in enumerate(config.sources)
    ]
    weights = [s.weight for s in config.sources]
    validation = {}
    for name, path in config.validation.items():
        packed = load_packed(Path(path), config.convention)
        validation[name] = InkStore.of(
            packed, tokenizer.grow(x.split(" ") for x in packed.labels), config.model.length, device
        )
    return Mixture.of(sources, weights, config.batch), tokenizer, validation


def synth_source(config: SourceConfig, tokenizer: Tokenizer, device: torch.device) -> Source:
    """A composer of synthetic ink."""
    from gryphone.synth.source import SynthSource

    return SynthSource.load(Path(config.path), Path(config.glyphs), tokenizer, device)


def read_unseen(config: TrainConfig) -> dict[str, set[str]]:
    """The ids of validation samples whose formula no training ink has."""
    try:
        return {name: set(Path(p).read_text().split()) for name, p in config.unseen.items()}
    except OSError as error:
        raise DataError(f"cannot read a list of unseen samples: {error}") from error


def initialise(
    model: GryphOne, config: TrainConfig, tokenizer: Tokenizer, init: Path | None
) -> None:
    """Start from a checkpoint's weights, or put DINO's into a dense encoder."""
    if init is not None:
        tensors = {k: v.float() for k, v in read_tensors(init).items()}
        known = tokenizer_from_dict(read_description(init)["tokenizer"])
        tensors = carry_vocabulary(tensors, model.state_dict(), known, tokenizer)
        try:
            model.load_state_dict(tensors)
        except RuntimeError as error:
            raise CheckpointError(
                f"the weights in {init} do not fit this run's model; set 'model' to that of its "
                f"config.json ({error})"
            ) from error
    elif config.dino:
        try:
            state = torch.load(config.dino, map_location="cpu", weights_only=True)
            model.encoder.load_dino(state)  # type: ignore[operator]
        except (OSError, RuntimeError, KeyError, AttributeError) as error:
            raise CheckpointError(
                f"{config.dino} is no DINO ViT-S/8 state dict for this model: {error}"
            ) from error


def carry_vocabulary(
    old: Mapping[str, Tensor], fresh: Mapping[str, Tensor], known: Tokenizer, wanted: Tokenizer
) -> dict[str, Tensor]:
    """The old weights for a new vocabulary: a token's rows follow its name, new tokens start fresh."""
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
            f"decoder.heads.{s}.weight",
            f"decoder.heads.{s}.bias",
            f"patch_heads.{s}.weight",
            f"patch_heads.{s}.bias",
        ):
            if name in old and name in fresh:
                table = fresh[name].detach().cpu().clone()
                table[rows] = old[name][taken]
                out[name] = table
    return out


def train(config: TrainConfig, *, init: Path | None = None, report: Report = print) -> Path:
    """Train until `minutes` or `steps` are over; returns the checkpoint directory.

    A run that was killed goes on from its last saved state.
    """
    accelerator = Accelerator(mixed_precision=config.precision, cpu=config.precision == "no")
    device, main = accelerator.device, accelerator.is_main_process
    torch.backends.cuda.matmul.allow_tf32 = True
    run = Run(config)
    if main:
        run.folder.mkdir(parents=True, exist_ok=True)
    mixture, tokenizer, validation = load_sources(config, device, report)
    unseen = read_unseen(config)
    sizes = tuple(len(v) for v in tokenizer.vocabularies)
    torch.manual_seed(config.seed)
    model = build_model(config.model, sizes).to(device)
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(config.ema))
    optimizer = make_optimizer(model, config, device)

    step, before = 0, 0.0
    state = run.newest_state()
    if state is not None:
        tensors = read_tensors(state)
        model.load_state_dict(prefixed(tensors, "model."))
        ema.load_state_dict(prefixed(tensors, "ema."))
        restore_optimizer(optimizer, tensors)
        saved = json.loads((state / "state.json").read_text())
        step, before = saved["step"], saved["elapsed"]
        report(f"resuming {run.folder} at step {step}")
    elif init is not None or config.dino:
        initialise(model, config, tokenizer, init)
        ema.module.load_state_dict(model.state_dict())
    if config.compile and device.type == "cuda":
        model.compile_blocks()
    model, optimizer = accelerator.prepare(model, optimizer)
    shards = range(accelerator.process_index, config.shards, accelerator.num_processes)
    if config.shards % accelerator.num_processes:
        raise ConfigError(
            f"shards is {config.shards}; it must be a multiple of the "
            f"{accelerator.num_processes} processes"
        )

    start, seen, logged = time.monotonic(), 0, time.monotonic()
    next_save, next_eval = config.save_minutes, config.eval_minutes
    trace: list[Tensor] = []

    def minutes() -> float:
        return before + (time.monotonic() - start) / 60

    def save() -> None:
        if main:
            tensors = {
                f"model.{k}": v for k, v in accelerator.unwrap_model(model).state_dict().items()
            }
            tensors |= {f"ema.{k}": v for k, v in ema.state_dict().items()}
            run.save_state(step, minutes(), tensors | optimizer_tensors(optimizer))
            export(run, config, tokenizer, ema.module, step, minutes())

    def evaluate() -> None:
        if main and validation:
            scores = evaluate_all(ema.module, config, tokenizer, validation, unseen)
            row = {"step": step, "minutes": round(minutes(), 2)}
            run.log("eval.csv", row | {k: round(v, 2) for k, v in scores.items()})
            report(
                f"eval step {step} {minutes():.1f} min  "
                + "  ".join(f"{k} {v:.2f}" for k, v in scores.items())
            )

    while step < config.steps and minutes() < config.minutes:
        progress = max(step / config.steps, minutes() / config.minutes)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step, progress)

        model.train()
        total = torch.zeros((), device=device)
        for shard in shards:
            generator = seeded(config.seed, step, shard, device)
            batch = mixture.sample(generator)
            loss, parts = training_loss(model, config, batch, sizes, generator)
            accelerator.backward(loss / len(shards))
            total += loss.detach() / len(shards)
        norm = accelerator.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
        optimizer.zero_grad()
        ema.update_parameters(accelerator.unwrap_model(model))

        step, seen = step + 1, seen + config.batch * config.shards
        trace.append(accelerator.reduce(total, "mean"))
        if step % config.log_every == 0 or step == config.steps:
            rate = config.log_every * config.batch * config.shards / (time.monotonic() - logged)
            logged = time.monotonic()
            row: dict[str, Any] = {
                "step": step,
                "minutes": round(minutes(), 3),
                "loss": round(float(torch.stack(trace).mean()), 5),
                **{k: round(float(v), 5) for k, v in parts.items()},
                "norm": round(float(norm), 4),
                "lr": optimizer.param_groups[0]["lr"],
                "samples_per_s": round(rate),
            }
            trace.clear()
            if not math.isfinite(row["loss"]):
                raise DataError(
                    f"the loss is {row['loss']} at step {step}; lower lr or check the data"
                )
            if main:
                run.log("log.csv", row)
                report("  ".join(f"{k} {v:.5g}" for k, v in row.items()))
        if minutes() >= next_save:
            save()
            next_save = minutes() + config.save_minutes
        if minutes() >= next_eval and minutes() < config.minutes - 1:
            evaluate()
            next_eval, logged = minutes() + config.eval_minutes, time.monotonic()
    save()
    evaluate()
    accelerator.wait_for_everyone()
    report(f"{run.checkpoint} after {step} steps, {seen} samples in this session")
    return run.checkpoint


def export(
    run: Run, config: TrainConfig, tokenizer: Tokenizer, model: nn.Module, step: int, minutes: float
) -> None:
    """Write the averaged weights as a checkpoint that anybody can load."""
    facts = {
        "name": config.name,
        "convention": config.convention,
        "training": {
            "sources": [dataclasses.asdict(s) for s in config.sources],
            "steps": step,
            "samples": step * config.batch * config.shards,
            "minutes": round(minutes, 2),
        },
    }
    dtype = torch.bfloat16 if config.precision == "bf16" else None
    save_checkpoint(run.checkpoint, model.state_dict(), config.model, tokenizer, facts, dtype=dtype)
