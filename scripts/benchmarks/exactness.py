"""Compare samplers under Lightning on one process and on two, stock code and this project.

Every case is a fit of two epochs. Right means: the run starts, the rows of all ranks together are
what the sampler promises, and a shuffled epoch is followed by another order.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .exactness_cases import CASES, ROWS
from .tables import Result


def add_options(parser: argparse._ArgumentGroup) -> None:
    """Add the time limit of a program."""
    parser.add_argument("--timeout-seconds", type=float, default=240)


def measure(options: argparse.Namespace) -> Result:
    """Run all cases on one process and on two."""
    found = {world: run_cases(world, options.timeout_seconds) for world in (1, 2)}
    rows = []
    for case in CASES:
        row: dict[str, Any] = {"sampler": case}
        for world in (1, 2):
            for side in ("stock", "ours"):
                ranks = [rank[f"{side}: {case}"] for rank in found[world]]
                row[f"{side}, {world} process{'es' * (world > 1)}"] = verdict(case, ranks)
        rows.append(row)
    columns = list(rows[0])[1:]
    right = {c: sum(str(row[c]).startswith("right") for row in rows) for c in columns}
    notes = ["right: " + "; ".join(f"{c} {right[c]} of {len(rows)}" for c in columns)]
    return Result(f"{ROWS} samples, two epochs, default Trainer", rows, notes=notes)


def run_cases(world: int, timeout: float) -> list[dict[str, Any]]:
    """Return the rows that each rank saw in each case, by case.

    Raises:
        RuntimeError: If the program failed or did not finish in time.
    """
    program = Path(__file__).with_name("exactness_ranks.py")
    process = subprocess.Popen(
        [sys.executable, str(program), str(world)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise RuntimeError(
            f"the cases on {world} processes took over {timeout:.0f} s; raise --timeout-seconds"
        ) from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    lines = [line for line in output.splitlines() if line.startswith("SEEN ")]
    if process.returncode or len(lines) != world:
        raise RuntimeError(f"the cases on {world} processes failed:\n{output[-2000:]}")
    ranks: dict[int, dict[str, Any]] = dict(json.loads(line[5:]) for line in lines)
    return [ranks[rank] for rank in range(world)]


def verdict(case: str, ranks: Sequence[Any]) -> str:
    """Return ``right``, or what is wrong with the rows of all ranks together."""
    refused = next((rank for rank in ranks if isinstance(rank, str)), None)
    return f"refused: {refused}" if refused is not None else CASES[case].fault(ranks) or "right"
