"""From an encoded image to uint8 [3, S, S], or a reason why not. Imported by worker processes, so without torch.

Whatever a file holds, an image comes out in the same way: the first frame, upright as its EXIF block says, more than 8
bits scaled to 8, laid over white where it is transparent, colour profiles ignored; then resampled once.
"""

import ctypes
import importlib
import io
import os
import re
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import simplejpeg  # type: ignore[import-untyped]
from PIL import Image, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

from ocssl._core.host_memory import check_memory, free_bytes
from ocssl.data.decode.files import HEIF_NEEDS, MOST_BYTES, looks_like_heif

Fit = Literal["squash", "crop"]  # how an image becomes square: without regard to its aspect, or by its centre
Images = npt.NDArray[np.uint8]

VERSION = 4  # of all that decides the bits of a decoded image: a higher one makes new caches
MAX_PIXELS = 89_478_485  # from here on Pillow itself suspects a decompression bomb
MAX_SIDE = 65_535
MAX_SCANS = 500  # of a JPEG: each is a pass over all pixels, and can cost a few bytes
MOST_SCANNED = 2 * 10**9  # pixels of a JPEG times its scans: a few seconds
MOST_MEMORY = 2**30  # bytes that decoding an image of MAX_PIXELS takes
ZEROS = 64  # consecutive zero bytes: most compressed pixels never have this many
FLAT = 1024  # pixels that may take a zero byte in a WebP of one colour; libwebp's take ten times as many
EMPTY = 8  # the part of an uncompressed image that may be black at one end alone: an eighth
EXTRANEOUS = 16  # bytes between the segments of a JPEG; some cameras leave a few

_PLUGINS = {
    "JPEG": "Jpeg",
    "PNG": "Png",
    "WEBP": "WebP",
    "BMP": "Bmp",
    "GIF": "Gif",
    "TIFF": "Tiff",
    "PPM": "Ppm",
    "JPEG2000": "Jpeg2K",
    "AVIF": "Avif",  # from Pillow 11.3
}
_UPRIGHT = {  # by the EXIF tag of that number
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ORIENTATION, _BITS, _PHOTOMETRIC, _COMPRESSION = 0x0112, 258, 262, 259  # tags of EXIF and TIFF
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd8\xff]")  # the start of a JPEG's segment


class BadImage(Exception):
    """An image that cannot be used; its text is the reason, on one line."""


def _known_formats() -> tuple[str, ...]:
    for module in _PLUGINS.values():
        with suppress(ImportError):
            importlib.import_module(f"PIL.{module}ImagePlugin")
    with suppress(ImportError):
        import pillow_heif  # type: ignore[import-not-found, import-untyped, unused-ignore]

        pillow_heif.register_heif_opener()
    return tuple(name for name in (*_PLUGINS, "DIB", "HEIF") if name in Image.OPEN)


FORMATS = _known_formats()  # nothing else is tried: Pillow also has formats that start programs


def decode(data: bytes, size: int, fit: Fit) -> Images:
    """The image in these bytes, uint8 [3, size, size]; a BadImage if there is none, half of one, or too much of it."""
    with _bad_images(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return _decode(data, size, fit)


def describe(data: bytes) -> tuple[str, int, int]:
    """Format, width and height of the image in these bytes."""
    with _bad_images(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with _opened(data) as image:
            return str(image.format), image.width, image.height


def from_pil(image: Image.Image, size: int, fit: Fit) -> Images:
    """An open image as if it had been decoded from a file.

    A JPEG that has been loaded has all its pixels, where `decode` asks for a half, quarter or eighth of many: the
    result is close, not equal. One that was opened only is read from its file, and equal.
    """
    with _bad_images():
        if (data := _file_of(image)) is not None:
            return decode(data, size, fit)
        turn = _UPRIGHT.get(_orientation(image))
        rgb = _rgb(image)
        return _planes(resize(rgb if turn is None else rgb.transpose(turn), size, fit))


def _file_of(image: Image.Image) -> bytes | None:
    """The file of a JPEG that was opened and not yet loaded; None for every other image."""
    if not isinstance(image, JpegImageFile) or not image.tile or image.fp is None or image.tell():
        return None
    before = image.fp.tell()
    image.fp.seek(0)
    data = image.fp.read(MOST_BYTES + 1)
    image.fp.seek(before)
    return data


@contextmanager
def _bad_images() -> Iterator[None]:
    """Turn every error in the block into a BadImage, but for want of memory."""
    try:
        yield
    except BadImage:
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise BadImage("it has too many pixels") from None
    except UnidentifiedImageError:
        raise BadImage("it is no image of a known format") from None
    except Exception as error:  # Pillow raises whatever its parsers stumble over
        free = free_bytes()
        if free is not None and free[0] < MOST_MEMORY:
            check_memory(error)  # a good image must not count as bad for want of memory; a damaged one may ask for any
        raise BadImage(f"it cannot be decoded: {_one_line(error)}") from None


def scaled_side(size: int) -> int:
    """The least side at which a large JPEG is decoded for images of a size."""
    return -(-4 * size // 3)


def resize(image: Image.Image, size: int, fit: Fit) -> Image.Image:
    """An RGB image at size x size: bilinear with antialias, not touched where it has that size already."""
    width, height = image.size
    if width == height == size:
        return image
    if fit == "squash":
        return image.resize((size, size), Image.Resampling.BILINEAR)
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return image.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))


def resize_array(images: Images, size: int, fit: Fit) -> Images:
    """Images [n, 3, H, W] as [n, 3, size, size], as if each had been decoded; the same array where nothing changes."""
    count, _, height, width = images.shape
    if height == width == size:
        return images
    resized = np.empty((count, 3, size, size), np.uint8)
    for row, image in enumerate(images):
        pixels = np.ascontiguousarray(image.transpose(1, 2, 0))
        resized[row] = _planes(resize(Image.fromarray(pixels), size, fit))
    return resized


def _planes(image: Image.Image) -> Images:
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def _decode(data: bytes, size: int, fit: Fit) -> Images:
    if not data:
        raise BadImage("the file is empty")
    if len(data) > MOST_BYTES:
        raise BadImage(f"the file has more than {MOST_BYTES // 2**20} MiB")
    with _opened(data) as image:
        width, height = image.size
        if min(width, height) < 1:
            raise BadImage("it has no pixels")
        if max(width, height) > MAX_SIDE or width * height > MAX_PIXELS:
            raise BadImage(f"it has too many pixels ({width} x {height})")
        if image.format in ("JPEG", "MPO"):
            most = min(MAX_SCANS, MOST_SCANNED // (width * height))
            # single bytes are counted ten times as fast, and most images do not have even those
            if data.count(b"\xda") > most and data.count(b"\xff\xda") > most and _scans(data) > most:
                raise BadImage(f"it has more than {most} scans")
            least = scaled_side(size)
            image.draft(None, (least, least))  # a half, quarter or eighth of it where that is no less than this
        elif image.format == "PNG":
            _check_png(data)
        elif image.format == "TIFF":
            _silence_libtiff()
            _check_tiff(data, image)
        rgb = _jpeg(data, image) if image.format in ("JPEG", "MPO") else None
        if rgb is None:
            image.load()
        _refuse_suspicious(data, image)
        turn = _UPRIGHT.get(_orientation(image))
        rgb = rgb or _rgb(image)
        return _planes(resize(rgb if turn is None else rgb.transpose(turn), size, fit))


def _opened(data: bytes) -> Image.Image:
    try:
        return Image.open(io.BytesIO(data), formats=FORMATS)
    except Exception:
        if "HEIF" not in FORMATS and looks_like_heif(data):  # some telephones call them .jpg
            raise BadImage(f".heic{HEIF_NEEDS}") from None
        raise


def _jpeg(data: bytes, image: Image.Image) -> Image.Image | None:
    """The first image of a JPEG in one decode that also finds damage; None for modes that Pillow has to decode.

    It has the size that `draft` has chosen, and the same bits as Pillow's: both use libjpeg's accurate DCT.
    """
    plain = image.mode in ("RGB", "L")
    width, height = image.size if plain else (1, 1)  # else only a look for damage
    wanted = {"colorspace": "GRAY" if image.mode == "L" else "RGB", "min_width": width, "min_height": height}
    try:
        pixels = simplejpeg.decode_jpeg(data, **wanted, strict=True)
    except ValueError as error:
        extra = re.search(r"(\d+) extraneous bytes", str(error))
        damaged = str(error).startswith("Corrupt JPEG")
        if str(error).startswith("Premature end"):
            raise BadImage("it is truncated") from None
        if damaged and not (extra and int(extra[1]) < EXTRANEOUS):
            raise BadImage(f"it is suspicious: {_one_line(error)}") from None
        return None
    if not plain or pixels.shape[:2] != (height, width):
        return None
    decoded = Image.frombuffer(image.mode, (width, height), pixels, "raw", image.mode, 0, 1)
    return decoded.convert("RGB") if image.mode == "L" else decoded


def _refuse_suspicious(data: bytes, image: Image.Image) -> None:
    """Data that decode, and still cannot be what was written: cut short, or partly overwritten with zeros.

    Formats without checksums hide other damage: swapped or changed bytes may give another image that looks valid.
    """
    kind = str(image.format)
    zeros = max(ZEROS, image.width * image.height // FLAT) if kind == "WEBP" else ZEROS
    packed = kind in ("WEBP", "AVIF", "HEIF", "JPEG2000") or (kind in ("JPEG", "MPO") and not _packs_zeros(data))
    if packed and _has_zeros(data) and bytes(zeros) in _compressed(data, kind):
        raise BadImage(f"it is suspicious: {zeros} zero bytes in a row among its pixels")
    if kind in ("JPEG", "MPO") and image.info.get("progressive") and _lacks_scans(data):
        raise BadImage("it is suspicious: its last scans are missing")
    if kind in ("BMP", "DIB", "TIFF", "PPM") and data.endswith(bytes(ZEROS)):
        light = np.flatnonzero(np.asarray(image).reshape(image.height, -1).any(axis=1))  # rows that are not black
        top, bottom = (light[0], image.height - 1 - light[-1]) if len(light) else (0, 0)
        if max(top, bottom) > image.height // EMPTY and 2 * min(top, bottom) < max(top, bottom):
            raise BadImage(f"it is suspicious: {max(top, bottom)} rows of zeros at one end alone")


def _lacks_scans(data: bytes) -> bool:
    """Whether a progressive JPEG ends before all 64 coefficients of all components have all their bits."""
    scans, at = _compressed(data, "JPEG"), 0
    missing: dict[int, list[int]] = {}  # component -> for each coefficient, how many of its low bits have not come
    while (at := scans.find(b"\xff\xda", at)) >= 0:
        count = scans[at + 4] if at + 4 < len(scans) else 0
        end = at + 5 + 2 * count
        if end + 3 > len(scans):
            return True
        first, last, bits = scans[end], min(63, scans[end + 1]), scans[end + 2] & 15
        for component in scans[at + 5 : end : 2]:
            missing.setdefault(component, [1] * 64)[first : last + 1] = [bits] * (last + 1 - first)
        at = end
    return any(map(any, missing.values()))


def _segments(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Markers of the first image of a JPEG, and what their segments hold; compressed pixels are passed over."""
    at = 2
    while found := _MARKER.search(data, at):
        marker, at = found[0][1], found.end()
        if marker == 0xD9:
            return
        if marker == 0x01:
            continue
        length = int.from_bytes(data[at : at + 2], "big")
        yield marker, data[at + 2 : at + length]
        at += max(2, length)


def _scans(data: bytes) -> int:
    """How many scans the first image of a JPEG has; pictures and films that are appended to it do not count."""
    return sum(marker == 0xDA for marker, _ in _segments(data))


def _packs_zeros(data: bytes) -> bool:
    """Whether a plain background can be zero bytes in this JPEG.

    It is if the code of a block without details is all zeros in each table: progressive JPEG, and tables that were
    made for the image. In one scan with the common tables it is not, for brightness at least.
    """
    first: dict[int, int] = {}  # table of details -> the symbol whose code is all zeros; 0: none follow
    scans = 0
    for marker, content in _segments(data):
        if marker == 0xC4:
            at = 0
            while at + 17 < len(content):
                if content[at] & 0x10:
                    first[content[at]] = content[at + 17]
                at += 17 + sum(content[at + 1 : at + 17])
        elif marker == 0xDA:
            scans += 1
        elif 0xC1 < marker < 0xD0 and marker not in (0xC8, 0xCC):
            return True  # progressive, or one of the rare kinds
    return scans != 1 or not any(first.values())


@cache
def _silence_libtiff() -> None:
    """libtiff writes what is wrong with a file to stderr, beside our own line about it. Once a process, on Linux."""
    with suppress(OSError, AttributeError), open("/proc/self/maps", "rb") as maps:
        for path in {line.split(maxsplit=5)[5].strip() for line in maps if b"/libtiff" in line}:
            library = ctypes.CDLL(os.fsdecode(path))
            library.TIFFSetErrorHandler(None)
            library.TIFFSetWarningHandler(None)


def _check_tiff(data: bytes, image: Image.Image) -> None:
    """libtiff reports damage among compressed pixels, but Pillow hands out what there is."""
    tags: Any = getattr(image, "tag_v2", {})
    packing = tags.get(_COMPRESSION, 1)
    if packing == 1:
        return
    tiles = 324 in tags
    starts, counts = (tags.get(tag, ()) for tag in ((324, 325) if tiles else (273, 279)))
    room = 16 * (image.width + 2**12) * (image.height + 2**12)  # bytes; tiles may reach beyond the edges
    for start, count in zip(starts, counts, strict=False):
        if start + count > len(data):
            raise BadImage("it is truncated")
        strip = data[start : start + count]
        if packing in (8, 32946):  # deflate
            unpack = zlib.decompressobj()
            while strip and not unpack.eof and room > 0:
                try:
                    room -= len(unpack.decompress(strip, 2**20)) + 1
                except zlib.error:
                    raise BadImage("it is damaged: a checksum is wrong") from None
                strip = unpack.unconsumed_tail
            if not unpack.eof and count:
                raise BadImage("it is damaged: a strip has no end")
        elif packing in (4, 5) and bytes(ZEROS) in strip:  # fax and LZW
            raise BadImage(f"it is suspicious: {ZEROS} zero bytes in a row among its pixels")


def _has_zeros(data: bytes) -> bool:
    """Whether eight bytes in a row that begin at a multiple of eight are zeros: a quick look for many more of them."""
    return not np.frombuffer(data, "<u8", len(data) // 8).all()


def _compressed(data: bytes, kind: str) -> bytes:
    """The compressed pixels, without what stands beside them: colour profiles and notes of cameras may have zeros."""
    if kind in ("JPEG", "MPO"):
        at = 2
        while data[at : at + 1] == b"\xff" and data[at + 1 : at + 2] != b"\xda":
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        end = data.find(b"\xff\xd9", at)
        return data[at : end if end > 0 else len(data)]
    if kind == "WEBP":
        at = 12
        while data[at : at + 4] not in (b"VP8 ", b"VP8L", b"ANMF", b""):
            length = int.from_bytes(data[at + 4 : at + 8], "little")
            at += 8 + length + length % 2
        return data[at : at + 8 + int.from_bytes(data[at + 4 : at + 8], "little")]
    return data[-ZEROS:]


def _check_png(data: bytes) -> None:
    """Pillow checks neither the checksums of pixels nor that a file is complete."""
    view, start = memoryview(data), 8
    while start + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, start)
        end = start + 8 + length
        if end + 4 > len(data):
            break
        critical = kind[:1].isupper()
        if critical and zlib.crc32(view[start + 4 : end]) != struct.unpack_from(">I", data, end)[0]:
            raise BadImage("it is damaged: a checksum is wrong")
        if kind == b"IEND":
            return
        start = end + 4
    raise BadImage("it is truncated")


def _orientation(image: Image.Image) -> Any:
    try:
        return image.getexif().get(_ORIENTATION)
    except Exception:  # what cannot be read says nothing; the pixels are good
        return None


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F":
        raise BadImage("its pixels are floating-point numbers of unknown range")
    if image.mode.startswith("I"):
        image = _eight_bits(image)
    elif image.mode == "LAB":
        from PIL import ImageCms

        profiles = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
        converted = ImageCms.profileToProfile(image, *profiles, outputMode="RGB")
        assert converted is not None
        image = converted
    if image.has_transparency_data:
        above = image.convert("RGBA")
        ground = Image.new("RGB", image.size, "white")
        ground.paste(above, mask=above)
        return ground
    return image if image.mode == "RGB" else image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    """Grey of 16 bits, or of the 12 that a TIFF may say, over the whole range of 8."""
    values = np.asarray(image)
    tags: Any = getattr(image, "tag_v2", {})
    bits = 12 if tags.get(_BITS) == (12,) else 16
    top = 2**bits - 1
    if values.min() < 0 or values.max() > top:
        raise BadImage(f"its pixels exceed {bits} bits, and their range is unknown")
    grey = np.empty(values.shape, np.uint8)
    for line, wide in zip(grey, values, strict=True):  # line by line, so that the wide numbers are few
        line[:] = (wide.astype(np.int64) * 510 + top) // (2 * top)
    if tags.get(_PHOTOMETRIC) == 0:  # white is zero; Pillow turns it for 8 bits only
        grey = 255 - grey
    clear = image.info.get("transparency")
    if isinstance(clear, int):
        grey[values == clear] = 255
    return Image.fromarray(grey)


def _one_line(error: BaseException) -> str:
    """The words of an error without what differs from one process to the next."""
    text = " ".join(str(error).split()) or type(error).__name__
    text = "".join(c if c.isprintable() else "?" for c in re.sub(r"( at)? 0x[0-9a-f]+", "", text))
    return text[:200]
