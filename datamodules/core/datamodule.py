"""The one base class of all sources: splits by name, the four loader hooks, state, finishing."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import torch
from lightning.pytorch.trainer.states import RunningStage
from torch.utils.data import DataLoader

from datamodules.batches.mixup import mixed
from datamodules.loading.loader import Loader, lies_inside
from datamodules.loading.make_loader import check_loader_options
from datamodules.sampling.by_name import SAMPLINGS
from datamodules.sampling.plan import Plan, check_batch_size
from datamodules.sampling.strategies import Sampling
from datamodules.seeding.sample_seeds import check_seed
from datamodules.settings.arguments import check_name, plain
from datamodules.splits.folds import check_limit
from datamodules.splits.options import SplitOptions
from datamodules.splits.split import check_shares

from .loaders import Loading
from .source import SPLITS, Split
from .sync_guard import StepwiseGuard
from .transform_fingerprint import check_transforms, print_transforms

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["SPLITS", "DataModule", "Split"]

# arguments that change train samples, besides the transform
TRAIN_OPTIONS = ("mixup", "cutmix", "draft", "crop_first")
# Lightning's warnings of faults that cannot happen here
ANSWERED = (
    # the module's own hook is called by ours
    "You have overridden `on_after_batch_transfer` in both",
    # a source without a val split
    "Total length of `list` across ranks is zero",
)

RUNNING: dict[Any, Split] = {
    RunningStage.TRAINING: "train",
    RunningStage.VALIDATING: "val",
    RunningStage.SANITY_CHECKING: "val",
    RunningStage.TESTING: "test",
    RunningStage.PREDICTING: "predict",
}


class DataModule(Loading):
    """Base of every source; a source says what its splits hold, the rest is here.

    A subclass gives :meth:`dataset` and, where it has files, :meth:`read`:

    Example:
        >>> from torch.utils.data import TensorDataset
        >>> class Squares(DataModule):
        ...     def __init__(self, rows: int = 20, **options):
        ...         super().__init__(**options)
        ...     def dataset(self, split):
        ...         x = torch.arange(self.hparams.rows, dtype=torch.float32)
        ...         return TensorDataset(x[:, None], x**2)
        >>> dm = Squares(rows=10, batch_size=4)
        >>> [tuple(batch.inputs.shape) for batch in dm.train_dataloader()]
        [(4, 1), (4, 1), (2, 1)]

    Args:
        batch_size: Samples a step and device in training.
        eval_batch_size: The most samples a step and device in evaluation; None: ``batch_size``.
        num_workers: Workers of a loader, see ``worker_type``; None: none where the dataset serves
            whole batches, one for a stream, else the cores this process may use. ``"auto"``:
            worker threads, added while the run waits for batches and taken away while it does not,
            1 to the cores; ``workers`` says how many. Where threads cannot serve it is as None,
            and a line says why.
        worker_type: ``"thread"``, for images whose transforms are torchvision's own: the same
            batches to the bit for less CPU time; ``"process"``; or ``"auto"``: threads where they
            can serve and no option for processes, such as ``timeout``, was given.
        val_split: Share (float) or number (int) of samples for validation, where the source holds
            no validation part of its own; None: a tenth, and none with folds.
        test_split: The same for test; None: none where the source holds a validation part.
        split_seed: Seed of the split; the global seed has no part in it.
        split_options: How samples are parted, see
            :class:`~datamodules.splits.options.SplitOptions`: ``{"stratify": False}``,
            ``{"group": "patient"}``, ``{"time": "date"}``, ``{"column": "part"}``,
            ``{"files": {"val": "val.txt"}}``, ``{"folds": 5, "fold": 2, "repeat": 0}``.
        limit: At most so many samples (int), or such a share (float), of each split: a seeded,
            stratified part for a quick trial. No sample changes sides by it.
        seed: Seed of order and augmentation; None follows ``lightning.seed_everything``.
        sampler: ``"shuffle"``, ``"sequential"``, ``"weighted"``, ``"balanced"``, ``"pairs"``,
            ``"views"``, ``"stratified"``, ``"length_buckets"``; a :class:`Sampling` with
            parameters, such as ``PByK(8, 4)``; or ``plan(generator, world_size) -> batches``.
        global_batch_size: Rows of a step over all devices, in place of ``batch_size``: planned
            first and cut by rank, so that the steps do not depend on the number of devices.
        uneven: When a plan's batches are no multiple of the ranks, ``"repeat"`` the first or
            ``"drop"`` the last, at most W - 1.
        loader_options: Any other ``DataLoader`` argument, such as ``pin_memory``, ``drop_last``, or
            ``timeout``: seconds after which a worker process is given up and its file named.
        with_rows: Predict batches become ``RowBatch(inputs, rows)``.
    """

    def __init__(
        self,
        *,
        batch_size: int = 32,
        eval_batch_size: int | None = None,
        num_workers: int | Literal["auto"] | None = None,
        worker_type: Literal["auto", "process", "thread"] = "auto",
        val_split: int | float | None = None,
        test_split: int | float | None = None,
        split_seed: int = 0,
        split_options: dict[str, Any] | None = None,
        limit: int | float | None = None,
        seed: int | None = None,
        sampler: str | Sampling | Plan = "shuffle",
        global_batch_size: int | None = None,
        uneven: Literal["repeat", "drop"] = "repeat",
        loader_options: dict[str, Any] | None = None,
        with_rows: bool = False,
    ) -> None:
        super().__init__()
        check_batch_size(batch_size)
        check_batch_size(1 if eval_batch_size is None else eval_batch_size, "eval_batch_size")
        check_batch_size(1 if global_batch_size is None else global_batch_size, "global_batch_size")
        check_seed("seed", 0 if seed is None else seed)
        check_seed("split_seed", split_seed)
        check_name(uneven, ("repeat", "drop"), "uneven")
        check_name(worker_type, ("auto", "process", "thread"), "worker_type")
        check_loader_options(loader_options, num_workers)
        check_shares(val=val_split or 0.0, test=test_split or 0.0)
        SplitOptions.of(split_options)
        check_limit(limit)
        if isinstance(sampler, str) and not sampler.startswith("<"):
            check_name(sampler, SAMPLINGS, "sampler")
        if isinstance(sampler, type) or not (
            isinstance(sampler, str | Sampling) or callable(sampler)
        ):
            raise ValueError(
                f"sampler takes a name, a kind of sampling such as PByK(8, 4), or a function "
                f"(generator, world_size) -> batches, got {sampler!r}"
            )
        # Not to the logger: equal names with other values in the model would stop the run.
        with warnings.catch_warnings():
            # of a transform that is a module only the name is kept, below
            warnings.filterwarnings("ignore", message="Attribute .* is an instance of `nn.Module`")
            self.save_hyperparameters(frame=inspect.currentframe(), logger=False)
        plain_hparams = plain(dict(self.hparams))
        self._set_hparams(plain_hparams)
        self._hparams_initial = dict(plain_hparams)
        # a rank may have no batch if samples are fewer than ranks; nothing hangs
        self.allow_zero_length_dataloader_with_multiple_devices = True
        self._split_options = split_options
        self.sampler, self.loader_options = sampler, dict(loader_options or {})
        self._train_loader: DataLoader[Any] | None = None
        self._place: Mapping[str, Any] | None = None
        self._printed: dict[str, str] = {}

    # --- Lightning's hooks -------------------------------------------------------------------

    def setup(self, stage: str | None = None) -> None:
        """Read the data of a stage; does nothing the second time."""
        self._ensure_read(stage)
        self._compare_ranks()
        for message in ANSWERED:
            warnings.filterwarnings("ignore", message=message)

    def train_dataloader(self) -> DataLoader[Any]:
        """Training batches, finished, in this epoch's order."""
        self._train_loader = self._loader("train")
        # now, not when the state is written: a transform may change itself along the way
        self._printed = print_transforms(self._transforms())
        if self._place is not None and isinstance(self._train_loader, Loader):
            if lies_inside(self._place):
                check_transforms(self._place.get("transforms"), self._printed)
            self._train_loader.load_state_dict(self._place)
        self._place = None
        return self._train_loader

    def val_dataloader(self) -> Any:
        """Validation batches: each sample once, in order; no loader where there is no split."""
        if self._dataset("val") is not None:
            return self._loader("val")
        return []  # what Lightning takes for "no validation"

    def test_dataloader(self) -> Any:
        """Test batches: each sample once, in order."""
        return self._loader("test")

    def predict_dataloader(self) -> Any:
        """Bare inputs, each sample once, in the order of ``predict_keys``."""
        return self._loader("predict")

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Normalize images that crossed as uint8, then call the module's own override."""
        trainer = self.trainer
        normalizer = self.normalizer_of(self._datasets.get(self._running_split()))
        if normalizer is not None:
            finished = mixed(normalizer(batch))
            if finished is not batch and trainer is not None:
                finished = trainer.precision_plugin.convert_input(finished)
            batch = finished
        # Lightning calls the datamodule's hook in place of the module's
        return (
            batch
            if trainer is None
            else trainer.lightning_module.on_after_batch_transfer(batch, dataloader_idx)
        )

    def teardown(self, stage: str) -> None:
        """Forget what belongs to a run; the data stay."""
        self._guard.release()

    def state_dict(self) -> dict[str, Any]:
        """Source, fitted parts, split and place in the epoch; loads with ``weights_only=True``."""
        state: dict[str, Any] = {"source": type(self).__qualname__, "fitted": dict(self.fitted)}
        state["split"] = self.split_fingerprint() if self._is_read else None
        if isinstance(self._train_loader, Loader):
            place = self._train_loader.state_dict()
            state["train_place"] = {**place, "transforms": dict(self._printed)}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what was fitted and, on a resumed fit, the place in the epoch.

        Raises:
            ValueError: If another class wrote the state.
            RuntimeError: If a fit is resumed on another split.
        """
        source = state_dict.get("source")
        if source != type(self).__qualname__:
            raise ValueError(
                f"the checkpoint holds the state of {source!r}, this is {type(self).__qualname__!r}"
            )
        resumes = self._attached() and self.trainer.state.fn == "fit"  # type: ignore[union-attr]
        if resumes and self._is_read and state_dict.get("split") != self.split_fingerprint():
            raise RuntimeError(
                "the data or the split changed since the checkpoint was written, so training rows "
                "could be evaluated; resume with the same files, split_seed and fractions, or "
                "start a new run"
            )
        self.fitted = dict(state_dict.get("fitted", {}))
        self._datasets.clear()
        if resumes:
            self._place = state_dict.get("train_place")

    # --- plain use ---------------------------------------------------------------------------

    def batches(
        self, split: Split = "train", *, device: str | torch.device = "cpu"
    ) -> Iterator[Any]:
        """Finished batches of one split on ``device``, for a plain loop; prepares what it needs."""
        check_name(split, SPLITS, "split")
        self._prepare(split)
        hook = getattr(self, f"{split}_dataloader")
        for batch in hook():
            yield self.transfer_batch_to_device(batch, torch.device(device), 0)

    def part_as(self, split_options: dict[str, Any]) -> None:
        """Add to ``split_options`` before the data are read, as one fit a fold needs it.

        Raises:
            ValueError: If they cannot be.
            RuntimeError: If the data are read already.
        """
        if self._is_read:
            raise RuntimeError("the samples are parted already; make a new datamodule")
        joined = {**(self._split_options or {}), **split_options}
        SplitOptions.of(joined)
        self._split_options, self.hparams["split_options"] = joined, plain(joined)

    def preview(self, split: Split = "train") -> Any:
        """One finished batch, made without workers; touches no accelerator and no Trainer."""
        check_name(split, SPLITS, "split")
        self._prepare(split)
        loader = self._loader(split, num_workers=0)
        return next(iter(loader))

    def plot(self, split: Split = "train", **options: Any) -> Figure:
        """What a split looks like: a batch's images, a table's columns, or lengths of texts.

        Args:
            split: Which.
            **options: Those of :func:`datamodules.insight.plot`.

        Returns:
            A matplotlib figure, shown by a notebook; no window opens.
        """
        # By name and on demand: core rests on nothing above it, and no user has to import what
        # draws before a method of every datamodule works.
        figures: Any = import_module("datamodules.insight.figures")
        drawn: Figure = figures.plot(self, split, **options)
        return drawn

    def __str__(self) -> str:
        made = [(split, self._datasets[split]) for split in SPLITS if split in self._datasets]
        said = ", ".join(
            f"{split} {len(data):,}" if hasattr(data, "__len__") else f"{split} a stream"
            for split, data in made
            if data is not None
        )
        size = self.hparams["batch_size"]
        kept = "" if self._ram_cache is None else f"; keeps {self._ram_cache}"
        changed = "; draft=True changes pixels" if self.hparams.get("draft") else ""
        return f"{type(self).__name__}({said or 'not set up'}; batch_size={size}{changed}{kept})"

    # --- inside ------------------------------------------------------------------------------

    def _transforms(self) -> dict[str, Any]:
        """What makes train samples and batches besides the plan, by argument."""
        own = getattr(self, "_train_transform", None)
        return {
            "train_transform": getattr(self, "train_transform", own),
            "load": getattr(self, "_load", None),
            "collate": self.loader_options.get("collate_fn") or getattr(self, "_collate", None),
            **{name: self.hparams.get(name) for name in TRAIN_OPTIONS},
        }

    def _prepare(self, split: Split) -> None:
        if split != "predict" or not self.fitted:  # a checkpoint holds what prediction needs
            self.prepare_data()

    def _running_split(self) -> Split:
        """The split that the Trainer runs now."""
        stage = None if self.trainer is None else self.trainer.state.stage
        return RUNNING.get(stage, "train")

    def _compare_ranks(self) -> None:
        if not self._attached() or not self._is_read:
            return
        trainer, mine = self.trainer, self.split_fingerprint()
        assert trainer is not None
        if trainer.world_size > 1:
            first = trainer.strategy.broadcast(mine)
            if first != mine:
                raise RuntimeError(
                    f"rank {trainer.global_rank} found other data than rank 0, so the splits "
                    "differ; give every machine the same files and the same split_seed"
                )

    def __getstate__(self) -> dict[str, Any]:
        # loaders and the Trainer belong to a process; the data and the settings travel
        dropped = {"_train_loader": None, "trainer": None, "_guard": StepwiseGuard()}
        return {**self.__dict__, **dropped}
