"""Look at data and loading: findings, figures, reports, tuning, bisecting.

May import every room; only scripts import it.
"""

from datamodules.insight.tuning.tune import Tuning, tune

from .bisect import Bisection, bisect
from .data_record import DataRecord, describe_data
from .error_report import Hardest
from .findings import Finding, Report, SampleStep
from .hard_samples import hardest
from .inspect import inspect
from .safe_mode import make_safe
from .terminal_report import print_report
from .wait_monitor import DataWaitMonitor

__all__ = [
    "Bisection",
    "DataRecord",
    "DataWaitMonitor",
    "Finding",
    "Hardest",
    "Report",
    "SampleStep",
    "Tuning",
    "bisect",
    "describe_data",
    "hardest",
    "inspect",
    "make_safe",
    "print_report",
    "tune",
]
