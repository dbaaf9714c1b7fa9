"""Tables of a report: the splits, their classes, their first batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch import Tensor

from datamodules.batches.nested import is_named_tuple, tensors_of
from datamodules.figures.columns import percent
from datamodules.figures.target_text import target_text

from .datamodule_view import DataModuleView
from .figures import class_counts, missing_shares
from .split_view import SplitView, class_names

MOST_ROWS = 200


class Sheet(NamedTuple):
    """A table of texts.

    Attributes:
        title: Title of the table.
        header: Names of the columns.
        rows: Cells, each row as long as the header.
        left_out: Number of further rows.
    """

    title: str
    header: list[str]
    rows: list[list[str]]
    left_out: int = 0


def sheets(dm: Any, seen: Mapping[str, SplitView]) -> list[Sheet]:
    """Return every table that the data allow."""
    if not seen:
        return []
    made = [_splits(dm, seen), _batches(dm, seen)]
    counted = class_counts(dm, seen)
    if counted is not None:
        made.append(_classes(*counted))
    if missing := missing_shares(seen):
        splits = next(iter(missing.values()))
        rows = [
            [name, *(f"{percent(100 * share)}%" for share in shares.values())]
            for name, shares in missing.items()
        ]
        made.append(_cut("Missing cells by column", ["column", *splits], rows))
    return made


def _splits(dm: Any, seen: Mapping[str, SplitView]) -> Sheet:
    counted = class_counts(dm, seen)
    whole = sum(map(len, seen.values()))
    header = ["split", "samples", "share"]
    if counted is not None:
        header += ["classes", "fewest of a class", "most of a class"]
    rows = []
    for split, one in seen.items():
        size = f"{one.size:,}" if isinstance(one.size, int) else one.size
        row = [split, size, f"{len(one) / max(1, whole):.1%}"]
        if counted is not None:
            found = counted[1].get(split)
            row += ["", "", ""]
            if found is not None:
                ends = [int(k) for k in (found.argmin(), found.argmax())]
                row[3] = f"{int((found > 0).sum())} of {len(found)}"
                row[4:] = [f"{found[k]:,} ({counted[0][k]})" for k in ends]
                if found.min() == found.max():
                    row[4:] = [f"{found.min():,}"] * 2
        rows.append(row)
    return Sheet("Splits", header, rows)


def _classes(names: list[str], counts: Mapping[str, Any]) -> Sheet:
    header = ["class", "index"]
    header += [column for split in counts for column in (split, f"share of {split}")]
    rows = []
    for index, name in enumerate(names):
        row = [name, str(index)]
        for found in counts.values():
            row += [f"{found[index]:,}", f"{found[index] / max(1, found.sum()):.1%}"]
        rows.append(row)
    return _cut("Classes", header, rows)


def _batches(dm: Any, seen: Mapping[str, SplitView]) -> Sheet:
    header = ["split", "part", "shape", "dtype", "lowest", "highest", "MB", "first values"]
    rows = []
    for split, one in seen.items():
        for name, part in _named(one):
            size = part.numel() * part.element_size() / 1e6
            ends = (
                [f"{float(v):.4g}" for v in (part.min(), part.max())] if part.numel() else ["", ""]
            )
            shape = " x ".join(map(str, part.shape))
            kind = str(part.dtype).removeprefix("torch.")
            first = _first(dm, one, part) if name == "target" else ""
            rows.append([split, name, shape, kind, *ends, f"{size:.2f}", first])
    return Sheet("First batches", header, rows)


def _named(one: SplitView) -> Iterator[tuple[str, Tensor]]:
    fields: tuple[str, ...] = one.inputs._fields if is_named_tuple(one.inputs) else ()
    if isinstance(one.inputs, Mapping):
        fields = tuple(one.inputs)
    found = list(tensors_of(one.inputs))
    for place, part in enumerate(found):
        yield fields[place] if len(fields) == len(found) else "inputs", part
    for part in tensors_of(one.target):
        yield "target", part


def _first(dm: Any, one: SplitView, target: Tensor) -> str:
    classes, scale = class_names(dm, one), DataModuleView(dm).target_scale
    said = []
    for value in target[:4]:
        name = target_text(value, classes, scale)
        index = classes is not None and not value.ndim and not value.is_floating_point()
        # the name beside the index, where they differ
        said.append(f"{int(value)} {name}" if index and name != str(int(value)) else name)
    return ", ".join(said) if target.ndim < 2 else "; ".join(said)


def _cut(title: str, header: list[str], rows: list[list[str]]) -> Sheet:
    return Sheet(title, header, rows[:MOST_ROWS], max(0, len(rows) - MOST_ROWS))
