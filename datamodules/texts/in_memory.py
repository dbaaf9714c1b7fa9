"""Texts that are in memory: a DataFrame, or a list of strings with a list of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datamodules.readers.data_frame import Frame, to_polars
from datamodules.readers.folders import split_folders
from datamodules.settings.arguments import check_name

from .files import Cells, Column


def frame_cells(frame: Frame, roles: Mapping[str, Column], source: str) -> Cells:
    """Copy the columns of a DataFrame to lists, like those of a Parquet file.

    Args:
        frame: A polars or pandas DataFrame.
        roles: Column of each role by name, or by number from 0.
        source: The frame's name, for messages.

    Raises:
        ValueError: If a column does not exist.
    """
    table = to_polars(frame, source)
    names = {}
    for role, column in roles.items():
        if isinstance(column, int) and not 0 <= column < table.width:
            raise ValueError(f"{role}={column}, but {source} has {table.width} columns")
        names[role] = table.columns[column] if isinstance(column, int) else column
        check_name(names[role], table.columns, f"column for {role}= of {source}")
    # polars is not fork-safe (pola-rs/polars#17526): plain lists from here on
    cells = {role: table[name].to_list() for role, name in names.items()}
    return Cells(source, cells, dict(roles), np.arange(table.height))


def list_cells(texts: Sequence[str], labels: Sequence[Any] | None, source: str) -> Cells:
    """Return N texts with N labels, or without labels to predict.

    Raises:
        ValueError: If there are more or fewer labels than texts.
    """
    cells: dict[str, list[Any]] = {"text": list(texts)}
    if labels is not None:
        if len(labels) != len(texts):
            raise ValueError(f"target has {len(labels)} labels for {len(texts)} texts")
        cells["target"] = [v.item() if isinstance(v, np.generic) else v for v in labels]
    return Cells(source, cells, {role: role for role in cells}, np.arange(len(texts)))


def check_lists(path: Any, target: Any, options: Mapping[str, Any], argument: str) -> None:
    """Refuse options that do not fit a list of texts or a list of labels.

    Raises:
        ValueError: Says what to pass.
    """
    texts, labels = isinstance(path, list | tuple), isinstance(target, list | tuple)
    if not texts and not labels:
        return
    if texts and argument in ("val_path", "test_path"):
        raise ValueError(f"{argument} is a list of texts, which has no labels; pass a DataFrame")
    if labels and not texts:
        raise ValueError(f"target is a list of labels, so {argument} must be a list of texts")
    if texts and target is not None and not labels:
        raise ValueError("path is a list of texts, so target must be a list of labels")
    columns = [*options.get("extra", ()), *([options["text_pair"]] if options["text_pair"] else [])]
    if columns:
        raise ValueError(f"a list of texts has no column {columns[0]!r}; pass a DataFrame")


def split_sources(sources: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of each split that has its own: a path, a DataFrame or a list.

    Args:
        sources: What the user gives as ``train``, ``val`` and ``test``. The folders ``val/`` and
            ``test/`` of a train folder are used if there is nothing else.
    """
    train = sources["train"]
    path = Path(train).expanduser() if isinstance(train, str | Path) else None
    found: dict[str, Any] = split_folders(path) if path is not None and path.is_dir() else {}
    found.setdefault("train", train if path is None else path)
    own = {split: given for split, given in sources.items() if split != "train"}
    return found | {split: given for split, given in own.items() if given is not None}
