"""Read a table of file names and labels, and find the files."""

from __future__ import annotations

import logging
import posixpath
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from datamodules.readers.data_frame import Frame, is_frame, to_polars
from datamodules.readers.folders import contents
from datamodules.settings.arguments import did_you_mean, plain

from .listing import list_images

log = logging.getLogger(__name__)
ENDINGS = (".csv", ".txt", ".tsv", ".tab", ".parquet", ".pq")


class LabelTable(NamedTuple):
    """One row per image, in the order of the table.

    Attributes:
        paths: N paths.
        classes: K sorted names.
        labels: (N,) int64 indices into ``classes``, or (N, K) bool if multi-label.
        extra: (N,) cells of each column of ``extra``.
    """

    paths: list[str]
    classes: list[str]
    labels: npt.NDArray[Any]
    extra: Mapping[str, npt.NDArray[Any]] = MappingProxyType({})


def is_multilabel(
    table: str | Path | Frame | None, target: str | Sequence[str], label_separator: str | None
) -> bool:
    """Return whether the options mean multi-label targets.

    Raises:
        ValueError: If the options contradict each other.
    """
    columns = not isinstance(target, str)
    if columns and label_separator is not None:
        raise ValueError("label_separator splits one column, but target has several")
    multilabel = columns or label_separator is not None
    if multilabel and (table is None or not target or label_separator == ""):
        raise ValueError(
            "multi-label targets need table=, and target= with one or more columns or a "
            f"label_separator= that is not empty; got table={plain(table)}, target={target}, "
            f"label_separator={label_separator!r}"
        )
    return multilabel


def read_label_table(
    table: str | Path | Frame,
    root: Path,
    *,
    file_column: str,
    target: str | Sequence[str],
    label_separator: str | None = None,
    extra: Sequence[str] = (),
) -> LabelTable:
    """Read CSV (separator by ending) or Parquet and find the file of each row under ``root``.

    Names may omit the ending and the folders if only one file matches; an exact path has priority.

    Args:
        table: A file, relative to ``root`` or to the working directory; or a polars or pandas
            DataFrame.
        root: Folder of the images.
        file_column: Column of file names.
        target: Column of labels, or several of 0 and 1.
        label_separator: Separates several labels in one cell.
        extra: Other columns to keep.

    Raises:
        FileNotFoundError: If the table or the file of a row does not exist.
        ValueError: If the table cannot be read, a column or a label is missing, or a file appears
            twice.
    """
    columns = [target] if isinstance(target, str) else list(target)
    if is_frame(table):
        frame, source = to_polars(table, "table=DataFrame"), "table=DataFrame"
    else:
        file = _table_file(Path(table).expanduser(), root)
        frame, source = _read(file), file.name
    if not len(frame):
        raise ValueError(f"{source} has a header and no rows")
    for column in (file_column, *columns, *extra):
        if column not in frame.columns:
            hint = did_you_mean(column, frame.columns)
            if frame.width == 1:
                hint = "is it separated by commas (.csv) or tabs (.tsv)? "
            raise ValueError(
                f"{source} has no column {column!r}; {hint}it has {', '.join(frame.columns)}"
            )
        empty = [
            row
            for row, value in enumerate(frame[column].to_list())
            if value is None or value == "" or value != value  # the last: NaN
        ]
        if empty:
            raise ValueError(
                f"{source} has {len(empty)} rows without {column!r}, the first is row "
                f"{empty[0]} (counted from 0 after the header); add the values or delete the rows"
            )
    names = [str(name) for name in frame[file_column].to_list()]
    paths = _find(names, root, source, file_column)
    kept = {name: np.array(frame[name].to_list(), object) for name in extra}
    if isinstance(target, str) and label_separator is None:
        classes, indices = np.unique([str(v) for v in frame[target]], return_inverse=True)
        return LabelTable(paths, classes.tolist(), indices.astype(np.int64), kept)
    if isinstance(target, str):
        cells = [
            {label.strip() for label in str(value).split(label_separator)} - {""}
            for value in frame[target]
        ]
        names = sorted(set().union(*cells))
        flags = np.array([[name in cell for name in names] for cell in cells])
        return LabelTable(paths, names, flags, kept)
    matrix = np.stack([_flags(frame[c].to_list(), c, source) for c in columns], axis=1)
    return LabelTable(paths, columns, matrix, kept)


def _table_file(table: Path, root: Path) -> Path:
    for candidate in (root / table, table):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(
        f"table {str(table)!r} exists neither under root nor in the working directory; "
        f"{root}: {contents(root)}"
    )


def _read(table: Path) -> Any:
    import polars

    ending = Path(table.name.lower().removesuffix(".gz")).suffix
    if ending not in ENDINGS:
        raise ValueError(f"table must end in one of {', '.join(ENDINGS)}, got {table.name!r}")
    try:
        if ending in (".parquet", ".pq"):
            frame = polars.read_parquet(table)
        else:
            separator = "\t" if ending in (".tsv", ".tab") else ","
            # all columns as text: '007' is a name, not a number
            frame = polars.read_csv(table, separator=separator, infer_schema=False)
    # polars raises OSError for damaged gzip
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        reason = str(error).split("\n", 1)[0]
        remedy = "save it as UTF-8" if "utf-8" in reason.lower() else "export it again"
        raise ValueError(f"{table.name} cannot be read as a table: {reason}; {remedy}") from error
    return frame


def _flags(values: list[Any], column: str, table: str) -> npt.NDArray[np.bool_]:
    known = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
    flags = np.empty(len(values), bool)
    for row, value in enumerate(values):
        if str(value).lower() not in known:
            raise ValueError(
                f"{table}: column {column!r} of several label columns must contain 0 and 1, "
                f"row {row} has {value!r}"
            )
        flags[row] = known[str(value).lower()]
    return flags


def _find(names: list[str], root: Path, table: str, column: str) -> list[str]:
    """Find the path of each name: as written, without its ending, or by its last part."""
    files = list_images(root)[0]
    exact = {path[len(str(root)) + 1 :].replace("\\", "/"): path for path in files}
    loose: dict[str, str | None] = {}
    for relative, path in exact.items():
        stem = relative.rpartition(".")[0]
        keys = {relative, stem, relative.rpartition("/")[2], stem.rpartition("/")[2]}
        for key in {unicodedata.normalize("NFC", key) for key in keys}:
            loose[key] = None if key in loose else path  # None: two files match
    first: dict[str, int] = {}
    paths: list[str] = []
    missing: list[int] = []
    for row, name in enumerate(names):
        key = posixpath.normpath(name.replace("\\", "/").removeprefix(f"{root}/"))
        # macOS decomposes accented letters in file names, tables usually do not
        found = exact.get(key) or loose.get(unicodedata.normalize("NFC", key))
        if found is None:
            missing.append(row)
            continue
        if found in first:
            raise ValueError(
                f"{table} names {name!r} twice (rows {first[found]} and {row}); several labels of "
                "an image belong in one row, with label_separator= or a column for each"
            )
        first[found] = row
        paths.append(found)
    if len(paths) < len(files) and not missing:
        log.info("%d of %d images are not in %s", len(files) - len(paths), len(files), table)
    if missing:
        name = names[missing[0]]
        key = unicodedata.normalize("NFC", posixpath.normpath(name.replace("\\", "/")))
        why = "matches two images" if key in loose else "matches no image"
        raise FileNotFoundError(
            f"{table}: {len(missing)} of {len(names)} names in {column!r} match no single image: "
            f"{name!r} (row {missing[0]}) {why} under {root}, which has {len(files)} images"
        )
    return paths
