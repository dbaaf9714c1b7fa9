from __future__ import annotations

from pathlib import Path

import pytest

from datamodules.readers.cache import cache_folder, cached


def read(path):
    content = path.read_text()
    if content != "made":
        raise ValueError("damaged")
    return content


def write(content, path):
    path.write_text(content)


def refuse():
    raise AssertionError("made again")


def test_an_entry_is_made_once_and_read_later(tmp_path, monkeypatch):
    monkeypatch.setenv("DATAMODULES_CACHE", str(tmp_path / "a" / "b"))
    assert cached("x-1", lambda: "made", read, write) == "made"
    assert cached("x-1", refuse, read, write) == "made"
    assert [path.name for path in cache_folder().iterdir()] == ["x-1"]


def test_a_damaged_entry_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("DATAMODULES_CACHE", str(tmp_path))
    (tmp_path / "x-1").write_text("half")
    assert cached("x-1", lambda: "made", read, write) == "made"
    assert (tmp_path / "x-1").read_text() == "made"


def test_a_failed_write_leaves_no_file_and_still_returns_the_result(tmp_path, monkeypatch):
    monkeypatch.setenv("DATAMODULES_CACHE", str(tmp_path))

    def disk_full(content, path):
        path.write_text("ha")
        raise OSError("no space left on device")

    assert cached("x-1", lambda: "made", read, disk_full) == "made"
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_not_an_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DATAMODULES_CACHE", str(tmp_path / "file" / "below"))
    assert cached("x-1", lambda: "made", read, write) == "made"


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", "XDG_CACHE_HOME", "base/lightning-datamodules"),
        ("win32", "LOCALAPPDATA", "base/lightning-datamodules"),
        ("darwin", "", "~/Library/Caches/lightning-datamodules"),
    ],
)
def test_the_folder_follows_the_platform(monkeypatch, platform, variable, expected):
    monkeypatch.delenv("DATAMODULES_CACHE", raising=False)
    monkeypatch.setattr("sys.platform", platform)
    if variable:
        monkeypatch.setenv(variable, "base")
    assert cache_folder() == Path(expected).expanduser()
