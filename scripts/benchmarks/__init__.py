"""Benchmarks by name; ``scripts/bench.py`` runs one, README.md shows the results.

Each module has ``add_options(parser)`` and ``measure(options)``, which returns one ``Result`` or
several.
"""

from __future__ import annotations

WORKS = {  # name: module in this package, description
    "cifar": ("cifar", "small images in memory, crop and flip"),
    "eval": ("evaluation", "evaluation images from JPEG files and packs"),
    "exactness": ("exactness", "samplers on one process and two, stock against this project"),
    "images": ("images", "training images from JPEG files and packs, beside peers"),
    "ingest": ("ingest", "a CSV read and fitted, a folder of files listed"),
    "plans": ("plans", "time and memory of planning an epoch of 10 million samples"),
    "robustness": ("robustness", "files that break programs, and faults around a run"),
    "startup": ("startup", "from a fresh Python to the first batch"),
    "tabular": ("tabular", "rows in memory, shuffled"),
    "text": ("text", "token lists in memory, padded and in length buckets"),
}
