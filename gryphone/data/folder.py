"""A folder or archive of images or inks beside a `labels.tsv` of `id<TAB>LaTeX` lines."""

from pathlib import Path, PurePosixPath

from gryphone.data.archive import Member, is_archive, members, source_name
from gryphone.data.samples import Sample, Samples, Unreadable, ink_sample, is_sample
from gryphone.errors import DataError
from gryphone.reading.formats import LABELS, readers


def _is_labels(name: str) -> bool:
    return PurePosixPath(name).name == LABELS


def has_labels(path: Path) -> bool:
    """Whether this is labelled by a labels.tsv rather than by the inks themselves."""
    if path.is_dir():
        return (path / LABELS).is_file()
    if not is_archive(path):
        return False
    if path.name.lower().endswith(".tar"):
        return any(True for _ in members(path, _is_labels))
    # Decompressing hundreds of megabytes only to guess the kind is too slow: the first file of a
    # compressed archive decides.
    first = next(members(path), None)
    return first is not None and (first.suffix in readers(picture=True) or _is_labels(first.name))


def read_labels(*paths: Path) -> dict[str, str]:
    """Every label by sample id, from every labels.tsv in the given parts."""
    labels: dict[str, str] = {}
    places: dict[str, str] = {}
    for path in paths:
        for member in members(path, _is_labels):
            try:
                lines = member.data.decode("utf-8").splitlines()
            except UnicodeDecodeError as error:
                raise DataError(f"{path}: {member.name} is not UTF-8: {error}") from error
            for number, line in enumerate(lines, 1):
                place = f"{path}: {member.name}, line {number}"
                identity, tab, label = line.partition("\t")
                if line.strip() and not tab:
                    raise DataError(f"{place}: expected id<TAB>label")
                if identity in labels:
                    first = places[identity].removeprefix(f"{path}: {member.name}, ")
                    raise DataError(f"{place}: id {identity!r} was on {first}; keep one")
                if tab:
                    labels[identity], places[identity] = label.strip(), place
    return labels


def read(path: Path, *more: Path) -> Samples:
    """Every image or ink with its label; labels without a file are reported at the end."""
    labels = read_labels(path, *more)
    missing = dict.fromkeys(labels)
    for part in (path, *more):
        source = source_name(part)
        for member in members(part, is_sample):
            missing.pop(member.stem, None)
            yield _sample(member, source, labels.get(member.stem))
    for identity in missing:
        remedy = "; leave out the ending" if is_sample(identity) else ""
        yield Unreadable(
            identity, f"{path}: {LABELS} names {identity!r}, but there is no such file{remedy}"
        )


def _sample(member: Member, source: str, label: str | None) -> Sample | Unreadable:
    if member.suffix in readers(picture=False):
        return ink_sample(member, source, label)
    if label is None:
        return Unreadable(member.name, f"has no line {member.stem!r} in {LABELS}")
    return Sample(member.stem, source, label, image=member.data, name=member.name)
