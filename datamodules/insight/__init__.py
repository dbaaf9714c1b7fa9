"""What a person looks at before and after training."""

from .findings import Finding, Report
from .inspect import inspect

__all__ = ["Finding", "Report", "inspect"]
