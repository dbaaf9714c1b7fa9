from __future__ import annotations

import json

import pytest
import torch
from script_runs import SCRIPTS  # noqa: F401

import bench  # isort: skip - on the path by script_runs
import benchmarks.rounds
from benchmarks import epochs
from benchmarks.rounds import Variant, compare, consume
from datamodules.core.batch import Batch, TextInputs

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
def test_a_work_gives_the_agreed_rows(work, tmp_path, capsys, monkeypatch):
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


def test_epochs_count_what_is_real():
    ids, mask = torch.tensor([[5, 6], [7, 0]]), torch.tensor([[1, 1], [1, 0]])
    batch = Batch(TextInputs(ids, mask), torch.tensor([0, 1]))
    full = next(iter(epochs.Changed([batch], epochs._filled)))
    assert (epochs._real_tokens(batch), epochs._real_tokens(full)) == (3, 4)
    assert full.inputs.input_ids.shape == ids.shape
    seen = list(epochs.Constant(batch, 3))
    assert len(seen) == len(epochs.Constant(batch, 3)) == 3
    assert all(one is batch for one in seen)


def test_rounds_are_interleaved_and_compared_with_the_first(monkeypatch):
    monkeypatch.setattr(benchmarks.rounds, "LEAST_SECONDS", 0)
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


def test_a_way_that_gives_nothing_is_refused():
    with pytest.raises(RuntimeError, match="empty gave no batch"):
        compare("x", [Variant("empty", lambda: 0)], rounds=1)
