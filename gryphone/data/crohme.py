"""CROHME: a folder or archive of InkML with the LaTeX in the `truth` annotation."""

from pathlib import Path

from gryphone.data.archive import source_name
from gryphone.data.samples import Samples, ink_sample, inks_in


def read(path: Path) -> Samples:
    """Every ink of one CROHME set, in the order stored; the source is the set's file name."""
    source = source_name(path)
    for member in inks_in(path):
        yield ink_sample(member, source)
