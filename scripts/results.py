"""What a run shows at its end: a table of metrics, a figure of the confusion matrix."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
MOST_NUMBERS = 30  # classes up to which each cell of the figure holds its count
MOST_NAMES = 110  # classes up to which each row and column is named


def print_metrics(title: str, metrics: Mapping[str, float]) -> None:
    """A table, one metric a row, four decimals.

    Args:
        title: Above the table.
        metrics: Named as logged: the split's name in front is left out.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(min_width=34)
    table.add_column("metric")
    table.add_column("value", justify="right")
    for name, value in sorted(metrics.items(), key=lambda item: item[0].endswith("loss")):
        table.add_row(name.removeprefix("test_").removeprefix("val_"), f"{value:.4f}")
    print(f"\n{title}")  # as a title of the table it would be broken at the table's width
    Console(highlight=False).print(table)


def draw_confusion(counts: Counts, classes: Sequence[str], path: Path) -> None:
    """Write a figure of a confusion matrix.

    Colour is the share of the true class's rows, so that rare classes show as well. Cells hold
    their counts up to 30 classes, rows and columns their names up to 110.

    Args:
        counts: (K, K) with a row for each true class; with several labels a row (K, 2, 2),
            ``[[true -, false +], [false -, true +]]`` of each label.
        classes: K names.
        path: PNG.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    multilabel = counts.ndim == 3
    cells, columns = (
        (counts.reshape(-1, 4), ["true -", "false +", "false -", "true +"])
        if multilabel
        else (counts, [_label(name) for name in classes])
    )
    rows = [_label(name) for name in classes]
    # of the negatives and of the positives of each label; of each true class
    whole = (
        cells.reshape(len(cells), 2, 2).sum(2).repeat(2, 1) if multilabel else cells.sum(1)[:, None]
    )
    share = cells / np.maximum(whole, 1)

    width, height = _inches(cells.shape[1]), _inches(len(cells))
    font = 9 if len(cells) <= 20 else 7 if len(cells) <= 60 else 6
    letter = 0.6 * font / 72  # inches, about
    left = letter * max(map(len, rows)) + 0.5
    lying = max(map(len, columns)) * letter < 0.9 * width / len(columns)
    below = 0.7 if lying else letter * max(map(len, columns)) + 0.5
    # no pyplot, which keeps figures alive and may look for a display; and no automatic layout,
    # which takes seconds for a hundred names
    figure = Figure(figsize=(left + width + 1.1, below + height + 0.4))
    FigureCanvasAgg(figure)
    across, up = figure.get_size_inches()
    axes = figure.add_axes((left / across, below / up, width / across, height / up))
    # the square root, so that a few errors among a hundred classes are seen
    image = axes.imshow(share, cmap="Blues", norm=PowerNorm(0.5, 0, 1), aspect="auto")
    bar = figure.add_axes(
        ((left + width + 0.15) / across, below / up, 0.15 / across, min(height, 4) / up)
    )
    figure.colorbar(image, cax=bar, label="share of the true class")
    step = 1 if len(cells) <= MOST_NAMES else -(-len(cells) // MOST_NAMES)
    axes.set_yticks(range(0, len(rows), step), rows[::step], fontsize=font)
    turn = 0 if lying else 90
    axes.set_xticks(range(0, len(columns), step), columns[::step], fontsize=font, rotation=turn)
    axes.set_ylabel("label" if multilabel else "true class")
    axes.set_xlabel("answer" if multilabel else "predicted class")
    if len(cells) <= MOST_NUMBERS:
        for (row, column), count in np.ndenumerate(cells):
            if count:  # zeros would hide the errors
                colour = "white" if share[row, column] > 0.3 else "black"
                axes.text(
                    column, row, f"{count}", ha="center", va="center", color=colour, fontsize=font
                )
    right = counts[:, [0, 1], [0, 1]].sum() if multilabel else np.trace(counts)
    unit = "labels" if multilabel else "rows"
    axes.set_title(f"{right:,} of {counts.sum():,} {unit} right", fontsize=11)
    with warnings.catch_warnings():
        # names in a script that the font lacks are drawn as boxes; the table has them
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from")
        figure.savefig(path, dpi=120)


def _inches(cells: int) -> float:
    return float(min(18.0, max(2.0, 0.45 * cells if cells <= MOST_NUMBERS else 9 + 0.09 * cells)))


def _label(name: str) -> str:
    """A class name for an axis: short, and a dollar sign no formula."""
    name = " ".join(str(name).split())
    name = name if len(name) <= 24 else name[:23] + "…"
    return name.replace("$", r"\$")
