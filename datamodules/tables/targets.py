"""Detect the task of target columns; encode classes, multi-label targets and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from datamodules.seeding.sample_seeds import Indices
from datamodules.settings.class_map import ClassMap

from .column import Column
from .table import Table, listed
from .table_splits import Part

Task = Literal["multiclass", "multilabel", "regression"]
MANY_CLASSES = 20


class Targets:
    """Targets of each split, fitted on train.

    Args:
        parts: Rows by split.
        names: Target columns.
        task: Multi-class, multi-label or regression.
        label_separator: Separates the labels in a cell of a multi-label column.
        unknown: What happens to evaluation rows of a class that is not in train.

    Raises:
        ValueError: If a cell does not fit the task.
    """

    def __init__(
        self,
        parts: Mapping[str, Part],
        names: Sequence[str],
        *,
        task: Task,
        label_separator: str | None = None,
        unknown: Literal["raise", "drop"] = "raise",
    ) -> None:
        self._parts, self._names, self._unknown = parts, list(names), unknown
        if label_separator is not None and (len(names) > 1 or task != "multilabel"):
            raise ValueError(
                "label_separator= separates the labels of one multi-label column, got "
                f"target {listed(names)} with task={task!r}; leave it out"
            )
        self._map = (
            None
            if task == "regression"
            else class_map(parts, names, task=task, label_separator=label_separator)
        )
        # columns of 0 and 1 are the classes, even if train has no 1
        self._own = list(names) if task == "multilabel" and len(names) > 1 else None

    def fit(self, *, classes: Sequence[str] | None, scaling: bool) -> dict[str, Any]:
        """Return the classes and their train counts, or the number of targets and their scale.

        Raises:
            ValueError: If train has a single class, or an evaluation split an unknown one.
        """
        if self._map is None:
            if classes is not None:
                raise ValueError(
                    f"classes= was given, but target {listed(self._names)} is numeric; leave it "
                    "out, or pass task='multiclass'"
                )
            values = {s: target_values(p, self._names) for s, p in self._parts.items()}["train"]
            std = np.where(np.ptp(values, axis=0) > 0, values.std(axis=0), 1.0)
            scale = {"mean": values.mean(axis=0).tolist(), "std": std.tolist()}
            return {
                "num_targets": len(self._names),
                "target_scale": scale if scaling else None,
            }
        if scaling:
            raise ValueError(
                f"target_scaling=True is for numbers, target {listed(self._names)} has classes; "
                "leave it out, or pass task='regression'"
            )
        found, counts = self._map.fit(classes if classes is not None else self._own)
        table = self._parts["train"].table
        if len(found) < 2 and self._map.labels["train"].ndim == 1:
            raise ValueError(
                f"{table.name}: target {self._names[0]!r} has one class in train, {found[0]!r}, "
                "so there is nothing to learn; add rows of another class, or list all classes with "
                "classes="
            )
        for split in self._parts:
            self._map.encode(split, found, unknown=self._unknown)
        return {"classes": found, "class_counts": counts}

    def encode(
        self, split: str, fitted: Mapping[str, Any]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        """Encode the targets of a split with the fitted classes or scale.

        Returns:
            Kept rows (M,) int64 of the table, and (M,) int64 classes, (M, K) float32 labels or
            (M, T) float64 numbers on the fitted scale.
        """
        rows = self._parts[split].rows
        if self._map is not None:
            kept, labels = self._map.encode(split, fitted["classes"], unknown=self._unknown)
            return rows[kept], labels
        values = target_values(self._parts[split], self._names)
        scale = fitted["target_scale"]
        if scale is not None:
            values = (values - scale["mean"]) / scale["std"]
        return rows, values


def find_task(part: Part, names: Sequence[str], *, known: Task | None = None) -> tuple[Task, str]:
    """Detect the task from the cells of the target columns; return it and the reason.

    Strings and True/False are classes. Whole numbers are classes if they are few: two values, or
    at most 20 that occur at least twice on average. Other numbers are regression. Several columns
    are multi-label if all are 0 and 1, otherwise regression.
    """
    table, rows = part
    columns = [table.column(name, "target") for name in names]
    if known is not None:
        return known, "given"
    if len(columns) > 1:
        flags = all(_as_flags(c) is not None for c in columns)
        return ("multilabel", "columns of 0 and 1") if flags else ("regression", "several columns")
    column = columns[0]
    exact = column.exact is not None and column.exact[rows].any()
    if column.text or exact or column.numbers is None or len(column.words_in(rows)):
        return "multiclass", "strings"
    values = np.unique(column.numbers[rows])
    if not _whole(values).all():
        return "regression", "numbers with a fraction"
    few = len(values) <= 2 or len(values) <= min(MANY_CLASSES, len(rows) / 2)
    if few:
        return "multiclass", f"{len(values)} whole numbers"
    return "regression", f"{len(values)} different numbers"


def check_target(parts: Mapping[str, Part], names: Sequence[str]) -> None:
    """Raise an error for rows without a target; the name of a split may be empty.

    Raises:
        ValueError: Names the column, the split, the number of rows and the first of them.
    """
    for split, (table, rows) in parts.items():
        for name in names:
            lost = rows[table.column(name, "target").missing[rows]]
            if len(lost):
                raise ValueError(
                    f"{table.name}: target {name!r} is missing in {len(lost)} of {len(rows)} "
                    f"{split + ' ' if split else ''}rows: {listed([str(r) for r in lost], 5)} "
                    "(counted from 0); add it or delete them; pass rows to predict as "
                    "predict_path="
                )


def class_map(
    parts: Mapping[str, Part],
    names: Sequence[str],
    *,
    task: Task,
    label_separator: str | None = None,
) -> ClassMap:
    """Collect the class names of all splits and the labels of each; a whole number is a name.

    Raises:
        ValueError: If a class is a number with a fraction, or a flag is not 0 or 1.
    """
    if task == "multilabel" and len(names) > 1:
        flags = {split: _flag_matrix(part, names) for split, part in parts.items()}
        return ClassMap(names, flags)
    words: dict[str, list[str]] = {}
    codes: dict[str, npt.NDArray[np.int32]] = {}
    for split, (table, rows) in parts.items():
        column = table.column(names[0], "target")
        _check_whole(table, column, rows)
        all_codes, words[split] = column.as_words
        codes[split] = all_codes[rows]
        # -1: missing
        counts = np.bincount(codes[split] + 1, minlength=len(words[split]) + 1)[1:]
        words[split] = [w if n else "" for w, n in zip(words[split], counts, strict=True)]
    if task == "multilabel":
        return _multilabel(codes, words, label_separator or "|")
    found = _ordered({word for split in words.values() for word in split} - {""})
    index = {name: k for k, name in enumerate(found)}
    labels = {
        split: np.array([index.get(w, -1) for w in words[split]], np.int64)[codes[split]]
        for split in parts
    }
    return ClassMap(found, labels)


def target_values(part: Part, names: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the numbers (N, T) of regression targets.

    Raises:
        ValueError: If a cell is not a finite number; names column and row.
    """
    table, rows = part
    values = np.empty((len(rows), len(names)))
    for j, name in enumerate(names):
        column = table.column(name, "target")
        wrong = column.words_in(rows)
        if column.numbers is not None and not len(wrong):
            values[:, j] = column.numbers[rows]
            wrong = rows[np.isinf(values[:, j])]
        if len(wrong):
            raise ValueError(
                f"{table.name}: target {name!r} must be numbers for regression, row {wrong[0]} "
                f"(counted from 0) is {column.word(int(wrong[0]))!r}; fix it, or pass "
                "task='multiclass'"
            )
    return values


def _whole(values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    whole: npt.NDArray[np.bool_] = np.isfinite(values) & (values == np.floor(values))
    return whole


def _check_whole(table: Table, column: Column, rows: Indices) -> None:
    if column.codes is not None or column.numbers is None:
        return
    wrong = rows[~_whole(column.numbers[rows])]
    if len(wrong):
        raise ValueError(
            f"{table.name}: target {column.name!r} is {column.word(int(wrong[0]))} in row "
            f"{wrong[0]} (counted from 0), which is not a class; pass task='regression'"
        )


def _as_flags(column: Column) -> npt.NDArray[np.bool_] | None:
    """Return a column of 0 and 1, or True and False, as (N,) bool; None for any other column."""
    codes, words = column.as_words
    truth = {"0": False, "1": True, "false": False, "true": True}
    if not all(word.casefold() in truth for word in words):
        return None
    flags: npt.NDArray[np.bool_] = np.array([*(truth[w.casefold()] for w in words), False])
    return flags[codes]


def _flag_matrix(part: Part, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    table, rows = part
    columns = []
    for name in names:
        flags = _as_flags(table.column(name, "target"))
        if flags is None:
            words = table.column(name).as_words[1]
            strange = next(w for w in words if w.casefold() not in ("0", "1", "true", "false"))
            raise ValueError(
                f"{table.name}: target {name!r} must be 0 and 1 for task='multilabel', it has "
                f"{strange!r}; pass one column as target, or task='regression'"
            )
        columns.append(flags[rows])
    return np.stack(columns, axis=1)


def _multilabel(
    codes: Mapping[str, npt.NDArray[np.int32]], words: Mapping[str, list[str]], separator: str
) -> ClassMap:
    cells = {
        split: [{part.strip() for part in word.split(separator)} - {""} for word in found]
        for split, found in words.items()
    }
    names = _ordered(set().union(*(cell for found in cells.values() for cell in found)))
    labels = {
        split: np.array([[n in cell for n in names] for cell in [*cells[split], set()]])[found]
        for split, found in codes.items()
    }
    return ClassMap(names, labels)


def _ordered(names: set[str]) -> list[str]:
    """Sort by number if all names are numbers, otherwise as strings."""
    try:
        return sorted(names, key=lambda name: (float(name), name))
    except ValueError:
        return sorted(names)
