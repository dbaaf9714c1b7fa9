"""Check and apply ``split_options``: how samples are split into train, val and test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from datamodules.seeding.sample_seeds import Indices
from datamodules.settings.arguments import check_name, given_again

from .folds import assign_folds
from .groups import assign_groups, check_no_missing, encode_groups
from .index_files import SPLIT_NAMES, split_by_files
from .split import split_indices, split_sizes

SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}


@dataclass(frozen=True)
class SplitOptions:
    """How samples are split; at most one of ``group``, ``time``, ``column`` and ``files``.

    ``group``, ``time`` and ``column`` are the name of a column, if the source has columns, or one
    value per sample.

    Attributes:
        stratify: Keep the class proportions in every split.
        group: Keep all samples of a group in one split.
        time: Train is earliest, then val, then test; equal times stay together. Numbers, dates, or
            texts in ISO 8601.
        column: ``train``, ``val`` (``valid``, ``validation``, ``dev``) or ``test`` per sample.
        files: For each split a text file with a row number or key (path below the root, id) per
            line, a ``.npy`` file of row numbers, or a list of row numbers. Without ``train`` all
            other samples are train.
        folds: K of k-fold cross-validation: val is one fold, train the others.
        fold: Number of the fold that is val, from 0.
        repeat: Number of the repetition of repeated k-fold, from 0.

    Example:
        >>> SplitOptions.of({"group": "patient", "folds": 5, "fold": 2}).columns
        ['patient']
        >>> SplitOptions.of({"fold": 1})
        Traceback (most recent call last):
        ValueError: fold=1 needs folds=, the number of folds
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
        """Check a user's dict of options.

        Raises:
            ValueError: If a name is unknown, a value impossible, or two options contradict.
        """
        if options is not None and not isinstance(options, Mapping):
            raise ValueError(
                f'split_options must be a dict such as {{"folds": 5}}, got {options!r}'
            )
        for name in options or {}:
            check_name(name, [field.name for field in fields(cls)], "split option")
        checked = cls(**dict(options or {}))
        checked._check(options or {})
        return checked

    @property
    def columns(self) -> list[str]:
        """Return the names of columns that the options use."""
        return [v for v in (self.group, self.time, self.column) if isinstance(v, str)]

    def _check(self, given: Mapping[str, Any]) -> None:
        ways = [n for n in ("group", "time", "column", "files") if given.get(n) is not None]
        if len(ways) > 1:
            raise ValueError(f"split_options has {' and '.join(ways)}; keep one of them")
        if not isinstance(self.stratify, bool):
            raise ValueError(f"stratify must be True or False, got {self.stratify!r}")
        for name, value in (("folds", self.folds), ("fold", self.fold), ("repeat", self.repeat)):
            integer = isinstance(value, int) and not isinstance(value, bool)
            if not (integer or (value is None and name == "folds")):
                raise ValueError(f"{name} must be a whole number, got {value!r}")
        self._check_folds(given, ways)

    def _check_folds(self, given: Mapping[str, Any], ways: Sequence[str]) -> None:
        if self.folds is None:
            extra = [name for name in ("fold", "repeat") if name in given]
            if extra:
                raise ValueError(f"{extra[0]}={given[extra[0]]} needs folds=, the number of folds")
            return
        if self.folds < 2:
            raise ValueError(f"folds must be at least 2, got {self.folds}")
        if not 0 <= self.fold < self.folds:
            raise ValueError(f"fold must be 0 to {self.folds - 1}, got {self.fold}")
        if self.repeat < 0:
            raise ValueError(f"repeat must be at least 0, got {self.repeat}")
        others = [name for name in ways if name != "group"]
        if others:
            raise ValueError(f"folds are random or by group, not by {others[0]}; keep one of them")


@dataclass(frozen=True)
class SplitInput:
    """Samples to split, and what :class:`SplitOptions` may use of them.

    Attributes:
        n: Number of samples.
        labels: (n,) classes for a stratified split.
        names: Class names for messages.
        column: Returns the (n,) values of a column.
        keys: Returns the n keys that index files may list.
    """

    n: int
    labels: npt.ArrayLike | None = None
    names: Sequence[str] | None = None
    column: Callable[[str], npt.ArrayLike] | None = None
    keys: Callable[[], Sequence[Any]] | None = None

    def values(self, given: Any, what: str) -> npt.NDArray[Any]:
        """Return one value per sample: ``given`` itself, or the column of that name."""
        if isinstance(given_again(given, f"split_options[{what!r}]"), str):
            if self.column is None:
                raise ValueError(
                    f"split_options {what}={given!r} names a column, which this source does not "
                    "have; pass one value per sample"
                )
            return np.asarray(self.column(given))
        values = np.asarray(given)
        if len(values) != self.n:
            raise ValueError(
                f"split_options {what} has {len(values)} values, there are {self.n} samples; pass "
                "one value per sample"
            )
        return values


def split_by_options(
    samples: SplitInput, options: SplitOptions, *, val: float | int, test: float | int, seed: int
) -> dict[str, Indices]:
    """Split samples as ``options`` say; a pure function of the arguments.

    Returns:
        ``{"train": ..., "val": ..., "test": ...}``: ascending int64 indices, disjoint. They cover
        ``range(n)``, except for rows that index files leave out, with a warning.

    Raises:
        ValueError: If the options cannot be applied to these samples.

    Example:
        >>> options = SplitOptions.of({"group": ["a", "b", "a", "c"]})
        >>> splits = split_by_options(SplitInput(4), options, val=1, test=1, seed=0)
        >>> splits["train"].tolist()
        [0, 2]
    """
    n, labels = samples.n, samples.labels if options.stratify else None
    if options.column is not None:
        return split_by_words(samples.values(options.column, "column"))
    if options.files is not None:
        return split_by_files(options.files, n, samples.keys)
    if options.time is not None:
        return _by_time(samples.values(options.time, "time"), split_sizes(n, val=val, test=test))
    classes = groups = None
    if options.group is not None:
        what = f"group {options.group!r}" if isinstance(options.group, str) else "group"
        groups = encode_groups(samples.values(options.group, "group"), what)
    if labels is not None and (groups is not None or options.folds is not None):
        classes = _renumber(labels)

    def holdout(val: float | int) -> dict[str, Indices]:
        if groups is None:
            return split_indices(
                n, val=val, test=test, seed=seed, labels=labels, names=samples.names
            )
        return _by_group(groups, split_sizes(n, val=val, test=test), seed, classes)

    if options.folds is None:
        return holdout(val)
    # the test split is taken first, the same for all folds
    held_out = holdout(0)["test"] if test else np.empty(0, np.int64)
    rest = np.setdiff1d(np.arange(n), held_out)
    numbers = assign_folds(
        len(rest),
        options.folds,
        seed=seed,
        repeat=options.repeat,
        labels=None if classes is None else _renumber(classes[rest]),
        groups=None if groups is None else _renumber(groups[rest]),
    )
    is_val = numbers == options.fold
    return {"train": rest[~is_val], "val": rest[is_val], "test": held_out}


def _renumber(values: npt.ArrayLike) -> Indices:
    """Return values as int64 numbers from 0 without gaps."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def split_by_words(words: npt.ArrayLike) -> dict[str, Indices]:
    """Split samples by words such as ``train`` and ``dev``.

    Raises:
        ValueError: If a word is not the name of a split; names it and its row.
    """
    lower = [str(word).strip().casefold() for word in np.asarray(words).tolist()]
    wrong = [row for row, word in enumerate(lower) if word not in SPLIT_WORDS]
    if wrong:
        raise ValueError(
            f"a split column must be train, val or test in each row, row {wrong[0]} (counted from "
            f"0) is {lower[wrong[0]]!r}, and {len(wrong) - 1} more rows are wrong; correct them"
        )
    splits = np.array([SPLIT_WORDS[word] for word in lower])
    return {split: np.flatnonzero(splits == split) for split in SPLIT_NAMES}


def _by_group(
    groups: Indices, counts: Mapping[str, int], seed: int, labels: Indices | None
) -> dict[str, Indices]:
    wanted = [len(groups) - sum(counts.values()), counts["val"], counts["test"]]
    generator = torch.Generator().manual_seed(seed)
    numbers = assign_groups(groups, wanted, generator, labels)
    return {split: np.flatnonzero(numbers == k) for k, split in enumerate(SPLIT_NAMES)}


def _by_time(values: npt.NDArray[Any], counts: Mapping[str, int]) -> dict[str, Indices]:
    times = _moments(values)
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    n = len(times)
    ends = [n - counts["val"] - counts["test"], n - counts["test"]]
    # equal times stay together, in the later split
    a, b = (int(np.searchsorted(ordered, ordered[end])) if end < n else n for end in ends)
    if a == 0 and ends[0] > 0:
        raise ValueError(
            "all train samples have the time of val or test samples, so time does not split them; "
            "use a finer time, or another option"
        )
    splits = dict(zip(SPLIT_NAMES, np.split(order, [a, b]), strict=True))
    return {split: np.sort(rows) for split, rows in splits.items()}


def _moments(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return times (n,) as numbers; texts in ISO 8601 and dates as seconds since 1970, UTC."""
    check_no_missing(values, "time", "time")
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
