"""The work ``tabular``: data in memory, see ``held``."""

from __future__ import annotations

import argparse

from .held import tabular as measure

__all__ = ["add_options", "measure"]


def add_options(parser: argparse._ArgumentGroup) -> None:
    """Sizes and rounds."""
    parser.add_argument("--samples", type=int, default=200000)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--epoch-samples", type=int, default=200000, help="rows trained on")
    parser.add_argument("--rounds", type=int, default=5)
