"""The same image in two files: equal pixels in other containers, and nearly equal ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from datamodules.images.decode.decode import image_size
from datamodules.insight.findings import Finding
from datamodules.insight.split_view import MOST_IMAGES, Looked

from .file_findings import FileSeen, check_files

BUDGET = 32_000_000  # pixels decoded unasked; about a second
OVERHEAD = 10_000  # pixels that opening a file costs as much as
NEAR = 1.5  # levels of grey, root mean square, between thumbnails of one image stored twice
FLAT = 8.0  # levels: thumbnails of less contrast are alike by chance


def merge_by_pixels(
    seen: Mapping[str, Looked],
    held: dict[str, list[bytes]],
    files: Mapping[str, FileSeen],
    facts: list[str],
    *,
    progress: bool = False,
) -> None:
    """Give files of equal pixels one digest, whatever their containers.

    Only images of equal size can be equal, so headers decide which are decoded: the rarest sizes
    first, as far as ``BUDGET`` goes.

    Args:
        seen: The splits.
        held: Digests of each split's files by their bytes; changed in place.
        files: What was decoded already, by path.
        facts: Takes a line where not all candidates could be compared.
        progress: Show a bar on the terminal.
    """
    by_path: dict[str, bytes] = {}
    for split, one in seen.items():
        by_path.update(zip(one.paths(), held.get(split, ()), strict=False))
    if len(by_path) < 2:
        return
    first_of = {content: path for path, content in reversed([*by_path.items()])}
    decoded: dict[str, FileSeen] = {p: files[p] for p in first_of.values() if p in files}
    if not files:
        candidates = _of_shared_sizes([*first_of.values()])
        spent, chosen = 0, []
        for path, pixels in candidates:
            spent += pixels + OVERHEAD
            if spent > BUDGET:
                break
            chosen.append(path)
        decoded = check_files(chosen, progress=progress)
        if len(chosen) < len(candidates):
            facts.append(
                f"pixels of {len(chosen):,} of {len(candidates):,} images of equal size were "
                "compared, bytes of all; verify=True compares all"
            )
    canonical: dict[bytes, bytes] = {}
    same: dict[bytes, bytes] = {}
    for path, found in decoded.items():
        if not found.error:
            same[by_path[path]] = canonical.setdefault(found.pixels, by_path[path])
    for split, contents in held.items():
        held[split] = [same.get(content, content) for content in contents]


def _of_shared_sizes(paths: list[str]) -> list[tuple[str, int]]:
    """Paths of images that share their size with another, and their pixels; rare sizes first."""
    by_size: dict[tuple[int, int], list[str]] = defaultdict(list)
    for path in paths:
        try:
            by_size[image_size(path)].append(path)
        except Exception:  # damaged: said where it is read
            continue
    groups = sorted((len(g), size, g) for size, g in by_size.items() if len(g) > 1)
    return [(path, h * w) for _, (h, w), group in groups for path in group]


def near_findings(
    seen: Mapping[str, Looked], files: Mapping[str, FileSeen], held: Mapping[str, list[bytes]]
) -> Iterator[Finding]:
    """Images of two splits that differ by no more than compression or scaling would make.

    Args:
        seen: The splits.
        files: What decoding every file told.
        held: Digests; equal ones are told elsewhere.
    """
    for first, second in (("train", "val"), ("train", "test"), ("val", "test")):
        if first not in seen or second not in seen:
            continue
        one, other = (_thumbs(seen[s], files, held.get(s, [])) for s in (first, second))
        pairs = _near(one, other)
        if pairs:
            a, b = pairs[0]
            said = (
                f"{len(pairs)} of {len(seen[second]):,} {second} images look like one in {first} "
                f"stored anew, such as {b} and {a}"
            )
            remedy = "look at them; if they are the same image, keep them in one part"
            yield Finding("warning", "near-duplicates", said, remedy)


Thumbs = tuple[list[str], list[bytes], npt.NDArray[np.float32], npt.NDArray[np.float32]]


def _thumbs(one: Looked, files: Mapping[str, FileSeen], held: list[bytes]) -> Thumbs:
    """Paths, digests, thumbnails (N, 256) and width by height (N,) of images with contrast."""
    kept: list[tuple[str, bytes, Any, float]] = []
    for path, content in zip(one.paths()[:MOST_IMAGES], held, strict=False):
        found = files.get(path)
        if found is not None and found.thumb is not None and float(found.thumb.std()) >= FLAT:
            kept.append((path, content, found.thumb.ravel(), found.shape[1] / found.shape[0]))
    thumbs = np.array([k[2] for k in kept], np.float32).reshape(-1, 256)
    return (
        [k[0] for k in kept],
        [k[1] for k in kept],
        thumbs,
        np.array([k[3] for k in kept], np.float32),
    )


def _near(one: Thumbs, other: Thumbs) -> list[tuple[str, str]]:
    """For each image of ``other``, the nearest of ``one``, where it is near and not equal."""
    paths, contents, thumbs, ratios = one
    if not len(paths) or not len(other[0]):
        return []
    known, pairs = set(contents), []
    squares = (thumbs**2).sum(1)
    for path, content, thumb, ratio in zip(*other, strict=True):
        if content in known:
            continue
        apart = squares + float((thumb**2).sum()) - 2 * (thumbs @ thumb)
        apart[np.abs(ratios / ratio - 1) > 0.02] = np.inf
        nearest = int(apart.argmin())
        if apart[nearest] <= NEAR**2 * len(thumb):
            pairs.append((paths[nearest], path))
    return pairs
