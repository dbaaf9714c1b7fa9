from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import signal
import sys
import time

import pytest
import torch
from script_runs import as_if_alone, write_images  # noqa: F401
from torch.utils.data import TensorDataset

import tune_loader
from datamodules import DatasetDataModule, ImageFolderDataModule
from datamodules.insight.tuning import batch_size_search as batch_search
from datamodules.insight.tuning import trials
from datamodules.insight.tuning import worker_search as search
from datamodules.insight.tuning.batch_size_search import SizeTrial, search_batch_size
from datamodules.insight.tuning.stage_timing import stage_sentence, time_stages
from datamodules.insight.tuning.trials import Setting, Trial, kinds_of_workers
from datamodules.insight.tuning.tune import explain, size_sentence, tune
from datamodules.settings.cpu_count import usable_cores


def folder(tmp_path, **options):
    root = write_images(tmp_path / "p", each=40)
    return ImageFolderDataModule(str(root), image_size=8, mode="L", batch_size=8, **options)


def test_the_choice_is_one_of_those_tried_and_none_exceeds_the_cores(tmp_path):
    dm = folder(tmp_path, loader_options={"drop_last": True})
    found = tune(dm, seconds=0.05)
    tried = [t.setting for t in found.trials]
    assert found.best in tried
    assert tried[0] == Setting(0)
    assert max(s.num_workers for s in tried) <= usable_cores()
    assert dm.loader_options == {"drop_last": True}
    best = next(t for t in found.trials if t.setting == found.best)
    assert len(best.rates) >= 3  # measured again beside those that were near
    assert set(found.stages) >= {"read", "decode", "transform", "collate", "normalize"}
    assert {s.worker_type for s in tried} == {"process", "thread"}
    memory = {t.setting: (t.own_mib, t.shared_mib) for t in found.trials}
    assert memory[Setting(0)] == (0, 0)
    if sys.platform == "linux":
        assert min(memory[Setting(1, 2)]) > 0
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
    assert explain(dm, trial, 12, {"read": 1.0}, 0.0304)[-1] == (
        "the loader needs 12.0 ms, the step 30.4 ms: the model is the bottleneck, 2 workers are "
        "enough"
    )
    assert explain(dm, trial, 12, {"read": 1.0}, 0.004)[-1].endswith("the loader is the bottleneck")


def test_a_slow_transform_is_found_as_the_stage_that_takes_most(tmp_path):
    def slow(image):
        time.sleep(0.02)
        return image

    found = time_stages(folder(tmp_path, train_transform=slow), samples=4)
    assert found["transform"] >= 0.02
    assert stage_sentence(found).startswith("transform takes")


def test_a_larger_batch_that_does_not_pay_is_not_taken(monkeypatch):
    dm = DatasetDataModule(TensorDataset(torch.zeros(3000, 3), torch.arange(3000) % 2))

    def step(dm, module, *, accelerator):  # 20 ms whatever the batch, and above 32 by the sample
        return max(0.02, dm.hparams["batch_size"] * 0.02 / 32)

    monkeypatch.setattr(batch_search, "step_seconds", step)
    size, tried = search_batch_size(dm, torch.nn.Linear(3, 2), accelerator="cpu")
    assert size == 32
    assert [t.batch_size for t in tried] == [8, 16, 32, 64, 128]
    assert dm.hparams["batch_size"] == 32  # the default, its own


def test_on_an_accelerator_the_largest_that_fits_is_taken(monkeypatch):
    dm = DatasetDataModule(TensorDataset(torch.zeros(3000, 3), torch.arange(3000) % 2))

    def step(dm, module, *, accelerator):
        if dm.hparams["batch_size"] > 300:
            raise torch.OutOfMemoryError("simulated")
        return 0.02

    monkeypatch.setattr(batch_search, "step_seconds", step)
    size, tried = search_batch_size(dm, torch.nn.Linear(3, 2), accelerator="cuda")
    assert size == 256
    assert tried[-1] == SizeTrial(512, None)
    assert size_sentence(size, tried).endswith("512 is out of memory")
    assert [t.batch_size for t in tried] == [8, 16, 32, 64, 128, 256, 512]


def test_the_largest_batch_leaves_three_in_an_epoch(monkeypatch):
    monkeypatch.setattr(batch_search, "step_seconds", lambda dm, module, *, accelerator: 0.02)
    dm = DatasetDataModule(TensorDataset(torch.zeros(150, 3), torch.arange(150) % 2))
    size, tried = search_batch_size(dm, torch.nn.Linear(3, 2), accelerator="cuda")
    assert size == tried[-1].batch_size == 32


def test_a_model_that_fits_no_batch_is_refused(monkeypatch):
    def step(dm, module, *, accelerator):
        raise torch.OutOfMemoryError("simulated")

    monkeypatch.setattr(batch_search, "step_seconds", step)
    dm = DatasetDataModule(TensorDataset(torch.zeros(150, 3), torch.arange(150) % 2))
    with pytest.raises(RuntimeError, match="does not fit"):
        search_batch_size(dm, torch.nn.Linear(3, 2), accelerator="cuda")


def test_a_batch_size_that_cannot_be_searched_is_refused():
    few = DatasetDataModule(TensorDataset(torch.zeros(20, 3), torch.arange(20) % 2))
    with pytest.raises(ValueError, match="three batches of 8 are needed"):
        search_batch_size(few, torch.nn.Linear(3, 2), accelerator="cpu")
    with pytest.raises(ValueError, match="pass a module"):
        tune(few, batch_sizes=True)


class Machine:
    """Measures by a formula: rates by setting, noise, and stretches of foreign load."""

    def __init__(self, rates, seed):
        self.rates, self.draws, self.calls = rates, random.Random(seed), 0

    def __call__(self, dm, trial, seconds):
        self.calls += 1
        loaded = 0.4 if self.calls // 100 % 3 == 1 else 1.0  # another program runs for a while
        noise = self.draws.gauss(1, 0.03)
        trial.rates.append(self.rates(trial.setting) * loaded * noise)
        trial.firsts.append(0.1)


def peak_at_6(setting):
    count = setting.num_workers
    gain = 0.3 if setting.worker_type == "thread" else 1.0
    made = 100 * (1 + gain * (count if count <= 6 else 9 - count / 2))
    return made if count else 150


def disk_bound(setting):
    return min(400, 100 * max(1, setting.num_workers)) + 60 * (setting.prefetch_factor == 4)


def best_in_process(setting):
    return 500 / (1 + setting.num_workers)


@pytest.mark.parametrize("rates", [peak_at_6, disk_bound, best_in_process])
@pytest.mark.parametrize("seed", range(3))
def test_the_choice_is_near_the_best_of_all_settings(tmp_path, monkeypatch, rates, seed):
    monkeypatch.setattr(search, "measure_round", Machine(rates, seed))
    monkeypatch.setattr(search, "usable_cores", lambda: 8)
    looked = search.Search(folder(tmp_path), 1.0, None, lambda line: None)
    chosen = looked.choose()
    assert looked.kinds == ["process", "thread"]
    share = looked.compare_all(chosen)
    best = max(rates(setting) for setting in looked.trials)
    assert len(looked.trials) == 1 + 8 * 2 * 2
    assert rates(chosen.setting) >= 0.9 * best
    assert share >= 0.85  # as it was measured, with its noise


def test_what_threads_cannot_serve_is_tried_in_processes_alone(tmp_path):
    dm = folder(tmp_path, train_transform=lambda image: image.resize((8, 8)))
    assert kinds_of_workers(dm) == ["process"]


def test_the_copy_to_a_device_is_timed_where_there_is_one(tmp_path, monkeypatch):
    copied = []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cpu"))
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: time.sleep(0.01))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: copied.append(self) or self)
    found = time_stages(folder(tmp_path), samples=4)
    assert found["transfer"] >= 0.01 / 4
    assert len(copied[1]) == 4
    assert "pin_memory" in stage_sentence({**found, "transfer": 1.0})


def test_ctrl_c_ends_the_search_and_its_workers(tmp_path, monkeypatch, capsys):
    def interrupted(batch):
        if multiprocessing.active_children():
            signal.raise_signal(signal.SIGINT)
        return len(batch[1])

    monkeypatch.setattr(trials, "batch_length", interrupted)
    root = write_images(tmp_path / "p", each=40)
    options = ["--data=ImageFolderDataModule", f"--data.root={root}", "--data.image_size=8"]
    out = tmp_path / "none"
    code = tune_loader.main([*options, "--data.batch_size=8", "--seconds=0.05", f"--out={out}"])
    assert code == 130
    assert "interrupted; nothing was written" in capsys.readouterr().err
    assert not multiprocessing.active_children()
    assert not out.with_suffix(".json").exists()


@pytest.mark.runs
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="affinity is Linux's")
def test_h03_the_script_on_one_core_tries_no_more_than_one_worker_and_leaves_no_child(
    tmp_path, capfd, recwarn
):
    options = {"root": write_images(tmp_path / "p", each=22), "image_size": 8, "mode": "L"}
    given = ["--data=ImageFolderDataModule", "--data.batch_size=8", "--model.lr=0.01"]
    given += [f"--data.{k}={v}" for k, v in options.items()]
    given += ["--batch_sizes=true", "--accelerator=cpu", "--seconds=0.05"]
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert tune_loader.main([*given, f"--out={tmp_path / 'found'}"]) == 0
    finally:
        os.sched_setaffinity(0, cores)
    assert not multiprocessing.active_children()
    out, err = capfd.readouterr()
    found = json.loads((tmp_path / "found.json").read_text())
    assert {t["num_workers"] for t in found["trials"]} == {0, 1}
    assert "suggested max number of worker" not in err + "".join(str(w.message) for w in recwarn)
    assert re.search(rf"use: .*--data.num_workers {found['best']['num_workers']}", out)
    assert all(t["first_batch_seconds"] > 0 for t in found["trials"])
    assert found["step_seconds"] > 0
    assert [size["batch_size"] for size in found["batch_sizes"]] == [8, 16]
    assert f"--data.batch_size {found['batch_size']}" in found["flags"]
