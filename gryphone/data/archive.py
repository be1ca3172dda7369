"""The files of a folder or a tar archive, one at a time, without unpacking anything to disk."""

import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gryphone.errors import DataError

ARCHIVES = (".tar", ".tar.xz", ".txz", ".tar.gz", ".tgz", ".tar.bz2")
LARGEST_MEMBER = 64 << 20

_BROKEN = (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, OSError)


@dataclass(frozen=True)
class Member:
    """One file: its name relative to the root, with forward slashes, and its content."""

    name: str
    data: bytes

    @property
    def suffix(self) -> str:
        """The ending of the name, in lower case, with its dot."""
        return PurePosixPath(self.name).suffix.lower()

    @property
    def stem(self) -> str:
        """The last part of the name without its ending: the id of a sample."""
        return PurePosixPath(self.name).stem


def is_archive(path: Path) -> bool:
    """Whether the name ends like a tar archive."""
    return path.name.lower().endswith(ARCHIVES)


def source_name(path: Path) -> str:
    """The data set's name: that of the folder or archive without its endings."""
    name = path.resolve().name
    for ending in sorted(ARCHIVES, key=len, reverse=True):
        if name.lower().endswith(ending):
            return name[: -len(ending)]
    return name


def members(path: Path, wanted: Callable[[str], bool] = lambda name: True) -> Iterator[Member]:
    """Every regular file whose name is `wanted`, sorted in a folder, as stored in an archive.

    Links and devices are passed over and names are never used as paths, so a hostile archive
    can neither write nor point outside itself.
    """
    if path.is_dir():
        yield from _folder(path, wanted)
    elif not path.exists():
        raise DataError(f"{path}: no such file or folder")
    elif is_archive(path):
        yield from _tar(path, wanted)
    else:
        raise DataError(f"{path}: expected a folder or an archive ({', '.join(ARCHIVES)})")


def _folder(path: Path, wanted: Callable[[str], bool]) -> Iterator[Member]:
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        if file.is_file() and wanted(name):
            if file.stat().st_size > LARGEST_MEMBER:
                raise DataError(f"{file}: larger than {LARGEST_MEMBER} bytes")
            yield Member(name, file.read_bytes())


def _tar(path: Path, wanted: Callable[[str], bool]) -> Iterator[Member]:
    count = 0
    try:
        # Streaming mode: one pass, constant memory, whatever the compression.
        with tarfile.open(path, "r|*") as tar:
            for info in tar:
                if not info.isfile() or not wanted(info.name):
                    continue
                if info.size > LARGEST_MEMBER:
                    raise DataError(f"{path}: {info.name} is larger than {LARGEST_MEMBER} bytes")
                file = tar.extractfile(info)
                data = file.read() if file is not None else b""
                if len(data) != info.size:
                    raise DataError(f"{path}: {info.name} is cut short; fetch the archive again")
                yield Member(info.name, data)
                count += 1
    except _BROKEN as error:
        raise DataError(f"{path}: damaged after {count} files ({error}); fetch it again") from error
