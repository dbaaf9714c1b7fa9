"""Read files that break programs, with this project and with stock code.

Wrong content without an error or a message is the worst result; it never happens here.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from . import nasty_images, nasty_tables
from .tables import Result

TABLES = {"images": nasty_images.compare, "tables": nasty_tables.compare}


def add_options(parser: argparse._ArgumentGroup) -> None:
    """Add the folder and the choice of tables."""
    parser.add_argument(
        "--root",
        type=Path,
        default=os.environ.get("DATAMODULES_TEST_DATA"),
        help="folder of nasty/ and nasty_tables/; default: $DATAMODULES_TEST_DATA",
    )
    parser.add_argument(
        "--only", nargs="+", choices=TABLES, default=list(TABLES), help="tables to make"
    )


def measure(options: argparse.Namespace) -> list[Result]:
    """Read every file with this project and with stock code.

    Raises:
        ValueError: If no folder is given.
    """
    if options.root is None:
        raise ValueError("pass --root, the folder of nasty/ and nasty_tables/")
    return [TABLES[name](options.root) for name in options.only]
