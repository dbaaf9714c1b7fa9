"""A run's folder: its number, settings, best and last checkpoint, and its lines of progress."""

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
from names import UsageError, closest

# The first of these that the model logs decides which checkpoint is best.
MONITORS = ("val_accuracy", "val_r2", "val_rmse", "val_loss")
WRITTEN_BY = "written_by"  # key in the checkpoint: the classes that predict.py looks for


def claim_folder(runs: Path, name: str) -> Path:
    """Make and return ``runs/name-1``, or the next free number.

    Making it is the claim, so two runs that start together get a folder each.
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
    """Name of a run by what it reads: ``digits``, ``image_folder``, ``cifar10``.

    Example:
        >>> short_name("datamodules.ImageFolderDataModule")
        'image_folder'
        >>> short_name("datamodules.CIFAR10DataModule"), short_name("datamodules.samples.digits")
        ('cifar10', 'digits')
    """
    name = path.rpartition(".")[2].removesuffix("DataModule") or "run"
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def is_higher_better(metric: str) -> bool:
    """Whether a larger value of a metric is better; losses and errors are the ones that fall."""
    return not re.search(r"loss|error|(^|_)(r?mse|mae|perplexity)($|_)", metric)


def has_validation(trainer: L.Trainer) -> bool:
    """Whether this fit validates; known once it has started."""
    batches = trainer.num_val_batches
    return bool(sum(batches) if isinstance(batches, list) else batches)


def find_monitor(trainer: L.Trainer, asked: str | None) -> str | None:
    """The metric that decides, or None while there is none.

    Raises:
        UsageError: If the model does not log what was asked for.
    """
    logged = [n for n in trainer.callback_metrics if not n.startswith("train_")]
    if not logged:
        return None
    if asked is None:
        return next((name for name in MONITORS if name in logged), None)
    if asked not in trainer.callback_metrics:
        near = closest(asked, logged)
        hint = f"did you mean {near}? " if near else ""
        raise UsageError(f"--monitor {asked} is not logged; {hint}logged: {', '.join(logged)}")
    return asked


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """A checkpoint's content, tensors left in the file; runs nothing that the file asks for.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If the file is none.
    """
    if not Path(path).exists():
        raise FileNotFoundError(f"ckpt_path={str(path)!r} does not exist")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # whatever a file of another kind leads to
        barred = re.search(r"Unsupported global: GLOBAL (\S+)", str(error))
        raise ValueError(
            f"ckpt_path={str(path)!r} holds a {barred[1]}, and only plain values and tensors are "
            "loaded from a file; save that as str, int, float, list or dict"
            if barred
            else f"ckpt_path={str(path)!r} is no checkpoint, or a damaged one"
        ) from None
    if not isinstance(found, dict) or "state_dict" not in found:
        raise ValueError(f"ckpt_path={str(path)!r} is no checkpoint of Lightning")
    return found


class WholeCheckpoint(ModelCheckpoint):
    """Writes beside the checkpoint that is there, and takes its place when whole.

    Lightning 2.6 copies over it from another file system (fsspec's transaction): on a full disk a
    cut file was left where a good checkpoint had been.
    """

    def _save_checkpoint(self, trainer: L.Trainer, filepath: str) -> None:
        path = Path(filepath)
        half = path.with_name(f".{path.name}.half")
        with named_writes(half, remove=True):
            super()._save_checkpoint(trainer, str(half))
            if trainer.is_global_zero:
                if half.is_dir():  # of a strategy that saves in parts
                    shutil.rmtree(path, ignore_errors=True)
                half.replace(path)
        self._last_checkpoint_saved = filepath


class BestCheckpoint(WholeCheckpoint):
    """Keeps ``best.ckpt`` by the metric that the model turns out to log.

    Without validation nothing is kept here: the last checkpoint is all there is.
    """

    def __init__(self, folder: Path, monitor: str | None) -> None:
        super().__init__(folder, filename="best", enable_version_counter=False)
        self._asked = monitor

    @property
    def state_key(self) -> str:
        """Free of the metric, which is not known yet when a checkpoint is resumed."""
        return type(self).__name__

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save where every epoch ends with a validation."""
        if self._is_decided(trainer):
            super().on_train_epoch_end(trainer, pl_module)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save where validation comes more often, or less, than epochs end."""
        if not trainer.sanity_checking and self._is_decided(trainer):
            super().on_validation_end(trainer, pl_module)

    def _is_decided(self, trainer: L.Trainer) -> bool:
        if trainer.state.fn != "fit" or not has_validation(trainer):
            return False
        if self.monitor is None:
            self._follow(find_monitor(trainer, self._asked))
        return self.monitor is not None

    def _follow(self, monitor: str | None) -> None:
        if monitor is not None:
            self.monitor, self.mode = monitor, "max" if is_higher_better(monitor) else "min"
            self.kth_value = torch.tensor(-torch.inf if self.mode == "max" else torch.inf)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the best so far, which lies in the folder of the run that is resumed."""
        before = state_dict["monitor"]
        same = self._asked in (None, before)
        if before is not None and same and Path(state_dict["best_model_path"]).exists():
            self._follow(before)
            super().load_state_dict({**state_dict, "dirpath": self.dirpath})


class LastCheckpoint(WholeCheckpoint):
    """Keeps ``last.ckpt``, from which a run is resumed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, filename="last", enable_version_counter=False)

    @property
    def state_key(self) -> str:
        """Not that of a ``ModelCheckpoint`` of the user's."""
        return type(self).__name__

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing to go on with: what is last lies in this run's folder."""


class Patience(EarlyStopping):
    """Stops after ``patience`` validations without a better value of the metric that decides."""

    def __init__(self, patience: int, monitor: str | None) -> None:
        super().__init__(monitor or "", patience=patience)
        self._asked, self._decided = monitor, False

    @property
    def state_key(self) -> str:
        """Free of the metric, which is not known yet when a checkpoint is resumed."""
        return type(self).__name__

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Refuse to wait for what never comes."""
        if not has_validation(trainer):
            raise UsageError(
                "--patience needs a validation split, and there is none; give one, such as "
                "--data.val_split 0.1, or leave --patience out"
            )

    def _run_early_stopping_check(self, trainer: L.Trainer) -> None:
        monitor = self.monitor if self._decided else find_monitor(trainer, self._asked)
        if monitor is None:
            return
        if not self._decided:
            self.monitor, self._decided = monitor, True
            self.mode = "max" if is_higher_better(monitor) else "min"
            if not torch.isfinite(self.best_score):  # else it was resumed
                self.best_score = torch.tensor(-torch.inf if self.mode == "max" else torch.inf)
        super()._run_early_stopping_check(trainer)


class Record(L.Callback):
    """Writes the settings beside the run, and the classes' names into its checkpoints.

    Args:
        folder: Of the run; made already.
        settings: YAML text of everything that was asked for.
    """

    def __init__(self, folder: Path, settings: str) -> None:
        self.folder, self._settings = folder, settings
        self.began = False

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """The data were found good: from now on the folder is worth keeping."""
        self.began = True
        if trainer.is_global_zero:
            (self.folder / "config.yaml").write_text(self._settings, encoding="utf-8")
            data: Any = getattr(trainer, "datamodule", None)
            # the text of a plain LightningDataModule would build its loaders
            source = type(data).__name__
            if isinstance(data, DataModule):
                _ = data.test_dataset  # made now, so that the text counts it too
                source = str(data)
            weights = sum(weight.numel() for weight in pl_module.parameters())
            net = pl_module.hparams.get("net", "")
            print(f"{'data':<18}{source}")
            print(f"{'model':<18}{type(pl_module).__name__} {net}, {weights:,} weights")
            print(f"{'run':<18}{self.folder}", flush=True)

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Name the classes, as plain strings; nothing is imported because a file says so."""
        data: Any = getattr(trainer, "datamodule", None)
        checkpoint[WRITTEN_BY] = {
            "model_class": class_path(type(pl_module)),
            "data_class": None if data is None else class_path(type(data)),
        }

    def check_began(self, *, is_first: bool) -> None:
        """Refuse a checkpoint that has nothing left to train.

        Args:
            is_first: Whether this process's folder is the run's; a spawned one trains in its place.

        Raises:
            UsageError: If no training began.
        """
        if not (self.began or (is_first and (self.folder / "config.yaml").exists())):
            raise UsageError(
                "the checkpoint has run all of its epochs; raise --max_epochs to go on, or pass it "
                "to predict.py"
            )

    def discard(self) -> None:
        """Remove a folder in which nothing was trained."""
        if not (self.folder / "config.yaml").exists():  # a spawned process may have written it
            shutil.rmtree(self.folder, ignore_errors=True)


def class_path(cls: type) -> str:
    """``package.module.Class``."""
    return f"{cls.__module__}.{cls.__qualname__}"


class EpochLines(L.Callback):
    """A line an epoch, for output that is no terminal, where a progress bar is only noise."""

    def __init__(self) -> None:
        self._began = 0.0

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the clock."""
        self._began = time.perf_counter()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Say what came of the epoch."""
        metrics = trainer.callback_metrics  # on every rank: the values are gathered here
        if not trainer.is_global_zero:
            return
        names = [n for n in metrics if n.endswith(("_loss", "_accuracy", "_r2", "_mae"))]
        names = sorted((n for n in names if "macro" not in n), key=lambda n: n[:5] != "train")
        said = [f"{name} {float(metrics[name]):.4f}" for name in names]
        last = trainer.max_epochs if (trainer.max_epochs or -1) > 0 else "?"
        seconds = time.perf_counter() - self._began
        epoch = f"epoch {trainer.current_epoch + 1}/{last}"
        print("  ".join([epoch, *said, f"{seconds:.1f} s"]), flush=True)
