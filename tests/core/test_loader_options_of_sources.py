"""What a loader hands on, keeps, names and refuses; how it draws is held by test_loader.py."""

from __future__ import annotations

import pickle
import threading
import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, SequentialSampler, TensorDataset, get_worker_info

from datamodules.batches.batch import RowBatch
from datamodules.batches.collate import collate
from datamodules.batches.normalize import Normalizer
from datamodules.loading import loader as loader_module
from datamodules.loading import make_loader as loader_options
from datamodules.loading.auto_workers import AutoWorkers
from datamodules.loading.iterable import StreamBatches, StreamPlace
from datamodules.loading.loader import lies_inside
from datamodules.loading.make_loader import (
    LOADER_OPTIONS,
    check_loader_options,
    make_loader,
    make_plain_loader,
    make_stream_loader,
)
from datamodules.loading.worker_faults import InSharedMemory
from datamodules.sampling.plan import EvaluationPlan, SequentialPlan, ShuffledPlan
from datamodules.sampling.sharded_sampler import RowBatches, ShardedBatchSampler


class Squares(Dataset):
    """Pairs of a number and its square; draws nothing, so that threads may serve."""

    transform = None

    def __init__(self, n=10):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return torch.tensor([index]), index**2

    def drawn_elsewhere(self):
        return None


class InMemory(Squares):
    def get_batch(self, indices, seeds):
        return torch.from_numpy(indices)


def made(dataset=None, *, batch_size=4, ranks=1, split="train", **options):
    dataset = Squares() if dataset is None else dataset
    sampler = ShardedBatchSampler(
        ShuffledPlan(len(dataset), batch_size),
        len(dataset),
        num_replicas=ranks,
        rank=ranks - 1,
        seed=0,
        seeded=split != "predict",
    )
    options = {"collate_fn": collate, "num_workers": 0, "worker_type": "process", **options}
    return make_loader(dataset, sampler, batch_size=batch_size, split=split, **options)


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
            "in_order=False would part predictions from their rows; leave it out",
        ),
        ({"prefetch_factor": 0}, 0, "prefetch_factor must be at least 1, got 0"),
        ({"prefetch_factor": 0.5}, 0, "prefetch_factor must be at least 1, got 0.5"),
        (3, 0, "loader_options must be a dict of DataLoader's arguments, got 3"),
        (None, -1, "num_workers must be a whole number, at least 0, or 'auto', got -1"),
        (None, True, "num_workers must be a whole number, at least 0, or 'auto', got True"),
        (None, 1.0, "num_workers must be a whole number, at least 0, or 'auto', got 1.0"),
    ],
)
def test_the_whole_message_of_a_refused_option(options, workers, message):
    with pytest.raises(ValueError, match=r".") as caught:
        check_loader_options(options, workers)
    assert str(caught.value) == message


def test_an_unknown_option_is_named_as_a_loader_option():
    with pytest.raises(ValueError, match="loader option") as caught:
        check_loader_options({"pin_memori": True}, None)
    assert str(caught.value).startswith("unknown loader option 'pin_memori'; did you mean 'pin_m")


@pytest.mark.parametrize("workers", [None, 0, 3, "auto"])
def test_options_that_can_work_are_taken(workers):
    check_loader_options(None, workers)
    values = dict.fromkeys(LOADER_OPTIONS)
    del values["num_workers"]
    check_loader_options(values | {"in_order": True, "prefetch_factor": 1}, workers)


@pytest.mark.parametrize(
    ("batches", "steps", "inside"),
    [(0, 3, False), (1, 3, True), (2, 3, True), (3, 3, False), (1, None, True), (0, None, False)],
)
def test_a_place_lies_inside_with_batches_on_either_side(batches, steps, inside):
    place = {"batches": batches} | ({} if steps is None else {"steps": steps})
    assert lies_inside(place) is inside


def test_the_place_is_plain_and_holds_what_decides_the_batches():
    loader, other = made(ranks=2), made(ranks=2)
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


def test_refused_places_say_what_to_do():
    loader = made()
    place = loader.state_dict() | {"batches": 1}
    with pytest.raises(RuntimeError, match="processes") as caught:
        loader.load_state_dict(place | {"num_replicas": 3})
    assert str(caught.value) == (
        "the checkpoint lies in the middle of an epoch that 3 processes ran, this run has 1; "
        "resume with 3, or from an end-of-epoch checkpoint"
    )
    with pytest.raises(RuntimeError, match="planned") as caught:
        loader.load_state_dict(place | {"plan": "other"})
    assert str(caught.value) == (
        "the checkpoint lies in the middle of an epoch whose batches are planned differently now; "
        "resume with the same data, split_seed, seed, batch_size and sampler, or from an "
        "end-of-epoch checkpoint"
    )
    # an older place without the fingerprint, and one on the edge of an epoch
    loader.load_state_dict({key: value for key, value in place.items() if key != "plan"})
    loader.load_state_dict(place | {"batches": 3, "plan": "other", "num_replicas": 3})
    loader.load_state_dict({"epoch": 0, "batches": 1})


def test_a_place_in_another_epoch_starts_that_epoch_afresh():
    loader = made()
    loader.load_state_dict(loader.state_dict() | {"batches": 2})
    loader.sampler.set_epoch(1)
    assert len(list(loader)) == 3
    loader.load_state_dict(loader.state_dict() | {"batches": 2})
    assert len(list(loader)) == 1
    assert len(list(loader)) == 3, "a place is taken up once"


def test_defaults_and_what_is_chosen_arrive():
    loader = made()
    assert (loader.num_workers, loader.pin_memory, loader.persistent_workers) == (0, False, False)
    assert (loader.threads, loader.workers, loader.normalizer, loader.skipped) == (0, 0, None, None)
    assert loader.generator.initial_seed() == 0
    assert loader.sampler is loader.batch_sampler
    assert not loader.drop_last
    chosen = made(
        num_workers=2,
        persistent=True,
        pin_memory=True,
        normalizer=str,
        options={"drop_last": True, "prefetch_factor": 5},
    )
    assert (chosen.num_workers, chosen.pin_memory, chosen.persistent_workers) == (2, True, True)
    assert (chosen.normalizer, chosen.prefetch_factor, chosen.workers) == (str, 5, 2)
    users = made(num_workers=1, persistent=True, options={"persistent_workers": False})
    assert not users.persistent_workers
    assert not made(num_workers=1).persistent_workers


def test_an_option_that_a_checkpoint_could_not_hold_has_to_be_given_again():
    with pytest.raises(ValueError, match=r"pass loader_options\['collate_fn'\]= again"):
        made(options={"collate_fn": "<function mine>"})


def test_each_batch_is_finished_once_and_in_the_consuming_process():
    loader = made(normalizer=lambda batch: batch.target.tolist())
    assert sorted(sum_of for batch in loader for sum_of in batch) == [i**2 for i in range(10)]


def test_the_number_of_workers_is_that_of_the_cores_and_at_most_that_of_the_batches(monkeypatch):
    asked = []
    monkeypatch.setattr(loader_options, "default_workers", lambda n: asked.append(n) or 2)
    assert made(num_workers=None).num_workers == 2
    assert made(num_workers=None, batch_size=10).num_workers == 1
    assert made(InMemory(), num_workers=None).num_workers == 0
    sampler = ShardedBatchSampler(ShuffledPlan(10, 2), 10, seed=0)
    make_loader(Squares(), sampler, batch_size=2, ranks=3)
    assert asked == [1, 1, 3]


@pytest.mark.parametrize(
    ("options", "silent"),
    [
        ({"num_workers": None}, True),
        ({"num_workers": 1, "worker_type": "thread"}, True),
        ({"num_workers": 0, "dataset": InMemory()}, True),
        ({"num_workers": 0}, False),
        ({"num_workers": 1}, False),
    ],
)
def test_advice_to_add_workers_is_silenced_only_where_the_number_was_chosen(options, silent):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made(**options)
        warnings.warn("The 'train_dataloader' does not have many workers which", stacklevel=1)
        warnings.warn("The loader does not have", stacklevel=1)
    assert len(caught) == (1 if silent else 2)


def test_threads_take_the_workers_place():
    loader = made(num_workers=3, worker_type="thread")
    assert (loader.threads, loader.num_workers, loader.workers, loader.ahead) == (3, 0, 3, 2)
    assert made(num_workers=1, worker_type="thread", options={"prefetch_factor": 7}).ahead == 7
    assert made(num_workers=0, worker_type="thread").threads == 0
    assert sorted(torch.cat([b.target for b in loader]).tolist()) == [i**2 for i in range(10)]
    auto = made(num_workers=AutoWorkers(2), worker_type="auto")
    assert isinstance(auto.threads, AutoWorkers)
    assert made(InMemory(), num_workers=AutoWorkers(2), worker_type="auto").threads == 0


@pytest.mark.parametrize(
    ("dataset", "options", "why"),
    [
        (TensorDataset(torch.zeros(4)), {}, "TensorDataset is not known to be safe in threads"),
        (Squares(), {"timeout": 5}, "timeout is for processes"),
        (Squares(), {"worker_init_fn": print}, "worker_init_fn is for processes"),
        (Squares(), {"persistent_workers": True}, "persistent_workers is for processes"),
        (
            Squares(),
            {"multiprocessing_context": "fork"},
            "multiprocessing_context is for processes",
        ),
        (Squares(), {"timeout": 0, "persistent_workers": False}, None),
    ],
)
def test_workers_of_no_chosen_kind_are_threads_unless_something_is_for_processes(
    monkeypatch, dataset, options, why
):
    said = []
    monkeypatch.setattr(loader_options, "rank_zero_info", said.append)
    monkeypatch.setattr(loader_options, "default_workers", lambda n: 1)
    kind = {"worker_type": "auto", "options": options, "batch_size": 1, "split": "val"}
    plain = made(dataset, num_workers=2, **kind)
    assert (plain.threads, plain.num_workers) == ((2, 0) if why is None else (0, 2))
    assert said == [], "said only where the number is to be found"
    auto = made(dataset, num_workers=AutoWorkers(2), **kind)
    assert isinstance(auto.threads, AutoWorkers) is (why is None)
    assert auto.num_workers == (0 if why is None else 1)
    lines = [f'num_workers="auto": 1 processes for val, not threads: {why}']
    assert said == ([] if why is None else lines)
    by_default = make_loader(
        dataset,
        ShardedBatchSampler(ShuffledPlan(4, 1), 4, seed=0),
        batch_size=1,
        num_workers=2,
        collate_fn=collate,
        options=options,
    )
    assert by_default.threads == plain.threads


def test_processes_that_were_asked_for_are_said_where_threads_could_find_their_number(monkeypatch):
    said = []
    monkeypatch.setattr(loader_options, "rank_zero_info", said.append)
    monkeypatch.setattr(loader_options, "default_workers", lambda n: 2)
    assert made(num_workers=AutoWorkers(2), worker_type="process").num_workers == 2
    assert said == ['num_workers="auto": 2 processes for train, not threads: worker_type="process"']


def test_threads_that_cannot_serve_are_refused_with_the_reason():
    with pytest.raises(ValueError, match="thread") as caught:
        made(TensorDataset(torch.zeros(4)), num_workers=1, worker_type="thread", split="val")
    assert str(caught.value) == (
        'worker_type="thread" cannot serve val: TensorDataset is not known to be safe in threads; '
        "leave worker_type out"
    )


def test_a_predict_loader_shows_rows_as_lightning_records_them():
    sampler = ShardedBatchSampler(EvaluationPlan(5, 2), 5, uneven="keep", seeded=False)
    loader = make_loader(
        Squares(5), sampler, batch_size=2, split="predict", collate_fn=collate, num_workers=0
    )
    rows = loader.batch_sampler
    assert isinstance(rows, RowBatches)
    assert loader.sampler is rows.sampler is sampler
    assert (rows.batch_size, rows.drop_last) == (2, False)
    assert list(rows) == [[0, 1], [2, 3], [4]]
    assert len(rows) == 3
    assert not isinstance(next(iter(loader)), RowBatch)
    with_rows = make_loader(
        Squares(5),
        sampler,
        batch_size=2,
        split="predict",
        collate_fn=collate,
        num_workers=0,
        with_rows=True,
    )
    assert torch.cat([batch.rows for batch in with_rows]).tolist() == list(range(5))


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
def test_what_cannot_be_sent_to_workers_is_called_what_the_user_calls_it(
    dataset, split, collate_fn, named, how, monkeypatch
):
    options = {"multiprocessing_context": "spawn"}
    if how == "by default":
        options = {}
        monkeypatch.setattr(torch.multiprocessing, "get_start_method", lambda allow_none: "spawn")
    with pytest.raises(ValueError, match=rf"^{named} cannot be sent to worker processes") as caught:
        made(dataset, split=split, collate_fn=collate_fn, num_workers=1, options=options)
    cause = caught.value.__cause__
    assert f" ({type(cause).__name__}: {cause}); " in str(caught.value)
    assert str(caught.value).endswith("; define it at module level, or num_workers=0")


@pytest.mark.parametrize(
    ("chosen", "first", "refused"),
    [("fork", "spawn", False), ("forkserver", "fork", True), (None, "fork", False)],
)
def test_forked_workers_are_sent_nothing_by_pickle(monkeypatch, chosen, first, refused):
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
            made(dataset, num_workers=1)
    else:
        assert made(dataset, num_workers=1).num_workers == 1


def test_a_plain_loader_reads_in_order_with_a_sampler_of_torchs_own():
    loader = make_plain_loader(
        Squares(5), batch_size=2, normalizer=lambda batch: batch.target, collate_fn=collate
    )
    assert [batch.tolist() for batch in loader] == [[0, 1], [4, 9], [16]]
    assert isinstance(loader.sampler, SequentialSampler)
    assert loader.batch_size == 2
    assert (loader.threads, loader.ahead, loader.workers) == (0, 2, 0)
    assert loader.skipped is None
    assert loader.state_dict() == {"epoch": 0, "batches": 3, "num_replicas": 1}


class Unpickled(Squares):
    def __reduce__(self):
        raise TypeError("holds a socket")


def test_a_dataset_that_cannot_be_sent_itself_is_called_dataset():
    with pytest.raises(ValueError, match=r"^dataset cannot be sent .*holds a socket"):
        made(Unpickled(), num_workers=1, options={"multiprocessing_context": "spawn"})


class Notes:
    """Stands for SkippedFiles and for Mix: what was asked, in order."""

    def __init__(self):
        self.asked = []

    def take(self, batch):
        self.asked.append("take")
        return batch.target

    def say(self):
        self.asked.append("say")

    def drawn(self, batch, seed):
        self.asked.append(seed)
        return batch.target


def test_skipped_files_are_said_with_the_last_batch_and_before_it_is_used():
    notes = Notes()
    iterator = iter(made(skipped=notes))
    assert next(iterator).tolist()
    assert next(iterator).tolist()
    assert notes.asked == ["take", "take"]
    next(iterator)
    assert notes.asked == ["take", "take", "take", "say"]
    assert made(skipped=notes).dataset.skip
    assert not made().dataset.skip
    plain = make_plain_loader(
        Squares(4), batch_size=2, normalizer=None, collate_fn=collate, skipped=notes
    )
    assert [batch.tolist() for batch in plain] == [[0, 1], [4, 9]]
    assert plain.dataset.skip
    assert not make_plain_loader(
        Squares(), batch_size=2, normalizer=None, collate_fn=len
    ).dataset.skip


def test_each_step_is_mixed_by_its_own_seed_also_after_a_resume():
    notes = Notes()
    loader = made(mix=notes)
    whole = [batch.tolist() for batch in loader]
    expected = [loader.sampler.step_seed(step) for step in range(3)]
    assert notes.asked == expected
    loader.load_state_dict(loader.state_dict() | {"batches": 1})
    assert [batch.tolist() for batch in loader] == whole[1:]
    assert notes.asked == expected + expected[1:]


def test_a_changed_number_of_threads_is_said_once(monkeypatch):
    said = []
    monkeypatch.setattr(loader_module, "rank_zero_info", said.append)
    loader = made(num_workers=AutoWorkers(3), worker_type="auto")
    monkeypatch.setattr(loader.threads, "observe", lambda waited, worked: None)
    list(loader)
    list(loader)
    loader.threads.workers = 1
    list(loader)
    assert said == [f'num_workers="auto": {count} of 3 threads load train' for count in (2, 1)]


class Where(Squares):
    """Tells by which thread and worker a sample was made."""

    def __getitem__(self, index):
        worker = get_worker_info()
        main = threading.current_thread() is threading.main_thread()
        return torch.tensor([-1 if worker is None else worker.id, int(main)]), index


@pytest.mark.parametrize(
    ("options", "workers", "main"),
    [
        ({}, {-1}, {1}),
        ({"num_workers": 2}, {0, 1}, {1}),
        ({"num_workers": 2, "worker_type": "thread"}, {-1}, {0}),
    ],
)
def test_samples_are_made_where_the_options_say(options, workers, main):
    found = torch.cat([batch.inputs for batch in made(Where(), **options)])
    assert set(found[:, 0].tolist()) == workers
    assert set(found[:, 1].tolist()) == main


def test_threads_make_as_many_batches_ahead_as_prefetch_factor_says(monkeypatch):
    asked = []

    def by_threads(fetch, keys, threads, *, ahead=2):
        asked.append((threads, ahead))
        return map(fetch, keys)

    monkeypatch.setattr(loader_module, "made_by_threads", by_threads)
    options = {"prefetch_factor": 7}
    assert len(list(made(num_workers=3, worker_type="thread", options=options))) == 3
    assert asked == [(3, 7)]


@pytest.mark.parametrize("pins", [False, True])
@pytest.mark.parametrize("accelerator", [False, True])
def test_batches_are_pinned_where_it_is_asked_for_and_there_is_a_device(
    monkeypatch, pins, accelerator
):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: accelerator)
    monkeypatch.setattr(loader_module, "pin_memory", lambda batch: ("pinned", batch))
    first = next(iter(made(pin_memory=pins)))
    assert (first[0] == "pinned") is (pins and accelerator)
    assert len(first[1]) in (2, 4)


def test_the_place_tells_seeds_apart_whose_batches_are_the_same():
    places = []
    for seed in (0, 1):
        sampler = ShardedBatchSampler(SequentialPlan(10, 4), 10, seed=seed)
        loader = make_loader(Squares(), sampler, batch_size=4, collate_fn=collate, num_workers=0)
        places.append(loader.state_dict()["plan"])
    assert places[0] != places[1], "the samples' draws differ"


class Passing:
    """Stands for WorkerWatch: what it was asked, in order."""

    def __init__(self):
        self.asked = []

    def check_memory(self):
        self.asked.append("memory")

    def over(self, batches):
        for batch in batches:
            self.asked.append("batch")
            yield batch


def test_the_watch_is_asked_before_workers_start_and_sees_each_batch():
    loader = made(num_workers=1)
    loader.watch = Passing()
    batches = iter(loader)
    assert loader.watch.asked == [], "nothing starts before the first batch is wanted"
    assert len(list(batches)) == 3
    assert loader.watch.asked == ["memory", "batch", "batch", "batch"]


@pytest.mark.parametrize(
    ("options", "ahead", "timeout"),
    [({}, 2, 0), ({"prefetch_factor": 5, "timeout": 9}, 5, 9)],
)
def test_worker_processes_are_watched_with_what_the_options_say(
    monkeypatch, options, ahead, timeout
):
    asked, watch = [], Passing()
    monkeypatch.setattr(
        loader_options, "WorkerWatch", lambda data, **said: asked.append(said) or watch
    )
    watched = made(num_workers=2, options=options, split="val")
    assert watched.watch is watch
    expected = {"split": "val", "rows": 4, "workers": 2, "ahead": ahead, "timeout": timeout}
    assert asked == [expected]
    assert isinstance(watched.collate_fn, InSharedMemory)
    alone = made(options=options)
    assert asked == [expected], "no worker, nothing to watch"
    assert alone.watch is None
    assert not isinstance(alone.collate_fn, InSharedMemory)
    for workers in (0, 1):
        streamed = make_stream_loader(stream(), num_workers=workers)
        assert isinstance(streamed.collate_fn, InSharedMemory) is bool(workers)


def test_a_plain_loader_is_one_process():
    loader = make_plain_loader(Squares(), batch_size=2, normalizer=None, collate_fn=collate)
    place = {"epoch": 0, "batches": 1, "num_replicas": 1, "steps": 5}
    loader.load_state_dict(place)
    with pytest.raises(RuntimeError, match="2 processes ran, this run has 1"):
        loader.load_state_dict(place | {"num_replicas": 2})


def stream():
    pairs = [(torch.tensor([i]), i) for i in range(6)]
    return StreamBatches(pairs, batch_size=4, transform=tuple, collate_fn=collate)


def test_a_stream_has_one_worker_and_starts_it_anew_each_epoch():
    loader = make_stream_loader(stream())
    assert (loader.num_workers, loader.persistent_workers, loader.batch_size) == (1, False, None)
    assert loader.pin_memory is False
    assert loader.generator.initial_seed() == 0
    assert isinstance(loader.sampler, StreamPlace)
    options = {"persistent_workers": True, "prefetch_factor": 3, "collate_fn": len}
    chosen = make_stream_loader(stream(), num_workers=2, options=options, pin_memory=True)
    assert (chosen.num_workers, chosen.persistent_workers, chosen.prefetch_factor) == (2, False, 3)
    assert chosen.pin_memory is True
    none = make_stream_loader(
        stream(), num_workers=0, options=options, normalizer=lambda b: b.target
    )
    assert (none.num_workers, none.prefetch_factor) == (0, None)
    assert [batch.tolist() for batch in none] == [[0, 1, 2, 3], [4, 5]]


def test_a_stream_of_arrays_stays_arrays():
    batches = StreamBatches([0, 1, 2], batch_size=3, transform=int, collate_fn=np.array)
    assert isinstance(next(iter(make_stream_loader(batches, num_workers=0))), np.ndarray)


def test_a_known_last_step_goes_to_whoever_makes_the_samples_in_this_process():
    class Own(Normalizer):
        """Of which nothing is known."""

    known, own = Normalizer([0.5], [1.0]), Own([0.5], [1.0])
    assert made(normalizer=known, num_workers=0).dataset.normalizer is known
    assert made(normalizer=known, num_workers=1, worker_type="thread").dataset.normalizer is known
    assert made(normalizer=known, num_workers=1, worker_type="process").dataset.normalizer is None
    assert made(normalizer=own, num_workers=0).dataset.normalizer is None
    assert made(num_workers=0).dataset.normalizer is None
