"""A classifier for images, tables and texts, with one label a row or several."""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from .arguments import check_choice, plain
from .losses import Task, at_least_float32, balanced_weights, classification_losses
from .metrics import WeightedMean, classification_scores
from .training import TrainingModule, bare_inputs


class Classifier(TrainingModule):
    """A network, its loss, optimiser and metrics, for a datamodule that gives classes.

    Batches unpack as ``inputs, target`` (:class:`datamodules.batches.batch.Batch`)::

        inputs                         network sees               target
        image (N, C, H, W)             net(image)                 (N,) int64, or
        table (N, F)                   net(numeric)               (N, K) float: several labels,
        numeric (N, F), codes (N, G)   net(numeric, categorical)  or shares after MixUp
        ids, mask (N, L)               net(input_ids, attention_mask)

    Example:
        >>> model = Classifier(num_classes=10, input_sizes={"input_shape": [3, 32, 32]})
        >>> model.configure_model()  # the Trainer calls it
        >>> model(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])

    What is left None is found from the Trainer's datamodule and saved in the checkpoint.

    Logged, over the whole split and all ranks: ``train_loss``, ``train_accuracy``; for ``val``
    and ``test``: ``_loss``, ``_accuracy``, ``_macro_accuracy``, ``_macro_f1``, ``_auroc`` (see
    :func:`models.metrics.classification_scores`; a score that the rows leave undefined, as AUROC
    with one class, is not logged). :attr:`confusion_matrix` has the counts.

    Args:
        net: ``"auto"``, a name of :func:`models.net_names`, or any module that returns (N, K)
            logits. ``"auto"`` takes small_resnet up to 64 pixels, else resnet18; tabular_mlp;
            text_bag.
        net_options: More keyword arguments for a network built by name.
        weights: A torchvision weights enum's name for trained weights, such as ``"DEFAULT"``.
        num_classes: K.
        task: ``"multiclass"`` or ``"multilabel"``; without datamodule multiclass.
        input_sizes: What sizes the network: ``{"input_shape": [C, H, W]}``,
            ``{"num_numeric": F, "cardinalities": [...]}`` or ``{"vocab_size": V, "pad_id": 0}``.
        class_weights: K weights for the loss or ``"balanced"``, by the training rows.
        label_smoothing: Share of the training target that is spread evenly.
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
            neither the datamodule nor the arguments say the number of classes.
    """

    def __init__(
        self,
        net: str | nn.Module = "auto",
        *,
        net_options: dict[str, Any] | None = None,
        weights: str | None = None,
        num_classes: int | None = None,
        task: Task | None = None,
        input_sizes: dict[str, Any] | None = None,
        class_weights: list[float] | Literal["balanced"] | None = None,
        label_smoothing: float = 0.0,
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
        if task is not None:
            check_choice("task", task, ("multiclass", "multilabel"))
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must be in [0, 1), got {label_smoothing}")
        if isinstance(class_weights, str):
            check_choice("class_weights", class_weights, ("balanced",))
        self.hparams["class_weights"] = plain(class_weights)
        self.train_accuracy = WeightedMean()
        self._class_weights: Tensor | None = None
        self._confusion: Tensor | None = None
        self.start(net)

    @property
    def confusion_matrix(self) -> Tensor:
        """Counts of the last validation or test: (K, K) int64, a row for each true class.

        With several labels (K, 2, 2): ``[[true -, false +], [false -, true +]]`` of each label.

        Raises:
            RuntimeError: If there was none yet.
        """
        if self._confusion is None:
            raise RuntimeError(
                "there is no confusion matrix yet; call trainer.validate or trainer.test first"
            )
        return self._confusion

    # Sizes ----------------------------------------------------------------------------------

    def find_outputs(self, data: Any) -> int:
        """Fill in task, number of classes and class weights; the network has K outputs."""
        options = self.hparams
        found_task = getattr(data, "task", None)
        if found_task == "regression":
            raise ValueError(
                "the datamodule's task is regression, and a Classifier needs classes; "
                "use Regressor, or a datamodule with task='multiclass'"
            )
        options["task"] = options["task"] or found_task or "multiclass"
        if options["num_classes"] is None:
            found = getattr(data, "num_classes", None)
            if found is None:
                raise ValueError(
                    "the number of classes is unknown: "
                    + ("there is no datamodule" if data is None else "the datamodule has none")
                    + "; pass num_classes=, or give the Trainer a datamodule that has num_classes"
                )
            options["num_classes"] = int(found)
        if options["class_weights"] == "balanced":
            options["class_weights"] = self._balanced_weights(data)
        weights = options["class_weights"]
        if weights is not None and len(weights) != options["num_classes"]:
            raise ValueError(
                f"class_weights must have one weight for each of {options['num_classes']} "
                f"classes, got {len(weights)}"
            )
        return cast(int, options["num_classes"])

    def _balanced_weights(self, data: Any) -> list[float]:
        counts = plain(getattr(data, "class_counts", None))
        if counts is None:
            raise ValueError(
                "class_weights='balanced' needs a datamodule that has class_counts; "
                "pass the weights as a list instead"
            )
        multilabel = self.hparams["task"] == "multilabel"
        num_rows = len(data.train_dataset) if multilabel else sum(counts)
        return balanced_weights(counts, num_rows=num_rows, task=self.hparams["task"])

    def check_data(self) -> None:
        """Compare the datamodule's sizes and classes with those the network was built for.

        Raises:
            ValueError: If they differ.
        """
        super().check_data()
        found = getattr(self._data, "num_classes", None)
        if found is not None and int(found) != self.hparams["num_classes"]:
            raise ValueError(
                f"the network was built for {self.hparams['num_classes']} classes, the datamodule "
                f"has {int(found)}; restore the datamodule from the same checkpoint or build a "
                "new model"
            )

    # Steps ----------------------------------------------------------------------------------

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of a batch, a scalar."""
        logits = self.forward_training(batch[0])
        target = self._checked(logits, batch[1], first=batch_idx == 0)
        losses, weights = self._losses(logits, target, self.hparams["label_smoothing"])
        if self.hparams["task"] == "multilabel":
            right = (logits > 0) == (target > 0.5)
        else:
            right = logits.argmax(1) == _hard(target)
        loss_sum, weight_sum = losses.sum(), weights.sum()
        self.note_training(
            loss=(loss_sum, weight_sum), accuracy=(right.sum(), torch.ones_like(right).sum())
        )
        return loss_sum / weight_sum

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Store a batch's rows."""
        self._evaluate(batch, first=batch_idx == 0)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Store a batch's rows."""
        self._evaluate(batch, first=batch_idx == 0)

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Probabilities (N, K) float32, of bare inputs or of the inputs of a batch."""
        return self._probabilities(self(bare_inputs(batch)))

    def _evaluate(self, batch: Any, *, first: bool) -> None:
        logits = self(batch[0])
        target = self._checked(logits, batch[1], first=first)
        # without label smoothing, which makes losses of different runs incomparable
        losses, weights = self._losses(logits, target, label_smoothing=0.0)
        multilabel = self.hparams["task"] == "multilabel"
        self.note_rows(
            outputs=self._probabilities(logits),
            target=(target > 0.5).byte() if multilabel else _hard(target),
            loss=losses.float(),
            weight=weights.float(),
        )

    def _probabilities(self, logits: Tensor) -> Tensor:
        logits = at_least_float32(logits)
        multilabel = self.hparams["task"] == "multilabel"
        return (logits.sigmoid() if multilabel else logits.softmax(1)).float()

    def _losses(
        self, logits: Tensor, target: Tensor, label_smoothing: float
    ) -> tuple[Tensor, Tensor]:
        logits = at_least_float32(logits)
        if self.hparams["class_weights"] is not None:
            # no buffer: converting the model to bfloat16 would round it; no inference tensor
            # either, since a fit may follow a test
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
        """The target, after a look at its shape, and at its range where that is quick."""
        num_classes = self.hparams["num_classes"]
        if logits.ndim != 2 or logits.shape[1] != num_classes:
            raise ValueError(
                f"the network must return (N, {num_classes}) logits, one for each class, got "
                f"{tuple(logits.shape)}; change its last layer or pass num_classes="
            )
        rows = len(logits)
        multilabel = self.hparams["task"] == "multilabel"
        if target.shape == (rows, num_classes) and (multilabel or target.is_floating_point()):
            return target
        if multilabel:
            raise ValueError(
                f"targets with several labels a row must be ({rows}, {num_classes}) of 0 and 1, "
                f"got {tuple(target.shape)}; pass task='multiclass' for one label a row"
            )
        if target.shape != (rows,) or target.is_floating_point():
            raise ValueError(
                f"targets must be ({rows},) int64 class indices or ({rows}, {num_classes}) float "
                f"shares, got {tuple(target.shape)} {target.dtype}; use Regressor for numbers"
            )
        # an accelerator would have to be waited for at each batch, and a compiler breaks its graph
        if (first or target.device.type == "cpu") and not torch.compiler.is_compiling():
            lowest, highest = int(target.min()), int(target.max())
            if lowest < 0 or highest >= num_classes:
                raise ValueError(
                    f"class indices must be from 0 to {num_classes - 1}, got {lowest} to "
                    f"{highest}; number the classes from 0 or pass num_classes="
                )
        return target.long()

    # Scores ---------------------------------------------------------------------------------

    def empty_rows(self) -> dict[str, Tensor]:
        """Rows as :meth:`validation_step` stores them, but none."""
        outputs = torch.empty(0, self.hparams["num_classes"])
        multilabel = self.hparams["task"] == "multilabel"
        target = outputs.byte() if multilabel else torch.empty(0, dtype=torch.int64)
        return {
            "outputs": outputs,
            "target": target,
            "loss": outputs[:, 0],
            "weight": outputs[:, 0],
        }

    def scores(self, rows: dict[str, Tensor]) -> dict[str, float]:
        """Score the rows of a split and keep their confusion matrix."""
        scores, self._confusion = classification_scores(
            rows["outputs"], rows["target"], task=self.hparams["task"]
        )
        return scores


def _hard(target: Tensor) -> Tensor:
    return target.argmax(1) if target.ndim == 2 else target
