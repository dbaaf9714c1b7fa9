"""The samplers to compare: stock (torch's or a user's), this project's, and what they promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from datamodules import DataModule
from datamodules.sampling.by_class import PByK
from datamodules.sampling.length_buckets import LengthBuckets

ROWS, SIZE, SEED = 101, 8, 3
LABELS = np.repeat([0, 1], [91, 10])
LENGTHS = 1 + np.arange(ROWS) * 17 % 64
SUBSET = range(0, ROWS, 2)

Ranks = Sequence[Sequence[Sequence[Sequence[int]]]]  # [rank][epoch][step]: rows


class Numbered(Dataset[Any]):
    """Returns ``(row number, label)`` of the given rows."""

    def __init__(self, rows: Sequence[int] = range(ROWS)) -> None:
        self.rows, self.targets = rows, LABELS[list(rows)]
        self.lengths = LENGTHS[list(rows)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        return torch.tensor([float(self.rows[place])]), int(self.targets[place])


class Rows(DataModule):
    """The same rows for train and, if ``evaluated``, for val."""

    def __init__(self, rows: Sequence[int], evaluated: bool, **options: Any) -> None:
        super().__init__(batch_size=SIZE, num_workers=0, seed=SEED, **options)
        self.rows, self.evaluated = rows, evaluated

    def dataset(self, split: str) -> Any:
        """Return the rows of a split."""
        wanted = split == "train" or (split == "val" and self.evaluated)
        return Numbered(self.rows) if wanted else None


class ClassBatches(BatchSampler):
    """A user's own batch sampler: four samples of each of the two classes."""

    def __init__(self) -> None:
        self.groups = [np.flatnonzero(c == LABELS) for c in (0, 1)]

    def __len__(self) -> int:
        return ROWS // SIZE

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(len(self)):
            picks = [group[torch.randperm(len(group))[:4].numpy()] for group in self.groups]
            yield np.concatenate(picks).tolist()


class LengthBatches(Sampler[list[int]]):
    """A user's own sampler of batches: neighbours by length, in a random order."""

    def __len__(self) -> int:
        return -(-ROWS // SIZE)

    def __iter__(self) -> Iterator[list[int]]:
        order = np.argsort(LENGTHS, kind="stable")
        for b in torch.randperm(len(self)).tolist():
            yield order[b * SIZE : (b + 1) * SIZE].tolist()


class Reversed(Sampler[int]):
    """A user's own sampler in a fixed order."""

    def __init__(self, data_source: Any = None) -> None:
        pass

    def __len__(self) -> int:
        return ROWS

    def __iter__(self) -> Iterator[int]:
        return iter(range(ROWS - 1, -1, -1))


def reversed_plan(generator: torch.Generator, world_size: int) -> list[list[int]]:
    """Plan the same batches for this project."""
    order = list(range(ROWS - 1, -1, -1))
    return [order[i : i + SIZE] for i in range(0, ROWS, SIZE)]


# --- promises: each returns what is wrong, or "" ------------------------------------------------


def each_once(*, shuffled: bool, rows: Sequence[int] = range(ROWS), repeats: int = 3) -> Any:
    """Check that each row is seen once per epoch; up to ``repeats`` more make the ranks equal."""

    def fault(ranks: Ranks) -> str:
        for epoch in epochs(ranks):
            counts = Counter(row for step in epoch for row in step)
            if missing := len(set(rows) - set(counts)):
                return f"{missing} of {len(rows)} samples not seen"
            if foreign := len(set(counts) - set(rows)):
                return f"{foreign} samples outside the subset"
            if (twice := counts.total() - len(rows)) > repeats:
                return f"{twice} seen again"
        return orders(ranks, shuffled)

    return fault


def share(ranks: Ranks) -> str:
    """Check that the rare class is about half of an epoch."""
    for epoch in epochs(ranks):
        drawn = LABELS[[row for step in epoch for row in step]].mean()
        if not 0.3 <= drawn <= 0.7:
            return f"rare class {drawn:.0%} in place of 50%"
    return orders(ranks, True)


def four_and_four(ranks: Ranks) -> str:
    """Check that each batch has four samples of each class, on each rank."""
    batches = [step for epoch in epochs(ranks) for step in epoch]
    off = sum(np.bincount(LABELS[batch], minlength=2).tolist() != [4, 4] for batch in batches)
    return f"{off} of {len(batches)} batches not 4 and 4" if off else orders(ranks, True)


def like_lengths(ranks: Ranks) -> str:
    """Check that each row is seen once, with little padding."""
    wrong = each_once(shuffled=True)(ranks)
    batches = [LENGTHS[step] for epoch in epochs(ranks) for step in epoch]
    padded = sum(len(batch) * batch.max() for batch in batches)
    waste = 1 - sum(batch.sum() for batch in batches) / padded
    return str(wrong) or (f"padding {waste:.0%}" if waste > 0.2 else "")


def epochs(ranks: Ranks) -> list[list[Sequence[int]]]:
    """Return the batches of all ranks together, by epoch."""
    return [[step for part in parts for step in part] for parts in zip(*ranks, strict=True)]


def orders(ranks: Ranks, shuffled: bool) -> str:
    """Check that shuffled epochs differ and that ranks do not see the same batches."""
    for rank in ranks:
        if (rank[0] == rank[1]) == shuffled:
            return "the same order again" if shuffled else "another order"
    if len(ranks) > 1 and ranks[0] == ranks[1]:
        return "both processes saw the same batches"
    return ""


class Case(NamedTuple):
    """One sampler.

    Attributes:
        stock: Makes a loader as written without this project.
        ours: Options of the datamodule in its place.
        fault: Returns what is wrong with the rows seen, or ``""``.
        rows: The rows of our datamodule.
        evaluated: Whether to check the validation rows.
    """

    stock: Callable[[], DataLoader[Any]]
    ours: dict[str, Any]
    fault: Callable[[Ranks], str]
    rows: Sequence[int] = range(ROWS)
    evaluated: bool = False


def plain(**options: Any) -> Callable[[], DataLoader[Any]]:
    """Return a function that makes a loader, with eight rows per batch unless a sampler batches."""

    def make() -> DataLoader[Any]:
        made = {name: value() for name, value in options.items()}
        size: dict[str, Any] = {} if "batch_sampler" in made else {"batch_size": SIZE}
        return DataLoader(Numbered(), **size, **made)

    return make


WEIGHTS = (1 / np.bincount(LABELS)[LABELS]).tolist()  # inverse class frequency of each row
CASES: dict[str, Case] = {
    "shuffle=True": Case(plain(shuffle=lambda: True), {}, each_once(shuffled=True)),
    "shuffle=False": Case(plain(), {"sampler": "sequential"}, each_once(shuffled=False)),
    "RandomSampler": Case(
        plain(sampler=lambda: RandomSampler(range(ROWS))), {}, each_once(shuffled=True)
    ),
    "SequentialSampler": Case(
        plain(sampler=lambda: SequentialSampler(range(ROWS))),
        {"sampler": "sequential"},
        each_once(shuffled=False),
    ),
    "SubsetRandomSampler": Case(
        plain(sampler=lambda: SubsetRandomSampler(list(SUBSET))),
        {},
        each_once(shuffled=True, rows=SUBSET),
        rows=SUBSET,
    ),
    "WeightedRandomSampler": Case(
        plain(sampler=lambda: WeightedRandomSampler(WEIGHTS, ROWS)),
        {"sampler": "balanced"},
        share,
    ),
    "own Sampler, fixed order": Case(
        plain(sampler=Reversed),
        {"sampler": reversed_plan},
        # batches of a plan are repeated whole
        each_once(shuffled=False, repeats=SIZE),
    ),
    "own BatchSampler by class": Case(
        plain(batch_sampler=ClassBatches), {"sampler": PByK(2, 4)}, four_and_four
    ),
    "own batches by length": Case(
        plain(batch_sampler=LengthBatches), {"sampler": LengthBuckets(buckets=8)}, like_lengths
    ),
    "validation loader": Case(plain(), {}, each_once(shuffled=False, repeats=0), evaluated=True),
}
