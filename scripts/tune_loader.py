"""Measure the loader and print the settings to use: workers, prefetching, and which side waits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if (here := str(Path(__file__).parent)) not in sys.path:
    sys.path.append(here)

import lightning as L

from command_line import add_objects, instantiate, new_parser, parse, spell_out
from datamodules import DataModule
from datamodules.insight.tune import Tuning, tune
from failures import Ranks, exit_code
from names import UsageError

EPILOG = """
examples:
  python scripts/tune_loader.py --data ImageFolderDataModule --data.root photos
  python scripts/tune_loader.py --config runs/digits-1/config.yaml --with_model true
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    return exit_code(run, sys.argv[1:] if arguments is None else arguments)


def run(arguments: list[str], ranks: Ranks) -> None:
    """Measure, print, and write JSON and a plot."""
    parser = new_parser(__doc__ or "", EPILOG)
    parser.add_argument("--with_model", type=bool, default=False, help="measure the step beside it")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--max_workers", type=int | None, default=None, help="the most to try")
    parser.add_argument("--out", type=str, default="tuning", help="name of the .json and .png")
    parser.add_argument("--traceback", action="store_true", help="show errors in full")
    add_objects(parser)
    defaults = {"data": "datamodules.samples.digits", "model": "models.Classifier"}
    config = parse(parser, spell_out(arguments, defaults))
    if config.seconds <= 0:
        raise UsageError(f"--seconds must be above 0, got {config.seconds}")
    L.seed_everything(0, verbose=False)
    objects = instantiate(parser, config)
    if not isinstance(objects.data, DataModule):
        raise UsageError("tune_loader.py sets a DataModule's own options; this builds its loaders")
    module: Any = objects.model if config.with_model else None
    found = tune(
        objects.data,
        module,
        seconds=config.seconds,
        max_workers=config.max_workers,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    show(found)
    place = Path(config.out)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.with_suffix(".json").write_text(found.to_json() + "\n", encoding="utf-8")
    found.plot(place.with_suffix(".png"))
    print(f"written: {place.with_suffix('.json')}, {place.with_suffix('.png')}")


def show(found: Tuning) -> None:
    """Print the table, what it means, and the flags."""
    from rich.console import Console
    from rich.table import Table

    table = Table("workers", "prefetch", "samples/s", "first batch s", "CPU", "own MiB")
    for t in found.trials:
        own = "-" if t.own_mib is None else f"{t.own_mib:.0f}"
        row = [t.setting.num_workers, t.setting.prefetch_factor or "-", f"{t.rate:,.0f}"]
        row += [f"{t.first_batch_seconds:.2f}", f"{t.cpu_share:.0%}", own]
        table.add_row(*map(str, row), style="bold" if t.setting == found.best else "")
    Console().print(table)
    for line in found.sentences:
        print(line)
    print(f"use: {found.flags}")


if __name__ == "__main__":
    sys.exit(main())
