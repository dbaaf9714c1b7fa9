from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from image_files import class_folders, noise
from PIL import Image
from script_runs import as_if_alone  # noqa: F401
from torchvision.transforms import v2

import channel_statistics as script
from datamodules import ImageFolderDataModule
from datamodules.images.channel_stats import channel_statistics


def folder(root, **options):
    options = {"image_size": 8, "num_workers": 0, "val_split": 4, "test_split": 0, **options}
    return ImageFolderDataModule(root, **options)


@pytest.fixture
def root(tmp_path):
    return class_folders(tmp_path / "p", {"ash": 10, "birch": 10})


def by_hand(dm):
    levels = torch.stack([dm.eval_transform_row(path) for path in dm._images.paths["train"]])
    return levels.double().mean((0, 2, 3)) / 255, levels.double().std((0, 2, 3), correction=0) / 255


class Folder(ImageFolderDataModule):
    def eval_transform_row(self, path):
        image = Image.open(path).convert("RGB").resize((8, 8))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def test_mean_and_deviation_are_those_of_all_train_pixels(root):
    dm = Folder(
        root,
        image_size=8,
        val_split=4,
        test_split=0,
        num_workers=0,
        image_options={"normalize": "train"},
    )
    dm.setup()
    mean, std = by_hand(dm)
    assert dm.fitted["mean"] == pytest.approx(mean.tolist(), abs=1e-12)
    assert dm.fitted["std"] == pytest.approx(std.tolist(), abs=1e-12)
    batch = torch.cat([batch.inputs for batch in dm.batches("train")])
    assert batch.dtype == torch.float32
    plain = folder(root, image_options={"normalize": "train"}, train_transform=v2.Resize((8, 8)))
    whole = torch.cat([batch.inputs for batch in plain.batches("train")])
    assert whole.mean((0, 2, 3)).tolist() == pytest.approx([0, 0, 0], abs=1e-5)
    assert whole.std((0, 2, 3), correction=0).tolist() == pytest.approx([1, 1, 1], abs=1e-5)


def test_evaluation_rows_have_no_part_in_it(root):
    before = folder(root, image_options={"normalize": "train"})
    before.setup()
    for path in before._images.paths["val"]:
        noise(Path(path), 99)
    after = folder(root, image_options={"normalize": "train"})
    after.setup()
    assert after.fitted["mean"] == before.fitted["mean"]
    assert after.fitted["std"] == before.fitted["std"]


def test_a_checkpoint_brings_them_back(root, tmp_path):
    dm = folder(root, image_options={"normalize": "train"})
    dm.setup()
    torch.save(dm.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    new = folder(root, image_options={"normalize": "train"}, predict_path=str(root / "ash"))
    new.load_state_dict(state)
    assert new.normalizer.mean == dm.normalizer.mean == tuple(dm.fitted["mean"])
    assert new.normalizer.std == tuple(dm.fitted["std"])
    assert torch.isfinite(new.preview("predict")).all()


def test_at_most_so_many_images_are_read_evenly_spaced():
    read = []

    class Images:
        def __len__(self):
            return 10

        def __getitem__(self, index):
            read.append(index)
            return torch.tensor([[[index, 2 * index]]], dtype=torch.uint8)

    (mean,), _ = channel_statistics(Images(), most=4)
    assert read == [0, 2, 5, 7]
    assert mean == pytest.approx((0 + 2 + 5 + 7) * 3 / 8 / 255)


def test_files_that_cannot_be_read_are_named_or_left_out(root):
    path = sorted((root / "ash").iterdir())[0]
    path.write_bytes(b"\x89PNG")
    options = {"image_options": {"normalize": "train"}, "val_split": 0}
    with pytest.raises(ValueError, match=path.name):
        folder(root, **options).setup()
    dm = folder(root, on_error="skip", **options)
    dm.setup()
    assert 0.3 < min(dm.fitted["mean"]) < 0.7


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"image_options": {"normalize": "val"}}, "normalize"),
        ({"image_options": {"normalize": "train", "mean": [0.5] * 3}}, "remove mean and std"),
        (
            {
                "image_options": {"normalize": "train"},
                "eval_transform": v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]),
            },
            "normalized already",
        ),
    ],
)
def test_what_cannot_be_normalised_is_refused(root, options, said):
    with pytest.raises(ValueError, match=said):
        folder(root, **options).setup()


@pytest.mark.parametrize(
    ("images", "said"),
    [
        ([torch.zeros(3, 2, 2, dtype=torch.uint8)], "constant"),
        ([torch.zeros(c, 2, 2, dtype=torch.uint8) for c in (1, 3)], "1 and 3 channels"),
        (["a text"], "str images"),
    ],
)
def test_images_without_statistics_are_refused(images, said):
    with pytest.raises(ValueError, match=said):
        channel_statistics(images)


def test_the_script_prints_flags_with_the_fitted_statistics(root, capsys):
    given = ["--data=ImageFolderDataModule", f"--data.root={root}", "--data.image_size=8"]
    given += ["--data.val_split=4", "--data.test_split=0", "--data.num_workers=0"]
    assert script.main(given) == 0
    out = capsys.readouterr().out
    dm = folder(root, image_options={"normalize": "train"})
    dm.setup()
    values = ", ".join(f"{value:.4f}" for value in dm.fitted["mean"])
    assert f"use: --data.image_options.mean '[{values}]'" in out
    assert script.main(["--data", "wine"]) == 2
    assert "not images" in capsys.readouterr().err
