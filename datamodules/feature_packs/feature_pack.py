"""Outputs of a frozen net on disk, keyed by data, transform and weights.

A pack of features is a folder::

    features.json            version, keys, classes, shapes and digest of each part
    train-features.npy       (N, F) float32, row i of the split
    train-targets.npy        (N,) int64 or float32, or (N, K) float32
    val-..., test-...
"""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from datamodules.core.datamodule import DataModule, Split
from datamodules.images.options import with_defaults
from datamodules.loading.make_loader import make_plain_loader
from datamodules.readers.atomic_write import named_writes, write_all
from datamodules.readers.file_lock import sole_writer
from datamodules.readers.npy import open_array
from datamodules.splits.split import fingerprint

FORMAT, VERSION = "lightning-datamodules features", 1
MANIFEST = "features.json"
FRAME = ("mode", "image_size", "draft", "fast_transforms")  # options that change pixels
PARTS: tuple[Split, ...] = ("train", "val", "test")


class FeatureKeys(NamedTuple):
    """What features follow from.

    Attributes:
        data: Split fingerprint of the datamodule.
        transform: Digest of the evaluation transform and the normalisation.
        weights: Digest of the net's weights and buffers.
    """

    data: str
    transform: str
    weights: str


def feature_keys(data: DataModule, net: nn.Module) -> FeatureKeys:
    """Keys of the features that ``net`` makes of ``data``.

    Raises:
        ValueError: If the datamodule has no split that can be told by a fingerprint.
    """
    data.setup()
    split = data.split_fingerprint()
    if split is None:
        raise ValueError(
            f"{type(data).__name__} has no split fingerprint, so nothing tells whether features "
            "still belong to it; define split_fingerprint()"
        )
    transform = getattr(data, "eval_transform", None)
    normalizer = {} if data.normalizer is None else vars(data.normalizer)
    said = [f"{name}={normalizer[name]}" for name in ("mean", "std") if name in normalizer]
    options = {**data.hparams, **with_defaults(data.hparams.get("image_options"))}
    said += [f"{name}={options[name]}" for name in FRAME if name in options]
    weights: list[Any] = [type(net).__qualname__]
    for name, value in sorted(net.state_dict().items()):
        raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        weights += [name, str(tuple(value.shape)), raw.numpy().tobytes()]
    return FeatureKeys(split, fingerprint(_said(transform), *said), fingerprint(*weights))


def _said(transform: Any) -> str:
    """A transform in words: no address in memory, and a function's code."""
    code = getattr(transform, "__code__", None)
    if code is not None:
        return f"{transform.__qualname__} {code.co_code.hex()} {code.co_consts}"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(transform))


def write_features(
    data: DataModule,
    net: nn.Module,
    out: str | Path,
    *,
    batch_size: int = 64,
    device: str | torch.device = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> FeatureKeys:
    """Run a frozen net once over train, val and test, in order, under the evaluation transform.

    Args:
        data: Any datamodule with a split; train images are not augmented here.
        net: Maps inputs to (N, F); put into evaluation mode, its weights stay as they are.
        out: Folder of the features; one with the same keys is left as it is, another one replaced.
        batch_size: Samples a step.
        device: Where the net runs.
        progress: Called with the samples done and their number.

    Returns:
        The keys.

    Raises:
        ValueError: If the outputs are no (N, F) floats, or not finite.
        FileExistsError: If ``out`` is something else than features.
        RuntimeError: If another process writes them.
    """
    keys = feature_keys(data, net)
    target = Path(out).expanduser().absolute()
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(target.parent)!r} does not exist; make it first")
    if target.exists() and not (target / MANIFEST).is_file():
        raise FileExistsError(f"{str(target)!r} exists and holds no features; choose another --out")
    with sole_writer(target):
        if target.exists() and _holds(target, keys):
            return keys
        partial = target.with_name(target.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            parts = _run(
                data, net.to(device).eval(), partial, batch_size, torch.device(device), progress
            )
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)  # nobody goes on with it
            raise
        counts = data.fitted.get("class_counts")
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "keys": keys._asdict(),
            "task": data.task,
            "classes": data.fitted.get("classes"),
            "class_counts": counts,
            "parts": parts,
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


def read_features(
    path: str | Path, expected: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], dict[str, tuple[Tensor, Tensor]]]:
    """Read features into memory.

    Args:
        path: Folder of the features.
        expected: Any of ``data``, ``transform`` and ``weights``, as :func:`feature_keys` gives
            them.

    Returns:
        The manifest, and (N, F) float32 and targets of each split.

    Raises:
        FileNotFoundError: If there are none.
        ValueError: If they are damaged, of another version, or made from something else.
    """
    folder = Path(path).expanduser().absolute()
    where = f"features {str(folder)!r}"
    if not (folder / MANIFEST).is_file():
        raise FileNotFoundError(
            f"{where} do not exist, or are not finished; make them with "
            "scripts/precompute_features.py"
        )
    manifest = _manifest(folder, where)
    for name, wanted in (expected or {}).items():
        if name not in FeatureKeys._fields:
            raise ValueError(f"a key of features is one of {FeatureKeys._fields}, got {name!r}")
        if manifest["keys"][name] != wanted:
            raise ValueError(
                f"{where} were made from other {name}: {manifest['keys'][name]!r}, this run has "
                f"{wanted!r}; run scripts/precompute_features.py again"
            )
    found = {}
    for split, said in manifest["parts"].items():
        arrays = []
        for name in ("features", "targets"):
            file = folder / f"{split}-{name}.npy"
            try:
                array = np.array(open_array(file))
            except (OSError, ValueError) as error:
                raise ValueError(f"{where} are damaged: {file.name}: {error}") from error
            if fingerprint(array.tobytes()) != said[name]:
                raise ValueError(
                    f"{where} are damaged: {file.name} is not what was written; run "
                    "scripts/precompute_features.py again"
                )
            arrays.append(torch.from_numpy(array))
        if arrays[0].ndim != 2 or not arrays[1].ndim or len(arrays[0]) != len(arrays[1]):
            raise ValueError(f"{where} are damaged: {split} has not one target a row")
        found[split] = (arrays[0], arrays[1])
    return manifest, found


def _manifest(folder: Path, where: str) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} are damaged: {MANIFEST} cannot be read ({error})") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"{where}: {MANIFEST} does not say {FORMAT!r}")
    if manifest.get("version") != VERSION:
        raise ValueError(
            f"{where} have version {manifest.get('version')!r}, this program reads {VERSION}; run "
            "scripts/precompute_features.py again"
        )
    keys: Any = manifest.get("keys")
    parts: Any = manifest.get("parts")
    fits = isinstance(keys, dict) and set(keys) == set(FeatureKeys._fields)
    fits = fits and isinstance(parts, dict) and "train" in parts and set(parts) <= set(PARTS)
    if not fits or not all(
        isinstance(p, dict) and set(p) == {"features", "targets"} for p in parts.values()
    ):
        raise ValueError(f"{where} are damaged: {MANIFEST} has not the right keys and parts")
    return manifest


def _holds(target: Path, keys: FeatureKeys) -> bool:
    try:
        read_features(target, keys._asdict())
    except ValueError:
        return False
    return True


def _run(
    data: DataModule,
    net: nn.Module,
    folder: Path,
    batch_size: int,
    device: torch.device,
    progress: Callable[[int, int], None] | None,
) -> dict[str, dict[str, str]]:
    with _plain_train(data):
        datasets = {split: data.dataset(split) for split in PARTS}
    present = {split: dataset for split, dataset in datasets.items() if dataset is not None}
    total, done = sum(map(len, present.values())), 0
    digests: dict[str, dict[str, str]] = {}
    for split, dataset in present.items():
        loader = make_plain_loader(
            dataset,
            batch_size=batch_size,
            normalizer=data.normalizer_of(dataset),
            collate_fn=data.default_collate(split),
        )
        rows, at, targets = len(dataset), 0, []
        path = folder / f"{split}-features.npy"
        # not by a memory map: on a full disk the system answers that by a signal
        with path.open("wb", buffering=0) as file:
            for batch in loader:
                inputs = data.transfer_batch_to_device(batch.inputs, device, 0)
                output = _features(net, inputs, split)
                with named_writes(path):
                    write_all(file, (b"" if at else _header(rows, output)) + output.tobytes())
                targets.append(batch.target)
                at, done = at + len(output), done + len(output)
                if progress is not None:
                    progress(done, total)
        if not targets:
            raise ValueError(f"{split} holds no sample; leave the split out")
        target = torch.cat(targets).numpy()
        target_path = folder / f"{split}-targets.npy"
        with named_writes(target_path), target_path.open("wb") as file_out:
            np.save(file_out, target, allow_pickle=False)
        features = np.load(path, mmap_mode="r", allow_pickle=False)
        digests[split] = {
            "features": fingerprint(features.tobytes()),
            "targets": fingerprint(target.tobytes()),
        }
    return digests


def _header(rows: int, output: np.ndarray[Any, Any]) -> bytes:
    """What stands before the numbers in a file of (rows, F) float32."""
    stream = io.BytesIO()
    said = {"descr": "<f4", "fortran_order": False, "shape": (rows, output.shape[1])}
    np.lib.format.write_array_header_1_0(stream, said)
    return stream.getvalue()


@torch.inference_mode()
def _features(net: nn.Module, inputs: Any, split: str) -> np.ndarray[Any, Any]:
    output = net(*inputs) if isinstance(inputs, tuple) else net(inputs)
    if not isinstance(output, Tensor) or output.ndim != 2:
        found = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(f"a net of features gives (N, F), got {found}; flatten or pool it")
    output = output.float().cpu()
    if not output.isfinite().all():
        raise ValueError(f"the net gave values that are not finite in {split}; check its weights")
    return np.ascontiguousarray(output.numpy(), "<f4")


@contextmanager
def _plain_train(data: DataModule) -> Iterator[None]:
    """Train samples as evaluation sees them: no crop, no flip."""
    settings: Any = data
    before, options = getattr(data, "_train_transform", None), dict(data.hparams)
    if hasattr(data, "train_transform") and getattr(data, "eval_transform", None) is not None:
        settings.train_transform = settings.eval_transform
    data.hparams.update({"flip": False, "padding": 0} if "padding" in options else {})
    try:
        yield
    finally:
        if hasattr(data, "train_transform"):
            settings.train_transform = before
        data.hparams.update(options)
