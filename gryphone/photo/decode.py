"""Any picture a user may have, as one plain grey image: the only place that knows file formats."""

import io
import re
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from gryphone.errors import InkError
from gryphone.ink import Limits, read_bytes

if TYPE_CHECKING:
    from PIL.Image import Image

Bytes = NDArray[np.uint8]  # (H, W), 0 black to 255 white
Grey = NDArray[np.float32]  # (H, W)
PixelBox = tuple[int, int, int, int]  # left, top, right, bottom

MEGAPIXELS = 64  # phones take up to 50; beyond it memory and time are an attack's, not a user's
SMALLEST = 3  # pixels on a side: anything less cannot hold a symbol
FILE_LIMITS = Limits(bytes=256 << 20)
# Pages and frames: the further pictures of a camera's MPO, or layers of a PSD, are no others.
PAGED = ("TIFF", "GIF", "WEBP", "PNG", "AVIF")


class NotAPicture(InkError):
    """Content that Pillow does not know; who knows other formats may say what it is."""


@dataclass(frozen=True)
class Picture:
    """A decoded image in its reading orientation, from which any part can be taken as grey."""

    image: "Image"
    name: str
    notes: tuple[str, ...] = ()  # what a reader of the result should know

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.image.size

    def grey(self, box: PixelBox, scale: float) -> Bytes:
        """The part inside `box`, resized by `scale` (at most 1), light as the eye sees it."""
        from PIL import Image

        # Whole-number box averaging first: a tenth of the time of a true resize.
        whole = int(1 / scale)
        part = self.image.reduce(whole, box) if whole > 1 else self.image.crop(box)
        size = [
            max(1, round((high - low) * scale)) for low, high in zip(box, box[2:], strict=False)
        ]
        if tuple(size) != part.size and scale < 1:
            part = part.resize((size[0], size[1]), Image.Resampling.BILINEAR)
        return np.asarray(part)


def open_picture(source: Any, name: str) -> Picture:
    """Decode a path, bytes, PIL image or array; every failure is one InkError."""
    from PIL import Image

    if isinstance(source, np.ndarray):
        return Picture(_from_array(source, name), name)
    if isinstance(source, Image.Image):
        _check_size(source.size, name)
        return Picture(_grey(_loaded(source, name), name), name)
    if isinstance(source, str):
        source = Path(source)
    if not isinstance(source, (Path, bytes)):
        kind = type(source).__name__
        raise InkError(f"{name}: {kind} is no image; give a path, bytes, PIL image or numpy array")
    data, _ = read_bytes(source, name, FILE_LIMITS)
    if not data:
        raise InkError(f"{name}: the file is empty")
    image = _opened(data, name)
    notes = _notes(image)
    return Picture(_grey(_loaded(image, name), name), name, notes)


def _opened(data: bytes, name: str) -> "Image":
    """An image of which only the header was read, of a size that may be decoded."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            # The size is checked below, by our own limit.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data))
    except Image.DecompressionBombError as error:
        found = re.search(r"(\d+) pixels", str(error))
        size = f"{int(found[1]) / 1e6:.0f} megapixels" if found else "far too large"
        raise InkError(
            f"{name}: {size}, the limit is {MEGAPIXELS} megapixels; make the image smaller"
        ) from error
    except UnidentifiedImageError as error:
        raise NotAPicture(
            f"{name}: not an image that can be read; use PNG, JPEG, WebP, TIFF, BMP or GIF"
        ) from error
    except Exception as error:  # Pillow's parsers raise what they like on damaged headers
        raise InkError(f"{name}: damaged image: {error}") from error
    _check_size(image.size, name)
    return image


def _notes(image: "Image") -> tuple[str, ...]:
    """That there is more than the page which is read; called before the pixels are."""
    if image.format not in PAGED:
        return ()
    try:
        pages = getattr(image, "n_frames", 1)
    except Exception:  # of a damaged page behind the first, which may be fine
        with suppress(Exception):  # or else it cannot be loaded either
            image.seek(0)
        return ()
    if pages == 1:
        return ()
    return (f"page 1 of {pages} was read; save the others as files of their own",)


def _check_size(size: tuple[int, int], name: str) -> None:
    width, height = size
    if width * height > MEGAPIXELS * 1_000_000:
        raise InkError(
            f"{name}: {width} x {height} is {width * height / 1e6:.0f} megapixels, the limit is "
            f"{MEGAPIXELS}; make the image smaller"
        )
    if min(size) < SMALLEST:
        raise InkError(f"{name}: {width} x {height} pixels is too small to hold a symbol")


def _loaded(image: "Image", name: str) -> "Image":
    """All pixels of the first frame, turned as the camera was held."""
    from PIL import ExifTags, ImageOps

    try:
        if image.format == "JPEG" and image.mode == "RGB":
            # The decoder gives luminance alone in a third of the time.
            image.draft("L", image.size)
        image.load()
        if image.getexif().get(ExifTags.Base.Orientation, 1) == 1:
            return image  # transposing copies all pixels even then
        return ImageOps.exif_transpose(image)
    except Exception as error:  # Pillow's decoders raise what they like on damaged data
        raise InkError(f"{name}: damaged image: {error}; save it again") from error


def _grey(image: "Image", name: str) -> "Image":
    """Eight-bit grey of any mode; transparent pixels show the paper."""
    if image.mode.startswith(("I", "F")):
        return _from_array(np.asarray(image), name)
    if image.mode == "LAB":  # its first channel is the lightness; Pillow cannot convert it
        return image.getchannel("L")
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        return _composited(image.convert("RGBA"))
    return image if image.mode == "L" else image.convert("L")


def _composited(image: "Image") -> "Image":
    """On white, or on black where what is drawn is itself light (dark-mode clippings)."""
    from PIL import Image

    light = np.asarray(image.convert("RGB").convert("L"), dtype=np.float32)
    alpha = np.asarray(image.getchannel("A"), dtype=np.float32) / 255
    seen = float(alpha.sum())
    drawn = float((light * alpha).sum()) / seen if seen else 255.0
    clear = float(alpha.mean()) < 0.5
    paper = 0.0 if clear and drawn > 200 else 255.0
    return Image.fromarray((light * alpha + paper * (1 - alpha)).astype(np.uint8))


def _from_array(array: NDArray[Any], name: str) -> "Image":
    """(H, W), (H, W, 1|3|4) of bool, integers or floats; floats are 0 to 1, or 0 to 255."""
    from PIL import Image

    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 2, 3, 4)):
        raise InkError(f"{name}: array of shape {array.shape}; expected (height, width[, 1 to 4])")
    _check_size((array.shape[1], array.shape[0]), name)
    if array.dtype == np.bool_:
        array = array.astype(np.uint8) * np.uint8(255)
    elif array.dtype != np.uint8:
        if not np.issubdtype(array.dtype, np.number) or np.issubdtype(
            array.dtype, np.complexfloating
        ):
            raise InkError(f"{name}: array of {array.dtype}; expected numbers")
        array = _eight_bits(array.astype(np.float64), np.issubdtype(array.dtype, np.floating))
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    return _grey(Image.fromarray(np.ascontiguousarray(cast(NDArray[np.uint8], array))), name)


def _eight_bits(values: NDArray[np.float64], is_float: bool) -> NDArray[np.uint8]:
    """Bring whatever range the numbers use to 0..255."""
    values = np.nan_to_num(values, posinf=0.0, neginf=0.0)
    top = float(values.max(initial=0.0))
    if is_float:
        full = 1.0 if top <= 1 else 255.0 if top <= 255 else top
    else:
        full = 255.0 if top <= 255 else 65535.0 if top <= 65535 else top
    return (np.clip(values / full, 0, 1) * 255).astype(np.uint8)
