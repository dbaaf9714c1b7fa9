"""Refuse logging that would hang while the ranks have different numbers of evaluation steps."""

from __future__ import annotations

from typing import Any

import lightning as L
from torchmetrics import Metric


class SyncGuard:
    """Checks a module's ``self.log`` while ranks take different numbers of evaluation steps.

    With batches of one sample, or fewer samples than ranks, some ranks have one step less. A value
    that is reduced over the ranks within a step would wait for the missing rank until the timeout
    of the process group, half an hour. :meth:`release` restores ``module.log``.

    Delete it when Lightning supports uneven evaluation steps
    (https://github.com/Lightning-AI/pytorch-lightning/issues/3325).

    Example:
        >>> guard, module = SyncGuard(), L.LightningModule()
        >>> guard.watch(module, samples=1, ranks=2)
        >>> "log" in vars(module)
        True
        >>> guard.release()
        >>> "log" in vars(module)
        False
    """

    def __init__(self) -> None:
        self._module: L.LightningModule | None = None
        self._before: dict[str, Any] = {}

    def watch(self, module: L.LightningModule, samples: int, ranks: int) -> None:
        """Check ``module.log`` until :meth:`release`.

        Args:
            module: The module that runs.
            samples: Samples of the split.
            ranks: Number of processes.
        """
        self.release()
        self._module, log = module, module.log
        self._before = {name: value for name, value in vars(module).items() if name == "log"}

        def checked_log(name: str, value: Any, *args: Any, **kwargs: Any) -> None:
            in_step = module._current_fx_name in ("validation_step", "test_step")
            synced = kwargs.get("sync_dist", False)
            reduced = synced or isinstance(value, Metric)
            each_step = kwargs.get("on_step", False) and synced
            if in_step and (each_step or (reduced and samples < ranks)):
                raise RuntimeError(
                    f"{samples} samples on {ranks} processes: some processes have one step less, "
                    f"so logging {name!r} over the processes inside {module._current_fx_name} "
                    "would wait forever; log it in on_validation_epoch_end or on_test_epoch_end, "
                    "or use fewer devices"
                )
            log(name, value, *args, **kwargs)

        module.__dict__["log"] = checked_log

    def release(self) -> None:
        """Restore ``module.log``."""
        if self._module is not None:
            self._module.__dict__.pop("log", None)
            self._module.__dict__.update(self._before)
            self._module = None
