"""Run one benchmark: ``python scripts/bench.py plans --markdown``."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

# Before torch is loaded: threads that spin while they wait would be counted as CPU time.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the project, from anywhere

from benchmarks import WORKS
from benchmarks.tables import as_markdown, print_table, write_json


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, measure, and print the tables."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = ArgumentParser(
        "bench.py",
        description="benchmarks:\n"
        + "\n".join(f"  {n:12} {text}" for n, (_, text) in WORKS.items()),
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("work", choices=WORKS, metavar="BENCHMARK", help="one of the above")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    # only the chosen one is imported: the others may need libraries that are not installed
    chosen = next((word for word in given if word in WORKS), None)
    module = import_module(f"benchmarks.{WORKS[chosen][0]}") if chosen else None
    if module is not None:
        module.add_options(parser.add_argument_group(str(chosen)))
    options = parser.parse_args(given)
    assert module is not None  # the parser exits without a benchmark
    measured = module.measure(options)
    results = measured if isinstance(measured, list) else [measured]
    for place, result in enumerate(results):
        if options.markdown:
            print("\n" * (place > 0) + as_markdown(result))
        else:
            print_table(result)
    if options.json is not None:
        write_json(results, options.json)


if __name__ == "__main__":
    main()
