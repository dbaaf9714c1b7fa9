from __future__ import annotations

import pickle

import pytest
import torch
from square_loaders import Squares, square_loader

from datamodules.batches.collate import collate
from datamodules.loading.make_loader import (
    LOADER_OPTIONS,
    check_loader_options,
)

NUM_WORKERS = "num_workers must be a whole number, at least 0, or None for the default"


@pytest.mark.parametrize(
    ("options", "workers", "message"),
    [
        (
            {"dataset": 1},
            0,
            "loader_options={'dataset': ...} has no effect; pass it to the datamodule",
        ),
        ({"batch_size": 1}, 0, "loader_options={'batch_size': ...} has no effect; use batch_size="),
        ({"shuffle": True}, 0, "loader_options={'shuffle': ...} has no effect; use sampler="),
        ({"sampler": 1}, 0, "loader_options={'sampler': ...} has no effect; use sampler="),
        (
            {"batch_sampler": 1},
            0,
            "loader_options={'batch_sampler': ...} has no effect; use sampler=",
        ),
        (
            {"num_workers": 1},
            0,
            "loader_options={'num_workers': ...} has no effect; use num_workers=",
        ),
        (
            {"in_order": False},
            0,
            "in_order=False would mix up the rows of predictions; leave it out",
        ),
        ({"prefetch_factor": 0}, 0, "prefetch_factor must be at least 1, got 0"),
        ({"prefetch_factor": 0.5}, 0, "prefetch_factor must be at least 1, got 0.5"),
        (3, 0, "loader_options must be a dict of DataLoader's arguments, got 3"),
        (
            None,
            -1,
            "num_workers must be a whole number, at least 0, or None for the default, got -1",
        ),
        (
            None,
            True,
            "num_workers must be a whole number, at least 0, or None for the default, got True",
        ),
        (
            None,
            1.0,
            "num_workers must be a whole number, at least 0, or None for the default, got 1.0",
        ),
    ],
)
def test_invalid_options_are_refused_with_the_remedy(options, workers, message):
    with pytest.raises(ValueError, match=r".") as caught:
        check_loader_options(options, workers)
    assert str(caught.value) == message


def test_an_unknown_option_is_named_as_a_loader_option():
    with pytest.raises(ValueError, match="loader option") as caught:
        check_loader_options({"pin_memori": True}, None)
    assert str(caught.value).startswith("unknown loader option 'pin_memori'; did you mean 'pin_m")


@pytest.mark.parametrize("workers", [None, 0, 3])
def test_valid_options_are_accepted(workers):
    check_loader_options(None, workers)
    values = dict.fromkeys(LOADER_OPTIONS)
    del values["num_workers"]
    check_loader_options(values | {"in_order": True, "prefetch_factor": 1}, workers)


def test_default_and_given_options_reach_the_loader():
    loader = square_loader()
    assert (loader.num_workers, loader.pin_memory, loader.persistent_workers) == (0, False, False)
    assert (loader.threads, loader.workers, loader.normalizer, loader.skipped) == (0, 0, None, None)
    assert loader.generator.initial_seed() == 0
    assert loader.sampler is loader.batch_sampler
    assert not loader.drop_last
    chosen = square_loader(
        num_workers=2,
        persistent=True,
        pin_memory=True,
        normalizer=str,
        options={"drop_last": True, "prefetch_factor": 5},
    )
    assert (chosen.num_workers, chosen.pin_memory, chosen.persistent_workers) == (2, True, True)
    assert (chosen.normalizer, chosen.prefetch_factor, chosen.workers) == (str, 5, 2)
    users = square_loader(num_workers=1, persistent=True, options={"persistent_workers": False})
    assert not users.persistent_workers
    assert not square_loader(num_workers=1).persistent_workers


def test_an_option_that_a_checkpoint_cannot_store_has_to_be_given_again():
    with pytest.raises(ValueError, match=r"pass loader_options\['collate_fn'\]= again"):
        square_loader(options={"collate_fn": "<function mine>"})


class Unsent(Squares):
    """Holds something that no other process can be sent."""

    def __init__(self, name):
        super().__init__()
        setattr(self, name, lambda x: x)


@pytest.mark.parametrize(
    ("dataset", "split", "collate_fn", "named"),
    [
        (Unsent("transform"), "train", collate, "train_transform"),
        (Unsent("transform"), "val", collate, "eval_transform"),
        (Unsent("_reader"), "train", collate, "reader"),
        (Squares(), "train", lambda samples: samples, "collate_fn"),
    ],
)
@pytest.mark.parametrize("how", ["asked for", "by default"])
def test_an_argument_that_cannot_be_pickled_is_named(
    dataset, split, collate_fn, named, how, monkeypatch
):
    options = {"multiprocessing_context": "spawn"}
    if how == "by default":
        options = {}
        monkeypatch.setattr(torch.multiprocessing, "get_start_method", lambda allow_none: "spawn")
    with pytest.raises(ValueError, match=rf"^{named} cannot be sent to worker processes") as caught:
        square_loader(dataset, split=split, collate_fn=collate_fn, num_workers=1, options=options)
    cause = caught.value.__cause__
    assert f" ({type(cause).__name__}: {cause}); " in str(caught.value)
    assert str(caught.value).endswith("; define it at module level, or num_workers=0")


@pytest.mark.parametrize(
    ("chosen", "first", "refused"),
    [("fork", "spawn", False), ("forkserver", "fork", True), (None, "fork", False)],
)
def test_forked_workers_need_no_pickling(monkeypatch, chosen, first, refused):
    methods = torch.multiprocessing

    def start_method(allow_none=False):
        assert allow_none, "asking would fix the method"
        return chosen

    monkeypatch.setattr(methods, "get_start_method", start_method)
    monkeypatch.setattr(methods, "get_all_start_methods", lambda: [first, "other"])
    dataset = Unsent("reader")
    with pytest.raises(AttributeError, match="local"):
        pickle.dumps(dataset)
    if refused:
        with pytest.raises(ValueError, match="reader cannot be sent"):
            square_loader(dataset, num_workers=1)
    else:
        assert square_loader(dataset, num_workers=1).num_workers == 1


class Unpickled(Squares):
    def __reduce__(self):
        raise TypeError("holds a socket")


def test_a_dataset_that_cannot_be_pickled_is_named():
    with pytest.raises(ValueError, match=r"^dataset cannot be sent .*holds a socket"):
        square_loader(Unpickled(), num_workers=1, options={"multiprocessing_context": "spawn"})
