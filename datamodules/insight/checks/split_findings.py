"""Check the splits: sizes, classes, order, and the batches of each rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from datamodules.adapters.dataset_attributes import DatasetAttributes
from datamodules.adapters.user_samples import below_subsets
from datamodules.core.accessors import plan_of
from datamodules.core.datamodule import DataModule
from datamodules.insight.findings import Finding
from datamodules.insight.split_view import SplitView
from datamodules.sampling.plan import Batches, EvaluationPlan
from datamodules.sampling.sharded_sampler import ShardedBatchSampler

SHIFT = 0.3  # total variation between class shares
FEW = 50  # samples below which shares say little


def split_findings(
    dm: Any, seen: Mapping[str, SplitView], classes: list[str] | None, facts: list[str]
) -> Iterator[Finding]:
    """Compare the splits; lines of facts are appended to ``facts``."""
    for split, one in seen.items():
        size = f"{one.size:,} samples" if isinstance(one.size, int) else one.size
        facts.append(f"{split}: {size}")
    if "val" not in seen:
        remedy = "pass val_split=0.1 or validation data"
        yield Finding("note", "no-val", "there is no val split to choose a model by", remedy)
    yield from _classes(seen, classes, facts)
    yield from _maps(seen)
    for split, one in seen.items():
        if isinstance(one.loader, DataLoader):
            yield from _loader(split, one, one.loader)


def _classes(
    seen: Mapping[str, SplitView], classes: list[str] | None, facts: list[str]
) -> Iterator[Finding]:
    counts = {}
    for split, one in seen.items():
        labels = one.labels()
        if labels is not None and labels.min() >= 0:
            counts[split] = np.bincount(labels, minlength=len(classes or ()))
    if "train" not in counts:
        return
    width = max(map(len, counts.values()))
    counts = {s: np.pad(c, (0, width - len(c))) for s, c in counts.items()}
    names = [classes[k] if classes and k < len(classes) else str(k) for k in range(width)]
    for split, found in counts.items():
        shares = ", ".join(
            f"{name} {n:,} ({n / found.sum():.0%})"
            for name, n in zip(names[:20], found[:20].tolist(), strict=True)
        )
        facts.append(f"{split} classes: {shares}")
    train = counts["train"]
    for split, found in counts.items():
        if split == "train":
            continue
        lost = [name for name, n, t in zip(names, found, train, strict=True) if t and not n]
        new = [name for name, n, t in zip(names, found, train, strict=True) if n and not t]
        if lost:
            said = f"{split} has no sample of {', '.join(lost[:5])}, which train has"
            remedy = f"its score does not cover them: add samples or enlarge {split}"
            yield Finding("warning", "class-absent", said, remedy)
        if new:
            said = f"{split} has {', '.join(new[:5])}, of which train has no sample"
            yield Finding("error", "class-unlearnt", said, "add train samples or drop the class")
        shift = float(np.abs(found / found.sum() - train / train.sum()).sum() / 2)
        if shift > SHIFT and found.sum() >= FEW:
            said = f"class shares of train and {split} differ by {shift:.0%}"
            remedy = "check how the splits were made; a stratified split keeps the shares"
            yield Finding("warning", "class-shift", said, remedy)


def _maps(seen: Mapping[str, SplitView]) -> Iterator[Finding]:
    maps = {}
    for split, one in seen.items():
        dataset, _ = below_subsets(one.dataset)
        if (found := DatasetAttributes(dataset).class_to_idx) is not None:
            maps[split] = found
    for split, found in maps.items():
        if found != maps.get("train", found):
            wrong = [n for n, k in found.items() if maps["train"].get(n) != k][:3] or [*found][:3]
            said = f"{split} has other class indices than train, such as {wrong}"
            yield Finding(
                "error", "class-map", said, "use the class_to_idx of train for each split"
            )


def _loader(split: str, one: SplitView, loader: DataLoader[Any]) -> Iterator[Finding]:
    n, sampler, labels = len(one), loader.sampler, one.labels()
    if split == "train":
        ordered = bool(labels is not None and (np.diff(labels) >= 0).all() and labels.max() > 0)
        if isinstance(sampler, SequentialSampler):
            level: Any = "error" if ordered else "warning"
            said = "train is not shuffled" + (" and its samples are sorted by class" * ordered)
            yield Finding(level, "train-unshuffled", said, "pass shuffle=True to its DataLoader")
        size = loader.batch_size or 0
        if size > 1 and n % size == 1 and not loader.drop_last:
            said = f"the last train batch has a single sample ({n:,} by {size})"
            remedy = "batch norm fails on it: pass drop_last=True"
            yield Finding("warning", "single-sample-batch", said, remedy)
        return
    if isinstance(sampler, RandomSampler):
        said = f"{split} is shuffled: its batches differ from run to run"
        yield Finding("warning", "val-shuffled", said, "pass shuffle=False")
    if loader.drop_last:
        size = loader.batch_size or 1
        said = f"{split} drops its last {n % size} samples, so the score leaves them out"
        yield Finding("warning", "val-drop-last", said, "pass drop_last=False")


def rank_facts(dm: DataModule, seen: Mapping[str, SplitView], facts: list[str]) -> None:
    """Append the number of batches and samples on 1, 2 and 8 ranks to ``facts``."""
    for split, one in seen.items():
        if not len(one):  # a stream's end is not known
            continue
        n, size = len(one), dm.hparams["batch_size"]
        for world in (1, 2, 8):
            if split == "train":
                plan = plan_of(dm)
                sampler = ShardedBatchSampler(plan, n, num_replicas=world, rank=0, seed=0)
                batches = sampler.planned()
            else:
                plan = EvaluationPlan(n, dm.hparams["eval_batch_size"] or size)
                batches = Batches.of(plan(torch.Generator(), world))
            once = len(np.unique(batches.indices))
            facts.append(
                f"{split} on {world} rank{'s' * (world > 1)}: {len(batches)} "
                f"batch{'es' * (len(batches) != 1)}, {once:,} of {n:,} samples, "
                f"{len(batches.indices) - once:,} repeats"
            )
