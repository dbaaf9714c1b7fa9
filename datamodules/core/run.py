"""What a datamodule needs to know about the Trainer that runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities import move_data_to_device
from lightning.pytorch.trainer.states import RunningStage, TrainerStatus

from datamodules.batches.mixup import mixed
from datamodules.splits.split_samples import Split

SPLIT_OF_STAGE: dict[Any, Split] = {
    RunningStage.TRAINING: "train",
    RunningStage.VALIDATING: "val",
    RunningStage.SANITY_CHECKING: "val",
    RunningStage.TESTING: "test",
    RunningStage.PREDICTING: "predict",
}


class Run:
    """The run of a Trainer; without one, the defaults of a plain loop.

    Args:
        trainer: None, or a Trainer: a datamodule keeps it after the run has ended, and then it is
            ignored.

    Attributes:
        trainer: The Trainer while it runs, else None.

    Example:
        >>> run = Run(None)
        >>> run.function, run.ranks, run.processes_here, run.moves_to_device
        (None, {}, 1, False)
    """

    def __init__(self, trainer: L.Trainer | None) -> None:
        running = trainer is not None and trainer.state.status == TrainerStatus.RUNNING
        self.trainer = trainer if running else None

    @property
    def function(self) -> str | None:
        """``"fit"``, ``"validate"``, ``"test"``, ``"predict"``, or None outside a run."""
        return None if self.trainer is None else self.trainer.state.fn

    @property
    def split(self) -> Split:
        """The split that is read now; train outside a run."""
        stage = None if self.trainer is None else self.trainer.state.stage
        return SPLIT_OF_STAGE.get(stage, "train")

    @property
    def ranks(self) -> dict[str, int]:
        """``num_replicas`` and ``rank`` for samplers; empty outside a run."""
        if self.trainer is None:
            return {}
        return dict(self.trainer.distributed_sampler_kwargs or {"num_replicas": 1, "rank": 0})

    @property
    def processes_here(self) -> int:
        """Processes of the run on this machine."""
        trainer = self.trainer
        return 1 if trainer is None else max(1, trainer.world_size // trainer.num_nodes)

    @property
    def moves_to_device(self) -> bool:
        """Whether batches are moved to an accelerator, as uint8, and normalized there."""
        return self.trainer is not None and self.trainer.strategy.root_device.type != "cpu"

    @property
    def pins_memory(self) -> bool:
        """Whether batches are copied to pinned memory by default."""
        return self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"

    @property
    def overfits(self) -> bool:
        """Whether the Trainer was given ``overfit_batches``."""
        return self.trainer is not None and bool(self.trainer.overfit_batches)  # type: ignore[attr-defined]

    def transfer(
        self, batch: Any, device: torch.device, dataloader_idx: int, normalizer: Any
    ) -> Any:
        """Move a batch to ``device``, then normalize images that were moved as uint8.

        Lightning calls the datamodule's hook in place of the module's, so this calls the module's.
        """
        if self.trainer is None:
            return move_data_to_device(batch, device)
        batch = self.trainer.lightning_module.transfer_batch_to_device(
            batch, device, dataloader_idx
        )
        if normalizer is None:
            return batch
        return self.trainer.precision_plugin.convert_input(mixed(normalizer(batch)))

    def check_same_data(self, fingerprint: Callable[[], str | None]) -> None:
        """Compare the splits of all ranks.

        Args:
            fingerprint: Returns the digest of this rank's splits.

        Raises:
            RuntimeError: If it differs from that of rank 0.
        """
        trainer = self.trainer
        if trainer is None or trainer.world_size == 1:
            return
        own = fingerprint()
        if trainer.strategy.broadcast(own) != own:
            raise RuntimeError(
                f"rank {trainer.global_rank} found other data than rank 0, so the splits "
                "differ; give every machine the same files and the same split_seed"
            )
