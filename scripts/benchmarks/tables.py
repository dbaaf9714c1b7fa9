"""What a benchmark found: rows of a table, shown on the terminal, as Markdown, JSON or bars."""

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
        rows: All with the same keys, the columns' names with their units.
        bars: Column that a bar chart draws; None: there is nothing to draw.
        notes: Lines below the table.
    """

    title: str
    rows: Sequence[Row]
    bars: str | None = None
    notes: Sequence[str] = field(default=())


def machine() -> str:
    """Processor, cores and versions, as every figure must carry them.

    Example:
        >>> "torch" in machine()
        True
    """
    from importlib.metadata import version

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "lightning"))
    return f"{platform.machine()}, {cores} cores, Python {platform.python_version()}, {libraries}"


def cell(value: Any) -> str:
    """A value as a person reads it.

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
    r"""A table in GitHub's form, numbers to the right.

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
    """The table on the terminal; what is the same in all rows stands above it."""
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
    """The rows as a list of objects; those of several tables behind each other."""
    rows = [dict(row) for result in results for row in result.rows]
    path.write_text(json.dumps(rows, indent=1) + "\n")


def draw_bars(result: Result, path: Path) -> None:
    """A bar a row, named by the row's cells of text, as a PNG.

    Raises:
        ValueError: If this benchmark has no column to draw.
    """
    if result.bars is None:
        raise ValueError(f"{result.title!r} has no column to draw; leave --png out")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [row for row in result.rows if row[result.bars] is not None]
    labels = [", ".join(v for k, v in row.items() if isinstance(v, str) and v) for row in shown]
    figure = Figure(figsize=(9, 1 + 0.35 * len(shown)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    drawn = axes.barh(range(len(shown)), [row[result.bars] for row in shown])
    axes.bar_label(drawn, [cell(row[result.bars]) for row in shown], padding=3)
    axes.set_yticks(range(len(shown)), labels)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel(result.bars)
    axes.set_title(f"{result.title}\n{machine()}", fontsize=9)
    figure.savefig(path, dpi=120)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _numeric(result: Result, name: str) -> bool:
    values = [row[name] for row in result.rows if row[name] is not None]
    return bool(values) and all(
        isinstance(v, int | float) and not isinstance(v, bool) for v in values
    )
