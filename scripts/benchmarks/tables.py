"""Show the results of a benchmark on the terminal, as Markdown or as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill
from typing import Any

Row = Mapping[str, Any]
NAME_WIDTH = 18


@dataclass(frozen=True)
class Result:
    """Rows of one benchmark.

    Attributes:
        title: What was measured, with its sizes.
        rows: All with the same keys: column names with units.
        notes: Lines below the table.
    """

    title: str
    rows: Sequence[Row]
    notes: Sequence[str] = field(default=())


def machine() -> str:
    """Return processor, cores and versions, for every table.

    Example:
        >>> "torch" in machine()
        True
    """
    from importlib.metadata import version

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "lightning"))
    return f"{platform.machine()}, {cores} cores, Python {platform.python_version()}, {libraries}"


def cell(value: Any) -> str:
    """Format a value.

    Example:
        >>> cell(12345.678), cell(0.01234), cell(10_000_000), cell(None), cell(True)
        ('12,346', '0.0123', '10,000,000', '-', 'yes')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def as_markdown(result: Result) -> str:
    r"""Format a table for GitHub, with numbers aligned right.

    Example:
        >>> print(as_markdown(Result("Loaders", [{"kind": "a|b", "images/s": 1200.0}])))
        | kind | images/s |
        |---|---:|
        | a\|b | 1,200 |
    """
    names = list(result.rows[0]) if result.rows else []
    lines = [_line(names), "|" + "|".join("---:" if _numeric(result, n) else "---" for n in names)]
    lines[1] += "|"
    lines += [_line([cell(row[name]).replace("|", "\\|") for name in names]) for row in result.rows]
    return "\n".join([*lines, *(f"\n{note}" for note in result.notes)])


def print_table(result: Result) -> None:
    """Print a table on the terminal; columns with one value are printed above it."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    names = list(result.rows[0]) if result.rows else []
    same = [n for n in names if len({cell(row[n]) for row in result.rows}) == 1 < len(result.rows)]
    names = [name for name in names if name not in same] or names
    for name in names:
        longest = max(len(cell(row[name])) for row in result.rows)
        words = name.replace("_", " ")  # headers break, so that names need not
        table.add_column(
            fill(words, max(min(longest, NAME_WIDTH), *map(len, words.split()))),
            justify="right" if _numeric(result, name) else "left",
            min_width=min(longest, NAME_WIDTH),
            overflow="fold",
        )
    for row in result.rows:
        table.add_row(*(cell(row[name]) for name in names))
    console = Console(highlight=False, markup=False)
    console.print(f"\n{result.title}\n{machine()}")
    if same:
        console.print(", ".join(f"{name} {cell(result.rows[0][name])}" for name in same))
    console.print(table)
    for note in result.notes:
        console.print(note)


def write_json(results: Sequence[Result], path: Path) -> None:
    """Write the rows of all tables as a list of objects."""
    rows = [dict(row) for result in results for row in result.rows]
    path.write_text(json.dumps(rows, indent=1) + "\n")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _numeric(result: Result, name: str) -> bool:
    values = [row[name] for row in result.rows if row[name] is not None]
    return bool(values) and all(
        isinstance(v, int | float) and not isinstance(v, bool) for v in values
    )
