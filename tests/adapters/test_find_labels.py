"""Labels, class names and columns of every kind of dataset, found without opening a sample."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from datamodules.adapters.find_labels import as_array, column_of, find_classes, find_labels


class Unopened(Dataset):
    """Has the attributes that it is given; a sample of it must not be opened."""

    def __init__(self, n=4, **attributes):
        self.n = n
        vars(self).update(attributes)

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        raise AssertionError("a sample was opened")


class Feature:
    names = ("cat", "dog")


class Columns(Unopened):
    """A table as Hugging Face's: named columns, each read alone."""

    column_names = ("patient", "label")

    def __init__(self):
        super().__init__(features={"patient": None, "label": Feature()})

    def __getitem__(self, name):
        return {"patient": ["a", "a", "b", "c"], "label": [1, 0, 1, 0]}[name]


SAMPLES = [("a.png", 1), ("b.png", 0), ("c.png", 1), ("d.png", 2)]
HOLDERS = {
    "targets": (Unopened(targets=[3, 1, 2, 0]), [3, 1, 2, 0]),
    "labels": (Unopened(labels=torch.tensor([3, 1, 2, 0])), [3, 1, 2, 0]),
    "y": (Unopened(y=np.array([3, 1, 2, 0])), [3, 1, 2, 0]),
    "labels of another length": (Unopened(targets=[1, 2], y=[3, 1, 2, 0]), [3, 1, 2, 0]),
    "paths and labels": (Unopened(samples=SAMPLES), [1, 0, 1, 2]),
    "a list of pairs": ([("text", 1), ("more", 0)], [1, 0]),
    "a list of lines": (["text", "more"], None),
    "an empty list": ([], None),
    "tensors": (TensorDataset(torch.zeros(2, 3), torch.tensor([1, 0])), [1, 0]),
    "one tensor": (TensorDataset(torch.zeros(2, 3)), None),
    "columns": (Columns(), [1, 0, 1, 0]),
    "rows of it": (Subset(Unopened(targets=[3, 1, 2, 0]), [2, 0]), [2, 3]),
    "no rows of it": (Subset(Unopened(targets=[3, 1, 2, 0]), []), []),
    "rows of nothing known": (Subset(Unopened(), [2, 0]), None),
    "two": (ConcatDataset([Unopened(1, y=[5]), Unopened(2, y=[6, 7])]), [5, 6, 7]),
    "two, one unknown": (ConcatDataset([Unopened(1, y=[5]), Unopened(2)]), None),
    "nothing known": (Unopened(), None),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_labels_are_found_in_every_kind_of_dataset(holder):
    dataset, expected = HOLDERS[holder]
    found = find_labels(dataset)
    assert (None if found is None else found.tolist()) == expected


def test_the_target_column_is_chosen_by_name():
    assert find_labels(Columns(), "patient").tolist() == ["a", "a", "b", "c"]
    assert find_labels(Columns(), "age") is None


def test_a_subset_index_out_of_range_is_an_error():
    with pytest.raises(ValueError, match="a Subset has index 4, its dataset has 4 samples"):
        find_labels(Subset(Unopened(targets=[3, 1, 2, 0]), [0, 4]))


def test_ragged_labels_are_ignored():
    assert as_array([[1, 2], [3]]) is None
    assert as_array([{"box": 1}, {"box": 2}]) is None
    assert as_array(torch.zeros(2, 2, 2)) is None
    assert as_array(torch.ones(2, dtype=torch.bfloat16)).dtype == np.float32


NAMED, OTHERS = Unopened(classes=("ash", "oak")), Unopened(classes=["ash", "elm"])


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (NAMED, ["ash", "oak"]),
        (Subset(NAMED, [0]), ["ash", "oak"]),
        (ConcatDataset([NAMED, NAMED]), ["ash", "oak"]),
        (ConcatDataset([NAMED, OTHERS]), None),
        (Columns(), ["cat", "dog"]),
        (Unopened(), None),
    ],
)
def test_class_names_are_found_in_every_kind_of_dataset(dataset, expected):
    assert find_classes(dataset) == expected


COLUMNS = {
    "a column": (Columns(), ["a", "a", "b", "c"]),
    "an attribute": (Unopened(patient=["a", "a", "b", "c"]), ["a", "a", "b", "c"]),
    "a key of dicts": ([{"patient": "a"}, {"patient": "b"}], ["a", "b"]),
    "rows of it": (Subset(Columns(), [3, 0]), ["c", "a"]),
    "two": (ConcatDataset([Columns(), Unopened(1, patient=["d"])]), ["a", "a", "b", "c", "d"]),
}


@pytest.mark.parametrize("holder", COLUMNS)
def test_a_column_has_a_value_for_each_sample(holder):
    dataset, expected = COLUMNS[holder]
    assert list(column_of(dataset, "patient")) == expected


@pytest.mark.parametrize(
    "dataset",
    [Unopened(), Unopened(patient=["a"]), Unopened(patient=7), [{"patient": 1}, {"age": 2}]],
)
def test_a_column_without_a_value_for_each_sample_is_refused(dataset):
    with pytest.raises(ValueError, match="no column or attribute 'patient' with a value for each"):
        column_of(dataset, "patient")
