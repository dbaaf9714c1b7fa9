"""Train a model, keep the best checkpoint, test it, and print the results.

With no argument: scikit-learn's handwritten digits, a minute on 2 cores.
"""

from __future__ import annotations

import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

if (here := str(Path(__file__).parent)) not in sys.path:
    sys.path.append(here)  # worker processes and tests read this file without running it
# Before torch is loaded. Threads that spin while they wait take the cores from the loader's
# workers: half an epoch of the digits 1.1 s against 15 s on 2 busy cores (torch 2.14, 2 threads).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import lightning as L
from jsonargparse import ArgumentParser, Namespace
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.trainer.states import TrainerStatus

from command_line import (
    add_objects,
    add_options,
    add_trainer,
    as_list,
    instantiate,
    make_trainer,
    new_parser,
    parse,
    trainer_flags,
)
from cross_validation import (
    OUT_OF_FOLD,
    HeldOut,
    check_folds,
    check_source,
    fold_places,
    join_folds,
    print_folds,
)
from datamodules.core.accessors import add_split_options
from datamodules.insight import DataRecord, DataWaitMonitor
from failures import Ranks, exit_code
from names import UsageError
from results import show_results, shown_path
from run_folder import (
    BestCheckpoint,
    EpochLines,
    LastCheckpoint,
    Patience,
    Record,
    claim_folder,
    read_checkpoint,
    short_name,
)
from safe_mode import safe_flags, set_safe

EPILOG = """
examples:
  python scripts/fit.py
  python scripts/fit.py --data ImageFolderDataModule --data.root photos --model.net resnet18
  python scripts/fit.py --accelerator gpu --devices 2 --max_epochs 30 --patience 5
  python scripts/fit.py --config scripts/configs/cifar10.yaml --data.batch_size 256
  python scripts/fit.py --data datamodules.samples.wine --folds 5 --repeats 2
  python scripts/fit.py --config runs/digits-1/config.yaml \\
      --ckpt_path runs/digits-1/checkpoints/last.ckpt --max_epochs 30
  python scripts/fit.py --data ImageFolderDataModule --help    (its arguments)

Each run writes a folder: config.yaml, metrics.csv, data.json, checkpoints/best.ckpt and last.ckpt,
confusion_matrix.png, report.html. scripts/predict.py needs only a checkpoint. Exit codes:
0 success, 1 wrong data or a failed run, 2 wrong usage, 130 Ctrl-C.
"""


OPTIONS = {  # type, default, help
    "seed": (int, 0, "random seed of weights, order and augmentation"),
    "ckpt_path": (str | None, None, "resume from this checkpoint"),
    "monitor": (
        str | None,
        None,
        "metric that selects the best checkpoint; null: val_accuracy, val_r2, val_rmse or "
        "val_loss, the first that the model logs",
    ),
    "patience": (int | None, None, "stop after this many validations without improvement"),
    "folds": (
        int | None,
        None,
        "k-fold cross-validation: one fit per fold, then mean and standard deviation",
    ),
    "repeats": (int, 1, "repeat cross-validation with other folds"),
    "runs_dir": (str, "runs", "folder of the run folders"),
    "safe": (
        None,
        False,
        "train on 100 samples with the most conservative data settings; tells whether the data or "
        "the settings are at fault",
    ),
    "report": (
        bool,
        True,
        "write report.html: metrics, confused classes, and the samples with the highest loss",
    ),
}


def build_parser() -> ArgumentParser:
    """Make the parser with every option of a training run."""
    parser = new_parser(__doc__ or "", EPILOG)
    add_options(parser, "Run", OPTIONS)
    add_objects(parser)
    add_trainer(parser, max_epochs=15, enable_model_summary=False)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    return exit_code(fit, sys.argv[1:] if arguments is None else arguments)


def fit(arguments: list[str], ranks: Ranks) -> None:
    """Train, test and print the results."""
    start = time.perf_counter()
    parser = build_parser()
    config = parse(parser, arguments)
    check(config)
    objects = make_objects(parser, config, verbose=ranks.is_first)
    if config.folds is not None:
        check_source(objects.data)
    # the checkpoint callbacks send the folder from the first process to the others
    name = short_name(config.data.class_path)
    folder = claim_folder(Path(config.runs_dir), name) if ranks.is_first else Path(name)
    settings = parser.dump(config, skip_unset=False)
    if config.folds is not None:
        fit_folds(parser, config, objects, folder, settings, ranks)
    else:
        fit_once(config, objects, folder, settings, ranks)
    if ranks.is_first:
        print(f"{'time':<18}{time.perf_counter() - start:.0f} s", flush=True)


def fit_once(config: Namespace, objects: Any, folder: Path, settings: str, ranks: Ranks) -> None:
    """Train and test one model."""
    record = Record(folder, settings)
    try:
        best = BestCheckpoint(folder / "checkpoints", config.monitor)
        last = LastCheckpoint(folder / "checkpoints")
        callbacks = [record, DataRecord(folder), best, last]
        trainer = make_trainer(trainer_arguments(objects, config, callbacks, folder))
        ranks.watch(trainer)
        try:
            trainer.fit(objects.model, datamodule=objects.data, ckpt_path=config.ckpt_path)
            if config.ckpt_path is not None:
                record.check_started(is_first=ranks.is_first)
            show_results(trainer, objects, folder, best, last, report=config.report)
        except (KeyboardInterrupt, SystemExit) as stop:
            if trainer.state.status == TrainerStatus.INTERRUPTED:
                raise KeyboardInterrupt(how_to_resume(folder, last)) from stop
            raise
    finally:
        if ranks.is_first:
            record.discard()


def make_objects(parser: ArgumentParser, config: Namespace, *, verbose: bool) -> Any:
    """Seed everything and make the objects of a command line, with safe settings on request."""
    L.seed_everything(config.seed, workers=True, verbose=False)
    objects = instantiate(parser, config)
    if config.safe:
        set_safe(objects.data, verbose=verbose)
    return objects


def fit_folds(
    parser: ArgumentParser,
    config: Namespace,
    objects: Any,
    folder: Path,
    settings: str,
    ranks: Ranks,
) -> None:
    """Fit one model per fold, from the same seed, and evaluate each on its held-out fold.

    The first fit uses ``objects``, the others make their own. The weights after the last epoch are
    evaluated: a checkpoint selected on the held-out fold would be too optimistic there.
    """
    metrics: dict[str, dict[str, float]] = {}
    for name, options in fold_places(config.folds, config.repeats):
        if metrics:
            objects = make_objects(parser, config, verbose=False)
        data, model = objects.data, objects.model
        add_split_options(data, options)
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        record = Record(place, settings)
        held_out = HeldOut(place / OUT_OF_FOLD)
        try:
            callbacks = [record, DataRecord(place), LastCheckpoint(place / "checkpoints")]
            trainer = make_trainer(trainer_arguments(objects, config, callbacks, place))
            ranks.watch(trainer)
            trainer.fit(model, datamodule=data)
            trainer.callbacks.append(held_out)  # type: ignore[attr-defined]
            results = trainer.validate(model, datamodule=data, verbose=False)
            metrics[name] = {key: value for result in results for key, value in result.items()}
        finally:
            if ranks.is_first:
                record.discard()
    if ranks.is_first:
        (folder / "config.yaml").write_text(settings, encoding="utf-8")
        print_folds(metrics)
        print(f"{'out of fold':<18}{shown_path(join_folds(folder, list(metrics)))}")


def check(config: Namespace) -> None:
    """Check option values before any work.

    Raises:
        UsageError: If a number is out of its range.
        FileNotFoundError: If the checkpoint does not exist.
        ValueError: If the file is not a checkpoint.
    """
    if not 0 <= config.seed < 2**32:
        raise UsageError(f"--seed must be 0 to {2**32 - 1}, got {config.seed}")
    if config.patience is not None and config.patience < 1:
        raise UsageError(f"--patience must be at least 1, got {config.patience}")
    check_folds(config.folds, config.repeats)
    if config.folds is not None and config.ckpt_path is not None:
        raise UsageError("--folds starts each fit from new weights; remove --ckpt_path")
    if config.ckpt_path is not None:
        read_checkpoint(config.ckpt_path)


def trainer_arguments(
    objects: Any, config: Namespace, callbacks: list[L.Callback], folder: Path
) -> dict[str, Any]:
    """Return the Trainer's arguments, with this script's callbacks and loggers added."""
    bar = objects.enable_progress_bar
    if bar is None:
        bar = sys.stdout.isatty() and not objects.barebones
    if config.patience is not None:
        callbacks = [Patience(config.patience, config.monitor), *callbacks]
    if objects.enable_checkpointing is False or objects.barebones:
        callbacks = [c for c in callbacks if not isinstance(c, Checkpoint)]
    if not bar:
        callbacks = [*callbacks, EpochLines()]
    if not objects.barebones:
        callbacks = [*callbacks, DataWaitMonitor()]
    loggers: Any = [*loggers_in(folder), *as_list(objects.logger)]
    if objects.logger is False or objects.barebones:
        loggers = objects.logger
    return trainer_flags(
        objects,
        callbacks=[*callbacks, *as_list(objects.callbacks)],
        logger=loggers,
        enable_progress_bar=bar,
        default_root_dir=objects.default_root_dir or folder,
        **(safe_flags(objects) if config.safe else {}),
    )


def loggers_in(folder: Path) -> list[Logger]:
    """Make a CSV logger, and a TensorBoard logger if that is installed."""
    place: dict[str, Any] = {"save_dir": folder.parent, "name": folder.name, "version": ""}
    loggers: list[Logger] = [CSVLogger(**place)]
    if find_spec("tensorboard") is not None:
        loggers.append(TensorBoardLogger(**place, default_hp_metric=False))
    return loggers


def how_to_resume(folder: Path, last: LastCheckpoint) -> str:
    """Return the command that resumes an interrupted run."""
    if not last.best_model_path:
        return "no epoch was completed, so there is no checkpoint to resume from"
    path = shown_path(last.best_model_path)
    return (
        f"the last checkpoint is {path}; resume with: python {sys.argv[0]} --config "
        f"{shown_path(folder / 'config.yaml')} --ckpt_path {path}"
    )


if __name__ == "__main__":
    sys.exit(main())
