from __future__ import annotations

import people_table
import pytest
import small_texts


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DATAMODULES_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def people(tmp_path):
    return people_table.write_people(tmp_path)


@pytest.fixture
def file(tmp_path):
    return small_texts.write(tmp_path / "texts.csv")
