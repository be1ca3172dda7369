"""What the page's engine needs from elsewhere: pinned, fetched when its folder is written, checked.

ONNX Runtime and Pyodide (CPython for WebAssembly) come from npm's registry. The wheels that Pyodide
adds, numpy and Pillow, are on neither npm nor PyPI under their own names: they come from Pyodide's
CDN or, where that cannot be reached, out of a package on PyPI that carries them along. Whoever
sends them, they must have the digests that Pyodide's own npm package names.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gryphone.errors import DataError

SECONDS = 60  # without a byte
Fetch = Callable[
    [str, int | None, int | None], bytes
]  # address, first and last byte: what is there


@dataclass(frozen=True)
class Package:
    """A package of npm's registry, and which of its files are taken."""

    name: str
    version: str
    integrity: str  # sha512, as npm writes it
    files: tuple[str, ...]
    licence: str
    source: str

    @property
    def address(self) -> str:
        """Where its archive is."""
        return f"https://registry.npmjs.org/{self.name}/-/{self.name}-{self.version}.tgz"


ONNXRUNTIME = Package(
    "onnxruntime-web",
    "1.22.0",
    "sha512-Ud/+EBo6mhuaQWt/OjaOk0iNWjXqJoeeMFr6xQEERZdIZH2OWpGzuujz7lfuOBjUa6TEE/sc4nb7Da5dNL34fg==",
    ("dist/ort-wasm-simd-threaded.mjs", "dist/ort-wasm-simd-threaded.wasm"),
    "MIT",
    "https://github.com/microsoft/onnxruntime",
)
PYODIDE = Package(
    "pyodide",
    "0.28.3",
    "sha512-rtCsyTU55oNGpLzSVuAd55ZvruJDEX8o6keSdWKN9jPeBVSNlynaKFG7eRqkiIgU7i2M6HEgYtm0atCEQX3u4A==",
    ("pyodide.mjs", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"),
    "MPL-2.0 (Python itself: PSF-2.0)",
    "https://github.com/pyodide/pyodide",
)
WHEELS = ("numpy", "pillow")
CDN = f"https://cdn.jsdelivr.net/pyodide/v{PYODIDE.version}/full/"
CARRIER = (
    "https://files.pythonhosted.org/packages/56/df/"
    "7bf2b53aeed2a327a1a4affe5bdb04f41d33c4ccb85f3f5db17a74d3534d/open_webui-0.9.6-py3-none-any.whl"
)
CARRIER_BYTES = 151_659_070
CARRIED = "open_webui/frontend/pyodide/"


def fetched(address: str, first: int | None = None, last: int | None = None) -> bytes:
    """What is at an address, or some bytes of it."""
    asked = urllib.request.Request(address, headers={"User-Agent": "gryphone"})
    if first is not None:
        asked.add_header("Range", f"bytes={first}-{last}")
    with urllib.request.urlopen(asked, timeout=SECONDS) as answer:
        data: bytes = answer.read()
    return data


def write_parts(folder: Path, fetch: Fetch | None = None) -> None:
    """Put everything that is not ours under `folder`, as the worker looks for it."""
    fetch = fetch or fetched
    for package, place in ((ONNXRUNTIME, "onnxruntime"), (PYODIDE, "pyodide")):
        (folder / place).mkdir(parents=True, exist_ok=True)
        for name, data in _unpacked(package, fetch).items():
            (folder / place / name).write_bytes(data)
    lock = folder / "pyodide" / "pyodide-lock.json"
    known = json.loads(lock.read_text())
    known["packages"] = {name: known["packages"][name] for name in WHEELS}  # what is there
    lock.write_text(json.dumps(known))
    for about in known["packages"].values():
        wheel = _wheel(about["file_name"], about["sha256"], fetch)
        (folder / "pyodide" / about["file_name"]).write_bytes(wheel)


def _unpacked(package: Package, fetch: Fetch) -> dict[str, bytes]:
    """The files of a package that are wanted, by their bare names."""
    try:
        archive = fetch(package.address, None, None)
    except OSError as error:
        raise DataError(
            f"{package.address}: cannot be fetched ({error}); npm's registry is needed once, when "
            "the folder is written"
        ) from error
    digest = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
    if digest != package.integrity:
        raise DataError(f"{package.address}: is not {package.name} as it was published; try again")
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for name in package.files:
            file = files.extractfile(f"package/{name}")
            found[Path(name).name] = file.read() if file else b""
    return found


def _wheel(name: str, digest: str, fetch: Fetch) -> bytes:
    """A wheel of Pyodide's, from wherever it can be had."""
    failed: list[str] = []
    for address in (CDN + name, CARRIER):
        try:
            if address == CARRIER:
                with zipfile.ZipFile(_Remote(CARRIER, CARRIER_BYTES, fetch)) as carrier:
                    data = carrier.read(CARRIED + name)
            else:
                data = fetch(address, None, None)
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            failed.append(f"{address} ({error})")
            continue
        if hashlib.sha256(data).hexdigest() == digest:
            return data
        failed.append(f"{address} (not as Pyodide published it)")
    raise DataError(f"{name}: cannot be fetched from {' or '.join(failed)}; try again online")


class _Remote(io.RawIOBase):
    """A file elsewhere, of which only the bytes that are looked at are fetched."""

    def __init__(self, address: str, size: int, fetch: Fetch) -> None:
        self.address, self.size, self.fetch = address, size, fetch
        self.place = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.place = offset + (0, self.place, self.size)[whence]
        return self.place

    def read(self, size: int = -1) -> bytes:
        end = self.size if size < 0 else min(self.size, self.place + size)
        if end <= self.place:
            return b""
        data = self.fetch(self.address, self.place, end - 1)
        self.place += len(data)
        return data
