"""Look at data before training: facts of each split, and findings with what to do."""

from __future__ import annotations

import sys
from pathlib import Path

if (here := str(Path(__file__).parent)) not in sys.path:
    sys.path.append(here)  # tests read this file without running it

from jsonargparse import ArgumentParser

from command_line import DEFAULTS, add_objects, instantiate, new_parser, parse, spell_out
from datamodules.insight import inspect, print_report
from failures import Ranks, exit_code

EPILOG = """
examples:
  python scripts/inspect_data.py --data ImageFolderDataModule --data.root photos --verify true
  python scripts/inspect_data.py --data TabularDataModule --data.path t.csv --data.target y
  python scripts/inspect_data.py --data ImageFolderDataModule --data.root photos --report look

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
        help="decode every picture file and name what is wrong with any",
    )
    group.add_argument(
        "--report",
        type=str | None,
        default=None,
        help="folder or .html file for the findings, tables and figures as one page, PNGs beside",
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
    config = parse(parser, spell_out(arguments, DEFAULTS))
    data = instantiate(parser, config).data
    report = inspect(
        data,
        verify=config.verify,
        strict=config.strict,
        figures=config.report is not None,
        progress=True,
    )
    print_report(report)
    if config.report is not None:
        print(f"\nreport  {report.save(config.report)[0]}")
    if report.failed():
        raise BadData(f"the data have faults: {report.counted()}; see the findings above")


if __name__ == "__main__":
    sys.exit(main())
