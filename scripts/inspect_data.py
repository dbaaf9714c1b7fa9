"""Look at data before training: facts of each split, and findings with what to do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if (here := str(Path(__file__).parent)) not in sys.path:
    sys.path.append(here)  # tests read this file without running it

from jsonargparse import ArgumentParser, Namespace
from lightning.pytorch.utilities.model_helpers import is_overridden

from checkpoints import find_class, is_state, load
from command_line import add_objects, instantiate, named_path, new_parser, parse
from datamodules import DataModule
from datamodules.insight import hardest, inspect, print_report
from failures import Ranks, exit_code
from run_folder import read_checkpoint

EPILOG = """
examples:
  python scripts/inspect_data.py --data ImageFolderDataModule --data.root photos --verify true
  python scripts/inspect_data.py --data TabularDataModule --data.path t.csv --data.target y
  python scripts/inspect_data.py --data ImageFolderDataModule --data.root photos --report look
  python scripts/inspect_data.py --ckpt_path runs/digits-1/checkpoints/best.ckpt --report look

Exit codes: 0, 1 for data with an error (with --strict true a warning too), 2 for usage.
"""


class BadData(ValueError):
    """The report holds an error."""


def build_parser() -> ArgumentParser:
    """Every option of an inspection."""
    parser = new_parser(__doc__ or "", EPILOG)
    group = parser.add_argument_group("Inspection")
    group.add_argument(
        "--verify",
        type=bool,
        default=False,
        help="decode every image file and name what is wrong with any",
    )
    group.add_argument(
        "--report",
        type=str | None,
        default=None,
        help="folder or .html file for the findings, tables and figures as one page, PNGs beside",
    )
    group.add_argument(
        "--ckpt_path",
        type=str | None,
        default=None,
        help="checkpoint of a run: show what its model gets wrong, in test, else in val; without "
        "--data the run's own data are looked at",
    )
    group.add_argument("--strict", type=bool, default=False, help="a warning is an error")
    add_objects(parser)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    return exit_code(look, sys.argv[1:] if arguments is None else arguments)


def look(arguments: list[str], ranks: Ranks) -> None:
    """Inspect and print."""
    parser = build_parser()
    config = parse(parser, arguments)
    data, model = objects(parser, config, arguments)
    report = inspect(
        data,
        verify=config.verify,
        strict=config.strict,
        module=model,
        figures=config.report is not None,
        progress=True,
    )
    if model is not None:
        split = "val" if no_test(data) else "test"
        report.hardest = hardest(model, data, split)
    print_report(report)
    if config.report is not None:
        print(f"\nreport  {report.save(config.report)[0]}")
    if report.failed():
        raise BadData(f"the data have faults: {report.counted()}; see the findings above")


def objects(parser: ArgumentParser, config: Namespace, arguments: list[str]) -> tuple[Any, Any]:
    """The datamodule, and the model where a checkpoint was given."""
    if config.ckpt_path is None:
        return instantiate(parser, config).data, None
    checkpoint = read_checkpoint(config.ckpt_path)
    model = load(
        find_class("model", checkpoint, named_path("model", arguments) or None),
        config.ckpt_path,
        {},
    )
    if not any(argument.startswith("--data") for argument in arguments):
        return load(find_class("data", checkpoint, None), config.ckpt_path, {}), model
    data = instantiate(parser, config).data
    # the class list and what else was fitted are those of the model
    states = {key: value for key, value in checkpoint.items() if is_state(value)}
    name = type(data).__qualname__
    if name in states:
        data.load_state_dict(states[name])
    elif states:
        raise ValueError(f"the checkpoint holds the state of {', '.join(states)}, not of {name}")
    return data, model


def no_test(data: Any) -> bool:
    """Whether a datamodule has no test split."""
    if isinstance(data, DataModule):
        return data.test_dataset is None
    return not is_overridden("test_dataloader", data)


if __name__ == "__main__":
    sys.exit(main())
