"""Predict from a checkpoint that scripts/fit.py wrote, as a CSV or Parquet table.

The checkpoint names the datamodule and the model and holds all that they learnt; the training
files are not needed. A table has one row for each file or row, in their order, on any number of
processes.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

if (here := str(Path(__file__).parent)) not in sys.path:
    sys.path.append(here)  # worker processes and tests read this file without running it
# Before torch is loaded, see scripts/fit.py.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from jsonargparse import ArgumentParser, Namespace
from lightning.pytorch.trainer.states import TrainerStatus

from checkpoints import find_class, is_state, load
from command_line import (
    add_trainer,
    as_list,
    make_trainer,
    new_parser,
    parse,
    read_settings,
    spell_out,
    trainer_flags,
)
from failures import Ranks, exit_code
from names import (
    BASES,
    UsageError,
    argument_names,
    required_arguments,
)
from predictions import FORMATS, PredictionLines, PredictionTable, columns_of
from run_folder import read_checkpoint

# where Lightning keeps the arguments that an object was made with
SETTINGS = {"data": "datamodule_hyper_parameters", "model": "hyper_parameters"}

EPILOG = """
examples:
  python scripts/predict.py --ckpt_path runs/digits-1/checkpoints/best.ckpt --predict_path photos
  python scripts/predict.py --ckpt_path best.ckpt --predict_path new.csv --out new.parquet \\
      --data.eval_batch_size 256 --accelerator gpu --devices 2

Columns: path (or row, the row's number), class, probability. With several labels a row: classes
and probabilities, joined by "|". Regression: prediction, or prediction_NAME for each target.

A checkpoint that another script wrote is read too: the datamodule by the name in its state, the
model by its hyperparameters (num_classes: Classifier, num_targets: Regressor). Your own classes
are never imported because a file names them; give them by --data and --model. With --ckpt_path,
--help lists the arguments of its datamodule and model. Exit codes: 0, 1 for data, 2 for usage,
130 for Ctrl-C.
"""


def build_parser(
    classes: dict[str, type] | None = None, checkpoint: dict[str, Any] | None = None
) -> ArgumentParser:
    """Every option of a prediction.

    Args:
        classes: The datamodule's and the model's; None where no checkpoint says which.
        checkpoint: Holds what the classes cannot be made without.
    """
    parser = new_parser(__doc__ or "", EPILOG)
    group = parser.add_argument_group("Prediction")
    group.add_argument("--ckpt_path", type=str, help="checkpoint of a training run")
    group.add_argument("--predict_path", type=str, help="folder, or file, of what is new")
    group.add_argument("--out", type=str, default="predictions.csv", help=".csv or .parquet")
    group.add_argument(
        "--all_probabilities", action="store_true", help="a column for each class as well"
    )
    group.add_argument("--traceback", action="store_true", help="show errors in full")
    for kind in ("data", "model"):
        if classes is None:
            parser.add_argument(
                f"--{kind}", type=str, help="your own class, where the checkpoint has one"
            )
        else:
            # only what is given counts; the rest is in the checkpoint, and must not be asked for
            saved = (checkpoint or {}).get(SETTINGS[kind]) or {}
            there: set[str | int] = {n for n in required_arguments(classes[kind]) if n in saved}
            parser.add_class_arguments(classes[kind], kind, instantiate=False, skip=there)
    add_trainer(parser, enable_model_summary=False, logger=False, enable_checkpointing=False)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    return exit_code(predict, sys.argv[1:] if arguments is None else arguments)


def predict(arguments: list[str], ranks: Ranks) -> None:
    """Load, predict and write."""
    asked, rest = first_look(arguments)
    if asked.ckpt_path is None:
        # an unknown option is said first, and --help answered
        parse(build_parser(), spell_out(arguments))
        raise UsageError("pass --ckpt_path, the checkpoint of a training run")
    checkpoint = read_checkpoint(asked.ckpt_path)
    classes = {kind: find_class(kind, checkpoint, getattr(asked, kind)) for kind in BASES}
    parser = build_parser(classes, checkpoint)
    config, given = parse(parser, rest), parse(parser, rest, defaults=False)
    out = checked_out(config.out)
    objects, changes = parser.instantiate(config), parser.instantiate(given)
    model = load(classes["model"], config.ckpt_path, changes.get("model"))
    data = load_data(classes["data"], checkpoint, config, changes.get("data"))
    table = PredictionTable(
        out, **columns_of(model, data), all_probabilities=config.all_probabilities
    )
    trainer = make_trainer(flags_of(objects, table))
    ranks.watch(trainer)
    try:
        trainer.predict(model, datamodule=data, return_predictions=False)
    except (KeyboardInterrupt, SystemExit) as stop:
        if trainer.state.status == TrainerStatus.INTERRUPTED:
            raise KeyboardInterrupt("nothing was written") from stop
        raise
    if trainer.is_global_zero:
        print(f"{table.rows_written} rows in {out}")
        if table.missing:
            listed = ", ".join(map(repr, table.missing[:5]))
            more = ", ..." if len(table.missing) > 5 else ""
            print(f"{len(table.missing)} of them without an answer, not readable: {listed}{more}")


def first_look(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """What has to be known before the other options have a meaning, and the other options."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("--data", "--model"):
        early.add_argument(name)
    _, rest = early.parse_known_args(arguments)
    for name in ("--ckpt_path", "--config"):
        early.add_argument(name)
    asked, _ = early.parse_known_args(arguments)
    asked.ckpt_path = asked.ckpt_path or read_settings(asked.config).get("ckpt_path")
    return asked, spell_out(rest)


def load_data(cls: Any, checkpoint: dict[str, Any], config: Namespace, changes: Any) -> Any:
    """The datamodule, with what it learnt, for the new files.

    Raises:
        UsageError: If there is nothing to predict.
        ValueError: If the checkpoint holds the state of another class.
    """
    changes = dict(changes or {})
    if "predict_path" in argument_names(cls):
        changes["predict_path"] = config.predict_path or changes.get("predict_path")
        if changes["predict_path"] is None:
            raise UsageError("pass --predict_path, the folder or file of what is new")
    elif config.predict_path is not None:
        raise UsageError(f"{cls.__name__} takes no predict_path; leave --predict_path out")
    states = [key for key, value in checkpoint.items() if is_state(value)]
    if states and cls.__qualname__ not in states:
        raise ValueError(
            f"the checkpoint holds the state of {', '.join(states)}, not of {cls.__qualname__}"
        )
    return load(cls, config.ckpt_path, changes)


def checked_out(out: str) -> Path:
    """The path of the table, in a folder that is there.

    Raises:
        UsageError: If its ending is unknown or it is a folder.
    """
    path = Path(out).expanduser()
    if path.suffix not in FORMATS or path.is_dir():
        raise UsageError(f"--out must be a file that ends in {' or '.join(FORMATS)}, got {out!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def flags_of(objects: Any, table: PredictionTable) -> dict[str, Any]:
    """The Trainer's arguments, with this script's callbacks among the user's."""
    bar = objects.enable_progress_bar
    if bar is None:
        bar = sys.stdout.isatty() and not objects.barebones
    own = [table] if bar else [table, PredictionLines()]
    return trainer_flags(
        objects, callbacks=[*own, *as_list(objects.callbacks)], enable_progress_bar=bar
    )


if __name__ == "__main__":
    sys.exit(main())
