"""Tables: CSV and Parquet, for classification and regression."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from .core.datamodule import SPLITS, DataModule, Split
from .settings.arguments import check_name
from .settings.class_map import given_classes
from .splits.groups import check_disjoint
from .splits.options import SplitOptions
from .splits.split import fingerprint
from .tables.dataset import OneHot, RowDataset, RowNames
from .tables.encode import EncodingCounts, pack
from .tables.features import fit_columns, input_sizes, numeric_names, one_hot_places, styles
from .tables.table import Table, listed, read_table
from .tables.table_splits import Part, column_values, split_by_column
from .tables.targets import Targets, check_target, class_map, find_task

OWN_COLUMNS = ("id_column", "group_column", "split_column")


class TabularDataModule(DataModule):
    """A table, or one each for train, val and test; one gather a batch, no workers.

    A batch::

        inputs  (N, F) float32                        without categories, or encode="onehot"
                TabularInputs(numeric     (N, F) float32,
                              categorical (N, G) int64)
        target  (N,) int64 class; (N, K) float32 of several labels;
                (N,) float32 number, or (N, T) for several targets

    Everything is learnt from train rows alone. Numbers are scaled to mean 0 and (population)
    standard deviation 1; a gap is filled with the median and, where train has gaps, flagged in a
    column of 0 and 1 of its own. ISO dates are numbers: days since 1970-01-01. Categories are
    codes: 0 missing, 1 a value that train never held, 2 and above its values in sorted order.
    ``print(dm)`` shows what was found and left out (``notes``).

    Args:
        path: CSV (gzip too) or Parquet; a table to be split, or train's.
        target: One column, or several.
        val_path: Table of the val split.
        test_path: Table of the test split.
        predict_path: Table to be predicted; needs no target.
        task: ``"multiclass"``, ``"multilabel"`` or ``"regression"``; None finds it: texts,
            True/False and few whole numbers are classes, other numbers regression.
        numeric: Columns to take as numbers; the kind of those in neither list is found.
        categorical: Columns to take as categories.
        drop: Columns that are left out.
        id_column: Names the rows in predictions and errors; never a feature.
        group_column: Keeps rows of one group on one side of the split; never a feature.
            The shares stay shares of rows, as near as whole groups allow; classes keep theirs.
            The same as ``split_options={"group": ...}``.
        split_column: Says train, val or test; never a feature. The same as
            ``split_options={"column": ...}``.
        encode: ``"codes"``, or ``"onehot"``: a column of 0 and 1 for each value.
        target_scaling: Scale regression targets as inputs are; models undo it, ``target_scale``.
        separator: Of CSV fields; None finds it, as the next two.
        decimal_comma: Whether ``1,5`` is a number.
        encoding: Of CSV text.
        null_values: Texts that mean a missing cell; None: ``NA``, ``NaN``, ``NULL`` and the like.
        column_names: Names for a CSV file without a header line.
        label_separator: Parts several labels in one cell, such as ``"|"``: multilabel.
        classes: Class names in the order of their index; None: those in train, sorted.
        unknown_classes: ``"raise"``, or ``"drop"`` evaluation rows of a class that train lacks,
            counted in a warning.
        **options: See :class:`~datamodules.core.datamodule.DataModule`.

    Raises:
        FileNotFoundError: If a table does not exist.
        ValueError: If table, columns or cells do not fit; the message says what was found.
    """

    def __init__(
        self,
        path: str | Path,
        target: str | list[str],
        *,
        val_path: str | Path | None = None,
        test_path: str | Path | None = None,
        predict_path: str | Path | None = None,
        task: Literal["multiclass", "multilabel", "regression"] | None = None,
        numeric: list[str] | None = None,
        categorical: list[str] | None = None,
        drop: list[str] | None = None,
        id_column: str | None = None,
        group_column: str | None = None,
        split_column: str | None = None,
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
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_name(encode, ["codes", "onehot"], "encode")
        check_name(unknown_classes, ["raise", "drop"], "unknown_classes")
        if task is not None:
            check_name(task, ["multiclass", "multilabel", "regression"], "task")
        self._own = {"id_column": id_column, "group_column": group_column}
        self._own["split_column"] = split_column
        for name, kind in (("group_column", "group"), ("split_column", "column")):
            named = (options.get("split_options") or {}).get(kind)
            if named is not None and self._own[name] is not None:
                raise ValueError(f"{name}= and split_options {kind!r} say the same; keep one")
            if isinstance(named, str):
                self._own[name] = named
        if group_column is not None:
            self._split_options = {**(self._split_options or {}), "group": group_column}
            SplitOptions.of(self._split_options)
        split_column = self._own["split_column"]
        if split_column is not None and SplitOptions.of(self._split_options).folds is not None:
            raise ValueError("split_column parts the rows, and so do folds; keep one")
        shares = options.get("val_split") or options.get("test_split")
        if split_column is not None and (val_path or test_path or shares):
            raise ValueError("split_column parts the rows; leave val_path, val_split and so on out")
        both = sorted(set(numeric or ()) & set(categorical or ()))
        if both:
            raise ValueError(f"{listed(both)} stands in numeric and in categorical; keep one")
        self.target = [target] if isinstance(target, str) else list(target)
        self._given_task = task or ("multilabel" if label_separator is not None else None)
        self._classes = given_classes(classes, None)
        self._predict_path = predict_path
        self._parts: dict[str, Part] = {}
        self._read_notes: list[str] = []
        self._targets: Targets | None = None
        self._predict: Table | None = None
        self._counts: dict[str, EncodingCounts] = {}

    # --- what the base asks for --------------------------------------------------------------

    def read(self) -> None:
        """Read the tables and decide the splits."""
        settings = self.hparams
        main = self._open(settings["path"])
        for option in ("numeric", "categorical", "drop", *OWN_COLUMNS):
            given = (self._own if option in OWN_COLUMNS else settings)[option] or []
            for name in [given] if isinstance(given, str) else given:
                main.check_name(name, f"{option}=")
        paths = {split: settings[f"{split}_path"] for split in ("val", "test")}
        tables = {split: self._open(path) for split, path in paths.items() if path}
        parts = {split: Part(t, np.arange(t.rows)) for split, t in tables.items()}
        whole = Part(main, np.arange(main.rows))
        if settings["label_separator"] is None:  # without labels a cell is empty
            check_target({"": whole} | parts, self.target)
        given = self._own["split_column"]
        self._parts = {} if given is None else split_by_column(main, given)
        known = self._given_task or self.fitted.get("task")
        self.task, why = find_task(self._parts.get("train", whole), self.target, known=known)
        self._read_notes = [f"target {listed(self.target)}: {self.task} ({why})", *main.notes]
        if given is None:
            cut = self._cut(whole, list(parts))
            self._parts = {split: Part(main, rows) for split, rows in cut.items()} | parts
            self._check_groups(list(parts))
        for split in SPLITS[:3] if given is not None else parts:
            self._limit(split)
        self._targets = None

    def fit(self) -> dict[str, Any]:
        """Kinds, fill values, scales, codes and classes of the train rows."""
        (table, rows), settings = self._parts["train"], self.hparams
        own = {*self._own.values(), *self.target}
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
        """Packed rows of one split, encoded by what was fitted."""
        target = None
        if split == "predict":
            if not self.fitted:
                self._ensure_read("fit")
            assert self._predict is not None
            table, rows = self._predict, np.arange(self._predict.rows)
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
        """Read the table that is to be predicted."""
        if self._predict_path is None:
            raise ValueError("pass predict_path=, the table to be predicted")
        self._predict = self._open(self._predict_path)

    def split_fingerprint(self) -> str:
        """Digest of each split's cells and rows."""
        parts: list[Any] = []
        for split, (table, rows) in sorted(self._parts.items()):
            parts += [split, table.digest, rows]
        return fingerprint(*parts)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what was fitted; see the base class."""
        super().load_state_dict(state_dict)
        self.task, self._targets = self.fitted["task"], None
        self._counts.clear()
        if any(style != "plain" for style in styles(self.fitted["features"]).values()):
            self._is_predict_read = False  # what 1.234 means, train knows

    # --- what a user asks for ----------------------------------------------------------------

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
        """Number of codes of each categorical column."""
        return list(self.input_sizes["cardinalities"])

    @property
    def notes(self) -> list[str]:
        """What was found and left out when the table was read and fitted."""
        return [*self._read_notes, *self._known("notes")]

    @property
    def predict_path(self) -> str | Path | None:
        """Table to be predicted; may be replaced."""
        return self._predict_path

    @predict_path.setter
    def predict_path(self, path: str | Path | None) -> None:
        self._predict_path, self._is_predict_read = path, False
        self._datasets.pop("predict", None)

    @property
    def predict_keys(self) -> list[str | int]:
        """Id of each predicted row, in order; its number, from 0, without an id column."""
        names = self.predict_dataset.names
        return [names.key(i) for i in range(len(self.predict_dataset))]

    def unseen_counts(self, split: Split) -> dict[str, int]:
        """Different values by column that train does not hold; they share code 1."""
        return {} if self._dataset(split) is None else dict(self._counts[split].unseen)

    def missing_counts(self, split: Split) -> dict[str, int]:
        """Missing cells by column, of columns without a gap in train: filled, not flagged."""
        return {} if self._dataset(split) is None else dict(self._counts[split].filled)

    def __str__(self) -> str:
        counts = [said for split, found in self._counts.items() for said in found.notes(split)]
        notes = [*self._read_notes, *self.fitted.get("notes", ())]
        return "\n  ".join([super().__str__(), *notes, *counts])

    # --- inside ------------------------------------------------------------------------------

    def _open(self, path: str | Path) -> Table:
        names = ("separator", "decimal_comma", "encoding", "null_values", "column_names")
        return read_table(
            path,
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

    def _check_groups(self, given: list[str]) -> None:
        """Refuse tables of their own that share a group with train or each other."""
        group = self._own["group_column"]
        if group is not None and given:
            parts = {split: self._parts[split] for split in ("train", *given)}
            groups = {s: column_values(p.table, group)[p.rows].tolist() for s, p in parts.items()}
            check_disjoint(groups, repr(group))

    def _limit(self, split: str) -> None:
        part = self._parts[split]
        if len(part.rows) and self.hparams["limit"] is not None:
            rows = self._limit_rows(split, part.rows, self._strata(part)[0])
            self._parts[split] = Part(part.table, rows)

    def _target_map(self) -> Targets:
        separator, unknown = self.hparams["label_separator"], self.hparams["unknown_classes"]
        self._targets = self._targets or Targets(
            self._parts, self.target, task=self.task, label_separator=separator, unknown=unknown
        )
        return self._targets
