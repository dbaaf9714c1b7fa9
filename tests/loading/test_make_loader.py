from __future__ import annotations

import numpy as np
import pytest
import torch
from square_loaders import Calls, Squares, square_loader, square_stream
from torch.utils.data import SequentialSampler

from datamodules.batches.batch import RowBatch
from datamodules.batches.collate import collate
from datamodules.batches.normalize import Normalizer
from datamodules.loading import loader as loader_module
from datamodules.loading.iterable import StreamBatches, StreamPlace
from datamodules.loading.make_loader import (
    make_loader,
    make_plain_loader,
    make_stream_loader,
)
from datamodules.sampling.plan import EvaluationPlan
from datamodules.sampling.sharded_sampler import RowBatches, ShardedBatchSampler


def test_each_batch_is_normalized_once_in_the_consuming_process():
    loader = square_loader(normalizer=lambda batch: batch.target.tolist())
    assert sorted(sum_of for batch in loader for sum_of in batch) == [i**2 for i in range(10)]


def test_a_predict_loader_exposes_rows_for_lightning():
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


def test_a_plain_loader_reads_in_order_with_torchs_sampler():
    loader = make_plain_loader(
        Squares(5), batch_size=2, normalizer=lambda batch: batch.target, collate_fn=collate
    )
    assert [batch.tolist() for batch in loader] == [[0, 1], [4, 9], [16]]
    assert isinstance(loader.sampler, SequentialSampler)
    assert loader.batch_size == 2
    assert (loader.threads, loader.ahead, loader.workers) == (0, 2, 0)
    assert loader.skipped is None
    assert loader.state_dict() == {"epoch": 0, "batches": 3, "num_replicas": 1}


def test_skipped_files_are_reported_before_the_last_batch_is_used():
    recorder = Calls()
    iterator = iter(square_loader(skipped=recorder))
    assert next(iterator).tolist()
    assert next(iterator).tolist()
    assert recorder.calls == ["take", "take"]
    next(iterator)
    assert recorder.calls == ["take", "take", "take", "say"]
    assert square_loader(skipped=recorder).dataset.skip
    assert not square_loader().dataset.skip
    plain = make_plain_loader(
        Squares(4), batch_size=2, normalizer=None, collate_fn=collate, skipped=recorder
    )
    assert [batch.tolist() for batch in plain] == [[0, 1], [4, 9]]
    assert plain.dataset.skip
    assert not make_plain_loader(
        Squares(), batch_size=2, normalizer=None, collate_fn=len
    ).dataset.skip


@pytest.mark.parametrize("pins", [False, True])
@pytest.mark.parametrize("accelerator", [False, True])
def test_batches_are_pinned_if_requested_and_there_is_an_accelerator(
    monkeypatch, pins, accelerator
):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: accelerator)
    monkeypatch.setattr(loader_module, "pin_memory", lambda batch: ("pinned", batch))
    first = next(iter(square_loader(pin_memory=pins)))
    assert (first[0] == "pinned") is (pins and accelerator)
    assert len(first[1]) in (2, 4)


def test_a_stream_has_one_worker_that_restarts_each_epoch():
    loader = make_stream_loader(square_stream())
    assert (loader.num_workers, loader.persistent_workers, loader.batch_size) == (1, False, None)
    assert loader.pin_memory is False
    assert loader.generator.initial_seed() == 0
    assert isinstance(loader.sampler, StreamPlace)
    options = {"persistent_workers": True, "prefetch_factor": 3, "collate_fn": len}
    chosen = make_stream_loader(square_stream(), num_workers=2, options=options, pin_memory=True)
    assert (chosen.num_workers, chosen.persistent_workers, chosen.prefetch_factor) == (2, False, 3)
    assert chosen.pin_memory is True
    none = make_stream_loader(
        square_stream(), num_workers=0, options=options, normalizer=lambda b: b.target
    )
    assert (none.num_workers, none.prefetch_factor) == (0, None)
    assert [batch.tolist() for batch in none] == [[0, 1, 2, 3], [4, 5]]


def test_a_stream_of_arrays_stays_arrays():
    batches = StreamBatches([0, 1, 2], batch_size=3, transform=int, collate_fn=np.array)
    assert isinstance(next(iter(make_stream_loader(batches, num_workers=0))), np.ndarray)


def test_images_made_in_this_process_are_normalized_one_by_one():
    class Own(Normalizer):
        """Of which nothing is known."""

    known, own = Normalizer([0.5], [1.0]), Own([0.5], [1.0])
    assert square_loader(normalizer=known, num_workers=0).dataset.normalizer is known
    assert (
        square_loader(normalizer=known, num_workers=1, worker_type="thread").dataset.normalizer
        is known
    )
    assert (
        square_loader(normalizer=known, num_workers=1, worker_type="process").dataset.normalizer
        is None
    )
    assert square_loader(normalizer=own, num_workers=0).dataset.normalizer is None
    assert square_loader(num_workers=0).dataset.normalizer is None
