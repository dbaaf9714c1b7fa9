"""What becomes of each file of a collection that breaks programs: a stated answer, file by file."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageFile

from datamodules.batches.bad_samples import ImageError
from datamodules.images.decode.decode import decode_image, image_size

W = (255, 255, 255)
# file: width, height, and colours at (half, half) and (a fifth, a third) of the way, over white
DECODED = {
    "UPPER.JPG": (96, 64, (205, 215, 227), (229, 242, 255)),
    "alpha.webp": (200, 150, (140, 71, 68), (96, 93, 238)),
    "animated.gif": (100, 100, (30, 144, 255), (30, 144, 255)),
    "animated.png": (128, 64, (255, 0, 0), (255, 0, 0)),
    "animated.webp": (245, 245, (57, 100, 106), (17, 82, 84)),
    "bad_exif.jpg": (200, 200, (118, 118, 118), (214, 214, 214)),
    "cmyk.jpg": (100, 100, (1, 4, 5), (1, 4, 4)),
    "exif_orientation_1.jpg": (1800, 1200, (254, 255, 255), (240, 241, 245)),
    "exif_orientation_6.jpg": (1800, 1200, (115, 131, 147), (240, 241, 245)),
    "exif_rotated.jpg": (1, 2, (254, 0, 0), (254, 0, 0)),
    "exif_typeerror.jpg": (800, 531, (119, 133, 116), (183, 197, 208)),
    "fake_svg.webp": (256, 256, W, (76, 90, 62)),
    "gray.jpg": (96, 64, (213, 213, 213), (240, 240, 240)),
    "gray16.pgm": (20, 100, (126, 126, 126), (170, 170, 170)),
    "gray16.png": (64, 64, (130, 130, 130), (84, 84, 84)),
    "gray_alpha.png": (96, 64, (204, 204, 204), (244, 244, 244)),
    "gray_transparent.png": (64, 64, W, (45, 45, 45)),
    "icon.ico": (16, 16, (196, 67, 35), (7, 4, 8)),
    "jpeg_no_extension": (96, 64, (205, 215, 227), (229, 242, 255)),
    "junk_header.jpg": (1024, 768, (146, 130, 117), (221, 238, 245)),
    "lab.tif": (128, 128, (172, 70, 55), (43, 31, 37)),
    "lossy.webp": (128, 128, (170, 84, 51), (39, 33, 53)),
    "multi_picture.mpo": (640, 480, (176, 186, 187), (60, 56, 31)),
    "multipage.tiff": (10, 10, (0, 128, 0), (0, 128, 0)),
    "no_palette.gif": (1, 1, (0, 0, 0), (0, 0, 0)),
    "ojpeg.tif": (160, 160, (232, 21, 0), (223, 43, 28)),
    "one_pixel.png": (1, 1, W, W),
    "palette_indexed.png": (290, 442, (64, 75, 112), (66, 69, 95)),
    "palette_transparent.png": (64, 64, W, (172, 255, 2)),
    "photo.avif": (128, 128, (165, 80, 49), (41, 29, 53)),
    "photo.bmp": (128, 128, (173, 70, 55), (42, 30, 40)),
    "photo.jp2": (640, 480, (112, 142, 112), (168, 0, 87)),
    "photo.ppm": (128, 128, (173, 70, 55), (42, 30, 40)),
    "pixel_1x1.jpg": (1, 1, (99, 116, 134), (99, 116, 134)),
    "png_named.jpg": (96, 64, (200, 205, 208), (242, 244, 246)),
    "rgb16.tiff": (100, 40, (14, 10, 10), (9, 4, 3)),
    "rgb_transparent.png": (64, 64, W, (172, 255, 2)),
    "rgba.png": (200, 150, (144, 59, 59), (95, 95, 211)),
    "strip_1x2000.png": (1, 2000, (108, 118, 128), (126, 139, 157)),
    "tall.webp": (13, 169, (255, 0, 0), (255, 0, 0)),
    "trailing_garbage.jpg": (96, 64, (205, 215, 227), (229, 242, 255)),
    "uint16.tif": (64, 64, (1, 1, 1), (1, 1, 1)),
    "xyb.jpg": (290, 442, (68, 73, 113), (63, 66, 93)),
}
REFUSED = {
    "bomb.gif": "promises too much .Image size .4364696535 pixels",
    "bomb_17000x17000.avif": "17000 x 17000 pixels are more than max_pixels",
    "bomb_60000x60000.png": "60000 x 60000 pixels are more than max_pixels",
    "broken.png": "the PNG header is damaged or cut off",
    "header_only.jpg": "the JPEG header is damaged or cut off",
    "rgb_float32.tif": "a pixel layout not read here",
    "rgb_int16.tif": "a pixel layout not read here",
    "text.jpg": "text, not an image",
    "truncated.jpg": "the JPEG data is damaged or cut off",
    "truncated.png": "the PNG data is (damaged or )?cut off",
    "truncated_end_chunk.png": "the PNG data is cut off",
    "vector.svg": "an SVG drawing has no pixels",
    "zero_byte.jpg": "the file is empty",
    "zero_width.gif": "the GIF header is damaged",
}
WHOLE_HEADER = {"truncated.jpg", "truncated.png", "truncated_end_chunk.png"}


@pytest.fixture
def nasty(data_dir):
    return data_dir / "nasty" / "files"


def pixels(path, **options) -> np.ndarray:
    return np.asarray(decode_image(path, **options), dtype=int)


def distance(one, other) -> float:
    return float(np.abs(one - other).mean())


def test_every_file_has_a_stated_answer(nasty):
    assert {path.name for path in nasty.iterdir()} == DECODED.keys() | REFUSED.keys()


@pytest.mark.parametrize("switch", [False, True])
@pytest.mark.parametrize("name", DECODED)
def test_decoded(name, switch, nasty, monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", switch)
    width, height, middle, beside = DECODED[name]
    found = decode_image(nasty / name)
    assert (type(found), found.mode, found.size) == (Image.Image, "RGB", (width, height))
    assert image_size(nasty / name) == (height, width)
    for place, colour in (((2, 2), middle), ((5, 3), beside)):
        away = np.subtract(found.getpixel((width // place[0], height // place[1])), colour)
        assert np.abs(away).max() <= 3  # decoders round as they like
    level = decode_image(nasty / name, mode="L")
    assert (level.mode, level.size) == ("L", (width, height))
    assert distance(np.asarray(level, dtype=int), np.asarray(found.convert("L"), dtype=int)) == 0


@pytest.mark.parametrize("switch", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, switch, nasty, monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", switch)
    for _ in range(2):
        with pytest.raises(ImageError, match=rf"{name}': .*{REFUSED[name]}.*; ") as caught:
            decode_image(nasty / name)
        assert caught.value.path == str(nasty / name)
    if name not in WHOLE_HEADER:
        with pytest.raises(ImageError, match=REFUSED[name]):
            image_size(nasty / name)


@pytest.mark.parametrize(
    ("one", "other", "within"),
    [
        ("jpeg_no_extension", "UPPER.JPG", 0),
        ("trailing_garbage.jpg", "UPPER.JPG", 0),
        ("photo.bmp", "photo.ppm", 2),
        ("lab.tif", "photo.ppm", 3),
        ("lossy.webp", "photo.ppm", 6),
        ("photo.avif", "photo.ppm", 6),
        ("alpha.webp", "rgba.png", 3),
        ("xyb.jpg", "palette_indexed.png", 6),
        ("palette_transparent.png", "rgb_transparent.png", 0),
        ("exif_orientation_6.jpg", "exif_orientation_1.jpg", 5),
    ],
)
def test_two_files_of_one_scene_agree(one, other, within, nasty):
    """Mean difference in levels (the turned photographs carry a number each)."""
    assert distance(pixels(nasty / one), pixels(nasty / other)) <= within


def test_sixteen_bit_files_keep_their_levels(nasty):
    raw = (nasty / "gray16.pgm").read_bytes()[-20 * 100 * 2 :]
    expected = np.frombuffer(raw, ">u2").reshape(100, 20) / 257
    assert np.abs(pixels(nasty / "gray16.pgm", mode="L") - expected).max() <= 0.5
    raw = (nasty / "uint16.tif").read_bytes()[110 : 110 + 64 * 64 * 2]
    expected = np.frombuffer(raw, "<u2").reshape(64, 64) / 257
    assert np.abs(pixels(nasty / "uint16.tif", mode="L") - expected).max() <= 0.5
    assert len(np.unique(pixels(nasty / "gray16.png", mode="L"))) > 200


def test_transparency_follows_the_background(nasty):
    for name in ("one_pixel.png", "rgb_transparent.png", "palette_transparent.png", "rgba.png"):
        black, white = pixels(nasty / name, background=(0, 0, 0)), pixels(nasty / name)
        assert (white - black).max() == 255  # where nothing is, the background is
        assert (white - black).min() == (255 if name == "one_pixel.png" else 0)
