from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest
import torch
from script_runs import as_if_alone, write_images  # noqa: F401
from torch.utils.data import Dataset, IterableDataset, TensorDataset, get_worker_info

import bisect_data
from datamodules import DatasetDataModule, ImageFolderDataModule
from datamodules.insight.batch_digests import difference, parts
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


def hidden():
    draws = np.random.default_rng(0)  # in a cell of the closure: nobody can seed it
    return lambda x: x + float(draws.random())


def by_process(x):
    return x + (get_worker_info() is not None)


class OwnGenerator:
    def __init__(self):
        self.draws = np.random.default_rng(0)  # found, and seeded for each sample

    def __call__(self, x):
        return x + float(self.draws.random())


def unseeded_plan(generator, world_size):
    return torch.randperm(32).view(-1, 8).tolist()


@pytest.mark.parametrize(
    ("options", "culprit", "said"),
    [
        ({"train_transform": hidden()}, "train_transform", "38 of 38 batches, first inputs"),
        ({"train_transform": by_process}, "1 worker", "5 of 5 batches, first inputs of batch 0"),
        ({"sampler": unseeded_plan}, "sampler=<unseeded_plan>", "when run a second time"),
        ({"train_transform": OwnGenerator()}, None, ""),
        ({"train_transform": lambda x: x + torch.rand(3)}, None, ""),
    ],
)
def test_a_setting_that_changes_the_batches_is_named(options, culprit, said):
    found = run(**options)
    named = found.culprit
    assert (named and named.name) == culprit
    if named is not None:
        assert named.status == "changes"
        assert said in named.detail
        assert found.steps[-1] is named
    assert found.samples == []


def test_threads_are_held_against_the_processes(tmp_path):
    root = write_images(tmp_path / "p")
    options = {"image_size": 8, "num_workers": 2, "batch_size": 8, "worker_type": "thread"}
    found = bisect(ImageFolderDataModule(root, **options), limit=16)
    assert found.culprit is None
    assert "worker_type=thread" in [s.name for s in found.steps if s.status == "fine"]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no alarms on Windows")
def test_a_sample_that_hangs_is_named_where_it_hangs():
    def stuck(x):
        if int(x.sum()) == 3 * 7:
            time.sleep(25)  # the culprit's own line
        return x

    data = TensorDataset(torch.arange(40.0).view(-1, 1).expand(-1, 3), torch.arange(40) % 2)
    dm = DatasetDataModule(data, num_workers=0, train_transform=stuck, val_split=0, test_split=0)
    before = signal.getitimer(signal.ITIMER_REAL)[0]
    began = time.monotonic()
    found = bisect(dm, timeout_seconds=0.5, limit=10)
    assert time.monotonic() - began < 20
    assert found.culprit.name == "train_transform"
    assert "TimeoutError: no batch came for" in found.culprit.detail
    assert "the culprit's own line" in found.culprit.traceback
    assert len(found.samples) == 1
    assert "row 7" in found.samples[0]
    assert before - 25 < signal.getitimer(signal.ITIMER_REAL)[0] <= before  # pytest's own goes on


class Stream(IterableDataset):
    def __init__(self, fault: str = "") -> None:
        self.fault, self.started = fault, os.getpid()

    def __iter__(self):
        for k in range(40):
            if self.fault == "stream" and k == 21:
                raise OSError("the connection was lost")
            if self.fault == "process" and os.getpid() != self.started:
                k = 40 - k
            yield torch.full((3,), float(k)), k % 2


def no_thirteen(x):
    if x[0] == 13:
        raise ValueError("thirteen is no number")
    return x


@pytest.mark.parametrize(
    ("fault", "options", "culprit", "status"),
    [
        ("", {"train_transform": lambda x: x + torch.rand(3)}, None, None),
        ("", {"train_transform": no_thirteen}, "train_transform", "fails"),
        ("stream", {}, "everything off, batches of 1", "fails"),
        ("process", {}, "1 worker", "changes"),
    ],
)
def test_streams_are_bisected_too(fault, options, culprit, status):
    dm = DatasetDataModule(train=Stream(fault), batch_size=8, num_workers=2, **options)
    found = bisect(dm, timeout_seconds=30)
    named = found.culprit
    assert (named and named.name, named and named.status) == (culprit, status)
    wanted = {"train_transform": "sample 13 of the stream: ValueError: thirteen is no number",
              "everything off, batches of 1": "sample 21 of the stream: OSError"}  # fmt: skip
    if status == "fails":
        assert len(found.samples) == 1
        assert found.samples[0].startswith(wanted[culprit])


def test_what_differs_is_said():
    first = [{"inputs": b"1", "target": b"2"}, {"inputs": b"3", "target": b"4"}]
    other = [first[0], {"inputs": b"3", "target": b"5"}]
    assert difference(first, [*first]) is None
    assert difference(first, first[:1]) == "1 batches in place of 2"
    assert difference(first, first[::-1]) == "the same batches come in another order"
    assert difference(first, other) == "1 of 2 batches, first target of batch 1"


def test_parts_tell_dtype_shape_and_value():
    batches = [torch.zeros(2), torch.zeros(2).double(), torch.zeros(1, 2), ["a"], {"a": 1}]
    assert len({repr([*parts(batch)]) for batch in batches}) == len(batches)
    assert [name for name, _ in parts({"a": [torch.zeros(()), "x"]})] == ["a.part 0", "a.part 1"]


def test_data_in_memory_run_too():
    data = TensorDataset(torch.zeros(40, 3), torch.arange(40) % 2)
    assert bisect(DatasetDataModule(data, num_workers=0)).culprit is None


def test_the_script_ends_with_1_and_names_the_file(tmp_path, capfd):
    root = write_images(tmp_path / "p")
    options = ["--data=ImageFolderDataModule", f"--data.root={root}", "--data.image_size=8"]
    options += ["--data.num_workers=0", "--data.val_split=2", "--data.test_split=0"]
    assert bisect_data.main(options) == 0
    for file in sorted((root / "grey").iterdir())[:4]:
        file.write_bytes(file.read_bytes()[:40])
    assert bisect_data.main(options) == 1
    out, err = capfd.readouterr()
    assert "grey" in out
    assert "everything off, batches of 1 breaks the data" in err


def test_threads_that_serve_by_themselves_are_tried(tmp_path):
    write_images(tmp_path / "images", each=6)
    options = {"image_size": 8, "mode": "L", "batch_size": 4, "num_workers": 1, "val_split": 0}
    for kind, tried in (("auto", True), ("process", False)):
        dm = ImageFolderDataModule(tmp_path / "images", worker_type=kind, **options)
        found = bisect(dm, limit=8)
        assert found.culprit is None
        assert tried == any(
            step.name == "worker_type=thread" and step.status == "fine" for step in found.steps
        )
