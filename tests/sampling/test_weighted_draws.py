from __future__ import annotations

import numpy as np
import pytest
import torch

from datamodules.sampling.weighted_draws import choose_weighted, draw_weighted


@pytest.mark.parametrize("block", [7, 1000, 1 << 20])
def test_draws_in_blocks_equal_shuffled_single_draws(block):
    weights = np.random.default_rng(0).random(5000) ** 4
    weights[::3] = 0
    total = np.cumsum(weights)
    drawn = draw_weighted(total, 20_000, torch.Generator().manual_seed(3), block=block)
    one = torch.Generator().manual_seed(3)
    for start in range(0, 20_000, block):
        length = min(block, 20_000 - start)
        points = torch.rand(length, dtype=torch.float64, generator=one).sort().values
        points = points[torch.randperm(length, generator=one)]
        expected = [int(np.argmax(total > u * total[-1])) for u in points[:50].tolist()]
        assert drawn[start : start + length][:50].tolist() == expected
    assert (weights[drawn] > 0).all()
    if block > 20_000:  # neighbours in time are not neighbours in place
        assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.03


def test_more_samples_than_multinomial_takes():
    n = 2**24 + 3
    weights = np.zeros(n)
    weights[[5, n - 1]] = 1, 3
    drawn = draw_weighted(np.cumsum(weights), 20_000, torch.Generator().manual_seed(0))
    assert set(drawn.tolist()) == {5, n - 1}
    assert 14_600 < int((drawn == n - 1).sum()) < 15_400


def test_a_sample_without_weight_is_never_drawn_by_rounding(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "uniform_", lambda self, **_: self.fill_(1 - 2**-53))
    total = np.cumsum([5e-324, 0.0])  # the product rounds up to the sum
    assert draw_weighted(total, 2, torch.Generator()).tolist() == [0, 0]


def test_draws_without_replacement_differ_and_follow_the_weights():
    weights = np.array([0.0, 1, 1, 2])
    firsts = np.zeros(4)
    generator = torch.Generator().manual_seed(0)
    for _ in range(4000):
        chosen = choose_weighted(weights, 3, generator)
        assert sorted(chosen.tolist()) == [1, 2, 3]
        firsts[chosen[0]] += 1
    assert np.abs(firsts / 4000 - weights / 4).max() < 0.03
