from __future__ import annotations

import datetime as dt
import math

import numpy as np
import polars as pl
import pytest

from datamodules.tables.column import CellRules, Column, null_rules, read_column


@pytest.fixture(autouse=True, params=["cell by cell", "text by text"])
def way(request, monkeypatch):
    """Long columns are read by their different texts, to the same end."""
    if request.param == "text by text":
        monkeypatch.setattr("datamodules.readers.distinct.FEW_CELLS", 0)
        monkeypatch.setattr("datamodules.readers.distinct.MEAN_REPEATS", 1)


def read(*cells, **rules):
    return read_column(pl.Series("x", cells, dtype=pl.String), CellRules(**rules))


def numbers(*cells, **rules):
    column = read(*cells, **rules)
    assert column.codes is None, f"words: {column.words}"
    return column.numbers.tolist()


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1", "2.5", "-3e2"], [1, 2.5, -300]),
        ([" 1 ", "\t2"], [1, 2]),
        (["+1.5", ".5", "0", "0.5", "-0.25"], [1.5, 0.5, 0, 0.5, -0.25]),
        (["$0.99", "$ 1,234.50"], [0.99, 1234.5]),
        (["-$5", "$5"], [-5, 5]),
        (["0%", "12.5 %"], [0, 12.5]),
        (["1,000.50", "999"], [1000.5, 999]),
        (["1,5", "2"], [1.5, 2]),
        (["1.234,50", "-2,5"], [1234.5, -2.5]),
        (["1970-01-02", "1969-12-31"], [1, -1]),
        (["1970-01-02 12:00:00", "1970-01-03 00:00:00"], [1.5, 2]),
        (["1970-01-02T00:00:00Z", "1970-01-02T00:00:00+12:00"], [1, 0.5]),
    ],
)
def test_number_formats_are_detected(cells, values):
    assert numbers(*cells) == pytest.approx(values)


def test_a_given_decimal_comma_is_used():
    asked = {"styles": ("comma", "date")}
    assert numbers("1.234", "5,5", **asked) == [1234, 5.5]
    assert numbers("0.123", "1.5", **asked) == [0.123, 1.5]
    assert numbers("1.234", "5.5") == [1.234, 5.5]
    assert numbers("1.234", "5", known={"x": "comma"}) == [1234, 5]  # train wrote it so


@pytest.mark.parametrize(
    "cells",
    [
        ["5", "5%"],
        ["$5", "€5"],
        ["1,2,3", "4"],
        ["12,34.5", "1"],
        ["1_0", "2"],
        ["0x10", "2"],
        ["03/04/2021", "05/06/2021"],
        ["1 2", "3"],
    ],
)
def test_cells_of_different_quantities_stay_strings(cells):
    assert read(*cells).codes is not None


@pytest.mark.parametrize(
    "cells",
    [
        ["00501", "90210"],
        ["+49301234567", "+49301234568"],
        ["12345678901234567890", "12345678901234567891"],
        ["9007199254740993", "9007199254740992"],
    ],
)
def test_codes_that_look_like_numbers_stay_exact(cells):
    column = read(*cells)
    assert column.exact.any()
    assert [column.word(i) for i in range(2)] == cells
    assert "kept exact" in column.notes[0]


def test_missing_cells():
    assert np.isnan(numbers("1", "", "NA", " nan ", None, "NULL", "2")).tolist() == [
        *(False, True, True, True, True, True, False)
    ]
    words = read("a", "", "NA", "b")
    assert words.missing.tolist() == [False, True, True, False]
    assert "'NA' are read as missing" in words.notes[0]
    assert read("", "NA").missing.all()


def test_na_is_a_value_if_null_values_is_empty():
    column = read("NA", "US", "", **null_rules([]))
    assert column.words == ["NA", "US"]
    assert column.missing.tolist() == [False, False, True]
    assert not column.notes


def test_a_number_in_null_values_matches_in_any_format():
    rules = null_rules(["-999", "?"])
    assert np.isnan(numbers("1", "-999", "-999.0", "?", **rules)).tolist() == [False, *[True] * 3]
    column = read_column(pl.Series("x", [1.0, -999.0]), CellRules(**rules))
    assert np.isnan(column.numbers).tolist() == [False, True]


def test_a_column_of_numbers_and_words_keeps_both():
    column = read("1", "unknown", "3", "")
    assert column.words_in(np.arange(4)).tolist() == [1]
    assert column.numbers[[0, 2]].tolist() == [1, 3]
    assert column.word(1) == "unknown"


def test_words_are_unchanged_and_sorted():
    column = read(" a", "a", "A", "a")
    assert column.words == [" a", "A", "a"]
    assert column.codes.tolist() == [0, 2, 1, 2]
    assert read(" a", " b", strip=True).words == ["a", "b"]


def test_a_column_name_is_never_a_pattern():
    column = read_column(pl.Series("^x.*$", ["$1", "$2"]), CellRules())
    assert column.name == "^x.*$"
    assert column.numbers.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("series", "values"),
    [
        (pl.Series([1, None, 3], dtype=pl.Int16), [1, math.nan, 3]),
        (pl.Series([1.5, float("nan")]), [1.5, math.nan]),
        (pl.Series([None, None]), [math.nan, math.nan]),
        (pl.Series(["1.5"]).cast(pl.Decimal(10, 2)), [1.5]),
        (pl.Series([dt.date(1970, 1, 2)]), [1]),
        (pl.Series([dt.datetime(1970, 1, 1, 6)]), [0.25]),
        (pl.Series([dt.timedelta(hours=12)]), [0.5]),
        (pl.Series([dt.time(18)]), [0.75]),
    ],
)
def test_typed_columns_become_numbers(series, values):
    column = read_column(series.alias("x"), CellRules(typed=True))
    assert column.codes is None
    np.testing.assert_allclose(column.numbers, values)


def test_typed_strings_and_booleans_become_words():
    typed = CellRules(typed=True, null_words=())
    column = read_column(pl.Series("x", ["2", "1", None, "NA"]), typed)
    assert (column.text, column.words) == (True, ["1", "2", "NA"])
    assert column.numbers[:2].tolist() == [2, 1]  # for a user who calls it numeric
    flags = read_column(pl.Series("x", [True, None, False]), typed)
    assert flags.words == ["False", "True"]
    assert flags.codes.tolist() == [1, -1, 0]
    category = read_column(pl.Series("x", ["b", "a"], dtype=pl.Categorical), typed)
    assert category.words == ["a", "b"]


def test_whole_numbers_beyond_float64_stay_exact():
    column = read_column(pl.Series("x", [2**60, 2**60 + 1]), CellRules(typed=True))
    assert column.words == [str(2**60), str(2**60 + 1)]
    low = read_column(pl.Series("x", [-(2**63), 0]), CellRules(typed=True))
    assert low.words == [str(-(2**63)), "0"]


def test_a_column_of_lists_is_refused_when_it_is_used():
    assert "List" in read_column(pl.Series("x", [[1], [2]]), CellRules(typed=True)).refused


@pytest.mark.parametrize(
    "values",
    [[2, 0, 9, 2], [math.nan, 3, 3], [0.5, 2], [-1, 2], [70_000, 2], [-0.0, 1], [math.nan]],
)
def test_words_of_small_whole_numbers_are_found_as_by_sorting(values):
    numbers = np.array(values, float)
    codes, words = Column("x", numbers).as_words
    found = np.array([*map(float, words), np.nan])[codes]
    assert np.array_equal(found, numbers, equal_nan=True)
    assert words == [f"{v:g}" for v in np.unique(numbers[~np.isnan(numbers)] + 0.0)]


def test_numbers_as_words_have_their_shortest_form():
    codes, words = read("3.0", "1", "", "3").as_words
    assert words == ["1", "3"]
    assert codes.tolist() == [1, 0, -1, 1]


CELLS = ["1", " 2", "NA", "", None, "x", "X ", "007", "1,5", "$3", "2001-02-03", "5%", "1e3", "ß"]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("rules", [{}, {"strip": True}, {"null_words": ("x",)}, {"typed": True}])
def test_parsing_distinct_strings_equals_parsing_each_cell(seed, rules, monkeypatch):
    draws = np.random.default_rng(seed)
    some = draws.choice(len(CELLS), draws.integers(1, 6), replace=False)
    cells = [CELLS[i] for i in draws.choice(some, 60)]
    monkeypatch.setattr("datamodules.readers.distinct.FEW_CELLS", 10)
    fast = read(*cells, **rules)
    monkeypatch.setattr("datamodules.readers.distinct.FEW_CELLS", 10**9)
    plain = read(*cells, **rules)
    assert (fast.style, fast.text, fast.example, fast.words, fast.notes) == (
        *(plain.style, plain.text, plain.example, plain.words, plain.notes),
    )
    for name in ("numbers", "codes", "exact"):
        one, other = getattr(fast, name), getattr(plain, name)
        assert (one is None) == (other is None), name
        if one is not None:
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
