"""Every kind of image against what its pixels must become; everything that is no image is refused with a reason."""

from __future__ import annotations

import contextlib
import io
import struct
import subprocess
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from image_files import encode, noise
from PIL import Image, ImageFile

from ocssl.data.decode import decoder as module
from ocssl.data.decode.decode_processes import Fault
from ocssl.data.decode.decoder import BadImage, Fit, decode, describe, resize_array
from ocssl.data.decode.files import survey_folder

Array = np.ndarray[Any, np.dtype[Any]]


def pixels(data: bytes, size: int = 8, fit: Fit = "squash") -> Array:
    """Decoded without a warning, as [S, S, 3]."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        image = decode(data, size, fit)
    assert image.shape == (3, size, size)
    assert image.dtype == np.uint8
    assert image.flags.c_contiguous
    return image.transpose(1, 2, 0)


def assert_grey(found: Array, expected: Array) -> None:
    for channel in range(3):
        np.testing.assert_array_equal(found[..., channel], expected)


def rounded(values: Array) -> Array:
    return np.floor(np.asarray(values, np.float64) + 0.5).astype(np.uint8)


def tiff(
    data: bytes, height: int, width: int, bits: int, photometric: int = 1, big: bool = False, sample: int = 1
) -> bytes:
    """A literal TIFF file of one strip."""
    order = ">" if big else "<"
    fields = {256: width, 257: height, 258: bits, 259: 1, 262: photometric, 273: 8 + 2 + 10 * 12 + 4}
    fields |= {277: 1, 278: height, 279: len(data), 339: sample}
    directory = b"".join(struct.pack(order + "HHII", tag, 4, 1, value) for tag, value in fields.items())
    head = (b"MM\0*" if big else b"II*\0") + struct.pack(order + "IH", 8, len(fields))
    return head + directory + struct.pack(order + "I", 0) + data


def png(width: int, height: int, rows: bytes, colour: int = 2, bits: int = 8) -> bytes:
    """A literal PNG file."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def triangle(image: Array, size: int, box: tuple[int, int, int, int]) -> Array:
    """Bilinear with antialias, literally: along each side, a triangle as wide as two target pixels."""

    def weights(length: int, start: int, stop: int) -> Array:
        scale = (stop - start) / size
        reach = max(1.0, scale)
        table = np.zeros((size, length))
        for i in range(size):
            centre = start + (i + 0.5) * scale
            for j in range(length):
                table[i, j] = max(0.0, 1 - abs(j + 0.5 - centre) / reach)
        return table / table.sum(1, keepdims=True)

    left, top, right, bottom = box
    height, width = image.shape[:2]
    return np.einsum("ih,jw,hwc->ijc", weights(height, top, bottom), weights(width, left, right), image)


# Shapes


@pytest.mark.parametrize(("height", "width"), [(20, 33), (33, 20), (5, 40), (64, 64), (3, 3)])
@pytest.mark.parametrize("fit", ["squash", "crop"])
def test_resampling_is_a_triangle_filter_over_all_of_it_or_over_its_centre(height: int, width: int, fit: Fit) -> None:
    image = noise(height, height, width)
    side = min(height, width)
    left, top = (width - side) // 2, (height - side) // 2
    box = (0, 0, width, height) if fit == "squash" else (left, top, left + side, top + side)
    expected = triangle(image, 8, box)
    found = pixels(encode(Image.fromarray(image)), 8, fit).astype(float)
    assert np.abs(found - expected).max() <= 1.01  # Pillow rounds after each side


def test_squash_and_crop_differ_and_a_shifted_crop_would_show() -> None:
    image = noise(0, 20, 33)
    assert np.abs(triangle(image, 8, (0, 0, 33, 20)) - triangle(image, 8, (6, 0, 26, 20))).max() > 10
    assert np.abs(triangle(image, 8, (5, 0, 25, 20)) - triangle(image, 8, (6, 0, 26, 20))).max() > 10


def test_an_image_of_the_right_size_is_not_touched() -> None:
    image = noise(0, 8, 8)
    np.testing.assert_array_equal(pixels(encode(Image.fromarray(image))), image)
    wide = noise(0, 8, 13)
    np.testing.assert_array_equal(pixels(encode(Image.fromarray(wide)), 8, "crop"), wide[:, 2:10])


@settings(deadline=None, max_examples=60)
@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    size=st.integers(1, 24),
    fit=st.sampled_from(["squash", "crop"]),
    seed=st.integers(0, 100),
)
def test_an_array_is_resized_to_the_bits_of_a_lossless_file(
    height: int, width: int, size: int, fit: Fit, seed: int
) -> None:
    images = np.random.default_rng(seed).integers(0, 256, (2, 3, height, width), dtype=np.uint8)
    resized = resize_array(images, size, fit)
    for image, small in zip(images, resized, strict=True):
        data = encode(Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))))
        np.testing.assert_array_equal(decode(data, size, fit), small)


def test_an_array_of_the_right_size_is_the_same_array() -> None:
    images = np.zeros((2, 3, 8, 8), np.uint8)
    assert resize_array(images, 8, "crop") is images


# Kinds


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM", "JPEG2000"])
def test_16_bit_grey_is_scaled_and_not_clipped(kind: str) -> None:
    grey = np.random.default_rng(0).integers(0, 65536, (8, 8)).astype(np.uint16)
    grey[0, :2] = 0, 65535
    options = {"irreversible": False} if kind == "JPEG2000" else {}
    assert_grey(pixels(encode(Image.fromarray(grey), kind, **options)), rounded(grey / 257))


def test_16_bit_grey_of_either_byte_order_signed_or_with_white_as_zero() -> None:
    grey = np.random.default_rng(0).integers(0, 32768, (8, 8))
    expected = rounded(grey / 257)
    assert_grey(pixels(tiff(grey.astype(">u2").tobytes(), 8, 8, 16, big=True)), expected)
    assert_grey(pixels(tiff(grey.astype("<i2").tobytes(), 8, 8, 16, sample=2)), expected)
    assert_grey(pixels(tiff(grey.astype("<u2").tobytes(), 8, 8, 16, photometric=0)), 255 - expected)


def test_12_bit_grey_is_scaled_from_12_bits() -> None:
    grey = np.random.default_rng(0).integers(0, 4096, (8, 8))
    pairs = grey.reshape(-1, 2).tolist()
    packed = b"".join(bytes([a >> 4, (a & 15) << 4 | b >> 8, b & 255]) for a, b in pairs)
    assert_grey(pixels(tiff(packed, 8, 8, 12)), rounded(grey * 255 / 4095))


def test_16_bit_colour_keeps_its_upper_bits() -> None:
    colour = np.random.default_rng(0).integers(0, 65536, (8, 8, 3)).astype(">u2")
    lines = b"".join(b"\0" + line.tobytes() for line in colour)
    np.testing.assert_array_equal(pixels(png(8, 8, lines, 2, 16)), colour >> 8)


def test_numbers_of_unknown_range_are_refused() -> None:
    wide = np.random.default_rng(0).integers(0, 2**31, (8, 8)).astype(np.int32)
    with pytest.raises(BadImage, match="exceed 16 bits"):
        decode(encode(Image.fromarray(wide), "TIFF"), 8, "squash")
    with pytest.raises(BadImage, match="exceed 16 bits"):
        decode(tiff((wide[:, :4] % 2**16).astype("<i2").tobytes(), 8, 4, 16, sample=2), 8, "squash")
    with pytest.raises(BadImage, match="floating-point"):
        decode(encode(Image.fromarray(wide.astype(np.float32)), "TIFF"), 8, "squash")


def test_one_bit_and_8_bit_grey() -> None:
    grey = noise(0, 8, 8, None)
    assert_grey(pixels(encode(Image.fromarray(grey))), grey)
    ink = Image.fromarray(grey > 127)
    assert ink.mode == "1"
    assert_grey(pixels(encode(ink)), np.where(grey > 127, 255, 0))


def over_white(colour: Array, alpha: Array) -> Array:
    share = alpha[..., None] / 255
    return rounded(colour * share + 255 * (1 - share))


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_the_transparent_is_laid_over_white(kind: str) -> None:
    colour, alpha = noise(0, 8, 8), noise(1, 8, 8, None)
    image = Image.fromarray(np.dstack([colour, alpha]))
    options: dict[str, Any] = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    np.testing.assert_array_equal(pixels(encode(image, kind, **options)), over_white(colour, alpha))
    grey = Image.merge("LA", [Image.fromarray(colour[..., 0]), Image.fromarray(alpha)])
    if kind == "PNG":
        assert_grey(pixels(encode(grey)), over_white(colour[..., :1], alpha)[..., 0])


def test_palettes_with_and_without_transparency() -> None:
    palette, index = noise(0, 16, 1)[:, 0], noise(1, 8, 8, None) % 16
    image = Image.frombytes("P", (8, 8), index.tobytes())
    image.putpalette(palette.tobytes())
    np.testing.assert_array_equal(pixels(encode(image)), palette[index])
    np.testing.assert_array_equal(pixels(encode(image, "GIF")), palette[index])
    one_clear = np.where(np.arange(16) == 5, 0, 255)
    for kind in ("PNG", "GIF"):
        found = pixels(encode(image, kind, transparency=5))
        np.testing.assert_array_equal(found, over_white(palette[index], one_clear[index]))
    alphas = noise(2, 1, 16, None)[0]
    found = pixels(encode(image, transparency=alphas.tobytes()))
    np.testing.assert_array_equal(found, over_white(palette[index], alphas[index]))


def test_a_colour_that_stands_for_transparent_becomes_white() -> None:
    colour, grey = noise(0, 8, 8), noise(1, 8, 8, None)
    colour[2, 3], grey[2, 3] = (1, 2, 3), 7
    colour_expected, grey_expected = colour.copy(), np.where(grey == 7, 255, grey)
    colour_expected[2, 3] = 255
    np.testing.assert_array_equal(pixels(encode(Image.fromarray(colour), transparency=(1, 2, 3))), colour_expected)
    assert_grey(pixels(encode(Image.fromarray(grey), transparency=7)), grey_expected)
    wide = Image.fromarray(grey.astype(np.uint16) * 257)
    assert_grey(pixels(encode(wide, transparency=7 * 257)), grey_expected)


def from_cmyk(inks: Array) -> Array:
    c, m, y, k = (np.asarray(inks, float)[..., i] for i in range(4))
    return np.stack([(255 - ink) * (255 - k) / 255 for ink in (c, m, y)], -1)


def test_cmyk_as_tiff_and_as_jpeg() -> None:
    inks = noise(0, 8, 8, 4)
    found = pixels(encode(Image.frombytes("CMYK", (8, 8), inks.tobytes()), "TIFF"))
    assert np.abs(found - from_cmyk(inks)).max() <= 1.01
    flat = np.broadcast_to(np.array([200, 30, 90, 40], np.uint8), (16, 16, 4))
    jpeg = encode(Image.frombytes("CMYK", (16, 16), flat.tobytes()), "JPEG", quality=95)
    assert np.abs(pixels(jpeg, 16) - from_cmyk(flat)).max() <= 4


def test_ycck_jpeg() -> None:
    stored = np.array([150, 110, 140, 60])  # Y, Cb, Cr, K as they stand in the file
    flat = np.broadcast_to((255 - stored).astype(np.uint8), (16, 16, 4))  # Pillow stores inks upside down
    jpeg = bytearray(encode(Image.frombytes("CMYK", (16, 16), flat.tobytes()), "JPEG", quality=95))
    jpeg[jpeg.index(b"Adobe") + 11] = 2  # the transform is YCCK
    luma, blue, red = stored[0], stored[1] - 128, stored[2] - 128
    colour = np.array([luma + 1.402 * red, luma - 0.344136 * blue - 0.714136 * red, luma + 1.772 * blue])
    paper = 255 - colour  # inks upside down, as Adobe writes them: the more, the lighter
    expected = paper * stored[3] / 255
    assert np.abs(pixels(bytes(jpeg), 16)[0, 0] - expected).max() <= 4


def test_lab_tiff() -> None:
    light, a, b = 60.0, 20.0, -30.0
    flat = [Image.new("L", (8, 8), int(value)) for value in (light * 255 / 100, a + 128, b + 128)]
    fy = (light + 16) / 116
    white = np.array([0.9642, 1.0, 0.8249])  # D50
    roots = np.array([fy + a / 500, fy, fy - b / 200])
    xyz = white * np.where(roots > 6 / 29, roots**3, 3 * (6 / 29) ** 2 * (roots - 4 / 29))
    to_srgb = np.array(
        [[3.1338561, -1.6168667, -0.4906146], [-0.9787684, 1.9161415, 0.0334540], [0.0719453, -0.2289914, 1.4052427]]
    )
    linear = to_srgb @ xyz
    expected = 255 * np.where(linear > 0.0031308, 1.055 * linear ** (1 / 2.4) - 0.055, 12.92 * linear)
    found = pixels(encode(Image.merge("LAB", flat), "TIFF"))[0, 0]
    assert np.abs(found - expected).max() <= 2


@pytest.mark.parametrize(("kind", "options"), [("GIF", {}), ("WEBP", {"lossless": True}), ("PNG", {})])
def test_an_animation_gives_its_first_frame(kind: str, options: dict[str, Any]) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
    data = encode(frames[0], kind, save_all=True, append_images=frames[1:], duration=50, **options)
    with Image.open(io.BytesIO(data)) as image:
        assert image.n_frames == 3  # type: ignore[attr-defined]
    np.testing.assert_array_equal(pixels(data), np.array(frames[0]))


TURNS: dict[int, Any] = {  # of the stored pixels, as EXIF defines where their row 0 and column 0 belong
    1: lambda x: x,
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.transpose(1, 0, 2),
    6: lambda x: x.transpose(1, 0, 2)[:, ::-1],
    7: lambda x: x[::-1, ::-1].transpose(1, 0, 2),
    8: lambda x: x.transpose(1, 0, 2)[::-1],
}


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "JPEG", "WEBP"])
@pytest.mark.parametrize("orientation", TURNS)
def test_orientation_is_applied(kind: str, orientation: int) -> None:
    blocks = np.zeros((2, 2, 3), np.uint8)
    blocks[0, 0], blocks[0, 1], blocks[1, 0] = (250, 0, 0), (0, 250, 0), (0, 0, 250)
    image = blocks.repeat(16, 0).repeat(16, 1)
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(Image.fromarray(image), kind, exif=exif)
    found = pixels(data, 32)
    assert np.abs(found[4::16, 4::16].astype(int) - TURNS[orientation](blocks)).max() < 30


def test_orientation_comes_before_the_crop() -> None:
    image = noise(0, 8, 20)
    exif = Image.Exif()
    exif[0x0112] = 6
    upright = image.transpose(1, 0, 2)[:, ::-1]
    np.testing.assert_array_equal(pixels(encode(Image.fromarray(image), exif=exif), 8, "crop"), upright[6:14])


@pytest.mark.parametrize("block", [b"", b"MM\0*\0\0\0\x08\xff\xff", b"II*\0\x08\0\0\0\x01\0\x12\x01", bytes(30)])
def test_an_exif_block_that_cannot_be_read_says_nothing(block: bytes) -> None:
    image = Image.fromarray(noise(0, 16, 16))
    plain = pixels(encode(image, "JPEG"), 16)
    np.testing.assert_array_equal(pixels(encode(image, "JPEG", exif=b"Exif\0\0" + block), 16), plain)


def test_a_large_jpeg_is_decoded_smaller_but_a_third_above_the_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[tuple[int, int]] = []
    resize = module.resize

    def record(image: Image.Image, size: int, fit: Fit) -> Image.Image:
        sizes.append(image.size)
        return resize(image, size, fit)

    monkeypatch.setattr(module, "resize", record)
    wave = np.sin(np.arange(800) / 40)[:, None] + np.cos(np.arange(1100) / 60)
    image = Image.fromarray(np.dstack([rounded(60 * wave + 128)] * 3))
    data = encode(image, "JPEG", quality=95)
    for size in (20, 32, 64, 299, 300, 301, 800):
        del sizes[:]
        found = pixels(data, size).astype(float)
        assert 3 * min(sizes[0]) >= 4 * size or sizes[0] == (1100, 800)
        assert (sizes[0] == (1100, 800)) == (size > 300)
        whole = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR), float)
        assert np.abs(found - whole).mean() < 2


# What is refused


def refusal(data: bytes) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(BadImage) as caught:
            decode(data, 8, "squash")
    reason = str(caught.value)
    assert reason == reason.strip()
    assert reason.isprintable()
    assert "0x" not in reason
    return reason


def test_what_is_no_image_is_refused() -> None:
    assert "empty" in refusal(b"")
    assert "no image of a known format" in refusal(b"hello, I am a text\n" * 20)
    assert "no image of a known format" in refusal(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    assert "no image of a known format" in refusal(encode(Image.new("RGB", (8, 8)), "ICO"))
    assert refusal(png(0, 8, b""))
    assert refusal(b"P6 0 8 255\n")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF"])
def test_a_truncated_file_is_refused(kind: str) -> None:
    if kind not in module.FORMATS:
        pytest.skip(f"this Pillow does not read {kind}")
    data = encode(Image.fromarray(noise(0, 32, 32)), kind)
    assert pixels(data).any()
    for share in (0.02, 0.3, 0.6, 0.9, 0.97):
        refusal(data[: int(share * len(data))])


@pytest.mark.parametrize("options", [{"progressive": True}, {"quality": 30}])
def test_a_jpeg_that_lacks_its_last_lines_is_refused(options: dict[str, Any]) -> None:
    data = encode(Image.fromarray(noise(0, 64, 64)), "JPEG", **options)
    for missing in (10, 50, 500):
        assert "truncated" in refusal(data[:-missing])


def test_a_png_with_a_wrong_checksum_is_refused_though_pillow_takes_it() -> None:
    data = bytearray(png(8, 8, b"".join(b"\0" + line.tobytes() for line in noise(0, 8, 8))))
    data[data.index(b"IEND") - 5] ^= 1  # the checksum of the pixels
    with Image.open(io.BytesIO(bytes(data))) as image:
        image.load()
    assert "checksum" in refusal(bytes(data))
    assert "truncated" in refusal(png(8, 8, bytes(8 * 25))[:-1])


def bomb(side: int) -> bytes:
    """The first of its lines; Pillow takes memory for all of them before it looks."""
    packer = zlib.compressobj(9)
    line = b"\0" + bytes((side + 7) // 8)
    body = b"".join(packer.compress(line) for _ in range(64)) + packer.flush()
    whole = png(side, side, b"", 0, 1)
    start = whole.index(b"IDAT") - 4
    chunk = b"IDAT" + body
    return whole[:start] + struct.pack(">I", len(body)) + chunk + struct.pack(">I", zlib.crc32(chunk)) + whole[-12:]


def test_a_decompression_bomb_is_never_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail("it was decoded"))
    with pytest.raises(pytest.fail.Exception):
        decode(bomb(1_000), 8, "squash")
    data = bomb(60_000)
    assert len(data) < 20_000
    assert "too many pixels" in refusal(data)
    assert "too many pixels" in refusal(bomb(9_500))  # Pillow only warns of this one
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert "too many pixels (60000 x 60000)" in refusal(data)
    assert "too many pixels (1 x 70000)" in refusal(png(1, 70_000, b""))


@pytest.mark.slow
def test_a_decompression_bomb_takes_no_memory() -> None:
    script = (
        "import resource, sys\n"
        "from ocssl.data.decode.decoder import BadImage, decode\n"
        "from PIL import Image\n"
        "Image.MAX_IMAGE_PIXELS = None\n"
        "data = sys.stdin.buffer.read()\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak()\n"
        "try:\n    decode(data, 8, 'squash')\n"
        "except BadImage:\n    print(peak() - before)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], input=bomb(60_000), capture_output=True, check=True)
    assert int(run.stdout) < 30_000  # KiB; its pixels would take 450,000 and more


def test_too_large_a_file_and_too_many_scans_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(Image.fromarray(noise(0, 16, 16)), "JPEG", progressive=True)
    assert pixels(data, 16).any()
    scan = data[data.index(b"\xff\xda") : data.rindex(b"\xff\xd9")]
    assert "scans" in refusal(data[:-2] + scan * 600 + data[-2:])
    monkeypatch.setattr(module, "MOST_BYTES", len(data) - 1)
    assert "MiB" in refusal(data)


@pytest.mark.parametrize(
    "error",
    [struct.error("x"), SyntaxError("a\nb"), MemoryError(), ZeroDivisionError(), EOFError(), ValueError("<X at 0x7f>")],
)
def test_whatever_pillow_stumbles_over_becomes_a_reason(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(Image, "open", fail)
    assert refusal(b"x").startswith("it cannot be decoded: ")


def test_an_interrupt_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Image, "open", interrupt)
    with pytest.raises(KeyboardInterrupt):
        decode(b"x", 8, "squash")


def test_nothing_global_is_changed() -> None:
    def state() -> Any:
        return Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, list(warnings.filters)

    before = state()
    for data in (encode(Image.new("RGB", (9, 9))), b"", bomb(60_000)):
        with contextlib.suppress(BadImage):
            decode(data, 8, "crop")
    assert state() == before


@pytest.mark.slow
def test_a_worker_imports_no_torch() -> None:
    found = "print('torch' in sys.modules, 'PIL.EpsImagePlugin' in sys.modules)"
    script = f"import sys, ocssl.data.decode.decode_processes; {found}"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("brand", [b"heic", b"mif1"])
def test_heic_by_another_name_says_what_to_install(brand: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FORMATS", tuple(name for name in module.FORMATS if name != "HEIF"))
    with pytest.raises(BadImage) as error:
        decode(b"\0\0\0\x18ftyp" + brand + bytes(range(200)), 8, "squash")
    assert str(error.value) == ".heic (pip install pillow-heif)"
    assert Fault("a.jpg", str(error.value)).kind == ".heic (pip install pillow-heif)"


@pytest.mark.parametrize(
    ("suffix", "form", "mode", "options"),
    [
        (".jfif", "JPEG", "RGB", {}),
        (".jpe", "JPEG", "RGB", {}),
        (".pgm", "PPM", "L", {}),
        (".pbm", "PPM", "1", {}),
        (".pnm", "PPM", "RGB", {}),
        (".apng", "PNG", "RGB", {}),
        (".j2k", "JPEG2000", "RGB", {"no_jp2": True}),
        (".dib", "DIB", "RGB", {}),
        (".dib", "BMP", "RGB", {}),
    ],
)
def test_rarer_suffixes_of_formats_that_are_known_are_images(
    suffix: str, form: str, mode: str, options: dict[str, Any], tmp_path: Path
) -> None:
    file = io.BytesIO()
    Image.new(mode, (9, 7), "white").save(file, form, **options)
    assert decode(file.getvalue(), 4, "squash").min() > 250
    (tmp_path / f"a{suffix}").write_bytes(file.getvalue())
    (tmp_path / "dot.").write_bytes(file.getvalue())
    (tmp_path / "text.").write_text("not an image")
    images, left = survey_folder(tmp_path)
    known = form != "DIB"  # its first bytes are a small number, which says nothing
    assert list(images) == sorted([f"a{suffix}".encode(), *([b"dot."] if known else [])])
    assert left == [*([] if known else [(b"dot.", "no extension")]), (b"text.", "no extension")]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("its pixels are floating-point numbers of unknown range", "floating-point"),
        ("its pixels exceed 16 bits, and their range is unknown", "unknown range"),
    ],
)
def test_pixels_of_unknown_range_are_counted_in_a_word_or_two(reason: str, kind: str) -> None:
    assert Fault("a.tif", reason).kind == kind


def test_a_look_at_an_image_warns_of_nothing() -> None:
    data = bytearray(encode(Image.fromarray(noise(0, 9, 9)), "TIFF"))
    start = int.from_bytes(data[4:8], "little")
    data[start + 2 + 12 + 2 : start + 2 + 12 + 8] = b"\x02\0\xff\xff\xff\x7f"  # a tag that is longer than the file
    with warnings.catch_warnings(record=True) as heard, contextlib.suppress(BadImage):
        warnings.simplefilter("always")
        describe(bytes(data))
    assert not heard
    with warnings.catch_warnings(record=True) as heard, contextlib.suppress(Exception):
        warnings.simplefilter("always")
        Image.open(io.BytesIO(data))
    assert heard
    assert describe(encode(Image.fromarray(noise(0, 7, 9)))) == ("PNG", 9, 7)
