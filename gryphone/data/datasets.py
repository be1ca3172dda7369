"""Any data set by its path: which kind it is, and its samples one after another."""

import itertools
from pathlib import Path

from gryphone.data import folder, mathwriting
from gryphone.data.archive import Member, is_archive, source_name
from gryphone.data.packed import PackedFile
from gryphone.data.samples import Sample, Samples, ink_sample, inks_in
from gryphone.errors import DataError
from gryphone.reading.formats import readers


def read_dataset(path: Path, *more: Path) -> Samples:
    """Read folders or archives of any known kind: labels.tsv, MathWriting, CROHME ink, or packed.

    Parts that share one labels.tsv (offhme-1.tar and offhme-2.tar) must be given together.
    """
    paths = (path, *more)
    for each in paths:
        if not each.exists():
            raise DataError(f"{each}: no such file or folder")
    if any(folder.has_labels(each) for each in paths):
        return folder.read(*paths)
    return itertools.chain.from_iterable(_read_inks(each) for each in paths)


def _read_inks(path: Path) -> Samples:
    """One folder, archive or file of inks that carry their own labels, as CROHME's do."""
    if path.suffix == ".parquet":
        return _unpacked(path)
    if path.is_file() and not is_archive(path):
        inks = readers(picture=False)
        if path.suffix.lower() not in inks:
            kinds = f"a folder, a tar archive, or an {', '.join(inks)} or .parquet file"
            raise DataError(f"{path}: expected {kinds}")
        return iter([ink_sample(Member(path.name, path.read_bytes()), path.stem)])
    first = next((member for member in inks_in(path) if member.suffix == ".inkml"), None)
    if first is not None and mathwriting.looks_like(first):
        return mathwriting.read(path)
    source = source_name(path)
    return (ink_sample(member, source) for member in inks_in(path))


def _unpacked(path: Path) -> Samples:
    file = PackedFile(path)
    for group in range(len(file.sizes)):
        packed = file.read([group])
        columns = zip(packed.ids, packed.sources, packed.labels, strict=True)
        for i, (name, source, label) in enumerate(columns):
            yield Sample(name, source, label, ink=packed.ink(i))
