"""Evaluation images: Resize 256, CenterCrop 224, the same pixels."""

from __future__ import annotations

import argparse

from .images import _measure, add_options
from .tables import Result

__all__ = ["add_options", "measure"]


def measure(options: argparse.Namespace) -> Result:
    """Resize 256, CenterCrop 224, normalise."""
    return _measure(options, train=False)
