"""MathWriting: InkML in one folder per split, the clean LaTeX in `normalizedLabel`.

The distribution (a folder or its .tgz) holds train, valid, test, synthetic and symbols; isolated
symbols have a `label` only, which `read_inkml` falls back to.
"""

from pathlib import Path, PurePosixPath

from gryphone.data.archive import Member, source_name
from gryphone.data.samples import Samples, ink_sample, inks_in

SPLITS = ("train", "valid", "test", "synthetic", "symbols")


def looks_like(member: Member) -> bool:
    """Whether an InkML file is MathWriting's: its labels are annotations that CROHME lacks."""
    return b'type="normalizedLabel"' in member.data or b'type="label"' in member.data


def read(path: Path) -> Samples:
    """Every ink; the source is `mathwriting-` and the split."""
    for member in inks_in(path):
        folders = PurePosixPath(member.name).parts[:-1]
        split = next((f for f in reversed(folders) if f in SPLITS), source_name(path))
        yield ink_sample(member, f"mathwriting-{split}")
