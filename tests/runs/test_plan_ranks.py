"""Two processes under a default Trainer train on exactly the batches of the plan."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from plan_ranks import EPOCHS, KINDS, ROWS, SEED, Numbered, module_of
from warm_start import run_warm

from datamodules.core.accessors import plan_of
from datamodules.sampling.sharded_sampler import ShardedBatchSampler

PROGRAM = Path(__file__).parents[1] / "helpers" / "plan_ranks.py"
ONCE = ("shuffle", "sequential", "stratified", "length_buckets", "global")
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def ranks():
    """``[rank][kind][epoch][step]``: rows."""
    output = run_warm(PROGRAM, ranks=2, timeout=240)
    lines = [line for line in output.splitlines() if line.startswith("SEEN ")]
    found = [seen for _, seen in sorted(json.loads(line[5:]) for line in lines)]
    assert len(found) == 2
    return found


def planned(kind, epoch, rank, world=2):
    dm = module_of(kind)
    plan = plan_of(dm)
    sampler = ShardedBatchSampler(
        plan, ROWS, num_replicas=world, rank=rank, seed=SEED, uneven=dm.hparams["uneven"]
    )
    sampler.set_epoch(epoch)
    return [keys.indices.tolist() for keys in sampler]


@pytest.mark.parametrize("kind", KINDS)
def test_each_rank_trains_on_its_share_of_the_plan(ranks, kind):
    for rank, found in enumerate(ranks):
        assert found[kind] == [planned(kind, epoch, rank) for epoch in range(EPOCHS)]


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_take_equally_many_steps_and_epochs_differ(ranks, kind):
    first, second = (found[kind] for found in ranks)
    assert [len(epoch) for epoch in first] == [len(epoch) for epoch in second]
    assert first != second
    assert (first[0] == first[1]) == (kind == "sequential")


@pytest.mark.parametrize("kind", ONCE)
def test_each_row_is_seen_once_per_epoch(ranks, kind):
    for epoch in range(EPOCHS):
        rows = np.concatenate([b for found in ranks for b in found[kind][epoch]])
        assert set(rows.tolist()) == set(range(ROWS))
        assert len(rows) <= ROWS + 3  # a short last step repeats rows of its own: 2 W - 1


def test_no_row_is_seen_twice_with_drop_last(ranks):
    for epoch in range(EPOCHS):
        rows = [r for found in ranks for batch in found["drop_last"][epoch] for r in batch]
        assert len(set(rows)) == len(rows) == ROWS // 16 * 16


def test_batches_are_composed_as_the_sampler_promises(ranks):
    labels, lengths = Numbered.targets, Numbered.lengths
    for found in ranks:
        for epoch in range(EPOCHS):
            for batch in found["p_by_k"][epoch]:
                assert np.bincount(labels[batch], minlength=3).tolist() == [2, 2, 2]
                assert len(set(batch)) == 6
            for batch in found["pairs"][epoch]:
                pairs = labels[np.array(batch).reshape(-1, 2)]
                assert (pairs[:, 0] == pairs[:, 1]).sum() == len(pairs) // 2
            for batch in found["views"][epoch]:
                assert batch[::2] == batch[1::2]
            for batch in found["length_buckets"][epoch]:
                assert lengths[batch].max() * len(batch) <= 80
            assert (labels[np.concatenate(found["weighted"][epoch])] > 0).all()


def test_a_plan_of_five_batches_is_repeated_or_dropped_as_set(ranks):
    five = [planned("own", epoch, 0, world=1) for epoch in range(EPOCHS)]
    for epoch in range(EPOCHS):
        kept, dropped = ([found[k][epoch] for found in ranks] for k in ("own", "own, dropped"))
        assert kept[0] == five[epoch][::2]
        assert kept[1] == [*five[epoch][1::2], five[epoch][0]]
        assert dropped == [five[epoch][:4:2], five[epoch][1:4:2]]


@pytest.mark.parametrize("kind", ["global", "global balanced"])
def test_global_batches_are_those_of_one_two_and_four_ranks(ranks, kind):
    for epoch in range(EPOCHS):
        one = planned(kind, epoch, 0, world=1)
        four = [planned(kind, epoch, rank, world=4) for rank in range(4)]
        two = [found[kind][epoch] for found in ranks]
        for step, rows in enumerate(one):
            joined = [row for part in two for row in part[step]]
            # the last step's 13 rows are enough for four ranks, so nothing is repeated
            assert joined == rows == [row for part in four for row in part[step]]
