"""The work ``text``: data in memory, see ``held``."""

from __future__ import annotations

import argparse

from .held import text as measure

__all__ = ["add_options", "measure"]


def add_options(parser: argparse._ArgumentGroup) -> None:
    """Sizes and rounds."""
    parser.add_argument("--samples", type=int, default=20000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epoch-samples", type=int, default=5000, help="texts that are trained on")
    parser.add_argument("--rounds", type=int, default=5)
