"""``split_options``: how a user wants samples parted, checked and carried out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from datamodules.settings.arguments import check_name, given_again

from .folds import fold_numbers
from .groups import allot_groups, group_codes, missing_rows
from .index_files import PARTS, by_files
from .split import counts_of, split_indices

Indices = npt.NDArray[np.int64]
SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}


@dataclass(frozen=True)
class SplitOptions:
    """How samples are parted; at most one of ``group``, ``time``, ``column`` and ``files``.

    ``group``, ``time`` and ``column`` take the name of a column, where the source has columns, or
    one value a sample.

    Attributes:
        stratify: Keep the classes in their shares.
        group: Samples of one group stay on one side.
        time: Train is earliest, then val, then test; equal times stay together. Numbers, dates, or
            texts in ISO 8601.
        column: Says train, val or test (``valid``, ``validation``, ``dev``) of each sample.
        files: A file for each part, with a row number or a key (the path below the root, the id)
            a line, or ``.npy`` of row numbers; or the row numbers themselves. Without ``train``
            the rest is train.
        folds: K of k-fold: val is one fold, train the others.
        fold: Which fold is val, from 0.
        repeat: Number of the repetition of repeated k-fold, from 0.
    """

    stratify: bool = True
    group: Any = None
    time: Any = None
    column: Any = None
    files: Mapping[str, Any] | None = None
    folds: int | None = None
    fold: int = 0
    repeat: int = 0

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> SplitOptions:
        """Take a user's dict.

        Raises:
            ValueError: For an unknown name, an impossible value, or two that exclude each other.
        """
        if options is not None and not isinstance(options, Mapping):
            raise ValueError(
                f'split_options must be a dict such as {{"folds": 5}}, got {options!r}'
            )
        for name in options or {}:
            check_name(name, [field.name for field in fields(cls)], "split option")
        made = cls(**dict(options or {}))
        made._check(options or {})
        return made

    @property
    def columns(self) -> list[str]:
        """Columns that are named."""
        return [v for v in (self.group, self.time, self.column) if isinstance(v, str)]

    def _check(self, given: Mapping[str, Any]) -> None:
        ways = [n for n in ("group", "time", "column", "files") if given.get(n) is not None]
        if len(ways) > 1:
            raise ValueError(f"split_options part samples by one of {' and '.join(ways)}; keep one")
        if not isinstance(self.stratify, bool):
            raise ValueError(f"stratify must be True or False, got {self.stratify!r}")
        for name in ("folds", "fold", "repeat"):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not (whole or (value is None and name == "folds")):
                raise ValueError(f"{name} must be a whole number, got {value!r}")
        self._check_folds(given, ways)

    def _check_folds(self, given: Mapping[str, Any], ways: Sequence[str]) -> None:
        if self.folds is None:
            extra = [name for name in ("fold", "repeat") if name in given]
            if extra:
                raise ValueError(f"{extra[0]}={given[extra[0]]} needs folds=, their number")
            return
        if self.folds < 2:
            raise ValueError(f"folds must be at least 2, got {self.folds}")
        if not 0 <= self.fold < self.folds:
            raise ValueError(f"fold must be 0 to {self.folds - 1}, got {self.fold}")
        if self.repeat < 0:
            raise ValueError(f"repeat must be at least 0, got {self.repeat}")
        other = [name for name in ways if name != "group"]
        if other:
            raise ValueError(f"folds are dealt at random or by group, not by {other[0]}; keep one")


@dataclass(frozen=True)
class Uncut:
    """Samples that are to be parted, and what is known of them.

    Attributes:
        n: Number of samples.
        labels: (n,) classes for a stratified split.
        names: Class names for messages.
        column: Gives the (n,) values of a named column.
        keys: Gives the n keys that index files may name.
    """

    n: int
    labels: npt.ArrayLike | None = None
    names: Sequence[str] | None = None
    column: Callable[[str], npt.ArrayLike] | None = None
    keys: Callable[[], Sequence[Any]] | None = None

    def values(self, given: Any, what: str) -> npt.NDArray[Any]:
        """One value a sample: as given, or out of the column of that name."""
        if isinstance(given_again(given, f"split_options[{what!r}]"), str):
            if self.column is None:
                raise ValueError(
                    f"split_options {what}={given!r} names a column, which this source does not "
                    "have; give one value a sample"
                )
            return np.asarray(self.column(given))
        values = np.asarray(given)
        if len(values) != self.n:
            raise ValueError(
                f"split_options {what} has {len(values)} values, there are {self.n} samples to part"
            )
        return values


def cut(
    uncut: Uncut, options: SplitOptions, *, val: float | int, test: float | int, seed: int
) -> dict[str, Indices]:
    """Part samples as ``options`` say; a pure function of its arguments.

    Returns:
        ``{"train": ..., "val": ..., "test": ...}``: ascending int64 indices, disjoint, together
        ``range(n)`` but for rows that index files leave out, said in a warning.

    Raises:
        ValueError: If the options cannot be carried out on these samples.
    """
    n, labels = uncut.n, uncut.labels if options.stratify else None
    if options.column is not None:
        return by_words(uncut.values(options.column, "column"))
    if options.files is not None:
        return by_files(options.files, n, uncut.keys)
    if options.time is not None:
        return _by_time(uncut.values(options.time, "time"), counts_of(n, val=val, test=test))
    groups = None
    if options.group is not None:
        said = f"group {options.group!r}" if isinstance(options.group, str) else "group"
        groups = group_codes(uncut.values(options.group, "group"), said)
    if options.folds is None and groups is None:
        return split_indices(n, val=val, test=test, seed=seed, labels=labels, names=uncut.names)
    codes = None if labels is None else np.unique(labels, return_inverse=True)[1].astype(np.int64)
    if options.folds is None:
        assert groups is not None
        return _by_group(groups, counts_of(n, val=val, test=test), seed, codes)
    everything = np.arange(n)
    held = everything[:0]
    if test:  # a test part is cut first, the same for all folds
        if groups is None:
            held = split_indices(n, test=test, seed=seed, labels=labels, names=uncut.names)["test"]
        else:
            held = _by_group(groups, counts_of(n, val=0, test=test), seed, codes)["test"]
    rest = np.setdiff1d(everything, held)
    numbers = fold_numbers(
        len(rest),
        options.folds,
        seed=seed,
        repeat=options.repeat,
        labels=None if codes is None else np.unique(codes[rest], return_inverse=True)[1],
        groups=None if groups is None else np.unique(groups[rest], return_inverse=True)[1],
    )
    is_val = numbers == options.fold
    return {"train": rest[~is_val], "val": rest[is_val], "test": held}


def by_words(words: npt.ArrayLike) -> dict[str, Indices]:
    """Part samples by words such as ``train`` and ``dev``.

    Raises:
        ValueError: If a word is none of them; names it and its row.
    """
    said = [str(word).strip().casefold() for word in np.asarray(words).tolist()]
    strange = [row for row, word in enumerate(said) if word not in SPLIT_WORDS]
    if strange:
        raise ValueError(
            f"a split column must say train, val or test in each row, row {strange[0]} (counted "
            f"from 0) says {said[strange[0]]!r}, and {len(strange) - 1} more rows are like it"
        )
    parts = np.array([SPLIT_WORDS[word] for word in said])
    return {part: np.flatnonzero(parts == part) for part in PARTS}


def _by_group(
    groups: Indices, counts: Mapping[str, int], seed: int, labels: Indices | None
) -> dict[str, Indices]:
    wanted = [len(groups) - sum(counts.values()), counts["val"], counts["test"]]
    generator = torch.Generator().manual_seed(seed)
    numbers = allot_groups(groups, wanted, generator, labels)
    return {part: np.flatnonzero(numbers == k) for k, part in enumerate(PARTS)}


def _by_time(values: npt.NDArray[Any], counts: Mapping[str, int]) -> dict[str, Indices]:
    times = _moments(values)
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    n = len(times)
    ends = [n - counts["val"] - counts["test"], n - counts["test"]]
    # equal times stay together, on the later side
    a, b = (int(np.searchsorted(ordered, ordered[end])) if end < n else n for end in ends)
    if a == 0 and ends[0] > 0:
        raise ValueError(
            "all train samples have the time of val and test samples, so time parts nothing; use "
            "a finer time, or another split"
        )
    parts = dict(zip(PARTS, np.split(order, [a, b]), strict=True))
    return {part: np.sort(rows) for part, rows in parts.items()}


def _moments(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """(n,) times as numbers: of texts in ISO 8601 and dates the seconds since 1970, UTC."""
    lost = missing_rows(values)
    if len(lost):
        raise ValueError(
            f"time is missing in {len(lost)} rows, the first is row {lost[0]} (counted from 0); "
            "each row needs its time"
        )
    if values.dtype.kind in "iuf":
        return values.astype(np.float64)
    if values.dtype.kind == "M":
        return values.astype("datetime64[us]").astype(np.int64).astype(np.float64)
    try:
        return values.astype(np.float64)
    except (ValueError, TypeError):
        pass
    moments = np.empty(len(values))
    for row, value in enumerate(values.tolist()):
        try:
            moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        except ValueError:
            raise ValueError(
                f"time of row {row} (counted from 0) is {value!r}, neither a number nor ISO 8601 "
                "such as 2024-03-31 or 2024-03-31T12:00; write it so"
            ) from None
        moments[row] = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return moments
