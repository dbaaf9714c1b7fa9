from __future__ import annotations

import unicodedata
import warnings

import numpy as np
import pytest

from datamodules.settings.class_map import ClassMap, given_classes

NAMES = ["ash", "birch", "cedar", "damson"]


def class_map(train, val=(), test=(), names=NAMES):
    labels = {"train": train, "val": val, "test": test}
    return ClassMap(names, {split: np.array(rows, np.int64) for split, rows in labels.items()})


def test_the_class_list_is_fitted_on_train():
    found = class_map([0, 0, 2, 1, 3], [2, 3])
    assert found.fit() == (NAMES, [2, 1, 1, 1])
    rows, targets = found.encode("val", NAMES)
    assert rows.tolist() == [0, 1]
    assert targets.tolist() == [2, 3]
    assert targets.dtype == np.int64


def test_h01_a_class_empty_in_train_is_named():
    with pytest.raises(ValueError, match="class 'birch' has no sample in train"):
        class_map([0, 2, 3], [0]).fit()


def test_a_class_that_only_val_has_is_an_error_of_val():
    found = class_map([0, 1, 2], [3, 0, 3])
    classes, counts = found.fit()
    assert classes == NAMES[:3]
    assert counts == [1, 1, 1]
    message = "train/ and val/ disagree: 'damson' is in val/ only; add it to train/ or pass unknown"
    with pytest.raises(ValueError, match=message):
        found.encode("val", classes)


def test_dropped_samples_are_warned_about_once():
    found = class_map([0, 1, 2], [3, 0, 3])
    with pytest.warns(UserWarning, match=r"2 of 3 val samples dropped, .* lacks 'damson'"):
        rows, targets = found.encode("val", NAMES[:3], unknown="drop")
    assert rows.tolist() == [1]
    assert targets.tolist() == [0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.encode("val", NAMES[:3], unknown="drop")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Cedar", r"\(did you mean 'cedar'\?\)"),
        ("cedars", r"\(did you mean 'cedar'\?\)"),
        ("zebra", "only; add"),
        (
            unicodedata.normalize("NFD", "café"),
            r"\(it looks like 'caf\\xe9' but is written 'cafe\\u0301'\)",
        ),
    ],
)
def test_a_misspelt_class_gets_a_hint(name, hint):
    found = class_map([0, 1], [2], names=["cedar", "café", name])
    with pytest.raises(ValueError, match=hint):
        found.encode("val", ["cedar", "café"])


def test_a_given_class_list_replaces_the_fitted_one():
    found = class_map([0, 0, 1], [3])
    assert found.fit(["damson", "birch", "ash"]) == (["damson", "birch", "ash"], [0, 1, 2])
    assert found.encode("train", ["damson", "birch", "ash"])[1].tolist() == [2, 2, 1]
    assert found.encode("val", ["damson", "birch", "ash"])[1].tolist() == [0]
    with pytest.raises(ValueError, match="the class list lacks 'ash', found in train; add it to"):
        found.encode("train", ["birch"])


def multilabel(train, val=()):
    labels = {"train": np.array(train, bool), "val": np.array(val, bool).reshape(-1, 3)}
    return ClassMap(["a", "b", "c"], labels)


def test_multilabel_targets_are_rows_of_zeros_and_ones():
    found = multilabel([[1, 0, 1], [0, 1, 0]], [[1, 1, 0]])
    assert found.fit() == (["a", "b", "c"], [1, 1, 1])
    rows, targets = found.encode("val", ["c", "b", "a"])
    assert rows.tolist() == [0]
    assert targets.dtype == np.float32
    assert targets.tolist() == [[0, 1, 1]]


def test_an_unknown_label_of_multilabel_data_is_refused_or_dropped():
    found = multilabel([[1, 0, 0], [0, 1, 0]], [[1, 0, 1]])
    classes, _ = found.fit()
    assert classes == ["a", "b"]
    with pytest.raises(ValueError, match="'c' is in val/ only; list it in classes= or pass"):
        found.encode("val", classes)
    with pytest.warns(UserWarning, match="val labels dropped that the class list lacks: 'c'"):
        _, targets = found.encode("val", classes, unknown="drop")
    assert targets.tolist() == [[1, 0]]


def test_two_thousand_classes_with_one_sample_each():
    names = [f"c{i:04d}" for i in range(2000)]
    classes, counts = class_map(range(2000), names=names).fit()
    assert classes == names
    assert counts == [1] * 2000


def test_classes_are_given_as_a_list_or_by_index():
    assert given_classes(None, None) is None
    assert given_classes(["b", "a"], None) == ["b", "a"]
    assert given_classes([10, 9], None) == ["10", "9"]
    assert given_classes(None, {"b": 1, "a": 2, "c": 0}) == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("classes", "class_to_idx", "message"),
    [
        (["a"], {"a": 0}, "not both"),
        (["a", "b", "a"], None, "lists a name twice"),
        ("ab", None, "must be a list of names, got the text 'ab'"),
        (None, {"a": 1, "b": 2}, r"each of 0..1 once"),
        (None, {"a": 0, "b": 0}, r"each of 0..1 once"),
    ],
)
def test_impossible_class_lists_are_refused(classes, class_to_idx, message):
    with pytest.raises(ValueError, match=message):
        given_classes(classes, class_to_idx)
