"""Refuses what would hang where evaluation gives the ranks different numbers of steps."""

from __future__ import annotations

from typing import Any

import lightning as L
from torchmetrics import Metric


class StepwiseGuard:
    """Watches a module's ``self.log`` while ranks take different numbers of evaluation steps.

    With batches of one, or fewer samples than ranks, some ranks have a step less. A value that is
    reduced over the ranks within a step would then wait for a rank that is not there, for half an
    hour, without a word.
    """

    def __init__(self) -> None:
        self._module: L.LightningModule | None = None

    def watch(self, module: L.LightningModule, samples: int, ranks: int) -> None:
        """Refuse such logging in the module's evaluation steps."""
        self.release()
        self._module, plain = module, module.log

        def log(name: str, value: Any, *args: Any, **kwargs: Any) -> None:
            step = module._current_fx_name in ("validation_step", "test_step")
            reduced = kwargs.get("sync_dist", False) or isinstance(value, Metric)
            within = kwargs.get("on_step", False) and kwargs.get("sync_dist", False)
            if step and (within or (reduced and samples < ranks)):
                raise RuntimeError(
                    f"{samples} samples on {ranks} processes: some have a step less, so logging "
                    f"{name!r} over the processes inside {module._current_fx_name} would wait for "
                    "ever; log it in on_validation_epoch_end or on_test_epoch_end, or use fewer "
                    "devices"
                )
            plain(name, value, *args, **kwargs)

        module.__dict__["log"] = log

    def release(self) -> None:
        """Let the module log as before."""
        if self._module is not None:
            self._module.__dict__.pop("log", None)
            self._module = None
