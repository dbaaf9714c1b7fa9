"""Base class of the classifier and the regressor: the network, optimizer, freezing and logging."""

from __future__ import annotations

import inspect
from typing import Any, Literal

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn

from .arguments import TrainingOptions, check_choice, plain
from .metrics import RowStore, WeightedMean, weighted_mean
from .nets import build_net, resolve_net
from .optimise import backbone_parameters, head_of, make_optimizer, warmup_cosine


def bare_inputs(batch: Any) -> Any:
    """Return the inputs of a predict batch: the batch itself, or without rows or target."""
    if hasattr(batch, "inputs"):
        return batch.inputs
    return batch[0] if type(batch) in (tuple, list) else batch


class TrainingModule(L.LightningModule):
    """A network with optimizer, schedule, freezing and scores; a subclass adds loss and scores.

    Args:
        net: ``"auto"``, a name of :func:`models.net_names`, or any module.
        **options: See :class:`models.arguments.TrainingOptions`.
    """

    net: nn.Module

    def __init__(
        self,
        net: str | nn.Module,
        *,
        net_options: dict[str, Any] | None = None,
        weights: str | None = None,
        input_sizes: dict[str, Any] | None = None,
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
        self.save_hyperparameters(ignore=["net"], logger=False)  # the subclass's arguments too
        # LightningCLI replaces them by its config, which lacks the defaults of typed options
        defaults = inspect.signature(TrainingModule.__init__).parameters
        for name in TrainingOptions.__annotations__:
            self.hparams.setdefault(name, defaults[name].default)
        self.train_loss = WeightedMean()
        self.rows = RowStore("outputs", "target", "loss", "weight")
        self._backbone_frozen = False
        options = self.hparams
        check_choice("optimizer", optimizer, ("adamw", "sgd"))
        for name in ("lr", "warmup_steps", "weight_decay", "momentum"):
            if options[name] < 0:
                raise ValueError(f"{name} must be 0 or more, got {options[name]}")
        if unfreeze_at_epoch is not None and not freeze_backbone:
            raise ValueError(
                f"unfreeze_at_epoch={unfreeze_at_epoch} needs a frozen backbone; pass "
                "freeze_backbone=True as well"
            )
        options["input_sizes"] = plain(input_sizes)
        if isinstance(net, nn.Module):
            for name in ("net_options", "weights"):
                if options[name] is not None:
                    raise ValueError(
                        f"{name} is for networks built by name, and net is a "
                        f"{type(net).__name__}; leave {name} out"
                    )
            self.net = net
            options["net"] = f"module:{type(net).__module__}.{type(net).__qualname__}"
            return
        if net.startswith("module:"):
            raise ValueError(
                f"this model was trained with a network of your own, {net[7:]}, which the "
                f"checkpoint cannot build; pass it again: {type(self).__name__}"
                f".load_from_checkpoint(path, net={net.rpartition('.')[2]}(...))"
            )
        options["net"] = net if net == "auto" else resolve_net(net, options["input_sizes"])

    # What a subclass adds -------------------------------------------------------------------

    def _infer_outputs(self) -> int:
        """Set missing hyperparameters from the datamodule; return the number of outputs."""
        raise NotImplementedError

    def _evaluate(self, batch: Any, *, first: bool) -> dict[str, Tensor]:
        """Return ``outputs``, ``target``, ``loss`` and ``weight`` of a batch, (N, ...) each."""
        raise NotImplementedError

    def _empty_rows(self) -> dict[str, Tensor]:
        """Return what :meth:`_evaluate` returns, for N = 0."""
        raise NotImplementedError

    def _scores(self, rows: dict[str, Tensor]) -> dict[str, float]:
        """Return the scores of all rows of a split."""
        raise NotImplementedError

    # The datamodule -------------------------------------------------------------------------

    @property
    def _datamodule(self) -> Any:
        """The datamodule of the Trainer; None without Trainer or datamodule."""
        return getattr(self._trainer, "datamodule", None)

    def _from_data(self, name: str, default: Any = None) -> Any:
        """Return an attribute of the datamodule; any LightningDataModule may have it or not."""
        return plain(getattr(self._datamodule, name, default))

    def _infer_number(self, name: str, noun: str) -> int:
        """Set the hyperparameter ``name`` from the datamodule if it is None, and return it."""
        if self.hparams[name] is None:
            number = self._from_data(name)
            if number is None:
                raise ValueError(
                    f"the number of {noun} is unknown: the Trainer has no datamodule with {name}; "
                    f"pass {name}="
                )
            self.hparams[name] = int(number)
        return int(self.hparams[name])

    def _check_data(self) -> None:
        """Compare the datamodule's sizes with those the network was built for.

        Raises:
            ValueError: If the network cannot take such inputs.
        """
        built, sizes = self.hparams["input_sizes"], self._from_data("input_sizes")
        if built is None or sizes is None:
            return
        # networks for images take many heights and widths, but one number of channels
        built, sizes = (
            {"channels": s["input_shape"][0]} if len(s.get("input_shape", ())) == 3 else s
            for s in (built, sizes)
        )
        if built != sizes:
            raise ValueError(
                f"the network was built for inputs of {built}, the datamodule has {sizes}; "
                "restore the datamodule from the same checkpoint or build a new model"
            )

    # The network ----------------------------------------------------------------------------

    def configure_model(self) -> None:
        """Build the network once, with the sizes of the datamodule or the checkpoint."""
        options = self.hparams
        if options["input_sizes"] is None:
            options["input_sizes"] = self._from_data("input_sizes")
        num_outputs = self._infer_outputs()
        if "net" not in self._modules:
            options["net"] = resolve_net(options["net"], options["input_sizes"])
            self.net = build_net(
                options["net"],
                num_outputs=num_outputs,
                input_sizes=options["input_sizes"],
                options=options["net_options"],
                weights=options["weights"],
            )
        if options["freeze_backbone"]:
            # before DDP wraps the network: it must know which gradients to wait for
            self._freeze(self._frozen_at(self.current_epoch))

    def forward(self, inputs: Any) -> Tensor:
        """Return (N, num_outputs) for a tensor or a NamedTuple of tensors.

        Raises:
            RuntimeError: If the network is not built yet.
            ValueError: If a network with batch norm is trained on a single row.
        """
        if "net" not in self._modules:
            raise RuntimeError(
                "the network is not built yet: the Trainer does it at the start of a run; "
                "outside of one call configure_model() first"
            )
        try:
            output = self.net(*inputs) if hasattr(inputs, "_fields") else self.net(inputs)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise ValueError(
                "batch norm cannot be trained on a batch of one sample; use batch_size=2 or more "
                f"and at least 2 training samples, or a network without batch norm ({error})"
            ) from error
        # Hugging Face and some torchvision networks wrap their logits
        logits: Tensor = getattr(output, "logits", output)
        return logits

    # Freezing -------------------------------------------------------------------------------

    def _frozen_at(self, epoch: int) -> bool:
        unfreeze_at = self.hparams["unfreeze_at_epoch"]
        return self.hparams["freeze_backbone"] and (unfreeze_at is None or epoch < unfreeze_at)

    def _freeze(self, frozen: bool) -> None:
        self._backbone_frozen = frozen
        for parameter in backbone_parameters(self.net):
            parameter.requires_grad_(not frozen)

    def train(self, mode: bool = True) -> TrainingModule:
        """Set the training mode; a frozen backbone stays in eval mode with fixed batch norms."""
        super().train(mode)
        if mode and self._backbone_frozen:
            self.net.eval()
            self.net.training = mode  # the outermost module has the head as well
            head_of(self.net).train()
        return self

    def _unfreeze_in_time(self) -> None:
        if not self._backbone_frozen or self._frozen_at(self.current_epoch):
            return
        self._freeze(False)
        self.train(self.training)
        strategy = self.trainer.strategy
        if isinstance(strategy, DDPStrategy):
            # DDP fixes the gradients it exchanges when it wraps the network, so wrap it again
            strategy.model = strategy.lightning_module
            strategy.configure_ddp()

    # Hooks ----------------------------------------------------------------------------------

    def configure_optimizers(self) -> Any:
        """Return AdamW or SGD with a learning rate for each step: warm-up, then cosine decay."""
        optimizer = make_optimizer(self.net, self.parameters(), self.hparams)
        factor = warmup_cosine(
            warmup_steps=self.hparams["warmup_steps"],
            total_steps=self.trainer.estimated_stepping_batches,
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Remove the name of pretrained weights: the checkpoint has newer ones."""
        options = checkpoint.get(self.CHECKPOINT_HYPER_PARAMS_KEY, {})
        if options.get("weights") is not None:
            checkpoint[self.CHECKPOINT_HYPER_PARAMS_KEY] = {**options, "weights": None}

    def on_fit_start(self) -> None:
        """Check the datamodule and log the hyperparameters, with those inferred from it."""
        self._check_data()
        if self.hparams["freeze_backbone"]:
            # on_train_start sets eval mode again: Lightning warns of it before that
            super().train(self.training)
        # save_hyperparameters(logger=True) fails if the datamodule has an argument of that name
        for logger in self.loggers:
            logger.log_hyperparams(dict(self.hparams))

    def on_train_start(self) -> None:
        """Set a frozen backbone to eval mode, or unfreeze it if a later epoch is resumed."""
        self._unfreeze_in_time()
        if self._backbone_frozen:
            self.train(self.training)

    def on_train_epoch_start(self) -> None:
        """Unfreeze the backbone at the given epoch."""
        self._unfreeze_in_time()

    def on_validation_start(self) -> None:
        """Check that the datamodule fits the network."""
        self._check_data()

    on_test_start = on_validation_start

    def on_validation_epoch_start(self) -> None:
        """Clear the stored rows, on every rank."""
        self.rows.begin(**self._empty_rows())

    on_test_epoch_start = on_validation_epoch_start

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Store the rows of a batch."""
        self._store(**self._evaluate(batch, first=batch_idx == 0))

    test_step = validation_step

    def on_validation_epoch_end(self) -> None:
        """Log the scores of the whole split."""
        self._log_scores("val")

    def on_test_epoch_end(self) -> None:
        """Log the scores of the whole split."""
        self._log_scores("test")

    # Logging --------------------------------------------------------------------------------

    # torch.compile compiles the steps too; it would trace the metrics again at each update
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _log_training(self, loss: tuple[Tensor, Tensor], **scores: tuple[Tensor, Tensor]) -> None:
        """Add a batch to the means of the epoch, each a sum of values and a sum of weights."""
        for name, (value_sum, weight_sum) in {"loss": loss, **scores}.items():
            mean: WeightedMean = getattr(self, f"train_{name}")
            mean.update(value_sum, weight_sum)
            self.log(f"train_{name}", mean, on_step=False, on_epoch=True, prog_bar=name == "loss")

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _store(self, **columns: Tensor) -> None:
        self.rows.update(**columns)

    def _log_scores(self, stage: str) -> None:
        # at the end of the epoch: a rank with fewer batches would miss a gather in the step
        rows = self.rows.gather()
        self.rows.reset()
        if not len(rows["target"]):
            return
        scores = {"loss": weighted_mean(rows), **self._scores(rows)}
        for name, score in scores.items():
            # equal on all ranks, so "max" keeps it; Lightning warns without a reduction
            shown = name in ("loss", "accuracy", "r2")
            self.log(f"{stage}_{name}", score, sync_dist=True, reduce_fx="max", prog_bar=shown)
