from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
import torch

from datamodules.splits import split as splits
from datamodules.splits.split import apportion, check_shares, fingerprint, split_indices


@pytest.mark.parametrize("n", [1, 2, 3, 10, 50, 101])
@pytest.mark.parametrize("val", [0, 0.1, 0.5, 1])
@pytest.mark.parametrize("test", [0.0, 0.2, 0])
@pytest.mark.parametrize("stratified", [False, True])
def test_splits_are_disjoint_complete_and_repeatable(n, val, test, stratified):
    labels = np.arange(n) % 2 if stratified and n > 3 else None
    first = split_indices(n, val=val, test=test, seed=0, labels=labels)
    torch.manual_seed(99)
    np.random.seed(99)
    random.seed(99)
    again = split_indices(n, val=val, test=test, seed=0, labels=labels)
    assert sorted(np.concatenate(list(first.values()))) == list(range(n))
    assert all(np.array_equal(first[part], again[part]) for part in first)
    assert all(part.dtype == np.int64 for part in first.values())


def test_the_global_random_state_does_not_change():
    before = torch.random.get_rng_state()
    split_indices(100, val=0.2, labels=np.arange(100) % 3)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_seeds_give_different_splits_and_zero_is_a_seed():
    zero, one = (split_indices(100, val=0.2, seed=seed)["val"] for seed in (0, 1))
    assert not np.array_equal(zero, one)


def test_a_split_equals_one_written_by_hand():
    parts = split_indices(6, val=2, test=1, seed=0)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0)).tolist()
    assert parts["test"].tolist() == order[:1]
    assert parts["val"].tolist() == sorted(order[1:3])
    assert parts["train"].tolist() == sorted(order[3:])


def test_class_proportions_are_rounded_by_largest_remainder():
    labels = np.repeat([0, 1, 2], [50, 30, 20])
    parts = split_indices(100, val=0.1, test=0.25, labels=labels)
    assert np.bincount(labels[parts["val"]]).tolist() == [5, 3, 2]
    assert np.bincount(labels[parts["test"]]).tolist() in ([13, 7, 5], [12, 8, 5])


@pytest.mark.parametrize("labels", [[3, 0, 3, 7, 0, 3], [5], [-1, 2, -1], [10**9, 4, 4]])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_classes_are_counted_as_by_sorting(labels, dtype):
    found = splits._counted(np.array(labels, dtype))
    expected = np.unique(np.array(labels, dtype), return_inverse=True, return_counts=True)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.tolist() == theirs.tolist()


def test_ties_between_classes_are_broken_at_random():
    labels = np.repeat([0, 1, 2], 12)
    gains = {
        tuple(np.bincount(labels[split_indices(36, val=0.1, labels=labels, seed=s)["val"]]))
        for s in range(20)
    }
    assert len(gains) == 3


def test_h10_a_class_with_one_sample_stays_in_train_and_is_named():
    labels = np.repeat([0, 1, 2], [20, 9, 1])
    with pytest.warns(UserWarning, match="'C'"):
        parts = split_indices(30, val=0.2, labels=labels, names=["A", "B", "C"])
    counts = np.bincount(labels[parts["val"]], minlength=3).tolist()
    assert counts == [4, 2, 0]
    assert 29 in parts["train"]


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"val": 0.7, "test": 0.5}, "sum to at most 1"),
        ({"val": -0.1}, "at least 0"),
        ({"val": float("nan")}, "at least 0, got nan"),
        ({"test": "0.1"}, "got '0.1'"),
        ({"val": 1.5}, "it must be at most 1; pass 2"),
        ({"val": 8, "test": 4}, r"take 8 \+ 4 samples, there are 10"),
    ],
)
def test_impossible_fractions_are_refused(shares, message):
    with pytest.raises(ValueError, match=message):
        split_indices(10, **shares)


def test_fractions_that_sum_to_one_in_floating_point_leave_nothing_out():
    parts = split_indices(10, val=0.1 + 0.2, test=0.7)
    assert [len(parts[p]) for p in ("train", "val", "test")] == [0, 3, 7]
    halves = split_indices(3, val=0.5, test=0.5)
    assert sum(map(len, halves.values())) == 3


def test_fingerprint_tells_content_and_boundaries_apart():
    assert fingerprint([1, 2], [3]) != fingerprint([1], [2, 3])
    assert fingerprint("ab", "c") != fingerprint("a", "bc")
    assert fingerprint(np.arange(3, dtype=np.int32)) == fingerprint([0, 1, 2])


@pytest.mark.filterwarnings("ignore:val has 34 instead of 66 samples:UserWarning")  # test below
@pytest.mark.parametrize("shares", [(0.1, 0.1), (0.33, 0.33), (0.0, 0.5)])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_class_keeps_a_sample_in_train(shares, size):
    labels = np.repeat(np.arange(100), size)
    parts = split_indices(len(labels), val=shares[0], test=shares[1], labels=labels)
    assert set(labels[parts["train"]]) == set(range(100))
    assert len(parts["val"]) == round(len(labels) * shares[0]) or (size, shares[0]) == (2, 0.33)


def test_by_default_all_samples_are_train_and_the_seed_is_zero():
    assert {name: len(part) for name, part in split_indices(5).items()} == {
        "train": 5,
        "val": 0,
        "test": 0,
    }
    assert np.array_equal(split_indices(50, val=9)["val"], split_indices(50, val=9, seed=0)["val"])


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        (
            {"val": True, "test": 0},
            "val_split must be a fraction or a number of samples, at least 0, got True",
        ),
        (
            {"val": 0, "test": 2.5},
            "test_split=2.5 is a float and so a fraction: it must be at most 1; "
            "pass 2 for a number of samples",
        ),
        (
            {"val": 0.6, "test": 0.5},
            "fractions must sum to at most 1, got val=0.6 and test=0.5; lower one of them",
        ),
    ],
)
def test_an_impossible_fraction_names_the_argument_the_value_and_the_remedy(shares, message):
    with pytest.raises(ValueError, match="at") as caught:
        check_shares(**shares)
    assert str(caught.value) == message


def test_too_many_samples_for_val_and_test_names_both_counts():
    with pytest.raises(ValueError, match="lower") as caught:
        split_indices(10, val=8, test=4)
    assert str(caught.value) == (
        "val_split and test_split take 8 + 4 samples, there are 10; lower one of them"
    )


@pytest.mark.parametrize("labels", [None, np.arange(7) % 2, np.zeros(7, int), np.arange(7)])
def test_fractions_that_sum_to_one_leave_train_empty_without_a_warning(labels):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        halves = split_indices(7, val=0.5, test=0.5, labels=labels)
        whole = split_indices(7, val=1.0, labels=labels)
    assert [len(halves[name]) for name in ("train", "val", "test")] == [0, 4, 3]
    assert whole["val"].tolist() == list(range(7))


def said(labels, **options):
    """Warnings of a split."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        split_indices(len(labels), labels=labels, **options)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(("labels", "val"), [([0, 0, 0, 1], 0.5), ([0, 0, 1, 1], 3)])
def test_a_warning_points_at_the_caller(labels, val):
    def setup():
        return split_indices(4, val=val, labels=np.array(labels))

    with pytest.warns(UserWarning, match="train") as caught:
        setup()
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(
    ("singles", "names"),
    [
        (1, "3"),
        (5, "3, 4, 5, 6, 7"),
        (6, "3, 4, 5, 6, 7 and 1 more"),
        (8, "3, 4, 5, 6, 7 and 3 more"),
    ],
)
def test_up_to_five_classes_with_one_sample_are_named(singles, names):
    labels = np.append(np.arange(30) % 3, np.arange(3, 3 + singles))
    assert said(labels, val=0.2) == [
        f"a class with one sample cannot be split and stays in train: {names}; "
        "add samples or remove the class"
    ]
    assert said(labels) == [], "nothing is split off"


def test_a_warning_tells_how_many_samples_a_split_lacks():
    labels = np.repeat(np.arange(4), 2)
    assert said(labels, val=4, test=2) == [
        "val has 2 instead of 4 samples, since each class keeps one in train"
    ]
    assert said(labels, val=2, test=2) == []


@pytest.mark.parametrize(
    ("sizes", "room", "total", "shared"),
    [
        ([1, 1, 1, 97], [0, 0, 0, 96], 50, [0, 0, 0, 50]),
        ([10, 10, 80], [0, 9, 79], 95, [0, 9, 79]),
        ([40, 50, 10], [5, 49, 9], 60, [5, 48, 7]),
        ([40, 50, 10], [5, 35, 9], 48, [5, 35, 8]),
        ([60, 30, 10], [59, 29, 9], 10, [6, 3, 1]),
        ([1], [1], 1, [1]),
    ],
)
def test_a_full_class_leaves_its_quota_to_the_others(sizes, room, total, shared):
    sizes, room = np.array(sizes), np.array(room)
    ties = np.zeros(len(sizes), np.float32)
    quota = apportion(sizes, total, int(sizes.sum()), room, ties)
    assert quota.sum() == min(total, room.sum())
    assert (quota <= room).all()
    assert quota.tolist() == shared


def test_a_seed_gives_the_same_split_on_every_machine_and_in_every_release():
    labels = np.arange(300) % 7 % 3
    parts = split_indices(300, val=0.2, test=0.1, seed=5, labels=labels)
    assert parts["test"][:6].tolist() == [2, 15, 19, 26, 38, 44]
    assert (
        fingerprint(parts["train"], parts["val"], parts["test"])
        == "fc719a10bb4762536897d7fb646b9ae1"
    )


def test_a_fingerprint_is_the_same_in_every_release_for_any_file_name():
    assert fingerprint([0, 1, 2], "a", b"b") == "92065964b7d3cbd4df0db8cbd24b46da"
    assert fingerprint("a\udcff.png") == fingerprint(b"a\xff.png")
