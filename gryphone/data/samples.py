"""What every data set yields: a labelled ink or image, or the reason why there is none."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gryphone.data.archive import Member, is_archive, members, source_name
from gryphone.errors import DataError, InkError
from gryphone.ink import Ink, read_inkml, read_strokes


@dataclass(frozen=True)
class Sample:
    """One labelled example. Exactly one of `ink` and `image` (an image file's bytes) is given."""

    id: str
    source: str
    label: str | None
    ink: Ink | None = None
    image: bytes | None = None


@dataclass(frozen=True)
class Unreadable:
    """A sample that is there and cannot be used; `name` is its file, `error` says why."""

    name: str
    error: str


Samples = Iterator[Sample | Unreadable]

INKS = {".inkml": read_inkml, ".json": read_strokes}
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")


def ink_sample(member: Member, source: str, label: str | None = None) -> Sample | Unreadable:
    """The sample of one ink file; its own label unless one is given."""
    read: Callable[..., Ink] = INKS[member.suffix]
    try:
        ink = read(member.data, name=member.name)
    except InkError as error:
        return Unreadable(member.name, str(error))
    return Sample(member.stem, source, ink.label if label is None else label, ink=ink)


def read_dataset(path: Path, *more: Path) -> Samples:
    """Read folders or archives of any known kind: labels.tsv, MathWriting, CROHME ink, or packed.

    Parts that share one labels.tsv (offhme-1.tar and offhme-2.tar) must be given together.
    """
    from gryphone.data import folder

    paths = (path, *more)
    for each in paths:
        if not each.exists():
            raise DataError(f"{each}: no such file or folder")
    if any(folder.has_labels(each) for each in paths):
        return folder.read(*paths)
    return itertools.chain.from_iterable(_read_inks(each) for each in paths)


def _read_inks(path: Path) -> Samples:
    """One folder, archive or file of inks that carry their own labels."""
    from gryphone.data import crohme, mathwriting

    if path.suffix == ".parquet":
        return _unpacked(path)
    if path.is_file() and not is_archive(path):
        if path.suffix.lower() not in INKS:
            kinds = "a folder, a tar archive, or an .inkml, .json or .parquet file"
            raise DataError(f"{path}: expected {kinds}")
        return iter([ink_sample(Member(path.name, path.read_bytes()), path.stem)])
    first = next(inks_in(path))
    return mathwriting.read(path) if mathwriting.looks_like(first) else crohme.read(path)


def _unpacked(path: Path) -> Samples:
    from gryphone.data.packed import read_packed

    packed = read_packed(path)
    for i, (name, source, label) in enumerate(
        zip(packed.ids, packed.sources, packed.labels, strict=True)
    ):
        yield Sample(name, source, label, ink=packed.ink(i))


def inks_in(path: Path) -> Iterator[Member]:
    """The ink files of a folder or archive; an error when there are none."""
    found = False
    for member in members(path, lambda name: name.lower().endswith(".inkml")):
        found = True
        yield member
    if not found:
        raise DataError(f"{source_name(path)}: no .inkml files in {path}")
