"""Write the predictions of all processes to one table: each row once, in the source's order."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import BasePredictionWriter

from datamodules import DataModule
from datamodules.core.accessors import bad_rows_of
from datamodules.readers.atomic_write import named_writes
from models import Regressor

Array = np.ndarray[Any, Any]
SEPARATOR = "|"  # between the classes of a multi-label row
FORMATS = (".csv", ".parquet")


class PredictionTable(BasePredictionWriter):
    """Collects predictions and writes them at the end.

    A row whose file was skipped (``on_error="skip"``) has no prediction in the table.

    Args:
        out: ``.csv`` or ``.parquet``; written completely or not at all.
        task: ``"multiclass"``, ``"multilabel"`` or ``"regression"``.
        classes: Class names in the order of their index; none for regression.
        targets: Names of the targets of a regression.
        all_probabilities: Write a column for each class as well.
    """

    def __init__(
        self,
        out: Path,
        *,
        task: str,
        classes: Sequence[str] = (),
        targets: Sequence[str] = (),
        all_probabilities: bool = False,
    ) -> None:
        super().__init__("batch")
        self.out, self.task, self.classes, self.targets = out, task, list(classes), list(targets)
        self.all_probabilities = all_probabilities
        self.rows_written = 0
        self.missing: list[str] = []
        self._parts: dict[str, list[Array]] = {"row": []}

    def write_on_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        prediction: Any,
        batch_indices: Sequence[int] | None,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int,
    ) -> None:
        """Keep the predictions of a batch: the best class, and all probabilities on request."""
        values = self._checked(prediction)
        rows = np.asarray(batch_indices if batch_indices is not None else [], np.int64)
        rows = rows[~np.isin(rows, _bad_rows(trainer))]
        if len(rows) != len(values):
            if trainer.world_size > 1:
                raise RuntimeError(
                    "the loader does not report which rows are in a batch, so the rows of several "
                    "processes cannot be ordered; predict with --devices 1"
                )
            first = sum(map(len, self._parts["row"]))
            rows = np.arange(first, first + len(values))
        self._parts["row"].append(rows)
        kept = {"values": values}
        if self.task == "multiclass":
            kept = {"best": values.argmax(1), "probability": values.max(1)}
            if self.all_probabilities:
                kept["values"] = values
        for name, part in kept.items():
            self._parts.setdefault(name, []).append(part)

    def _checked(self, prediction: Any) -> Array:
        """Check a prediction and convert it to (N, K) or (N, T) float32."""
        expected = f"(N, {len(self.classes)}) of probabilities"
        if self.task == "regression":
            expected = "(N,) or (N, T) of numbers"
        if not isinstance(prediction, torch.Tensor) or prediction.ndim not in (1, 2):
            raise ValueError(
                f"predict_step must return a tensor {expected}, got "
                f"{getattr(prediction, 'shape', type(prediction).__name__)}"
            )
        values = prediction.detach().float().cpu().numpy()
        if self.task == "regression":
            return values.reshape(len(values), -1)
        sums = values.sum(1) if values.ndim == 2 else np.zeros(1)
        wrong_sum = self.task == "multiclass" and np.abs(sums - 1).max(initial=0) > 0.01
        outside = values.min(initial=0) < 0 or values.max(initial=0) > 1
        if values.shape[1:] != (len(self.classes),) or wrong_sum or outside:
            raise ValueError(
                f"predict_step must return {expected}, got {values.shape} from "
                f"{values.min(initial=0):.3g} to {values.max(initial=0):.3g}; apply softmax or "
                "sigmoid in predict_step"
            )
        return values

    def on_predict_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Gather the rows of all processes and write them on the first."""
        mine = self.collected()
        mine["missing"] = np.asarray(_bad_rows(trainer), np.int64)
        parts = gather(trainer, mine)
        if not trainer.is_global_zero:
            return
        missing = np.unique(np.concatenate([part.pop("missing") for part in parts]))
        parts = [part for part in parts if len(part.get("row", ()))]
        if not parts and len(missing):
            raise ValueError(f"none of the {len(missing)} files to predict can be read")
        if not parts:
            raise ValueError("there is nothing to predict; the predict split is empty")
        columns = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
        # a loader that pads its last batches, as Lightning's own does, repeats some rows
        rows, first = np.unique(columns.pop("row"), return_index=True)
        data: Any = getattr(trainer, "datamodule", None)
        keys = getattr(data, "predict_keys", None)
        partly = trainer.limit_predict_batches != 1.0  # fast_dev_run sets it too
        count = len(rows) + len(missing)
        if keys is not None and count != len(keys) and not partly:
            raise RuntimeError(f"expected predictions for {len(keys)} rows, got {count}")
        names, lost = (
            part.tolist() if keys is None else [keys[row] for row in part]
            for part in (rows, missing)
        )
        key = getattr(data, "hparams", {}).get("id_column")
        key = key or ("path" if isinstance(names[0], str) else "row")
        answers = self.answers({name: values[first] for name, values in columns.items()})
        order = np.argsort(np.concatenate([rows, missing]))
        self._write({key: names, **answers}, {key: lost}, order)
        self.rows_written, self.missing = count, [str(name) for name in lost]

    def _write(self, predicted: dict[str, Any], missing: dict[str, Any], order: Array) -> None:
        import polars as pl  # not before: a process that is forked must not have used it

        frame = pl.DataFrame(predicted)
        if len(order) > len(frame):
            frame = pl.concat([frame, pl.DataFrame(missing)], how="diagonal")[order]
        half = self.out.with_name(f".{self.out.name}.{os.getpid()}")
        stream = io.BytesIO()  # polars' error for a full disk has no path and no number
        if self.out.suffix == ".csv":
            frame.write_csv(stream)
        else:
            frame.write_parquet(stream)
        with named_writes(half, remove=True):
            half.write_bytes(stream.getbuffer())
            half.replace(self.out)

    def collected(self) -> dict[str, Array]:
        """Return the columns of this process's batches, and start again."""
        parts, self._parts = self._parts, {"row": []}
        return {name: np.concatenate(arrays) for name, arrays in parts.items() if arrays}

    def answers(self, columns: dict[str, Array]) -> dict[str, Any]:
        """Convert the collected columns to those of the table."""
        if self.task == "regression":
            values = columns["values"]
            names = self.targets if len(self.targets) == values.shape[1] else []
            names = names or [str(number) for number in range(1, values.shape[1] + 1)]
            if values.shape[1] == 1:
                return {"prediction": values[:, 0]}
            return {f"prediction_{n}": values[:, column] for column, n in enumerate(names)}
        if self.task == "multiclass":
            answers: dict[str, Any] = {
                "class": [self.classes[index] for index in columns["best"]],
                "probability": _rounded(columns["probability"]),
            }
        else:
            rows = [(row, np.flatnonzero(row > 0.5)) for row in columns["values"]]
            answers = {
                "classes": [SEPARATOR.join(self.classes[k] for k in ks) for _, ks in rows],
                "probabilities": [SEPARATOR.join(f"{row[k]:.6g}" for k in ks) for row, ks in rows],
            }
        if self.all_probabilities:
            for index, name in enumerate(self.classes):
                answers[f"probability_{name}"] = _rounded(columns["values"][:, index])
        return answers


def gather(trainer: L.Trainer, mine: dict[str, Array]) -> list[dict[str, Array]]:
    """Return the columns of every process."""
    if trainer.world_size == 1 or not dist.is_initialized():
        return [mine]
    parts = [mine] * trainer.world_size
    dist.all_gather_object(parts, mine)
    return parts


def _bad_rows(trainer: L.Trainer) -> list[int]:
    """Return the rows whose file this process skipped."""
    data = getattr(trainer, "datamodule", None)
    return bad_rows_of(data, "predict") if isinstance(data, DataModule) else []


def _rounded(probabilities: Array) -> Array:
    """Round to six decimals: the seventh depends on the other rows of the batch."""
    return np.round(probabilities.astype(np.float64), 6)


def columns_of(model: Any, data: Any) -> dict[str, Any]:
    """Return the arguments of :class:`PredictionTable`: task, and names of classes or targets."""
    task = "regression" if isinstance(model, Regressor) else getattr(data, "task", "multiclass")
    task = model.hparams.get("task") or task
    if task == "regression":
        target = getattr(data, "target", None)
        return {"task": task, "targets": target if isinstance(target, list) else []}
    classes = getattr(data, "classes", None) or range(model.hparams["num_classes"])
    return {"task": task, "classes": [str(name) for name in classes]}


class PredictionLines(L.Callback):
    """Prints a line every few seconds, when the output is not a terminal."""

    def __init__(self, seconds: float = 10) -> None:
        self._seconds, self._last = seconds, 0.0

    def on_predict_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the clock."""
        self._last = time.monotonic()

    def on_predict_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Print the progress."""
        if trainer.is_global_zero and time.monotonic() - self._last > self._seconds:
            self._last = time.monotonic()
            print(f"batch {batch_idx + 1} of {trainer.num_predict_batches[0]}", flush=True)
