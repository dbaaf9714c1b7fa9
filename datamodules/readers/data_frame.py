"""Recognize polars and pandas DataFrames and copy them to polars frames."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

Frame = Any
"""A polars or pandas DataFrame; neither library is imported to say so."""


def is_frame(value: Any) -> bool:
    """Return whether a value is a polars or pandas DataFrame, without importing either.

    Raises:
        ValueError: For a polars LazyFrame, which has no rows yet.

    Example:
        >>> import polars as pl
        >>> is_frame(pl.DataFrame({"a": [1]})), is_frame("rows.csv")
        (True, False)
    """
    if isinstance(value, str | Path | list | tuple) or value is None:
        return False
    names = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(value).__mro__}
    if ("polars", "LazyFrame") in names:
        raise ValueError("expected a DataFrame, got a LazyFrame; call .collect() on it first")
    return bool(names & {("polars", "DataFrame"), ("pandas", "DataFrame")})


def placeholder(value: Any) -> Any:
    """Return ``"<DataFrame>"`` or ``"<list>"`` for data in memory, any other value unchanged.

    Hyperparameters keep it in place of the data, which Lightning would copy.
    """
    in_memory = isinstance(value, list | tuple) or is_frame(value)
    return f"<{type(value).__name__}>" if in_memory else value


def to_polars(frame: Frame, name: str) -> pl.DataFrame:
    """Copy a DataFrame to polars; the index of a pandas DataFrame is left out.

    Args:
        frame: A polars or pandas DataFrame. It is not modified.
        name: The frame's name, for messages.

    Returns:
        The same columns, with column names as strings. Types are kept: a string column stays one.
        NaN, None, NaT and pandas' NA in a column that is not float become null.

    Raises:
        ValueError: If two columns have the same name, or a pandas column mixes types.
    """
    import polars as pl

    if isinstance(frame, pl.DataFrame):
        return frame.clone()
    names = [str(column) for column in frame.columns]
    twice = sorted({column for column in names if names.count(column) > 1})
    if twice:
        raise ValueError(f"{name} has two columns {twice[0]!r}; rename one of them")
    columns = [_series(frame.iloc[:, k], column, name) for k, column in enumerate(names)]
    return pl.DataFrame(columns)


def _series(column: Any, label: str, name: str) -> pl.Series:
    """Convert one pandas column; through NumPy if its dtype allows, else cell by cell."""
    import polars as pl

    if getattr(column.dtype, "tz", None) is not None:  # UTC: the moments stay the same
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    kind = column.dtype.kind
    if type(column.dtype).__module__.startswith("numpy") and kind in "biufmM":
        values = column.to_numpy()
        if kind == "f" and column.dtype.itemsize == 2:  # polars has no float16
            values = values.astype("float32")
        if kind in "mM":  # polars has no seconds
            values = values.astype(f"{kind}8[{'us' if column.dtype.name[-3:-1] != 'ns' else 'ns'}]")
        return pl.Series(label, values)
    missing = column.isna().tolist()
    cells = [None if gone else cell for cell, gone in zip(column.tolist(), missing, strict=True)]
    try:
        return pl.Series(label, cells, strict=True)
    except (TypeError, pl.exceptions.PolarsError) as error:
        kinds = sorted({type(cell).__name__ for cell in cells if cell is not None})
        raise ValueError(
            f"{name}: column {label!r} mixes {' and '.join(kinds)}; convert it to one type, such "
            f"as df[{label!r}].astype(str)"
        ) from error
