"""K-fold cross-validation of fit.py: mean and spread of metrics, and out-of-fold predictions."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch

from datamodules import DataModule
from names import UsageError
from predictions import Array, PredictionTable, columns_of, gather
from results import print_metrics

OUT_OF_FOLD = "out_of_fold.csv"


def fold_places(folds: int, repeats: int) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield the folder name and ``split_options`` of each fit.

    Example:
        >>> list(fold_places(2, 1))[1]
        ('fold-1', {'folds': 2, 'fold': 1, 'repeat': 0})
    """
    for repeat in range(repeats):
        for fold in range(folds):
            name = f"fold-{fold}" if repeats == 1 else f"repeat-{repeat}-fold-{fold}"
            yield name, {"folds": folds, "fold": fold, "repeat": repeat}


def check_folds(folds: int | None, repeats: int) -> None:
    """Check ``--folds`` and ``--repeats``.

    Raises:
        UsageError: If there are fewer than two folds, or repeats without folds.
    """
    if folds is not None and folds < 2:
        raise UsageError(f"--folds must be at least 2, got {folds}")
    if repeats < 1 or (repeats > 1 and folds is None):
        raise UsageError(f"--repeats must be at least 1 and needs --folds, got {repeats}")


def check_source(data: Any) -> None:
    """Check that a datamodule can be split into folds.

    Raises:
        UsageError: If it is not a datamodule of this project, or skips samples.
    """
    if not isinstance(data, DataModule):
        raise UsageError(
            f"--folds needs a datamodule of this project, with split_options; got "
            f"{type(data).__name__}"
        )
    if data.hparams.get("on_error") == "skip":
        raise UsageError("--folds predicts every row and on_error=skip skips some; use only one")


class HeldOut(L.Callback):
    """Writes target and prediction of each val row during validation.

    The evaluation sampler reports which rows are in a batch, so each row is written once on any
    number of processes.

    Args:
        out: A CSV file with columns key, target, and those of the prediction.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self._table: PredictionTable | None = None
        self._planned: list[Any] = []
        self._targets: list[Array] = []

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Get this process's rows from the sampler."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        self._table = PredictionTable(self.out, **columns_of(pl_module, data))
        loaders: Any = trainer.val_dataloaders
        self._planned = [keys.indices for keys in loaders.sampler]
        self._targets = []

    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Predict one batch."""
        assert self._table is not None
        inputs, target = batch
        with torch.no_grad():
            answers = pl_module.predict_step(inputs, batch_idx)
        self._targets.append(target.detach().cpu().numpy())
        self._table.write_on_batch_end(
            trainer, pl_module, answers, self._planned[batch_idx], batch, batch_idx, dataloader_idx
        )

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Gather the rows of all processes and write them on the first."""
        assert self._table is not None
        mine = self._table.collected()
        if self._targets:
            mine["target"] = np.concatenate(self._targets)
        parts = [part for part in gather(trainer, mine) if part]
        if not trainer.is_global_zero:
            return
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        order = np.argsort(columns["row"])
        columns = {name: values[order] for name, values in columns.items()}
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        keys = row_keys(data, columns.pop("row"))
        targets = readable(columns.pop("target"), data, self._table.task)
        answers = self._table.answers(columns)
        with self.out.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(["key", "target", *answers])
            table.writerows(zip(keys, targets, *answers.values(), strict=True))


def row_keys(data: Any, rows: Array) -> list[Any]:
    """Return the id of each val row if there is one, else its file and row number."""
    dataset = data.val_dataset
    key = getattr(getattr(dataset, "names", None), "key", dataset.describe)
    return [key(int(row)) for row in rows]


def readable(targets: Array, data: Any, task: str) -> list[Any]:
    """Convert targets to class names, or to numbers on their original scale."""
    if task == "multiclass":
        return [data.classes[int(target)] for target in targets]
    if task == "multilabel":
        return ["|".join(data.classes[k] for k in np.flatnonzero(row > 0.5)) for row in targets]
    values = targets.reshape(len(targets), -1).astype(np.float64)
    scale = getattr(data, "target_scale", None)
    if scale is not None:
        values = values * np.asarray(scale["std"]) + np.asarray(scale["mean"])
    return [row[0] if len(row) == 1 else "|".join(map(repr, row)) for row in values.tolist()]


def join_folds(folder: Path, names: Sequence[str]) -> Path:
    """Write the predictions of all fits to one file, with a first column ``fit``.

    Returns:
        Its path.
    """
    out = folder / OUT_OF_FOLD
    with out.open("w", newline="", encoding="utf-8", errors="surrogateescape") as joined:
        writer = csv.writer(joined, lineterminator="\n")
        for place, name in enumerate(names):
            path = folder / name / OUT_OF_FOLD
            with path.open(newline="", encoding="utf-8", errors="surrogateescape") as part:
                header, *rows = csv.reader(part)
            if not place:
                writer.writerow(["fit", *header])
            writer.writerows([name, *row] for row in rows)
    return out


def print_folds(metrics: Mapping[str, Mapping[str, float]]) -> None:
    """Print mean, standard deviation, minimum and maximum of each metric over the fits.

    Args:
        metrics: The metrics of each fit.
    """
    columns: dict[str, dict[str, float]] = {name: {} for name in ("mean", "std", "min", "max")}
    for name in next(iter(metrics.values())):
        values = [fit[name] for fit in metrics.values() if name in fit]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        figures = (statistics.fmean(values), spread, min(values), max(values))
        for column, figure in zip(columns.values(), figures, strict=True):
            column[name] = figure
    print_metrics(f"held-out rows of {len(metrics)} fits, weights after the last epoch", columns)
