from __future__ import annotations

import numpy as np
import pytest
import torch

from datamodules.sampling.plan import Batches, EvaluationPlan, SequentialPlan, ShuffledPlan
from datamodules.sampling.sharded_sampler import Keys, RowBatches, ShardedBatchSampler

WORLDS = [1, 2, 3, 4, 8]


def ranks(plan, size, world, *, epoch=0, seed=0, **options):
    """Batches of each rank as lists of indices."""
    shares = []
    for rank in range(world):
        sampler = ShardedBatchSampler(
            plan, size, num_replicas=world, rank=rank, seed=seed, **options
        )
        sampler.set_epoch(epoch)
        shares.append([keys.indices.tolist() for keys in sampler])
    return shares


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("n", [1, 2, 5, 33, 34, 100, 101])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 8, 32])
@pytest.mark.parametrize("plan", [ShuffledPlan, SequentialPlan])
def test_training_covers_everything_in_equal_steps(world, n, batch_size, plan):
    lengths = set()
    for epoch in range(3):
        shares = ranks(plan(n, batch_size), n, world, epoch=epoch)
        flat = [i for share in shares for batch in share for i in batch]
        assert set(flat) == set(range(n))
        assert len(flat) - n < 2 * world, "more was repeated than makes the ranks even"
        lengths |= {len(share) for share in shares}
        sizes = [len(batch) for share in shares for batch in share]
        largest = 3 if (batch_size, world) == (2, 1) else batch_size
        assert max(sizes) <= largest
        assert min(sizes) >= 2 or batch_size == 1 or n == 1
    assert len(lengths) == 1


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("n", [10, 33, 101])
def test_drop_last_leaves_only_full_batches(world, n):
    shares = ranks(ShuffledPlan(n, 2, drop_last=True), n, world)
    flat = [i for share in shares for batch in share for i in batch]
    assert len(flat) == len(set(flat)) == n - n % (2 * world)
    assert {len(batch) for share in shares for batch in share} <= {2}


@pytest.mark.parametrize("n", [64, 65, 66, 70, 100, 129])
@pytest.mark.parametrize("epoch", [0, 3])
def test_a_steps_union_does_not_depend_on_the_world_at_equal_global_batch(n, epoch):
    unions = []
    for world in (1, 2, 4, 8):
        shares = ranks(ShuffledPlan(n, 32 // world), n, world, epoch=epoch, seed=7)
        unions.append([{i for b in step for i in b} for step in zip(*shares, strict=True)])
    assert all(union == unions[0] for union in unions)


def test_order_changes_with_the_epoch_and_repeats_with_the_seed():
    first = ranks(ShuffledPlan(50, 8), 50, 2, epoch=0, seed=0)
    assert ranks(ShuffledPlan(50, 8), 50, 2, epoch=0, seed=0) == first
    assert ranks(ShuffledPlan(50, 8), 50, 2, epoch=1, seed=0) != first
    assert ranks(ShuffledPlan(50, 8), 50, 2, epoch=0, seed=1) != first
    # seed + 1 must not be epoch + 1
    assert ranks(ShuffledPlan(50, 8), 50, 2, epoch=1, seed=0) != ranks(
        ShuffledPlan(50, 8), 50, 2, epoch=0, seed=1
    )


def test_h23_a_last_batch_of_one_is_never_made():
    for n, sizes in ((33, [17, 16]), (34, [32, 2])):
        batches = ranks(ShuffledPlan(n, 32), n, 1)[0]
        assert [len(b) for b in batches] == sizes
    seen = set()
    for epoch in range(20):
        for share in ranks(ShuffledPlan(10, 4), 10, 2, epoch=epoch):
            assert min(len(batch) for batch in share) > 1
            seen |= {i for batch in share for i in batch}
    assert seen == set(range(10))


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("n", [1, 2, 5, 7, 32, 100, 101])
@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_evaluation_meets_each_sample_once_and_in_order(world, n, batch_size):
    shares = ranks(EvaluationPlan(n, batch_size), n, world, uneven="keep")
    assert sorted(i for share in shares for batch in share for i in batch) == list(range(n))
    assert all(share == sorted(share) for share in shares)
    steps = [len(share) for share in shares]
    even = len(set(steps)) == 1
    assert max(len(batch) for share in shares for batch in share) <= batch_size
    assert even or batch_size == 1 or n < world
    assert max(steps) - min(steps) <= 1
    sampler = ShardedBatchSampler(
        EvaluationPlan(n, batch_size), n, num_replicas=world, rank=0, uneven="keep"
    )
    assert sampler.even == even
    assert len(sampler) == max(steps)


def test_evaluation_on_one_process_takes_consecutive_chunks():
    assert ranks(EvaluationPlan(5, 2), 5, 1, uneven="keep") == [[[0, 1], [2, 3], [4]]]


def test_evaluation_divides_only_the_last_step_between_the_ranks():
    # 21 = 2 x 8 full + 5
    assert [
        [len(b) for b in share] for share in ranks(EvaluationPlan(21, 8), 21, 2, uneven="keep")
    ] == [
        [8, 2],
        [8, 3],
    ]
    # 17 = 2 x 8 + 1: one sample cannot make a step of two ranks
    assert [
        [len(b) for b in share] for share in ranks(EvaluationPlan(17, 8), 17, 2, uneven="keep")
    ] == [
        [4, 4],
        [4, 5],
    ]


def test_uneven_batches_of_a_users_plan_are_repeated_dropped_or_kept():
    def plan(generator, world_size):
        return [[0, 1], [2], [3, 4, 5]]

    assert ranks(plan, 6, 2) == [[[0, 1], [3, 4, 5]], [[2], [0, 1]]]
    assert ranks(plan, 6, 2, uneven="drop") == [[[0, 1]], [[2]]]
    assert ranks(plan, 6, 2, uneven="keep") == [[[0, 1], [3, 4, 5]], [[2]]]


def test_seeds_depend_on_the_sample_and_not_on_the_rank():
    def seeds(world, batch_size):
        found = {}
        for rank in range(world):
            sampler = ShardedBatchSampler(
                ShuffledPlan(40, batch_size), 40, num_replicas=world, rank=rank, seed=3
            )
            sampler.set_epoch(2)
            for keys in sampler:
                found |= dict(zip(keys.indices.tolist(), keys.seeds.tolist(), strict=True))
        return found

    assert seeds(1, 20) == seeds(2, 10) == seeds(4, 5)
    assert len(set(seeds(1, 20).values())) == 40


def test_repeats_of_a_sample_have_different_seeds():
    sampler = ShardedBatchSampler(lambda g, w: [[5, 5], [5]], 6, num_replicas=1, rank=0, seed=0)
    drawn = [seed for keys in sampler for seed in keys.seeds.tolist()]
    assert len(set(drawn)) == 3


def test_prediction_yields_plain_integers():
    sampler = ShardedBatchSampler(EvaluationPlan(3, 2), 3, uneven="keep", seeded=False)
    assert list(RowBatches(sampler, 2, False)) == [[0, 1], [2]]
    assert all(type(i) is int for batch in sampler for i in batch)


def test_without_draws_there_are_no_seeds_and_equal_batches():
    plain = list(ShardedBatchSampler(ShuffledPlan(20, 4), 20, seed=0))
    bare = list(ShardedBatchSampler(ShuffledPlan(20, 4), 20, seed=0, draws=False))
    assert [keys.indices.tolist() for keys in bare] == [keys.indices.tolist() for keys in plain]
    assert all(keys.seeds is None for keys in bare)


@pytest.mark.parametrize("n", [1, 2, 1000, 70_000])
def test_the_order_equals_torchs_permutation(n):
    order = ShuffledPlan(n, 4).order(torch.Generator().manual_seed(3))
    assert order.dtype == np.int64
    assert order.tolist() == torch.randperm(n, generator=torch.Generator().manual_seed(3)).tolist()


def test_iterating_does_not_change_state_and_first_skips_steps():
    sampler = ShardedBatchSampler(ShuffledPlan(20, 4), 20, seed=0)
    whole = [keys.indices.tolist() for keys in sampler]
    iter(sampler)
    assert [keys.indices.tolist() for keys in sampler] == whole
    sampler.first = 2
    assert [keys.indices.tolist() for keys in sampler] == whole[2:]
    assert len(sampler) == 5


def test_seed_follows_seed_everything(monkeypatch):
    monkeypatch.setenv("PL_GLOBAL_SEED", "41")
    assert ShardedBatchSampler(ShuffledPlan(4, 2), 4).seed == 41
    assert ShardedBatchSampler(ShuffledPlan(4, 2), 4, seed=0).seed == 0


def test_batches_are_made_from_lists():
    batches = Batches.of([[1, 2], [3]])
    assert batches.offsets.tolist() == [0, 2, 3]
    assert len(batches) == 2
    assert len(Batches.of([])) == 0


@pytest.mark.parametrize("batch_size", [0, -1])
def test_batch_size_below_one_is_refused(batch_size):
    with pytest.raises(ValueError, match="at least 1"):
        ShuffledPlan(4, batch_size)


def test_rank_outside_the_world_is_refused():
    with pytest.raises(ValueError, match=r"rank must be in 0\.\.1, got 2"):
        ShardedBatchSampler(ShuffledPlan(4, 2), 4, num_replicas=2, rank=2)


def test_seeds_have_32_bits():
    keys = next(iter(ShardedBatchSampler(ShuffledPlan(4, 2), 4, seed=2**40)))
    assert isinstance(keys, Keys)
    assert keys.seeds.dtype == np.uint64
    assert int(keys.seeds.max()) < 2**32
    torch.Generator().manual_seed(int(keys.seeds[0]))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (lambda g, w: None, "must return a list of batches"),
        (lambda g, w: [0, 1], "must return a list of batches"),
        (lambda g, w: [[0, 1], []], "batch 1 of the plan must have integer indices"),
        (lambda g, w: [[0.5, 1.5]], "batch 0 of the plan must have integer indices"),
        (lambda g, w: [[0, 999]], "indices 0 to 999, the dataset has 4 samples"),
        (lambda g, w: [[0, 4]], "indices 0 to 4, the dataset has 4 samples"),
        (lambda g, w: [[-1, 0]], "indices -1 to 0"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(plan, message):
    with pytest.raises(ValueError, match=message):
        list(ShardedBatchSampler(plan, 4))


def test_each_epoch_is_planned_once():
    planned = []

    def plan(generator, world_size):
        planned.append(world_size)
        return ShuffledPlan(20, 4)(generator, world_size)

    sampler = ShardedBatchSampler(plan, 20, seed=0)
    orders = []
    for epoch in (0, 1, 0):
        sampler.set_epoch(epoch)
        orders.append([keys.indices.tolist() for keys in sampler])
        assert len(sampler) == len(orders[-1]) == 5
        list(sampler)
    assert orders[0] == orders[2] != orders[1]
    assert planned == [1, 1, 1]


def test_dropped_batches_are_not_in_the_plan():
    sampler = ShardedBatchSampler(
        lambda g, w: [[0, 1], [2], [3, 4, 5]], 6, num_replicas=2, rank=0, uneven="drop"
    )
    assert sampler.planned().indices.tolist() == [0, 1, 2]
    assert sampler.planned().offsets.tolist() == [0, 2, 3]


def test_each_step_of_each_rank_has_its_own_seed():
    def seeds(epoch, seed=0, world=3):
        found = []
        for rank in range(world):
            sampler = ShardedBatchSampler(
                ShuffledPlan(60, 4), 60, num_replicas=world, rank=rank, seed=seed
            )
            sampler.set_epoch(epoch)
            found.append([sampler.step_seed(step) for step in range(5)])
        return found

    flat = [seed for epoch in (0, 1) for rank in seeds(epoch) for seed in rank]
    other = [seed for rank in seeds(0, seed=1) for seed in rank]
    assert len({*flat, *other}) == 45
    assert all(type(seed) is int and 0 <= seed < 2**32 for seed in flat)
    # the world's fourth batch is rank 0's second step or the fourth step of one process
    assert seeds(0)[0][1] == seeds(0, world=1)[0][3]
    sampler = ShardedBatchSampler(ShuffledPlan(60, 4), 60, seed=0)
    keys = next(iter(sampler))
    assert sampler.step_seed(0) not in keys.seeds, "a batch's draws are not a sample's"


def test_a_seed_gives_the_same_order_on_every_machine_and_in_every_release():
    sampler = ShardedBatchSampler(ShuffledPlan(8, 4), 8, num_replicas=2, rank=1, seed=3)
    sampler.set_epoch(2)
    keys = next(iter(sampler))
    assert keys.indices.tolist() == [0, 6, 1, 7]
    assert keys.seeds.tolist() == [589407438, 160134028, 2642982004, 2200681761]
    assert sampler.step_seed(0) == 3255828302
