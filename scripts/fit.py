"""Train a model, keep the best checkpoint, test it, and show what came out.

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
import numpy as np
from jsonargparse import ArgumentParser, Namespace
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.trainer.states import TrainerStatus
from lightning.pytorch.utilities.model_helpers import is_overridden

from command_line import (
    DEFAULTS,
    add_objects,
    add_trainer,
    as_list,
    instantiate,
    make_trainer,
    new_parser,
    parse,
    spell_out,
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
from datamodules import DataModule
from datamodules.core.inside import add_split_options
from datamodules.insight import DataRecord, DataWaitMonitor
from failures import Ranks, exit_code
from names import UsageError
from results import draw_confusion, print_metrics
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
from run_report import AnswersHeard, write_page
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

The run's folder gets config.yaml, metrics.csv, checkpoints/best.ckpt and last.ckpt,
confusion_matrix.png and report.html. The checkpoints name the model's and the datamodule's
class, so that scripts/predict.py needs nothing else. Exit codes: 0, 1 for data or a failed run,
2 for usage, 130 for Ctrl-C.
"""


def build_parser() -> ArgumentParser:
    """Every option of a training run."""
    parser = new_parser(__doc__ or "", EPILOG)
    run = parser.add_argument_group("Run")
    run.add_argument("--seed", type=int, default=0, help="of weights, order and augmentation")
    run.add_argument(
        "--ckpt_path", type=str | None, default=None, help="resume from this checkpoint"
    )
    run.add_argument(
        "--monitor",
        type=str | None,
        default=None,
        help="metric that decides which checkpoint is best; null: val_accuracy, val_r2, val_rmse "
        "or val_loss, the first that the model logs",
    )
    run.add_argument(
        "--patience",
        type=int | None,
        default=None,
        help="stop after so many validations without a better value",
    )
    run.add_argument(
        "--folds",
        type=int | None,
        default=None,
        help="fit once for each of so many folds and show mean and spread",
    )
    run.add_argument("--repeats", type=int, default=1, help="deal the folds anew so many times")
    run.add_argument("--runs_dir", type=str, default="runs", help="folder of the runs' folders")
    run.add_argument(
        "--safe",
        action="store_true",
        help="100 samples with the most conservative data settings, to tell faults of the data "
        "from faults of the settings",
    )
    run.add_argument(
        "--report",
        type=bool,
        default=True,
        help="write report.html: metrics, confused classes, and the samples with the highest loss",
    )
    run.add_argument("--traceback", action="store_true", help="show errors in full")
    add_objects(parser)
    add_trainer(parser, max_epochs=15, enable_model_summary=False)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    return exit_code(fit, sys.argv[1:] if arguments is None else arguments)


def fit(arguments: list[str], ranks: Ranks) -> None:
    """Train, test and show."""
    began = time.perf_counter()
    parser = build_parser()
    config = parse(parser, spell_out(arguments, DEFAULTS))
    check(config)
    objects = made(parser, config, speaks=ranks.is_first)
    data, model = objects.data, objects.model
    if config.folds is not None:
        check_source(data)
    # the other processes learn the folder from the first, by the checkpoint callbacks
    name = short_name(config.data.class_path)
    folder = claim_folder(Path(config.runs_dir), name) if ranks.is_first else Path(name)
    settings = parser.dump(config, skip_unset=False)
    if config.folds is not None:
        fit_folds(parser, config, objects, folder, settings, ranks)
        if ranks.is_first:
            print(f"{'time':<18}{time.perf_counter() - began:.0f} s")
        return
    record = Record(folder, settings)
    try:
        best = BestCheckpoint(folder / "checkpoints", config.monitor)
        last = LastCheckpoint(folder / "checkpoints")
        trainer = make_trainer(
            flags_of(objects, config, [record, DataRecord(folder), best, last], folder)
        )
        ranks.watch(trainer)
        try:
            trainer.fit(model, datamodule=data, ckpt_path=config.ckpt_path)
            if config.ckpt_path is not None:
                record.check_began(is_first=ranks.is_first)
            show(trainer, model, data, folder, best, last, report=config.report)
        except (KeyboardInterrupt, SystemExit) as stop:
            if trainer.state.status == TrainerStatus.INTERRUPTED:
                raise KeyboardInterrupt(how_to_go_on(folder, last)) from stop
            raise
        say(trainer, f"{'time':<18}{time.perf_counter() - began:.0f} s")
    finally:
        if ranks.is_first:
            record.discard()


def made(parser: ArgumentParser, config: Namespace, *, speaks: bool) -> Any:
    """The seeded objects of a command line, with safe settings where asked for."""
    L.seed_everything(config.seed, workers=True, verbose=False)
    objects = instantiate(parser, config)
    if config.safe:
        set_safe(objects.data, speaks=speaks)
    return objects


def fit_folds(
    parser: ArgumentParser,
    config: Namespace,
    objects: Any,
    folder: Path,
    settings: str,
    ranks: Ranks,
) -> None:
    """A fit a fold from the same start, each judged on the rows it never saw.

    The first takes ``objects``, the others make their own. The weights after the last epoch are
    judged: choosing a checkpoint by the rows that judge it would flatter it.
    """
    metrics: dict[str, dict[str, float]] = {}
    for name, options in fold_places(config.folds, config.repeats):
        if metrics:
            objects = made(parser, config, speaks=False)
        data, model = objects.data, objects.model
        add_split_options(data, options)
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        record = Record(place, settings)
        held_out = HeldOut(place / OUT_OF_FOLD)
        try:
            last = LastCheckpoint(place / "checkpoints")
            trainer = make_trainer(
                flags_of(objects, config, [record, DataRecord(place), last], place)
            )
            ranks.watch(trainer)
            trainer.fit(model, datamodule=data)
            trainer.callbacks.append(held_out)  # type: ignore[attr-defined]
            found = trainer.validate(model, datamodule=data, verbose=False)
            metrics[name] = {key: value for result in found for key, value in result.items()}
        finally:
            if ranks.is_first:
                record.discard()
    if ranks.is_first:
        (folder / "config.yaml").write_text(settings, encoding="utf-8")
        print_folds(metrics)
        print(f"{'out of fold':<18}{shown(join_folds(folder, list(metrics)))}")


def check(config: Namespace) -> None:
    """Refuse values that cannot be, before any work.

    Raises:
        UsageError: If a number is out of its range.
        FileNotFoundError: If there is no checkpoint of that name.
        ValueError: If it is none.
    """
    if not 0 <= config.seed < 2**32:
        raise UsageError(f"--seed must be 0 to {2**32 - 1}, got {config.seed}")
    if config.patience is not None and config.patience < 1:
        raise UsageError(f"--patience must be at least 1, got {config.patience}")
    check_folds(config.folds, config.repeats)
    if config.folds is not None and config.ckpt_path is not None:
        raise UsageError("--folds begins each fit anew; leave --ckpt_path out")
    if config.ckpt_path is not None:
        read_checkpoint(config.ckpt_path)


def flags_of(
    objects: Any, config: Namespace, callbacks: list[L.Callback], folder: Path
) -> dict[str, Any]:
    """The Trainer's arguments, with this script's callbacks and loggers among the user's."""
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
    """CSV always, TensorBoard where it is installed; both in the run's folder itself."""
    place: dict[str, Any] = {"save_dir": folder.parent, "name": folder.name, "version": ""}
    loggers: list[Logger] = [CSVLogger(**place)]
    if find_spec("tensorboard") is not None:
        loggers.append(TensorBoardLogger(**place, default_hp_metric=False))
    return loggers


def how_to_go_on(folder: Path, last: LastCheckpoint) -> str:
    """What an interrupted run leaves, and the command that goes on from there."""
    if not last.best_model_path:
        return "no epoch had ended, so there is no checkpoint to go on from"
    path = shown(last.best_model_path)
    return (
        f"the last checkpoint is {path}; go on with: python {sys.argv[0]} --config "
        f"{shown(folder / 'config.yaml')} --ckpt_path {path}"
    )


def show(
    trainer: L.Trainer,
    model: L.LightningModule,
    data: Any,
    folder: Path,
    best: BestCheckpoint,
    last: LastCheckpoint,
    *,
    report: bool,
) -> None:
    """Evaluate the checkpoint that is kept and show what came of the run."""
    patience = trainer.early_stopping_callback
    if patience is not None and patience.stopped_epoch:
        say(trainer, f"stopped early: {patience.stopping_reason_message}")
    path = best.best_model_path or last.best_model_path
    kept = "last checkpoint, as no validation chose a best one" if path else "no checkpoint"
    if best.best_model_path:
        kept = "best checkpoint"
        if best.best_model_score is not None:  # spawned processes do not hand it back
            kept += f", {best.monitor} {float(best.best_model_score):.4f}"
    split = evaluated_split(model, data)
    if split is None:
        say(trainer, "no test: there is neither a test nor a val split that the model can evaluate")
    else:
        run = trainer.test if split == "test" else trainer.validate
        heard = AnswersHeard(split)
        if report:
            trainer.callbacks.append(heard)  # type: ignore[attr-defined]
        found = run(model, datamodule=data, ckpt_path=path or None, verbose=False)
        metrics = {name: value for result in found for name, value in result.items()}
        if trainer.is_global_zero and metrics:
            instead = "" if split == "test" else " (there is no test split)"
            title = f"{split}{instead}, {kept}"
            print_metrics(title, metrics)
            draw(model, data, folder)
            if report:
                write_page(folder, data=data, title=title, metrics=metrics, heard=heard)
    settings = folder / "config.yaml"
    places = {"checkpoint": Path(path) if path else None, "settings": settings}
    shown_to_people = {"confusion matrix": "confusion_matrix.png", "report": "report.html"}
    places |= {n: folder / f for n, f in shown_to_people.items() if (folder / f).exists()}
    for name, place in places.items():
        say(trainer, f"{name:<18}{shown(place) if place else 'none was written'}")


def evaluated_split(model: L.LightningModule, data: Any) -> str | None:
    """``"test"``, else ``"val"``, else None: what data and model both have."""
    for split, step in (("test", "test_step"), ("val", "validation_step")):
        if isinstance(data, DataModule):
            there = getattr(data, f"{split}_dataset") is not None
        else:
            there = is_overridden(f"{split}_dataloader", data)
        if there and is_overridden(step, model):
            return split
    return None


def draw(model: L.LightningModule, data: Any, folder: Path) -> None:
    """Write the confusion matrix, where the model has counted one."""
    try:
        counts: Any = model.confusion_matrix
    except (AttributeError, RuntimeError):  # no classifier, or no row was evaluated
        return
    classes = getattr(data, "classes", range(len(counts)))
    draw_confusion(np.asarray(counts), [str(c) for c in classes], folder / "confusion_matrix.png")


def shown(path: str | Path) -> str:
    """A path as short as it can be said from here."""
    path = Path(path).absolute()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def say(trainer: L.Trainer, text: str) -> None:
    """Print once, however many processes there are."""
    if trainer.is_global_zero:
        print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
