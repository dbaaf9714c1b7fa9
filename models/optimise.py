"""Optimizer and learning rate: backbone and head, parameter groups, warm-up and cosine decay."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

HEAD_NAMES = ("head", "heads", "fc", "classifier")


def head_of(net: nn.Module) -> nn.Module:
    """Return the last layer of a network, which fine-tuning trains first.

    Returns:
        The child called ``head``, ``heads``, ``fc`` or ``classifier``, the names of this package
        and torchvision, or else the last child that has parameters.

    Raises:
        ValueError: If the network has no separate last layer.
    """
    for name in HEAD_NAMES:
        child = getattr(net, name, None)
        if isinstance(child, nn.Module) and any(True for _ in child.parameters()):
            return child
    trainable = [child for child in net.children() if any(True for _ in child.parameters())]
    if len(trainable) < 2:
        raise ValueError(
            f"freeze_backbone and backbone_lr need a network with a last layer called "
            f"{', '.join(HEAD_NAMES)}, which {type(net).__name__} lacks; name it 'head'"
        )
    return trainable[-1]


def backbone_parameters(net: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of a network that are not in its last layer."""
    head = {id(parameter) for parameter in head_of(net).parameters()}
    return [parameter for parameter in net.parameters() if id(parameter) not in head]


def make_optimizer(
    net: nn.Module, parameters: Iterable[nn.Parameter], options: Mapping[str, Any]
) -> torch.optim.Optimizer:
    """Build AdamW or SGD.

    Args:
        net: Network whose backbone may have its own learning rate.
        parameters: All parameters, frozen ones too: a resumed optimizer needs the same groups.
        options: ``optimizer``, ``lr``, ``backbone_lr``, ``weight_decay``, ``momentum`` and
            ``freeze_backbone``, as in :class:`models.arguments.TrainingOptions`.
    """
    lr, backbone_lr = options["lr"], options["backbone_lr"]
    backbone: set[int] = set()
    if backbone_lr is not None or options["freeze_backbone"]:
        backbone = {id(parameter) for parameter in backbone_parameters(net)}
    groups = parameter_groups(
        [(parameter, id(parameter) in backbone) for parameter in parameters],
        lr=lr,
        backbone_lr=lr if backbone_lr is None else backbone_lr,
        weight_decay=options["weight_decay"],
    )
    if options["optimizer"] == "sgd":
        momentum = options["momentum"]
        return torch.optim.SGD(groups, lr=lr, momentum=momentum, nesterov=momentum > 0)
    return torch.optim.AdamW(groups, lr=lr)


def parameter_groups(
    parameters: Iterable[tuple[nn.Parameter, bool]],
    *,
    lr: float,
    backbone_lr: float,
    weight_decay: float,
) -> list[dict[str, Any]]:
    """Group parameters for an optimizer: backbone and head, with and without weight decay.

    Args:
        parameters: Pairs of a parameter and whether it is in the backbone.
        lr: Learning rate of the head.
        backbone_lr: Learning rate of the backbone.
        weight_decay: For matrices and filters; not applied to biases and norms.
    """
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for parameter, in_backbone in parameters:
        groups.setdefault((in_backbone, parameter.ndim > 1), []).append(parameter)
    return [
        {
            "params": members,
            "lr": backbone_lr if in_backbone else lr,
            "weight_decay": weight_decay if decays else 0.0,
        }
        for (in_backbone, decays), members in groups.items()
    ]


def warmup_cosine(*, warmup_steps: int | float, total_steps: float) -> Callable[[int], float]:
    """Return a factor for the learning rate: linear warm-up to 1, then cosine decay to 0.

    >>> factor = warmup_cosine(warmup_steps=2, total_steps=6)
    >>> [round(factor(step), 3) for step in range(6)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]

    Args:
        warmup_steps: Steps of the warm-up; below 1, a fraction of all steps.
        total_steps: All steps. If they are unknown (infinite or negative), the rate is constant
            after the warm-up, and a fraction for ``warmup_steps`` means no warm-up.
    """
    endless = not 0 < total_steps < math.inf
    if warmup_steps >= 1:
        warmup = int(warmup_steps)
    else:
        warmup = 0 if endless else round(warmup_steps * total_steps)

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        if endless:
            return 1.0
        done = (step - warmup) / max(1, total_steps - warmup)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

    return factor
