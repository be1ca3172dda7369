"""What every data set yields: a labelled ink or image, or the reason why there is none."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gryphone.data.archive import Member, members
from gryphone.errors import DataError, InkError
from gryphone.ink import Ink
from gryphone.reading.formats import LABELS, readers
from gryphone.reading.strokes import read_strokes


@dataclass(frozen=True)
class Sample:
    """One labelled example. Exactly one of `ink` and `image` (an image file's bytes) is given."""

    id: str
    source: str
    label: str | None
    ink: Ink | None = None
    image: bytes | None = None
    name: str = ""  # its file, relative to the data set, where it has one of its own


@dataclass(frozen=True)
class Unreadable:
    """A sample that is there and cannot be used; `name` is its file, `error` says why."""

    name: str
    error: str


Samples = Iterator[Sample | Unreadable]


def without_name(name: str, error: str) -> str:
    """The reason in a reader's error: it begins with the name, which lists put before it anyway."""
    return error.removeprefix(f"{name}: ")


def ink_sample(member: Member, source: str, label: str | None = None) -> Sample | Unreadable:
    """The sample of one ink file; its own label unless one is given."""
    read = readers(picture=False).get(member.suffix)
    if read is None:
        return Unreadable(member.name, f"is an image, and there is no {LABELS} with its label")
    try:
        ink: Ink = read(member.data, name=member.name)
    except InkError as error:
        return Unreadable(member.name, str(error))
    label = ink.label if label is None else label
    if label is None and member.suffix == ".json":
        return Unreadable(member.name, f'has neither a "label" nor a line in a {LABELS}')
    return Sample(member.stem, source, label, ink=ink, name=member.name)


def inks_in(path: Path) -> Iterator[Member]:
    """The inks of a folder or archive, and the images, which nothing labels; an error without inks.

    Any program may leave its JSON beside the inks: only what holds strokes is a sample.
    """
    inks, images = readers(picture=False), 0
    found = False
    for member in members(path, is_sample):
        if member.suffix == ".json" and not _holds_strokes(member):
            continue
        found |= member.suffix in inks
        images += member.suffix not in inks
        yield member
    if not found and images:
        raise DataError(
            f"{path}: holds {images} images and no {LABELS}; write their labels there, a line "
            "with name<TAB>LaTeX for each"
        )
    if not found:
        others = ", ".join(suffix for suffix in inks if suffix != ".json")
        raise DataError(f"{path}: holds no ink ({others}, or .json with strokes) and no images")


def is_sample(name: str) -> bool:
    """Whether a file's name ends like that of an ink or an image."""
    return PurePosixPath(name).suffix.lower() in readers()


def _holds_strokes(member: Member) -> bool:
    try:
        return bool(read_strokes(member.data, name=member.name).strokes)
    except InkError:
        return False
