"""Types of the arguments of every datamodule; check and save them; refuse old names."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from datamodules.loading.make_loader import check_loader_options
from datamodules.sampling.by_name import SAMPLINGS
from datamodules.sampling.plan import Plan, check_batch_size
from datamodules.sampling.strategies import Sampling
from datamodules.seeding.sample_seeds import check_seed
from datamodules.settings.arguments import check_name, plain
from datamodules.splits.folds import check_limit
from datamodules.splits.options import SplitOptions
from datamodules.splits.split import check_shares

if TYPE_CHECKING:
    from .datamodule import DataModule


class DataModuleOptions(TypedDict, total=False):
    """Options of every datamodule, for ``**options: Unpack[DataModuleOptions]``.

    Args:
        batch_size: Samples per training step and device. Default: 32.
        eval_batch_size: Samples per evaluation step and device. Default: ``batch_size``.
        num_workers: Workers of each loader. Default: 0 if the dataset serves whole batches, 1 for
            an iterable dataset, else the number of CPU cores this process may use.
        worker_type: ``"thread"`` for torchvision transforms: the same batches with less CPU time;
            ``"process"``; ``"auto"`` (default): threads where possible.
        val_split: Share (float) or number (int) of samples for validation. Default: 0.1 if there
            is no validation data and no folds are used.
        test_split: Share or number of samples for test. Default: 0.1, and none if there is
            validation data or folds are used.
        split_seed: Seed of the split, independent of the global seed. Default: 0.
        split_options: How to split, see :class:`~datamodules.splits.options.SplitOptions`:
            ``{"stratify": False}``, ``{"group": "patient"}``, ``{"time": "date"}``,
            ``{"column": "part"}``, ``{"files": {"val": "val.txt"}}``,
            ``{"folds": 5, "fold": 2, "repeat": 0}``.
        limit: Use only this number (int) or share (float) of each split, seeded and stratified.
            No sample changes its split.
        seed: Seed of the order and of random transforms. Default: the seed of
            ``lightning.seed_everything``.
        sampler: ``"shuffle"`` (default), ``"sequential"``, ``"weighted"``, ``"balanced"``,
            ``"pairs"``, ``"views"``, ``"stratified"``, ``"length_buckets"``; a sampling strategy
            such as ``PByK(8, 4)``; or a function ``(generator, world_size) -> batches``.
        global_batch_size: Samples per training step over all devices, in place of ``batch_size``;
            the steps do not depend on the number of devices.
        uneven: If the number of batches is not divisible by the world size, ``"repeat"`` the
            first batches (default) or ``"drop"`` the last, at most W - 1.
        loader_options: Other ``DataLoader`` arguments, such as ``pin_memory``, ``drop_last`` or
            ``timeout`` in seconds.
        with_rows: Return predict batches as ``RowBatch(inputs, rows)``. Default: False.
    """

    batch_size: int
    eval_batch_size: int | None
    num_workers: int | None
    worker_type: Literal["auto", "process", "thread"]
    val_split: int | float | None
    test_split: int | float | None
    split_seed: int
    split_options: dict[str, Any] | None
    limit: int | float | None
    seed: int | None
    sampler: str | Sampling | Plan
    global_batch_size: int | None
    uneven: Literal["repeat", "drop"]
    loader_options: dict[str, Any] | None
    with_rows: bool


# Old name of an option: its new name, with a dot before the key of a dict.
RENAMED: dict[str, str] = {
    "label": "target",
    "label_column": "target",
    "target_key": "target",
    "input_key": "inputs",
    "group_column": "split_options.group",
    "split_column": "split_options.column",
    "crop_first": "image_options.fast_transforms",
} | {
    name: f"image_options.{name}"
    for name in ("mean", "std", "normalize", "draft", "cache", "cache_bytes", "pack")
}


def refuse_renamed(source: type, options: Mapping[str, Any]) -> None:
    """Refuse the old name of an option that ``source`` takes under a new name.

    Args:
        source: The datamodule's class.
        options: The keyword arguments that its signature does not name.

    Raises:
        TypeError: If an option has its old name; says the new one.
    """
    known = {*inspect.signature(source).parameters, *DataModuleOptions.__annotations__}
    for name in options.keys() & RENAMED.keys():
        new, _, key = RENAMED[name].partition(".")
        if new in known:
            value = f'{{"{key}": ...}}' if key else "..."
            raise TypeError(f"{source.__name__} has no option {name!r}; pass {new}={value}")


def save_options(dm: DataModule, frame: FrameType | None) -> None:
    """Check the arguments of ``__init__`` and save them as plain hyperparameters.

    Args:
        dm: The datamodule.
        frame: Frame of its ``__init__``; arguments of subclasses are found from there.

    Raises:
        ValueError: If an argument is impossible.
    """
    with warnings.catch_warnings():  # of an nn.Module as transform only the name is saved
        warnings.filterwarnings("ignore", message="Attribute .* is an instance of `nn.Module`")
        # not to the logger: the model may have hyperparameters of the same names
        dm.save_hyperparameters(frame=frame, logger=False)
    if frame is not None:  # LightningCLI saves its config, which lacks the defaults of these
        for name in DataModuleOptions.__annotations__:
            dm.hparams.setdefault(name, frame.f_locals[name])
    check_options(dm.hparams)
    plain_options = plain(dict(dm.hparams))
    dm._set_hparams(plain_options)
    dm.__dict__["_hparams_initial"] = dict(plain_options)


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse impossible arguments of :class:`~datamodules.core.datamodule.DataModule`.

    Raises:
        ValueError: Names the argument, its value and the remedy.

    Example:
        >>> from datamodules import DataModule
        >>> DataModule(sampler="shufle")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: unknown sampler 'shufle'; did you mean 'shuffle'? ...
    """
    for name in ("batch_size", "eval_batch_size", "global_batch_size"):
        if name == "batch_size" or options[name] is not None:
            check_batch_size(options[name], name)
    check_seed("seed", 0 if options["seed"] is None else options["seed"])
    check_seed("split_seed", options["split_seed"])
    check_name(options["uneven"], ("repeat", "drop"), "uneven")
    check_name(options["worker_type"], ("auto", "process", "thread"), "worker_type")
    check_loader_options(options["loader_options"], options["num_workers"])
    check_shares(val=options["val_split"] or 0.0, test=options["test_split"] or 0.0)
    SplitOptions.of(options["split_options"])
    check_limit(options["limit"])
    sampler = options["sampler"]
    if isinstance(sampler, str) and not sampler.startswith("<"):
        check_name(sampler, SAMPLINGS, "sampler")
    if isinstance(sampler, type) or not (isinstance(sampler, str | Sampling) or callable(sampler)):
        raise ValueError(
            f"sampler must be a name, a sampling strategy such as PByK(8, 4), or a function "
            f"(generator, world_size) -> batches, got {sampler!r}"
        )
