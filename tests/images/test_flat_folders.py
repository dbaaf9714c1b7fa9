from __future__ import annotations

import os
from collections import Counter

import numpy as np
import pytest

from datamodules.images import flat_folders
from datamodules.images import listing as files
from datamodules.images.flat_folders import flat_folder
from datamodules.images.listing import list_classes
from datamodules.readers.folders import IMAGE_SUFFIXES
from datamodules.readers.path_list import PathList

RNG = np.random.default_rng(0)
NAMES = {
    "numbers": [f"{i}.jpg" for i in range(60)],
    "one prefix": [f"n01440764_{i * 37}.JPEG" for i in range(60)],
    "a long prefix": [f"ILSVRC2012_val_{i:08d}.JPEG" for i in RNG.permutation(60)],
    "dates, more than eight bytes": [f"IMG_202{i % 3}0101_12{i:04d}.png" for i in range(60)],
    "of every length": [
        "".join(RNG.choice(["a", "b", "A", "-"], i % 9)) + f"{i}.gif" for i in range(60)
    ],
    "one begins another": ["a.png", "a.png.png", "a.pn.png", "a.p.png", "a-.png", "a.png~.png"],
    "no ASCII": ["\u00e9.png", "e.png", "\u65e5.png", "\U0001f600.png", "\uffee.png", "z.png"],
    "no text": [os.fsdecode(b"caf\xe9.png"), "\uffee.png", "a.png", "\U0001f600.png"],
    "odd signs": ["a\nb.png", " .png", "\x0e.jpg", "~.tif", "-.webp", "x .tiff", "[1].bmp"],
    "cases": ["a.JPG", "b.Png", "c.jPeG", "d.TIFF"],
    "hidden ones": [".a.jpg", "b.jpg", "..png", "._b.jpg", ".DS_Store"],
    "one": ["a.png"],
    "hidden ones alone": [".a.png"],
}
ODD = ["notes.txt", "png", "a.jpgx", "a\x0ejpg", "thumbs.db", "a.png.", "b.jp2", "c.xjpg"]


@pytest.fixture
def as_before(monkeypatch):
    """List by asking, naming and sorting each entry."""

    def listed(folder):
        with monkeypatch.context() as patch:
            patch.setattr(files, "flat_folder", lambda *_: None)
            return list(list_classes([folder]).paths)

    return listed


@pytest.fixture(autouse=True, params=["by number", "by path"])
def few_are_many(request, monkeypatch):
    monkeypatch.setattr(flat_folders, "MANY", 0)
    if request.param == "by path":  # as on Windows
        monkeypatch.setattr(os, "supports_fd", frozenset())


def make(folder, names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()


@pytest.mark.parametrize("kind", NAMES)
def test_the_fast_listing_equals_the_listing_entry_by_entry(tmp_path, kind, as_before):
    make(tmp_path / "a", NAMES[kind])
    make(tmp_path / "b", ["0.png"])
    found = flat_folder(str(tmp_path / "a"), IMAGE_SUFFIXES)
    plain = files._images(str(tmp_path / "a"), Counter(), frozenset())
    assert list(PathList.joined([found])) == sorted(plain)
    assert list(list_classes([tmp_path]).paths) == as_before(tmp_path)


@pytest.mark.parametrize("name", ODD)
def test_another_file_is_left_to_the_listing_entry_by_entry(tmp_path, name, as_before):
    make(tmp_path / "a", ["1.png", name, "2.png"])
    assert flat_folder(str(tmp_path / "a"), IMAGE_SUFFIXES) is None
    assert list(list_classes([tmp_path]).paths) == as_before(tmp_path)


def test_folders_and_broken_links_are_left_to_the_listing_entry_by_entry(tmp_path):
    for place, target in (("a/1.png/2.png", None), ("b/1.png", "lost"), ("c/1.png", "1.png")):
        (tmp_path / place).parent.mkdir(parents=True)
        if target is None:
            (tmp_path / place).touch()
        else:
            (tmp_path / place).symlink_to(target)
        make(tmp_path / place[0], ["0.png"])
        assert flat_folder(str(tmp_path / place[0]), IMAGE_SUFFIXES) is None


def test_links_to_images_are_images(tmp_path):
    make(tmp_path, ["real.dat"])
    make(tmp_path / "a", ["2.png"])
    (tmp_path / "a" / "1.png").symlink_to(tmp_path / "real.dat")
    found = PathList.joined([flat_folder(str(tmp_path / "a"), IMAGE_SUFFIXES)])
    assert list(found) == [str(tmp_path / "a" / name) for name in ("1.png", "2.png")]


def test_few_files_are_left_to_the_listing_entry_by_entry(tmp_path, monkeypatch):
    make(tmp_path, ["1.png", "2.png"])
    monkeypatch.setattr(flat_folders, "MANY", 3)
    assert flat_folder(str(tmp_path), IMAGE_SUFFIXES) is None


def test_a_folder_is_closed_again(tmp_path):
    make(tmp_path, ["1.png", "2.txt"])
    place = os.open(tmp_path, os.O_RDONLY)
    os.close(place)
    for _ in range(3):
        flat_folder(str(tmp_path), IMAGE_SUFFIXES)
    again = os.open(tmp_path, os.O_RDONLY)
    os.close(again)
    assert again == place
