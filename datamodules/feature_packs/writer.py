"""Compute the features of a frozen model and write them as a pack."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from datamodules.core.accessors import normalizer_of
from datamodules.core.datamodule import DataModule
from datamodules.core.image_datamodule import ImageDataModule
from datamodules.core.transform_fingerprint import printed
from datamodules.images.options import with_defaults
from datamodules.loading.make_loader import make_plain_loader
from datamodules.readers.atomic_write import named_writes, write_all
from datamodules.readers.file_lock import sole_writer
from datamodules.splits.split import fingerprint

from .format import FORMAT, MANIFEST, SPLITS, VERSION, FeatureKeys, read_features

PIXEL_OPTIONS = ("mode", "image_size", "draft", "fast_transforms")  # options that change pixels


def feature_keys(data: DataModule, net: nn.Module) -> FeatureKeys:
    """Return the keys of the features that ``net`` computes from ``data``.

    Raises:
        ValueError: If the datamodule has no split fingerprint.
    """
    data.setup()
    split = data.split_fingerprint()
    if split is None:
        raise ValueError(
            f"{type(data).__name__} has no split fingerprint, so nothing shows whether features "
            "still belong to it; define split_fingerprint()"
        )
    transform = data.eval_transform if isinstance(data, ImageDataModule) else None
    normalizer = {} if data.normalizer is None else vars(data.normalizer)
    options = [f"{name}={normalizer[name]}" for name in ("mean", "std") if name in normalizer]
    given = {**data.hparams, **with_defaults(data.hparams.get("image_options"))}
    options += [f"{name}={given[name]}" for name in PIXEL_OPTIONS if name in given]
    weights: list[Any] = [type(net).__qualname__]
    for name, value in sorted(net.state_dict().items()):
        raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        weights += [name, str(tuple(value.shape)), raw.numpy().tobytes()]
    return FeatureKeys(split, fingerprint(printed(transform), *options), fingerprint(*weights))


def write_features(
    data: DataModule,
    net: nn.Module,
    out: str | Path,
    *,
    batch_size: int = 64,
    device: str | torch.device = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> FeatureKeys:
    """Run a frozen model once over train, val and test, in order, with the evaluation transform.

    Args:
        data: Any datamodule with a split; train images are not augmented.
        net: Maps inputs to (N, F); set to evaluation mode, its weights are not changed.
        out: Folder of the pack; one with the same keys is kept, any other pack is replaced.
        batch_size: Samples per step.
        device: Device of the model.
        progress: Called with the number of samples done and of all samples.

    Raises:
        ValueError: If the outputs are not (N, F) floats, or not finite.
        FileExistsError: If ``out`` exists and is not a pack of features.
        RuntimeError: If another process is writing the same pack.
    """
    keys = feature_keys(data, net)
    target = Path(out).expanduser().absolute()
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(target.parent)!r} does not exist; make it first")
    if target.exists() and not (target / MANIFEST).is_file():
        raise FileExistsError(f"{str(target)!r} exists and has no features; choose another --out")
    with sole_writer(target):
        if target.exists() and _is_current(target, keys):
            return keys
        partial = target.with_name(target.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            digests = _write_splits(
                data, net.to(device).eval(), partial, batch_size, torch.device(device), progress
            )
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)  # a partial pack is never resumed
            raise
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "keys": keys._asdict(),
            "task": data.task,
            "classes": data.fitted.get("classes"),
            "class_counts": data.fitted.get("class_counts"),
            "parts": digests,
        }
        with named_writes(partial / MANIFEST):
            (partial / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        old = target.with_name(target.name + ".old")
        shutil.rmtree(old, ignore_errors=True)
        if target.exists():
            target.rename(old)
        partial.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    return keys


def _is_current(target: Path, keys: FeatureKeys) -> bool:
    try:
        read_features(target, keys._asdict())
    except ValueError:
        return False
    return True


def _write_splits(
    data: DataModule,
    net: nn.Module,
    folder: Path,
    batch_size: int,
    device: torch.device,
    progress: Callable[[int, int], None] | None,
) -> dict[str, dict[str, str]]:
    """Write the arrays of each split and return their digests."""
    with _without_augmentation(data):
        datasets = {split: data.dataset(split) for split in SPLITS}
    present = {split: dataset for split, dataset in datasets.items() if dataset is not None}
    total, done = sum(map(len, present.values())), 0
    digests: dict[str, dict[str, str]] = {}
    for split, dataset in present.items():
        loader = make_plain_loader(
            dataset,
            batch_size=batch_size,
            normalizer=normalizer_of(data, dataset),
            collate_fn=data._default_collate(split),
        )
        targets: list[Tensor] = []
        path = folder / f"{split}-features.npy"
        # not through a memory map: on a full disk the system would end the process by a signal
        with path.open("wb", buffering=0) as file:
            for batch in loader:
                inputs = data.transfer_batch_to_device(batch.inputs, device, 0)
                output = _features(net, inputs, split)
                header = b"" if targets else _header(len(dataset), output)
                with named_writes(path):
                    write_all(file, header + output.tobytes())
                targets.append(batch.target)
                done += len(output)
                if progress is not None:
                    progress(done, total)
        if not targets:
            raise ValueError(f"{split} has no sample; leave the split out")
        target = torch.cat(targets).numpy()
        target_path = folder / f"{split}-targets.npy"
        with named_writes(target_path), target_path.open("wb") as target_file:
            np.save(target_file, target, allow_pickle=False)
        features = np.load(path, mmap_mode="r", allow_pickle=False)
        digests[split] = {
            "features": fingerprint(features.tobytes()),
            "targets": fingerprint(target.tobytes()),
        }
    return digests


def _header(rows: int, output: npt.NDArray[np.float32]) -> bytes:
    """Return the .npy header of (rows, F) float32."""
    stream = io.BytesIO()
    fields = {"descr": "<f4", "fortran_order": False, "shape": (rows, output.shape[1])}
    np.lib.format.write_array_header_1_0(stream, fields)
    return stream.getvalue()


@torch.inference_mode()
def _features(net: nn.Module, inputs: Any, split: str) -> npt.NDArray[np.float32]:
    output = net(*inputs) if isinstance(inputs, tuple) else net(inputs)
    if not isinstance(output, Tensor) or output.ndim != 2:
        found = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(f"net must return features (N, F), got {found}; flatten or pool them")
    output = output.float().cpu()
    if not output.isfinite().all():
        raise ValueError(f"net returned values that are not finite in {split}; check its weights")
    return np.ascontiguousarray(output.numpy(), "<f4")


@contextmanager
def _without_augmentation(data: DataModule) -> Iterator[None]:
    """Give train samples the evaluation transform, without crop and flip."""
    options = dict(data.hparams)
    images = data if isinstance(data, ImageDataModule) and data.eval_transform else None
    if images is not None:
        train_transform, images.train_transform = images._train_transform, images.eval_transform
    data.hparams.update({"flip": False, "padding": 0} if "padding" in options else {})
    try:
        yield
    finally:
        if images is not None:
            images.train_transform = train_transform
        data.hparams.update(options)
