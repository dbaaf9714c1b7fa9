"""Classifier and regressor for the datamodules, and the networks they build by name."""

from .classifier import Classifier
from .nets import build_net, net_names
from .regressor import Regressor

__all__ = ["Classifier", "Regressor", "build_net", "net_names"]
