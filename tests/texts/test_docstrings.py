from __future__ import annotations

import json
from collections import Counter

import pytest

from datamodules.texts import docstrings
from datamodules.texts.docstrings import write_docstrings


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A small installed package in the place of each of the four."""
    roots = {}
    of_a_test = '"""Text of a test, which is not to be read at all."""'
    for package in docstrings.PACKAGES:
        root = roots[package] = tmp_path / "installed" / package
        (root / "tests").mkdir(parents=True)
        (root / "__init__.py").write_text(
            f'"""The {package} package, which does what it does."""\n'
        )
        (root / "b.py").write_text(
            "def f():\n"
            f'    """Return the {package} of its arguments, in any order."""\n'
            "class C:\n"
            '    """Equal in all four packages, so that it is kept but once."""\n'
            "    async def g(self):\n"
            '        """Short."""\n'
            "    def h(self):\n"
            f'        r"""Escapes such as \\d are {package}\'s own business."""\n'
        )
        (root / "broken.py").write_text("print 'for another Python'\n")
        (root / "tests" / "c.py").write_text(
            '"""Text of a test, which is not to be read at all."""'
        )
        (root / "test_d.py").write_text(of_a_test)
    monkeypatch.setattr(docstrings, "_root", roots.__getitem__)
    return roots


def rows_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_docstrings_of_modules_classes_and_functions(packages, tmp_path):
    rows = rows_of(write_docstrings(tmp_path / "out"))
    assert {row["name"]: row["text"] for row in rows if row["label"] == "torch"} == {
        "torch": "The torch package, which does what it does.",
        "torch.b.f": "Return the torch of its arguments, in any order.",
        "torch.b.C.h": "Escapes such as \\d are torch's own business.",
    }
    assert Counter(row["label"] for row in rows) == {
        "numpy": 4,
        "sklearn": 3,
        "stdlib": 3,
        "torch": 3,
    }


def test_the_same_versions_give_the_same_bytes_and_a_written_file_stays(packages, tmp_path):
    first, second = (write_docstrings(tmp_path / name) for name in ("a", "b"))
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    first.write_text("kept")
    assert write_docstrings(tmp_path / "a").read_text() == "kept"
    assert [path.name for path in (tmp_path / "a").iterdir()] == [first.name]


def test_no_package_has_more_than_its_share(packages, tmp_path, monkeypatch):
    monkeypatch.setattr(docstrings, "MOST", 2)
    rows = rows_of(write_docstrings(tmp_path / "out"))
    assert set(Counter(row["label"] for row in rows).values()) == {2}


def test_packages_are_found_without_an_import():
    assert (docstrings._root("sklearn") / "__init__.py").is_file()
    assert (docstrings._root("stdlib") / "json").is_dir()
