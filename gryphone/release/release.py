"""Turn checkpoints into the one to release: averaged, in eight bits, with facts.

    python -m gryphone.release.release RUN... --out DIR --licence TEXT --data TEXT

Several must be of one model and vocabulary: those of one run, or of runs that grew out of each
other.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from gryphone.checkpoint import (
    WEIGHTS,
    Checkpoint,
    checkpoint_directory,
    load_model,
    read_checkpoint,
    save_checkpoint,
)
from gryphone.errors import CheckpointError, DataError
from gryphone.recognition.lone import FILE
from gryphone.release.common import first_difference, run

# What `--gryphone` says of the weights of this project.
LICENCE = "CC BY-NC-SA 3.0 (trained on CROHME and OffRaSHME handwriting; non-commercial use only)"
DATA = (
    "CROHME 2019 and 2023 training ink and white-listed artificial CROHME ink (CC BY-NC-SA 3.0)",
    "OffRaSHME 2020 photographs and their symbol boxes, traced (CC BY-NC-SA 3.0)",
    "Detexify symbol strokes (ODbL)",
    "handwriting fonts of Google Fonts, traced (OFL, Apache)",
    "isolated letters of UNIPEN (CC BY 4.0; its CD-ROM says for research), DigiLeTs and Chars74K "
    "(published for research), MathBrush (no licence found)",
    "formulas of arXiv papers and public label lists, text only",
)


def release(
    sources: Sequence[Path],
    out: Path,
    metrics: dict[str, Any],
    licence: str | None = None,
    data: Sequence[str] = (),
) -> int:
    """Write the mean of checkpoints of one model, with eight-bit weights; returns its bytes.

    Its facts are those of the last one; a licence and the data are changed where they are given.
    """
    *_, checkpoint = checkpoints = [read_checkpoint(source) for source in sources]
    facts = {**checkpoint.facts, "metrics": metrics}
    if licence is not None:
        facts["licence"] = licence
    if data:
        facts["data"] = list(data)
    # The terms in full and the reader of lone symbols, also where our own weights are replaced.
    ours = (WEIGHTS / "LICENSE", WEIGHTS / FILE)
    others = (checkpoint_directory(sources[-1]) / FILE,)
    kept = [file for file in (ours if licence == LICENCE else others) if file.is_file()]
    beside = {file.name: file.read_bytes() for file in kept}
    several = [load_model(source).state_dict() for source in sources]
    weights = several[-1]
    if len(checkpoints) > 1:
        check_alike(sources, checkpoints)
        weights = {name: torch.stack([s[name] for s in several]).mean(0) for name in weights}
        facts["averaged"] = [c.facts.get("training", {}).get("minutes") for c in checkpoints]
    save_checkpoint(
        out,
        weights,
        checkpoint.config,
        checkpoint.tokenizer,
        facts,
        int8=True,
    )
    for name, content in beside.items():
        (out / name).write_bytes(content)
    return sum(p.stat().st_size for p in out.iterdir())


def check_alike(sources: Sequence[Path], checkpoints: Sequence[Checkpoint]) -> None:
    """Refuse checkpoints whose weights do not mean the same: their mean would mean nothing."""

    def meaning(checkpoint: Checkpoint) -> dict[str, Any]:
        model = asdict(checkpoint.config)
        for name in ("attention_dropout", "dropout"):  # of training alone
            del model[name]
        convention = checkpoint.convention
        tokenizer = checkpoint.tokenizer.to_dict()
        return {"model": model, "vocabulary": tokenizer, "convention": convention}

    for source, other in zip(sources[1:], checkpoints[1:], strict=True):
        found = first_difference(meaning(checkpoints[0]), meaning(other))
        if found is not None:
            name, one, two = found
            raise CheckpointError(
                f"{sources[0]} and {source} cannot be averaged: {name} is {one!r} in the first, "
                f"{two!r} in the second; give checkpoints of one model"
            )


def read_metrics(path: Path) -> dict[str, Any]:
    """The figures in a JSON file."""
    try:
        metrics = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); give a JSON object") from error
    if not isinstance(metrics, dict):
        raise DataError(f"{path}: holds no JSON object; see `gryphone evaluate --json`")
    return metrics


def main() -> None:
    """Command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("sources", type=Path, nargs="+", help="checkpoints or runs, in order")
    parser.add_argument("--out", type=Path, required=True, help="the checkpoint to write")
    parser.add_argument("--metrics", type=Path, help="JSON with the figures to store")
    parser.add_argument("--licence", metavar="TEXT", help="under which the weights may be used")
    parser.add_argument(
        "--data", metavar="TEXT", action="append", help="what they were trained on; may be repeated"
    )
    parser.add_argument(
        "--gryphone", action="store_true", help="the licence and data of GryphOne's own weights"
    )
    options = parser.parse_args()
    if options.gryphone:
        options.licence, options.data = options.licence or LICENCE, options.data or DATA
    metrics = read_metrics(options.metrics) if options.metrics else {}
    size = release(options.sources, options.out, metrics, options.licence, options.data or ())
    print(f"{options.out}: {size / 2**20:.1f} MiB")


if __name__ == "__main__":
    run(main)
