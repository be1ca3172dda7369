"""Checkpoints on the Hugging Face Hub by its own mixin, whose convention this is: the names, the
arguments, the layout of a repository, and its card. Imported only by who asks for it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData, ModelHubMixin, snapshot_download

from gryphone.checkpoint import read_checkpoint
from gryphone.errors import CheckpointError, GryphoneError
from gryphone.recognition.lone import FILE

# Nothing that could be run.
FILES = ("config.json", "weights-*.safetensors", FILE, "LICENSE")
CARD = """\
---
{data}
---

# GryphOne

Handwritten mathematics to LaTeX by symbol-aware masked diffusion; {millions:.1f} million weights.

```python
import gryphone

recognizer = gryphone.Recognizer.from_pretrained("{repo}")
print(recognizer.recognize("formula.png").latex)
```

Licence of the weights: {licence}. They were trained on:

{sources}
"""


class Shared(ModelHubMixin):
    """A checkpoint directory, for the mixin to load, save and push."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _save_pretrained(self, save_directory: Path) -> None:
        for pattern in FILES:
            for old in save_directory.glob(pattern):
                old.unlink()  # an earlier checkpoint may have had more files
            for file in self.folder.glob(pattern):
                shutil.copyfile(file, save_directory / file.name)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> Shared:
        return cls(Path(snapshot_download(model_id, allow_patterns=list(FILES), **options)))

    def generate_model_card(self, *args: Any, repo: str = "owner/name", **kwargs: Any) -> ModelCard:
        """What the checkpoint says of itself."""
        about = read_checkpoint(self.folder)
        licence = str(about.facts.get("licence") or "not stated")
        data = ModelCardData(
            license="cc-by-nc-sa-3.0" if licence.startswith("CC BY-NC-SA 3.0") else "other",
            library_name="gryphone",
            pipeline_tag="image-to-text",
            tags=["handwriting", "latex", "masked-diffusion", "model_hub_mixin"],
        )
        text = CARD.format(
            data=data.to_yaml(),
            millions=about.parameters / 1e6,
            repo=repo,
            licence=licence,
            sources="\n".join(f"- {each}" for each in about.facts.get("data") or ["not stated"]),
        )
        return ModelCard(text)


@contextmanager
def one_line(about: str) -> Iterator[None]:
    """Turn what the Hub, or the way there, has against something into one line."""
    try:
        yield
    except GryphoneError:
        raise
    except Exception as error:  # of the Hub's client, and of whatever that sends requests with
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CheckpointError(f"{about}: {reason}") from error
