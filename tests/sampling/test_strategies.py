from __future__ import annotations

import numpy as np
import pytest
import torch

from datamodules.sampling.by_class import Pairs, PByK, Stratified
from datamodules.sampling.plan import Batches
from datamodules.sampling.sharded_sampler import ShardedBatchSampler
from datamodules.sampling.strategies import (
    Balanced,
    Facts,
    GlobalBatches,
    Sequential,
    Shuffle,
    Views,
    Weighted,
)

LABELS = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, 3], [50, 30, 15, 6]))
FACTS = Facts(n=len(LABELS), batch_size=8, labels=LABELS)
STRATEGIES = {
    "shuffle": Shuffle(),
    "sequential": Sequential(),
    "weighted": Weighted(np.arange(1, 102)),
    "without": Weighted(np.arange(101), replacement=False, num_samples=60),
    "balanced": Balanced(),
    "p_by_k": PByK(2, 4),
    "pairs": Pairs(0.25),
    "views": Views(2),
    "stratified": Stratified(),
}
WORLDS = [1, 2, 3, 4, 8]


def steps(plan, world, *, epoch=0, seed=0, n=101):
    """``steps[s][r]``: indices of rank r in step s."""
    shares = []
    for rank in range(world):
        sampler = ShardedBatchSampler(plan, n, num_replicas=world, rank=rank, seed=seed)
        sampler.set_epoch(epoch)
        shares.append([keys.indices.tolist() for keys in sampler])
    return list(zip(*shares, strict=True))


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("batch_size", [2, 8])
@pytest.mark.parametrize("cut", ["local", "global"])
def test_epochs_have_equal_steps_and_repeat_with_the_seed(name, world, batch_size, cut):
    facts = FACTS._replace(batch_size=batch_size * (world if cut == "global" else 1))
    plan = STRATEGIES[name].plan(facts)
    plan = GlobalBatches(plan) if cut == "global" else plan
    epochs = [steps(plan, world, epoch=epoch) for epoch in range(3)]
    assert len({len(epoch) for epoch in epochs}) == 1, "Lightning reads the number once"
    assert steps(plan, world, epoch=1) == epochs[1]
    assert name == "sequential" or epochs[0] != epochs[1]
    assert name == "sequential" or steps(plan, world, seed=1) != epochs[0]
    assert all(len(batch) >= 2 for step in epochs[0] for batch in step)


@pytest.mark.parametrize("name", ["shuffle", "sequential", "weighted", "without", "balanced"])
def test_the_union_of_a_step_depends_on_the_global_batch_size_only(name):
    unions = []
    for world in (1, 2, 4):
        plan = STRATEGIES[name].plan(FACTS._replace(batch_size=16 // world))
        unions.append([sorted({i for b in step for i in b}) for step in steps(plan, world)])
    assert unions[0] == unions[1] == unions[2]


@pytest.mark.parametrize("name", STRATEGIES)
def test_global_batches_do_not_depend_on_the_world_size(name):
    plan = GlobalBatches(STRATEGIES[name].plan(FACTS._replace(batch_size=16)))
    found = [
        [sorted({i for b in step for i in b}) for step in steps(plan, world)]
        for world in (1, 2, 4, 8)
    ]
    assert all(f == found[0] for f in found)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", ["shuffle", "sequential", "stratified"])
def test_each_sample_occurs_once_but_for_repeats_that_even_out_the_ranks(name, world):
    flat = [i for step in steps(STRATEGIES[name].plan(FACTS), world) for b in step for i in b]
    assert set(flat) == set(range(101))
    assert len(flat) - 101 < 2 * world


def test_h12_balanced_draws_have_equal_classes_and_reach_all_samples():
    labels = np.repeat([0, 1, 2], [90, 9, 1])
    plan = Balanced().plan(Facts(100, 10, labels=labels))
    drawn = [
        np.concatenate([b for step in steps(plan, 1, epoch=e, n=100) for b in step])
        for e in range(30)
    ]
    assert all(len(d) == 100 for d in drawn)
    counts = np.bincount(labels[np.concatenate(drawn)])
    assert counts.min() >= 900
    assert counts.max() <= 1100
    assert len(np.unique(np.concatenate(drawn))) > 90


def test_h13_weights_are_those_of_the_subset():
    labels = np.array([0, 0, 0, 0, 0, 1])
    sampling = Balanced(num_samples=2000)
    assert (sampling._sample_weights(Facts(6, 10, labels=labels)) * 5).tolist() == [
        1,
        1,
        1,
        1,
        1,
        5,
    ]
    drawn = np.concatenate(
        [b for s in steps(sampling.plan(Facts(6, 10, labels=labels)), 1, n=6) for b in s]
    )
    assert 900 <= labels[drawn].sum() <= 1100


def test_draws_follow_the_weights():
    plan = Weighted([1, 0, 3], num_samples=40_000).plan(Facts(3, 100))
    drawn = np.concatenate([b for step in steps(plan, 1, n=3) for b in step])
    counts = np.bincount(drawn, minlength=3)
    assert counts[1] == 0
    assert 9_700 < counts[0] < 10_300


def test_without_replacement_no_sample_is_drawn_twice():
    drawn = [i for step in steps(STRATEGIES["without"].plan(FACTS), 1) for b in step for i in b]
    assert len(drawn) == len(set(drawn)) == 60
    assert 0 not in drawn
    with pytest.raises(ValueError, match="cannot draw 101 of 100 samples with weight > 0"):
        Weighted(np.arange(101), replacement=False).plan(FACTS)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("p", "k"), [(2, 4), (3, 3), (4, 6), (4, 10)])
def test_a_batch_has_p_classes_with_k_different_samples(world, p, k):
    for step in steps(PByK(p, k).plan(FACTS), world):
        for batch in step:
            rows = LABELS[batch].reshape(p, k)
            assert (rows == rows[:, :1]).all()
            assert len(set(rows[:, 0])) == p
            for group, label in zip(np.reshape(batch, (p, k)), rows[:, 0], strict=True):
                assert len(set(group)) == min(k, int(np.sum(label == LABELS)))


def test_small_classes_can_be_skipped():
    classes = {c for s in steps(PByK(3, 10, small="skip").plan(FACTS), 1) for c in LABELS[s[0]]}
    assert classes == {0, 1, 2}
    with pytest.raises(ValueError, match="train has 3 with 10 samples"):
        PByK(4, 10, small="skip").plan(FACTS)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("positive", [0.0, 0.25, 0.5, 1.0])
def test_pairs_are_adjacent_and_in_the_given_ratio(world, positive):
    for step in steps(Pairs(positive).plan(FACTS), world):
        for batch in step:
            pairs = np.reshape(batch, (4, 2))
            assert (pairs[:, 0] != pairs[:, 1]).all()
            same = LABELS[pairs[:, 0]] == LABELS[pairs[:, 1]]
            assert same.sum() == positive * 4


def test_views_of_a_sample_are_adjacent_and_have_different_seeds():
    sampler = ShardedBatchSampler(Views(2).plan(FACTS), 101, seed=0)
    for keys in sampler:
        pairs = keys.indices.reshape(-1, 2)
        assert (pairs[:, 0] == pairs[:, 1]).all()
        assert (keys.seeds.reshape(-1, 2)[:, 0] != keys.seeds.reshape(-1, 2)[:, 1]).all()


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("batch_size", [8, 12])
def test_every_stratified_batch_has_the_class_proportions(world, batch_size):
    plan = Stratified().plan(FACTS._replace(batch_size=batch_size, drop_last=True))
    share = np.bincount(LABELS) / len(LABELS)
    for step in steps(plan, world):
        for batch in step:
            counts = np.bincount(LABELS[batch], minlength=4)
            assert (np.abs(counts - len(batch) * share) < 2).all()
            assert len(set(batch)) == len(batch) == batch_size


def test_planning_ten_million_samples_takes_little_memory():
    import tracemalloc

    plan = Shuffle().plan(Facts(10_000_000, 256))
    tracemalloc.start()
    sampler = ShardedBatchSampler(plan, 10_000_000, num_replicas=8, rank=3, seed=0)
    next(iter(sampler))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 120e6  # NumPy's part; the permutation itself is 80 MB of torch's


@pytest.mark.parametrize("sampling", [Balanced(), PByK(2, 2), Pairs(), Stratified()])
def test_strategies_that_need_labels_are_refused_without_them(sampling):
    with pytest.raises(ValueError, match="one class per sample"):
        sampling.plan(Facts(10, 4))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Weighted([0, 0]), "not all 0"),
        (lambda: Weighted([1, -1]), "at least 0"),
        (lambda: Weighted([1, 2]).plan(FACTS), r'pass per="class"'),
        (lambda: Weighted([1, 2], per="class").plan(FACTS), "2 entries, train 4 classes"),
        (lambda: PByK(5, 2).plan(FACTS), "train has 4"),
        (lambda: Pairs(1.5), r"in \[0, 1\]"),
        (lambda: Pairs().plan(FACTS._replace(batch_size=7)), "must be even"),
        (lambda: Views(3).plan(FACTS), "not divisible"),
    ],
)
def test_impossible_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_lists_of_indices_become_batches():
    assert Batches.of([[0], [1, 2]]).offsets.tolist() == [0, 1, 3]
    assert torch.is_tensor(torch.from_numpy(Batches.of([[0]]).indices))


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("batch_size", [2, 7, 12])
def test_every_prefix_of_stratified_batches_is_within_one_of_the_class_proportions(
    world, batch_size
):
    plan = Stratified().plan(FACTS._replace(batch_size=batch_size, drop_last=True))
    batches = Batches.of(plan(torch.Generator().manual_seed(0), world))
    for end in batches.offsets[1:]:
        counts = np.bincount(LABELS[batches.indices[:end]], minlength=4)
        assert (np.abs(counts - end * np.bincount(LABELS) / len(LABELS)) < 1).all()
