"""Find the setting or sample that breaks or changes the data, from everything off upwards."""

from __future__ import annotations

import sys
from pathlib import Path

if (here := str(Path(__file__).parent)) not in sys.path:
    sys.path.append(here)

import lightning as L

from command_line import add_objects, instantiate, new_parser, parse
from datamodules import DataModule
from datamodules.insight.bisect import STALL_SECONDS, Bisection, bisect
from failures import Ranks, exit_code
from names import UsageError

EPILOG = """
examples:
  python scripts/bisect_data.py --data ImageFolderDataModule --data.root photos
  python scripts/bisect_data.py --config runs/photos-1/config.yaml

Exit codes: 0 where every setting runs and none but those that should changes a batch, 1 where one
does or breaks, 2 for usage.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    return exit_code(run, sys.argv[1:] if arguments is None else arguments)


def run(arguments: list[str], ranks: Ranks) -> None:
    """Run each step and print the table.

    Raises:
        RuntimeError: If a setting breaks the data or changes the batches; names it.
    """
    parser = new_parser(__doc__ or "", EPILOG)
    parser.add_argument("--limit", type=int, default=100, help="samples of each run")
    parser.add_argument(
        "--timeout_seconds", type=float, default=STALL_SECONDS, help="for a worker's next batch"
    )
    parser.add_argument("--traceback", action="store_true", help="show errors in full")
    add_objects(parser)
    config = parse(parser, arguments)
    if config.limit < 1:
        raise UsageError(f"--limit must be at least 1, got {config.limit}")
    L.seed_everything(0, verbose=False)
    data = instantiate(parser, config).data
    if not isinstance(data, DataModule):
        raise UsageError("bisect_data.py sets a DataModule's own options; this builds its loaders")
    found = bisect(data, limit=config.limit, timeout_seconds=config.timeout_seconds)
    show(found)
    if found.culprit is not None:
        if found.culprit.traceback:
            print(found.culprit.traceback, file=sys.stderr)
        does = "changes the batches" if found.culprit.status == "changes" else "breaks the data"
        raise RuntimeError(f"{found.culprit.name} {does}; {found.culprit.detail}")


def show(found: Bisection) -> None:
    """Print the steps and the samples that fail."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("added back", "result", "batch or error")
    for step in found.steps:
        table.add_row(escape(step.name), step.status, escape(step.detail))
    Console().print(table)
    for line in found.samples:
        print(line)


if __name__ == "__main__":
    sys.exit(main())
