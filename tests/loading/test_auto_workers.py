from __future__ import annotations

import itertools

import lightning as L
import pytest
import torch
from contract import same
from script_runs import write_images
from torchvision.transforms import v2

from datamodules import DatasetDataModule, ImageFolderDataModule
from datamodules.core import loaders as loading
from datamodules.loading.auto_workers import BATCHES, LONGEST, SECONDS, AutoWorkers
from datamodules.loading.threads import Team, made_by_threads


def run(auto, windows, *, load, step, most_useful=99):
    """Feed windows of a loader that takes ``load`` seconds a batch and thread; no clock runs."""
    seen = []
    for _ in range(windows):
        for _ in range(max(BATCHES, round(SECONDS / max(step, load / auto.workers)) + 1)):
            each = load / min(auto.workers, most_useful)
            auto.observe(waited=max(0.0, each - step), worked=step)
        seen.append(auto.workers)
    return seen


@pytest.mark.parametrize("needed", [1, 2, 3, 5, 8])
def test_it_settles_on_the_threads_that_the_step_needs(needed):
    auto = AutoWorkers(8)
    seen = run(auto, 200, load=0.1 * (needed - 0.5), step=0.1)
    assert seen[-100:].count(needed) >= 90  # a try now and then
    assert max(seen[-100:]) <= needed + 1


def test_a_thread_that_brings_nothing_is_taken_back_and_tried_ever_more_seldom():
    auto = AutoWorkers(8)
    # a disk or a busy accelerator: one waits, but no thread beyond 4 makes batches come faster
    seen = run(auto, 1000, load=1.0, step=0.01, most_useful=4)
    assert set(seen) <= {4, 5}
    tries = [i for i, (a, b) in enumerate(itertools.pairwise(seen)) if (a, b) == (4, 5)]
    gaps = [b - a for a, b in itertools.pairwise(tries)]
    assert gaps == sorted(gaps)
    assert gaps[0] < 20
    assert LONGEST <= gaps[-1] <= LONGEST + 8
    assert auto.settled


def test_one_bad_window_changes_nothing():
    auto = AutoWorkers(8)
    for _ in range(20):
        for waited in (0.09, 0.02 / 8):  # much, then between much and little
            for _ in range(BATCHES):
                auto.observe(waited=waited, worked=0.1 - waited)
    assert auto.workers == 4


def test_a_validation_between_two_steps_is_no_evidence():
    found = []
    for pause in (0.0, 1000.0):
        auto, seen = AutoWorkers(8), []
        for n in range(10, 210):  # the first window tells what is usual
            auto.observe(waited=0.02, worked=0.08 + (pause if n % 10 == 9 else 0))
            seen.append(auto.workers)
        found.append(seen)
    assert found[0] == found[1]
    assert set(found[0]) == {4, 5}


def test_it_never_leaves_its_bounds():
    assert set(run(AutoWorkers(1), 50, load=1.0, step=0.0)) == {1}
    assert set(run(AutoWorkers(1), 50, load=0.0, step=1.0)) == {1}
    assert run(AutoWorkers(40), 300, load=100.0, step=0.01)[-1] == 40
    assert run(AutoWorkers(40), 300, load=0.0, step=1.0)[-1] == 1
    with pytest.raises(ValueError, match="most must be at least 1 thread, got 0"):
        AutoWorkers(0)


class Restless(AutoWorkers):
    """Wants another number after each batch."""

    def observe(self, waited, worked):
        assert waited >= 0
        assert worked >= 0
        self.workers = self.workers % self.most + 1


def test_answers_come_in_order_however_the_number_changes():
    assert list(made_by_threads(abs, range(300), Restless(4))) == list(range(300))


def test_no_more_threads_work_than_are_wanted():
    from concurrent.futures import ThreadPoolExecutor
    from threading import Event

    gates = [Event() for _ in range(6)]
    begun = [Event() for _ in gates]

    def job(i):
        begun[i].set()
        assert gates[i].wait(30)
        return i

    with ThreadPoolExecutor(4) as pool:
        team = Team(pool, 1)
        done = [team.submit(job, i) for i in range(6)]
        assert begun[0].wait(30)
        assert not begun[1].is_set()
        team.resize(3)
        assert begun[1].wait(30)
        assert begun[2].wait(30)
        team.resize(1)
        for i in (0, 1):
            gates[i].set()
            assert done[i].result(30) == i
        assert not begun[3].wait(0.05)  # two threads have left, the third holds job 2
        for gate in gates:
            gate.set()
        assert [future.result(30) for future in done] == list(range(6))


RANDOM = v2.Compose([v2.RandomCrop(6), v2.RandomHorizontalFlip(), v2.ColorJitter(0.4)])


def folder(tmp_path, **options):
    root = tmp_path / "images"
    if not root.exists():
        write_images(root)
    options = {"image_size": 8, "mode": "L", "batch_size": 3, "seed": 3, **options}
    return ImageFolderDataModule(root, train_transform=RANDOM, **options)


def test_batches_are_those_of_a_fixed_number(tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "AutoWorkers", Restless)
    monkeypatch.setattr(loading, "default_workers", lambda ranks: 4)
    epochs = []
    for workers in (0, "auto"):
        dm = folder(tmp_path, num_workers=workers)
        loader = dm.train_dataloader()
        epochs.append([])
        for epoch in range(2):
            loader.sampler.set_epoch(epoch)
            epochs[-1] += list(loader)
    assert same(epochs[0], epochs[1])
    assert dm.workers == {"train": loader.workers}
    assert str(loader.workers) in "1234"


def test_the_number_stays_for_the_next_loader_and_is_said(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(loading, "default_workers", lambda ranks: 4)
    dm = folder(tmp_path, num_workers="auto")
    assert dm.workers == {}
    dm.train_dataloader()
    dm._auto["train"].workers = 3
    with caplog.at_level("INFO", logger="lightning.pytorch"):
        for _ in range(2):
            list(dm.train_dataloader())
    assert dm.workers == {"train": 3}
    assert caplog.text.count('num_workers="auto": 3 of 4 threads load train') == 1


def grey(image):
    return image.convert("L")


def test_where_threads_cannot_serve_processes_do_and_the_reason_is_said(tmp_path, caplog):
    dm = folder(tmp_path, num_workers="auto")
    dm.eval_transform = v2.Compose([v2.Resize(8), grey])
    with caplog.at_level("INFO", logger="lightning.pytorch"):
        loader = dm.val_dataloader()
    assert loader.num_workers == loader.workers >= 1
    assert dm.workers == {}
    assert "processes for val, not threads: nothing is known of the draws of grey" in caplog.text
    dm = folder(tmp_path, num_workers="auto", worker_type="thread")
    dm.train_transform = grey
    with pytest.raises(ValueError, match='worker_type="thread" cannot serve train'):
        dm.train_dataloader()


def test_data_in_memory_and_streams_take_what_none_gives_them():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([(torch.zeros(2), 0)] * 8)

    for data in (Stream(), [(torch.zeros(2), k % 2) for k in range(8)]):
        numbers = [
            DatasetDataModule(
                train=data, val=data, num_workers=workers, batch_size=2
            ).train_dataloader().num_workers
            for workers in ("auto", None)
        ]  # fmt: skip
        assert numbers[0] == numbers[1]


def test_a_fit_runs_with_it(tmp_path):
    dm = folder(tmp_path, num_workers="auto")
    sums = []

    class Model(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch, index):
            sums.append(float(batch.inputs.sum()))
            return self.layer(batch.inputs.mean()[None, None]).mean()

        def validation_step(self, batch, index):
            assert batch.inputs.dtype == torch.float32

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    trainer = L.Trainer(accelerator="cpu", max_epochs=2, barebones=True, limit_val_batches=0)
    trainer.fit(Model(), dm)
    assert len(sums) == 2 * len(dm.train_dataloader())
    assert set(dm.workers) >= {"train"}
