"""Write the report of a run: metrics, confused classes, and samples with the highest loss."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning as L
import torch

from datamodules import DataModule
from datamodules.insight import Hardest
from datamodules.insight.hard_samples import Marks
from datamodules.insight.html_page import Page
from datamodules.insight.split_view import SplitView


class AnswersHeard(L.Callback):
    """Record the predictions of an evaluation, without a second pass.

    The value of the model's own call in the test or validation step is its prediction. No error
    here stops a run: it is kept in ``hindrance``.

    Args:
        split: ``"test"`` or ``"val"``.
        k: Samples that are kept.

    Attributes:
        found: The result after the evaluation, the same on every process; None after an error.
        hindrance: The error; empty if there was none.
    """

    def __init__(self, split: str, *, k: int = 16) -> None:
        self.split, self.k = split, k
        self.found: Hardest | None = None
        self.hindrance = ""
        self._marks: Marks | None = None
        self._answer: Any = None
        self._hook: Any = None

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Register a hook on the model's calls."""
        self._hook = pl_module.register_forward_hook(self._hear)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Remove the hook."""
        self._hook.remove()

    def _hear(self, module: torch.nn.Module, arguments: Any, answer: Any) -> None:
        self._answer = answer

    def _begin(self, trainer: L.Trainer, loader: Any) -> None:
        data: Any = getattr(trainer, "datamodule", None)
        try:
            known = getattr(data, f"{self.split}_dataset", None)
            one = SplitView(self.split, loader.dataset if known is None else known, loader)
            self._marks = Marks(data, one, loader, k=self.k)
        except Exception as error:  # a loader of another kind is no reason to stop
            self.hindrance = str(error)

    def _take(self, batch: Any) -> None:
        answer, self._answer = self._answer, None
        if self._marks is None or self.hindrance:
            return
        try:
            if answer is None:
                raise ValueError(f"the {self.split} step does not call the model itself")
            self._marks.take(answer, batch[1])
        except Exception as error:  # an answer of another kind is no reason to stop
            self.hindrance = str(error)

    def _end(self) -> None:
        if self._marks is None:
            return
        marks, self._marks = self._marks, None
        try:
            found = marks.hardest()  # every process takes part, hindered or not
            self.found = None if self.hindrance else found
        except Exception as error:  # a sample of another kind is no reason to stop
            self.hindrance = str(error)

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Read this process's samples from the sampler."""
        self._begin(trainer, trainer.test_dataloaders)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Read this process's samples from the sampler."""
        self._begin(trainer, trainer.val_dataloaders)

    def on_test_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Record one batch."""
        self._take(batch)

    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Record one batch."""
        self._take(batch)

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Gather the records of all processes."""
        self._end()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Gather the records of all processes."""
        self._end()


def write_page(
    folder: Path,
    *,
    data: Any,
    title: str,
    metrics: Mapping[str, float],
    heard: AnswersHeard,
) -> Path:
    """Write ``report.html`` into a run's folder.

    Args:
        folder: Of the run; its ``confusion_matrix.png`` is shown.
        data: The datamodule.
        title: What was evaluated.
        metrics: Named as logged.
        heard: What the evaluation's answers were.

    Returns:
        The page.
    """
    # the text of a plain LightningDataModule would build its loaders
    said = str(data) if isinstance(data, DataModule) else type(data).__name__
    page = Page(f"Run {folder.name}", said)
    page.heading(title[:1].upper() + title[1:])
    page.table(["metric", "value"], [[name, f"{value:.4f}"] for name, value in metrics.items()])
    figure = folder / "confusion_matrix.png"
    if figure.exists():
        said = "rows: true class, columns: predicted class; the table below lists the most "
        said += "confused pairs"
        page.figures([("Confusion matrix", said, figure.read_bytes())])
    if heard.found is not None:
        heard.found.show(page)
    elif heard.hindrance:
        page.text(f"The samples with the highest losses cannot be shown: {heard.hindrance}")
    path = folder / "report.html"
    path.write_text(page.html(), encoding="utf-8")
    return path
