from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

# Before torch is loaded: threads that wait for each other on busy cores make a tiny fit take 20
# times as long, and spin while they wait.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# A shell has what it runs in the background ignore Ctrl-C, and so would the programs that tests
# interrupt: they inherit it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

FOLDER = os.environ.get("DATAMODULES_TEST_DATA")
RUNS = Path(__file__).parent / "runs"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all of tests/runs; elsewhere a test is marked where it starts processes."""
    for item in items:
        if RUNS in item.path.parents:
            item.add_marker("runs")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Real and nasty data for trials; tests that need them are skipped where they are absent."""
    beside = Path(__file__).parent.parent.parent / "shared" / "data"
    folder = Path(FOLDER) if FOLDER else beside
    if not folder.is_dir():
        pytest.skip("set DATAMODULES_TEST_DATA to the folder of test data")
    return folder


@pytest.fixture(scope="session")
def cases_dir(data_dir: Path) -> Path:
    """Small inputs of faults that were reported in public."""
    folder = data_dir.parent / "cases" / "inputs"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent")
    return folder
