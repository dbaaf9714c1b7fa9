from __future__ import annotations

from pathlib import Path

import pytest
from contract import check_datamodule
from image_files import class_folders

from datamodules import ImageFolderDataModule


def small(root, **options):
    return ImageFolderDataModule(root, **{"image_size": 8, "num_workers": 0, **options})


def folders(dm, split):
    """Folders that the images of a split are in, relative to the folder of all of them."""
    data = getattr(dm, f"{split}_dataset")
    return set() if data is None else {Path(path).parts[-3] for path in data.sources}


@pytest.fixture
def three(tmp_path):
    """Class folders of photos, and of validation and test images elsewhere."""
    for name, count in (("photos", 12), ("dev", 4), ("held", 3)):
        class_folders(tmp_path / name, {"a": count, "b": count})
    return tmp_path


def test_val_and_test_folders_elsewhere_keep_their_images(three):
    dm = small(three / "photos", val_path=three / "dev", test_path=str(three / "held"))
    assert {split: folders(dm, split) for split in ("train", "val", "test")} == {
        "train": {"photos"},
        "val": {"dev"},
        "test": {"held"},
    }
    assert [len(d) for d in (dm.train_dataset, dm.val_dataset, dm.test_dataset)] == [24, 8, 6]


def test_validation_is_split_from_train_if_only_test_images_are_elsewhere(three):
    dm = small(three / "photos", test_path=three / "held", val_split=4)
    assert folders(dm, "val") == {"photos"}
    assert [len(d) for d in (dm.train_dataset, dm.val_dataset, dm.test_dataset)] == [20, 4, 6]


def test_a_folder_elsewhere_is_used_in_place_of_the_one_below_root(three):
    for split in ("train", "val", "test"):
        class_folders(three / "split" / split, {"a": 5, "b": 5})
    dm = small(three / "split", val_path=three / "dev")
    assert {split: folders(dm, split) for split in ("train", "val", "test")} == {
        "train": {"train"},
        "val": {"dev"},
        "test": {"test"},
    }


def test_folders_elsewhere_pass_the_contract(three):
    paths = {"val_path": three / "dev", "test_path": three / "held"}
    check_datamodule(lambda **options: small(three / "photos", **paths, **options))


def test_a_group_in_two_folders_is_refused(three):
    options = {"val_path": three / "dev", "split_options": {"group": r"/(\d+)\."}}
    with pytest.raises(ValueError, match="group"):
        small(three / "photos", **options).setup()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"val_split": 0.1}, ValueError, "val_split=0.1 was given"),
        ({"val_path": "nowhere"}, FileNotFoundError, "'nowhere' does not exist"),
        ({"table": "t.csv"}, ValueError, r"val_path takes class folders.* split_options=\{"),
    ],
)
def test_val_path_that_does_not_fit_is_refused(three, options, error, message):
    with pytest.raises(error, match=message):
        small(three / "photos", **{"val_path": three / "dev", **options}).setup()
