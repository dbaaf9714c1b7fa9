"""Manage the folder of a run: number, settings, best and last checkpoint, progress lines."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from datamodules import DataModule
from datamodules.readers.atomic_write import named_writes
from datamodules.settings.arguments import did_you_mean
from names import UsageError

# The first of these that the model logs selects the best checkpoint.
MONITORS = ("val_accuracy", "val_r2", "val_rmse", "val_loss")
WRITTEN_BY = "written_by"  # key in the checkpoint: import paths of the classes, for predict.py


def claim_folder(runs: Path, name: str) -> Path:
    """Make and return ``runs/name-1``, or the next free number.

    Two runs that start together get different folders.
    """
    runs.mkdir(parents=True, exist_ok=True)
    numbers = (re.fullmatch(rf"{re.escape(name)}-(\d+)", p.name) for p in runs.iterdir())
    number = max((int(found[1]) for found in numbers if found), default=0)
    while True:
        number += 1
        folder = runs / f"{name}-{number}"
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder


def short_name(path: str) -> str:
    """Return the name of a run by its datamodule.

    Example:
        >>> short_name("datamodules.ImageFolderDataModule")
        'image_folder'
        >>> short_name("datamodules.CIFAR10DataModule"), short_name("datamodules.samples.digits")
        ('cifar10', 'digits')
    """
    name = path.rpartition(".")[2].removesuffix("DataModule") or "run"
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def is_higher_better(metric: str) -> bool:
    """Whether a larger value of a metric is better, that is, it is not a loss or an error."""
    return not re.search(r"loss|error|(^|_)(r?mse|mae|perplexity)($|_)", metric)


def has_validation(trainer: L.Trainer) -> bool:
    """Whether this fit has validation data; known once it has started."""
    batches = trainer.num_val_batches
    return bool(sum(batches) if isinstance(batches, list) else batches)


def find_monitor(trainer: L.Trainer, name: str | None) -> str | None:
    """Return the metric that selects the best checkpoint, or None if nothing was logged yet.

    Raises:
        UsageError: If the model does not log the metric ``name``.
    """
    logged = [n for n in trainer.callback_metrics if not n.startswith("train_")]
    if not logged:
        return None
    if name is None:
        return next((monitor for monitor in MONITORS if monitor in logged), None)
    if name not in trainer.callback_metrics:
        hint = did_you_mean(name, logged)
        raise UsageError(f"--monitor {name} is not logged; {hint}logged: {', '.join(logged)}")
    return name


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Return a checkpoint's content, with memory-mapped tensors; never runs code from the file.

    Raises:
        FileNotFoundError: If it does not exist.
        ValueError: If the file is not a checkpoint.
    """
    if not Path(path).exists():
        raise FileNotFoundError(f"ckpt_path={str(path)!r} does not exist")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises many types for other files
        barred = re.search(r"Unsupported global: GLOBAL (\S+)", str(error))
        raise ValueError(
            f"ckpt_path={str(path)!r} contains a {barred[1]}, but only plain values and tensors "
            "are loaded; save it as str, int, float, list or dict"
            if barred
            else f"ckpt_path={str(path)!r} is not a checkpoint, or is damaged"
        ) from None
    if not isinstance(found, dict) or "state_dict" not in found:
        raise ValueError(f"ckpt_path={str(path)!r} is not a checkpoint of Lightning")
    return found


class NamedState(L.Callback):
    """A callback whose state is stored under its class name.

    Lightning's key contains the metric, which is not known yet when a run is resumed, and is equal
    to that of the user's own ``ModelCheckpoint``.
    """

    @property
    def state_key(self) -> str:
        """Return the class name."""
        return type(self).__name__


class WholeCheckpoint(NamedState, ModelCheckpoint):
    """Writes a temporary file and replaces the old checkpoint with it.

    Lightning 2.6 copies over the old one from another file system (fsspec's transaction): a full
    disk left a truncated file in place of a good checkpoint.
    """

    def _save_checkpoint(self, trainer: L.Trainer, filepath: str) -> None:
        path = Path(filepath)
        half = path.with_name(f".{path.name}.half")
        with named_writes(half, remove=True):
            super()._save_checkpoint(trainer, str(half))
            if trainer.is_global_zero:
                if half.is_dir():  # a strategy that saves shards
                    shutil.rmtree(path, ignore_errors=True)
                half.replace(path)
        self._last_checkpoint_saved = filepath


class BestCheckpoint(WholeCheckpoint):
    """Keeps ``best.ckpt`` by the first metric of ``MONITORS`` that the model logs.

    Without validation there is no best checkpoint.
    """

    def __init__(self, folder: Path, monitor: str | None) -> None:
        super().__init__(folder, filename="best", enable_version_counter=False)
        self._name = monitor

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save if every epoch ends with a validation."""
        if self._is_decided(trainer):
            super().on_train_epoch_end(trainer, pl_module)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save if validation runs more often, or less often, than once per epoch."""
        if not trainer.sanity_checking and self._is_decided(trainer):
            super().on_validation_end(trainer, pl_module)

    def _is_decided(self, trainer: L.Trainer) -> bool:
        if trainer.state.fn != "fit" or not has_validation(trainer):
            return False
        if self.monitor is None:
            self._follow(find_monitor(trainer, self._name))
        return self.monitor is not None

    def _follow(self, monitor: str | None) -> None:
        if monitor is not None:
            self.monitor, self.mode = monitor, "max" if is_higher_better(monitor) else "min"
            self.kth_value = torch.tensor(-torch.inf if self.mode == "max" else torch.inf)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best checkpoint so far, which is in the folder of the resumed run."""
        before = state_dict["monitor"]
        same = self._name in (None, before)
        if before is not None and same and Path(state_dict["best_model_path"]).exists():
            self._follow(before)
            super().load_state_dict({**state_dict, "dirpath": self.dirpath})


class LastCheckpoint(WholeCheckpoint):
    """Keeps ``last.ckpt``, from which a run is resumed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, filename="last", enable_version_counter=False)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore nothing: the last checkpoint is in this run's own folder."""


class Patience(NamedState, EarlyStopping):
    """Stops after ``patience`` validations without improvement of the monitored metric."""

    def __init__(self, patience: int, monitor: str | None) -> None:
        super().__init__(monitor or "", patience=patience)
        self._name, self._decided = monitor, False

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Check that there is validation data."""
        if not has_validation(trainer):
            raise UsageError(
                "--patience needs validation data, and there is none; pass --data.val_split 0.1 or "
                "remove --patience"
            )

    def _run_early_stopping_check(self, trainer: L.Trainer) -> None:
        monitor = self.monitor if self._decided else find_monitor(trainer, self._name)
        if monitor is None:
            return
        if not self._decided:
            self.monitor, self._decided = monitor, True
            self.mode = "max" if is_higher_better(monitor) else "min"
            if not torch.isfinite(self.best_score):  # else it was resumed
                self.best_score = torch.tensor(-torch.inf if self.mode == "max" else torch.inf)
        super()._run_early_stopping_check(trainer)


class Record(L.Callback):
    """Writes the settings of a run, and the names of its classes into its checkpoints.

    Args:
        folder: Of the run; exists.
        settings: YAML text of all options.
    """

    def __init__(self, folder: Path, settings: str) -> None:
        self.folder, self._settings = folder, settings
        self.started = False

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write the settings: the data could be read, so the folder is kept."""
        self.started = True
        if trainer.is_global_zero:
            (self.folder / "config.yaml").write_text(self._settings, encoding="utf-8")
            data: Any = getattr(trainer, "datamodule", None)
            # str() of a plain LightningDataModule would build its loaders
            source = type(data).__name__
            if isinstance(data, DataModule):
                _ = data.test_dataset  # built now, so that the text includes its size
                source = str(data)
            weights = sum(weight.numel() for weight in pl_module.parameters())
            net = pl_module.hparams.get("net", "")
            print(f"{'data':<18}{source}")
            print(f"{'model':<18}{type(pl_module).__name__} {net}, {weights:,} weights")
            print(f"{'run':<18}{self.folder}", flush=True)

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add the import paths of the classes, as plain strings."""
        data: Any = getattr(trainer, "datamodule", None)
        checkpoint[WRITTEN_BY] = {
            "model_class": class_path(type(pl_module)),
            "data_class": None if data is None else class_path(type(data)),
        }

    def check_started(self, *, is_first: bool) -> None:
        """Check that a resumed run trained at least one step.

        Args:
            is_first: Whether ``folder`` is the run's; spawned processes train in its place.

        Raises:
            UsageError: If no training started.
        """
        if not (self.started or (is_first and (self.folder / "config.yaml").exists())):
            raise UsageError(
                "the checkpoint has completed all of its epochs; raise --max_epochs to train on, "
                "or pass it to predict.py"
            )

    def discard(self) -> None:
        """Remove the folder if no training started."""
        if not (self.folder / "config.yaml").exists():  # a spawned process may have written it
            shutil.rmtree(self.folder, ignore_errors=True)


def class_path(cls: type) -> str:
    """Return ``package.module.Class``."""
    return f"{cls.__module__}.{cls.__qualname__}"


class EpochLines(L.Callback):
    """Prints a line per epoch, when the output is not a terminal."""

    def __init__(self) -> None:
        self._start = 0.0

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Print the metrics of the epoch."""
        metrics = trainer.callback_metrics  # on every rank: the values are gathered here
        if not trainer.is_global_zero:
            return
        names = [n for n in metrics if n.endswith(("_loss", "_accuracy", "_r2", "_mae"))]
        names = sorted((n for n in names if "macro" not in n), key=lambda n: n[:5] != "train")
        values = [f"{name} {float(metrics[name]):.4f}" for name in names]
        last = trainer.max_epochs if (trainer.max_epochs or -1) > 0 else "?"
        seconds = time.perf_counter() - self._start
        epoch = f"epoch {trainer.current_epoch + 1}/{last}"
        print("  ".join([epoch, *values, f"{seconds:.1f} s"]), flush=True)
