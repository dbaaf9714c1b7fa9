"""``on_error="skip"`` for a dataset of a user's own: the rules of image folders."""

from __future__ import annotations

import errno
from itertools import chain

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset

from datamodules import DatasetDataModule
from datamodules.core.accessors import bad_rows_of
from datamodules.core.run import Run

BAD = (2, 3, 7)


class Rows(Dataset):
    """12 rows of two classes; some cannot be read."""

    targets = [0] * 6 + [1] * 6

    def __init__(self, bad=BAD, error=ValueError):
        self.bad, self.error = bad, error

    def __len__(self):
        return 12

    def __getitem__(self, i):
        if i in self.bad:
            raise self.error(f"row {i} is broken")
        return torch.full((2,), float(i)), i // 6


class Bare(Rows):
    def __getitem__(self, i):
        return super().__getitem__(i)[0]


def number(text):
    return torch.full((2,), float(text))


PAIRS = [("x" if i in BAD else str(i), i // 6) for i in range(12)]


def module(train, **options):
    options = {"batch_size": 4, "num_workers": 0, "sampler": "sequential"} | options
    return DatasetDataModule(
        train=train, on_error="skip", **{"val_split": 0, "test_split": 0} | options
    )


def rows(loader):
    return [batch.inputs[:, 0].int().tolist() for batch in loader]


@pytest.mark.timeout(100)
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("options", [{"train": Rows()}, {"train": PAIRS, "load": number}])
def test_what_cannot_be_read_is_left_out_listed_and_said_once(options, num_workers):
    dm = module(**options, num_workers=num_workers)
    loader = dm.train_dataloader()
    with pytest.warns(UserWarning, match="3 of 12 train samples cannot be read.*bad_files") as said:
        assert rows(loader) == [[0, 1], [4, 5, 6], [8, 9, 10, 11]]
    assert len(said) == 1
    assert len(loader) == 3
    assert bad_rows_of(dm, "train") == list(BAD)
    assert [name.split(",")[0] for name in dm.bad_files] == ["row 2", "row 3", "row 7"]
    assert all("ValueError" in reason for reason in dm.bad_files.values())
    loader.sampler.set_epoch(1)
    assert list(chain(*rows(loader))) == [0, 1, 4, 5, 6, 8, 9, 10, 11]  # and no second warning


def test_images_by_path_are_skipped_too(tmp_path):
    pairs = []
    for i in range(4):
        path = tmp_path / f"{i}.png"
        Image.fromarray(np.full((4, 4), i, np.uint8)).save(path)
        pairs.append((str(path), i % 2))
    (tmp_path / "1.png").write_text("no image")
    dm = module(pairs, load="image", eval_transform=as_tensor, train_transform=as_tensor)
    with pytest.warns(UserWarning, match=r"1 of 4 train samples.*1\.png"):
        [batch] = dm.train_dataloader()
    assert len(batch.inputs) == 3


def as_tensor(image):
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def test_by_default_the_run_stops_and_names_the_row():
    dm = DatasetDataModule(train=Rows(bad=(7,)), val_split=0, test_split=0, num_workers=0)
    with pytest.raises(RuntimeError, match=r"row 7\).*ValueError: row 7 is broken"):
        list(dm.train_dataloader())


@pytest.mark.parametrize(
    ("train", "options", "said"),
    [
        (Rows(), {"max_errors": 2}, "3 train samples cannot be read, more than max_errors=2"),
        (Rows(), {"batch_size": 2}, "none of the 2 samples of a train batch can be read"),
        (Rows(bad=range(6, 12)), {"batch_size": 7}, "none of the 6 train samples of class '1'"),
    ],
)
def test_too_many_a_whole_batch_or_a_whole_class_stop_the_run(train, options, said):
    with pytest.raises(RuntimeError, match=said):
        list(module(train, **options).train_dataloader())


def test_nothing_that_can_be_read_is_an_error():
    with pytest.raises(ValueError, match="no train sample can be read; the last is row 11: Val"):
        module(Rows(bad=range(12))).train_dataloader()


def refuses(row):
    if row[0] == 8:
        raise ValueError("a fault of the transform")
    return row


def machine(text):
    return OSError(errno.EMFILE, text)


@pytest.mark.parametrize(
    ("train", "options", "said"),
    [
        (Rows(bad=(), error=OSError), {"train_transform": refuses}, "a fault of the transform"),
        (Rows(bad=(5,), error=machine), {}, "row 5 is broken"),
    ],
)
def test_a_transforms_error_and_the_machines_are_not_skipped(train, options, said):
    with pytest.raises(RuntimeError, match=said):
        list(module(train, **options).train_dataloader())


def test_a_predict_batch_may_be_of_no_rows():
    dm = DatasetDataModule(
        predict=Bare(), on_error="skip", eval_batch_size=2, with_rows=True, num_workers=0
    )
    with pytest.warns(UserWarning, match="3 of 12 predict samples"):
        batches = list(dm.predict_dataloader())
    assert [b.rows.tolist() for b in batches] == [[0, 1], [], [4, 5], [6], [8, 9], [10, 11]]
    assert [tuple(b.inputs.shape) for b in batches][:2] == [(2, 2), (0, 2)]


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.filterwarnings("ignore:1 of 12 train samples cannot be read:UserWarning")
def test_every_rank_takes_the_same_steps(ranks, monkeypatch):
    seen = []
    for rank in range(ranks):
        dm = module(Rows(bad=(2,)), batch_size=2)
        monkeypatch.setattr(Run, "ranks", {"num_replicas": ranks, "rank": rank})
        seen.append(rows(dm.train_dataloader()))
    assert {len(steps) for steps in seen} == {6 // ranks}
    assert sorted(chain(*chain(*seen))) == [i for i in range(12) if i != 2]


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(torch.zeros(2), 0)] * 4)


def test_options_are_checked():
    with pytest.raises(ValueError, match="on_error"):
        DatasetDataModule(train=Rows(), on_error="ignore")
    with pytest.raises(ValueError, match="max_errors must be at least 0, got -1"):
        DatasetDataModule(train=Rows(), max_errors=-1)
    with pytest.raises(ValueError, match="on_error cannot be used"):
        module(Stream(), sampler="shuffle").train_dataloader()
