"""Turn a training run's checkpoint into the released one: eight bits, licence, data and figures."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from gryphone.checkpoint import load_checkpoint, save_checkpoint

LICENCE = "CC BY-NC-SA 3.0 (trained on CROHME and OffRaSHME handwriting; non-commercial use only)"
DATA = (
    "CROHME 2019 and 2023 training ink and white-listed artificial CROHME ink (CC BY-NC-SA 3.0)",
    "OffRaSHME 2020 photographs and their symbol boxes, traced (CC BY-NC-SA 3.0)",
    "Detexify symbol strokes (ODbL)",
    "formulas of arXiv papers and public label lists, text only",
)


def release(source: Path, out: Path, metrics: dict[str, Any]) -> int:
    """Write `source` to `out` with eight-bit weights; returns the size in bytes."""
    checkpoint = load_checkpoint(source)
    facts = {**checkpoint.facts, "licence": LICENCE, "data": list(DATA), "metrics": metrics}
    save_checkpoint(
        out,
        checkpoint.model.state_dict(),
        checkpoint.config,
        checkpoint.tokenizer,
        facts,
        int8=True,
    )
    return sum(p.stat().st_size for p in out.iterdir())


def main() -> None:
    """Command line: `python -m gryphone.analysis.release RUN OUT --metrics FILE.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--metrics", type=Path, help="JSON with the figures to store")
    options = parser.parse_args()
    metrics = json.loads(options.metrics.read_text()) if options.metrics else {}
    size = release(options.source, options.out, metrics)
    print(f"{options.out}: {size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
