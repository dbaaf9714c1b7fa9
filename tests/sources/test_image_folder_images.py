from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from image_files import class_folders, noise
from PIL import Image
from torchvision import transforms as v1
from torchvision.transforms import v2

from datamodules import ImageFolderDataModule
from datamodules.batches.normalize import IMAGENET_MEAN, IMAGENET_STD

PLAIN = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])


def small(root, **options):
    """Images of 8 x 8, everything in the main process."""
    return ImageFolderDataModule(root, **{"image_size": 8, "num_workers": 0, **options})


@pytest.fixture(scope="module")
def twelve(tmp_path_factory):
    """Three classes of twelve images."""
    return class_folders(tmp_path_factory.mktemp("twelve"), {"a": 12, "b": 12, "c": 12})


def test_batches_are_normalised_float32(twelve):
    dm = small(twelve, eval_transform=v2.Identity(), val_split=4, test_split=0)
    [batch] = list(dm.val_dataloader())
    assert batch.inputs.shape == (4, 3, 8, 8)
    assert batch.inputs.dtype == torch.float32
    assert batch.target.dtype == torch.int64
    for row, path in zip(batch.inputs, dm.val_dataset.sources, strict=True):
        with Image.open(path) as image:
            expected = v1.Normalize(IMAGENET_MEAN, IMAGENET_STD)(v1.ToTensor()(image))
        assert torch.equal(row, expected)


def test_grey_mode_gives_one_channel(twelve):
    dm = small(
        twelve, mode="L", image_options={"mean": [0.0], "std": [1.0]}, eval_transform=v2.Identity()
    )
    assert dm.input_sizes == {"input_shape": [1, 8, 8]}
    for split in ("train", "val"):
        assert dm.preview(split).inputs.shape[1:] == (1, 8, 8)
    with Image.open(dm.val_dataset.sources[0]) as image:
        assert torch.equal(dm.preview("val").inputs[0], v1.ToTensor()(image.convert("L")))
    with pytest.raises(ValueError, match="mode='L' needs 1 values of mean and std"):
        small(twelve, mode="L", image_options={"mean": [0.5] * 3, "std": [1.0] * 3})


def test_orientation_is_applied_in_every_split(tmp_path):
    upright = np.zeros((4, 8, 3), np.uint8)
    upright[:, :4] = 255
    exif = Image.Exif()
    exif[0x0112] = 6
    for split in ("train", "val"):
        (tmp_path / split / "a").mkdir(parents=True)
        turned = Image.fromarray(np.ascontiguousarray(np.rot90(upright)))
        turned.save(tmp_path / split / "a" / "x.png", exif=exif)
    dm = small(tmp_path, train_transform=PLAIN, eval_transform=PLAIN)
    for split in ("train", "val"):
        image = dm.preview(split).inputs[0]
        assert torch.equal(image, torch.from_numpy(upright).permute(2, 0, 1) / 255)


def double(image):
    return image.resize((4, 4)), image.resize((4, 4))


@pytest.mark.parametrize(
    ("transform", "finished"),
    [
        (v1.Compose([v1.RandomResizedCrop(4), v1.RandomHorizontalFlip()]), False),
        (v2.Compose([v2.Resize((4, 4)), v2.PILToTensor()]), False),
        (lambda image: image.resize((4, 4)), False),
        (lambda image: np.asarray(image.resize((4, 4))), False),
        (v1.Compose([v1.Resize((4, 4)), v1.ToTensor()]), True),
        (v2.Compose([v2.Resize((4, 4)), PLAIN]), True),
        (lambda tensor: tensor[:, :4, :4].float() / 255, True),
        (lambda image: np.asarray(image.resize((4, 4))) / 255, True),
    ],
    ids=["v1 PIL", "v2 uint8", "PIL", "NumPy", "v1 float", "v2 float", "tensors", "NumPy float"],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_users_own_transform_of_any_kind(twelve, transform, finished, workers):
    dm = small(
        twelve,
        train_transform=transform,
        eval_transform=transform,
        num_workers=workers,
        image_options={"mean": [0.0] * 3, "std": [0.5] * 3},
        loader_options={"persistent_workers": False},
    )
    for split in ("train", "val"):
        batch = next(iter(getattr(dm, f"{split}_dataloader")()))
        assert batch.inputs.dtype == torch.float32
        assert batch.inputs.shape[1:] == (3, 4, 4)
        # left alone in 0..1, or divided by std = 0.5
        assert batch.inputs.min() >= 0
        assert (batch.inputs.max() <= 1) == finished


def test_two_views_are_both_finished(twelve):
    dm = small(twelve, train_transform=double, predict_path=twelve, eval_transform=double)
    batch = dm.preview("train")
    assert [view.dtype for view in batch.inputs] == [torch.float32] * 2
    assert [view.shape for view in batch.inputs] == [(28, 3, 4, 4)] * 2
    assert [view.shape for view in dm.preview("predict")] == [(32, 3, 4, 4)] * 2


def test_images_of_several_sizes_say_what_to_do(tmp_path):
    noise(tmp_path / "a" / "1.png", 0, size=(8, 8))
    noise(tmp_path / "a" / "2.png", 0, size=(9, 8))
    dm = small(tmp_path, val_split=0, test_split=0, train_transform=v2.Identity())
    with pytest.raises(RuntimeError, match=r"1.png.*return one size and dtype in the transform"):
        list(dm.train_dataloader())


def test_real_photos_in_three_parts_are_read(data_dir):
    dm = small(data_dir / "images" / "clothing", image_size=32, eval_batch_size=8)
    assert len(dm.classes) == 10
    assert "t-shirt" in dm.classes
    held = {
        s: {Path(p).parts[-3] for p in getattr(dm, f"{s}_dataset").sources}
        for s in ("train", "val", "test")
    }
    assert held == {"train": {"train"}, "val": {"validation"}, "test": {"test"}}
    assert next(iter(dm.val_dataloader())).inputs.shape == (8, 3, 32, 32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "RGBA"}, "unknown mode 'RGBA'; .*known: RGB, L"),
        ({"unknown_classes": "skip"}, "unknown unknown_classes 'skip'; known: raise, drop"),
        ({"image_size": 0}, "image_size must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be a whole number, at least 1, got 0"),
        ({"eval_batch_size": 0}, "batch_size must be a whole number, at least 1, got 0"),
        ({"val_split": 0.7, "test_split": 0.5}, "fractions must sum to at most 1, got val=0.7"),
        ({"val_split": 1.5}, "val_split=1.5 is a float and so a fraction"),
        ({"image_options": {"std": [0.0, 1.0, 1.0]}}, "std > 0"),
        ({"image_options": {"mean": []}}, "one value per channel"),
        ({"classes": ["a", "a"]}, "a name twice"),
        (
            {"image_options": {"mean": [123.0, 117.0, 104.0]}},
            "on the scale 0 to 1, .*; divide by 255",
        ),
    ],
)
def test_impossible_options_are_refused_when_built(options, message):
    with pytest.raises(ValueError, match=message):
        ImageFolderDataModule("anywhere", **options)


def test_more_samples_asked_for_than_there_are(twelve):
    with pytest.raises(
        ValueError, match=r"val_split and test_split take 30 \+ 10 samples, there are 36"
    ):
        small(twelve, val_split=30, test_split=10).setup()
    with pytest.raises(ValueError, match="val and test take all images; lower val_split"):
        small(twelve, val_split=0.5, test_split=0.5).setup()


def test_wrong_roots_say_what_was_found(tmp_path):
    class_folders(tmp_path / "photos", {"a": 1})
    with pytest.raises(
        FileNotFoundError, match=r"'.*fotos' does not exist; .* 1 folder \(photos\)"
    ):
        small(tmp_path / "fotos").setup()
    with pytest.raises(ValueError, match=r"one folder for each class; it contains 1 file \(0"):
        small(tmp_path / "photos" / "a").setup()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="must hold one folder for each class; it is empty"):
        small(tmp_path / "empty").setup()
    with pytest.raises(ValueError, match="pass root=, the folder of the images"):
        small(None).setup()
    with pytest.raises(NotADirectoryError, match=r"0.png' is a file"):
        small(tmp_path / "photos" / "a" / "0.png").setup()
    with pytest.raises(TypeError, match="bytes"):
        small(os.fsencode(tmp_path)).setup()


def test_a_val_folder_without_images_is_not_passed_over(tmp_path):
    class_folders(tmp_path / "train", {"a": 5})
    class_folders(tmp_path / "val", {"a": 0})
    with pytest.raises(ValueError, match=r"class folders of .*val hold no images"):
        small(tmp_path).setup()


def test_a_damaged_image_is_named(tmp_path):
    class_folders(tmp_path, {"a": 3})
    (tmp_path / "a" / "bad.png").write_text("<html>")
    dm = small(tmp_path, val_split=0, test_split=0)
    with pytest.raises(RuntimeError, match=r"bad\.png"):
        list(dm.train_dataloader())
