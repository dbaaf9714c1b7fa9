from __future__ import annotations

import polars as pl
import pytest

from datamodules.readers.csv_frame import read_csv


def read(tmp_path, text, **options):
    (tmp_path / "t.csv").write_bytes(text.encode())
    return read_csv(tmp_path / "t.csv", **options)


def test_plain_decimals_are_read_as_numbers_and_other_cells_as_strings(tmp_path):
    frame = read(tmp_path, "a,b,c\n1.5,1,x\n-2.25e3,02,\n,3,y\n").frame
    assert frame.schema == {"a": pl.Float64, "b": pl.String, "c": pl.String}
    assert frame.rows() == [(1.5, "1", "x"), (-2250.0, "02", None), (None, "3", "y")]


def test_a_word_after_thousands_of_decimals_is_not_lost(tmp_path):
    rows = "".join(f"{i}.5,x\n" for i in range(3000))
    frame = read(tmp_path, f"a,b\n{rows}unknown,x\n").frame
    assert frame.height == 3001
    assert frame["a"].to_list()[-2:] == ["2999.5", "unknown"]


def test_misplaced_quotes_and_empty_lines_are_read_by_record(tmp_path):
    frame = read(tmp_path, 'text,n\n5" pipe,1\n\nsay "hi",2\n').frame
    assert frame.rows() == [('5" pipe', "1"), ('say "hi"', "2")]


def test_line_ends_may_be_mixed(tmp_path):
    frame = read(tmp_path, 'a,b\r\n1,"x\r\ny"\r\n2,z').frame
    assert frame.rows() == [("1", "x\r\ny"), ("2", "z")]


@pytest.mark.parametrize("before", [0, 100_000])
def test_doubled_line_ends_are_found_wherever_they_begin(tmp_path, before):
    frame = read(tmp_path, "a\n" + "yes\n" * before + "no\r\r\n" * 4).frame
    assert frame["a"].to_list() == ["yes"] * before + ["no"] * 4
    frame = read(tmp_path, "a,b\n" + "1,yes\n" * before + "2,no\r\r\n" * 4).frame
    assert frame["b"].to_list() == ["yes"] * before + ["no"] * 4


@pytest.mark.parametrize("rows", [3, 300])
def test_line_ends_doubled_by_python_on_windows_are_not_part_of_a_cell(tmp_path, rows):
    frame = read(tmp_path, "a,b\r\r\n" + "1,yes\r\r\n2.5,no\r\r\n" * rows).frame
    assert frame.rows() == [("1", "yes"), ("2.5", "no")] * rows


def test_a_header_over_two_lines_is_one_record(tmp_path):
    frame = read(tmp_path, '"a\nb",c\n1,2\n').frame
    assert frame.columns == ["a\nb", "c"]
    assert frame.rows() == [("1", "2")]


def test_names_are_made_unique_with_a_note(tmp_path):
    found = read(tmp_path, " a ,,a,a_2\n1,2,3,4\n")
    assert found.frame.columns == ["a", "unnamed_1", "a_3", "a_2"]
    assert found.twice == ["a"]
    assert len(found.notes) == 3


def test_column_names_are_given_for_a_file_without_a_header(tmp_path):
    frame = read(tmp_path, "1,x\n2,y\n", column_names=["n", "w"]).frame
    assert frame.rows() == [("1", "x"), ("2", "y")]
    with pytest.raises(ValueError, match=r"column_names has 1 names, t.csv has 2 columns"):
        read(tmp_path, "1,x\n2,y\n", column_names=["n"])


def test_a_repeated_header_is_refused_with_its_row(tmp_path):
    with pytest.raises(ValueError, match="repeats its header in row 1 "):
        read(tmp_path, "a,b\n1.5,x\na,b\n2.5,y\n")
    assert read(tmp_path, "a,b\n1,x\na,z\n").frame.height == 2  # one equal cell is none


def test_blanks_after_separators_are_detected(tmp_path):
    assert read(tmp_path, "a, b\n1, x\n2, y\n").blanks
    assert not read(tmp_path, "a,b\n1, x\n2,y\n").blanks


def test_one_column_keeps_its_empty_cells(tmp_path):
    assert read(tmp_path, "a\n1\n\n3\n\n").frame["a"].to_list() == ["1", None, "3"]


def test_file_names_with_wildcards_are_not_expanded(tmp_path):
    (tmp_path / "a[1]*.csv").write_text("a\n1\n")
    assert read_csv(tmp_path / "a[1]*.csv").frame.height == 1


@pytest.mark.parametrize(
    ("header", "number"),
    [
        ("0,3,male,22.0", "0"),
        ("5.1,3.5,setosa", "5.1"),
        ("1,words", "1"),
        ("country,2019,2020,2021", None),
        ("a,b,1a", None),
        ("0,1,2,3", None),
    ],
)
def test_a_header_that_looks_like_data_is_reported(tmp_path, header, number, caplog):
    row = ",".join("x" * (header.count(",") + 1))
    found = read(tmp_path, f"{header}\n{row}\n")
    said = [note for note in found.notes if "column_names=" in note]
    assert (len(said), len(caplog.records)) == ((0, 0) if number is None else (1, 1))
    assert number is None or f"such as '{number}'" in said[0]


def test_a_long_row_does_not_hide_a_short_one(tmp_path):
    rows = ["1.5,x,2"] * 30_000
    rows[7], rows[20_000] = "1.5,x", "1.5,x,2,3"
    with pytest.raises(
        ValueError, match=r"t.csv: 2 ragged rows.* line 9 has 2, line 20002 has 4; quote"
    ):
        read(tmp_path, "a,b,c\n" + "\n".join(rows))


def test_repeated_strings_are_read_as_categories_of_the_same_strings(tmp_path, monkeypatch):
    texts = ["x", " y", "", "01", "NA", "caf\xe9", "x "]
    rows = [f"{texts[i % 7]},{i},{i % 3}.5" for i in range(1000)]
    text = "\n".join(["a,b,c", *rows, ""])
    coded = read(tmp_path, text).frame
    kinds = zip(coded.dtypes, [pl.Categorical, pl.String, pl.Float64], strict=True)
    assert all(found == expected for found, expected in kinds)
    monkeypatch.setattr("datamodules.readers.csv_frame.MANY_CELLS", 10**9)
    assert coded.cast({"a": pl.String}).equals(read(tmp_path, text).frame)


def test_a_repeated_header_is_found_among_categories(tmp_path):
    with pytest.raises(ValueError, match="repeats its header in row 200 "):
        read(tmp_path, "a,b\n" + "x,1\n" * 200 + "a,b\n" + "y,2\n")
