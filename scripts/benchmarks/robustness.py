"""Files that break programs, and faults around a run: what comes here, and from stock code.

A value that is not the file's own and comes without a word is the worst answer; none may come here.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from . import nasty_images, nasty_tables
from .tables import Result

PARTS = {"images": nasty_images.compare, "tables": nasty_tables.compare}


def add_options(parser: argparse._ArgumentGroup) -> None:
    """Which files, and where they are."""
    parser.add_argument(
        "--root",
        type=Path,
        default=os.environ.get("DATAMODULES_TEST_DATA"),
        help="folder that holds nasty/ and nasty_tables/; default: $DATAMODULES_TEST_DATA",
    )
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=list(PARTS), help="some of the tables"
    )


def measure(options: argparse.Namespace) -> list[Result]:
    """Read every file by this project and by stock code.

    Raises:
        ValueError: If no folder is named.
    """
    if options.root is None:
        raise ValueError("pass --root, the folder of nasty/ and nasty_tables/")
    return [PARTS[part](options.root) for part in options.only]
