from __future__ import annotations

import lightning as L
import pytest
import torch
from torchmetrics import MeanMetric

from datamodules.core.sync_guard import SyncGuard


class Logged(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.logged = []

    def log(self, name, value, **kwargs):
        self.logged.append(name)


@pytest.fixture
def module():
    module = Logged()
    module._current_fx_name = "validation_step"
    return module


def test_reducing_within_a_step_is_refused_while_steps_are_uneven(module):
    guard = SyncGuard()
    guard.watch(module, samples=5, ranks=2)
    with pytest.raises(RuntimeError, match=r"'loss' over the processes inside validation_step"):
        module.log("loss", torch.tensor(1.0), on_step=True, sync_dist=True)
    module.log("loss", torch.tensor(1.0), sync_dist=True)
    module.log("accuracy", MeanMetric())
    module._current_fx_name = "on_validation_epoch_end"
    module.log("end", torch.tensor(1.0), on_step=True, sync_dist=True)
    assert module.logged == ["loss", "accuracy", "end"]


def test_a_rank_without_a_step_refuses_every_reduction_in_one(module):
    guard = SyncGuard()
    guard.watch(module, samples=1, ranks=2)
    for value, options in ((MeanMetric(), {}), (torch.tensor(1.0), {"sync_dist": True})):
        with pytest.raises(RuntimeError, match="1 samples on 2 processes"):
            module.log("x", value, **options)
    module.log("local", torch.tensor(1.0))
    assert module.logged == ["local"]


def test_released_it_logs_as_before(module):
    guard = SyncGuard()
    guard.watch(module, samples=1, ranks=2)
    guard.release()
    module.log("x", MeanMetric())
    assert module.logged == ["x"]
    assert "log" not in vars(module)
