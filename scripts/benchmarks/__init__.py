"""Benchmarks by name; ``scripts/bench.py`` runs one.

A module holds ``add_options(parser)``, which may add its own, and ``measure(options) -> Result``.
"""

from __future__ import annotations

WORKS = {  # name: module in this package and what it shows
    "exactness": ("exactness", "samplers on one process and two, stock against this project"),
    "plans": ("plans", "time and memory of planning an epoch of 10 million samples"),
}
