from __future__ import annotations

import numpy as np
import pytest

from datamodules.tables import features
from datamodules.tables.features import median

RNG = np.random.default_rng(0)
N = 9000
NUMBERS = {
    "normal": RNG.normal(0, 1, N),
    "skewed": RNG.lognormal(0, 4, N),
    "few": RNG.integers(0, 3, N).astype(float),
    "constant": np.full(N, 0.1),
    "ascending": np.arange(N) / 7,
    "descending": -np.arange(N) / 7,
    "repeating": np.resize([5.0, 1.0, 2.0, 3.0, 9.0, 0.5], N),
    "two halves": np.repeat([1.0, 2.0], N // 2),
    "nearly all equal": np.append(np.zeros(N - 1), 1e300),
    "infinite": np.where(RNG.random(N) < 0.3, np.inf, RNG.normal(0, 1, N)),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("less", [0, 1])
@pytest.mark.parametrize("sample", [2, 100, 1000])
def test_the_median_equals_numpys_to_the_bit(name, less, sample, monkeypatch):
    monkeypatch.setattr(features, "MANY_NUMBERS", 100)
    monkeypatch.setattr(features, "SAMPLE", sample)
    values = NUMBERS[name][less:]
    assert median(values) == np.median(values)


def test_only_numbers_near_the_median_are_sorted(monkeypatch):
    monkeypatch.setattr(features, "MANY_NUMBERS", 100)
    monkeypatch.setattr(np, "median", None)  # used for numbers that mislead the sample
    for name in ("normal", "skewed", "ascending"):
        assert median(NUMBERS[name]) == np.sort(NUMBERS[name])[[N // 2 - 1, N // 2]].mean()
