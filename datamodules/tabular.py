"""Load tables for classification and regression: CSV, Parquet, DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np

from .core.datamodule import SPLITS, DataModule, Split
from .core.options import DataModuleOptions, refuse_renamed
from .core.settable import SettablePredictPath
from .readers.data_frame import Frame, placeholder
from .settings.arguments import check_name, given_again
from .settings.class_map import given_classes
from .splits.split import fingerprint
from .tables.dataset import OneHot, RowDataset, RowNames
from .tables.encode import EncodingCounts, pack
from .tables.features import fit_columns, input_sizes, numeric_names, one_hot_places, styles
from .tables.table import Table, listed, read_table
from .tables.table_splits import Part, check_groups, column_values, split_by_column
from .tables.targets import Targets, check_target, class_map, find_task

ROLES = ("numeric", "categorical", "drop", "id_column")


class TabularDataModule(SettablePredictPath, DataModule):
    """Rows of CSV, Parquet or a DataFrame; one gather per batch, no workers.

    A batch::

        inputs  (N, F) float32                        without categories, or encode="onehot"
                TabularInputs(numeric     (N, F) float32,
                              categorical (N, G) int64)
        target  (N,) int64 class; (N, K) float32 for multi-label data;
                (N,) float32 number, or (N, T) for several targets

    Everything is fitted on train rows only. Numbers are scaled to mean 0 and (population)
    standard deviation 1; missing values are imputed with the median and, if train has any,
    flagged in an extra column of 0 and 1. ISO dates are numbers: days since 1970-01-01.
    Categories become indices: 0 missing, 1 not in train, 2 and above the train values in sorted
    order. ``print(dm)`` shows the detected columns and those left out (``notes``).

    Args:
        path: CSV (gzip too) or Parquet file, or a polars or pandas DataFrame (its index is left
            out). It is split, or is the train table if the others are given.
        target: Target column, or several.
        val_path: Validation table, as ``path``.
        test_path: Test table.
        predict_path: Table to predict; needs no target.
        task: ``"multiclass"``, ``"multilabel"`` or ``"regression"``. Default: text, True/False and
            few whole numbers are classes, other numbers regression.
        numeric: Numeric columns; the type of columns in neither list is detected.
        categorical: Categorical columns.
        drop: Columns to leave out.
        id_column: Names the rows in predictions and errors; never a feature, as columns that
            ``split_options`` names as ``"group"`` or ``"column"``.
        encode: ``"codes"`` for category indices, or ``"onehot"``.
        target_scaling: Scale regression targets like inputs; models undo it, ``target_scale``.
        separator: Separator of CSV fields. Default: detected, as the next two.
        decimal_comma: Whether ``1,5`` is a number.
        encoding: Encoding of the CSV file.
        null_values: Texts that mean a missing value. Default: ``NA``, ``NaN``, ``NULL`` and such.
        column_names: Column names of a CSV file without a header line.
        label_separator: Separates several labels in one cell, such as ``"|"``: multi-label.
        classes: Class names in the order of their index. Default: the sorted names in train.
        unknown_classes: ``"raise"``, or ``"drop"`` (with a warning that counts them) evaluation
            rows of a class that is not in train.
        **options: See :class:`~datamodules.core.options.DataModuleOptions`.

    Raises:
        FileNotFoundError: If a table does not exist.
        ValueError: If table, columns or cells do not fit; the message says what was found.

    Example:
        >>> import polars as pl
        >>> df = pl.DataFrame({"size": range(40), "color": ["red", "blue"] * 20, "y": [0, 1] * 20})
        >>> dm = TabularDataModule(df, target="y", batch_size=16)
        >>> dm.feature_names, dm.categorical_names, dm.preview("train").inputs.categorical.shape
        (['size'], ['color'], torch.Size([16, 1]))
    """

    def __init__(
        self,
        path: str | Path | Frame,
        target: str | list[str],
        *,
        val_path: str | Path | Frame | None = None,
        test_path: str | Path | Frame | None = None,
        predict_path: str | Path | Frame | None = None,
        task: Literal["multiclass", "multilabel", "regression"] | None = None,
        numeric: list[str] | None = None,
        categorical: list[str] | None = None,
        drop: list[str] | None = None,
        id_column: str | None = None,
        encode: Literal["codes", "onehot"] = "codes",
        target_scaling: bool = False,
        separator: str | None = None,
        decimal_comma: bool | None = None,
        encoding: str | None = None,
        null_values: list[str] | None = None,
        column_names: list[str] | None = None,
        label_separator: str | None = None,
        classes: list[str] | None = None,
        unknown_classes: Literal["raise", "drop"] = "raise",
        **options: Unpack[DataModuleOptions],
    ) -> None:
        refuse_renamed(TabularDataModule, options)
        self._tables = {"train": path, "val": val_path, "test": test_path}
        self._predict_path = predict_path
        # the hyperparameters are the locals here: they keep a name in place of a DataFrame
        path, predict_path = placeholder(path), placeholder(predict_path)
        val_path, test_path = placeholder(val_path), placeholder(test_path)
        super().__init__(**options)
        check_name(encode, ["codes", "onehot"], "encode")
        check_name(unknown_classes, ["raise", "drop"], "unknown_classes")
        if task is not None:
            check_name(task, ["multiclass", "multilabel", "regression"], "task")
        given = [f"{name}_path" for name in ("val", "test") if self._tables[name] is not None]
        given += [name for name in ("val_split", "test_split") if self.hparams[name]]
        if self._named("column") is not None and given:
            raise ValueError(f"split_options has column, which decides; leave {given[0]} out")
        both = sorted(set(numeric or ()) & set(categorical or ()))
        if both:
            raise ValueError(f"{listed(both)} is in numeric and in categorical; keep one")
        self.target = [target] if isinstance(target, str) else list(target)
        self._given_task = task or ("multilabel" if label_separator is not None else None)
        self._classes = given_classes(classes, None)
        self._parts: dict[str, Part] = {}
        self._read_notes: list[str] = []
        self._targets: Targets | None = None
        self._predict: Table | None = None
        self._counts: dict[str, EncodingCounts] = {}

    # --- hooks of DataModule -----------------------------------------------------------------

    def read(self) -> None:
        """Read the tables and decide the splits."""
        main = self._open(self._tables["train"], "path")
        roles = {f"{name}=": self.hparams[name] for name in ROLES}
        roles |= {f"split_options {name!r}": self._named(name) for name in ("group", "column")}
        for role, names in roles.items():
            for name in [names] if isinstance(names, str) else names or ():
                main.check_name(name, role)
        given = [split for split in ("val", "test") if self._tables[split] is not None]
        parts = {s: Part.of(self._open(self._tables[s], f"{s}_path")) for s in given}
        whole = Part.of(main)
        if self.hparams["label_separator"] is None:  # a cell without labels is empty
            check_target({"": whole} | parts, self.target)
        column = self._named("column")
        self._parts = {} if column is None else split_by_column(main, column)
        known = self._given_task or self.fitted.get("task")
        self.task, why = find_task(self._parts.get("train", whole), self.target, known=known)
        self._read_notes = [f"target {listed(self.target)}: {self.task} ({why})", *main.notes]
        if column is None:
            cut = self._cut(whole, given)
            self._parts = {split: Part(main, rows) for split, rows in cut.items()} | parts
            check_groups(self._parts, self._named("group"), given)
        for split in SPLITS[:3] if column is not None else parts:
            part = self._parts[split]
            if len(part.rows) and self.hparams["limit"] is not None:
                rows = self._limit_rows(split, part.rows, self._strata(part)[0])
                self._parts[split] = Part(part.table, rows)
        self._targets = None

    def fit(self) -> dict[str, Any]:
        """Return column types, medians, scales, categories and classes of the train rows."""
        (table, rows), settings = self._parts["train"], self.hparams
        own = {settings["id_column"], self._named("group"), self._named("column"), *self.target}
        names = [name for name in table.columns if name not in own]
        kinds = {kind: settings[kind] or () for kind in ("numeric", "categorical")}
        features, notes = fit_columns(table, rows, names, **kinds)
        return {
            "task": self.task,
            "features": features,
            "notes": notes,
            "input_sizes": input_sizes(features, one_hot=settings["encode"] == "onehot"),
            **self._target_map().fit(classes=self._classes, scaling=settings["target_scaling"]),
        }

    def dataset(self, split: Split) -> RowDataset | None:
        """Return the rows of one split, encoded by the fitted state."""
        target = None
        if split == "predict":
            if not self.fitted:
                self._ensure_read("fit")
            assert self._predict is not None
            table, rows = Part.of(self._predict)
        elif split not in self._parts or not len(self._parts[split].rows):
            return None
        else:
            table = self._parts[split].table
            rows, target = self._target_map().encode(split, self.fitted)
        features = self.fitted["features"]
        packed, self._counts[split] = pack(table, rows, features, target)
        name = self.hparams["id_column"]
        return RowDataset(
            packed,
            flat_target=self.task == "regression" and len(self.target) == 1,
            one_hot=OneHot.of(features) if self.hparams["encode"] == "onehot" else None,
            names=RowNames(table.name, rows, name and table.column(name, "id_column")),
        )

    def read_predict(self) -> None:
        """Read the table to predict."""
        if self._predict_path is None:
            raise ValueError("pass predict_path=, the table to predict")
        self._predict = self._open(self._predict_path, "predict_path")

    def split_fingerprint(self) -> str:
        """Return a digest of each split's cells and rows."""
        parts: list[Any] = []
        for split, (table, rows) in sorted(self._parts.items()):
            parts += [split, table.digest, rows]
        return fingerprint(*parts)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the fitted state; see :class:`~datamodules.core.datamodule.DataModule`."""
        super().load_state_dict(state_dict)
        self.task, self._targets = self.fitted["task"], None
        self._counts.clear()
        if any(style != "plain" for style in styles(self.fitted["features"]).values()):
            self._is_predict_read = False  # whether 1.234 is 1234 follows from train

    # --- attributes for users ----------------------------------------------------------------

    @property
    def num_targets(self) -> int:
        """Number of targets in regression."""
        return int(self._known("num_targets"))

    @property
    def target_scale(self) -> dict[str, list[float]] | None:
        """``{"mean": [...], "std": [...]}`` that regression targets are scaled by, or None."""
        return self._known("target_scale")  # type: ignore[no-any-return]

    @property
    def feature_names(self) -> list[str]:
        """Names of the numeric columns of a batch: numbers, missing flags, one-hot columns."""
        features = self._known("features")
        one_hot = one_hot_places(features)[1] if self.hparams["encode"] == "onehot" else []
        return numeric_names(features) + one_hot

    @property
    def categorical_names(self) -> list[str]:
        """Names of the categorical columns of a batch, in their order."""
        names = [f["name"] for f in self._known("features") if f["kind"] == "categorical"]
        return names if self.hparams["encode"] == "codes" else []

    @property
    def cardinalities(self) -> list[int]:
        """Number of category indices of each categorical column."""
        return list(self.input_sizes["cardinalities"])

    @property
    def notes(self) -> list[str]:
        """Detected columns, and columns left out, with reasons."""
        return [*self._read_notes, *self._known("notes")]

    @property
    def predict_keys(self) -> list[str | int]:
        """Id of each predicted row, in order; without an id column its number, from 0."""
        names = self.predict_dataset.names
        return [names.key(i) for i in range(len(self.predict_dataset))]

    def unseen_counts(self, split: Split) -> dict[str, int]:
        """Return the number of distinct values not in train, by column; their index is 1."""
        return {} if self._dataset(split) is None else dict(self._counts[split].unseen)

    def missing_counts(self, split: Split) -> dict[str, int]:
        """Return the number of imputed cells by column, for columns complete in train (no flag)."""
        return {} if self._dataset(split) is None else dict(self._counts[split].filled)

    def __str__(self) -> str:
        counts = [line for split, counted in self._counts.items() for line in counted.notes(split)]
        notes = [*self._read_notes, *self.fitted.get("notes", ())]
        return "\n  ".join([super().__str__(), *notes, *counts])

    # --- inside ------------------------------------------------------------------------------

    def _named(self, option: str) -> str | None:
        """Return the column that a split option names, or None."""
        given = (self._split_options or {}).get(option)
        return given if isinstance(given, str) else None

    def _open(self, path: str | Path | Frame, argument: str) -> Table:
        names = ("separator", "decimal_comma", "encoding", "null_values", "column_names")
        return read_table(
            given_again(path, argument),
            argument=argument,
            **{name: self.hparams[name] for name in names},
            skip=self.hparams["drop"] or (),
            styles=styles(self.fitted.get("features", ())),
        )

    def _cut(self, whole: Part, given: list[str]) -> dict[str, np.ndarray[Any, Any]]:
        table, name = whole.table, self.hparams["id_column"]
        labels, classes = self._strata(whole)
        ids = RowNames(table.name, whole.rows, name and table.column(name, "id_column"))
        return self.split_samples(
            table.rows,
            labels=labels,
            names=classes,
            given=given,
            column=lambda name: column_values(table, name),
            keys=lambda: [ids.key(row) for row in range(table.rows)],
        )

    def _strata(self, part: Part) -> tuple[np.ndarray[Any, Any] | None, list[str] | None]:
        if self.task != "multiclass":
            return None, None
        found = class_map({"": part}, self.target, task=self.task)
        return found.labels[""], found.names

    def _target_map(self) -> Targets:
        separator, unknown = self.hparams["label_separator"], self.hparams["unknown_classes"]
        self._targets = self._targets or Targets(
            self._parts, self.target, task=self.task, label_separator=separator, unknown=unknown
        )
        return self._targets
