"""Turn a training run's checkpoints into the released one: averaged, eight bits, with facts."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from gryphone.checkpoint import load_checkpoint, save_checkpoint

LICENCE = "CC BY-NC-SA 3.0 (trained on CROHME and OffRaSHME handwriting; non-commercial use only)"
DATA = (
    "CROHME 2019 and 2023 training ink and white-listed artificial CROHME ink (CC BY-NC-SA 3.0)",
    "OffRaSHME 2020 photographs and their symbol boxes, traced (CC BY-NC-SA 3.0)",
    "Detexify symbol strokes (ODbL)",
    "formulas of arXiv papers and public label lists, text only",
)


def release(sources: Sequence[Path], out: Path, metrics: dict[str, Any]) -> int:
    """Write the mean of the checkpoints of one run, with eight-bit weights; returns its bytes."""
    *_, checkpoint = checkpoints = [load_checkpoint(source) for source in sources]
    facts = {**checkpoint.facts, "licence": LICENCE, "data": list(DATA), "metrics": metrics}
    weights = checkpoint.model.state_dict()
    if len(checkpoints) > 1:
        several = [c.model.state_dict() for c in checkpoints]
        weights = {name: torch.stack([s[name] for s in several]).mean(0) for name in weights}
        facts["averaged"] = [c.facts["training"]["minutes"] for c in checkpoints]
    save_checkpoint(
        out,
        weights,
        checkpoint.config,
        checkpoint.tokenizer,
        facts,
        int8=True,
    )
    return sum(p.stat().st_size for p in out.iterdir())


def main() -> None:
    """Command line: `python -m gryphone.analysis.release RUN... OUT --metrics FILE.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", type=Path, nargs="+", help="checkpoints of one run, in order")
    parser.add_argument("out", type=Path)
    parser.add_argument("--metrics", type=Path, help="JSON with the figures to store")
    options = parser.parse_args()
    metrics = json.loads(options.metrics.read_text()) if options.metrics else {}
    size = release(options.sources, options.out, metrics)
    print(f"{options.out}: {size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
