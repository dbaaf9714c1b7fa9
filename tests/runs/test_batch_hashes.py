"""An augmented image batch has one hash, whoever made it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from warm_start import run_warm

PROGRAM = Path(__file__).parents[1] / "helpers" / "batch_hashes.py"
CASES = [
    {"num_workers": 0},
    {"num_workers": 1, "multiprocessing_context": "fork"},
    {"num_workers": 2, "multiprocessing_context": "fork"},
    {"num_workers": 4, "multiprocessing_context": "fork"},
    {"num_workers": 2, "multiprocessing_context": "forkserver"},
    {"num_workers": 1, "multiprocessing_context": "spawn"},
    {"num_workers": 1, "worker_type": "thread"},
    {"num_workers": 2, "worker_type": "thread"},
    {"num_workers": 4, "worker_type": "thread"},
]
pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork"),
]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    for number in range(20):
        path = root / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(random.integers(0, 256, (24, 24, 3), np.uint8)).save(path)
    return root


def seen(output):
    lines = [line for line in output.splitlines() if line.startswith("SEEN ")]
    return [json.loads(line[5:]) for line in lines]


@pytest.fixture(scope="module")
def on_one(images):
    return seen(run_warm(PROGRAM, images, json.dumps(CASES), timeout=180))[0]


def test_workers_and_start_methods_do_not_change_a_batch(on_one):
    assert len(on_one) == len(CASES)
    assert len(set(on_one[0])) == 2, "two steps are two batches"
    for case, found in zip(CASES, on_one, strict=True):
        assert found == on_one[0], case


def test_two_processes_make_the_same_batch_together(images, on_one):
    cases = [CASES[0], CASES[2], CASES[-2]]
    output = run_warm(PROGRAM, images, json.dumps(cases), ranks=2, timeout=180)
    ranks = seen(output)
    assert len(ranks) == 2
    for found in ranks:
        assert len(found) == len(cases)
        for hashes in found:
            # each rank's rows are every second batch of one stretch: the same rows, in rank order
            assert hashes == on_one[0]
