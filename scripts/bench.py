"""Measure one piece of work: ``python scripts/bench.py plans --markdown``."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

# Before torch comes: threads that wait for work in a loop would be counted as work, for all sides.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the project, from anywhere

from benchmarks import WORKS
from benchmarks.tables import as_markdown, draw_bars, print_table, write_json


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, measure, show."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = ArgumentParser(
        "bench.py",
        description="works:\n" + "\n".join(f"  {n:12} {said}" for n, (_, said) in WORKS.items()),
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("work", choices=WORKS, metavar="WORK", help="one of the above")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw a bar chart")
    # only the chosen work is imported: its libraries may be missing for the others
    chosen = next((word for word in given if word in WORKS), None)
    module = import_module(f"benchmarks.{WORKS[chosen][0]}") if chosen else None
    if module is not None:
        module.add_options(parser.add_argument_group(str(chosen)))
    options = parser.parse_args(given)
    assert module is not None  # the parser ends without a work
    measured = module.measure(options)
    results = measured if isinstance(measured, list) else [measured]
    for place, result in enumerate(results):
        if options.markdown:
            print("\n" * (place > 0) + as_markdown(result))
        else:
            print_table(result)
    if options.json is not None:
        write_json(results, options.json)
    if options.png is not None:
        draw_bars(results[0], options.png)


if __name__ == "__main__":
    main()
