"""A regressor for tables, images and texts, with one target or several, in their own units."""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from .arguments import check_choice, plain
from .losses import REGRESSION_LOSSES, at_least_float32, match_shapes
from .metrics import WeightedMean, regression_scores
from .training import TrainingModule, bare_inputs


class Regressor(TrainingModule):
    """A network, its loss, optimiser and metrics, for a datamodule that gives numbers.

    Batches unpack as ``inputs, target``: inputs as :class:`models.Classifier` takes them, target
    (N,) or (N, T) float32. Where the datamodule has scaled the target, the network learns scaled
    values; scores and predictions are in the target's own units.

    Logged, over the whole split and all ranks: ``train_loss``, ``train_mae``; for ``val`` and
    ``test``: ``_loss``, ``_mae``, ``_rmse`` and ``_r2``, each the mean over the targets (no R2
    where a target is constant).

    Args:
        net: ``"auto"``, a name of :func:`models.net_names`, or any module that returns (N, T)
            values, or (N,) for one target.
        net_options: More keyword arguments for a network built by name.
        weights: A torchvision weights enum's name for trained weights, such as ``"DEFAULT"``.
        num_targets: T.
        input_sizes: What sizes the network, as for :class:`models.Classifier`.
        target_scale: ``{"mean": [...], "std": [...]}``, T values each, that batches are scaled by.
        loss: ``"mse"``, ``"mae"`` or ``"huber"``.
        optimizer: ``"adamw"`` or ``"sgd"`` (with Nesterov momentum).
        lr: Learning rate after the warm-up; it falls to 0 by a cosine.
        weight_decay: Not applied to biases and norms.
        momentum: For SGD.
        warmup_steps: Optimiser steps of the warm-up; below 1, a share of all steps.
        freeze_backbone: Train the head alone; the rest stays in eval mode.
        unfreeze_at_epoch: Epoch from which the backbone trains too.
        backbone_lr: Learning rate of the backbone; None means ``lr``.

    Raises:
        ValueError: If an argument is wrong, with the right ones; from ``configure_model``, if
            neither the datamodule nor the arguments say the number of targets.
    """

    def __init__(
        self,
        net: str | nn.Module = "auto",
        *,
        net_options: dict[str, Any] | None = None,
        weights: str | None = None,
        num_targets: int | None = None,
        input_sizes: dict[str, Any] | None = None,
        target_scale: dict[str, list[float]] | None = None,
        loss: Literal["mse", "mae", "huber"] = "mse",
        optimizer: Literal["adamw", "sgd"] = "adamw",
        lr: float = 1e-3,
        weight_decay: float = 0.01,
        momentum: float = 0.9,
        warmup_steps: int | float = 0.05,
        freeze_backbone: bool = False,
        unfreeze_at_epoch: int | None = None,
        backbone_lr: float | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["net"], logger=False)
        check_choice("loss", loss, tuple(REGRESSION_LOSSES))
        self.hparams["target_scale"] = plain(target_scale)
        self.train_mae = WeightedMean()
        self.start(net)

    # Sizes and scales -----------------------------------------------------------------------

    def find_outputs(self, data: Any) -> int:
        """Fill in the number of targets and their scale; the network has T outputs."""
        options = self.hparams
        found_task = getattr(data, "task", None)
        if found_task not in (None, "regression"):
            raise ValueError(
                f"the datamodule's task is {found_task}, and a Regressor needs numbers; "
                "use Classifier, or a datamodule with task='regression'"
            )
        if options["num_targets"] is None:
            found = getattr(data, "num_targets", None)
            if found is None:
                raise ValueError(
                    "the number of targets is unknown: "
                    + ("there is no datamodule" if data is None else "the datamodule has none")
                    + "; pass num_targets=, or give the Trainer a datamodule that has num_targets"
                )
            options["num_targets"] = int(found)
            # found together: a saved model keeps the scale it was trained with, which may be none
            if options["target_scale"] is None:
                options["target_scale"] = plain(getattr(data, "target_scale", None))
        self._check_scale(options["target_scale"])
        return cast(int, options["num_targets"])

    def _check_scale(self, scale: dict[str, list[float]] | None) -> None:
        num_targets = self.hparams["num_targets"]
        if scale is not None and [len(scale.get(key, ())) for key in ("mean", "std")] != [
            num_targets,
            num_targets,
        ]:
            raise ValueError(
                "target_scale must be {'mean': [...], 'std': [...]} with a value for each of "
                f"{num_targets} targets, got {scale}"
            )

    def _data_scale(self) -> dict[str, list[float]] | None:
        """The scale of the batches' targets: the datamodule's, else the model's own."""
        if self._data is not None and hasattr(self._data, "target_scale"):
            return cast("dict[str, list[float]] | None", plain(self._data.target_scale))
        return cast("dict[str, list[float]] | None", self.hparams["target_scale"])

    # Steps ----------------------------------------------------------------------------------

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of a batch, a scalar."""
        outputs, target = self._matched(self.forward_training(batch[0]), batch[1])
        losses = self._losses(outputs, target)
        error = (outputs - target).detach().abs()
        if self.hparams["target_scale"] is not None:
            error = error * error.new_tensor(self.hparams["target_scale"]["std"])
        rows = torch.ones_like(losses).sum()
        self.note_training(loss=(losses.sum(), rows), mae=(error.mean(1).sum(), rows))
        return losses.mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Store a batch's rows."""
        self._evaluate(batch)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Store a batch's rows."""
        self._evaluate(batch)

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Values in the target's own units, float32: (N,) for one target, else (N, T)."""
        outputs = self(bare_inputs(batch)).float()
        num_targets = self.hparams["num_targets"]
        values = match_shapes(outputs, outputs.new_empty(len(outputs), num_targets))
        values = _unscaled(values, self.hparams["target_scale"])
        return values.squeeze(1) if num_targets == 1 else values

    def _evaluate(self, batch: Any) -> None:
        outputs, target = self._matched(self(batch[0]), batch[1])
        losses = self._losses(outputs, target).float()
        self.note_rows(
            outputs=outputs.float(),
            target=target.float(),
            loss=losses,
            weight=torch.ones_like(losses),
        )

    def _matched(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and target as (N, T), both on the network's scale."""
        num_targets = self.hparams["num_targets"]
        outputs = at_least_float32(match_shapes(outputs, target))
        if target.ndim > 2 or target.numel() != len(target) * num_targets:
            raise ValueError(
                f"targets must be (N,) or (N, {num_targets}), got {tuple(target.shape)}; "
                "pass num_targets="
            )
        target = target.to(outputs.dtype).reshape(-1, num_targets)
        own, found = self.hparams["target_scale"], self._data_scale()
        if own != found:
            # a loaded model beside a datamodule that was fitted to other rows
            target = _scaled(_unscaled(target, found), own)
        return outputs.reshape(-1, num_targets), target

    def _losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        loss = REGRESSION_LOSSES[self.hparams["loss"]]
        return loss(outputs, target, reduction="none").mean(1)

    # Scores ---------------------------------------------------------------------------------

    def empty_rows(self) -> dict[str, Tensor]:
        """Rows as :meth:`validation_step` stores them, but none."""
        empty = torch.empty(0, self.hparams["num_targets"])
        return {"outputs": empty, "target": empty, "loss": empty[:, 0], "weight": empty[:, 0]}

    def scores(self, rows: dict[str, Tensor]) -> dict[str, float]:
        """Score the rows of a split in the target's own units."""
        # float64 on the CPU: prices or years lose digits in float32, and squares more of them
        scale = self.hparams["target_scale"]
        outputs, target = (
            _unscaled(rows[column].cpu().double(), scale) for column in ("outputs", "target")
        )
        return regression_scores(outputs, target)


def _unscaled(values: Tensor, scale: dict[str, list[float]] | None) -> Tensor:
    if scale is None:
        return values
    return values * values.new_tensor(scale["std"]) + values.new_tensor(scale["mean"])


def _scaled(values: Tensor, scale: dict[str, list[float]] | None) -> Tensor:
    if scale is None:
        return values
    return (values - values.new_tensor(scale["mean"])) / values.new_tensor(scale["std"])
