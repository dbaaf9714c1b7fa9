"""What a person looks at: findings, where the time goes, what a run was fed with, what breaks."""

from .bisect import Bisection, bisect
from .figures import plot
from .findings import Finding, Report, SampleStep
from .hardest import hardest
from .inspect import inspect
from .monitor import DataWaitMonitor
from .printed import print_report
from .record import DataRecord, describe_data
from .safe import make_safe
from .tune import Tuning, tune
from .wrong_answers import Hardest

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
    "plot",
    "print_report",
    "tune",
]
