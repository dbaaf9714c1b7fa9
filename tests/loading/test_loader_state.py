from __future__ import annotations

import pytest
from square_loaders import Calls, Squares, square_loader

from datamodules.batches.collate import collate
from datamodules.loading.loader import is_mid_epoch
from datamodules.loading.make_loader import (
    make_loader,
    make_plain_loader,
)
from datamodules.sampling.plan import SequentialPlan
from datamodules.sampling.sharded_sampler import ShardedBatchSampler


@pytest.mark.parametrize(
    ("batches", "steps", "inside"),
    [(0, 3, False), (1, 3, True), (2, 3, True), (3, 3, False), (1, None, True), (0, None, False)],
)
def test_a_place_is_mid_epoch_with_batches_on_either_side(batches, steps, inside):
    place = {"batches": batches} | ({} if steps is None else {"steps": steps})
    assert is_mid_epoch(place) is inside


def test_the_state_is_plain_and_identifies_the_batches():
    loader, other = square_loader(ranks=2), square_loader(ranks=2)
    assert loader.state_dict()["batches"] == 0
    loader.sampler.set_epoch(3)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    assert {key: state[key] for key in state if key != "plan"} == {
        "epoch": 3,
        "batches": 1,
        "num_replicas": 2,
        "steps": 2,
    }
    assert len(state["plan"]) == 32
    assert other.state_dict()["plan"] != state["plan"], "another epoch has other batches"
    other.load_state_dict(state)
    assert other.sampler.epoch == 0, "looking at the plan changes no epoch"
    assert other.state_dict()["batches"] == 1


def test_a_state_of_other_batches_is_refused_with_the_remedy():
    loader = square_loader()
    place = loader.state_dict() | {"batches": 1}
    with pytest.raises(RuntimeError, match="processes") as caught:
        loader.load_state_dict(place | {"num_replicas": 3})
    assert str(caught.value) == (
        "the checkpoint is in the middle of an epoch of 3 processes, this run has 1; resume with "
        "3, or from an end-of-epoch checkpoint"
    )
    with pytest.raises(RuntimeError, match="planned") as caught:
        loader.load_state_dict(place | {"plan": "other"})
    assert str(caught.value) == (
        "the checkpoint is in the middle of an epoch whose batches are planned differently now; "
        "resume with the same data, split_seed, seed, batch_size and sampler, or from an "
        "end-of-epoch checkpoint"
    )
    # an older place without the fingerprint, and one on the edge of an epoch
    loader.load_state_dict({key: value for key, value in place.items() if key != "plan"})
    loader.load_state_dict(place | {"batches": 3, "plan": "other", "num_replicas": 3})
    loader.load_state_dict({"epoch": 0, "batches": 1})


def test_a_state_of_another_epoch_starts_at_the_first_batch():
    loader = square_loader()
    loader.load_state_dict(loader.state_dict() | {"batches": 2})
    loader.sampler.set_epoch(1)
    assert len(list(loader)) == 3
    loader.load_state_dict(loader.state_dict() | {"batches": 2})
    assert len(list(loader)) == 1
    assert len(list(loader)) == 3, "a place is taken up once"


def test_the_state_depends_on_the_seed_even_if_the_batches_are_equal():
    places = []
    for seed in (0, 1):
        sampler = ShardedBatchSampler(SequentialPlan(10, 4), 10, seed=seed)
        loader = make_loader(Squares(), sampler, batch_size=4, collate_fn=collate, num_workers=0)
        places.append(loader.state_dict()["plan"])
    assert places[0] != places[1], "the samples' draws differ"


def test_a_plain_loader_is_one_process():
    loader = make_plain_loader(Squares(), batch_size=2, normalizer=None, collate_fn=collate)
    place = {"epoch": 0, "batches": 1, "num_replicas": 1, "steps": 5}
    loader.load_state_dict(place)
    with pytest.raises(RuntimeError, match="2 processes, this run has 1"):
        loader.load_state_dict(place | {"num_replicas": 2})


def test_each_step_is_mixed_with_its_own_seed_also_after_a_resume():
    recorder = Calls()
    loader = square_loader(mix=recorder)
    whole = [batch.tolist() for batch in loader]
    expected = [loader.sampler.step_seed(step) for step in range(3)]
    assert recorder.calls == expected
    loader.load_state_dict(loader.state_dict() | {"batches": 1})
    assert [batch.tolist() for batch in loader] == whole[1:]
    assert recorder.calls == expected + expected[1:]
