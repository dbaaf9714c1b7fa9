"""Check and save the arguments of a datamodule before any data are read."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

from datamodules.loading.make_loader import check_loader_options
from datamodules.sampling.by_name import SAMPLINGS
from datamodules.sampling.plan import check_batch_size
from datamodules.sampling.strategies import Sampling
from datamodules.seeding.sample_seeds import check_seed
from datamodules.settings.arguments import check_name, plain
from datamodules.splits.folds import check_limit
from datamodules.splits.options import SplitOptions
from datamodules.splits.split import check_shares

if TYPE_CHECKING:
    from .datamodule import DataModule


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
