"""Check for leakage: the same image, row or text in two splits, or under two labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from datamodules.core.plotting import is_image_batch
from datamodules.insight.findings import Finding
from datamodules.insight.split_view import SplitView

from .file_findings import FileSeen
from .near_duplicates import merge_by_pixels, near_findings


def shared_findings(
    seen: Mapping[str, SplitView],
    files: Mapping[str, FileSeen],
    facts: list[str],
    *,
    progress: bool = False,
) -> Iterator[Finding]:
    """Compare the contents of the splits.

    Args:
        seen: The splits.
        files: Results of decoding every file, if requested.
        facts: Receives lines of facts.
        progress: Show a bar on the terminal while files are read.
    """
    held = {split: list(one.digests()) for split, one in seen.items()}
    merge_by_pixels(seen, held, files, facts, progress=progress)
    if files:
        yield from near_findings(seen, files, held)
    for split, digests in held.items():
        if len(digests) < len(seen[split]):
            facts.append(f"{split}: the first {len(digests):,} samples were compared by content")
    if "train" not in held or not held["train"]:
        return
    count = Counter(held["train"])
    twice = sum(n for n in count.values() if n > 1) / len(held["train"])
    images = bool(seen["train"].paths) or is_image_batch(seen["train"].inputs)
    # short rows and texts may be equal by chance, images are not
    margin, chance = (0.0, 0) if images else (0.02, 2)
    for first, second in (("train", "val"), ("train", "test"), ("val", "test")):
        if second not in held or first not in held or not held[second]:
            continue
        there = {content: i for i, content in reversed([*enumerate(held[first])])}
        shared = [i for i, content in enumerate(held[second]) if content in there]
        if not shared:
            continue
        share = len(shared) / len(held[second])
        said = (
            f"{len(shared):,} of {len(held[second]):,} {second} samples ({share:.1%}) are in "
            f"{first} too, such as {seen[second].describe(shared[0])}"
            f"{_twin(seen[first], there[held[second][shared[0]]], images=images)}"
        )
        if len(shared) > chance and share > 2 * twice + margin:
            remedy = "remove them from one split, or split by group"
            yield Finding("error", "overlap", said, remedy)
        else:
            said += f"; train itself repeats {twice:.1%} of its samples"
            remedy = "remove duplicates before splitting if the score is to be of unseen content"
            yield Finding("note", "duplicates", said, remedy)
    yield from _two_labels(seen, held, images=images)


def _two_labels(
    seen: Mapping[str, SplitView], held: Mapping[str, list[bytes]], *, images: bool
) -> Iterator[Finding]:
    first: dict[bytes, tuple[int, str]] = {}
    odd: list[tuple[str, str]] = []
    for split, digests in held.items():
        labels = seen[split].labels()
        if labels is None:
            continue
        for i, content in enumerate(digests):
            name = seen[split].describe(i) if content in first or images else f"{split} {i}"
            label, other = first.setdefault(content, (int(labels[i]), name))
            if label != int(labels[i]):
                odd.append((other, name))
    if odd:
        share = len(odd) / max(1, sum(map(len, held.values())))
        said = f"{len(odd):,} samples have the content of another with a different label, such as "
        said += f"{odd[0][0]} and {odd[0][1]}"
        level: Any = "warning" if images or share > 0.05 else "note"
        yield Finding(level, "label-conflict", said, "check them and fix the labels")


def _twin(one: SplitView, index: int, *, images: bool) -> str:
    return f" (as {one.describe(index)})" if images else ""
