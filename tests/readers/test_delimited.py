from __future__ import annotations

import csv

import pytest

from datamodules.readers.delimited import SEPARATORS, Records, read_records, split_rows


def split(content, *, separators=SEPARATORS, width=2, **options):
    return split_rows(content, fits=lambda row: len(row) == width, separators=separators, **options)


@pytest.mark.parametrize(
    ("content", "cells"),
    [
        ("a,b\n1,2\n", [["a", "b"], ["1", "2"]]),
        ("a,b\n1,2", [["a", "b"], ["1", "2"]]),
        ("a,b\r\n1,2\r\n", [["a", "b"], ["1", "2"]]),
        ("a,b\r1,2\r", [["a", "b"], ["1", "2"]]),
        ("a,b\r\n1,2\n3,4", [["a", "b"], ["1", "2"], ["3", "4"]]),
        ("a\tb\n1\t2\n", [["a", "b"], ["1", "2"]]),
        ("a;b\n1,5;2\n", [["a", "b"], ["1,5", "2"]]),
        ("a|b\n1|2\n", [["a", "b"], ["1", "2"]]),
        ('a,b\n"x, ""y""",2\n', [["a", "b"], ['x, "y"', "2"]]),
        ('a,b\n"x\n\ny",2\n', [["a", "b"], ["x\n\ny", "2"]]),
        ('a,b\n5" pipe,0\nsay "hi" now,1\n', [["a", "b"], ['5" pipe', "0"], ['say "hi" now', "1"]]),
        ("a,b\n\n1,2\n\n", [["a", "b"], ["1", "2"]]),
        ("a,b\n,\n", [["a", "b"], ["", ""]]),
        ("a,b\n\u2028\x0b,\x00\n", [["a", "b"], ["\u2028\x0b", "\x00"]]),
    ],
)
def test_rows_are_read_as_written(content, cells):
    assert split(content).cells == cells


@pytest.mark.parametrize(
    ("content", "cells"),
    [
        # quotes that do not pair are characters, and every line stays a row
        ('ham\t"hello\nham\tbye"\n', [["ham", '"hello'], ["ham", 'bye"']]),
        ('ham\t"a" b\nspam\tc\n', [["ham", '"a" b'], ["spam", "c"]]),
        ('ham\t"open\nspam\tc\n', [["ham", '"open'], ["spam", "c"]]),
        # well formed throughout: a writer that quotes
        ('ham\t"he said ""hi"""\nspam\tc\n', [["ham", 'he said "hi"'], ["spam", "c"]]),
        # a tab or a line break inside quotes
        ('ham\t"a\tb"\nspam\tc\n', [["ham", "a\tb"], ["spam", "c"]]),
        ('ham\t"a\nb"\nspam\tc\n', [["ham", "a\nb"], ["spam", "c"]]),
        ("ham\ta\rb\nspam\tc\n", [["ham", "a\rb"], ["spam", "c"]]),
    ],
)
def test_in_tab_separated_text_quotes_count_only_if_all_are_well_formed(content, cells):
    assert split(content).cells == cells


def test_lines_are_the_first_lines_of_the_rows():
    rows = split('a,b\n"x\ny",1\n\n"z",2\n')
    assert rows.lines == [1, 2, 5]


def test_a_blank_separates_the_label_from_the_text():
    rows = split("NUM:dist How far is it ?\nHUM Who , me ?\n", separators=[" "])
    assert rows.cells == [["NUM:dist", "How far is it ?"], ["HUM", "Who , me ?"]]


def test_blank_lines_of_a_single_column_are_empty_texts():
    assert split("one\n\ntwo, or three\n", width=1).cells == [["one"], [""], ["two, or three"]]
    assert split('one\n"two, three"\n', width=1).cells == [["one"], ["two, three"]]


def test_quotes_can_be_given_or_switched_off():
    assert split("a,b\n'x,y',2\n", quote="'").cells[1] == ["x,y", "2"]
    assert split('a,b\n"x,2\n', quote="").cells[1] == ['"x', "2"]


def test_the_longest_first_row_is_returned_if_none_fits():
    assert split("a;b;c\n1;2;3\n") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('a,b\n"never closed,0\nnext,1\n', r"line 2: a quote opens and never closes; double"),
        ('a,b\n1,2\n"x" y,0\n', r"line 3: text follows a closing quote; double the quotes"),
        (
            "a,b\n1,2\n1,2,3\n4\n",
            r"2 ragged rows: line 1 has 2 fields, line 3 has 3, line 4 has 1; quote",
        ),
        ("a,b\n" + "1\n" * 9, r"9 ragged rows: .* line 6 has 1, \.\.\.; quote"),
        ('a\tb\n1\t2\n1\t2\t3\n"\n', r"line 3 has 3|a quote opens"),
    ],
)
def test_damaged_text_is_refused_with_its_line(content, message):
    with pytest.raises(ValueError, match=message):
        split(content)


def test_long_fields_are_read_and_the_limit_of_csv_is_restored():
    before = csv.field_size_limit()
    rows = split(f'a,b\n"{"x" * 300_000}",1\n')
    assert isinstance(rows, Records)
    assert len(rows.cells[1][0]) == 300_000
    assert csv.field_size_limit() == before


def test_quotes_inside_unquoted_fields_are_kept():
    text = 'text,label\n5" pipe,0\nsay "hi" now,1\n\n'
    rows = read_records(text, ",").cells
    assert rows == [["text", "label"], ['5" pipe', "0"], ['say "hi" now', "1"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a,b\n"1\n2",3\n4\n5,6,7\n8,9', "2 ragged rows: .* line 14 has 1, line 15 has 3; quote"),
        ('a,b\n1,2\n"x,1\ny,2\n', "line 13: a quote opens and never closes"),
        ('a,b\n"x \\"y\\" z",1', "line 12: text .* closing quote.*escapes are not supported"),
    ],
    ids=["ragged", "open quote", "backslash"],
)
def test_lines_are_counted_from_the_first_line_given(text, message):
    with pytest.raises(ValueError, match=message):
        read_records(text, ",", first_line=11)
