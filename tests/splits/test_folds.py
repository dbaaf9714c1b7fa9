from __future__ import annotations

import numpy as np
import pytest

from datamodules.splits.folds import assign_folds, check_limit, limit_rows


@pytest.mark.parametrize("n", [6, 23, 100])
@pytest.mark.parametrize("folds", [2, 3, 5])
@pytest.mark.parametrize("classes", [None, 1, 3])
def test_fold_and_class_sizes_differ_by_one_at_most(n, folds, classes):
    labels = None if classes is None else np.arange(n) * 7 % (classes * 2) // 2
    numbers = assign_folds(n, folds, seed=3, labels=labels)
    sizes = np.bincount(numbers[numbers >= 0], minlength=folds)
    assert sizes.max() - sizes.min() <= 1
    for k in set([] if labels is None else labels.tolist()):
        each = np.bincount(numbers[(labels == k) & (numbers >= 0)], minlength=folds)
        assert each.max() - each.min() <= 1


def test_each_repeat_and_seed_gives_other_folds():
    first, again, other, seed = (
        assign_folds(50, 5, seed=s, repeat=r) for s, r in ((0, 0), (0, 0), (0, 1), (1, 0))
    )
    assert (first == again).all()
    assert (first != other).any()
    assert (first != seed).any()


def test_a_group_is_in_one_fold():
    groups = np.repeat(np.arange(12), 4)
    numbers = assign_folds(48, 3, groups=groups)
    assert all(len(set(numbers[groups == g])) == 1 for g in range(12))
    assert np.bincount(numbers).tolist() == [16, 16, 16]


def test_a_class_with_one_sample_is_in_no_fold_with_a_warning():
    with pytest.warns(UserWarning, match="1 classes have one sample"):
        numbers = assign_folds(9, 2, labels=np.array([0] * 8 + [1]))
    assert numbers[8] == -1
    assert sorted(set(numbers[:8])) == [0, 1]


def test_fewer_samples_than_folds_are_refused():
    with pytest.raises(ValueError, match="3 samples are too few for 5 folds"):
        assign_folds(3, 5)


@pytest.mark.parametrize("limit", [10, 0.1])
def test_a_limit_keeps_every_class_and_the_proportions(limit):
    labels = np.repeat([0, 1, 2], [60, 39, 1])
    rows = limit_rows(np.arange(100, 200), limit, seed=0, labels=labels)
    assert np.bincount(labels[rows - 100]).tolist() in ([5, 4, 1], [6, 3, 1])
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert (limit_rows(np.arange(100, 200), limit, seed=0, labels=labels) == rows).all()
    assert (limit_rows(np.arange(100, 200), limit, seed=1, labels=labels) != rows).any()


def test_a_limit_above_the_size_changes_nothing():
    assert limit_rows(np.arange(5), 9, seed=0).tolist() == [0, 1, 2, 3, 4]
    assert len(limit_rows(np.arange(50), 7, seed=0)) == 7


@pytest.mark.parametrize("limit", [0, -3, 1.5, True, "all"])
def test_an_impossible_limit_is_refused(limit):
    with pytest.raises(ValueError, match="limit must be a number of samples"):
        check_limit(limit)
