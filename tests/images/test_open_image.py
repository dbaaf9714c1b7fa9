from __future__ import annotations

import io
import os
import pickle
import random
import socket
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from made_images import blocks, chunk, encode, exif_block, png
from PIL import Image, ImageFile

from datamodules.batches.bad_samples import ImageError
from datamodules.images.decode.decode import decode_image, image_size


def noise(mode: str = "RGB") -> Image.Image:
    levels = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    return Image.fromarray(levels).convert(mode)


DEEP = Image.fromarray(np.random.default_rng(0).integers(0, 65536, (48, 64)).astype(np.uint16))
WHOLE = {
    "jpeg": encode(noise(), "JPEG"),
    "progressive jpeg": encode(noise(), "JPEG", progressive=True),
    "cmyk jpeg": encode(noise("CMYK"), "JPEG"),
    "png": encode(noise(), "PNG"),
    "palette png": encode(noise().quantize(16), "PNG"),
    "16-bit png": encode(DEEP, "PNG"),
    "gif": encode(noise(), "GIF"),
    "bmp": encode(noise(), "BMP"),
    "grey bmp": encode(noise("L"), "BMP"),
    "webp": encode(noise(), "WEBP"),
    "lossless webp": encode(noise(), "WEBP", lossless=True),
    "tiff": encode(noise(), "TIFF"),
    "lzw tiff": encode(noise(), "TIFF", compression="tiff_lzw"),
    "ppm": encode(noise(), "PPM"),
    "16-bit pgm": encode(DEEP, "PPM"),
    "avif": encode(noise(), "AVIF"),
    "jp2": encode(noise(), "JPEG2000"),
    "ico": encode(noise("RGBA").resize((64, 64)), "ICO", sizes=[(64, 64)]),
    "bmp ico": encode(noise().resize((64, 64)), "ICO", sizes=[(64, 64)], bitmap_format="bmp"),
    "qoi": encode(noise(), "QOI"),
}


@pytest.mark.parametrize("switch", [False, True])
@pytest.mark.parametrize("kind", WHOLE)
def test_a_cut_file_is_refused_whatever_the_truncation_switch_says(kind, switch, monkeypatch):
    """Where a cut takes nothing but an end mark, equal pixels may come back; never other pixels."""
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", switch)
    content, refused = WHOLE[kind], 0
    whole = decode_image(content)
    cuts = [1, 2, 3, 8, 12, 20, *(len(content) * part // 100 for part in range(2, 100, 7))]
    for cut in cuts:
        try:
            assert decode_image(content[:-cut]) == whole
        except ImageError as error:
            assert str(error).startswith("'bytes': ")  # noqa: PT017 - either answer is right
            refused += 1
    assert refused >= len(cuts) - {"gif": 2, "qoi": 4}.get(kind, 0)
    assert ImageFile.LOAD_TRUNCATED_IMAGES is switch


@pytest.mark.parametrize("switch", [False, True])
def test_a_png_without_its_end_is_refused_every_time(switch, monkeypatch, tmp_path):
    """Stock code raises on the first load of such a file and is silent on the second."""
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", switch)
    text = chunk(b"tEXt", b"Comment\0" + b"c" * 100)
    content = png(np.zeros((4, 4)), colour=0, bits=8, behind=text)
    for cut in (50, 12 + len(text), 12, 4):  # in the text, before it, before the end, in the end
        path = tmp_path / f"{cut}.png"
        path.write_bytes(content[:-cut])
        for _ in range(2):
            with pytest.raises(ImageError, match=rf"{cut}.png': .*cut off"):
                decode_image(str(path))
    assert decode_image(content).size == (4, 4)


@pytest.mark.parametrize("switch", [False, True])
def test_a_wrong_checksum_is_refused(switch, monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", switch)
    key = bytearray(chunk(b"tRNS", b"\0\x07"))
    key[-1] ^= 1
    with pytest.raises(ImageError, match="tRNS"):
        decode_image(png(np.zeros((4, 4)), colour=0, bits=8, before=bytes(key)))


def test_an_opened_image_that_is_cut_is_refused(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    content = WHOLE["jpeg"]
    with (
        Image.open(io.BytesIO(content[: len(content) // 2])) as opened,
        pytest.raises(ImageError, match=r"'PIL image': the JPEG data is damaged or cut off"),
    ):
        decode_image(opened)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"404 Not Found\n", "text, not an image .begins '404 Not Found"),
        (b"<!DOCTYPE html><html><body>no</body></html>", "text"),
        (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "'heic' media file"),
        (bytes(range(200, 255)), "begins with the bytes c8 c9 ca"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF", "JPEG header"),
        (b"GIF89a", "GIF header"),
        (b"BM" + bytes(40), "BMP header"),
        (b"\0\0\1\0\1\0" + bytes(16), "ICO directory"),
    ],
)
def test_what_is_no_image_is_named_and_said(content, reason, tmp_path):
    path = tmp_path / "an image.jpg"
    path.write_bytes(content)
    for read in (decode_image, image_size):
        with pytest.raises(ImageError, match=rf"an image\.jpg': .*{reason}.*; ") as caught:
            read(str(path))
        assert caught.value.path == str(path)


def test_the_content_counts_not_the_ending(tmp_path):
    path = tmp_path / "drawing.jpg"
    path.write_bytes(encode(blocks(), "PNG"))
    assert decode_image(path) == blocks()


def header_of(kind: str, width: int, height: int) -> bytes:
    """A few bytes that promise an image of this size."""
    if kind == "png":
        body = struct.pack(">LLBBBBB", width, height, 8, 2, 0, 0, 0)
        end = chunk(b"IDAT", b"") + chunk(b"IEND", b"")
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", body) + end
    if kind == "icon":
        inner = header_of("png", width, height)
        return struct.pack("<HHHBBBBHHLL", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(inner), 22) + inner
    if kind == "bmp icon":
        inner = struct.pack("<LllHHLLllLL", 40, width, 2 * height, 1, 32, 0, 0, 0, 0, 0, 0)
        return struct.pack("<HHHBBBBHHLL", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(inner), 22) + inner
    if kind == "webp":
        size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
        body = b"WEBPVP8X" + struct.pack("<LL", 10, 0) + size
        return b"RIFF" + struct.pack("<L", len(body)) + body
    if kind == "lossless webp":
        bits = (width - 1) | (height - 1) << 14
        body = b"WEBPVP8L" + struct.pack("<LBL", 5, 0x2F, bits)
        return b"RIFF" + struct.pack("<L", len(body)) + body
    if kind == "jp2 whose box says 64 x 48":
        content = WHOLE["jp2"]
        at = content.index(b"\xff\x4f\xff\x51") + 8
        return content[:at] + struct.pack(">LL", width, height) + content[at + 8 :]
    content = bytearray(WHOLE[kind])
    old = {
        "gif": struct.pack("<HH", 64, 48),
        "tiff": None,
        "bmp": struct.pack("<ll", 64, 48),
        "ppm": b"64 48",
        "avif": struct.pack(">LL", 64, 48),
        "jpeg": struct.pack(">HH", 48, 64),
    }[kind]
    if old is None:
        for tag, value in ((256, width), (257, height)):
            at = content.index(struct.pack("<HHL", tag, 4, 1))
            content[at + 8 : at + 12] = struct.pack("<L", value)
        return bytes(content)
    new = {
        "gif": lambda: struct.pack("<HH", width, height),
        "bmp": lambda: struct.pack("<ll", width, height),
        "ppm": lambda: b"%d %d" % (width, height),
        "avif": lambda: struct.pack(">LL", width, height),
        "jpeg": lambda: struct.pack(">HH", height, width),
    }[kind]()
    return bytes(content).replace(old, new)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "kind",
    [
        *("png", "icon", "bmp icon", "webp", "lossless webp", "jp2 whose box says 64 x 48"),
        *("gif", "bmp", "ppm", "avif", "jpeg"),
    ],
)
def test_too_many_pixels_are_refused_by_the_header(kind):
    """16,000 x 16,000 pixels would take 1 GiB; the limit answers before any of it is taken."""
    content = header_of(kind, 16_000, 16_000)
    for read in (decode_image, image_size):
        with pytest.raises(ImageError, match=r"16000 x 16000 pixels are more than max_pixels=1789"):
            read(content)


def test_limits_can_be_moved(tmp_path):
    content = encode(blocks(), "PNG")
    path = tmp_path / "a.png"
    path.write_bytes(content)
    for source in (content, path, blocks(), np.asarray(blocks())):
        for read in (decode_image, image_size):
            with pytest.raises(ImageError, match=r"32 x 24 pixels are more than max_pixels=767; "):
                read(source, max_pixels=767)
            read(source, max_pixels=768)
            read(source, max_pixels=None)
    for source in (content, path):
        for read in (decode_image, image_size):
            with pytest.raises(ImageError, match=rf"{len(content)} bytes are more than max_bytes"):
                read(source, max_bytes=len(content) - 1)
            read(source, max_bytes=len(content))
            read(source, max_bytes=None)


@pytest.mark.parametrize("limit", [100, 500, 100_000, None])
def test_the_pixel_limit_of_pillow_is_left_alone(limit, monkeypatch):
    """768 pixels are beyond, between and below where Pillow raises and warns: no difference."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    for kind in ("JPEG", "PNG", "BMP", "GIF"):
        assert decode_image(encode(blocks(), kind)).size == (32, 24)
    assert limit == Image.MAX_IMAGE_PIXELS


def test_text_that_swells_is_refused():
    text = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(8 << 20)))
    with pytest.raises(ImageError, match="Decompressed data too large"):
        decode_image(png(np.zeros((4, 4)), colour=0, bits=8, before=text))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["folder", "named pipe", "socket", "device"])
def test_only_files_are_opened(kind, tmp_path, monkeypatch):
    path = tmp_path / "image.jpg"
    server = socket.socket(socket.AF_UNIX)
    if kind == "folder":
        path.mkdir()
    elif kind == "named pipe":
        os.mkfifo(path)
    elif kind == "socket":
        monkeypatch.chdir(tmp_path)  # a socket's path has few bytes
        server.bind(path.name)
    else:
        path = Path("/dev/zero")
    with server:
        for read in (decode_image, image_size):
            with pytest.raises(ImageError, match=f"expected a file, found a {kind}"):
                read(str(path))


def test_an_absent_file_stays_file_not_found(tmp_path):
    (tmp_path / "link.png").symlink_to("gone.png")
    for name in ("absent.png", "link.png"):
        for read in (decode_image, image_size):
            with pytest.raises(FileNotFoundError, match=name):
                read(tmp_path / name)
    with pytest.raises(ImageError, match="no file can have this name"):
        decode_image("a\0b.png")


def test_links_are_followed(tmp_path):
    (tmp_path / "a.png").write_bytes(encode(blocks(), "PNG"))
    (tmp_path / "b.png").symlink_to("a.png")
    assert decode_image(tmp_path / "b.png") == blocks()
    (tmp_path / "round.png").symlink_to("round.png")
    with pytest.raises(OSError, match=r"round\.png"):
        decode_image(tmp_path / "round.png")


@pytest.mark.parametrize(
    "name", ["new\nline.jpg", "käse 日本.jpg", "bad \udcff\udcfe.jpg", "a'\".jpg"]
)
def test_names_are_carried_whole_and_on_one_line(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(b"no image")
    with pytest.raises(ImageError) as caught:
        decode_image(str(path))
    assert caught.value.path == str(path)
    assert str(caught.value).startswith(repr(str(path)) + ": ")
    assert "\n" not in str(caught.value)
    path.write_bytes(encode(blocks(), "PNG"))
    assert decode_image(str(path)) == blocks()


def test_a_given_name_stands_in_errors():
    with pytest.raises(ImageError, match=r"^'row 7': the file is empty") as caught:
        decode_image(b"", name="row 7")
    assert caught.value.path == "row 7"


def test_errors_survive_pickling_and_being_made_from_their_text():
    with pytest.raises(ImageError) as caught:
        decode_image(b"", name="bad \udcff.jpg")
    error = pickle.loads(pickle.dumps(caught.value))
    assert (type(error), str(error), error.path) == (
        ImageError,
        str(caught.value),
        "bad \udcff.jpg",
    )
    assert isinstance(error, ValueError)
    assert str(type(error)("a worker's traceback")) == "a worker's traceback"


@pytest.mark.parametrize("seed", range(4))
def test_mutated_files_are_decoded_or_refused(seed):
    """No other exception, no warning, and the header's size agrees with the image's."""
    draw = random.Random(seed)
    sound = [*WHOLE.values(), encode(blocks(), "JPEG", exif=exif_block(6))]
    for _ in range(150):
        content = bytearray(draw.choice(sound))
        for _ in range(draw.choice((1, 2, 8))):
            at = draw.randrange(draw.choice((100, len(content))) % len(content) or 1)
            content[at : at + draw.choice((1, 1, 4))] = draw.choice(
                (b"\0", b"\xff", b"\x7f\xff\xff\xff", b"\0\1\0\0", b"")
            )
        try:
            image = decode_image(bytes(content), max_pixels=4_000_000)
        except ImageError:
            continue
        assert image_size(bytes(content)) == (image.height, image.width)
