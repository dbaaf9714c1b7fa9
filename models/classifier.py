"""Classifier for images, tables and texts, multi-class or multi-label."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import torch
from torch import Tensor, nn

from .arguments import TrainingOptions, check_choice, plain
from .losses import (
    ClassificationTask,
    at_least_float32,
    balanced_weights,
    classification_losses,
)
from .metrics import WeightedMean, classification_scores
from .training import TrainingModule, bare_inputs


class Classifier(TrainingModule):
    """A network with loss, optimizer and metrics for classification.

    Batches unpack as ``inputs, target`` (:class:`datamodules.batches.batch.Batch`)::

        inputs                               call of the network        target
        image (N, C, H, W)                   net(image)                 (N,) int64, or
        table (N, F)                         net(numeric)               (N, K) float: multi-label,
        numeric (N, F), categorical (N, G)   net(numeric, categorical)  or shares after MixUp
        input_ids, attention_mask (N, L)     net(input_ids, attention_mask)

    Example:
        >>> model = Classifier(num_classes=10, input_sizes={"input_shape": [3, 32, 32]})
        >>> model.configure_model()  # the Trainer calls it
        >>> model(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])

    Arguments that are None are inferred from the Trainer's datamodule and saved in the checkpoint.

    Logs ``train_loss`` and ``train_accuracy``, and for ``val`` and ``test`` ``_loss``,
    ``_accuracy``, ``_macro_accuracy``, ``_macro_f1`` and ``_auroc``, over the whole split and all
    ranks (see :func:`models.metrics.classification_scores`). A score that is undefined, such as
    AUROC with one class, is not logged. :attr:`confusion_matrix` has the counts.

    Args:
        net: ``"auto"``, a name of :func:`models.net_names`, or any module that returns (N, K)
            logits. ``"auto"`` builds small_resnet for up to 64 pixels, else resnet18;
            tabular_mlp; text_bag.
        num_classes: K.
        task: ``"multiclass"`` or ``"multilabel"``; without a datamodule multiclass.
        class_weights: K weights of the loss, or ``"balanced"`` by the training rows.
        label_smoothing: Share of the training target that is divided evenly between the classes.
        **options: See :class:`models.arguments.TrainingOptions`.

    Raises:
        ValueError: If an argument is wrong; from ``configure_model``, if neither the datamodule
            nor the arguments have the number of classes.
    """

    def __init__(
        self,
        net: str | nn.Module = "auto",
        *,
        num_classes: int | None = None,
        task: ClassificationTask | None = None,
        class_weights: list[float] | Literal["balanced"] | None = None,
        label_smoothing: float = 0.0,
        **options: Unpack[TrainingOptions],
    ) -> None:
        if task is not None:
            check_choice("task", task, ("multiclass", "multilabel"))
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must be in [0, 1), got {label_smoothing}")
        if isinstance(class_weights, str):
            check_choice("class_weights", class_weights, ("balanced",))
        super().__init__(net, **options)
        self.hparams["class_weights"] = plain(class_weights)
        self.train_accuracy = WeightedMean()
        self._class_weights: Tensor | None = None
        self._confusion: Tensor | None = None

    @property
    def confusion_matrix(self) -> Tensor:
        """Counts of the last validation or test, (K, K) int64; rows: true, columns: predicted.

        For multi-label data (K, 2, 2), ``[[true -, false +], [false -, true +]]`` per label.

        Raises:
            RuntimeError: Before the first validation or test.
        """
        if self._confusion is None:
            raise RuntimeError(
                "there is no confusion matrix yet; call trainer.validate or trainer.test first"
            )
        return self._confusion

    # Sizes ----------------------------------------------------------------------------------

    def _infer_outputs(self) -> int:
        options, task = self.hparams, self._from_data("task")
        if task == "regression":
            raise ValueError(
                "the datamodule's task is regression, and a Classifier needs classes; "
                "use Regressor, or a datamodule with task='multiclass'"
            )
        options["task"] = options["task"] or task or "multiclass"
        num_classes = self._infer_number("num_classes", "classes")
        if options["class_weights"] == "balanced":
            options["class_weights"] = self._balanced_weights()
        weights = options["class_weights"]
        if weights is not None and len(weights) != num_classes:
            raise ValueError(
                f"class_weights must have one weight for each of {num_classes} classes, got "
                f"{len(weights)}"
            )
        return num_classes

    def _balanced_weights(self) -> list[float]:
        counts, multilabel = self._from_data("class_counts"), self._multilabel
        if counts is None:
            raise ValueError(
                "class_weights='balanced' needs a datamodule that has class_counts; "
                "pass the weights as a list instead"
            )
        num_rows = len(self._datamodule.train_dataset) if multilabel else sum(counts)
        return balanced_weights(counts, num_rows=num_rows, task=self.hparams["task"])

    def _check_data(self) -> None:
        super()._check_data()
        built, found = self.hparams["num_classes"], self._from_data("num_classes")
        if found is not None and int(found) != built:
            raise ValueError(
                f"the network was built for {built} classes, the datamodule has {int(found)}; "
                "restore the datamodule from the same checkpoint or build a new model"
            )

    @property
    def _multilabel(self) -> bool:
        return bool(self.hparams["task"] == "multilabel")

    # Steps ----------------------------------------------------------------------------------

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the loss of a batch, a scalar."""
        logits = self(batch[0])
        target = self._checked(logits, batch[1], first=batch_idx == 0)
        losses, weights = self._losses(logits, target, self.hparams["label_smoothing"])
        if self._multilabel:
            correct = (logits > 0) == (target > 0.5)
        else:
            correct = logits.argmax(1) == _to_indices(target)
        loss_sum, weight_sum = losses.sum(), weights.sum()
        self._log_training(
            loss=(loss_sum, weight_sum), accuracy=(correct.sum(), torch.ones_like(correct).sum())
        )
        return loss_sum / weight_sum

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return probabilities (N, K) float32 for a batch, with or without target or rows."""
        return self._probabilities(self(bare_inputs(batch)))

    def _evaluate(self, batch: Any, *, first: bool) -> dict[str, Tensor]:
        logits = self(batch[0])
        target = self._checked(logits, batch[1], first=first)
        # without label smoothing, so that losses of different runs can be compared
        losses, weights = self._losses(logits, target, label_smoothing=0.0)
        return {
            "outputs": self._probabilities(logits),
            "target": (target > 0.5).byte() if self._multilabel else _to_indices(target),
            "loss": losses.float(),
            "weight": weights.float(),
        }

    def _probabilities(self, logits: Tensor) -> Tensor:
        logits = at_least_float32(logits)
        return (logits.sigmoid() if self._multilabel else logits.softmax(1)).float()

    def _losses(
        self, logits: Tensor, target: Tensor, label_smoothing: float
    ) -> tuple[Tensor, Tensor]:
        logits = at_least_float32(logits)
        if self.hparams["class_weights"] is not None:
            # not a buffer: converting the model to bfloat16 would round it; not an inference
            # tensor, since a fit may follow a test
            with torch.inference_mode(False):
                if self._class_weights is None:
                    self._class_weights = torch.tensor(self.hparams["class_weights"])
                self._class_weights = self._class_weights.to(logits)
        return classification_losses(
            logits,
            target,
            task=self.hparams["task"],
            class_weights=self._class_weights,
            label_smoothing=label_smoothing,
        )

    def _checked(self, logits: Tensor, target: Tensor, *, first: bool) -> Tensor:
        """Check the target's shape, and its range if that needs no synchronization."""
        num_classes = self.hparams["num_classes"]
        if logits.ndim != 2 or logits.shape[1] != num_classes:
            raise ValueError(
                f"the network must return (N, {num_classes}) logits, one for each class, got "
                f"{tuple(logits.shape)}; change its last layer or pass num_classes="
            )
        rows = len(logits)
        if target.shape == (rows, num_classes) and (self._multilabel or target.is_floating_point()):
            return target
        if self._multilabel:
            raise ValueError(
                f"multi-label targets must be ({rows}, {num_classes}) of 0 and 1, got "
                f"{tuple(target.shape)}; pass task='multiclass' for one label per row"
            )
        if target.shape != (rows,) or target.is_floating_point():
            raise ValueError(
                f"targets must be ({rows},) int64 class indices or ({rows}, {num_classes}) float "
                f"shares, got {tuple(target.shape)} {target.dtype}; use Regressor for numbers"
            )
        # on an accelerator it would synchronize at each batch, and it breaks a compiled graph
        if (first or target.device.type == "cpu") and not torch.compiler.is_compiling():
            lowest, highest = int(target.min()), int(target.max())
            if lowest < 0 or highest >= num_classes:
                raise ValueError(
                    f"class indices must be from 0 to {num_classes - 1}, got {lowest} to "
                    f"{highest}; number the classes from 0 or pass num_classes="
                )
        return target.long()

    # Scores ---------------------------------------------------------------------------------

    def _empty_rows(self) -> dict[str, Tensor]:
        outputs = torch.empty(0, self.hparams["num_classes"])
        target = outputs.byte() if self._multilabel else torch.empty(0, dtype=torch.int64)
        loss = torch.empty(0)
        return {"outputs": outputs, "target": target, "loss": loss, "weight": loss}

    def _scores(self, rows: dict[str, Tensor]) -> dict[str, float]:
        scores, self._confusion = classification_scores(
            rows["outputs"], rows["target"], task=self.hparams["task"]
        )
        return scores


def _to_indices(target: Tensor) -> Tensor:
    """Return the class (N,) of the largest share of targets (N, K); (N,) stays as it is."""
    return target.argmax(1) if target.ndim == 2 else target
