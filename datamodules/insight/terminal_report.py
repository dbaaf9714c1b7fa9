"""Print a report on the terminal, in aligned columns, with levels in words and colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .findings import SIGNS, Report, SampleStep

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def print_report(report: Report, console: Console | None = None) -> None:
    """Print a report; colours only repeat what the words say.

    Args:
        report: The result of :func:`~datamodules.insight.inspect`.
        console: Where to print; None: standard output.
    """
    from rich.console import Console

    console = console or Console(highlight=False)
    for line in _lines(report):
        console.print(line, soft_wrap=True)  # never broken: a path stays in one piece


def _lines(report: Report) -> list[Text]:
    from rich.text import Text

    lines = [Text(f"{report.name}: {report.counted()}", style="bold")]
    for finding in report.findings:
        line = Text(f"{SIGNS[finding.level]} {finding.level}", style=STYLES[finding.level])
        line.append(f" [{finding.code}] {finding.sentence}", style="default not bold")
        lines += [line, Text(f"    {finding.remedy}", style="italic")]
    for title, facts in report.sections.items():
        lines += [Text(), Text(title, style="bold"), *(Text(f"  {fact}") for fact in facts)]
    for split in dict.fromkeys(step.split for step in report.steps):
        steps = [step for step in report.steps if step.split == split]
        lines += [Text(), Text(f"One {split} sample, step by step", style="bold")]
        lines += [Text(line) for line in aligned(steps)]
    if report.hardest is not None:
        lines += [Text(), Text("Errors of the model", style="bold")]
        lines.append(Text(str(report.hardest)))
    return lines


def aligned(steps: Sequence[SampleStep]) -> list[str]:
    """Return steps as lines in columns of up to 32 characters.

    Example:
        >>> for line in aligned([SampleStep("val", "read", "2 x 3", "uint8", "0 to 9")]):
        ...     print(line)
          read  2 x 3  uint8  0 to 9
    """
    columns: list[list[str]] = [
        list(cells) for cells in zip(*(step[1:] for step in steps), strict=True)
    ]
    widths = [min(32, max(map(len, column), default=0)) for column in columns]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) for cell, width in zip(step[1:], widths, strict=True)
        ).rstrip()
        for step in steps
    ]
