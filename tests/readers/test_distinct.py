from __future__ import annotations

import polars as pl
import pytest

from datamodules.readers.distinct import DistinctTexts


@pytest.fixture(params=[0, 10**9], ids=["distinct", "cells"])
def cells(request, monkeypatch):
    monkeypatch.setattr("datamodules.readers.distinct.FEW_CELLS", request.param)
    return pl.Series("^x$", ["b", None, "a", "b", "", "b", None, "a", "b", "b", "b", "b"])


def test_each_cell_finds_its_string(cells):
    found = DistinctTexts.of(cells)
    texts = found.texts.to_numpy()
    assert found.spread(texts).tolist() == cells.to_list()
    assert found.counts.sum() == 12
    assert found.count(found.texts) == 10
    if found.places is not None:
        assert found.texts.to_list() == ["b", "a", "", None]
        assert found.counts.tolist() == [7, 2, 1, 2]


@pytest.mark.parametrize("most", [1, 3, 5, 12, 100])
def test_the_first_cells_are_those_that_are_not_null(cells, most):
    found = DistinctTexts.of(cells)
    held = found.texts.replace("", None)
    expected = [cell for cell in cells.to_list() if cell][:most]
    assert found.first(held, most).to_list() == expected


def test_strings_that_rarely_repeat_stay_cells(monkeypatch):
    monkeypatch.setattr("datamodules.readers.distinct.FEW_CELLS", 0)
    assert DistinctTexts.of(pl.Series(["a", "b", "c", "c"])).places is None
    assert DistinctTexts.of(pl.Series([None, None], dtype=pl.String)).places is None
    assert DistinctTexts.of(pl.Series(["c"] * 4)).places.tolist() == [0] * 4


def test_more_than_256_strings_are_counted(monkeypatch):
    texts = [f"t{i}" for i in range(256)] * 4
    assert len(texts) > 1000
    found = DistinctTexts.of(pl.Series([*texts, None]))
    assert found.places[-1] == 256
    assert found.spread(found.texts.to_numpy()).tolist() == [*texts, None]


@pytest.mark.parametrize("head", [1, 2, 5, 12, 10_000])
def test_strings_that_are_not_in_the_head_are_found(cells, head, monkeypatch):
    expected = DistinctTexts.of(cells)
    monkeypatch.setattr("datamodules.readers.distinct.HEAD", head)
    found = DistinctTexts.of(cells)
    assert found.texts.to_list() == expected.texts.to_list()
    assert found.spread(found.texts.to_numpy()).tolist() == cells.to_list()


@pytest.mark.parametrize("head", [1, 5, 10_000])
def test_categories_give_the_same_as_strings(cells, head, monkeypatch):
    monkeypatch.setattr("datamodules.readers.distinct.HEAD", head)
    other = pl.Series(["b", "c"]).cast(pl.Categorical)  # polars numbers the texts of all columns
    of_codes, of_texts = (DistinctTexts.of(s) for s in (cells.cast(pl.Categorical), cells))
    assert of_codes.texts.to_list() == of_texts.texts.to_list()
    assert of_codes.counts.tolist() == of_texts.counts.tolist()
    assert of_codes.spread(of_codes.texts.to_numpy()).tolist() == cells.to_list()
    assert len(other) == 2


def test_categories_that_rarely_repeat_become_strings(monkeypatch):
    monkeypatch.setattr("datamodules.readers.distinct.FEW_CELLS", 0)
    found = DistinctTexts.of(pl.Series(["a", "b", None, "c", "c"]).cast(pl.Categorical))
    assert found.places is None
    assert found.texts.to_list() == ["a", "b", None, "c", "c"]
