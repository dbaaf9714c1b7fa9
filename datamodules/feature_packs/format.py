"""Read packs of features.

A pack is a folder::

    features.json            version, keys, classes, digest of each array
    train-features.npy       (N, F) float32, row i of the split
    train-targets.npy        (N,) int64 or float32, or (N, K) float32
    val-..., test-...
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from datamodules.core.datamodule import Split
from datamodules.readers.npy import open_array
from datamodules.splits.split import fingerprint

FORMAT, VERSION = "lightning-datamodules features", 1
MANIFEST = "features.json"
SPLITS: tuple[Split, ...] = ("train", "val", "test")
AGAIN = "run scripts/precompute_features.py again"


class FeatureKeys(NamedTuple):
    """Digests of the inputs from which features are computed.

    Attributes:
        data: Split fingerprint of the datamodule.
        transform: Digest of the evaluation transform and the normalization.
        weights: Digest of the weights and buffers of the model.
    """

    data: str
    transform: str
    weights: str


def read_features(
    path: str | Path, expected: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], dict[str, tuple[Tensor, Tensor]]]:
    """Read features into memory.

    Args:
        path: Folder of the pack.
        expected: Any of the keys ``data``, ``transform`` and ``weights``, as returned by
            :func:`~datamodules.feature_packs.writer.feature_keys`.

    Returns:
        The manifest, and for each split features (N, F) float32 and targets.

    Raises:
        FileNotFoundError: If there is no complete pack.
        ValueError: If the pack is damaged, of another version, or has other keys.
    """
    folder = Path(path).expanduser().absolute()
    where = f"features {str(folder)!r}"
    if not (folder / MANIFEST).is_file():
        raise FileNotFoundError(
            f"{where} do not exist or are incomplete; run scripts/precompute_features.py"
        )
    manifest = _read_manifest(folder, where)
    for name, wanted in (expected or {}).items():
        if name not in FeatureKeys._fields:
            raise ValueError(f"a key of features is one of {FeatureKeys._fields}, got {name!r}")
        if manifest["keys"][name] != wanted:
            raise ValueError(
                f"{where} were made from other {name}: {manifest['keys'][name]!r}, this run has "
                f"{wanted!r}; {AGAIN}"
            )
    splits = {}
    for split, digests in manifest["parts"].items():
        features, targets = (
            _read_array(folder / f"{split}-{name}.npy", digests[name], where)
            for name in ("features", "targets")
        )
        if features.ndim != 2 or not targets.ndim or len(features) != len(targets):
            raise ValueError(f"{where} are damaged: {split} does not have one target per row")
        splits[split] = (features, targets)
    return manifest, splits


def _read_array(file: Path, digest: str, where: str) -> Tensor:
    try:
        array = np.array(open_array(file))
    except (OSError, ValueError) as error:
        raise ValueError(f"{where} are damaged: {file.name}: {error}") from error
    if fingerprint(array.tobytes()) != digest:
        raise ValueError(f"{where} are damaged: {file.name} has changed; {AGAIN}")
    return torch.from_numpy(array)


def _read_manifest(folder: Path, where: str) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} are damaged: {MANIFEST} cannot be read ({error})") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"{where}: the format in {MANIFEST} is not {FORMAT!r}")
    if manifest.get("version") != VERSION:
        raise ValueError(
            f"{where} have version {manifest.get('version')!r}, this program reads {VERSION}; "
            f"{AGAIN}"
        )
    keys, splits = manifest.get("keys"), manifest.get("parts")
    is_valid = (
        isinstance(keys, dict)
        and set(keys) == set(FeatureKeys._fields)
        and isinstance(splits, dict)
        and "train" in splits
        and set(splits) <= set(SPLITS)
        and all(isinstance(s, dict) and set(s) == {"features", "targets"} for s in splits.values())
    )
    if not is_valid:
        raise ValueError(f"{where} are damaged: {MANIFEST} has not the right keys and parts")
    return manifest
