"""What a person looks at: where the time goes, what a run was fed with, which setting breaks.

Names are imported when they are asked for, as in :mod:`datamodules`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bisect import Bisection, bisect
    from .monitor import DataWaitMonitor
    from .record import DataRecord, describe_data
    from .safe import make_safe
    from .tune import Tuning, tune

HOMES = {
    "Bisection": "bisect",
    "DataRecord": "record",
    "DataWaitMonitor": "monitor",
    "Tuning": "tune",
    "bisect": "bisect",
    "describe_data": "record",
    "make_safe": "safe",
    "tune": "tune",
}
__all__ = [
    "Bisection",
    "DataRecord",
    "DataWaitMonitor",
    "Tuning",
    "bisect",
    "describe_data",
    "make_safe",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
