from __future__ import annotations

import codecs
import gzip
import re
import sys
from pathlib import Path

import pytest

from datamodules.readers.encodings import read_text, release_pages

TEXT = "prénom,ville\nZoé,Besançon\nJérôme,Nîmes\n"


def body(text):
    return text.data[text.start : text.end].decode()


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-8", b""),
        ("utf-8", codecs.BOM_UTF8),
        ("utf-16-le", codecs.BOM_UTF16_LE),
        ("utf-16-be", codecs.BOM_UTF16_BE),
        ("utf-32-le", codecs.BOM_UTF32_LE),
        ("utf-16-le", b""),
        ("utf-16-be", b""),
        ("cp1252", b""),
    ],
)
def test_the_encoding_is_detected(tmp_path, encoding, mark):
    (tmp_path / "t.csv").write_bytes(mark + TEXT.encode(encoding))
    text = read_text(tmp_path / "t.csv")
    assert body(text) == TEXT.rstrip("\n")
    assert bool(text.notes) == (encoding == "cp1252")  # a guess is reported


def test_a_plain_file_is_not_copied(tmp_path):
    (tmp_path / "t.csv").write_bytes(TEXT.encode())
    assert read_text(tmp_path / "t.csv").as_is
    (tmp_path / "t.csv").write_bytes(TEXT.encode() + b"\n\n")
    text = read_text(tmp_path / "t.csv")
    assert not text.as_is, "empty lines at the end are not rows"
    assert body(text) == TEXT.rstrip("\n")


def test_a_given_encoding_is_used_and_checked(tmp_path):
    (tmp_path / "t.csv").write_bytes("имя,город\n".encode("cp1251"))
    assert body(read_text(tmp_path / "t.csv", "cp1251")) == "имя,город"
    with pytest.raises(ValueError, match=r"t.csv: line 1: byte 0xe8 is not UTF-8; pass encoding"):
        read_text(tmp_path / "t.csv")
    with pytest.raises(ValueError, match=r"t.csv: line 1: byte 0xe8 is not ascii"):
        read_text(tmp_path / "t.csv", "ascii")
    with pytest.raises(ValueError, match=r"t.csv: line 1: byte 0xe8 is not utf-8"):
        read_text(tmp_path / "t.csv", "utf-8")
    with pytest.raises(ValueError, match="unknown encoding 'utf9'"):
        read_text(tmp_path / "t.csv", "utf9")


def test_a_given_utf8_skips_a_byte_order_mark(tmp_path):
    (tmp_path / "t.csv").write_bytes(codecs.BOM_UTF8 + b"a,b\n")
    assert body(read_text(tmp_path / "t.csv", "utf-8")) == "a,b"
    assert body(read_text(tmp_path / "t.csv", "utf-8-sig")) == "a,b"


def test_damage_far_into_the_file_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr("datamodules.readers.encodings.BLOCK", 16)
    good = "é,b\n" * 40
    (tmp_path / "t.csv").write_bytes(good.encode())
    assert body(read_text(tmp_path / "t.csv")) == good.rstrip("\n")
    (tmp_path / "t.csv").write_bytes(good.encode() + b"\xff\xfe\xc3(\n")
    with pytest.raises(ValueError, match="line 41: byte 0xff"):
        read_text(tmp_path / "t.csv")


def test_gzip_is_decompressed_and_damaged_gzip_is_refused_by_name(tmp_path):
    zipped = gzip.compress(TEXT.encode())
    (tmp_path / "t.csv.gz").write_bytes(zipped)
    assert body(read_text(tmp_path / "t.csv.gz")) == TEXT.rstrip("\n")
    (tmp_path / "t.csv.gz").write_bytes(zipped[:-12])
    with pytest.raises(ValueError, match=r"t.csv.gz is a damaged gzip file"):
        read_text(tmp_path / "t.csv.gz")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(ValueError, match="has no rows"):
        read_text(tmp_path / "t.csv.gz")


def test_carriage_returns_alone_become_line_ends(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a,b\r1,2\r")
    assert body(read_text(tmp_path / "t.csv")) == "a,b\n1,2"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "0 bytes"),
        (b"\n\r\n", "contains line ends only"),
        (b"PK\x03\x04rest", "zip archive or a spreadsheet"),
    ],
)
def test_files_that_are_not_text_are_refused(tmp_path, content, said):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_text(tmp_path / "t.csv")


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_released_pages_are_read_again(tmp_path):
    def mapped_kib():
        status = Path("/proc/self/status").read_text()
        return int(re.findall(r"RssFile:\s+(\d+)", status)[0])

    content = b"a,b\n" + b"1,2\n" * (1 << 23)
    (tmp_path / "t.csv").write_bytes(content)
    text = read_text(tmp_path / "t.csv")
    before = mapped_kib()
    release_pages(text)
    assert before - mapped_kib() > 16 * 1024
    assert text.data[:] == content
    release_pages(text._replace(data=content))  # bytes have no pages of their own
