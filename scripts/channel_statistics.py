"""Print mean and standard deviation of each channel of the train images, and flags to use them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if (here := str(Path(__file__).parent)) not in sys.path:
    sys.path.append(here)

import torch

from command_line import add_objects, instantiate, new_parser, parse
from datamodules.images.channel_stats import MOST, channel_statistics
from datamodules.insight.safe_mode import without_augmentation
from failures import Ranks, exit_code
from names import UsageError

EPILOG = """
examples:
  python scripts/channel_statistics.py --data ImageFolderDataModule --data.root photos
  python scripts/channel_statistics.py --data CIFAR10DataModule --data.root data --all true

In training, --data.image_options.normalize train does the same for an image folder. Exit codes: 0,
1 for data, 2 for usage.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    return exit_code(run, sys.argv[1:] if arguments is None else arguments)


def run(arguments: list[str], ranks: Ranks) -> None:
    """Compute and print the statistics."""
    parser = new_parser(__doc__ or "", EPILOG)
    parser.add_argument(
        "--all", type=bool, default=False, help=f"read every image, not {MOST:,} of them"
    )
    parser.add_argument("--traceback", action="store_true", help="show errors in full")
    add_objects(parser)
    config = parse(parser, arguments)
    dm: Any = instantiate(parser, config).data
    if not hasattr(dm, "train_dataset"):
        raise UsageError("channel_statistics.py needs a datamodule with train_dataset")
    without_augmentation(dm)  # the images without augmentation
    dm.prepare_data()
    data = dm.train_dataset
    first = _first(data) if hasattr(data, "__len__") and len(data) else None
    if not isinstance(first, torch.Tensor) or first.ndim != 3:
        raise UsageError("the train samples are not images (C, H, W), so they have no channels")
    mean, std = channel_statistics(data, most=None if config.all else MOST)
    for name, values in (("mean", mean), ("std", std)):
        print(f"{name:<6}{' '.join(f'{value:.4f}' for value in values)}")
    flags = [
        f"--data.image_options.{n} '[{', '.join(f'{v:.4f}' for v in vs)}]'"
        for n, vs in (("mean", mean), ("std", std))
    ]
    print(f"use: {' '.join(flags)}")


def _first(data: Any) -> Any:
    item = data[0]
    return item[0] if isinstance(item, tuple | list) else item


if __name__ == "__main__":
    sys.exit(main())
