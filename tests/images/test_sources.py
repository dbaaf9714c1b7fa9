from __future__ import annotations

import numpy as np
import pytest
import torch
from made_images import blocks, encode, exif_block
from PIL import Image

from datamodules import ImageFolderDataModule
from datamodules.images.decode.decode import decode_image
from datamodules.images.sources import DraftImages
from datamodules.images.transforms import eval_preset


def photo(width, height):
    """Smooth shapes under a grain, as a camera gives them."""
    draws = np.random.default_rng(0)
    coarse = Image.fromarray(draws.integers(0, 256, (12, 16, 3), np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), np.int16)
    noisy = (smooth + draws.normal(0, 9, smooth.shape)).clip(0, 255).astype(np.uint8)
    return encode(Image.fromarray(noisy), "JPEG", quality=90, subsampling=2)


@pytest.mark.parametrize(
    ("size", "least_side", "expected"),
    [
        ((800, 600), None, (800, 600)),
        ((800, 600), 601, (800, 600)),
        ((800, 600), 301, (800, 600)),
        ((800, 600), 300, (400, 300)),
        ((800, 600), 100, (200, 150)),
        ((800, 600), 1, (100, 75)),
        ((803, 601), 100, (201, 151)),
    ],
)
def test_a_jpeg_keeps_the_least_side(size, least_side, expected):
    image = decode_image(encode(blocks(*size), "JPEG"), least_side=least_side)
    assert image.size == expected


def test_other_formats_keep_their_size_and_orientation_is_applied():
    assert decode_image(encode(blocks(800, 600), "PNG"), least_side=10).size == (800, 600)
    turned = encode(blocks(800, 600), "JPEG", exif=exif_block(6))
    assert decode_image(turned, least_side=300).size == (300, 400)
    grey = decode_image(encode(blocks(800, 600).convert("L"), "JPEG"), mode="L", least_side=300)
    assert (grey.mode, grey.size) == ("L", (400, 300))


def test_the_change_of_pixels_is_of_the_stated_size(tmp_path):
    (tmp_path / "photo.jpg").write_bytes(photo(2000, 1500))
    view = eval_preset(224)
    whole = np.asarray(view(decode_image(tmp_path / "photo.jpg")), np.float64)
    drafted = DraftImages([str(tmp_path / "photo.jpg")], 224, mode="RGB")[0]
    assert drafted.shape == (750, 1000, 3)
    change = np.abs(np.asarray(view(Image.fromarray(drafted)), np.float64) - whole)
    assert 0.1 < change.mean() < 0.3  # the docstring says 0.2
    assert change.max() <= 8


def test_it_is_off_unless_asked_for_and_says_that_it_changes_pixels(tmp_path):
    for k in range(8):
        path = tmp_path / "ab"[k % 2] / f"{k}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encode(blocks(160 + k, 120), "JPEG"))
    made = {}
    for draft in (False, True):
        dm = ImageFolderDataModule(
            tmp_path, image_size=30, image_options={"draft": draft}, val_split=0.25, test_split=0,
            num_workers=0, batch_size=4, seed=0, predict_path=str(tmp_path / "a"),
        )  # fmt: skip
        made[draft] = [dm.preview("train").inputs, dm.preview("val").inputs, dm.preview("predict")]
        prints = dm._functions().named(dm)["draft"]
        assert prints is draft
        assert ("changes pixels" in str(dm)) == draft
    for whole, drafted in zip(made[False], made[True], strict=True):
        assert whole.shape == drafted.shape
        assert not torch.equal(whole, drafted)
    cached = ImageFolderDataModule(
        tmp_path, image_size=30, val_split=0.25, test_split=0, num_workers=0, batch_size=4, seed=0,
        image_options={"draft": True, "cache": "ram", "cache_bytes": 1 << 20},
    )  # fmt: skip
    for _ in range(2):
        assert torch.equal(cached.preview("val").inputs, made[True][1])
    # 80 x 60 in place of 160 x 120
    assert cached._ram_cache.used < len(cached.val_dataset) * 84 * 60 * 3 + 1000


def test_what_it_cannot_do_is_refused():
    with pytest.raises(ValueError, match="draft must be True or False, got 2"):
        ImageFolderDataModule("x", image_options={"draft": 2})
    with pytest.raises(ValueError, match="a pack is decoded at the size it was made for"):
        ImageFolderDataModule("x", image_options={"draft": True, "pack": "y"})
