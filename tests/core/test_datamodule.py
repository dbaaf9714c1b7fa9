from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import lightning as L
import numpy as np
import pytest
import torch
from contract import check_datamodule, same
from numbered import Numbered
from processes import run_program
from torch.utils.data import Dataset, TensorDataset
from two_ranks import Recorder, Rows

from datamodules import Batch, DataModule, RowBatch
from datamodules.batches.normalize import Normalizer
from datamodules.core.run import Run
from datamodules.sampling.plan import EvaluationPlan, ShuffledPlan

PROGRAM = Path(__file__).parents[1] / "helpers" / "two_ranks.py"


class Own(DataModule):
    """The ten lines a user would write."""

    def read(self):
        self.parts = self.split_samples(30)

    def dataset(self, split):
        rows = self.parts[split] if split != "predict" else np.arange(5)
        return Numbered(rows)

    def split_fingerprint(self):
        return json.dumps({k: v.tolist() for k, v in self.parts.items()})


def trainer(tmp_path, **flags):
    quiet = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "max_epochs": 1,
        "default_root_dir": tmp_path,
    }
    return L.Trainer(**{**quiet, **flags})


@pytest.mark.runs
def test_a_users_own_datamodule_passes_the_contract():
    check_datamodule(Own, contexts=("fork", "forkserver", "spawn"))


@pytest.mark.parametrize("whole", [False, True], ids=["items", "batches"])
@pytest.mark.parametrize("is_random", [None, True, False, 0])
def test_only_a_dataset_of_batches_may_do_without_seeds(whole, is_random, monkeypatch):
    if is_random is not None:
        monkeypatch.setattr(Numbered, "is_random", is_random, raising=False)
    if whole:
        monkeypatch.setattr(Numbered, "get_batch", lambda *_: None, raising=False)
    dm = Own(num_workers=0)
    keys = next(iter(dm.train_dataloader().batch_sampler))
    assert (keys.seeds is None) == (whole and is_random is False)
    assert len(keys.indices)


EQUAL = {0: "101,8,4,0", 2: "101,8,4,2"}  # by the number of workers
FEW = ("10,4,1,0", "13,4,1,0")


@pytest.fixture(scope="module")
def ranks():
    """What each rank saw of each case: ``[{case: {split: [(epoch, rows), ...]}}, ...]``."""
    output = run_program(PROGRAM, "2", *EQUAL.values(), *FEW, timeout=200)
    lines = [line for line in output.splitlines() if line.startswith("SEEN ")]
    found = [cases for _, cases in sorted(json.loads(line[5:]) for line in lines)]
    assert len(found) == 2
    return found


@pytest.mark.runs
@pytest.mark.timeout(400)
@pytest.mark.parametrize("workers", EQUAL)
def test_two_processes_equal_the_plan(ranks, workers):
    ranks = [found[EQUAL[workers]] for found in ranks]
    dm = Rows(101)
    dm.setup("fit")
    parts = {split: set(rows.tolist()) for split, rows in dm.parts.items()}
    for epoch in (0, 1):
        train = [[i for e, rows in r["train"] if e == epoch for i in rows] for r in ranks]
        assert set(train[0]) | set(train[1]) == parts["train"]
        assert len(train[0]) + len(train[1]) - len(parts["train"]) < 4
        assert len({len([1 for e, _ in r["train"] if e == epoch]) for r in ranks}) == 1
        val = [i for r in ranks for e, rows in r["val"] if e == epoch for i in rows]
        assert sorted(val) == sorted(parts["val"]), "each row once"
    orders = [[rows for e, rows in ranks[0]["train"] if e == epoch] for epoch in (0, 1)]
    assert orders[0] != orders[1]
    assert sorted(i for r in ranks for _, rows in r["test"] for i in rows) == sorted(parts["test"])
    assert sorted(i for r in ranks for _, rows in r["predict"] for i in rows) == list(range(101))
    plan = ShuffledPlan(len(parts["train"]), 8)
    loader = Rows(101, batch_size=8, seed=5).train_dataloader()
    assert isinstance(loader.sampler.plan, type(plan))
    loader.sampler._world = (2, 0)
    expected = [sorted(dm.parts["train"][k.indices].tolist()) for k in loader.sampler]
    assert [sorted(rows) for rows in orders[0]] == expected


@pytest.mark.timeout(400)
@pytest.mark.parametrize("case", FEW)
def test_fewer_evaluation_rows_than_ranks_neither_hang_nor_repeat(ranks, case):
    test = [i for cases in ranks for _, found in cases[case]["test"] for i in found]
    assert len(test) == len(set(test)) == 1


def test_a_trainer_leaves_the_loaders_alone_and_sets_the_epoch(tmp_path):
    model, dm = Recorder(), Rows(20, batch_size=4, num_workers=0, seed=0)
    trainer(tmp_path, max_epochs=2).fit(model, dm)
    loader = Rows(20, batch_size=4, num_workers=0, seed=0).train_dataloader()
    for epoch in (0, 1):
        loader.sampler.set_epoch(epoch)
        rows = [batch.inputs[:, 0].int().tolist() for batch in loader]
        assert [r for e, r in model.seen["train"] if e == epoch] == rows


def test_plain_loaders_in_a_trainer(tmp_path):
    model, dm = Recorder(), Rows(20, batch_size=4, num_workers=0)
    trainer(tmp_path).fit(model, dm.train_dataloader(), dm.val_dataloader())
    assert sorted(i for _, rows in model.seen["train"] for i in rows) == dm.parts["train"].tolist()


def test_no_val_split_is_no_error(tmp_path):
    class TrainOnly(DataModule):
        def dataset(self, split):
            return TensorDataset(torch.rand(8, 1), torch.rand(8)) if split == "train" else None

    model = Recorder()
    trainer(tmp_path).fit(model, TrainOnly(batch_size=4, num_workers=0))
    assert len(model.seen["train"]) == 2
    with pytest.raises(ValueError, match="has no test samples"):
        TrainOnly().test_dataloader()


@pytest.mark.parametrize("flag", ["overfit_batches", "fast_dev_run", "limit_train_batches"])
def test_trainer_flags(tmp_path, flag):
    model = Recorder()
    trainer(tmp_path, **{flag: 2}).fit(model, Rows(40, batch_size=4, num_workers=0))
    assert len(model.seen["train"]) == 2


class Images(DataModule):
    def __init__(self, **options):
        super().__init__(**options)
        self.normalizer = Normalizer([0.5] * 3, [0.5] * 3)

    def dataset(self, split):
        pixels = torch.arange(4 * 3 * 4 * 4, dtype=torch.uint8).view(4, 3, 4, 4)
        return pixels if split == "predict" else TensorDataset(pixels, torch.arange(4))


class Hooked(L.LightningModule):
    """Has an override of its own, which Lightning would skip."""

    def __init__(self):
        super().__init__()
        self.layer, self.calls, self.dtypes = torch.nn.Linear(48, 1), 0, set()

    def on_after_batch_transfer(self, batch, dataloader_idx):
        self.calls += 1
        return batch

    def training_step(self, batch, index):
        image, label = batch
        self.dtypes |= {image.dtype, label.dtype}
        return self.layer(image.flatten(1).to(self.layer.weight.dtype)).mean()

    def validation_step(self, batch, index):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


# true of any datamodule: Lightning's note that the module's hook is used
@pytest.mark.filterwarnings("ignore:You have overridden `on_after_batch:UserWarning")
@pytest.mark.parametrize("crossing", [False, True])
@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        ("32-true", torch.float32),
        ("64-true", torch.float64),
        ("bf16-true", torch.bfloat16),
        ("bf16-mixed", torch.float32),
    ],
)
def test_the_modules_own_hook_and_precision_are_honoured(
    tmp_path, monkeypatch, precision, dtype, crossing
):
    dm, model = Images(batch_size=2, num_workers=0), Hooked()
    if crossing:  # as on an accelerator: uint8 crosses and is finished there
        monkeypatch.setattr(Run, "moves_to_device", True)
    trainer(tmp_path, precision=precision).fit(model, dm)
    assert model.calls == 6  # two batches each of the sanity check, train and val
    assert model.dtypes == {dtype, torch.int64}


def test_images_that_cross_as_uint8_end_equal(monkeypatch):
    dm = Images(batch_size=4, num_workers=0)
    plain = next(iter(dm.val_dataloader()))
    dm.normalizer, normalizer = None, dm.normalizer
    crossing = next(iter(dm.val_dataloader()))
    assert crossing.inputs.dtype == torch.uint8
    assert same(normalizer(crossing), plain)


def test_plain_use_gives_finished_batches():
    dm = Images(batch_size=4)
    for batch in (dm.preview(), next(dm.batches("val")), next(iter(dm.train_dataloader()))):
        assert isinstance(batch, Batch)
        assert batch.inputs.dtype == torch.float32
    assert torch.equal(next(iter(dm.predict_dataloader())), dm.preview("predict"))
    assert isinstance(Images(with_rows=True).preview("predict"), RowBatch)
    assert Images(with_rows=True).preview("predict").rows.tolist() == [0, 1, 2, 3]


def test_hyperparameters_are_plain_and_load_back(tmp_path):
    def plan(generator, world_size):
        return [[0, 1]]

    dm = Rows(np.int64(20), batch_size=17, sampler=plan, loader_options={"worker_init_fn": plan})
    assert type(dm.hparams["rows"]) is int
    torch.save(dict(dm.hparams), tmp_path / "h.pt")
    loaded = torch.load(tmp_path / "h.pt", weights_only=True)
    assert loaded["batch_size"] == 17
    with pytest.raises(ValueError, match=r"your own sampler=.*pass sampler= again"):
        Rows(**{**loaded, "loader_options": None}).train_dataloader()


def test_state_round_trip_and_foreign_state(tmp_path):
    dm = Rows(20, batch_size=4)
    next(iter(dm.train_dataloader()))
    torch.save(dm.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    Rows(20).load_state_dict(state)
    with pytest.raises(ValueError, match="has the state of 'Rows', this is 'Own'"):
        Own().load_state_dict(state)


class SaveAt(L.Callback):
    """Saves after ``step`` and stops there, as a run that is killed after its checkpoint."""

    def __init__(self, step, path):
        self.step, self.path = step, path

    def on_train_batch_end(self, trainer, *args):
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)
            raise KeyboardInterrupt


@pytest.mark.parametrize("stop", [1, 3, 4, 5, 8])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_fit_goes_on_at_the_very_next_batch(tmp_path, stop, workers):
    def dm():
        return Rows(20, batch_size=4, num_workers=workers, seed=1)

    whole, first, rest = Recorder(), Recorder(), Recorder()
    trainer(tmp_path, max_epochs=3).fit(whole, dm())
    path = tmp_path / "stop.ckpt"
    with pytest.raises(SystemExit):
        trainer(tmp_path, max_epochs=3, callbacks=[SaveAt(stop, path)]).fit(first, dm())
    trainer(tmp_path, max_epochs=3).fit(rest, dm(), ckpt_path=path, weights_only=True)
    assert first.seen["train"] + rest.seen["train"] == whole.seen["train"]


def test_a_fit_on_other_data_is_not_resumed(tmp_path):
    part = trainer(tmp_path, max_steps=2)
    part.fit(Recorder(), Rows(20, batch_size=4, num_workers=0))
    part.save_checkpoint(tmp_path / "stop.ckpt")
    with pytest.raises(RuntimeError, match="split changed"):
        trainer(tmp_path, max_epochs=2).fit(
            Recorder(), Rows(21, batch_size=4, num_workers=0), ckpt_path=tmp_path / "stop.ckpt"
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number, at least 1, got 0"),
        ({"batch_size": 2.5}, "whole number"),
        ({"split_seed": 2**70}, "64 bits"),
        ({"loader_options": {"in_order": False}}, "rows of predictions"),
        ({"eval_batch_size": 0}, "at least 1"),
        ({"val_split": 0.7, "test_split": 0.5}, "sum to at most 1"),
        ({"val_split": 1.2}, "at most 1"),
        ({"sampler": "shufle"}, "did you mean 'shuffle'"),
        ({"split_options": {"stratfy": True}}, "did you mean 'stratify'"),
        ({"loader_options": {"pin_memry": True}}, "did you mean 'pin_memory'"),
        ({"num_workers": -1}, "at least 0"),
    ],
)
def test_bad_options_are_refused_when_built(options, message):
    with pytest.raises(ValueError, match=message):
        Rows(20, **options)


def test_asked_too_early_it_prepares_itself():
    dm = Rows(20)
    assert len(dm.train_dataset) == 16
    with pytest.raises(AttributeError, match="has no classes"):
        _ = dm.classes


def test_str_builds_no_loader_and_reads_nothing():
    class Never(DataModule):
        def read(self):
            raise AssertionError

        def dataset(self, split):
            raise AssertionError

    assert str(Never(batch_size=3)) == "Never(not set up; batch_size=3)"


def test_pickles_without_trainer_and_loaders(tmp_path):
    dm = Rows(20, batch_size=4, num_workers=0)
    trainer(tmp_path).fit(Recorder(), dm)
    copy = pickle.loads(pickle.dumps(dm))
    assert copy.trainer is None
    assert same(list(copy.val_dataloader()), list(dm.val_dataloader()))


def test_batch_size_finder(tmp_path):
    from lightning.pytorch.callbacks import BatchSizeFinder

    finder = BatchSizeFinder("power", max_trials=2, steps_per_trial=1, init_val=2)
    dm = Rows(200, batch_size=2, num_workers=0)
    trainer(tmp_path, callbacks=[finder], limit_val_batches=1).fit(Recorder(), dm)
    assert dm.hparams["batch_size"] > 2


def test_one_datamodule_in_two_trainers(tmp_path):
    dm = Rows(20, batch_size=4, num_workers=0, seed=0)
    first, second = Recorder(), Recorder()
    trainer(tmp_path).fit(first, dm)
    trainer(tmp_path).fit(second, dm)
    assert first.seen == second.seen


def test_lightnings_advice_on_workers_is_silent_for_our_own_choice(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)

    class InMemory(DataModule):
        def dataset(self, split):
            return Gathered() if split in ("train", "val") else None

    trainer(tmp_path).fit(Recorder(), InMemory(batch_size=4))


class Gathered(Dataset):
    def __len__(self):
        return 8

    def get_batch(self, indices, seeds):
        x = torch.from_numpy(indices).float()[:, None]
        return Batch(x, x[:, 0])


def test_evaluation_plan_is_exact():
    assert isinstance(Rows(20).val_dataloader().sampler.plan, EvaluationPlan)
