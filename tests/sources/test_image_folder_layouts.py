from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import torch
from image_files import Net, class_folders, noise, quiet_trainer

from datamodules import ImageFolderDataModule


def small(root, **options):
    """Images of 8 x 8, everything in the main process."""
    return ImageFolderDataModule(root, **{"image_size": 8, "num_workers": 0, **options})


def labels(dataset):
    return [] if dataset is None else dataset.targets.tolist()


def names(dataset):
    return [] if dataset is None else [Path(path).name for path in dataset.sources]


@pytest.fixture(scope="module")
def twelve(tmp_path_factory):
    """Three classes of twelve images."""
    return class_folders(tmp_path_factory.mktemp("twelve"), {"a": 12, "b": 12, "c": 12})


def test_class_folders_are_cut_by_class(twelve):
    dm = small(twelve)
    # a tenth of 36 is 4: one of each class, and one more that is drawn
    for split in (dm.val_dataset, dm.test_dataset):
        assert sorted(np.bincount(labels(split)).tolist()) == [1, 1, 2]
    assert np.bincount(labels(dm.train_dataset)).tolist() == dm.class_counts
    assert sum(dm.class_counts) == 28


@pytest.mark.parametrize("written", ["{}", "{}/", "~/photos", "photos", "./photos/../photos"])
def test_root_in_any_spelling_gives_one_split(tmp_path, monkeypatch, written):
    class_folders(tmp_path / "photos", {"a": 10, "b": 10})
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    dm, other = small(written.format(tmp_path / "photos")), small(tmp_path / "photos")
    dm.setup()
    other.setup()
    assert dm.split_fingerprint() == other.split_fingerprint()
    monkeypatch.chdir("/")
    assert len(list(dm.train_dataloader())) == 1, "the working directory has no part in it"


def test_the_split_moves_with_the_folder_and_changes_with_the_files(tmp_path):
    class_folders(tmp_path / "here", {"a": 10, "b": 10})
    before = small(tmp_path / "here")
    before.setup()
    shutil.move(tmp_path / "here", tmp_path / "there")
    after = small(tmp_path / "there")
    after.setup()
    assert after.split_fingerprint() == before.split_fingerprint()
    noise(tmp_path / "there" / "a" / "new.png", 0)
    changed = small(tmp_path / "there")
    changed.setup()
    assert changed.split_fingerprint() != before.split_fingerprint()


@pytest.mark.parametrize("val", ["val", "valid", "validation", "Val"])
def test_parts_that_exist_are_kept(tmp_path, val):
    class_folders(tmp_path / "Train", {"a": 4, "b": 4})
    class_folders(tmp_path / val, {"a": 1, "b": 1})
    dm = small(tmp_path)
    assert [len(dm.train_dataset), len(dm.val_dataset)] == [8, 2]
    assert dm.test_dataset is None
    with pytest.raises(ValueError, match=r"no test samples; there is no test data and test_split"):
        dm.test_dataloader()


def test_a_missing_val_is_cut_out_of_train(tmp_path):
    class_folders(tmp_path / "train", {"a": 10, "b": 10})
    class_folders(tmp_path / "test", {"a": 3, "b": 3})
    dm = small(tmp_path)
    assert [len(dm.train_dataset), len(dm.val_dataset), len(dm.test_dataset)] == [18, 2, 6]
    assert not set(dm.val_dataset.sources) & set(dm.train_dataset.sources)
    assert all("test" in path for path in dm.test_dataset.sources)


def test_a_share_of_a_part_that_exists_is_refused(tmp_path):
    class_folders(tmp_path / "train", {"a": 10})
    class_folders(tmp_path / "val", {"a": 3})
    with pytest.raises(
        ValueError, match=r"val_split=0.2 was given, but the source has a val split"
    ):
        small(tmp_path, val_split=0.2).setup()
    assert len(small(tmp_path, val_split=0).val_dataset) == 3


def test_unlabelled_test_images_are_for_predicting(tmp_path):
    class_folders(tmp_path / "train", {"a": 10, "b": 10})
    class_folders(tmp_path / "val", {"a": 2, "b": 2})
    noise(tmp_path / "test" / "1.png", 0)
    dm = small(tmp_path, predict_path=tmp_path / "test")
    with pytest.warns(UserWarning, match="no class folders, so it is not the test split; to predi"):
        dm.setup()
    assert dm.test_dataset is None
    assert len(dm.predict_dataset) == 1


def test_several_roots_are_joined(tmp_path):
    class_folders(tmp_path / "one", {"a": 10, "b": 10})
    class_folders(tmp_path / "two", {"b": 10, "c": 10})
    dm = small([tmp_path / "one", str(tmp_path / "two")], val_split=0.1, test_split=0)
    assert dm.classes == ["a", "b", "c"]
    assert dm.class_counts == [9, 18, 9]
    with pytest.raises(ValueError, match="would be read twice; name one of them"):
        small([tmp_path / "one", f"{tmp_path}/two/../one"]).setup()
    class_folders(tmp_path / "three" / "train", {"a": 2})
    with pytest.raises(ValueError, match="one has no train/ while another root has"):
        small([tmp_path / "three", tmp_path / "one"]).setup()


def test_roots_with_parts_are_joined_part_by_part(tmp_path):
    for root in ("one", "two"):
        class_folders(tmp_path / root / "train", {"a": 3, "b": 3})
    class_folders(tmp_path / "two" / "val", {"a": 2})
    dm = small([tmp_path / "one", tmp_path / "two"])
    assert [len(dm.train_dataset), len(dm.val_dataset)] == [12, 2]


def test_given_classes_set_the_order(tmp_path):
    class_folders(tmp_path / "train", {"a": 2, "b": 3})
    class_folders(tmp_path / "val", {"a": 1, "c": 1})
    for given in ({"classes": ["c", "b", "a"]}, {"class_to_idx": {"a": 2, "b": 1, "c": 0}}):
        dm = small(tmp_path, **given)
        assert dm.classes == ["c", "b", "a"]
        assert dm.class_counts == [0, 3, 2]
        assert labels(dm.train_dataset) == [2, 2, 1, 1, 1]
        assert labels(dm.val_dataset) == [2, 0]


def test_an_unknown_class_is_an_error_or_dropped(tmp_path):
    class_folders(tmp_path / "train", {"ash": 2, "cedar": 2})
    class_folders(tmp_path / "val", {"ash": 1, "cedars": 2})
    message = r"disagree: 'cedars' is in val/ only \(did you mean 'cedar'\?\); add it to"
    with pytest.raises(ValueError, match=message):
        small(tmp_path).setup()
    dm = small(tmp_path, unknown_classes="drop")
    with pytest.warns(UserWarning, match="2 of 3 val samples dropped") as said:
        dm.setup()
    assert labels(dm.val_dataset) == [0]
    assert len(said) == 1
    assert names(dm.val_dataset) == ["0.png"]
    with pytest.raises(ValueError, match="the class list lacks 'cedar', found in train"):
        small(tmp_path, classes=["ash"]).setup()


@pytest.mark.parametrize("counts", [{"only": 20}, {"a": 1, "b": 1, "c": 1}])
def test_one_class_or_one_image_each(tmp_path, counts):
    root = class_folders(tmp_path / "data", counts)
    dm = small(root, val_split=2)
    if len(counts) > 1:
        with pytest.warns(UserWarning, match="one sample cannot be split and stays in train: 'a'"):
            dm.setup()
        assert dm.val_dataset is None
    assert dm.classes == list(counts)
    quiet_trainer(tmp_path).fit(Net(), dm)


def test_two_thousand_classes_of_one_image(tmp_path):
    source = noise(tmp_path / "x.png", 0)
    for i in range(2000):
        (tmp_path / "data" / f"c{i}").mkdir(parents=True)
        os.link(source, tmp_path / "data" / f"c{i}" / "x.png")
    dm = small(tmp_path / "data")
    with pytest.warns(UserWarning, match="and 1995 more"):
        dm.setup()
    assert dm.num_classes == 2000
    assert labels(dm.train_dataset) == list(range(2000))
    assert [Path(p).parent.name for p in dm.train_dataset.sources] == dm.classes


def test_classes_called_train_or_test_are_classes(tmp_path):
    for name, i in (("train", 0), ("test", 1), ("bus", 2)):
        for k in range(3):
            noise(tmp_path / name / f"{k}.png", 10 * i + k)
    dm = small(tmp_path, val_split=0, test_split=0)
    assert dm.classes == ["bus", "test", "train"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_strange_names_are_carried_through(tmp_path):
    one, two = unicodedata.normalize("NFC", "café"), unicodedata.normalize("NFD", "café")
    files = ["a\nb.png", os.fsdecode(b"\xff\xfe.png"), f"{one}.png", f"{two}.png", " .png"]
    for name in (one, two, os.fsdecode(b"\xe9t\xe9"), "new\nline"):
        for i, file in enumerate(files):
            noise(tmp_path / "x.png", i)
            (tmp_path / "data" / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / "x.png").rename(tmp_path / "data" / name / file)
    dm = small(tmp_path / "data", val_split=0, test_split=0, predict_path=tmp_path / "data")
    assert dm.classes == sorted([one, two, os.fsdecode(b"\xe9t\xe9"), "new\nline"])
    assert sorted(Path(p).name for p in dm.predict_keys) == sorted(4 * files)
    assert len(torch.cat(list(dm.predict_dataloader()))) == 20
    assert sum(len(batch.target) for batch in dm.train_dataloader()) == 20
    trainer = quiet_trainer(tmp_path)
    trainer.fit(Net(), dm)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    loaded = ImageFolderDataModule.load_from_checkpoint(tmp_path / "x.ckpt")
    assert loaded.classes == dm.classes
