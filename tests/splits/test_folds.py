from __future__ import annotations

import numpy as np
import pytest

from datamodules.splits.folds import check_limit, fold_numbers, limited


@pytest.mark.parametrize("n", [6, 23, 100])
@pytest.mark.parametrize("folds", [2, 3, 5])
@pytest.mark.parametrize("classes", [None, 1, 3])
def test_fold_and_class_sizes_differ_by_one_at_most(n, folds, classes):
    labels = None if classes is None else np.arange(n) * 7 % (classes * 2) // 2
    numbers = fold_numbers(n, folds, seed=3, labels=labels)
    sizes = np.bincount(numbers[numbers >= 0], minlength=folds)
    assert sizes.max() - sizes.min() <= 1
    for k in set([] if labels is None else labels.tolist()):
        each = np.bincount(numbers[(labels == k) & (numbers >= 0)], minlength=folds)
        assert each.max() - each.min() <= 1


def test_repeats_deal_anew_and_repeat_themselves():
    first, again, other, seed = (
        fold_numbers(50, 5, seed=s, repeat=r) for s, r in ((0, 0), (0, 0), (0, 1), (1, 0))
    )
    assert (first == again).all()
    assert (first != other).any()
    assert (first != seed).any()


def test_groups_lie_in_one_fold():
    groups = np.repeat(np.arange(12), 4)
    numbers = fold_numbers(48, 3, groups=groups)
    assert all(len(set(numbers[groups == g])) == 1 for g in range(12))
    assert np.bincount(numbers).tolist() == [16, 16, 16]


def test_a_class_with_one_sample_is_in_no_fold_and_said():
    with pytest.warns(UserWarning, match="1 classes have one sample"):
        numbers = fold_numbers(9, 2, labels=np.array([0] * 8 + [1]))
    assert numbers[8] == -1
    assert sorted(set(numbers[:8])) == [0, 1]


def test_fewer_samples_than_folds_are_refused():
    with pytest.raises(ValueError, match="3 samples cannot make 5 folds"):
        fold_numbers(3, 5)


@pytest.mark.parametrize("limit", [10, 0.1])
def test_a_limit_keeps_the_shares_of_classes_and_each_class(limit):
    labels = np.repeat([0, 1, 2], [60, 39, 1])
    rows = limited(np.arange(100, 200), limit, seed=0, labels=labels)
    assert np.bincount(labels[rows - 100]).tolist() in ([5, 4, 1], [6, 3, 1])
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert (limited(np.arange(100, 200), limit, seed=0, labels=labels) == rows).all()
    assert (limited(np.arange(100, 200), limit, seed=1, labels=labels) != rows).any()


def test_a_limit_over_the_size_changes_nothing():
    assert limited(np.arange(5), 9, seed=0).tolist() == [0, 1, 2, 3, 4]
    assert len(limited(np.arange(50), 7, seed=0)) == 7


@pytest.mark.parametrize("limit", [0, -3, 1.5, True, "all"])
def test_an_impossible_limit_is_refused(limit):
    with pytest.raises(ValueError, match="limit must be a number of samples"):
        check_limit(limit)
