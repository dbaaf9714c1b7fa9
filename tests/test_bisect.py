from __future__ import annotations

import os

import pytest
import torch
from script_runs import as_if_alone, write_pictures  # noqa: F401
from torch.utils.data import Dataset, TensorDataset, get_worker_info

import bisect_data
from datamodules import DatasetDataModule
from datamodules.insight.bisect import bisect


class Faulty(Dataset):
    """40 rows with one planted fault."""

    def __init__(self, fault: str = "") -> None:
        self.fault, self.targets = fault, [i % 2 for i in range(40)]

    def __len__(self):
        return 40

    def __getitem__(self, index):
        if self.fault == "sample" and index == 13:
            raise ValueError("the value 'x' is no number")
        if self.fault == "worker" and get_worker_info() is not None:
            raise OSError("too many open files")
        if self.fault == "dies" and get_worker_info() is not None:
            os._exit(3)
        size = 4 if self.fault == "ragged" and index % 2 else 3
        return torch.ones(size), index % 2


def run(fault: str = "", **options):
    options = {"batch_size": 8, "num_workers": 2, "val_split": 2, "test_split": 0, **options}
    return bisect(DatasetDataModule(Faulty(fault), **options), timeout_seconds=30)


def broken(x):
    raise TypeError("no such colour")


def failing_plan(generator, world_size):
    raise KeyError("weights")


def test_clean_data_run_through_with_every_setting():
    dm = DatasetDataModule(Faulty(), batch_size=8, num_workers=2)
    found = bisect(dm)
    assert found.culprit is None
    assert [s.name for s in found.steps if s.status == "fine"] == [
        "everything off, batches of 1", "train_transform", "batches of 2", "batch_size=8",
        "sampler=shuffle", "1 worker", "num_workers=2",
    ]  # fmt: skip
    assert found.steps[0].detail == "(1, 3) float32, (1,) int64"
    assert (dm.hparams["batch_size"], dm.hparams["num_workers"], dm.sampler) == (8, 2, "shuffle")


@pytest.mark.parametrize(
    ("fault", "options", "culprit", "error"),
    [
        ("sample", {}, "everything off, batches of 1", "the value 'x' is no number"),
        ("", {"train_transform": broken}, "train_transform", "no such colour"),
        ("ragged", {}, "batches of 2", "differ"),
        ("worker", {}, "1 worker", "too many open files"),
        ("dies", {}, "1 worker", "exited unexpectedly"),
        ("", {"sampler": failing_plan}, "sampler=<failing_plan>", "weights"),
        (
            "",
            {
                "train_transform": lambda x: x,
                "loader_options": {"multiprocessing_context": "spawn"},
            },
            "the workers' options",
            "train_transform|lambda|pickle",
        ),
    ],
)
def test_the_planted_fault_is_named(fault, options, culprit, error):
    found = run(fault, **options)
    assert found.culprit is not None
    assert found.culprit.name == culprit
    assert found.steps[-1] is found.culprit
    import re

    assert re.search(error, found.culprit.traceback)


def test_the_failing_sample_is_found_by_halving():
    found = run("sample")
    assert len(found.samples) == 1
    assert "row 13" in found.samples[0]
    assert "the value 'x' is no number" in found.samples[0]


def test_samples_that_do_not_join_are_named_together():
    assert "differ" in run("ragged").samples[0]


def test_data_in_memory_run_too():
    data = TensorDataset(torch.zeros(40, 3), torch.arange(40) % 2)
    assert bisect(DatasetDataModule(data, num_workers=0)).culprit is None


def test_the_script_ends_with_1_and_names_the_file(tmp_path, capfd):
    root = write_pictures(tmp_path / "p")
    options = ["--data=ImageFolderDataModule", f"--data.root={root}", "--data.image_size=8"]
    options += ["--data.num_workers=0", "--data.val_split=2", "--data.test_split=0"]
    assert bisect_data.main(options) == 0
    for file in sorted((root / "grey").iterdir())[:4]:
        file.write_bytes(file.read_bytes()[:40])
    assert bisect_data.main(options) == 1
    out, err = capfd.readouterr()
    assert "grey" in out
    assert "everything off, batches of 1 breaks the data" in err
