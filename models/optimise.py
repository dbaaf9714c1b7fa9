"""What is trained and how fast: backbone and head, parameter groups, the learning rate's course."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

HEAD_NAMES = ("head", "heads", "fc", "classifier")


def head_of(net: nn.Module) -> nn.Module:
    """The last layer of a network: what fine-tuning trains first.

    Returns:
        The child called ``head``, ``heads``, ``fc`` or ``classifier``, as this package and
        torchvision name it, else the last child that has parameters.

    Raises:
        ValueError: If the network does not part into a backbone and a head.
    """
    for name in HEAD_NAMES:
        child = getattr(net, name, None)
        if isinstance(child, nn.Module) and any(True for _ in child.parameters()):
            return child
    trainable = [child for child in net.children() if any(True for _ in child.parameters())]
    if len(trainable) < 2:
        raise ValueError(
            f"freeze_backbone and backbone_lr need a network with a head, and "
            f"{type(net).__name__} has none of {', '.join(HEAD_NAMES)}; name its last layer 'head'"
        )
    return trainable[-1]


def parameter_groups(
    parameters: Iterable[tuple[nn.Parameter, bool]],
    *,
    lr: float,
    backbone_lr: float,
    weight_decay: float,
) -> list[dict[str, Any]]:
    """Groups for an optimiser: backbone and rest, each with and without weight decay.

    Args:
        parameters: Pairs of a parameter and whether it belongs to the backbone.
        lr: Learning rate of what is not backbone.
        backbone_lr: Learning rate of the backbone.
        weight_decay: For matrices and filters; biases and the scales of norms have none.
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
    """A factor for the learning rate: a line up to 1, then a cosine down to 0.

    >>> factor = warmup_cosine(warmup_steps=2, total_steps=6)
    >>> [round(factor(step), 3) for step in range(6)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]

    Args:
        warmup_steps: Steps of the line, or below 1 their share of all steps.
        total_steps: All steps; infinite or negative where the end is unknown, which leaves the
            rate constant after the warm-up (and a share without meaning, so without warm-up).
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
