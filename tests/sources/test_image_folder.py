from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from contract import check_datamodule, same
from image_files import HUES, Net, class_folders, noise, quiet_trainer, solid
from PIL import Image
from torchmetrics.classification import MulticlassAccuracy
from torchvision.transforms import v2
from warm_start import run_warm

from datamodules import ImageFolderDataModule

HELPERS = Path(__file__).parents[1] / "helpers"


CONTEXTS = ("fork", "forkserver", "spawn")


PLAIN = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])


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


@pytest.mark.runs
def test_class_folders_pass_the_contract_with_any_workers(twelve):
    check_datamodule(
        lambda **options: ImageFolderDataModule(twelve, image_size=8, **options), contexts=CONTEXTS
    )


def test_split_folders_pass_the_contract(tmp_path):
    for split, count in (("train", 6), ("val", 3), ("test", 2)):
        class_folders(tmp_path / split, {"a": count, "b": count})
    check_datamodule(lambda **o: ImageFolderDataModule(tmp_path, image_size=8, **o))


def test_eight_cores_pass_the_contract_and_no_advice_escapes(twelve, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    check_datamodule(lambda **o: ImageFolderDataModule(twelve, image_size=8, **o), contexts=())
    dm = ImageFolderDataModule(twelve, image_size=8, batch_size=8, predict_path=twelve)
    trainer, net = quiet_trainer(tmp_path), Net()
    trainer.fit(net, dm)
    trainer.test(net, dm, verbose=False)
    trainer.predict(net, dm)


class ByColour(Net):
    """Answers with the class whose train images have the nearest mean colour."""

    def learn(self, dm):
        sums = torch.zeros(dm.num_classes, 3)
        for image, target in dm.train_dataloader():
            sums.index_add_(0, target, image.mean((2, 3)))
        self.colours = sums / torch.tensor(dm.class_counts)[:, None]

    def configure_model(self):
        self.accuracy = MulticlassAccuracy(len(self.colours), average="micro")

    def forward(self, image):
        return -torch.cdist(image.mean((2, 3)), self.colours)


@pytest.mark.parametrize("folder", ["empty", "absent"])
def test_h01_a_class_without_validation_images_moves_no_label(tmp_path, folder):
    for name, colour in HUES.items():
        for i in range(3):
            solid(tmp_path / "train" / name / f"{name}_{i}.png", colour)
        for i in range(2 if name != "birch" else 0):
            solid(tmp_path / "val" / name / f"v_{name}_{i}.png", colour)
    if folder == "empty":
        (tmp_path / "val" / "birch").mkdir()
        (tmp_path / "val" / "birch" / ".keep").write_text("")
    dm = small(tmp_path)
    dm.setup()
    assert dm.num_classes == 4
    assert dm.class_to_idx == {"ash": 0, "birch": 1, "cedar": 2, "damson": 3}
    for dataset in (dm.train_dataset, dm.val_dataset):
        for path, label in zip(dataset.sources, labels(dataset), strict=True):
            assert Path(path).parent.name == dm.classes[label]
    assert np.bincount(labels(dm.val_dataset), minlength=4).tolist() == [2, 0, 2, 2]
    net = ByColour()
    net.learn(dm)
    [figures] = quiet_trainer(tmp_path).validate(net, dm, verbose=False)
    assert figures["accuracy"] == 1.0


def test_h01_a_class_empty_in_train_is_an_error_that_names_it(tmp_path):
    class_folders(tmp_path / "train", {"ash": 2, "birch": 0})
    class_folders(tmp_path / "val", {"ash": 1})
    with pytest.raises(ValueError, match="class 'birch' has no sample in train; add some"):
        small(tmp_path).setup()
    noise(tmp_path / "val" / "birch" / "1.png", 0)
    with pytest.raises(ValueError, match="'birch' is in val/ only; add it to train/ or pass"):
        small(tmp_path).setup()


def test_h02_clutter_is_neither_class_nor_sample(cases_dir):
    dm = small(cases_dir / "folders_clutter", val_split=0, test_split=0)
    assert dm.classes == ["ash", "birch"]
    assert names(dm.train_dataset) == [*(f"{i}.png" for i in (0, 1, 2, 0, 1, 2)), "3.PNG"]
    assert len([dm.train_dataset[i] for i in range(7)]) == 7


def test_h04_numeric_folder_names_stay_names(tmp_path):
    for k in range(12):
        solid(tmp_path / "data" / str(k) / "x.png", (20 * k,) * 3)
        solid(tmp_path / "flat" / f"{k}.png", (20 * k,) * 3)
    grey = v2.Compose([v2.Resize((8, 8)), PLAIN])
    options = {"val_split": 0, "test_split": 0, "eval_transform": grey, "train_transform": grey}
    dm = small(tmp_path / "data", **options)
    for index, path in enumerate(dm.train_dataset.sources):
        image, label = dm.train_dataset[index]
        assert dm.classes[label] == Path(path).parent.name
        assert round(float(image.mean()) * 255) == 20 * int(dm.classes[label])
    trainer = quiet_trainer(tmp_path)
    trainer.fit(Net(), dm)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    loaded = ImageFolderDataModule.load_from_checkpoint(
        tmp_path / "x.ckpt", predict_path=tmp_path / "flat", eval_transform=grey
    )
    assert loaded.classes == dm.classes
    answers = {}
    for key, image in zip(
        loaded.predict_keys, torch.cat([*loaded.predict_dataloader()]), strict=True
    ):
        answers[Path(key).stem] = str(round(float(image.mean()) * 255) // 20)
    assert answers == {name: name for name in dm.classes}


def half_and_half(path):
    pixels = np.zeros((4, 6, 3), np.uint8)
    pixels[:, 3:] = 255
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def is_flipped(image):
    return bool((image[:, :, :3] > image[:, :, 3:]).all())


def test_h07_augmentation_does_not_leak_into_validation(tmp_path):
    for i in range(20):
        half_and_half(tmp_path / "ab"[i % 2] / f"{i}.png")
    flip, same_size = v2.RandomHorizontalFlip(p=1.0), v2.Identity()
    dm = small(
        tmp_path, val_split=0.2, test_split=0, train_transform=flip, eval_transform=same_size
    )
    dm.setup("fit")
    assert [len(dm.train_dataset), len(dm.val_dataset)] == [16, 4]

    def flipped(loader):
        return [is_flipped(image) for batch in loader for image in batch.inputs]

    assert flipped(dm.train_dataloader()) == [True] * 16
    assert flipped(dm.val_dataloader()) == [False] * 4
    assert torch.equal(dm.val_dataset[1][0], dm.val_dataset[1][0])
    dm.eval_transform = v2.RandomVerticalFlip(p=1.0)
    dm.setup("fit")
    assert flipped(dm.train_dataloader()) == [True] * 16
    dm.train_transform = same_size
    assert flipped(dm.train_dataloader()) == [False] * 16
    assert flipped(dm.val_dataloader()) == [False] * 4


def test_h08_setup_run_again_moves_no_row(tmp_path):
    root = class_folders(tmp_path / "data", dict.fromkeys("abcde", 10))

    def ids(dm):
        return [list(getattr(dm, f"{s}_dataset").sources) for s in ("train", "val", "test")]

    dm = small(root, val_split=0.1, test_split=0.1)
    dm.setup("fit")
    before = ids(dm)
    assert [len(part) for part in before] == [40, 5, 5]
    assert len({path for part in before for path in part}) == 50
    trainer, net = quiet_trainer(tmp_path), Net()
    trainer.fit(net, dm)
    torch.manual_seed(3)
    trainer.test(net, dm, verbose=False)
    dm.setup("fit")
    assert ids(dm) == before
    torch.manual_seed(4)
    fresh = small(str(root), val_split=0.1, test_split=0.1)
    assert ids(fresh) == before
    assert ids(small(root, val_split=0.1, test_split=0.1, split_seed=1)) != before


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """What two differently seeded ranks saw of 100 grey levels, and of 7 to predict."""
    folder = tmp_path_factory.mktemp("ranks")
    for i in range(100):
        solid(folder / "data" / "ab"[i % 2] / f"{i:02d}.png", i, size=(2, 2))
    for i in range(7):
        solid(folder / "flat" / f"p{i}.png", 10 * i, size=(2, 2))
    output = run_warm(
        *(HELPERS / "folders_on_two_ranks.py", folder / "data", folder / "flat"),
        ranks=2,
        timeout=200,
    )
    lines = [line for line in output.splitlines() if line.startswith("SEEN ")]
    return folder, sorted(json.loads(line[5:]) for line in lines)


@pytest.mark.timeout(240)
def test_h08_another_process_draws_the_same_split(two_ranks):
    folder, ((_, ids, _), _) = two_ranks
    dm = small(folder / "data", val_split=0.2, test_split=0.1)
    assert {s: list(getattr(dm, f"{s}_dataset").sources) for s in ids} == ids


@pytest.mark.timeout(240)
def test_h09_ranks_draw_one_split_and_train_on_no_validation_row(two_ranks):
    _, ((_, ids, first), (_, other_ids, second)) = two_ranks
    assert ids == other_ids
    level = {split: {int(Path(path).stem) for path in paths} for split, paths in ids.items()}
    assert [len(level[split]) for split in ("train", "val", "test")] == [70, 20, 10]
    train, val = first["train"] + second["train"], first["val"] + second["val"]
    assert set(train) == level["train"]
    assert sorted(val) == sorted(level["val"]), "each row once"
    assert set(train) | set(val) == set(range(100)) - level["test"]


@pytest.mark.timeout(240)
def test_h15_each_file_is_predicted_once_on_two_ranks(two_ranks):
    folder, ((_, _, first), (_, _, second)) = two_ranks
    rows = sorted(first["predict"] + second["predict"])
    assert rows == [[str(folder / "flat" / f"p{i}.png"), 10 * i] for i in range(7)]


def test_h18_everything_that_travels_pickles(twelve):
    dm = small(twelve, predict_path=twelve)
    for split in ("train", "val", "test", "predict"):
        dataset = getattr(dm, f"{split}_dataset")
        assert same(pickle.loads(pickle.dumps(dataset))[0], dataset[0]) or split == "train"
        pickle.loads(pickle.dumps(getattr(dm, f"{split}_dataloader")().collate_fn))
    for transform in (dm.train_transform, dm.eval_transform):
        pickle.loads(pickle.dumps(transform))


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_h18_a_lambda_that_cannot_travel_is_named_before_a_worker_starts(twelve, context):
    dm = small(
        twelve,
        eval_transform=lambda image: image,
        num_workers=2,
        loader_options={"multiprocessing_context": context},
    )
    with pytest.raises(ValueError, match=r"transform cannot be sent.*module level, or num_w"):
        dm.val_dataloader()
    assert len(list(small(twelve, eval_transform=lambda image: image).val_dataloader())) == 1


OPTIONS = {
    "prefetch_factor": 4,
    "persistent_workers": True,
    "timeout": 5,
    "multiprocessing_context": "spawn",
}


@pytest.mark.parametrize("names_given", [*([name] for name in OPTIONS), list(OPTIONS)])
def test_h21_worker_options_without_workers_do_no_harm(twelve, names_given):
    options = {name: OPTIONS[name] for name in names_given}
    dm = small(twelve, loader_options=options, batch_size=8)
    assert len(list(dm.train_dataloader())) == len(dm.train_dataloader()) == 4
    assert len(list(dm.val_dataloader())) == 1


def test_h21_worker_options_with_workers_arrive(twelve):
    options = {"prefetch_factor": 4, "persistent_workers": True}
    loader = small(twelve, loader_options=options, num_workers=2).train_dataloader()
    assert loader.prefetch_factor == 4
    assert loader.persistent_workers
    with pytest.raises(ValueError, match="prefetch_factor must be at least 1, got 0"):
        small(twelve, loader_options={"prefetch_factor": 0}, num_workers=2)


def test_h23_no_train_batch_of_one_and_no_row_lost(tmp_path):
    for split in ("train", "val"):
        class_folders(tmp_path / split, {"a": 17, "b": 16})
    dm = small(tmp_path, batch_size=32, predict_path=tmp_path / "val", seed=0)
    net, trainer = Net(norm=True), quiet_trainer(tmp_path, max_epochs=2)
    trainer.fit(net, dm)
    assert net.train_sizes == [17, 16, 17, 16]
    assert len(net.eval_targets) == 66
    assert sum(map(len, trainer.predict(net, dm))) == 33
    noise(tmp_path / "train" / "b" / "16.png", 5)
    again = small(tmp_path, batch_size=32)
    assert [len(batch.target) for batch in again.train_dataloader()] == [32, 2]


def test_h23_a_single_train_row_under_batch_norm_says_so(tmp_path):
    class_folders(tmp_path / "train", {"a": 1})
    class_folders(tmp_path / "val", {"a": 1})
    dm = small(tmp_path)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        quiet_trainer(tmp_path).fit(Net(norm=True), dm)


def test_a_plain_run_is_quiet_and_prints_its_sizes(twelve, tmp_path):
    dm = small(twelve)
    quiet_trainer(tmp_path).fit(Net(), dm)
    assert str(dm) == "ImageFolderDataModule(train 28, val 4; batch_size=32)"
