from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import torch
from contract import check_datamodule, same
from image_files import HUES, Net, class_folders, noise, quiet_trainer, solid
from PIL import Image
from torchmetrics.classification import MulticlassAccuracy
from torchvision import transforms as v1
from torchvision.transforms import v2
from warm_start import run_warm

from datamodules import ImageFolderDataModule
from datamodules.batches.normalize import IMAGENET_MEAN, IMAGENET_STD

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


# --- the contract ----------------------------------------------------------------------------


def test_class_folders_pass_the_contract_with_any_workers(twelve):
    check_datamodule(
        lambda **options: ImageFolderDataModule(twelve, image_size=8, **options), contexts=CONTEXTS
    )


def test_split_folders_pass_the_contract(tmp_path):
    for split, count in (("train", 6), ("val", 3), ("test", 2)):
        class_folders(tmp_path / split, {"a": count, "b": count})
    check_datamodule(lambda **o: ImageFolderDataModule(tmp_path, image_size=8, **o))


def test_a_table_passes_the_contract(tmp_path):
    class_folders(tmp_path, {"x": 20})
    rows = [f"x/{i}.png,{'cd'[i % 2]}\n" for i in range(20)]
    (tmp_path / "t.csv").write_text("file,label\n" + "".join(rows))
    check_datamodule(
        lambda **o: ImageFolderDataModule(tmp_path, table="t.csv", image_size=8, **o),
        contexts=("fork", "forkserver"),
    )


def test_several_labels_pass_the_contract(tmp_path):
    class_folders(tmp_path, {"x": 30})
    rows = [f"{i},{i % 2},{i % 3 > 0}\n" for i in range(30)]
    (tmp_path / "t.csv").write_text("file,odd,third\n" + "".join(rows))
    check_datamodule(
        lambda **o: ImageFolderDataModule(
            tmp_path, table="t.csv", label_column=["odd", "third"], image_size=8, **o
        )
    )


def test_eight_cores_pass_the_contract_and_no_advice_escapes(twelve, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    check_datamodule(lambda **o: ImageFolderDataModule(twelve, image_size=8, **o), contexts=())
    dm = ImageFolderDataModule(twelve, image_size=8, batch_size=8, predict_path=twelve)
    trainer, net = quiet_trainer(tmp_path), Net()
    trainer.fit(net, dm)
    trainer.test(net, dm, verbose=False)
    trainer.predict(net, dm)


# --- acceptance cases ------------------------------------------------------------------------


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
        mean=[0.0] * 3,
        std=[1.0] * 3,
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


# --- layouts ---------------------------------------------------------------------------------


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


def test_a_table_gives_the_labels(tmp_path):
    class_folders(tmp_path / "photos", {"x": 10})
    rows = [f"{i},{['pug', 'collie'][i % 2]}\n" for i in range(10)]
    (tmp_path / "train.csv").write_text("image,breed\n" + "".join(rows))
    options = {"file_column": "image", "label_column": "breed", "val_split": 2, "test_split": 0}
    dm = small(tmp_path / "photos", table=tmp_path / "train.csv", **options)
    assert dm.classes == ["collie", "pug"]
    assert dm.class_counts == [4, 4]
    for path, label in zip(dm.train_dataset.sources, labels(dm.train_dataset), strict=True):
        assert dm.classes[label] == ["pug", "collie"][int(Path(path).stem) % 2]
    other = class_folders(tmp_path / "other", {"x": 1})
    with pytest.raises(ValueError, match="a table goes with one root"):
        small([tmp_path / "photos", other], table="train.csv").setup()


@pytest.mark.parametrize("form", ["one cell", "columns"])
def test_several_labels_a_row(tmp_path, form):
    class_folders(tmp_path, {"x": 8})
    if form == "one cell":
        rows = [f"{i},{'haze ' * (i % 2)}clear\n" for i in range(8)]
        content, options = "file,tags\n", {"label_column": "tags", "label_separator": " "}
    else:
        rows = [f"{i},1,{i % 2}\n" for i in range(8)]
        content, options = "file,clear,haze\n", {"label_column": ["clear", "haze"]}
    (tmp_path / "t.csv").write_text(content + "".join(rows))
    dm = small(tmp_path, table="t.csv", val_split=0, test_split=0, **options)
    assert dm.task == "multilabel"
    assert dm.classes == ["clear", "haze"]
    assert dm.class_counts == [8, 4]
    [batch] = list(dm.train_dataloader())
    assert batch.target.dtype == torch.float32
    assert batch.target.shape == (8, 2)
    by_file = {
        int(Path(p).stem): t
        for p, t in zip(dm.train_dataset.sources, dm.train_dataset.targets, strict=True)
    }
    assert all(by_file[i].tolist() == [1, i % 2] for i in range(8))


@pytest.mark.parametrize(
    "options",
    [
        {"label_separator": " "},
        {"label_column": ["a", "b"]},
        {"table": "t.csv", "label_column": []},
        {"table": "t.csv", "label_separator": ""},
        {"table": "t.csv", "label_column": ["a"], "label_separator": " "},
    ],
)
def test_label_options_that_do_not_fit_are_refused_when_built(tmp_path, options):
    with pytest.raises(ValueError, match="label_separator"):
        small(tmp_path, **options)


# --- classes ---------------------------------------------------------------------------------


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


# --- images and transforms -----------------------------------------------------------------


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
    dm = small(twelve, mode="L", mean=[0.0], std=[1.0], eval_transform=v2.Identity())
    assert dm.input_sizes == {"input_shape": [1, 8, 8]}
    for split in ("train", "val"):
        assert dm.preview(split).inputs.shape[1:] == (1, 8, 8)
    with Image.open(dm.val_dataset.sources[0]) as image:
        assert torch.equal(dm.preview("val").inputs[0], v1.ToTensor()(image.convert("L")))
    with pytest.raises(ValueError, match="mode='L' needs 1 values of mean and std"):
        small(twelve, mode="L", mean=[0.5] * 3, std=[1.0] * 3)


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
        mean=[0.0] * 3,
        std=[0.5] * 3,
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


# --- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "RGBA"}, "mode must be 'RGB' or 'L', got 'RGBA'"),
        ({"unknown_classes": "skip"}, "must be 'raise' or 'drop', got 'skip'"),
        ({"image_size": 0}, "image_size must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be a whole number, at least 1, got 0"),
        ({"eval_batch_size": 0}, "batch_size must be a whole number, at least 1, got 0"),
        ({"val_split": 0.7, "test_split": 0.5}, "fractions must sum to at most 1, got val=0.7"),
        ({"val_split": 1.5}, "val_split=1.5 is a float and so a fraction"),
        ({"std": [0.0, 1.0, 1.0]}, "std > 0"),
        ({"mean": []}, "one value per channel"),
        ({"classes": ["a", "a"]}, "a name twice"),
        ({"mean": [123.0, 117.0, 104.0]}, "on the scale 0 to 1, .*; divide by 255"),
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
    with pytest.raises(ValueError, match="val and test take all the images; lower val_split"):
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


# --- checkpoints and prediction --------------------------------------------------------------


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
        ValueError, match=r"eval_transform=<Resize> of your own.* pass eval_transfor"
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


def test_a_plain_run_is_quiet_and_prints_its_sizes(twelve, tmp_path):
    dm = small(twelve)
    quiet_trainer(tmp_path).fit(Net(), dm)
    assert str(dm) == "ImageFolderDataModule(train 28, val 4; batch_size=32)"
