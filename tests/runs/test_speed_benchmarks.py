from __future__ import annotations

import argparse
import json

import pytest
import torch
from script_runs import SCRIPTS  # noqa: F401
from torch.utils.data import DataLoader, Dataset

import bench  # isort: skip - on the path by script_runs
import benchmarks.images
import benchmarks.rounds
from benchmarks import epochs, peers, photos
from benchmarks.rounds import Variant, compare, consume
from benchmarks.worker_memory import after_an_epoch, memory_of
from datamodules.batches.batch import Batch, TextInputs

KEYS = {
    *("work", "variant", "workers", "samples_per_cpu_second", "samples_per_second"),
    *("ratio_cpu", "ratio_wall", "spread", "limit_share"),
}
SMALL = {
    "images": ["--samples", "12", "--batch-size", "4", "--workers", "0"],
    "eval": ["--samples", "12", "--batch-size", "4", "--workers", "0"],
    "cifar": ["--samples", "200", "--batch-size", "50"],
    "tabular": ["--samples", "500", "--batch-size", "64"],
    "text": ["--samples", "200", "--batch-size", "16", "--epoch-samples", "60"],
    "ingest": ["--rows", "500", "--files", "50"],
    "startup": ["--samples", "16"],
}


@pytest.mark.parametrize("work", SMALL)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of peers, where they are installed
def test_every_benchmark_gives_rows_with_the_same_columns(work, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    out = tmp_path / "rows.json"
    bench.main([work, *SMALL[work], "--rounds", "1", "--json", str(out)])
    rows = json.loads(out.read_text())
    assert all(set(row) == KEYS for row in rows)
    assert {"stock", "plain"} <= {row["variant"] for row in rows}
    for row in rows:
        absent = row["variant"].endswith("(not installed)")
        assert absent == (row["samples_per_second"] is None)
        assert absent or row["ratio_cpu"] > 0
    assert "NOT the same" not in capsys.readouterr().out


def test_real_tokens_are_counted_with_and_without_padding():
    ids, mask = torch.tensor([[5, 6], [7, 0]]), torch.tensor([[1, 1], [1, 0]])
    batch = Batch(TextInputs(ids, mask), torch.tensor([0, 1]))
    full = epochs.without_padding(batch)
    assert (epochs.real_tokens(batch), epochs.real_tokens(full)) == (3, 4)
    assert full.inputs.input_ids.shape == ids.shape
    loader = epochs.Batches(3, lambda: [batch] * 3)
    assert len(loader) == len(list(loader)) == len(list(loader)) == 3


def test_rounds_are_interleaved_and_compared_with_the_first(monkeypatch):
    monkeypatch.setattr(benchmarks.rounds, "MIN_SECONDS", 0)
    calls = []

    def run(name):
        calls.append(name)
        return 10

    variants = [Variant("a", lambda: run("a")), Variant("b", lambda: run("b")), Variant("c", None)]
    rows = compare("x", variants, rounds=2, limit=Variant("limit", lambda: run("limit")))
    assert calls == ["a", "b", "limit"] * 3
    assert rows[0]["ratio_cpu"] == rows[0]["ratio_wall"] == 1
    assert rows[3]["limit_share"] == 1
    assert rows[2]["variant"] == "c (not installed)"
    assert rows[2]["ratio_cpu"] is None


def test_samples_are_counted_by_the_target():
    assert consume([("x", [1, 2]), ("y", [3])]) == 3


def test_a_variant_without_batches_is_refused():
    with pytest.raises(RuntimeError, match="empty yielded no batch"):
        compare("x", [Variant("empty", lambda: 0)], rounds=1)


def test_private_and_shared_memory_of_a_worker_are_told_apart():
    held = torch.zeros(40 << 20, dtype=torch.uint8).share_memory_()
    loader = DataLoader(Touching(held), batch_size=1, num_workers=1, multiprocessing_context="fork")
    found = after_an_epoch(loader)
    assert found.own > 60
    assert found.shared > 40
    assert after_an_epoch(DataLoader([1, 2], num_workers=0)) is None
    assert memory_of(2**22 + 1) is None  # beyond the highest number of a process


class Touching(Dataset):
    def __init__(self, held):
        self.held, self.own = held, None

    def __len__(self):
        return 2

    def __getitem__(self, index):
        self.own = bytes(range(256)) * (60 << 12)
        return int(self.held.sum())


def test_a_library_that_cannot_run_is_skipped_with_the_reason(monkeypatch, tmp_path):
    def no_library(root, folder):
        raise RuntimeError("libavutil.so.57 is absent\nsee the log")

    there = peers.Peer("FFmpeg's", "torch", no_library, None)
    absent = peers.Peer("Absent", "no_such_package.inside", no_library, None)
    monkeypatch.setattr(benchmarks.images, "PEERS", [there, absent])
    monkeypatch.setattr(benchmarks.images, "NATIVE", [])
    root = photos.make_photos(tmp_path / "photos", 8)
    options = argparse.Namespace(batch_size=4, workers=0)
    variants, notes = benchmarks.images._peers(root, tmp_path, options, train=True)
    assert variants == [Variant("FFmpeg's", None), Variant("Absent", None)]
    assert notes == ["FFmpeg's is skipped: libavutil.so.57 is absent"]
