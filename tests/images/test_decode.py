from __future__ import annotations

import io
import pickle
import struct
import zlib

import numpy as np
import pytest
from made_images import blocks, chunk, encode, exif_block, png, tiff
from PIL import Image, ImageOps

from datamodules.batches.bad_samples import ImageError
from datamodules.images.decode.decode import decode_image, image_size
from datamodules.readers.folders import IMAGE_SUFFIXES

WHITE = (255, 255, 255)
BACKGROUND = (10, 200, 30)


def grey(content: bytes | np.ndarray) -> list[int]:
    return list(decode_image(content, mode="L").tobytes())


SIXTEEN = (np.arange(16, dtype=np.uint16) * 4369).reshape(4, 4)


@pytest.mark.parametrize(
    "content",
    [
        encode(Image.fromarray(SIXTEEN), "PNG"),
        encode(Image.fromarray(SIXTEEN), "PPM"),
        encode(Image.fromarray(SIXTEEN), "TIFF"),
        encode(Image.fromarray(SIXTEEN), "TIFF", compression="tiff_lzw"),
        encode(Image.fromarray(SIXTEEN), "JPEG2000"),
        encode(Image.frombytes("I;16B", (4, 4), SIXTEEN.astype(">u2").tobytes()), "TIFF"),
        SIXTEEN,
        SIXTEEN.astype(">u2"),
    ],
    ids=["png", "pgm", "tiff", "tiff lzw", "jp2", "big-endian tiff", "array", "big-endian array"],
)
def test_h06_sixteen_bit_keeps_its_values(content):
    """A 16-bit grey image keeps its 16 levels, k * 4369 as k / 15, in both modes."""
    levels = np.asarray(decode_image(content, mode="L"), dtype=np.float32) / 255
    assert np.array_equal(levels.ravel(), np.arange(16, dtype=np.float32) * 17 / 255)
    colours = np.asarray(decode_image(content, mode="RGB"))
    assert np.array_equal(colours, np.repeat(np.arange(0, 256, 17), 3).reshape(4, 4, 3))


def test_sixteen_bits_are_rounded_not_cut():
    levels = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    expected = np.floor(levels / 257 + 0.5).astype(np.uint8)
    assert np.array_equal(np.asarray(decode_image(levels, mode="L")), expected)


def test_sixteen_bit_colours_are_within_one_level():
    levels = np.random.default_rng(0).integers(0, 65536, (9, 7, 3))
    found = np.asarray(decode_image(png(levels, colour=2, bits=16)), dtype=float)
    assert np.abs(found - levels / 257).max() < 1


def test_twelve_bit_grey_reaches_white():
    data = bytes([0x00, 0x0F, 0xFF, 0x80, 0x00, 0x00])  # 0, 4095, 2048, 0
    assert grey(tiff(data, 4, 1, 12)) == [0, 255, 128, 0]


def test_tiff_whose_zero_is_white_is_turned_round():
    data = np.array([0, 257, 65535], dtype="<u2").tobytes()
    assert grey(tiff(data, 3, 1, 16, photometric=0)) == [255, 254, 0]
    assert grey(tiff(bytes([0, 1, 255]), 3, 1, 8, photometric=0)) == [255, 254, 0]
    data = np.array([0, 1], dtype="<f4").tobytes()
    assert grey(tiff(data, 2, 1, 32, photometric=0, sample_format=3)) == [255, 0]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (tiff(np.array([-3, 900], "<i4").tobytes(), 2, 1, 32, sample_format=2), "-3 to 900"),
        (tiff(np.array([-3, 900], "<i2").tobytes(), 2, 1, 16, sample_format=2), "-3 to 900"),
        (tiff(np.array([3, 900], "<u4").tobytes(), 2, 1, 32), "3 to 900"),
        (tiff(bytes([1, 255]), 2, 1, 8, sample_format=2), "signed 8-bit"),
        (tiff(np.array([0, 1.5], "<f4").tobytes(), 2, 1, 32, sample_format=3), "0 to 1.5"),
        (tiff(np.array([0, np.nan], "<f4").tobytes(), 2, 1, 32, sample_format=3), "nan"),
        (np.array([[0.0, -0.1]]), "-0.1 to 0"),
        (np.array([[0.0, np.inf]]), "0 to inf"),
        (np.array([[0, 255]]), "int64 pixels from 0 to 255"),
        (np.array([[1j]]), "complex128"),
        (Image.fromarray(np.array([[7, 70000]], dtype=np.int32)), "7 to 70000"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_pixels_without_a_scale_are_refused_with_their_range(content, found):
    with pytest.raises(ImageError, match=found):
        decode_image(content)


@pytest.mark.parametrize("kind", ["tiff", "pfm", "array", "float16 array"])
def test_floats_from_0_to_1_are_multiplied_by_255(kind):
    values = np.array([[0, 0.25, 0.5, 1]], dtype="<f4")
    content = {
        "tiff": tiff(values.tobytes(), 4, 1, 32, sample_format=3),
        "pfm": b"Pf\n4 1\n-1.0\n" + values.tobytes(),
        "array": values.astype(np.float64),
        "float16 array": values.astype(np.float16),
    }[kind]
    assert grey(content) == [0, 64, 128, 255]


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize(
    "form", ["1", "L", "LA", "La", "P", "PA", "RGB", "RGBX", "RGBA", "RGBa", "CMYK", "YCbCr", "HSV"]
)
def test_every_8_bit_mode_gives_the_colours_it_stands_for(form, mode):
    image = blocks()
    if form in ("P", "PA"):
        made = image.quantize(64).convert(form)
        expected = image.quantize(64).convert("RGB")
    elif form in ("La", "RGBa"):
        made = image.convert(form.upper()).convert(form)
        expected = image.convert("L").convert("RGB") if form == "La" else image
    else:
        made = image.convert(form)
        grey_form = form in ("1", "L", "LA")
        expected = made.convert("L").convert("RGB") if grey_form else image
    found = decode_image(made, mode=mode)
    assert (type(found), found.mode, found.size, found.info) == (Image.Image, mode, (32, 24), {})
    away = np.asarray(found, dtype=int) - np.asarray(expected.convert(mode), dtype=int)
    assert np.abs(away).max() <= (8 if form == "HSV" else 3)


def test_lab_is_converted_to_srgb():
    lab = Image.new("LAB", (2, 2), (136, 209, 195))  # L 53.3, a 81, b 67 about the red of sRGB
    lab.putpixel((0, 0), (255, 128, 128))
    found = decode_image(encode(lab, "TIFF"))
    assert min(found.getpixel((0, 0))) >= 253
    red, green, blue = found.getpixel((1, 1))
    assert red > 240
    assert max(green, blue) < 40


def test_cmyk_jpeg_is_not_inverted():
    """JPEG keeps CMYK upside down; full cyan comes back as cyan, no ink as white."""
    inks = Image.new("CMYK", (16, 16), (255, 0, 0, 0))
    assert (
        np.abs(
            np.subtract(decode_image(encode(inks, "JPEG")).getpixel((8, 8)), (0, 255, 255))
        ).max()
        <= 2
    )
    paper = Image.new("CMYK", (16, 16), (0, 0, 0, 0))
    assert min(decode_image(encode(paper, "JPEG")).getpixel((8, 8))) >= 253
    assert decode_image(encode(inks, "TIFF")).getpixel((8, 8)) == (0, 255, 255)


HALF = np.array([[[255, 0, 0, 0], [255, 0, 0, 255], [255, 0, 0, 128]]], dtype=np.uint8)
KEYED = {
    "grey": png(np.array([[7, 200]]), colour=0, bits=8, before=chunk(b"tRNS", b"\0\x07")),
    "16-bit grey": png(
        np.array([[7 * 257 + 1, 7 * 257, 200 * 257]]),
        colour=0,
        bits=16,
        before=chunk(b"tRNS", struct.pack(">H", 7 * 257 + 1)),
    ),
    "colour": png(
        np.array([[[1, 2, 3], [1, 2, 4]]]),
        colour=2,
        bits=8,
        before=chunk(b"tRNS", struct.pack(">HHH", 1, 2, 3)),
    ),
    "palette, one entry": png(
        np.array([[0, 1]]),
        colour=3,
        bits=8,
        before=chunk(b"PLTE", bytes([9, 9, 9, 40, 50, 60])) + chunk(b"tRNS", b"\0"),
    ),
    "palette, levels": png(
        np.array([[0, 1, 2]]),
        colour=3,
        bits=8,
        before=chunk(b"PLTE", bytes([9, 9, 9, 40, 50, 60, 0, 0, 0]))
        + chunk(b"tRNS", bytes([0, 255, 128])),
    ),
    "alpha": encode(Image.fromarray(HALF), "PNG"),
    "array": HALF,
}
KEYED_COLOURS = {
    "grey": [BACKGROUND, (200, 200, 200)],
    "16-bit grey": [BACKGROUND, (7, 7, 7), (200, 200, 200)],
    "colour": [BACKGROUND, (1, 2, 4)],
    "palette, one entry": [BACKGROUND, (40, 50, 60)],
    "palette, levels": [BACKGROUND, (40, 50, 60), (5, 100, 15)],
    "alpha": [BACKGROUND, (255, 0, 0), (133, 100, 15)],
    "array": [BACKGROUND, (255, 0, 0), (133, 100, 15)],
}


@pytest.mark.parametrize("kind", KEYED)
def test_transparency_is_composed_over_the_background(kind):
    found = decode_image(KEYED[kind], background=BACKGROUND)
    assert [found.getpixel((x, 0)) for x in range(found.width)] == KEYED_COLOURS[kind]
    level = decode_image(KEYED[kind], mode="L", background=BACKGROUND)
    assert level.tobytes() == found.convert("L").tobytes()
    assert decode_image(KEYED[kind]).getpixel((0, 0)) == WHITE


def test_a_transparent_16_bit_colour_is_refused():
    key = chunk(b"tRNS", struct.pack(">HHH", 256, 512, 768))
    content = png(np.array([[[256, 512, 768], [257, 512, 768]]]), colour=2, bits=16, before=key)
    with pytest.raises(ImageError, match="lost at 8 bits; save it with an alpha channel"):
        decode_image(content)


@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF", "MPO"])
def test_orientation_is_applied_once(kind, number):
    options = {"save_all": True, "append_images": [blocks()]} if kind == "MPO" else {}
    content = encode(blocks(), kind, exif=exif_block(number), **options)
    found = decode_image(content)
    with Image.open(io.BytesIO(content)) as opened:
        expected = ImageOps.exif_transpose(opened).convert("RGB")
        assert decode_image(opened) == found
    assert np.array_equal(np.asarray(found), np.asarray(expected))
    assert found.size == ((24, 32) if number >= 5 else (32, 24))
    assert image_size(content) == (found.height, found.width)
    assert ImageOps.exif_transpose(found).size == found.size


RAW_PROFILE = f"\nexif\n{len(exif_block(6)):8}\n{exif_block(6).hex()}\n".encode()
XMP = b'<x:xmpmeta xmlns:tiff="t"><r tiff:Orientation="6"/></x:xmpmeta>'


@pytest.mark.parametrize("place", ["before", "behind"])
@pytest.mark.parametrize(
    "text",
    [
        chunk(b"eXIf", exif_block(6)[6:]),
        chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP),
        chunk(b"tEXt", b"Raw profile type exif\0" + RAW_PROFILE),
        chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(RAW_PROFILE)),
    ],
    ids=["exif", "xmp", "raw profile", "packed raw profile"],
)
def test_orientation_is_found_wherever_a_png_keeps_it(text, place):
    content = png(np.arange(6).reshape(2, 3), colour=0, bits=8, **{place: text})
    assert np.array_equal(np.asarray(decode_image(content, mode="L")), [[3, 0], [4, 1], [5, 2]])
    assert image_size(content) == (3, 2)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("harm", ["not a header", "far directory", "cut", "wrong type", "9"])
def test_broken_exif_takes_nothing_from_the_image(kind, harm):
    sound = exif_block(6)
    entry = sound.index(b"\x01\x12\x00\x03")
    changed = {
        "not a header": sound.replace(b"MM\0*", b"XX\0\x7f"),
        "far directory": sound.replace(b"\0\0\0\x08", b"\xff\xff\xff\xff", 1),
        "cut": sound[: entry - 12] + b"\xff" * (len(sound) - entry + 12),
        "wrong type": sound[: entry + 2] + b"\x00\x05" + sound[entry + 4 :],
        "9": sound[: entry + 8] + b"\x00\x09" + sound[entry + 10 :],
    }[harm]
    assert changed != sound
    if kind == "PNG":
        block = chunk(b"eXIf", changed[6:])
        content = png(np.asarray(blocks()), colour=2, bits=8, before=block)
    else:
        content = encode(blocks(), kind, exif=sound)
        assert sound[6:] in content
        content = content.replace(sound[6:], changed[6:])
    assert decode_image(content).size == (32, 24)
    assert image_size(content) == (24, 32)


@pytest.mark.parametrize("harm", [(b"MM\0*", b"XX\0*"), (b"\x01\x0f\0\x02", b"\xff" * 4)])
def test_broken_exif_of_avif_takes_nothing_from_the_image(harm):
    """AVIF turns by a box of its own, which stays in force."""
    sound = encode(blocks(), "AVIF", exif=exif_block(6))
    content = sound.replace(*harm)
    assert content != sound
    assert decode_image(content) == decode_image(sound)
    assert image_size(content) == (32, 24)


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "AVIF", "TIFF", "MPO"])
def test_the_first_frame_is_taken(kind):
    red, blue = Image.new("RGB", (16, 16), "red"), Image.new("RGB", (16, 16), "blue")
    found = decode_image(encode(red, kind, save_all=True, append_images=[blue]))
    assert np.abs(np.subtract(found.getpixel((8, 8)), (255, 0, 0))).max() <= 3


def test_the_largest_image_of_an_icon_is_taken():
    content = encode(blocks(64, 64), "ICO", sizes=[(16, 16), (64, 64), (32, 32)])
    assert decode_image(content) == blocks(64, 64)
    assert image_size(content) == (64, 64)
    content = encode(blocks(64, 64), "ICO", sizes=[(16, 16), (64, 64)], bitmap_format="bmp")
    assert decode_image(content) == blocks(64, 64)


@pytest.mark.parametrize(
    ("shape", "fits"),
    [
        *(((4, 5), True), ((4, 5, 1), True), ((4, 5, 2), True), ((4, 5, 3), True)),
        *(((4, 5, 4), True), ((3, 4, 5), False), ((0, 5), False), ((1, 4, 5, 3), False)),
    ],
)
def test_arrays_have_their_channels_last(shape, fits):
    pixels = np.full(shape, 255, dtype=np.uint8)
    if not fits:
        with pytest.raises(ImageError, match=r"'mine': expected pixels \(H, W\).*got shape"):
            decode_image(pixels, name="mine")
        return
    found = decode_image(pixels)
    assert (found.mode, found.size, found.getpixel((0, 0))) == ("RGB", (5, 4), WHITE)
    assert image_size(pixels) == (4, 5)


def test_truth_values_are_black_and_white():
    assert grey(np.array([[True, False]])) == [255, 0]


def test_the_source_is_neither_changed_nor_shared():
    pixels = np.zeros((4, 4), dtype=np.uint8)
    from_array = decode_image(pixels, mode="L")
    pixels[:] = 9
    assert from_array.getpixel((0, 0)) == 0
    image = blocks()
    image.info["note"] = "kept"
    copy = decode_image(image)
    copy.putpixel((0, 0), WHITE)
    assert image.tobytes() == blocks().tobytes()
    assert image.info == {"note": "kept"}


def test_the_result_crosses_to_another_process_alone():
    content = encode(blocks(), "JPEG", comment=b"c" * 50_000)
    sent = pickle.dumps(decode_image(content))
    assert len(sent) < 32 * 24 * 3 + 1000
    assert pickle.loads(sent) == decode_image(content)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="mode must be 'RGB' or 'L', got 'RGBA'"):
        decode_image(blocks(), mode="RGBA")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="3 levels from 0 to 255"):
        decode_image(blocks(), background=(0, 0, 256))
    with pytest.raises(TypeError, match=r"expected a path, bytes.*got int"):
        decode_image(3)  # type: ignore[arg-type]


def test_every_listed_ending_can_be_read(tmp_path):
    assert all(ending == ending.lower() and ending[0] == "." for ending in IMAGE_SUFFIXES)
    unwritable = {".apng": "PNG", ".avifs": "AVIF", ".pfm": None}
    for ending in sorted(IMAGE_SUFFIXES):
        path = tmp_path / f"image{ending}"
        kind = unwritable.get(ending, Image.registered_extensions().get(ending))
        image = blocks() if kind else Image.fromarray(np.zeros((24, 32), dtype=np.float32))
        image.save(path, kind or "PPM", sizes=[(32, 24)])  # an icon's default sizes are square
        assert decode_image(path).size == (32, 24)
        assert image_size(str(path)) == (24, 32)
