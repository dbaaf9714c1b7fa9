from __future__ import annotations

import numpy as np
import pytest
from script_runs import (  # noqa: F401 - an autouse fixture
    as_if_alone,
    results,
    run_folder,
)


def test_each_run_gets_a_folder_of_its_own(tmp_path):
    names = [run_folder.claim_folder(tmp_path / "runs", "digits").name for _ in range(3)]
    assert names == ["digits-1", "digits-2", "digits-3"]
    (tmp_path / "runs" / "digits-2").rmdir()
    assert run_folder.claim_folder(tmp_path / "runs", "digits").name == "digits-4"
    assert run_folder.claim_folder(tmp_path / "runs", "wine").name == "wine-1"


@pytest.mark.parametrize("num_classes", [2, 31, 120])
def test_a_confusion_matrix_of_any_size_is_drawn(tmp_path, num_classes):
    counts = np.random.default_rng(0).integers(0, 5, (num_classes, num_classes))
    names = [f"a rather long class name {k}" for k in range(num_classes)]
    names[0], names[1] = "cost $1 to $2", "手写"
    results.draw_confusion(counts, names, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes()[1:4] == b"PNG"


def test_a_multilabel_confusion_matrix_is_drawn(tmp_path):
    results.draw_confusion(
        np.array([[[5, 1], [0, 2]], [[0, 0], [3, 5]]]), ["a", "b"], tmp_path / "f.png"
    )
    assert (tmp_path / "f.png").stat().st_size > 1000
