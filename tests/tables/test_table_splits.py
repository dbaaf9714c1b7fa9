from __future__ import annotations

import pytest

from datamodules.tables.table import read_table
from datamodules.tables.table_splits import column_values, split_by_column


def read(tmp_path, *cells):
    (tmp_path / "t.csv").write_text("x,part\n" + "".join(f"{i},{c}\n" for i, c in enumerate(cells)))
    return read_table(tmp_path / "t.csv")


def test_a_column_defines_the_split(tmp_path):
    parts = split_by_column(read(tmp_path, "train", "Val", "validation", "TEST", "train"), "part")
    assert {s: p.rows.tolist() for s, p in parts.items()} == {
        "train": [0, 4],
        "val": [1, 2],
        "test": [3],
    }


@pytest.mark.parametrize("cell", ["holdout", ""])
def test_another_word_in_the_split_column_is_refused_with_its_row(tmp_path, cell):
    with pytest.raises(ValueError, match=rf"must be train, val or test .*'{cell}' in 1 rows.* 1 "):
        split_by_column(read(tmp_path, "train", cell), "part")


def test_no_train_row_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="has no row train, only test, val"):
        split_by_column(read(tmp_path, "val", "test"), "part")


def test_column_values_are_numbers_or_strings(tmp_path):
    table = read(tmp_path, "b", "", "a")
    assert column_values(table, "part").tolist() == ["b", "", "a"]
    assert column_values(table, "x").tolist() == [0, 1, 2]
