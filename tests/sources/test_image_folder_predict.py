from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from image_files import Net, class_folders, noise, quiet_trainer, solid
from PIL import Image
from torchvision.transforms import v2

from datamodules import ImageFolderDataModule


def small(root, **options):
    """Images of 8 x 8, everything in the main process."""
    return ImageFolderDataModule(root, **{"image_size": 8, "num_workers": 0, **options})


def labels(dataset):
    return [] if dataset is None else dataset.targets.tolist()


@pytest.fixture(scope="module")
def twelve(tmp_path_factory):
    """Three classes of twelve images."""
    return class_folders(tmp_path_factory.mktemp("twelve"), {"a": 12, "b": 12, "c": 12})


@pytest.mark.parametrize("batch_size", [1, 3, 7])
@pytest.mark.parametrize("workers", [0, 2])
def test_h15_each_file_is_predicted_once_in_order(tmp_path, batch_size, workers):
    root = class_folders(tmp_path / "data", {"x": 3, "y": 3})
    for i in range(7):
        solid(tmp_path / "flat" / f"p{i}.png", (30 * i,) * 3)
    dm = small(root, val_split=0, test_split=0)
    trainer = quiet_trainer(tmp_path)
    trainer.fit(Net(), dm)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    shutil.rmtree(root)
    loaded = ImageFolderDataModule.load_from_checkpoint(
        tmp_path / "x.ckpt",
        predict_path=str(tmp_path / "flat"),
        eval_batch_size=batch_size,
        num_workers=workers,
        image_options={"mean": [0.0] * 3, "std": [1.0] * 3},
    )
    assert loaded.classes == ["x", "y"]
    greys = quiet_trainer(tmp_path).predict(Greys(), loaded)
    assert loaded.predict_keys == [str(tmp_path / "flat" / f"p{i}.png") for i in range(7)]
    assert [grey for batch in greys for grey in batch] == [30 * i for i in range(7)]


class Greys(Net):
    def configure_model(self):
        pass

    def forward(self, image):
        return (image[:, 0, 0, 0] * 255).round().int().tolist()


@pytest.fixture
def trained(tmp_path):
    """A checkpoint of classes a and c, whose data are then gone."""
    root = class_folders(tmp_path / "data", {"a": 10, "c": 10})
    dm, trainer = small(Path(root), classes=["c", "a"]), quiet_trainer(tmp_path)
    trainer.fit(Net(), dm)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    shutil.rmtree(root)
    return tmp_path / "x.ckpt"


def test_a_checkpoint_loads_with_weights_only_and_predicts_alone(trained, tmp_path):
    state = torch.load(trained, weights_only=True)["ImageFolderDataModule"]
    assert state["fitted"]["classes"] == ["c", "a"]
    flat = class_folders(tmp_path / "new", {".": 3})
    dm = ImageFolderDataModule.load_from_checkpoint(trained, predict_path=flat)
    assert dm.hparams["image_size"] == 8
    assert dm.classes == ["c", "a"]
    assert dm.class_counts == [9 - 1, 9 - 1]
    assert sum(map(len, quiet_trainer(tmp_path).predict(Greys(), dm))) == 3
    with pytest.raises(FileNotFoundError, match="data' does not exist"):
        dm.setup("test")


def test_new_test_images_are_measured_under_the_old_class_list(trained, tmp_path):
    class_folders(tmp_path / "new" / "test", {"a": 2, "c": 1})
    dm = ImageFolderDataModule.load_from_checkpoint(trained, root=str(tmp_path / "new"))
    assert labels(dm.test_dataset) == [1, 1, 0]
    assert dm.train_dataset is None
    assert dm.class_counts == [8, 8], "fitted at fit time"
    class_folders(tmp_path / "bare", {"a": 2, "c": 1})
    options = {"root": str(tmp_path / "bare"), "val_split": 0, "test_split": 1.0}
    bare = ImageFolderDataModule.load_from_checkpoint(trained, **options)
    assert labels(bare.test_dataset) == [1, 1, 0], "all that there is"
    class_folders(tmp_path / "new" / "test", {"b": 1})
    strange = ImageFolderDataModule.load_from_checkpoint(trained, root=str(tmp_path / "new"))
    with pytest.raises(ValueError, match="'b' is in test/ only"):
        strange.test_dataloader()


def test_a_transform_of_ones_own_has_to_be_given_again(tmp_path):
    root = class_folders(tmp_path / "data", {"a": 5, "b": 5})
    dm, trainer = small(root), quiet_trainer(tmp_path)
    dm.eval_transform = v2.Resize((8, 8))
    trainer.fit(Net(), dm)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    loaded = ImageFolderDataModule.load_from_checkpoint(tmp_path / "x.ckpt", predict_path=root)
    with pytest.raises(
        ValueError, match=r"your own eval_transform=<Resize>, .* pass eval_transfor"
    ):
        loaded.predict_dataloader()
    loaded.eval_transform = v2.Resize((8, 8))
    assert len(torch.cat(list(loaded.predict_dataloader()))) == 10


def test_what_is_predicted_may_be_replaced(twelve, tmp_path):
    dm = small(None, predict_path=twelve / "a")
    assert len(dm.predict_keys) == 12
    dm.predict_path = noise(tmp_path / "x.png", 0)
    dm.setup("predict")
    assert dm.predict_keys == [str(tmp_path / "x.png")]
    image = Image.new("RGB", (5, 5))
    dm.predict_path = [
        image,
        np.zeros((9, 9, 3), np.uint8),
        torch.zeros(3, 4, 4, dtype=torch.uint8),
    ]
    assert dm.predict_keys == ["image 0", "image 1", "image 2"]
    assert dm.preview("predict").shape == (3, 3, 8, 8)
    dm.predict_path = None
    with pytest.raises(ValueError, match="pass predict_path="):
        dm.predict_dataloader()


def test_rows_come_with_predictions_on_request(twelve):
    dm = small(None, predict_path=twelve, with_rows=True, eval_batch_size=5)
    rows = torch.cat([batch.rows for batch in dm.predict_dataloader()])
    assert rows.tolist() == list(range(36))


def test_an_empty_sequential_is_a_transform_and_no_preset(tmp_path):
    noise(tmp_path / "a" / "1.png", 0, size=(30, 20))
    nothing = torch.nn.Sequential()
    dm = small(tmp_path, val_split=0, test_split=0, train_transform=nothing)
    assert dm.train_transform is nothing
    assert dm.preview("train").inputs.shape == (1, 3, 20, 30)
