"""Figures of tables: the values of each column, missing cells by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from datamodules.batches.inspection_interface import ColumnValues

from .canvas import STYLES, Drawing, drawn, label, legend, new_axes, new_figure

MOST_COLUMNS, ACROSS, MOST_WORDS, MOST_MISSING = 12, 2, 5, 20


@drawn
def column_histograms(values: Sequence[ColumnValues], split: str = "train") -> Drawing:
    """Draw the first 12 columns: numbers as a histogram, categories by frequency.

    Args:
        values: The columns.
        split: Name of the split.
    """
    chosen = values[:MOST_COLUMNS]
    rows = -(-len(chosen) // ACROSS)
    figure = new_figure(1.35 * rows + 0.1)
    for place, column in enumerate(chosen):
        axes = new_axes(figure, rows, min(ACROSS, len(chosen)), place + 1)
        axes.set_title(
            label(column.name, most=28, otherwise=f"column {place}"), fontsize=9, loc="left"
        )
        axes.tick_params(labelsize=7.5)
        if column.numbers is not None:
            _histogram(axes, column)
        else:
            _frequencies(axes, column.words)
    more = f", the first {MOST_COLUMNS} of {len(values)}" if len(values) > len(chosen) else ""
    text = f"{split} cells of {len(chosen)} columns{more}: " + "; ".join(map(_in_words, chosen))
    return Drawing("columns", "Values by column", text, figure)


@drawn
def missing_bars(shares: Mapping[str, Mapping[str, float]]) -> Drawing:
    """Draw the share of missing cells by split, of the 20 columns with most.

    Args:
        shares: By column and split, most first.
    """
    chosen = list(shares.items())[:MOST_MISSING]
    splits = list(dict.fromkeys(split for _, found in chosen for split in found))
    bar = 0.8 / len(splits)
    figure = new_figure(0.9 + max(1.0, len(chosen) * max(0.3, 0.15 * len(splits))))
    axes = new_axes(figure)
    for number, split in enumerate(splits):
        style = STYLES[split]
        found = np.array([100 * column.get(split, 0.0) for _, column in chosen])
        bars = axes.barh(
            np.arange(len(chosen)) + (number - (len(splits) - 1) / 2) * bar,
            found,
            0.92 * bar,
            color=style.colour,
            hatch=style.hatch,
            edgecolor="white",
            label=split,
        )
        axes.bar_label(bars, [percent(n) for n in found], padding=2, fontsize=7)
    names = [label(name, otherwise=f"column {k}") for k, (name, _) in enumerate(chosen)]
    axes.set_yticks(range(len(chosen)), names)
    axes.set_ylim(len(chosen) - 0.4, -0.6)
    axes.set_xlim(0, 115)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("missing cells in %")
    axes.tick_params(axis="y", length=0)
    legend(figure, axes)
    more = (
        f"; {len(shares) - len(chosen)} more have missing cells"
        if len(shares) > len(chosen)
        else ""
    )
    text = "; ".join(f"{name} {percent(100 * max(found.values()))}%" for name, found in chosen[:6])
    text = f"{len(shares)} columns have missing cells, at most: {text}"
    text += f"; {more} more have missing cells" * bool(more)
    return Drawing("missing", "Missing cells by column", text, figure)


def _histogram(axes: Any, column: ColumnValues) -> None:
    numbers, style = column.numbers, STYLES["train"]
    if numbers is None or not len(numbers):
        axes.text(0.5, 0.5, "no value", ha="center", transform=axes.transAxes)
        return
    few = np.unique(numbers)
    whole = bool((few == few.round()).all()) and few[-1] - few[0] < 30
    edges: Any = np.arange(few[0] - 0.5, few[-1] + 1) if whole else 24
    axes.hist(numbers, edges, color=style.colour, edgecolor="white", linewidth=0.4)
    axes.locator_params(axis="y", nbins=4)
    axes.locator_params(axis="x", nbins=5, integer=whole)
    if column.is_date:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(maxticks=4)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _frequencies(axes: Any, words: Mapping[str, int]) -> None:
    shown = list(words.items())
    if len(shown) > MOST_WORDS + 1:
        others = shown[MOST_WORDS:]
        shown = [*shown[:MOST_WORDS], (f"{len(others)} others", sum(n for _, n in others))]
    names = [label(word, most=14, otherwise=f"value {k}") for k, (word, _) in enumerate(shown)]
    style = STYLES["train"]
    axes.barh(range(len(shown)), [n for _, n in shown], color=style.colour, height=0.75)
    axes.set_yticks(range(len(shown)), names)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.locator_params(axis="x", nbins=4)


def _in_words(column: ColumnValues) -> str:
    if column.numbers is None:
        top = next(iter(column.words), "no value")
        return f"{column.name} has {len(column.words):,} categories, most often {top}"
    if not len(column.numbers):
        return f"{column.name} is empty"
    if column.is_date:
        ends = [
            str(np.datetime64(int(d), "D")) for d in (column.numbers.min(), column.numbers.max())
        ]
        return f"{column.name} from {ends[0]} to {ends[1]}"
    return f"{column.name} from {column.numbers.min():.4g} to {column.numbers.max():.4g}"


def percent(share: float) -> str:
    """Return a percentage, with one decimal below 10."""
    return f"{share:.1f}" if 0 < share < 10 else f"{share:.0f}"
