"""Measure the loader and print what to use: workers, prefetching, batch size; who waits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if (here := str(Path(__file__).parent)) not in sys.path:
    sys.path.append(here)

import lightning as L

from command_line import add_objects, instantiate, new_parser, parse
from datamodules import DataModule
from datamodules.insight.tuning.tune import Tuning, tune
from failures import Ranks, exit_code
from names import UsageError

EPILOG = """
examples:
  python scripts/tune_loader.py --data ImageFolderDataModule --data.root photos
  python scripts/tune_loader.py --config runs/digits-1/config.yaml --with_model true
  python scripts/tune_loader.py --data ImageFolderDataModule --data.root photos \
      --model.net resnet18 --batch_sizes true

Exit codes: 0, 1 for data or a failed run, 2 for usage, 130 for Ctrl-C.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    return exit_code(run, sys.argv[1:] if arguments is None else arguments)


def run(arguments: list[str], ranks: Ranks) -> None:
    """Measure, print, and write JSON and a plot."""
    parser = new_parser(__doc__ or "", EPILOG)
    parser.add_argument("--with_model", type=bool, default=False, help="measure the step beside it")
    parser.add_argument(
        "--batch_sizes",
        type=bool,
        default=False,
        help="search for the batch size first, by the model's step, and measure with it",
    )
    parser.add_argument(
        "--accelerator", type=str, default="auto", help="what the model's step runs on"
    )
    parser.add_argument(
        "--exhaustive",
        type=bool,
        default=False,
        help="measure every setting as often as the best, and say how near the choice comes",
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--max_workers", type=int | None, default=None, help="the most to try")
    parser.add_argument("--out", type=str, default="tuning", help="name of the .json and .png")
    parser.add_argument("--traceback", action="store_true", help="show errors in full")
    add_objects(parser)
    config = parse(parser, arguments)
    if config.seconds <= 0:
        raise UsageError(f"--seconds must be above 0, got {config.seconds}")
    L.seed_everything(0, verbose=False)
    objects = instantiate(parser, config)
    if not isinstance(objects.data, DataModule):
        raise UsageError("tune_loader.py sets a DataModule's own options; this builds its loaders")
    module: Any = objects.model if config.with_model or config.batch_sizes else None
    found = tune(
        objects.data,
        module,
        seconds=config.seconds,
        max_workers=config.max_workers,
        batch_sizes=config.batch_sizes,
        accelerator=config.accelerator,
        exhaustive=config.exhaustive,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    show(found)
    place = Path(config.out)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.with_suffix(".json").write_text(found.to_json() + "\n", encoding="utf-8")
    found.plot(place.with_suffix(".png"))
    print(f"written: {place.with_suffix('.json')}, {place.with_suffix('.png')}")


def show(found: Tuning) -> None:
    """Print the tables, what they mean, and the flags."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if found.sizes:
        sizes = Table("batch size", "step ms", "ms a sample", box=SIMPLE)
        for size in found.sizes:
            spent = size.step_seconds
            cells = ["memory ends", "-"]
            if spent is not None:
                cells = [f"{spent * 1000:.1f}", f"{size.seconds_a_sample * 1000:.3f}"]
            sizes.add_row(str(size.batch_size), *cells)
        console.print(sizes)
    table = Table(box=SIMPLE)
    for heading in ("setting", "samples/s", "first", "CPU", "own", "shared", ""):
        table.add_column(heading, no_wrap=True, justify="left" if heading == "setting" else "right")
    for t in found.trials:
        memory = ["-" if m is None else f"{m:.0f}" for m in (t.own_mib, t.shared_mib)]
        row = [str(t.setting), f"{t.rate:,.0f}", f"{t.first_batch_seconds:.2f}"]
        row += [f"{t.cpu_share:.0%}", *memory]
        chosen = t.setting == found.best
        table.add_row(*row, "chosen" * chosen, style="bold" if chosen else "")
    console.print(table)
    print("first: seconds to the first batch; own and shared: MiB of all worker processes")
    for name, spent in found.stages.items():
        print(f"{name:<10}{spent * 1000:8.3f} ms a sample")
    for line in found.sentences:
        print(line)
    if found.of_best is not None:
        print(f"choice / best of all settings: {found.of_best:.3f}")
    print(f"use: {found.flags}")


if __name__ == "__main__":
    sys.exit(main())
