"""What the classifier and the regressor share: the network, its optimiser, freezing and logs."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn

from .arguments import check_choice, plain
from .metrics import RowStore, WeightedMean, weighted_mean
from .nets import build_net, resolve_net
from .optimise import head_of, parameter_groups, warmup_cosine


def bare_inputs(batch: Any) -> Any:
    """The inputs of a predict batch, which may come bare, with rows or with a target."""
    if hasattr(batch, "inputs"):
        return batch.inputs
    return batch[0] if type(batch) in (tuple, list) else batch


class TrainingModule(L.LightningModule):
    """A network with its optimiser, schedule, freezing and scores; a subclass adds the loss.

    A subclass saves its arguments, among them ``net_options``, ``weights``, ``input_sizes``,
    ``optimizer``, ``lr``, ``weight_decay``, ``momentum``, ``warmup_steps``, ``freeze_backbone``,
    ``unfreeze_at_epoch`` and ``backbone_lr``, then calls :meth:`start` with its network.
    """

    net: nn.Module

    def __init__(self) -> None:
        super().__init__()
        self.train_loss = WeightedMean()
        self.rows = RowStore("outputs", "target", "loss", "weight")
        self._backbone_frozen = False

    def start(self, net: str | nn.Module) -> None:
        """Take the network, or check its name, and check what the optimiser was given."""
        options = self.hparams
        check_choice("optimizer", options["optimizer"], ("adamw", "sgd"))
        for name in ("lr", "warmup_steps", "weight_decay", "momentum"):
            if options[name] < 0:
                raise ValueError(f"{name} must be 0 or more, got {options[name]}")
        if options["unfreeze_at_epoch"] is not None and not options["freeze_backbone"]:
            raise ValueError(
                f"unfreeze_at_epoch={options['unfreeze_at_epoch']} has nothing to unfreeze; "
                "pass freeze_backbone=True as well"
            )
        options["input_sizes"] = plain(options["input_sizes"])
        if isinstance(net, nn.Module):
            for name in ("net_options", "weights"):
                if options[name] is not None:
                    raise ValueError(
                        f"{name} is for networks built by name, and net is a finished "
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

    def find_outputs(self, data: Any) -> int:
        """Fill in what the hyperparameters lack from the datamodule; the network's outputs."""
        raise NotImplementedError

    def scores(self, rows: dict[str, Tensor]) -> dict[str, float]:
        """Score the rows of a split, as the evaluation steps stored them."""
        raise NotImplementedError

    def empty_rows(self) -> dict[str, Tensor]:
        """Rows as the evaluation steps store them, but none."""
        raise NotImplementedError

    # The network ----------------------------------------------------------------------------

    @property
    def _data(self) -> Any:
        """The datamodule of the Trainer; None without Trainer or datamodule."""
        return getattr(self._trainer, "datamodule", None)

    def configure_model(self) -> None:
        """Size the network by the datamodule or by what was saved, and build it once."""
        options = self.hparams
        if options["input_sizes"] is None:
            options["input_sizes"] = plain(getattr(self._data, "input_sizes", None))
        num_outputs = self.find_outputs(self._data)
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
        """(N, num_outputs) for a tensor or a NamedTuple of tensors.

        Raises:
            RuntimeError: If the network is not built yet.
        """
        if "net" not in self._modules:
            raise RuntimeError(
                "the network is not built yet: the Trainer does it at the start of a run; "
                "outside of one call configure_model() first"
            )
        output = self.net(*inputs) if hasattr(inputs, "_fields") else self.net(inputs)
        # Hugging Face and some torchvision nets wrap their logits
        logits: Tensor = getattr(output, "logits", output)
        return logits

    def forward_training(self, inputs: Any) -> Tensor:
        """:meth:`forward`, with a clear error for batch norm over a single row.

        Raises:
            ValueError: If there is batch norm and the batch holds one row.
        """
        try:
            outputs: Tensor = self(inputs)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise ValueError(
                "a batch of one sample cannot train a network with batch norm, which needs at "
                "least 2 to take a spread from; use batch_size=2 or more and at least 2 training "
                f"samples, or a network without batch norm ({error})"
            ) from error
        return outputs

    # torch.compile compiles the steps too; it would trace the metrics anew at each update
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def note_training(self, loss: tuple[Tensor, Tensor], **scores: tuple[Tensor, Tensor]) -> None:
        """Add a batch to the epoch's means, each given as a sum of values and a sum of weights."""
        for name, (value_sum, weight_sum) in {"loss": loss, **scores}.items():
            mean: WeightedMean = getattr(self, f"train_{name}")
            mean.update(value_sum, weight_sum)
            self.log(f"train_{name}", mean, on_step=False, on_epoch=True, prog_bar=name == "loss")

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def note_rows(self, **columns: Tensor) -> None:
        """Store a batch of an evaluation: ``outputs``, ``target``, ``loss`` and ``weight``."""
        self.rows.update(**columns)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Leave the name of trained weights out: the checkpoint holds newer ones."""
        options = checkpoint.get(self.CHECKPOINT_HYPER_PARAMS_KEY, {})
        if options.get("weights") is not None:
            checkpoint[self.CHECKPOINT_HYPER_PARAMS_KEY] = {**options, "weights": None}

    # The optimiser --------------------------------------------------------------------------

    def configure_optimizers(self) -> Any:
        """AdamW or SGD, with a learning rate that is set at each step."""
        options = self.hparams
        lr, backbone_lr = options["lr"], options["backbone_lr"]
        backbone: set[int] = set()
        if backbone_lr is not None or options["freeze_backbone"]:
            head = {id(parameter) for parameter in head_of(self.net).parameters()}
            backbone = {id(parameter) for parameter in self.net.parameters()} - head
        groups = parameter_groups(
            # frozen ones too: an optimiser that a checkpoint resumes needs the same groups
            [(parameter, id(parameter) in backbone) for parameter in self.parameters()],
            lr=lr,
            backbone_lr=lr if backbone_lr is None else backbone_lr,
            weight_decay=options["weight_decay"],
        )
        optimizer: torch.optim.Optimizer
        if options["optimizer"] == "sgd":
            momentum = options["momentum"]
            optimizer = torch.optim.SGD(groups, lr=lr, momentum=momentum, nesterov=momentum > 0)
        else:
            optimizer = torch.optim.AdamW(groups, lr=lr)
        factor = warmup_cosine(
            warmup_steps=options["warmup_steps"],
            total_steps=self.trainer.estimated_stepping_batches,
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    # Freezing -------------------------------------------------------------------------------

    def _frozen_at(self, epoch: int) -> bool:
        unfreeze_at = self.hparams["unfreeze_at_epoch"]
        return self.hparams["freeze_backbone"] and (unfreeze_at is None or epoch < unfreeze_at)

    def _freeze(self, frozen: bool) -> None:
        self._backbone_frozen = frozen
        head = {id(parameter) for parameter in head_of(self.net).parameters()}
        for parameter in self.net.parameters():
            if id(parameter) not in head:
                parameter.requires_grad_(not frozen)

    def train(self, mode: bool = True) -> TrainingModule:
        """Set the training mode; a frozen backbone stays in eval mode, its batch norms fixed."""
        super().train(mode)
        if mode and self._backbone_frozen:
            self.net.eval()
            self.net.training = mode  # the outermost module holds the head as well
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

    def on_fit_start(self) -> None:
        """Log the hyperparameters, with what the datamodule has filled in."""
        self.check_data()
        if self.hparams["freeze_backbone"]:
            # on_train_start sets eval mode again: Lightning warns of it before that
            super().train(self.training)
        # not by save_hyperparameters(logger=True): that stops a run whose datamodule has an
        # argument of the same name with another value
        for logger in self.loggers:
            logger.log_hyperparams(dict(self.hparams))

    def on_train_start(self) -> None:
        """Fix a frozen backbone; unfreeze it where a checkpoint resumes in a later epoch."""
        self._unfreeze_in_time()
        if self._backbone_frozen:
            self.train(self.training)

    def on_train_epoch_start(self) -> None:
        """Unfreeze at the epoch given."""
        self._unfreeze_in_time()

    def on_validation_start(self) -> None:
        """Compare the datamodule with the network."""
        self.check_data()

    def on_test_start(self) -> None:
        """Compare the datamodule with the network."""
        self.check_data()

    def on_validation_epoch_start(self) -> None:
        """Start with no rows, on every rank."""
        self.rows.begin(**self.empty_rows())

    def on_test_epoch_start(self) -> None:
        """Start with no rows, on every rank."""
        self.rows.begin(**self.empty_rows())

    def on_validation_epoch_end(self) -> None:
        """Log the scores of the whole split."""
        self._log_scores("val")

    def on_test_epoch_end(self) -> None:
        """Log the scores of the whole split."""
        self._log_scores("test")

    def _log_scores(self, stage: str) -> None:
        # here and not in the step: a rank with fewer batches would not join the gathering there
        rows = self.rows.gather()
        self.rows.reset()
        if not len(rows["target"]):
            return
        scores = {"loss": weighted_mean(rows), **self.scores(rows)}
        for name, score in scores.items():
            # every rank has the same figures by now; their maximum is exactly that figure, and
            # naming a reduction keeps Lightning from warning that there is none
            self.log(
                f"{stage}_{name}",
                score,
                sync_dist=True,
                reduce_fx="max",
                prog_bar=name in ("loss", "accuracy", "r2"),
            )

    def check_data(self) -> None:
        """Compare the datamodule's sizes with those the network was built for.

        Raises:
            ValueError: If the network cannot read such inputs.
        """
        built, found = self.hparams["input_sizes"], plain(getattr(self._data, "input_sizes", None))
        if built is None or found is None:
            return
        # the nets take images of many sizes, but of one number of channels
        built, found = (
            {"channels": sizes["input_shape"][0]}
            if len(sizes.get("input_shape", ())) == 3
            else sizes
            for sizes in (built, found)
        )
        if built != found:
            raise ValueError(
                f"the network was built for inputs of {built}, the datamodule gives {found}; "
                "restore the datamodule from the same checkpoint or build a new model"
            )
