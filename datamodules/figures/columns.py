"""Figures of tables: the values of each column, and where cells are missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from datamodules.batches.nested import tensors_of
from datamodules.insight.split_view import Looked
from datamodules.tabular import TabularDataModule

from .canvas import STYLES, Drawing, drawn, label, legend, new_axes, new_figure

Numbers = npt.NDArray[np.float64]
MOST_COLUMNS, ACROSS, MOST_WORDS, MOST_GAPS = 12, 2, 5, 20


class Values(NamedTuple):
    """The cells of one column of train.

    Attributes:
        name: The column's.
        numbers: (M,) what is no gap, where the column is numeric.
        words: The words and how often each comes, most frequent first, where it is not.
        dated: Whether the numbers are days since 1970-01-01.
    """

    name: str
    numbers: Numbers | None
    words: Mapping[str, int]
    dated: bool = False


def column_values(dm: Any, one: Looked) -> list[Values]:
    """Cells of a split by column, those that become features; empty where samples are no rows."""
    if isinstance(dm, TabularDataModule):
        table, rows = dm._parts[one.split]
        found = []
        for feature in dm.fitted["features"]:
            column = table.columns[feature["name"]]
            if feature["kind"] == "numeric":
                assert column.numbers is not None
                cells = column.numbers[rows]
                dated = column.style == "date"
                found.append(Values(column.name, cells[np.isfinite(cells)], {}, dated))
            else:
                codes, words = column.as_words
                counts = np.bincount(codes[rows][codes[rows] >= 0], minlength=len(words))
                order = np.argsort(-counts, kind="stable").tolist()
                kept = {words[k]: int(counts[k]) for k in order if counts[k]}
                found.append(Values(column.name, None, kept))
        return found
    inputs = list(tensors_of(one.inputs))
    if len(inputs) != 1 or inputs[0].ndim != 2 or not inputs[0].is_floating_point():
        return []
    whole = getattr(one.dataset, "tensors", (getattr(one.dataset, "features", None),))[0]
    if not (isinstance(whole, torch.Tensor) and whole.ndim == 2 and len(whole) == len(one)):
        whole = inputs[0]  # all that is known without making every sample
    cells = whole.detach().double().numpy()
    return [Values(str(k), c[np.isfinite(c)], {}) for k, c in enumerate(cells.T[:MOST_COLUMNS])]


@drawn
def column_histograms(values: list[Values], split: str = "train") -> Drawing:
    """The spread of each of the first 12 columns: numbers as a histogram, words by frequency.

    Args:
        values: Of the columns.
        split: Whose cells they are.
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
    said = f"{split} cells of {len(chosen)} columns{more}: " + "; ".join(map(_said, chosen))
    return Drawing("columns", "Values by column", said, figure)


def missing_shares(dm: Any, seen: Mapping[str, Looked]) -> dict[str, dict[str, float]]:
    """Share of missing cells by column and split, of columns that have any, most first."""
    if not isinstance(dm, TabularDataModule):
        return {}
    found: dict[str, dict[str, float]] = {}
    splits = [split for split in seen if split in dm._parts and len(dm._parts[split].rows)]
    for split in splits:
        table, rows = dm._parts[split]
        for name, column in table.columns.items():
            if not column.refused:
                found.setdefault(name, {})[split] = float(column.missing[rows].mean())
    gaps = {name: shares for name, shares in found.items() if max(shares.values()) > 0}
    return dict(sorted(gaps.items(), key=lambda item: -max(item[1].values())))


@drawn
def missing_bars(shares: Mapping[str, Mapping[str, float]]) -> Drawing:
    """Share of missing cells of the 20 columns that lack most, by split.

    Args:
        shares: By column and split, most first.
    """
    chosen = list(shares.items())[:MOST_GAPS]
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
        axes.bar_label(bars, [_percent(n) for n in found], padding=2, fontsize=7)
    names = [label(name, otherwise=f"column {k}") for k, (name, _) in enumerate(chosen)]
    axes.set_yticks(range(len(chosen)), names)
    axes.set_ylim(len(chosen) - 0.4, -0.6)
    axes.set_xlim(0, 115)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("missing cells in %")
    axes.tick_params(axis="y", length=0)
    legend(figure, axes)
    more = f"; {len(shares) - len(chosen)} more lack cells too" if len(shares) > len(chosen) else ""
    said = "; ".join(f"{name} {_percent(100 * max(found.values()))}%" for name, found in chosen[:6])
    said = f"{len(shares)} columns lack cells, at most by split: {said}{more}"
    return Drawing("missing", "Missing cells by column", said, figure)


def _histogram(axes: Any, column: Values) -> None:
    numbers, style = column.numbers, STYLES["train"]
    if numbers is None or not len(numbers):
        axes.text(0.5, 0.5, "no cell", ha="center", transform=axes.transAxes)
        return
    few = np.unique(numbers)
    whole = bool((few == few.round()).all()) and few[-1] - few[0] < 30
    edges: Any = np.arange(few[0] - 0.5, few[-1] + 1) if whole else 24
    axes.hist(numbers, edges, color=style.colour, edgecolor="white", linewidth=0.4)
    axes.locator_params(axis="y", nbins=4)
    axes.locator_params(axis="x", nbins=5, integer=whole)
    if column.dated:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(maxticks=4)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _frequencies(axes: Any, words: Mapping[str, int]) -> None:
    shown = list(words.items())
    if len(shown) > MOST_WORDS + 1:
        rest = shown[MOST_WORDS:]
        shown = [*shown[:MOST_WORDS], (f"{len(rest)} others", sum(n for _, n in rest))]
    names = [label(word, most=14, otherwise=f"value {k}") for k, (word, _) in enumerate(shown)]
    style = STYLES["train"]
    axes.barh(range(len(shown)), [n for _, n in shown], color=style.colour, height=0.75)
    axes.set_yticks(range(len(shown)), names)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.locator_params(axis="x", nbins=4)


def _said(column: Values) -> str:
    if column.numbers is None:
        top = next(iter(column.words), "no value")
        return f"{column.name} holds {len(column.words):,} values, most often {top}"
    if not len(column.numbers):
        return f"{column.name} is empty"
    if column.dated:
        ends = [
            str(np.datetime64(int(d), "D")) for d in (column.numbers.min(), column.numbers.max())
        ]
        return f"{column.name} from {ends[0]} to {ends[1]}"
    return f"{column.name} from {column.numbers.min():.4g} to {column.numbers.max():.4g}"


def _percent(share: float) -> str:
    return f"{share:.1f}" if 0 < share < 10 else f"{share:.0f}"


def listed_gaps(shares: Mapping[str, Mapping[str, float]]) -> Iterable[tuple[str, ...]]:
    """Rows of a table: column, and share of missing cells by split."""
    for name, found in shares.items():
        yield (name, *(f"{_percent(100 * share)}%" for share in found.values()))
