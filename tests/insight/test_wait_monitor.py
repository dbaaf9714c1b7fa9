from __future__ import annotations

import logging
import time

import lightning as L
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from datamodules import TextDataModule
from datamodules.batches.batch import Batch, TextInputs
from datamodules.insight import DataWaitMonitor
from datamodules.insight.wait_monitor import FEW, Padding, attention_mask, verdict


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
    said = [r.message for r in caplog.records if r.name == "datamodules.insight.wait_monitor"]
    assert said == [slow.verdict]
    assert "the loader is the bottleneck" in slow.verdict
    caplog.clear()
    quiet, _ = watched(0.0, 0.1)
    assert quiet.verdict is None
    assert not [r for r in caplog.records if r.name == "datamodules.insight.wait_monitor"]


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

    def wait(self) -> None:
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


def texts(n, length, tokens):
    mask = (torch.arange(length) < tokens).long().expand(n, length)
    return Batch(TextInputs(torch.zeros(n, length, dtype=torch.int64), mask), torch.zeros(n))


def test_tokens_and_padding_of_texts_are_counted_without_the_first_step():
    device, module = Simulated(), Log()
    monitor = DataWaitMonitor(device)
    monitor.on_train_epoch_start(Alone, module)
    for index, (length, tokens) in enumerate([(50, 1), (8, 6), (12, 3)]):
        batch = texts(4, length, tokens)
        monitor.on_train_batch_start(Alone, module, batch, index)
        device.queue(0.5)
        monitor.on_train_batch_end(Alone, module, None, batch, index)
    monitor.on_train_epoch_end(Alone, module)
    assert module.logged["train_tokens_per_second"] == pytest.approx(4 * (6 + 3) / 1.0)
    assert module.logged["train_padding"] == pytest.approx(1 - 9 / 20)
    assert module.logged["train_samples_per_second"] == pytest.approx(8)


def test_of_large_masks_only_some_are_added_up():
    padding = Padding()
    for tokens in (128, 0, 0, 64, 0, 0):  # every third of a mask thrice as large
        padding.count(texts(3 * FEW // 128, 128, tokens))
    assert padding.places == 6 * 3 * FEW
    assert padding.share() == pytest.approx(0.25)


@pytest.mark.parametrize(
    "batch",
    [
        torch.zeros(3, 4),
        (torch.zeros(3, 4), torch.zeros(3)),
        {"input_ids": torch.zeros(3, 4)},
        [],
        ["a", "b"],
    ],
)
def test_batches_without_a_mask_log_no_tokens(batch):
    assert attention_mask(batch) is None


@pytest.mark.parametrize(
    "batch",
    [
        texts(2, 3, 2),
        texts(2, 3, 2).inputs,  # bare
        texts(2, 3, 2).inputs._asdict(),  # as a Hugging Face collator gives them
        (texts(2, 3, 2).inputs._asdict(), torch.zeros(2)),
    ],
)
def test_the_mask_is_found_in_the_usual_forms(batch):
    assert attention_mask(batch).tolist() == [[1, 1, 0], [1, 1, 0]]


def test_tokens_stand_in_the_progress_bar_and_the_logger(tmp_path):
    path = tmp_path / "texts.csv"
    rows = [f"{'word ' * (k % 7 + 1)},{'ab'[k % 2]}" for k in range(40)]
    path.write_text("text,label\n" + "\n".join(rows), encoding="utf-8")

    class Counting(Step):
        def training_step(self, batch, index):
            return self.layer(batch.inputs.input_ids[:, :2].float()).sum()

    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[DataWaitMonitor()],
    )
    dm = TextDataModule(path, vocab_size=300, batch_size=4, val_split=0, test_split=0)
    trainer.fit(Counting(0), datamodule=dm)
    shown = trainer.progress_bar_metrics
    logged = trainer.logged_metrics
    for name in ("train_tokens_per_second", "train_padding", "train_samples_per_second"):
        assert float(shown[name]) == pytest.approx(float(logged[name]))
    assert 0 < float(logged["train_padding"]) < 1
    assert float(logged["train_tokens_per_second"]) > float(logged["train_samples_per_second"])


def test_the_verdict_names_the_side():
    assert "12.1 ms for its batch and computes 30.4 ms" in verdict(wait=0.0121, step=0.0304)
    assert verdict(wait=0.0121, step=0.0304).endswith("run scripts/tune_loader.py")
    assert verdict(wait=0.0001, step=0.0304).endswith("the model is the bottleneck")
