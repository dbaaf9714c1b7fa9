from __future__ import annotations

import json
import os
import re

import pytest
import torch
from processes import run_program
from script_runs import SCRIPTS, write_pictures
from torch.utils.data import TensorDataset

from datamodules import DatasetDataModule, ImageFolderDataModule
from datamodules.core.cores import usable_cores
from datamodules.insight.stages import stage_sentence, time_stages
from datamodules.insight.tune import Setting, Trial, largest_batch, said, tune


def folder(tmp_path, **options):
    root = write_pictures(tmp_path / "p", each=40)
    return ImageFolderDataModule(str(root), image_size=8, mode="L", batch_size=8, **options)


def test_the_choice_is_one_of_those_tried_and_none_exceeds_the_cores(tmp_path):
    dm = folder(tmp_path, loader_options={"drop_last": True})
    found = tune(dm, seconds=0.05)
    tried = [t.setting for t in found.trials]
    assert found.best in tried
    assert tried[0] == Setting(0)
    assert max(s.num_workers for s in tried) <= usable_cores()
    assert dm.loader_options == {"drop_last": True}
    top = max(t.rate for t in found.trials if len(t.rates) > 1)
    best = next(t for t in found.trials if t.setting == found.best)
    assert best.rate >= 0.95 * top
    assert set(found.stages) == {"read", "decode", "transform", "collate", "finish"}
    assert all(seconds >= 0 for seconds in found.stages.values())
    assert json.loads(found.to_json())["best"]["num_workers"] == found.best.num_workers
    found.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"


def test_data_in_memory_want_no_workers(tmp_path, monkeypatch):
    monkeypatch.setenv("DATAMODULES_CACHE", str(tmp_path))
    from datamodules.samples import breast_cancer

    found = tune(breast_cancer(), seconds=0.05)
    assert {t.setting.num_workers for t in found.trials} == {0}
    assert any("in memory" in line for line in found.sentences)
    assert "--data.num_workers 0" in found.flags


def test_the_side_that_waits_is_named():
    dm = DatasetDataModule(TensorDataset(torch.zeros(40, 3), torch.arange(40) % 2))
    trial = Trial(Setting(2, 2), rates=[1000.0])
    assert said(dm, trial, 12, {"read": 1.0}, 0.0304)[-1] == (
        "the loader needs 12.0 ms, the step 30.4 ms: the model is the bottleneck, 2 workers are "
        "enough"
    )
    assert said(dm, trial, 12, {"read": 1.0}, 0.004)[-1].endswith("the loader is the bottleneck")


def test_a_slow_transform_is_found_as_the_stage_that_takes_most(tmp_path):
    import time

    def slow(picture):
        time.sleep(0.02)
        return picture

    stages = time_stages(folder(tmp_path, train_transform=slow), samples=4)
    assert stages["transform"] >= 0.02
    assert stage_sentence(stages).startswith("transform takes")


def test_the_largest_batch_is_the_last_before_memory_ends():
    sizes = []

    def fits(size):
        sizes.append(size)
        if size > 100:
            raise torch.OutOfMemoryError("simulated")

    assert largest_batch(fits, start=8, limit=10_000) == 64
    assert sizes == [8, 16, 32, 64, 128]
    assert largest_batch(fits, start=8, limit=40) == 32
    with pytest.raises(RuntimeError, match="does not fit"):
        largest_batch(fits, start=128, limit=1000)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="affinity is Linux's")
def test_h03_the_script_on_one_core_tries_no_more_than_one_worker_and_leaves_no_child(tmp_path):
    root = write_pictures(tmp_path / "p", each=22)
    program = tmp_path / "one_core.py"
    program.write_text(
        "import os, runpy, sys\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        f"sys.argv[0] = {str(SCRIPTS / 'tune_loader.py')!r}\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    options = {"root": root, "image_size": 8, "batch_size": 8, "mode": "L"}
    out = run_program(
        program,
        "--data=ImageFolderDataModule",
        *[f"--data.{k}={v}" for k, v in options.items()],
        "--seconds=0.05",
        f"--out={tmp_path / 'found'}",
        "--with_model=true",
        "--model.lr=0.01",
    )
    found = json.loads((tmp_path / "found.json").read_text())
    assert {t["num_workers"] for t in found["trials"]} == {0, 1}
    assert "suggested max number of worker" not in out
    assert re.search(rf"use: .*--data.num_workers {found['best']['num_workers']}", out)
    assert found["step_seconds"] > 0
