from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from datamodules.sampling.length_buckets import LengthBuckets, fit_bounds
from datamodules.sampling.plan import Batches
from datamodules.sampling.sharded_sampler import ShardedBatchSampler
from datamodules.sampling.strategies import Facts

RANDOM = np.random.default_rng(0)
LENGTHS = np.clip(
    np.round(RANDOM.lognormal(np.log(230) - 0.66**2 / 2, 0.66, 25_000)), 8, 2000
).astype(np.int64)


def steps(lengths, world, *, epoch=0, batch_size=32, **options):
    plan = LengthBuckets(**options).plan(Facts(len(lengths), batch_size, lengths=lengths))
    shares = []
    for rank in range(world):
        sampler = ShardedBatchSampler(plan, len(lengths), num_replicas=world, rank=rank, seed=0)
        sampler.set_epoch(epoch)
        shares.append([keys.indices for keys in sampler])
    return list(zip(*shares, strict=True))


def test_bounds_have_the_least_padding():
    lengths = np.array([1, 2, 2, 7, 8, 15, 16, 16, 30, 31])

    def padding(bounds):
        at = np.searchsorted(bounds, lengths)
        return int((np.asarray(bounds)[at] - lengths).sum())

    best = min(
        padding([*chosen, 32])
        for r in range(3)
        for chosen in itertools.combinations(range(2, 32, 2), r)
    )
    assert padding(fit_bounds(lengths, 3, 2)) == best


def test_bounds_equal_those_of_plain_python_loops():
    draws = np.random.default_rng(1)
    for n, top, count, multiple in ((1, 9, 4, 8), (50, 40, 3, 1), (900, 700, 32, 8), (9, 3, 5, 2)):
        lengths = draws.integers(1, top, n)
        steps_up = -(-lengths // multiple)
        total = np.cumsum(np.bincount(steps_up, minlength=2)).tolist()
        best = {(1, j): (total[j] * j * multiple, [j]) for j in range(len(total))}
        for k in range(2, count + 1):
            for j in range(len(total)):
                costs = [
                    best[k - 1, i][0] + (total[j] - total[i]) * j * multiple for i in range(j + 1)
                ]
                i = costs.index(min(costs))
                best[k, j] = (costs[i], [*best[k - 1, i][1], j])
        expected = sorted({j * multiple for j in best[count, len(total) - 1][1]} - {0})
        assert fit_bounds(lengths, count, multiple).tolist() == expected


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("n", [1, 40, 3000])
def test_an_epoch_equals_a_plain_python_version(world, drop_last, n):
    lengths = LENGTHS[:n]
    buckets = LengthBuckets(max_tokens=4000, buckets=6)
    bounds = buckets.bounds(lengths)
    generator = torch.Generator().manual_seed(5)
    facts = Facts(n, 32, lengths=lengths, drop_last=drop_last)
    found = Batches.of(buckets.plan(facts)(generator, world))
    plain = torch.Generator().manual_seed(5)
    order = torch.randperm(n, generator=plain).tolist()
    expected, carry = [], []
    for lower, bound in itertools.pairwise([0, *bounds.tolist()]):
        members = carry + [i for i in order if lower < lengths[i] <= bound]
        size = 4000 // bound
        while len(members) >= size * world:
            expected.append([members[r * size : (r + 1) * size] for r in range(world)])
            members = members[size * world :]
        carry = members
    if carry and not drop_last:
        carry = np.resize(carry, max(len(carry), world * min(2, size, n)))
        expected.append([part.tolist() for part in np.array_split(carry, world)])
    mixed = torch.randperm(len(expected), generator=plain).tolist()
    flat = [batch for s in mixed for batch in expected[s]]
    assert [found.batch(b).tolist() for b in range(len(found))] == flat


@pytest.mark.parametrize("world", [1, 2, 8])
def test_max_tokens_padding_balance_and_constant_steps(world):
    counts = set()
    for epoch in range(3):
        epoch_steps = steps(LENGTHS, world, epoch=epoch, max_tokens=8192)
        counts.add(len(epoch_steps))
        tokens = np.array([[len(b) * LENGTHS[b].max() for b in step] for step in epoch_steps])
        real = sum(int(LENGTHS[b].sum()) for step in epoch_steps for b in step)
        assert tokens.max() <= 8192
        assert 1 - real / tokens.sum() <= 0.06
        assert tokens.max() / tokens.mean() <= 1.1
        assert (tokens.mean(1) / tokens.max(1)).mean() >= 0.95
        flat = np.concatenate([b for step in epoch_steps for b in step])
        assert len(np.unique(flat)) == len(LENGTHS)
        assert len(flat) - len(LENGTHS) < 2 * world
    assert len(counts) == 1


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("n", [1, 2, 5, 33, 200])
def test_small_datasets_keep_every_sample(world, n):
    found = steps(LENGTHS[:n], world, batch_size=4)
    flat = np.concatenate([b for step in found for b in step])
    assert set(flat) == set(range(n))
    assert all(len(b) >= min(2, n) for step in found for b in step)


def test_max_tokens_below_the_longest_sample_is_refused():
    with pytest.raises(ValueError, match="less than the longest sample"):
        LengthBuckets(100).plan(Facts(3, 4, lengths=np.array([5, 101, 7])))


def test_a_source_without_lengths_is_refused():
    with pytest.raises(ValueError, match="need lengths"):
        LengthBuckets().plan(Facts(3, 4))
