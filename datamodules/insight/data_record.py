"""Record the data of a run as a JSON file: settings, split, classes, versions."""

from __future__ import annotations

import hashlib
import json
import platform
import warnings
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import lightning as L
import torch

from datamodules.adapters.user_samples import input_transform
from datamodules.core.accessors import copy_of
from datamodules.core.datamodule import DataModule
from datamodules.settings.arguments import name_of, plain

from .datamodule_view import DataModuleView
from .inspect import inspect
from .split_view import view_split

PACKAGES = ("torch", "torchvision", "lightning", "numpy", "pillow", "polars", "tokenizers")
REST = "run scripts/inspect_data.py for a full inspection"
SHOWN = 50  # longer fitted values are recorded by their digest


def describe_data(dm: L.LightningDataModule, *, findings: Any = None) -> dict[str, Any]:
    """Return everything that decides the data of a run, as plain values.

    Args:
        dm: Set up already; of a datamodule of another base only class, arguments and versions
            are known.
        findings: What an inspection found, where one was asked for.

    Returns:
        ``class``, ``arguments``, ``splits`` (samples each), ``split_fingerprint``, ``classes``
        (name to index), ``fitted``, ``transforms``, ``loader``, ``versions`` and, where there are
        any, ``bad_files`` and ``findings``.
    """
    cls = type(dm)
    record: dict[str, Any] = {
        "class": f"{cls.__module__}.{cls.__qualname__}",
        "arguments": plain(dict(dm.hparams)),
    }
    if isinstance(dm, DataModule):
        record |= _known(dm)
    record["versions"] = {"python": platform.python_version(), **_versions()}
    if bad := DataModuleView(dm).bad_files:
        record["bad_files"] = [plain(b) for b in bad]
    if findings is not None:
        record["findings"] = findings
    return record


def _known(dm: DataModule) -> dict[str, Any]:
    views = {split: view_split(dm, split) for split in ("train", "val", "test")}
    made = {split: view.dataset for split, view in views.items() if view is not None}
    return {
        "splits": {split: view.size for split, view in views.items() if view is not None},
        "split_fingerprint": dm.split_fingerprint(),
        "classes": dm.class_to_idx if dm.fitted.get("classes") else None,
        "fitted": {name: shortened(value) for name, value in dm.fitted.items()},
        "transforms": {
            split: transform_text(data) for split, data in made.items() if transform_text(data)
        },
        "sampler": str(plain(dm.sampler)) if isinstance(dm.sampler, str) else repr(dm.sampler),
        "loader": {
            name: plain(dm.hparams.get(name))
            for name in ("batch_size", "eval_batch_size", "num_workers", "seed")
        }
        | {name: plain(value) for name, value in dm.loader_options.items()},
    }


def shortened(value: Any) -> Any:
    """Return a fitted value, or its type, size and digest if it is long.

    Example:
        >>> shortened([0.5, 0.25])
        [0.5, 0.25]
        >>> shortened(list(range(1000)))
        'list of 1000, sha256 3e726f1b6f58'
    """
    if isinstance(value, torch.Tensor):
        array = value.detach().cpu().contiguous()
        if array.numel() <= SHOWN:
            return array.tolist()
        raw = array.view(torch.uint8).numpy().tobytes()
        return f"tensor {tuple(array.shape)} {array.dtype}, sha256 {_digest(raw)}"
    if isinstance(value, Mapping):
        value = {str(k): shortened(v) for k, v in value.items()}
    text = json.dumps(plain_or_text(value), sort_keys=True, ensure_ascii=False)
    if isinstance(value, str | list | tuple | dict) and len(text) > 20 * SHOWN:
        return f"{type(value).__name__} of {len(value)}, sha256 {_digest(text.encode())}"
    return plain_or_text(value)


def plain_or_text(value: Any) -> Any:
    """Return a value as JSON types; other types as text."""
    if isinstance(value, torch.Tensor):
        return shortened(value)
    if isinstance(value, Mapping):
        return {str(k): plain_or_text(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain_or_text(v) for v in value]
    return value if value is None or isinstance(value, str | int | float | bool) else repr(value)


def transform_text(dataset: Any) -> str | None:
    """Return the transform of a dataset as text, or None."""
    found = input_transform(dataset)
    if found is None:
        return None
    text = repr(found)
    return name_of(found) if " at 0x" in text else text


def known_findings(dm: L.LightningDataModule) -> dict[str, Any]:
    """Return the findings that need no sample: nothing is read or transformed.

    They are about settings, labels, splits and data in memory; contents are not compared.

    Returns:
        ``inspected``, what was inspected, and ``findings``, each as plain values.
    """
    if not isinstance(dm, DataModule):
        return {"inspected": f"not inspected; {REST}", "findings": []}
    alone = copy_of(dm)  # without Trainer and loaders: a run's own are left as they are
    alone.__dict__["prepare_data"] = lambda: None  # it has been: no file is checked anew
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = inspect(alone, samples=False).findings
    said = f"settings, labels and data in memory, not samples or files; {REST}"
    return {"inspected": said, "findings": [finding._asdict() for finding in found]}


class DataRecord(L.Callback):
    """Write ``data.json`` into a run's folder when training starts.

    It holds what a look that makes no sample found. On a resumed fit nothing is compared here: the
    checkpoint's split fingerprint is, by the datamodule itself.

    Args:
        folder: Of the run; made if it does not exist.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write the record."""
        dm: Any = trainer.datamodule  # type: ignore[attr-defined]
        if dm is not None and trainer.is_global_zero:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_record(dm, self.folder / "data.json", **known_findings(dm))


def write_record(
    dm: L.LightningDataModule,
    path: str | Path,
    *,
    findings: Any = None,
    inspected: str | None = None,
) -> None:
    """Write :func:`describe_data` as indented JSON (UTF-8).

    Args:
        dm: The datamodule.
        path: The file.
        findings: What an inspection found.
        inspected: How far it looked.
    """
    record = plain_or_text(describe_data(dm, findings=findings))
    if inspected is not None:
        record["inspected"] = inspected
    text = json.dumps(record, indent=2, ensure_ascii=False)
    Path(path).write_text(text + "\n", encoding="utf-8")


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
