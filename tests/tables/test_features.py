from __future__ import annotations

import math

import numpy as np
import pytest

from datamodules.tables.features import (
    cardinalities,
    fit_columns,
    input_sizes,
    numeric_names,
    one_hot_places,
)
from datamodules.tables.table import read_table


def table_of(tmp_path, **columns):
    names = list(columns)
    lines = [
        ",".join(names),
        *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True)),
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    return read_table(tmp_path / "t.csv")


def fit(table, rows=None, **kinds):
    rows = np.arange(table.rows) if rows is None else np.asarray(rows)
    return fit_columns(table, rows, table.names, **kinds)


def test_numbers_are_imputed_by_the_median_and_scaled_after_imputing(tmp_path):
    features, _ = fit(table_of(tmp_path, x=[1, "", 3, 8], y=[1, 2, 3, 4]), [0, 1, 2])
    x, y = features
    assert (x["fill"], x["gaps"], y["gaps"]) == (2.0, True, False)
    assert x["mean"] == 2.0
    assert x["std"] == pytest.approx(math.sqrt(2 / 3))  # population, the fill included
    assert numeric_names(features) == ["x", "y", "x missing"]


def test_two_category_indices_are_reserved(tmp_path):
    features, _ = fit(table_of(tmp_path, c=["b", "a", "b", "z"]), [0, 1, 2])
    assert features == [
        {"name": "c", "kind": "categorical", "values": ["a", "b"], "gaps": False},
    ]
    assert cardinalities(features) == [4]
    assert input_sizes(features, one_hot=False) == {"num_numeric": 0, "cardinalities": [4]}


def test_only_train_rows_count(tmp_path):
    a = table_of(tmp_path, x=[1, 2, 3, 4, 99], c=["a", "b", "a", "b", "z"])
    b = table_of(tmp_path, x=[1, 2, 3, 4, -1e6], c=["a", "b", "a", "b", ""])
    assert fit(a, range(4)) == fit(b, range(4))


def test_exact_digits_outside_of_train_make_no_category(tmp_path):
    a = table_of(tmp_path, x=[1, 2, 3, 4], g=[1, 2, 3, 4])
    b = table_of(tmp_path, x=[1, 2, 3, "007"], g=[1, 2, 3, "word"])
    assert fit(a, range(3)) == fit(b, range(3))
    assert fit(b)[0][0]["kind"] == "categorical"


def test_the_user_chooses_which_numbers_are_categories(tmp_path):
    table = table_of(tmp_path, p=["1.0", "3", "1", "2"], zip=["007", "010", "007", "010"])
    features, _ = fit(table, categorical=["p"], numeric=["zip"])
    assert [f["kind"] for f in features] == ["numeric", "categorical"]
    assert features[0]["mean"] == 8.5
    assert features[1]["values"] == ["1", "2", "3"]


def test_uninformative_columns_are_left_out_with_a_note(tmp_path):
    n = 24
    table = table_of(
        tmp_path,
        id=range(n),
        empty=[""] * n,
        one=[7] * n,
        word=["w"] * n,
        uuid=[f"u{i}" for i in range(n)],
        x=[i % 5 for i in range(n)],
        flag=["False"] * n,
        gap=["w", ""] * (n // 2),
    )
    features, notes = fit(table)
    assert [f["name"] for f in features] == ["x", "flag", "gap"]
    said = " ".join(notes)
    assert "left out: id (row numbers)" in said
    assert "left out: empty (empty in train)" in said
    assert "left out: one, word (one value in train)" in said
    assert "left out: uuid (nearly every row has another string" in said


def test_columns_listed_by_the_user_are_kept(tmp_path):
    n = 24
    table = table_of(tmp_path, id=range(n), one=[7] * n, uuid=[f"u{i}" for i in range(n)])
    features, _ = fit(table, numeric=["id", "one"], categorical=["uuid"])
    assert [f["name"] for f in features] == ["id", "one", "uuid"]
    assert features[1]["std"] == 1.0
    assert len(features[2]["values"]) == n


def test_row_numbers_under_another_name_are_a_feature(tmp_path):
    features, _ = fit(table_of(tmp_path, x=range(30), index=range(5, 35)))
    assert [f["name"] for f in features] == ["x", "index"]


def test_values_that_differ_in_blanks_or_case_are_reported(tmp_path):
    features, notes = fit(table_of(tmp_path, c=[" a", "a", "A", "b"]))
    assert features[0]["values"] == [" a", "A", "a", "b"]
    assert "differ in blanks or case only" in " ".join(notes)


def test_a_few_words_among_numbers_are_refused_with_their_rows(tmp_path):
    table = table_of(tmp_path, x=[*range(20), "unknown"], y=[*range(21)])
    with pytest.raises(ValueError, match=r"'x' has 1 cells .* among 20 numbers: 'unknown' in row"):
        fit(table)
    features, _ = fit(table, categorical=["x"])
    assert len(features[1]["values"]) == 21
    with pytest.raises(ValueError, match="null_values=\\['unknown'\\]"):
        fit(table, numeric=["x"])
    assert fit(table, range(20))[0][0]["kind"] == "numeric"  # val's fault, said when val is encoded


def test_one_repeated_word_among_numbers_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has 8 cells .* among 12 numbers: 'unknown' in rows 12"):
        fit(table_of(tmp_path, x=[*range(12), *["unknown"] * 8]))


def test_a_word_among_few_different_numbers_makes_a_category(tmp_path):
    features, _ = fit(table_of(tmp_path, children=[0, 1, 2, "3+"] * 5))
    assert features[0]["values"] == ["0", "1", "2", "3+"]


def test_many_words_among_numbers_are_categories(tmp_path):
    features, _ = fit(table_of(tmp_path, size=["10", "12", "S", "M", "S", "L"]))
    assert features[0]["values"] == ["10", "12", "L", "M", "S"]


def test_infinity_is_refused_with_its_rows(tmp_path):
    with pytest.raises(ValueError, match=r"'x' is infinite in 2 rows: 1, 3 \(counted from 0\)"):
        fit(table_of(tmp_path, x=[1, "inf", 2, "-inf"]))


def test_no_feature_or_no_row_is_an_error_with_the_reason(tmp_path):
    table = table_of(tmp_path, x=[3, 3, 3])
    with pytest.raises(ValueError, match="no feature column left: left out: x"):
        fit(table)
    with pytest.raises(ValueError, match="no column beside the target"):
        fit_columns(table, np.arange(3), [])
    with pytest.raises(ValueError, match=r"no train rows are left of t.csv"):
        fit(table, np.arange(0))


def test_a_single_row_keeps_its_columns(tmp_path):
    features, _ = fit(table_of(tmp_path, x=[3], c=["a"]))
    assert len(features) == 2


def test_one_hot_has_a_column_for_each_value_and_none_for_unseen(tmp_path):
    features, _ = fit(table_of(tmp_path, x=[1, 2, 3], c=["b", "a", "b"], d=["u", "", "v"]))
    places, names = one_hot_places(features)
    assert names == ["c=a", "c=b", "d missing", "d=u", "d=v"]
    assert places == [[-1, -1, 0, 1], [2, -1, 3, 4]]
    assert input_sizes(features, one_hot=True) == {"num_numeric": 6, "cardinalities": []}


def test_fitted_features_are_plain_types(tmp_path):
    features, notes = fit(table_of(tmp_path, x=[1.5, "", 3], c=["b", "a", "b"]))
    assert all(isinstance(note, str) for note in notes)
    for value in (v for f in features for v in f.values()):
        assert type(value) in (str, float, bool, list)
