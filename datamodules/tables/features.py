"""Fit features on train rows: kind, imputed value, scale and categories of each column."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from datamodules.seeding.sample_seeds import Indices

from .column import Column
from .table import Table, listed

Feature = dict[str, Any]
MISSING, UNSEEN, FIRST = 0, 1, 2
# Numbers with some words among them ("unknown"): either kind would be silently wrong.
FEW_CELLS, FEW_WORDS, MOSTLY_NUMBERS = 0.1, 10, 0.5
# A string that rarely repeats is a name of its row, not a category.
MOSTLY_UNIQUE, ENOUGH_ROWS = 0.9, 20
ROW_NUMBERS = ("id", "index", "row", "rownames", "unnamed: 0", "unnamed_0", "__index_level_0__")
# Fewer numbers are sorted whole; the bounds are quantiles of the sorted sample, five standard
# deviations from the median of unordered numbers.
MANY_NUMBERS, SAMPLE, LOWER, UPPER = 50_000, 4096, 0.46, 0.54
TWO_VALUED = ({"true", "false"}, {"yes", "no"}, {"y", "n"}, {"t", "f"})


def fit_columns(
    table: Table,
    rows: Indices,
    names: Sequence[str],
    *,
    numeric: Collection[str] = (),
    categorical: Collection[str] = (),
) -> tuple[list[Feature], list[str]]:
    """Detect the kind of each column and fit it on train rows.

    Numbers and dates are numeric, other columns are categorical. Unless the user lists them, some
    columns are left out with a note: empty columns, constant columns (but not True/False, whose
    other value is known), strings that rarely repeat, and row numbers.

    Args:
        table: The table.
        rows: (M,) int64, train rows.
        names: Columns that may become features.
        numeric: Columns that are numeric.
        categorical: Columns that are categorical.

    Returns:
        One dict of plain types per feature, numeric features first, and notes. Numeric:
        ``name, kind, style, fill, mean, std, gaps``; categorical: ``name, kind, values, gaps``.
        ``gaps``: whether there are missing values in train; ``fill``: their imputed value.

    Raises:
        ValueError: If a column cannot be parsed as its kind (names column, rows and remedy), or no
            feature or no row is left.
    """
    if not len(rows):
        raise ValueError(f"no train rows are left of {table.name}; lower val_split and test_split")
    features: list[Feature] = []
    notes: list[str] = []
    left_out: dict[str, list[str]] = defaultdict(list)
    room = np.empty(len(rows))
    for name in names:
        column, given = table.column(name, "feature"), name in numeric or name in categorical
        if not given and _is_row_number(column):
            left_out["row numbers"].append(name)
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
            notes += _similar_values(feature)
    notes += [f"left out: {listed(found)} ({reason})" for reason, found in left_out.items()]
    if not features:
        reasons = "; ".join(notes) or "it has no column beside the target"
        raise ValueError(f"{table.name} has no feature column left: {reasons}")
    features = sorted(features, key=lambda f: f["kind"] == "categorical")
    categories, columns = len(cardinalities(features)), len(numeric_names(features))
    numbers = len(features) - categories
    summary = f"{numbers} numbers, {columns - numbers} missing flags, {categories} categories"
    return features, [f"features: {summary}", *notes]


def numeric_names(features: Sequence[Feature]) -> list[str]:
    """Return the names of the numeric columns of a batch, missing flags last."""
    numbers = [f for f in features if f["kind"] == "numeric"]
    return [f["name"] for f in numbers] + [f"{f['name']} missing" for f in numbers if f["gaps"]]


def cardinalities(features: Sequence[Feature]) -> list[int]:
    """Return the number of indices of each categorical column, including missing and unseen."""
    return [FIRST + len(f["values"]) for f in features if f["kind"] == "categorical"]


def one_hot_places(features: Sequence[Feature]) -> tuple[list[list[int]], list[str]]:
    """Return the one-hot column of each category index, and the names of these columns.

    Each value of train has a column, and missing cells if train has any; -1: no column.
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
    """Return the input sizes of a model: ``{"num_numeric": F, "cardinalities": [...]}``."""
    width, cards = len(numeric_names(features)), cardinalities(features)
    if one_hot:
        width, cards = width + len(one_hot_places(features)[1]), []
    return {"num_numeric": width, "cardinalities": cards}


def styles(features: Sequence[Feature]) -> Mapping[str, Any]:
    """Return the number format by column."""
    return {f["name"]: f["style"] for f in features if f["kind"] == "numeric"}


def check_numbers(table: Table, column: Column, rows: Indices) -> None:
    """Raise an error if a numeric column has strings or infinity.

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
            f"{table.name}: {column.name!r} is infinite in {len(infinite)} rows: "
            f"{listed([str(r) for r in infinite], 3)} (counted from 0); fix them, pass "
            "null_values=['inf', '-inf'] to treat it as missing, or drop the column"
        )


def _is_row_number(column: Column) -> bool:
    if column.numbers is None or column.name.casefold() not in ROW_NUMBERS:
        return False
    first = column.numbers[0]
    return first in (0, 1) and np.array_equal(column.numbers, first + np.arange(len(column)))


def _kind(table: Table, column: Column, rows: Indices) -> str:
    if column.codes is None:
        return "numeric"
    has_exact = column.exact is not None and column.exact[rows].any()
    if column.text or has_exact or column.numbers is None:
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
        f"{table.name}: {column.name!r} has {len(words)} cells that are not numbers{among}: "
        f"{', '.join(map(repr, found))} in rows {listed([str(r) for r in words], 3)} (counted "
        f"from 0); fix them, pass null_values={found} if they are missing values, or "
        f"categorical=[{column.name!r}]"
    )


def _fit_numeric(
    table: Table, column: Column, rows: Indices, room: npt.NDArray[np.float64]
) -> tuple[Feature, str]:
    check_numbers(table, column, rows)
    assert column.numbers is not None
    # into the same memory for each column: allocating it costs more than the gather
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
            return feature, "empty in train"
        feature["fill"] = values[gaps] = median(values[~gaps])
    else:
        feature["fill"] = median(values)
    varies = bool(values[0] != values[-1] or (values != values[0]).any())
    mean = values.mean()
    feature["mean"] = float(mean)
    if varies:
        values -= mean  # as np.std, but in place
        values *= values
        feature["std"] = float(np.sqrt(values.sum() / len(values)))
    constant = len(rows) > 1 and not feature["gaps"] and not varies
    return feature, "one value in train" if constant else ""


def median(values: npt.NDArray[np.float64]) -> float:
    """Return ``np.median(values)`` to the bit, in a third of its time for many numbers.

    A sample gives bounds of the median, and only the numbers between them are sorted; if the
    median is not between them, all are sorted.

    Args:
        values: (N,) float64, N >= 1, without NaN.

    Example:
        >>> median(np.array([3.0, 1.0, 2.0, 7.0]))
        2.5
    """
    n = len(values)
    if n >= MANY_NUMBERS:
        sample = np.sort(values[:: n // SAMPLE])
        low, high = sample[int(LOWER * len(sample))], sample[int(UPPER * len(sample))]
        is_below = values < low
        below = int(np.count_nonzero(is_below))
        between = values[~is_below & (values <= high)]
        a, b = (n - 1) // 2 - below, n // 2 - below
        if a >= 0 and b < len(between) <= n // 2:
            middle = np.partition(between, (a, b))
            return float(middle[a] if a == b else (middle[a] + middle[b]) / 2)
    return float(np.median(values))


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
        return feature, "empty in train"
    if present >= ENOUGH_ROWS and len(values) > MOSTLY_UNIQUE * present:
        return feature, "nearly every row has another string; categorical= keeps it"
    flag = any(values[0].casefold() in pair for pair in TWO_VALUED)
    constant = len(values) == 1 and len(rows) > 1 and not feature["gaps"] and not flag
    return feature, "one value in train" if constant else ""


def _similar_values(feature: Feature) -> list[str]:
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
