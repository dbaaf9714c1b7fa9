"""Networks without their last layer, whose outputs are features."""

from __future__ import annotations

from typing import Any

from torch import nn

from .nets import build_net
from .training import TrainingModule

RARE = 7919  # a number of outputs that no inner layer has


def build_backbone(
    net: str, *, input_sizes: dict[str, Any] | None = None, weights: str | None = None
) -> nn.Module:
    """A network by name that gives (N, F) features.

    Args:
        net: As :func:`~models.nets.build_net` takes it.
        input_sizes: As :func:`~models.nets.input_kind` takes them.
        weights: For torchvision nets, a name of their weights enum, such as ``"DEFAULT"``.

    Raises:
        ValueError: If a name is unknown, or the net has no last layer of its own.
    """
    whole = build_net(net, num_outputs=RARE, input_sizes=input_sizes, weights=weights)
    return without_head(whole, RARE)


def trained_backbone(model: TrainingModule) -> nn.Module:
    """The network of a trained model, without its last layer."""
    outputs: Any = model.hparams.get("num_classes") or model.hparams.get("num_targets")
    return without_head(model.net, int(outputs))


def without_head(net: nn.Module, num_outputs: int) -> nn.Module:
    """Put the identity in place of the last layer with so many outputs.

    Raises:
        ValueError: If there is none.
    """
    for path, layer in reversed(list(net.named_modules())):
        if isinstance(layer, nn.Linear) and layer.out_features == num_outputs:
            parent, _, name = path.rpartition(".")
            setattr(net.get_submodule(parent), name, nn.Identity())
            return net
    raise ValueError(
        f"{type(net).__name__} has no last linear layer with {num_outputs} outputs; choose another "
        "net, or pass one of your own that gives (N, F)"
    )
