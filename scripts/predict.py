"""Predict with a checkpoint of scripts/fit.py and write a CSV or Parquet table.

The checkpoint contains the classes and the fitted state of datamodule and model; the training files
are not needed. The table has one row per file or table row, in the input's order, on any number of
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
    add_options,
    add_trainer,
    as_list,
    make_trainer,
    new_parser,
    parse,
    read_settings,
    trainer_flags,
)
from failures import Ranks, exit_code
from names import BASES, UsageError, argument_names, required_arguments
from predictions import FORMATS, PredictionLines, PredictionTable, columns_of
from run_folder import read_checkpoint

# where Lightning keeps the arguments that an object was made with
SETTINGS = {"data": "datamodule_hyper_parameters", "model": "hyper_parameters"}

EPILOG = """
examples:
  python scripts/predict.py --ckpt_path runs/digits-1/checkpoints/best.ckpt --predict_path photos
  python scripts/predict.py --ckpt_path best.ckpt --predict_path new.csv --out new.parquet \\
      --data.eval_batch_size 256 --accelerator gpu --devices 2

Columns: path (or row, the row number), class, probability. Multi-label: classes and probabilities,
separated by "|". Regression: prediction, or prediction_NAME for each target.

Checkpoints of other scripts work too, if the datamodule and the model are of this project. Classes
of your own are never imported because a file names them: pass --data and --model. With --ckpt_path,
--help lists the arguments of the checkpoint's datamodule and model. Exit codes: 0 success, 1 wrong
data, 2 wrong usage, 130 Ctrl-C.
"""


OPTIONS = {  # type, default, help
    "ckpt_path": (str, None, "checkpoint of a training run"),
    "predict_path": (str, None, "folder or file to predict"),
    "out": (str, "predictions.csv", "a .csv or .parquet file"),
    "all_probabilities": (None, False, "add a column for each class"),
}


def build_parser(
    classes: dict[str, type] | None = None, checkpoint: dict[str, Any] | None = None
) -> ArgumentParser:
    """Make the parser with every option of a prediction.

    Args:
        classes: Classes of datamodule and model; None while the checkpoint is not known.
        checkpoint: Contains their required arguments.
    """
    parser = new_parser(__doc__ or "", EPILOG)
    add_options(parser, "Prediction", OPTIONS)
    for kind in ("data", "model"):
        if classes is None:
            parser.add_argument(
                f"--{kind}", type=str, help="your own class, if the checkpoint was written with it"
            )
        else:
            # the checkpoint has the required arguments
            saved = (checkpoint or {}).get(SETTINGS[kind]) or {}
            saved_names: set[str | int] = {
                n for n in required_arguments(classes[kind]) if n in saved
            }
            parser.add_class_arguments(classes[kind], kind, instantiate=False, skip=saved_names)
    add_trainer(parser, enable_model_summary=False, logger=False, enable_checkpointing=False)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    return exit_code(predict, sys.argv[1:] if arguments is None else arguments)


def predict(arguments: list[str], ranks: Ranks) -> None:
    """Load the checkpoint, predict and write the table."""
    first, rest = first_options(arguments)
    if first.ckpt_path is None:
        # answers --help, and reports an unknown option first
        parse(build_parser(), arguments)
        raise UsageError("pass --ckpt_path, the checkpoint of a training run")
    checkpoint = read_checkpoint(first.ckpt_path)
    classes = {kind: find_class(kind, checkpoint, getattr(first, kind)) for kind in BASES}
    parser = build_parser(classes, checkpoint)
    config, given = parse(parser, rest), parse(parser, rest, defaults=False)
    out = check_out(config.out)
    objects, changes = parser.instantiate(config), parser.instantiate(given)
    model = load(classes["model"], config.ckpt_path, changes.get("model"))
    data = load_data(classes["data"], checkpoint, config, changes.get("data"))
    table = PredictionTable(
        out, **columns_of(model, data), all_probabilities=config.all_probabilities
    )
    trainer = make_trainer(trainer_arguments(objects, table))
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
            print(f"{len(table.missing)} of them without a prediction, unreadable: {listed}{more}")


def first_options(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parse --ckpt_path, --data and --model, which define the other options; return both."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("--data", "--model"):
        early.add_argument(name)
    _, rest = early.parse_known_args(arguments)
    for name in ("--ckpt_path", "--config"):
        early.add_argument(name)
    first, _ = early.parse_known_args(arguments)
    first.ckpt_path = first.ckpt_path or read_settings(first.config).get("ckpt_path")
    return first, rest


def load_data(cls: Any, checkpoint: dict[str, Any], config: Namespace, changes: Any) -> Any:
    """Load the datamodule with its fitted state, for the new files.

    Raises:
        UsageError: If there is nothing to predict.
        ValueError: If the checkpoint contains the state of another class.
    """
    changes = dict(changes or {})
    if "predict_path" in argument_names(cls):
        changes["predict_path"] = config.predict_path or changes.get("predict_path")
        if changes["predict_path"] is None:
            raise UsageError("pass --predict_path, the folder or file to predict")
    elif config.predict_path is not None:
        raise UsageError(f"{cls.__name__} takes no predict_path; remove --predict_path")
    states = [key for key, value in checkpoint.items() if is_state(value)]
    if states and cls.__qualname__ not in states:
        raise ValueError(
            f"the checkpoint contains the state of {', '.join(states)}, not of {cls.__qualname__}"
        )
    return load(cls, config.ckpt_path, changes)


def check_out(out: str) -> Path:
    """Return the table's path and make its folder.

    Raises:
        UsageError: If its suffix is unknown or it is a folder.
    """
    path = Path(out).expanduser()
    if path.suffix not in FORMATS or path.is_dir():
        raise UsageError(f"--out must be a file that ends in {' or '.join(FORMATS)}, got {out!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def trainer_arguments(objects: Any, table: PredictionTable) -> dict[str, Any]:
    """Return the Trainer's arguments, with this script's callbacks added."""
    bar = objects.enable_progress_bar
    if bar is None:
        bar = sys.stdout.isatty() and not objects.barebones
    own = [table] if bar else [table, PredictionLines()]
    return trainer_flags(
        objects, callbacks=[*own, *as_list(objects.callbacks)], enable_progress_bar=bar
    )


if __name__ == "__main__":
    sys.exit(main())
