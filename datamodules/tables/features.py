"""What a model sees of a table: kinds, fill values, scales and codes, fitted on train rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from datamodules.seeding.sample_seeds import Indices

from .column import Column
from .median import median
from .table import Table, listed

Room = npt.NDArray[np.float64]
Feature = dict[str, Any]
MISSING, UNSEEN, FIRST = 0, 1, 2
# Quantities with some words among them ("unknown"): either reading would be wrong in silence.
FEW_CELLS, FEW_WORDS, MOSTLY_NUMBERS = 0.1, 10, 0.5
# A text that hardly ever comes twice names its row; a code for it would mean nothing later.
MOSTLY_UNIQUE, ENOUGH_ROWS = 0.9, 20
ROW_NUMBERS = ("id", "index", "row", "rownames", "unnamed: 0", "unnamed_0", "__index_level_0__")
TWO_VALUED = ({"true", "false"}, {"yes", "no"}, {"y", "n"}, {"t", "f"})


def fit_columns(
    table: Table,
    rows: Indices,
    names: Sequence[str],
    *,
    numeric: Collection[str] = (),
    categorical: Collection[str] = (),
) -> tuple[list[Feature], list[str]]:
    """Decide the kind of each column and learn its numbers from ``rows`` alone.

    Numbers and dates are numeric, all else is a category. Left out with a note, unless the user
    lists them: columns that hold nothing or one value only (a True/False column stays: its other
    value is known), texts that hardly ever come twice, and row numbers.

    Args:
        table: The table.
        rows: (M,) int64, train rows.
        names: Columns that may become features.
        numeric: Columns that the user calls numeric.
        categorical: Columns that the user calls categories.

    Returns:
        One dict of plain types a feature column, numeric ones first, and notes. Numeric:
        ``name, kind, style, fill, mean, std, gaps``; categorical: ``name, kind, values, gaps``.

    Raises:
        ValueError: If a column cannot be read as its kind (names column, rows and remedy), no
            feature is left, or no row.
    """
    if not len(rows):
        raise ValueError(f"no train rows are left of {table.name}; lower val_split and test_split")
    features: list[Feature] = []
    notes: list[str] = []
    left_out: dict[str, list[str]] = defaultdict(list)
    room = np.empty(len(rows))
    for name in names:
        column, given = table.column(name, "feature"), name in numeric or name in categorical
        if not given and _counts_rows(column):
            left_out["numbers its row"].append(name)
            continue
        kind = "numeric" if name in numeric else "categorical" if name in categorical else None
        kind = kind or _kind(table, column, rows)
        feature, reason = (
            _fit_numeric(table, column, rows, room)
            if kind == "numeric"
            else _fit_categorical(table, column, rows)
        )
        if reason and not given:
            left_out[reason].append(name)
        else:
            features.append(feature)
            notes += _alike(feature)
    notes += [f"left out: {listed(found)} ({reason})" for reason, found in left_out.items()]
    if not features:
        said = "; ".join(notes) or "it has no column beside the target"
        raise ValueError(f"{table.name} has no feature column left: {said}")
    features = sorted(features, key=lambda f: f["kind"] == "categorical")
    categories = len(cardinalities(features))
    numbers, flags = len(features) - categories, len(numeric_names(features)) + categories
    flags -= len(features)
    said = f"features: {numbers} numbers, {flags} missing flags, {categories} categories"
    return features, [said, *notes]


def numeric_names(features: Sequence[Feature]) -> list[str]:
    """Names of the numeric columns of a batch, missing flags last."""
    numbers = [f for f in features if f["kind"] == "numeric"]
    return [f["name"] for f in numbers] + [f"{f['name']} missing" for f in numbers if f["gaps"]]


def cardinalities(features: Sequence[Feature]) -> list[int]:
    """Number of codes of each categorical column, missing and unseen among them."""
    return [FIRST + len(f["values"]) for f in features if f["kind"] == "categorical"]


def one_hot_places(features: Sequence[Feature]) -> tuple[list[list[int]], list[str]]:
    """Place of each code among columns of 0 and 1, and the names of those.

    Each value of train has a place, and a missing cell where train has gaps; -1 has none.
    """
    places: list[list[int]] = []
    names: list[str] = []
    for feature in features:
        if feature["kind"] == "categorical":
            flags = [f"{feature['name']} missing"] if feature["gaps"] else []
            flags += [f"{feature['name']}={value}" for value in feature["values"]]
            ranks = range(len(names), len(names) + len(flags))
            missing = [ranks[0]] if feature["gaps"] else [-1]
            places.append([*missing, -1, *ranks[len(flags) - len(feature["values"]) :]])
            names += flags
    return places, names


def input_sizes(features: Sequence[Feature], *, one_hot: bool) -> dict[str, Any]:
    """What sizes a net: ``{"num_numeric": F, "cardinalities": [...]}``."""
    width, cards = len(numeric_names(features)), cardinalities(features)
    if one_hot:
        width, cards = width + len(one_hot_places(features)[1]), []
    return {"num_numeric": width, "cardinalities": cards}


def styles(features: Sequence[Feature]) -> Mapping[str, Any]:
    """How numbers are written, by column."""
    return {f["name"]: f["style"] for f in features if f["kind"] == "numeric"}


def check_numbers(table: Table, column: Column, rows: Indices) -> None:
    """Refuse words and infinity in a column that train knows as numbers.

    Raises:
        ValueError: Names column, rows and remedy.
    """
    words = column.words_in(rows)
    if len(words):
        _refuse_words(table, column, words)
    assert column.numbers is not None
    if column.finite:
        return
    infinite = rows[np.isinf(column.numbers[rows])]
    if len(infinite):
        raise ValueError(
            f"{table.name}: {column.name!r} holds infinity in {len(infinite)} rows: "
            f"{listed([str(r) for r in infinite], 3)} (counted from 0); mend them, pass "
            "null_values=['inf', '-inf'] to read it as missing, or drop the column"
        )


def _counts_rows(column: Column) -> bool:
    if column.numbers is None or column.name.casefold() not in ROW_NUMBERS:
        return False
    first = column.numbers[0]
    return first in (0, 1) and np.array_equal(column.numbers, first + np.arange(len(column)))


def _kind(table: Table, column: Column, rows: Indices) -> str:
    if column.codes is None:
        return "numeric"
    names = column.exact is not None and column.exact[rows].any()
    if column.text or names or column.numbers is None:
        return "categorical"
    words = column.words_in(rows)
    present = len(rows) - int(column.missing[rows].sum())
    if not len(words):
        return "numeric"
    share, different = len(words) / present, len({column.word(r) for r in words.tolist()})
    few = share <= FEW_CELLS or (share <= MOSTLY_NUMBERS and different <= FEW_WORDS)
    values = column.numbers[rows]
    if few and len(np.unique(values[~np.isnan(values)])) > FEW_WORDS:
        _refuse_words(table, column, words, f" among {present - len(words)} numbers")
    return "categorical"


def _refuse_words(table: Table, column: Column, words: Indices, among: str = "") -> None:
    found = list(dict.fromkeys(column.word(row) for row in words[:50].tolist()))[:3]
    raise ValueError(
        f"{table.name}: {column.name!r} holds {len(words)} cells that are no numbers{among}: "
        f"{', '.join(map(repr, found))} in rows {listed([str(r) for r in words], 3)} (counted "
        f"from 0); mend them, pass null_values={found} where they mean a missing cell, or "
        f"categorical=[{column.name!r}]"
    )


def _fit_numeric(table: Table, column: Column, rows: Indices, room: Room) -> tuple[Feature, str]:
    check_numbers(table, column, rows)
    assert column.numbers is not None
    # into the same memory for each column: new memory of this size costs more than the gather
    values = column.numbers.take(rows, out=room, mode="clip")
    gaps = np.zeros(0, np.bool_) if column.finite else np.isnan(values)
    feature = {
        "name": column.name,
        "kind": "numeric",
        "style": column.style,
        "fill": 0.0,
        "mean": 0.0,
        "std": 1.0,
        "gaps": bool(gaps.any()),
    }
    if feature["gaps"]:
        if gaps.all():
            return feature, "holds nothing in train"
        feature["fill"] = values[gaps] = median(values[~gaps])
    else:
        feature["fill"] = median(values)
    varies = bool(values[0] != values[-1] or (values != values[0]).any())
    mean = values.mean()
    feature["mean"] = float(mean)
    if varies:
        values -= mean  # what NumPy's std does, but in place
        values *= values
        feature["std"] = float(np.sqrt(values.sum() / len(values)))
    constant = len(rows) > 1 and not feature["gaps"] and not varies
    return feature, "holds one value in train" if constant else ""


def _fit_categorical(table: Table, column: Column, rows: Indices) -> tuple[Feature, str]:
    codes, words = column.as_words
    gaps, *counts = np.bincount(codes[rows] + 1, minlength=len(words) + 1)  # -1 where missing
    present = len(rows) - int(gaps)
    values = [word for word, count in zip(words, counts, strict=True) if count]
    feature = {
        "name": column.name,
        "kind": "categorical",
        "values": values,
        "gaps": bool(gaps),
    }
    if not values:
        return feature, "holds nothing in train"
    if present >= ENOUGH_ROWS and len(values) > MOSTLY_UNIQUE * present:
        return feature, "nearly every row has a text of its own; categorical= keeps it"
    flag = any(values[0].casefold() in pair for pair in TWO_VALUED)
    constant = len(values) == 1 and len(rows) > 1 and not feature["gaps"] and not flag
    return feature, "holds one value in train" if constant else ""


def _alike(feature: Feature) -> list[str]:
    seen: dict[str, str] = {}
    for value in feature.get("values", ())[:10_000]:
        folded = value.strip().casefold()
        if folded in seen:
            return [
                f"{feature['name']}: {seen[folded]!r} and {value!r} differ in blanks or case "
                "only and are kept apart"
            ]
        seen[folded] = value
    return []
