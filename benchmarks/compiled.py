"""Are compiled blocks the network that they were made from? `python benchmarks/compiled.py ar bttr`

One training pass of each kind on the examples, or with `--inks FILE` on a packed store, in bf16, by
a plain network and by one that is `quicken`ed: what they say of every place of a label and their
gradients must agree. A mean loss hides an error at the first places, and a network that learned
with it reads nothing elsewhere.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gryphone.config import PRESETS
from gryphone.kinds import KINDS, build_model, part_of
from gryphone.training.mixture import load_sources
from gryphone.training.objective import seeded
from gryphone.training.quick import quicken
from gryphone.training.settings import SourceConfig, TrainConfig

INKS = Path(__file__).parents[1] / "examples" / "ink"
APART = 0.1  # bf16 and float32 are 0.03 apart, a wrong mask is 0.6
CHOSEN = 0.3  # NAMER's fresh weights choose among patches that are all alike: those are 0.13 apart


def passed(config: TrainConfig, device: torch.device, quick: bool) -> tuple[list[Tensor], str]:
    """The logits of the first stream at places 0 to 5, and all gradients; what was compiled."""
    mixture, tokenizer, _ = load_sources(config, device, lambda line: None)
    sizes = tuple(len(v) for v in tokenizer.vocabularies)
    torch.manual_seed(0)
    model = build_model(config.model, sizes, tokenizer.vocabularies[0].tokens).to(device).train()
    said = quicken(model) if quick else ""
    kept: list[Tensor] = []

    def keep(_: object, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
        # Of canvases that were given, of a sheet, or of the graph that NAMER makes itself.
        index = inputs[2] if len(inputs) > 2 else getattr(inputs[1], "index", None)
        index = outputs[2].index if index is None else index
        kept.extend(outputs[0][0][index == place].detach().float() for place in range(6))

    model.register_forward_hook(keep)
    generator = seeded(0, 0, 0, device)
    batch = mixture.sample(generator)
    with torch.autocast(device.type, torch.bfloat16):
        loss, _ = part_of(config.model.kind, "objective")(model, config, batch, sizes, generator)
    loss.backward()
    found = [p.grad.flatten().float() for p in model.parameters() if p.grad is not None]
    return [*kept, torch.cat(found)], said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    parser.add_argument(
        "--inks", default=str(INKS), help="InkML needs defusedxml, a store does not"
    )
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    failed = []
    for kind in options.kinds:
        model = replace(PRESETS["tiny"], kind=kind, length=150)  # without dropout
        sources = (SourceConfig(options.inks),)
        scheme = "sat" if kind == "namer" else "raw"
        config = TrainConfig("compiled", sources, model=model, batch=64, scheme=scheme, rmml=False)
        wanted, _ = passed(config, device, quick=False)
        found, said = passed(config, device, quick=True)
        apart = [float((a - b).norm() / b.norm()) for a, b in zip(found, wanted, strict=True)]
        *places, gradient = (f"{x:.4f}" for x in apart)
        line = f"{kind}: apart at places 0 to 5 {' '.join(places)}, gradient {gradient}; {said}"
        print(line, flush=True)
        most = CHOSEN if kind == "namer" else APART
        if not all(x < most for x in apart):  # so is NaN
            failed.append(line)
    if failed:
        sys.exit("That is no rounding:\n" + "\n".join(failed))


if __name__ == "__main__":
    main()
