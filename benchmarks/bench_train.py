"""Training speed of `paper` and `ink`, side by side in one run: `make bench-train` on a GPU (on a
CPU with `--batch 64 --only sparse`).

Prints samples/s, achieved TFLOP/s (counted from the shapes: 3 times the forward pass) and peak
memory, for the dense and the sparse encoder, with and without RMML.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from gryphone.config import PRESETS, ModelConfig
from gryphone.data.store import InkStore, load_packed
from gryphone.decoding import CANVASES
from gryphone.kinds import build_model
from gryphone.tokens import build_tokenizer
from gryphone.training.augment import Augment
from gryphone.training.mixture import Mixture, StoreSource
from gryphone.training.objective import seeded, training_loss
from gryphone.training.quick import aside, handed_on, quicken
from gryphone.training.settings import SourceConfig, TrainConfig
from gryphone.training.train import make_optimizer


def forward_flops(model: ModelConfig, patches: float, tokens: float, copies: int) -> float:
    """Multiply-adds times two of one sample's forward pass: matrix products and attention."""
    w, t = model.width, tokens * copies
    encoder = model.encoder_depth * (24 * w * w * patches + 4 * w * patches**2)
    decoder = model.decoder_depth * (
        28 * w * w * t + 4 * w * w * patches + 4 * w * t * tokens + 4 * w * t * patches
    )
    return encoder + decoder


def measure(
    config: TrainConfig, mixture: Mixture, sizes: tuple[int, ...], seconds: float, profile: bool
) -> dict:
    """Train for a few seconds and count."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = build_model(config.model, sizes).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    optimizer = make_optimizer(model, config, device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        if config.compile:
            print(quicken(model), flush=True)
    shapes = []
    hook = model.register_forward_pre_hook(
        lambda _, args: shapes.append((len(args[0].pixels), len(args[1])))
    )

    def network(*given: Any) -> Any:  # which alone computes in half precision, as in training
        with torch.autocast(device.type, torch.bfloat16):
            return model(*given)

    def step(number: int) -> None:
        generator = seeded(0, number, 0, device)
        with aside(device):
            batch = mixture.sample(generator)
        loss, _ = training_loss(network, config, handed_on(batch), sizes, generator)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    begin = time.monotonic()
    for warm in range(5):
        step(warm)
    if device.type == "cuda":
        torch.cuda.synchronize()
    compiled = time.monotonic() - begin
    shapes.clear()
    begin, steps = time.monotonic(), 0
    while time.monotonic() - begin < seconds:
        for _ in range(10 if device.type == "cuda" else 1):
            step(100 + steps)
            steps += 1
        if device.type == "cuda":  # not after every step, which would leave the device idle
            torch.cuda.synchronize()
    elapsed = time.monotonic() - begin
    if profile:
        with torch.profiler.profile(activities=list(torch.profiler.supported_activities())) as p:
            for extra in range(3):
                step(10_000 + extra)
        print(p.key_averages().table(sort_by="self_device_time_total", row_limit=25), flush=True)
    hook.remove()
    copies = 2 if config.rmml else 1
    patches = sum(s[0] for s in shapes) / len(shapes) / config.batch
    tokens = sum(s[1] for s in shapes) / len(shapes) / config.batch / copies
    rate = steps * config.batch / elapsed
    flops = 3 * forward_flops(config.model, patches, tokens, copies)
    memory = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
    return {
        "parameters_M": round(parameters / 1e6, 1),
        "batch": config.batch,
        "patches": round(patches, 1),
        "canvas": round(tokens, 1),
        "GFLOP_per_sample": round(flops / 1e9, 1),
        "samples_per_s": round(rate, 1),
        "TFLOP_per_s": round(rate * flops / 1e12, 1),
        "memory_GiB": round(memory, 1),
        "warm_up_s": round(compiled, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="packed/train.parquet")
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--batch", type=int, default=1024, help="of the sparse model")
    parser.add_argument("--profile", action="store_true", help="print the costliest operations")
    parser.add_argument("--out", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--tiny", action="store_true", help="small networks, to try the script")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    packed = load_packed(Path(options.data), "crohme")
    tokenizer = build_tokenizer("sat", [x.split(" ") for x in packed.labels])
    sizes = tuple(len(v) for v in tokenizer.vocabularies)
    store = InkStore.of(packed, tokenizer, 150, device)
    ink, paper = PRESETS["ink"], PRESETS["paper"]
    if options.tiny:
        small = {"width": 48, "encoder_depth": 1, "decoder_depth": 1}
        ink, paper = replace(ink, **small), replace(paper, **small)
    rows = {
        "ink, sparse": (ink, options.batch),
        "ink, all patches": (replace(ink, all_patches=True), options.batch // 4),
        "paper": (paper, options.batch // 4),
    }
    table = Table("model", "RMML")
    results = []
    for name, (model, batch) in rows.items():
        if options.only and options.only not in name:
            continue
        for rmml in (True, False):
            config = TrainConfig(
                name="bench",
                sources=(SourceConfig(options.data),),
                model=model,
                batch=batch,
                rmml=rmml,
                augment=Augment() if not model.dense else None,
            )
            mixture = Mixture.of([StoreSource(store, (len(store),))], [1.0], batch)
            torch._dynamo.reset()
            row = measure(config, mixture, sizes, options.seconds, options.profile and rmml)
            results.append({"model": name, "rmml": rmml, **row})
            print(json.dumps(results[-1]), flush=True)
            if len(table.columns) == 2:
                for key in row:
                    table.add_column(key, justify="right")
            table.add_row(name, "yes" if rmml else "no", *map(str, row.values()))
    console = Console(width=160)
    console.print(f"canvases in use: {CANVASES}, length {PRESETS['ink'].length}")
    console.print(table)
    if options.out:
        Path(options.out).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
