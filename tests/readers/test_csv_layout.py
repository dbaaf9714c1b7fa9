from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from datamodules.readers import csv_layout
from datamodules.readers.csv_layout import count_even, count_regular, find_layout
from datamodules.readers.delimited import read_records
from datamodules.readers.encodings import Text


def layout(text, separator=None):
    data = text.encode()
    return find_layout("t.csv", Text(data, 0, len(data), True, []), separator)


def count(text, width, separator=","):
    data = np.frombuffer(text.encode(), np.uint8)
    return count_regular(data, separator=separator, width=width)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_a_separator_is_found(separator):
    found = layout(separator.join("abc") + "\n" + separator.join(["1,5;x"[:3], "2", "3"]) + "\n")
    assert found.separator == separator
    assert found.header == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ('text,label\n"a; b; c",0\n"d; e",1', ","),
        ("a;b\n1,5;2,5\n3,5;4,5", ";"),  # decimal commas part each row alike, but not the header
        ("only\n1\n2", ","),
        ("text\tlabel\ta\none, two, three\t0\t1\nfour, five, six\t1\t2", "\t"),
    ],
)
def test_separators_within_fields_are_ignored(text, separator):
    assert layout(text).separator == separator


@pytest.mark.parametrize(("given", "used"), [("\\t", "\t"), ("tab", "\t"), (":", ":")])
def test_a_given_separator_is_used(given, used):
    assert layout(f"a{used}b\n1{used}2", given).header == ["a", "b"]
    with pytest.raises(ValueError, match="one character, got '::'"):
        layout("a::b", "::")


def test_comment_lines_before_the_header_are_skipped():
    found = layout("# made by x\n\n# at noon\na,b\n1,2")
    assert found.header == ["a", "b"]
    assert (found.line, found.start) == (4, len("# made by x\n\n# at noon\n"))
    assert "3 lines" in found.notes[0]


def test_a_header_that_begins_with_a_hash_is_a_header():
    assert layout("##made\n#chrom\tstart\nx\t1").header == ["#chrom", "start"]


def test_a_header_longer_than_the_head_is_read_whole():
    names = [f"column_{i}" for i in range(20_000)]
    assert layout(",".join(names) + "\n" + ",".join("1" for _ in names)).header == names


@pytest.mark.parametrize(
    ("text", "width", "records"),
    [
        ("a,b\n1,2\n3,4", 2, 3),
        ("a,b\r\n1,2", 2, 2),
        ('a,b\n"x,y","1\n2"\n"say ""hi""",', 2, 3),
        ("a\n\n1", 1, 3),
        ("a,b\n1", 2, None),
        ("a,b\n1,2,3", 2, None),
        ("a,b\n\n1,2", 2, None),
        ('a,b\n5" pipe,2', 2, None),
        ('a,b\n"x"y,2', 2, None),
        ('a,b\n"open,2', 2, None),
    ],
)
@pytest.mark.parametrize("block", [1, 3, 1 << 24])
def test_records_are_counted_if_all_are_regular(text, width, records, block, monkeypatch):
    monkeypatch.setattr("datamodules.readers.csv_layout.BLOCK", block)
    assert count(text, width) == records


def test_every_reader_agrees_on_regular_text(monkeypatch):
    monkeypatch.setattr(csv_layout, "BLOCK", 7)
    rng = np.random.default_rng(0)
    signs = ["a", "1", ",", '"', "\n", '""', " ", "\r\n"]
    checked = 0
    for _ in range(6000):
        text = "".join(rng.choice(signs, rng.integers(1, 14))).strip("\r\n")
        width = int(rng.integers(1, 4))
        if not text or (found := count(text, width)) is None:
            continue
        rows = read_records(text, ",").cells
        schema = {f"c{i}": pl.String for i in range(width)}
        frame = pl.read_csv(text.encode(), has_header=False, schema=schema)
        assert [[cell or "" for cell in row] for row in frame.rows()] == rows
        assert len(rows) == found
        checked += 1
    assert checked > 300


def test_every_reader_agrees_on_an_even_count_that_polars_confirms(monkeypatch):
    monkeypatch.setattr(csv_layout, "BLOCK", 12)
    rng = np.random.default_rng(0)
    refused = shorter = read = 0
    for _ in range(4000):
        text = "".join(rng.choice(["a", "1", ",", ",", "\n", " ", "\r\n"], rng.integers(3, 16)))
        text, width = text.strip("\r\n"), int(rng.integers(2, 4))
        data = np.frombuffer(text.encode(), np.uint8)
        if not text or (found := count_even(data, separator=",", width=width)) is None:
            continue
        schema = {f"c{i}": pl.String for i in range(width)}
        try:
            frame = pl.read_csv(text.encode(), has_header=False, schema=schema)
        except pl.exceptions.PolarsError:
            refused += 1
            continue
        if frame.height != found:
            shorter += 1
            continue
        rows = read_records(text, ",").cells
        assert [[cell or "" for cell in row] for row in frame.rows()] == rows
        read += 1
    assert min(refused, shorter, read) > 30


def test_a_lone_carriage_return_in_a_comment_is_accepted():
    assert layout("# made\rby hand\na,b\n1,2\n3,4\n").header == ["a", "b"]
