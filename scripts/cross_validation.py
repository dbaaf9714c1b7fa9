"""k-fold runs of fit.py: one fit a fold, mean and spread, and each row's out-of-fold answer."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
import torch.distributed as dist

from datamodules import DataModule
from names import UsageError
from predictions import PredictionTable, columns_of

OUT_OF_FOLD = "out_of_fold.csv"


def fold_places(folds: int, repeats: int) -> Iterator[tuple[str, dict[str, int]]]:
    """Name and ``split_options`` of each fit.

    Example:
        >>> list(fold_places(2, 1))[1]
        ('fold-1', {'folds': 2, 'fold': 1, 'repeat': 0})
    """
    for repeat in range(repeats):
        for fold in range(folds):
            name = f"fold-{fold}" if repeats == 1 else f"repeat-{repeat}-fold-{fold}"
            yield name, {"folds": folds, "fold": fold, "repeat": repeat}


def check_folds(folds: int | None, repeats: int) -> None:
    """Refuse numbers that cannot be.

    Raises:
        UsageError: If there are fewer than two folds, or repeats without folds.
    """
    if folds is not None and folds < 2:
        raise UsageError(f"--folds must be at least 2, got {folds}")
    if repeats < 1 or (repeats > 1 and folds is None):
        raise UsageError(f"--repeats must be at least 1 and goes with --folds, got {repeats}")


class HeldOut(L.Callback):
    """Writes what the model answers for each row of the val split, while it is validated.

    The sampler of an exact evaluation says which rows a batch holds, so each row is there once on
    any number of processes.

    Args:
        out: A CSV file: key, the true target, the answer.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self._table: PredictionTable | None = None
        self._planned: list[Any] = []
        self._rows: list[np.ndarray[Any, Any]] = []
        self._targets: list[np.ndarray[Any, Any]] = []

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Ask the sampler for this process's rows."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        self._table = PredictionTable(self.out, **columns_of(pl_module, data))
        loaders: Any = trainer.val_dataloaders
        self._planned = [np.asarray(keys.indices) for keys in loaders.sampler]
        self._rows, self._targets = [], []

    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Ask the model for its answers to one batch."""
        assert self._table is not None
        inputs, target = batch
        with torch.no_grad():
            answers = pl_module.predict_step(inputs, batch_idx)
        self._targets.append(target.detach().cpu().numpy())
        self._rows.append(self._planned[batch_idx])
        rows = self._rows[-1].tolist()
        self._table.write_on_batch_end(
            trainer, pl_module, answers, rows, batch, batch_idx, dataloader_idx
        )

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Bring the processes' rows together and write them, on the first."""
        assert self._table is not None
        rows = np.concatenate([np.empty(0, np.int64), *self._rows])
        mine = (rows, self._targets, self._table.kept())
        parts = [mine]
        if trainer.world_size > 1 and dist.is_initialized():
            parts = [mine] * trainer.world_size
            dist.all_gather_object(parts, mine)
        if not trainer.is_global_zero:
            return
        parts = [part for part in parts if len(part[0])]
        rows = np.concatenate([part[0] for part in parts])
        targets = np.concatenate([target for part in parts for target in part[1]])
        order = np.argsort(rows)
        columns = {
            name: np.concatenate([part[2][name] for part in parts])[order] for name in parts[0][2]
        }
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        keys = keys_of(data, rows[order])
        with self.out.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            table = csv.writer(file, lineterminator="\n")
            answers = self._table.answers(columns)
            table.writerow(["key", "target", *answers])
            said = named(targets[order], data, self._table.task)
            table.writerows(zip(keys, said, *answers.values(), strict=True))


def keys_of(data: Any, rows: np.ndarray[Any, Any]) -> list[Any]:
    """What names rows of the val split: the id where there is one, else file and row."""
    dataset = data.val_dataset
    key = getattr(getattr(dataset, "names", None), "key", dataset.describe)
    return [key(int(row)) for row in rows]


def named(targets: np.ndarray[Any, Any], data: Any, task: str) -> list[Any]:
    """Targets as a person reads them: class names, numbers on their own scale."""
    if task == "multiclass":
        return [data.classes[int(target)] for target in targets]
    if task == "multilabel":
        return ["|".join(data.classes[k] for k in np.flatnonzero(row > 0.5)) for row in targets]
    values = targets.reshape(len(targets), -1).astype(np.float64)
    scale = getattr(data, "target_scale", None)
    if scale is not None:
        values = values * np.asarray(scale["std"]) + np.asarray(scale["mean"])
    return [row[0] if len(row) == 1 else "|".join(map(repr, row)) for row in values.tolist()]


def check_source(data: Any) -> None:
    """Refuse data that cannot be parted into folds.

    Raises:
        UsageError: If it is no datamodule of this kind.
    """
    if not isinstance(data, DataModule):
        raise UsageError(
            f"--folds needs a datamodule of this project, {type(data).__name__} is none; it has "
            "no split_options"
        )
    if data.hparams.get("on_error") == "skip":
        raise UsageError("--folds answers each row and on_error=skip leaves some out; keep one")


def join_folds(folder: Path, names: Sequence[str]) -> Path:
    """One file of all folds' answers, with the fit's name in front.

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
    """A table: a row a metric with mean, standard deviation, least and greatest over the fits.

    Args:
        metrics: Of each fit by name.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(min_width=60)
    table.add_column("metric")
    for title in ("mean", "std", "min", "max"):
        table.add_column(title, justify="right")
    names = list(next(iter(metrics.values())))
    for name in sorted(names, key=lambda name: name.endswith("loss")):
        values = [found[name] for found in metrics.values() if name in found]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        figures = (statistics.fmean(values), spread, min(values), max(values))
        table.add_row(name.removeprefix("val_"), *(f"{value:.4f}" for value in figures))
    print(f"\nheld-out rows of {len(metrics)} fits, weights after the last epoch")
    Console(highlight=False).print(table)
