"""Damaged files, each written by hand, that once ended in the error of another library."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from datamodules.feature_packs.format import FORMAT, VERSION, read_features
from datamodules.images.label_table import read_label_table
from datamodules.images.packs.image_pack import ImagePack
from datamodules.readers.npy import open_array
from datamodules.splits.index_files import split_by_files
from datamodules.texts.reader import read_texts


def array_file(path, change=lambda content: content, array=None):
    np.save(path, np.arange(6) if array is None else array, allow_pickle=True)
    path.write_bytes(change(path.read_bytes()))
    return path


def test_an_array_is_mapped_with_its_values(tmp_path):
    found = open_array(array_file(tmp_path / "rows.npy"))
    assert found.dtype == np.int64
    assert found.tolist() == list(range(6))
    assert not found.flags.writeable
    assert open_array(array_file(tmp_path / "none.npy", array=np.zeros((0, 3)))).shape == (0, 3)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:-1],
        lambda content: content[:20],
        lambda content: b"",
        lambda content: b"PK\x03\x04" + content,
        lambda content: content.replace(b"}", b" "),  # tokenize.TokenError
        lambda content: content.replace(b"(6,)", b"(6)(").replace(b"}", b"("),
        lambda content: content.replace(b"'<i8'", b"'<Z8'"),
        lambda content: content.replace(b"(6,)", b"(9999999999999999999999,)")[:128],
        lambda content: content.replace(b"'<i8'", b"'(,)'"),  # SyntaxError
    ],
    ids=["cut", "header cut", "empty", "zip", "bracket", "brackets", "dtype", "huge", "syntax"],
)
def test_a_damaged_array_is_refused_by_name_before_memory_is_taken(tmp_path, change):
    path = array_file(tmp_path / "rows.npy", change)
    with pytest.raises(
        ValueError, match=r"^rows\.npy is not a complete \.npy file \(.*write it again"
    ):
        open_array(path)


def test_python_objects_and_a_missing_file_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"rows\.npy is not a complete"):
        open_array(array_file(tmp_path / "rows.npy", array=np.array([{}, None])))
    with pytest.raises(FileNotFoundError, match=r"lost\.npy"):
        open_array(tmp_path / "lost.npy")


def damaged_gzip(text):
    """Gzip whose deflated bytes, not its header, are wrong."""
    content = bytearray(gzip.compress(text.encode(), mtime=0))
    content[12:16] = b"\xff\xff\xff\xff"
    return bytes(content)


def test_damaged_gzip_names_the_file_of_texts(tmp_path):
    path = tmp_path / "texts.csv.gz"
    path.write_bytes(damaged_gzip("label,text\n" + "a,one\n" * 9))
    with pytest.raises(ValueError, match=r"texts\.csv\.gz': "):
        read_texts(path)


def test_damaged_gzip_names_the_label_table(tmp_path):
    path = tmp_path / "labels.csv.gz"
    path.write_bytes(damaged_gzip("file,label\na.png,x\n"))
    with pytest.raises(
        ValueError, match=r"labels\.csv\.gz cannot be read as a table: corrupt .* export it again"
    ):
        read_label_table(path, tmp_path, file_column="file", target="label")


def test_features_whose_arrays_have_other_names_are_damaged(tmp_path):
    folder = tmp_path / "x.features"
    folder.mkdir()
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "keys": {"data": "a", "transform": "b", "weights": "c"},
        "parts": {"train": {"featureS": "x", "targets": "y"}},
    }
    (folder / "features.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=r"x\.features.*has not the right keys and parts"):
        read_features(folder)


def test_a_damaged_index_file_is_named(tmp_path):
    path = array_file(tmp_path / "val.npy", lambda content: content[:-8])
    with pytest.raises(ValueError, match=r"^val\.npy is not a complete \.npy file"):
        split_by_files({"val": path}, 9)


DEEP = "[" * 100_000  # json ends in RecursionError


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("deep.json", DEEP, r"deep\.json': not JSON: .*recursion"),
        ("deep.jsonl", f'{{"text": {DEEP}', r"deep\.jsonl': line 1 is not JSON: .*recursion"),
        ("long.jsonl", f'{{"text": {"1" * 5000}}}', r"long\.jsonl': line 1 is not JSON: .*digits"),
    ],
)
def test_json_that_python_cannot_parse_is_refused_with_its_place(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        read_texts(tmp_path / name)


def test_manifests_nested_too_deeply_are_damaged(tmp_path):
    for name, read in (("pack.json", ImagePack), ("features.json", read_features)):
        (tmp_path / name).write_text(DEEP)
        with pytest.raises(ValueError, match=f"damaged: {name} cannot be read"):
            read(tmp_path)
