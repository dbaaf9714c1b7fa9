"""Regressor for tables, images and texts, with one or several targets."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import torch
from torch import Tensor, nn

from .arguments import TrainingOptions, check_choice, plain
from .losses import REGRESSION_LOSSES, at_least_float32, match_shapes
from .metrics import WeightedMean, regression_scores
from .training import TrainingModule, bare_inputs


class Regressor(TrainingModule):
    """A network with loss, optimizer and metrics for regression.

    Batches unpack as ``inputs, target``: inputs as for :class:`models.Classifier`, target (N,) or
    (N, T) float32. If the datamodule scales the target, the network learns scaled values; scores
    and predictions are in the original units.

    Logs ``train_loss`` and ``train_mae``, and for ``val`` and ``test`` ``_loss``, ``_mae``,
    ``_rmse`` and ``_r2``, each the mean over the targets (no R2 if a target is constant), over the
    whole split and all ranks.

    Example:
        >>> model = Regressor(num_targets=1, input_sizes={"num_numeric": 4})
        >>> model.configure_model()  # the Trainer calls it
        >>> model(torch.zeros(2, 4)).shape
        torch.Size([2, 1])

    Args:
        net: ``"auto"``, a name of :func:`models.net_names`, or any module that returns (N, T)
            values, or (N,) for one target.
        num_targets: T.
        target_scale: ``{"mean": [...], "std": [...]}``, T values each, that targets are scaled by.
        loss: ``"mse"``, ``"mae"`` or ``"huber"``.
        **options: See :class:`models.arguments.TrainingOptions`.

    Raises:
        ValueError: If an argument is wrong; from ``configure_model``, if neither the datamodule
            nor the arguments have the number of targets.
    """

    def __init__(
        self,
        net: str | nn.Module = "auto",
        *,
        num_targets: int | None = None,
        target_scale: dict[str, list[float]] | None = None,
        loss: Literal["mse", "mae", "huber"] = "mse",
        **options: Unpack[TrainingOptions],
    ) -> None:
        check_choice("loss", loss, tuple(REGRESSION_LOSSES))
        super().__init__(net, **options)
        self.hparams["target_scale"] = plain(target_scale)
        self.train_mae = WeightedMean()

    # Sizes and scales -----------------------------------------------------------------------

    def _infer_outputs(self) -> int:
        options, task = self.hparams, self._from_data("task")
        if task not in (None, "regression"):
            raise ValueError(
                f"the datamodule's task is {task}, and a Regressor needs numbers; "
                "use Classifier, or a datamodule with task='regression'"
            )
        # inferred together: a saved model keeps the scale it was trained with, which may be None
        if options["num_targets"] is None and options["target_scale"] is None:
            options["target_scale"] = self._from_data("target_scale")
        num_targets = self._infer_number("num_targets", "targets")
        self._check_scale(options["target_scale"])
        return num_targets

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

    # Steps ----------------------------------------------------------------------------------

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the loss of a batch, a scalar."""
        outputs, target = self._matched(self(batch[0]), batch[1])
        losses = self._losses(outputs, target)
        error = (outputs - target).detach().abs()
        if self.hparams["target_scale"] is not None:
            error = error * error.new_tensor(self.hparams["target_scale"]["std"])
        rows = torch.ones_like(losses).sum()
        self._log_training(loss=(losses.sum(), rows), mae=(error.mean(1).sum(), rows))
        return losses.mean()

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return values in the original units, float32: (N,) for one target, else (N, T)."""
        outputs = self(bare_inputs(batch)).float()
        num_targets = self.hparams["num_targets"]
        values = match_shapes(outputs, outputs.new_empty(len(outputs), num_targets))
        values = _unscaled(values, self.hparams["target_scale"])
        return values.squeeze(1) if num_targets == 1 else values

    def _evaluate(self, batch: Any, *, first: bool) -> dict[str, Tensor]:
        outputs, target = self._matched(self(batch[0]), batch[1])
        losses = self._losses(outputs, target).float()
        return {
            "outputs": outputs.float(),
            "target": target.float(),
            "loss": losses,
            "weight": torch.ones_like(losses),
        }

    def _matched(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs and target as (N, T), both on the scale of the network."""
        num_targets = self.hparams["num_targets"]
        outputs = at_least_float32(match_shapes(outputs, target))
        if target.ndim > 2 or target.numel() != len(target) * num_targets:
            raise ValueError(
                f"targets must be (N,) or (N, {num_targets}), got {tuple(target.shape)}; "
                "pass num_targets="
            )
        target = target.to(outputs.dtype).reshape(-1, num_targets)
        own = self.hparams["target_scale"]
        data_scale = self._from_data("target_scale", own)
        if own != data_scale:
            # a loaded model with a datamodule that was fitted on other rows
            target = _scaled(_unscaled(target, data_scale), own)
        return outputs.reshape(-1, num_targets), target

    def _losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        loss = REGRESSION_LOSSES[self.hparams["loss"]]
        return loss(outputs, target, reduction="none").mean(1)

    # Scores ---------------------------------------------------------------------------------

    def _empty_rows(self) -> dict[str, Tensor]:
        empty = torch.empty(0, self.hparams["num_targets"])
        return {"outputs": empty, "target": empty, "loss": empty[:, 0], "weight": empty[:, 0]}

    def _scores(self, rows: dict[str, Tensor]) -> dict[str, float]:
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
