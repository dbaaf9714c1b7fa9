"""Split samples by ``val_split``, ``test_split``, ``split_options`` and ``limit``."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from datamodules.seeding.sample_seeds import Indices

from .folds import limit_rows
from .options import SplitInput, SplitOptions, split_by_options

Split = Literal["train", "val", "test", "predict"]
SPLITS: tuple[Split, ...] = ("train", "val", "test", "predict")


def split_by_settings(
    samples: SplitInput, settings: Mapping[str, Any], options: SplitOptions, given: Container[str]
) -> dict[str, Indices]:
    """Split samples by a datamodule's arguments.

    Args:
        samples: The samples, and what is known about them.
        settings: ``val_split``, ``test_split``, ``split_seed`` and ``limit``.
        options: How samples are split.
        given: Splits that the source has already and that are not created here.

    Returns:
        Ascending rows of each split; ``limit`` is applied to the splits not in ``given``.

    Raises:
        ValueError: If a share was given for a split that the source has, or the options cannot be
            applied to these samples.

    Example:
        >>> settings = {"val_split": 2, "test_split": 0, "split_seed": 0, "limit": None}
        >>> parts = split_by_settings(SplitInput(5), settings, SplitOptions(), given=())
        >>> {split: len(rows) for split, rows in parts.items()}
        {'train': 3, 'val': 2, 'test': 0}
    """
    if options.column is not None or options.files is not None or options.folds is not None:
        _check_one_way(settings, options, given)
    shares: dict[str, int | float] = {}
    for name in ("val", "test"):
        share = settings[f"{name}_split"]
        if name in given and share:
            raise ValueError(
                f"{name}_split={share} was given, but the source has a {name} split of its own; "
                f"leave {name}_split out, or move the {name} split away"
            )
        # a source with a split of its own gets no test split that was not asked for, and folds
        # leave no sample for another split
        none = name in given or (name == "test" and bool(given)) or options.folds is not None
        shares[name] = share if share is not None else 0.0 if none else 0.1
    parts = split_by_options(samples, options, **shares, seed=settings["split_seed"])
    labels = None if samples.labels is None else np.asarray(samples.labels)
    return {
        split: rows
        if split in given
        else limit_split(split, rows, None if labels is None else labels[rows], settings)
        for split, rows in parts.items()
    }


def limit_split(
    split: str, rows: Indices, labels: npt.ArrayLike | None, settings: Mapping[str, Any]
) -> Indices:
    """Return the rows of a split that ``limit`` keeps, seeded and stratified.

    Args:
        split: Name of the split.
        rows: (n,) rows of the split.
        labels: (n,) their classes, or None.
        settings: ``limit`` and ``split_seed``.

    Raises:
        ValueError: If train would lose a class.
    """
    limit = settings["limit"]
    if limit is None:
        return rows
    codes = None if labels is None else np.unique(np.asarray(labels), return_inverse=True)[1]
    kept = limit_rows(rows, limit, seed=settings["split_seed"], labels=codes)
    if split == "train" and codes is not None:
        classes = int(codes.max(initial=-1)) + 1
        if len(kept) < min(classes, len(rows)):
            raise ValueError(
                f"limit={limit} leaves {len(kept)} train samples of {classes} classes, so "
                "classes would be lost; raise it"
            )
    return kept


def _check_one_way(
    settings: Mapping[str, Any], options: SplitOptions, given: Container[str]
) -> None:
    """Refuse a second way to split the same samples."""
    way = (
        "column"
        if options.column is not None
        else "files"
        if options.files is not None
        else "folds"
    )
    own = [name for name in ("val", "test") if name in given]
    if own and (way != "folds" or "val" in own):
        raise ValueError(
            f"split_options has {way}, but the source has a {own[0]} split of its own; leave "
            f"{way} out, or move the {own[0]} split away"
        )
    shares = ("val_split",) if way == "folds" else ("val_split", "test_split")
    if named := [name for name in shares if settings[name]]:
        raise ValueError(f"split_options has {way}, which decides; leave {named[0]} out")
