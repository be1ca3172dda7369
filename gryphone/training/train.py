"""The training loop.

A step's batch consists of `shards` micro-batches. Each is drawn from a generator seeded by
(seed, step, shard), and the processes share the shards out: the stream of samples is the same
for one process or many, and after a restart.
"""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from gryphone.checkpoint import read_checkpoint, read_tensors, save_checkpoint
from gryphone.errors import ConfigError, DataError
from gryphone.interrupt import Interrupts
from gryphone.kinds import build_model, part_of
from gryphone.model import GryphOne
from gryphone.tokens import Tokenizer, tokenizer_from_dict
from gryphone.training.initialise import initialise, matching_checkpoint
from gryphone.training.mixture import Report, load_sources, read_unseen
from gryphone.training.objective import seeded
from gryphone.training.quick import aside, handed_on, quicken
from gryphone.training.run_files import Run, optimizer_tensors, prefixed, restore_optimizer
from gryphone.training.settings import TrainConfig
from gryphone.training.validate import evaluate_all

SPEAK = 10  # seconds without a word, where the log's next line is still far


def train(config: TrainConfig, *, init: Path | None = None, report: Report = print) -> Path:
    """Train until `minutes` or `steps` are over; returns the checkpoint directory.

    A run that was killed goes on from its last saved state; Ctrl-C and SIGTERM save one first.
    """
    training = Training(config, init, report)
    with training.interrupts as interrupts:
        try:
            while training.goes_on():
                with interrupts.step():
                    training.take_step()
                training.look_after()
            training.save()
            training.evaluate()
        except KeyboardInterrupt:
            if not interrupts.mid_step:
                training.save()
                saved = training.run.newest_state()
                training.report(f"saved {saved}; the same command goes on from there")
                # torchrun ends all processes when one has left.
                training.accelerator.wait_for_everyone()
            raise
    training.accelerator.wait_for_everyone()
    samples = training.step * config.batch * config.shards
    training.report(f"{training.run.checkpoint} after {training.step} steps, {samples} samples")
    return training.run.checkpoint


def leave_processes() -> None:
    """Part from the other processes, if there are any, after the last training in this one."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def learning_rate(config: TrainConfig, step: int, progress: float) -> float:
    """Linear warm-up by steps, then a cosine over the run's progress (0 to 1), or one drop."""
    warm = min(1.0, (step + 1) / config.warmup_steps) if config.warmup_steps else 1.0
    warm = config.warmup_from + (1 - config.warmup_from) * warm
    if config.drop_from is not None:
        return config.lr * warm * (0.1 if progress >= config.drop_from else 1.0)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return config.lr * warm * (config.min_lr + (1 - config.min_lr) * cosine)


def size_of(tokenizer: Tokenizer) -> str:
    """How large the vocabularies are, in words: 107 symbols and 25 modifiers."""
    pairs = zip(tokenizer.vocabularies, tokenizer.streams, strict=True)
    return " and ".join(f"{len(vocabulary.names)} {stream}" for vocabulary, stream in pairs)


def make_optimizer(
    model: nn.Module, config: TrainConfig, device: torch.device
) -> torch.optim.AdamW:
    """AdamW; biases, norms and embeddings are decayed only where `decay_all` says so."""
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        flat = parameter.ndim < 2 or "embed" in name or "position" in name
        (plain if flat and not config.decay_all else decayed).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=device.type == "cuda")


def start_accelerator(precision: str) -> Accelerator:
    """The GPUs that are there, else the CPU."""
    gpu = torch.cuda.is_available()
    if precision == "fp16" and not gpu:
        raise ConfigError("precision is fp16, which needs a GPU; use no or bf16")
    return Accelerator(mixed_precision=precision, cpu=not gpu)


class Training:
    """A run under way: network, average, optimizer, sources and the clock."""

    def __init__(self, config: TrainConfig, init: Path | None, report: Report) -> None:
        self.config = config
        self.accelerator = start_accelerator(config.precision)
        device, processes = self.accelerator.device, self.accelerator.num_processes
        # Several processes have one voice.
        self.report: Report = report if self.accelerator.is_main_process else lambda line: None
        self.interrupts = Interrupts(several=processes > 1)
        if config.shards % processes:
            raise ConfigError(
                f"shards is {config.shards}; it must be a multiple of the {processes} processes"
            )
        self.report(
            f"{processes} {'process' if processes == 1 else 'processes'} on {device.type}, "
            f"precision {config.precision}"
        )
        torch.backends.cuda.matmul.allow_tf32 = True
        self.run = Run(config)
        self.run.make_folder()
        facts = self.run.read_facts()
        known = None if init is None else read_checkpoint(init).tokenizer
        if facts:
            known = tokenizer_from_dict(facts["tokenizer"])
        sources = load_sources(config, device, self.report, known)
        self.mixture, self.tokenizer, self.validation = sources
        if facts and known is not None and self.tokenizer != known:
            sizes = f"{size_of(known)}, its data has {size_of(self.tokenizer)} now"
            start = f"--init {self.run.checkpoint} to start from its weights"
            raise self.run.another(sizes, f", and {start}")
        self.unseen = read_unseen(config)
        self.sizes = tuple(len(v) for v in self.tokenizer.vocabularies)
        torch.manual_seed(config.seed)
        names = self.tokenizer.vocabularies[0].tokens
        model = build_model(config.model, self.sizes, names).to(device)
        self.objective = part_of(config.model.kind, "objective")
        self.ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(config.ema))  # type: ignore[no-untyped-call]
        optimizer = make_optimizer(model, config, device)
        self.step: int = facts.get("step", 0)
        self.before: float = facts.get("elapsed", 0.0)
        self._start(model, optimizer, init)
        if self.accelerator.is_main_process:
            self.run.rewind(self.step)
        if config.compile and device.type == "cuda":
            self.report(quicken(model))
        self._agree()
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        millions = sum(p.numel() for p in model.parameters()) / 1e6
        self.report(
            f"{millions:.1f} million parameters, {size_of(self.tokenizer)}; "
            f"{config.batch * config.shards} samples a step"
        )
        self.start = self.logged = time.monotonic()
        self.spoke = -math.inf  # the first step is said, whatever it took
        self.now = self.before
        self.next_save = self.minutes() + config.save_minutes
        self.next_eval = self.minutes() + config.eval_minutes
        self.losses: list[Tensor] = []

    def _start(self, model: GryphOne, optimizer: torch.optim.Optimizer, init: Path | None) -> None:
        """Resume from the run's last state, or begin with the weights that are asked for."""
        state = self.run.newest_state()
        if state is not None:
            if self.run.checkpoint.exists():  # which a kill may have prevented
                matching_checkpoint(self.config, self.run.checkpoint)
            tensors = read_tensors(state)
            try:
                model.load_state_dict(prefixed(tensors, "model."))
            except RuntimeError as error:
                raise self.run.another("another model") from error
            self.ema.load_state_dict(prefixed(tensors, "ema."))
            restore_optimizer(optimizer, tensors)
            unused = f"; --init {init} is for new runs, and not used" if init is not None else ""
            self.report(f"resuming {self.run.folder} at step {self.step}{unused}")
        elif init is not None or self.config.dino or self.config.encoder:
            initialise(model, self.config, self.tokenizer, init)
            self.ema.module.load_state_dict(model.state_dict())

    def _agree(self) -> None:
        """Stop where the processes would train different runs: nodes may see different files."""
        read = f"step {self.step}, {size_of(self.tokenizer)}, {self.mixture.inks} inks"
        seen = gather_object([read])
        if len(set(seen)) > 1:
            raise DataError(
                f"the processes found different files: {'; '.join(dict.fromkeys(seen))}; all nodes "
                f"need the same data, and one shared folder as out ({self.config.out})"
            )

    @property
    def averaged(self) -> GryphOne:
        """The moving average of the weights, as a network."""
        return cast(GryphOne, self.ema.module)

    def minutes(self) -> float:
        """Wall-clock minutes of this run, those before a restart included."""
        return self.before + (time.monotonic() - self.start) / 60

    def goes_on(self) -> bool:
        """Whether there is another step to take.

        Several processes agree on the time, and on whether they were interrupted: one that left
        alone would let the others wait for its gradients for ever.
        """
        self.now, asked = self.minutes(), self.interrupts.asked
        if self.accelerator.num_processes > 1:
            both = torch.tensor([self.now, asked], device=self.accelerator.device)
            torch.distributed.all_reduce(both, torch.distributed.ReduceOp.MAX)
            self.now, asked = both[0].item(), bool(both[1])
        if asked:
            raise KeyboardInterrupt
        return self.step < self.config.steps and self.now < self.config.minutes

    def take_step(self) -> None:
        """One update: draw samples, mask, predict, compare, follow the gradient."""
        config, accelerator = self.config, self.accelerator
        progress = max(self.step / config.steps, self.now / config.minutes)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(config, self.step, progress)

        self.model.train()
        shards = range(accelerator.process_index, config.shards, accelerator.num_processes)
        total = torch.zeros((), device=accelerator.device)
        for shard in shards:
            generator = seeded(config.seed, self.step, shard, accelerator.device)
            with aside(accelerator.device):
                finishing = progress >= 1 - config.finish
                batch = self.mixture.sample(
                    generator, finishing=finishing, step=self.step, shard=shard
                )
            batch = handed_on(batch)
            loss, self.parts = self.objective(self.model, config, batch, self.sizes, generator)
            accelerator.backward(loss / len(shards))
            total += loss.detach() / len(shards)
        self.norm = accelerator.clip_grad_norm_(self.model.parameters(), config.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.ema.update_parameters(accelerator.unwrap_model(self.model))
        self.losses.append(accelerator.reduce(total, "mean"))
        self.step += 1

    def look_after(self) -> None:
        """Log, save and evaluate when it is time."""
        config = self.config
        if self.step % config.log_every == 0 or self.step == config.steps:
            self.log()
        elif time.monotonic() - self.spoke >= SPEAK:
            self.speak()
        if self.minutes() >= self.next_save:
            self.save()
            self.next_save = self.minutes() + config.save_minutes
        if self.next_eval <= self.minutes() < config.minutes - 1:
            self.evaluate()
            self.next_eval = self.minutes() + config.eval_minutes
            self.logged = time.monotonic()

    def speak(self) -> None:
        """A line between those of the log, which are minutes apart on a CPU."""
        self.spoke = time.monotonic()
        loss = float(self.losses[-1])
        self.report(f"step {self.step}  minutes {self.minutes():.3g}  loss {loss:.5g}")

    def log(self) -> None:
        """One line, on the screen and in log.csv."""
        now = self.spoke = time.monotonic()
        samples = len(self.losses) * self.config.batch * self.config.shards
        row: dict[str, Any] = {
            "step": self.step,
            "minutes": round(self.minutes(), 3),
            "loss": round(float(torch.stack(self.losses).mean()), 5),
            **{k: round(float(v), 5) for k, v in self.parts.items()},
            "norm": round(float(self.norm), 4),
            "lr": self.optimizer.param_groups[0]["lr"],
            "samples_per_s": round(samples / (now - self.logged)),
        }
        self.losses.clear()
        self.logged = now
        if not math.isfinite(row["loss"]):
            raise DataError(
                f"the loss is {row['loss']} at step {self.step}; lower lr or check the data"
            )
        if self.accelerator.is_main_process:
            self.run.log("log.csv", row)
            self.report("  ".join(f"{k} {v:.5g}" for k, v in row.items()))

    def save(self) -> None:
        """Write the state to resume from, and the averaged weights as a checkpoint to use."""
        if not self.accelerator.is_main_process:
            return
        config, model = self.config, self.accelerator.unwrap_model(self.model)
        tensors = {f"model.{k}": v for k, v in model.state_dict().items()}
        tensors |= {f"ema.{k}": v for k, v in self.ema.state_dict().items()}
        tensors |= optimizer_tensors(self.optimizer)
        state = {"step": self.step, "elapsed": self.minutes()}
        self.run.save_state(state | {"tokenizer": self.tokenizer.to_dict()}, tensors)
        facts = {
            "name": config.name,
            "convention": config.convention,
            "training": {
                "sources": [dataclasses.asdict(s) for s in config.sources],
                "steps": self.step,
                "samples": self.step * config.batch * config.shards,
                "minutes": round(self.minutes(), 2),
            },
        }
        save_checkpoint(
            self.run.checkpoint,
            self.averaged.state_dict(),
            config.model,
            self.tokenizer,
            facts,
            dtype=torch.bfloat16 if config.precision == "bf16" else None,
        )

    def evaluate(self) -> None:
        """Exact match of the averaged weights on the validation sets."""
        if not (self.accelerator.is_main_process and self.validation):
            return
        scores = evaluate_all(
            self.averaged, self.config, self.tokenizer, self.validation, self.unseen
        )
        row = {"step": self.step, "minutes": round(self.minutes(), 2)}
        self.run.log("eval.csv", row | {k: round(v, 2) for k, v in scores.items()})
        listed = "  ".join(f"{k} {v:.2f}" for k, v in scores.items())
        self.report(f"eval step {self.step} {self.minutes():.1f} min  {listed}")
