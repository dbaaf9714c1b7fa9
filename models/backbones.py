"""Remove the last layer of networks, so that they return features."""

from __future__ import annotations

from typing import Any

from torch import nn

from .nets import build_net
from .training import TrainingModule

PLACEHOLDER_OUTPUTS = 7919  # no inner layer has this number of outputs


def build_backbone(
    net: str, *, input_sizes: dict[str, Any] | None = None, weights: str | None = None
) -> nn.Module:
    """Build a network that returns (N, F) features.

    Args:
        net: Name, see :func:`~models.nets.build_net`.
        input_sizes: See :func:`~models.nets.input_kind`.
        weights: Name of pretrained weights of a torchvision network, such as ``"DEFAULT"``.

    Raises:
        ValueError: If a name is unknown, or the network has no linear last layer.
    """
    whole = build_net(
        net, num_outputs=PLACEHOLDER_OUTPUTS, input_sizes=input_sizes, weights=weights
    )
    return without_head(whole, PLACEHOLDER_OUTPUTS)


def trained_backbone(model: TrainingModule) -> nn.Module:
    """Return the network of a trained model without its last layer."""
    outputs: Any = model.hparams.get("num_classes") or model.hparams.get("num_targets")
    return without_head(model.net, int(outputs))


def without_head(net: nn.Module, num_outputs: int) -> nn.Module:
    """Replace the last linear layer with ``num_outputs`` outputs by the identity.

    Raises:
        ValueError: If there is no such layer.
    """
    for path, layer in reversed(list(net.named_modules())):
        if isinstance(layer, nn.Linear) and layer.out_features == num_outputs:
            parent, _, name = path.rpartition(".")
            setattr(net.get_submodule(parent), name, nn.Identity())
            return net
    raise ValueError(
        f"{type(net).__name__} has no linear layer with {num_outputs} outputs; choose another net, "
        "or pass a module of your own that returns (N, F)"
    )
