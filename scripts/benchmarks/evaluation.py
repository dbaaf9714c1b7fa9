"""Evaluation images: Resize 256, CenterCrop 224, the same pixels."""

from __future__ import annotations

import argparse

from .images import add_options, measure_images
from .tables import Result

__all__ = ["add_options", "measure"]


def measure(options: argparse.Namespace) -> Result:
    """Measure Resize 256, CenterCrop 224, normalize."""
    return measure_images(options, train=False)
