"""A damaged Parquet file raises an error with its name; polars would abort on some."""

from __future__ import annotations

import io

import polars as pl
import pytest
from processes import run_program

from datamodules.readers.parquet_check import check_parquet
from datamodules.tables.table import read_table
from datamodules.texts.reader import read_texts

FRAME = pl.DataFrame(
    {
        "number": [*range(40)],
        "text": ["Bonn", None, "New York", "x"] * 10,
        "label": ["a", "b"] * 20,
        "size": [1.5, None, 2.5, -3.0] * 10,
        "list": [[1, 2], [], None, [3]] * 10,
        "pair": [{"a": 1, "b": ["x"]}] * 40,
    }
)
# Flips bits of the headers only, where a wrong size asks for memory that no machine has.
FLIPS = """
import faulthandler, io, random, sys
from pathlib import Path
import polars as pl
from datamodules.tables.table import read_table
from datamodules.texts.reader import read_texts

faulthandler.enable()
path, count = Path(sys.argv[1]), int(sys.argv[2])
whole, counts = path.read_bytes(), {"read": 0, "refused": 0}
foot = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
for number in range(count):
    draw, data = random.Random(number), bytearray(whole)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(foot if draw.random() < 0.7 else 4, len(data) - 8)
        data[at] = draw.choice([0xFF, 0x80, 0x7F, data[at] ^ (1 << draw.randrange(8))])
    path.write_bytes(data)
    for read in (read_table, read_texts):
        try:
            read(path)
            counts["read"] += 1
        except ValueError as error:
            assert path.name in str(error), error
            counts["refused"] += 1
print("counts", counts)
"""


def content(frame=FRAME, **options) -> bytes:
    stream = io.BytesIO()
    frame.write_parquet(stream, **options)
    return stream.getvalue()


@pytest.mark.parametrize("compression", ["uncompressed", "zstd", "snappy", "gzip"])
@pytest.mark.parametrize("rows", [40, 1, 0])
@pytest.mark.parametrize("row_group_size", [None, 7])
def test_intact_files_pass(compression, rows, row_group_size):
    frame = FRAME.head(rows)
    data = content(frame, compression=compression, row_group_size=row_group_size, data_page_size=64)
    check_parquet(data)
    check_parquet(data, ["text", "list"])


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_intact_files_of_another_writer_pass(version):
    parquet = pytest.importorskip("pyarrow.parquet")
    stream = io.BytesIO()
    parquet.write_table(
        FRAME.to_arrow(), stream, data_page_version=version, write_page_checksum=True
    )
    whole = stream.getvalue()
    check_parquet(whole)
    damaged = bytearray(whole)
    damaged[60] ^= 1
    with pytest.raises(ValueError, match=r"checksum of a page|does not fit|headers are damaged"):
        check_parquet(bytes(damaged))


def test_every_truncated_file_and_a_reversed_one_are_refused():
    whole = content()
    for length in range(len(whole)):
        with pytest.raises(ValueError, match=r"PAR1|its footer has|headers are damaged"):
            check_parquet(whole[:length])
    with pytest.raises(ValueError, match="PAR1"):
        check_parquet(whole[::-1])


def test_inconsistent_headers_are_refused():
    whole = content(FRAME.select("number"), compression="uncompressed", statistics=False)
    foot = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    rows = whole.index(bytes([80]), foot)  # 40, zigzag: the first is the footer's own number
    lie = whole[:rows] + bytes([82]) + whole[rows + 1 :]
    with pytest.raises(ValueError, match="it has 41 rows, but its row groups have 40"):
        check_parquet(lie)
    cells = whole.index(bytes([80]), rows + 1)
    lie = whole[:cells] + bytes([82]) + whole[cells + 1 :]
    with pytest.raises(ValueError, match="column 'number' has 41 values for 40 rows"):
        check_parquet(lie)


@pytest.mark.parametrize("kind", [b"\x1c", b"\x19"], ids=["structs", "lists"])
def test_headers_nested_too_deep_are_refused(kind):
    deep = b"PAR1" + kind * 5000
    deep += len(deep[4:]).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(ValueError, match="nested too deep"):
        check_parquet(deep)


@pytest.mark.parametrize("read", [read_table, read_texts])
def test_the_error_names_the_file_and_what_is_wrong(tmp_path, read):
    path = tmp_path / "t.parquet"
    whole = content()
    path.write_bytes(whole[:300] + whole[-200:])
    with pytest.raises(ValueError, match=r"t\.parquet.*(its footer has|headers are damaged)"):
        read(path)


@pytest.mark.runs
def test_flipped_headers_never_end_the_interpreter(tmp_path):
    path = tmp_path / "t.parquet"
    path.write_bytes(content(FRAME.drop("list", "pair")))
    output = run_program("-c", FLIPS, path, "300", timeout=240)
    assert "counts {" in output
