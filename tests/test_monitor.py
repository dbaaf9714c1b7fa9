from __future__ import annotations

import logging
import time

import lightning as L
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from datamodules.insight import DataWaitMonitor
from datamodules.insight.monitor import verdict


class Slow(Dataset):
    def __init__(self, seconds: float, n: int = 8) -> None:
        self.seconds, self.n = seconds, n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.ones(2), torch.tensor(0)


class Step(L.LightningModule):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.layer = seconds, torch.nn.Linear(2, 2)

    def training_step(self, batch, index):
        time.sleep(self.seconds)
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def validation_step(self, batch, index):
        time.sleep(self.seconds)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def watched(load: float, step: float, *, epochs: int = 1, val: float | None = None, **flags):
    monitor = DataWaitMonitor(least_seconds=0.1)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[monitor],
        **flags,
    )
    loader = DataLoader(Slow(load))
    trainer.fit(Step(step), loader, None if val is None else DataLoader(Slow(val, 4)))
    return monitor, trainer


@pytest.mark.filterwarnings(
    "ignore:.*does not have many workers", "ignore:You defined a `validation_step`"
)
@pytest.mark.parametrize(("load", "step"), [(0.06, 0.02), (0.03, 0.03)])
def test_the_share_is_that_of_known_slow_downs(load, step):
    monitor, trainer = watched(load, step)
    assert monitor.share == pytest.approx(load / (load + step), abs=0.3)  # busy machines
    assert len(monitor.waits) == 7  # workers start before the first
    assert min(monitor.waits) >= load * 0.99
    assert min(monitor.steps) >= step * 0.99
    assert float(trainer.callback_metrics["train_data_wait"]) == pytest.approx(monitor.share)
    expected = 7 / (sum(monitor.waits) + sum(monitor.steps))
    assert float(trainer.callback_metrics["train_samples_per_second"]) == pytest.approx(expected)


@pytest.mark.filterwarnings(
    "ignore:.*does not have many workers", "ignore:You defined a `validation_step`"
)
def test_a_slow_loader_is_said_once_and_a_slow_step_never(caplog):
    caplog.set_level(logging.INFO, "datamodules")
    slow, _ = watched(0.05, 0.01, epochs=2)
    said = [r.message for r in caplog.records if r.name == "datamodules.insight.monitor"]
    assert said == [slow.verdict]
    assert "the loader is the bottleneck" in slow.verdict
    caplog.clear()
    quiet, _ = watched(0.0, 0.1)
    assert quiet.verdict is None
    assert not [r for r in caplog.records if r.name == "datamodules.insight.monitor"]


@pytest.mark.filterwarnings(
    "ignore:.*does not have many workers", "ignore:You defined a `validation_step`"
)
def test_validation_within_an_epoch_is_no_waiting():
    monitor, _ = watched(0.0, 0.05, val=0.2, val_check_interval=4, num_sanity_val_steps=0)
    assert len(monitor.waits) == 6  # neither the first step nor the one behind a validation
    assert max(monitor.waits) < 0.2


class Simulated:
    """An asynchronous device: the host queues work and goes on; time is told, not spent."""

    def __init__(self) -> None:
        self.now, self.free = 0.0, 0.0

    def queue(self, seconds: float) -> None:
        self.free = max(self.now, self.free) + seconds

    def mark(self) -> float:  # an event passes when what was queued before it is done
        return max(self.now, self.free)

    def finish(self) -> None:
        self.now = max(self.now, self.free)

    def seconds(self, start: float, end: float) -> float:
        return end - start


class Log:
    def __init__(self) -> None:
        self.logged: dict[str, float] = {}

    def log(self, name, value, **options):
        self.logged[name] = value


class Alone:
    is_global_zero = True


@pytest.mark.parametrize(
    ("load", "step", "share"), [(20, 30, 0.0), (30, 20, 1 / 3), (60, 20, 2 / 3)]
)
def test_on_a_device_idleness_counts_and_not_the_hosts_waiting(load, step, share):
    device, module = Simulated(), Log()
    monitor = DataWaitMonitor(device, least_seconds=0.05)
    monitor.on_train_epoch_start(Alone, module)
    batch = (torch.zeros(4, 2), torch.zeros(4))
    for index in range(10):
        device.now += load / 1000  # the host waits for the loader, the device goes on
        monitor.on_train_batch_start(Alone, module, batch, index)
        device.queue(step / 1000)
        monitor.on_train_batch_end(Alone, module, None, batch, index)
    monitor.on_train_epoch_end(Alone, module)
    assert monitor.share == pytest.approx(share, abs=1e-6)
    assert (monitor.verdict is None) == (share == 0)
    seconds = 9 * max(load, step) / 1000
    assert module.logged["train_samples_per_second"] == pytest.approx(9 * 4 / seconds)


def test_the_verdict_names_the_side():
    assert "12.1 ms for its batch and computes 30.4 ms" in verdict(wait=0.0121, step=0.0304)
    assert verdict(wait=0.0121, step=0.0304).endswith("run scripts/tune_loader.py")
    assert verdict(wait=0.0001, step=0.0304).endswith("the model is the bottleneck")
