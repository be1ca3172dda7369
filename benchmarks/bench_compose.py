"""How fast synthetic ink is composed, beside the raster it feeds: needs packed/ (`synth build`)."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from gryphone.config import PRESETS
from gryphone.raster import draw, to_patches
from gryphone.synth.ink_source import SynthSource, read_part
from gryphone.tokens import tokenizer_from_dict


def rate(work: Callable[[], object], count: int, seconds: float, device: torch.device) -> float:
    """Samples per second of `work`, which makes `count` of them, once it is warm."""
    for _ in range(3):
        work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        work()
        done += count
        if device.type == "cuda":
            torch.cuda.synchronize()
    return done / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packed", type=Path, default=Path("packed"))
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = tokenizer_from_dict(json.loads((options.packed / "tokenizer.json").read_text()))
    canvas = PRESETS["ink"].canvas
    generator = torch.Generator(device).manual_seed(0)
    parts = {x: read_part(options.packed / f"layouts-{x}.npz") for x in ("real", "tex", "grammar")}
    groups = {name: [part] for name, part in parts.items()} | {"all": [*parts.values()]}
    for name, group in groups.items():
        source = SynthSource.of(group, options.packed / "glyphs.npz", tokenizer, device)
        counts = [len(some) for some in np.array_split(np.arange(options.batch), len(group))]
        batch = source.sample(counts, generator)
        facts = (options.batch, options.seconds, device)
        composed = rate(lambda s=source, n=counts: s.sample(n, generator), *facts)
        drawn = rate(lambda b=batch: to_patches(draw(b.ink, canvas), canvas), *facts)
        tokens = float(batch.lengths.float().mean())
        print(
            f"{name}: {composed:,.0f} inks/s composed, {drawn:,.0f} drawn; {device}, "
            f"batch {options.batch}, {tokens:.1f} tokens a formula"
        )


if __name__ == "__main__":
    main()
