from __future__ import annotations

import numpy as np
import pytest
import torch
from contract import check_datamodule, same
from numbered import Imported
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset

from datamodules import DatasetDataModule, PaddedInputs
from datamodules.loading.fetch import SampleError


@pytest.fixture
def pairs(tmp_path):
    """Twenty images in two classes: left half black, right half white."""
    found = []
    for i in range(20):
        pixels = np.zeros((6, 8, 3), np.uint8)
        pixels[:, 4:] = 255
        path = tmp_path / f"{i:02d}.png"
        Image.fromarray(pixels).save(path)
        found.append((str(path), "cat" if i % 4 else "ant"))
    return found


def table(n=30, k=3):
    return TensorDataset(torch.arange(n, dtype=torch.float32)[:, None], torch.arange(n) % k)


def make_table(**options):
    return DatasetDataModule(table(), **options)


@pytest.mark.runs
def test_the_contract_holds_for_a_dataset_that_is_split():
    check_datamodule(make_table, contexts=("fork", "spawn"))


@pytest.mark.runs
def test_a_worker_that_starts_afresh_imports_no_more_than_it_needs():
    options = {"multiprocessing_context": "spawn", "persistent_workers": False}
    rows = Imported(range(2))
    dm = DatasetDataModule(train=rows, val=rows, num_workers=1, loader_options=options)
    [batch] = dm.val_dataloader()
    assert batch.inputs.tolist() == [[False, False]] * 2


def test_a_list_of_paths_and_labels(pairs):
    check_datamodule(lambda **options: DatasetDataModule(pairs, load="image", **options))
    dm = DatasetDataModule(pairs, load="image")
    assert dm.classes == ["ant", "cat"]
    assert sum(dm.class_counts) == 16
    assert dm.input_sizes == {"input_shape": [3, 6, 8]}
    batch = dm.preview("val")
    assert batch.inputs.dtype == torch.float32
    assert batch.inputs.min() < -1.5
    row = int(dm.train_dataset.rows[0])
    assert dm.train_dataset.describe(0) == f"row {row}, {pairs[row][0]}"


def flip(image):
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def test_h07_train_and_eval_transforms_are_apart_over_one_dataset(pairs):
    dm = DatasetDataModule(pairs, load="image", train_transform=flip, val_split=0.2, test_split=0.0)
    assert len(dm.train_dataset) == 16
    assert all(image[0, 0, 0] == 255 for image, _ in dm.train_dataset)
    assert all(image[0, 0, 0] == 0 for image, _ in dm.val_dataset)
    assert same(dm.val_dataset[0], dm.val_dataset[0])


class Counting(Dataset):
    """Keeps its labels and counts how often a sample is opened."""

    def __init__(self, labels):
        self.targets, self.opened = labels, 0
        self.classes = ["no", "yes"]

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        self.opened += 1
        return torch.zeros(2), self.targets[index]


def test_h13_labels_of_a_subset_are_its_own_and_no_sample_is_opened():
    parent = Counting([0] * 6 + [1] * 6)
    part = Subset(Subset(parent, [0, 1, 2, 3, 4, 6, 11]), [0, 1, 2, 3, 4, 5])
    dm = DatasetDataModule(train=part, val=Subset(parent, [5, 7]), val_split=None)
    dm.read()
    assert dm._found["train"].tolist() == [0, 0, 0, 0, 0, 1]
    assert parent.opened == 0
    assert dm.class_counts == [5, 1]
    assert dm.classes == ["no", "yes"]


def test_concatenated_datasets():
    dm = DatasetDataModule(ConcatDataset([table(9), table(12)]))
    assert dm.num_classes == 3
    assert sum(map(len, (dm.train_dataset, dm.val_dataset, dm.test_dataset))) == 21


def test_parts_of_their_own_and_a_val_cut_out_of_train():
    dm = DatasetDataModule(train=table(20, 2), test=table(6, 2))
    assert [len(dm.train_dataset), len(dm.val_dataset), len(dm.test_dataset)] == [18, 2, 6]
    dm = DatasetDataModule(train=table(20, 2), val=table(4, 2))
    assert dm.test_dataset is None
    assert len(dm.train_dataset) == 20


def test_labels_may_be_given():
    class Bare(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return torch.tensor([float(index)])

    dm = DatasetDataModule(Bare(), labels=list("abababab"), val_split=0.25, test_split=0.0)
    assert dm.classes == ["a", "b"]
    for x, y in dm.train_dataset:
        assert y == int(x) % 2
    with pytest.raises(ValueError, match="labels has 3 entries, the dataset 8"):
        DatasetDataModule(Bare(), labels=[0, 1, 0]).setup()


class Rows(Dataset):
    """Dict samples, as Hugging Face datasets give them."""

    column_names = ("ids", "label")

    def __init__(self, n=12):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        if index == "label":
            return [i % 2 for i in range(self.n)]
        return {"ids": torch.arange(index % 3 + 1), "label": index % 2}


def test_dict_samples_with_padding():
    dm = DatasetDataModule(Rows(), inputs="ids", collate="pad", batch_size=4)
    batch = dm.preview()
    assert isinstance(batch.inputs, PaddedInputs)
    assert batch.inputs.mask.sum(1).max() == batch.inputs.values.shape[1]
    assert dm.classes == ["0", "1"]
    with pytest.raises(SampleError, match=r"sample \d+ \(row \d+\) has \(\d,\) int64, sample"):
        list(DatasetDataModule(Rows(), inputs="ids").train_dataloader())
    with pytest.raises(ValueError, match="no field 'id'; it has ids, label"):
        DatasetDataModule(Rows(), inputs="id", labels=[0] * 12).preview()


def test_lists_for_detection():
    class Boxes(Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            return torch.zeros(3, 4 + index, 5), {"boxes": torch.zeros(index, 4)}

    dm = DatasetDataModule(Boxes(), collate="list", batch_size=2)
    images, targets = dm.preview()
    assert isinstance(images, list)
    assert set(targets[0]) == {"boxes"}


def test_regression_targets_are_float32():
    data = [(torch.zeros(2), i) for i in range(20)]
    dm = DatasetDataModule(data, task="regression")
    assert dm.preview().target.dtype == torch.float32


def test_several_labels():
    data = TensorDataset(torch.zeros(20, 2), torch.eye(4).repeat(5, 1).long())
    dm = DatasetDataModule(data, task="multilabel")
    assert dm.preview().target.dtype == torch.float32
    assert dm.num_classes == 4


def test_labels_that_are_no_classes_are_refused():
    with pytest.raises(ValueError, match=r"0.5 are not classes; pass task"):
        DatasetDataModule(TensorDataset(torch.zeros(4, 1), torch.tensor([0, 0.5, 1, 1]))).setup()


def test_a_label_that_train_lacks_is_named():
    val = TensorDataset(torch.zeros(1, 1), torch.tensor([7]))
    loader = DatasetDataModule(train=table(), val=val).val_dataloader()
    with pytest.raises(SampleError, match="label 7 is not in the class list"):
        list(loader)


class Stream(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        for i in range(self.n):
            yield torch.tensor([float(i)]), i % 2


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("n", [1, 8, 9, 22, 33])
def test_a_stream_gives_each_sample_once_in_the_same_batches(workers, n):
    def batches(count):
        dm = DatasetDataModule(
            train=Stream(n), val=Stream(n), batch_size=4, num_workers=count, train_transform=noise
        )
        return list(dm.train_dataloader()), list(dm.val_dataloader())

    train, val = batches(workers)
    assert same(batches(0), (train, val))
    assert [int(x) for b in train for x in b.inputs[:, 0]] == list(range(n))
    assert [int(x) for b in val for x in b.inputs[:, 0]] == list(range(n))
    assert n == 1 or min(len(b.target) for b in train) > 1


def noise(x):
    return x + torch.rand(1) / 2


@pytest.mark.parametrize("n", [1, 5, 9, 16, 21])
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_stream_is_shared_out_over_ranks(n, ranks):
    shares = {"train": [], "val": []}
    for rank in range(ranks):
        dm = DatasetDataModule(train=Stream(n), val=Stream(n), batch_size=2, num_workers=0)
        for split in shares:
            loader = getattr(dm, f"{split}_dataloader")()
            loader.dataset._world = (ranks, rank)
            shares[split].append([b.inputs[:, 0].int().tolist() for b in loader])
    assert sorted(i for s in shares["val"] for b in s for i in b) == list(range(n))
    assert {i for s in shares["train"] for b in s for i in b} == set(range(n))
    assert len({len(s) for s in shares["train"]}) == 1, "every rank takes the same steps"


def test_a_stream_goes_on_where_it_stopped():
    dm = DatasetDataModule(train=Stream(20), batch_size=4, num_workers=0)
    whole = list(dm.train_dataloader())
    first = iter(dm.train_dataloader())
    loader = dm._position.loader
    next(first), next(first)
    state = loader.state_dict()
    for workers in (0, 2):
        again = DatasetDataModule(train=Stream(20), batch_size=4, num_workers=workers)
        fresh = again.train_dataloader()
        fresh.load_state_dict(state)
        assert same(list(fresh), whole[2:])


def test_prediction_from_a_checkpoint_alone(tmp_path):
    dm = DatasetDataModule(table(), batch_size=4)
    dm.setup()
    torch.save({"h": dict(dm.hparams), "s": dm.state_dict()}, tmp_path / "c.pt")
    loaded = torch.load(tmp_path / "c.pt", weights_only=True)
    hparams = {**loaded["h"], "predict": torch.zeros(3, 1)}
    fresh = DatasetDataModule(**hparams)
    fresh.load_state_dict(loaded["s"])
    assert fresh.classes == dm.classes
    assert next(iter(fresh.predict_dataloader())).shape == (3, 1)
    assert fresh.predict_keys == [0, 1, 2]
    with pytest.raises(ValueError, match="pass train= again"):
        fresh.train_dataloader()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "pass dataset="),
        ({"dataset": [1], "train": [1]}, "pass dataset="),
        ({"dataset": [1], "val": [1]}, "split into all parts"),
        ({"dataset": [1], "collate": "padd"}, "did you mean 'pad'"),
        ({"dataset": [1], "task": "multi"}, "unknown task"),
    ],
)
def test_bad_arguments_are_refused_when_built(options, message):
    with pytest.raises(ValueError, match=message):
        DatasetDataModule(**options)


class SelfSharding(IterableDataset):
    """Parts itself by worker, as torch's manual shows it."""

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        step, start = (info.num_workers, info.id) if info else (1, 0)
        yield from ((torch.tensor([float(i)]), i % 2) for i in range(start, 40, step))


def test_a_stream_that_parts_itself_is_not_parted_twice():
    dm = DatasetDataModule(train=SelfSharding(), batch_size=7, num_workers=2)
    rows = [int(x) for b in dm.train_dataloader() for x in b.inputs[:, 0]]
    assert rows == list(range(40))


def test_what_a_stream_cannot_honour_is_refused():
    with pytest.raises(ValueError, match="sampler, global_batch_size cannot be used"):
        DatasetDataModule(
            train=Stream(9), sampler="balanced", global_batch_size=4
        ).train_dataloader()


def test_a_stream_for_train_and_a_list_for_val():
    dm = DatasetDataModule(train=Stream(9), val=[(torch.zeros(1), 0)] * 5, num_workers=0)
    assert sum(len(b.target) for b in dm.val_dataloader()) == 5
    assert "train a stream" in str(dm) or "val 5" in str(dm)


def test_given_labels_stand_in_for_what_the_samples_hold():
    data = [(torch.tensor([float(i)]), None) for i in range(20)]
    dm = DatasetDataModule(data, labels=[i % 2 for i in range(20)], val_split=0.2, test_split=0)
    assert all(y == int(x) % 2 for x, y in dm.train_dataset)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DatasetDataModule([(Z, [0, 4])] * 8, task="multilabel"), "one row of 0 and 1"),
        (
            lambda: DatasetDataModule([(Z, [0, 1])] * 8, task="multilabel", classes=list("abc")),
            "3 classes, labels have 2 columns",
        ),
        (lambda: DatasetDataModule([(Z, 0), (Z, 1)] * 4, task="multilabel"), "one row of 0 and 1"),
        (lambda: DatasetDataModule([(Z, [0, 1])] * 8), "one class a sample is needed"),
        (lambda: DatasetDataModule([(Z, 0)] * 8, load=str.upper), "first train sample"),
        (
            lambda: DatasetDataModule([(Z.byte().view(4, 1, 1), 0)] * 8),
            "4 channels, mean has 3 values",
        ),
        (lambda: DatasetDataModule(predict=[Z]), "only predict= was given"),
    ],
)
def test_what_does_not_fit_is_said_before_a_fit(make, message):
    with pytest.raises(ValueError, match=message):
        make().setup()


Z = torch.zeros(4)
