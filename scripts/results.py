"""Show the results of a run: a table of metrics and a figure of the confusion matrix."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import numpy.typing as npt
from lightning.pytorch.utilities.model_helpers import is_overridden

from datamodules import DataModule
from run_folder import BestCheckpoint, LastCheckpoint
from run_report import AnswersHeard, write_page

Counts = npt.NDArray[np.int64]
MAX_COUNTS = 30  # classes up to which each cell of the figure shows its count
MAX_NAMES = 110  # classes up to which each row and column shows its name


def show_results(
    trainer: L.Trainer,
    objects: Any,
    folder: Path,
    best: BestCheckpoint,
    last: LastCheckpoint,
    *,
    report: bool,
) -> None:
    """Evaluate the best (or else last) checkpoint and print metrics and the paths of the files."""
    model, data = objects.model, objects.data
    patience = trainer.early_stopping_callback
    if patience is not None and patience.stopped_epoch:
        print_once(trainer, f"stopped early: {patience.stopping_reason_message}")
    path = best.best_model_path or last.best_model_path
    split = evaluated_split(model, data)
    if split is None:
        print_once(trainer, "no test: there is no test or val split that the model can evaluate")
    else:
        run = trainer.test if split == "test" else trainer.validate
        answers = AnswersHeard(split)
        if report:
            trainer.callbacks.append(answers)  # type: ignore[attr-defined]
        results = run(model, datamodule=data, ckpt_path=path or None, verbose=False)
        metrics = {name: value for result in results for name, value in result.items()}
        if trainer.is_global_zero and metrics:
            instead = "" if split == "test" else " (there is no test split)"
            title = f"{split}{instead}, {_kept_checkpoint(best, last)}"
            print_metrics(title, {"value": metrics})
            _draw_confusion_of(model, data, folder)
            if report:
                write_page(folder, data=data, title=title, metrics=metrics, heard=answers)
    print_once(trainer, f"{'checkpoint':<18}{shown_path(path) if path else 'not written'}")
    print_once(trainer, f"{'settings':<18}{shown_path(folder / 'config.yaml')}")
    for name, file in (("confusion matrix", "confusion_matrix.png"), ("report", "report.html")):
        if (folder / file).exists():
            print_once(trainer, f"{name:<18}{shown_path(folder / file)}")


def _kept_checkpoint(best: BestCheckpoint, last: LastCheckpoint) -> str:
    """Return ``best checkpoint, val_accuracy 0.9861`` or what there is instead."""
    if not best.best_model_path:
        kept = "last checkpoint, no validation selected a best one"
        return kept if last.best_model_path else "no checkpoint"
    if best.best_model_score is None:  # spawned processes do not return it
        return "best checkpoint"
    return f"best checkpoint, {best.monitor} {float(best.best_model_score):.4f}"


def evaluated_split(model: L.LightningModule, data: Any) -> str | None:
    """Return ``"test"``, else ``"val"``, else None: the split that data and model both have."""
    for split, step in (("test", "test_step"), ("val", "validation_step")):
        if isinstance(data, DataModule):
            exists = (data.test_dataset if split == "test" else data.val_dataset) is not None
        else:
            exists = is_overridden(f"{split}_dataloader", data)
        if exists and is_overridden(step, model):
            return split
    return None


def shown_path(path: str | Path) -> str:
    """Return a path relative to the working directory if it is below it."""
    path = Path(path).absolute()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def print_once(trainer: L.Trainer, text: str) -> None:
    """Print on the first process only."""
    if trainer.is_global_zero:
        print(text, flush=True)


def print_metrics(title: str, columns: Mapping[str, Mapping[str, float]]) -> None:
    """Print a table with one metric per row, losses last, to four decimals.

    Args:
        title: Printed above the table.
        columns: Metrics of each column, named as logged; the split's name is removed.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(min_width=34)
    table.add_column("metric")
    for name in columns:
        table.add_column(name, justify="right")
    for metric in sorted(next(iter(columns.values())), key=lambda name: name.endswith("loss")):
        values = [f"{column[metric]:.4f}" for column in columns.values()]
        table.add_row(metric.removeprefix("test_").removeprefix("val_"), *values)
    print(f"\n{title}")  # a title of the table would be wrapped at the table's width
    Console(highlight=False).print(table)


def _draw_confusion_of(model: Any, data: Any, folder: Path) -> None:
    """Draw the confusion matrix of the evaluation, if the model counted one."""
    try:
        counts = model.confusion_matrix
    except (AttributeError, RuntimeError):  # not a classifier, or no row was evaluated
        return
    classes = getattr(data, "classes", range(len(counts)))
    draw_confusion(np.asarray(counts), [str(c) for c in classes], folder / "confusion_matrix.png")


def draw_confusion(counts: Counts, classes: Sequence[str], path: Path) -> None:
    """Write a figure of a confusion matrix.

    Colour shows the share of the true class, so that rare classes are visible too.

    Args:
        counts: (K, K), rows: true class, columns: predicted class; for multi-label (K, 2, 2),
            ``[[true -, false +], [false -, true +]]`` of each label.
        classes: K names.
        path: PNG.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    multilabel = counts.ndim == 3
    rows = [_label(name) for name in classes]
    columns = ["true -", "false +", "false -", "true +"] if multilabel else rows
    cells = counts.reshape(len(counts), -1)
    # of the negatives and of the positives of each label; of each true class
    totals = counts.sum(2).repeat(2, 1) if multilabel else cells.sum(1)[:, None]
    share = cells / np.maximum(totals, 1)

    width, height = _inches(len(columns)), _inches(len(rows))
    font = 9 if len(rows) <= 20 else 7 if len(rows) <= 60 else 6
    # no pyplot, which keeps figures alive and may look for a display; names and colour bar are
    # outside the axes, and savefig makes room: a layout takes seconds for a hundred names
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    # the square root, so that a few errors among a hundred classes are visible
    image = axes.imshow(share, cmap="Blues", norm=PowerNorm(0.5, 0, 1), aspect="auto")
    bar = figure.add_axes((1 + 0.15 / width, 0, 0.15 / width, min(1, 4 / height)))
    figure.colorbar(image, cax=bar, label="share of the true class")
    step = -(-len(rows) // MAX_NAMES)
    axes.set_yticks(range(0, len(rows), step), rows[::step], fontsize=font)
    letter = 0.6 * font / 72  # inches, about
    turn = 0 if letter * max(map(len, columns)) < 0.9 * width / len(columns) else 90
    axes.set_xticks(range(0, len(columns), step), columns[::step], fontsize=font, rotation=turn)
    axes.set_ylabel("label" if multilabel else "true class")
    axes.set_xlabel("prediction" if multilabel else "predicted class")
    if len(rows) <= MAX_COUNTS:
        for (row, column), count in np.ndenumerate(cells):
            if count:  # zeros would hide the errors
                colour = "white" if share[row, column] > 0.3 else "black"
                axes.text(
                    column, row, f"{count}", ha="center", va="center", color=colour, fontsize=font
                )
    right = counts[:, [0, 1], [0, 1]].sum() if multilabel else np.trace(counts)
    unit = "labels" if multilabel else "rows"
    axes.set_title(f"{right:,} of {counts.sum():,} {unit} correct", fontsize=11)
    with warnings.catch_warnings():
        # the font lacks some scripts and draws boxes; the metrics table has the names
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from")
        figure.savefig(path, dpi=120, bbox_inches="tight")


def _inches(cells: int) -> float:
    return float(min(18.0, max(2.0, 0.45 * cells if cells <= MAX_COUNTS else 9 + 0.09 * cells)))


def _label(name: str) -> str:
    """Shorten a class name for an axis, and keep ``$`` from starting a formula."""
    name = " ".join(str(name).split())
    name = name if len(name) <= 24 else name[:23] + "…"
    return name.replace("$", r"\$")
