from __future__ import annotations

import numpy as np
import pytest

from datamodules.tables.table import read_table
from datamodules.tables.table_splits import Part
from datamodules.tables.targets import Targets, check_target, class_map, find_task


def read(tmp_path, *cells, name="y", file="t.csv"):
    lines = [f"x,{name}", *(f"{i},{cell}" for i, cell in enumerate(cells))]
    (tmp_path / file).write_text("\n".join(lines) + "\n")
    return read_table(tmp_path / file)


def parts(table, train, val=()):
    return {"train": Part(table, np.asarray(train)), "val": Part(table, np.asarray(val, int))}


@pytest.mark.parametrize(
    ("cells", "task"),
    [
        (["a", "b", "a"], "multiclass"),
        (["True", "False", "True"], "multiclass"),
        ([0, 1, 1], "multiclass"),
        ([-1, 1, 1, -1], "multiclass"),
        ([0, 1, 2, 0, 1, 2], "multiclass"),
        (["0.0", "1.0", "2.0"] * 2, "multiclass"),
        ([1, 2, 3, 4], "regression"),
        ([0.5, 1, 1], "regression"),
        (list(range(21)) * 3, "regression"),
        (["007", "010", "007"], "multiclass"),
    ],
)
def test_the_task_is_detected(tmp_path, cells, task):
    table = read(tmp_path, *cells)
    assert find_task(Part(table, np.arange(table.rows)), ["y"])[0] == task


def test_the_task_is_detected_in_the_given_rows(tmp_path):
    table = read(tmp_path, 0, 1, 0, 1, 0.5, "x", "007")
    assert find_task(Part(table, np.arange(4)), ["y"])[0] == "multiclass"
    assert find_task(Part(table, np.arange(5)), ["y"])[0] == "regression"
    assert find_task(Part(table, np.arange(6)), ["y"])[0] == "multiclass"


def test_several_columns_are_multilabel_or_regression(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,c\n0,1,2.5\n1,True,3\n")
    table = read_table(tmp_path / "t.csv")
    whole = Part(table, np.arange(2))
    assert find_task(whole, ["a", "b"])[0] == "multilabel"
    assert find_task(whole, ["a", "c"])[0] == "regression"


def test_whole_numbers_and_strings_are_sorted_class_names(tmp_path):
    ten = parts(read(tmp_path, 10, 9, "-1", 10), range(4))
    assert class_map(ten, ["y"], task="multiclass").names == ["-1", "9", "10"]
    floats = parts(read(tmp_path, "2.0", "0.0", "2.0"), range(3))
    assert class_map(floats, ["y"], task="multiclass").names == ["0", "2"]
    words = parts(read(tmp_path, "b", "a", "B"), range(3))
    found = class_map(words, ["y"], task="multiclass")
    assert found.names == ["B", "a", "b"]
    assert found.labels["train"].tolist() == [2, 1, 0]


def test_labels_of_two_files_are_matched_by_name(tmp_path):
    train = read(tmp_path, 0, 1, 2)
    val = read(tmp_path, "2.0", "0.0", file="v.csv")
    both = {"train": Part(train, np.arange(3)), "val": Part(val, np.arange(2))}
    assert class_map(both, ["y"], task="multiclass").labels["val"].tolist() == [2, 0]


def test_a_class_of_unused_rows_is_ignored(tmp_path):
    table = read(tmp_path, "a", "b", "z")
    assert class_map(parts(table, [0], [1]), ["y"], task="multiclass").names == ["a", "b"]


def test_missing_targets_are_counted_with_their_rows(tmp_path):
    table = read(tmp_path, "a", "", "b", "NA", "")
    with pytest.raises(ValueError, match=r"'y' is missing in 3 of 5 train rows: 1, 3, 4 \(counted"):
        check_target(parts(table, range(5)), ["y"])
    check_target(parts(table, [0, 2]), ["y"])


def test_a_fraction_is_refused_as_a_class(tmp_path):
    table = read(tmp_path, 0, 0.5, 1)
    with pytest.raises(ValueError, match=r"'y' is 0.5 in row 1 .* not a class; pass task='regr"):
        Targets(parts(table, range(3)), ["y"], task="multiclass")


def test_a_word_or_infinity_is_refused_as_a_number(tmp_path):
    for cell in ("tall", "inf"):
        targets = Targets(parts(read(tmp_path, 1.5, cell), range(2)), ["y"], task="regression")
        with pytest.raises(ValueError, match=f"must be numbers for regression, row 1 .*'{cell}'"):
            targets.fit(classes=None, scaling=False)


def test_regression_targets_are_scaled_by_train(tmp_path):
    targets = Targets(parts(read(tmp_path, 1, 3, 100), [0, 1], [2]), ["y"], task="regression")
    fitted = targets.fit(classes=None, scaling=True)
    assert fitted == {"num_targets": 1, "target_scale": {"mean": [2.0], "std": [1.0]}}
    assert targets.encode("val", fitted)[1].tolist() == [[98.0]]
    plain = targets.fit(classes=None, scaling=False)
    assert plain["target_scale"] is None
    assert targets.encode("val", plain)[1].tolist() == [[100.0]]


def test_multilabel_targets_in_columns_and_in_cells(tmp_path):
    (tmp_path / "t.csv").write_text("x,cat,dog,tags\n1,0,1,dog\n2,1,1,cat| dog\n3,0,0,\n")
    table = read_table(tmp_path / "t.csv")
    columns = Targets(parts(table, range(3)), ["cat", "dog"], task="multilabel")
    fitted = columns.fit(classes=None, scaling=False)
    assert fitted == {"classes": ["cat", "dog"], "class_counts": [1, 2]}
    cells = Targets(parts(table, range(3)), ["tags"], task="multilabel", label_separator="|")
    assert cells.fit(classes=None, scaling=False) == fitted
    expected = [[0, 1], [1, 1], [0, 0]]
    assert columns.encode("train", fitted)[1].tolist() == expected
    assert cells.encode("train", fitted)[1].tolist() == expected


def test_multilabel_columns_must_be_0_and_1(tmp_path):
    (tmp_path / "t.csv").write_text("x,cat,dog\n1,0,2\n")
    table = read_table(tmp_path / "t.csv")
    with pytest.raises(ValueError, match="'dog' must be 0 and 1 for task='multilabel', it has '2'"):
        Targets(parts(table, [0]), ["cat", "dog"], task="multilabel")


def test_a_single_class_is_refused(tmp_path):
    targets = Targets(parts(read(tmp_path, "a", "a"), [0, 1]), ["y"], task="multiclass")
    with pytest.raises(ValueError, match="'y' has one class in train, 'a'"):
        targets.fit(classes=None, scaling=False)
    assert targets.fit(classes=["a", "b"], scaling=False)["class_counts"] == [2, 0]


def test_options_of_another_task_are_refused(tmp_path):
    table = read(tmp_path, 1.5, 2.5)
    targets = Targets(parts(table, [0, 1]), ["y"], task="regression")
    with pytest.raises(ValueError, match="classes= was given, but target y is numeric"):
        targets.fit(classes=["a"], scaling=False)
    for names, task in ((["x", "y"], "multilabel"), (["y"], "multiclass")):
        with pytest.raises(ValueError, match="label_separator= separates the labels of one"):
            Targets(parts(table, [0, 1]), names, task=task, label_separator="|")


def test_target_scaling_needs_numbers(tmp_path):
    targets = Targets(parts(read(tmp_path, "a", "b"), [0, 1]), ["y"], task="multiclass")
    with pytest.raises(ValueError, match="target_scaling=True is for numbers"):
        targets.fit(classes=None, scaling=True)


def test_a_class_that_is_not_in_train_is_refused_or_dropped(tmp_path):
    table = read(tmp_path, "a", "b", "damson", "a")
    split = parts(table, [0, 1], [2, 3])
    with pytest.raises(ValueError, match="disagree: 'damson' is in val"):
        Targets(split, ["y"], task="multiclass").fit(classes=None, scaling=False)
    targets = Targets(split, ["y"], task="multiclass", unknown="drop")
    with pytest.warns(UserWarning, match="1 of 2 val samples dropped"):
        fitted = targets.fit(classes=None, scaling=False)
    rows, labels = targets.encode("val", fitted)
    assert (rows.tolist(), labels.tolist()) == ([3], [0])
