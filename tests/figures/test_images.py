from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as T

from datamodules import ImageFolderDataModule
from datamodules.figures.images import viewable
from datamodules.images.transform_steps import normalization_of
from datamodules.insight.figures import draw_augmentation, draw_sizes
from datamodules.insight.split_view import SplitView

HALF = [0.5, 0.5, 0.5]


@pytest.fixture
def folder(tmp_path):
    draws = np.random.default_rng(0)
    for name in ("ash", "a very long name of a class that goes on", "<b>&\"'"):
        (tmp_path / name).mkdir()
        for k in range(12):
            pixels = draws.integers(0, 256, (20 + k, 30, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{k}.png")
    return tmp_path


def split_of(dm, split="train"):
    return SplitView(split, getattr(dm, f"{split}_dataset"), None, dm.preview(split))


def cells(drawing):
    return [np.asarray(axes.images[0].get_array()) for axes in drawing.figure.axes]


def test_a_row_holds_the_original_and_the_draws_of_each_epoch(folder):
    dm = ImageFolderDataModule(folder, image_size=16, num_workers=0, seed=3)
    one = split_of(dm)
    grid = draw_augmentation(dm, one, samples=2, draws=3)
    shown = cells(grid)
    assert len(shown) == 2 * 4
    first = int(np.unique(one.labels(), return_index=True)[1][0])
    raw = np.asarray(Image.open(one.describe(first)))
    assert np.allclose(shown[0], raw / 255, atol=1e-6)
    # what epoch 1 of a fit gives the same sample
    loader = dm.train_dataloader()
    loader.sampler.set_epoch(1)
    for keys, batch in zip(list(loader.batch_sampler), loader, strict=True):
        if first in keys.indices.tolist():
            image = batch.inputs[keys.indices.tolist().index(first)]
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (dm.normalizer.mean, dm.normalizer.std))
    assert np.allclose(shown[2], (image * std + mean).permute(1, 2, 0).numpy(), atol=1e-5)
    assert "the transform is random" in grid.text


def test_a_fixed_transform_is_reported_as_fixed(folder):
    dm = ImageFolderDataModule(folder, image_size=16, num_workers=0)
    grid = draw_augmentation(dm, split_of(dm, "val"), samples=3, draws=2)
    assert "the transform is not random" in grid.text
    assert grid.png().startswith(b"\x89PNG")


def test_a_users_normalization_is_undone(folder):
    steps = T.Compose([T.Resize((8, 8)), T.ToTensor(), T.Normalize(HALF, HALF)])
    dm = ImageFolderDataModule(folder, num_workers=0, train_transform=steps, eval_transform=steps)
    one = split_of(dm)
    scale = normalization_of(one.transform)
    assert torch.equal(scale[0], torch.tensor(HALF))
    shown = cells(draw_augmentation(dm, one, samples=1, draws=1))[1]
    index = int(np.unique(one.labels(), return_index=True)[1][0])
    own = (one.dataset[index][0] * 0.5 + 0.5).permute(1, 2, 0).numpy()
    assert np.allclose(shown, own, atol=1e-5)
    drawn = dm.plot(one.split, most=1).axes[0].images[0].get_array()
    assert np.allclose(drawn, (one.inputs[0] * 0.5 + 0.5).permute(1, 2, 0).numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("images", "top"),
    [
        (torch.full((1, 3, 2, 2), 51, dtype=torch.uint8), 0.2),
        (torch.full((1, 3, 2, 2), 0.2), 0.2),
        (torch.tensor([0.0, 51, 102, 255]).view(1, 1, 2, 2), 1.0),
        (torch.tensor([-4.0, -3, 0, 4]).view(1, 1, 2, 2), 1.0),
        (torch.full((1, 4, 2, 2), 0.2), 0.2),
        (torch.tensor([torch.nan, 0, 0.5, 1]).view(1, 1, 2, 2), 1.0),
    ],
    ids=["uint8", "float", "of 255", "stretched", "four channels", "not a number"],
)
def test_any_image_can_be_seen(images, top):
    shown = viewable(images, None)
    assert shown.shape == (1, 2, 2, 3)
    assert shown.max() == pytest.approx(top)
    assert np.isfinite(shown).all()


def test_sizes_are_those_of_the_files_turned_as_they_are_shown(folder):
    turned = Image.new("RGB", (40, 10))
    exif = Image.Exif()
    exif[0x0112] = 6
    turned.save(folder / "ash" / "turned.jpg", exif=exif)
    (folder / "ash" / "cut.png").write_bytes(b"no image")
    dm = ImageFolderDataModule(
        folder, image_size=16, num_workers=0, val_split=0.0, test_split=0.0, on_error="skip"
    )
    drawing = draw_sizes({"train": SplitView("train", dm.train_dataset)})
    assert drawing.text.startswith("widths from 10 to 30, heights from 20 to 40")
    assert draw_sizes({}) is None
