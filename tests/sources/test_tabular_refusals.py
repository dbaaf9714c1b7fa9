from __future__ import annotations

import polars as pl
import pytest
from people_table import made, write

from datamodules.tabular import TabularDataModule


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": "lable"}, r"people.csv has no column 'lable' \(target\); did you mean 'label'"),
        ({"numeric": ["agee"]}, r"'agee' \(numeric=\); did you mean 'age'\? it has 'id', 'x'"),
        ({"drop": ["Pay"]}, r"'Pay' \(drop=\); did you mean 'pay'"),
        ({"id_column": "no"}, r"'no' \(id_column=\)"),
        ({"drop": ["label"]}, r"'label' \(target\) is left out by drop="),
        ({"target": "kind", "task": "regression"}, r"'kind' must be numbers .* row 0 .*'a'"),
        ({"target": "pay", "task": "multiclass"}, r"'pay' is 0.25 in row 1 .* not a class"),
        ({"target": "kind", "target_scaling": True}, "target_scaling=True is for"),
        ({"numeric": ["kind"]}, r"'kind' has \d+ cells that are not numbers: "),
        (
            {"split_options": {"column": "kind"}},
            r"'kind' must be train, val or test .* 'a' in 60 rows",
        ),
    ],
)
def test_what_does_not_fit_is_named(people, options, said):
    settings = {"target": "label", "drop": [], **options}
    with pytest.raises(ValueError, match=said):
        TabularDataModule(people, settings.pop("target"), **settings).setup()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"encode": "one-hot"}, "unknown encode 'one-hot'; did you mean 'onehot'"),
        ({"task": "classification"}, "unknown task"),
        ({"unknown_classes": "skip"}, "unknown unknown_classes"),
        ({"numeric": ["x"], "categorical": ["x"]}, "x is in numeric and in categorical"),
        ({"split_options": {"column": "s"}, "val_split": 0.1}, "decides; leave val_split out"),
        ({"split_options": {"column": "s"}, "val_path": "v.csv"}, "decides; leave val_path out"),
        ({"classes": ["a", "a"]}, "lists a name twice"),
        ({"batch_size": 0}, "batch_size must be"),
    ],
)
def test_settings_that_cannot_be_are_refused_at_once(options, said):
    with pytest.raises(ValueError, match=said):
        TabularDataModule("absent.csv", "y", **options)


@pytest.mark.parametrize("column", ["x", "label"])
def test_a_list_in_each_cell_is_refused_by_name(tmp_path, column):
    columns = {"x": [0.5, 1.5] * 9, "z": [1, 2, 3] * 6, "label": ["a", "b"] * 9}
    pl.DataFrame(columns | {column: [[1, 2]] * 18}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=rf"'{column}' \(\w+\) has List.* pass drop=\['{column}'"):
        TabularDataModule(tmp_path / "t.parquet", "label").setup()


def test_a_missing_file_and_a_missing_predict_path_are_named(people):
    with pytest.raises(FileNotFoundError, match=r"did you mean 'people.csv'"):
        TabularDataModule(people.parent / "people.cvs", "label").setup()
    with pytest.raises(ValueError, match="pass predict_path="):
        made(people).setup("predict")


def test_a_class_in_val_alone_is_refused_or_dropped_and_said(people, tmp_path):
    val = write(tmp_path / "val.csv", [[1, 30, "a", True, 7], [1, 3, "a", True, 1]], COLUMNS)
    options = {"drop": ["pay", "id"], "val_path": val, "id_column": None}
    with pytest.raises(ValueError, match="disagree: '7' is in val"):
        made(people, **options, test_split=None, val_split=None).setup()
    dm = made(people, **options, test_split=None, val_split=None, unknown_classes="drop")
    with pytest.warns(UserWarning, match="1 of 2 val samples dropped"):
        assert len(dm.val_dataset) == 1
    assert dm.val_dataset.describe(0) == "row 1 of val.csv"


COLUMNS = "x,age,kind,flag,label"


def test_a_label_of_another_type_meets_its_class(people, tmp_path):
    val = write(tmp_path / "val.csv", [[1, 30, "a", True, "2.0"]], COLUMNS)
    dm = made(people, drop=["pay", "id"], id_column=None, val_path=val, val_split=None)
    assert dm.preview("val").target.tolist() == [2]


def test_given_classes_keep_their_order_and_may_be_absent_from_train(people):
    dm = made(people, classes=["2", "1", "0", "9"])
    dm.setup()
    assert dm.classes == ["2", "1", "0", "9"]
    assert dm.class_counts == [12, 12, 12, 0]
